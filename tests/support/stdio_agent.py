"""`passback acp` with a small protocol in the place of ACP: what its channel does, shown by methods.

As a program, this module takes the arguments of `passback`.
"""

import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import anyio
from pydantic import JsonValue

from passback.cli import main
from passback.core.errors import PassbackError
from passback.core.messages import UNNAMED, ConversationId, ConversationKey, RunRef, UserMessage
from passback.core.posts import StartRun
from passback.http.wires import Services
from passback.streams.jsonrpc import (
    INTERNAL_ERROR,
    Channel,
    Peer,
    Request,
    RpcError,
)
from passback.streams.stdio import LINE_BYTES

Method = Callable[[Services, Channel, Any], Awaitable[JsonValue]]


async def serve_client(services: Services, channel: Channel, /) -> None:
    """Answer requests. What takes long is cancelled when the channel ends, the rest is not."""
    peer = Peer(channel.send, depth=services.limits.depth, frame_bytes=LINE_BYTES)
    async with anyio.create_task_group() as short, anyio.create_task_group() as long:
        while (frame := await channel.receive()) is not None:
            message = peer.read(frame)
            if isinstance(message, Request):
                tasks = long if message.method in LONG else short
                tasks.start_soon(_answer, services, channel, peer, message)
        long.cancel_scope.cancel()
    if channel.stopping:
        peer.notify("stopping")
    peer.close()


async def _answer(services: Services, channel: Channel, peer: Peer, request: Request) -> None:
    method = METHODS[request.method]
    try:
        peer.answer(request, await method(services, channel, request.params))
    except PassbackError as error:
        peer.refuse(request, RpcError(INTERNAL_ERROR, error.message))


async def _measure(_services: Services, _channel: Channel, params: Any) -> JsonValue:
    """Return the number of characters of a text."""
    return len(params["text"])


async def _tell(_services: Services, channel: Channel, _params: Any) -> JsonValue:
    packages = {name.partition(".")[0] for name in sys.modules}
    unneeded: list[JsonValue] = [*sorted(packages & UNNEEDED)]
    return {"owner": channel.owner, "command": sys.argv[1], "unneeded": unneeded}


async def _make_noise(_services: Services, _channel: Channel, _params: Any) -> JsonValue:
    """Write to standard output in each way there is, and read standard input."""
    print("noise of print")  # noqa: T201 - as a tool may
    sys.stdout.write("noise without end")
    sys.stdout.flush()
    os.write(1, b"noise of the descriptor\n")
    child = [sys.executable, "-c", "import sys; print('noise of a child', sys.stdin.read())"]
    await anyio.to_thread.run_sync(lambda: subprocess.run(child, check=True))
    listing = [sys.executable, "-c", "import os; print(os.listdir('/proc/self/fd'))"]
    listed = await anyio.to_thread.run_sync(
        lambda: subprocess.run(listing, check=True, capture_output=True, text=True).stdout
    )
    return {"read": sys.stdin.read(), "inherited": len(listed.split(","))}


async def _flood(_services: Services, channel: Channel, params: Any) -> JsonValue:
    """Send so many lines, with or without waiting between them."""
    for number in range(params["lines"]):
        channel.send("x" * params["length"])
        if params["waits"]:
            await channel.wait_until_sent()
            sys.stderr.write(f"sent {number}\n")
    return None


async def _start_run(services: Services, channel: Channel, params: Any) -> JsonValue:
    """Start a run and return its end, or its start."""
    assert channel.owner is not None
    key = ConversationKey(channel.owner, ConversationId(params["conversation"]))
    run = await services.runs.start(StartRun(key, (UserMessage(UNNAMED, params["text"]),)))
    assert isinstance(run, RunRef)
    if not params["waits"]:
        return run.run_id
    last = ""
    async with services.runs.follow(run) as batches:
        async for batch in batches:
            last = type(batch[-1].event).__name__
    return last


async def _wait(_services: Services, _channel: Channel, _params: Any) -> JsonValue:
    sys.stderr.write("a request waits\n")
    await anyio.sleep_forever()
    return None


METHODS: Mapping[str, Method] = {
    "measure": _measure,
    "tell": _tell,
    "make_noise": _make_noise,
    "flood": _flood,
    "start_run": _start_run,
    "wait": _wait,
}
LONG = {"flood", "wait"}
UNNEEDED = {"aiohttp", "mcp", "redis", "socketio", "uvicorn", "websockets"}
"""Packages that take long to import, which the command does not need to start."""

if __name__ == "__main__":
    sys.exit(main(serve_client=serve_client))
