"""A connection to Redis gives each asker his own replies, or breaks."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress

import anyio
import pytest
from anyio.lowlevel import checkpoint
from redis.exceptions import AuthenticationError, NoScriptError, ResponseError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from passback.stores.redis.connection import Address, connect
from passback.stores.redis.direct import DirectClient, Reading

pytestmark = pytest.mark.anyio


class Peer:
    """Answers each request with the next of the given answers, and closes after the last one."""

    def __init__(self, answers: Sequence[bytes]) -> None:
        self.answers = list(answers)
        self.answering = asyncio.Event()
        self.answering.set()
        self.requests: list[bytes] = []
        self.asked = asyncio.Event()
        self._writers: list[asyncio.StreamWriter] = []

    @property
    def connections(self) -> int:
        return len(self._writers)

    async def left(self) -> None:
        """Wait until no client holds a connection."""
        for writer in self._writers:
            with suppress(OSError):
                await writer.wait_closed()

    async def aclose(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
            with suppress(OSError):
                await writer.wait_closed()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        with suppress(ConnectionError):
            while request := await reader.read(65536):
                self.requests.append(request)
                self.asked.set()
                await self.answering.wait()
                if not self.answers:
                    break
                writer.write(self.answers.pop(0))
        writer.close()


@asynccontextmanager
async def peer(
    *answers: bytes, password: str | None = None, db: int = 0
) -> AsyncGenerator[tuple[Peer, Address]]:
    served = Peer(answers)
    server = await asyncio.start_server(served.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, aclosing(served):
        yield served, Address("127.0.0.1", port, db, None, password, None, 2, 0.3)


def client_of(
    address: Address,
    *,
    repeats: int = 0,
    readings: Mapping[str, Reading] | None = None,
    most: int = 64,
    patience: float = 5,
) -> DirectClient:
    return DirectClient(
        lambda: address, readings or {}, repeats=repeats, max_connections=most, patience=patience
    )


async def test_replies_come_in_the_order_of_the_commands_however_they_are_cut() -> None:
    async with peer(b":1\r\n$3\r\nabc\r\n*2\r\n:2\r\n$-1\r\n-ERR no\r\n") as (server, address):
        connection = await connect(address)
        one, text, many, error = await connection.ask([("A",), ("B C", "d"), ("E", 5), ("F",)])
        connection.close()
    assert (one, text, many) == (1, b"abc", [2, None])
    assert isinstance(error, ResponseError)
    assert b"$1\r\nB\r\n$1\r\nC\r\n$1\r\nd\r\n" in server.requests[0]


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b":1\r\n:2\r\n", RedisConnectionError),
        (b"?what\r\n", RedisConnectionError),
        (b"$5\r\nab", RedisTimeoutError),
        (b"", RedisTimeoutError),
    ],
)
async def test_a_connection_of_which_the_replies_are_in_doubt_is_not_used_again(
    answer: bytes, error: type[Exception]
) -> None:
    async with peer(answer) as (_, address):
        connection = await connect(address)
        with pytest.raises(error):
            await connection.ask([("A",)])
        assert connection.closed
        with pytest.raises(RedisConnectionError):
            await connection.ask([("A",)])


async def test_who_stops_waiting_leaves_no_reply_for_the_next() -> None:
    async with peer(b":1\r\n", b":2\r\n") as (server, address):
        client = client_of(address)
        asked = asyncio.create_task(client.execute_command("A"))
        await server.asked.wait()
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        assert await client.execute_command("B") == 2
        await client.aclose()


async def test_whoever_stops_waiting_at_whatever_moment_leaves_no_connection_behind() -> None:
    async with peer(*[b":1\r\n"] * 200) as (server, address):
        client = client_of(address)
        for steps in range(100):
            asked = asyncio.create_task(client.execute_command("A"))
            for _ in range(steps % 25):
                await checkpoint()
            asked.cancel()
            with suppress(asyncio.CancelledError):
                await asked
        await client.aclose()
        with anyio.fail_after(5):
            await server.left()


async def test_a_lost_connection_is_opened_again_and_the_command_repeated() -> None:
    async with peer(b":1\r\n") as (server, address):
        client = client_of(address, repeats=1, readings={"A": str})
        assert await client.execute_command("A") == "1"
        with pytest.raises(RedisConnectionError):
            await client.execute_command("A")
        assert server.connections == 2
        await client.aclose()


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"-NOSCRIPT No matching script.\r\n", NoScriptError),
        (b"-ERR max number of clients reached\r\n", RedisConnectionError),
        (b"-ERR anything else\r\n", ResponseError),
    ],
)
async def test_errors_that_mean_something_to_us_are_told_apart(
    answer: bytes, error: type[Exception]
) -> None:
    async with peer(answer) as (_, address):
        client = client_of(address)
        with pytest.raises(error):
            await client.execute_command("EVALSHA", "x", 0)
        await client.aclose()


@pytest.mark.parametrize(
    ("answers", "db", "error"),
    [
        ([b"-WRONGPASS\r\n"], 0, AuthenticationError),
        ([b"+OK\r\n", b"-ERR DB index is out of range\r\n"], 99, ResponseError),
    ],
)
async def test_a_login_that_is_refused_is_not_repeated(
    answers: list[bytes], db: int, error: type[Exception]
) -> None:
    async with peer(*answers, password="secret", db=db) as (server, address):
        client = client_of(address, repeats=2)
        with pytest.raises(error) as refused:
            await client.execute_command("A")
        assert server.connections == 1
        assert "secret" not in str(refused.value)


async def test_a_server_that_is_not_there_is_unavailable() -> None:
    async with peer() as (_, address):
        pass
    with pytest.raises(RedisConnectionError):
        await client_of(address, repeats=1).execute_command("A")
