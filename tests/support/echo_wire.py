"""A wire with WebSockets and a server that has it, as a program: `passback serve` with echoes.

What a client sends comes back behind `echo `. Some texts are orders, by their first word:

* `key KEY`: present it, or half of a character for `half`; answered by `owner NAME`.
* `flood COUNT SIZE`: send so many messages of so many bytes without waiting, then how many went.
* `surrogate`: send half of a character.
* `stay`: do not read the next message before the socket ends.
* `end CODE REASON`: close.
* `fail KIND`: raise an error of the tree; `break`: any other.
"""

import asyncio
import os
import sys
from collections.abc import Callable, Mapping

import anyio
import uvloop
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from typing_extensions import override

from passback.app import Application
from passback.commands.serve import serve_application
from passback.core.errors import (
    ModelError,
    PassbackError,
    ServerBusy,
    ShuttingDown,
    UnknownConversation,
    UnknownRun,
)
from passback.http.answers import json_answer, known_owner
from passback.http.routing import Endpoint
from passback.http.wires import Services, Wire
from passback.logs import log_to_stderr
from passback.settings import PREFIX, Settings, load_settings
from passback.streams.sockets import Socket, SocketEndpoint

HALF = "\ud800"  # of a character
SECRET = "a secret of the server"  # no password: the text of an error


def echo_wire(services: Services) -> Wire:
    """Return a wire: `/ws` and `/polled/` take late keys, `/keyed` and `/library` do not."""

    async def poll(request: Request) -> Response:
        return json_answer(request.scope, {"owner": known_owner(request.scope)})

    return Wire(
        [
            SocketEndpoint("/ws", serve_echo, services),
            SocketEndpoint("/keyed", serve_echo, services),
            SocketEndpoint("/rooms/{room}", serve_echo, services),
            SocketEndpoint("/library", serve_library, services),
            SocketEndpoint("/refusing", refuse, services),
            SocketEndpoint("/silent", return_at_once, services),
            SocketEndpoint("/slow", accept_at_the_end, services),
            SocketEndpoint("/polled/", serve_echo, services),
            Endpoint("/polled/", poll, methods=["GET", "POST"]),
        ],
        late_keys=frozenset({"/ws", "/polled/"}),
    )


async def serve_echo(socket: Socket) -> None:
    await socket.accept()
    socket.send(f"hello {socket.owner}")
    while (content := await socket.receive()) is not None:
        if isinstance(content, bytes) or not await _follow_order(socket, content):
            echo = b"echo " + content if isinstance(content, bytes) else "echo " + content
            socket.send(echo)
    if socket.stopping:
        socket.send("the last word")


async def _follow_order(socket: Socket, text: str) -> bool:
    """Do what a text says; return False if it is no order."""
    order, _, rest = text.partition(" ")
    if order == "stay":
        await anyio.sleep_forever()
    if order not in _ORDERS:
        return False
    _ORDERS[order](socket, rest)
    return True


def _present(socket: Socket, key: str) -> None:
    try:
        socket.send(f"owner {socket.present_key(HALF if key == 'half' else key)}")
    except PassbackError as error:
        socket.send(f"refused {error.code}")


def _flood(socket: Socket, numbers: str) -> None:
    count, size = map(int, numbers.split())
    sent = sum(socket.send("x" * size) for _ in range(count))
    socket.send(f"sent {sent}")


def _end(socket: Socket, end: str) -> None:
    code, _, reason = end.partition(" ")
    socket.close(int(code), reason)
    socket.close(4999, "a second reason does not count")


def _fail(_socket: Socket, code: str) -> None:
    error = {"busy": ServerBusy, "stop": ShuttingDown, "model": ModelError, "run": UnknownRun}
    raise error[code]("of a test")


def _break(_socket: Socket, _rest: str) -> None:
    raise ValueError(SECRET)


def _send_surrogate(socket: Socket, _rest: str) -> None:
    socket.send("a\ud800b")


_ORDERS: Mapping[str, Callable[[Socket, str], None]] = {
    "key": _present,
    "flood": _flood,
    "end": _end,
    "fail": _fail,
    "break": _break,
    "surrogate": _send_surrogate,
}


async def refuse(socket: Socket) -> None:
    raise UnknownConversation(f"there is no such conversation for {socket.owner}")


async def return_at_once(_: Socket) -> None:
    """Neither accept nor refuse."""


async def accept_at_the_end(socket: Socket) -> None:
    """Wait until the server stops, then accept."""
    stopped = anyio.Event()
    with socket.services.stopping.telling(stopped.set):
        await stopped.wait()
    await socket.accept()


async def serve_library(socket: Socket) -> None:
    await socket.run_application(_library)


async def _library(scope: Scope, receive: Receive, send: Send) -> None:
    """Echo, as an ASGI application that knows nothing of the server."""
    assert (await receive())["type"] == "websocket.connect"
    if scope["query_string"] == b"refuse":
        await send({"type": "websocket.close", "code": 1008})
        return
    subprotocol = "echo" if "echo" in scope["subprotocols"] else None
    await send({"type": "websocket.accept", "subprotocol": subprotocol})
    while (message := await receive())["type"] == "websocket.receive":
        if message.get("text") == "end":
            await send({"type": "websocket.close", "code": 4000, "reason": "as asked"})
        else:
            content = {name: message[name] for name in ("text", "bytes") if name in message}
            await send({"type": "websocket.send", **content})
    await send({"type": "websocket.send", "text": f"{message['code']}"})


class EchoApplication(Application):
    """The product with one more wire."""

    @override
    def build_wires(self, services: Services, /) -> list[Wire]:
        return [*super().build_wires(services), echo_wire(services)]


def main() -> int:
    """Serve by flags `--name value`, as `passback serve` has them."""
    flags = [each for each in sys.argv[2:] if each != "--no-env-file"]
    # the chat socket has `/ws`, too
    others = ",".join(name for name in Settings().wires if name != "chat")
    variables = {f"{PREFIX}WIRES": others}
    variables |= {name: text for name, text in os.environ.items() if name.startswith(PREFIX)}
    for name, text in zip(flags[::2], flags[1::2], strict=True):
        variables[PREFIX + name.removeprefix("--").replace("-", "_").upper()] = text
    settings = load_settings(variables)
    log_to_stderr(settings.log_level, settings.log_format)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(serve_application(EchoApplication(settings)))


if __name__ == "__main__":
    sys.exit(main())
