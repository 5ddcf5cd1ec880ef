"""Commands to one server over redis-py's connections, with little around each of them."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from redis.asyncio.retry import Retry
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from passback.stores.redis.errors import is_closed_socket


class DirectClient:
    """One command at a time on each connection; connections are opened when they are needed, and kept.

    redis-py's own client also locks its pool, keeps counts for telemetry, and makes a task for each sending: together
    more than the command itself costs. What it does to connect, to log in and to read replies is used as it is.

    Args:
        client: redis-py's, for pipelines.
        make_connection: gives one that has no `socket_timeout`, which would make the tasks, and repeats nothing.
        retry: how often a command is sent again after a lost connection or reply.
        reply_timeout: seconds for a command and its reply, a new connection's login included.
    """

    def __init__(
        self, client: Any, make_connection: Callable[[], Any], retry: Retry, reply_timeout: float
    ) -> None:
        self._client = client
        self._make_connection = make_connection
        self._retry = retry
        self._reply_timeout = reply_timeout
        self._idle: list[Any] = []
        self._closed = False

    async def execute_command(self, *command: str | bytes | int) -> Any:
        """Send it and give the reply. Raises redis-py's errors."""
        connection = self._idle.pop() if self._idle else self._make_connection()
        try:
            ask = partial(self._ask, connection, command)
            return await self._retry.call_with_retry(ask, partial(_disconnect, connection))
        finally:
            # after an error that is not the server's answer it is disconnected, and connects when it is used again
            if self._closed:
                await connection.disconnect()
            else:
                self._idle.append(connection)

    def pipeline(self, *, transaction: bool) -> Any:
        return self._client.pipeline(transaction=transaction)

    async def aclose(self) -> None:
        self._closed = True
        idle, self._idle = self._idle, []
        for connection in idle:
            await connection.disconnect()
        await self._client.aclose()

    async def _ask(self, connection: Any, command: tuple[str | bytes | int, ...]) -> Any:
        try:
            async with asyncio.timeout(self._reply_timeout):
                await connection.send_packed_command(connection.pack_command(*command))
                return await self._client.parse_response(connection, command[0])
        except TimeoutError as error:
            raise RedisTimeoutError("no reply in time") from error
        except RuntimeError as error:
            if is_closed_socket(error):
                raise RedisConnectionError("the connection was reset") from error
            raise


async def _disconnect(connection: Any, _error: Exception) -> None:
    await connection.disconnect()
