"""Assemble one model answer: deltas in, events and an assistant message out. Sans-IO, total, one
assembler per turn.

Model output is hostile input: ids are minted here, arguments are checked and
never repaired, and a call of an unknown tool never reaches the client.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple, TypeAlias, assert_never

from passback.core.deltas import (
    AnsweredBy,
    Finish,
    FinishReason,
    LostUsageChunk,
    ModelDelta,
    ReasoningBlock,
    ReasoningChunk,
    TextChunk,
    ToolCallChunk,
    UsageChunk,
)
from passback.core.errors import ModelAstray, OutputInvalid
from passback.core.events import (
    CompletedReason,
    ReasoningDelta,
    RunEvent,
    TextDelta,
    ToolCallArguments,
    ToolCallEnded,
    ToolCallStarted,
    ToolResulted,
    TurnEnded,
    UsageReported,
)
from passback.core.messages import (
    UNNAMED,
    UNUSED,
    AssistantMessage,
    CallId,
    Message,
    MessageId,
    Reasoning,
    SummaryMessage,
    Synthetic,
    SystemMessage,
    ToolCall,
    ToolKind,
    ToolMessage,
    ToolResult,
    Usage,
    add_usages,
)
from passback.core.text import find_arguments_flaw, replace_surrogates
from passback.core.transcript import UNKNOWN_TOOL
from passback.core.values import value

Executor: TypeAlias = Literal["client", "server"]


class KnownTool(NamedTuple):
    """A tool that the model may call: the side that executes it, and how clients show it."""

    executor: Executor
    title: str = ""
    kind: ToolKind = "other"


FindTool: TypeAlias = Callable[[str], KnownTool | None]
"""Returns the tool of a name; None: there is no such tool."""

_NAME_SHOWN = 200  # characters of an unknown tool's name that the error repeats to the model

_CHARS_PER_TOKEN = 4  # a rough estimate, for answers cut off before the provider counted them


@value
class InvalidCall:
    """A call that no tool receives, and the reason that the model is given instead."""

    call: ToolCall
    reason: str
    announced: bool
    """Whether readers saw it begin."""
    synthetic: Synthetic = "invalid"


@value
class ModelTurn:
    """A model's whole answer.

    `finish` is None if it broke off; then all its calls are invalid. `asked` are server calls that
    a person has to approve first. `lost` is the usage of attempts that failed before the answer.
    """

    message: AssistantMessage
    client: tuple[ToolCall, ...]
    server: tuple[ToolCall, ...]
    invalid: tuple[InvalidCall, ...]
    finish: FinishReason | None
    usage: Usage | None
    asked: tuple[ToolCall, ...] = ()
    lost: Usage | None = None

    @property
    def spent(self) -> Usage | None:
        """Usage of the model call with all its attempts."""
        return add_usages(self.lost, self.usage)

    def judged(self, refused: Sequence[InvalidCall], marked: Sequence[ToolCall]) -> "ModelTurn":
        """Return the turn with some calls refused, and others marked as waiting for a person."""
        gone = {each.call.id for each in refused}
        marks = {call.id: call for call in marked}

        def calls_of(calls: Iterable[ToolCall]) -> tuple[ToolCall, ...]:
            return tuple(marks.get(call.id, call) for call in calls)

        server = [call for call in calls_of(self.server) if call.id not in gone]
        return replace(
            self,
            message=replace(self.message, tool_calls=calls_of(self.message.tool_calls)),
            client=tuple(call for call in calls_of(self.client) if call.id not in gone),
            server=tuple(call for call in server if not call.asks),
            asked=tuple(call for call in server if call.asks),
            invalid=(*self.invalid, *refused),
        )


@dataclass(slots=True)
class _OpenCall:
    id: CallId
    name: str | None = None
    tool: KnownTool | None = None
    provider_id: str | None = None
    arguments: list[str] = field(default_factory=list[str])


class Assembler:
    """Feed it the model's batches, then call `finish` once, or `partial` for what there is.

    Attributes:
        nothing_shown: nothing was shown to readers yet.
        model: the name of the model that answers.
        started, duration, window: as in `AssistantMessage`, set by its reader.
    """

    def __init__(
        self,
        message_id: MessageId,
        find_tool: FindTool,
        new_call_id: Callable[[], CallId],
        model: str = "",
    ) -> None:
        self.nothing_shown = True
        self.model = model
        self.started = self.duration = self.window = 0
        self._message_id = message_id
        self._find_tool = find_tool
        self._new_call_id = new_call_id
        self._text: list[str] = []
        self._reasoning: list[Reasoning] = []
        self._thought = 0
        self._calls: dict[int, _OpenCall] = {}
        self._finish: FinishReason | None = None
        self._usage: Usage | None = None
        self._lost: Usage | None = None

    def feed(self, deltas: Sequence[ModelDelta]) -> list[RunEvent]:
        """Return the events that readers may see at once."""
        events: list[RunEvent] = []
        for delta in deltas:
            match delta:  # by the class alone: to match its field, too, costs four times as much
                case TextChunk():
                    text = replace_surrogates(delta.text)
                    self._text.append(text)
                    events.append(TextDelta(text))
                case ToolCallChunk():
                    events.extend(self._feed_call(delta))
                case ReasoningChunk():
                    self._thought += len(delta.text)
                    events.append(ReasoningDelta(replace_surrogates(delta.text)))
                case ReasoningBlock():
                    self._reasoning.append(delta.reasoning)
                case UsageChunk() | LostUsageChunk() | AnsweredBy():
                    self._note_metadata(delta)
                case Finish():
                    self._finish = delta.reason
                case _:
                    assert_never(delta)
        self.nothing_shown = self.nothing_shown and not events
        return events

    def finish(self) -> tuple[list[RunEvent], ModelTurn]:
        """Return the turn, and the events it still lacks: a call always has at least one piece of
        arguments.
        """
        events: list[RunEvent] = []
        client: list[ToolCall] = []
        server: list[ToolCall] = []
        invalid: list[InvalidCall] = []
        calls: list[ToolCall] = []  # all of them, in the model's order
        for open_call in self._calls.values():
            if open_call.name is None:
                continue  # without a name it cannot even be replayed
            if open_call.tool and not open_call.arguments:
                events.append(ToolCallArguments(open_call.id, "{}"))
            judged = self._judge_call(open_call, open_call.name)
            if isinstance(judged, InvalidCall):
                invalid.append(judged)
                calls.append(judged.call)
            else:
                (client if judged.client else server).append(judged)
                calls.append(judged)
        message = AssistantMessage(
            self._message_id,
            "".join(self._text),
            tuple(calls),
            tuple(self._reasoning),
            partial=self._finish in (None, "length"),
            usage=self._usage,
            model=self.model,
            duration=self.duration,
            started=self.started,
            window=self.window,
        )
        return events, ModelTurn(
            message=message,
            client=tuple(client),
            server=tuple(server),
            invalid=tuple(invalid),
            finish=self._finish,
            usage=self._usage,
            lost=self._lost,
        )

    def partial(self) -> AssistantMessage | None:
        """Return the text so far of a turn that was stopped early, or None if there is none; its
        calls are void.
        """
        if not any(self._text):
            return None
        text = "".join(self._text)
        return AssistantMessage(
            self._message_id,
            text,
            partial=True,
            usage=self._usage,
            model=self.model,
            duration=self.duration,
            started=self.started,
            window=self.window,
        )

    @property
    def usage(self) -> Usage | None:
        """Usage as the provider counted it; while the answer is incomplete, with an estimate of its
        tokens so far.
        """
        if self._finish is not None:
            return self._usage
        calls = self._calls.values()
        length = self._thought + sum(map(len, self._text))
        length += sum(len(call.name or "") + sum(map(len, call.arguments)) for call in calls)
        if self._usage is None and not length:
            return None
        counted = self._usage or UNUSED
        # a provider's count may lag behind the text
        tokens = max(counted.output_tokens, -(-length // _CHARS_PER_TOKEN))
        return replace(counted, output_tokens=tokens, estimated=True)

    @property
    def spent(self) -> Usage | None:
        """Usage with that of the failed attempts before the answer."""
        return add_usages(self._lost, self.usage)

    def _note_metadata(self, delta: UsageChunk | LostUsageChunk | AnsweredBy) -> None:
        if isinstance(delta, UsageChunk):
            self._usage = delta.usage
        elif isinstance(delta, AnsweredBy):
            self.model = delta.model
        else:
            self._lost = add_usages(self._lost, delta.usage)

    def _feed_call(self, chunk: ToolCallChunk) -> Iterable[RunEvent]:
        call = self._calls.get(chunk.slot)
        if call is None:
            call = self._calls[chunk.slot] = _OpenCall(self._new_call_id())
        if chunk.provider_id is not None:
            call.provider_id = chunk.provider_id
        # providers may send a name late, or again with each chunk: the first one counts
        if chunk.name and call.name is None:
            call.name = chunk.name
            call.tool = tool = self._find_tool(chunk.name)
            if tool:
                client = tool.executor == "client"
                yield ToolCallStarted(call.id, chunk.name, client, tool.title, tool.kind)
                if call.arguments:
                    yield ToolCallArguments(call.id, "".join(call.arguments))
        if chunk.arguments:
            arguments = replace_surrogates(chunk.arguments)
            call.arguments.append(arguments)
            if call.tool:
                yield ToolCallArguments(call.id, arguments)

    def _judge_call(self, open_call: _OpenCall, name: str) -> ToolCall | InvalidCall:
        arguments, tool = "".join(open_call.arguments) or "{}", open_call.tool
        flaw = None
        # after an answer that was cut off, no call is known to be complete
        if self._finish in (None, "length"):
            flaw = "Not executed: the answer was cut off before the call was complete."
        elif tool is None:
            flaw = f"{UNKNOWN_TOOL}{name[:_NAME_SHOWN]!r}."
            # providers refuse a whole history for one odd name
            name = re.sub(r"[^A-Za-z0-9_-]", "_", name)[:64]
        elif said := find_arguments_flaw(arguments):
            flaw = f"Not executed: the arguments {said}"
        call = ToolCall(
            open_call.id,
            name,
            arguments if flaw is None else "{}",  # a replay must be JSON for every provider
            tool is not None and tool.executor == "client",
            open_call.provider_id,
            title=tool.title if tool else "",
            kind=tool.kind if tool else "other",
        )
        if flaw is None:
            return call
        return InvalidCall(call, flaw, tool is not None)


def turn_records(
    turn: ModelTurn, context_used: int | None = None
) -> tuple[list[Message], list[RunEvent]]:
    """Return what a whole turn adds: its message with the answers to its invalid calls, and their
    events.

    `context_used` is that of `UsageReported`.
    """
    append: list[Message] = []
    events: list[RunEvent] = []
    # providers refuse a history with empty messages
    if turn.message.content or turn.message.tool_calls:
        append.append(turn.message)
        events.append(turn_end(turn.message))
    if turn.spent is not None:
        events.append(
            UsageReported(
                turn.spent,
                model=turn.message.model,
                context_used=context_used,
                window=turn.message.window or None,
            )
        )
    for invalid in turn.invalid:
        refusal = ToolResult(invalid.reason, is_error=True)
        answer = replace(tool_message(invalid.call, refusal), synthetic=invalid.synthetic)
        append.append(answer)
        if invalid.announced:
            events.append(result_event(answer))
    events.extend(ToolCallEnded(call.id) for call in turn.server)
    return append, events


def turn_end(message: AssistantMessage) -> TurnEnded:
    """Return the event that says that an answer is in the record."""
    return TurnEnded(
        message.id, message.model, message.usage, window=message.window, duration=message.duration
    )


def tool_message(call: ToolCall, result: ToolResult, duration: int = 0) -> ToolMessage:
    """Return the tool message that carries a result; the tool worked so many milliseconds."""
    return ToolMessage(
        UNNAMED,
        call.id,
        result.content,
        result.is_error,
        "invalid" if result.invalid else None,
        duration=duration,
    )


def result_event(answer: ToolMessage) -> ToolResulted:
    """Return the event that shows a tool message."""
    return ToolResulted(
        answer.call_id, answer.content, answer.is_error, answer.synthetic, answer.duration
    )


def completed_reason(turn: ModelTurn) -> CompletedReason:
    """Return the reason for which a run completed, by the finish of its last turn."""
    match turn.finish:
        case "length":
            return "max_tokens"
        case "refusal":
            return "refusal"
        case _:
            return "end_turn"


def last_model_name(messages: Sequence[Message], /) -> str:
    """Return the name of the model that answered last in messages; empty if there is none."""
    spoken = (each.model for each in reversed(messages) if isinstance(each, AssistantMessage))
    return next((name for name in spoken if name), "")


def futile_run_error(messages: Sequence[Message], /) -> ModelAstray | OutputInvalid:
    """Return the error of a run that reached its limit of futile turns."""
    last = next(each for each in reversed(messages) if not isinstance(each, SummaryMessage))
    if isinstance(last, SystemMessage):
        return OutputInvalid("the model's answer did not fit the output schema, again and again")
    return ModelAstray("the model made nothing but invalid tool calls, again and again")
