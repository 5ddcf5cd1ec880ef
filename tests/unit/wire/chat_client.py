"""A client of the chat socket, as its documents describe one: it keeps turns by what it is told."""

import copy
from collections.abc import Iterable, Sequence

from passback.wire.chat.projections import JsonDict
from passback.wire.chat.said import Said

KNOWN_AT_END = ("model", "usage", "duration_ms", "context_window")
"""Fields of a turn that no patch tells: `turn:end` has them."""


def patched(turn: JsonDict) -> JsonDict:
    """A turn without the fields that no patch tells."""
    return {name: value for name, value in turn.items() if name not in KNOWN_AT_END}


class ChatClient:
    """The turns that a client shows.

    Attributes:
        ends: the payloads of `chat:end`.
    """

    def __init__(self, turns: Sequence[JsonDict] = ()) -> None:
        self.turns: dict[str, JsonDict] = {turn["id"]: copy.deepcopy(turn) for turn in turns}
        self.ends: list[JsonDict] = []
        self.numbers: list[int] = []
        self.open: set[str] = set()

    def take(self, said: Iterable[Said]) -> None:
        """Do what is told.

        Of several events with one number, the last has it; 0 is none.
        """
        told = list(said)
        following = [each.number for each in told[1:]]
        for each, after in zip(told, [*following, 0], strict=False):
            if each.number not in {0, after}:
                assert not self.numbers or each.number > self.numbers[-1], each
                self.numbers.append(each.number)
            match each.name:
                case "turn:start":
                    self.turns[each.data["id"]] = copy.deepcopy(each.data)
                    self.open.add(each.data["id"])
                case "turn:patch":
                    self._patch(self.turns[each.data["turn_id"]], each.data)
                case "turn:end":
                    self._end(each.data)
                case "chat:end":
                    assert not self.open
                    self.ends.append(each.data)
                case "session:updated":
                    self._roll_back(each.data["rolled_back_to"])
                case _:
                    assert each.name == "chat:start"

    def _roll_back(self, sequence: int) -> None:
        """Drop the turns behind one of the user, and those of their sub-agents."""
        assert not self.open
        calls: dict[str, bool] = {}  # whether the turn of a call is kept
        for turn in [*self.turns.values()]:
            above = turn["parent_fork_tool_call_id"]
            kept = calls.get(above, False) if above else turn["sequence"] <= sequence
            calls |= {call["id"]: kept for call in turn["tool_calls"]}
            if not kept:
                del self.turns[turn["id"]]

    def _end(self, turn: JsonDict) -> None:
        before = {**self.turns[turn["id"]], "status": turn["status"]}
        assert patched(before) == patched(turn)
        self.turns[turn["id"]] = copy.deepcopy(turn)
        self.open.remove(turn["id"])

    def _patch(self, turn: JsonDict, patch: JsonDict) -> None:
        assert patch["loop_id"] == turn["loop_id"]
        data = patch["data"]
        match patch["patch_type"]:
            case "add_content":
                _add_text(turn["blocks"], data)
            case "add_tool_call":
                turn["tool_calls"].append(dict(data))
            case "set_status":
                turn["status"] = data["status"]
            case "set_tool_status" | "tool_result":
                call = next(one for one in turn["tool_calls"] if one["id"] == data["tool_call_id"])
                call.pop("pending_question_ref", None)
                call |= {name: given for name, given in data.items() if name != "tool_call_id"}
            case other:
                raise AssertionError(other)

    @property
    def kept(self) -> dict[str, JsonDict]:
        """The turns that said something."""
        return {
            turn["id"]: turn
            for turn in self.turns.values()
            if turn["role"] != "assistant" or turn["tool_calls"] or _says_text(turn)
        }


def _says_text(turn: JsonDict) -> bool:
    return any(block["type"] == "text" for block in turn["blocks"])


def _add_text(blocks: list[JsonDict], data: JsonDict) -> None:
    for block in blocks:
        if block["type"] == data["type"]:
            block["content"] += data["text_delta"]
            return
    block = {"type": data["type"], "content": data["text_delta"]}
    blocks.insert(0 if data["type"] == "thinking" else len(blocks), block)
