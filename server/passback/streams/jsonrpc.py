"""JSON-RPC 2.0 in both directions, without I/O of its own.

A `Peer` is fed the frames that arrive, and writes its own by a function. Either side may send
requests; the answers of one side never wait for those of the other. A `Channel` carries the frames:
a WebSocket (`streams.sockets.Socket`), or standard input and output (`streams.stdio`).

What the other side sends is checked before anybody sees it. A frame that is wrong is answered here,
except for a response: an error about a response would be answered by an error, without end.
"""

import json
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Final, Protocol, TypeAlias

import anyio
from pydantic import JsonValue
from typing_extensions import override

from passback.core.errors import BadRequest
from passback.core.messages import OwnerId
from passback.core.text import replace_surrogates
from passback.core.values import value
from passback.http.answers import write_json
from passback.http.body import parse_json

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
REQUEST_CANCELLED: Final = -32800  # not of JSON-RPC: LSP and ACP have it

CANCEL_REQUEST: Final = "$/cancel_request"

_MOST_CALLS = 1000
_ID_CHARACTERS = 1000  # of a text; it is repeated in the answer
_ID_RANGE = range(-(2**63), 2**63)
_MESSAGE_CHARACTERS = 1000  # of the other side's error; the rest is cut off
_LATE_SECONDS = 2
_ENVELOPE = {"jsonrpc": "2.0"}

RequestId: TypeAlias = str | int | None


class RpcError(Exception):
    """An error that answers a request: one that we send, or one that the other side has sent.

    Args:
        code: of JSON-RPC, or of the protocol on top of it.
        message: one sentence for people. Ours has no secret and no text from elsewhere; the other
            side's is not to be trusted.
        data: more, for programs.
    """

    def __init__(self, code: int, message: str, data: JsonValue = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data

    @override
    def __str__(self) -> str:
        return f"{self.message} ({self.code})"


class ConnectionLost(RpcError):
    """The connection has ended before the other side answered."""

    def __init__(self) -> None:
        super().__init__(INTERNAL_ERROR, "the connection has ended")


@value
class Request:
    """A request of the other side, which waits for one answer.

    Args:
        id: given by the other side; no other request in progress has the same.
        method: its name.
        params: an object or an array; None if there are none.
    """

    id: RequestId
    method: str
    params: JsonValue


@value
class Notification:
    """A message of the other side that is never answered.

    Args:
        method: its name.
        params: an object or an array; None if there are none.
    """

    method: str
    params: JsonValue


class Channel(Protocol):
    """A connection to one client that carries text frames, as a wire uses it."""

    @property
    def owner(self) -> OwnerId | None:
        """The owner; None until the client has authenticated within the protocol."""
        ...

    @property
    def stopping(self) -> bool:
        """The server is about to stop: there is time for a last word."""
        ...

    def send(self, text: str, /) -> object:
        """Send a frame without waiting. A client that does not read is disconnected in the end."""
        ...

    async def receive(self) -> str | bytes | None:
        """Return the next frame; None when the client has left, or the server is to stop."""
        ...

    async def wait_until_sent(self) -> None:
        """Wait until the client has taken what was sent, or is gone."""
        ...


class Peer:
    """One side of a connection: reads the other side's frames, and writes its own.

    Args:
        send: takes each frame of ours: JSON of ASCII on one line, without the line's end.
        depth: levels to which the JSON of a frame may be nested.
        frame_bytes: of a frame that is read.
        most_calls: requests in progress, of each side.
        late_seconds: in which a cancelled call still waits for a result that has to be taken.
    """

    def __init__(
        self,
        send: Callable[[str], object],
        /,
        *,
        depth: int,
        frame_bytes: int,
        most_calls: int = _MOST_CALLS,
        late_seconds: float = _LATE_SECONDS,
    ) -> None:
        self._send = send
        self._depth = depth
        self._frame_bytes = frame_bytes
        self._most_calls = most_calls
        self._late_seconds = late_seconds
        self._open: dict[RequestId, Request] = {}
        self._calls: dict[int, _Call] = {}
        self._late: OrderedDict[int, Callable[[JsonValue], object]] = OrderedDict()
        self._last_id = 0
        self._closed = False

    # ---------------------------------------------------------------- what the other side sends
    def read(self, frame: str | bytes, /) -> Request | Notification | None:
        """Return the request or notification of a frame; None if there is nothing left to do.

        A response settles its `call`. Without effect are a response that nobody waits for (it may
        come late) and one that is malformed. Any other malformed frame is answered at once: with
        the id of its request, or null where that is unknown, wrong, or that of another request in
        progress, whose answer is still to come. A frame is read as usual after `close`.

        A request stays `in_progress` until `answer` or `refuse` is called, once, in any order.
        """
        try:
            message = self._parse(frame)
            if "method" not in message and ("result" in message or "error" in message):
                self._settle(message)
                return None
            return self._read_method(message)
        except _Malformed as error:
            self._write_error(error.id, error)
            return None

    def _parse(self, frame: str | bytes) -> Mapping[str, JsonValue]:
        """Return the object of a frame."""
        text = frame.encode(errors="surrogatepass") if isinstance(frame, str) else frame
        if len(text) > self._frame_bytes:
            raise _Malformed(f"the message is larger than {self._frame_bytes} bytes")
        try:
            content = parse_json(text, depth=self._depth)
        except BadRequest as error:
            raise _unreadable(text, error.message, self._open) from None
        if isinstance(content, list):
            raise _Malformed("batches are not supported: send each message as an object of its own")
        if not isinstance(content, dict):
            raise _Malformed("a message has to be a JSON object")
        return content

    def _read_method(self, message: Mapping[str, JsonValue]) -> Request | Notification:
        is_request = "id" in message
        request_id = _read_id(message["id"]) if is_request else None
        if request_id in self._open and is_request:
            raise _Malformed("a request with this id is in progress")
        if message.get("jsonrpc") != "2.0":
            raise _Malformed('"jsonrpc" has to be "2.0"', request_id)
        method, params = message.get("method"), message.get("params")
        if not isinstance(method, str):
            raise _Malformed('"method" has to be a string', request_id)
        if not isinstance(params, dict | list | None):
            raise _Malformed('"params" has to be an object or an array', request_id)
        if "result" in message or "error" in message:
            raise _Malformed("a message is either a request or a response", request_id)
        if not is_request:
            return Notification(method, params)
        if len(self._open) >= self._most_calls:
            raise _Malformed(f"more than {self._most_calls} requests are in progress", request_id)
        request = self._open[request_id] = Request(request_id, method, params)
        return request

    def _settle(self, message: Mapping[str, JsonValue]) -> None:
        """End the call that a response answers, if one waits for it."""
        request_id = message.get("id")
        # True and 1.0 are equal to 1
        call = self._calls.pop(request_id, None) if type(request_id) is int else None
        if call is not None:
            call.settle(*_read_response(message))
        elif type(request_id) is int and (late := self._late.pop(request_id, None)) is not None:
            result, error = _read_response(message)
            if error is None:
                late(result)

    @property
    def in_progress(self) -> Collection[RequestId]:
        """The ids of the other side's requests that wait for their answer."""
        return self._open.keys()

    def answer(self, request: Request, result: JsonValue, /) -> bool:
        """Send the result of a request. Return False, and send nothing, if it was answered before.

        Raises:
            ValueError, TypeError: the result is not JSON. The request is still in progress.
        """
        return self._end(request, {"result": result})

    def refuse(self, request: Request, error: RpcError, /) -> bool:
        """Send an error as the answer to a request, as `answer` sends a result."""
        return self._end(request, {"error": _error_object(error)})

    def _end(self, request: Request, ending: Mapping[str, JsonValue]) -> bool:
        # by identity: the other side may use an id again once it has the answer
        if self._open.get(request.id) is not request:
            return False
        text = write_json({**_ENVELOPE, "id": request.id, **ending})
        del self._open[request.id]
        self._write(text)
        return True

    # ---------------------------------------------------------------- what we send
    async def call(
        self,
        method: str,
        params: JsonValue = None,
        /,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - its end is told to the other side
        late: Callable[[JsonValue], object] | None = None,
    ) -> JsonValue:
        """Send a request, and return the result of its answer, which is not to be trusted.

        When the caller is cancelled, or the time is over, the other side gets `$/cancel_request`,
        and its answer has no effect any more, unless `late` takes it.

        Args:
            method: its name.
            params: an object or an array; None for none.
            timeout: seconds in which the answer has to come; None for no limit.
            late: takes a result that comes after that: the other side has done it all the same.
                A cancelled caller waits for it `late_seconds` more at most.

        Raises:
            ConnectionLost: the connection has ended.
            RpcError: the other side has refused the request, its answer is malformed, or too many
                requests wait for it.
            TimeoutError: the time is over.
        """
        if self._closed:
            raise ConnectionLost
        if len(self._calls) >= self._most_calls:
            raise RpcError(
                INTERNAL_ERROR, f"more than {self._most_calls} requests wait for answers"
            )
        request_id = self._last_id = self._last_id + 1
        text = _write_method(method, params, {"id": request_id})
        call = self._calls[request_id] = _Call()
        try:
            self._write(text)
            with anyio.fail_after(timeout):
                return await call.result()
        except anyio.get_cancelled_exc_class():
            if late is not None:
                with anyio.move_on_after(self._late_seconds, shield=True), suppress(RpcError):
                    late(await call.result())
            raise
        finally:
            if self._calls.pop(request_id, None) is not None:  # nobody waits for its answer
                self.notify(CANCEL_REQUEST, {"requestId": request_id})
                if late is not None:
                    self._expect_late(request_id, late)

    def _expect_late(self, request_id: int, late: Callable[[JsonValue], object]) -> None:
        self._late[request_id] = late
        if len(self._late) > self._most_calls:
            self._late.popitem(last=False)

    def request(self, method: str, params: JsonValue = None, /) -> None:
        """Send a request whose answer has no effect. Nothing is sent after `close`."""
        self._last_id += 1
        self._write(_write_method(method, params, {"id": self._last_id}))

    def notify(self, method: str, params: JsonValue = None, /) -> None:
        """Send a notification. Nothing is sent after `close`."""
        self._write(_write_method(method, params, {}))

    def close(self) -> None:
        """End the connection: all calls raise `ConnectionLost`, and nothing is sent any more."""
        self._closed = True
        calls, self._calls = self._calls, {}
        for call in calls.values():
            call.settle(None, ConnectionLost())

    def _write_error(self, request_id: RequestId, error: RpcError) -> None:
        self._write(write_json({**_ENVELOPE, "id": request_id, "error": _error_object(error)}))

    def _write(self, text: str) -> None:
        if not self._closed:
            self._send(text)


class _Malformed(RpcError):
    """A frame that is answered by an error: with the id of its request, or null."""

    def __init__(
        self, message: str, request_id: RequestId = None, *, code: int = INVALID_REQUEST
    ) -> None:
        super().__init__(code, message)
        self.id = request_id


def _unreadable(text: bytes, why: str, taken: Collection[RequestId]) -> "_Malformed":
    """Return the error for a frame that cannot be read.

    It has the id of the request, if a more lenient parser finds one that is not `taken`: some
    clients escape half of a surrogate pair, and would wait for ever.
    """
    with suppress(ValueError, RecursionError, _Malformed):
        content: JsonValue = json.loads(text)
        request_id = _read_id(content.get("id")) if isinstance(content, dict) else None
        if request_id is not None and request_id not in taken:
            return _Malformed(why, request_id, code=INVALID_PARAMS)
    return _Malformed(why, code=PARSE_ERROR)


class _Call:
    """A request of ours that waits for its answer."""

    def __init__(self) -> None:
        self._settled = anyio.Event()
        self._result: JsonValue = None
        self._error: RpcError | None = None

    def settle(self, result: JsonValue, error: RpcError | None) -> None:
        self._result, self._error = result, error
        self._settled.set()

    async def result(self) -> JsonValue:
        """Return the result when it is there. Raises the other side's error."""
        await self._settled.wait()
        if self._error is not None:
            raise self._error
        return self._result


def _read_id(given: JsonValue) -> RequestId:
    """Return an id if it is legal. Raises _Malformed with null in its place."""
    if isinstance(given, str) and len(given) <= _ID_CHARACTERS:
        return given
    # no bool, which Python takes for an int
    if given is None or (type(given) is int and given in _ID_RANGE):
        return given
    raise _Malformed(
        f'"id" has to be an integer of 64 bits, or a string of at most {_ID_CHARACTERS} characters'
    )


def _read_response(message: Mapping[str, JsonValue]) -> tuple[JsonValue, RpcError | None]:
    """Return the result of a response, or its error."""
    error = message.get("error")
    if message.get("jsonrpc") != "2.0" or ("result" in message and error is not None):
        return None, _malformed_response()
    if "result" in message:
        return message["result"], None
    if not isinstance(error, dict):
        return None, _malformed_response()
    code, text = error.get("code"), error.get("message")
    if type(code) is not int or code not in _ID_RANGE or not isinstance(text, str):
        return None, _malformed_response()
    return None, RpcError(code, replace_surrogates(text[:_MESSAGE_CHARACTERS]), error.get("data"))


def _malformed_response() -> RpcError:
    return RpcError(INTERNAL_ERROR, "the other side's answer is malformed")


def _error_object(error: RpcError) -> JsonValue:
    data = {} if error.data is None else {"data": error.data}
    return {"code": error.code, "message": error.message, **data}


def _write_method(method: str, params: JsonValue, extra: Mapping[str, JsonValue]) -> str:
    given = {} if params is None else {"params": params}
    return write_json({**_ENVELOPE, **extra, "method": method, **given})
