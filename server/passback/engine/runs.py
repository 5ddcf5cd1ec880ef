"""The service behind every wire: it admits posts, lets readers follow runs, cancels, and answers questions."""

import sys
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

import anyio

from passback.core.changes import Change, Lease, Loaded, Page, Status
from passback.core.errors import ConversationBusy, UnknownConversation, UnknownToolCall
from passback.core.events import (
    START,
    Failed,
    Logged,
    Position,
    RunFinished,
    RunStarted,
    ToolCallStarted,
)
from passback.core.ids import new_message_id, new_nonce, new_run_id
from passback.core.messages import CallId, ConversationKey, Owed, RunRef, ToolMessage
from passback.core.ports import Parked, StartRun, Store, Take, Toolset
from passback.core.transcript import (
    Answer,
    Begins,
    Joins,
    Parks,
    accept,
    closing,
    owed,
    unanswered,
)
from passback.engine.loop import Brain
from passback.engine.reader import Reader
from passback.engine.supervisor import Supervisor, Tempo
from passback.engine.toolbox import Toolbox

_ADMISSIONS = 20
"""How often a post is judged anew when others write to its conversation at the same time."""

LOST = Failed("lost", "the worker of this run died before its end", retryable=True)


class RunService:
    """Implements the door `Runs`; `running()` has to be around every use.

    Args:
        heard_of: how many conversations it remembers to exist; forgetting one costs a round trip.
    """

    def __init__(
        self,
        store: Store,
        brain: Brain,
        toolsets: Sequence[Toolset] = (),
        tempo: Tempo | None = None,
        *,
        heard_of: int = 10_000,
    ) -> None:
        self._store = store
        self._toolsets = toolsets
        self._tempo = tempo or Tempo()
        self._supervisor = Supervisor(store, brain, self._tempo)
        self._heard_of: set[ConversationKey] = set()
        self._most_heard_of = heard_of

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Own the runs' tasks until the context is left.

        Raises:
            ConfigurationError: two toolsets have a tool of one name.
        """
        await Toolbox.gather(self._toolsets, ())
        async with self._supervisor.running():
            yield

    async def drain(self, grace: float) -> None:
        """Admit nothing more; give runs that go on `grace` seconds to end, then stop them."""
        await self._supervisor.drain(grace)

    # ---------------------------------------------------------------- starting
    async def start(self, command: StartRun, /) -> RunRef | Parked:
        if command.tools is not None:
            (await Toolbox.gather(self._toolsets, ())).refuse_clashes(command.tools)
        calls = {
            message.call_id for message in command.messages if isinstance(message, ToolMessage)
        }
        for _ in range(_ADMISSIONS):
            self._supervisor.admit()
            loaded = await self._look(command.key, calls)
            if loaded.status.lapsed:
                await self._reap(command.key, loaded)
                continue
            try:
                admitted = await self._admit(command, loaded)
            except UnknownToolCall:
                if not await self._handed_back(command, loaded, calls):
                    raise
                continue
            if admitted is not None:
                return admitted
        raise ConversationBusy("too many posts to this conversation at once", retry_after=1)

    async def _look(self, key: ConversationKey, calls: set[CallId]) -> Loaded:
        """The conversation; one of which this worker never heard is taken to be new at first, without a look.

        Mostly it is, and a round trip is saved. If not, the store refuses the change, and the next look is real.
        """
        if key in self._heard_of or calls:
            return await self._store.load(key, calls=calls)
        if len(self._heard_of) >= self._most_heard_of:
            self._heard_of.clear()
        self._heard_of.add(key)
        return Loaded(Status())

    async def _admit(self, command: StartRun, loaded: Loaded) -> RunRef | Parked | None:
        """Store what the post brings. None: the conversation has changed meanwhile, judge again."""
        running = loaded.status.run_id if loaded.status.running else None
        verdict = accept(
            loaded.messages,
            command.messages,
            new_message_id,
            answers=loaded.answers,
            running=running,
        )
        if isinstance(verdict, Joins):
            return RunRef(command.key, verdict.run_id)
        if isinstance(verdict, Parks):
            return await self._park(command, loaded, verdict)
        return await self._begin(command, loaded, verdict)

    async def _park(self, command: StartRun, loaded: Loaded, verdict: Parks) -> Parked | None:
        parked = Parked(command.key, verdict.owed)
        if not verdict.append and command.tools is None:
            return parked
        answers = {call: Answer(print_) for call, print_ in verdict.answered.items()}
        change = _change(command, loaded, verdict, answers, owing=verdict.owed)
        return parked if await self._store.park(change) else None

    async def _begin(self, command: StartRun, loaded: Loaded, verdict: Begins) -> RunRef | None:
        run = RunRef(command.key, new_run_id())
        answers = {call: Answer(print_, run.run_id) for call, print_ in verdict.answered.items()}
        change = _change(command, loaded, verdict, answers)
        client = loaded.tools if command.tools is None else command.tools
        toolbox = await Toolbox.gather(self._toolsets, client)
        opening = (RunStarted(run.run_id),)
        # a client that leaves now must not leave a lease behind that nobody works under
        with anyio.CancelScope(shield=True):
            lease: Lease | None = await self._store.begin(
                change, run.run_id, opening, lease=self._tempo.lease
            )
            if lease is None:
                return None
            messages = (*loaded.messages, *verdict.append)
            self._supervisor.spawn(lease, opening, toolbox, messages)
        return run

    async def _handed_back(self, command: StartRun, loaded: Loaded, calls: set[CallId]) -> bool:
        """Wait for the end of the run that goes on, if the results are for calls that it is just making."""
        if not loaded.status.running or loaded.status.run_id is None:
            return False
        run = RunRef(command.key, loaded.status.run_id)
        missing = calls - loaded.answers.keys()
        if missing - await self._calls_begun(run):
            # the log of another worker's run may lag behind what its readers have seen
            await anyio.sleep(2 * self._tempo.log_delay)
            if missing - await self._calls_begun(run):
                return False
        with anyio.move_on_after(self._tempo.early_result):
            async with self.follow(run) as batches:
                async for _ in batches:
                    pass
            return True
        raise ConversationBusy("the run that makes this tool call still goes on", retry_after=1)

    async def _calls_begun(self, run: RunRef) -> set[CallId]:
        """The client calls that readers of a run may have seen begin."""
        log = self._supervisor.log_of(run)
        seen = log.read(START) if log else await self._store.read_log(run, limit=sys.maxsize)
        return {
            logged.event.call_id
            for logged in seen
            if isinstance(logged.event, ToolCallStarted) and logged.event.client
        }

    # ---------------------------------------------------------------- reading
    @asynccontextmanager
    async def follow(
        self, run: RunRef, /, *, after: Position = START, take: Take | None = None
    ) -> AsyncGenerator[AsyncIterator[Sequence[Logged]]]:
        async with Reader(self._store, run, after, take, self._revive) as reader:
            yield await reader.open(self._supervisor.log_of(run))

    async def status(self, key: ConversationKey, /) -> Status:
        status = await self._store.status(key)
        if status.lapsed and status.run_id is not None:
            await self._revive(RunRef(key, status.run_id))
            status = await self._store.status(key)
        if status.version == 0:
            raise UnknownConversation("there is no such conversation")
        return status

    async def messages(self, key: ConversationKey, /, *, start: int, limit: int) -> Page:
        await self.status(key)
        return await self._store.page(key, start=start, limit=limit)

    async def ready(self) -> None:
        self._supervisor.admit()
        await self._store.ping()

    # ---------------------------------------------------------------- ending
    async def cancel(self, run: RunRef, /) -> bool:
        asked = await self._store.cancel(run)
        if asked:
            self._supervisor.cancel(run)
        return asked

    async def delete(self, key: ConversationKey, /) -> None:
        going_on = self._supervisor.runs_of(key)  # not those that a post begins after the deletion
        if not await self._store.delete(key):
            raise UnknownConversation("there is no such conversation")
        self._supervisor.forsake(going_on)

    async def _revive(self, run: RunRef) -> None:
        await self._reap(run.key, await self._store.load(run.key))

    async def _reap(self, key: ConversationKey, loaded: Loaded) -> None:
        """End a run whose worker is gone; the calls that it left open are closed, nobody was told of them."""
        if not loaded.status.lapsed or loaded.status.run_id is None:
            return
        append = closing(unanswered(loaded.messages), "interrupted", new_message_id)
        change = Change(
            key,
            new_nonce(),
            loaded.status.version,
            append,
            owed=owed((*loaded.messages, *append)),
        )
        await self._store.reap(change, loaded.status.run_id, RunFinished(LOST))


def _change(
    command: StartRun,
    loaded: Loaded,
    verdict: Begins | Parks,
    answers: Mapping[CallId, Answer],
    *,
    owing: tuple[Owed, ...] = (),
) -> Change:
    """What an admitted post writes, if the conversation is still as it was judged."""
    return Change(
        command.key,
        new_nonce(),
        loaded.status.version,
        verdict.append,
        answers,
        owing,
        command.tools,
    )
