"""The stored messages of a conversation as the messages of a chat, for a client that loads it.

Each is what a client has after it has read the streams of the same runs, as far as the record knows
it: plans, progress and structured output are live only.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Any, Final, TypeAlias, TypeGuard

from passback.core.errors import UnknownConversation
from passback.core.messages import (
    ApprovalMessage,
    AssistantMessage,
    CallId,
    ChildMessage,
    Content,
    ConversationKey,
    DataPart,
    MediaPart,
    Message,
    Part,
    RunId,
    SummaryMessage,
    SystemMessage,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
    add_usages,
    as_text,
)
from passback.core.runs import Runs
from passback.core.values import value
from passback.native.earlier import PAGE_MESSAGES, read_range
from passback.native.parts import data_url
from passback.wire.ai_sdk.encoder import NOT_MADE, call_flags, usage_metadata
from passback.wire.ai_sdk.json_values import (
    REFUSED_INPUT,
    read_arguments,
    show_output,
    takes_arguments,
)
from passback.wire.ai_sdk.record import message_id_of

MOST_BYTES: Final = 8 * 1024 * 1024  # of a page, about
_OPEN: Final = frozenset({"input-available", "approval-requested", "approval-responded"})

View: TypeAlias = dict[str, Any]


@value
class ChatPage:
    """Messages of a chat, oldest first.

    Attributes:
        messages: the messages, as clients have them.
        before: the position before which the page ends that comes before; None: there is none.
    """

    messages: Sequence[View] = ()
    before: int | None = None


async def read_page(
    runs: Runs, key: ConversationKey, before: int, limit: int, /, *, most: int = MOST_BYTES
) -> ChatPage:
    """Return the last messages of a chat before a position of the record.

    A chat that does not exist is empty. The page has at most `limit` messages and about `most`
    bytes, and one message at least: if that alone is larger, its first steps are left out.
    """
    try:
        end = min(before, (await runs.status(key)).message_count)
        return await _read_before(runs, key, end, limit, most)
    except UnknownConversation:  # or it was deleted meanwhile
        return ChatPage()


async def _read_before(
    runs: Runs, key: ConversationKey, end: int, limit: int, most: int
) -> ChatPage:
    newest_first: list[View] = []
    place, size, answer = end, 0, _Stored()

    def end_answer(start: int) -> None:
        """Show the messages of the agent that were collected, which begin at a position."""
        nonlocal place, answer
        if answer.first is not None:
            view = _answer_view(key, answer, is_last=place == end)
            newest_first.extend([view] if view["parts"] else [])  # nothing of it may be shown
            place, answer = start, _Stored()

    async for position, message in _read_back(runs, key, end):
        size += _size_of(message)
        if not _is_input(message):
            if size > most and newest_first:
                break
            answer.add(message, fits=size <= most)
            continue
        end_answer(position + 1)
        if len(newest_first) >= limit or (size > most and newest_first):
            break
        newest_first.append(_input_view(message))
        place = position
        if len(newest_first) >= limit:
            break
    else:
        end_answer(0)
    return ChatPage(newest_first[::-1], place or None)


async def _read_back(
    runs: Runs, key: ConversationKey, end: int
) -> AsyncIterator[tuple[int, Message]]:
    """Read the messages before a position with their own, newest first."""
    while end > 0:
        start = max(0, end - PAGE_MESSAGES)
        found = await read_range(runs, key, start, end)
        for at in reversed(range(len(found))):
            yield start + at, found[at]
        end = start


class _Stored:
    """The stored messages of one message of the agent, as far as they fit.

    Attributes:
        first: the first one, even if it does not fit; None: there is none yet.
    """

    def __init__(self) -> None:
        self.first: Message | None = None
        self._newest_first: list[Message] = []
        self._whole = 0  # messages of whole steps
        self._fits = True

    def add(self, message: Message, *, fits: bool) -> None:
        """Take the message before those that were added. The last step always fits."""
        self.first = message
        self._fits = self._fits and (fits or not self._whole)
        if self._fits:
            self._newest_first.append(message)
            if isinstance(message, AssistantMessage):
                self._whole = len(self._newest_first)

    @property
    def messages(self) -> Sequence[Message]:
        """Those that fit, in order."""
        kept = self._newest_first if self._fits else self._newest_first[: self._whole]
        return kept[::-1]


def _is_input(message: Message) -> TypeGuard[UserMessage | SystemMessage]:
    """Return whether a message is one of the client's own, which ends a message of the agent."""
    if isinstance(message, SystemMessage):
        return message.synthetic is None
    return isinstance(message, UserMessage)


def _size_of(message: Message) -> int:
    """Return the approximate size of what is shown of a message."""
    match message:
        case ChildMessage(_, inner):
            return _size_of(inner)
        case AssistantMessage():
            calls = sum(len(each.arguments) for each in message.tool_calls)
            return calls + len(_text(message.content)) + len(_thoughts(message))
        case UserMessage() | SystemMessage() | ToolMessage():
            return len(_text(message.content))
        case _:
            return 0


def _text(content: Content) -> str:
    return as_text(content, media=lambda part: part.url)


def _thoughts(message: AssistantMessage) -> str:
    return "".join(each.text for each in message.reasoning)


# ---------------------------------------------------------------- the client's own messages
def _input_view(message: UserMessage | SystemMessage) -> View:
    content = message.content
    parts = (
        [{"type": "text", "text": content}]
        if isinstance(content, str)
        else [_part_view(each) for each in content]
    )
    return {"id": message.id, "role": message.role, "parts": parts}


def _part_view(part: Part) -> View:
    match part:
        case MediaPart():
            view: View = {"type": "file", "mediaType": _media_type(part), "url": part.url}
            return {**view, "filename": part.name} if part.name else view
        case DataPart(data):
            return {"type": "data-json", "data": data}
        case _:
            return {"type": "text", "text": part.text}


def _media_type(part: MediaPart) -> str:
    """Return the type of a medium. Its second half is a star if it is not known."""
    if part.media_type:
        return part.media_type
    found = data_url(part.url)
    if found is not None:
        return found[1] or "text/plain"  # RFC 2397
    return "application/octet-stream" if part.type == "file" else f"{part.type}/*"


# ---------------------------------------------------------------- messages of the agent
def _answer_view(key: ConversationKey, stored: _Stored, *, is_last: bool) -> View:
    """Return a message of the agent.

    Args:
        key: the conversation.
        stored: its messages.
        is_last: nothing comes after it: its calls may still be answered.
    """
    answer = _Answer()
    for message in stored.messages:
        answer.add(message, None)
    metadata: View = {"conversationId": key.id}
    if answer.run_id:
        metadata["runId"] = answer.run_id
    if answer.model:
        metadata["model"] = answer.model
    if answer.usage is not None:
        metadata["usage"] = usage_metadata(answer.usage)
    message_id = message_id_of([stored.first] if stored.first else ())
    parts = answer.end(may_go_on=is_last)
    return {"id": message_id, "role": "assistant", "metadata": metadata, "parts": parts}


class _Answer:
    """Builds the parts of one message of the agent."""

    def __init__(self) -> None:
        self.model = ""
        self.run_id = RunId("")  # of the last answer: a result may be closed by the run behind it
        self.usage: Usage | None = None
        self._parts: list[View] = []
        self._calls: dict[CallId, View] = {}
        self._parents: dict[CallId, CallId] = {}
        self._reasons: dict[CallId, str] = {}

    def add(self, message: Message, parent: CallId | None) -> None:
        """Add what is shown of a message; of a sub-agent's, its calls."""
        match message:
            case ChildMessage(call_id, inner):
                self.add(inner, call_id)
            case AssistantMessage():
                self._add_turn(message, parent)
            case ToolMessage():
                self._add_result(message)
            case ApprovalMessage():
                self._add_decision(message)
            case SummaryMessage():
                self.usage = add_usages(self.usage, message.usage)
            case _:  # a client is not shown it
                pass

    def end(self, *, may_go_on: bool) -> Sequence[View]:
        """Return the parts.

        In a last step with nothing but the client's own results, a client would post them again.
        """
        if not may_go_on:
            for part in self._calls.values():
                _end_unmade(part)
        step: list[View] = []
        for part in self._parts:
            step = [] if part["type"] == "step-start" else [*step, part]
        made = [each for each in step if "toolCallId" in each and "providerExecuted" not in each]
        if made and not any(each["state"] in _OPEN for each in step if "toolCallId" in each):
            self._parts.append({"type": "step-start"})
        return self._parts

    def _add_turn(self, message: AssistantMessage, parent: CallId | None) -> None:
        self.usage = add_usages(self.usage, message.usage)
        if parent is None:
            self.model, self.run_id = message.model or self.model, message.run_id
            self._parts.append({"type": "step-start"})
            for kind, text in (("reasoning", _thoughts(message)), ("text", _text(message.content))):
                if text:
                    self._parts.append({"type": kind, "text": text, "state": "done"})
        for call in message.tool_calls:
            self._add_call(call, parent)

    def _add_call(self, call: ToolCall, parent: CallId | None) -> None:
        flags = call_flags(client=call.client, parent=parent)
        kind: View = {"type": f"tool-{call.name}"}
        if flags.pop("dynamic", False):
            kind = {"type": "dynamic-tool", "toolName": call.name}
        title = {"title": call.title} if call.title else {}
        state = {"state": "input-available", "input": read_arguments(call.arguments)}
        part: View = {**kind, "toolCallId": call.id, **title, **flags, **state}
        if call.asks == "approval":
            asked = {"requestReason": call.reason} if call.reason else {}
            part |= {"state": "approval-requested", "providerExecuted": False}
            part["approval"] = {"id": call.id, **asked}
        elif call.client and not takes_arguments(call.arguments):
            part |= {"state": "output-error", "errorText": REFUSED_INPUT}
        self._parts.append(part)
        self._calls[call.id] = part
        if parent is not None:
            self._parents[call.id] = parent

    def _add_decision(self, said: ApprovalMessage) -> None:
        part = self._calls.get(said.call_id)
        if part is not None:
            reason = {"reason": said.reason} if said.reason else {}
            known = part.get("approval") or {"id": said.call_id}
            part["approval"] = {**known, "approved": said.approved, **reason}
            part["state"] = "approval-responded"

    def _add_result(self, result: ToolMessage) -> None:
        part = self._calls.get(result.call_id)
        if part is None:
            return
        if result.synthetic == "denied":
            known = part.get("approval") or {"id": result.call_id}
            part |= {"state": "output-denied", "approval": {**known, "approved": False}}
        elif result.is_error:
            own = "providerExecuted" not in part and not result.synthetic
            _fail(part, _text(result.content), own=own)
        else:
            part |= {"state": "output-available", "output": show_output(result.content)}
            if result.synthetic or "providerExecuted" in part:
                part["providerExecuted"] = True
        for inner, parent in self._parents.items():
            if parent == result.call_id:
                _end_unmade(self._calls[inner])


def _end_unmade(part: View) -> None:
    """End a call that has no result, and will have none."""
    if part["state"] in _OPEN or part.get("errorText") == REFUSED_INPUT:
        _fail(part, NOT_MADE, own=False)


def _fail(part: View, text: str, *, own: bool) -> None:
    """Give a call an error; one that is not the client's `own` is posted by no client."""
    part |= {"state": "output-error", "errorText": text}
    if not own:
        part["providerExecuted"] = True
    if not part.get("approval", {}).get("approved"):  # the protocol knows no other approval here
        part.pop("approval", None)
