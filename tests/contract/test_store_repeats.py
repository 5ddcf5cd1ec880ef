"""Promises of every store: a repeated write, at once or much later, changes nothing (P15)."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace

import pytest
from tests.support.store_values import (
    CANCELLED,
    FINISHED,
    LONG,
    LOST,
    asking,
    change,
    new_key,
    new_run,
    opening,
    read_events,
    user,
    waiting,
)
from tests.support.transcript_rules import said_in

from passback.core.changes import (
    CallClaim,
    Change,
    ClaimRequest,
    Commit,
    Enqueue,
    Lease,
    LogWrite,
    Status,
)
from passback.core.errors import LeaseLost
from passback.core.events import Rewound, RunEvent, TextDelta
from passback.core.messages import (
    CallId,
    ConversationKey,
    Message,
    PlanEntry,
    RunId,
    RunRef,
    ToolSpec,
)
from passback.core.ports import Store
from passback.core.posts import Receipt
from passback.core.state import State
from passback.core.transcript import owed_answers

pytestmark = [pytest.mark.anyio, pytest.mark.promise("P15")]

Write = Callable[[], Awaitable[object]]


@dataclass
class RandomConversation:
    """A conversation's life, write by write. Each can be sent again as it was."""

    store: Store
    key: ConversationKey = field(default_factory=new_key)
    runs: list[RunRef] = field(default_factory=list[RunRef])
    sent: dict[str, Write] = field(default_factory=dict[str, Write])

    async def send(self, name: str, write: Write) -> object:
        """Send it twice: the second answer and what is kept are as the first time."""
        self.sent[name] = write
        answer = await write()
        after = await self.kept()
        assert await write() == answer, name
        assert await self.kept() == after, name
        return answer

    async def kept(self) -> tuple[object, ...]:
        names = ["key:park", "key:begin", "key:queue", "key:take_over", "key:fail_lost"]
        logs = [await read_events(self.store, run) for run in self.runs]
        return await self.store.load(self.key, receipts=names), logs

    async def again(self) -> None:
        """Send everything once more, the oldest last."""
        before = await self.kept()
        for name, write in reversed(self.sent.items()):
            with suppress(LeaseLost):
                await write()
            assert await self.kept() == before, name

    # ---------------- the writes
    async def status(self) -> Status:
        return await self.store.status(self.key)

    async def change(self, name: str, *messages: Message) -> Change:
        receipts = {f"key:{name}": Receipt("ab" * 32, RunId(name))}
        return replace(
            change(self.key, (await self.status()).version, *messages),
            receipts=receipts,
            state=State((PlanEntry(name),), history_start=1),
        )

    async def park(self) -> None:
        tools = (ToolSpec("paint", "Paints.", {"type": "object"}),)
        parked = replace(await self.change("park", user("first")), tools=tools)
        assert await self.send("park", lambda: self.store.park(parked)) is True

    async def begin(self, name: str, how: Change, run_id: RunId) -> Lease:
        events = opening(run_id)
        lease = await self.send(name, lambda: self.store.begin(how, run_id, events, lease=LONG))
        assert isinstance(lease, Lease)
        return lease

    async def enqueue(self, name: str, entry: Enqueue) -> Enqueue:
        assert await self.send(name, lambda: self.store.enqueue(entry)) == "queued"
        self.runs.append(entry.run)
        return entry

    async def append(self, name: str, lease: Lease, first: int, answer: str = "held") -> None:
        writes = [LogWrite(lease, first, (TextDelta(name), TextDelta(name)))]
        assert await self.send(name, lambda: self.store.append(writes, lease=LONG)) == [answer]

    async def commit(self, name: str, commit: Commit) -> object:
        return await self.send(name, lambda: self.store.commit(commit, lease=LONG))

    async def release(self, name: str, lease: Lease) -> None:
        assert await self.send(name, lambda: self.store.release(lease)) is True

    async def take_over(self, run: RunRef) -> Lease:
        how = await self.change("take_over", user("taken over"))
        events: tuple[RunEvent, ...] = (Rewound((await self.status()).committed),)
        lease = await self.send(
            "take_over", lambda: self.store.take_over(how, run.run_id, events, lease=LONG)
        )
        assert isinstance(lease, Lease)
        return lease

    async def fail_lost(self, run: RunRef) -> None:
        how = await self.change("fail_lost", user("failed"))
        assert (
            await self.send("fail_lost", lambda: self.store.fail_lost(how, run.run_id, (LOST,)))
            is True
        )

    async def hold(self, name: str, who: str, seconds: float, *, mine: bool) -> None:
        claim = ClaimRequest(
            self.key, f"nonce of {name}", (await self.status()).version, CallId("c"), who
        )
        answer = await self.send(name, lambda: self.store.claim_call(claim, seconds=seconds))
        assert isinstance(answer, CallClaim)
        assert answer.mine is mine

    async def cancel(self, name: str, run: RunRef) -> None:
        assert await self.send(name, lambda: self.store.cancel(run, CANCELLED)) is True


async def first_run(life: RandomConversation) -> Lease:
    """Parked, begun, written to and committed."""
    await life.park()
    how = replace(await life.change("begin", user("go")), run_start=1, cancel_on_disconnect=True)
    lease = await life.begin("begin", how, new_run())
    life.runs.append(lease.run)
    await life.append("append", lease, 2)
    turn = Commit(LogWrite(lease, 4, (TextDelta("said"),)), 0, (asking(),))
    turn = replace(turn, state=State((PlanEntry("turn"),), history_start=2))
    assert await life.commit("turn", turn) is False
    return lease


async def test_each_write_of_a_long_life_may_arrive_again_at_any_time(store: Store) -> None:
    life = RandomConversation(store)
    lease = await first_run(life)
    receipts = {"key:queue": Receipt("ab" * 32, RunId("queue"))}
    entry = await life.enqueue("enqueue", waiting(life.key, receipts=receipts))
    leaving = await life.enqueue("enqueue another", waiting(life.key))
    await life.cancel("cancel one that waits", leaving.run)
    await life.again()

    await life.append("append void", lease, 5)
    await life.release("release", lease)
    lease = await life.take_over(lease.run)
    await life.append("append anew", lease, 2)
    await life.again()

    asked = (asking("c"),)
    end = Commit(
        LogWrite(lease, 4, (FINISHED,)),
        0,
        asked,
        owed_answers(asked),
        ends=True,
        stopped_early=True,
    )
    assert await life.commit("end", end) is True
    await life.again()

    await life.hold("hold", "tab", LONG, mine=True)
    await life.hold("hold of another", "other", LONG, mine=False)
    await life.again()
    await life.hold("give back", "tab", 0, mine=True)
    await life.hold("hold by the other", "other", LONG, mine=True)
    await life.again()

    how = replace(
        await life.change("begin", user("next")),
        keep_messages=2,
        run_start=2,
        dequeues=entry.run.run_id,
    )
    lease = await life.begin("begin of the queue", how, entry.run.run_id)
    await life.send("attend", lambda: store.keep_followed(entry.run, seconds=LONG))
    await life.again()

    await life.cancel("cancel", entry.run)
    await life.append("append to the cancelled", lease, 2, "cancelled")
    await life.release("release for good", lease)
    await life.fail_lost(entry.run)
    await life.again()

    status = await life.status()
    assert (status.running, status.queued, status.owed) == (False, (), ())
    messages = (await store.page(life.key, start=0, limit=9)).messages
    assert said_in(messages) == ["first", "go", "next", "failed"]


@pytest.mark.parametrize("taken_over", [False, True])
async def test_a_lease_is_the_same_when_it_is_asked_for_again_after_posts_came_to_wait(
    store: Store, taken_over: bool
) -> None:
    life = RandomConversation(store)
    lease = await first_run(life)
    if taken_over:
        await life.release("release", lease)
        lease = await life.take_over(lease.run)
    leaving = await life.enqueue("enqueue", waiting(life.key))
    await life.enqueue("enqueue another", waiting(life.key))
    await life.cancel("cancel one that waits", leaving.run)

    assert await life.sent["take_over" if taken_over else "begin"]() == lease
    assert await store.renew([lease], lease=LONG) == ["held"]


async def test_a_deletion_sent_twice_deletes_once_and_what_was_sent_before_it_is_lost(
    store: Store,
) -> None:
    life = RandomConversation(store)
    lease = await first_run(life)
    assert await store.delete(life.key) is True
    assert await store.delete(life.key) is False

    for name in ("begin", "append", "turn"):
        with suppress(LeaseLost):
            await life.sent[name]()
        assert await store.status(life.key) == Status(), name
    assert await store.release(lease) is False
