"""The end of conversations and of stores, and the hints that something was written."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import anyio
import pytest
from tests.contract.door.writes import (
    ALL,
    LONG,
    OVER,
    a_write,
    append,
    applied,
    due_keys,
    entry,
    first_write,
    keys_in,
    leased,
    log_of,
    made,
    new_key,
    new_owner,
    new_run,
    running,
    tag_of,
    whole,
)

from passback.core.conversation.store import (
    WHOLE,
    Amounts,
    Append,
    Due,
    Found,
    Guard,
    LogChange,
    Query,
    QueueEntry,
    SpentUnder,
    Store,
    TakeLease,
    Wanted,
    Watch,
)
from passback.core.errors import StoreUnavailable
from passback.core.events import START, Position
from passback.core.ids import ConversationTag
from passback.core.messages import ConversationKey, RunId
from passback.stores.options import StoreOptions

if TYPE_CHECKING:
    from tests.contract.door.conftest import Doors

pytestmark = pytest.mark.anyio


# ---------------------------------------------------------------- deletion
async def test_a_conversation_is_deleted_with_all_of_it(door: Store, peer: Store) -> None:
    key, (one, other) = new_key(), (new_run(), new_run())
    wanted = Wanted(("title",), ("key:a",), (one,), queue=True, within=99)
    full = replace(
        first_write(key),
        head=b"head",
        fields={"title": b"title"},
        messages=(b"one",),
        receipts={"key:a": "a"},
        enqueue=QueueEntry(other, b"queued"),
        log=LogChange(other, entry(2, 1)),
        runs={one: b"run"},
        owes=True,
        due=Due(after=0),
    )
    await applied(door, full)
    await leased(door, key, one, epoch=3)
    assert await peer.delete(key)

    assert await door.read(key, wanted) == Found(messages=())
    assert await door.read(ConversationTag(tag_of(key)), Wanted()) == Found()
    assert await log_of(door, key, one) is None
    assert await log_of(door, key, other) is None
    assert await log_of(door, key, None) is None
    assert list(await door.page(key, WHOLE, limit=9)) == []
    assert not (await append(door, Append(key, one, "one", entry(3, 2))))[0].held
    assert not await door.delete(key)

    # what is made under its name has nothing of it
    await applied(door, replace(first_write(key), first_version=50))
    assert await door.read(key, wanted) == Found(version=50, messages=())
    assert await log_of(door, key, one) is None


async def test_what_is_not_there_is_not_deleted(door: Store) -> None:
    key = await made(door)
    assert not await door.delete(new_key())
    assert (await whole(door, key)).version == 1


async def test_a_repeat_of_the_write_that_made_it_makes_it_again(door: Store) -> None:
    """The store has forgotten it, and a client that has deleted it does not repeat."""
    write = replace(first_write(new_key()), messages=(b"one",), first_version=7)
    await applied(door, write)
    await door.delete(write.key)
    assert (await applied(door, write)).version == 7
    assert (await whole(door, write.key)).messages == (b"one",)


async def test_one_of_many_who_delete_has_done_it(door: Store, peer: Store) -> None:
    key = await made(door)
    answers: list[bool] = []

    async def delete(store: Store) -> None:
        answers.append(await store.delete(key))

    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(delete, door)
            tasks.start_soon(delete, peer)
    assert sorted(answers) == [False] * 9 + [True]


# ---------------------------------------------------------------- expiry
@pytest.fixture
async def brief(doors: "Doors") -> Store:
    """A store that keeps nothing that neither runs nor waits."""
    return await doors.open(StoreOptions(ttl=0.0001, log_ttl=0.0001))


async def is_gone(store: Store, key: ConversationKey) -> bool:
    """Tell if a conversation is as if it were not there, in every way."""
    found = await store.read(key, ALL)
    # before the write below: a store may remove what has expired when it writes
    due, owing = await due_keys(store), await keys_in(store, Query(key.owner, "owing"))
    signs = [
        found.version > 0,
        (await store.read(ConversationTag(tag_of(key)), Wanted())).version > 0,
        key in await keys_in(store, Query(key.owner, "all")),
        (await store.apply(a_write(key))) is not None,
    ]
    assert len(set(signs)) == 1
    if not any(signs):
        assert found == Found(messages=())
        assert key not in due
        assert key not in owing
        assert list(await store.page(key, WHOLE, limit=9)) == []
        assert not await store.delete(key)
    return not any(signs)


async def test_a_conversation_expires_after_its_time(brief: Store) -> None:
    write = replace(
        first_write(new_key(new_owner())), messages=(b"one",), owes=True, due=Due(after=0)
    )
    assert (await applied(brief, write)).version == 1
    assert await is_gone(brief, write.key)


async def test_one_that_has_expired_is_made_anew(brief: Store) -> None:
    key, run_id = new_key(new_owner()), new_run()
    queued = QueueEntry(run_id, b"queued")
    expired = replace(
        first_write(key), head=b"head", messages=(b"one",), receipts={"key:a": "a"}, owes=True
    )
    await applied(brief, replace(expired, log=LogChange(run_id, entry(1, 1))))
    anew = await applied(brief, replace(first_write(key), first_version=9, enqueue=queued))
    assert anew.version == 9
    found = await brief.read(key, Wanted(receipts=("key:a",), queue=True, within=9))
    assert found == Found(version=9, messages=(), queue=(queued,))
    assert await log_of(brief, key, run_id) is None
    assert await keys_in(brief, Query(key.owner, "owing")) == []
    assert await keys_in(brief, Query(key.owner, "all")) == [key]


@pytest.mark.parametrize("milliseconds", [OVER, LONG])
async def test_nothing_expires_while_there_is_a_lease(brief: Store, milliseconds: int) -> None:
    key, run_id = new_key(new_owner()), new_run()
    await applied(
        brief,
        replace(
            first_write(key),
            log=LogChange(run_id, entry(1, 1)),
            lease=TakeLease("one", milliseconds),
            owes=True,
            messages=(b"one",),
        ),
    )
    assert not await is_gone(brief, key)
    assert await keys_in(brief, Query(key.owner, "owing")) == [key]
    assert (key in await due_keys(brief)) == (milliseconds == OVER)
    assert (await append(brief, Append(key, run_id, "one", entry(1, 2)), lease=LONG))[0].held
    assert await log_of(brief, key, run_id) == [entry(1, 1), entry(1, 2)]
    await applied(brief, replace(a_write(key), lease="release"))
    assert not await is_gone(brief, key)
    await applied(brief, replace(a_write(key), lease="end"))
    assert await is_gone(brief, key)
    assert await log_of(brief, key, run_id) is None


async def test_the_log_of_a_life_before_is_no_part_of_the_next_one(brief: Store) -> None:
    key, run_id = new_key(new_owner()), new_run()
    lease = TakeLease("one", LONG)
    begins = replace(first_write(key), log=LogChange(run_id, entry(1, 1)), lease=lease)
    await applied(brief, begins)
    await applied(brief, replace(a_write(key), lease="end"))
    assert await is_gone(brief, key)
    queued = QueueEntry(new_run(), b"queued")  # it stays while somebody waits
    await applied(brief, replace(first_write(key), first_version=9, enqueue=queued))
    await leased(brief, key, run_id, fence="two", epoch=2)
    assert await log_of(brief, key, run_id) == [entry(2, 1)]


async def test_nothing_expires_under_an_entry_of_the_queue(brief: Store) -> None:
    key, run_id = new_key(new_owner()), new_run()
    queued = replace(first_write(key), enqueue=QueueEntry(run_id, b"queued"), due=Due(queued=0))
    await applied(brief, replace(queued, log=LogChange(run_id, entry(1, 1))))
    assert not await is_gone(brief, key)
    assert await due_keys(brief) == {key}
    assert await log_of(brief, key, run_id) == [entry(1, 1)]
    await applied(brief, replace(a_write(key), dequeue=run_id))
    assert await is_gone(brief, key)


async def test_a_log_does_not_outlive_its_conversation(doors: "Doors") -> None:
    store = await doors.open(StoreOptions(ttl=0.0001))
    key, run_id = new_key(new_owner()), new_run()
    log = LogChange(run_id, entry(1, 1), ends=True)
    await applied(store, replace(first_write(key), log=log, lease=TakeLease("one", LONG)))
    assert not await is_gone(store, key)
    assert await log_of(store, key, run_id) is None


async def test_without_a_time_a_conversation_stays(doors: "Doors") -> None:
    store = await doors.open(StoreOptions(log_ttl=0.0001))
    key = await made(store, b"one")
    assert not await is_gone(store, key)
    await applied(store, replace(a_write(key), lease=TakeLease("one", OVER)))
    await applied(store, replace(a_write(key), lease="end"))
    assert not await is_gone(store, key)


# ---------------------------------------------------------------- opening and closing
async def test_a_store_says_where_it_is(door: Store) -> None:
    assert ":" in door.location
    assert isinstance(door.sees_followers, bool)


async def test_a_store_that_works_passes_its_check(door: Store) -> None:
    assert list(await door.check(briefly=True)) == []
    assert all(isinstance(warning, str) for warning in await door.check())


Call = Callable[[Store], Awaitable[object]]
KEY, RUN = new_key(), new_run()
CALLS: dict[str, Call] = {
    "check": lambda store: store.check(briefly=True),
    "read": lambda store: store.read(KEY, Wanted()),
    "apply": lambda store: store.apply(first_write(KEY)),
    "append": lambda store: store.append([Append(KEY, RUN, "one")], lease=LONG),
    "log": lambda store: store.log(KEY, RUN, after=START, limit=1),
    "page": lambda store: store.page(KEY, WHOLE, limit=1),
    "due": lambda store: store.due(1, milliseconds=LONG),
    "query": lambda store: store.query(Query(KEY.owner, "all")),
    "spend": lambda store: store.spend(SpentUnder(KEY.owner, "d", "l", Amounts(1, 1, 1), 1)),
    "delete": lambda store: store.delete(KEY),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("was_entered", [False, True])
async def test_a_store_that_is_closed_is_not_available(
    doors: "Doors", call: str, was_entered: bool
) -> None:
    store = doors.make(StoreOptions())
    if was_entered:
        async with store:
            await CALLS[call](store)
    with pytest.raises(StoreUnavailable, match="closed"):
        await CALLS[call](store)


# ---------------------------------------------------------------- hints
WAKE_SECONDS = 1.5  # less than the 2 seconds after which a wait ends without a hint
Hint = Callable[[Store, ConversationKey, RunId], Awaitable[object]]


async def append_entry(store: Store, key: ConversationKey, run_id: RunId) -> None:
    await append(store, Append(key, run_id, "one", entry(1, 2)))


async def write_entry(store: Store, key: ConversationKey, run_id: RunId) -> None:
    log = LogChange(run_id, entry(1, 2))
    await applied(store, replace(a_write(key, Guard(fence="one")), log=log))


async def take_over(store: Store, key: ConversationKey, run_id: RunId) -> None:
    log = LogChange(run_id, entry(2, 1), Position(1, 1))
    await applied(store, replace(a_write(key), log=log, lease=TakeLease("two", LONG)))


async def delete(store: Store, key: ConversationKey, run_id: RunId) -> None:
    assert await store.delete(key)


HINTS: list[Hint] = [append_entry, write_entry, take_over, delete]


async def quiet(watch: Watch) -> None:
    """Let pass what a store says when a watch begins."""
    with anyio.move_on_after(0.3):
        await watch.wait()


@pytest.mark.parametrize("write", HINTS)
async def test_a_write_wakes_the_readers_of_each_worker(
    door: Store, peer: Store, write: Hint
) -> None:
    key, run_id = await running(door)
    before = await log_of(door, key, run_id)
    ready, woken = [[anyio.Event() for _ in range(6)] for _ in range(2)]

    async def follow(number: int) -> None:
        store = (door, peer)[number % 2]
        async with store.watch(key) as watch:
            await quiet(watch)
            ready[number].set()
            while await log_of(store, key, run_id) == before:
                await watch.wait()
        woken[number].set()

    async with anyio.create_task_group() as tasks:
        for number in range(6):
            tasks.start_soon(follow, number)
        for event in ready:
            await event.wait()
        with anyio.fail_after(WAKE_SECONDS):
            await write(door, key, run_id)
            for event in woken:
                await event.wait()


async def test_a_write_between_a_read_and_the_wait_is_not_missed(door: Store) -> None:
    key, run_id = await running(door)
    async with door.watch(key) as watch:
        await log_of(door, key, run_id)
        await append_entry(door, key, run_id)
        with anyio.fail_after(WAKE_SECONDS):
            await watch.wait()


async def test_without_news_a_wait_lasts_and_ends(door: Store) -> None:
    key, _ = await running(door)
    async with door.watch(key) as watch:
        waits = 0
        with anyio.fail_after(10):
            # what came before the watch may be told late
            while waits < 2:
                with anyio.move_on_after(0.3) as timeout:
                    await watch.wait()
                waits = waits + 1 if timeout.cancelled_caught else 0
            await watch.wait(0.1)
