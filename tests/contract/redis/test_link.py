"""Commands to Redis, whichever way it is reached: each gets its own reply, and has a bound."""

import asyncio
import hashlib
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest
from anyio.lowlevel import checkpoint
from redis.exceptions import ConnectionError as RedisConnectionError
from tests.support.redis_server import RedisServer, redis_server
from tests.support.sentinels import SERVICE, sentinel

from passback.core.errors import StoreError, StoreUnavailable
from passback.stores.redis.link import RedisLink
from passback.stores.redis.scripts import Script, ScriptCall
from passback.stores.redis.servers import (
    RedisTarget,
    Topology,
    is_closed_socket,
    open_servers,
    parse_redis_url,
)

pytestmark = [pytest.mark.anyio, pytest.mark.redis]

UVLOOP_ERROR = (
    "unable to perform operation on <TCPTransport closed=True reading=False 0x1>; "
    "the handler is closed"
)
ECHO = b"return ARGV[1]"


def echo(text: str) -> ScriptCall:
    """A script whose reply is known by its text."""
    digest = hashlib.sha1(ECHO, usedforsecurity=False).hexdigest()
    return ScriptCall(Script(ECHO, digest), ("key",), (text,))


@dataclass(frozen=True, slots=True)
class Place:
    """A server that is empty, and how a store reaches it."""

    server: RedisServer
    target: RedisTarget

    async def blocks(self, *, after: int = 0) -> int:
        """Wait until a command blocks there, and give the id of its connection."""
        with anyio.fail_after(10):
            while True:
                clients: bytes = self.server.command("CLIENT", "LIST", "TYPE", "normal")
                found = re.search(rb"^id=(\d+) .* cmd=blpop ", clients, re.MULTILINE)
                if found and int(found[1]) > after:
                    return int(found[1])
                await checkpoint()


@asynccontextmanager
async def link_to(
    target: RedisTarget, *, most: int = 64, seconds: float = 8
) -> AsyncGenerator[RedisLink]:
    link = RedisLink(target, most, seconds)
    link.open()
    try:
        yield link
    finally:
        await link.aclose()


@pytest.fixture(params=["single", "sentinel", "cluster"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    topology: Topology = request.param
    match topology:
        case "single":
            single: RedisServer = request.getfixturevalue("shared_redis")
            single.command("FLUSHALL")
            yield Place(single, target_of(topology, f"//127.0.0.1:{single.port}/0"))
        case "sentinel":
            home = tmp_path / "sentinel"
            home.mkdir()
            with redis_server(tmp_path) as master, sentinel(home, "redis", master) as asked:
                yield Place(master, target_of(topology, f"//127.0.0.1:{asked.port}/{SERVICE}"))
        case "cluster":
            cluster: RedisServer = request.getfixturevalue("shared_cluster")
            cluster.command("FLUSHALL")
            yield Place(cluster, target_of(topology, f"//127.0.0.1:{cluster.port}"))


def target_of(topology: Topology, rest: str) -> RedisTarget:
    return parse_redis_url(topology, rest, tls=False)


# ---------------------------------------------------------------- replies
async def test_a_command_that_is_cancelled_leaves_no_reply_to_the_next(place: Place) -> None:
    async with link_to(place.target, most=1) as link:
        for n in range(3):
            await link.command("SET", f"key {n}", n)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(link.command, "BLPOP", "list", 0)
            await place.blocks()
            tasks.cancel_scope.cancel()
        place.server.command("RPUSH", "list", "of the first command")
        assert [await link.command("GET", f"key {n}") for n in range(3)] == [b"0", b"1", b"2"]


async def test_a_command_that_a_hanging_server_answers_late_leaves_no_reply_to_the_next(
    place: Place,
) -> None:
    async with (
        link_to(place.target, most=1) as link,
        link_to(place.target, seconds=0.5) as short_timeout,
    ):
        for each in (link, short_timeout):
            assert await each.run(echo("warm")) == b"warm"
        late: list[Callable[[], Awaitable[object]]] = [
            lambda: short_timeout.run(echo("late")),
            lambda: short_timeout.command("GET", "none"),
        ]
        for work in late:
            place.server.pause()
            try:
                with anyio.fail_after(5), pytest.raises(StoreUnavailable, match="in time"):
                    await work()
            finally:
                place.server.resume()
            with anyio.fail_after(5):
                assert await link.run(echo("first")) == b"first"
                assert [await short_timeout.run(echo(word)) for word in "ab"] == [b"a", b"b"]


async def test_a_command_that_is_cancelled_at_whatever_moment_leaves_no_reply_to_the_next(
    place: Place,
) -> None:
    async with link_to(place.target, most=1) as link:
        for steps in range(150):
            asked = asyncio.create_task(link.run(echo("cancelled")))
            for _ in range(steps % 30):
                await checkpoint()
            asked.cancel()
            with suppress(asyncio.CancelledError):
                await asked
            with anyio.fail_after(5):
                assert await link.run(echo(f"{steps}")) == f"{steps}".encode()
                assert await link.command("INCR", "count") == steps + 1


# ---------------------------------------------------------------- connections
async def test_many_at_once_have_no_more_connections_than_there_may_be(place: Place) -> None:
    async with link_to(place.target, most=3) as link:
        for _ in range(2):
            asked = [
                link.run(echo(f"{n}")) if n % 2 else link.command("GET", "none") for n in range(80)
            ]
            replies = [f"{n}".encode() if n % 2 else None for n in range(80)]
            assert await asyncio.gather(*asked) == replies
        assert await asyncio.gather(*(link.command("TYPE", n) for n in range(9))) == [b"none"] * 9
        clients: bytes = place.server.command("CLIENT", "LIST", "TYPE", "normal")
        assert len(re.findall(rb"cmd=(?:get|type|evalsha|eval) ", clients)) == 3


async def test_commands_get_a_connection_in_the_order_of_their_coming(place: Place) -> None:
    async with link_to(place.target, most=1) as link:
        holds = asyncio.create_task(link.command("BLPOP", "gate", 0))
        await place.blocks()
        waits = [asyncio.create_task(link.command("RPUSH", "order", n)) for n in range(8)]
        await checkpoint()
        waits[3].cancel()
        place.server.command("RPUSH", "gate", "open")
        await holds
        with anyio.fail_after(5):
            await asyncio.wait(waits)
        assert waits[3].cancelled()
        order = [b"0", b"1", b"2", b"4", b"5", b"6", b"7"]
        assert await link.command("LRANGE", "order", 0, -1) == order


async def test_a_command_that_is_cancelled_at_whatever_moment_keeps_no_connection(
    place: Place,
) -> None:
    async with link_to(place.target, most=2) as link:
        for steps in range(75):
            tasks = [asyncio.create_task(link.command("GET", "none")) for _ in range(4)]
            for _ in range(steps % 25):
                await checkpoint()
            for task in tasks[steps % 2 :: 2]:
                task.cancel()
            with anyio.fail_after(5):
                await asyncio.gather(*tasks, return_exceptions=True)
        with anyio.fail_after(5):
            assert await asyncio.gather(*map(link.command, ["GET"] * 3, "abc")) == [None] * 3


async def test_the_wait_for_a_connection_has_an_end(place: Place) -> None:
    async with link_to(place.target, most=1) as link:
        holds = asyncio.create_task(link.command("BLPOP", "gate", 0))
        await place.blocks()
        with anyio.fail_after(5), pytest.raises(StoreUnavailable, match="in time"):
            await link.run(echo("late"), seconds=0.1)
        place.server.command("RPUSH", "gate", "open")
        assert await holds == (b"gate", b"open")
        with anyio.fail_after(5):
            assert await link.run(echo("next")) == b"next"


# ---------------------------------------------------------------- repeats
async def test_a_client_runs_a_command_once_whatever_becomes_of_its_connection(
    place: Place,
) -> None:
    servers = open_servers(place.target, 1)
    client = await servers.client()
    asked = asyncio.ensure_future(client.execute_command("BLPOP", "list", 0))
    place.server.command("CLIENT", "KILL", "ID", await place.blocks())
    with anyio.fail_after(5), pytest.raises(RedisConnectionError):
        await asked
    await servers.aclose()


@pytest.mark.parametrize("breaks", [2, 3])
async def test_a_command_whose_connection_is_lost_is_repeated_twice(
    place: Place, breaks: int
) -> None:
    async with link_to(place.target) as link:
        asked = asyncio.create_task(link.command("BLPOP", "list", 0))
        blocked = 0
        for _ in range(breaks):
            blocked = await place.blocks(after=blocked)
            place.server.command("CLIENT", "KILL", "ID", blocked)
        if breaks == 2:
            await place.blocks(after=blocked)
            place.server.command("RPUSH", "list", "there")
            assert await asked == (b"list", b"there")
        else:
            with anyio.fail_after(5), pytest.raises(StoreUnavailable):
                await asked


async def test_a_login_that_is_refused_is_not_repeated(tmp_path: Path) -> None:
    with redis_server(tmp_path, "--requirepass hunter2") as server:
        target = target_of("single", f"//:hunter3@127.0.0.1:{server.port}")
        async with link_to(target) as link:
            with pytest.raises(StoreError, match="refuses") as refused:
                await link.command("GET", "key")
        own = target_of("single", f"//:hunter2@127.0.0.1:{server.port}")
        async with link_to(own) as link:
            [stats] = await link.on_each_server("INFO", "commandstats")
        assert stats["cmdstat_auth"]["calls"] == 2  # the one that was refused, and this one's
        assert "hunter" not in f"{refused.value!r} {refused.value.__cause__!r}"


def test_a_connection_that_broke_while_it_was_used_is_known_by_uvloops_words() -> None:
    assert is_closed_socket(RuntimeError(UVLOOP_ERROR))
    assert not is_closed_socket(RuntimeError("no running event loop"))
