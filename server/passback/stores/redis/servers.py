"""Redis servers: their URLs, the clients of redis-py for each topology, and the errors of these.

The clients run each command once: what is repeated, and for how long, is for `link.py` to say. The
annotations of redis-py are partial: the Protocols here name the methods that are used.
"""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from copy import copy
from dataclasses import field
from typing import Any, Literal, Protocol, TypeAlias
from urllib.parse import parse_qsl, unquote, urlsplit

import hiredis
from redis import exceptions as redis
from redis.asyncio import Redis
from redis.asyncio.cluster import ClusterNode, RedisCluster
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff
from typing_extensions import override

from passback.core.errors import ConfigurationError, StoreError, StoreFull, StoreUnavailable
from passback.core.values import value

Topology: TypeAlias = Literal["single", "sentinel", "cluster"]

DEFAULT_PORTS: Mapping[Topology, int] = {"single": 6379, "sentinel": 26379, "cluster": 6379}
TLS_FILES = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
CONNECT_TIMEOUT = 2.0  # seconds
REPLY_TIMEOUT = 5.0  # seconds, where redis-py itself has to notice that no reply comes
HEALTH_CHECK = 30  # seconds without traffic after which a connection is tried before it is used


@value
class RedisTarget:
    """The target of connections. `tls` names files for encryption; None: not encrypted."""

    topology: Topology
    nodes: tuple[tuple[str, int], ...]
    service: str = ""
    db: int = 0
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: Mapping[str, str] | None = None

    @property
    def location(self) -> str:
        """The URL without user, password and options."""
        scheme = "redis" if self.tls is None else "rediss"
        hosts = ",".join(f"[{h}]:{p}" if ":" in h else f"{h}:{p}" for h, p in self.nodes)
        match self.topology:
            case "single":
                return f"{scheme}://{hosts}/{self.db}"
            case "sentinel":
                return f"{scheme}+sentinel://{hosts}/{self.service}?db={self.db}"
            case "cluster":
                return f"{scheme}+cluster://{hosts}"


def parse_redis_url(topology: Topology, rest: str, /, *, tls: bool) -> RedisTarget:
    """Read the part of a URL behind its scheme and colon.

    Raises:
        ConfigurationError: the URL is wrong; the text never has the password.
    """
    if not rest.startswith("//"):
        raise ConfigurationError("a Redis URL has // behind its scheme")
    try:
        parts = urlsplit(rest)
    except ValueError:
        raise ConfigurationError("the host in the Redis URL cannot be read") from None
    # a / ? or # in a password ends the part with the login, and leaves its @ behind
    if "@" in parts.path + parts.query + parts.fragment:
        raise ConfigurationError(
            "user and password in the Redis URL have to be percent-encoded "
            "(/ is %2F, ? is %3F, # is %23)"
        )
    login, _, hosts = parts.netloc.rpartition("@")
    username, colon, password = login.partition(":")
    options = _parse_options(parts.query, tls=tls)
    path = unquote(parts.path.strip("/"))
    service, db = _parse_path(topology, path, options.pop("db", None))
    return RedisTarget(
        topology,
        _parse_nodes(hosts, topology),
        service=service,
        db=db,
        # an empty user is Redis's default one, an empty password is a password
        username=unquote(username) or None,
        password=unquote(password) if colon else None,
        tls=options if tls else None,
    )


def _parse_nodes(hosts: str, topology: Topology) -> tuple[tuple[str, int], ...]:
    nodes: list[tuple[str, int]] = []
    for host in filter(None, hosts.split(",")):
        try:
            parts = urlsplit(f"//{host}")
            port = parts.port
        except ValueError:
            raise ConfigurationError(
                "a port in the Redis URL is not a number below 65536"
            ) from None
        if not parts.hostname:
            raise ConfigurationError("a host in the Redis URL is empty")
        nodes.append((parts.hostname, DEFAULT_PORTS[topology] if port is None else port))
    if not nodes:
        raise ConfigurationError("the Redis URL names no host")
    if topology == "single" and len(nodes) > 1:
        raise ConfigurationError(
            "several hosts need redis+sentinel:// or redis+cluster:// in the Redis URL"
        )
    return tuple(nodes)


def _parse_path(topology: Topology, path: str, option: str | None) -> tuple[str, int]:
    """Return the sentinel's service and the number of the database."""
    # the path of a Sentinel's URL is the service, so that the database has to be an option
    if topology == "sentinel":
        if not path or "/" in path:
            raise ConfigurationError("a Redis Sentinel URL ends with /NAME, the service's name")
        return path, _parse_db(option or "0")
    if path and option is not None:
        raise ConfigurationError("the Redis URL names its database twice")
    db = _parse_db(path or option or "0")
    if topology == "cluster" and db:
        raise ConfigurationError("a Redis Cluster has database 0 only")
    return "", db


def _parse_db(text: str) -> int:
    # int() takes signs, spaces and digits of other scripts, too
    if not (text.isascii() and text.isdigit() and len(text) < 6):
        raise ConfigurationError("the database in the Redis URL is not a number")
    return int(text)


def _parse_options(query: str, *, tls: bool) -> dict[str, str]:
    options = dict(parse_qsl(query, keep_blank_values=True))
    unknown = sorted(options.keys() - {"db", *TLS_FILES})
    if unknown:
        raise ConfigurationError(f"the Redis URL has an unknown option: {unknown[0]}")
    files = sorted(options.keys() & set(TLS_FILES))
    if files and not tls:
        raise ConfigurationError(f"{files[0]} in the Redis URL needs rediss:// (TLS)")
    return options


# ---------------------------------------------------------------- clients
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


# ---------------------------------------------------------------- errors
# uvloop has no other error for a closed socket than RuntimeError
BROKEN = (redis.RedisError, redis.RedisClusterException, OSError, RuntimeError)
# what may have been done, or not, and what another server of a cluster may do
LOST = (
    redis.ConnectionError,
    redis.TimeoutError,
    redis.ClusterDownError,
    redis.SlotNotCoveredError,
    OSError,
    RuntimeError,
)

_DAMAGED = StoreError, "the conversation's keys in Redis are damaged"
_OTHER_LAYOUT = (
    "the conversation in Redis is of another version of passback: use the passback that wrote it, "
    "another prefix, or another database"
)
_LAYOUT = StoreError, _OTHER_LAYOUT
_FULL = StoreFull, "Redis has no memory left"
_REFUSED = StoreError, "Redis refuses the user, the password or the command"
_UNAVAILABLE = StoreUnavailable, "Redis cannot be reached, or takes no writes now"

# redis-py has classes for some codes, and takes the code out of their text.
_BY_CLASS: Mapping[type[Exception], tuple[type[StoreError], str]] = {
    redis.AuthenticationError: _REFUSED,
    redis.AuthenticationWrongNumberOfArgsError: _REFUSED,
    redis.AuthorizationError: _REFUSED,
    redis.NoPermissionError: _REFUSED,
    redis.OutOfMemoryError: _FULL,
    redis.ReadOnlyError: _UNAVAILABLE,
    redis.ClusterError: _UNAVAILABLE,
    redis.RedisClusterException: _UNAVAILABLE,
    redis.TryAgainError: _UNAVAILABLE,
    redis.AskError: _UNAVAILABLE,
    redis.ConnectionError: _UNAVAILABLE,
    redis.TimeoutError: _UNAVAILABLE,
    RuntimeError: _UNAVAILABLE,
}
_BY_CODE: Mapping[str, tuple[type[StoreError], str]] = {
    **dict.fromkeys(("NOAUTH", "WRONGPASS", "NOPERM"), _REFUSED),
    **dict.fromkeys(("WRONGTYPE", "PBDAMAGED"), _DAMAGED),
    **dict.fromkeys(("BUSY", "MISCONF", "NOREPLICAS", "READONLY", "LOADING"), _UNAVAILABLE),
    **dict.fromkeys(("CLUSTERDOWN", "MASTERDOWN", "TRYAGAIN"), _UNAVAILABLE),
    "PBLAYOUT": _LAYOUT,
    "OOM": _FULL,
}
# Redis 6.2 wraps an error inside a script: "Error running script ...: -READONLY ...".
_CODE = re.compile(rf"(?:^|[-\s])({'|'.join(_BY_CODE)})\b")


def store_error(error: Exception, /) -> StoreError:
    """Return the error to raise instead of one of `BROKEN`.

    Its text is not Redis's: that one may quote a record.
    """
    if isinstance(error, OSError):
        return StoreUnavailable("Redis does not answer in time", retry_after=1)
    for kind, (made, message) in _BY_CLASS.items():
        if isinstance(error, kind):
            return made(message, retry_after=1 if made is StoreUnavailable else None)
    found = _CODE.search(str(error))
    if found is None:
        return StoreError(f"Redis answered with an error ({type(error).__name__})")
    made, message = _BY_CODE[found[1]]
    return made(message, retry_after=1 if made is StoreUnavailable else None)


def is_closed_socket(error: RuntimeError, /) -> bool:
    """Return whether uvloop raised this for a connection that broke while it was used.

    uvloop has no class for it.
    """
    return str(error).endswith("the handler is closed")
