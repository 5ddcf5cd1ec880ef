"""Encoder of run events as those of AG-UI. No I/O.

The clients of the protocol verify a stream: what begins has to end, in the right order. So the
encoder knows what is open, and ends it before it ends the run, whatever the events are.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from json.encoder import encode_basestring_ascii as quoted
from typing import Final, TypeAlias, assert_never

from pydantic import JsonValue

from passback.core.events import (
    Cancelled,
    Completed,
    Cursor,
    Failed,
    HandedBack,
    Outcome,
    OutputAccepted,
    PlanUpdated,
    ReasoningDelta,
    RunEvent,
    RunFinished,
    StateChanged,
    TextDelta,
    ToolCallArguments,
    ToolCallEnded,
    ToolCallStarted,
    ToolProgressed,
    ToolResulted,
    TurnStarted,
    UsageReported,
    unwrap_event,
)
from passback.core.messages import UNUSED, CallId, JsonObject, Owed, Plan, Usage, as_text
from passback.core.questions import Answers
from passback.core.transcript import SYNTHETIC_TEXT
from passback.native.earlier import Calls
from passback.native.submissions import Approval
from passback.wire.ag_ui.older import older_fields

PROTOCOL_VERSION: Final = "1.0"
PROGRESS_EVENT: Final = "passback.progress"
"""The name of the custom event with a tool's progress."""

_Fields: TypeAlias = dict[str, JsonValue]

_encode_json = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


def ag_ui_data(kind: str, /, **fields: JsonValue) -> str:
    """Return an event as one line of ASCII. Fields that are None are left out."""
    return _encode_json(
        {"type": kind, **{name: value for name, value in fields.items() if value is not None}}
    )


def result_id(call_id: CallId, /) -> str:
    """Return the id of the message with the result that the server gives to a call."""
    return f"{call_id}_result"


def reasoning_id(message_id: str, /) -> str:
    """Return the id of the message with the reasoning behind a message of the agent."""
    return f"{message_id}_reasoning"


def plan_state(plan: Plan, /) -> list[JsonValue]:
    """Return the plan as it stands in the state."""
    return [
        {"content": each.content, "priority": each.priority, "status": each.status} for each in plan
    ]


_MISSING: Final = object()
_PROTO: Final = "__proto__"


def _applicable(state: JsonObject) -> JsonObject:
    """Return a state without the key `__proto__`, which older servers have kept.

    A client applies nothing of a change that has it.
    """
    return {name: each for name, each in state.items() if name != _PROTO}


def _operation(op: str, key: str, **fields: JsonValue) -> JsonValue:
    """Return an operation of a JSON patch (RFC 6902) on a key of the state."""
    return {"op": op, "path": "/" + key.replace("~", "~0").replace("/", "~1"), **fields}


def owed_outcome(owed: Sequence[Owed], /, expires: str | None = None) -> _Fields:
    """Return the end of a run in which the client owes answers: `outcome`, and `metadata`.

    Results of tools alone are pending calls. If a person has to answer, the outcome is an
    interrupt, and the calls of tools are named in the metadata.
    """
    tools: list[JsonValue] = [each.id for each in owed if each.kind == "tool_result"]
    asked: list[JsonValue] = [
        _interrupt(each, expires) for each in owed if each.kind != "tool_result"
    ]
    if not asked:
        return {"outcome": {"type": "success", "pendingToolCallIds": tools} if tools else None}
    return {
        "outcome": {"type": "interrupt", "interrupts": asked},
        "metadata": {"pendingToolCallIds": tools} if tools else None,
    }


_APPROVAL_SCHEMA: Final[Mapping[str, JsonValue]] = Approval.model_json_schema()
_ANSWERS_SCHEMA: Final[Mapping[str, JsonValue]] = Answers.model_json_schema()


def _interrupt(owed: Owed, expires: str | None) -> _Fields:
    is_question = owed.kind == "question"
    interrupt: _Fields = {
        "id": owed.id,
        "reason": "input_required" if is_question else "tool_call",
        "toolCallId": owed.id,
        "responseSchema": dict(_ANSWERS_SCHEMA if is_question else _APPROVAL_SCHEMA),
        "metadata": {"kind": owed.kind, "toolCallName": owed.name, "arguments": owed.arguments},
    }
    if owed.reason:
        interrupt["message"] = owed.reason
    if owed.parent_id is not None:
        interrupt["subagentRunId"] = owed.parent_id
    if expires is not None:
        interrupt["expiresAt"] = expires
    return interrupt


@dataclass(eq=False, slots=True)
class _Speaker:
    """The run's agent, or one of its sub-agents: what of it is open.

    Attributes:
        id: of the sub-agent, which is that of the call it works on; empty for the run's agent.
        above: the id of the one that called it.
        message: the id of the message that it writes.
        text: the head of the events with its text, while that message is open.
        thinks: its reasoning is open.
        calls: its open calls.
        unanswered: its calls without a result.
        step: the name of the step that is open.
        turns: the number of its turns so far.
    """

    id: str
    above: str
    message: str
    text: str = ""
    thinks: bool = False
    calls: list[CallId] = field(default_factory=list[CallId])
    unanswered: list[CallId] = field(default_factory=list[CallId])
    step: str = ""
    turns: int = 0

    @property
    def tag(self) -> str | None:
        return self.id or None


class AgUiEncoder:
    """Encoder of one run. Implements `SseEncoder`, with a memory.

    Args:
        thread_id: id of the conversation.
        run_id: id of the run, as the client named it.
        known: calls that were made before this run.
        state: the client's state, into which the plan goes; None if it is not known.
        history: the JSON text of the messages before the run, to be sent after its start; empty
            if the client has them.
        plan: the agent's plan, sent with the history.
        shared: what the server tools had written into the state when the stream began.
        older: the client is from before AG-UI 1.0.
    """

    def __init__(
        self,
        thread_id: str,
        run_id: str,
        *,
        known: Calls | None = None,
        state: Mapping[str, JsonValue] | None = None,
        history: str = "",
        plan: Plan = (),
        shared: JsonObject | None = None,
        older: bool = False,
    ) -> None:
        self._ids: _Fields = {"threadId": thread_id, "runId": run_id}
        self._known = known or {}
        self._state = state
        self._history = history
        self._plan = plan
        self._shared = _applicable(shared or {})
        self._older = older
        self._agent = _Speaker("", "", f"{run_id}_message")
        self._helpers: dict[CallId, _Speaker] = {}  # those that have not ended
        self._ended: set[CallId] = set()  # sub-agents
        self._called: dict[CallId, tuple[str, str]] = {}  # the tool and the message of each call
        self._answered: set[CallId] = set()
        self._usage: dict[str, Usage] = {}
        self._result: JsonValue = None
        self._begun = self._over = False
        self._frames: list[str] = []

    def feed(self, event: RunEvent, /) -> Sequence[str]:
        if isinstance(event, TextDelta) and (head := self._agent.text):  # the common case
            return (f"{head}{quoted(event.text)}}}",)
        if self._over:
            return ()
        self._begin()
        self._feed_agent(*unwrap_event(event))
        return self._take_frames()

    def _feed_agent(self, path: Sequence[CallId], inner: RunEvent) -> None:
        if isinstance(inner, StateChanged):  # that of sub-agents is the same
            self._send_state(inner.values, inner.removed)
        elif isinstance(inner, UsageReported):
            self._usage[inner.model] = self._usage.get(inner.model, UNUSED) + inner.usage
        elif path:
            if (helper := self._helper(path)) is not None:
                self._feed_speaker(helper, inner)
        elif isinstance(inner, RunFinished):
            self._finish(inner.outcome)
        elif isinstance(inner, PlanUpdated):
            self._send_state({"plan": plan_state(inner.entries)})
        elif isinstance(inner, OutputAccepted):
            self._result = inner.value
        else:
            self._feed_speaker(self._agent, inner)

    def rewind(self, to: Cursor, /) -> Sequence[str]:
        return ()  # the protocol cannot take back what was sent: `fail` follows

    def fail(self, failed: Failed, /) -> Sequence[str]:
        if not self._over:
            self._fail_run(failed)
        return self._take_frames()

    def end(self) -> Sequence[str]:
        return ()  # the run's last event ends the stream

    def close(self, owed: Sequence[Owed], expires: str | None) -> Sequence[str]:
        """Return the events of a stream without a run: its start, and its end with what is owed."""
        self._begin()
        self._send("RUN_FINISHED", **self._ids, **(owed_outcome(owed, expires) if owed else {}))
        return self._take_frames()

    def _send(self, kind: str, **fields: JsonValue) -> None:
        shown = older_fields(kind, fields) if self._older else fields
        if shown is not None:
            self._frames.append(ag_ui_data(kind, **shown))

    def _take_frames(self) -> Sequence[str]:
        frames, self._frames = self._frames, []
        return frames

    def _begin(self) -> None:
        if self._begun:
            return
        self._begun = True
        self._send("RUN_STARTED", **self._ids, protocolVersion=PROTOCOL_VERSION)
        if self._history:
            self._frames.append(f'{{"type":"MESSAGES_SNAPSHOT","messages":{self._history}}}')
        known = self._state or {}
        plan: _Fields = {"plan": plan_state(self._plan)} if self._plan else {}
        if plan or any(known.get(name, _MISSING) != each for name, each in self._shared.items()):
            self._send_state({**self._shared, **plan})

    def _send_state(self, values: JsonObject, removed: Sequence[str] = ()) -> None:
        """Send a change of the state: the first time with all that is known of it, then alone.

        Every operation is legal whatever the client has: a key that is removed is added before.
        """
        values, removed = _applicable(values), [name for name in removed if name != _PROTO]
        if self._state is None:
            added: JsonObject = {**values, **dict.fromkeys(removed)}
            patch = [_operation("add", name, value=each) for name, each in added.items()]
            patch += [_operation("remove", name) for name in removed]
            self._send("STATE_DELTA", delta=patch)
        else:
            known = {**self._state, **self._shared, **values}
            snapshot = {name: each for name, each in known.items() if name not in removed}
            self._send("STATE_SNAPSHOT", snapshot=snapshot)
            self._state = None

    # ---------------------------------------------------------------- agents
    def _helper(self, path: Sequence[CallId]) -> _Speaker | None:
        """Return the sub-agent of a path, begun; None if it, or one above it, has ended."""
        speaker = self._agent
        for call_id in path:
            if call_id in self._ended:
                return None
            helper = self._helpers.get(call_id)
            if helper is None:
                helper = self._begin_helper(call_id, speaker)
            speaker = helper
        return speaker

    def _begin_helper(self, call_id: CallId, caller: _Speaker) -> _Speaker:
        helper = _Speaker(call_id, caller.id, f"{call_id}_message")
        self._helpers[call_id] = helper
        name, message = self._called.get(call_id, ("", ""))
        if not name:  # an earlier run made the call
            name = self._known[call_id].name if call_id in self._known else "agent"
        self._send(
            "SUBAGENT_STARTED",
            subagentRunId=call_id,
            name=name,
            parentSubagentRunId=caller.tag,
            parentToolCallId=call_id,
            parentMessageId=message or None,
        )
        return helper

    def _feed_speaker(self, speaker: _Speaker, event: RunEvent) -> None:
        """Encode an event of an agent. Others than these have none in the protocol."""
        match event:
            case TextDelta(text):
                self._add_text(speaker, text)
            case ReasoningDelta(text):
                self._add_reasoning(speaker, text)
            case TurnStarted(message_id):
                self._end_turn(speaker)
                speaker.turns += 1
                speaker.message, speaker.step = message_id, f"turn {speaker.turns}"
                self._send("STEP_STARTED", subagentRunId=speaker.tag, stepName=speaker.step)
            case RunFinished():  # of a sub-agent: the result of its call ends it
                self._end_turn(speaker)
            case _:
                self._feed_call(speaker, event)

    def _feed_call(self, speaker: _Speaker, event: RunEvent) -> None:
        match event:
            case ToolCallStarted(call_id, name):
                self._start_call(speaker, call_id, name)
            case ToolCallArguments(call_id, delta):
                if call_id in speaker.calls:
                    named: _Fields = {"subagentRunId": speaker.tag, "toolCallId": call_id}
                    self._send("TOOL_CALL_ARGS", **named, delta=delta)
            case ToolCallEnded(call_id):
                self._end_call(speaker, call_id)
            case ToolResulted():
                self._add_result(speaker, event)
            case ToolProgressed(call_id, text):
                value: JsonValue = {"toolCallId": call_id, "text": text}
                self._send("CUSTOM", subagentRunId=speaker.tag, name=PROGRESS_EVENT, value=value)
            case _:
                pass

    def _add_text(self, speaker: _Speaker, text: str) -> None:
        if self._older and speaker.id:  # written by hand: `_send` cannot leave it out
            return
        if not speaker.text:
            self._end_words(speaker)
            self._send(
                "TEXT_MESSAGE_START",
                subagentRunId=speaker.tag,
                messageId=speaker.message,
                role="assistant",
            )
            head = ag_ui_data(
                "TEXT_MESSAGE_CONTENT", subagentRunId=speaker.tag, messageId=speaker.message
            )
            speaker.text = f'{head[:-1]},"delta":'
        self._frames.append(f"{speaker.text}{quoted(text)}}}")

    def _add_reasoning(self, speaker: _Speaker, text: str) -> None:
        named: _Fields = {
            "subagentRunId": speaker.tag,
            "messageId": reasoning_id(speaker.message),
        }
        if not speaker.thinks:
            self._end_words(speaker)
            self._send("REASONING_START", **named)
            self._send("REASONING_MESSAGE_START", **named, role="reasoning")
            speaker.thinks = True
        self._send("REASONING_MESSAGE_CONTENT", **named, delta=text)

    def _end_words(self, speaker: _Speaker) -> None:
        """End the text or the reasoning that is open."""
        named: _Fields = {"subagentRunId": speaker.tag, "messageId": speaker.message}
        if speaker.text:
            self._send("TEXT_MESSAGE_END", **named)
            speaker.text = ""
        if speaker.thinks:
            named["messageId"] = reasoning_id(speaker.message)
            self._send("REASONING_MESSAGE_END", **named)
            self._send("REASONING_END", **named)
            speaker.thinks = False

    def _end_turn(self, speaker: _Speaker) -> None:
        """End all that is open of an agent's turn."""
        self._end_words(speaker)
        for call_id in tuple(speaker.calls):
            self._end_call(speaker, call_id)
        if speaker.step:
            self._send("STEP_FINISHED", subagentRunId=speaker.tag, stepName=speaker.step)
            speaker.step = ""

    # ---------------------------------------------------------------- calls
    def _start_call(self, speaker: _Speaker, call_id: CallId, name: str) -> None:
        if call_id in self._called:
            return
        self._end_words(speaker)
        self._called[call_id] = name, speaker.message
        speaker.calls.append(call_id)
        speaker.unanswered.append(call_id)
        self._send(
            "TOOL_CALL_START",
            subagentRunId=speaker.tag,
            toolCallId=call_id,
            toolCallName=name,
            parentMessageId=speaker.message,
        )

    def _end_call(self, speaker: _Speaker, call_id: CallId) -> None:
        # the end of a call that an earlier run began stands there, before its approval
        if call_id in speaker.calls:
            speaker.calls.remove(call_id)
            self._send("TOOL_CALL_END", subagentRunId=speaker.tag, toolCallId=call_id)

    def _add_result(self, speaker: _Speaker, result: ToolResulted) -> None:
        call_id = result.call_id
        if call_id in self._answered:
            return
        self._answered.add(call_id)
        if call_id in speaker.unanswered:
            speaker.unanswered.remove(call_id)
        content = as_text(result.content, media=lambda part: part.url)
        if call_id in self._helpers:
            self._end_helper(call_id, content if result.is_error else None)
        self._end_words(speaker)
        self._end_call(speaker, call_id)
        metadata: _Fields = {"isError": True} if result.is_error else {}
        if result.synthetic:
            metadata["synthetic"] = result.synthetic
        self._send(
            "TOOL_CALL_RESULT",
            subagentRunId=speaker.tag,
            messageId=result_id(call_id),
            toolCallId=call_id,
            content=content,
            role="tool",
            metadata=metadata or None,
        )

    def _end_helper(self, call_id: CallId, error: str | None = None) -> None:
        """End a sub-agent, and those that it called."""
        helper = self._pop_helper(call_id)
        while below := [each for each, one in self._helpers.items() if one.above == call_id]:
            self._end_helper(below[-1], error)
        self._answer_broken_calls(helper)
        self._end_turn(helper)
        if error is None:
            outcome: JsonValue = {"type": "success"}
            self._send("SUBAGENT_FINISHED", subagentRunId=call_id, outcome=outcome)
        else:
            self._send("SUBAGENT_ERROR", subagentRunId=call_id, message=error)

    def _suspend_helper(self, call_id: CallId, owed: Sequence[Owed]) -> None:
        """End a sub-agent that waits for the client: another run goes on with it."""
        self._end_turn(self._pop_helper(call_id))
        outcome: _Fields = {"type": "suspended"}
        asked: list[JsonValue] = [
            each.id for each in owed if each.parent_id == call_id and each.kind != "tool_result"
        ]
        if asked:
            outcome["interruptIds"] = asked
        self._send("SUBAGENT_FINISHED", subagentRunId=call_id, outcome=outcome)

    def _pop_helper(self, call_id: CallId) -> _Speaker:
        self._ended.add(call_id)
        return self._helpers.pop(call_id)

    def _answer_broken_calls(self, speaker: _Speaker) -> None:
        """Give results to calls that nobody makes: clients take a call without one for theirs.

        The answer with these calls broke off, and the run went on.
        """
        for call_id in tuple(speaker.unanswered):
            text = SYNTHETIC_TEXT["interrupted"]
            self._add_result(speaker, ToolResulted(call_id, text, True, "interrupted"))

    # ---------------------------------------------------------------- the end
    def _finish(self, outcome: Outcome) -> None:
        if isinstance(outcome, Failed):
            self._fail_run(outcome)
            return
        self._close_all(outcome)
        fields: _Fields
        match outcome:
            case HandedBack(owed):
                fields = owed_outcome(owed)
            case Cancelled():
                fields = {"outcome": {"type": "cancelled"}}
            case Completed("end_turn"):
                fields = {"outcome": {"type": "success"}}
            case Completed(reason):
                fields = {"outcome": {"type": "success"}, "metadata": {"reason": reason}}
            case _:
                assert_never(outcome)
        self._send(
            "RUN_FINISHED", **self._ids, result=self._result, usage=self._usage_entries(), **fields
        )

    def _fail_run(self, failed: Failed) -> None:
        self._close_all(failed)
        metadata: _Fields = {"retryable": failed.retryable}
        if failed.retry_after is not None:
            metadata["retryAfter"] = failed.retry_after
        self._send(
            "RUN_ERROR",
            message=failed.message,
            code=failed.code,
            usage=self._usage_entries(),
            metadata=metadata,
        )

    def _close_all(self, outcome: Outcome) -> None:
        """End all that is open: sub-agents that wait for the client are suspended."""
        self._over = True
        while self._helpers:
            newest = next(reversed(self._helpers))  # called by one before it
            if isinstance(outcome, HandedBack):
                self._suspend_helper(newest, outcome.owed)
            else:
                self._end_helper(newest, outcome.type)
        if isinstance(outcome, Completed):
            self._answer_broken_calls(self._agent)
        self._end_turn(self._agent)

    def _usage_entries(self) -> list[JsonValue] | None:
        return [_usage_entry(name, usage) for name, usage in self._usage.items()] or None


def _usage_entry(name: str, usage: Usage) -> _Fields:
    """Return the usage of a model, whose name is that of its provider and its own, or unknown."""
    provider, colon, model = name.partition(":")
    entry: _Fields = {"provider": provider} if colon else {}
    if name:
        entry["model"] = model if colon else name
    return {
        **entry,
        "inputTokens": usage.input_tokens,
        "outputTokens": usage.output_tokens,
        "totalTokens": usage.input_tokens + usage.output_tokens,
        "reasoningTokens": usage.reasoning_tokens,
        "cachedInputTokens": usage.cached_tokens,
    }
