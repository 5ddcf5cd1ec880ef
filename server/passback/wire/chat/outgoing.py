"""Events for clients as text, written once for all of them, and the clients that get them."""

from collections.abc import Sequence
from typing import Any, Protocol

from passback.core.errors import PassbackError
from passback.http.answers import write_json
from passback.wire.chat.headless import raw_result
from passback.wire.chat.said import Said, join_said


class Outgoing:
    """An event for clients, written once for all clients of a transport.

    Args:
        name: its name.
        data: its payload, as JSON.
    """

    def __init__(self, name: str, data: str, /) -> None:
        self.name = name
        self.data = data
        self._frame = self._packet = ""

    @property
    def frame(self) -> str:
        """The event as a message of a plain WebSocket."""
        self._frame = self._frame or f'{{"event":"{self.name}","data":{self.data}}}'
        return self._frame

    @property
    def packet(self) -> str:
        """The event as a packet of Socket.IO."""
        self._packet = self._packet or f'2["{self.name}",{self.data}]'
        return self._packet


class Client(Protocol):
    """One connected client, by any transport."""

    def send(self, event: Outgoing, /) -> None:
        """Send an event without waiting. A client that does not read is disconnected."""
        ...

    async def wait_until_sent(self) -> None:
        """Wait until nothing is in the client's queue."""
        ...


class Batch:
    """Events of a session, written once for each form that subscribers want.

    Neighbouring pieces of one text are joined when it is known which of them a subscriber has.
    """

    def __init__(self, session_id: str, said: Sequence[Said], /) -> None:
        self._session_id = session_id
        self.said = said
        self._whole: dict[bool, Sequence[Outgoing]] = {}

    def events_after(self, number: int, /, *, is_raw: bool) -> Sequence[Outgoing]:
        """Return the events with greater numbers, in one of the two forms."""
        said = self.said
        first = next((at for at, each in enumerate(said) if each.number > number), len(said))
        write = self._write_raw if is_raw else self._write_typed
        if first:
            return write(said[first:])
        if is_raw not in self._whole:
            self._whole[is_raw] = write(said)
        return self._whole[is_raw]

    def _write_typed(self, said: Sequence[Said]) -> list[Outgoing]:
        return [
            Outgoing(each.name, write_json({**self._payload_of(each), **numbered}))
            for each, numbered in _numbered(join_said(said))
        ]

    def _write_raw(self, said: Sequence[Said]) -> list[Outgoing]:
        """Return `turn:events`, and each `chat:end` behind them as an event of its own."""
        written: list[Outgoing] = []
        events: list[dict[str, Any]] = []
        for each, numbered in _numbered(join_said(said)):
            payload = self._payload_of(each)
            if each.name == "chat:end":
                written += self._write_events(events)
                events = []
                payload["result"] = raw_result(payload["result"])
                written.append(Outgoing(each.name, write_json({**payload, **numbered})))
            else:
                events.append({"type": each.name, "payload": payload, **numbered})
        return written + self._write_events(events)

    def _write_events(self, events: Sequence[dict[str, Any]]) -> list[Outgoing]:
        if not events:
            return []
        data = write_json({"session_id": self._session_id, "events": events})
        return [Outgoing("turn:events", data)]

    def _payload_of(self, each: Said) -> dict[str, Any]:
        return {"session_id": self._session_id, **each.data}


def _numbered(said: Sequence[Said]) -> Sequence[tuple[Said, dict[str, int]]]:
    """Return events with their `stream_sequence`: of several with one number, the last has it.

    Clients drop an event whose number they have seen.
    """
    following = [each.number for each in said[1:]]
    return [
        (each, {} if each.number == after else {"stream_sequence": each.number})
        for each, after in zip(said, [*following, 0], strict=True)
    ]


def refusal(error: PassbackError, /, *, session_id: str | None = None) -> Outgoing:
    """Return the event for an error that concerns one client."""
    return Outgoing("system:error", write_json(refusal_data(error, session_id=session_id)))


def refusal_data(error: PassbackError, /, *, session_id: str | None = None) -> dict[str, Any]:
    """Return an error as its client sees it."""
    data: dict[str, Any] = {"code": error.code, "message": error.message}
    if session_id is not None:
        data["session_id"] = session_id
    if error.details:
        data["detail"] = error.details
    return data
