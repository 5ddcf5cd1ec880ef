"""The agent's loop: turns until there is an outcome. It never waits for a client (P1)."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias

import anyio

from passback.core.budgets import Spent
from passback.core.commands import CommandCall, CommandContext
from passback.core.context import Context
from passback.core.deltas import ModelDelta, TextChunk
from passback.core.errors import ModelContextExceeded, ModelIncomplete, StoreError
from passback.core.events import (
    Cancelled,
    Completed,
    HandedBack,
    Outcome,
    OutputAccepted,
    PlanUpdated,
    RunEvent,
    RunFinished,
    TextDelta,
    ToolCallEnded,
    TurnStarted,
    UsageReported,
)
from passback.core.ids import new_call_id, new_message_id
from passback.core.messages import (
    UNUSED,
    AssistantMessage,
    CallId,
    Message,
    ModelMessage,
    SummaryMessage,
    SystemMessage,
    ToolCall,
    ToolResult,
    Usage,
)
from passback.core.permissions import LastingIndex
from passback.core.ports import EagerBatches
from passback.core.state import State
from passback.core.transcript import (
    child_transcript,
    closing_results,
    count_futile_turns,
    owed_answers,
    posted_data,
    runnable_calls,
    unanswered_calls,
    view_start,
    waiting_calls,
)
from passback.engine.agents import AgentSpec, Answering
from passback.engine.assembler import (
    Assembler,
    ModelTurn,
    completed_reason,
    futile_run_error,
    last_model_name,
    result_event,
    tool_message,
    turn_records,
)
from passback.engine.children import CallContext, Journal, Origin, Progress, nest_event
from passback.engine.commands import state_after_command
from passback.engine.guarding import ExtraPromptOnce
from passback.engine.log import End
from passback.engine.output import OutputJudge
from passback.engine.spending import BudgetSpent, Meter
from passback.engine.toolbox import Toolbox
from passback.pacing import LARGE

Show: TypeAlias = Callable[[Sequence[RunEvent]], object]


_LARGE_DELTA = LARGE // 4  # characters of one delta after which to wait for room in the log


async def read_answer(
    answering: Answering, assembler: Assembler, show: Show, room: Callable[[], Awaitable[None]]
) -> None:
    """Read an answer to its end. After much text, wait until the log has `room` for more.

    Raises:
        ModelError: the model failed before the end of its answer.
    """
    async with answering as batches:
        if isinstance(batches, EagerBatches):
            batches.try_deliver(partial(_feed_and_show, assembler, show))
        async for deltas in batches:
            _feed_and_show(assembler, show, deltas)
            for delta in deltas:
                if isinstance(delta, TextChunk) and len(delta.text) > _LARGE_DELTA:
                    await room()


def _feed_and_show(assembler: Assembler, show: Show, deltas: Sequence[ModelDelta]) -> None:
    if events := assembler.feed(deltas):
        show(events)


_BUDGET_SPENT = Completed("budget")


@dataclass(slots=True)
class RunWork:
    """The starting point of a run under one lease.

    Attributes:
        spec: the agent.
        toolbox: its tools.
        messages: the transcript from `state.history_start` on.
        turns: number of turns so far, also under other workers.
        state: the conversation's state beside its messages.
        taken_over: another worker had worked on it, and was lost.
        depth: depth of nested agents.
        lasting: permissions for good, as the calling agent has them; None: by `state` and
            `messages`.
        sight: the context window, once it is known.
        prepared: the first request, once it is encoded.
        owner_spent: what the owner's runs have spent today, if it was asked for.
        seen: the transcript as the model sees it, once it is known.
        told: returns the extra prompt of the agent that this one is a fork of; None: it is no fork.
        limiters: limit the sub-agents of the run that work at once, by depth.
    """

    spec: AgentSpec
    toolbox: Toolbox
    messages: Sequence[Message]
    turns: int = 0
    state: State = field(default_factory=State)
    taken_over: bool = False
    depth: int = 0
    lasting: LastingIndex | None = None
    sight: Context | None = None
    prepared: Answering | None = None
    owner_spent: Spent | None = None
    seen: list[Message] | None = None
    told: Callable[[], Awaitable[str]] | None = None
    limiters: dict[int, anyio.CapacityLimiter] = field(
        default_factory=dict[int, anyio.CapacityLimiter]
    )

    def shown(self) -> list[Message]:
        """Return the transcript as the model sees it; made once, because it may be large."""
        if self.seen is None:
            self.seen = self.spec.seen(self.messages)
        return self.seen

    def prepare(self) -> None:
        """Encode the first request early, if the run begins with a model call."""
        if unanswered_calls(self.messages) or self.spec.told is not None:
            return
        self.sight = self.spec.watch(self.toolbox)
        shown = self.sight.at_once(self.shown())
        if shown is not None:
            schema = self.spec.output.requested_schema(self.messages, self.state)
            self.prepared = self.spec.ask(self.toolbox, shown, schema)


class Loop:
    """One run. `run` ends it by itself; after an error or a cancellation `stop` does.

    Args:
        leaving: called before each turn: returns whether the run is to be left to another worker.
        meter: the run's, shared with sub-agents.
    """

    def __init__(
        self, work: RunWork, log: Journal, leaving: Callable[[], bool], meter: Meter
    ) -> None:
        self._spec = work.spec
        self._toolbox = work.toolbox
        self._log = log
        self._messages = list(work.messages)
        self._seen = work.shown()
        self._turns = work.turns
        self._start = work.state.history_start
        self._state = self._stored = work.state
        # approvals come with posts only
        lasting = work.lasting
        if lasting is None:
            lasting = LastingIndex.of(work.state.permissions(work.messages))
        self._lasting = lasting
        self._taken_over = work.taken_over
        self._depth = work.depth
        self._sight = work.sight or work.spec.watch(work.toolbox)
        self._prepared = work.prepared
        self._is_fork = work.told is not None
        self._told = work.told or ExtraPromptOnce(work.spec.told, log.run)
        self._counts_told = False
        self._limiters = work.limiters
        self._leaving = leaving
        self._meter = meter
        self._assembler: Assembler | None = None
        self._model = last_model_name(work.messages) if work.turns else ""

    @property
    def messages(self) -> Sequence[Message]:
        """The transcript so far."""
        return self._messages

    async def run(self) -> None:
        """Run turns until the run has ended, or is left to another worker between two turns.

        Raises:
            ModelError, StoreError: nothing of the turn that failed was committed.
            ModelAstray, OutputInvalid: too many futile turns; they are committed.
        """
        try:
            await self._run_turns()
        except BudgetSpent:
            await self._end_run(_BUDGET_SPENT)

    async def _run_turns(self) -> None:
        # recovery closed the calls of the run itself, but not those of its sub-agents
        if self._depth and self._taken_over:
            await self._close_perhaps_begun()
        if unanswered_calls(self._messages) and await self._answer_calls():
            return
        self._taken_over = False
        if not self._depth and (called := self._spec.commands.last_command(self._messages)):
            await self._run_command(called)
            return
        while self._turns < self._spec.max_turns:
            if self._leaving():
                return
            # a model that makes the same mistake again and again would use up all its turns
            if count_futile_turns(self._messages) >= self._spec.max_futile_turns:
                raise futile_run_error(self._messages)
            self._turns += 1
            turn = await self._spec.judge.judge_turn(
                await self._ask_model(), self._toolbox, self._log.run, self._lasting
            )
            if await self._settle_turn(turn):
                return
        await self._end_run(Completed("max_turns"))

    async def stop(self, outcome: Outcome) -> None:
        """End a run that was stopped: keep the text that readers saw, close the
        unanswered calls.
        """
        append: list[Message] = []
        if self._assembler is not None and (partial := self._assembler.partial()) is not None:
            append.append(partial)
            self._model = partial.model
        append.extend(
            closing_results(unanswered_calls(self._messages), "interrupted", new_message_id)
        )
        await self._end_run(outcome, append, cut=isinstance(outcome, Cancelled))

    async def _run_command(self, call: CommandCall) -> None:
        """Answer a command in place of the model."""
        context = CommandContext(self._log.run, self._spec.deps)
        commands = self._spec.commands
        with await self._reserve_budget() if commands.needs_model(call) else nullcontext():
            compact = partial(self._sight.compact, self._seen, self._count_usage)
            reply = await commands.run_command(call, context, compact)
        message = AssistantMessage(new_message_id(), reply.text, command=True)
        self._state = state_after_command(self._state, call)
        events = (*reply.events, TurnStarted(message.id), TextDelta(reply.text))
        await self._end_run(Completed(), (*reply.before, message, *reply.after), events)

    async def _reserve_budget(self) -> AbstractContextManager[None]:
        return await self._meter.reserve(self._sight, self._spec.price)

    def _count_usage(self, usage: Usage | None, model: str = "") -> None:
        spec = self._spec
        self._meter.count_usage(usage, spec.price, model or spec.model.name)

    async def _ask_model(self) -> ModelTurn:
        """Call the model; call it again if the first call was refused as too long and room could be
        made.
        """
        try:
            turn = await self._listen_to_model()
        except ModelContextExceeded:
            if not (self._assembler and self._assembler.nothing_shown and self._sight.exceeded()):
                raise
            turn = await self._listen_to_model()
        if turn.usage is not None:
            self._sight.counted(turn.usage)
        return turn

    async def _listen_to_model(self) -> ModelTurn:
        answering = self._prepared or await self._model_request()
        self._prepared = None
        message_id = new_message_id()
        assembler = Assembler(
            message_id, self._toolbox.executor_of, new_call_id, self._spec.model.name
        )
        with await self._reserve_budget():
            self._assembler = assembler
            self._log.begin_turn([TurnStarted(message_id)])
            try:
                await read_answer(answering, assembler, self._log.append, self._log.room)
            finally:
                self._count_usage(assembler.spent, assembler.model)
        events, turn = assembler.finish()
        self._model = assembler.model
        if events:
            self._log.append(events)
        return turn

    async def _model_request(self) -> Answering:
        spec = self._spec
        told = await self._told()
        if told and not self._counts_told:
            self._sight, self._counts_told = spec.watch(self._toolbox, told), True
        shown = await self._fit_messages()
        schema = spec.output.requested_schema(self._messages, self._state)
        return spec.ask(self._toolbox, shown, schema, told)

    async def _fit_messages(self) -> Sequence[ModelMessage]:
        """Return what the model is shown; commit what had to be done for it."""
        if (shown := self._sight.at_once(self._seen)) is not None:
            return shown
        with await self._reserve_budget():
            fitted = await self._sight.fit(self._seen, self._count_usage)
        if fitted.append:
            await self._commit_messages(fitted.append, fitted.events)
        elif fitted.events:
            self._log.begin_turn(self._with_left(fitted.events))
        return fitted.messages

    def _with_left(self, events: Sequence[RunEvent]) -> tuple[RunEvent, ...]:
        return self._meter.with_remaining(events, self._spec.max_turns - self._turns)

    async def _settle_turn(self, turn: ModelTurn) -> bool:
        """Commit a turn and run its server calls. True: the run has ended."""
        if turn.finish is None:
            raise ModelIncomplete("the model's answer broke off")
        if turn.finish == "length" and turn.message.tool_calls:
            raise ModelIncomplete("the model's answer was cut off within a tool call")
        append, events = turn_records(turn)
        if not turn.message.tool_calls:
            return await self._judge_output(turn, append, events)
        # nothing to run here: the turn and the end of the run are stored with one write
        if not runnable_calls(append) and await self._hand_back(append, events):
            return True
        await self._commit_messages(append, events)
        return await self._answer_calls()

    async def _judge_output(
        self, turn: ModelTurn, append: Sequence[Message], events: Sequence[RunEvent]
    ) -> bool:
        """End the run, or tell the model why its last answer is not accepted. True: the run has
        ended.
        """
        said = await self._spec.output.judge_answer(
            turn, self._messages, self._state, self._log.run.key
        )
        if isinstance(said, SystemMessage):
            await self._commit_messages([*append, said], events)
            return False
        output = [said] if isinstance(said, OutputAccepted) else []
        await self._end_run(Completed(completed_reason(turn)), append, [*events, *output])
        return True

    async def _answer_calls(self) -> bool:
        """Run the server calls of a committed turn, and hand back what the client owes.

        True: the run has ended, or is left to another worker in the middle of a sub-agent's work.
        """
        calls = await self._still_allowed(runnable_calls(self._messages))
        return await self._run_server_calls(calls) or await self._hand_back([], [])

    async def _still_allowed(self, calls: Sequence[ToolCall]) -> Sequence[ToolCall]:
        """Return the calls that may be made; answer those that were approved and are
        denied since.
        """
        made: list[ToolCall] = []
        for call in calls:
            judge, run = self._spec.judge, self._log.run
            denial = await judge.denial_reason(call, self._toolbox, run) if call.asks else None
            if denial is None:
                made.append(call)
            else:
                result = ToolResult(denial, is_error=True)
                answer = replace(tool_message(call, result), synthetic="denied")
                await self._commit_messages([answer], [result_event(answer)])
        return made

    async def _run_server_calls(self, calls: Sequence[ToolCall]) -> bool:
        """Run calls; True: a sub-agent was left open, and the calls after it did not run.

        They may rely on its work.
        """
        for batch in await self._toolbox.batch_calls(calls):
            open_calls = await self._run_together(batch)
            # still runnable: its sub-agent was left, and does not wait for the client
            if open_calls and open_calls & {call.id for call in runnable_calls(self._messages)}:
                return True
        return False

    async def _run_together(self, calls: Sequence[ToolCall]) -> set[CallId]:
        """Run calls together, and return those without a result: a sub-agent in them waits for the
        client, or was left.
        """
        open_calls: set[CallId] = set()
        async with self._toolbox.run_calls(calls, self._call_context) as given:
            async for call, result in given:
                if isinstance(result, StoreError):
                    raise result
                if result is None:
                    open_calls.add(call.id)
                else:
                    await self._commit_result(call, result)
        return open_calls

    async def _commit_result(self, call: ToolCall, result: ToolResult) -> None:
        # of a call that was approved, readers have not seen the end yet
        ends = [ToolCallEnded(call.id)] if call.asks else []
        answer = tool_message(call, result)
        events: list[RunEvent] = [*ends, result_event(answer)]
        if result.plan is not None:
            events.append(PlanUpdated(result.plan))
            self._state = self._state.with_plan(result.plan, self._log.run.run_id)
        await self._commit_messages([answer], events)

    async def _close_perhaps_begun(self) -> None:
        """Close the calls of a sub-agent that the lost worker may have begun (P10)."""
        calls = await self._toolbox.perhaps_begun(runnable_calls(self._messages))
        for answer in closing_results(calls, "interrupted", new_message_id):
            await self._commit_messages([answer], [result_event(answer)])

    def _call_context(self, call: ToolCall) -> CallContext:
        progress = Progress(self._log, call.id)
        return CallContext(
            self._log.run,
            call.id,
            self._spec.deps,
            progress,
            ended=progress.end,
            show=self._log.append,
            begin_turn=self._log.begin_turn,
            write=self._commit_messages,
            transcript=child_transcript(call.id, self._messages),
            declared=self._toolbox.client_declarations,
            leaving=self._leaving,
            taken_over=self._taken_over,
            depth=self._depth,
            meter=self._meter,
            lasting=self._lasting,
            data=posted_data(self._messages, self._state.data),
            origin=self._fork_origin,
            limiters=self._limiters,
        )

    def _fork_origin(self) -> Origin | None:
        """Return what a fork that is called at this point begins with. None: this agent
        is a fork.
        """
        if self._is_fork:
            return None
        last = len(self._messages) - 1
        while not isinstance(self._messages[last], AssistantMessage):
            last -= 1
        # a fork answers the agent, not the user: no output schema applies
        spec = replace(self._spec, output=OutputJudge())
        before = slice(last)
        return Origin(spec, self._toolbox, self._messages[before], self._seen[before], self._told)

    async def _hand_back(self, append: Sequence[Message], events: Sequence[RunEvent]) -> bool:
        """End the run if the client owes something. False: it goes on; nothing was written."""
        calls = waiting_calls([*self._messages, *append])
        if not calls:
            return False
        ends = [
            nest_event(each.path, ToolCallEnded(each.call.id)) for each in calls if each.call.client
        ]
        outcome = HandedBack(tuple(each.owed for each in calls))
        await self._end_run(outcome, append, [*events, *ends])
        return True

    async def _end_run(
        self,
        outcome: Outcome,
        append: Sequence[Message] = (),
        events: Sequence[RunEvent] = (),
        *,
        cut: bool = False,
    ) -> None:
        # every run that ends by its budget reports its usage, also one that called no model
        if outcome == _BUDGET_SPENT and self._meter.is_unused:
            events = (*events, UsageReported(UNUSED))
        await self._meter.count_for_owner(ends=True)
        told = (
            *self._with_left(events),
            *self._unreported_usage(),
            RunFinished(outcome, self._model),
        )
        if not cut:
            self._state = self._state.after_own_end()
        # before the write: if its reply is lost, the log repeats it ahead of what comes next
        state = self._extend_transcript(append, ends=True)
        end = End(owed_answers(self._messages), cut)
        await self._log.commit(tuple(append), told, end, state)

    def _unreported_usage(self) -> Sequence[RunEvent]:
        """Return the usage that no event has reported; a sub-agent leaves it to the run."""
        return () if self._depth else self._with_left(self._meter.unreported_usage())

    async def _commit_messages(self, append: Sequence[Message], events: Sequence[RunEvent]) -> None:
        await self._meter.count_for_owner()
        state = self._extend_transcript(append)
        await self._log.commit(tuple(append), self._with_left(events), None, state)

    def _extend_transcript(self, append: Sequence[Message], *, ends: bool = False) -> State | None:
        """Add messages to the transcript, and return the new state, or None if it is as stored."""
        self._assembler = None
        self._state = self._state.with_answers(append, self._messages)
        self._messages.extend(append)
        self._seen.extend(self._spec.seen(append))
        usage = self._state.usage_with(append)
        if any(isinstance(message, SummaryMessage) for message in append):
            read = self._messages[self._state.history_start - self._start :]
            self._state = self._state.with_history_start(
                self._start + view_start(self._messages), read
            )
        self._state = self._meter.noted_state(self._state, self._stored, usage, ends=ends)
        stored, self._stored = self._stored, self._state
        return None if self._state == stored else self._state
