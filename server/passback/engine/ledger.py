"""Conversations in a store: every change is decided by `core.conversation`, then applied.

The store keeps records and knows no rules; here they are read and written.
"""

import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Final, TypeVar

import anyio

from passback.core.budgets import Spending, Spent
from passback.core.changes import (
    CallClaim,
    Change,
    ClaimRequest,
    Commit,
    Enqueue,
    EnqueueAnswer,
    Lease,
    LeaseState,
    LogWrite,
    WrittenTitle,
)
from passback.core.conversation.commands import (
    Begin,
    Cancel,
    ClaimCall,
    Command,
    CommitTurn,
    Configure,
    FailLost,
    HideRun,
    KeepFollowed,
    Park,
    Queue,
    RecordTitle,
    Release,
    Rename,
    TakeOver,
)
from passback.core.conversation.head import (
    CANCEL,
    STATUS,
    STATUS_FIELDS,
    head_of,
)
from passback.core.conversation.importing import Import
from passback.core.conversation.rules import Decided, Known, Refused, log_entry, make_fence
from passback.core.conversation.store import (
    Amounts,
    Append,
    Appended,
    Applied,
    Found,
    FoundLease,
    SpentUnder,
    Store,
    Wanted,
    Write,
)
from passback.core.conversation.table import decide
from passback.core.conversation_settings import ConversationSettings
from passback.core.errors import (
    ConversationBusy,
    LeaseLost,
    StoreError,
)
from passback.core.events import RunEvent, RunFinished
from passback.core.ids import new_nonce
from passback.core.messages import ConversationKey, RunId, RunRef
from passback.core.values import milliseconds
from passback.engine.records import REMEMBERED, SCAN_LIMIT, Records
from passback.pacing import LARGE, LargeWrites, is_large_commit

ATTEMPTS: Final = 20  # of a command that other writers overtake
_BILLIONTHS: Final = 10**9
_MOST: Final = 2**53 - 1  # the largest number that every store counts exactly

OTHERS = "another worker owns this run now"


class Ledger(Records):
    """All conversations of a store, as the engine reads and changes them.

    Every method raises the StoreErrors of `Store`.

    Args:
        store, remembered, scanned: as in `Records`.
        timeout: seconds for which a large write waits for those before it.
    """

    def __init__(
        self,
        store: Store,
        *,
        timeout: float = 8.0,
        remembered: int = REMEMBERED,
        scanned: int = SCAN_LIMIT,
    ) -> None:
        super().__init__(store, remembered=remembered, scanned=scanned)
        self._large_writes = LargeWrites(timeout)
        # what the holder of a lease knows, by fence, with the step of its last commit
        self._held: dict[str, tuple[Known, int]] = {}

    # ---------------------------------------------------------------- changes
    async def park(self, change: Change, /) -> bool:
        """Apply a change that starts no run. False if the version has changed: load again."""
        return await self._change(Park(change), change) is not None

    async def begin(
        self, change: Change, run_id: RunId, events: tuple[RunEvent, ...], /, *, lease: float
    ) -> Lease | None:
        """Apply a change and take the lease for `lease` seconds.

        `events` open the run's log, numbered from 1.

        None if the version has changed, a run goes on, or `change.dequeues` is not the first of the
        queue: load again.
        """
        return await self._take_lease(Begin(change, run_id, events, milliseconds(lease)))

    async def take_over(
        self, change: Change, run_id: RunId, events: tuple[RunEvent, ...], /, *, lease: float
    ) -> Lease | None:
        """Take over a run whose lease has expired: apply the change, take the lease.

        It counts an attempt. Events of the run's log after `Status.committed` are removed; `events`
        follow under the new epoch, from 1.

        None if the version has changed or the lease has not expired.
        """
        return await self._take_lease(TakeOver(change, run_id, events, milliseconds(lease)))

    async def fail_lost(
        self, change: Change, run_id: RunId, events: tuple[RunEvent, ...], /
    ) -> bool:
        """End a lost run: as `take_over`, but no worker runs it any more.

        The last of `events` is `RunFinished`. False where `take_over` returns None.
        """
        return await self._change(FailLost(change, run_id, events), change) is not None

    async def create(self, command: Import, /) -> bool:
        """Make a conversation from a document. False if there is one already."""
        found = await self._look(command.key, Wanted())
        decided = decide(Known(found, head_of(found)), command, self._now)
        if isinstance(decided, Refused) or decided.write is None:
            return False
        async with self._large_writes.hold_lock(_is_large(decided.write)):
            return await self._apply(decided.write) is not None

    async def _take_lease(self, command: Begin | TakeOver) -> Lease | None:
        change = command.change
        known = await self._change(command, change)
        if known is None:
            return None
        epoch = known.head.epoch
        lease = Lease(RunRef(change.key, command.run_id), epoch, make_fence(epoch, change.nonce))
        # sent again, it says nothing of the commits since
        self._held.setdefault(lease.fence, (known, -1))
        return lease

    async def _change(
        self, command: Park | Begin | TakeOver | FailLost, change: Change
    ) -> Known | None:
        """Apply a change to the conversation as it was judged; None: it has changed since."""
        known = await self._as_judged(change.key, change.expected)
        decided = known and decide(known, command, self._now)
        if not isinstance(decided, Decided) or decided.write is None or known is None:
            return None
        async with self._large_writes.hold_lock(_is_large(decided.write)):
            applied = await self._apply(decided.write)
        return None if applied is None else _after(known, decided)

    async def claim_call(self, request: ClaimRequest, /, *, seconds: float) -> CallClaim | None:
        """Claim an owed call for a client for so many seconds from now; 0 releases its claim.

        None if the version has changed or a run goes on: look again.
        """
        known = await self._as_judged(request.key, request.expected)
        command = ClaimCall(request, milliseconds(seconds))
        decided = known and decide(known, command, self._now)
        if not isinstance(decided, Decided):
            return None
        applied = decided.write is None or await self._apply(decided.write)
        return decided.claim if applied else None

    async def _as_judged(self, key: ConversationKey, version: int) -> Known | None:
        """Return a conversation at a version; None if it has another one by now."""
        wanted, found = self._read.pop(key, (STATUS, None))
        if found is None or found.version != version or not _covers(wanted, STATUS):
            found = Found() if version == 0 else await self.store.read(key, STATUS)
        return Known(found, head_of(found)) if found.version == version else None

    async def enqueue(self, entry: Enqueue, /) -> EnqueueAnswer:
        """Add a post to the queue."""
        key = entry.run.key
        if entry.expected is None:
            wanted = Wanted(STATUS_FIELDS, tuple(entry.receipts))
            decided = await self._transact(key, wanted, lambda: Queue(entry, new_nonce()))
        elif (known := await self._as_judged(key, entry.expected)) is None:
            return "changed"
        else:
            decided = decide(known, Queue(entry, new_nonce()), self._now)
            write = decided.write if isinstance(decided, Decided) else None
            if write is not None and await self._apply(write) is None:
                return "changed"
        if isinstance(decided, Decided):
            return "queued"
        return "full" if decided.reason == "full" else "changed"

    async def cancel(self, run: RunRef, finished: RunFinished, /) -> bool:
        """Ask the owner of a run to cancel it. A queued one is removed; `finished` ends its log.

        False if the run neither goes on nor waits.
        """
        wanted = Wanted(STATUS_FIELDS, runs=(run.run_id,))
        decided = await self._transact(run.key, wanted, lambda: Cancel(run, finished, new_nonce()))
        return isinstance(decided, Decided)

    async def keep_followed(self, run: RunRef, /, *, seconds: float) -> None:
        """Record that a remote reader follows this run for the next `seconds`.

        Sets `Status.followed`. No effect once the run has ended.
        """
        last = milliseconds(seconds)
        await self._transact(run.key, STATUS, lambda: KeepFollowed(run, last, new_nonce()))

    async def rename(self, key: ConversationKey, title: str, /) -> bool:
        """Replace the title of a conversation by a client's. False if there is none."""
        decided = await self._transact(key, STATUS, lambda: Rename(key, title, new_nonce()))
        return isinstance(decided, Decided)

    async def configure(self, key: ConversationKey, settings: ConversationSettings, /) -> bool:
        """Replace the settings of a conversation. False if there is none."""
        decided = await self._transact(key, STATUS, lambda: Configure(key, settings, new_nonce()))
        return isinstance(decided, Decided)

    async def hide_run(self, run: RunRef, /) -> bool:
        """Hide the record of a run (`RunRecord.hidden`). False if it is not over, or is none."""
        wanted = Wanted(STATUS_FIELDS, runs=(run.run_id,))
        decided = await self._transact(run.key, wanted, lambda: HideRun(run, new_nonce()))
        return isinstance(decided, Decided)

    async def write_title(self, written: WrittenTitle, /) -> bool:
        """Record what came of the model call for a title. False if there is no such conversation.

        The title replaces one that no client gave, unless it is empty. The first one of a
        conversation counts: another one changes nothing, and so does a repeat.
        """
        decided = await self._transact(
            written.key, STATUS, lambda: RecordTitle(written, new_nonce())
        )
        return isinstance(decided, Decided)

    async def _transact(
        self, key: ConversationKey, wanted: Wanted, command: Callable[[], Command]
    ) -> Decided | Refused:
        """Do a command that is allowed whatever else has changed, after others that overtake it.

        Raises:
            ConversationBusy: too many overtake it.
        """
        remembered, found = self._read.pop(key, (STATUS, None))
        readings = iter([found] if found is not None and _covers(remembered, wanted) else [])

        async def attempt() -> Decided | Refused | None:
            known = next(readings, None)
            found = known or await self._look(key, wanted)
            decided = decide(Known(found, head_of(found)), command(), self._now)
            if isinstance(decided, Refused) or decided.write is None:
                return None if known else decided  # an earlier reading is no reason
            return decided if await self._apply(decided.write) else None

        return await until_applied(attempt)

    async def delete(self, key: ConversationKey, /) -> bool:
        """Delete a conversation and its logs; its run loses the lease. False if there is none."""
        self._read.pop(key, None)
        return await self.store.delete(key)

    async def spend(self, spending: Spending, /) -> Spent:
        """Count the amounts a run has spent under a lease; return its owner's total for that day.

        They replace the amounts counted for that lease before if `seq` is newer, so a repeat or a
        late report changes nothing. The difference, up or down, counts on the day that is named.
        Totals are kept for two days.
        """
        run, spent = spending.run, spending.spent
        given = (spent.tokens, milliseconds(spent.seconds), round(spent.cost * _BILLIONTHS))
        tokens, time_spent, cost = await self.store.spend(
            SpentUnder(
                run.key.owner,
                spending.day,
                f"{run.run_id}:{spending.epoch}",
                Amounts(*(min(_MOST, each) for each in given)),
                spending.seq,
            )
        )
        return Spent(tokens, time_spent / 1000, cost / _BILLIONTHS)

    # ---------------------------------------------------------------- under a lease
    async def append(
        self, writes: Sequence[LogWrite], /, *, lease: float
    ) -> Sequence[LeaseState | StoreError]:
        """Write to the logs of many runs in one round trip and renew their leases; one answer each.

        Sending the same `LogWrite` again changes nothing. A lost lease writes nothing. A lease is
        also lost if the events before `LogWrite.first` are missing, because the store failed over
        to a server that never had them. A write that fails alone (its conversation is damaged, its
        part of a cluster is down) has its error as its answer; the others are written.
        """
        appends = [
            Append(
                each.lease.run.key,
                each.lease.run.run_id,
                each.lease.fence,
                log_entry(each.lease.epoch, each.first, each.events),
            )
            for each in writes
        ]
        large = sum(len(each.entry.record) for each in appends if each.entry) > LARGE
        async with self._large_writes.hold_lock(large):
            answers = await self.store.append(appends, lease=milliseconds(lease))
        return [
            self._lease_state(each.fence, answer)
            for each, answer in zip(appends, answers, strict=True)
        ]

    def _lease_state(self, fence: str, answer: Appended | StoreError) -> LeaseState | StoreError:
        if isinstance(answer, StoreError):
            return answer
        if not answer.held:
            self._held.pop(fence, None)
            return "lost"
        if answer.signal == CANCEL:
            return "cancelled"
        return "followed" if answer.followed else "held"

    async def renew(
        self, leases: Sequence[Lease], /, *, lease: float
    ) -> Sequence[LeaseState | StoreError]:
        """Renew leases; as `append`, without events."""
        return await self.append([LogWrite(each, 1, ()) for each in leases], lease=lease)

    async def commit(self, commit: Commit, /, *, lease: float) -> bool:
        """Commit a turn, and renew or release the lease. It may be sent again.

        Returns True if the run has ended and posts wait in the queue.

        Raises:
            LeaseLost: as for `append`, or the conversation was deleted; nothing was written.
        """
        held = commit.log.lease
        async with self._large_writes.hold_lock(is_large_commit(commit)):
            known, step = await self._under_lease(held)
            if commit.step <= step:
                return False  # its answer was lost on the way
            decided = decide(known, CommitTurn(commit, milliseconds(lease)), self._now)
            assert isinstance(decided, Decided)  # the lease is there, as far as is known
            assert decided.write is not None
            applied = await self._apply(decided.write)
        if applied is None or commit.ends:
            self._held.pop(held.fence, None)
        if applied is None:
            raise LeaseLost(OTHERS)
        if not commit.ends:
            self._held[held.fence] = _after(known, decided), commit.step
        return commit.ends and applied.queued

    async def release(self, lease: Lease, /) -> bool:
        """Release a lease so that another worker may continue at once; no attempt is counted.

        False if the lease was lost before.
        """
        known, _ = await self._under_lease(lease)
        decided = decide(known, Release(lease), self._now)
        assert isinstance(decided, Decided)
        assert decided.write is not None
        applied = await self._apply(decided.write)
        self._held.pop(lease.fence, None)
        return applied is not None

    async def _under_lease(self, lease: Lease) -> tuple[Known, int]:
        """Return what the holder of a lease knows of its conversation, and its last step."""
        held = self._held.get(lease.fence)
        if held is None:
            found = await self.store.read(lease.run.key, STATUS)
            # whether the lease is held is for the store to say
            sure = replace(found, version=1, lease=FoundLease(lease.fence, 0))
            held = Known(sure, head_of(found)), -1
        return held

    async def _apply(self, write: Write) -> Applied | None:
        self._read.pop(write.key, None)
        applied = await self.store.apply(write)
        if applied is not None:
            self._set_clock(applied.now)
        return applied


def _covers(wanted: Wanted, other: Wanted) -> bool:
    """Return whether what was read for one purpose is enough for another."""
    return (
        set(other.fields) <= set(wanted.fields)
        and set(other.receipts) <= set(wanted.receipts)
        and set(other.runs) <= set(wanted.runs)
    )


def _after(known: Known, decided: Decided) -> Known:
    """Return what the writer of a decision knows afterwards."""
    write, found = decided.write, known.found
    count = found.message_count + (len(write.messages) if write else 0)
    return Known(Found(version=1, message_count=count, lease=_SOME_LEASE), decided.head)


_SOME_LEASE = FoundLease("", 0)


def _is_large(write: Write) -> bool:
    """Return whether a write has so many bytes that others wait for it."""
    entry = write.log and write.log.entry
    return sum(map(len, write.messages)) + (len(entry.record) if entry else 0) > LARGE


T = TypeVar("T")

_BACK_OFF_STEP = 0.01  # seconds: limit of the wait before a retry, for each earlier attempt

_jitter = random.SystemRandom()


async def _back_off(attempt: int) -> None:
    """Wait a random time after an attempt (from 0), so that writers in step do not collide for
    ever.
    """
    await anyio.sleep(_jitter.uniform(0, _BACK_OFF_STEP * attempt))


async def until_applied(attempt: Callable[[], Awaitable[T | None]], /) -> T:
    """Call `attempt` until it returns something; None: another writer was faster, decide again.

    Raises:
        ConversationBusy: that was so too often.
    """
    for number in range(ATTEMPTS):
        if (done := await attempt()) is not None:
            return done
        await _back_off(number)
    raise ConversationBusy("too many requests for this conversation at once", retry_after=1)
