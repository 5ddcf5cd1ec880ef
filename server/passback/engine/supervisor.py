"""The runs of this process: each in a task of the app's own group, and each ends exactly once (P6, P7)."""

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial

import anyio
import anyio.abc

from passback.core.changes import Lease, LeaseState
from passback.core.errors import LeaseLost, PassbackError, ShuttingDown, StoreError
from passback.core.events import Cancelled, Failed, Outcome, RunEvent
from passback.core.messages import ConversationKey, Message, RunId, RunRef
from passback.core.ports import Store
from passback.engine.log import LogWriter, RunLog
from passback.engine.loop import Brain, Loop
from passback.engine.toolbox import Toolbox

logger = logging.getLogger(__name__)

STOPPED = Failed("shutting_down", "the server stopped during this run", retryable=True)
BROKEN = Failed("internal", "the server failed; its log says why")


@dataclass(frozen=True, slots=True)
class Tempo:
    """Seconds.

    Args:
        lease: how long a worker may be silent before its run counts as lost.
        heartbeat: how often leases are renewed, and asked whether a run was cancelled.
        log_delay: how late a text delta may be stored.
        early_result: how long a tool result that comes before its call was handed back may wait for that.
        last_words: how long the end of a cut run may take.
        patience: how long one write may take, whatever the store promises.
    """

    lease: float = 10
    heartbeat: float = 0.4
    log_delay: float = 0.05
    early_result: float = 30
    last_words: float = 10
    patience: float = 60


class _Active:
    """A run that goes on here."""

    def __init__(self, lease: Lease, opening: Sequence[RunEvent], writer: LogWriter) -> None:
        self.scope = anyio.CancelScope()
        self.log = RunLog(lease, opening, writer, self._lease_is)
        self.outcome: Outcome = STOPPED
        self.lost = False

    def stop(self, outcome: Outcome) -> None:
        self.outcome = outcome
        self.scope.cancel()

    def _lease_is(self, state: LeaseState) -> None:
        self.lost = self.lost or state == "lost"
        self.stop(Cancelled())


class Supervisor:
    """Starts runs and sees them to their end, whatever happens in them."""

    def __init__(self, store: Store, brain: Brain, tempo: Tempo) -> None:
        self._store = store
        self._brain = brain
        self._tempo = tempo
        self._writer = LogWriter(
            store, delay=tempo.log_delay, lease=tempo.lease, patience=tempo.patience
        )
        self._active: dict[RunId, _Active] = {}
        self._tasks: anyio.abc.TaskGroup | None = None
        self._draining = False
        self._stopped = False
        self._idle = anyio.Event()

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Own the tasks. On leaving, the runs that still go on are stopped, and say so in their logs."""
        async with anyio.create_task_group() as helpers:
            helpers.start_soon(self._keep, self._writer.run)
            helpers.start_soon(self._keep, self._heartbeat)
            async with anyio.create_task_group() as self._tasks:
                try:
                    yield
                finally:
                    await self.drain(0)
            helpers.cancel_scope.cancel()

    def admit(self) -> None:
        """Raise `ShuttingDown` when no new run may begin."""
        if self._tasks is None or self._draining:
            raise ShuttingDown("this server is stopping", retry_after=1)

    def spawn(
        self,
        lease: Lease,
        opening: Sequence[RunEvent],
        toolbox: Toolbox,
        messages: Sequence[Message],
    ) -> None:
        """Start a run whose lease was just taken; `opening` is in its stored log already."""
        if self._tasks is None:
            raise RuntimeError("runs need `running()` around them")
        active = _Active(lease, opening, self._writer)
        if self._stopped:  # it was admitted, then the server stopped
            active.stop(STOPPED)
        self._active[lease.run.run_id] = active
        loop = Loop(self._brain, toolbox, active.log, messages)
        self._tasks.start_soon(self._supervise, active, loop, name=lease.run.run_id)

    def log_of(self, run: RunRef) -> RunLog | None:
        """The log of a run that goes on here."""
        active = self._active.get(run.run_id)
        return active.log if active is not None and active.log.lease.run == run else None

    def cancel(self, run: RunRef) -> None:
        """Cancel a run that goes on here, without waiting for the heartbeat."""
        if self.log_of(run) is not None:
            self._active[run.run_id].stop(Cancelled())

    def runs_of(self, key: ConversationKey) -> list[RunRef]:
        """The runs of a conversation that go on here."""
        runs = [active.log.lease.run for active in self._active.values()]
        return [run for run in runs if run.key == key]

    def forsake(self, runs: Iterable[RunRef]) -> None:
        """Stop runs whose conversation is no more: nothing of them can be stored."""
        for run_id in self._active.keys() & {run.run_id for run in runs}:
            self._active[run_id].lost = True
            self._active[run_id].stop(Cancelled())

    async def drain(self, grace: float) -> None:
        """Admit nothing more; give what goes on `grace` seconds to end, then stop it and wait for its end."""
        self._draining = True
        await self._quiet(grace)
        self._stop_all()
        await self._quiet(self._tempo.last_words)

    def _stop_all(self) -> None:
        self._stopped = True
        for active in self._active.values():
            active.stop(STOPPED)

    async def _quiet(self, seconds: float) -> None:
        with anyio.move_on_after(seconds):
            while self._active:
                await self._idle.wait()

    # ---------------------------------------------------------------- one run
    async def _supervise(self, active: _Active, loop: Loop) -> None:
        run = active.log.lease.run
        place = {"run_id": run.run_id, "conversation_id": run.key.id}
        logger.info("run started", extra={"action": "run_started", **place})
        try:
            with active.scope:
                await self._run(active, loop, place)
        finally:
            if not active.log.ended and not active.lost:
                await self._last_words(active, loop, place)
            if not active.log.ended:
                active.log.abandon()
            self._forget(run.run_id)
            logger.info("run ended", extra={"action": "run_ended", **place})

    async def _run(self, active: _Active, loop: Loop, place: Mapping[str, str]) -> None:
        try:
            await loop.run()
        except LeaseLost:
            active.lost = True
            logger.warning("lease lost", extra={"action": "lease_lost", **place})
        except PassbackError as error:
            logger.warning("run failed: %s", error.code, extra={"action": "run_failed", **place})
            active.outcome = Failed(error.code, error.message, error.retryable, error.retry_after)
        except Exception:  # the run supervisor: one broken run must not end the others
            logger.exception("run broken", extra={"action": "run_broken", **place})
            active.outcome = BROKEN

    async def _last_words(self, active: _Active, loop: Loop, place: Mapping[str, str]) -> None:
        with anyio.CancelScope(shield=True), anyio.move_on_after(self._tempo.last_words):
            try:
                await self._insist(active, loop, place)
            except LeaseLost:
                logger.warning("lease lost", extra={"action": "lease_lost", **place})
            except (
                Exception
            ):  # the run supervisor: what cannot be written down must not end the others
                logger.exception("end broken", extra={"action": "end_not_stored", **place})

    async def _insist(self, active: _Active, loop: Loop, place: Mapping[str, str]) -> None:
        """End a run; what a failing store does not take is sent again until it does."""
        attempt: Callable[[], Awaitable[None]] = partial(loop.stop, active.outcome)
        while True:
            try:
                return await attempt()
            except LeaseLost:
                raise
            except StoreError as error:
                logger.warning(
                    "end not stored: %s", error.code, extra={"action": "end_not_stored", **place}
                )
            attempt = active.log.settle
            await anyio.sleep(self._tempo.heartbeat)

    def _forget(self, run_id: RunId) -> None:
        del self._active[run_id]
        if not self._active:
            event, self._idle = self._idle, anyio.Event()
            event.set()

    # ---------------------------------------------------------------- all runs
    async def _keep(self, helper: Callable[[], Awaitable[None]]) -> None:
        """Work for all runs, for ever: what goes wrong with one must not end the others."""
        while True:
            try:
                await helper()
            except Exception:  # the run supervisor's own loop
                logger.exception("helper of all runs broken", extra={"action": "helper_broken"})
            await anyio.sleep(self._tempo.heartbeat)

    async def _heartbeat(self) -> None:
        while True:
            await anyio.sleep(self._tempo.heartbeat)
            logs = [active.log for active in self._active.values() if active.log.is_silent()]
            if not logs:
                continue
            try:
                states = await self._store.renew(
                    [log.lease for log in logs], lease=self._tempo.lease
                )
            except StoreError as error:
                logger.warning(
                    "leases not renewed: %s", error.code, extra={"action": "no_heartbeat"}
                )
                continue
            for log, state in zip(logs, states, strict=True):
                if not log.ended:
                    log.lease_is(state)
