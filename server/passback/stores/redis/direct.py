"""A client for one server, over connections that are kept."""

import asyncio
import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from redis.exceptions import AuthenticationError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from passback.stores.redis.connection import Address, Command, Connection, Reply, connect

Reading: TypeAlias = Callable[[Reply], Reply]

_IDLE = 10.0
"""Seconds without traffic after which a connection is not kept: it is not needed, and may be forgotten on the way."""

_PAUSE = 0.05
"""Seconds before something is sent again, about twice as many each time."""

_LOST = (RedisConnectionError, RedisTimeoutError)

_jitter = random.SystemRandom()


class DirectClient:
    """One question at a time on each connection; they are opened when they are needed, and kept.

    Args:
        address: where the server is; a function, because what it reads of files is read when it is needed.
        readings: what replies to some commands are made into, as by redis-py's client.
        repeats: how often commands are sent again after a lost connection or reply.
        max_connections: how many there may be at once; who finds none free waits his turn.
        patience: seconds for commands sent together, with all repeats and waiting; the address has no more for a reply.
    """

    def __init__(
        self,
        address: Callable[[], Address],
        readings: Mapping[str, Reading],
        *,
        repeats: int,
        max_connections: int,
        patience: float,
    ) -> None:
        self._address = address
        self._readings = readings
        self._repeats = repeats
        self._patience = patience
        self._idle: deque[Connection] = deque()
        self._unopened = max_connections
        self._waiting: deque[asyncio.Future[Connection | None]] = deque()
        self._closed = False

    async def execute_command(self, *command: str | bytes | int) -> Reply:
        """Send it and give the reply. Raises redis-py's errors."""
        [reply] = await self.ask([command])
        if isinstance(reply, Exception):
            raise reply
        reading = self._readings.get(str(command[0]))
        return reply if reading is None else reading(reply)

    def pipeline(self, *, transaction: bool) -> "Batch":
        """As redis-py's."""
        return Batch(self)

    async def ask(self, commands: Sequence[Command]) -> list[Reply]:
        """Send commands and give their replies.

        Raises:
            redis.ConnectionError, redis.TimeoutError: there is no connection or no reply, after all repeats.
            TimeoutError: the patience is over.
        """
        now = asyncio.get_running_loop().time()
        connection, attempts = self._idle_one(now), 0
        if connection is not None:
            try:  # the usual way; a reply's own time is all that it needs
                return await connection.ask(commands)
            except _LOST:
                if not self._repeats:
                    raise
            finally:
                # also when its asker was cancelled with the replies in hand
                self._give_back(connection)
            attempts = 1
        async with asyncio.timeout_at(now + self._patience):
            return await self._ask_again(commands, attempts)

    async def aclose(self) -> None:
        self._closed = True
        for connection in self._idle:
            connection.close()

    async def _ask_again(self, commands: Sequence[Command], attempts: int) -> list[Reply]:
        """As `ask`, after so many attempts, as long as it takes."""
        if attempts:
            await asyncio.sleep(_jitter.uniform(_PAUSE, 2 * _PAUSE) * 2 ** (attempts - 1))
        try:
            return await self._attempt(commands)
        except AuthenticationError:
            raise
        except _LOST:
            if attempts == self._repeats:
                raise
        return await self._ask_again(commands, attempts + 1)

    async def _attempt(self, commands: Sequence[Command]) -> list[Reply]:
        connection = await self._turn()
        try:
            if connection is None:
                connection = await connect(self._address())
            return await connection.ask(commands)
        finally:
            self._give_back(connection)

    async def _turn(self) -> Connection | None:
        """A connection that is free, None for one that may be opened, or the next of these that comes free."""
        loop = asyncio.get_running_loop()
        connection = self._idle_one(loop.time())
        if connection is not None:
            return connection
        if self._unopened:
            self._unopened -= 1
            return None
        waiter: asyncio.Future[Connection | None] = loop.create_future()
        self._waiting.append(waiter)
        try:
            return await waiter
        except asyncio.CancelledError:
            if not waiter.cancelled():  # it came at the same moment
                self._give_back(waiter.result())
            raise

    def _give_back(self, connection: Connection | None) -> None:
        """Leave it, or what it would have been, to who waits longest, or keep it."""
        if connection is not None and (self._closed or connection.closed):
            connection.close()
            connection = None
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(connection)
                return
        if connection is None:
            self._unopened += 1
            return
        self._idle.append(connection)
        while self._is_stale(self._idle[0], connection.used):
            self._let_go(self._idle.popleft())  # there were more at once than are needed now

    def _idle_one(self, now: float) -> Connection | None:
        """The one that was used last: it is the least likely to be closed meanwhile."""
        while self._idle:
            connection = self._idle.pop()
            if not connection.closed and not self._is_stale(connection, now):
                return connection
            self._let_go(connection)
        return None

    def _let_go(self, idle: Connection) -> None:
        idle.close()
        self._unopened += 1

    @staticmethod
    def _is_stale(connection: Connection, now: float) -> bool:
        return connection.used < now - _IDLE


class Batch:
    """Commands that are sent together."""

    def __init__(self, client: DirectClient) -> None:
        self._client = client
        self._commands: list[Command] = []

    def execute_command(self, *command: str | bytes | int) -> None:
        self._commands.append(command)

    async def execute(self, *, raise_on_error: bool) -> list[Reply]:
        """A reply for each, an error among them is one: as redis-py's without raising."""
        return await self._client.ask(self._commands)
