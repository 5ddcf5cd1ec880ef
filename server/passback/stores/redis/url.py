"""Redis URLs: addresses, login and topology of the servers."""

from collections.abc import Mapping
from dataclasses import field
from typing import Literal, TypeAlias
from urllib.parse import parse_qsl, unquote, urlsplit

from passback.core.errors import ConfigurationError
from passback.core.values import value

Topology: TypeAlias = Literal["single", "sentinel", "cluster"]

DEFAULT_PORTS: Mapping[Topology, int] = {"single": 6379, "sentinel": 26379, "cluster": 6379}
TLS_FILES = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")


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
