"""Encoder of run events as the chunks of one UI message. No I/O.

A message of the agent has all that comes between two messages of the user, so a run that goes on
after answers of the client goes on with the message that the client has. A step is one model call
and the tools that it asked for.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from json.encoder import encode_basestring_ascii as quoted
from typing import Any, Final, Literal, TypeAlias, assert_never

from pydantic import JsonValue

from passback.core.events import (
    Cancelled,
    Compacted,
    Completed,
    CompletedReason,
    ContextWarned,
    Cursor,
    Failed,
    HandedBack,
    Nested,
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
    TurnEnded,
    TurnStarted,
    UsageReported,
)
from passback.core.messages import (
    ApprovalMessage,
    AssistantMessage,
    CallId,
    ChildMessage,
    Content,
    Message,
    Owed,
    RunRef,
    ToolMessage,
    Usage,
    add_usages,
    as_text,
)
from passback.native import shapes
from passback.wire.ai_sdk.json_values import (
    REFUSED_INPUT,
    read_arguments,
    show_output,
    show_state,
    show_value,
    takes_arguments,
)

Chunk: TypeAlias = dict[str, Any]
FinishReason: TypeAlias = Literal["stop", "length", "content-filter", "other"]

DONE: Final = "[DONE]"
NOT_MADE: Final = "It ended before this call had a result."

FINISH_REASONS: Final[Mapping[CompletedReason, FinishReason]] = {
    "end_turn": "stop",
    "max_tokens": "length",
    "refusal": "content-filter",
    "max_turns": "other",
    "budget": "other",
}

encode: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


@dataclass(slots=True)
class _Call:
    """A call as the client has it.

    Attributes:
        name: the tool's.
        flags: fields of each of its chunks. The client makes only calls that have none.
        step: the step that its part belongs to.
        state: `input` while its arguments come, `ready` once they are whole, `done` with a result.
        arguments: pieces of its arguments.
        parent: the call that the sub-agent works on, if a sub-agent makes it.
    """

    name: str
    flags: Chunk
    step: int
    state: Literal["input", "ready", "done"] = "input"
    arguments: list[str] = field(default_factory=list[str])
    parent: CallId | None = None


_SERVER: Final[Chunk] = {"dynamic": True, "providerExecuted": True}


class UiEncoder:
    """Encoder of one run as chunks of a UI message. Implements `SseEncoder`, with a memory.

    Args:
        run: the run.
        message_id: the id of the message, as the client knows it.
        open_calls: calls of a message that the client has and goes on with, whose results it lacks.
        continues: the client has the beginning of the message, or `earlier` is not empty.
        earlier: the beginning of the message, if the client needs that, too.
        usage: of the beginning that the client has.
    """

    def __init__(
        self,
        run: RunRef,
        message_id: str,
        *,
        open_calls: Iterable[CallId] = (),
        continues: bool = False,
        earlier: Sequence[Message] = (),
        usage: Usage | None = None,
    ) -> None:
        self._start: Chunk = {
            "type": "start",
            "messageId": message_id,
            "messageMetadata": {"conversationId": run.key.id, "runId": run.run_id},
        }
        self._earlier: Sequence[Message] | None = earlier
        # names are only of use for calls whose input is still to be sent
        self._calls = {each: _Call("", _SERVER, 0, "ready") for each in open_calls}
        self._continues = continues
        self._usage = usage
        self._model = ""
        self._out: list[str] = []
        self._text: Literal["text", "reasoning"] | None = None
        self._texts = 0
        self._step = 0
        self._is_open = False  # a step is
        self._is_empty = False  # nothing of the open step was sent
        self._in_turn = False  # the model answers, and nothing of the step is committed
        self._new_steps = 0  # of this run

    def feed(self, event: RunEvent, /) -> Sequence[str]:
        if isinstance(event, TextDelta) and self._text == "text":  # most events: written by hand
            return (self._delta(event.text),)
        self._begin()
        if isinstance(event, Nested):
            self._feed_nested(event)
        else:
            self._feed_event(event, None)
        return self._take()

    def rewind(self, to: Cursor, /) -> Sequence[str]:
        """Take back the answer of a turn that was not committed, with its step.

        What was committed stays. Calls of sub-agents that are void stay until the run's end, too:
        the protocol takes back only a whole step.
        """
        self._begin()
        if self._in_turn:
            self._calls = {i: each for i, each in self._calls.items() if each.step != self._step}
            self._text, self._in_turn, self._is_empty = None, False, True
            self._push("reset-step")
        self._push("data-rewind", data={}, transient=True)
        return self._take()

    def fail(self, failed: Failed, /) -> Sequence[str]:
        self._begin()
        self._end_text()
        self._push("error", errorText=failed.message)
        return self._take()

    def end(self) -> Sequence[str]:
        return (DONE,)

    # ---------------------------------------------------------------- chunks
    def _take(self) -> Sequence[str]:
        taken, self._out = self._out, []
        return taken

    def _push(self, kind: str, /, **fields: Any) -> None:
        """Send a chunk that adds no part to the message."""
        self._out.append(encode({"type": kind, **fields}))

    def _add(self, kind: str, /, **fields: Any) -> None:
        """Send a chunk that adds a part, within a step."""
        self._open_step()
        self._push(kind, **fields)

    def _open_step(self) -> None:
        if not self._is_open:
            self._begin_step()
        self._is_empty = False

    def _begin(self) -> None:
        if self._earlier is None:
            return
        earlier, self._earlier = self._earlier, None
        self._out.append(encode(self._start))
        for message in earlier:
            self._recall(message, None)
        self._end_step()
        self._new_steps = 0

    def _begin_step(self) -> None:
        if self._is_open and self._is_empty:
            return
        self._end_step()
        for call in self._calls.values():  # a client looks for the part of a call in this step only
            call.state = "ready" if call.state == "input" else call.state
        self._push("start-step")
        self._is_open = self._is_empty = True
        self._step += 1
        self._new_steps += 1

    def _end_step(self) -> None:
        self._end_text()
        if self._is_open:
            self._push("finish-step")
            self._is_open = False

    # ---------------------------------------------------------------- events
    def _feed_event(self, event: RunEvent, parent: CallId | None) -> None:
        match event:
            case TurnStarted():
                self._end_text()
                self._begin_step()
                self._in_turn = True
            case TurnEnded():
                self._in_turn = False
            case TextDelta(text):
                self._say("text", text)
            case ReasoningDelta(text):
                self._say("reasoning", text)
            case RunFinished():
                self._finish(event)
            case _:
                self._feed_shared(event, parent)

    def _feed_nested(self, nested: Nested) -> None:
        """Show a sub-agent's calls as calls, its text live only, and count its usage."""
        parent, event = nested.call_id, nested.event
        match event:
            case Nested():
                self._feed_nested(event)
            case TextDelta(text):
                self._live("agent-text", {"parentToolCallId": parent, "delta": text})
            case OutputAccepted():  # the call's result is made of it
                pass
            case _:
                self._feed_shared(event, parent)

    def _feed_shared(self, event: RunEvent, parent: CallId | None) -> None:
        """Feed an event that an agent and its sub-agents have alike."""
        match event:
            case ToolCallStarted():
                self._begin_call(event, parent)
            case ToolCallArguments(call_id, delta):
                self._add_arguments(call_id, delta)
            case ToolCallEnded(call_id):
                self._end_call(call_id)
            case ToolResulted():
                self._settle(event.call_id, event.content, event.is_error, event.synthetic)
            case _:
                self._feed_data(event, parent)

    def _feed_data(self, event: RunEvent, parent: CallId | None) -> None:
        """Show an event as data, if the protocol has no chunk for it and clients show it."""
        match event:
            case ToolProgressed(call_id, text):
                self._show("progress", call_id, {"toolCallId": call_id, "text": text})
            case PlanUpdated(entries):
                of = {"parentToolCallId": parent} if parent else {}
                plan = {"entries": [shapes.plan_entry(each) for each in entries], **of}
                self._show("plan", parent or "plan", plan)
            case StateChanged():
                self._live("state", show_state(event))
            case OutputAccepted(value):
                self._show("output", "output", show_value(value))
            case UsageReported(usage):
                self._usage = add_usages(self._usage, usage)
            case ContextWarned():
                self._live("context", shapes.context_warning(event))
            case Compacted():
                self._live("context", shapes.compaction(event))
            case _:
                pass

    def _show(self, name: str, part_id: str, data: object) -> None:
        """Show data as a part; what the part had before is replaced."""
        self._add(f"data-{name}", id=part_id, data=data)

    def _live(self, name: str, data: object) -> None:
        """Show data that is in no part: a client gets it once."""
        self._push(f"data-{name}", data=data, transient=True)

    # ---------------------------------------------------------------- texts
    def _say(self, kind: Literal["text", "reasoning"], text: str) -> None:
        if self._text != kind:
            self._end_text()
            self._texts += 1
            self._add(f"{kind}-start", id=str(self._texts))
            self._text = kind
        self._out.append(self._delta(text))

    def _delta(self, text: str) -> str:
        return f'{{"type":"{self._text}-delta","id":"{self._texts}","delta":{quoted(text)}}}'

    def _end_text(self) -> None:
        if self._text is not None:
            self._push(f"{self._text}-end", id=str(self._texts))
            self._text = None

    # ---------------------------------------------------------------- calls
    def _begin_call(self, event: ToolCallStarted, parent: CallId | None) -> None:
        if event.call_id in self._calls:  # of a sub-agent, sent again behind a rewind
            return
        if parent is None:
            self._end_text()
        flags = call_flags(client=event.client, parent=parent)
        if event.title:
            flags = {**flags, "title": event.title}
        self._add("tool-input-start", toolCallId=event.call_id, toolName=event.name, **flags)
        self._calls[event.call_id] = _Call(event.name, flags, self._step, parent=parent)

    def _add_arguments(self, call_id: CallId, delta: str) -> None:
        call = self._calls.get(call_id)
        if call is not None and call.state == "input":
            call.arguments.append(delta)
            self._push("tool-input-delta", toolCallId=call_id, inputTextDelta=delta)

    def _end_call(self, call_id: CallId) -> None:
        call = self._calls.get(call_id)
        if call is not None and call.state == "input":
            call.state = "ready"
            arguments = "".join(call.arguments)
            self._send_input(call_id, call, arguments, self._push)

    def _send_input(
        self, call_id: CallId, call: _Call, arguments: str, send: Callable[..., None]
    ) -> None:
        """Show the arguments of a call. One that the client would make without them has failed."""
        named = {"toolCallId": call_id, "toolName": call.name, "input": read_arguments(arguments)}
        if "dynamic" in call.flags or takes_arguments(arguments):
            send("tool-input-available", **named, **call.flags)
        else:
            send("tool-input-error", **named, errorText=REFUSED_INPUT, **call.flags)

    def _settle(
        self, call_id: CallId, content: Content, is_error: bool, synthetic: str | None
    ) -> None:
        """Show a result that the server gave. Of a call that the client lacks, nothing is shown."""
        call = self._calls.get(call_id)
        if call is None or call.state == "done":
            return
        if not is_error:
            self._end_call(call_id)
        call.state = "done"
        if synthetic == "denied":
            self._push("tool-output-denied", toolCallId=call_id)
        elif is_error:
            self._settle_error(call_id, as_text(content, media=lambda part: part.url))
        else:
            output = show_output(content)
            self._push(
                "tool-output-available", toolCallId=call_id, output=output, providerExecuted=True
            )
        for inner_id, inner in self._calls.items():
            if inner.parent == call_id:  # a sub-agent has failed, or another worker began it anew
                self._end_unmade(inner_id)

    def _end_unmade(self, call_id: CallId) -> None:
        """End a call that has no result, and will have none."""
        call = self._calls[call_id]
        if call.state != "done":
            call.state = "done"
            self._settle_error(call_id, NOT_MADE)

    def _settle_error(self, call_id: CallId, text: str) -> None:
        # executed here, whosever tool it is: a client would post an error of its own as a result
        self._push("tool-output-error", toolCallId=call_id, errorText=text, providerExecuted=True)

    # ---------------------------------------------------------------- ends
    def _finish(self, end: RunFinished) -> None:
        self._end_text()
        outcome = end.outcome
        self._model = end.model
        if isinstance(outcome, HandedBack):
            for owed in outcome.owed:
                self._request(owed)
        else:
            self._end_open_calls()
        self._end_step()
        match outcome:
            case HandedBack():
                self._end_message("tool-calls")
            case Completed(reason):
                self._end_message(FINISH_REASONS[reason], reason=reason)
            case Cancelled():
                self._push("abort", reason="cancelled")
                self._end_message("interrupted")
            case Failed(code, message, retryable):
                failure = {"code": code, "retryable": retryable}
                self._push("message-metadata", messageMetadata=self._metadata(failure=failure))
                self._push("error", errorText=message)
            case _:
                assert_never(outcome)

    def _end_open_calls(self) -> None:
        for call_id in self._calls:
            self._end_unmade(call_id)
        # In a last step with nothing but the client's results, a client would post them for ever.
        if self._continues and not self._new_steps:
            self._begin_step()

    def _request(self, owed: Owed) -> None:
        """Ask for what the client owes, with the call if the client lacks it."""
        call = self._calls.get(owed.id)
        if owed.kind == "approval":
            if call is None:
                self._open_step()
                flags = call_flags(client=False, parent=owed.parent_id)
                self._calls[owed.id] = _Call(
                    owed.name, flags, self._step, arguments=[owed.arguments]
                )
            self._request_approval(owed.id, owed.reason)
        elif call is None:
            flags = call_flags(client=True, parent=owed.parent_id)
            call = self._calls[owed.id] = _Call(owed.name, flags, self._step, "ready")
            self._send_input(owed.id, call, owed.arguments, self._add)
        else:
            self._end_call(owed.id)

    def _request_approval(self, call_id: CallId, reason: str) -> None:
        """Let the client ask its user for a decision on a call.

        A client would take the calls of a step as answered if all that are not executed here have
        results. So this one is begun again as one that is not, which tells no app to make it.
        """
        call = self._calls[call_id]
        if self._is_open and call.step == self._step:
            call.flags = {**call.flags, "providerExecuted": False}
            call.state = "ready"
            arguments = "".join(call.arguments)
            if not takes_arguments(arguments):
                arguments = quoted(arguments)  # the client shows a text, and nothing of the other
            self._push("tool-input-start", toolCallId=call_id, toolName=call.name, **call.flags)
            self._push("tool-input-delta", toolCallId=call_id, inputTextDelta=arguments)
        why = {"reason": reason} if reason else {}
        self._push("tool-approval-request", approvalId=call_id, toolCallId=call_id, **why)

    def _end_message(self, finish: str, **metadata: JsonValue) -> None:
        self._push("finish", finishReason=finish, messageMetadata=self._metadata(**metadata))

    def _metadata(self, **more: object) -> Chunk:
        """Return what is known of the message at its end."""
        known: Chunk = {"model": self._model} if self._model else {}
        if self._usage is not None:
            known["usage"] = usage_metadata(self._usage)
        return {**known, **more}

    # ---------------------------------------------------------------- the beginning of a message
    def _recall(self, message: Message, parent: CallId | None) -> None:
        """Show a stored message as its run has shown it."""
        match message:
            case ChildMessage(call_id, inner):
                self._recall(inner, call_id)
            case AssistantMessage():
                self._recall_answer(message, parent)
            case ToolMessage():
                self._recall_result(message)
            case ApprovalMessage(call_id=call_id, approved=approved, reason=reason):
                if call_id in self._calls:
                    said = {"reason": reason} if reason else {}
                    self._request_approval(call_id, "")
                    self._push(
                        "tool-approval-response", approvalId=call_id, approved=approved, **said
                    )
            case _:  # a client is not shown it
                pass

    def _recall_answer(self, message: AssistantMessage, parent: CallId | None) -> None:
        if parent is None:
            self._feed_event(TurnStarted(message.id), None)
            self._in_turn = False
            thoughts = "".join(each.text for each in message.reasoning)
            if thoughts:
                self._say("reasoning", thoughts)
            if text := as_text(message.content, media=lambda part: part.url):
                self._say("text", text)
        for call in message.tool_calls:
            begun = ToolCallStarted(call.id, call.name, call.client, call.title, call.kind)
            self._begin_call(begun, parent)
            self._add_arguments(call.id, call.arguments)
            self._end_call(call.id)
        self._usage = add_usages(self._usage, message.usage)

    def _recall_result(self, result: ToolMessage) -> None:
        call_id = result.call_id
        call = self._calls.get(call_id)
        if call is None or result.synthetic or call.flags.get("dynamic"):
            self._settle(call_id, result.content, result.is_error, result.synthetic)
            return
        call.state = "done"
        if result.is_error:
            text = as_text(result.content, media=lambda part: part.url)
            self._push("tool-output-error", toolCallId=call_id, errorText=text)
        else:
            output = show_output(result.content)
            self._push("tool-output-available", toolCallId=call_id, output=output)


def parked_chunks(message_id: str | None, /) -> Sequence[str]:
    """Return the chunks of an answer without a run: other calls are still owed.

    They begin no step: the client waits for the answers to the calls of the last one.
    """
    start: Chunk = {} if message_id is None else {"messageId": message_id}
    return (
        encode({"type": "start", **start}),
        encode({"type": "finish", "finishReason": "tool-calls"}),
        DONE,
    )


def usage_metadata(usage: Usage, /) -> Chunk:
    """Return the `usage` in the metadata of a message."""
    return {
        "inputTokens": usage.input_tokens,
        "outputTokens": usage.output_tokens,
        "totalTokens": usage.input_tokens + usage.output_tokens,
        "cachedInputTokens": usage.cached_tokens,
        "reasoningTokens": usage.reasoning_tokens,
        **({"estimated": True} if usage.estimated else {}),
    }


def call_flags(*, client: bool, parent: CallId | None) -> Chunk:
    """Return the fields of a call that say who makes it."""
    nested = {"toolMetadata": {"parentToolCallId": parent}} if parent else {}
    return nested if client else {**_SERVER, **nested}
