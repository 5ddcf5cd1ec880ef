"""Background recovery: take over runs whose lease expired, start queued runs, time out
unanswered tool calls.
"""

import logging
import random
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Literal, assert_never

import anyio
from anyio.abc import TaskGroup

from passback.core.budgets import Spent
from passback.core.changes import Change, LoadedConversation, QueuedPost
from passback.core.errors import ConversationBusy, StoreError
from passback.core.events import PlanUpdated, RunEvent, RunFinished, RunStarted, StateChanged
from passback.core.ids import new_message_id, new_run_id
from passback.core.messages import (
    AssistantMessage,
    ConversationKey,
    RunId,
    RunRef,
    ToolMessage,
)
from passback.core.shared_state import difference
from passback.core.transcript import (
    closing_results,
    posted_count,
    runnable_calls,
    unanswered_calls,
    unwrap_message,
)
from passback.engine.agents import Agents, ServedAgent
from passback.engine.assembler import result_event
from passback.engine.branching import read_from
from passback.engine.children import nest_event
from passback.engine.ledger import Ledger, until_applied
from passback.engine.loading import ConversationLoader
from passback.engine.loop import Loop
from passback.engine.next_run import (
    LOST_RUN,
    Need,
    late_change,
    lost_run_change,
    next_need,
    queued_change,
    take_over_events,
)
from passback.engine.supervisor import (
    Run,
    Supervisor,
    Timing,
    contain_failure,
    keep_running,
)

logger = logging.getLogger(__name__)

_SCAN_LIMIT = 16  # limit of conversations that one scan finds; the next scan finds the others

_jitter = random.SystemRandom()


class Recovery:
    """Reads a conversation, then acts under a lease, so that two workers never do the same."""

    def __init__(
        self,
        ledger: Ledger,
        agents: Agents,
        timing: Timing,
        supervisor: Supervisor,
        loads: ConversationLoader,
    ) -> None:
        self._ledger = ledger
        self._loads = loads
        self._agents = agents
        self._timing = timing
        self._supervisor = supervisor

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Look for lost runs, and after the runs of this process, while the context is open."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(keep_running, self._scan_lost_runs, self._timing.heartbeat)
            tasks.start_soon(self._follow_up, tasks)
            yield
            tasks.cancel_scope.cancel()

    async def _follow_up(self, tasks: TaskGroup) -> None:
        while True:
            key = await self._supervisor.unsettled.get()
            tasks.start_soon(contain_failure, self.recover, key)

    async def _scan_lost_runs(self) -> None:
        """Scan for runs whose worker is lost. Random intervals keep workers that start together
        apart.
        """
        while not self._supervisor.is_leaving():
            await anyio.sleep(self._timing.scan * _jitter.uniform(0.5, 1.5))
            try:
                keys = await self._ledger.take_due(_SCAN_LIMIT, lease=self._timing.lease)
            except StoreError as error:
                logger.warning("scan for lost runs failed: %s", error.code)
                keys = ()
            async with anyio.create_task_group() as tasks:
                for key in keys:
                    tasks.start_soon(contain_failure, self.recover, key)

    async def recover(self, key: ConversationKey, *, supersede: bool = False) -> None:
        """Do what a conversation needs, if anything.

        Args:
            key: the conversation.
            supersede: begin queued posts even if the client owes results.

        Raises:
            StoreError: the outcome is unknown.
        """
        with suppress(ConversationBusy):  # others are at work on it
            await until_applied(partial(self._recover_once, key, supersede=supersede))

    async def _recover_once(self, key: ConversationKey, *, supersede: bool) -> Literal[True] | None:
        # a worker that leaves must not take over what it would give away at once
        if self._supervisor.is_leaving():
            return True
        async with self._loads.locked(key, recovers=True):
            loaded = await self._loads.load_small(key)
            return await self._recover_looked_at(key, loaded, supersede=supersede) or None

    async def _recover_looked_at(
        self, key: ConversationKey, loaded: LoadedConversation, *, supersede: bool
    ) -> bool:
        """Do what a conversation needs, with large messages only if it needs something. False:
        look again.
        """
        if not loaded.left_out:
            return await self._recover_loaded(key, loaded, supersede=supersede)
        if self._next_need(loaded, supersede=supersede) is None:
            return True
        async with self._loads.load_whole(key, recovers=True) as whole:
            return await self._recover_loaded(key, whole, supersede=supersede)

    async def _recover_loaded(
        self, key: ConversationKey, loaded: LoadedConversation, *, supersede: bool
    ) -> bool:
        """Do what a loaded conversation needs, if anything. False: look again, because it has
        changed meanwhile, or something is left to do.
        """
        need = self._next_need(loaded, supersede=supersede)
        match need:
            case None:
                return True
            case "take over":
                return await self._take_over(_run_of(key, loaded), loaded)
            case "fail":
                return await self._fail_lost(_run_of(key, loaded), loaded) and not loaded.queue
            case "begin":
                return await self._begin_next_run(key, loaded)
            case "go on":
                return await self._go_on_without_late(key, loaded)
            case _:
                assert_never(need)

    def _next_need(self, loaded: LoadedConversation, *, supersede: bool) -> Need | None:
        return next_need(loaded, max_attempts=self._timing.max_attempts, supersede=supersede)

    async def _fail_lost(self, run: RunRef, loaded: LoadedConversation) -> bool:
        calls = unanswered_calls(loaded.messages)
        append = closing_results(calls, "interrupted", partial(new_message_id, run.key))
        void = await take_over_events(self._ledger, run, loaded, append)
        change = lost_run_change(run, loaded, append)
        return await self._ledger.fail_lost(change, run.run_id, (*void, RunFinished(LOST_RUN)))

    async def _take_over(self, run: RunRef, loaded: LoadedConversation) -> bool:
        state = loaded.status.state
        agent = self._agents.addressed_agent(run.key, loaded.messages, state)
        toolbox = await agent.tool_sources.build_toolbox(loaded.tools)
        # a call that may have begun must not be made twice (P10)
        begun = await toolbox.perhaps_begun(runnable_calls(loaded.messages))
        append = closing_results(begun, "interrupted", partial(new_message_id, run.key))
        events = await take_over_events(self._ledger, run, loaded, append)
        # it owes nothing: open client calls are still to be handed back, or are closed here
        change = lost_run_change(run, loaded, append)
        own = await read_from(self._ledger, run.key, loaded, loaded.status.run_start)
        turns = sum(isinstance(message, AssistantMessage) for message in own)
        messages = (*loaded.messages, *append)
        loop = Loop(agent.spec, toolbox, messages, turns=turns, state=state, taken_over=True)
        taken_over = Run(
            loop,
            events,
            continues=True,
            cancelled=loaded.status.cancelled,
            cancel_on_disconnect=loaded.status.cancel_on_disconnect,
        )
        take = partial(self._ledger.take_over, change, run.run_id, events, lease=self._timing.lease)
        if await self._supervisor.start(run.key.owner, take, taken_over) is None:
            return False
        logger.info("run taken over", extra={"action": "run_taken_over", "run_id": run.run_id})
        return True

    async def _begin_next_run(self, key: ConversationKey, loaded: LoadedConversation) -> bool:
        queued, *others = loaded.queue
        before = loaded.status.state
        change, loaded = await queued_change(self._ledger, key, loaded)
        after = loaded.status.state
        shown: list[RunEvent] = [] if after.plan == before.plan else [PlanUpdated(after.plan)]
        if changed := difference(before.shared or {}, after.shared or {}):
            shown.append(StateChanged(changed.values, changed.removed))
        return await self._begin_run(change, queued.run_id, loaded, others, tuple(shown))

    async def _go_on_without_late(self, key: ConversationKey, loaded: LoadedConversation) -> bool:
        run_id = new_run_id(key)
        change = late_change(key, loaded, run_id)
        begun = await self._begin_run(change, run_id, loaded, loaded.queue)
        if begun:
            extra = {"action": "calls_timed_out", "run_id": run_id}
            logger.info("tool calls timed out", extra=extra)
        return begun

    async def _begin_run(
        self,
        change: Change,
        run_id: RunId,
        loaded: LoadedConversation,
        known: Sequence[QueuedPost],
        shown: tuple[RunEvent, ...] = (),
    ) -> bool:
        """Return whether the run began.

        Args:
            change: what it begins with.
            run_id: its id.
            loaded: its conversation before the change.
            known: the posts behind it that were read.
            shown: events of its opening beside the usual ones.
        """
        state = change.state or loaded.status.state
        messages = (*loaded.messages, *change.append)
        agent = self._agents.addressed_agent(change.key, messages, state)
        cancelled = any(each.stops for each in known)
        run = await new_run(agent, loaded, change, run_id, shown=shown, cancelled=cancelled)
        take = partial(self._ledger.begin, change, run_id, run.opening, lease=self._timing.lease)
        # posts that come later find the lease, and signal to its holder
        return await self._supervisor.start(change.key.owner, take, run) is not None


def _run_of(key: ConversationKey, loaded: LoadedConversation) -> RunRef:
    """Return the run that a conversation had last."""
    assert loaded.status.run_id is not None
    return RunRef(key, loaded.status.run_id)


async def new_run(
    agent: ServedAgent,
    loaded: LoadedConversation,
    change: Change,
    run_id: RunId,
    /,
    *,
    shown: Sequence[RunEvent] = (),
    cancelled: bool = False,
    owner_spent: Spent | None = None,
) -> Run:
    """Return a run of an agent that is to begin with a change.

    Its first events are its start, the answers to calls that a person has denied, and `shown`. The
    other arguments are those of `Run`.
    """
    messages, state = (*loaded.messages, *change.append), change.state or loaded.status.state
    posted = posted_count(messages)
    end, unchanged = loaded.start + len(messages), loaded.status.unchanged
    first = end - posted if unchanged is None else min(end - posted, unchanged)
    opening: list[RunEvent] = [RunStarted(run_id, first, end - first, unchanged is not None)]
    for message in change.append:
        path, inner = unwrap_message(message)
        if isinstance(inner, ToolMessage) and inner.synthetic == "denied":
            opening.append(nest_event(path, result_event(inner)))
    client = loaded.tools if change.tools is None else change.tools
    toolbox = await agent.tool_sources.build_toolbox(client)
    return Run(
        Loop(agent.spec, toolbox, messages, state=state),
        (*opening, *shown),
        continues=change.dequeues is not None,
        cancelled=cancelled,
        cancel_on_disconnect=change.cancel_on_disconnect,
        owner_spent=owner_spent,
    )
