"""Calls of Redis: scripts by digest, limits on connections and time, errors as StoreErrors."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

import anyio
from redis.exceptions import NoScriptError

from passback.core.errors import StoreError, StoreUnavailable
from passback.core.values import value
from passback.stores.redis.errors import REDIS_ERRORS, is_closed_socket, store_error
from passback.stores.redis.scripts import Script
from passback.stores.redis.servers import (
    Argument,
    Client,
    Reply,
    Servers,
    Subscriber,
    open_listener,
    open_servers,
)
from passback.stores.redis.url import RedisTarget

CLOSE_TIMEOUT = 1.0  # seconds

A = TypeVar("A")
T = TypeVar("T")


@value
class ScriptCall:
    """One call of a script; all its keys are of one conversation."""

    script: Script
    keys: Sequence[str]
    arguments: Sequence[Argument]

    def command(self, *, with_text: bool = False) -> tuple[Argument, ...]:
        how = ("EVAL", self.script.text) if with_text else ("EVALSHA", self.script.digest)
        return (*how, len(self.keys), *self.keys, *self.arguments)


class RedisLink:
    """Scripts and commands on the servers; all raise the StoreErrors of `errors.store_error`.

    Connecting is lazy: the first operation fails if a server is away. A closed link can be opened
    again.
    """

    def __init__(self, target: RedisTarget, max_connections: int, patience: float) -> None:
        self._target = target
        self._max_connections = max_connections
        self._patience = patience
        self._free_connections = asyncio.Semaphore(max_connections)
        self._servers: Servers | None = None

    def open(self) -> None:
        self._servers = open_servers(self._target, self._max_connections, self._patience)

    async def aclose(self) -> None:
        servers, self._servers = self._servers, None
        if servers is not None:
            await servers.aclose()

    async def run(self, call: ScriptCall, /, *, patience: float | None = None) -> Reply:
        """Run one script; `patience` in seconds, if it is less than the link's own."""
        return await self._run_guarded(_run_script, call, patience)

    async def run_all(self, calls: Sequence[ScriptCall], /) -> list[Reply | StoreError]:
        """Run scripts of many conversations in one round trip.

        A script that fails has its error as its answer.

        Raises:
            StoreError: the servers cannot be reached, or refuse the user.
        """
        if self._target.topology != "cluster":
            if len(calls) == 1:
                return [await self._run_single(calls[0])]
            return await self._run_guarded(_run_pipeline, calls)
        half = self._patience / 2
        try:
            return await self._run_guarded(_run_pipeline, calls, half)
        except StoreUnavailable:
            # a part of the cluster may be away: redis-py then fails the pipeline as a whole, so run
            # each script alone in the other half of the time
            return await asyncio.gather(*(self._run_or_error(call, half) for call in calls))

    async def _run_single(self, call: ScriptCall) -> Reply | StoreError:
        """Run one script as `run_all` does, without a pipeline: that costs four times as much."""
        try:
            return await self.run(call)
        except StoreUnavailable:
            raise
        except StoreError as error:
            return error

    async def _run_or_error(self, call: ScriptCall, patience: float) -> Reply | StoreError:
        try:
            return await self.run(call, patience=patience)
        except StoreError as error:
            return error

    async def command(self, *command: Argument) -> Reply:
        """Run one command on the server that has its key."""
        return await self._run_guarded(_run_command, command)

    async def on_each_server(self, *command: Argument) -> list[Reply]:
        """Run one command on every server that takes writes."""
        return await self._run_guarded(_run_on_each, command)

    async def _run_guarded(
        self,
        work: Callable[[Servers, A, float], Awaitable[T]],
        request: A,
        patience: float | None = None,
    ) -> T:
        """Do work within `patience` seconds; `work` gets the deadline. Raises StoreErrors."""
        servers = self._servers
        if servers is None:
            raise StoreUnavailable("the store is closed")
        until = asyncio.get_running_loop().time() + (patience or self._patience)
        try:
            if servers.patient:
                return await work(servers, request, until)
            # asyncio's, because anyio's scope and limiter cost as much as the rest of a call
            async with asyncio.timeout_at(until), self._free_connections:
                return await work(servers, request, until)
        except REDIS_ERRORS as error:
            raise store_error(error) from error
        except OSError as error:
            raise StoreUnavailable("Redis does not answer in time", retry_after=1) from error
        except RuntimeError as error:
            if not is_closed_socket(error):
                raise
            raise StoreUnavailable("Redis has closed the connection", retry_after=1) from error

    @asynccontextmanager
    async def listening(self) -> AsyncGenerator[Subscriber]:
        """Open a connection for messages that are published.

        Raises:
            StoreUnavailable: no server is found, on entering.
        """
        address = await self._run_guarded(_find_address, None)
        client, subscriber = open_listener(self._target, address)
        try:
            yield subscriber
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(CLOSE_TIMEOUT):
                await subscriber.aclose()
                await client.aclose()


async def _run_script(servers: Servers, call: ScriptCall, until: float) -> Reply:
    try:
        return await servers.client.execute_command(*call.command())
    except NoScriptError:
        async with asyncio.timeout_at(until):  # both attempts share one timeout
            return await servers.client.execute_command(*call.command(with_text=True))


async def _run_command(servers: Servers, command: tuple[Argument, ...], _until: float) -> Reply:
    return await servers.client.execute_command(*command)


async def _run_on_each(
    servers: Servers, command: tuple[Argument, ...], _until: float
) -> list[Reply]:
    return [await server.execute_command(*command) for server in await servers.primaries()]


async def _find_address(servers: Servers, _asked: None, _until: float) -> tuple[str, int]:
    return await servers.address()


async def _run_pipeline(
    servers: Servers, calls: Sequence[ScriptCall], until: float
) -> list[Reply | StoreError]:
    replies = await _send_pipeline(servers.client, [call.command() for call in calls])
    unknown = [i for i, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
    again = [calls[i].command(with_text=True) for i in unknown]
    async with asyncio.timeout_at(until):  # both attempts share one timeout
        for i, reply in zip(unknown, await _send_pipeline(servers.client, again), strict=True):
            replies[i] = reply
    return [store_error(r) if isinstance(r, Exception) else r for r in replies]


async def _send_pipeline(client: Client, commands: Sequence[tuple[Argument, ...]]) -> list[Reply]:
    if not commands:
        return []
    pipeline = client.pipeline(transaction=False)
    for command in commands:
        pipeline.execute_command(*command)
    return await pipeline.execute(raise_on_error=False)
