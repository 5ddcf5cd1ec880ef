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

_jitter = random.SystemRandom()


class DirectClient:
    """One question at a time on each connection; they are opened when they are needed, and kept.

    Args:
        address: where the server is; a function, because what it reads of files is read when it is needed.
        repeats: how often commands are sent again after a lost connection or reply.
        readings: what replies to some commands are made into, as by redis-py's client.
    """

    def __init__(
        self, address: Callable[[], Address], repeats: int, readings: Mapping[str, Reading]
    ) -> None:
        self._address = address
        self._readings = readings
        self._repeats = repeats
        self._idle: deque[Connection] = deque()
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
        """Send commands and give their replies. Raises redis-py's errors of connections."""
        for attempt in range(self._repeats):
            try:
                return await self._attempt(commands)
            except AuthenticationError:
                raise
            except (RedisConnectionError, RedisTimeoutError):
                await asyncio.sleep(_jitter.uniform(_PAUSE, 2 * _PAUSE) * 2**attempt)
        return await self._attempt(commands)

    async def aclose(self) -> None:
        self._closed = True
        for connection in self._idle:
            connection.close()
        self._idle.clear()

    async def _attempt(self, commands: Sequence[Command]) -> list[Reply]:
        connection = self._idle_one() or await connect(self._address())
        try:
            return await connection.ask(commands)
        finally:
            # also when its asker was cancelled with the replies in hand
            self._give_back(connection)

    def _give_back(self, connection: Connection) -> None:
        if self._closed or connection.closed:
            connection.close()
            return
        self._idle.append(connection)
        while self._is_stale(self._idle[0], connection.used):
            self._idle.popleft().close()  # there were more at once than are needed now

    def _idle_one(self) -> Connection | None:
        """The one that was used last: it is the least likely to be closed meanwhile."""
        now = asyncio.get_running_loop().time()
        while self._idle:
            connection = self._idle.pop()
            if not connection.closed and not self._is_stale(connection, now):
                return connection
            connection.close()
        return None

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
