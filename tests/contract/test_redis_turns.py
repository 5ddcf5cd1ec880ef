"""Who asks Redis has one of so many connections in his turn, and not for longer than the patience."""

import asyncio
from contextlib import suppress
from dataclasses import replace

import anyio
import pytest
from anyio import wait_all_tasks_blocked
from anyio.lowlevel import checkpoint
from redis.exceptions import ConnectionError as RedisConnectionError
from tests.contract.test_redis_connection import Peer, client_of, peer

from passback.core.errors import StoreUnavailable
from passback.stores.redis import scripts
from passback.stores.redis.link import RedisLink, ScriptCall
from passback.stores.redis.url import parse_redis_url

pytestmark = pytest.mark.anyio

SILENT = b""


def asked(server: Peer) -> list[str]:
    return [request.split(b"\r\n")[2].decode() for request in server.requests]


@pytest.mark.parametrize("password", [None, "secret"])
async def test_many_at_once_have_no_more_connections_than_there_may_be(
    password: str | None,
) -> None:
    async with peer(*[b":1\r\n"] * 200, password=password) as (server, address):
        client = client_of(address, most=3)
        for _ in range(2):
            assert (
                await asyncio.gather(*(client.execute_command("A") for _ in range(50))) == [1] * 50
            )
        assert server.connections == 3
        await client.aclose()


async def test_who_finds_no_connection_gets_one_in_the_order_of_asking() -> None:
    names = [f"A{n}" for n in range(8)]
    async with peer(*[b":%d\r\n" % n for n in range(8)]) as (server, address):
        server.answering.clear()
        client = client_of(address, most=1)
        first = [asyncio.create_task(client.execute_command(name)) for name in names[:4]]
        await server.asked.wait()
        server.answering.set()
        assert await first[0] == 0
        # who comes later does not get in front of those who wait
        later = [asyncio.create_task(client.execute_command(name)) for name in names[4:]]
        assert [await each for each in (*first[1:], *later)] == [*range(1, 8)]
        assert asked(server) == names
        assert server.connections == 1
        await client.aclose()


async def test_who_stops_waiting_for_a_connection_is_passed_over() -> None:
    async with peer(b":1\r\n", b":2\r\n") as (server, address):
        server.answering.clear()
        client = client_of(address, most=1)
        holds, leaves, waits = (asyncio.create_task(client.execute_command(name)) for name in "ABC")
        await server.asked.wait()
        leaves.cancel()
        server.answering.set()
        assert (await holds, await waits) == (1, 2)
        assert asked(server) == ["A", "C"]
        await client.aclose()


async def test_who_is_cancelled_when_his_turn_comes_leaves_it_to_the_next() -> None:
    async with peer(b":1\r\n", b":2\r\n") as (server, address):
        server.answering.clear()
        client = client_of(address, most=1)

        async def hold() -> None:
            await client.execute_command("A")
            leaves.cancel()  # it has its turn, and has not run yet

        holds = asyncio.create_task(hold())
        leaves, waits = (asyncio.create_task(client.execute_command(name)) for name in "BC")
        await server.asked.wait()
        server.answering.set()
        await holds
        with anyio.fail_after(3):
            assert await waits == 2
        assert leaves.cancelled()
        assert asked(server) == ["A", "C"]
        await client.aclose()


async def test_whoever_is_cancelled_at_whatever_moment_keeps_no_place() -> None:
    async with peer(*[b":1\r\n"] * 500) as (_, address):
        client = client_of(address, most=2)
        for steps in range(100):
            tasks = [asyncio.create_task(client.execute_command("A")) for _ in range(4)]
            for _ in range(steps % 25):
                await checkpoint()
            for task in tasks[steps % 2 :: 2]:
                task.cancel()
            with anyio.fail_after(3):
                await asyncio.gather(*tasks, return_exceptions=True)
        with anyio.fail_after(3):
            assert await asyncio.gather(*map(client.execute_command, "BCD")) == [1] * 3
        await client.aclose()


@pytest.mark.parametrize("error", [RedisConnectionError, ValueError])
async def test_a_connection_that_cannot_be_opened_keeps_no_place(error: type[Exception]) -> None:
    async with peer() as (_, address):
        pass
    broken = address if error is RedisConnectionError else replace(address, host="x" * 300 + "\0")
    client = client_of(broken, most=1)
    for _ in range(2):
        with pytest.raises(error):
            await client.execute_command("A")


async def test_a_kept_connection_that_was_closed_keeps_no_place() -> None:
    async with peer(b":1\r\n", b":2\r\n") as (server, address):
        client = client_of(address, repeats=1, most=1)
        assert await client.execute_command("A") == 1
        await server.aclose()
        await wait_all_tasks_blocked()
        assert await client.execute_command("B") == 2
        assert server.connections == 2
        await client.aclose()


async def test_a_kept_connection_that_is_lost_is_no_reason_for_one_more_repeat() -> None:
    async with peer(b":1\r\n") as (server, address):
        client = client_of(address, repeats=0)
        await client.execute_command("A")
        with pytest.raises(RedisConnectionError):
            await client.execute_command("B")
        assert server.connections == 1
        await client.aclose()


async def test_a_busy_connection_is_closed_when_it_comes_back_to_a_closed_client() -> None:
    async with peer(b":1\r\n") as (server, address):
        server.answering.clear()
        client = client_of(address)
        task = asyncio.create_task(client.execute_command("A"))
        await server.asked.wait()
        await client.aclose()
        server.answering.set()
        assert await task == 1
        with anyio.fail_after(5):
            await server.left()


@pytest.mark.parametrize("kept", [False, True])
async def test_all_repeats_together_have_one_patience(*, kept: bool) -> None:
    async with peer(*[b":1\r\n"] * kept, *[SILENT] * 100) as (server, address):
        hasty = replace(address, patience=0.02)
        client = client_of(hasty, repeats=1000, patience=0.5)
        if kept:
            await client.execute_command("A")
        with anyio.fail_after(5), pytest.raises(TimeoutError):
            await client.execute_command("B")
        assert server.connections > 1
        await client.aclose()


async def test_waiting_for_a_connection_has_an_end() -> None:
    async with peer(b":1\r\n", SILENT) as (server, address):
        client = client_of(replace(address, patience=60), most=1, patience=0.1)
        await client.execute_command("A")
        holds = asyncio.create_task(
            client.execute_command("B")
        )  # on a kept one: until a reply's own time
        await checkpoint()
        with anyio.fail_after(5), pytest.raises(TimeoutError):
            await client.execute_command("C")
        holds.cancel()
        with suppress(asyncio.CancelledError):
            await holds
        assert asked(server) == ["A", "B"]
        await client.aclose()


async def test_a_script_that_the_server_does_not_know_has_no_second_patience() -> None:
    async with peer(b"-NOSCRIPT No matching script.\r\n", b":1\r\n") as (_, address):
        link = RedisLink(
            parse_redis_url("single", f"//127.0.0.1:{address.port}/0", tls=False), 1, 5
        )
        link.open()
        call = ScriptCall(scripts.KEEP_FOLLOWED, ("a",), ())
        with pytest.raises(StoreUnavailable, match="in time"):
            await link.run(call, patience=1e-9)
        await link.aclose()
