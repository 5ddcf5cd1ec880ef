"""Many bodies that never end: bounded memory, and other owners' posts are taken meanwhile."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from urllib.parse import urlsplit

import anyio
import anyio.abc
import pytest
from tests.support.server import Server, running_server
from tests.support.wire import PATH, Client, client_of, user

pytestmark = [pytest.mark.anyio, pytest.mark.promise("P11")]

KEYS = {"ann": "key-of-ann-0123456789", "bob": "key-of-bob-0123456789"}
BODY = 64 * 1024
ROOM = 4 * BODY
"""Room of two owners: half of it, two bodies, is an owner's share.

The attack is a hundred bodies of 4 MiB each; small ones go the same way.
"""
UNFINISHED = 10


def head(owner: str) -> bytes:
    lines = (
        f"POST {PATH} HTTP/1.1",
        "Host: 127.0.0.1",
        f"Authorization: Bearer {KEYS[owner]}",
        "Content-Type: application/json",
        f"Content-Length: {BODY}",
    )
    return "\r\n".join((*lines, "", "")).encode()


@asynccontextmanager
async def unfinished(
    server: Server, owner: str, count: int
) -> AsyncGenerator[list[anyio.abc.SocketStream]]:
    place = urlsplit(server.url)
    assert place.hostname is not None
    assert place.port is not None
    async with AsyncExitStack() as stack:
        streams = []
        for _ in range(count):
            stream = await stack.enter_async_context(
                await anyio.connect_tcp(place.hostname, place.port)
            )
            await stream.send(head(owner) + b"{" + b" " * (BODY - 1000))
            streams.append(stream)
        yield streams


async def answer_on(stream: anyio.abc.SocketStream) -> bytes:
    """A whole JSON answer; its head may come alone."""
    answer = b""
    while not answer.endswith(b"}"):
        answer += await stream.receive()
    return answer


async def refused(streams: list[anyio.abc.SocketStream], count: int) -> None:
    """Wait until so many are answered, all by the same refusal."""
    answers: list[bytes] = []
    async with anyio.create_task_group() as tasks:

        async def read(stream: anyio.abc.SocketStream) -> None:
            answers.append(await answer_on(stream))
            if len(answers) == count:
                tasks.cancel_scope.cancel()

        for stream in streams:
            tasks.start_soon(read, stream)
    for answer in answers:
        assert answer.startswith(b"HTTP/1.1 503 "), answer
        assert b"\r\nretry-after: 1\r\n" in answer
        assert b'"code":"server_busy"' in answer


async def test_an_owners_unfinished_bodies_are_bounded_and_others_are_served() -> None:
    environment = {
        "PASSBACK_API_KEYS": ",".join(f"{owner}:{key}" for owner, key in KEYS.items()),
        "PASSBACK_LIMITS": f"body_bytes={BODY} bodies_bytes={ROOM}",
    }
    with anyio.fail_after(25):
        async with (
            running_server("--model", "demo:fast", environment=environment) as server,
            client_of(server.url, key=KEYS["ann"]) as ann,
            client_of(server.url, key=KEYS["bob"]) as bob,
        ):
            async with unfinished(server, "ann", UNFINISHED) as streams:
                await refused(streams, UNFINISHED - 2)
                # bob has room for one of his own, and what comes whole is taken from both
                async with unfinished(server, "bob", 1) as [stream]:
                    await stream.send(b" " * 998 + b"}")
                    assert (await answer_on(stream)).startswith(b"HTTP/1.1 422 ")
                await served(ann, bob)
            # those bodies are gone, and so is what they held
            async with unfinished(server, "ann", 1) as [stream]:
                await stream.send(b" " * 998 + b"}")
                assert (await answer_on(stream)).startswith(b"HTTP/1.1 422 ")


async def served(*clients: Client) -> None:
    for client in clients:
        assert (await client.post("c", user("hi"))).status == 200
