"""Documents of conversations in requests: their contents are checked as those of posts are."""

from collections.abc import Collection, Sequence
from dataclasses import replace

import anyio.to_thread
from pydantic import JsonValue

from passback.core.conversation.document import ConversationDocument, read_document
from passback.core.errors import InvalidRequest, NotAllowed
from passback.core.messages import (
    ConversationKey,
    JsonObject,
    MediaPart,
    Message,
    MessageContext,
    SystemMessage,
    ToolSpec,
    UserMessage,
)
from passback.core.tables import find_tables
from passback.core.transcript import innermost_message
from passback.http.wires import RequestLimits
from passback.native.declarations import parse_output_schema, parse_tools
from passback.native.message_context import check_tables, refuse_large
from passback.native.parts import check_content, is_address

_SETTING = "PASSBACK_ALLOW_ROLES"


def refuse_import(allow_roles: Collection[str], /) -> None:
    """Return if clients may bring messages of the agent.

    Raises:
        NotAllowed: they may not. The error names the setting.
    """
    if "assistant" not in allow_roles:
        raise NotAllowed(
            "a document has messages of the agent, which clients may not bring here: the server's "
            f"operator can allow it by {_SETTING}=assistant, or system,assistant"
        )


async def read_posted_document(
    posted: JsonValue, limits: RequestLimits, key: ConversationKey, allow_roles: Collection[str], /
) -> ConversationDocument:
    """Return a posted document, its contents checked; `Runs.import_conversation` checks the rest.

    Raises:
        NotAllowed: it has messages of roles that clients may not post.
        InvalidRequest, AttachmentTooLarge, DataTooLarge, InvalidTool, ToolNameClash,
        InvalidOutputSchema, SchemasBusy: as for a post.
    """
    # in a thread: a body may have many messages
    document = await anyio.to_thread.run_sync(read_document, posted)
    if "system" not in allow_roles and any(map(_is_of_operator, document.messages)):
        raise NotAllowed(
            "the document has messages of the system, which clients may not bring here: the "
            f"server's operator can allow it by {_SETTING}=system,assistant"
        )
    messages = await anyio.to_thread.run_sync(_check_contents, document.messages, limits)
    schemas: dict[str, JsonObject] = {}
    for number, message in enumerate(messages):
        said = innermost_message(message)
        if isinstance(said, UserMessage) and said.context and said.context.output_schema:
            schemas[f"messages.{number}.context.output_schema"] = said.context.output_schema
    if document.state.output_schema:
        schemas["state.output_schema"] = document.state.output_schema
    for place, schema in schemas.items():
        await parse_output_schema(dict(schema), limits, place, key)
    await parse_tools([_declared(each) for each in document.tools or ()], limits, key)
    refuse_large("state.data", document.state.data, limits)
    return replace(document, messages=tuple(messages))


def _is_of_operator(message: Message) -> bool:
    """Return whether a message is of the operator, and not the server's rejection of an answer."""
    said = innermost_message(message)
    return isinstance(said, SystemMessage) and said.synthetic is None


def _declared(tool: ToolSpec) -> JsonValue:
    """Return a tool as a post declares it."""
    return {
        "name": tool.name,
        "description": tool.description,
        "parameters": dict(tool.parameters),
        "title": tool.title,
    }


def _check_contents(messages: Sequence[Message], limits: RequestLimits) -> list[Message]:
    return [_check_content(each, f"messages.{n}", limits) for n, each in enumerate(messages)]


def _check_content(message: Message, place: str, limits: RequestLimits) -> Message:
    """Return a message whose content could have been posted.

    Raises:
        InvalidRequest: it could not. The error names the place.
    """
    if not isinstance(message, UserMessage | SystemMessage):
        return message
    if isinstance(message.content, tuple):
        for part in message.content:
            if isinstance(part, MediaPart) and not is_address(part.url):
                raise InvalidRequest(f"{place}.content: it has a URL that no post may have")
    try:
        content = check_content(message.content, limits.attachment_bytes)
        if isinstance(message, UserMessage) and message.context is not None:
            _check_context(message.context, limits)
    except InvalidRequest as error:
        raise type(error)(f"{place}: {error.message}", details=error.details) from None
    return replace(message, content=content)


def _check_context(context: MessageContext, limits: RequestLimits) -> None:
    refuse_large("context.data", context.data, limits)
    check_tables([(f"context.data.{at}", table) for at, table in find_tables(context.data)])
