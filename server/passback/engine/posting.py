"""Admit posts: judge what each means for its conversation, store it, and start its run."""

import sys
from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Sequence,
    Set,
)
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TypeAlias, assert_never

import anyio

from passback.core.admission import (
    Begins,
    Joins,
    Parks,
    Queues,
    decide_post,
    decide_unread_post,
    refuse_empty,
)
from passback.core.changes import (
    Enqueue,
    LoadedConversation,
    QueuedPost,
    Status,
)
from passback.core.errors import (
    ClientError,
    ConversationBusy,
    QueueFull,
    UnknownToolCall,
)
from passback.core.events import (
    Logged,
    Position,
    RunQueued,
    ToolCallStarted,
    innermost_event,
)
from passback.core.ids import new_message_id, new_run_id
from passback.core.messages import Answer, CallId, ConversationKey, Message, RunRef
from passback.core.posts import (
    Parked,
    Receipt,
    ReceiptName,
    StartRun,
    call_receipt_name,
    receipt_names,
    with_arrival_time,
)
from passback.core.transcript import waiting_calls
from passback.engine.agents import Agents, ServedAgent
from passback.engine.branching import (
    find_place,
    refuse_fork,
    refuse_growth,
)
from passback.engine.commands import refuse_accompanied_command
from passback.engine.ledger import Ledger, until_applied
from passback.engine.loading import ConversationLoader, judged_snapshot, refuse_too_large
from passback.engine.log import record_messages
from passback.engine.next_run import posted_change
from passback.engine.reader import Reader
from passback.engine.recovery import Recovery, new_run
from passback.engine.spending import owner_spent
from passback.engine.supervisor import Supervisor, Timing

_NEW = LoadedConversation(Status())

_Judged: TypeAlias = RunRef | Parked | Callable[[], Awaitable[RunRef | Parked | None]]
"""The result for a post, or a function to await first; after None, judge the post again."""


class Posts:
    """The posts that come to this worker.

    Args:
        ledger: has the conversations.
        agents: answer.
        timing: of this worker.
        loads: loads conversations.
        supervisor: runs what begins.
        recovery: does what a conversation needs before it can be judged.
        follow: reads a run to its end.
        heard_of: number of conversations remembered to exist; forgetting one costs a round trip.
    """

    def __init__(
        self,
        ledger: Ledger,
        agents: Agents,
        *,
        timing: Timing,
        loads: ConversationLoader,
        supervisor: Supervisor,
        recovery: Recovery,
        follow: Callable[[RunRef], Reader],
        heard_of: int,
    ) -> None:
        self._ledger = ledger
        self._agents = agents
        self._timing = timing
        self._loads = loads
        self._supervisor = supervisor
        self._recovery = recovery
        self._follow = follow
        self._heard_of: set[ConversationKey] = set()
        self._most_heard_of = heard_of

    async def start(self, post: StartRun, /) -> RunRef | Parked:
        post = self._agents.with_full_names(post)
        spec = self._agents.addressed_agent(post.key, post.messages).spec
        if spec.tells_time:
            post = with_arrival_time(post, datetime.now(UTC).isoformat(timespec="seconds"))
        if not post.continues:
            refuse_empty(post)
        return await until_applied(partial(self._judge, post, receipt_names(post)))

    async def _judge(
        self, post: StartRun, names: Collection[ReceiptName]
    ) -> RunRef | Parked | None:
        self._supervisor.admit()
        async with self._loads.locked(post.key):
            answer = await self._look_and_judge(post, names)
        # what takes long runs without the lock, and without the messages in memory
        return await answer() if callable(answer) else answer

    async def _look_and_judge(
        self, post: StartRun, names: Collection[ReceiptName]
    ) -> _Judged | None:
        """Judge a post with as few reads as possible: large messages are loaded last."""
        key = post.key
        # a conversation that this worker has not seen is mostly new: judged as one, it saves a
        # round trip. If it is not, the store refuses the change, and it is loaded then. A client
        # that posts agent messages mostly continues a conversation.
        is_known = key in self._heard_of or post.after is not None
        if not (is_known or names or post.continues or post.history):
            if len(self._heard_of) >= self._most_heard_of:
                self._heard_of.clear()
            self._heard_of.add(key)
            # what a new conversation refuses may be all right in one that exists
            with suppress(ClientError):
                return await self._judge_loaded(post, _NEW)
        loaded = await self._loads.load_small(key, names)
        # messages that `after` needs and that are not loaded may be large, too
        reads_more = post.after is not None and bool(loaded.start or loaded.status.has_branches)
        if not (loaded.left_out or reads_more) or loaded.status.lapsed:
            return await self._judge_loaded(post, loaded)
        verdict = decide_unread_post(judged_snapshot(loaded), loaded.status.owed, post)
        if isinstance(verdict, Joins):
            return RunRef(key, verdict.run_id)
        if verdict is not None:
            return Parked(key, verdict.owed)
        agent = self._agents.addressed_agent(key, post.messages, loaded.status.state)
        if post.after is None and not agent.spec.commands.shortens_history(post.messages):
            refuse_too_large(loaded, (), self._timing.history_bytes, agent.spec.commands)
        async with self._loads.load_whole(key, names) as whole:
            return await self._judge_loaded(post, whole)

    async def _judge_loaded(self, post: StartRun, loaded: LoadedConversation) -> _Judged | None:
        if loaded.status.lapsed:
            return partial(self._recovery.recover, post.key)
        try:
            return await self._admit_post(post, loaded)
        except UnknownToolCall as error:
            # a fast client may answer a call before the run hands it back
            status = loaded.status
            if not status.running or status.run_id is None:
                raise
            calls = {each.call_id for each in post.messages if isinstance(each, Answer)}
            missing = {call for call in calls if call_receipt_name(call) not in loaded.receipts}
            missing -= {each.call.id for each in waiting_calls(loaded.messages)}
            run = RunRef(post.key, status.run_id)
            return partial(self._hand_back, run, missing, status.committed, error.message)

    async def _admit_post(self, post: StartRun, loaded: LoadedConversation) -> _Judged | None:
        """Store what a post brings. None: the conversation has changed meanwhile, judge again."""
        place = await find_place(self._ledger, post, loaded, most=self._timing.history_bytes)
        base = place.branch or loaded  # where the post goes on
        key, messages = post.key, (*base.messages, *post.messages)
        agent = self._agents.addressed_agent(key, messages, base.status.state)
        if post.tools is not None:
            (await agent.tool_sources.build_toolbox()).refuse_clashes(post.tools)
        commands = agent.spec.commands
        post = commands.mark_commands(post)
        verdict = decide_post(
            judged_snapshot(loaded, place.branch), post, partial(new_message_id, key)
        )
        limit = self._timing.history_bytes
        match verdict:
            case Joins(run_id):
                return RunRef(key, run_id)
            case Parks():
                refuse_too_large(loaded, verdict.append, limit, commands)
                repeats = not verdict.append and post.tools is None
                change = posted_change(post, loaded, verdict)
                is_stored = repeats or await self._ledger.park(change)
                return Parked(key, verdict.owed) if is_stored else None
            case Queues():
                await self._refuse_unfit(agent, post, base, verdict.messages)
                return await self._enqueue_post(post, loaded, verdict, place.follows)
            case Begins():
                await self._refuse_unfit(agent, post, base, verdict.append)
                return await self.begin_run(agent, post, base, verdict)
            case _:
                assert_never(verdict)

    async def begin_run(
        self,
        agent: ServedAgent,
        post: StartRun,
        loaded: LoadedConversation,
        verdict: Begins,
        *,
        cancelled: bool = False,
    ) -> RunRef | None:
        """Begin a run. None: the conversation has changed meanwhile."""
        refuse_growth(loaded.status, verdict.left)
        run = RunRef(post.key, new_run_id(post.key))
        change = posted_change(post, loaded, verdict, run.run_id)
        spent = await owner_spent(self._ledger, agent.spec.budget, run)
        begun = await new_run(
            agent, loaded, change, run.run_id, cancelled=cancelled, owner_spent=spent
        )
        lease = self._timing.lease
        take = partial(self._ledger.begin, change, run.run_id, begun.opening, lease=lease)
        started = await self._supervisor.start(run.key.owner, take, begun, refusable=True)
        return None if started is None else run

    async def _refuse_unfit(
        self,
        agent: ServedAgent,
        post: StartRun,
        loaded: LoadedConversation,
        append: Sequence[Message],
    ) -> None:
        """Return if new messages may be stored: they have room, and the model takes them."""
        spec = agent.spec
        refuse_accompanied_command(append)
        spec.refuse_attachments(append)
        refuse_too_large(loaded, append, self._timing.history_bytes, spec.commands)
        if spec.is_large(append):
            client = loaded.tools if post.tools is None else post.tools
            toolbox = await agent.tool_sources.build_toolbox(client)
            window = spec.context.watch(
                spec.model, spec.request_frame(toolbox), partial(new_message_id, post.key)
            )
            window.refuse(spec.seen((*loaded.messages, *append)))

    async def _enqueue_post(
        self, post: StartRun, loaded: LoadedConversation, verdict: Queues, follows: int | None
    ) -> _Judged | None:
        if follows is not None or post.on_busy == "rollback":
            refuse_fork(loaded.status)
        run_id = new_run_id(post.key)
        # its run is known when it begins: answers go with the first run that can use them
        messages = record_messages(post.key, verdict.messages)
        queued = QueuedPost(run_id, replace(post, messages=messages, history=()), follows)
        receipts = {name: Receipt(print_, run_id) for name, print_ in verdict.receipts.items()}
        enqueue = Enqueue(
            queued,
            receipts,
            (RunQueued(run_id),),
            limit=self._timing.queue,
            expected=loaded.status.version,
        )
        answer = await self._ledger.enqueue(enqueue)
        if answer == "full":
            raise QueueFull("too many posts wait for this conversation", retry_after=1)
        if answer == "changed":
            return None
        run = RunRef(post.key, run_id)
        # nothing runs: the client owes results, and this post does not wait for them
        if not loaded.status.running:
            return partial(self._supersede_calls, run)
        if queued.stops and loaded.status.run_id is not None:
            self._supervisor.cancel(RunRef(post.key, loaded.status.run_id))
        return run

    async def _supersede_calls(self, run: RunRef) -> RunRef:
        """Begin a queued post without the results that the client owes."""
        await self._recovery.recover(run.key, supersede=True)
        return run

    async def _hand_back(
        self, run: RunRef, missing: Set[CallId], committed: Position, why: str
    ) -> None:
        """Wait for the end of the active run, if the results are for calls that it is making.

        Raises:
            UnknownToolCall: they are not.
            ConversationBusy: the run takes too long.
        """
        if missing - await self._calls_begun(run, committed):
            # the log of another worker's run may lag behind what its readers have seen
            await anyio.sleep(2 * self._timing.log_delay)
            if missing - await self._calls_begun(run, committed):
                raise UnknownToolCall(why)
        with anyio.move_on_after(self._timing.early_result):
            async with self._follow(run) as batches:
                async for _ in batches:
                    pass
            return
        raise ConversationBusy(
            "the run that made this tool call is still running: try again later", retry_after=1
        )

    async def _calls_begun(self, run: RunRef, after: Position) -> Set[CallId]:
        """Return the client calls of a run that its readers may have seen begin."""
        log = self._supervisor.log_of(run)
        if log is not None and log.lease.epoch == after.epoch and log.start <= after:
            seen: Sequence[Logged] = log.events_after(after)
        else:
            seen = await self._ledger.read_log(run, after=after, limit=sys.maxsize)
        events = [innermost_event(logged.event) for logged in seen]
        return {e.call_id for e in events if isinstance(e, ToolCallStarted) and e.client}
