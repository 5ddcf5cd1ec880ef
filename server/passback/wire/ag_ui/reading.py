"""Reading of a request as commands: what of it is new, and where it goes on."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeAlias, assert_never, cast

from pydantic import JsonValue
from pydantic_core import to_json
from starlette.requests import Request

from passback.core.changes import Status
from passback.core.errors import InvalidRequest, ResultTooLarge
from passback.core.imported import PlacedMessage, imported_arguments, split_history
from passback.core.messages import (
    UNNAMED,
    Answer,
    AssistantMessage,
    CallId,
    Content,
    ConversationKey,
    HistoryMessage,
    MessageContext,
    MessageId,
    Part,
    PostedMessage,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    ToolSpec,
    UserMessage,
)
from passback.core.posts import StartRun
from passback.core.values import value
from passback.http.body import work_on
from passback.http.requests import headers_of, idempotency_key, validate_model
from passback.http.wires import RequestLimits, Services
from passback.native.declarations import parse_tools
from passback.native.message_context import add_context, read_context, refuse_large
from passback.native.parts import PostedMedia, check_content, read_at, read_media, read_result
from passback.native.submissions import read_approval
from passback.wire.ag_ui.matching import (
    Place,
    Tail,
    find_place,
    is_from_server,
    message_to_answer,
    named_elsewhere,
    read_tail,
)
from passback.wire.ag_ui.posted import (
    AgUiAssistantMessage,
    AgUiContent,
    AgUiMedia,
    AgUiOptions,
    AgUiOwnMessage,
    AgUiResume,
    AgUiSaid,
    AgUiSystemMessage,
    AgUiText,
    AgUiToolMessage,
    AgUiUserMessage,
    RunAgentInput,
)

OPTIONS_KEY: Final = "passback"
"""The key of `forwardedProps` with options for this server."""

_CANCELLED = "The user has cancelled it."
_NEEDS_CONVERSATION = (
    "there is no such thread, and a new one cannot begin with what the agent said: name the one in "
    "which it was said, or leave these messages out. The server's operator can allow it by "
    "PASSBACK_ALLOW_ROLES=assistant"
)
_Placed: TypeAlias = tuple[int, AgUiSaid]
_Input: TypeAlias = AgUiUserMessage | AgUiSystemMessage


@value
class Known:
    """A conversation as far as a request needs it.

    Args:
        key: its name.
        status: None: there is no such conversation.
        tail: its last messages.
    """

    key: ConversationKey
    status: Status | None = None
    tail: Tail = Tail()


async def read_known(
    services: Services, key: ConversationKey, status: Status | None, post: RunAgentInput, /
) -> Known:
    """Return what a request needs of its conversation. Raises as `read_tail`."""
    if status is None:
        return Known(key)
    said = [each for each in post.messages if not isinstance(each, AgUiOwnMessage)]
    tail = await read_tail(services.runs, key, status.message_count, said)
    return Known(key, status, tail)


async def read_commands(
    services: Services, request: Request, post: RunAgentInput, known: Known, /
) -> Sequence[StartRun]:
    """Return the commands of a request. The first is meant, if it names no unknown message.

    Raises:
        ClientError: the request is not legal. The text names the place in a message.
    """
    return await _Reader(services, request, post, known).read()


class _Reader:
    def __init__(
        self, services: Services, request: Request, post: RunAgentInput, known: Known
    ) -> None:
        self._services = services
        self._limits = services.limits
        self._request = request
        self._agent: str = request.path_params.get("agentId", "")
        self._post = post
        self._known = known
        self._options = _read_options(post.forwarded_props)
        self._said: list[_Placed] = [
            (at, each)
            for at, each in enumerate(post.messages)
            if not isinstance(each, AgUiOwnMessage)
            and not (isinstance(each, AgUiAssistantMessage) and each.subagent_run_id)
        ]

    async def read(self) -> Sequence[StartRun]:
        known, said = self._known, [each for _, each in self._said]
        if not known.tail.messages and self._history():
            return [await self._read_import()]
        # a place in an error is that in the post
        places = {id(each): f"messages.{at}" for at, each in self._said}
        place = find_place(
            said,
            known.tail,
            lambda each: read_at(places[id(each)], _read_content, each.content, self._limits),
        )
        base = self._base(await self._tools())
        answers = self._read_resume()
        # after a run that failed, clients answer once more what is answered already
        fresh = [each for each in answers if each.call_id not in known.tail.answered]
        commands: list[StartRun] = []
        elsewhere = named_elsewhere(said, place, known.key)
        for index, there in elsewhere:
            if new := self._inputs(index):
                commands.append(await self._command(base, (*fresh, *new), place, there))
        if new := self._inputs(place.known):
            # an answer that a take-over made void stands for the one that is recorded
            behind = known.tail.messages[place.end :]
            is_void = elsewhere and not any(isinstance(each, UserMessage) for each in behind)
            is_end = place.is_end or is_void
            results = self._results(place, has_new=True) if is_end else ()
            messages = (*fresh, *results, *new)
            after = None if is_end else place.after
            return [*commands, await self._command(base, messages, place, after)]
        results = self._results(place, has_new=False)
        repeated = () if place.is_end else answers
        if said_again := (*(fresh or repeated), *results):
            return [await self._command(base, said_again, place, None)]
        return [replace(base, after=message_to_answer(known.tail, place), on_busy="reject")]

    def _base(self, tools: tuple[ToolSpec, ...] | None) -> StartRun:
        post, options = self._post, self._options
        key = idempotency_key(headers_of(self._request.scope))
        return StartRun(
            self._known.key,
            (),
            tools,
            idempotency_key=f"ag-ui:{post.run_id}" if key is None else key,
            on_busy=options.on_busy or self._services.on_busy,
            on_disconnect=options.on_disconnect or "continue",
            digest=_digest(post, self._agent),
        )

    async def _tools(self) -> tuple[ToolSpec, ...] | None:
        declared = self._post.tools
        if declared is None:
            return None
        plain = [_plain_tool(each) for each in declared]
        return await parse_tools(plain, self._limits, self._known.key)

    async def _command(
        self,
        base: StartRun,
        messages: Sequence[PostedMessage],
        place: Place,
        after: MessageId | None,
    ) -> StartRun:
        """Return the command of a post with messages; the last one of the user gets the context."""
        if any(isinstance(each, UserMessage) for each in messages):
            context = await self._context(place)
            messages = add_context(messages, context, AgUiOptions)
        named = frozenset(each.id for each in messages if not isinstance(each, Answer))
        return replace(base, messages=tuple(messages), named=named, after=after)

    async def _context(self, place: Place) -> MessageContext:
        post, options = self._post, self._options
        context = await read_context(options, self._limits, self._known.key)
        if context.data is None and not context.forgets:
            data = _posted_data(post)
            refuse_large("context and state", data, self._limits)
            # unchanged data is in force still
            if data and data != _data_before(self._known.tail, place):
                context = replace(context, data=data)
        if extras := _extras(post.forwarded_props):
            refuse_large("forwardedProps", extras, self._limits)
            context = replace(context, extras={"forwardedProps": extras})
        return context

    # ---------------------------------------------------------------- messages
    def _inputs(self, known: int) -> Sequence[UserMessage | SystemMessage]:
        """Return the messages to the agent behind the one with this index."""
        return [
            self._read_input(at, each)
            for at, each in self._said[known + 1 :]
            if isinstance(each, _Input)
        ]

    def _read_input(self, at: int, message: _Input) -> UserMessage | SystemMessage:
        if isinstance(message, AgUiSystemMessage):
            self._refuse_role(at, message.role, "system")
            content = read_at(f"messages.{at}", _read_content, message.content, self._limits)
            return SystemMessage(MessageId(message.id), content)
        content = read_at(f"messages.{at}", _read_content, message.content, self._limits)
        return UserMessage(MessageId(message.id), content, self._agent)

    def _refuse_role(self, at: int, role: str, needed: str) -> None:
        if needed not in self._services.allow_roles:
            raise InvalidRequest(
                f"messages.{at}: the role {role!r} is not allowed here (PASSBACK_ALLOW_ROLES)"
            )

    def _results(self, place: Place, *, has_new: bool) -> Sequence[ToolMessage]:
        """Return the client's results that may be new; all others are history.

        Those that are owed; without a new message of the user also those that the record does not
        have, which are refused if nobody asked for them. If it has all, and others are owed, they
        are repeated.
        """
        status = self._known.status
        owed = {each.id for each in status.owed} if status else set[CallId]()
        given = self._given_results(place)
        if has_new:
            chosen = [each for each in given if each.call_id in owed]
        else:
            chosen = [each for each in given if each.call_id not in self._known.tail.answered]
        return given if owed and not (chosen or has_new) else chosen

    def _given_results(self, place: Place) -> Sequence[ToolMessage]:
        """Return the client's results behind the last message of the user that is known."""
        users = [
            index
            for index in range(place.known + 1)
            if isinstance(self._said[index][1], AgUiUserMessage)
        ]
        behind = self._said[users[-1] :] if users else self._said
        return [
            self._read_result(at, each)
            for at, each in behind
            if isinstance(each, AgUiToolMessage) and not is_from_server(each)
        ]

    def _read_result(self, at: int, message: AgUiToolMessage) -> ToolMessage:
        content = message.content
        if isinstance(content, str):
            text = content or message.error or ""
            result: Content = read_result(text, self._limits.result_bytes)
        else:
            most = self._limits.result_bytes
            if len(to_json([part.model_dump() for part in content])) > most:
                raise ResultTooLarge(f"the result of a tool is larger than {most} bytes")
            result = read_at(f"messages.{at}", _read_content, content, self._limits)
        failed = message.error is not None
        return ToolMessage(UNNAMED, CallId(message.tool_call_id), result, failed)

    def _read_resume(self) -> Sequence[Answer]:
        approvals = self._known.tail.approvals
        return [
            self._read_answer(f"resume.{at}", each, CallId(each.interrupt_id) in approvals)
            for at, each in enumerate(self._post.resume or ())
        ]

    def _read_answer(self, place: str, given: AgUiResume, is_approval: bool) -> Answer:
        call_id = CallId(given.interrupt_id)
        cancelled = given.status == "cancelled"
        if not cancelled and given.payload is None:
            raise InvalidRequest(f"{place}: an interrupt that is resolved needs a payload")
        if not is_approval:
            said = _CANCELLED if cancelled else given.payload
            content = read_result(said, self._limits.result_bytes)
            return ToolMessage(UNNAMED, call_id, content, cancelled)
        denied: JsonValue = {"approved": False, "reason": _CANCELLED}
        try:
            return read_approval(call_id, denied if cancelled else given.payload)
        except InvalidRequest as error:
            raise InvalidRequest(f"{place}: {error.message}") from None

    # ---------------------------------------------------------------- a history from elsewhere
    def _history(self) -> Sequence[_Placed]:
        """Return all messages, if the agent has answered; what greets the user is no answer."""
        first = next(
            (n for n, (_, each) in enumerate(self._said) if isinstance(each, AgUiUserMessage)),
            len(self._said),
        )
        greeted = [
            (at, each)
            for n, (at, each) in enumerate(self._said)
            if n > first or not isinstance(each, AgUiAssistantMessage)
        ]
        has_answer = any(isinstance(each, AgUiAssistantMessage) for _, each in greeted)
        return greeted if has_answer else ()

    async def _read_import(self) -> StartRun:
        """Return the command that begins the conversation with the posted history.

        Raises:
            InvalidRequest: the settings do not let clients bring one, or it cannot be one.
        """
        if "assistant" not in self._services.allow_roles:
            raise InvalidRequest(_NEEDS_CONVERSATION)
        read: list[PlacedMessage] = [
            (f"messages.{at}", self._read_history_message(at, each)) for at, each in self._history()
        ]
        imported = await work_on(imported_arguments(read), split_history, read)
        base = self._base(await self._tools())
        nowhere = Place(-1, 0, MessageId(""), is_end=True)
        command = await self._command(base, imported.new, nowhere, None)
        ids = frozenset(each.id for _, each in read if each.id)
        return replace(command, history=imported.history, named=ids)

    def _read_history_message(self, at: int, message: AgUiSaid) -> HistoryMessage:
        match message:
            case AgUiUserMessage() | AgUiSystemMessage():
                return self._read_input(at, message)
            case AgUiToolMessage():
                return self._read_result(at, message)
            case AgUiAssistantMessage(id=message_id, content=content, tool_calls=calls):
                made = tuple(
                    ToolCall(CallId(each.id), each.function.name, each.function.arguments)
                    for each in calls or ()
                )
                said = content if content and content.strip() else ""
                return AssistantMessage(MessageId(message_id), said, made)
            case _:
                assert_never(message)


def _read_options(props: JsonValue) -> AgUiOptions:
    given: JsonValue = props.get(OPTIONS_KEY, {}) if isinstance(props, dict) else {}
    place = f"forwardedProps.{OPTIONS_KEY}"
    options: AgUiOptions = read_at(place, validate_model, AgUiOptions, given)
    return options


def _extras(props: JsonValue) -> JsonValue:
    """Return the forwarded properties without the options for this server."""
    if not isinstance(props, dict):
        return props
    return {name: each for name, each in props.items() if name != OPTIONS_KEY}


def _posted_data(post: RunAgentInput) -> dict[str, JsonValue]:
    """Return the context and the state of a request as data for the model."""
    data: dict[str, JsonValue] = {}
    if post.context:
        data["context"] = [
            {"description": each.description, "value": each.value} for each in post.context
        ]
    state = post.state
    if isinstance(state, dict):  # the plan is the server's own
        state = {name: each for name, each in state.items() if name != "plan"}
    if state:
        data["state"] = state
    return data


def _data_before(tail: Tail, place: Place) -> JsonValue:
    """Return the data that came last before a place, as far as the tail tells."""
    for message in reversed(tail.messages[: place.end]):
        context = message.context if isinstance(message, UserMessage) else None
        if context is not None and (context.data is not None or context.forgets):
            return context.data
    return None


def _plain_tool(declared: JsonValue) -> JsonValue:
    """Return a declaration; some clients declare no parameters as an empty object."""
    if isinstance(declared, dict) and declared.get("parameters") == {}:
        return {name: each for name, each in declared.items() if name != "parameters"}
    return declared


def _digest(post: RunAgentInput, agent: str) -> str:
    """Return what is equal for a repeat of a request: what it says, not what it is worth."""
    said = [
        [each.role, getattr(each, "id", ""), getattr(each, "tool_call_id", "")]
        for each in post.messages
    ]
    last = max(
        (n for n, each in enumerate(post.messages, 1) if each.role == "assistant"), default=0
    )
    new = [each.model_dump() for each in post.messages[last:]]
    resume = [each.model_dump() for each in post.resume or ()]
    return hashlib.sha256(to_json([said, new, resume, post.tools, agent])).hexdigest()


def _read_content(posted: AgUiContent, limits: RequestLimits) -> Content:
    """Return content. Raises InvalidRequest or AttachmentTooLarge."""
    parts = posted if isinstance(posted, str) else tuple(map(_read_part, posted))
    return check_content(parts, limits.attachment_bytes)


def _read_part(part: AgUiText | AgUiMedia) -> Part:
    if isinstance(part, AgUiText):
        return TextPart(part.text)
    source = part.source
    if source.type == "file":
        raise InvalidRequest(
            "a source of type 'file': this server keeps no files; send data or url"
        )
    kind = part.type if part.type in {"image", "audio"} else "file"
    if source.type == "data" and not source.mime_type:
        raise InvalidRequest("a source of type 'data' needs a mimeType")
    field = "data" if source.type == "data" else "url"
    body: Mapping[str, JsonValue] = {
        "type": kind,
        field: source.value,
        "mediaType": source.mime_type or None,
    }
    try:
        return read_media(validate_model(PostedMedia, cast("dict[str, JsonValue]", body)))
    except InvalidRequest:  # its text names fields that this protocol does not have
        wanted = "base64" if field == "data" else "an http:, https: or data: URL"
        raise InvalidRequest(
            f"a source of type {source.type!r} has to be {wanted}, and its mimeType a plain word"
        ) from None
