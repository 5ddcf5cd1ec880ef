"""The runs of this process: each in its own task, and each ends exactly once (P6, P7)."""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial
from time import monotonic

import anyio
import anyio.abc

from passback.core.budgets import Left, Spent
from passback.core.changes import Lease, LeaseState
from passback.core.errors import LeaseLost, PassbackError, ShuttingDown, StoreError, TooManyRuns
from passback.core.events import Cancelled, Completed, Failed, Outcome, RunEvent
from passback.core.messages import ConversationKey, OwnerId, RunId, RunRef
from passback.core.values import value
from passback.engine.guarding import ContainedExits
from passback.engine.ledger import Ledger
from passback.engine.log import LogWriter, RunLog
from passback.engine.loop import Loop
from passback.engine.spending import Meter
from passback.engine.titling import TitleCalls

logger = logging.getLogger(__name__)

BROKEN_RUN = Failed("internal", "the server failed; its log says why")


# seconds for which an answer of the store counts: anybody may ask, and each ping is a write
READY_SECONDS = 1.0


class Readiness:
    """Caches the last answer of `ping`; concurrent callers wait for the same one."""

    def __init__(
        self, ping: Callable[[], Awaitable[None]], /, *, seconds: float = READY_SECONDS
    ) -> None:
        self._ping = ping
        self._seconds = seconds
        self._asking = anyio.Lock()
        self._counts_until = 0.0
        self._error: StoreError | None = None

    async def check(self) -> None:
        """Return if the store can be used. Raises StoreError otherwise."""
        async with self._asking:
            if monotonic() >= self._counts_until:
                self._error = None
                try:
                    await self._ping()
                except StoreError as failure:
                    self._error = failure
                self._counts_until = monotonic() + self._seconds
            error = self._error
        if error is not None:
            # a new one: what is raised again and again grows by its traceback each time
            raise type(error)(error.message, retry_after=error.retry_after)


class Run:
    """A run of this process, until it has ended, is left to another worker, or is lost to one.

    Args:
        loop: the turns of its agent.
        opening: its log's first events under this lease.
        continues: its log has events of earlier leases.
        cancelled: end it at once as cancelled: a post that stops it waits already.
        cancel_on_disconnect: cancel it when nobody follows it.
        owner_spent: what the owner's runs have spent today, if it was asked for.
    """

    ref: RunRef
    log: RunLog
    meter: Meter

    def __init__(
        self,
        loop: Loop,
        opening: tuple[RunEvent, ...],
        *,
        continues: bool = False,
        cancelled: bool = False,
        cancel_on_disconnect: bool = False,
        owner_spent: Spent | None = None,
    ) -> None:
        self.loop = loop
        self.opening = opening
        self._continues = continues
        self._cancelled = cancelled
        self.cancel_on_disconnect = cancel_on_disconnect
        self._owner_spent = owner_spent
        self.scope = anyio.CancelScope()
        self.outcome: Outcome | None = None
        """The outcome to end it with; None: it does not end, another worker goes on."""
        self.lost = False
        self.alone_since: float | None = None

    def begin(
        self, lease: Lease, ledger: Ledger, writer: LogWriter, leaving: Callable[[], bool]
    ) -> None:
        """Open its log under a lease that was taken for it."""
        loop, self.ref = self.loop, lease.run
        self.meter = Meter(loop.spec.budget, loop.state, lease, ledger, self._owner_spent)
        self.log = RunLog(lease, self.opening, writer, self._lease_is, continues=self._continues)
        loop.bind(self.log, self.meter, leaving)
        if self._cancelled:
            self.stop(Cancelled())

    def stop(self, outcome: Outcome) -> None:
        """Cancel its work, and end it with an outcome."""
        self.outcome = outcome
        self.scope.cancel()

    def leave(self) -> None:
        """Stop it here, so that another worker goes on from the last committed turn."""
        self.scope.cancel()

    def mark_lost(self) -> None:
        """Stop it because its lease is another worker's, or its conversation is deleted."""
        self.lost = True
        self.scope.cancel()

    def _lease_is(self, state: LeaseState) -> None:
        if state == "lost":
            self.mark_lost()
        else:
            self.stop(Cancelled())

    def place(self, action: str) -> dict[str, str]:
        """Return the fields of a log line about it."""
        return {"action": action, "run_id": self.ref.run_id, "conversation_id": self.ref.key.id}

    async def work(self) -> None:
        """Run its turns. If it is to be ended or left then, `outcome` says so, or `lost`."""
        if self.scope.cancel_called:
            return  # not even a request to the model
        try:
            with ContainedExits():
                await self.loop.run()
        except LeaseLost:
            self.lost = True
            logger.warning("lease lost", extra=self.place("lease_lost"))
        except PassbackError as error:
            logger.warning("run failed: %s", error.code, extra=self.place("run_failed"))
            self.outcome = Failed(error.code, error.message, error.retryable, error.retry_after)
        except Exception:  # the run supervisor: one broken run must not end the others
            logger.exception("run broken", extra=self.place("run_broken"))
            self.outcome = BROKEN_RUN

    async def end_or_leave(self, ledger: Ledger, pause: float) -> None:
        """End it if it did not end itself, or leave it to another worker.

        While the store fails, try to end it again after `pause` seconds.
        """
        try:
            if self.outcome is None:
                # what is in doubt may be the result of a tool
                await self.log.settle_writes()
                await ledger.release(self.log.lease)
            else:
                await self._retry_end(self.outcome, pause)
        except LeaseLost:
            logger.warning("lease lost", extra=self.place("lease_lost"))
        except StoreError as error:  # the lease lapses by itself
            logger.warning("lease not released: %s", error.code, extra=self.place("lease_kept"))
        except Exception:  # the run supervisor: a lost end must not end the others
            logger.exception("end broken", extra=self.place("end_not_stored"))

    async def _retry_end(self, outcome: Outcome, pause: float) -> None:
        attempt: Callable[[], Awaitable[None]] = partial(self.loop.stop, outcome)
        while True:
            try:
                return await attempt()
            except LeaseLost:
                raise
            except StoreError as error:
                logger.warning("end not stored: %s", error.code, extra=self.place("end_not_stored"))
            attempt = self.log.settle_writes
            await anyio.sleep(pause)


HEARTBEAT = 0.6  # seconds


@value
class Timing:
    """Timeouts and intervals of a worker, in seconds where nothing else is said.

    Args:
        lease: a worker that is silent for longer counts as lost.
        heartbeat: a run without a write for so long renews its lease and learns of a cancellation;
            at most a third longer.
        log_delay: limit of the delay with which a text delta is stored; four times as long while no
            reader in another process waits for it.
        early_result: how long a tool result that arrives before its call was handed back may wait.
        final_commit_timeout: how long the end of a stopped run may take.
        write_timeout: how long one write may take, whatever the store promises.
        scan: interval between two scans for lost runs.
        disconnect_grace: how long a run with `cancel_on_disconnect` goes on without a reader.
        max_attempts: (a number) workers that may try one run before it fails as lost.
        queue: (a number) posts that may wait for one conversation.
        owner_runs: (a number) runs of one owner in this process before new posts are refused.
        history_bytes: (a number) limit of the messages from `history_start` on, with a new post.
        tool_timeout: how long a client may take to answer what it owes; None: no limit.
    """

    lease: float = 10
    heartbeat: float = HEARTBEAT
    log_delay: float = 0.05
    early_result: float = 30
    final_commit_timeout: float = 10
    write_timeout: float = 60
    scan: float = 1.0
    disconnect_grace: float = 5.0
    max_attempts: int = 3
    queue: int = 16
    owner_runs: int = 500
    history_bytes: int = 32 * 2**20
    tool_timeout: float | None = None


async def keep_running(helper: Callable[[], Awaitable[None]], pause: float, /) -> None:
    """Run a helper until cancelled, `pause` seconds after each error: nothing else is to end."""
    while True:
        try:
            await helper()
        except Exception:  # the run supervisor's own loop
            logger.exception("background task broken", extra={"action": "helper_broken"})
        await anyio.sleep(pause)


async def contain_failure(
    recover: Callable[[ConversationKey], Awaitable[None]], key: ConversationKey, /
) -> None:
    """Do something for a conversation; log what fails, and leave it to the next attempt."""
    try:
        with ContainedExits():
            await recover(key)
    except PassbackError as error:
        logger.warning("conversation not recovered: %s", error.code)
    except Exception:  # the run supervisor: a broken conversation must not end the others
        logger.exception("conversation broken", extra={"action": "conversation_broken"})


class Supervisor:
    """Starts runs and sees each of them to its end, also if it fails.

    Attributes:
        unsettled: conversations whose run has ended here and which somebody has to look after:
            posts wait in them, or nobody knows whether the end was stored.
    """

    _helpers: anyio.abc.TaskGroup

    def __init__(self, ledger: Ledger, timing: Timing) -> None:
        self._ledger = ledger
        self._timing = timing
        # at most one entry for each run that has ended, so it needs no bound of its own
        self.unsettled = asyncio.Queue[ConversationKey]()
        self._writer = LogWriter(
            ledger,
            delay=timing.log_delay,
            lease=timing.lease,
            write_timeout=timing.write_timeout,
            tool_timeout=timing.tool_timeout,
        )
        self._active: dict[RunId, Run] = {}
        # with those that are about to take their lease
        self._owner_runs = Counter[OwnerId]()
        self._titles = TitleCalls(ledger)
        self._tasks: asyncio.TaskGroup | None = None
        self._draining = False
        self._stopped = False
        self._idle = anyio.Event()

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Own the tasks. On leaving, runs that still go on are left to other workers."""
        async with anyio.create_task_group() as helpers:
            for helper in (self._writer.run, self._renew_leases, self._watch_followers):
                helpers.start_soon(keep_running, helper, self._timing.heartbeat)
            self._helpers = helpers
            # asyncio's own: a task of anyio's has a scope, an event and a handle more, in every run
            async with asyncio.TaskGroup() as self._tasks:
                try:
                    yield
                finally:
                    await self.drain(0)
            helpers.cancel_scope.cancel()

    def admit(self) -> None:
        """Raise `ShuttingDown` if no new run may begin."""
        if self._tasks is None or self._draining:
            raise ShuttingDown("this server is stopping", retry_after=1)

    def is_leaving(self) -> bool:
        """Return whether this worker leaves its runs to others as soon as possible."""
        return self._draining

    async def start(
        self,
        owner: OwnerId,
        take: Callable[[], Awaitable[Lease | None]],
        run: Run,
        /,
        *,
        refusable: bool = False,
    ) -> Lease | None:
        """Take a lease and work under it; return it, or None if there was none to take.

        If the caller is cancelled meanwhile, no lease stays without a task that works under it. The
        opening is in the stored log once the lease is taken.

        Args:
            owner: owner of the run.
            take: takes the lease.
            run: what to work on.
            refusable: refuse it if its owner has too many runs; earlier admitted runs are not
                refused.

        Raises:
            TooManyRuns: it is refused.
            Exception: whatever `take` raises.
        """
        if self._tasks is None:
            raise RuntimeError("runs need `running()` around them")
        most = self._timing.owner_runs
        if refusable and self._owner_runs[owner] >= most:
            raise TooManyRuns(
                f"{most} of your runs are active in this worker "
                "(owner_runs in PASSBACK_LIMITS): try again when one has ended",
                retry_after=1,
            )
        taken: asyncio.Future[Lease | None] = asyncio.get_running_loop().create_future()
        self._owner_runs[owner] += 1
        self._tasks.create_task(self._start_task(owner, take, run, taken))
        return await taken

    def log_of(self, run: RunRef) -> RunLog | None:
        """Return the log of a run of this process, or None."""
        active = self._active.get(run.run_id)
        return active.log if active is not None and active.ref == run else None

    def left(self, run: RunRef) -> Left | None:
        """Return what is left of the limits beyond the run, as `Runs.left`."""
        if self.log_of(run) is None:
            return None
        return self._active[run.run_id].meter.remaining_beyond_run()

    def cancel(self, run: RunRef) -> None:
        """Cancel a run of this process without waiting for the heartbeat."""
        if self.log_of(run) is not None:
            self._active[run.run_id].stop(Cancelled())

    def runs_of(self, key: ConversationKey) -> list[RunRef]:
        """Return the runs of a conversation in this process."""
        return [run.ref for run in self._active.values() if run.ref.key == key]

    def abandon_runs(self, runs: Iterable[RunRef]) -> None:
        """Stop runs whose conversation is deleted: nothing of them can be stored."""
        for run_id in self._active.keys() & {run.run_id for run in runs}:
            self._active[run_id].mark_lost()

    async def drain(self, grace: float) -> None:
        """Admit nothing more, and leave runs to other workers: between turns, after `grace` seconds
        at once.
        """
        self._draining = True
        with anyio.move_on_after(grace):
            await self._until_idle()
        self._stopped = True
        for run in self._active.values():
            run.leave()
        with anyio.move_on_after(self._timing.final_commit_timeout):
            await self._until_idle()

    async def _until_idle(self) -> None:
        while self._active:
            self._idle = anyio.Event() if self._idle.is_set() else self._idle
            await self._idle.wait()

    async def _start_task(
        self,
        owner: OwnerId,
        take: Callable[[], Awaitable[Lease | None]],
        run: Run,
        taken: "asyncio.Future[Lease | None]",
    ) -> None:
        # encoded while the store is busy
        asyncio.get_running_loop().call_soon(run.loop.prepare)
        try:
            try:
                lease = await take()
                if lease is not None:
                    run.begin(lease, self._ledger, self._writer, self.is_leaving)
                if not taken.done():
                    taken.set_result(lease)
            except Exception as error:  # noqa: BLE001  # it is for the one who asked
                if not taken.done():
                    taken.set_exception(error)
                return
            finally:
                taken.cancel()  # that one is not to wait for ever
            if lease is not None:
                del take, lease, taken  # else they stay as long as the run
                # ask the model now: what the caller prepares for readers must not delay it
                await self._supervise_run(run)
        finally:
            self._owner_runs[owner] -= 1
            if not self._owner_runs[owner]:  # owners come and go
                del self._owner_runs[owner]

    async def _supervise_run(self, run: Run) -> None:
        if self._stopped:  # it was admitted, then the server stopped
            run.leave()
        run_id = run.ref.run_id
        if run_id in self._active:  # this worker stood still, and took its own run over
            self._active[run_id].mark_lost()
        self._active[run_id] = run
        # written while the model thinks, not before it is asked
        started = partial(logger.info, "run started", extra=run.place("run_started"))
        asyncio.get_running_loop().call_soon(started)
        run.meter.start_timer(partial(run.stop, Completed("budget")))
        try:
            with run.scope:
                await run.work()
        finally:
            run.meter.stop_timer()
            if not run.log.ended and not run.lost:
                with anyio.move_on_after(self._timing.final_commit_timeout, shield=True):
                    await run.end_or_leave(self._ledger, self._timing.heartbeat)
            if not run.log.ended:
                run.log.abandon()
            if self._active.get(run_id) is run:
                del self._active[run_id]
            run.log.detach()
            if not self._active:
                self._idle.set()
            logger.info("run ended", extra=run.place("run_ended"))
        self._titles.begin(self._helpers, run.log, run.loop, run.meter)
        if run.log.posts_wait or run.log.may_have_ended:
            self.unsettled.put_nowait(run.ref.key)

    async def _renew_leases(self) -> None:
        silence = self._timing.heartbeat
        while True:
            await anyio.sleep(silence / 3)
            logs = [run.log for run in self._active.values() if run.log.is_silent(silence)]
            if not logs:
                continue
            try:
                states = await self._ledger.renew(
                    [log.lease for log in logs], lease=self._timing.lease
                )
            except StoreError as error:
                logger.warning(
                    "leases not renewed: %s", error.code, extra={"action": "no_heartbeat"}
                )
                continue
            for log, state in zip(logs, states, strict=True):
                if not log.ended:
                    log.handle_lease(state)

    async def _watch_followers(self) -> None:
        """Cancel runs with `cancel_on_disconnect` that nobody has followed for a while."""
        while True:
            await anyio.sleep(self._timing.heartbeat)
            for run in tuple(self._active.values()):
                if not run.cancel_on_disconnect or run.log.followers:
                    run.alone_since = None
                elif run.alone_since is None:
                    run.alone_since = monotonic()
                elif monotonic() - run.alone_since >= self._timing.disconnect_grace:
                    run.alone_since = None
                    await contain_failure(self._cancel_unless_followed, run.ref.key)

    async def _cancel_unless_followed(self, key: ConversationKey) -> None:
        status = await self._ledger.status(key)
        if not status.followed and status.run_id is not None:
            self.cancel(RunRef(key, status.run_id))
