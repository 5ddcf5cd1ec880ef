"""Calls of Redis: scripts by digest, limits on connections and time, repeats."""

import asyncio
import hashlib
import math
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

import anyio
from redis import exceptions as redis

from passback.core.errors import StoreError, StoreUnavailable
from passback.stores.redis.scripts import ScriptCall
from passback.stores.redis.servers import (
    BROKEN,
    LOST,
    Argument,
    Client,
    RedisTarget,
    Reply,
    Servers,
    Subscriber,
    is_closed_socket,
    open_listener,
    open_servers,
    store_error,
)

ATTEMPT_TIMEOUT = 6.0  # seconds for one attempt, the wait for a connection included
PAUSES = (0.05, 0.1)  # seconds before each repeat, up to twice as long
CLOSE_ALL_TIMEOUT = 5.0  # seconds
CLOSE_TIMEOUT = 1.0  # seconds, for the connection that listens

T = TypeVar("T")

_jitter = random.SystemRandom()


class RedisLink:
    """Scripts and commands on the servers; all raise the StoreErrors of `store_error`.

    What is lost with its connection or gets no reply is repeated: all of it is idempotent.
    Connecting is lazy: the first operation fails if a server is away. A closed link can be opened
    again.

    Args:
        max_connections: operations that run at once; the others wait in the order of their coming.
        timeout: seconds for an operation, with its waiting and all its repeats.
    """

    def __init__(self, target: RedisTarget, max_connections: int, timeout: float) -> None:
        self._target = target
        self._max_connections = max_connections
        self._timeout = timeout
        # one bound for all kinds of servers: no client ever needs more connections than this
        self._free_connections = asyncio.Semaphore(max_connections)
        self._servers: Servers | None = None

    def open(self) -> None:
        self._servers = open_servers(self._target, self._max_connections)

    async def aclose(self) -> None:
        """Close all connections, within a bound even if the task is cancelled."""
        servers, self._servers = self._servers, None
        if servers is not None:
            with anyio.CancelScope(shield=True), anyio.move_on_after(CLOSE_ALL_TIMEOUT):
                await servers.aclose()

    async def run(self, call: ScriptCall, /, *, seconds: float | None = None) -> Reply:
        """Run one script; for `seconds`, if that is less than the link's own."""

        async def run_script(servers: Servers) -> Reply:
            try:
                return await servers.run(call.command())
            except redis.NoScriptError:
                return await servers.run(call.command(with_text=True))

        return await self._run_guarded(run_script, seconds)

    async def run_all(self, calls: Sequence[ScriptCall], /) -> list[Reply | StoreError]:
        """Run scripts of many conversations in one round trip.

        A script that fails has its error as its answer.

        Raises:
            StoreError: the servers cannot be reached, or refuse the user.
        """
        self._open_servers()
        if self._target.topology != "cluster":
            if len(calls) != 1:
                return await self._run_guarded(lambda servers: _run_pipeline(servers, calls))
            try:  # without a pipeline, which costs four times as much
                return [await self.run(calls[0])]
            except StoreUnavailable:
                raise
            except StoreError as error:
                return [error]
        half = self._timeout / 2
        try:
            return await self._run_guarded(lambda servers: _run_pipeline(servers, calls), half)
        except StoreUnavailable:
            # a part of the cluster may be away: redis-py then fails the pipeline as a whole, so run
            # each script alone in the other half of the time
            replies = await asyncio.gather(
                *(self.run(call, seconds=half) for call in calls), return_exceptions=True
            )
            for reply in replies:
                if isinstance(reply, BaseException) and not isinstance(reply, StoreError):
                    raise reply from None
            return replies

    async def command(self, *command: Argument) -> Reply:
        """Run one command on the server that has its key."""

        async def run_command(servers: Servers) -> Reply:
            return await (await servers.client()).execute_command(*command)

        return await self._run_guarded(run_command)

    async def on_each_server(self, *command: Argument) -> list[Reply]:
        """Run one command on every server that takes writes."""

        async def run_on_each(servers: Servers) -> list[Reply]:
            return [await each.execute_command(*command) for each in await servers.primaries()]

        return await self._run_guarded(run_on_each)

    async def scan(
        self, server: str | None, cursor: int, pattern: str, count: int, /
    ) -> tuple[Sequence[bytes], str | None, int]:
        """Look through some of the keys of one server that takes writes.

        Args:
            server: its name, as the call before has returned it; None: the first one.
            cursor: that of the call before; 0 begins.
            pattern: of the keys' names.
            count: of keys to look at, about.

        Returns:
            The keys, and the server and the cursor of the next call; None if there is none.

        Raises:
            StoreError: the server is not there any more.
        """

        async def run_scan(servers: Servers) -> tuple[Sequence[bytes], str | None, int]:
            named = {_server_tag(each): each for each in await servers.primaries()}
            names = sorted(named)
            name = names[0] if server is None else server
            if name not in named:
                raise StoreError("the servers have changed while their keys were read: begin again")
            command = ("SCAN", cursor, "MATCH", pattern, "COUNT", count)
            reply = await named[name].execute_command(*command)
            following, keys = int(reply[0]), reply[1]
            if following:
                return keys, name, following
            later = names[names.index(name) + 1 :]
            return keys, later[0] if later else None, 0

        return await self._run_guarded(run_scan)

    def _open_servers(self) -> Servers:
        if self._servers is None:
            raise StoreUnavailable("the store is closed")
        return self._servers

    async def _run_guarded(
        self, work: Callable[[Servers], Awaitable[T]], seconds: float | None = None
    ) -> T:
        """Do work, and repeat it if it is lost, within `seconds`. Raises StoreErrors."""
        servers = self._open_servers()
        now = asyncio.get_running_loop().time
        until = now() + (seconds or self._timeout)
        pauses = iter(PAUSES)
        while True:
            pause = next(pauses, None)
            end = until if pause is None else min(until, now() + ATTEMPT_TIMEOUT)
            try:
                # asyncio's, because anyio's scope and limiter cost as much as the rest of a call
                async with asyncio.timeout_at(end), self._free_connections:
                    return await work(servers)
            except BROKEN as error:
                if isinstance(error, RuntimeError) and not is_closed_socket(error):
                    raise
                wait = math.inf if pause is None else _jitter.uniform(pause, 2 * pause)
                # a refused login is a ConnectionError for redis-py
                is_refused = isinstance(error, redis.AuthenticationError)
                is_lost = isinstance(error, LOST) and not is_refused
                if not is_lost or now() + wait >= until:
                    raise store_error(error) from error
            await asyncio.sleep(wait)

    @asynccontextmanager
    async def listening(self) -> AsyncGenerator[Subscriber]:
        """Open a connection for messages that are published.

        Raises:
            StoreUnavailable: no server is found, on entering.
        """
        address = await self._run_guarded(lambda servers: servers.address())
        client, subscriber = open_listener(self._target, address)
        try:
            yield subscriber
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(CLOSE_TIMEOUT):
                await subscriber.aclose()
                await client.aclose()


def _server_tag(server: object) -> str:
    """Return the name of a server, in 32 hex digits: a node of a cluster has an address."""
    name = str(getattr(server, "name", ""))
    return hashlib.sha256(name.encode()).hexdigest()[:32]


async def _run_pipeline(servers: Servers, calls: Sequence[ScriptCall]) -> list[Reply | StoreError]:
    client = await servers.client()
    replies = await _send_pipeline(client, [call.command() for call in calls])
    unknown = [i for i, reply in enumerate(replies) if isinstance(reply, redis.NoScriptError)]
    again = [calls[i].command(with_text=True) for i in unknown]
    for i, reply in zip(unknown, await _send_pipeline(client, again), strict=True):
        replies[i] = reply
    return [store_error(r) if isinstance(r, Exception) else r for r in replies]


async def _send_pipeline(client: Client, commands: Sequence[tuple[Argument, ...]]) -> list[Reply]:
    if not commands:
        return []
    pipeline = client.pipeline(transaction=False)
    for command in commands:
        pipeline.execute_command(*command)
    return await pipeline.execute(raise_on_error=False)
