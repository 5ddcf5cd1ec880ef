"""The service behind every wire: admit posts, follow runs, cancel, and answer queries."""

from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Sequence,
)
from contextlib import AbstractContextManager, asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Literal

from pydantic import JsonValue

from passback.core.admission import (
    BUSY,
    ConversationSnapshot,
    close_open_calls,
    refuse_claim,
)
from passback.core.budgets import Left
from passback.core.changes import (
    CallClaim,
    Change,
    ClaimRequest,
    ConversationPage,
    ConversationPlace,
    Erased,
    Inbox,
    InboxPlace,
    LoadedConversation,
    Page,
    RunRecord,
    Status,
)
from passback.core.conversation.document import ConversationDocument
from passback.core.conversation_settings import (
    NO_SETTINGS,
    ConversationSettings,
    check_settings,
)
from passback.core.deltas import default_effort
from passback.core.errors import (
    CallClaimed,
    Conflict,
    ConversationBusy,
    ResultConflict,
    StoreError,
    UnknownAgent,
    UnknownConversation,
)
from passback.core.events import (
    START,
    Cancelled,
    Cursor,
    Position,
    RunFinished,
)
from passback.core.ids import MadeId, new_message_id, new_nonce
from passback.core.messages import (
    UNNAMED,
    CallId,
    ConversationKey,
    Medium,
    MessageId,
    OwnerId,
    RunRef,
    UserMessage,
)
from passback.core.posts import (
    Parked,
    StartRun,
    call_receipt_name,
)
from passback.core.runs import BranchPoint, Command, TakeBatch, TakeRunBatch, TellSwitch
from passback.core.titles import check_title
from passback.core.toolsets import Toolset
from passback.core.transcript import posted_data
from passback.engine.agents import Agents
from passback.engine.branching import (
    BranchSwitch,
    branch_points,
)
from passback.engine.copying import Copier
from passback.engine.documents import export_conversation, read_import
from passback.engine.erasing import erase_owner
from passback.engine.ledger import Ledger, until_applied
from passback.engine.loading import ConversationLoader
from passback.engine.posting import Posts
from passback.engine.reader import Reader, StoredLog
from passback.engine.recovery import Recovery
from passback.engine.supervisor import Readiness, Supervisor, Timing
from passback.engine.watching import ConversationReader


class RunService:
    """Implements the port `Runs`; use it within `running()`.

    Args:
        heard_of: number of conversations remembered to exist; forgetting one costs a round trip.
    """

    def __init__(
        self,
        ledger: Ledger,
        agents: Agents,
        timing: Timing | None = None,
        *,
        heard_of: int = 10_000,
    ) -> None:
        self._ledger = ledger
        self._agents = agents
        self._timing = timing or Timing()
        self._loads = ConversationLoader(ledger)
        self._switches = BranchSwitch(ledger, self._loads, self._timing.history_bytes)
        self._copier = Copier(ledger, self._loads, self._timing.history_bytes)
        self._supervisor = Supervisor(ledger, self._timing)
        self._recovery = Recovery(ledger, agents, self._timing, self._supervisor, self._loads)
        self._readiness = Readiness(ledger.ping)
        self._posts = Posts(
            ledger,
            agents,
            timing=self._timing,
            loads=self._loads,
            supervisor=self._supervisor,
            recovery=self._recovery,
            follow=self.follow,
            heard_of=heard_of,
        )

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
        return await self._posts.start(post)

    def follow(
        self, run: RunRef, /, *, after: Position = START, take: TakeBatch | None = None
    ) -> Reader:
        stored = StoredLog(self._ledger, run, self._recovery.recover, self._timing.lease)
        return Reader(stored, run, after, self._supervisor.log_of, take=take)

    def watch(
        self,
        key: ConversationKey,
        /,
        *,
        after: Cursor | Position | None = None,
        take: TakeRunBatch | None = None,
        tell_switch: TellSwitch | None = None,
        waits: bool = False,
    ) -> ConversationReader:
        return ConversationReader(
            self._ledger,
            key,
            after,
            follow=self._follow_from,
            status=self.status,
            recover=self._recovery.recover,
            take=take,
            tell_switch=tell_switch,
            waits=waits,
        )

    def _follow_from(self, run: RunRef, position: Position, take: TakeBatch | None) -> Reader:
        return self.follow(run, after=position, take=take)

    async def run(self, run: RunRef, /) -> RunRecord:
        await self.status(run.key)
        return await self._ledger.run_record(run)

    def left(self, run: RunRef, /) -> Left | None:
        return self._supervisor.left(run)

    async def status(self, key: ConversationKey, /) -> Status:
        status = await self._ledger.status(key)
        if status.lapsed or status.overdue:
            with suppress(StoreError):  # a store that takes no writes now may still be read
                await self._recovery.recover(key)
            status = await self._ledger.status(key)
        if status.version == 0:
            raise UnknownConversation("there is no such conversation")
        return status

    async def close_calls(self, key: ConversationKey, /) -> RunRef | None:
        [run] = await until_applied(partial(self._close_calls, key))
        return run

    async def _close_calls(self, key: ConversationKey) -> tuple[RunRef | None] | None:
        """Begin the run that closes calls; no run: nothing is owed. None: it has changed since."""
        await self.status(key)
        loaded = await self._load_messages(key)
        if loaded.status.running:
            raise ConversationBusy(BUSY, retry_after=1)
        if not loaded.status.owed:
            return (None,)
        self._supervisor.admit()
        verdict = close_open_calls(
            loaded.messages, partial(new_message_id, key), overdue=loaded.status.overdue
        )
        agent = self._agents.addressed_agent(key, loaded.messages, loaded.status.state)
        post = StartRun(key, ())
        run = await self._posts.begin_run(agent, post, loaded, verdict, cancelled=True)
        return None if run is None else (run,)

    async def compact(self, key: ConversationKey, /) -> RunRef:
        if (await self.status(key)).owed:
            raise Conflict("the agent waits for answers: give them, or go on without them")
        message = UserMessage(UNNAMED, "/compact", command=True)
        started = await self.start(StartRun(key, (message,)))
        assert isinstance(started, RunRef)  # results alone are parked
        return started

    async def claim_call(
        self, key: ConversationKey, call_id: CallId, claimant: str, /, *, seconds: float
    ) -> CallClaim:
        claim = await until_applied(
            partial(self._claim_call, key, call_id, claimant, seconds=seconds)
        )
        if not claim.mine:
            wait = claim.left / 1000
            raise CallClaimed("another client is at work on this call", retry_after=wait)
        return claim

    async def _claim_call(
        self, key: ConversationKey, call_id: CallId, claimant: str, *, seconds: float
    ) -> CallClaim | None:
        status = await self._ledger.status(key)
        if status.overdue or call_id not in {call.id for call in status.owed}:
            receipts = [call_receipt_name(call_id)]
            loaded = await self._ledger.load(key, receipts=receipts, within=0)
            status = loaded.status
            if status.version == 0:
                raise UnknownConversation("there is no such conversation")
            running, overdue = status.run_id if status.running else None, status.overdue
            snapshot = ConversationSnapshot((), loaded.receipts, running, overdue=overdue)
            refuse_claim(snapshot, status.owed, call_id)
        request = ClaimRequest(key, new_nonce(), status.version, call_id, claimant)
        return await self._ledger.claim_call(request, seconds=seconds)

    async def release_call(self, key: ConversationKey, call_id: CallId, claimant: str, /) -> None:
        # with the answer, the claim was gone
        with suppress(ResultConflict):
            await self.claim_call(key, call_id, claimant, seconds=0)

    async def inbox(
        self, owner: OwnerId, /, *, after: InboxPlace | None = None, limit: int
    ) -> Inbox:
        page = await self._ledger.inbox(owner, after=after, limit=limit)
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
        return await self._ledger.conversations(owner, after=after, limit=limit, search=search)

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
        if not await self._ledger.park(change):
            raise Conflict("there is a conversation with this id already")

    async def export(self, key: ConversationKey, /) -> AsyncIterator[bytes]:
        await self.status(key)
        return await export_conversation(self._ledger.store, key)

    async def import_conversation(
        self, key: ConversationKey, document: ConversationDocument, /
    ) -> None:
        command = await read_import(key, document, limit=self._timing.history_bytes)
        if document.tools:
            with suppress(UnknownAgent):  # its agent may be one of another server
                agent = self._agents.addressed_agent(key, document.messages, document.state)
                (await agent.tool_sources.build_toolbox()).refuse_clashes(document.tools)
        if not await self._ledger.create(command):
            raise Conflict("there is a conversation with this id already")

    async def rename(self, key: ConversationKey, title: str, /) -> None:
        if not await self._ledger.rename(key, check_title(title)):
            raise UnknownConversation("there is no such conversation")

    async def configure(self, key: ConversationKey, settings: ConversationSettings, /) -> None:
        if not await self._ledger.configure(key, check_settings(settings)):
            raise UnknownConversation("there is no such conversation")

    async def locate(self, owner: OwnerId, made: MadeId, /) -> ConversationKey | None:
        return await self._ledger.locate(owner, made)

    async def messages(self, key: ConversationKey, /, *, start: int, limit: int) -> Page:
        await self.status(key)
        return await self._ledger.page(key, start=start, limit=limit)

    async def branches(self, key: ConversationKey, /) -> Sequence[BranchPoint]:
        return await branch_points(self._ledger, key, await self.status(key))

    async def switch(self, key: ConversationKey, message_id: MessageId, /) -> None:
        await self._switches.switch(key, message_id, self.status)

    async def fork(
        self, key: ConversationKey, target: ConversationKey, /, *, after: MessageId | None = None
    ) -> None:
        self._supervisor.admit()
        await self.status(key)
        await self._copier.fork(key, target, after)

    async def data(self, key: ConversationKey, /) -> JsonValue:
        await self.status(key)
        loaded = await self._load_messages(key)
        return posted_data(loaded.messages, loaded.status.state.data)

    async def retract(self, key: ConversationKey, tool: str, /) -> None:
        await until_applied(partial(self._retract, key, tool))

    async def _retract(self, key: ConversationKey, tool: str) -> Literal[True] | None:
        await self.status(key)
        loaded = await self._load_messages(key)
        # a run keeps the state, and its next commit would undo the change
        if loaded.status.running:
            raise ConversationBusy(BUSY, retry_after=1)
        known = loaded.status.state.permissions(loaded.messages)
        left = tuple(each for each in known if each.tool != tool)
        if left == known:
            return True
        state, owing = replace(loaded.status.state, lasting=left), loaded.status.owed
        change = Change(key, new_nonce(), loaded.status.version, owed=owing, state=state)
        return await self._ledger.park(change) or None

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

    def media(self, agent: str = "", /, *, model: str = "") -> frozenset[Medium]:
        served = self._agents.agent_named(agent)
        return served.models.get(model, served.spec).media

    def lend(
        self, key: ConversationKey, toolsets: Sequence[Toolset], /
    ) -> AbstractContextManager[None]:
        return self._agents.lent.lend(key, toolsets)

    async def ready(self) -> None:
        self._supervisor.admit()
        await self._readiness.check()

    async def cancel(self, run: RunRef, /) -> bool:
        asked = await self._ledger.cancel(run, RunFinished(Cancelled()))
        if asked:
            self._supervisor.cancel(run)
        return asked

    async def hide(self, run: RunRef, /) -> None:
        await self.run(run)
        if not await self._ledger.hide_run(run):
            raise ConversationBusy("this run goes on: cancel it first")

    async def delete(self, key: ConversationKey, /) -> None:
        if not await self._delete(key):
            raise UnknownConversation("there is no such conversation")

    async def _delete(self, key: ConversationKey) -> bool:
        going_on = self._supervisor.runs_of(key)  # not those that a post begins after the deletion
        deleted = await self._ledger.delete(key)
        if deleted:
            self._supervisor.abandon_runs(going_on)
        return deleted

    async def erase(self, owner: OwnerId, /, *, limit: int) -> Erased:
        return await erase_owner(self._ledger.store, owner, limit=limit, delete=self._delete)
