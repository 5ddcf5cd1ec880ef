"""Clients for a single Redis server, Sentinel and a Cluster, behind one Protocol.

The annotations of redis-py are partial: the Protocols here name the methods that are used.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from copy import copy
from functools import partial
from typing import Any, Protocol, TypeAlias

import hiredis
from redis.asyncio import Connection, ConnectionPool, Redis, SSLConnection
from redis.asyncio.cluster import ClusterNode, RedisCluster
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import ExponentialWithJitterBackoff, NoBackoff
from typing_extensions import override

from passback.stores.redis.connection import Address
from passback.stores.redis.direct import DirectClient
from passback.stores.redis.url import RedisTarget, Topology

CONNECT_TIMEOUT = 2.0  # seconds
REPLY_TIMEOUT = 6.0  # seconds
REPEATS = 2  # after a lost connection or reply; all commands are idempotent
HEALTH_CHECK = 30  # seconds without traffic after which a connection is tried before it is used

Argument: TypeAlias = str | bytes | int
Reply: TypeAlias = Any  # a script's reply has no static type; its caller unpacks it


class Pipeline(Protocol):
    def execute_command(self, *command: Argument) -> object: ...
    def execute(self, *, raise_on_error: bool) -> Awaitable[list[Reply]]: ...


class Server(Protocol):
    def execute_command(self, *command: Argument) -> Awaitable[Reply]: ...


class Client(Server, Protocol):
    def pipeline(self, *, transaction: bool) -> Pipeline: ...


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


class Servers(Protocol):
    @property
    def patient(self) -> bool:
        """Whether the client itself limits its time and its connections."""
        ...

    @property
    def client(self) -> Client:
        """The client, which sends a command to the server that has its keys."""
        ...

    async def primaries(self) -> Sequence[Server]:
        """Return all servers that take writes."""
        ...

    async def address(self) -> tuple[str, int]:
        """Return the address of a server that gets published messages."""
        ...

    async def aclose(self) -> None: ...


class SingleServer:
    patient = True

    def __init__(self, target: RedisTarget, max_connections: int, patience: float) -> None:
        (self._address,) = target.nodes
        # redis-py's clients, which the other kinds use, parse some replies
        readings = _make_redis(*target.nodes[0], _quick_settings(target)).response_callbacks
        self.client = DirectClient(
            partial(_single_address, target, min(REPLY_TIMEOUT, patience)),
            readings,
            repeats=REPEATS,
            max_connections=max_connections,
            patience=patience,
        )

    async def primaries(self) -> Sequence[Server]:
        return [self.client]

    async def address(self) -> tuple[str, int]:
        return self._address

    async def aclose(self) -> None:
        await self.client.aclose()


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


class SentinelServers:
    patient = False

    def __init__(self, target: RedisTarget, max_connections: int, _patience: float) -> None:
        without_login = {**_quick_settings(target), "username": None, "password": None}
        make: Any = _Sentinels
        self._service = target.service
        self._sentinel = make(target.nodes, sentinel_kwargs=without_login)
        self.client = self._sentinel.master_for(
            target.service, **_busy_settings(target, max_connections)
        )

    async def primaries(self) -> Sequence[Server]:
        return [self.client]

    async def address(self) -> tuple[str, int]:
        host, port = await self._sentinel.discover_master(self._service)
        return host, port

    async def aclose(self) -> None:
        await self.client.aclose()
        for sentinel in self._sentinel.sentinels:
            await sentinel.aclose()


class ClusterServers:
    patient = False

    def __init__(self, target: RedisTarget, max_connections: int, _patience: float) -> None:
        make: Any = RedisCluster
        self.client = make(
            startup_nodes=[ClusterNode(host, port) for host, port in target.nodes],
            **_busy_settings(target, max_connections),
        )

    async def primaries(self) -> Sequence[Server]:
        await self.client.initialize()
        nodes: list[Server] = self.client.get_primaries()
        return nodes

    async def address(self) -> tuple[str, int]:
        await self.client.initialize()
        node = self.client.get_default_node()
        return node.host, int(node.port)

    async def aclose(self) -> None:
        await self.client.aclose()


_KINDS: Mapping[Topology, type[SingleServer] | type[SentinelServers] | type[ClusterServers]] = {
    "single": SingleServer,
    "sentinel": SentinelServers,
    "cluster": ClusterServers,
}


def open_servers(target: RedisTarget, max_connections: int, patience: float, /) -> Servers:
    """Return clients that connect on first use; `patience`: seconds for an operation."""
    return _KINDS[target.topology](target, max_connections, patience)


def open_listener(target: RedisTarget, address: tuple[str, int], /) -> tuple[Any, Subscriber]:
    """Return a client with one connection, and its subscriber; close both."""
    client = _make_redis(*address, _quick_settings(target))
    return client, client.pubsub()


_packer: Any = hiredis
_pack: Callable[[tuple[Any, ...]], bytes] = _packer.pack_command


class _PackedInC:
    """Pack commands with hiredis: redis-py packs in Python, which is a third of a call's cost."""

    def pack_command(self, *command: Any) -> list[bytes]:
        words = command[0].split()  # redis-py's own "CONFIG GET" is two
        return [_pack((*words, *command[1:]))]


class _Connection(_PackedInC, Connection):
    pass


class _TlsConnection(_PackedInC, SSLConnection):
    pass


def _single_address(target: RedisTarget, patience: float) -> Address:
    """Return the address of a single server."""
    host, port = target.nodes[0]
    kind: Any = SSLConnection
    # redis-py makes the TLS context of the settings
    made = None if target.tls is None else kind(**target.tls)
    return Address(
        host,
        port,
        target.db,
        target.username,
        target.password,
        made and made.ssl_context.get(),
        CONNECT_TIMEOUT,
        patience,
    )


def _make_redis(host: str, port: int, settings: Mapping[str, Any]) -> Any:
    plain = {name: value for name, value in settings.items() if name != "ssl"}
    kind = _TlsConnection if "ssl" in settings else _Connection
    make: Any = ConnectionPool
    return Redis.from_pool(make(connection_class=kind, host=host, port=port, **plain))


def _busy_settings(target: RedisTarget, max_connections: int) -> dict[str, Any]:
    return {
        **_common_settings(target),
        "db": target.db,
        "max_connections": max_connections,
        "retry": Retry(ExponentialWithJitterBackoff(base=0.05, cap=0.5), REPEATS),
    }


def _quick_settings(target: RedisTarget) -> dict[str, Any]:
    """Return settings without retries, for a connection whose user handles errors."""
    return {**_common_settings(target), "retry": Retry(NoBackoff(), 0)}


def _common_settings(target: RedisTarget) -> dict[str, Any]:
    """Return the settings of all connections."""
    # complete, because redis-py's defaults differ by constructor and release
    return {
        "username": target.username,
        "password": target.password,
        "protocol": 2,
        "decode_responses": False,
        "socket_connect_timeout": CONNECT_TIMEOUT,
        "socket_timeout": REPLY_TIMEOUT,
        "socket_keepalive": True,
        "health_check_interval": HEALTH_CHECK,
        **({"ssl": True, **target.tls} if target.tls is not None else {}),
    }
