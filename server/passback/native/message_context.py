"""The fields of a post beside its content (`MessageContext`): how they are read and shown."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, NotRequired, TypeAlias, cast

from pydantic import Field, JsonValue
from pydantic_core import to_json
from typing_extensions import TypedDict

from passback.core.errors import DataTooLarge, InvalidRequest
from passback.core.messages import ConversationKey, MessageContext, PostedMessage, UserMessage
from passback.core.tables import BadTable, Table, check_table, find_tables
from passback.http.body import work_on
from passback.http.wires import RequestLimits
from passback.native.declarations import parse_output_schema
from passback.native.parts import Posted

_NOTHING = MessageContext()
# Fields that many clients send with each post. Without a user message the last ones stay in force.
_OF_ANY_POST = frozenset({"model"})
# Stands for an empty name. No model has it: the agent refuses it if clients may choose a model.
_BLANK_NAME = " "
_PLACE_CHARACTERS = 200  # of a table's place, in an error

_ShortText: TypeAlias = Annotated[str, Field(max_length=4_000)]


class PostedContext(Posted):
    """The fields that belong to the post's last user message."""

    structured_data: JsonValue = Field(
        None,
        description="Data to work on, any JSON; null: forget earlier data. It is shown to the "
        'model, and to data tools. `{"mediaType": "text/csv" or "text/tab-separated-values", '
        '"text"}`, also as the value of a key, is a table.',
    )
    intent: _ShortText | None = Field(
        None, description="What the user wants, in the client's words."
    )
    constraints: Annotated[list[_ShortText], Field(fail_fast=True, max_length=100)] | None = Field(
        None, description="What the agent has to keep to."
    )
    instructions: Annotated[str, Field(max_length=32_768)] | None = Field(
        None, description="The client's own instructions, for the answer to this message."
    )
    output_schema: dict[str, JsonValue] | str | None = Field(
        None,
        description="A JSON Schema of type object, or its text: the answer is JSON that fits it, "
        "or the run fails. Its value comes in the event `output` (include: output) and in the "
        "document's `output`.",
    )
    model: str | None = Field(
        None,
        description="The model that answers this message, where the server lets clients choose: "
        "its name, such as `openai:gpt-5`, or the part behind the colon if only one model has it. "
        "Missing or null: the server's own. Ignored where there is nothing to choose.",
    )


async def read_context(
    posted: PostedContext, limits: RequestLimits, key: ConversationKey, /
) -> MessageContext:
    """Return the posted fields, checked. The result is empty if none was posted.

    Raises:
        DataTooLarge: the data has more than `limits.data_bytes`, as compact JSON.
        InvalidRequest: it has a table that cannot be read.
        InvalidOutputSchema: the schema is wrong. The error has the reason.
        SchemasBusy: the schema could not be checked in time.
    """
    # most posts have none of them
    if posted.model_fields_set.isdisjoint(PostedContext.model_fields):
        return _NOTHING
    data, schema = posted.structured_data, posted.output_schema
    name = _client_name(type(posted), "structured_data")
    refuse_large(name, data, limits)
    tables = [(f"{name}.{at}" if at else name, table) for at, table in find_tables(data)]
    await work_on((table.text for _, table in tables), check_tables, tables)
    return MessageContext(
        data,
        (posted.intent or "").strip(),
        tuple(filter(None, (each.strip() for each in posted.constraints or ()))),
        (posted.instructions or "").strip(),
        None
        if schema is None
        else await parse_output_schema(
            schema, limits, _client_name(type(posted), "output_schema"), key
        ),
        # null forgets the data, a missing key leaves it as it is
        forgets=data is None and "structured_data" in posted.model_fields_set,
        model="" if posted.model is None else posted.model or _BLANK_NAME,
    )


def refuse_large(name: str, data: JsonValue, limits: RequestLimits, /) -> None:
    """Raise DataTooLarge for data with more than `limits.data_bytes`, as compact JSON."""
    if data is not None and len(to_json(data)) > limits.data_bytes:
        raise DataTooLarge(
            f"{name} is larger than {limits.data_bytes} bytes (data_bytes in PASSBACK_LIMITS)",
            details={"limit": limits.data_bytes},
        )


def check_tables(tables: Sequence[tuple[str, Table]], /) -> None:
    """Raise InvalidRequest for a table that cannot be read; each comes with its place."""
    for place, table in tables:
        try:
            check_table(table)
        except BadTable as problem:
            raise InvalidRequest(
                f"{place[:_PLACE_CHARACTERS]} is a table that cannot be read: {problem}"
            ) from None


def add_context(
    messages: Sequence[PostedMessage],
    context: MessageContext,
    form: type[PostedContext] = PostedContext,
    /,
) -> tuple[PostedMessage, ...]:
    """Return the messages with the context in the last one of the user.

    Args:
        messages: of the post.
        context: the context.
        form: the model that was posted. It has the client's names of the fields.

    Raises:
        InvalidRequest: there is no user message, and the context is not empty.
    """
    if context == _NOTHING:
        return tuple(messages)
    for position in reversed(range(len(messages))):
        message = messages[position]
        if isinstance(message, UserMessage):
            with_context = replace(message, context=context)
            return (*messages[:position], with_context, *messages[position + 1 :])
    if replace(context, forgets=False, model="") == _NOTHING:
        return tuple(messages)  # many clients post null for fields that they do not use
    *names, last = (
        _client_name(form, field)
        for field in PostedContext.model_fields
        if field not in _OF_ANY_POST
    )
    raise InvalidRequest(f"{', '.join(names)} and {last} need a user message")


def _client_name(form: type[PostedContext], field: str) -> str:
    """Return the client's name of a field."""
    return form.model_fields[field].alias or field


class ContextView(TypedDict):
    """The fields that were posted beside a user's content.

    `at` is the time when it arrived, if the agent is given the time. `model` is the one that was
    chosen. `extras` are unknown keys of the request, if its protocol keeps them.
    """

    structuredData: NotRequired[JsonValue]
    intent: NotRequired[str]
    constraints: NotRequired[list[str]]
    instructions: NotRequired[str]
    outputSchema: NotRequired[JsonValue]
    model: NotRequired[str]
    at: NotRequired[str]
    extras: NotRequired[JsonValue]


def context_view(context: MessageContext, /) -> ContextView:
    """Return the view of a context, with the fields that were posted as they were posted."""
    texts = {
        "intent": context.intent,
        "instructions": context.instructions,
        "model": context.model,
        "at": context.at,
    }
    view = cast("ContextView", {name: text for name, text in texts.items() if text})
    if context.data is not None or context.forgets:  # null is shown only if it was posted
        view["structuredData"] = context.data
    if context.constraints:
        view["constraints"] = list(context.constraints)
    if context.output_schema is not None:
        view["outputSchema"] = dict(context.output_schema)
    if context.extras is not None:
        view["extras"] = dict(context.extras)
    return view
