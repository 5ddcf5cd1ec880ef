"""Reading of a request as a command: finds the messages that are new, and converts them.

Messages and parts of the protocol become those of core.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Final, TypeVar

from pydantic import JsonValue
from starlette.requests import Request

from passback.core.errors import InvalidRequest, NothingToDo
from passback.core.ids import is_server_made
from passback.core.imported import PlacedMessage, imported_arguments, split_history
from passback.core.messages import (
    UNNAMED,
    Answer,
    AssistantMessage,
    CallId,
    ConversationKey,
    DataPart,
    Generation,
    HistoryMessage,
    MessageId,
    Part,
    PostedMessage,
    RefusalPart,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    UserMessage,
    as_text,
)
from passback.core.posts import StartRun, new_indexes
from passback.http.body import work_on
from passback.http.conversations import posted_conversation
from passback.http.requests import headers_of, idempotency_key, validate_model
from passback.http.wires import Services
from passback.native.declarations import parse_tools
from passback.native.message_context import add_context, read_context, refuse_large
from passback.native.parts import (
    PostedMedia,
    SnakeCased,
    check_content,
    data_url,
    guess_media_type,
    read_at,
    read_media,
    read_result,
)
from passback.native.submissions import read_approval
from passback.wire.agent_api import posted
from passback.wire.agent_api.posted import (
    APPROVAL_TYPE,
    CALL_TYPES,
    IGNORED_TYPES,
    RESULT_TYPE,
    RESULT_TYPES,
    AgentData,
    AgentInput,
    AgentRequest,
    ApprovalData,
    CallData,
    ResultData,
)

BodyT = TypeVar("BodyT", bound=SnakeCased)

_AUDIO_TYPES: Final = {"mp3": "audio/mpeg"}
_NEEDS_CONVERSATION = (
    "a new conversation cannot begin with what the agent said: "
    "name the one in which it was said, or leave these messages out"
)


async def read_request(services: Services, request: Request, post: AgentRequest, /) -> StartRun:
    """Return the command of a request.

    Raises:
        ClientError: the request is not legal. The text names the place in a message.
    """
    if post.n not in {None, 1}:
        raise InvalidRequest("n has to be 1: there is one answer to a request")
    new = [(at, post.input[at]) for at in new_indexes([each.resent_role for each in post.input])]
    if post.input and not new and post.after is None:
        raise NothingToDo(
            "input has nothing new: add a user's message or a result after the agent's last one"
        )
    messages = [
        read_at(f"input.{at}", _read_message, services, each, post.agent_id or "")
        for at, each in new
    ]
    # a client that names the place sends the history for itself, if at all
    history, flaw = ((), "") if post.after is not None else await _read_history(services, post)
    continues = not history and any(each.is_from_agent for each in post.input)
    after = None if post.after is None else _read_place(post.after)
    answered = [each.call_id for each in messages if isinstance(each, Answer)]
    conversation = await posted_conversation(
        request, services.runs, post.session_id or None, [*answered, *filter(None, [after])]
    )
    return StartRun(
        conversation,
        await _with_context(services, post, messages, conversation),
        None
        if post.tools is None
        else await parse_tools(post.tools, services.limits, conversation),
        idempotency_key=idempotency_key(headers_of(request.scope)),
        named=frozenset(MessageId(each.id) for _, each in new if each.id and not each.is_answer),
        on_busy=post.on_busy or services.on_busy,
        on_disconnect=post.on_disconnect or "continue",
        # a client of this protocol sends the conversation each time, and most give no ids; one that
        # says which message the new ones follow repeats none
        resends=post.after is None,
        continues=continues,
        history=history,
        flaw=flaw or (_NEEDS_CONVERSATION if continues else ""),
        after=after,
    )


def _read_place(after: str) -> MessageId:
    """Return the message of the record that `after` names.

    An answer shows the texts and the thoughts of one message as several: `msg_…`, `msg_…_2`.
    """
    first, _, _ = after.rpartition("_")
    return MessageId(first if is_server_made(MessageId(first)) else after)


async def _with_context(
    services: Services,
    post: AgentRequest,
    messages: Sequence[PostedMessage],
    key: ConversationKey,
) -> tuple[PostedMessage, ...]:
    context = await read_context(post, services.limits, key)
    # without a user message, the context of the last one counts: results only continue its run
    if any(isinstance(each, UserMessage) for each in messages):
        stop = (post.stop,) if isinstance(post.stop, str) else tuple(post.stop or ())
        generation = Generation(
            temperature=post.temperature,
            top_p=post.top_p,
            max_tokens=post.max_tokens,
            stop=stop or None,
            seed=post.seed,
            frequency_penalty=post.frequency_penalty,
            presence_penalty=post.presence_penalty,
        )
        if generation != Generation():
            context = replace(context, generation=generation)
        if extras := post.model_extra:
            refuse_large("what the request says beyond the protocol", extras, services.limits)
            context = replace(context, extras=extras)
    return add_context(messages, context, AgentRequest)


def _read_part(part: posted.Part, /) -> Part:
    """Return a part. Raise InvalidRequest if it has neither data nor a URL, or an illegal one."""
    match part:
        case posted.AgentText(text=text):
            return TextPart(text or "")
        case posted.AgentRefusal(refusal=refusal):
            return RefusalPart(refusal)
        case posted.AgentData(data=data):
            return DataPart(data or {})
        case posted.AgentImage(image_url=url):
            return _media_by_url("image", "image_url", url)
        case posted.AgentVideo(video_url=url):
            return _media_by_url("file", "video_url", url)
        case _:
            return _read_audio(part) if isinstance(part, posted.AgentAudio) else _read_file(part)


def _media_by_url(kind: str, field: str, url: str | None, name: str | None = None) -> Part:
    if not url:
        raise InvalidRequest(f"{field} is missing")
    try:
        part = read_media(validate_model(PostedMedia, {"type": kind, "url": url, "name": name}))
    except InvalidRequest:  # its text names a field that this protocol does not have
        raise InvalidRequest(
            f"{field} has to be an http:, https: or data: URL, without control characters"
        ) from None
    if url.startswith("data:") and data_url(url) is None:
        raise InvalidRequest(f"{field} is a data: URL that is not base64")
    return part


def _media_by_data(
    kind: str, field: str, data: str, media_type: str, name: str | None = None
) -> Part:
    body = dict[str, JsonValue](type=kind, data=data, media_type=media_type, name=name)
    try:
        return read_media(validate_model(PostedMedia, body))
    except InvalidRequest:
        raise InvalidRequest(f"{field} has to be base64, and its type a plain word") from None


def _read_audio(part: posted.AgentAudio) -> Part:
    if not part.data or _is_address(part.data):
        return _media_by_url("audio", "data", part.data)
    audio_format = (part.format or "").lower()
    if not audio_format:
        raise InvalidRequest("format is missing: name the audio format, such as wav")
    media_type = _AUDIO_TYPES.get(audio_format, f"audio/{audio_format}")
    return _media_by_data("audio", "data", part.data, media_type)


def _read_file(part: posted.AgentFile) -> Part:
    name = part.filename or part.file_name
    if part.file_url or (part.file_data and _is_address(part.file_data)):
        return _media_by_url("file", "file_url", part.file_url or part.file_data, name)
    if part.file_data:
        media_type = guess_media_type(name or "")
        return _media_by_data("file", "file_data", part.file_data, media_type, name)
    if part.file_id:
        raise InvalidRequest("file_id: this server keeps no files; send file_url or file_data")
    raise InvalidRequest("file_url is missing")


def _is_address(text: str) -> bool:
    # audio has no field for a URL, and clients of this protocol put URLs into file_data, too
    return text.startswith(("http://", "https://", "data:"))


def _read_message(services: Services, message: AgentInput, agent: str, /) -> PostedMessage:
    """Return a message of the user, a result or a decision.

    Raises:
        ClientError: the message is not legal. The text says what is wrong, and where.
    """
    if message.type == RESULT_TYPE:
        return _read_result_message(services, message)
    if message.type == APPROVAL_TYPE:
        given = _read_body(message, ApprovalData)
        decision: JsonValue = {
            "approved": given.approve,
            "reason": given.reason or "",
            "always": given.always,
        }
        return read_approval(CallId(given.approval_request_id), decision)
    return _read_text_message(services, message, agent)


def _read_text_message(
    services: Services, message: AgentInput, agent: str, /
) -> SystemMessage | UserMessage:
    """Return a message of the user or a system message. Raise ClientError as `_read_message`."""
    role = message.role or "user"
    if role == "tool":
        raise InvalidRequest(f"a result is a message of the type {RESULT_TYPE!r}")
    if role not in services.allow_roles:
        raise InvalidRequest(f"the role {role!r} is not allowed here (PASSBACK_ALLOW_ROLES)")
    parts = tuple(
        read_at(f"content.{at}", _read_part, part) for at, part in enumerate(message.content or ())
    )
    content = check_content(parts, services.limits.attachment_bytes)
    message_id = MessageId(message.id) if message.id else UNNAMED
    if role == "system":
        return SystemMessage(message_id, content)
    return UserMessage(message_id, content, agent)


def _read_result_message(services: Services, message: AgentInput, /) -> ToolMessage:
    """Return a result. Raise InvalidRequest or ResultTooLarge."""
    given = _read_body(message, ResultData)
    content = read_result(given.output, services.limits.result_bytes)
    # a failed tool is reported by the flag or by the message's status
    failed = given.is_error or message.status == "failed"
    return ToolMessage(UNNAMED, CallId(given.call_id), content, failed)


def _read_body(message: AgentInput, form: type[BodyT], /) -> BodyT:
    """Return the data of a call or an answer.

    Raises:
        InvalidRequest: there is not exactly one part of type `data`, or its data are not legal.
    """
    parts = enumerate(message.content or ())
    found = [(at, part.data) for at, part in parts if isinstance(part, AgentData)]
    if len(found) != 1:
        raise InvalidRequest(f"{message.type} needs one part of type 'data', and has {len(found)}")
    [(at, data)] = found
    return read_at(f"content.{at}.data", partial(validate_model, form), data)


async def _read_history(
    services: Services, post: AgentRequest, /
) -> tuple[tuple[HistoryMessage, ...], str]:
    """Return the history to store before the new messages, and the reason if there cannot be one.

    There is a history only where the settings let clients bring one. Most clients send the whole
    conversation each time, with messages that no history can have. So an error is returned rather
    than raised: it matters only if the conversation does not exist.
    """
    has_history = any(each.is_from_agent for each in post.input)
    if not has_history or "assistant" not in services.allow_roles:
        return (), ""
    read: list[PlacedMessage] = []
    try:
        for at, each in enumerate(post.input):
            _add_to_history(read, f"input.{at}", services, each)
        imported = await work_on(imported_arguments(read), split_history, read)
        return imported.history, ""
    except InvalidRequest as error:
        return (), error.message


def _add_to_history(
    read: list[PlacedMessage], place: str, services: Services, message: AgentInput
) -> None:
    """Append a message to the history. Calls go to the agent's message before them."""
    if message.type in RESULT_TYPES:
        read.append((place, read_at(place, _read_result_message, services, message)))
    elif message.type in CALL_TYPES:
        given = read_at(place, _read_body, message, CallData)
        call = ToolCall(CallId(given.call_id), given.name, given.arguments)
        first, turn = read[-1] if read else (place, None)
        # the protocol sends each call as a message; core keeps a turn's text and calls together
        if isinstance(turn, AssistantMessage):
            turn = AssistantMessage(turn.id, turn.content, (*turn.tool_calls, call))
            read[-1] = (first, turn)
        else:
            read.append((place, AssistantMessage(UNNAMED, "", (call,))))
    elif message.is_from_agent:
        spoken = (
            read_at(place, _read_agent_text, services, message)
            if message.type == "message"
            else None
        )
        if spoken is not None:  # reasoning and requests for approval are not stored
            read.append((place, spoken))
    elif message.type not in IGNORED_TYPES and message.type != APPROVAL_TYPE:
        read.append((place, read_at(place, _read_text_message, services, message, "")))


def _read_agent_text(services: Services, message: AgentInput) -> AssistantMessage | None:
    """Return a message of the agent, or None if its text is blank."""
    parts = tuple(
        read_at(f"content.{at}", _read_part, part) for at, part in enumerate(message.content or ())
    )
    if not as_text(parts, media=lambda part: part.url).strip():
        return None
    message_id = MessageId(message.id) if message.id else UNNAMED
    return AssistantMessage(message_id, check_content(parts, services.limits.attachment_bytes))
