"""The builder of a response, which has messages."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, cast, get_args
from uuid import uuid4

from pydantic import JsonValue

from passback.builders.events import (
    Event,
    Misuse,
    copy_object,
    require_filled_text,
    require_one_of,
    require_text,
)
from passback.builders.message import MessageBuilder, MessageEnd, MessageType, Role

_END_STATES: Final = frozenset({"completed", "failed", "canceled", "rejected", "incomplete"})
# legal in every state from created on; the other ends need a response in progress
_EARLY_ENDS: Final = _END_STATES - {"completed", "incomplete"}
_NEXT_STATES: Final[Mapping[str, frozenset[str]]] = {
    "new": frozenset({"created"}),
    "created": frozenset({"queued", "in_progress"}) | _EARLY_ENDS,
    "queued": frozenset({"in_progress"}) | _EARLY_ENDS,
    "in_progress": _END_STATES,
    **{end: frozenset[str]() for end in _END_STATES},
}
"""Legal transitions from each state of a response."""

_MESSAGE_VALUES: Final[Mapping[str, Sequence[str]]] = {
    "type": MessageType.all_values(),
    "role": get_args(Role),
    "status": get_args(MessageEnd),
}


class ResponseBuilder:
    """Builder of one response: created, perhaps queued, in progress, then one of its ends.

    Args:
        session_id: id of the session. None: a new one.
        response_id: id of the response. None: a new one.
        clock: returns seconds since 1970.
        on_event: called with each event as it is made, in order, the first event of each message
            included.
    """

    def __init__(
        self,
        session_id: str | None = None,
        response_id: str | None = None,
        *,
        clock: Callable[[], float] = time.time,
        on_event: Callable[[Event], object] | None = None,
    ) -> None:
        self._session_id = (
            str(uuid4()) if session_id is None else require_filled_text(session_id, "session_id")
        )
        self._clock = clock
        self._on_event = on_event
        self._open: MessageBuilder | None = None
        self._number = 0
        self._begin_response(response_id)

    @property
    def response_id(self) -> str:
        return self._id

    @property
    def status(self) -> str:
        """The present state; `new` before `created()`."""
        return self._status

    def created(self) -> Event:
        return self._enter_state("created", {})

    def queued(self) -> Event:
        return self._enter_state("queued", {})

    def in_progress(self) -> Event:
        return self._enter_state("in_progress", {})

    def completed(self, *, usage: Event | None = None, metadata: Event | None = None) -> Event:
        return self._end_response("completed", usage=usage, metadata=metadata)

    def incomplete(self, *, usage: Event | None = None, metadata: Event | None = None) -> Event:
        """End the response because a limit was reached."""
        return self._end_response("incomplete", usage=usage, metadata=metadata)

    def canceled(self, *, usage: Event | None = None) -> Event:
        return self._end_response("canceled", usage=usage)

    def rejected(self, *, usage: Event | None = None) -> Event:
        """End the response because the agent refuses to answer."""
        return self._end_response("rejected", usage=usage)

    def failed(
        self, code: str, message: str, *, usage: Event | None = None, **more: JsonValue
    ) -> Event:
        """End the response with an error; `more` are further keys of the error."""
        error: Event = {
            "code": require_filled_text(code, "code"),
            "message": require_text(message, "message"),
            **copy_object(more, "an error"),
        }
        return self._end_response("failed", usage=usage, error=error)

    def reset(self) -> None:
        """Begin another response with a new id. The old builders raise Misuse from then on."""
        if self._open is not None:
            # otherwise its builder would go on with numbers of the new response
            self._open.stop_early(
                "the response was reset: create_message_builder() begins another message"
            )
        self._begin_response(None)

    def create_message_builder(
        self,
        role: Role = "assistant",
        message_type: str = "message",
        *,
        message_id: str | None = None,
        metadata: Event | None = None,
    ) -> MessageBuilder:
        """Begin the next message and return its builder. The message before must be complete."""
        if self._status != "in_progress":
            needed = (
                "reset() begins another"
                if self._status in _END_STATES
                else "call created(), then in_progress()"
            )
            raise Misuse(
                f"a message needs a response in progress, and this one is {self._status}: {needed}"
            )
        self._refuse_open_message("before the next one begins")
        if message_id is not None and message_id in self._output:
            raise Misuse(
                f"there is a message {message_id!r} already: each has an id of its own"[:400]
            )
        self._open = MessageBuilder(self, role, message_type, message_id, metadata)
        return self._open

    def add_message(self, message: Event) -> None:
        """Add a finished message to the output; it replaces a message with the same id."""
        self._add_output(copy_object(message, "a message"))

    def update_message(self, message: Event) -> None:
        """Replace a finished message, as `add_message` does."""
        self.add_message(message)

    def get_response_data(self) -> Event:
        """Return the response in its present state, with the number of its last event."""
        return {**self._data, "output": list(self._output.values())}

    def generate_streaming_response(
        self, text_tokens: Iterable[str], role: Role = "assistant"
    ) -> Iterator[Event]:
        """Return all events of an answer that is one text. After an end, it is a new response.

        If the tokens raise an error, the message ends as `incomplete` and the error is raised. The
        caller then ends the response by `failed`, `canceled` or another end, as he does if he stops
        reading early.
        """
        require_one_of(role, "role", get_args(Role))
        # here and not in the generator, which would raise at its first `next` only
        if not isinstance(cast("object", text_tokens), Iterable):
            raise Misuse("text_tokens are not iterable: collect what comes asynchronously first")
        return self._stream_text(text_tokens, role)

    def _stream_text(self, text_tokens: Iterable[str], role: Role) -> Iterator[Event]:
        if self._status in _END_STATES:
            self.reset()
        yield self.created()
        yield self.in_progress()
        message = self.create_message_builder(role)
        yield message.get_message_data()
        content = message.create_content_builder("text")
        try:
            for token in text_tokens:
                yield content.add_text_delta(token)
        except Exception:  # the caller's tokens may raise anything; it is raised again below
            if self._open is message:  # else the caller has ended it, by reset() for one
                yield content.complete()
                yield message.complete("incomplete")
            raise
        yield content.complete()
        yield message.complete()
        yield self.completed()

    def next_number(self) -> int:
        """Return the next `sequence_number`; for the message's builder."""
        number, self._number = self._number, self._number + 1
        return number

    def emit(self, event: Event, /) -> Event:
        """Number an event, call `on_event`, and return the event; for the message's builder."""
        event["sequence_number"] = self.next_number()
        if self._on_event is not None:
            self._on_event(event)
        return event

    def close_child(self, message: Event, /) -> None:
        """Add a message that has ended; for the message's builder."""
        self._open = None
        self._add_output(message)

    def skip_numbers(self, numbers: int, /) -> None:
        """Leave numbers out that another process may have sent."""
        self._number += numbers

    def _begin_response(self, response_id: str | None) -> None:
        self._id = (
            f"response_{uuid4()}"
            if response_id is None
            else require_filled_text(response_id, "response_id")
        )
        self._status = "new"
        self._number = 0
        self._created_at = 0
        self._open = None
        self._output: dict[str, Event] = {}
        self._data: Event = {}

    def _add_output(self, message: Event) -> None:
        if message.get("object") != "message":
            raise Misuse("add_message() takes the event of a message: its object is 'message'")
        name = require_filled_text(message.get("id"), "the id of a message")
        for key, legal in _MESSAGE_VALUES.items():
            if key in message:
                require_one_of(message[key], f"the {key} of a message that has ended", legal)
        self._output[name] = message

    def _enter_state(self, status: str, more: Event) -> Event:
        self._refuse_transition(status)
        if status == "created":
            self._created_at = int(self._clock())
        self._status = status
        self._data = {
            "object": "response",
            "status": status,
            "id": self._id,
            "created_at": self._created_at,
            "session_id": self._session_id,
            **more,
        }
        return self.emit(self._data)

    def _end_response(
        self,
        status: str,
        *,
        usage: Event | None,
        metadata: Event | None = None,
        error: Event | None = None,
    ) -> Event:
        given = (("usage", usage), ("metadata", metadata), ("error", error))
        checked: Event = {key: copy_object(value, key) for key, value in given if value is not None}
        self._refuse_transition(status)  # first: a refused step must not end the open message
        if status == "completed":
            self._refuse_open_message("before the response ends")
        if self._open is not None:  # its content so far goes into the output
            message = self._open.stop_early("the response has ended: reset() begins another")
            self._open = None
            if message is not None:
                self._add_output(message)
        more: Event = {
            "completed_at": int(self._clock()),
            "output": list[JsonValue](self._output.values()),
        }
        return self._enter_state(
            status, more | {key: value for key, value in checked.items() if value}
        )

    def _refuse_transition(self, status: str) -> None:
        if status in _NEXT_STATES[self._status]:
            return
        legal = " or ".join(f"{each}()" for each in sorted(_NEXT_STATES[self._status]))
        raise Misuse(
            f"a response that is {self._status} cannot become {status}: "
            + (f"call {legal}" if legal else "it has ended, and reset() begins another")
        )

    def _refuse_open_message(self, when: str) -> None:
        if self._open is not None:
            raise Misuse(f"a message is still open: complete() it {when}")
