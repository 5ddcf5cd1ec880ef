"""The chat socket as a plain WebSocket: one JSON object `{"event", "data", "id"?}` a message."""

from typing import Any, Final

from pydantic import JsonValue

from passback.core.errors import BadRequest, InvalidRequest, PassbackError, ShuttingDown
from passback.core.values import value
from passback.http.answers import write_json
from passback.http.body import parse_json
from passback.http.wires import Services
from passback.streams.sockets import Socket
from passback.wire.chat.connection import Connection
from passback.wire.chat.feeds import Feeds
from passback.wire.chat.outgoing import Outgoing, refusal, refusal_data
from passback.wire.chat.posted import Auth, read_payload

_ID_CHARACTERS: Final = 128


@value
class _Frame:
    """A message of the client."""

    event: JsonValue
    data: JsonValue
    id: JsonValue


class PlainClient:
    """A client with a plain WebSocket."""

    def __init__(self, socket: Socket, /) -> None:
        self._socket = socket

    def send(self, event: Outgoing, /) -> None:
        self._socket.send(event.frame)

    async def wait_until_sent(self) -> None:
        await self._socket.wait_until_sent()


class PlainTransport:
    """Serves clients with plain WebSockets."""

    def __init__(self, services: Services, feeds: Feeds, /) -> None:
        self._services = services
        self._feeds = feeds

    async def serve(self, socket: Socket, /) -> None:
        """Serve one client until it leaves, or the server stops."""
        await socket.accept()
        client = PlainClient(socket)
        connection = Connection(self._services, self._feeds, client)
        try:
            while (message := await socket.receive()) is not None:
                await self._handle(socket, client, connection, message)
        finally:
            connection.close()
        self._take_leave(socket, client)

    def _take_leave(self, socket: Socket, client: PlainClient) -> None:
        """Say the last word, if the server is the one that ends it."""
        if socket.stopping:
            client.send(refusal(ShuttingDown("the server stops: connect again, and resume")))

    async def _handle(
        self, socket: Socket, client: PlainClient, connection: Connection, message: str | bytes
    ) -> None:
        try:
            frame = self._read_frame(message)
        except PassbackError as error:
            client.send(refusal(error))
            return
        wants_ack = frame.id is not None
        if frame.event == "auth":
            ack = self._authenticate(socket, client, frame)
        else:
            ack = await connection.handle(
                socket.owner, frame.event, frame.data, wants_ack=wants_ack
            )
        if wants_ack:
            socket.send(write_json({"event": "ack", "id": frame.id, "data": ack}))

    def _read_frame(self, message: str | bytes) -> _Frame:
        """Return a message's parts.

        Raises:
            BadRequest: it is no JSON object in a text.
            InvalidRequest: it has no event, or an id that cannot be one.
        """
        if isinstance(message, bytes):
            raise BadRequest("a message is a text: a JSON object with event and data")
        given = parse_json(
            message.encode(errors="surrogatepass"), depth=self._services.limits.depth
        )
        if not isinstance(given, dict):
            raise BadRequest("a message is a JSON object with event and data")
        if "event" not in given:
            raise InvalidRequest("event: it is missing")
        frame_id = given.get("id")
        if not _is_frame_id(frame_id):
            raise InvalidRequest(
                f"id: it is a text of up to {_ID_CHARACTERS} characters, or a whole number"
            )
        return _Frame(given["event"], given.get("data"), frame_id)

    def _authenticate(self, socket: Socket, client: PlainClient, frame: _Frame) -> dict[str, Any]:
        try:
            socket.present_key(read_payload(Auth, frame.data).token)
        except PassbackError as error:
            if frame.id is None:
                client.send(refusal(error))
            return {"status": "error", **refusal_data(error)}
        return {"status": "ok"}


def _is_frame_id(given: JsonValue) -> bool:
    match given:
        case bool():
            return False
        case str():
            return len(given) <= _ID_CHARACTERS
        case int():
            return abs(given) < 2**53  # exact in every client
        case _:
            return given is None
