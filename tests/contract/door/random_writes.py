"""Random writes and reads on two stores: the answer of one is that of the other.

A walk makes only what a caller of the door may: positions of a log only grow, an epoch belongs to
one run, and what voids entries, takes a lease or enqueues has a version in its guard. Times are
over at once or not at all, so that no clock decides.
"""

import random
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from typing import TypeVar

from tests.contract.door.writes import (
    LONG,
    OVER,
    all_pages,
    new_id,
    new_key,
    new_owner,
    new_run,
    tag_of,
)

from passback.core.conversation.store import (
    WHOLE,
    Amounts,
    Append,
    Applied,
    Due,
    Found,
    Guard,
    LeaseChange,
    LogChange,
    LogEntry,
    LogPage,
    Query,
    QueueEntry,
    RenewLease,
    Span,
    SpentUnder,
    Store,
    TakeLease,
    View,
    Wanted,
    Write,
)
from passback.core.events import START, Position
from passback.core.ids import ConversationTag
from passback.core.messages import ConversationKey, RunId

T = TypeVar("T")

FIELDS = ("title", "tools", "state")
RECEIPTS = ("key:a", "key:b", "message:c")
ENTRY_BYTES = (20, 40, 150)  # sizes of records in logs


@dataclass
class Tale:
    """What a walk knows of one conversation beside what the stores say.

    Attributes:
        runs: all that were named, newest last.
        places: of each run, the positions of entries that are not void, also trimmed ones.
        fences: each that was taken, with the run and the epoch of its log, newest last.
        sent: writes that may be sent again.
        applied: the ids of those that were applied.
        epochs: of each run, the newest in its log, of void entries too.
        is_due_sure: both stores have to say the same about when it is due.
    """

    key: ConversationKey
    runs: list[RunId] = field(default_factory=list[RunId])
    places: dict[RunId, list[Position]] = field(default_factory=dict[RunId, list[Position]])
    fences: dict[str, tuple[RunId, int]] = field(default_factory=dict[str, tuple[RunId, int]])
    sent: deque[Write] = field(default_factory=lambda: deque[Write](maxlen=40))
    applied: set[str] = field(default_factory=set[str])
    epochs: dict[RunId, int] = field(default_factory=dict[RunId, int])
    is_due_sure: bool = True

    def may_repeat(self, write: Write) -> bool:
        """Tell if a write may be sent again: positions of a log only grow, beyond void ones too."""
        if write.log is None or write.log.entry is None or write.id in self.applied:
            return True
        return write.log.entry.position.epoch >= self.epochs.get(write.log.run_id, 0)

    def forget(self) -> None:
        """The conversation is gone; only the write that made it may still be sent again."""
        self.runs, self.places, self.fences, self.epochs = [], {}, {}, {}
        self.sent = deque((w for w in self.sent if w.guard.version == 0), maxlen=40)
        self.is_due_sure = True

    def note(self, write: Write, found: Found) -> None:
        """A write was applied for the first time."""
        self.applied.add(write.id)
        if write.log is not None:
            places = self.places.setdefault(write.log.run_id, [])
            if (void := write.log.void_after) is not None:
                places[:] = [place for place in places if place <= void]
            self.note_entry(write.log.run_id, write.log.entry)
        if write.enqueue is not None:
            self.runs.append(write.enqueue.run_id)
        self._note_due(write, found)
        if isinstance(write.lease, TakeLease) and write.log is not None and write.log.entry:
            run_id, epoch = write.log.run_id, write.log.entry.position.epoch
            self.fences[write.lease.fence] = run_id, epoch
            if run_id not in self.runs:
                self.runs.append(run_id)

    def _note_due(self, write: Write, found: Found) -> None:
        if isinstance(write.lease, RenewLease):
            # whether the time of one that is over is another then is left to the store
            self.is_due_sure = write.lease.milliseconds == LONG
        elif write.lease is not None:
            self.is_due_sure = True
        elif write.due is not None:
            # whether a time that does not count yet makes it due anew is left to the store
            self.is_due_sure = found.lease is None

    def note_entry(self, run_id: RunId, entry: LogEntry | None) -> None:
        places = self.places.setdefault(run_id, [])
        if entry is not None and entry.position > max(places, default=START):
            places.append(entry.position)
            self.epochs[run_id] = max(entry.position.epoch, self.epochs.get(run_id, 0))


class RandomWrites:
    """A walk over some conversations of two owners.

    Args:
        reference: the store whose answers are right.
        other: the one that is compared with it.
        has_hints: as in `DoorKind`; what is due, and the order of lists, is not compared.
    """

    def __init__(
        self, reference: Store, other: Store, seed: int, *, has_hints: bool = False
    ) -> None:
        self.writes = 0
        self._trace: deque[str] = deque(maxlen=30)
        self._seed = seed
        self._stores = (reference, other)
        self._has_hints = has_hints
        self._random = random.Random(seed)
        self._owners = [new_owner(), new_owner()]
        self._tales = [Tale(new_key(self._owners[number % 2])) for number in range(3)]
        self._epoch = 0
        self._number = 0

    def __enter__(self) -> "RandomWrites":
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Say how to come to an error again."""
        if error is not None:
            steps = "\n".join(self._trace)
            error.add_note(f"again with DOOR_SEED={self._seed}; the last steps were\n{steps}")

    # ---------------------------------------------------------------- the walk
    async def walk(self, writes: int) -> None:
        """Make so many writes, then compare all that is there, and delete it."""
        operations: list[tuple[int, Callable[[Tale], Awaitable[None]]]] = [
            (50, self._write),
            (25, self._append),
            (12, self._repeat),
            (5, self._read_parts),
            (4, self._take_due),
            (3, self._list_all),
            (2, self._spend),
            (1, self._delete),
        ]
        weights = [weight for weight, _ in operations]
        while self.writes < writes:
            [(_, operation)] = self._random.choices(operations, weights)
            await operation(self._random.choice(self._tales))
        for tale in self._tales:
            await self._compare(tale)
            await self._list_all(tale)
            await self._delete(tale)

    async def _ask(self, what: object, operation: Callable[[Store], Awaitable[T]]) -> T:
        """Return the answer of the reference, which is that of the other one."""
        self._trace.append(f"{what}")
        expected, answer = [await operation(store) for store in self._stores]
        assert answer == expected, f"\n  expected {expected!r}\n  answered {answer!r}"
        return expected

    def _chance(self, part: float) -> bool:
        return self._random.random() < part

    def _numbered(self, name: str, size: int = 0) -> bytes:
        self._number += 1
        return f"{name} {self._number}".encode().ljust(size, b".")

    async def _found(self, tale: Tale) -> Found:
        """Read a conversation from the reference alone, to choose what fits."""
        found = await self._stores[0].read(tale.key, Wanted())
        if not found.version and tale.places:
            tale.forget()
        return found

    # ---------------------------------------------------------------- writes
    async def _write(self, tale: Tale) -> None:
        found = await self._found(tale)
        write = self._make_write(tale, found)
        tale.sent.append(write)
        await self._send(tale, write)

    async def _repeat(self, tale: Tale) -> None:
        """Send a write again: one of the last, or an old one that may be forgotten."""
        sent = [write for write in tale.sent if tale.may_repeat(write)]
        if sent:
            latest = sent[-3:] if self._chance(0.5) else sent
            await self._send(tale, self._random.choice(latest))

    async def _send(self, tale: Tale, write: Write) -> None:
        self.writes += 1
        before = await self._found(tale)
        answer = await self._ask(write, lambda store: store.apply(write))
        found = await self._stores[0].read(tale.key, Wanted())
        if _is_new(answer, before):
            tale.note(write, found)
        if not found.version:
            tale.forget()
        await self._compare(tale, [] if write.log is None else [write.log.run_id])

    def _make_write(self, tale: Tale, found: Found) -> Write:
        guard = self._make_guard(tale, found)
        write = self._with_records(Write(tale.key, new_id(), guard), found)
        if found.version == 0 and guard.version == 0:
            write = replace(write, first_version=self._random.choice([1, 7, 2**40]) + self.writes)
        if guard.version is not None and guard.fence is None:
            write = self._with_versioned_parts(tale, found, write)
        elif guard.fence is not None:
            write = self._with_fenced_parts(tale, found, write)
        elif self._chance(0.1):
            write = replace(write, lease=self._random.choice(["release", "end"]))
        return write

    def _make_guard(self, tale: Tale, found: Found) -> Guard:
        version = found.version + (self._random.choice([-1, 1]) if self._chance(0.1) else 0)
        count = found.message_count + (1 if self._chance(0.1) else 0)
        message_count = count if self._chance(0.2) else None
        fence = found.lease.fence if found.lease is not None else None
        if self._chance(0.1) and tale.fences:
            fence = self._random.choice(list(tale.fences))
        if fence is not None and self._chance(0.5):
            some = version if self._chance(0.2) else None
            return Guard(some, fence, self._chance(0.05), message_count)
        if self._chance(0.15):
            return Guard(None, None, self._chance(0.2), message_count)
        lease_over = found.lease is not None and self._chance(0.5)
        return Guard(max(0, version), None, lease_over, message_count)

    def _with_records(self, write: Write, found: Found) -> Write:
        chance = self._chance
        messages = tuple(
            self._numbered("message") for _ in range(self._random.choice([0, 0, 1, 3]))
        )
        fields = {
            name: None if chance(0.3) else self._numbered(name) for name in FIELDS if chance(0.3)
        }
        return replace(
            write,
            head=self._numbered("head") if chance(0.4) else None,
            fields=fields,
            messages=messages,
            view=self._make_view(found.message_count + len(messages)) if chance(0.15) else None,
            receipts={name: self._numbered(name).decode() for name in RECEIPTS if chance(0.15)},
            dequeue=self._pick_queued(found) if chance(0.2) else None,
            signal=self._random.choice(["", "stop", "other"]) if chance(0.1) else None,
            due=self._make_due() if chance(0.2) else None,
            owes=self._random.choice([True, False]) if chance(0.2) else None,
            touches=chance(0.3),
        )

    def _pick_queued(self, found: Found) -> RunId:
        waiting = [each.run_id for each in found.queue]
        return self._random.choice(waiting) if waiting else new_run()

    def _make_view(self, count: int) -> View:
        """Any spans of messages that will be there, in their order."""
        cuts = sorted(self._random.randint(0, count) for _ in range(4))
        closed = Span(cuts[0], cuts[1]), Span(cuts[1], cuts[2])
        return View(
            self._random.choice(
                [WHOLE, (Span(cuts[0]),), (closed[0], Span(cuts[2])), closed, closed[:1], ()]
            )
        )

    def _make_due(self) -> Due:
        return Due(self._random.choice([None, OVER, LONG]), self._random.choice([None, OVER, LONG]))

    def _with_versioned_parts(self, tale: Tale, found: Found, write: Write) -> Write:
        """Begin a run, take one over, end one that is lost, or enqueue."""
        choice = self._random.random()
        if choice < 0.25:
            run_id = new_run()
            log = LogChange(run_id, self._opening()) if self._chance(0.8) else None
            return replace(write, enqueue=QueueEntry(run_id, self._numbered("queued")), log=log)
        if choice < 0.75:
            # of a run that waits, of the one before, or of none yet
            known = [*[each.run_id for each in found.queue][:1], *tale.runs[-1:], new_run()]
            run_id = self._random.choice(known)
            log = LogChange(run_id, self._opening(), self._void(tale, run_id))
            lease: LeaseChange = self._take()
            runs = {run_id: self._numbered("run")} if self._chance(0.5) else {}
            return replace(write, log=log, lease=lease, runs=runs)
        if choice < 0.85 and tale.runs:
            run_id = tale.runs[-1]
            log = LogChange(run_id, self._opening(), self._void(tale, run_id), ends=True)
            return replace(write, log=log, lease="end")
        if choice < 0.9:
            return replace(write, lease=self._random.choice(["release", "end", self._take()]))
        return write

    def _take(self) -> TakeLease:
        self._number += 1
        signal = self._random.choice(["", "", "from the beginning"])
        return TakeLease(f"fence:{self._number}", self._random.choice([OVER, LONG]), signal)

    def _void(self, tale: Tale, run_id: RunId) -> Position | None:
        places = tale.places.get(run_id)
        if not places or self._chance(0.3):
            return None
        # the first ones may have been trimmed away
        return self._random.choice(places[:2] if self._chance(0.5) else places)

    def _opening(self) -> LogEntry:
        self._epoch += self._random.choice([1, 1, 9])
        size = self._random.choice([1, 1, 3])
        return LogEntry(Position(self._epoch, size), size, self._record())

    def _record(self) -> bytes:
        return self._numbered("events", self._random.choice(ENTRY_BYTES))

    def _with_fenced_parts(self, tale: Tale, found: Found, write: Write) -> Write:
        """Log, renew, or end the run, under a fence."""
        fence = write.guard.fence
        if fence in tale.fences and self._chance(0.8):
            run_id, _ = tale.fences[fence]
            entry = self._next_entry(tale, found, fence)
            # a log that has ended is not written to under its lease
            ends = self._chance(0.15)
            write = replace(write, log=LogChange(run_id, entry, ends=ends))
            if ends:
                return replace(write, lease="end")
        changes: list[LeaseChange | None] = [RenewLease(LONG), RenewLease(OVER), "release", "end"]
        changes += [None] * 3
        return replace(write, lease=self._random.choice(changes))

    def _next_entry(self, tale: Tale, found: Found, fence: str) -> LogEntry | None:
        """Return an entry that follows, is there already, leaves a gap, or overlaps."""
        if fence not in tale.fences or self._chance(0.1):
            return None
        run_id, epoch = tale.fences[fence]
        seq = found.lease.seq if found.lease is not None else 0
        size = self._random.choice([1, 1, 2, 5])
        if self._chance(0.15):
            known = [each for each in tale.places.get(run_id, []) if each.epoch == epoch]
            if known:
                return LogEntry(self._random.choice(known), 1, self._record())
        gap = self._random.choice([1, -1]) if self._chance(0.08) else 0
        return LogEntry(Position(epoch, max(size, seq + size + gap)), size, self._record())

    # ---------------------------------------------------------------- appends
    async def _append(self, tale: Tale) -> None:
        """Append to this conversation and to some of the others."""
        self.writes += 1
        tales = [each for each in self._tales if each is tale or self._chance(0.2)]
        appends: list[Append] = []
        for each in tales:
            found = await self._found(each)
            appends += self._make_appends(each, found)
        lease = OVER if self._chance(0.15) else LONG
        answers = await self._ask(appends, lambda store: _append(store, appends, lease))
        by_key = {each.key: each for each in tales}
        for given, (held, _) in zip(appends, answers, strict=True):
            if held:
                written = by_key[given.key]
                written.note_entry(given.run_id, given.entry)
                # whether a lease that was made shorter is due at once is left to the store
                written.is_due_sure = written.is_due_sure and lease == LONG
        for each in tales:
            await self._compare(each, {it.run_id for it in appends if it.key == each.key})

    def _make_appends(self, tale: Tale, found: Found) -> list[Append]:
        fence = found.lease.fence if found.lease is not None else ""
        if self._chance(0.1) and tale.fences:
            fence = self._random.choice(list(tale.fences))
        if fence not in tale.fences:
            return [Append(tale.key, new_run(), fence or "nobody")] * self._chance(0.1)
        run_id, _ = tale.fences[fence]
        first = Append(tale.key, run_id, fence, self._next_entry(tale, found, fence))
        if self._chance(0.8) or first.entry is None:
            return [first]
        # the next one in the same call
        place = first.entry.position
        behind = LogEntry(Position(place.epoch, place.seq + 1), 1, self._record())
        return [first, replace(first, entry=behind)]

    # ---------------------------------------------------------------- reads
    async def _compare(self, tale: Tale, runs: Iterable[RunId] | None = None) -> None:
        """Compare all that can be read of a conversation; of its logs those of `runs`, or all."""
        wanted = Wanted(FIELDS, RECEIPTS, tuple(tale.runs[-8:]), queue=True, within=inf)
        found = await self._ask("read", lambda store: _read(store, tale.key, wanted))
        for run_id in tale.places if runs is None else runs:
            await self._ask(f"log {run_id}", partial(_log, key=tale.key, run_id=run_id))
        if runs is None:
            await self._ask("page", lambda store: _page(store, tale.key, WHOLE, 10_000))
            await self._ask("logs", lambda store: _follow(store, tale.key))
            tag = ConversationTag(tag_of(tale.key))
            by_tag = await self._ask("tag", lambda store: store.read(tag, wanted))
            assert by_tag.version == found[0].version

    async def _read_parts(self, tale: Tale) -> None:
        """Read as a client does: some of it, from anywhere."""
        found = await self._found(tale)
        size = found.view.size or 0
        within = self._random.choice([None, 0, 20, size, max(0, size - 1)])
        wanted = Wanted(FIELDS[:1], RECEIPTS[1:], tuple(tale.runs[:1]), within=within)
        await self._ask(f"read {within}", lambda store: _read(store, tale.key, wanted))
        spans = self._make_view(found.message_count).spans
        limit = self._random.randint(1, 6)
        await self._ask(f"page {spans}", lambda store: _page(store, tale.key, spans, limit))
        places = [place for each in tale.places.values() for place in each]
        near = self._random.choice(places) if places else START
        after = Position(near.epoch, max(0, near.seq + self._random.choice([-1, 0, 0, 1])))
        for run_id in [None, *tale.runs[-2:], new_run()]:
            await self._ask(
                f"log {run_id} {after}",
                partial(_log_part, key=tale.key, run_id=run_id, after=after, limit=limit),
            )
        await self._compare(tale)

    async def _take_due(self, tale: Tale) -> None:
        milliseconds = self._random.choice([OVER, LONG])
        sure = {each.key for each in self._tales if each.is_due_sure and not self._has_hints}

        async def take(store: Store) -> set[ConversationKey]:
            return sure.intersection(await store.due(10_000, milliseconds=milliseconds))

        await self._ask(f"due {milliseconds}", take)

    async def _list_all(self, tale: Tale) -> None:
        limit, fields = self._random.choice([1, 2, 64]), self._random.choice([(), FIELDS])
        for query in (
            Query(tale.key.owner, "owing", None, limit, fields),
            Query(tale.key.owner, "all", None, limit, fields),
        ):
            await self._ask(query, partial(_pages, query=query, in_order=not self._has_hints))

    async def _spend(self, tale: Tale) -> None:
        pick = self._random.choice
        amounts = Amounts(*(pick([0, 1, 50, 2**53 - 1]) if self._chance(0.9) else 7 for _ in "abc"))
        spent = SpentUnder(
            tale.key.owner, pick(["one", "two"]), pick(["a", "b"]), amounts, pick(range(9))
        )
        await self._ask(spent, lambda store: store.spend(spent))

    async def _delete(self, tale: Tale) -> None:
        await self._ask(f"delete {tale.key}", lambda store: store.delete(tale.key))
        tale.forget()
        await self._compare(tale)


def _is_new(answer: Applied | None, before: Found) -> bool:
    """Tell if a write was applied just now."""
    return answer is not None and answer.version != before.version


# ---------------------------------------------------------------- what is compared
async def _read(store: Store, key: ConversationKey, wanted: Wanted) -> tuple[Found, object, object]:
    """Return a conversation, and what its times say without the clock."""
    found = await store.read(key, wanted)
    lease = found.lease
    over = None if lease is None else lease.expires <= found.now
    due = None if found.due is None else found.due <= found.now
    assert (found.created > 0) == (found.updated > 0) == (found.version > 0)
    assert found.created <= found.updated
    return found, over, due


async def _append(store: Store, appends: Sequence[Append], lease: int) -> list[tuple[bool, str]]:
    answers = await store.append(appends, lease=lease)
    return [(each.held, each.signal) for each in map(_not_failed, answers)]


def _not_failed(answer: T | Exception) -> T:
    if isinstance(answer, Exception):
        raise answer
    return answer


async def _log(store: Store, key: ConversationKey, run_id: RunId) -> list[LogEntry] | None:
    """Read a log to its end."""
    read: list[LogEntry] = []
    page = await store.log(key, run_id, after=START, limit=100)
    while page is not None and page.entries:
        assert page.run_id == run_id
        read += page.entries
        page = await store.log(key, run_id, after=read[-1].position, limit=100)
    return None if page is None and not read else read


async def _log_part(
    store: Store, key: ConversationKey, run_id: RunId | None, after: Position, limit: int
) -> LogPage | None:
    return await store.log(key, run_id, after=after, limit=limit)


async def _follow(store: Store, key: ConversationKey) -> list[LogPage]:
    """Read all logs, each from where the one before was left."""
    pages: list[LogPage] = []
    place = START
    while (page := await store.log(key, None, after=place, limit=1)) is not None:
        pages.append(page)
        place = page.entries[-1].position
    return pages


async def _page(
    store: Store, key: ConversationKey, spans: Sequence[Span], limit: int
) -> list[bytes]:
    return list(await store.page(key, spans, limit=limit))


async def _pages(
    store: Store, query: Query, in_order: bool
) -> list[tuple[ConversationKey, Found | None]]:
    """Read an index to its end; the places are those of a clock."""
    pages = await all_pages(store, query)
    listed = [(each.key, each.found) for page in pages for each in page.listed]
    return listed if in_order else sorted(listed, key=lambda each: each[0].id)
