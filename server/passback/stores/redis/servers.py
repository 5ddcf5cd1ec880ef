"""Clients of redis-py for a single server, Sentinel and a Cluster.

They run each command once: what is repeated, and for how long, is for `link.py` to say. The
annotations of redis-py are partial: the Protocols here name the methods that are used.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from copy import copy
from typing import Any, Protocol, TypeAlias

import hiredis
from redis.asyncio import Redis
from redis.asyncio.cluster import ClusterNode, RedisCluster
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff
from typing_extensions import override

from passback.stores.redis.url import RedisTarget, Topology

CONNECT_TIMEOUT = 2.0  # seconds
REPLY_TIMEOUT = 5.0  # seconds, where redis-py itself has to notice that no reply comes
HEALTH_CHECK = 30  # seconds without traffic after which a connection is tried before it is used

_packer: Any = hiredis
_pack: Callable[[tuple[Any, ...]], bytes] = _packer.pack_command

Argument: TypeAlias = str | bytes | int
Reply: TypeAlias = Any  # a script's reply has no static type; its caller unpacks it


class Pipeline(Protocol):
    def execute_command(self, *command: Argument) -> object: ...
    def execute(self, *, raise_on_error: bool) -> Awaitable[list[Reply]]: ...


class Server(Protocol):
    def execute_command(self, *command: Argument) -> Awaitable[Reply]: ...


class Client(Server, Protocol):
    def pipeline(self, *, transaction: bool) -> Pipeline: ...
    async def aclose(self) -> None: ...


class Subscriber(Protocol):
    """A connection that listens; its errors are raised, not retried."""

    async def subscribe(self, *channels: str) -> None: ...
    async def unsubscribe(self, *channels: str) -> None: ...
    # redis-py's own parameter
    async def get_message(
        self,
        *,
        timeout: float,  # noqa: ASYNC109
    ) -> Mapping[str, Any] | None: ...
    async def aclose(self) -> None: ...


class PooledServer:
    """One server that takes writes, and redis-py's pool of connections to it.

    Scripts run on connections that are kept out of the pool between two of them: to fetch one for
    each costs as much as all the rest of a command, and redis-py packs commands in Python.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self._pool = client.connection_pool
        self._kept: list[Any] = []

    async def run(self, command: tuple[Argument, ...], /) -> Reply:
        """Run a script and return its reply as it comes."""
        connection = self._kept.pop() if self._kept else await self._pool.get_connection()
        try:
            # the pool's own check, which takes 9,000 instructions more where all is well
            if not connection.is_connected or await connection.can_read():
                await self._pool.ensure_connection(connection)
            await connection.send_packed_command(_pack(command))
            return await connection.read_response()
        finally:
            self._kept.append(connection)  # the one that was used last is the first to be used

    async def client(self) -> Client:
        """Return a client that sends a command to the server that has its keys."""
        if self._kept:  # or the pool, which counts these, may be empty
            await self._pool.release(self._kept.pop())
        client: Client = self._client
        return client

    async def primaries(self) -> Sequence[Server]:
        """Return all servers that take writes."""
        return [await self.client()]

    async def aclose(self) -> None:
        await self._client.aclose()


class SingleServer(PooledServer):
    def __init__(self, target: RedisTarget, max_connections: int) -> None:
        (self._address,) = target.nodes
        super().__init__(_make_redis(*self._address, _pool_settings(target, max_connections)))

    async def address(self) -> tuple[str, int]:
        """Return the address of a server that gets published messages."""
        return self._address


class _Sentinels(Sentinel):
    """A Sentinel whose lookups may run at the same time.

    redis-py's moves the sentinel that answers to the front of a shared list: one of several callers
    overwrites what another has moved.
    """

    @override
    async def discover_master(self, service_name: str) -> tuple[str, int]:
        looking = copy(self)
        looking.sentinels = list(self.sentinels)
        discover: Any = super(_Sentinels, looking).discover_master
        found: tuple[str, int] = await discover(service_name)
        self.sentinels = looking.sentinels
        return found


class SentinelServers(PooledServer):
    def __init__(self, target: RedisTarget, max_connections: int) -> None:
        without_login = {**_settings(target, REPLY_TIMEOUT), "username": None, "password": None}
        make: Any = _Sentinels
        self._service = target.service
        self._sentinel = make(target.nodes, sentinel_kwargs=without_login)
        settings = _pool_settings(target, max_connections)
        super().__init__(self._sentinel.master_for(target.service, **settings))

    async def address(self) -> tuple[str, int]:
        host, port = await self._sentinel.discover_master(self._service)
        return host, port

    @override
    async def aclose(self) -> None:
        await super().aclose()
        for sentinel in self._sentinel.sentinels:
            await sentinel.aclose()


class ClusterServers:
    def __init__(self, target: RedisTarget, max_connections: int) -> None:
        make: Any = RedisCluster
        self._client = make(
            startup_nodes=[ClusterNode(host, port) for host, port in target.nodes],
            max_connections=max_connections,
            # after a reply that does not come, the client looks for who is in that node's place
            **_settings(target, REPLY_TIMEOUT),
        )

    async def run(self, command: tuple[Argument, ...], /) -> Reply:
        return await self._client.execute_command(*command)

    async def client(self) -> Client:
        client: Client = self._client
        return client

    async def primaries(self) -> Sequence[Server]:
        await self._client.initialize()
        nodes: list[Server] = self._client.get_primaries()
        return nodes

    async def address(self) -> tuple[str, int]:
        await self._client.initialize()
        node = self._client.get_default_node()
        return node.host, int(node.port)

    async def aclose(self) -> None:
        await self._client.aclose()
        # that leaves connections open when the client was about to look for its nodes anew
        await self._client.nodes_manager.aclose()
        await self._client.nodes_manager.aclose("startup_nodes")


Servers: TypeAlias = SingleServer | SentinelServers | ClusterServers
_KINDS: Mapping[Topology, Callable[[RedisTarget, int], Servers]] = {
    "single": SingleServer,
    "sentinel": SentinelServers,
    "cluster": ClusterServers,
}


def open_servers(target: RedisTarget, max_connections: int, /) -> Servers:
    """Return clients that connect on first use.

    A client has no more than `max_connections` to a server, and raises an error when all are busy.
    """
    return _KINDS[target.topology](target, max_connections)


def open_listener(target: RedisTarget, address: tuple[str, int], /) -> tuple[Client, Subscriber]:
    """Return a client with one connection, and its subscriber; close both."""
    client = _make_redis(*address, _settings(target, REPLY_TIMEOUT))
    return client, client.pubsub()


def _make_redis(host: str, port: int, settings: Mapping[str, Any]) -> Any:
    make: Any = Redis
    return make(host=host, port=port, **settings)


def _pool_settings(target: RedisTarget, max_connections: int) -> dict[str, Any]:
    """Return the settings of connections whose replies `link.py` waits for, under its own timer."""
    # without a bound of its own, a try of the connection says no more than the command itself
    others = {"db": target.db, "max_connections": max_connections, "health_check_interval": 0}
    return {**_settings(target, None), **others}


def _settings(target: RedisTarget, reply_timeout: float | None) -> dict[str, Any]:
    """Return the settings of all connections."""
    # complete, because redis-py's defaults differ by constructor and release
    return {
        "username": target.username,
        "password": target.password,
        "protocol": 2,
        "decode_responses": False,
        "retry": Retry(NoBackoff(), 0),
        "socket_connect_timeout": CONNECT_TIMEOUT,
        "socket_timeout": reply_timeout,
        "socket_keepalive": True,
        "health_check_interval": HEALTH_CHECK,
        **({"ssl": True, **target.tls} if target.tls is not None else {}),
    }
