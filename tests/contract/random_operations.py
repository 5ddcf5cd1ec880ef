"""Random operations on a conversation in several stores: the answer of one is that of all."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar, cast

from tests.support.store_values import (
    CANCELLED,
    FINISHED,
    LONG,
    LOST,
    answer,
    asking,
    new_key,
    new_nonce,
    new_run,
    opening,
    user,
)

from passback.core.budgets import Spent
from passback.core.changes import (
    Change,
    ClaimRequest,
    Commit,
    Enqueue,
    Lease,
    LoadedConversation,
    LogWrite,
    Page,
    QueuedPost,
    Status,
    WrittenTitle,
    dump_message,
)
from passback.core.conversation.tree import NO_MESSAGE, Tree
from passback.core.conversation_settings import NO_SETTINGS, ConversationSettings
from passback.core.errors import PassbackError
from passback.core.events import START, Position, Rewound, RunEvent, RunQueued, TextDelta
from passback.core.messages import (
    CallId,
    ConversationKey,
    Message,
    PlanEntry,
    RunId,
    RunRef,
    ToolSpec,
    Usage,
)
from passback.core.posts import OnBusy, Receipt, ReceiptName, StartRun
from passback.core.state import State, TitleCall
from passback.core.transcript import owed_answers
from passback.engine.ledger import Ledger

T = TypeVar("T")
Asked = Callable[[Ledger], Awaitable[object]]

NAMES: list[ReceiptName] = ["call:a", "call:b", "message:a", "key:a"]
BATCHES: list[tuple[Message, ...]] = [
    (),
    (user("hello"),),
    (asking("a"),),
    (asking("a", "b"), answer("a")),
    (answer("b"),),
]
SETTINGS = [
    NO_SETTINGS,
    ConversationSettings("/one", ("/two",)),
    ConversationSettings(mode="ask", effort="low"),
]
ON_BUSY: list[OnBusy] = ["enqueue", "interrupt"]


class Pick:
    """Choices, one after the other, that a number makes; 0 makes the first of each."""

    def __init__(self, number: int) -> None:
        self._number = number

    def below(self, count: int) -> int:
        self._number, rest = divmod(self._number, count)
        return rest

    def of(self, choices: Sequence[T]) -> T:
        return choices[self.below(len(choices))]

    def seldom(self) -> bool:
        return self.below(6) == 5


@dataclass
class RandomOperations:
    """One conversation's history as its writers know it, and what was sent to all stores."""

    stores: Sequence[Ledger]
    key: ConversationKey = field(default_factory=new_key)
    messages: tuple[Message, ...] = ()
    record: tuple[Message, ...] = ()
    tree: Tree = field(default_factory=Tree)
    state: State = field(default_factory=State)
    title_call: TitleCall | None = None
    leases: list[Lease] = field(default_factory=list[Lease])
    runs: list[RunRef] = field(default_factory=list[RunRef])
    sent: list[Asked] = field(default_factory=list[Asked])
    logged: int = 1
    step: int = 0
    replayed: bool = False

    async def ask(self, operation: Asked) -> object:
        """Run an operation on every store; the answers are one."""
        answers = await asyncio.gather(*(outcome(operation, store) for store in self.stores))
        assert answers == answers[:1] * len(answers)
        return answers[0]

    async def send(self, operation: Asked) -> object:
        """A write, which may be sent again later."""
        self.sent.append(operation)
        return await self.ask(operation)

    async def status(self) -> Status:
        status = await self.ask(lambda store: store.status(self.key))
        assert isinstance(status, Status)
        return status

    async def load(self) -> LoadedConversation:
        loaded = await self.ask(lambda store: store.load(self.key, receipts=NAMES))
        assert isinstance(loaded, LoadedConversation)
        return loaded

    async def stored(self, status: Status) -> tuple[Message, ...]:
        """The messages of all branches, by their numbers."""
        every = Tree(status.stored - 1)
        found = await self.ask(
            lambda store: store.read_branch(self.key, every, start=0, limit=1000)
        )
        return cast("tuple[Message, ...]", found)

    async def whole(self) -> tuple[Message, ...]:
        """The record, also what is before the boundary."""
        page = await self.ask(lambda store: store.page(self.key, start=0, limit=1000))
        assert isinstance(page, Page)
        return page.messages

    def branch(self, leaf: int | None) -> tuple[Message, ...]:
        """The branch that ends with a message; None: the one that is read."""
        if leaf is None:
            return self.messages
        numbers = list[int]()
        while leaf != NO_MESSAGE:
            numbers.append(leaf)
            leaf = self.tree.parent(leaf)
        return tuple(self.record[number] for number in reversed(numbers))

    def apply(self, change: Change) -> None:
        kept = self.branch(change.leaf)
        if self.state.history_start > len(kept):
            self.state = replace(self.state, history_start=0)
        self.messages = (*kept, *change.append)
        self.record += (*change.left, *change.append)
        self.state = change.state or self.state

    def take(self, lease: Lease, logged: int) -> None:
        self.leases.append(lease)
        self.logged, self.step = logged, 0

    async def finish(self) -> None:
        """Compare all that is kept."""
        known, loaded = self.messages, await self.load()
        assert loaded.status.state == replace(self.state, title_call=self.title_call)
        assert loaded.messages == known[self.state.history_start :]
        size = sum(len(dump_message(message)) for message in loaded.messages)
        assert loaded.status.history_bytes == size
        assert [queued.run_id for queued in loaded.queue] == list(loaded.status.queued)
        if not self.replayed:
            assert loaded.status.owed == owed_answers(known)
        assert await self.whole() == known
        assert await self.stored(loaded.status) == self.record
        for run in self.runs:
            await read_log(self, run, START, 1000)
            await compare_records(self, run)


async def outcome(operation: Asked, store: Ledger) -> object:
    try:
        return await operation(store)
    except PassbackError as error:
        return type(error), error.message


# ---------------------------------------------------------------- reading
async def read(walk: RandomOperations, pick: Pick) -> None:
    start, limit = pick.below(5), pick.below(4)
    await walk.ask(lambda store: store.page(walk.key, start=start, limit=limit))
    for run in walk.runs[-3:]:
        status = await walk.status()
        epoch = max(0, status.committed.epoch - pick.below(3))
        place = Position(epoch, pick.below(6))
        await read_log(walk, run, place, pick.of([1000, 1, 3]))
        await find_next_run(walk, place)


async def find_next_run(walk: RandomOperations, after: Position) -> None:
    await walk.ask(lambda store: store.next_run(walk.key, after=after))


async def read_log(walk: RandomOperations, run: RunRef, after: Position, limit: int) -> None:
    await walk.ask(lambda store: store.read_log(run, after=after, limit=limit))


async def compare_records(walk: RandomOperations, run: RunRef) -> None:
    async def read_record(store: Ledger) -> object:
        record = await store.run_record(run)
        return replace(record, began=0, ended=record.ended and 1)  # each store has its own time

    await walk.ask(read_record)


# ---------------------------------------------------------------- changes
def a_change(
    walk: RandomOperations, status: Status, pick: Pick, dequeues: RunId | None = None
) -> Change:
    batch, leaf = pick.of(BATCHES), pick.below(status.stored + 1) - 1 if pick.seldom() else None
    left = () if leaf is None else pick.of(BATCHES)
    walk.tree = status.tree
    kept = walk.branch(leaf)
    run_id = RunId("r") if pick.below(2) else None
    receipts = {pick.of(NAMES): Receipt(f"{pick.below(3):064x}", run_id)} if pick.below(2) else {}
    tools = (ToolSpec("tool", "", {"type": "object"}),) if pick.seldom() else None
    return Change(
        walk.key,
        new_nonce(),
        status.version + pick.seldom(),
        batch,
        receipts,
        owed_answers((*kept, *batch)),
        tools,
        leaf,
        left,
        pick.below(3),
        dequeues,
        pick.seldom(),
        a_state(pick, len(kept) + len(batch)),
        pick.of([None, "title", ""]),
        bool(pick.below(2)),
        pick.of(SETTINGS) if pick.seldom() else None,
    )


def a_state(pick: Pick, count: int) -> State | None:
    """Draw a boundary in a conversation of so many messages; mostly keep it."""
    if not pick.seldom():
        return None
    plan = tuple(PlanEntry(f"entry {number}") for number in range(pick.below(3)))
    return State(plan, cost=pick.below(4) / 8, history_start=pick.below(count + 1))


async def park(walk: RandomOperations, pick: Pick) -> None:
    change = a_change(walk, await walk.status(), pick)
    if await walk.send(lambda store: store.park(change)) is True:
        walk.apply(change)


async def begin(walk: RandomOperations, pick: Pick) -> None:
    """A run begins, mostly that of the first post that waits."""
    status = await walk.status()
    first = status.queued[-1:] if pick.seldom() else status.queued[:1]
    dequeues = None if pick.seldom() else next(iter(first), None)
    change, run_id = a_change(walk, status, pick, dequeues), dequeues or new_run()
    events = (*opening(run_id), *some_texts(pick))
    lease = 0 if pick.seldom() else LONG
    held = await walk.send(lambda store: store.begin(change, run_id, events, lease=lease))
    if isinstance(held, Lease):
        walk.apply(change)
        walk.take(held, len(events))
        if dequeues is None:
            walk.runs.append(held.run)


async def take_over(walk: RandomOperations, pick: Pick) -> None:
    status = await walk.status()
    change, run_id = a_change(walk, status, pick), status.run_id or RunId("none")
    events = (Rewound(status.committed), *some_texts(pick))
    lease = 0 if pick.seldom() else LONG
    held = await walk.send(lambda store: store.take_over(change, run_id, events, lease=lease))
    if isinstance(held, Lease):
        walk.apply(change)
        walk.take(held, len(events))


async def fail_lost(walk: RandomOperations, pick: Pick) -> None:
    status = await walk.status()
    change, run_id = a_change(walk, status, pick), status.run_id or RunId("none")
    events = (Rewound(status.committed), LOST)
    if await walk.send(lambda store: store.fail_lost(change, run_id, events)) is True:
        walk.apply(change)


async def hold(walk: RandomOperations, pick: Pick) -> None:
    """A client claims a call, renews or gives back its claim."""
    status = await walk.status()
    expected, call = status.version + pick.seldom(), pick.of([CallId("a"), CallId("b")])
    claim = ClaimRequest(walk.key, new_nonce(), expected, call, pick.of(["one", "other"]))
    seconds = pick.of([LONG, LONG, 0])
    await walk.send(lambda store: store.claim_call(claim, seconds=seconds))


# ---------------------------------------------------------------- the queue
async def enqueue(walk: RandomOperations, pick: Pick) -> None:
    run_id = new_run()
    post = StartRun(walk.key, (user(f"next {pick.below(3)}"),), on_busy=pick.of(ON_BUSY))
    receipts = {pick.of(NAMES): Receipt(f"{pick.below(3):064x}", run_id)} if pick.seldom() else {}
    entry = Enqueue(QueuedPost(run_id, post), receipts, (RunQueued(run_id),), 1 + pick.below(3))
    if await walk.send(lambda store: store.enqueue(entry)) == "queued":
        walk.runs.append(entry.run)


async def cancel(walk: RandomOperations, pick: Pick) -> None:
    if walk.runs:
        run = pick.of(walk.runs[:-4:-1])
        await walk.send(lambda store: store.cancel(run, CANCELLED))


# ---------------------------------------------------------------- the run
def a_lease(walk: RandomOperations, pick: Pick) -> Lease | None:
    """Mostly the newest."""
    if not walk.leases:
        return None
    return pick.of(walk.leases) if pick.seldom() else walk.leases[-1]


def some_texts(pick: Pick) -> tuple[RunEvent, ...]:
    return tuple(TextDelta(f"text {number}") for number in range(pick.below(4)))


async def append(walk: RandomOperations, pick: Pick) -> None:
    lease = a_lease(walk, pick)
    if lease is None:
        return
    events, seconds = some_texts(pick), 0 if pick.seldom() else LONG
    writes = [LogWrite(lease, walk.logged + 1 + pick.seldom(), events)]
    if await walk.send(lambda store: store.append(writes, lease=seconds)) != ["lost"]:
        walk.logged += len(events)


async def commit(walk: RandomOperations, pick: Pick) -> None:
    lease = a_lease(walk, pick)
    if lease is None:
        return
    ends = pick.below(4) == 3
    events = (*some_texts(pick), *([FINISHED] if ends else []))
    batch, cut = pick.of(BATCHES[:3]), ends and pick.below(2) == 1
    log = LogWrite(lease, walk.logged + 1 + pick.seldom(), events)
    owing = owed_answers((*walk.messages, *batch))
    within = pick.of([None, LONG, 0]) if ends and owing else None
    state = a_state(pick, len(walk.messages) + len(batch))
    turn = Commit(log, walk.step, batch, owing, ends, cut, within, state)
    seconds, known = 0 if pick.seldom() else LONG, await walk.status()
    await walk.send(lambda store: store.commit(turn, lease=seconds))
    if (await walk.status()).version != known.version:
        walk.messages, walk.state = walk.messages + batch, state or walk.state
        walk.record += batch
        walk.logged, walk.step = walk.logged + len(events), walk.step + 1


async def renew(walk: RandomOperations, pick: Pick) -> None:
    leases, seconds = walk.leases[-2:], pick.of([LONG, 0])
    await walk.ask(lambda store: store.renew(leases, lease=seconds))


async def release(walk: RandomOperations, pick: Pick) -> None:
    lease = a_lease(walk, pick)
    if lease is not None and pick.below(3) == 0:
        await walk.send(lambda store: store.release(lease))


async def attend(walk: RandomOperations, pick: Pick) -> None:
    if walk.runs:
        run, seconds = pick.of(walk.runs[:-3:-1]), pick.of([LONG, 0])
        await walk.send(lambda store: store.keep_followed(run, seconds=seconds))


# ---------------------------------------------------------------- the whole conversation
async def take_due(walk: RandomOperations, pick: Pick) -> None:
    """A hint, which may come late: but nobody is sent to a conversation that has no need of it."""
    needs = await walk.status()
    may_be = needs.lapsed or needs.overdue or (bool(needs.queued) and not needs.running)
    for store in walk.stores:
        found = await store.take_due(1000, lease=0)
        assert may_be or walk.key not in found


async def inbox(walk: RandomOperations, pick: Pick) -> None:
    """Check that the inbox has a conversation only while that owes answers."""
    needs = await walk.status()
    for store in walk.stores:
        found = (await store.inbox(walk.key.owner, limit=1000)).owing
        statuses = [each.status for each in found if each.key == walk.key]
        assert statuses in ([], [needs])
        assert not statuses or (needs.owed and not needs.running)


async def rename(walk: RandomOperations, pick: Pick) -> None:
    title = pick.of(["one", "other", "naïve 会話"])
    await walk.send(lambda store: store.rename(walk.key, title))


async def configure(walk: RandomOperations, pick: Pick) -> None:
    settings = pick.of(SETTINGS)
    await walk.send(lambda store: store.configure(walk.key, settings))


async def hide_run(walk: RandomOperations, pick: Pick) -> None:
    if walk.runs:
        run = pick.of(walk.runs[:-4:-1])
        await walk.send(lambda store: store.hide_run(run))


async def write_title(walk: RandomOperations, pick: Pick) -> None:
    known, late = await walk.status(), pick.seldom()
    call = TitleCall(Usage(pick.below(9)), Spent(pick.below(9)))
    title = pick.of(["", "one", "other"])

    async def write(store: Ledger) -> bool:
        created = (await store.status(walk.key)).created + late  # each store has its own time
        return await store.write_title(WrittenTitle(walk.key, created, title, call))

    if await walk.send(write) is True and known.state.title_call is None:
        walk.title_call = call


async def list_conversations(walk: RandomOperations, pick: Pick) -> None:
    """Check that the list has a conversation while it exists, and finds it by its title."""
    status, search = await walk.status(), pick.of(["", "O", "HE"])
    is_there = status.version > 0 and search.casefold() in status.title
    for store in walk.stores:
        page = await store.conversations(walk.key.owner, limit=1000, search=search)
        statuses = [each.status for each in page.conversations if each.key == walk.key]
        # other conversations may be more than one page has
        assert statuses == [status] * is_there or (page.next and not statuses)


async def delete(walk: RandomOperations, pick: Pick) -> None:
    if pick.seldom() and await walk.ask(lambda store: store.delete(walk.key)) is True:
        walk.messages, walk.state, walk.title_call = (), State(), None
        walk.record = ()


async def repeat(walk: RandomOperations, pick: Pick) -> None:
    """Send an operation again, which may be as old as the conversation."""
    if walk.sent:
        known = await walk.status()
        await walk.ask(walk.sent[-1 - pick.below(min(6, len(walk.sent)))])
        if (await walk.status()).version != known.version:
            walk.replayed = True
            walk.messages, walk.state = await walk.whole(), (await walk.status()).state
            walk.title_call = walk.state.title_call
            walk.record = await walk.stored(await walk.status())


Operation = Callable[[RandomOperations, Pick], Awaitable[None]]
OPERATIONS: list[Operation] = [
    *[read, begin, begin, append, append, append, commit, commit, commit, enqueue, enqueue],
    *[
        park,
        hold,
        hold,
        take_over,
        take_over,
        take_over,
        release,
        fail_lost,
        cancel,
        attend,
        renew,
        take_due,
        inbox,
        rename,
        configure,
        hide_run,
        write_title,
        list_conversations,
        delete,
    ],
    *[repeat, repeat, repeat, repeat],
]
