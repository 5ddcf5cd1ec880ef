"""The Agent API's client side, without the server's code: legal streams, and their content."""

import json
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from tests.support.wire import FrameReader

Json: TypeAlias = dict[str, Any]

ENDS = {"completed", "failed", "canceled", "rejected", "incomplete"}
PATH = "/process"


# ---------------------------------------------------------------- posts
def text(words: str) -> Json:
    return {"type": "text", "text": words}


def user(words: str, **more: Any) -> Json:
    return {"type": "message", "role": "user", "content": [text(words)], **more}


def output(call_id: str, words: object, **more: Any) -> Json:
    data = {"call_id": call_id, "output": words, **more}
    return {
        "type": "function_call_output",
        "role": "tool",
        "content": [{"type": "data", "data": data}],
    }


def decision(call_id: str, approve: object, **more: Any) -> Json:
    data = {"approval_request_id": call_id, "approve": approve, **more}
    return {
        "type": "mcp_approval_response",
        "role": "user",
        "content": [{"type": "data", "data": data}],
    }


def function(name: str, **properties: Json) -> Json:
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    return {
        "type": "function",
        "function": {"name": name, "description": "", "parameters": parameters},
    }


# ---------------------------------------------------------------- responses
def events_of(body: bytes) -> list[Json]:
    """The events of a stream, of which every byte has to be in place."""
    reader = FrameReader()
    events = [frame.event for frame in reader.feed(body)]
    reader.close()
    return events


def check_legal(events: Sequence[Json]) -> Json:
    """Check a whole response: steps in order, one message and part open. Return the last event."""
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    responses = [event["status"] for event in events if event["object"] == "response"]
    first, last = events[0], events[-1]
    assert (first["object"], first["status"]) == ("response", "created")
    assert last["object"] == "response"
    assert responses[-1] in ENDS
    assert responses[1:-1] in (["in_progress"], ["queued", "in_progress"], ["queued"], [])
    assert all(event["id"] == first["id"] for event in events if event["object"] == "response")
    between = [event for event in events if event["object"] != "response"]
    assert last["output"] == _messages(between)
    return last


def _messages(events: Sequence[Json]) -> list[Json]:
    """The completed messages, which came one after the other."""
    ended: list[Json] = []
    message: Json | None = None
    parts: list[Json] = []
    for event in events:
        if event["object"] == "message" and message is None:
            assert event["status"] == "in_progress"
            assert event["id"] not in {each["id"] for each in ended}
            message, parts = event, []
        elif event["object"] == "message":
            assert message is not None
            assert event["status"] in ENDS
            assert (event["id"], event["type"]) == (message["id"], message["type"])
            assert event["content"] == parts
            ended.append(event)
            message = None
        else:
            assert message is not None
            assert (event["msg_id"], event["index"]) == (message["id"], len(parts))
            if event["status"] == "completed":
                parts.append(event)
    assert message is None
    return ended


class Rebuilt:
    """The content as a client has it that appends deltas and replaces everything else."""

    def __init__(self) -> None:
        self.parts: dict[tuple[str, int], Any] = {}
        self.types: dict[str, str] = {}

    def feed(self, events: Iterable[Json]) -> None:
        for event in events:
            if event["object"] == "message":
                self.types[event["id"]] = event["type"]
            if event["object"] != "content":
                continue
            place = event["msg_id"], event["index"]
            if event["type"] == "data":
                assert event["delta"] is False
                self.parts[place] = event["data"]
            elif event["delta"]:
                self.parts[place] = self.parts.get(place, "") + event["text"]
            else:
                assert self.parts.get(place, "") == event["text"], "the whole is what was streamed"

    def joined_text(self, kind: str = "message") -> str:
        return "".join(
            part
            for (message_id, _), part in self.parts.items()
            if self.types[message_id] == kind and isinstance(part, str)
        )


def rebuilt(events: Iterable[Json]) -> Rebuilt:
    client = Rebuilt()
    client.feed(events)
    return client


def bodies(answer: Json, kind: str) -> list[Json]:
    """The data of the messages of a type in a response that has ended."""
    return [each["content"][0]["data"] for each in answer["output"] if each["type"] == kind]


def joined_text(answer: Json, kind: str = "message") -> str:
    return "".join(
        part["text"]
        for message in answer["output"]
        if message["type"] == kind
        for part in message["content"]
        if part["type"] == "text"
    )


def line(event: Json) -> str:
    """Write an event as a line."""
    return json.dumps(event, separators=(",", ":"))
