"""The messages of an answer. One is on its way at a time: what comes meanwhile waits for its turn.

A client's readers of the stream mend only the last part of the last message; the engine may tell of several calls at once.
"""

from collections.abc import Sequence
from typing import Protocol

from typing_extensions import override

from passback.builders import ContentBuilder, Event, MessageBuilder, ResponseBuilder, encode
from passback.builders.message import MessageEnd, Role


class Track(Protocol):
    """One message: begun when its turn comes, ended when it is `done`."""

    done: bool

    def begin_events(self, response: ResponseBuilder, /) -> Sequence[str]:
        """Its first events, with what it holds by then."""
        ...

    def new_events(self) -> Sequence[str]:
        """What it has got since."""
        ...

    def end_events(self) -> Sequence[str]:
        """Its last events."""
        ...

    def stop_early(self, status: MessageEnd, /) -> None:
        """Nothing more will come, and it is not what it should be."""
        ...


class _MessageTrack:
    """What all kinds have in common: a message of one part."""

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
        """Gives the message's first event."""
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
    """What the model says, or thinks."""

    part = "text"
    usage: Event | None = None

    def __init__(self, message_id: str, message_type: str, metadata: Event | None = None) -> None:
        super().__init__(message_id, message_type, "assistant", metadata)
        self._unsent: list[str] = []

    def add_text(self, text: str) -> None:
        self._unsent.append(text)

    def encode_delta(self, text: str) -> str:
        """The event of a piece, at once. Only while it is on its way."""
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
    """A call, whose arguments are shown whole each time: no two clients append to data alike.

    Not after every piece: what is sent stays a few times as long as the arguments are.
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
        if self.done or self._size - self._sent <= self._sent // 4:
            return super().new_events()
        return (encode(self._content.set_data(self._data_with_arguments())),)

    def end_events(self) -> Sequence[str]:
        self._content.put_fields({"data": self._data_with_arguments()})
        return self._close_message()

    def _data_with_arguments(self) -> Event:
        arguments = "".join(self._arguments)
        self._arguments = [arguments]
        self._sent = len(arguments)
        return {**self.data, "arguments": arguments}


class WholeTrack(_MessageTrack):
    """What is known at once: the output of a call, a request for approval, an accepted value.

    Args:
        message_id, message_type, role, metadata: the message's.
        data: all of it.
        first: what is shown of it before it is complete; None: all.
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
        self.done = True
        self._data = data
        self._first = data if first is None else first

    def begin_events(self, response: ResponseBuilder, /) -> Sequence[str]:
        return (self._open_message(response), encode(self._content.set_data(self._first)))

    def end_events(self) -> Sequence[str]:
        self._content.put_fields({"data": self._data})
        return self._close_message()
