"""The agent's loop: turns until there is an outcome. It never waits for a client (P1)."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from time import monotonic

import anyio

from passback.core.context import Context
from passback.core.deltas import ModelRequest, TextChunk
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
    StateChanged,
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
    MessageId,
    ModelMessage,
    SummaryMessage,
    SystemMessage,
    ToolCall,
    ToolResult,
    Usage,
)
from passback.core.permissions import LastingIndex
from passback.core.shared_state import CallState, RunState
from passback.core.state import State
from passback.core.transcript import (
    child_transcript,
    closing_results,
    count_futile_turns,
    owed_answers,
    posted_data,
    runnable_calls,
    schema_of_answer,
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
    turn_end,
    turn_records,
)
from passback.engine.children import CallContext, Journal, Origin, Progress, nest_event
from passback.engine.commands import CommandCall, CommandContext
from passback.engine.guarding import ExtraPromptOnce
from passback.engine.judging import OutputJudge
from passback.engine.log import End, current_milliseconds, elapsed_milliseconds, record_messages
from passback.engine.spending import BudgetSpent, Meter
from passback.engine.toolbox import Toolbox
from passback.pacing import LARGE

_LARGE_DELTA = LARGE // 4  # characters of one delta after which to wait for the store


async def read_answer(
    answering: Answering,
    assembler: Assembler,
    show: Callable[[Sequence[RunEvent]], object],
    wait_for_store: Callable[[], Awaitable[None]],
) -> None:
    """Read an answer to its end. After much text, wait until the store has taken what there is.

    Raises:
        ModelError: the model failed before the end of its answer.
    """
    async with answering as batches:
        async for deltas in batches:
            if events := assembler.feed(deltas):
                show(events)
            for delta in deltas:
                if isinstance(delta, TextChunk) and len(delta.text) > _LARGE_DELTA:
                    await wait_for_store()


_BUDGET_SPENT = Completed("budget")


class Loop:
    """The turns of one agent: of a run, or of a sub-agent in it.

    `run` ends it by itself; after an error or a cancellation `stop` does.

    Args:
        spec: the agent.
        toolbox: its tools.
        messages: the transcript from `state.history_start` on.
        turns: number of turns so far, also under other workers.
        state: the conversation's state beside its messages.
        taken_over: another worker had worked on it, and was lost.
        depth: depth of nested agents.
        lasting: permissions for good, as the calling agent has them; None: by `state` and
            `messages`.
        seen: the transcript as the model sees it, if it is known.
        extra_prompt: returns the extra prompt of the agent that this one is a fork of; None: it is
            no fork.
        limiters: limit the sub-agents of the run that work at once, by depth.
        shared: the shared state of the run; None: that of `state`.
    """

    _log: Journal
    _meter: Meter
    _leaving: Callable[[], bool]
    _extra_prompt: Callable[[], Awaitable[str]]
    _seen: list[Message]
    _frame: ModelRequest  # of the window that is watched

    def __init__(
        self,
        spec: AgentSpec,
        toolbox: Toolbox,
        messages: Sequence[Message],
        *,
        turns: int = 0,
        state: State | None = None,
        taken_over: bool = False,
        depth: int = 0,
        lasting: LastingIndex | None = None,
        seen: list[Message] | None = None,
        extra_prompt: Callable[[], Awaitable[str]] | None = None,
        limiters: dict[int, anyio.CapacityLimiter] | None = None,
        shared: RunState | None = None,
    ) -> None:
        self.spec = spec
        self._toolbox = toolbox
        self._messages = list(messages)
        self._given_seen = seen
        self._turns = turns
        self.state = self._stored = State() if state is None else state
        self._start = self.state.history_start
        self._known_lasting = lasting
        self._taken_over = taken_over
        self._depth = depth
        self._given_prompt = extra_prompt
        self._counts_extra = False
        self._limiters = {} if limiters is None else limiters
        self._shared = RunState(self.state.shared or {}) if shared is None else shared
        self._call_states: dict[CallId, CallState] = {}
        self._is_prepared = False
        self._request: Answering | None = None
        self._watched: Context | None = None
        self._assembler: Assembler | None = None
        self._model = last_model_name(messages) if turns else ""

    @property
    def messages(self) -> Sequence[Message]:
        """The transcript so far."""
        return self._messages

    def prepare(self) -> None:
        """Encode the first request, if the agent begins with a model call.

        Called while the store is busy, it costs the user no time; else `run` calls it.
        """
        if self._is_prepared:
            return
        self._is_prepared = True
        spec, seen = self.spec, self._given_seen
        self._seen = spec.seen(self._messages) if seen is None else seen
        if unanswered_calls(self._messages) or spec.extra_prompt is not None:
            return
        shown = self._window.at_once(self._seen)
        if shown is not None:
            self._request = self._encode_request(shown)

    @property
    def _window(self) -> Context:
        if self._watched is None:
            self._watched = self._watch_window()
        return self._watched

    def _new_message_id(self) -> MessageId:
        return new_message_id(self._log.run.key)

    def _watch_window(self, extra: str = "") -> Context:
        self._frame = self.spec.request_frame(self._toolbox, extra)
        return self.spec.context.watch(self.spec.model, self._frame, self._new_message_id)

    def _encode_request(self, shown: Sequence[ModelMessage]) -> Answering:
        """Return the next request as a context manager; entering it sends the request."""
        posted = schema_of_answer(self._messages, self.state.output_schema)
        schema = self.spec.output.schema if posted is None else posted
        return self.spec.model.stream(replace(self._frame, messages=shown, output_schema=schema))

    @property
    def _lasting(self) -> LastingIndex:
        # approvals come with posts only, so that it is the same in the whole run
        if self._known_lasting is None:
            self._known_lasting = LastingIndex.of(self.state.permissions(self._messages))
        return self._known_lasting

    def bind(self, log: Journal, meter: Meter, leaving: Callable[[], bool]) -> None:
        """Set what the turns are written to and counted by, before `run` and `stop`.

        Args:
            log: the run's log, or a sub-agent's part of it.
            meter: the run's, shared with sub-agents.
            leaving: called before each turn: returns whether the run is to be left to another
                worker.
        """
        self._log, self._meter, self._leaving = log, meter, leaving
        self._extra_prompt = self._given_prompt or ExtraPromptOnce(self.spec.extra_prompt, log.run)

    async def run(self) -> None:
        """Run turns until the run has ended, or is left to another worker between two turns.

        Raises:
            ModelError, StoreError: nothing of the turn that failed was committed.
            ModelAstray, OutputInvalid: too many futile turns; they are committed.
        """
        self.prepare()
        try:
            # recovery closed the calls of the run itself, but not those that the lost worker may
            # have begun for a sub-agent (P10)
            if self._depth and self._taken_over:
                begun = await self._toolbox.perhaps_begun(runnable_calls(self._messages))
                for answer in closing_results(begun, "interrupted", self._new_message_id):
                    await self._commit_messages([answer], [result_event(answer)])
            await self._run_turns()
        except BudgetSpent:
            await self._end_run(_BUDGET_SPENT)

    async def _run_turns(self) -> None:
        # with a prepared request there are no calls to answer
        unanswered = self._request is None and unanswered_calls(self._messages)
        if unanswered and await self._answer_calls():
            return
        self._taken_over = False
        if not self._depth and (called := self.spec.commands.last_command(self._messages)):
            await self._run_command(called)
            return
        while self._turns < self.spec.max_turns:
            if self._leaving():
                return
            # a model that makes the same mistake again and again would use up all its turns
            if count_futile_turns(self._messages) >= self.spec.max_futile_turns:
                raise futile_run_error(self._messages)
            self._turns += 1
            turn = await self.spec.judge.judge_turn(
                await self._ask_model(), self._toolbox, self._log.run, self._lasting
            )
            if await self._settle_turn(turn):
                return
        await self._end_run(Completed("max_turns"))

    async def stop(self, outcome: Outcome) -> None:
        """End a run that was stopped: keep the text that readers saw, close the
        unanswered calls.
        """
        self.prepare()
        append: list[Message] = []
        events: list[RunEvent] = []
        if self._assembler is not None and (partial := self._assembler.partial()) is not None:
            append.append(partial)
            events.append(turn_end(partial))
            self._model = partial.model
        append.extend(
            closing_results(unanswered_calls(self._messages), "interrupted", self._new_message_id)
        )
        await self._end_run(outcome, append, events, stopped_early=isinstance(outcome, Cancelled))

    async def _run_command(self, call: CommandCall) -> None:
        """Answer a command in place of the model."""
        context = CommandContext(self._log.run, self.spec.deps)
        commands = self.spec.commands
        with await self._reserve_budget() if commands.needs_model(call) else nullcontext():
            compact = partial(self._window.compact, self._seen, self._count_usage)
            reply = await commands.run_command(call, context, compact)
        now = current_milliseconds()
        message = AssistantMessage(self._new_message_id(), reply.text, command=True, started=now)
        if call.name == "clear":  # the plan is forgotten, too
            self.state = replace(self.state, plan=())
        said = (TurnStarted(message.id, now), TextDelta(reply.text), turn_end(message))
        events = (*reply.events, *said)
        await self._end_run(Completed(), (*reply.before, message, *reply.after), events)

    async def _reserve_budget(self) -> AbstractContextManager[object]:
        return await self._meter.reserve(self._window.estimate, self.spec.price)

    def _count_usage(self, usage: Usage | None, model: str = "") -> None:
        spec = self.spec
        self._meter.count_usage(usage, spec.price, model or spec.model.name)

    async def _ask_model(self) -> ModelTurn:
        """Call the model; call it again if the first call was refused as too long and room could be
        made.
        """
        try:
            turn = await self._listen_to_model()
        except ModelContextExceeded:
            if not (self._assembler and self._assembler.nothing_shown and self._window.exceeded()):
                raise
            turn = await self._listen_to_model()
        if turn.usage is not None:
            self._window.counted(turn.usage)
        return turn

    async def _listen_to_model(self) -> ModelTurn:
        answering = self._request or await self._model_request()
        self._request = None
        message_id = self._new_message_id()
        assembler = Assembler(
            message_id,
            self._toolbox.known_tool,
            partial(new_call_id, self._log.run.key),
            self.spec.model.name,
        )
        with await self._reserve_budget():
            self._assembler = assembler
            assembler.started = current_milliseconds()
            assembler.window = self._window.window or 0
            self._log.begin_turn([TurnStarted(message_id, assembler.started)])
            began = monotonic()
            try:
                await read_answer(answering, assembler, self._log.append, self._log.wait_for_store)
            finally:
                assembler.duration = elapsed_milliseconds(began)
                self._count_usage(assembler.spent, assembler.model)
        events, turn = assembler.finish()
        self._model = assembler.model
        if events:
            self._log.append(events)
        return turn

    async def _model_request(self) -> Answering:
        extra = await self._extra_prompt()
        if extra and not self._counts_extra:
            self._watched, self._counts_extra = self._watch_window(extra), True
        shown = self._window.at_once(self._seen)
        if shown is None:
            with await self._reserve_budget():
                fitted = await self._window.fit(self._seen, self._count_usage)
            if fitted.append:
                await self._commit_messages(fitted.append, fitted.events)
            elif fitted.events:
                self._log.begin_turn(self._with_left(fitted.events))
            shown = fitted.messages
        return self._encode_request(shown)

    def _with_left(self, events: Sequence[RunEvent]) -> tuple[RunEvent, ...]:
        return self._meter.with_remaining(events, self.spec.max_turns - self._turns)

    async def _settle_turn(self, turn: ModelTurn) -> bool:
        """Commit a turn and run its server calls. True: the run has ended."""
        if turn.finish is None:
            raise ModelIncomplete("the model's answer broke off")
        if turn.finish == "length" and turn.message.tool_calls:
            raise ModelIncomplete("the model's answer was cut off within a tool call")
        append, events = turn_records(turn, self._context_used(turn))
        if turn.message.tool_calls:
            # nothing to run here: the turn and the end of the run are stored with one write
            if not runnable_calls(append) and await self._hand_back(append, events):
                return True
            await self._commit_messages(append, events)
            return await self._answer_calls()
        judged = await self.spec.output.judge_answer(
            turn, self._messages, self.state, self._log.run.key
        )
        if isinstance(judged, SystemMessage):  # the model learns why its answer is not accepted
            await self._commit_messages([*append, judged], events)
            return False
        output = [judged] if isinstance(judged, OutputAccepted) else []
        await self._end_run(Completed(completed_reason(turn)), append, [*events, *output])
        return True

    def _context_used(self, turn: ModelTurn) -> int | None:
        """Return the estimated tokens of the context behind a turn; None if unknown."""
        asked, answered = self._window.estimate, turn.usage or UNUSED
        # services count reasoning as output, but most of it is not sent again
        return asked + answered.output_tokens - answered.reasoning_tokens if asked else None

    async def _answer_calls(self) -> bool:
        """Run the server calls of a committed turn, and hand back what the client owes.

        True: the run has ended, or is left to another worker in the middle of a sub-agent's work.
        """
        judge, run = self.spec.judge, self._log.run
        allowed: list[ToolCall] = []
        for call in runnable_calls(self._messages):
            # one that was approved may be denied since
            denial = await judge.denial_reason(call, self._toolbox, run) if call.asks else None
            if denial is None:
                allowed.append(call)
            else:
                result = ToolResult(denial, is_error=True)
                answer = replace(tool_message(call, result), synthetic="denied")
                await self._commit_messages([answer], [result_event(answer)])
        return await self._run_server_calls(allowed) or await self._hand_back([], [])

    async def _run_server_calls(self, calls: Sequence[ToolCall]) -> bool:
        """Run calls; True: a sub-agent was left open, and the calls after it did not run.

        They may rely on its work.
        """
        for batch in await self._toolbox.batch_calls(calls):
            open_calls: set[CallId] = set()
            async with self._toolbox.run_calls(batch, self._call_context) as given:
                async for call, result, duration in given:
                    if isinstance(result, StoreError):
                        raise result
                    if result is None:  # its sub-agent waits for the client, or was left
                        open_calls.add(call.id)
                        continue
                    state = self._call_states.pop(call.id, None)
                    result, change = self._shared.settle(state, result)
                    answer = tool_message(call, result, duration)
                    # of a call that was approved, readers have not seen the end yet
                    events: list[RunEvent] = [ToolCallEnded(call.id)] if call.asks else []
                    events.append(result_event(answer))
                    if result.plan is not None:
                        events.append(PlanUpdated(result.plan))
                        self.state = self.state.with_plan(result.plan, self._log.run.run_id)
                    if change is not None:
                        events.append(StateChanged(change.values, change.removed))
                    await self._commit_messages([answer], events)
            # still runnable: its sub-agent was left, and does not wait for the client
            if open_calls and open_calls & {call.id for call in runnable_calls(self._messages)}:
                return True
        return False

    def _call_context(self, call: ToolCall) -> CallContext:
        progress = Progress(self._log, call.id)
        state = self._call_states[call.id] = CallState(self._shared.read)
        return CallContext(
            self._log.run,
            call.id,
            self.spec.deps,
            progress,
            begin=progress.begin,
            state=state,
            ended=progress.end,
            show=self._log.append,
            begin_turn=self._log.begin_turn,
            write=self._commit_messages,
            transcript=child_transcript(call.id, self._messages),
            declared=self._toolbox.client_declarations,
            answered=self._toolbox.answered,
            leaving=self._leaving,
            taken_over=self._taken_over,
            depth=self._depth,
            meter=self._meter,
            lasting=self._lasting,
            data=posted_data(self._messages, self.state.data),
            origin=self._fork_origin,
            limiters=self._limiters,
            shared=self._shared,
        )

    def _fork_origin(self) -> Origin | None:
        """Return what a fork that is called at this point begins with. None: this agent
        is a fork.
        """
        if self._given_prompt is not None:
            return None
        last = len(self._messages) - 1
        while not isinstance(self._messages[last], AssistantMessage):
            last -= 1
        # a fork answers the agent, not the user: no output schema applies
        spec = replace(self.spec, output=OutputJudge())
        before = slice(last)
        return Origin(
            spec, self._toolbox, self._messages[before], self._seen[before], self._extra_prompt
        )

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
        stopped_early: bool = False,
    ) -> None:
        # every run that ends by its budget reports its usage, also one that called no model
        if outcome == _BUDGET_SPENT and self._meter.is_unused:
            events = (*events, UsageReported(UNUSED))
        await self._meter.count_for_owner(ends=True)
        shown = list(self._with_left(events))
        if not self._depth:  # a sub-agent leaves what no event has reported to the run
            shown += self._with_left(self._meter.unreported_usage())
        shown.append(RunFinished(outcome, self._model))
        if not stopped_early:
            self.state = self.state.after_own_end()
        # before the write: if its reply is lost, the log repeats it ahead of what comes next
        recorded, state = self._extend_transcript(append, ends=True)
        end = End(owed_answers(self._messages), stopped_early)
        await self._log.commit(recorded, tuple(shown), end, state)

    async def _commit_messages(self, append: Sequence[Message], events: Sequence[RunEvent]) -> None:
        await self._meter.count_for_owner()
        recorded, state = self._extend_transcript(append)
        await self._log.commit(recorded, self._with_left(events), None, state)

    def _extend_transcript(
        self, said: Sequence[Message], *, ends: bool = False
    ) -> tuple[tuple[Message, ...], State | None]:
        """Add messages to the transcript; return them as they are stored, and the new state.

        The state is None if it is as stored.
        """
        self._assembler = None
        append = record_messages(self._log.run.key, said, self._log.run.run_id)
        self.state = self.state.with_answers(append, self._messages)
        if not self._depth:  # what the tools of sub-agents have written is kept here, too
            self.state = self.state.with_shared(self._shared.current, self._log.run.run_id)
        self._messages.extend(append)
        self._seen.extend(self.spec.seen(append))
        usage = self.state.usage_with(append)
        if any(isinstance(message, SummaryMessage) for message in append):
            read = self._messages[self.state.history_start - self._start :]
            self.state = self.state.with_history_start(
                self._start + view_start(self._messages), read
            )
        self.state = self._meter.noted_state(self.state, self._stored, usage, ends=ends)
        stored, self._stored = self._stored, self.state
        return append, None if self.state == stored and not ends else self.state
