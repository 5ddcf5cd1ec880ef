"""Events of one response: reading them, and what all of them together have to be."""

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

from passback.core.events import Logged, Position, Rewound, RunEvent
from passback.core.messages import RunId
from passback.streams.frames import SseFramer
from passback.wire.responses.encoder import DONE, ResponseEncoder, frame_data
from passback.wire.responses.posted import CreateResponse
from passback.wire.responses.request_note import note_of

Json: TypeAlias = dict[str, Any]

RUN_ID = RunId("run_1")
FIELDS = frozenset(
    [
        "id",
        "object",
        "created_at",
        "completed_at",
        "status",
        "incomplete_details",
        "model",
        "previous_response_id",
        "instructions",
        "output",
        "error",
        "tools",
        "tool_choice",
        "truncation",
        "parallel_tool_calls",
        "text",
        "top_p",
        "presence_penalty",
        "frequency_penalty",
        "top_logprobs",
        "temperature",
        "reasoning",
        "usage",
        "max_output_tokens",
        "max_tool_calls",
        "store",
        "background",
        "service_tier",
        "metadata",
        "safety_identifier",
        "prompt_cache_key",
    ]
)
"""The fields that each response has; one of a named conversation has that, too."""

TYPES = frozenset(
    f"response.{each}"
    for each in [
        "created",
        "queued",
        "in_progress",
        "completed",
        "incomplete",
        "failed",
        "output_item.added",
        "output_item.done",
        "content_part.added",
        "content_part.done",
        "output_text.delta",
        "output_text.done",
        "refusal.delta",
        "refusal.done",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "reasoning_summary_part.added",
        "reasoning_summary_part.done",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.done",
        "mcp_call.in_progress",
        "mcp_call.completed",
        "mcp_call.failed",
        "mcp_call_arguments.delta",
        "mcp_call_arguments.done",
    ]
)
"""The events that published clients know. At any other some of them throw."""


def note(**request: Any) -> Json:
    """What is noted of a request with these fields."""
    made = note_of(CreateResponse.model_validate(request), "scripted", None, 1_700_000_000)
    return dict(made)


NOTE = note()


def encoder(after: int = -1, *, run_id: RunId = RUN_ID, **more: Any) -> ResponseEncoder:
    return ResponseEncoder(run_id, more.pop("note", NOTE), after=after, **more)


def framer(one: ResponseEncoder, run_id: RunId = RUN_ID) -> SseFramer:
    return SseFramer(one, run_id, frame=lambda _, data: frame_data(data), remembers=True)


def log_of(*events: RunEvent, epoch: int = 1, first: int = 1) -> list[Logged]:
    return [Logged(Position(epoch, number), event) for number, event in enumerate(events, first)]


def streamed(log: Sequence[Logged], after: int = -1, **more: Any) -> str:
    """Return the stream of a whole log, in one batch."""
    one = framer(encoder(after, **more))
    text = one.frame_batch(log)
    return text if one.ended else text + one.end_frames()


def replayed(log: Sequence[Logged]) -> list[Logged]:
    """Return a log as it is kept after take-overs: without what is void."""
    kept: list[Logged] = []
    for logged in log:
        if isinstance(logged.event, Rewound):
            to = logged.event.to
            kept = [each for each in kept if each.position <= to]
        else:
            kept.append(logged)
    return kept


def frames_of(text: str | bytes) -> list[str]:
    """Return the frames of a stream, without its comments. Each byte has to be in place."""
    whole = text if isinstance(text, str) else text.decode()
    assert whole.endswith("\n\n")
    assert "\r" not in whole
    frames = whole.removesuffix("\n\n").split("\n\n")
    return [each for each in frames if not each.startswith(":")]


def events_of(text: str | bytes) -> list[Json]:
    """Return the events of a stream that ends with `[DONE]`."""
    *frames, last = frames_of(text)
    assert last == f"data: {DONE}"
    return list(map(event_of, frames))


def event_of(frame: str) -> Json:
    kind, data = frame.split("\n")
    event: Json = json.loads(data.removeprefix("data: "))
    assert kind == f"event: {event['type']}"
    assert event["type"] in TYPES
    return event


def play(*events: RunEvent, **more: Any) -> list[Json]:
    """Return the events of a response whose run has these events."""
    return events_of(streamed(log_of(*events), **more))


def types_of(events: Iterable[Json]) -> list[str]:
    return [each["type"].removeprefix("response.") for each in events]


def numbers_of(events: Iterable[Json]) -> list[int]:
    return [each["sequence_number"] for each in events]


# ---------------------------------------------------------------- the sum of a response
class Sum:
    """What the events of a response add up to; an event that is out of place is an error.

    Args:
        gaps: another worker may go on, with higher numbers and without what is void.
    """

    def __init__(self, *, gaps: bool = False) -> None:
        self.items: list[Json] = []
        self.open: int | None = None
        self.final: Json | None = None
        self._gaps = gaps
        self._number = -1
        self._first: Json | None = None
        self._done: list[Json] = []

    def take(self, event: Json) -> None:
        assert self.final is None, "an event behind the last one"
        number, kind = event["sequence_number"], event["type"].removeprefix("response.")
        assert number == self._number + 1 or (self._gaps and number > self._number)
        self._number = number
        if "response" in event:
            self._take_response(kind, event["response"])
        elif kind == "output_item.added":
            self._add(event)
        else:
            assert self.open is not None
            assert event["output_index"] == self.open, "an item begins before another one ends"
            if kind == "output_item.done":
                self._end(event)
            else:
                assert event["item_id"] == self.items[self.open]["id"]
                self._parts()[kind](self.items[self.open], event)

    def _take_response(self, kind: str, response: Json) -> None:
        assert response.keys() - {"conversation"} == FIELDS
        first = self._first
        if first is None:
            assert (kind, self._number) == ("created", 0)
            self._first = response
        else:
            changes = {"status", "output", "usage", "error", "incomplete_details", "completed_at"}
            same = [
                {k: v for k, v in each.items() if k not in changes} for each in (first, response)
            ]
            assert same[0] == same[1]
        if kind in {"completed", "incomplete", "failed"}:
            assert self.open is None
            assert [each for each in self._done if each in response["output"]] == response["output"]
            assert self._gaps or self._done == response["output"]
            self.final = response
        else:
            assert response["usage"] is None

    def _add(self, event: Json) -> None:
        item = event["item"]
        assert (self.open, event["output_index"]) == (None, len(self.items))
        assert self._gaps or item["id"] not in {each["id"] for each in self.items}
        assert item.get("status", "in_progress") == "in_progress"
        self.open = len(self.items)
        self.items.append(dict(item))

    def _end(self, event: Json) -> None:
        assert self.open is not None
        item, done = self.items[self.open], event["item"]
        ends = {"status", "output", "error"}
        assert {k: v for k, v in done.items() if k not in ends} == {
            k: v for k, v in item.items() if k not in ends
        }
        assert done.get("status", "completed") in {"completed", "incomplete", "failed"}
        self._done.append(done)
        self.open = None

    def _parts(self) -> dict[str, Callable[[Json, Json], None]]:
        return {
            "content_part.added": _added("content", "content_index"),
            "output_text.delta": _delta("content", "content_index", "text"),
            "output_text.done": _done("content", "content_index", "text"),
            "refusal.delta": _delta("content", "content_index", "refusal"),
            "refusal.done": _done("content", "content_index", "refusal"),
            "content_part.done": _part_done("content", "content_index"),
            "reasoning_summary_part.added": _added("summary", "summary_index"),
            "reasoning_summary_text.delta": _delta("summary", "summary_index", "text"),
            "reasoning_summary_text.done": _done("summary", "summary_index", "text"),
            "reasoning_summary_part.done": _part_done("summary", "summary_index"),
            "function_call_arguments.delta": _arguments_delta,
            "function_call_arguments.done": _arguments_done,
            "mcp_call_arguments.delta": _arguments_delta,
            "mcp_call_arguments.done": _arguments_done,
            "mcp_call.in_progress": _nothing,
            "mcp_call.completed": _nothing,
            "mcp_call.failed": _nothing,
        }


def _added(name: str, index: str) -> Callable[[Json, Json], None]:
    def take(item: Json, event: Json) -> None:
        assert event[index] == len(item[name]) == 0
        item[name] = [dict(event["part"])]

    return take


def _delta(name: str, index: str, key: str) -> Callable[[Json, Json], None]:
    def take(item: Json, event: Json) -> None:
        item[name][event[index]][key] += event["delta"]

    return take


def _done(name: str, index: str, key: str) -> Callable[[Json, Json], None]:
    def take(item: Json, event: Json) -> None:
        assert item[name][event[index]][key] == event[key]

    return take


def _part_done(name: str, index: str) -> Callable[[Json, Json], None]:
    def take(item: Json, event: Json) -> None:
        assert item[name][event[index]] == event["part"]

    return take


def _arguments_delta(item: Json, event: Json) -> None:
    item["arguments"] += event["delta"]


def _arguments_done(item: Json, event: Json) -> None:
    assert item["arguments"] == event["arguments"]
    assert event.get("name", item["name"]) == item["name"]


def _nothing(_item: Json, _event: Json) -> None:
    pass


def added_up(events: Iterable[Json], *, gaps: bool = False) -> Json:
    """Return the final response of a whole stream, to which all of its events have to add up."""
    one = Sum(gaps=gaps)
    for event in events:
        one.take(event)
    assert one.final is not None
    return one.final


def texts_of(response: Json, kind: str = "output_text") -> list[str]:
    """Return the texts of the messages of a response."""
    parts = [part for each in response["output"] for part in each.get("content", ())]
    return [each.get("text", each.get("refusal")) for each in parts if each["type"] == kind]


def items_of(response: Json) -> list[tuple[str, str]]:
    return [(each["type"], each.get("status", "")) for each in response["output"]]


def broken(text: str) -> Json:
    """Return the error of a call that the server has made."""
    return {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": text}]}
