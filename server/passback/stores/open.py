"""Opening a store by its URL. A new kind of store is a module and a line in `OPENERS`."""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Final, TypeAlias
from urllib.parse import unquote

from passback.core.conversation.store import Store
from passback.core.errors import ConfigurationError
from passback.stores.memory import MemoryStore
from passback.stores.options import StoreOptions
from passback.stores.sqlite import SqliteStore

_FILE: Final = "sqlite:///"  # the beginning of the location of a store that is one file

Opener: TypeAlias = Callable[[str, StoreOptions], Store]
"""Make a store from the part of a URL behind the scheme and its colon."""


def open_store(url: str, /, *, options: StoreOptions | None = None) -> Store:
    """Return the store of a URL; it connects when it is entered.

    Raises:
        ConfigurationError: with what is wrong with the URL, never with a password in it.
    """
    scheme, colon, rest = url.partition(":")
    opener = OPENERS.get(scheme.lower())
    if not colon or opener is None:
        known = ", ".join(f"{name}:" for name in OPENERS)
        raise ConfigurationError(f"the store's URL has to begin with one of {known}")
    return opener(rest, options or StoreOptions())


def open_filled_store(url: str, /, *, options: StoreOptions | None = None) -> Store:
    """Return the store of a URL for a command on what is in it: one that may be empty is refused.

    Its settings may evict conversations: `Store.check` only warns of that.

    Raises:
        ConfigurationError: as `open_store`; it is in memory, or its file is not there.
    """
    store = open_store(url, options=replace(options or StoreOptions(), allow_eviction=True))
    location = store.location
    if location == "memory:":
        raise ConfigurationError("a store in memory belongs to one process: give another one")
    path = location.removeprefix(_FILE)
    if path != location and not Path(path).exists():  # opening it would make one
        raise ConfigurationError(f"there is no such file: {path}")
    return store


def _open_sqlite(rest: str, options: StoreOptions) -> Store:
    if not rest.startswith("///") or not rest[3:]:
        raise ConfigurationError(
            "the store's URL has to be sqlite:///FILE (relative) or "
            "sqlite:////FOLDER/FILE (absolute)"
        )
    if "%00" in rest or "\0" in rest:
        raise ConfigurationError("the name of a SQLite store's file has no NUL in it")
    if "?" in rest or "#" in rest:
        raise ConfigurationError("the URL of a SQLite store takes no options")
    return SqliteStore(Path(unquote(rest[3:])).expanduser(), options)


def _open_memory(rest: str, options: StoreOptions) -> Store:
    if rest.strip("/"):
        raise ConfigurationError("the URL of the store in memory is memory: and nothing more")
    return MemoryStore(options)


def _redis_opener(topology: str, *, tls: bool = False) -> Opener:
    def open_redis(rest: str, options: StoreOptions) -> Store:
        # by its name when it is needed: the client of Redis takes long to import
        redis = importlib.import_module("passback.stores.redis")
        store: Store = redis.open_redis(topology, rest, options, tls=tls)
        return store

    return open_redis


def _open_postgres(rest: str, options: StoreOptions) -> Store:
    if find_spec("asyncpg") is None:
        raise ConfigurationError(
            "a store in PostgreSQL needs the package asyncpg: "
            "pip install 'passback[postgres]', or in a checkout pip install '.[postgres]'"
        )
    postgres = importlib.import_module("passback.stores.postgres")
    store: Store = postgres.open_postgres(rest, options)
    return store


OPENERS: Mapping[str, Opener] = {
    "sqlite": _open_sqlite,
    "memory": _open_memory,
    "redis": _redis_opener("single"),
    "rediss": _redis_opener("single", tls=True),
    "redis+sentinel": _redis_opener("sentinel"),
    "rediss+sentinel": _redis_opener("sentinel", tls=True),
    "redis+cluster": _redis_opener("cluster"),
    "rediss+cluster": _redis_opener("cluster", tls=True),
    "postgresql": _open_postgres,
    "postgres": _open_postgres,
}
