"""Moving conversations between stores: equal records, whatever happens on the way."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from math import inf
from typing import Any

import anyio
import pytest
from tests.support.waiting import wait_until
from typing_extensions import override

from passback.core.changes import dump_message
from passback.core.conversation.head import EPOCHS, SETTINGS, STATE, TITLE, Head, dump_head, head_of
from passback.core.conversation.store import (
    Applied,
    Due,
    Found,
    Guard,
    LogChange,
    LogEntry,
    Query,
    QueueEntry,
    Span,
    Store,
    TakeLease,
    View,
    Wanted,
    Write,
)
from passback.core.conversation.tree import Fork, Tree
from passback.core.errors import StoreError, StoreFull, StoreUnavailable
from passback.core.events import Position
from passback.core.ids import ConversationTag, new_nonce
from passback.core.messages import (
    CallId,
    ConversationId,
    ConversationKey,
    MessageId,
    Owed,
    OwnerId,
    RunId,
    UserMessage,
)
from passback.engine import moving
from passback.engine.moving import UNFINISHED, Moved, Phase, hash_conversation, move_conversations
from passback.stores.memory import MemoryStore

pytestmark = pytest.mark.anyio

LONG = 10**8  # milliseconds
RUN, WAITS = RunId("run_1"), RunId("run_2")
ALL = Wanted(queue=True, within=inf, whole=True)


def record(text: str) -> bytes:
    """The record of a message."""
    return dump_message(UserMessage(MessageId(f"m-{text}"), text))


MESSAGES = tuple(record(str(number)) for number in range(2 * moving.MESSAGES_AT_ONCE + 9))


def key_of(name: str, owner: str = "owner") -> ConversationKey:
    return ConversationKey(OwnerId(owner), ConversationId(name))


def first_write(key: ConversationKey, *, messages: tuple[bytes, ...] = (), **head: Any) -> Write:
    known = replace(Head(tree=Tree(len(messages) - 1)), **head)
    return Write(
        key, new_nonce(), Guard(version=0), head=dump_head(known), messages=messages, touches=True
    )


async def applied(store: Store, *writes: Write) -> None:
    for write in writes:
        assert await store.apply(write) is not None


def later(key: ConversationKey, **changes: Any) -> Write:
    return replace(Write(key, new_nonce(), Guard()), **changes)


async def make_small(store: Store, name: str, owner: str = "owner") -> ConversationKey:
    key = key_of(name, owner)
    await applied(store, first_write(key, messages=(record("a"), record("b"))))
    return key


async def make_large(store: Store) -> ConversationKey:
    """A conversation with all that one may have, in more messages than one write of a move has."""
    key, tree = key_of("large"), Tree(len(MESSAGES) - 1, (Fork(500, 3),))
    owed = (Owed(CallId("call_1"), "paint", "{}"),)
    write = first_write(key, messages=MESSAGES, tree=tree, owed=owed, run_id=RUN)
    await applied(
        store,
        replace(
            write,
            fields={TITLE: b"Title", STATE: b"{}", SETTINGS: b"{}", EPOCHS: b"7", "other": b"\0"},
            view=View((Span(0, 4), Span(500))),
            receipts={"call:a": "run_1|print", "key:b": "|", "message:naïve": "x|y"},
            runs={RUN: b"dequeued", RunId("run_0"): b""},
            owes=True,
            due=Due(after=LONG, queued=LONG),
        ),
        *(
            later(key, enqueue=QueueEntry(RunId(f"run_w{number}"), b"post %d" % number))
            for number in range(3)
        ),
    )
    return key


async def make_running(store: Store, name: str, *, lasts: int) -> ConversationKey:
    """A conversation whose run has a lease for so many milliseconds, with two events committed."""
    key = key_of(name)
    lease = TakeLease("1:fence", lasts, signal="cancel")
    log = LogChange(RUN, LogEntry(Position(1, 4), 4, b"[]"))
    write = first_write(
        key, messages=(record("a"),), run_id=RUN, epoch=1, committed=Position(1, 2), attempt=1
    )
    await applied(store, replace(write, lease=lease, log=log, fields={EPOCHS: b"1"}))
    return key


@asynccontextmanager
async def two_stores(
    target: Store | None = None, source: Store | None = None
) -> AsyncGenerator[tuple[Store, Store]]:
    async with AsyncExitStack() as stack:
        yield (
            await stack.enter_async_context(source or MemoryStore()),
            await stack.enter_async_context(target or MemoryStore()),
        )


def records_of(found: Found) -> Found:
    """What is the same after a move."""
    return replace(found, version=1, now=0, created=0, updated=0, due=None, lease=None)


async def listed(store: Store, owner: str = "owner") -> list[str]:
    page = await store.query(Query(OwnerId(owner), "all"))
    return [each.key.id for each in page.listed]


# ---------------------------------------------------------------- copies
async def test_a_conversation_has_all_its_records_afterwards() -> None:
    async with two_stores() as (source, target):
        keys = [await make_large(source), await make_small(source, "small", "other")]
        moved = await move_conversations(source, target)
        assert moved == Moved(copied=2, equal=2, found=2, target=2)
        assert moved.is_whole
        for key in keys:
            here, there = await source.read(key, ALL), await target.read(key, ALL)
            assert records_of(there) == records_of(here)
            assert await hash_conversation(source, key) == await hash_conversation(target, key)
        page = await target.page(keys[0], (Span(0),), limit=10_000)
        assert tuple(page) == MESSAGES


async def test_what_is_due_and_owed_is_so_afterwards() -> None:
    async with two_stores() as (source, target):
        key, small = await make_large(source), await make_small(source, "small")
        await applied(source, later(small, due=Due(after=0)))
        await move_conversations(source, target)
        owing = await target.query(Query(key.owner, "owing"))
        assert [each.key for each in owing.listed] == [key]
        here, there = await source.read(key, Wanted()), await target.read(key, Wanted())
        assert here.due is not None
        assert there.due is not None
        assert abs(here.due - there.due) < 10_000
        assert await target.due(9, milliseconds=0) == [small]


async def test_lists_keep_their_order() -> None:
    async with two_stores() as (source, target):
        for number in range(9):
            await make_small(source, str(number * 7 % 9))
        await applied(source, later(key_of("5"), touches=True))
        await move_conversations(source, target)
        assert await listed(target) == await listed(source)


async def test_nothing_in_the_source_changes() -> None:
    async with two_stores() as (source, target):
        keys = [await make_large(source), await make_running(source, "lost", lasts=0)]
        before = [await source.read(key, ALL) for key in keys]
        await move_conversations(source, target)
        assert [await source.read(key, ALL) for key in keys] == before


async def test_conversations_of_more_than_one_page_are_moved() -> None:
    async with two_stores() as (source, target):
        count = moving.CONVERSATIONS_AT_ONCE + 5
        for number in range(count):
            await make_small(source, str(number), f"owner {number % 3}")
        steps: list[tuple[str, int, int]] = []

        def report(phase: Phase, done: int, total: int) -> None:
            steps.append((phase, done, total))

        moved = await move_conversations(source, target, report=report)
        assert (moved.copied, moved.equal, moved.target) == (count, count, count)
        assert steps[count - 1] == ("list", count, 0)
        assert steps[2 * count - 1] == ("copy", count, count)
        assert steps[-1] == ("compare", count, count)


async def test_an_empty_store_is_moved() -> None:
    async with two_stores() as (source, target):
        assert (await move_conversations(source, target)).is_whole


# ---------------------------------------------------------------- again, and after an interruption
async def test_a_second_move_finds_all_there() -> None:
    async with two_stores() as (source, target):
        key = await make_large(source)
        await move_conversations(source, target)
        version = (await target.read(key, Wanted())).version
        assert await move_conversations(source, target) == Moved(
            there=1, equal=1, found=1, target=1
        )
        assert (await target.read(key, Wanted())).version == version


class Interrupted(Exception):
    """What ends a move as a kill does: nothing after it is done."""


class FragileStore(MemoryStore):
    """Breaks off at a write, before it or after it; later ones are applied."""

    def __init__(self, writes: int, *, after: bool) -> None:
        super().__init__()
        self.writes = writes
        self._after = after

    @override
    async def apply(self, write: Write, /) -> Applied | None:
        self.writes -= 1
        if self.writes == 0 and not self._after:
            raise Interrupted
        answer = await super().apply(write)
        if self.writes == 0:
            raise Interrupted
        return answer


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("writes", range(1, 7))
async def test_an_interrupted_move_goes_on_where_it_was(writes: int, after: bool) -> None:
    async with two_stores(target := FragileStore(writes, after=after)) as (source, _):
        large, small = await make_large(source), await make_small(source, "small")
        with pytest.raises(Interrupted):
            await move_conversations(source, target)
        before = await target.read(large, ALL)
        moved = await move_conversations(source, target)
        assert moved.is_whole
        assert moved.copied + moved.there == 2
        done = records_of(await target.read(large, ALL))
        assert done == records_of(await source.read(large, ALL))
        assert (await target.read(small, Wanted())).version
        # what was there was not written again
        assert -target.writes <= 6 - writes + (not after)
        assert moved.there == (before.version > 0 and before.head != UNFINISHED) + (
            writes == 6 and after
        )


async def test_half_of_a_conversation_is_none_to_read() -> None:
    async with two_stores(target := FragileStore(2, after=True)) as (source, _):
        key = await make_large(source)
        with pytest.raises(Interrupted):
            await move_conversations(source, target)
        found = await target.read(key, Wanted())
        assert (found.head, found.message_count) == (UNFINISHED, 2 * moving.MESSAGES_AT_ONCE)
        with pytest.raises(StoreError):
            head_of(found)


@pytest.mark.parametrize("messages", [(record("x"), *MESSAGES[1:]), MESSAGES[:3]])
async def test_the_half_of_another_conversation_is_begun_anew(messages: tuple[bytes, ...]) -> None:
    async with two_stores(target := FragileStore(4, after=True)) as (source, _):
        key = await make_large(source)
        with pytest.raises(Interrupted):
            await move_conversations(source, target)
        await source.delete(key)
        await applied(source, first_write(key, messages=messages))
        moved = await move_conversations(source, target)
        assert moved.is_whole
        count = len(messages)
        found = await target.read(key, ALL)
        assert (found.message_count, found.queue, found.receipts) == (count, (), {})


async def test_half_of_a_conversation_whose_queue_has_moved_on_is_begun_anew() -> None:
    async with two_stores(target := FragileStore(4, after=True)) as (source, _):
        key = await make_large(source)
        with pytest.raises(Interrupted):
            await move_conversations(source, target)
        assert [each.run_id for each in (await target.read(key, ALL)).queue] == ["run_w0", "run_w1"]
        await applied(source, later(key, dequeue=RunId("run_w0")))
        assert (await move_conversations(source, target)).is_whole


async def test_half_of_a_conversation_that_has_gone_is_reported() -> None:
    async with two_stores(target := FragileStore(4, after=True)) as (source, _):
        key, small = await make_large(source), await make_small(source, "small")
        with pytest.raises(Interrupted):
            await move_conversations(source, target)
        await source.delete(key)
        moved = await move_conversations(source, target)
        assert (moved.equal, moved.found, moved.target) == (1, 1, 2)
        assert not moved.is_whole
        assert list(moved.faults) == [key]
        assert (await target.read(small, Wanted())).version


async def test_the_half_of_a_conversation_that_was_posted_to_since_goes_on() -> None:
    async with two_stores(target := FragileStore(2, after=True)) as (source, _):
        key = await make_large(source)
        with pytest.raises(Interrupted):
            await move_conversations(source, target)
        await applied(
            source, later(key, messages=(record("more"),) * 300, receipts={"key:new": "|"})
        )
        assert (await move_conversations(source, target)).is_whole
        # 9 + 300 messages in two writes, and two entries of the queue in front of the last one
        assert target.writes == -4


# ---------------------------------------------------------------- what is in the target
async def test_another_conversation_of_the_same_name_is_reported_and_left_alone() -> None:
    async with two_stores() as (source, target):
        key, fine = await make_large(source), await make_small(source, "small")
        await applied(target, first_write(key, messages=(record("mine"),)))
        await make_small(target, "of the target alone")
        before = await target.read(key, ALL)
        moved = await move_conversations(source, target)
        assert not moved.is_whole
        assert (moved.copied, moved.there, moved.equal) == (1, 1, 1)
        assert (moved.found, moved.target) == (2, 3)
        assert "another conversation" in moved.faults[key]
        assert await target.read(key, ALL) == before
        assert (await target.read(fine, Wanted())).version


@pytest.mark.parametrize(
    "change",
    [
        {"head": dump_head(Head(attempt=9))},
        {"fields": {TITLE: b"Other"}},
        {"fields": {TITLE: None}},
        {"messages": (record("x"),)},
        {"receipts": {"call:a": "|"}},
        {"receipts": {"call:new": "|"}},
        {"runs": {RUN: b""}},
        {"enqueue": QueueEntry(RunId("run_9"), b"post")},
        {"dequeue": RunId("run_w1")},
        {"view": View((Span(1),))},
        {"lease": TakeLease("9:fence", 0)},
    ],
    ids=lambda change: next(iter(change)),
)
async def test_each_difference_is_found(change: dict[str, object]) -> None:
    async with two_stores() as (source, target):
        key = await make_large(source)
        await move_conversations(source, target)
        await applied(target, later(key, **change))
        moved = await move_conversations(source, target)
        assert (moved.equal, list(moved.faults)) == (0, [key])


# ---------------------------------------------------------------- runs
async def test_a_conversation_whose_run_goes_on_is_left_out() -> None:
    async with two_stores() as (source, target):
        key, small = await make_running(source, "runs", lasts=LONG), await make_small(source, "s")
        moved = await move_conversations(source, target)
        assert not moved.is_whole
        assert (moved.running, moved.copied, moved.equal, moved.faults) == ({key}, 1, 1, {})
        assert (await target.read(key, Wanted())).version == 0
        assert (await target.read(small, Wanted())).version


async def test_a_move_can_wait_for_the_ends_of_runs() -> None:
    async with two_stores() as (source, target), anyio.create_task_group() as tasks:
        key = await make_running(source, "runs", lasts=LONG)
        steps: list[str] = []
        ended: list[Moved] = []

        async def move() -> None:
            ended.append(
                await move_conversations(
                    source, target, report=lambda phase, _, __: steps.append(phase), wait=0.001
                )
            )

        tasks.start_soon(move)
        await wait_until(lambda: "copy" in steps)
        assert not ended
        await applied(source, later(key, lease="end"))
        await wait_until(lambda: bool(ended))
        assert (ended[0].copied, ended[0].is_whole, ended[0].running) == (1, True, set())


@pytest.mark.parametrize("end", ["expired", "released"])
async def test_a_run_whose_worker_is_gone_goes_on_in_the_target(end: str) -> None:
    async with two_stores() as (source, target):
        key = await make_running(source, "lost", lasts=0 if end == "expired" else LONG)
        if end == "released":
            await applied(source, later(key, lease="release"))
        moved = await move_conversations(source, target)
        assert (moved.copied, moved.is_whole) == (1, True)

        async def found() -> Found:
            return await target.read(key, ALL)

        lease = (await found()).lease
        assert lease is not None
        assert (lease.seq, lease.signal) == (2, "cancel")
        assert records_of(await found()) == records_of(await source.read(key, ALL))
        taken: list[ConversationKey] = []
        while not taken:  # the lease is over a millisecond later
            taken += await target.due(9, milliseconds=LONG)
        assert taken == [key]
        page = await target.log(key, RUN, after=Position(0, 0), limit=9)
        assert page is not None
        assert [each.position for each in page.entries] == [Position(1, 2)]
        take_over = later(
            key,
            guard=Guard(lease_over=True),
            lease=TakeLease("2:fence", LONG),
            log=LogChange(RUN, LogEntry(Position(2, 1), 1, b"[]"), void_after=Position(1, 2)),
        )
        await applied(target, take_over)


# ---------------------------------------------------------------- changes and damage meanwhile
class WatchedStore(MemoryStore):
    """Calls a function before each page of messages."""

    on_page: Callable[[], Awaitable[None]] | None = None

    @override
    async def page(
        self, key: ConversationKey, spans: Sequence[Span], /, *, limit: int
    ) -> Sequence[bytes]:
        if self.on_page is not None:
            await self.on_page()
        return await super().page(key, spans, limit=limit)


@pytest.mark.parametrize("times", [1, 5])
async def test_a_conversation_that_changes_while_it_is_copied_is_copied_as_it_is_then(
    times: int,
) -> None:
    async with two_stores(source=(source := WatchedStore())) as (_, target):
        key, left = await make_large(source), times

        async def change() -> None:
            nonlocal left
            if left:
                left -= 1
                await applied(
                    source,
                    later(key, messages=(record(f"more {left}"),), fields={TITLE: b"%d" % left}),
                )

        source.on_page = change
        moved = await move_conversations(source, target)
        assert (moved.copied, moved.is_whole) == (1, True)
        assert (await target.read(key, ALL)).message_count == len(MESSAGES) + times


async def test_one_that_always_changes_is_reported_and_can_be_moved_later() -> None:
    async with two_stores(source=(source := WatchedStore())) as (_, target):
        small, key = await make_small(source, "small"), await make_large(source)

        async def change() -> None:
            await applied(source, later(key, fields={TITLE: new_nonce().encode()}))

        source.on_page = change
        moved = await move_conversations(source, target)
        assert (moved.copied, list(moved.faults)) == (1, [key])
        assert (await target.read(small, Wanted())).version
        source.on_page = None
        assert (await move_conversations(source, target)).is_whole


async def test_one_that_is_deleted_meanwhile_is_not_in_the_target() -> None:
    async with two_stores(source=(source := WatchedStore())) as (_, target):
        key, pages = await make_large(source), 0

        async def delete() -> None:
            nonlocal pages
            pages += 1
            if pages == 3:
                await source.delete(key)

        source.on_page = delete
        moved = await move_conversations(source, target)
        assert (moved.copied, moved.found, moved.is_whole) == (0, 0, True)
        assert (await target.read(key, Wanted())).version == 0


async def test_one_that_comes_meanwhile_is_reported() -> None:
    async with two_stores(source=(source := WatchedStore())) as (_, target):
        await make_large(source)

        async def come() -> None:
            source.on_page = None
            await make_small(source, "late")

        source.on_page = come
        moved = await move_conversations(source, target)
        assert (moved.equal, moved.found) == (1, 2)
        assert "come meanwhile" in moved.faults[key_of("late")]
        assert (await move_conversations(source, target)).is_whole


async def test_writes_of_others_to_the_copy_are_not_overwritten() -> None:
    async with two_stores(source=(source := WatchedStore())) as (_, target):
        key = await make_large(source)

        async def interfere() -> None:
            source.on_page = None
            await applied(target, first_write(key, messages=(record("theirs"),)))

        source.on_page = interfere
        moved = await move_conversations(source, target)
        assert (moved.there, list(moved.faults)) == (1, [key])
        assert (await target.read(key, ALL)).messages == (record("theirs"),)


class DamagedStore(MemoryStore):
    """Some of its conversations cannot be read."""

    def __init__(self, error: type[StoreError], *names: str) -> None:
        super().__init__()
        self._error = error
        self._names = names

    @override
    async def read(self, key: ConversationKey | ConversationTag, wanted: Wanted, /) -> Found:
        if isinstance(key, ConversationKey) and key.id in self._names:
            raise self._error("damaged")
        return await super().read(key, wanted)


async def test_damage_of_one_conversation_does_not_stop_the_others() -> None:
    async with two_stores(source=DamagedStore(StoreError, "1")) as (source, target):
        for name in "012":
            await make_small(source, name)
        broken = key_of("broken head")
        await applied(source, replace(first_write(broken), head=b"{"))
        moved = await move_conversations(source, target)
        assert (moved.copied, moved.equal, moved.found) == (2, 2, 4)
        assert moved.faults.keys() == {key_of("1"), broken}
        assert set(await listed(target)) == {"0", "2"}


@pytest.mark.parametrize("error", [StoreUnavailable, StoreFull])
async def test_a_store_that_does_not_answer_ends_the_move(error: type[StoreError]) -> None:
    async with two_stores(source=DamagedStore(error, "1")) as (source, target):
        for name in "012":
            await make_small(source, name)
        with pytest.raises(error):
            await move_conversations(source, target)
        assert await listed(target) == ["0"]
