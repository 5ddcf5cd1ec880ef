"""A history that a trusted client brings along, as the first messages of a conversation. Pure.

What is wrong with it is an `InvalidRequest` that names the place. Its calls get ids of the server's, were made by nobody here
and wait for nobody: one without a result is closed.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

from passback.core.errors import InvalidRequest
from passback.core.messages import (
    TOOL_NAME,
    TOOL_NAME_RULE,
    AssistantMessage,
    CallId,
    HistoryMessage,
    MessageId,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
    as_text,
)
from passback.core.text import MOST_CHARACTERS, flaw_in
from passback.core.transcript import MintMessageId, closing
from passback.core.values import value

Placed: TypeAlias = tuple[str, HistoryMessage]
"""A message as its client tells it, with ids of calls that are the client's own, and its place in the post."""


_Said: TypeAlias = SystemMessage | UserMessage
"""What is said to the agent."""


@value
class Imported:
    """A post with a history: what is to be stored before its run, and its new messages."""

    history: tuple[HistoryMessage, ...]
    new: tuple[_Said, ...]


def arguments_in(posted: Iterable[Placed], /) -> Iterator[str]:
    """Give the arguments of all calls, which `with_history` parses: large ones take it long."""
    for _, message in posted:
        if isinstance(message, AssistantMessage):
            yield from (call.arguments for call in message.tool_calls)


def with_history(posted: Sequence[Placed], mint: MintMessageId, /) -> Imported:
    """Tell the history of a post, which ends with the agent's last words and their results, from its new messages.

    Args:
        posted: all messages, with words of the agent among them.
        mint: makes ids for the results that are missing.

    Raises:
        InvalidRequest: it cannot be the beginning of a conversation, or no message of the user follows on it.
    """
    _refuse_ids(posted)
    end = max(n for n, (_, each) in enumerate(posted, 1) if not isinstance(each, _Said))
    new = tuple(each for _, each in posted[end:] if isinstance(each, _Said))
    if not any(isinstance(each, UserMessage) for each in new):
        raise InvalidRequest(f"{posted[-1][0]}: a message of the user has to follow on the history")
    reader = _Reader(mint)
    for place, message in posted[:end]:
        reader.read(place, message)
    return Imported(reader.history(), new)


def _refuse_ids(posted: Iterable[Placed]) -> None:
    seen: set[MessageId] = set()
    for place, message in posted:
        if message.id in seen:
            raise InvalidRequest(f"{place}: an earlier message of the post has the same id")
        seen.add(message.id)


class _Reader:
    """Reads a history message by message."""

    def __init__(self, mint: MintMessageId) -> None:
        self._mint = mint
        self._read: list[HistoryMessage] = []
        self._calls: dict[CallId, ToolCall] = {}
        self._open: dict[CallId, ToolCall] = {}

    def read(self, place: str, message: HistoryMessage) -> None:
        if isinstance(message, ToolMessage):
            self._answer(place, message)
            return
        self._close()
        if isinstance(message, AssistantMessage):
            message = self._asking(place, message)
        self._read.append(replace(message, imported=True))

    def history(self) -> tuple[HistoryMessage, ...]:
        self._close()
        return tuple(self._read)

    def _answer(self, place: str, message: ToolMessage) -> None:
        call = self._open.pop(message.call_id, None)
        if call is None:
            raise InvalidRequest(
                f"{place}: no call of the agent's message right before it waits for a result under this id"
            )
        self._read.append(replace(message, call_id=call.id, imported=True))

    def _asking(self, place: str, message: AssistantMessage) -> AssistantMessage:
        if not any(isinstance(each, UserMessage) for each in self._read):
            raise InvalidRequest(f"{place}: a history begins with a message of the user")
        says = as_text(message.content, media=lambda part: part.url).strip()
        if not (says or message.tool_calls):
            raise InvalidRequest(f"{place}: it has neither content nor calls")
        calls = tuple(self._called(place, call) for call in message.tool_calls)
        return replace(message, content=message.content if says else "", tool_calls=calls)

    def _called(self, place: str, call: ToolCall) -> ToolCall:
        if call.id in self._calls:
            raise InvalidRequest(f"{place}: an earlier call has the same id")
        if not TOOL_NAME.fullmatch(call.name):
            raise InvalidRequest(f"{place}: a call's name is no tool's: {TOOL_NAME_RULE}")
        arguments = call.arguments or "{}"
        if flaw_in(arguments) is not None:
            raise InvalidRequest(
                f"{place}: the arguments of a call have to be the text of a JSON object that has no key twice, of "
                f"{MOST_CHARACTERS} characters at most"
            )
        # not the client's: providers take such ids only as they make them
        number = len(self._calls) + 1
        ours = ToolCall(CallId(f"imported_{number}"), call.name, arguments)
        self._calls[call.id] = self._open[call.id] = ours
        return ours

    def _close(self) -> None:
        """Give results to the calls that have none: nothing but results may follow on a call."""
        for result in closing(self._open.values(), "unanswered", self._mint):
            self._read.append(replace(result, imported=True))
        self._open.clear()
