"""A random conversation, its clients, model and workers, and what must hold after each step.

`tests.contract.conversation_steps` has the steps.
"""

import json
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import count, pairwise

import anyio
from tests.support.killable_worker import KillableWorker, killable_worker
from tests.support.provider_rules import violations_of
from tests.support.runs import QUICK, standing
from tests.support.store_values import new_key
from tests.support.transcript_rules import (
    answers_of,
    approvals_of,
    awaited_calls,
    calls_of,
    faults_of,
    words_of,
)
from tests.support.waiting import moment

from passback.core.budgets import Spent
from passback.core.changes import Status
from passback.core.deltas import ModelDelta, ModelRequest
from passback.core.events import (
    START,
    Cancelled,
    Logged,
    Position,
    Rewound,
    RunFinished,
    RunQueued,
    RunStarted,
    ToolCallStarted,
)
from passback.core.messages import (
    Answer,
    AssistantMessage,
    CallId,
    MediaPart,
    Message,
    RunId,
    RunRef,
    ToolMessage,
    Usage,
    UserMessage,
)
from passback.core.posts import Parked, StartRun
from passback.core.state import State
from passback.core.toolsets import ToolContext
from passback.engine.ledger import Ledger
from passback.models.openai_chat.encoding import encode_request
from passback.toolsets.functions import FunctionTool, tool


class OpenAnswer:
    """One call of the model. `calls` counts the calls of tools that it was ordered to make."""

    def __init__(self) -> None:
        self.calls = 0
        self._orders: list[ModelDelta | Exception | None] = []
        self._more = anyio.Event()

    @property
    def waits(self) -> bool:
        """Tell if the model has said all that it was ordered to."""
        return not self._orders

    def say(self, *orders: ModelDelta | Exception | None) -> None:
        """An exception is raised there; None ends the answer."""
        self._orders += orders
        self._more.set()

    async def play(self) -> AsyncGenerator[Sequence[ModelDelta]]:
        while True:
            while not self._orders:
                await self._more.wait()
                self._more = anyio.Event()
            order = self._orders[0]
            if isinstance(order, Exception):
                raise order
            if order is None:
                return
            yield [order]
            self._orders.pop(0)


class StepwiseModel:
    """Implements the door `ModelClient`.

    Attributes:
        open: the calls that go on.
        violations: what a provider would have refused, with the messages.
    """

    def __init__(self) -> None:
        self.open: list[OpenAnswer] = []
        self.violations: list[str] = []

    @property
    def name(self) -> str:
        return "dictated"

    @asynccontextmanager
    async def stream(
        self, request: ModelRequest, /
    ) -> AsyncGenerator[AsyncIterator[Sequence[ModelDelta]]]:
        messages = json.loads(encode_request("model", "provider", request))["messages"]
        if wrong := violations_of(messages):
            self.violations.append(f"{wrong}, in {json.dumps(messages, indent=1)}")
        open_answer = OpenAnswer()
        self.open.append(open_answer)
        try:
            async with aclosing(open_answer.play()) as batches:
                yield batches
        finally:
            self.open.remove(open_answer)

    def refuses(self, part: MediaPart, /) -> None: ...

    async def check(self) -> None: ...

    async def aclose(self) -> None: ...


SECONDS = 60
"""Limit for one conversation, however busy the machine is."""

TIMING = replace(QUICK, disconnect_grace=0.02, queue=4)


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """A post that was accepted. A run that it only joined is not its own."""

    post: StartRun
    answer: RunRef | Parked
    own: bool

    @property
    def texts(self) -> list[object]:
        return [each.content for each in self.post.messages if isinstance(each, UserMessage)]


@dataclass
class Reader:
    """A reader that follows a run on one worker, and may reconnect to another one."""

    run: RunRef
    seen: list[Logged] = field(default_factory=list[Logged])
    worker: KillableWorker | None = None
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    gone: anyio.Event = field(default_factory=anyio.Event)

    async def follow(self, worker: KillableWorker) -> None:
        """Follow to the end of the run, or until the connection is cut."""
        self.worker, self.scope, self.gone = worker, anyio.CancelScope(), anyio.Event()
        after = self.seen[-1].position if self.seen else START
        with self.scope:
            async with worker.runs.follow(self.run, after=after) as batches:
                async for batch in batches:
                    self.seen += batch
        self.gone.set()

    async def leave(self) -> None:
        self.scope.cancel()
        await self.gone.wait()


class RandomConversation:
    """One conversation.

    Attributes:
        workers: those that live.
        accepted: the posts that were acknowledged, in that order.
        doubtful: texts whose post got no answer: they may have been stored, once.
        made: how often the tool that asks first was called, by the call.
        waiting: the post that waits for its calls to be handed back, with the worker that has it.
    """

    def __init__(self, store: Ledger, tasks: anyio.abc.TaskGroup, stack: AsyncExitStack) -> None:
        self.store = store
        self.tasks = tasks
        self.key = new_key("life")
        self.model = StepwiseModel()
        self.workers: list[KillableWorker] = []
        self.accepted: list[Acknowledged] = []
        self.doubtful: set[object] = set()
        self.readers: list[Reader] = []
        self.gates: list[anyio.Event] = []
        self.waiting: tuple[RunId | None, KillableWorker, anyio.CancelScope, anyio.Event] | None = (
            None
        )
        self.numbers = count(1)
        self.made: Counter[CallId] = Counter()
        self._stack = stack
        self._logs: dict[RunRef, Sequence[Logged]] = {}
        self._before: Sequence[Message] = ()
        self._taken_back = 0
        self._spent = Spent()

    # ---------------------------------------------------------------- the workers
    async def start_worker(self) -> None:
        working = killable_worker(
            self.store, self.model, *self._tools(), timing=TIMING, seconds=SECONDS
        )
        self.workers.append(await self._stack.enter_async_context(working))

    async def kill_worker(self, worker: KillableWorker) -> None:
        """Kill a worker, and its connections with it."""
        self.workers.remove(worker)
        for reader in self.readers:
            if reader.worker is worker:
                await reader.leave()
        if self.waiting is not None and self.waiting[1] is worker:
            _, _, scope, done = self.waiting
            scope.cancel()
            await done.wait()
        worker.faults.plan.clear()
        await worker.kill()

    def _tools(self) -> list[FunctionTool]:
        @tool(read_only=True)
        async def look() -> str:
            """Look."""
            return "seen"

        @tool
        async def note() -> str:
            """Takes as long as the test wants."""
            gate = anyio.Event()
            self.gates.append(gate)
            try:
                await gate.wait()
            finally:
                self.gates.remove(gate)
            return "noted"

        @tool(permission="ask")
        async def wipe(context: ToolContext) -> str:
            """Is not repeated, and not made before a person has allowed it."""
            self.made[context.call_id] += 1
            return "wiped"

        return [look, note, wipe]

    @property
    def steady(self) -> bool:
        """Tell if no write is still to fail."""
        return not any(any(worker.faults.plan.values()) for worker in self.workers)

    def open_answer(self) -> OpenAnswer | None:
        """The call of the model that takes orders what to say."""
        return next((each for each in self.model.open if each.waits), None)

    # ---------------------------------------------------------------- what there is
    async def status(self) -> Status:
        return await self.store.status(self.key)

    async def messages(self) -> Sequence[Message]:
        return (await self.store.page(self.key, start=0, limit=10_000)).messages

    async def log(self, run: RunRef) -> Sequence[Logged]:
        return await self.store.read_log(run, after=START, limit=100_000)

    async def begun(self, status: Status) -> list[CallId]:
        """The client calls that the run that goes on has begun and not handed back."""
        if not status.running or status.run_id is None:
            return []
        log = await self.log(RunRef(self.key, status.run_id))
        fresh = [each.event for each in log if each.position > status.committed]
        begun = [
            each.call_id for each in fresh if isinstance(each, ToolCallStarted) and each.client
        ]
        return begun + [call.id for call in awaited_calls(await self.messages())]

    @property
    def runs(self) -> list[RunRef]:
        """Return runs in the order in which their posts were accepted."""
        return [
            each.answer for each in self.accepted if each.own and isinstance(each.answer, RunRef)
        ]

    async def settle(self) -> None:
        """Wait until nothing happens any more without a step of the test."""
        while not await self._rests():
            await moment()

    async def _rests(self) -> bool:
        status = await self.status()
        if self.waiting is not None and not (status.running and self.waiting[0] == status.run_id):
            return False  # its answer is about to come
        if status.lapsed:
            return True
        if status.running:
            return not status.cancelled and (self.open_answer() is not None or self.gates != [])
        return not status.queued or status.owed != ()

    # ---------------------------------------------------------------- what has to be true
    async def check(self) -> None:
        """After each step."""
        status, messages = await self.status(), await self.messages()
        assert self.model.violations == []
        assert faults_of(messages, running=status.running) == []
        owing = [] if status.running else [call.id for call in awaited_calls(messages)]
        assert [each.id for each in status.owed] == owing, (status, messages)
        # what was estimated and then taken back leaves its mark
        assert replace(status.state.usage, estimated=False) == used(messages)
        assert status.state.history_start <= len(messages)
        self._what_was_spent_stays_spent(status.state)
        logs = {run: await self._logged(run) for run in self.runs}
        await self._each_message_stands_once(status, messages, logs)
        self._answers_stay(messages, logs)
        self._nothing_was_made_twice_or_unasked(messages)
        self._before = messages

    def _what_was_spent_stays_spent(self, state: State) -> None:
        """Count also what is taken back, and what left no message."""
        before, self._spent = self._spent, Spent(state.tokens, state.seconds, state.cost)
        assert state.tokens >= max(
            before.tokens, state.usage.input_tokens + state.usage.output_tokens
        )
        assert (state.seconds, state.cost) >= (before.seconds, before.cost)

    async def _logged(self, run: RunRef) -> Sequence[Logged]:
        """A run's log; one that has ended never changes, and has one terminal event, the last."""
        if run in self._logs:
            return self._logs[run]
        log = await self.log(run)
        positions = [each.position for each in log]
        assert positions == sorted(set(positions))
        ends = [isinstance(each.event, RunFinished) for each in log]
        assert not any(ends[:-1])
        if ends[-1:] == [True]:
            self._logs[run] = log
        return log

    async def _each_message_stands_once(
        self, status: Status, messages: Sequence[Message], logs: dict[RunRef, Sequence[Logged]]
    ) -> None:
        gone = _taken_back(self.accepted, logs)
        contents = [each.content for each in messages if isinstance(each, UserMessage)]
        expected = [
            text
            for each in self.accepted
            if each.own and isinstance(each.answer, RunRef)
            if each.answer not in gone and each.answer.run_id not in status.queued
            for text in each.texts
        ]
        assert [text for text in contents if text not in self.doubtful] == expected
        assert len(contents) == len(set(contents))
        if len(gone) == self._taken_back:
            assert messages[: len(self._before)] == self._before
        self._taken_back = len(gone)

    def _answers_stay(
        self, messages: Sequence[Message], logs: dict[RunRef, Sequence[Logged]]
    ) -> None:
        """Check that first answers stay, and that those stored at once are the client's."""
        answers, earlier = answers_of(messages), answers_of(self._before)
        assert all(answers[call] == earlier[call] for call in answers.keys() & earlier.keys())
        for each in self.accepted:
            waited = isinstance(each.answer, RunRef) and was_queued(logs.get(each.answer, ()))
            for posted in each.post.messages:
                if waited or not isinstance(posted, Answer):
                    continue
                kept = answers if isinstance(posted, ToolMessage) else approvals_of(messages)
                assert words_of(kept[posted.call_id]) == words_of(posted)

    def _nothing_was_made_twice_or_unasked(self, messages: Sequence[Message]) -> None:
        """Count also calls of dead workers, and of text that was taken back."""
        allowed = {call for call, each in approvals_of(messages).items() if each.approved}
        asking = {call.id for call in calls_of(messages) if call.asks}
        assert all(times == 1 for times in self.made.values())
        assert self.made.keys() & asking <= allowed

    async def check_logs(self) -> None:
        """Check that each run reads the same again: from anywhere, on any worker, after any cut."""
        for run, log in self._logs.items():
            assert await self.log(run) == log
            for worker, after in zip(
                self.workers, (START, log[len(log) // 2].position), strict=True
            ):
                async with worker.runs.follow(run, after=after) as batches:
                    again = [each async for batch in batches for each in batch]
                assert again == [each for each in _without_void(log) if each.position > after]
        assert self._logs.keys() == set(self.runs)
        for reader in self.readers:
            await reader.leave()
            await reader.follow(self.workers[0])
            assert standing(reader.seen) == _without_void(self._logs[reader.run])


def used(messages: Sequence[Message]) -> Usage:
    """The tokens of all messages that tell them, added up."""
    counts = [each.usage for each in messages if isinstance(each, AssistantMessage) and each.usage]
    return replace(sum(counts, Usage()), estimated=False)


def _without_void(log: Sequence[Logged]) -> list[Logged]:
    """Return what a reader gets that saw nothing that became void."""
    return [each for each in log if not isinstance(each.event, Rewound)]


def was_queued(log: Sequence[Logged]) -> bool:
    return bool(log) and isinstance(log[0].event, RunQueued)


def _beginning(log: Sequence[Logged]) -> Position | None:
    """Return where a run began; None if it was taken out of the queue before."""
    found = (each.position for each in log if isinstance(each.event, RunStarted))
    return next(found, None)


def _taken_back(
    accepted: Sequence[Acknowledged], logs: dict[RunRef, Sequence[Logged]]
) -> set[RunRef]:
    """The runs whose messages are not in the transcript any more, or never were."""
    policies = {each.answer: each.post.on_busy for each in accepted if each.own}
    begun = sorted(
        (place, run) for run, log in logs.items() if (place := _beginning(log)) is not None
    )
    never = logs.keys() - {run for _, run in begun}
    gone = {run for run in never if logs[run] and isinstance(logs[run][-1].event, RunFinished)}
    for (_, before), (_, run) in pairwise(begun):
        last = logs[before][-1].event
        stopped = isinstance(last, RunFinished) and isinstance(last.outcome, Cancelled)
        if stopped and policies[run] == "rollback" and was_queued(logs[run]):
            gone.add(before)
    return gone


@asynccontextmanager
async def conversation(store: Ledger) -> AsyncGenerator[RandomConversation]:
    """A conversation that nobody has begun, with two workers."""
    with anyio.fail_after(SECONDS):
        async with anyio.create_task_group() as tasks, AsyncExitStack() as stack:
            one = RandomConversation(store, tasks, stack)
            await one.start_worker()
            await one.start_worker()
            try:
                yield one
            finally:
                for worker in [*one.workers]:
                    await one.kill_worker(worker)
