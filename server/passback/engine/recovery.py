"""Background recovery: take over runs whose lease expired, start queued runs, time out
unanswered tool calls.
"""

import logging
import random
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Literal, TypeAlias

import anyio
from anyio.abc import TaskGroup

from passback.core.admission import Begins, Parks, begin_queued_run, close_open_calls
from passback.core.budgets import Spent
from passback.core.changes import Change, LoadedConversation, OpenTurns, QueuedPost, Status
from passback.core.errors import ConversationBusy, CursorExpired, StoreError, UnknownRun
from passback.core.events import (
    START,
    Failed,
    PlanUpdated,
    Position,
    Rewound,
    RunEvent,
    RunFinished,
    RunStarted,
    ToolProgressed,
    join_events,
    stream_of,
    unwrap_event,
)
from passback.core.ids import new_message_id, new_nonce, new_run_id
from passback.core.messages import (
    Answer,
    AssistantMessage,
    CallId,
    ChildMessage,
    ConversationKey,
    Message,
    RunId,
    RunRef,
    SummaryMessage,
    ToolMessage,
)
from passback.core.posts import Receipt, StartRun
from passback.core.titles import first_title
from passback.core.transcript import (
    closing_results,
    posted_count,
    runnable_calls,
    unanswered_calls,
    unwrap_message,
    waiting_calls,
)
from passback.engine.agents import Agents, ServedAgent
from passback.engine.assembler import result_event
from passback.engine.branching import on_branch
from passback.engine.children import nest_event
from passback.engine.ledger import Ledger, until_applied
from passback.engine.loading import ConversationLoader
from passback.engine.log import record_messages
from passback.engine.loop import Loop
from passback.engine.supervisor import (
    Run,
    Supervisor,
    Timing,
    contain_failure,
    keep_running,
)

_Path: TypeAlias = tuple[CallId, ...]


async def take_over_events(
    ledger: Ledger, run: RunRef, loaded: LoadedConversation, append: Sequence[ToolMessage]
) -> tuple[RunEvent, ...]:
    """Return the log's events of a take-over: what is void, what is repeated, and the answers to
    server calls that were closed.

    Raises:
        StoreError: the log could not be read.
    """
    owed = {each.call.id for each in waiting_calls(loaded.messages)}
    answered = [result_event(each) for each in append if each.call_id not in owed]
    status = loaded.status
    if status.open_turns is None:
        return (Rewound(status.committed), *answered)
    try:
        said = await _committed_events(ledger, run, status.committed, status.open_turns)
    except (CursorExpired, UnknownRun):  # so much was said meanwhile that the log has lost it
        return (Rewound(START), *answered)
    return (Rewound(status.committed), *said, *answered)


async def _committed_events(
    ledger: Ledger, run: RunRef, place: Position, open_turns: OpenTurns
) -> list[RunEvent]:
    """Return the events after `place`, which is `Status.committed`, that are committed all the
    same. The pieces of each text and of each call's arguments are joined, also with another agent's
    events in between.

    Raises:
        CursorExpired, UnknownRun: the log no longer has them.
        StoreError: the log could not be read.
    """
    end, begun = open_turns.end, {each.path: each.after for each in open_turns.turns}
    parts: list[tuple[_Path, list[RunEvent]]] = []
    last: dict[_Path, list[RunEvent]] = {}
    while place < end and (batch := await ledger.read_log(run, after=place)):
        place = batch[-1].position
        for logged in batch:
            path, event = unwrap_event(logged.event)
            # a call that goes on tells its progress anew
            if logged.position > begun.get(path, end) or isinstance(event, ToolProgressed):
                continue
            stream, part = stream_of(event), last.get(path)
            if part is not None and stream is not None and stream_of(part[0]) == stream:
                part.append(event)
            else:
                last[path] = [event]
                parts.append((path, last[path]))
    return [nest_event(path, join_events(part)) for path, part in parts]


logger = logging.getLogger(__name__)

_SCAN_LIMIT = 16  # limit of conversations that one scan finds; the next scan finds the others

_jitter = random.SystemRandom()

LOST_RUN = Failed("lost", "the workers of this run died before its end", retryable=True)


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
        status = loaded.status
        if not loaded.left_out:
            return await self._recover_loaded(key, loaded, supersede=supersede)
        if not (
            status.lapsed or _begins_next(loaded, supersede=supersede) or _calls_timed_out(status)
        ):
            return True
        async with self._loads.load_whole(key, recovers=True) as whole:
            return await self._recover_loaded(key, whole, supersede=supersede)

    async def _recover_loaded(
        self, key: ConversationKey, loaded: LoadedConversation, *, supersede: bool
    ) -> bool:
        """Do what a loaded conversation needs, if anything. False: look again, because it has
        changed meanwhile, or something is left to do.
        """
        status = loaded.status
        if status.lapsed and status.run_id is not None:
            run = RunRef(key, status.run_id)
            if status.attempt < self._timing.max_attempts:
                return await self._take_over(run, loaded)
            # a run that kills each of its workers must not be started for ever
            calls = unanswered_calls(loaded.messages)
            append = closing_results(calls, "interrupted", partial(new_message_id, key))
            void = await take_over_events(self._ledger, run, loaded, append)
            recorded = record_messages(run.key, append, run.run_id)
            change = Change(key, new_nonce(), status.version, recorded)
            end = (*void, RunFinished(LOST_RUN))
            failed = await self._ledger.fail_lost(change, run.run_id, end)
            return failed and not loaded.queue
        if _begins_next(loaded, supersede=supersede):
            return await self._begin_next_run(key, loaded)
        if not _calls_timed_out(status):
            return True
        # the model goes on with the answers that there are
        run_id, answers = new_run_id(key), _queued_answers(loaded.queue)
        mint = partial(new_message_id, key)
        verdict = begin_queued_run(loaded.messages, answers, mint, overdue=True)
        change = posted_change(StartRun(key, ()), loaded, verdict, run_id)
        begun = await self._begin_run(change, run_id, loaded, loaded.queue)
        if begun:
            extra = {"action": "calls_timed_out", "run_id": run_id}
            logger.info("tool calls timed out", extra=extra)
        return begun

    async def _read_from(
        self, position: int, key: ConversationKey, loaded: LoadedConversation
    ) -> tuple[Message, ...]:
        """Return the messages from a position on, which may be before `history_start`."""
        earlier: list[Message] = []
        while position < loaded.start:
            page = await self._ledger.page(key, start=position, limit=loaded.start - position)
            if not page.messages:
                break  # the conversation is gone: whatever is decided now is not written
            earlier += page.messages
            position += len(page.messages)
        return (*earlier, *loaded.messages[max(0, position - loaded.start) :])

    async def _take_over(self, run: RunRef, loaded: LoadedConversation) -> bool:
        state = loaded.status.state
        agent = self._agents.addressed_agent(run.key, loaded.messages, state)
        toolbox = await agent.tool_sources.build_toolbox(loaded.tools)
        # a call that may have begun must not be made twice (P10)
        begun = await toolbox.perhaps_begun(runnable_calls(loaded.messages))
        append = closing_results(begun, "interrupted", partial(new_message_id, run.key))
        events = await take_over_events(self._ledger, run, loaded, append)
        # it owes nothing: open client calls are still to be handed back, or are closed here
        recorded = record_messages(run.key, append, run.run_id)
        change = Change(run.key, new_nonce(), loaded.status.version, recorded)
        own = await self._read_from(loaded.status.run_start, run.key, loaded)
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
        post, tree, plan = queued.post, loaded.status.tree, loaded.status.state.plan
        fresh = [each for each in post.messages if not isinstance(each, Answer)]
        mint = partial(new_message_id, key)
        # what the client answered with a later post is not to be closed as superseded
        posted, overdue = (*_queued_answers(loaded.queue), *fresh), loaded.status.overdue
        if queued.follows is not None and queued.follows != tree.leaf:
            closed = close_open_calls(loaded.messages, mint, posted=posted, overdue=overdue)
            verdict = Begins(tuple(fresh), closed.receipts, closed.append)
            loaded = await on_branch(self._ledger, key, loaded, queued.follows)
        else:
            # `follows` says what to keep
            if (
                queued.follows is None
                and post.on_busy == "rollback"
                and loaded.status.stopped_early
            ):
                loaded = await self._without_last_run(key, loaded)
            verdict = begin_queued_run(loaded.messages, posted, mint, overdue=overdue)
        change = posted_change(post, loaded, verdict, queued.run_id)
        change = replace(change, dequeues=queued.run_id)
        new_plan = loaded.status.state.plan
        shown = () if new_plan == plan else (PlanUpdated(new_plan),)
        return await self._begin_run(change, queued.run_id, loaded, others, shown)

    async def _without_last_run(
        self, key: ConversationKey, loaded: LoadedConversation
    ) -> LoadedConversation:
        """Return the conversation without its last run and the message that run answered."""
        start, tree = loaded.status.run_start, loaded.status.tree
        keep = start + _earlier_count(await self._read_from(start, key, loaded))
        return await on_branch(self._ledger, key, loaded, tree.ends_before(keep).leaf)

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


def _begins_next(loaded: LoadedConversation, *, supersede: bool) -> bool:
    """Return whether the first queued post begins; with `supersede`, whatever the client owes."""
    status = loaded.status
    return bool(loaded.queue) and not status.running and (supersede or not status.owed)


def _calls_timed_out(status: Status) -> bool:
    """Return whether the run goes on without the results that the client owes."""
    return status.overdue and bool(status.owed)


def _queued_answers(queue: Sequence[QueuedPost]) -> list[Answer]:
    """Return the answers of the client in posts that wait."""
    posted = [message for each in queue for message in each.post.messages]
    return [message for message in posted if isinstance(message, Answer)]


def posted_change(
    post: StartRun,
    loaded: LoadedConversation,
    verdict: Begins | Parks,
    run_id: RunId | None = None,
    /,
) -> Change:
    """Return the change of an admitted post; it applies if the conversation is as it was judged.

    `loaded`: the conversation, on the branch on which the post goes on. `run_id`: of the run that
    begins.
    """
    status, is_moved = loaded.status, loaded.status.unchanged is not None
    state = status.state.with_answers(verdict.append, loaded.messages)
    left = verdict.left if isinstance(verdict, Begins) else ()
    is_new = not (status.title or status.message_count)
    return Change(
        post.key,
        new_nonce(),
        status.version,
        append=record_messages(post.key, verdict.append, run_id),
        receipts={name: Receipt(print_, run_id) for name, print_ in verdict.receipts.items()},
        owed=verdict.owed if isinstance(verdict, Parks) else (),
        tools=post.tools,
        run_start=_run_start(post, loaded, verdict.append),
        cancel_on_disconnect=post.on_disconnect == "cancel",
        state=state if is_moved or state is not status.state else None,
        title=first_title(verdict.append) if is_new else None,
        leaf=status.tree.leaf if is_moved else None,
        left=record_messages(post.key, left, status.run_id),
    )


def _run_start(post: StartRun, loaded: LoadedConversation, append: Sequence[Message]) -> int:
    """Return the position of the message that a run answers, or of its own first one."""
    end = loaded.status.message_count
    # without messages, a run answers anew what was posted before
    if post.messages or post.after is None:
        return end + _earlier_count(append)
    return end - posted_count(loaded.messages)


def _earlier_count(behind: Sequence[Message]) -> int:
    """Return the number of leading messages that are not the run's own: a history, and results of
    earlier calls. They stay, whatever becomes of the run.
    """
    for count, message in enumerate(behind):
        if isinstance(message, Answer | ChildMessage):
            continue
        if isinstance(message, SummaryMessage) or not message.imported:
            return count
    return len(behind)


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
