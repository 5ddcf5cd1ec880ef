"""A write that is sent again changes nothing more, whatever has come between."""

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from tests.contract.door.writes import (
    LONG,
    OVER,
    a_write,
    append,
    applied,
    due_keys,
    entry,
    first_write,
    log_of,
    made,
    new_key,
    new_run,
    running,
    whole,
)

from passback.core.conversation.store import (
    NEVER_DUE,
    REMEMBERED_WRITES,
    Append,
    Due,
    Guard,
    LogChange,
    QueueEntry,
    Store,
    TakeLease,
    Wanted,
    Write,
)
from passback.core.messages import ConversationKey

pytestmark = [pytest.mark.anyio, pytest.mark.promise("P15", "P16")]

Between = Callable[[Store, ConversationKey], Awaitable[None]]


async def nothing(store: Store, key: ConversationKey) -> None: ...


async def a_few_writes(store: Store, key: ConversationKey) -> None:
    for _ in range(REMEMBERED_WRITES - 1):
        await applied(store, replace(a_write(key), messages=(b"between",)))


async def a_takeover(store: Store, key: ConversationKey) -> None:
    await applied(store, replace(a_write(key), lease=TakeLease("thief", LONG)))


async def an_end(store: Store, key: ConversationKey) -> None:
    await applied(store, replace(a_write(key), lease="end"))


def full_write(key: ConversationKey, guard: Guard) -> Write:
    """Change everything, for which nothing of it may happen twice."""
    run_id = new_run()
    return replace(
        a_write(key, guard),
        head=b"head",
        fields={"title": b"title", "gone": None},
        messages=(b"one", b"two"),
        receipts={"key:a": "a"},
        enqueue=QueueEntry(new_run(), b"waits"),
        log=LogChange(run_id, entry(5, 1)),
        runs={run_id: b"run"},
        lease=TakeLease("full", LONG),
        signal="signal",
        due=Due(queued=0),
        owes=True,
        touches=True,
    )


@pytest.mark.parametrize("between", [nothing, a_few_writes, a_takeover, an_end])
@pytest.mark.parametrize("guard", [Guard(), Guard(version=2), Guard(fence="one")])
async def test_a_write_sent_again_changes_nothing_and_is_applied(
    door: Store, peer: Store, between: Between, guard: Guard
) -> None:
    key, _ = await running(door)
    write = full_write(key, guard)
    await applied(door, write)
    await between(door, key)
    wanted = Wanted(("title",), ("key:a",), tuple(write.runs), queue=True, within=1000)
    before = await door.read(key, wanted)

    again = await applied(peer, write)

    assert (again.version, again.queued) == (before.version, True)
    after = await door.read(key, wanted)
    assert after == before
    assert (after.updated, after.due) == (before.updated, before.due)
    assert write.log is not None
    assert await log_of(door, key, write.log.run_id) == [entry(5, 1)]


async def test_a_first_write_sent_again_does_not_make_the_conversation_anew(door: Store) -> None:
    write = replace(first_write(new_key()), messages=(b"one",), first_version=7)
    first = await applied(door, write)
    await a_few_writes(door, write.key)
    assert await applied(door, write) == replace(first, version=7 + REMEMBERED_WRITES - 1)
    assert (await whole(door, write.key)).message_count == REMEMBERED_WRITES


async def test_what_is_remembered_is_of_its_conversation_alone(door: Store) -> None:
    first, second = first_write(new_key()), first_write(new_key())
    await applied(door, first)
    await applied(door, replace(second, id=first.id, head=b"second"))
    assert (await whole(door, second.key)).head == b"second"


async def test_a_write_that_was_refused_may_be_applied_later(door: Store) -> None:
    key = await made(door)
    write = replace(a_write(key, Guard(version=2)), head=b"later")
    assert await door.apply(write) is None
    await applied(door, a_write(key))
    await applied(door, write)
    assert (await whole(door, key)).head == b"later"


async def test_an_older_write_is_forgotten(door: Store) -> None:
    """Its guard says then whether it is applied."""
    key = await made(door)
    guarded, free = a_write(key, Guard(version=1)), replace(a_write(key), messages=(b"free",))
    await applied(door, guarded)
    await applied(door, free)
    for _ in range(REMEMBERED_WRITES):
        await applied(door, a_write(key))
    assert await door.apply(guarded) is None
    await applied(door, free)
    assert (await whole(door, key)).messages == (b"free", b"free")


async def test_a_repeat_is_not_counted_among_the_writes_that_are_remembered(door: Store) -> None:
    key = await made(door)
    first, last = a_write(key, Guard(version=1)), a_write(key)
    await applied(door, first)
    await a_few_writes(door, key)
    await applied(door, first)
    await applied(door, first)
    assert (await applied(door, last)).version == REMEMBERED_WRITES + 2
    assert await door.apply(first) is None


@pytest.mark.parametrize("name", ["a", "0", "a-b:c d", "z" * 40, "begin run:00ff"])
async def test_an_id_is_any_of_the_permitted_texts(door: Store, name: str) -> None:
    key = await made(door)
    write = replace(a_write(key), id=name, messages=(b"one",))
    await applied(door, write)
    # ids that are part of another one, or have it as a part, are others
    for other in (f"{name[:20]}x", name[:-1] or "b"):
        await applied(door, replace(a_write(key), id=other, messages=(b"other",)))
    await applied(door, write)
    assert (await whole(door, key)).messages == (b"one", b"other", b"other")


async def test_a_due_time_is_not_set_again(door: Store) -> None:
    key = await made(door)
    soon = replace(a_write(key), due=Due(after=0))
    await applied(door, soon)
    await applied(door, replace(a_write(key), due=NEVER_DUE))
    await applied(door, soon)
    assert await due_keys(door) == set()


# ---------------------------------------------------------------- appends
async def test_an_append_sent_again_changes_nothing(door: Store, peer: Store) -> None:
    key, run_id = await running(door)
    one, other = (Append(key, run_id, "one", entry(1, seq)) for seq in (2, 3))
    await append(door, one)
    await append(door, other)
    before = await log_of(door, key, run_id)
    for each in (one, other, one):
        assert (await append(peer, each))[0].held
    assert await log_of(door, key, run_id) == before
    lease = (await whole(door, key)).lease
    assert lease is not None
    assert lease.seq == 3


async def test_an_append_sent_again_renews(door: Store) -> None:
    key, run_id = await running(door, milliseconds=OVER)
    again = Append(key, run_id, "one", entry(1, 2))
    await append(door, again, lease=OVER)
    await append(door, again, lease=LONG)
    assert await door.apply(a_write(key, Guard(lease_over=True))) is None


async def test_the_same_append_twice_in_one_call_is_written_once(door: Store) -> None:
    key, run_id = await running(door)
    each = Append(key, run_id, "one", entry(1, 2))
    answers = await append(door, each, each, Append(key, run_id, "one", entry(1, 3)))
    assert [answer.held for answer in answers] == [True, True, True]
    assert await log_of(door, key, run_id) == [entry(1, seq) for seq in (1, 2, 3)]


async def test_an_entry_that_a_write_has_logged_is_not_appended_again(door: Store) -> None:
    key, run_id = await running(door)
    write = replace(a_write(key, Guard(fence="one")), log=LogChange(run_id, entry(1, 2)))
    await applied(door, write)
    await append(door, Append(key, run_id, "one", entry(1, 2)))
    assert await log_of(door, key, run_id) == [entry(1, 1), entry(1, 2)]
    await append(door, Append(key, run_id, "one", entry(1, 3)))
    after = replace(a_write(key, Guard(fence="one")), log=LogChange(run_id, entry(1, 3)))
    await applied(door, after)
    assert await log_of(door, key, run_id) == [entry(1, seq) for seq in (1, 2, 3)]
