"""The messages of an answer: their order, and how they are built.

Clients of this protocol add what comes to the last message, whereas the engine may report several
calls at once.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Generic, Protocol, TypeVar

from typing_extensions import override

from passback.builders import ContentBuilder, Event, MessageBuilder, ResponseBuilder, encode
from passback.builders.message import MessageEnd, Role

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


class MessageTrack:
    """A message of one part; base of all kinds."""

    part = "data"
    usage: Event | None = None

    def __init__(
        self,
        response: ResponseBuilder,
        message_id: str,
        message_type: str,
        role: Role,
        metadata: Event | None = None,
    ) -> None:
        self.done = False
        self._response = response
        self.type = message_type
        self._id = message_id
        self._role: Role = role
        self._metadata = metadata
        self._status: MessageEnd = "completed"

    def _open_message(self) -> str:
        """Create the builders and return the message's first event."""
        self._message: MessageBuilder = self._response.create_message_builder(
            self._role, self.type, message_id=self._id, metadata=self._metadata
        )
        announced = encode(self._message.get_message_data())
        self._content: ContentBuilder = self._message.create_content_builder(self.part)
        return announced

    def begin_events(self) -> Sequence[str]:
        return (self._open_message(), *self.new_events())

    def new_events(self) -> Sequence[str]:
        return ()

    def end_events(self) -> Sequence[str]:
        part = encode(self._content.complete())
        return (part, encode(self._message.complete(self._status, usage=self.usage)))

    def stop_early(self, status: MessageEnd, /) -> None:
        """End the message with this status: no more content will come."""
        self.done, self._status = True, status


class TextTrack(MessageTrack):
    """Text or reasoning of the model."""

    part = "text"

    def __init__(
        self,
        response: ResponseBuilder,
        message_id: str,
        message_type: str,
    ) -> None:
        super().__init__(response, message_id, message_type, "assistant")
        self._unsent: list[str] = []

    def add_text(self, text: str) -> None:
        self._unsent.append(text)

    def encode_delta(self, text: str) -> str:
        """Return the event of a delta. Only between the first and the last events."""
        return self._content.encode_text_delta(text)

    @override
    def new_events(self) -> Sequence[str]:
        text = "".join(self._unsent)
        self._unsent.clear()
        return (self._content.encode_text_delta(text),) if text else ()


class CallTrack(MessageTrack):
    """A call. Each event has the whole arguments, because clients append to data differently.

    An event is sent only once the arguments have grown by a quarter, so that all events together
    stay a few times as long as the arguments.
    """

    def __init__(
        self,
        response: ResponseBuilder,
        message_id: str,
        message_type: str,
        data: Event,
        metadata: Event | None = None,
    ) -> None:
        super().__init__(response, message_id, message_type, "assistant", metadata)
        self.data = data
        self._arguments: list[str] = []
        self._size = self._sent = 0

    def add_arguments(self, delta: str) -> None:
        self._arguments.append(delta)
        self._size += len(delta)

    @override
    def begin_events(self) -> Sequence[str]:
        return (
            self._open_message(),
            encode(self._content.set_data(self._data_with_arguments())),
        )

    @override
    def new_events(self) -> Sequence[str]:
        # once done, `end_events` sends all of the arguments
        if self.done or self._size - self._sent <= self._sent // 4:
            return super().new_events()
        return (encode(self._content.set_data(self._data_with_arguments())),)

    @override
    def end_events(self) -> Sequence[str]:
        self._content.put_fields({"data": self._data_with_arguments()})
        return super().end_events()

    def _data_with_arguments(self) -> Event:
        arguments = "".join(self._arguments)
        self._arguments = [arguments]  # joined once: the next call adds to this text
        self._sent = len(arguments)
        return {**self.data, "arguments": arguments}


class WholeTrack(MessageTrack):
    """A message whose content is known at once.

    The output of a call, a request for approval, or an accepted value.

    Args:
        response, message_id, message_type, role, metadata: of the message.
        data: the content.
        first: content of the first event; None: all of `data`.
    """

    def __init__(
        self,
        response: ResponseBuilder,
        message_id: str,
        message_type: str,
        role: Role,
        data: Event,
        *,
        first: Event | None = None,
        metadata: Event | None = None,
    ) -> None:
        super().__init__(response, message_id, message_type, role, metadata)
        self.done = True  # from the start: nothing is added to it
        self._data = data
        self._first = data if first is None else first

    @override
    def begin_events(self) -> Sequence[str]:
        return (self._open_message(), encode(self._content.set_data(self._first)))

    @override
    def end_events(self) -> Sequence[str]:
        self._content.put_fields({"data": self._data})
        return super().end_events()
