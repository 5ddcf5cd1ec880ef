"""`passback move` and `passback erase` on a Redis: another layout, eviction, missing messages."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.contract.door.writes import applied, first_write, made, new_key, new_owner
from tests.contract.redis.doors import key_name, open_door
from tests.support.commands import passback
from tests.support.redis_server import RedisServer

from passback.core.changes import dump_message
from passback.core.conversation.head import Head, dump_head
from passback.core.conversation.tree import Tree
from passback.core.messages import MessageId, UserMessage
from passback.stores.sqlite import SqliteStore

pytestmark = [pytest.mark.anyio, pytest.mark.redis]


async def make_old(server: RedisServer) -> str:
    """Make a conversation of another layout; return its owner."""
    owner = new_owner()
    async with open_door(server.url) as store:
        key = await made(store, b"one", owner=owner)
    server.command("HSET", key_name(key, "state"), "layout", "13")
    return owner


async def test_they_are_not_moved_and_not_erased(own_redis: RedisServer, tmp_path: Path) -> None:
    owner, file = await make_old(own_redis), tmp_path / "to.db"
    before = sorted(own_redis.command("KEYS", "*"))
    commands = {
        "FROM_URL": ("move", own_redis.url, f"sqlite:///{file}"),
        "TO_URL": ("move", f"sqlite:///{tmp_path}/from.db", own_redis.url),
        "PASSBACK_STORE": ("erase", "--owner", owner, "--store", own_redis.url),
    }
    async with SqliteStore(tmp_path / "from.db"):
        pass
    for named, command in commands.items():
        ended = passback(*command)
        assert ended.returncode == 2
        assert f"passback: {named}: the conversations in Redis under the prefix" in ended.stderr
        assert "of another version" in ended.stderr
    assert not file.exists()
    assert sorted(own_redis.command("KEYS", "*")) == before


async def test_a_redis_that_may_evict_can_be_left_and_erased(
    own_redis: RedisServer, tmp_path: Path
) -> None:
    owner = new_owner()
    async with open_door(own_redis.url) as store:
        write = replace(first_write(new_key(owner)), head=dump_head(Head()), touches=True)
        await applied(store, write)
    own_redis.command("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    moved = passback("move", own_redis.url, f"sqlite:///{tmp_path}/to.db")
    assert (moved.returncode, moved.stderr) == (0, "")
    assert "equal     1 of 1 " in moved.stdout
    erased = passback("erase", "--owner", owner, "--store", own_redis.url)
    assert (erased.returncode, erased.stderr) == (0, "")
    assert erased.stdout.startswith("deleted 1 conversation of")


@pytest.mark.parametrize("lost", ["all", "first", "last"])
async def test_messages_that_redis_has_lost_are_reported(
    own_redis: RedisServer, tmp_path: Path, lost: str
) -> None:
    messages = [dump_message(UserMessage(MessageId(f"m-{number}"), "text")) for number in range(3)]
    async with open_door(own_redis.url) as store:
        for key in (short := new_key(), new_key()):
            head = dump_head(Head(tree=Tree(len(messages) - 1)))
            await applied(store, replace(first_write(key), head=head, messages=tuple(messages)))
    name = key_name(short, "messages")
    command = {"all": ("DEL", name), "first": ("LPOP", name), "last": ("RPOP", name)}[lost]
    own_redis.command(*command)
    moved = passback("move", own_redis.url, f"sqlite:///{tmp_path}/to.db")
    assert moved.returncode == 1
    assert "equal     1 of 2 in the source; the target has 1 in all" in moved.stdout
    assert "messages of the conversation are missing" in moved.stdout
