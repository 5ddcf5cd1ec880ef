"""The messages of an answer. They are sent one after the other; later ones wait.

Clients of this protocol add an event to the last part of the last message, whereas the engine may
report several calls at once.
"""

from collections.abc import Sequence
from typing import Protocol

from typing_extensions import override

from passback.builders import ContentBuilder, Event, MessageBuilder, ResponseBuilder, encode
from passback.builders.message import MessageEnd, Role


class Track(Protocol):
    """One message. Sent from its first event, when the one before has ended, until it is `done`."""

    done: bool

    def begin_events(self, response: ResponseBuilder, /) -> Sequence[str]:
        """Return the first events, with the content so far."""
        ...

    def new_events(self) -> Sequence[str]:
        """Return the events of the content since the last events."""
        ...

    def end_events(self) -> Sequence[str]:
        """Return the last events."""
        ...

    def stop_early(self, status: MessageEnd, /) -> None:
        """End the message with this status: no more content will come."""
        ...


class _MessageTrack:
    """A message of one part; base of all kinds."""

    part = "data"

    def __init__(
        self, message_id: str, message_type: str, role: Role, metadata: Event | None = None
    ) -> None:
        self.done = False
        self.type = message_type
        self._id = message_id
        self._role: Role = role
        self._metadata = metadata
        self._status: MessageEnd = "completed"

    def _open_message(self, response: ResponseBuilder) -> str:
        """Create the builders and return the message's first event."""
        self._message: MessageBuilder = response.create_message_builder(
            self._role, self.type, message_id=self._id, metadata=self._metadata
        )
        announced = encode(self._message.get_message_data())
        self._content: ContentBuilder = self._message.create_content_builder(self.part)
        return announced

    def _close_message(self, usage: Event | None = None) -> Sequence[str]:
        part = encode(self._content.complete())
        return (part, encode(self._message.complete(self._status, usage=usage)))

    def new_events(self) -> Sequence[str]:
        return ()

    def stop_early(self, status: MessageEnd, /) -> None:
        self.done, self._status = True, status


class TextTrack(_MessageTrack):
    """Text or reasoning of the model."""

    part = "text"
    usage: Event | None = None

    def __init__(self, message_id: str, message_type: str, metadata: Event | None = None) -> None:
        super().__init__(message_id, message_type, "assistant", metadata)
        self._unsent: list[str] = []

    def add_text(self, text: str) -> None:
        self._unsent.append(text)

    def encode_delta(self, text: str) -> str:
        """Return the event of a delta. Only between the first and the last events."""
        return self._content.encode_text_delta(text)

    def begin_events(self, response: ResponseBuilder, /) -> Sequence[str]:
        return (self._open_message(response), *self.new_events())

    @override
    def new_events(self) -> Sequence[str]:
        text = "".join(self._unsent)
        self._unsent.clear()
        return (self._content.encode_text_delta(text),) if text else ()

    def end_events(self) -> Sequence[str]:
        return self._close_message(self.usage)


class CallTrack(_MessageTrack):
    """A call. Each event has the whole arguments, because clients append to data differently.

    An event is sent only once the arguments have grown by a quarter, so that all events together
    stay a few times as long as the arguments.
    """

    def __init__(
        self, message_id: str, message_type: str, data: Event, metadata: Event | None = None
    ) -> None:
        super().__init__(message_id, message_type, "assistant", metadata)
        self.data = data
        self._arguments: list[str] = []
        self._size = self._sent = 0

    def add_arguments(self, delta: str) -> None:
        self._arguments.append(delta)
        self._size += len(delta)

    def begin_events(self, response: ResponseBuilder, /) -> Sequence[str]:
        return (
            self._open_message(response),
            encode(self._content.set_data(self._data_with_arguments())),
        )

    @override
    def new_events(self) -> Sequence[str]:
        # once done, `end_events` sends all of the arguments
        if self.done or self._size - self._sent <= self._sent // 4:
            return super().new_events()
        return (encode(self._content.set_data(self._data_with_arguments())),)

    def end_events(self) -> Sequence[str]:
        self._content.put_fields({"data": self._data_with_arguments()})
        return self._close_message()

    def _data_with_arguments(self) -> Event:
        arguments = "".join(self._arguments)
        self._arguments = [arguments]  # joined once: the next call adds to this text
        self._sent = len(arguments)
        return {**self.data, "arguments": arguments}


class WholeTrack(_MessageTrack):
    """A message whose content is known at once.

    The output of a call, a request for approval, or an accepted value.

    Args:
        message_id, message_type, role, metadata: of the message.
        data: the content.
        first: content of the first event; None: all of `data`.
    """

    def __init__(
        self,
        message_id: str,
        message_type: str,
        role: Role,
        data: Event,
        *,
        first: Event | None = None,
        metadata: Event | None = None,
    ) -> None:
        super().__init__(message_id, message_type, role, metadata)
        self.done = True  # from the start: nothing is added to it
        self._data = data
        self._first = data if first is None else first

    def begin_events(self, response: ResponseBuilder, /) -> Sequence[str]:
        return (self._open_message(response), encode(self._content.set_data(self._first)))

    def end_events(self) -> Sequence[str]:
        self._content.put_fields({"data": self._data})
        return self._close_message()
