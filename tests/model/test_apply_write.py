"""The model's door does to a conversation what `MemoryStore` does, step by step."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.model.actors import KEY
from tests.model.apply_write import Conversation, append, apply_write, read
from tests.support.lanes import examples

from passback.core.conversation.store import (
    NEVER_DUE,
    WHOLE,
    Append,
    Due,
    Guard,
    LeaseChange,
    LogChange,
    LogEntry,
    Query,
    QueueEntry,
    RenewLease,
    Span,
    TakeLease,
    View,
    Wanted,
    Write,
)
from passback.core.events import START, Position
from passback.core.messages import RunId
from passback.stores.memory import MemoryStore

pytestmark = [pytest.mark.anyio, pytest.mark.promise("P15")]

LONG, OVER = 10**9, 0  # milliseconds of a lease that lasts, and of one that is over at once
RUNS = (RunId("run-1"), RunId("run-2"))
NAMES = ("a", "b")
ALL = Wanted(NAMES, NAMES, RUNS, queue=True, within=math.inf)

runs = st.sampled_from(RUNS)
fences = st.sampled_from(["one", "two"])
positions = st.builds(Position, st.integers(1, 3), st.integers(1, 6))
entries = st.builds(
    LogEntry, positions, st.integers(1, 2), st.sampled_from([b"[]", b"events", b"more events"])
)
records = st.sampled_from([b"", b"one", b"two"])
leases: st.SearchStrategy[LeaseChange] = st.one_of(
    st.builds(
        TakeLease, fences, st.sampled_from([LONG, OVER]), signal=st.sampled_from(["", "cancel"])
    ),
    st.builds(RenewLease, st.sampled_from([LONG, OVER])),
    st.sampled_from(["release", "end"]),
)
times = st.sampled_from([None, 0, LONG])
guards = st.builds(
    Guard,
    version=st.sampled_from([None, 0, 1, 2, 3, 4]),
    fence=st.none() | fences,
    lease_over=st.booleans(),
    message_count=st.sampled_from([None, None, 0, 1]),
)
writes = st.builds(
    Write,
    st.just(KEY),
    st.sampled_from([f"write:{number}" for number in range(20)]),
    guards,
    first_version=st.sampled_from([1, 3]),
    head=st.none() | records,
    fields=st.dictionaries(st.sampled_from(NAMES), st.none() | records),
    messages=st.lists(records, max_size=2).map(tuple),
    view=st.sampled_from([None, None, View(), View((Span(0, 1), Span(2))), View((Span(1),))]),
    receipts=st.dictionaries(st.sampled_from(NAMES), st.sampled_from(["1", "2"])),
    enqueue=st.none() | st.builds(QueueEntry, runs, records),
    dequeue=st.none() | runs,
    log=st.none()
    | st.builds(LogChange, runs, st.none() | entries, st.none() | positions, st.booleans()),
    runs=st.dictionaries(runs, records),
    lease=st.none() | leases,
    signal=st.sampled_from([None, "", "cancel"]),
    due=st.sampled_from([None, NEVER_DUE]) | st.builds(Due, times, times),
    owes=st.sampled_from([None, True, False]),
)
appends = st.builds(Append, st.just(KEY), runs, fences, st.none() | entries)


def _with_version(write: Write, version: int) -> Write:
    """Return a write whose guard more often holds: 1 means the version that there is."""
    guard = write.guard
    return replace(write, guard=replace(guard, version=version)) if guard.version == 1 else write


@examples(300)
@given(given_=st.lists(writes | appends, max_size=20))
async def test_each_step_is_that_of_the_reference(given_: list[Write | Append]) -> None:
    known = Conversation()
    async with MemoryStore() as store:
        await store.apply(Write(KEY, "first", Guard(version=0)))
        known, _ = apply_write(known, Write(KEY, "first", Guard(version=0)))
        for each in given_:
            if isinstance(each, Append):
                known, appended = append(known, each, LONG)
                assert [appended] == await store.append([each], lease=LONG)
            else:
                write = _with_version(each, known.version)
                known, answer = apply_write(known, write)
                assert answer == await store.apply(write)
            await _assert_same(known, store)


async def _assert_same(known: Conversation, store: MemoryStore) -> None:
    found, other = read(known, ALL), await store.read(KEY, ALL)
    assert found == replace(other, created=0, updated=0)
    assert (found.due is None) is (other.due is None)
    for run_id in RUNS:
        page = await store.log(KEY, run_id, after=START, limit=100)
        assert known.log(run_id) == (() if page is None else page.entries)
    owing = await store.query(Query(KEY.owner, "owing"))
    assert bool(owing.listed) is known.owes
    is_over = known.lease_is_over or (known.lease is None and known.due == known.now)
    assert bool(await store.due(1, milliseconds=0)) is is_over


def test_nothing_is_read_where_there_is_nothing() -> None:
    assert read(Conversation(), ALL).messages == ()
    assert read(Conversation(), Wanted()).messages is None
    assert Conversation().spans == WHOLE
