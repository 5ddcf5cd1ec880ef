"""Moving conversations of which something is damaged: it is reported, and the others go on."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.unit.engine.test_moving import (
    MESSAGES,
    applied,
    first_write,
    key_of,
    listed,
    make_small,
    record,
    two_stores,
)
from typing_extensions import override

from passback.core.changes import Erased
from passback.core.conversation.store import Query, QueryPage, Span, Store, Wanted, Write
from passback.core.errors import StoreError
from passback.core.ids import conversation_tag
from passback.core.messages import ConversationKey
from passback.engine import moving
from passback.engine.erasing import erase_owner
from passback.engine.moving import UNFINISHED, Moved, move_conversations
from passback.stores.memory import MemoryStore

pytestmark = pytest.mark.anyio

BROKEN = key_of("broken")


class ShortStore(MemoryStore):
    """Lacks the last messages of a conversation, once it is told to."""

    lacks = 0

    @override
    async def page(
        self, key: ConversationKey, spans: Sequence[Span], /, *, limit: int
    ) -> Sequence[bytes]:
        if key != BROKEN:
            return await super().page(key, spans, limit=limit)
        end = len(MESSAGES) - self.lacks
        return await super().page(key, [replace(spans[0], end=end)], limit=limit)


class NamelessStore(MemoryStore):
    """The name of a conversation is damaged."""

    @override
    async def query(self, query: Query, /) -> QueryPage:
        page = await super().query(query)
        listed = tuple(each for each in page.listed if each.key != BROKEN)
        unnamed = (conversation_tag(BROKEN),) if len(listed) < len(page.listed) else ()
        return replace(page, listed=listed, unnamed=unnamed)


class FailingTarget(MemoryStore):
    """Deletes nothing."""

    @override
    async def delete(self, key: ConversationKey, /) -> bool:
        raise StoreError("not deleted")


async def make_broken(store: Store, *messages: bytes) -> None:
    """Make a conversation, and another one on each side of it."""
    await make_small(store, "before")
    await applied(store, first_write(BROKEN, messages=messages))
    await make_small(store, "behind")


async def check_reported(source: Store, target: Store) -> Moved:
    moved = await move_conversations(source, target)
    assert (moved.copied, moved.equal, moved.found, moved.target) == (2, 2, 3, 2)
    assert not moved.is_whole
    assert set(await listed(target)) == {"before", "behind"}
    assert (await target.read(BROKEN, Wanted())).version == 0
    return moved


@pytest.mark.parametrize("number", [0, moving.MESSAGES_AT_ONCE + 1, len(MESSAGES) - 1])
@pytest.mark.parametrize("damaged", [b"{broken", b"{}", b"\xff"])
async def test_a_message_that_cannot_be_read_is_reported(number: int, damaged: bytes) -> None:
    async with two_stores() as (source, target):
        messages = [*MESSAGES]
        messages[number] = damaged
        await make_broken(source, *messages)
        moved = await check_reported(source, target)
        [fault] = moved.faults.items()
        assert fault == (BROKEN, "a record of the conversation cannot be read: ValidationError")


async def test_a_head_that_cannot_be_read_leaves_nothing_in_the_target() -> None:
    async with two_stores() as (source, target):
        await make_broken(source, *MESSAGES)
        write = Write(BROKEN, "a", first_write(BROKEN).guard, head=b"{")
        await applied(source, replace(write, guard=replace(write.guard, version=None)))
        await check_reported(source, target)


@pytest.mark.parametrize("lacks", [1, moving.MESSAGES_AT_ONCE, len(MESSAGES)])
async def test_messages_that_are_missing_are_reported(lacks: int) -> None:
    async with two_stores(source=(source := ShortStore())) as (_, target):
        await make_broken(source, *MESSAGES)
        source.lacks = lacks
        moved = await check_reported(source, target)
        assert moved.faults == {BROKEN: "messages of the conversation are missing"}


async def test_messages_that_are_missing_in_both_stores_are_reported() -> None:
    async with two_stores(ShortStore(), ShortStore()) as (source, target):
        assert isinstance(source, ShortStore)
        assert isinstance(target, ShortStore)
        await make_broken(source, *MESSAGES)
        assert (await move_conversations(source, target)).is_whole
        source.lacks = target.lacks = 3
        moved = await move_conversations(source, target)
        assert (moved.equal, list(moved.faults)) == (2, [BROKEN])
        assert (await target.read(BROKEN, Wanted())).message_count == len(MESSAGES)


async def test_the_first_reason_is_told_where_the_half_cannot_be_deleted() -> None:
    async with two_stores(FailingTarget()) as (source, target):
        await make_broken(source, *MESSAGES[:-1], b"{broken")
        moved = await move_conversations(source, target)
        assert "a record of the conversation" in moved.faults[BROKEN]
        assert (await target.read(BROKEN, Wanted())).head == UNFINISHED


async def test_a_conversation_whose_name_is_damaged_is_reported_by_its_tag() -> None:
    async with two_stores(source=NamelessStore()) as (source, target):
        await make_broken(source, record("a"))
        moved = await check_reported(source, target)
        assert moved.faults == {conversation_tag(BROKEN): "it cannot be read"}


async def test_a_damaged_name_in_the_target_is_counted() -> None:
    async with two_stores(NamelessStore()) as (source, target):
        await make_broken(target, record("a"))
        moved = await move_conversations(source, target)
        assert (moved.target, moved.is_whole) == (3, True)


async def test_an_owner_is_not_erased_while_a_name_is_damaged() -> None:
    async with NamelessStore() as store:
        await make_broken(store, record("a"))
        assert await erase_owner(store, BROKEN.owner, limit=9) == Erased(2, more=True)
        with pytest.raises(StoreError, match=conversation_tag(BROKEN)):
            await erase_owner(store, BROKEN.owner, limit=9)
