"""The kinds of store that the suite of the door runs on."""

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import pytest
from tests.support.lanes import LANE
from tests.support.redis_server import RedisServer

from passback.core.conversation.store import Store
from passback.core.ids import conversation_tag
from passback.core.messages import ConversationKey
from passback.core.values import value
from passback.stores.memory import MemoryStore
from passback.stores.options import StoreOptions
from passback.stores.postgres import PostgresStore
from passback.stores.redis import open_redis
from passback.stores.redis.servers import Topology
from passback.stores.sqlite import SqliteStore

if TYPE_CHECKING:
    from tests.support.postgres_server import PostgresServer

OpenDoor: TypeAlias = Callable[[StoreOptions], Store]
"""Make a store with these options; it connects when it is entered."""

Damage: TypeAlias = Callable[[pytest.FixtureRequest, ConversationKey], None]
"""Make a conversation that is stored unusable."""


@value
class DoorKind:
    """A kind of store.

    Attributes:
        prepare: clear the data of this kind, and return what opens stores on it.
        opened: the stores of two workers that a module's tests share; none where opening is quick.
        is_shared: several stores have the same data.
        has_hints: indexes are written beside the conversations: places may be too early or too new,
            and those of refused writes are in them.
        damage: None if nothing can come between the store and its data.
        marks: of each test on it.
        nightly: tried in the nightly lane only. The quick lane has the store in memory alone.
    """

    name: str
    prepare: Callable[[pytest.FixtureRequest], OpenDoor]
    opened: Callable[[pytest.FixtureRequest], Sequence[Store]] = lambda _: ()
    is_shared: bool = True
    has_hints: bool = False
    damage: Damage | None = None
    marks: Sequence[pytest.MarkDecorator] = ()
    nightly: bool = False

    @property
    def is_in_lane(self) -> bool:
        if LANE == "quick":
            return self.name == "memory"
        return LANE == "nightly" or not self.nightly


@value
class _Redis:
    """One kind of Redis.

    Attributes:
        server: the fixture that gives the server.
    """

    topology: Topology
    server: str

    def prepare(self, request: pytest.FixtureRequest, /) -> OpenDoor:
        server = self._server(request)
        server.command("FLUSHALL")
        url = server.cluster_url if self.topology == "cluster" else server.url
        return partial(open_redis, self.topology, url.partition(":")[2])

    def damage(self, request: pytest.FixtureRequest, key: ConversationKey, /) -> None:
        name = f"pb:{{{conversation_tag(key)}}}:state"
        self._server(request).command("DEL", name)
        self._server(request).command("SET", name, "foreign")

    def _server(self, request: pytest.FixtureRequest) -> RedisServer:
        server: RedisServer = request.getfixturevalue(self.server)
        return server

    def kind(self, name: str, *, nightly: bool = True) -> DoorKind:
        return DoorKind(
            name,
            self.prepare,
            has_hints=self.topology == "cluster",
            damage=self.damage,
            marks=[pytest.mark.redis],
            nightly=nightly,
        )


def _open_sqlite(request: pytest.FixtureRequest) -> OpenDoor:
    return partial(SqliteStore, request.getfixturevalue("tmp_path") / "conversations.db")


def _damage_sqlite(request: pytest.FixtureRequest, key: ConversationKey) -> None:
    """Make the row and the lease of a conversation unreadable: their texts are not UTF-8."""
    path = request.getfixturevalue("tmp_path") / "conversations.db"
    with closing(sqlite3.connect(path)) as db, db:
        for place in ("conversations SET writes", "leases SET fence"):
            statement = f"UPDATE {place} = CAST(x'ff' AS TEXT) WHERE tag = ?"
            assert db.execute(statement, (conversation_tag(key),)).rowcount == 1


def _prepare_postgres(request: pytest.FixtureRequest) -> OpenDoor:
    request.getfixturevalue("empty_postgres")
    server: PostgresServer = request.getfixturevalue("shared_postgres")
    return partial(PostgresStore, server.url())


def _postgres_stores(request: pytest.FixtureRequest) -> Sequence[Store]:
    stores: Sequence[Store] = request.getfixturevalue("postgres_stores")
    return stores


def _damage_postgres(request: pytest.FixtureRequest, key: ConversationKey) -> None:
    """Write numbers that cannot grow, and a text that is none."""
    server: PostgresServer = request.getfixturevalue("shared_postgres")
    most, tag = 2**63 - 1, conversation_tag(key)
    server.run(
        f"UPDATE pb.conversations SET version = {most}, signal = '\\xff' WHERE tag = '{tag}'",
        f"UPDATE pb.logs SET size = {most} WHERE tag = '{tag}' RETURNING tag",
    )


_ALL = [
    DoorKind("memory", lambda _: MemoryStore, is_shared=False),
    DoorKind("sqlite", _open_sqlite, damage=_damage_sqlite),
    _Redis("single", "shared_redis").kind("redis", nightly=False),
    _Redis("single", "newest_redis").kind("newest"),
    _Redis("cluster", "shared_cluster").kind("cluster"),
    DoorKind(
        "postgres",
        _prepare_postgres,
        opened=_postgres_stores,
        damage=_damage_postgres,
        marks=[pytest.mark.postgres],
    ),
]

KINDS = [kind for kind in _ALL if kind.is_in_lane]
