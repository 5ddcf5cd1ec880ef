"""The service behind every wire: admit posts, follow runs, cancel, and answer queries."""

import random
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence, Set
from contextlib import AbstractContextManager, asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TypeAlias, assert_never

import anyio
from pydantic import JsonValue

from passback.core.admission import (
    BUSY,
    Begins,
    ConversationSnapshot,
    Joins,
    Parks,
    Queues,
    close_open_calls,
    decide_post,
    decide_unread_post,
    refuse_claim,
    refuse_empty,
)
from passback.core.budgets import Left
from passback.core.changes import (
    CallClaim,
    Change,
    ClaimRequest,
    ConversationPage,
    ConversationPlace,
    Enqueue,
    Inbox,
    InboxPlace,
    LoadedConversation,
    Page,
    QueuedPost,
    Status,
)
from passback.core.conversation_settings import (
    NO_SETTINGS,
    ConversationSettings,
    check_settings,
)
from passback.core.deltas import default_effort
from passback.core.errors import (
    CallClaimed,
    ClientError,
    Conflict,
    ConversationBusy,
    QueueFull,
    ResultConflict,
    StoreError,
    UnknownConversation,
    UnknownToolCall,
)
from passback.core.events import (
    START,
    Cancelled,
    Cursor,
    Logged,
    Position,
    RunFinished,
    RunQueued,
    ToolCallStarted,
    innermost_event,
)
from passback.core.messages import (
    Answer,
    CallId,
    ConversationKey,
    Medium,
    Message,
    OwnerId,
    RunRef,
    UserMessage,
    new_message_id,
    new_nonce,
    new_run_id,
)
from passback.core.ports import Store
from passback.core.posts import (
    Parked,
    Receipt,
    ReceiptName,
    StartRun,
    call_receipt_name,
    receipt_names,
    with_arrival_time,
)
from passback.core.runs import Command, TakeBatch, TakeRunBatch
from passback.core.titles import check_title
from passback.core.toolsets import Toolset
from passback.core.transcript import posted_data, waiting_calls
from passback.engine.agents import Agents, ServedAgent
from passback.engine.commands import refuse_accompanied_command
from passback.engine.loading import ConversationLoader, refuse_too_large
from passback.engine.log import record_messages
from passback.engine.reader import Reader, StoredLog
from passback.engine.recovery import Recovery, new_run, posted_change
from passback.engine.spending import owner_spent
from passback.engine.supervisor import Readiness, Supervisor, Timing
from passback.engine.watching import ConversationReader

ATTEMPTS = 20  # of a change that other writers overtake
_OVERTAKEN = "too many requests for this conversation at once"

_BACK_OFF_STEP = 0.01  # seconds: limit of the wait before a retry, for each earlier attempt

_jitter = random.SystemRandom()


async def back_off(attempt: int, /) -> None:
    """Wait a random time after an attempt (from 0), so that writers in step do not collide for
    ever.
    """
    await anyio.sleep(_jitter.uniform(0, _BACK_OFF_STEP * attempt))


_NEW = LoadedConversation(Status())


_Judged: TypeAlias = RunRef | Parked | Callable[[int], Awaitable[RunRef | Parked | None]]
"""The result for a post, or a function to await first; after None, judge the post again."""


class RunService:
    """Implements the port `Runs`; use it within `running()`.

    Args:
        heard_of: number of conversations remembered to exist; forgetting one costs a round trip.
    """

    def __init__(
        self,
        store: Store,
        agents: Agents,
        timing: Timing | None = None,
        *,
        heard_of: int = 10_000,
    ) -> None:
        self._store = store
        self._agents = agents
        self._timing = timing or Timing()
        self._loads = ConversationLoader(store)
        self._supervisor = Supervisor(store, self._timing)
        self._recovery = Recovery(store, agents, self._timing, self._supervisor, self._loads)
        self._readiness = Readiness(store.ping)
        self._heard_of: set[ConversationKey] = set()
        self._most_heard_of = heard_of

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Own the tasks of the runs until the context is left."""
        async with self._supervisor.running(), self._recovery.running():
            yield

    async def drain(self, grace: float) -> None:
        """Admit nothing more, and leave the runs to other workers, after `grace` seconds also
        within a turn.
        """
        await self._supervisor.drain(grace)

    async def start(self, post: StartRun, /) -> RunRef | Parked:
        post = self._agents.with_full_names(post)
        spec = self._agents.addressed_agent(post.key, post.messages).spec
        if spec.tells_time:
            post = with_arrival_time(post, datetime.now(UTC).isoformat(timespec="seconds"))
        if not post.continues:
            refuse_empty(post)
        names = receipt_names(post)
        for attempt in range(ATTEMPTS):
            self._supervisor.admit()
            async with self._loads.locked(post.key):
                answer = await self._look_and_judge(post, names)
            # what takes long runs without the lock, and without the messages in memory
            found = await answer(attempt) if callable(answer) else answer
            if found is not None:
                return found
        raise ConversationBusy("too many posts to this conversation at once", retry_after=1)

    async def _look_and_judge(self, post: StartRun, names: Collection[ReceiptName]) -> _Judged:
        """Judge a post with as few reads as possible: large messages are loaded last."""
        key = post.key
        # a conversation that this worker has not seen is mostly new: judged as one, it saves a
        # round trip. If it is not, the store refuses the change, and it is loaded then. A client
        # that posts agent messages mostly continues a conversation.
        if not (key in self._heard_of or names or post.continues or post.history):
            if len(self._heard_of) >= self._most_heard_of:
                self._heard_of.clear()
            self._heard_of.add(key)
            # what a new conversation refuses may be all right in one that exists
            with suppress(ClientError):
                return await self._judge_loaded(post, _NEW)
        loaded = await self._loads.load_small(key, names)
        if not loaded.left_out or loaded.status.lapsed:
            return await self._judge_loaded(post, loaded)
        verdict = decide_unread_post(_conversation_snapshot(loaded), loaded.status.owed, post)
        if isinstance(verdict, Joins):
            return RunRef(key, verdict.run_id)
        if verdict is not None:
            return Parked(key, verdict.owed)
        agent = self._agents.addressed_agent(key, post.messages, loaded.status.state)
        if not agent.spec.commands.shortens_history(post.messages):
            refuse_too_large(loaded, (), self._timing.history_bytes, agent.spec.commands)
        async with self._loads.load_whole(key, names) as whole:
            return await self._judge_loaded(post, whole)

    async def _judge_loaded(self, post: StartRun, loaded: LoadedConversation) -> _Judged:
        if loaded.status.lapsed:
            return lambda _attempt: self._recovery.recover(post.key)
        try:
            return await self._admit_post(post, loaded) or back_off
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
        key, messages = post.key, (*loaded.messages, *post.messages)
        agent = self._agents.addressed_agent(key, messages, loaded.status.state)
        if post.tools is not None:
            (await agent.tool_sources.build_toolbox()).refuse_clashes(post.tools)
        commands = agent.spec.commands
        post = commands.mark_commands(post)
        verdict = decide_post(_conversation_snapshot(loaded), post, new_message_id)
        limit = self._timing.history_bytes
        match verdict:
            case Joins(run_id):
                return RunRef(key, run_id)
            case Parks():
                refuse_too_large(loaded, verdict.append, limit, commands)
                repeats = not verdict.append and post.tools is None
                change = posted_change(post, loaded, verdict)
                is_stored = repeats or await self._store.park(change)
                return Parked(key, verdict.owed) if is_stored else None
            case Queues():
                await self._refuse_unfit(agent, post, loaded, verdict.messages)
                return await self._enqueue_post(post, loaded, verdict)
            case Begins():
                await self._refuse_unfit(agent, post, loaded, verdict.append)
                return await self._begin_run(agent, post, loaded, verdict)
            case _:
                assert_never(verdict)

    async def _begin_run(
        self,
        agent: ServedAgent,
        post: StartRun,
        loaded: LoadedConversation,
        verdict: Begins,
        *,
        cancelled: bool = False,
    ) -> RunRef | None:
        """Begin a run. None: the conversation has changed meanwhile."""
        run = RunRef(post.key, new_run_id())
        change = posted_change(post, loaded, verdict, run.run_id)
        spent = await owner_spent(self._store, agent.spec.budget, run)
        begun = await new_run(
            agent, loaded, change, run.run_id, cancelled=cancelled, owner_spent=spent
        )
        lease = self._timing.lease
        take = partial(self._store.begin, change, run.run_id, begun.opening, lease=lease)
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
            window = spec.context.watch(spec.model, spec.request_frame(toolbox))
            window.refuse(spec.seen((*loaded.messages, *append)))

    async def _enqueue_post(
        self, post: StartRun, loaded: LoadedConversation, verdict: Queues
    ) -> _Judged | None:
        run_id = new_run_id()
        # its run is known when it begins: answers go with the first run that can use them
        messages = record_messages(verdict.messages)
        queued = QueuedPost(run_id, replace(post, messages=messages, history=()))
        receipts = {name: Receipt(print_, run_id) for name, print_ in verdict.receipts.items()}
        enqueue = Enqueue(queued, receipts, (RunQueued(run_id),), limit=self._timing.queue)
        answer = await self._store.enqueue(enqueue)
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

    async def _supersede_calls(self, run: RunRef, _attempt: int) -> RunRef:
        """Begin a queued post without the results that the client owes."""
        await self._recovery.recover(run.key, supersede=True)
        return run

    async def _hand_back(
        self, run: RunRef, missing: Set[CallId], committed: Position, why: str, _attempt: int
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
            async with self.follow(run) as batches:
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
            seen = await self._store.read_log(run, after=after, limit=sys.maxsize)
        events = [innermost_event(logged.event) for logged in seen]
        return {e.call_id for e in events if isinstance(e, ToolCallStarted) and e.client}

    def follow(
        self, run: RunRef, /, *, after: Position = START, take: TakeBatch | None = None
    ) -> Reader:
        stored = StoredLog(self._store, run, self._recovery.recover, self._timing.lease)
        return Reader(stored, run, after, self._supervisor.log_of, take=take)

    def watch(
        self,
        key: ConversationKey,
        /,
        *,
        after: Cursor | Position | None = None,
        take: TakeRunBatch | None = None,
    ) -> ConversationReader:
        return ConversationReader(
            self._store,
            key,
            after,
            follow=self._follow_from,
            status=self.status,
            recover=self._recovery.recover,
            take=take,
        )

    def _follow_from(self, run: RunRef, position: Position, take: TakeBatch | None) -> Reader:
        return self.follow(run, after=position, take=take)

    def left(self, run: RunRef, /) -> Left | None:
        return self._supervisor.left(run)

    async def status(self, key: ConversationKey, /) -> Status:
        status = await self._store.status(key)
        if status.lapsed or status.overdue:
            with suppress(StoreError):  # a store that takes no writes now may still be read
                await self._recovery.recover(key)
            status = await self._store.status(key)
        if status.version == 0:
            raise UnknownConversation("there is no such conversation")
        return status

    async def close_calls(self, key: ConversationKey, /) -> RunRef | None:
        for attempt in range(ATTEMPTS):
            await self.status(key)
            loaded = await self._load_messages(key)
            if loaded.status.running:
                raise ConversationBusy(BUSY, retry_after=1)
            if not loaded.status.owed:
                return None
            self._supervisor.admit()
            verdict = close_open_calls(
                loaded.messages, new_message_id, overdue=loaded.status.overdue
            )
            agent = self._agents.addressed_agent(key, loaded.messages, loaded.status.state)
            post = StartRun(key, ())
            if run := await self._begin_run(agent, post, loaded, verdict, cancelled=True):
                return run
            await back_off(attempt)
        raise ConversationBusy(_OVERTAKEN, retry_after=1)

    async def compact(self, key: ConversationKey, /) -> RunRef:
        if (await self.status(key)).owed:
            raise Conflict("the agent waits for answers: give them, or go on without them")
        message = UserMessage(new_message_id(), "/compact", command=True)
        started = await self.start(StartRun(key, (message,)))
        assert isinstance(started, RunRef)  # results alone are parked
        return started

    async def claim_call(
        self, key: ConversationKey, call_id: CallId, claimant: str, /, *, seconds: float
    ) -> CallClaim:
        for attempt in range(ATTEMPTS):
            status = await self._store.status(key)
            if status.overdue or call_id not in {call.id for call in status.owed}:
                receipts = [call_receipt_name(call_id)]
                loaded = await self._store.load(key, receipts=receipts, within=0)
                status = loaded.status
                if status.version == 0:
                    raise UnknownConversation("there is no such conversation")
                running, overdue = status.run_id if status.running else None, status.overdue
                snapshot = ConversationSnapshot((), loaded.receipts, running, overdue=overdue)
                refuse_claim(snapshot, status.owed, call_id)
            request = ClaimRequest(key, new_nonce(), status.version, call_id, claimant)
            claim = await self._store.claim_call(request, seconds=seconds)
            if claim is None:
                await back_off(attempt)
            elif claim.mine:
                return claim
            else:
                wait = claim.left / 1000
                raise CallClaimed("another client is at work on this call", retry_after=wait)
        raise ConversationBusy(_OVERTAKEN, retry_after=1)

    async def release_call(self, key: ConversationKey, call_id: CallId, claimant: str, /) -> None:
        # with the answer, the claim was gone
        with suppress(ResultConflict):
            await self.claim_call(key, call_id, claimant, seconds=0)

    async def inbox(
        self, owner: OwnerId, /, *, after: InboxPlace | None = None, limit: int
    ) -> Inbox:
        page = await self._store.inbox(owner, after=after, limit=limit)
        # nobody can answer these any more: the next look goes on without
        waiting = tuple(each for each in page.owing if not each.status.overdue)
        return replace(page, owing=waiting)

    async def conversations(
        self,
        owner: OwnerId,
        /,
        *,
        after: ConversationPlace | None = None,
        limit: int,
        search: str = "",
    ) -> ConversationPage:
        return await self._store.conversations(owner, after=after, limit=limit, search=search)

    async def create(
        self,
        key: ConversationKey,
        /,
        *,
        title: str = "",
        settings: ConversationSettings = NO_SETTINGS,
    ) -> None:
        given, chosen = check_title(title) if title else None, check_settings(settings)
        change = Change(key, new_nonce(), 0, title=given, named=True, settings=chosen)
        if not await self._store.park(change):
            raise Conflict("there is a conversation with this id already")

    async def rename(self, key: ConversationKey, title: str, /) -> None:
        if not await self._store.rename(key, check_title(title)):
            raise UnknownConversation("there is no such conversation")

    async def configure(self, key: ConversationKey, settings: ConversationSettings, /) -> None:
        if not await self._store.configure(key, check_settings(settings)):
            raise UnknownConversation("there is no such conversation")

    async def messages(self, key: ConversationKey, /, *, start: int, limit: int) -> Page:
        await self.status(key)
        return await self._store.page(key, start=start, limit=limit)

    async def data(self, key: ConversationKey, /) -> JsonValue:
        await self.status(key)
        loaded = await self._load_messages(key)
        return posted_data(loaded.messages, loaded.status.state.data)

    async def retract(self, key: ConversationKey, tool: str, /) -> None:
        for attempt in range(ATTEMPTS):
            await self.status(key)
            loaded = await self._load_messages(key)
            # a run keeps the state, and its next commit would undo the change
            if loaded.status.running:
                raise ConversationBusy(BUSY, retry_after=1)
            known = loaded.status.state.permissions(loaded.messages)
            left = tuple(each for each in known if each.tool != tool)
            if left == known:
                return
            state, owing = replace(loaded.status.state, lasting=left), loaded.status.owed
            change = Change(key, new_nonce(), loaded.status.version, owed=owing, state=state)
            if await self._store.park(change):
                return
            await back_off(attempt)
        raise ConversationBusy(_OVERTAKEN, retry_after=1)

    async def _load_messages(self, key: ConversationKey) -> LoadedConversation:
        loaded = await self._loads.load_small(key)
        if not loaded.left_out:
            return loaded
        async with self._loads.load_whole(key) as whole:
            return whole

    def commands(self, agent: str = "", /) -> Sequence[Command]:
        return self._agents.agent_named(agent).spec.commands.all_commands

    def models(self, agent: str = "", /) -> Sequence[str]:
        served = self._agents.agent_named(agent)
        own = served.spec.model.name
        return (own, *(name for name in served.models if name != own))

    def effort(self, agent: str = "", /) -> str | None:
        return default_effort(self._agents.agent_named(agent).spec.options)

    def agents(self) -> Sequence[str]:
        return self._agents.names

    def media(self, agent: str = "", /) -> frozenset[Medium]:
        return self._agents.agent_named(agent).spec.media

    def lend(
        self, key: ConversationKey, toolsets: Sequence[Toolset], /
    ) -> AbstractContextManager[None]:
        return self._agents.lent.lend(key, toolsets)

    async def ready(self) -> None:
        self._supervisor.admit()
        await self._readiness.check()

    async def cancel(self, run: RunRef, /) -> bool:
        asked = await self._store.cancel(run, RunFinished(Cancelled()))
        if asked:
            self._supervisor.cancel(run)
        return asked

    async def delete(self, key: ConversationKey, /) -> None:
        going_on = self._supervisor.runs_of(key)  # not those that a post begins after the deletion
        if not await self._store.delete(key):
            raise UnknownConversation("there is no such conversation")
        self._supervisor.abandon_runs(going_on)


def _conversation_snapshot(loaded: LoadedConversation) -> ConversationSnapshot:
    status = loaded.status
    return ConversationSnapshot(
        loaded.messages,
        loaded.receipts,
        running=status.run_id if status.running else None,
        queued=[message for waits in loaded.queue for message in waits.post.messages],
        overdue=status.overdue,
        start=status.state.history_start,
        exists=status.version > 0,
        state=status.state,
    )
