"""Turns of a conversation, as the clients of the chat socket are told of them. No I/O.

What is told is a function of the record and of the run's log alone, so that each worker tells the
same: ids of turns come from the order of model calls, numbers from positions in the log.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, Literal

from passback.core.errors import ModelAstray, OutputInvalid
from passback.core.events import (
    Cancelled,
    Compacted,
    Completed,
    Failed,
    HandedBack,
    Logged,
    Outcome,
    Position,
    ReasoningDelta,
    RunEvent,
    RunFinished,
    RunStarted,
    TextDelta,
    ToolCallArguments,
    ToolCallEnded,
    ToolCallStarted,
    ToolResulted,
    TurnEnded,
    TurnStarted,
    unwrap_event,
)
from passback.core.messages import (
    ApprovalMessage,
    AssistantMessage,
    Message,
    RunId,
    RunRef,
    SummaryMessage,
    SystemMessage,
    ToolMessage,
    UserMessage,
)
from passback.core.transcript import (
    SYNTHETIC_TEXT,
    UNKNOWN_TOOL,
    unwrap_message,
    waiting_calls,
)
from passback.wire.chat.book import Path, TurnBook, depth
from passback.wire.chat.projections import (
    NO_RUN,
    Call,
    JsonDict,
    Loop,
    Turn,
    shown_text,
    text_blocks,
)
from passback.wire.chat.said import Said

# failures between two turns: the last answer is in the record whole
_BETWEEN_TURNS: Final = frozenset({ModelAstray.code, OutputInvalid.code})


class Turns(TurnBook):
    """The turns of a conversation so far, and the events that tell clients how they grow.

    Args:
        messages: the record before the run that is fed first, back to the last message of the
            user at least (`history.read_turns_before` reads it).
        start: the position in the record of the first of them.
        running: a run goes on, so that nothing waits for the client.
    """

    def __init__(
        self, messages: Sequence[Message] = (), /, *, start: int = 0, running: bool = False
    ) -> None:
        super().__init__(start)
        self._running = False
        self._end: JsonDict = {}
        self._muted = True
        for index, message in enumerate(messages, start):
            self._read(message, index)
        if not running:
            self._mark_owed([each.owed for each in waiting_calls(messages)])
        for turn in self._turns.values():
            status = turn.settled_status()
            turn.status = "streaming" if running and status == "paused" else status
        self._muted = False

    @classmethod
    def sequences(cls, messages: Sequence[Message], /, *, start: int = 0) -> list[int]:
        """Return the `sequence` of the last turn of the main agent or the user behind each message.

        Args:
            messages: of the record, from one of the user on, or from its beginning.
            start: the position in the record of the first of them.
        """
        turns, found = cls(start=start), list[int]()
        turns._muted = True
        for index, message in enumerate(messages, start):
            turns._read(message, index)
            found.append(turns._loops[()].sequence)
        return found

    def feed(self, run: RunRef, logged: Logged, posted: Sequence[Message] = (), /) -> list[Said]:
        """Return the events that an event of a run becomes.

        Runs are fed one after the other, each from its start, without `Rewound`. One for which
        another was rolled back is fed to turns that were made anew from the record before it.

        Args:
            run: the run.
            logged: the next event of its log.
            posted: with `RunStarted`, the messages of the record from `first` on, `posted` of them.
        """
        self._position, self._place = logged.position, 0
        path, event = unwrap_event(logged.event)
        if isinstance(event, TextDelta):
            self._add_content(path, "text", event.text)
        elif isinstance(event, ReasoningDelta):
            self._add_content(path, "thinking", event.text)
        elif isinstance(event, RunStarted):
            self._begin_run(event, posted)
        elif isinstance(event, RunFinished):
            self._finish_run(run.run_id, event.outcome)
        else:
            self._feed_turn(path, event)
        return self._take_said()

    def rewind(self, fresh: "Turns", position: Position, /) -> list[Said]:
        """Return the events that replace what a take-over made void, and become as `fresh`.

        Args:
            fresh: made anew, and fed with the run from its start up to `Rewound.to`.
            position: that of the event `Rewound`.
        """
        before = {each.id: each.view for each in self._turns.values() if each.told}
        known = {each.id for each in fresh._turns.values() if each.told}
        void = [
            turn
            for turn in self._turns.values()
            if turn.told and turn.run_id == self._run_id and turn.id not in known
        ]
        vars(self).update(vars(fresh))
        self._position, self._place = position, 0
        for turn in void:
            self._tell_void(turn)
        for turn in self._turns.values():
            if turn.told and before.get(turn.id) != turn.view:
                self._tell_whole(turn)
        return self._take_together()

    def restate(self, position: Position, /) -> list[Said]:
        """Return the events that tell the run anew, to a client whose cursor a take-over made void.

        A turn that may have been begun and is void is told as one without words.

        Args:
            position: that of `Rewound`, or of the last event that was fed behind it. The events of
                the same batch have to be fed before, as they repeat what is not void.
        """
        if position > self._position:
            self._position, self._place = position, 0
        for turn in self._turns.values():
            if turn.told and turn.run_id == self._run_id:
                self._tell_whole(turn)
        for loop in self._loops_with_void():
            last = loop.turn
            if last is None or last.ended or last.shown:
                turn_id = loop.next_id(self._run_id)
                self._tell_void(Turn(turn_id, loop, loop.sequence + 1, self._run_id))
            elif not last.told:
                self._tell_void(last)
        if not self._running:
            self._say("chat:end", self._end)
        return self._take_together()

    def _loops_with_void(self) -> list[Loop]:
        """Return the loops of agents that may have been at work: the main agent's, and those below
        calls that have no result of their own.
        """
        calls = [each for each in self._calls.values() if each.is_open or each.interrupted]
        paths = [((*each.turn.loop.path, each.id), each) for each in calls if not each.client]
        loops = {**self._closed, **self._loops}
        return [self._loops[()], *(loops.get(path) or Loop(path, call) for path, call in paths)]

    def snapshot(self) -> list[Said]:
        """Return the events for a client that comes late: the open turns of the run in progress.

        All have the number of the last event that was fed. Empty if no run is in progress.
        """
        if not self._running:
            return []
        number = self.number
        begun = [turn for turn in self._turns.values() if turn.told and not turn.ended]
        return [
            Said("chat:start", {}, number),
            *(Said("turn:start", turn.view, number) for turn in begun),
        ]

    def _read(self, message: Message, index: int) -> None:
        path, inner = unwrap_message(message)
        match inner:
            case AssistantMessage():
                self._read_answer(self._loop(path), inner)
            case ToolMessage():
                self._read_result(inner)
            case ApprovalMessage(call_id=call_id, approved=True) if call_id in self._calls:
                self._set_status(self._calls[call_id], "pending")
            case SystemMessage(synthetic="invalid"):
                # the answer before it was refused: it is not the end of a run
                if (refused := self._loop(path).turn) is not None:
                    refused.partial = False
            case UserMessage() | SystemMessage() if not path:
                self._read_input(inner, index)
            case SummaryMessage(forgets=False):
                self._add_compaction(self._loop(path), inner)
            case _:  # the task of a sub-agent, a decision that has a result
                pass

    def _read_input(self, message: UserMessage | SystemMessage, index: int) -> None:
        if message.id in self._turns:  # a run before it came to nothing
            return
        root = self._loops[()]
        root.sequence, root.turn = index + 1, None
        turn = Turn(message.id, root, root.sequence, message.run_id, message.role)
        turn.given, turn.started = text_blocks(message.content), message.created
        turn.told = turn.ended = True
        turn.status = "completed"
        self._turns[turn.id] = turn
        self._tell_whole(turn)

    def _read_answer(self, loop: Loop, message: AssistantMessage) -> None:
        if not (message.content or message.tool_calls):  # it says nothing
            return
        turn = loop.next_turn(message.run_id, "" if message.run_id else message.id)
        turn.thoughts = [each.text for each in message.reasoning if each.text]
        turn.words = [shown_text(message.content)] if message.content else []
        # a sub-agent's stream does not tell
        turn.partial = message.partial and not loop.path
        turn.note_answer(message)
        turn.started = message.started
        turn.told = turn.ended = True
        for made in message.tool_calls:
            call = Call(made.id, turn, made.name, made.title, made.client)
            call.complete(made.arguments)
            turn.calls.append(call)
            self._calls[call.id] = call
        turn.shown = len(turn.calls)
        self._turns[turn.id] = turn

    def _add_compaction(self, loop: Loop, summary: SummaryMessage) -> None:
        loop.sequence += 1
        turn = Turn(summary.id, loop, loop.sequence, summary.run_id, "system", summary=summary)
        turn.note_answer(summary)
        turn.started = summary.started
        turn.told = turn.ended = True
        turn.status = "completed"
        self._turns[turn.id] = turn
        self._tell_whole(turn)

    def _read_result(self, result: ToolMessage) -> None:
        call = self._calls.get(result.call_id)
        if call is None:
            return
        text = shown_text(result.content)
        # nobody was told of a call of a tool that does not exist
        if result.synthetic == "invalid" and text.startswith(UNKNOWN_TOOL):
            self._forget_call(call)
        else:
            self._close_call(call, result.content, result)

    def _forget_call(self, call: Call) -> None:
        turn = call.turn
        turn.calls.remove(call)
        turn.shown -= 1
        del self._calls[call.id]
        if turn.is_empty:
            self._turns.pop(turn.id, None)
            turn.loop.drop_turn()

    def _begin_run(self, started: RunStarted, posted: Sequence[Message]) -> None:
        self._run_id, self._running = started.run_id, True
        own = {started.run_id, NO_RUN}
        runs = [unwrap_message(message)[1].run_id for message in posted]
        earlier = next((at for at, run_id in enumerate(runs) if run_id in own), len(runs))
        self._muted = True  # clients know what belongs to an earlier run
        self._read_posted(posted[:earlier], started.first)
        self._muted = False
        if started.rolled_back:
            self._tell_rollback(started.first)
        self._say("chat:start", {})
        known = len(self._turns)
        self._read_posted(posted[earlier:], started.first + earlier)
        for call in self._calls.values():
            if call.question is not None and call.is_open:
                self._set_status(call, "pending")
        asked = [*self._turns.values()][known:]
        if asked:  # nothing before it changes any more
            self._turns = {turn.id: turn for turn in asked}
            self._calls.clear()
            self._loops = {(): self._loops[()]}
            self._closed.clear()

    def _read_posted(self, messages: Sequence[Message], start: int) -> None:
        for index, message in enumerate(messages, start):
            self._read(message, index)

    def _tell_rollback(self, first: int) -> None:
        """Tell that turns are gone: all behind the last message of the user before a position.

        Those behind it that are there now are told anew: they are kept, or of another branch.
        """
        asked, kept = 0, list[Turn]()
        for turn in self._turns.values():
            if turn.sequence > first and not turn.is_input:  # it was read just now
                turn.status = turn.settled_status()
            if turn.is_input and turn.sequence <= first:
                asked, kept = turn.sequence, []
            else:
                kept.append(turn)
        self._say("session:updated", {"rolled_back_to": asked})
        for turn in kept:
            self._tell_whole(turn)

    def _feed_turn(self, path: Path, event: RunEvent) -> None:
        match event:
            case TurnStarted():
                self._begin_turn(self._loop(path), event.started)
            case Compacted(summary=SummaryMessage() as summary):
                self._close_turn(self._loop(path))
                summary = replace(summary, run_id=self._run_id)
                self._add_compaction(self._loop(path), summary)
            case TurnEnded():
                self._open_turn(path).note_answer(event)
            case ToolCallStarted(call_id, name, client, title):
                turn = self._open_turn(path)
                self._calls[call_id] = Call(call_id, turn, name, title, client)
                turn.calls.append(self._calls[call_id])
            case ToolCallArguments() | ToolCallEnded() | ToolResulted():
                if (call := self._calls.get(event.call_id)) is not None:
                    self._feed_call(call, event)
            case _:  # the protocol has no event for it
                pass

    def _feed_call(
        self, call: Call, event: ToolCallArguments | ToolCallEnded | ToolResulted
    ) -> None:
        if isinstance(event, ToolCallArguments):
            call.raw.append(event.delta)
        elif isinstance(event, ToolResulted):
            self._close_call(call, event.content, event)
        elif not call.client:  # a client's call is shown when the run hands it back
            self._show_calls(call.turn, call)

    def _open_turn(self, path: Path) -> Turn:
        """Return the turn of what an agent says."""
        loop = self._loop(path)
        turn = loop.turn
        return self._begin_turn(loop) if turn is None or turn.ended else turn

    def _add_content(self, path: Path, kind: Literal["text", "thinking"], text: str) -> None:
        if not text:
            return
        turn = self._open_turn(path)
        self._tell_start(turn)
        (turn.words if kind == "text" else turn.thoughts).append(text)
        self._patch(turn, "add_content", {"type": kind, "text_delta": text})

    def _finish_run(self, run_id: RunId, outcome: Outcome) -> None:
        if self._running:
            self._end_turns(outcome)
        else:  # it was taken out of the queue
            self._say("chat:start", {})
        self._running = False
        self._end = {**_end_data(outcome), "chat_run_id": run_id}
        self._say("chat:end", self._end)

    def _end_turns(self, outcome: Outcome) -> None:
        last = self._loops[()].turn
        if isinstance(outcome, HandedBack):
            self._mark_owed(outcome.owed)
        elif last is not None:
            if outcome == Completed("max_tokens"):
                last.partial = True
            elif _is_stopped(outcome):
                self._stop_turn(last, outcome)
        for loop in sorted(self._loops.values(), key=depth, reverse=True):
            self._close_turn(loop)

    def _stop_turn(self, turn: Turn, outcome: Outcome) -> None:
        """End the last turn of a run that was stopped, as the record has it.

        If its answer was stopped early, the record has its text alone.
        """
        between = isinstance(outcome, Failed) and outcome.code in _BETWEEN_TURNS
        if not (turn.ended or turn.shown or between):
            turn.partial = True
            turn.calls.clear()
            if turn.thoughts:
                turn.thoughts.clear()
                if turn.words:
                    self._say("turn:start", turn.view)
            return
        text = SYNTHETIC_TEXT["interrupted"]
        for call in turn.calls:
            self._close_call(call, text, ToolResulted(call.id, text, True, "interrupted"))


def _is_stopped(outcome: Outcome) -> bool:
    """Return whether a run may have ended within a turn."""
    return isinstance(outcome, Cancelled | Failed) or outcome == Completed("budget")


def _end_data(outcome: Outcome) -> JsonDict:
    """Return the payload of `chat:end`."""
    match outcome:
        case HandedBack(owed):
            ids = [each.id for each in owed]
            return _ended("completed", "awaiting_answer", pending_tool_call_ids=ids)
        case Cancelled():
            return _ended("interrupted", "completed")
        case Failed(code, message):
            return _ended("failed", "tool_error", error={"code": code, "message": message})
        case _:
            is_cut = outcome == Completed("max_turns")
            return _ended("completed", "max_turns" if is_cut else "completed")


def _ended(status: str, finish_reason: str, **more: object) -> JsonDict:
    return {
        "status": status,
        "result": None,
        "finish_reason": finish_reason,
        "pending_tool_call_ids": [],
        **more,
    }
