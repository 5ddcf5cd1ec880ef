"""Import of a history that a trusted client posts, as the first messages of a conversation. Pure.

A fault is an `InvalidRequest` that names the place. Imported calls get ids of the server's. They
are never executed and never owed: a call without a result gets a synthetic one.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

from passback.core.errors import InvalidRequest
from passback.core.messages import (
    TOOL_NAME,
    TOOL_NAME_RULE,
    UNNAMED,
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
from passback.core.text import MAX_ARGUMENT_CHARACTERS, find_arguments_flaw
from passback.core.transcript import closing_results
from passback.core.values import value

PlacedMessage: TypeAlias = tuple[str, HistoryMessage]
"""A message with its place in the post. Ids of calls are the client's own."""


_InputMessage: TypeAlias = SystemMessage | UserMessage
"""A message to the agent."""


@value
class ImportedPost:
    """A post with a history: the messages to store before its run, and its new messages."""

    history: tuple[HistoryMessage, ...]
    new: tuple[_InputMessage, ...]


def imported_arguments(posted: Iterable[PlacedMessage], /) -> Iterator[str]:
    """Yield the arguments of all calls, which `split_history` parses (slow for large ones)."""
    for _, message in posted:
        if isinstance(message, AssistantMessage):
            yield from (call.arguments for call in message.tool_calls)


def split_history(posted: Sequence[PlacedMessage], /) -> ImportedPost:
    """Split a post into history and new messages: after the agent's last message and its results.

    Args:
        posted: all messages, at least one of them the agent's.

    Raises:
        InvalidRequest: the history cannot begin a conversation, or no message of the user follows
            it.
    """
    seen: set[MessageId] = set()
    for place, message in posted:
        if message.id != UNNAMED and message.id in seen:
            raise InvalidRequest(f"{place}: an earlier message of the post has the same id")
        seen.add(message.id)
    end = max(n for n, (_, each) in enumerate(posted, 1) if not isinstance(each, _InputMessage))
    new = tuple(each for _, each in posted[end:] if isinstance(each, _InputMessage))
    if not any(isinstance(each, UserMessage) for each in new):
        raise InvalidRequest(f"{posted[-1][0]}: a new user message has to follow the history")
    reader = _HistoryReader()
    for place, message in posted[:end]:
        reader.read(place, message)
    return ImportedPost(reader.history(), new)


class _HistoryReader:
    """Reads a history message by message, and checks and rewrites its calls."""

    def __init__(self) -> None:
        self._messages: list[HistoryMessage] = []
        self._calls: dict[CallId, ToolCall] = {}
        self._open_calls: dict[CallId, ToolCall] = {}

    def read(self, place: str, message: HistoryMessage) -> None:
        if isinstance(message, ToolMessage):
            call = self._open_calls.pop(message.call_id, None)
            if call is None:
                raise InvalidRequest(
                    f"{place}: no call of the agent's message right before it "
                    "waits for a result under this id"
                )
            self._messages.append(replace(message, call_id=call.id, imported=True))
            return
        self._close_calls()
        if isinstance(message, AssistantMessage):
            if not any(isinstance(each, UserMessage) for each in self._messages):
                raise InvalidRequest(f"{place}: a history has to begin with a user message")
            says = as_text(message.content, media=lambda part: part.url).strip()
            if not (says or message.tool_calls):
                raise InvalidRequest(f"{place}: it has neither content nor calls")
            calls = tuple(self._import_call(place, call) for call in message.tool_calls)
            message = replace(message, content=message.content if says else "", tool_calls=calls)
        self._messages.append(replace(message, imported=True))

    def history(self) -> tuple[HistoryMessage, ...]:
        self._close_calls()
        return tuple(self._messages)

    def _import_call(self, place: str, call: ToolCall) -> ToolCall:
        if call.id in self._calls:
            raise InvalidRequest(f"{place}: an earlier call has the same id")
        if not TOOL_NAME.fullmatch(call.name):
            raise InvalidRequest(f"{place}: the name of a call's tool is invalid: {TOOL_NAME_RULE}")
        # some clients send an empty text for a call without arguments
        arguments = call.arguments or "{}"
        if find_arguments_flaw(arguments) is not None:
            raise InvalidRequest(
                f"{place}: the arguments of a call have to be the text of a JSON object "
                f"that has no key twice, of {MAX_ARGUMENT_CHARACTERS} characters at most"
            )
        # a new id, because providers accept only ids in their own format
        number = len(self._calls) + 1
        ours = ToolCall(CallId(f"imported_{number}"), call.name, arguments)
        self._calls[call.id] = self._open_calls[call.id] = ours
        return ours

    def _close_calls(self) -> None:
        """Give results to calls that have none: only results may follow a call."""
        for result in closing_results(self._open_calls.values(), "unanswered", lambda: UNNAMED):
            self._messages.append(replace(result, imported=True))
        self._open_calls.clear()
