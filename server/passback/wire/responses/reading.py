"""Reading of a request as a command: what of it is new, and where the conversation goes on."""

import time
from collections.abc import Collection, Sequence
from itertools import islice
from typing import Final, TypeAlias

from pydantic import JsonValue
from starlette.requests import Request

from passback.core.errors import (
    InvalidRequest,
    NothingToDo,
    UnknownAgent,
    UnknownConversation,
    UnknownMessage,
    UnknownRun,
)
from passback.core.ids import ConversationTag, tag_of
from passback.core.imported import PlacedMessage, imported_arguments, split_history
from passback.core.messages import (
    ANY_TOOL,
    EFFORTS,
    UNNAMED,
    Answer,
    AssistantMessage,
    CallId,
    Content,
    ConversationKey,
    Generation,
    HistoryMessage,
    JsonObject,
    MessageContext,
    MessageId,
    Part,
    PostedMessage,
    RefusalPart,
    RunId,
    RunRef,
    TextPart,
    ToolCall,
    ToolMessage,
    ToolSpec,
    UserMessage,
)
from passback.core.posts import StartRun, new_indexes
from passback.core.values import value
from passback.http.answers import may_list, owner_of
from passback.http.body import work_on
from passback.http.requests import (
    check_conversation_id,
    headers_of,
    idempotency_key,
    posted_conversation_id,
    validate_model,
)
from passback.http.wires import Services
from passback.native.declarations import parse_output_schema, parse_tools
from passback.native.earlier import read_back
from passback.native.message_context import add_context, refuse_large
from passback.native.parts import (
    PostedMedia,
    check_content,
    guess_media_type,
    read_at,
    read_media,
    read_result,
)
from passback.native.submissions import read_approval
from passback.wire.responses.errors import PREVIOUS
from passback.wire.responses.items import is_said_in, run_of_response, source_of_item
from passback.wire.responses.posted import (
    AllowedTools,
    ApprovalItem,
    CallItem,
    ContentPart,
    CreateResponse,
    FunctionChoice,
    InputFile,
    InputImage,
    InputItem,
    InputRefusal,
    InputSound,
    InputText,
    MessageItem,
    OutputItem,
    SaidItem,
)
from passback.wire.responses.request_note import functions_of, keep_note, key_of_run, note_of

_MOST_PLACES: Final = 16  # conversations that are looked for, by the newest items
_NEEDS_HISTORY: Final = (
    "the input has what an assistant said, and it was not said here: name the response in which it "
    "was (previous_response_id), or leave these items out. The server's operator can allow it by "
    "PASSBACK_ALLOW_ROLES=assistant"
)
_Placed: TypeAlias = tuple[int, InputItem]
_AUDIO_TYPES: Final = {"mp3": "audio/mpeg", "wav": "audio/wav"}


@value
class _Place:
    """The place where a request goes on.

    Args:
        key: the conversation.
        resends: the client sends what it has already said again.
        history: what was said elsewhere, to begin with.
    """

    key: ConversationKey
    resends: bool = False
    history: tuple[HistoryMessage, ...] = ()


async def read_request(services: Services, request: Request, post: CreateResponse, /) -> StartRun:
    """Return the command of a request. Its note is what the response repeats of it (`note_of`).

    Raises:
        ClientError: the request is not legal, or names what this owner does not have.
    """
    return await _Reader(services, request, post).read()


class _Reader:
    def __init__(self, services: Services, request: Request, post: CreateResponse) -> None:
        self._services = services
        self._runs = services.runs
        self._request = request
        self._post = post
        self._owner = owner_of(request)
        self._key = idempotency_key(headers_of(request.scope))
        said = post.input
        self._items: Sequence[InputItem] = (
            [MessageItem(role="user", content=said)] if isinstance(said, str) else said or ()
        )

    async def read(self) -> StartRun:
        post = self._post
        _refuse_unsupported(post)
        if not self._items:
            raise _wrong("input", "it is missing or empty")
        new = self._find_new()
        agent, model = self._read_model()
        messages = [read_at(f"input.{at}", self._read_message, each, agent) for at, each in new]
        place = await self._find_place(messages)
        if any(isinstance(each, UserMessage) for each in messages):
            context = await self._read_context(model, agent, place.key)
            messages = list(add_context(messages, context))
        elif forced_tool(post) is not None:
            raise _wrong("tool_choice", "a function is forced only with a new message of the user")
        tools = await self._read_tools(place.key)
        return StartRun(
            place.key,
            tuple(messages),
            tools,
            idempotency_key=self._key,
            resends=place.resends,
            history=place.history,
            note=self._note(place),
        )

    def _find_new(self) -> list[_Placed]:
        """Return the items that the server does not have, and their places.

        Raises:
            NothingToDo: there is none.
        """
        at_new = new_indexes([each.resent_role for each in self._items])
        new = [(at, self._items[at]) for at in at_new]
        if not new:
            raise NothingToDo(
                "the input has nothing new: add a user's message, or the output of a call",
                details={"parameter": "input"},
            )
        return new

    # ---------------------------------------------------------------- where it goes on
    async def _find_place(self, new: Sequence[PostedMessage]) -> _Place:
        post = self._post
        answers = all(isinstance(each, Answer) for each in new)
        if post.conversation is not None:
            name = post.conversation if isinstance(post.conversation, str) else post.conversation.id
            key = ConversationKey(self._owner, read_at("conversation", check_conversation_id, name))
            await self._runs.status(key)  # a conversation is made by its own request
            return _Place(key)
        if post.previous_response_id is not None:
            run_id = run_of_response(post.previous_response_id)
            key = await self._locate_run(run_id)
            return _Place(await self._follow(key, run_id, answers=answers))
        if (found := await self._find_said()) is not None:
            key, run_id = found
            return _Place(await self._follow(key, run_id, answers=answers), resends=True)
        key = ConversationKey(self._owner, posted_conversation_id(self._owner, self._key, None))
        if any(each.resent_role in {"text", "call"} for each in self._items):
            return _Place(key, history=await self._read_history())
        return _Place(key)

    async def _locate_run(self, run_id: RunId) -> ConversationKey:
        """Return the conversation of the response that is continued. Raises UnknownRun."""
        key = await self._runs.locate(self._owner, run_id)
        try:
            if key is not None and not (await self._runs.run(RunRef(key, run_id))).hidden:
                return key
        except (UnknownRun, UnknownConversation):
            pass
        raise UnknownRun(
            "there is no such response: it was deleted, or is another user's",
            details={"parameter": PREVIOUS},
        )

    async def _follow(
        self, key: ConversationKey, run_id: RunId, *, answers: bool
    ) -> ConversationKey:
        """Return the conversation that goes on behind a run.

        Behind the newest one it is the run's own. Any other is continued in a copy: a response can
        be continued any number of times. Outputs belong to their calls, wherever they come.
        """
        status = await self._runs.status(key)
        if answers or status.run_id == run_id:
            return key
        after, following = await self._find_end(key, run_id, status.message_count)
        if self._key is not None and following is not None:
            # the repeat of a request that went on in place
            record = await self._runs.run(RunRef(key, following))
            if key_of_run(record) == self._key:
                return key
        source = posted_conversation_id(self._owner, self._key, None, source=key.id)
        copy = ConversationKey(self._owner, source)
        await self._runs.fork(key, copy, after=after)
        return copy

    async def _find_end(
        self, key: ConversationKey, run_id: RunId, end: int
    ) -> tuple[MessageId, RunId | None]:
        """Return the last message of a run, and the run that goes on behind it.

        Raises:
            UnknownRun: the branch has no message of the run.
        """
        following: RunId | None = None
        async for page in read_back(self._runs, key, end):
            for message in reversed(page):
                if message.run_id == run_id:
                    return message.id, following
                following = message.run_id or following
        raise UnknownRun(
            "this response is too far back to be continued, or on another branch",
            details={"parameter": PREVIOUS},
        )

    async def _find_said(self) -> tuple[ConversationKey, RunId] | None:
        """Return where the newest items of this server were said; None: the input has none.

        Raises:
            UnknownMessage: the conversation has them no more.
        """
        by_place: dict[ConversationTag, list[MessageId | CallId]] = {}
        for item in reversed(self._items):
            source = _source_of(item)
            if source is not None and (tag := tag_of(source)) is not None:
                by_place.setdefault(tag, []).append(source)
        # where ids of conversations are secrets, no other id stands for one (`posted_conversation`)
        known = by_place.values() if may_list(self._request.scope) else ()
        for sources in islice(known, _MOST_PLACES):
            key = await self._runs.locate(self._owner, sources[0])
            if key is not None:
                return key, await self._run_that_said(key, frozenset(sources))
        return None

    async def _run_that_said(
        self, key: ConversationKey, sources: Collection[MessageId | CallId]
    ) -> RunId:
        """Return the run of the last message that has one of the items. Raises UnknownMessage."""
        end = (await self._runs.status(key)).message_count
        async for page in read_back(self._runs, key, end):
            for message in reversed(page):
                if is_said_in(message, sources):
                    return message.run_id
        raise UnknownMessage(
            "an item of the input is not in its conversation any more",
            details={"parameter": "input"},
        )

    # ---------------------------------------------------------------- what is asked for
    def _read_model(self) -> tuple[str, str]:
        """Return the agent and the model that are named. Raises UnknownAgent."""
        name, agents = self._post.model, self._runs.agents()
        if not name:
            return "", ""
        if name in agents:
            return name, ""
        models = self._runs.models()
        if name in models or any(name == each.partition(":")[2] for each in models):
            return "", name
        if len(agents) == 1:
            return "", ""
        raise UnknownAgent(
            f"there is no model of this name; there are: {', '.join([*agents, *models])}"
        )

    async def _read_context(self, model: str, agent: str, key: ConversationKey) -> MessageContext:
        post = self._post
        said = [post.instructions or "", *map(_system_text, self._items)]
        effort = post.reasoning.effort if post.reasoning else None
        can_choose = effort in EFFORTS and self._runs.effort(agent) is not None
        generation = Generation(
            temperature=post.temperature,
            top_p=post.top_p,
            max_tokens=post.max_output_tokens,
            frequency_penalty=post.frequency_penalty,
            presence_penalty=post.presence_penalty,
            effort=effort if can_choose else None,
            must_call=forced_tool(post),
        )
        return MessageContext(
            instructions="\n\n".join(filter(None, (each.strip() for each in said))),
            output_schema=await self._read_schema(key),
            generation=None if generation == Generation() else generation,
            model=model,
        )

    async def _read_schema(self, key: ConversationKey) -> JsonObject | None:
        form = self._post.text.format if self._post.text else None
        if form is None or form.type == "text":
            return None
        if form.type == "json_object":
            return {"type": "object"}
        if form.name is None or form.schema_ is None:
            raise _wrong("text.format", "json_schema needs a name and a schema")
        return await parse_output_schema(
            form.schema_, self._services.limits, "text.format.schema", key
        )

    async def _read_tools(self, key: ConversationKey) -> tuple[ToolSpec, ...]:
        """Return the functions of this response; those of earlier ones are not inherited."""
        tools = await parse_tools(functions_of(self._post), self._services.limits, key)
        choice, names = self._post.tool_choice, {each.name for each in tools}
        if choice == "none":
            return ()
        if isinstance(choice, FunctionChoice) and choice.name not in names:
            raise _wrong("tool_choice", "the tools have no function of this name")
        if not isinstance(choice, AllowedTools):
            return tools
        allowed = {each.name for each in choice.tools}
        if not allowed <= names:
            raise _wrong("tool_choice.tools", "the tools have no function of one of these names")
        return tuple(each for each in tools if each.name in allowed)

    def _note(self, place: _Place) -> JsonObject:
        name = None if self._post.conversation is None else place.key.id
        agent = self._post.model or self._runs.agents()[0] or next(iter(self._runs.models()), "")
        note = note_of(self._post, agent, name, int(time.time()))
        # the record of each run keeps it
        refuse_large("tools, instructions and metadata together", dict(note), self._services.limits)
        return keep_note(note, self._key)

    # ---------------------------------------------------------------- items
    def _read_message(self, item: InputItem, agent: str) -> PostedMessage:
        """Return a new item. Raises ClientError as the other wires' readers do."""
        match item:
            case OutputItem():
                output: JsonValue = (
                    item.output
                    if isinstance(item.output, str)
                    else [_plain_part(part) for part in item.output]
                )
                result = read_result(output, self._services.limits.result_bytes)
                return ToolMessage(UNNAMED, CallId(item.call_id), result)
            case ApprovalItem():
                return read_approval(
                    CallId(item.approval_request_id),
                    {"approved": item.approve, "reason": item.reason or ""},
                )
            case _:
                assert isinstance(item, MessageItem)  # no other kind is ever new
                return UserMessage(UNNAMED, self._read_content(item.content), agent)

    def _read_content(self, content: str | Sequence[ContentPart]) -> Content:
        if isinstance(content, str):
            return check_content(content, self._services.limits.attachment_bytes)
        parts = tuple(read_at(f"content.{at}", _read_part, part) for at, part in enumerate(content))
        return check_content(parts, self._services.limits.attachment_bytes)

    async def _read_history(self) -> tuple[HistoryMessage, ...]:
        """Return what was said elsewhere, which is kept as such: nothing of it is done."""
        if "assistant" not in self._services.allow_roles:
            raise _wrong("input", _NEEDS_HISTORY)
        read: list[PlacedMessage] = []
        for at, item in enumerate(self._items):
            self._add_to_history(read, f"input.{at}", item)
        if all(isinstance(said, UserMessage) for _, said in read):  # only thoughts stand between
            return ()
        imported = await work_on(imported_arguments(read), split_history, read)
        return imported.history

    def _add_to_history(self, read: list[PlacedMessage], place: str, item: InputItem) -> None:
        match item:
            case CallItem():
                call = ToolCall(CallId(item.call_id), item.name, item.arguments)
                first, turn = read[-1] if read else (place, None)
                if isinstance(turn, AssistantMessage):  # one turn has its text and its calls
                    calls = (*turn.tool_calls, call)
                    read[-1] = (first, AssistantMessage(turn.id, turn.content, calls))
                else:
                    read.append((place, AssistantMessage(UNNAMED, "", (call,))))
            case MessageItem(role="assistant"):
                content = read_at(place, self._read_content, item.content)
                read.append((place, AssistantMessage(UNNAMED, content)))
            case OutputItem() | MessageItem(role="user"):
                said = read_at(place, self._read_message, item, "")
                assert isinstance(said, UserMessage | ToolMessage)
                read.append((place, said))
            case SaidItem(type="item_reference"):
                raise _wrong(place, "there is no such item")
            case _:  # the caller's instructions, thoughts and approvals are no part of a history
                pass


def _refuse_unsupported(post: CreateResponse) -> None:
    """Refuse what would be accepted and ignored otherwise.

    Raises:
        InvalidRequest: the error has the parameter.
    """
    if post.conversation is not None and post.previous_response_id is not None:
        raise _wrong("conversation", "it cannot be given beside previous_response_id")
    if post.store is False:
        raise _wrong("store", "this server keeps every response: leave it out, or delete it later")


def forced_tool(post: CreateResponse, /) -> str | None:
    """Return `Generation.must_call` for what a request has chosen."""
    choice = post.tool_choice
    if isinstance(choice, FunctionChoice):
        return choice.name
    forces = choice == "required" or (
        isinstance(choice, AllowedTools) and choice.mode == "required"
    )
    return ANY_TOOL if forces else None


def _wrong(place: str, problem: str) -> InvalidRequest:
    return InvalidRequest(
        f"{place}: {problem}", details={"problems": [{"at": place, "problem": problem}]}
    )


def _source_of(item: InputItem) -> MessageId | CallId | None:
    """Return the message or the call of this server that an item is about; None: it tells none."""
    match item:
        case CallItem() | OutputItem():
            return CallId(item.call_id)
        case ApprovalItem():
            return CallId(item.approval_request_id)
        case MessageItem(role="assistant") | SaidItem() if item.id:
            return source_of_item(item.id)
        case _:
            return None


def _system_text(item: InputItem) -> str:
    """Return the text of a message of the caller's program, which is an instruction; else none."""
    if not isinstance(item, MessageItem) or item.role not in {"system", "developer"}:
        return ""
    if isinstance(item.content, str):
        return item.content
    return "\n".join(part.text for part in item.content if isinstance(part, InputText))


# ---------------------------------------------------------------- parts
def _read_part(part: ContentPart) -> Part:
    """Return a part. Raises InvalidRequest for one without data, or with illegal data."""
    match part:
        case InputText():
            return TextPart(part.text)
        case InputRefusal():
            return RefusalPart(part.refusal)
        case _:
            return read_media(validate_model(PostedMedia, _plain_medium(part)))


def _plain_part(part: ContentPart) -> dict[str, JsonValue]:
    """Return a part of an output as `read_result` takes it."""
    match part:
        case InputText():
            return {"type": "text", "text": part.text}
        case InputRefusal():
            return {"type": "text", "text": part.refusal}
        case _:
            return _plain_medium(part)


def _plain_medium(part: InputImage | InputFile | InputSound) -> dict[str, JsonValue]:
    if isinstance(part, InputSound):
        kind = str(part.input_audio.get("format") or "")
        media_type = _AUDIO_TYPES.get(kind, f"audio/{kind}")
        return {"type": "audio", "data": part.input_audio.get("data"), "mediaType": media_type}
    if part.file_id is not None:
        raise InvalidRequest("file_id: this server keeps no files; send a URL, or the data")
    if isinstance(part, InputImage):
        if not part.image_url:
            raise InvalidRequest("image_url is missing")
        return {"type": "image", "url": part.image_url}
    data, url, name = part.file_data, part.file_url, part.filename
    if data and data.startswith("data:"):
        data, url = None, data
    if not data and not url:
        raise InvalidRequest("file_url or file_data is missing")
    medium: dict[str, JsonValue] = {"type": "file", "name": name}
    if url:
        return {**medium, "url": url}
    return {**medium, "data": data, "mediaType": guess_media_type(name or "")}
