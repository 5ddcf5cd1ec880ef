"""The turns that clients know, and what they are told when one changes. No I/O."""

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from passback.core.events import START, ToolResulted
from passback.core.messages import CallId, Content, Owed, RunId, ToolMessage
from passback.core.text import find_arguments_flaw
from passback.core.transcript import AGENT_FAILED
from passback.wire.chat.projections import (
    Call,
    CallStatus,
    JsonDict,
    Loop,
    Turn,
    question_reference,
    shown_text,
    status_of_result,
)
from passback.wire.chat.said import Said, number_of

Path: TypeAlias = tuple[CallId, ...]
"""The calls on which the agents around an event or a message work, outermost first."""


class TurnBook:
    """The turns of a conversation, and the events by which clients learn of changes.

    While it is muted, it tells nothing.
    """

    def __init__(self, sequence: int) -> None:
        self._loops: dict[Path, Loop] = {(): Loop((), None, sequence=sequence)}
        self._closed: dict[Path, Loop] = {}  # of calls with results
        self._turns: dict[str, Turn] = {}
        self._calls: dict[CallId, Call] = {}
        self._run_id = RunId("")
        self._position = START
        self._place = 0
        self._said: list[Said] = []
        self._muted = False

    @property
    def number(self) -> int:
        """The number of the last event that clients were told."""
        return number_of(self._position, max(0, self._place - 1))

    @property
    def views(self) -> list[JsonDict]:
        """All turns that the record has, in the order of their beginning."""
        return [turn.view for turn in self._turns.values() if not turn.is_empty]

    def _take_said(self) -> list[Said]:
        said, self._said = self._said, []
        return said

    def _take_together(self) -> list[Said]:
        """The same, with one number: what a log does not tell again comes as a whole, or again."""
        said = self._take_said()
        return [each._replace(number=said[-1].number) for each in said]

    def _say(self, name: str, data: JsonDict) -> None:
        if not self._muted:
            self._said.append(Said(name, data, number_of(self._position, self._place)))
            self._place += 1

    def _patch(self, turn: Turn, patch_type: str, data: JsonDict) -> None:
        if self._muted:
            return
        if turn.run_id == self._run_id:
            turn.patches += 1
            sequence = turn.patches
        else:  # nobody knows how many its own run sent
            sequence = number_of(self._position, self._place)
        envelope: JsonDict = {
            "sequence": sequence,
            "turn_id": turn.id,
            "loop_id": turn.loop_id,
            "patch_type": patch_type,
            "data": data,
        }
        self._say("turn:patch", envelope)

    def _tell_whole(self, turn: Turn) -> None:
        self._say("turn:start", turn.view)
        if turn.ended:
            self._say("turn:end", turn.view)

    def _tell_void(self, turn: Turn) -> None:
        """Tell a turn that came to nothing, so that no client keeps its words."""
        void = Turn(turn.id, turn.loop, turn.sequence, turn.run_id)
        self._say("turn:start", void.view)
        void.status = "interrupted"
        self._say("turn:end", void.view)

    def _tell_start(self, turn: Turn) -> None:
        """Tell that a turn begins: a model call that says nothing is none."""
        if not turn.told:
            turn.told = True
            self._say("turn:start", turn.view)

    def _loop(self, path: Path) -> Loop:
        loop = self._loops.get(path)
        if loop is None:
            loop = self._loops[path] = Loop(path, self._calls.get(path[-1]))
        return loop

    def _begin_turn(self, loop: Loop, started: int = 0) -> Turn:
        turn, is_void = loop.turn, False
        if turn is not None and not turn.ended:
            if turn.is_empty:  # it came to nothing: the next one has its place
                is_void = turn.told or turn.is_void
                loop.drop_turn()
                self._turns.pop(turn.id, None)
            else:
                self._end_turn(turn)
        begun = loop.next_turn(self._run_id)
        begun.is_void, begun.started = is_void, started
        self._turns[begun.id] = begun
        return begun

    def _end_turn(self, turn: Turn) -> None:
        """End a turn, or settle the status of one that has ended."""
        if turn.ended:
            self._settle(turn)
            return
        self._show_calls(turn)
        turn.ended, turn.status = True, turn.settled_status()
        self._say("turn:end", turn.view)

    def _settle(self, turn: Turn) -> None:
        status = turn.settled_status()
        if turn.ended and status != turn.status:
            turn.status = status
            self._patch(turn, "set_status", {"status": status})

    def _close_turn(self, loop: Loop) -> None:
        """End the open turn of an agent, or take it back if it came to nothing."""
        turn = loop.turn
        if turn is None or turn.ended:
            return
        if turn.is_empty:
            self._drop_turn(turn)
        else:
            self._end_turn(turn)

    def _drop_turn(self, turn: Turn) -> None:
        """Take back a turn that came to nothing."""
        self._turns.pop(turn.id, None)
        turn.loop.drop_turn()
        if turn.told or turn.is_void:
            self._tell_void(turn)

    def _show_calls(self, turn: Turn, last: Call | None = None) -> None:
        """Tell of the calls of a turn, in the model's order, up to one or all: its answer is in the
        record.
        """
        end = len(turn.calls) if last is None else turn.calls.index(last) + 1
        for call in turn.calls[turn.shown : end]:
            self._tell_start(turn)
            arguments = "".join(call.raw) or "{}"
            call.complete("{}" if find_arguments_flaw(arguments) else arguments)
            turn.shown += 1
            self._patch(turn, "add_tool_call", call.announcement)

    def _set_status(self, call: Call, status: CallStatus, question: JsonDict | None = None) -> None:
        if not call.is_open or (call.status, call.question) == (status, question):
            return
        call.status, call.question = status, question
        data: JsonDict = {"tool_call_id": call.id, "status": status}
        if question is not None:
            data["pending_question_ref"] = question
        self._patch(call.turn, "set_tool_status", data)

    def _close_call(self, call: Call, content: Content, result: ToolMessage | ToolResulted) -> None:
        """Give a call its result; the first one counts."""
        if not call.is_open:
            return
        turn = call.turn
        self._show_calls(turn, call)
        self._close_below(call, result)
        call.result, call.duration, call.question = shown_text(content), result.duration, None
        call.status = status_of_result(result.synthetic, is_error=result.is_error)
        call.interrupted = result.synthetic == "interrupted"
        self._patch(
            turn,
            "tool_result",
            {
                "tool_call_id": call.id,
                "result": call.result,
                "status": call.status,
                "duration_ms": call.duration,
            },
        )
        self._settle(turn)

    def _close_below(self, call: Call, result: ToolMessage | ToolResulted) -> None:
        """End the turns of the sub-agents on a call that gets its result."""
        path = (*call.turn.loop.path, call.id)
        below = [loop for loop in self._loops.values() if loop.path[: len(path)] == path]
        if not below:
            return
        is_own = result.synthetic is None and result.is_error
        fails = shown_text(result.content).startswith(AGENT_FAILED) if is_own else result.is_error
        for loop in sorted(below, key=depth, reverse=True):
            self._closed[loop.path] = self._loops.pop(loop.path)
            turn = loop.turn
            if turn is None:
                continue
            if not turn.ended and (turn.is_empty or (fails and not turn.is_recorded)):
                self._drop_turn(turn)
                continue
            self._cancel_calls(turn, interrupted=result.synthetic in {None, "interrupted"})
            self._end_turn(turn)

    def _cancel_calls(self, turn: Turn, *, interrupted: bool) -> None:
        """Cancel the open calls of a turn whose agent does not go on."""
        self._show_calls(turn)
        for call in turn.calls:
            if call.is_open:
                call.interrupted = interrupted
                self._set_status(call, "cancelled")

    def _mark_owed(self, owed: Sequence[Owed]) -> None:
        """Tell of the calls that wait for the client, and of sub-agents' questions."""
        waiting = [(self._calls[each.id], each.kind) for each in owed if each.id in self._calls]
        for call, kind in waiting:
            status: CallStatus = "awaiting_result" if kind == "tool_result" else "awaiting_answer"
            if call in call.turn.calls[: call.turn.shown]:
                self._set_status(call, status)
            else:
                call.status = status
        for call, kind in waiting:
            self._show_calls(call.turn, call)
            for above in () if kind == "tool_result" else _calls_above(call):
                if above.question is None:
                    self._set_status(above, "awaiting_answer", question_reference(call))


def depth(loop: Loop, /) -> int:
    """Return how deep an agent is nested."""
    return len(loop.path)


def _calls_above(call: Call) -> Iterator[Call]:
    """Yield the calls on which the agents around a call work, the nearest first."""
    above = call.turn.loop.call
    while above is not None:
        yield above
        above = above.turn.loop.call
