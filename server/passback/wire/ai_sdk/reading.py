"""Reading of a request as a command: finds what is new, and converts it."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from pydantic import JsonValue
from starlette.requests import Request

from passback.core.errors import InvalidRequest, NothingToDo, UnknownConversation
from passback.core.messages import (
    UNNAMED,
    Answer,
    CallId,
    ConversationKey,
    DataPart,
    MessageId,
    Part,
    PostedMessage,
    SystemMessage,
    TextPart,
    ToolMessage,
    Usage,
    UserMessage,
    limit_usage,
    single_text,
)
from passback.core.posts import StartRun
from passback.core.values import value
from passback.http.conversations import posted_conversation
from passback.http.requests import headers_of, idempotency_key, validate_model
from passback.http.wires import Services
from passback.native.declarations import parse_tools
from passback.native.message_context import add_context, read_context
from passback.native.parts import (
    PostedMedia,
    check_content,
    read_at,
    read_media,
    read_result,
)
from passback.native.submissions import read_approval
from passback.wire.ai_sdk.posted import (
    AiSdkRequest,
    UiData,
    UiDecision,
    UiFile,
    UiMessage,
    UiOutput,
    UiOutputError,
    UiText,
)
from passback.wire.ai_sdk.record import read_branch

_FLAW: Final = (
    "a new chat cannot begin with what the agent said: this server keeps the chats, and has none "
    "with this id"
)
_MEDIA: Final = frozenset({"image", "audio"})


@value
class Asked:
    """A request, read.

    Attributes:
        command: what it asks for.
        goes_on: the message of the agent that its run goes on with; None if a new one begins.
    """

    command: StartRun
    goes_on: UiMessage | None = None

    @property
    def open_calls(self) -> Sequence[CallId]:
        """The calls of that message whose results the client lacks."""
        parts = self.goes_on.parts if self.goes_on else ()
        return [
            CallId(call_id)
            for part in parts
            if isinstance(call_id := part.get("toolCallId"), str)
            and not str(part.get("state")).startswith("output-")
        ]

    @property
    def usage(self) -> Usage | None:
        """The usage that the client has of that message."""
        metadata = self.goes_on.metadata if self.goes_on else None
        known = metadata.get("usage") if isinstance(metadata, dict) else None
        if not isinstance(known, dict):
            return None
        return limit_usage(
            Usage(
                _count(known.get("inputTokens")),
                _count(known.get("outputTokens")),
                _count(known.get("cachedInputTokens")),
                _count(known.get("reasoningTokens")),
                known.get("estimated") is True,
            )
        )


def _count(given: JsonValue) -> int:
    return given if isinstance(given, int) else 0


async def read_request(services: Services, request: Request, post: AiSdkRequest, /) -> Asked:
    """Return the command of a request.

    Raises:
        ClientError: the request is not legal. The text names the place in a message.
    """
    posted = await _Reader(services, request, post).read()
    messages = tuple(posted.messages)
    # an app says the same with each request: what belongs to a message of the user counts with one
    if any(isinstance(each, UserMessage) for each in messages):
        context = await read_context(post, services.limits, posted.key)
        messages = add_context(messages, context, AiSdkRequest)
    tools = None
    if post.tools is not None:
        tools = await parse_tools(post.tools, services.limits, posted.key)
    command = StartRun(
        posted.key,
        messages,
        tools,
        idempotency_key=idempotency_key(headers_of(request.scope)),
        named=frozenset(
            each.id for each in posted.messages if each.id and not isinstance(each, Answer)
        ),
        on_busy=post.on_busy or services.on_busy,
        on_disconnect=post.on_disconnect or "continue",
        # a message that was not answered is sent again with the next one
        resends=posted.after is None,
        continues=posted.continues,
        # answers alone can begin none anyway
        flaw=_FLAW if posted.continues and not posted.goes_on else "",
        after=posted.after,
    )
    return Asked(command, posted.goes_on)


@value
class _Posted:
    key: ConversationKey
    messages: Sequence[PostedMessage]
    after: MessageId | None = None
    continues: bool = False
    goes_on: UiMessage | None = None


class _Reader:
    """Reads one request."""

    def __init__(self, services: Services, request: Request, post: AiSdkRequest) -> None:
        self._services = services
        self._request = request
        self._post = post
        if post.messages is not None and post.message is not None:
            raise InvalidRequest("send messages or message, not both")
        alone = [] if post.message is None else [post.message]
        self._name = "messages" if post.messages is not None else "message"
        self._list = post.messages if post.messages is not None else alone

    async def read(self) -> _Posted:
        if self._post.trigger == "regenerate-message":
            return await self._read_regenerate()
        if not self._list:
            raise NothingToDo(
                "there is no message: send the chat in messages, or the new message alone in "
                "message"
            )
        edited = self._edited()
        at = len(self._list) - 1
        if self._list[at].role == "assistant":
            answers = self._read_answers(at)
            if not answers:
                raise NothingToDo(
                    f"{self._place(at)}: it is the agent's, and has no result or decision of the "
                    "client's in its last step"
                )
            key = await self._key(each.call_id for each in answers)
            return _Posted(key, answers, continues=True, goes_on=self._list[at])
        key = await self._key(())
        if edited is not None:
            return await self._read_edit(key, edited)
        return await self._read_new(key)

    def _edited(self) -> MessageId | None:
        """Return the id of the message that is edited, if one is; cut the list behind an answer."""
        named = self._post.message_id
        if not named:
            return None
        found = [at for at, each in enumerate(self._list) if each.id == named]
        if not found:
            raise InvalidRequest(
                "messageId: no posted message has this id: send the edited message as the last one"
            )
        at = found[-1]
        if self._list[at].role == "assistant":  # an answer to a call of an earlier message
            self._list = self._list[: at + 1]
            return None
        if at < len(self._list) - 1:
            raise InvalidRequest("messageId: the message that is edited has to be the last one")
        return MessageId(named)

    async def _read_new(self, key: ConversationKey) -> _Posted:
        """Read the messages behind the agent's last one, and answers in that one."""
        start = self._start_of_new()
        new = self._read_inputs(start, MessageId(self._list[-1].id))
        answers: Sequence[Answer] = self._read_answers(start - 1) if start else ()
        if answers:
            # answers that nobody waits for were given before, or come too late: the user goes on
            owed = {each.id for each in (await self._services.runs.status(key)).owed}
            answers = [each for each in answers if each.call_id in owed]
        return _Posted(key, (*answers, *new), continues=start > 0)

    async def _read_edit(self, key: ConversationKey, edited: MessageId) -> _Posted:
        """Read the last message, which replaces the one that the client knows by the same id."""
        start = self._start_of_new()
        # it gets an id of the server's: the one before keeps its own
        new = self._read_inputs(len(self._list) - 1, UNNAMED)
        runs = self._services.runs
        try:
            branch = await read_branch(runs, key)
        except UnknownConversation:
            if start:
                raise
            return _Posted(key, new)  # the message was refused, and there was none before
        points = () if branch.has(edited) else await runs.branches(key)
        return _Posted(key, new, branch.place_of_edit(edited, points, self._before(start)))

    async def _read_regenerate(self) -> _Posted:
        """Find the message of the user that is answered anew.

        One that the record lacks, because it was refused, is posted.
        """
        key, runs = await self._key(()), self._services.runs
        if not self._list:
            branch = await read_branch(runs, key)
            return _Posted(key, (), branch.asked(self._post.message_id or None))
        last = self._list[-1]
        if last.role != "user":
            raise InvalidRequest(
                f"{self._place(len(self._list) - 1)}: to regenerate, send the messages up to the "
                "user's that is answered anew"
            )
        start = self._start_of_new()
        new = self._read_inputs(start, MessageId(last.id))
        try:
            branch = await read_branch(runs, key)
        except UnknownConversation:
            if start:
                raise
            return _Posted(key, new)
        known = branch.repeated(MessageId(last.id), new[-1].content, self._before(start))
        return _Posted(key, () if known else new, known, continues=start > 0)

    async def _key(self, named: Iterable[CallId]) -> ConversationKey:
        return await posted_conversation(
            self._request, self._services.runs, self._post.id or None, named
        )

    def _start_of_new(self) -> int:
        """Return the index behind the agent's last message."""
        agents = (at for at, each in enumerate(self._list, 1) if each.role == "assistant")
        return max(agents, default=0)

    def _before(self, start: int) -> str | None:
        """Return the id of the agent's last message; empty without one, None if it is not told."""
        if start:
            return self._list[start - 1].id
        return "" if self._name == "messages" else None

    def _place(self, at: int) -> str:
        return f"messages.{at}" if self._name == "messages" else "message"

    def _read_inputs(self, start: int, last_id: MessageId) -> Sequence[SystemMessage | UserMessage]:
        """Return the messages of the user from `start` on. Only the last one has its id.

        The others are recognised by their content: the client may have edited them.
        """
        inputs: list[SystemMessage | UserMessage] = []
        for at in range(start, len(self._list)):
            message_id = last_id if at == len(self._list) - 1 else UNNAMED
            inputs.append(read_at(self._place(at), self._read_input, self._list[at], message_id))
        return inputs

    def _read_input(self, message: UiMessage, message_id: MessageId) -> SystemMessage | UserMessage:
        if message.role not in self._services.allow_roles:
            raise InvalidRequest(
                f"the role {message.role!r} is not allowed here (PASSBACK_ALLOW_ROLES)"
            )
        parts = tuple(
            read_at(f"parts.{at}", _read_part, part) for at, part in enumerate(message.parts)
        )
        whole = check_content(parts, self._services.limits.attachment_bytes)
        text = single_text(whole)
        content = whole if text is None else text
        if message.role == "system":
            return SystemMessage(message_id, content)
        return UserMessage(message_id, content, self._post.agent or "")

    def _read_answers(self, at: int) -> Sequence[Answer]:
        """Return the client's answers in the last step of a message of the agent."""
        parts = self._list[at].parts
        steps = (n for n, part in enumerate(parts, 1) if part.get("type") == "step-start")
        answers: list[Answer] = []
        for number in range(max(steps, default=0), len(parts)):
            place = f"{self._place(at)}.parts.{number}"
            answer = read_at(place, self._read_answer, parts[number])
            if answer is not None:
                answers.append(answer)
        return answers

    def _read_answer(self, part: Mapping[str, JsonValue]) -> Answer | None:
        """Return the client's answer in a part; None if it has none."""
        state, most = part.get("state"), self._services.limits.result_bytes
        if not str(part.get("type")).startswith(("tool-", "dynamic-tool")):
            return None
        if state == "approval-responded":
            approval = validate_model(UiDecision, dict(part)).approval
            decision: JsonValue = {"approved": approval.approved, "reason": approval.reason or ""}
            return read_approval(CallId(approval.id), decision)
        if part.get("providerExecuted") is True or part.get("preliminary") is True:
            return None
        if state == "output-available":
            output = validate_model(UiOutput, dict(part))
            content = read_result(output.output, most)
            return ToolMessage(UNNAMED, CallId(output.tool_call_id), content)
        if state == "output-error":
            error = validate_model(UiOutputError, dict(part))
            content = read_result(error.error_text, most)
            return ToolMessage(UNNAMED, CallId(error.tool_call_id), content, True)
        return None


def _read_part(part: Mapping[str, JsonValue], /) -> Part:
    """Return a part of a user's message. Raise InvalidRequest if it cannot be one."""
    kind = str(part.get("type"))
    if kind == "text":
        return TextPart(validate_model(UiText, dict(part)).text)
    if kind == "file":
        return _read_file(validate_model(UiFile, dict(part)))
    if kind.startswith("data-"):
        return DataPart(validate_model(UiData, dict(part)).data)
    raise InvalidRequest("type: a message of the user has parts of the types text, file and data-*")


def _read_file(file: UiFile) -> Part:
    media_type = file.media_type.partition(";")[0].strip().lower()
    top, _, rest = media_type.partition("/")
    posted: dict[str, JsonValue] = {
        "type": top if top in _MEDIA else "file",
        "url": file.url,
        "mediaType": media_type if rest not in {"", "*"} else None,
        "name": file.filename,
    }
    return read_media(validate_model(PostedMedia, posted))
