"""Parts that encoders share: the order of an answer's messages, and calls of earlier runs.

Clients of these protocols add what comes to the last message, whereas the engine may report several
calls at once.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

from passback.core.errors import UnknownConversation
from passback.core.messages import (
    AssistantMessage,
    CallId,
    ChildMessage,
    ConversationKey,
    Message,
    RunRef,
    ToolCall,
)
from passback.core.ports import Runs

FrameT = TypeVar("FrameT", covariant=True)
TrackT = TypeVar("TrackT", bound="Track[str]")


class Track(Protocol[FrameT]):
    """One message. It is sent from its first event, when the one before has ended, until `done`."""

    done: bool

    def begin_events(self) -> Sequence[FrameT]:
        """Return the first events, with the content so far."""
        ...

    def new_events(self) -> Sequence[FrameT]:
        """Return the events of the content since the last events."""
        ...

    def end_events(self) -> Sequence[FrameT]:
        """Return the last events."""
        ...


class TrackQueue(Generic[TrackT]):
    """The messages of one answer, which are sent one after the other; later ones wait."""

    def __init__(self) -> None:
        self._tracks: deque[TrackT] = deque()
        self._sending: TrackT | None = None  # its first events were sent, its last were not

    def __iter__(self) -> Iterator[TrackT]:
        return iter(self._tracks)

    def __bool__(self) -> bool:
        return bool(self._tracks)

    def add(self, track: TrackT) -> None:
        self._tracks.append(track)

    def is_first(self, track: TrackT) -> bool:
        """Return True if no other message is being sent before this one, which waits or is sent."""
        return self._tracks[0] is track

    def ready_events(self) -> list[str]:
        """Return the events of all messages that are done, and the first ones of the next."""
        frames: list[str] = []
        while self._tracks:
            track = self._tracks[0]
            frames += track.new_events() if track is self._sending else track.begin_events()
            self._sending = track
            if not track.done:
                break
            frames += track.end_events()
            self._tracks.popleft()
        return frames


_PAGE_MESSAGES = 100  # messages per read of the store
_MOST_MESSAGES = 2_000  # messages that are searched for calls, from the end

Calls = Mapping[CallId, ToolCall]


async def earlier_calls(runs: Runs, run: RunRef, /) -> Calls:
    """Return the calls that a run may have results of, though an earlier run made them.

    For the newest run the first message is known: the calls are those of the last turn before. For
    any other run, all calls in the last messages of the conversation are returned. Without such a
    conversation there are none.

    Raises:
        StoreError: the messages cannot be read.
    """
    calls: dict[CallId, ToolCall] = {}
    try:
        status = await runs.status(run.key)
        is_newest = status.run_id == run.run_id
        end = status.run_start if is_newest else status.message_count
        first = max(0, end - _MOST_MESSAGES)
        while end > first:
            messages = await _read_range(runs, run.key, max(first, end - _PAGE_MESSAGES), end)
            calls.update((call.id, call) for call in _iterate_calls(messages))
            if is_newest and any(isinstance(each, AssistantMessage) for each in messages):
                break
            end -= _PAGE_MESSAGES
    except UnknownConversation:
        return {}
    return calls


async def _read_range(runs: Runs, key: ConversationKey, start: int, end: int) -> Sequence[Message]:
    """Return the messages from `start` to `end`, with several reads where they are large."""
    found: list[Message] = []
    while len(found) < end - start:
        page = await runs.messages(key, start=start + len(found), limit=end - start - len(found))
        if not page.messages:  # the conversation was deleted, or a rollback has shortened it
            break
        found += page.messages
    return found


def _iterate_calls(messages: Iterable[Message]) -> Iterator[ToolCall]:
    for message in messages:
        if isinstance(message, ChildMessage):
            yield from _iterate_calls([message.message])
        elif isinstance(message, AssistantMessage):
            yield from message.tool_calls
