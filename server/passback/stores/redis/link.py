"""The way to Redis: scripts by their digest, a bound on connections and on waiting, errors of our own tree."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
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

CLOSE_TIMEOUT = 1.0

T = TypeVar("T")


@value
class Call:
    """One call of a script; all its keys are of one conversation."""

    script: Script
    keys: Sequence[str]
    arguments: Sequence[Argument]

    def command(self, *, with_text: bool = False) -> tuple[Argument, ...]:
        how = ("EVAL", self.script.text) if with_text else ("EVALSHA", self.script.digest)
        return (*how, len(self.keys), *self.keys, *self.arguments)


class RedisLink:
    """Runs scripts and commands; all of them raise the StoreErrors that `errors` tells apart.

    Connecting is lazy: a server that is away is met by the first operation. Closing, and opening again, is allowed.
    """

    def __init__(self, target: RedisTarget, max_connections: int, patience: float) -> None:
        self._target = target
        self._max_connections = max_connections
        self._patience = patience
        self._places = asyncio.Semaphore(max_connections)
        self._servers: Servers | None = None

    def open(self) -> None:
        self._servers = open_servers(self._target, self._max_connections)

    async def aclose(self) -> None:
        servers, self._servers = self._servers, None
        if servers is not None:
            await servers.aclose()

    async def run(self, call: Call, /, *, patience: float | None = None) -> Reply:
        """Run one script; `patience` in seconds, if it is not the link's own."""

        async def work(servers: Servers) -> Reply:
            try:
                return await servers.client.execute_command(*call.command())
            except NoScriptError:
                return await servers.client.execute_command(*call.command(with_text=True))

        return await self._guarded(work, patience)

    async def run_all(self, calls: Sequence[Call], /) -> list[Reply | StoreError]:
        """Run scripts of many conversations in one round trip; one that fails has its error as its answer.

        Raises:
            StoreError: the servers cannot be asked.
        """
        if self._target.topology != "cluster":
            if len(calls) == 1:
                return [await self._alone(calls[0])]
            return await self._guarded(partial(_pipelined, calls))
        half = self._patience / 2
        try:
            return await self._guarded(partial(_pipelined, calls), half)
        except StoreUnavailable:
            # a part of the cluster may be away, and redis-py gives up a pipeline as a whole
            return await asyncio.gather(*(self._answer(call, half) for call in calls))

    async def _alone(self, call: Call) -> Reply | StoreError:
        """As `run_all`, but without a pipeline, which costs four times as much."""
        try:
            return await self.run(call)
        except StoreUnavailable:
            raise
        except StoreError as error:
            return error

    async def _answer(self, call: Call, patience: float) -> Reply | StoreError:
        try:
            return await self.run(call, patience=patience)
        except StoreError as error:
            return error

    async def command(self, *command: Argument) -> Reply:
        """Run one command, whose key says which server it is for."""

        async def work(servers: Servers) -> Reply:
            return await servers.client.execute_command(*command)

        return await self._guarded(work)

    async def on_each_server(self, *command: Argument) -> list[Reply]:
        """Run one command on every server that takes writes."""

        async def work(servers: Servers) -> list[Reply]:
            return [await server.execute_command(*command) for server in await servers.primaries()]

        return await self._guarded(work)

    async def _guarded(
        self, work: Callable[[Servers], Awaitable[T]], patience: float | None = None
    ) -> T:
        if self._servers is None:
            raise StoreUnavailable("the store is closed")
        try:
            # asyncio's own, because anyio's scope and limiter cost as much as the rest of a call
            async with asyncio.timeout(patience or self._patience), self._places:
                return await work(self._servers)
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
        """A connection of its own that hears what is published.

        Raises:
            StoreUnavailable: on entering: no server is found.
        """
        address = await self._guarded(lambda servers: servers.address())
        client, subscriber = open_listener(self._target, address)
        try:
            yield subscriber
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(CLOSE_TIMEOUT):
                await subscriber.aclose()
                await client.aclose()


async def _pipelined(calls: Sequence[Call], servers: Servers) -> list[Reply | StoreError]:
    replies = await _sent(servers.client, [call.command() for call in calls])
    unknown = [i for i, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
    again = [calls[i].command(with_text=True) for i in unknown]
    for i, reply in zip(unknown, await _sent(servers.client, again), strict=True):
        replies[i] = reply
    return [store_error(r) if isinstance(r, Exception) else r for r in replies]


async def _sent(client: Client, commands: Sequence[tuple[Argument, ...]]) -> list[Reply]:
    if not commands:
        return []
    pipeline = client.pipeline(transaction=False)
    for command in commands:
        pipeline.execute_command(*command)
    return await pipeline.execute(raise_on_error=False)
