"""Models of what clients send over the socket, and how a `chat:send` becomes a command."""

from dataclasses import replace
from typing import Annotated, ClassVar, Literal, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from passback.core.errors import (
    InvalidAnswer,
    InvalidRequest,
    NothingToDo,
    UnknownMessage,
    UnknownToolCall,
)
from passback.core.messages import (
    UNNAMED,
    Answer,
    ApprovalMessage,
    AssistantMessage,
    CallId,
    ChildMessage,
    Content,
    ConversationKey,
    DataPart,
    MediaPart,
    Message,
    MessageContext,
    MessageId,
    OwnerId,
    Part,
    PostedMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from passback.core.posts import OnBusy, StartRun
from passback.core.questions import Answer as Choice
from passback.core.questions import Question, Questions, find_answer_problem
from passback.core.runs import Runs
from passback.http.requests import PostedId, check_conversation_id, validate_model
from passback.http.wires import Services
from passback.native.declarations import DeclaredTool, parse_tools
from passback.native.message_context import PostedContext, add_context, read_context
from passback.native.parts import (
    MAX_ITEMS,
    ImageUrl,
    PostedMedia,
    PostedText,
    SnakeCased,
    check_content,
    guess_media_type,
    read_media,
    read_result,
)
from passback.wire.chat.history import find_end_of_turn

_LAST_MESSAGES = 1_000  # of the record, among which the call of a repeated answer is looked for
_PAGE = 100  # messages

_ToolCallId: TypeAlias = Annotated[str, Field(min_length=1, max_length=256)]
_Sequence: TypeAlias = Annotated[int, Field(ge=0)]
SentT = TypeVar("SentT", bound=BaseModel)


class Auth(SnakeCased):
    """The payload of `auth`: an API key."""

    token: Annotated[str, Field(max_length=4096)]


class OfSession(SnakeCased):
    """The payload of an event about one session, which is a conversation."""

    session_id: str


class Subscribe(OfSession):
    """The payload of `session:subscribe`.

    With `resume`, or an `after_sequence` above 0, what came after that event follows; otherwise
    the turn in progress, and what comes from now on.
    """

    event_format: Literal["raw"] | None = None
    after_sequence: _Sequence | None = None
    resume: bool | None = None


class ChatImage(SnakeCased):
    type: Literal["image_url"]
    image_url: ImageUrl


class ChatFile(SnakeCased):
    """A file. `data` is base64; without `media_type` the name says of which kind it is."""

    type: Literal["file"]
    name: Annotated[str, Field(max_length=256)] | None = None
    data: str
    media_type: str | None = None


ChatPart: TypeAlias = Annotated[PostedText | ChatImage | ChatFile, Field(discriminator="type")]


class QuestionAnswer(SnakeCased):
    """The answer to the questions of a call, or the decision on a call that waits for approval.

    The keys are the numbers of the questions, from "0". `selections` has the places of the chosen
    options, `custom` the user's own words.
    """

    tool_call_id: _ToolCallId
    selections: dict[str, Annotated[list[int], Field(max_length=20)]] | None = None
    custom: dict[str, Annotated[str, Field(max_length=100_000)]] | None = None


class ToolResultSent(SnakeCased):
    """The result of a client tool's call: a text, a list of parts, or any other JSON."""

    tool_call_id: _ToolCallId
    result: JsonValue
    status: Literal["done", "error"] | None = None


class WhatIf(SnakeCased):
    """The turn that a message follows; what stood behind it is left on another branch.

    `from_step` is the turn's `sequence`, in the loop `root`; 0: the message is the first one.
    `deprecate_entry_ids` has no effect: what is left is not shown. `quotes` has to be empty.
    """

    from_step: _Sequence
    quotes: list[JsonValue] | None = None
    deprecate_entry_ids: Annotated[list[str], Field(max_length=MAX_ITEMS)] | None = None


class ChatSend(PostedContext):
    """The payload of `chat:send`. Each optional field may be null. Unknown keys are ignored."""

    model_config: ClassVar[ConfigDict] = ConfigDict(alias_generator=str)

    session_id: str
    message: str | Annotated[list[ChatPart], Field(fail_fast=True, max_length=MAX_ITEMS)] | None = (
        None
    )
    message_id: PostedId | None = None
    mode: Literal["planning", "executing"] | None = None
    headless: bool | None = None
    askuser_answer: QuestionAnswer | None = None
    tools: list[DeclaredTool] | None = None
    tool_results: (
        Annotated[list[ToolResultSent], Field(fail_fast=True, max_length=MAX_ITEMS)] | None
    ) = None
    on_busy: OnBusy | None = None
    whatif: WhatIf | None = None
    replay_decision: JsonValue = None


def read_payload(model: type[SentT], data: JsonValue, /) -> SentT:
    """Return the payload of an event as a model. Raise InvalidRequest if it does not fit."""
    if not isinstance(data, dict):
        problem = "Input should be an object"
        problems: list[JsonValue] = [{"at": "data", "problem": problem}]
        raise InvalidRequest(f"data: {problem}", details={"problems": problems})
    return validate_model(model, data)


def session_key(owner: OwnerId, sent: OfSession | ChatSend, /) -> ConversationKey:
    """Return the conversation of a session. Raise InvalidRequest for an id that none can have."""
    return ConversationKey(owner, check_conversation_id(sent.session_id))


async def read_send(services: Services, key: ConversationKey, sent: ChatSend, /) -> StartRun:
    """Return the command of a `chat:send`.

    Raises:
        ClientError: it is not legal. Nothing is stored.
    """
    if sent.replay_decision is not None:
        raise InvalidRequest("replay_decision: this server cannot do that; leave it out, or null")
    after = await _read_place(services.runs, key, sent)
    limits = services.limits
    messages: list[PostedMessage] = [
        ToolMessage(
            UNNAMED,
            CallId(each.tool_call_id),
            read_result(each.result, limits.result_bytes),
            each.status == "error",
        )
        for each in sent.tool_results or ()
    ]
    if sent.askuser_answer is not None:
        messages.append(await _read_answer(services.runs, key, sent.askuser_answer))
    named: frozenset[MessageId] = frozenset()
    if sent.message:
        message_id = MessageId(sent.message_id) if sent.message_id else UNNAMED
        named = frozenset({message_id} if sent.message_id else ())
        content = check_content(_read_content(sent.message), limits.attachment_bytes)
        messages.append(UserMessage(message_id, content))
    if not messages and after is None:
        raise NothingToDo("message: it is empty, and neither answers nor results come with it")
    context = _with_extras(sent, await read_context(sent, limits, key), has_text=bool(sent.message))
    return StartRun(
        key,
        add_context(messages, context, ChatSend),
        None if sent.tools is None else await parse_tools(sent.tools, limits, key),
        named=named,
        on_busy=sent.on_busy or services.on_busy,
        continues=True,  # sessions are created before the first message
        after=after,
    )


async def _read_place(runs: Runs, key: ConversationKey, sent: ChatSend) -> MessageId | None:
    """Return the message that those of a `chat:send` follow, if it says so.

    Raises:
        UnknownConversation, UnknownMessage: there is none.
        InvalidRequest: it asks for what this server cannot do.
    """
    if sent.whatif is None:
        return None
    if sent.whatif.quotes:
        raise InvalidRequest("whatif.quotes: this server cannot do that; leave it out, or empty")
    if sent.askuser_answer is not None or sent.tool_results:
        raise InvalidRequest(
            "whatif: answers and results wait where they are: send them without it"
        )
    try:
        return await find_end_of_turn(runs, key, sent.whatif.from_step)
    except UnknownMessage as error:
        raise UnknownMessage(f"whatif.from_step: {error.message}") from None


def _with_extras(sent: ChatSend, context: MessageContext, *, has_text: bool) -> MessageContext:
    """Return the context with what only this protocol has, so that it is in the record.

    Answers belong to the message before them, which has it already.
    """
    if not has_text:
        return context
    extras: dict[str, JsonValue] = {}
    if sent.mode is not None:
        extras["mode"] = sent.mode
    if sent.headless:
        extras["headless"] = True
    # whoever looks on can answer
    return replace(context, extras=extras or None, answered=not sent.headless)


def _read_content(message: str | list[ChatPart]) -> Content:
    return message if isinstance(message, str) else tuple(map(_read_part, enumerate(message)))


def _read_part(numbered: tuple[int, ChatPart]) -> Part:
    at, part = numbered
    match part:
        case PostedText(text=text):
            return TextPart(text)
        case ChatImage(image_url=image):
            return MediaPart("image", image.url)
        case _:
            kind = part.media_type or guess_media_type(part.name or "")
            body: dict[str, JsonValue] = {"type": "file", "data": part.data, "name": part.name}
            try:
                return read_media(validate_model(PostedMedia, {**body, "media_type": kind}))
            except InvalidRequest:
                raise InvalidRequest(
                    f"message.{at}.data: it has to be base64, and media_type a plain word",
                ) from None


async def _read_answer(runs: Runs, key: ConversationKey, sent: QuestionAnswer) -> Answer:
    """Return the answer to a call's questions, or the decision on it.

    Raises:
        UnknownToolCall: no such call waits, or has waited lately.
        InvalidAnswer: the answer does not fit.
    """
    call_id = CallId(sent.tool_call_id)
    found = next((each for each in (await runs.status(key)).owed if each.id == call_id), None)
    if found is not None:
        kind, arguments = found.kind, found.arguments
    else:  # perhaps a repeat: it is judged as the first one was, and compared with it
        call = await _find_call(runs, key, call_id)
        kind, arguments = call.asks or "tool_result", call.arguments
    if kind == "approval":
        return _read_decision(call_id, sent)
    if kind != "question":
        raise InvalidAnswer(
            "askuser_answer: the call asks nothing: post its result in tool_results"
        )
    questions = Questions.model_validate_json(arguments).questions
    _check_numbers(sent, len(questions))
    answers: list[JsonValue] = [
        _read_choice(str(number), question, sent) for number, question in enumerate(questions)
    ]
    return ToolMessage(UNNAMED, call_id, (DataPart({"answers": answers}),))


async def _find_call(runs: Runs, key: ConversationKey, call_id: CallId) -> ToolCall:
    """Return a call among the last messages of the record. Raise UnknownToolCall."""
    total = end = (await runs.messages(key, start=0, limit=1)).total
    while end > max(0, total - _LAST_MESSAGES):
        start = max(0, end - _PAGE)
        page = await runs.messages(key, start=start, limit=end - start)
        calls = (call for message in page.messages for call in _calls_of(message))
        if (found := next((call for call in calls if call.id == call_id), None)) is not None:
            return found
        end = start
    raise UnknownToolCall("no such tool call is waiting in this conversation")


def _calls_of(message: Message) -> tuple[ToolCall, ...]:
    while isinstance(message, ChildMessage):
        message = message.message
    return message.tool_calls if isinstance(message, AssistantMessage) else ()


def _check_numbers(sent: QuestionAnswer, questions: int) -> None:
    """Raise InvalidAnswer if a key is the number of no question."""
    for field in ("selections", "custom"):
        given = dict[str, object](getattr(sent, field) or {})
        if unknown := given.keys() - {str(number) for number in range(questions)}:
            raise InvalidAnswer(
                f"askuser_answer.{field}: there is no question {min(unknown)[:16]!r}; "
                f"the questions are numbered from 0 to {questions - 1}"
            )


def _read_choice(number: str, question: Question, sent: QuestionAnswer) -> JsonValue:
    """Return the answer to one question, as `ask_user` takes it."""
    chosen = (sent.selections or {}).get(number, [])
    text = (sent.custom or {}).get(number, "").strip()
    place = f"askuser_answer.selections.{number}"
    if not (chosen or text):
        raise InvalidAnswer(f"askuser_answer: question {number} needs selections or custom")
    if any(not 0 <= at < len(question.options) for at in chosen):
        raise InvalidAnswer(f"{place}: there are {len(question.options)} options, numbered from 0")
    answer = Choice(selected=[question.options[at].label for at in chosen], text=text)
    if problem := find_answer_problem(question, answer):
        raise InvalidAnswer(f"askuser_answer: question {number}: {problem}")
    return {"selected": [*answer.selected], "text": text}


def _read_decision(call_id: CallId, sent: QuestionAnswer) -> ApprovalMessage:
    """Return the decision on a call: option 0 allows it, 1 denies it; `custom` is the reason.

    A reason alone denies it.
    """
    _check_numbers(sent, 1)
    chosen = (sent.selections or {}).get("0", [])
    reason = (sent.custom or {}).get("0", "").strip()
    if chosen not in ([0], [1]) and not (reason and not chosen):
        raise InvalidAnswer(
            "askuser_answer.selections.0: [0] allows the call, and [1] denies it; "
            "custom is the reason of a denial"
        )
    return ApprovalMessage(UNNAMED, call_id, chosen == [0], reason)
