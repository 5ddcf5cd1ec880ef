"""What the tests of the Python client share."""

import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

import httpx
from tests.support.scripted_http import DONE, stream
from tests.support.wire import Client as RawClient

from passback_client import (
    Event,
    Retry,
    Stream,
    Text,
)

QUICK = Retry(attempts=10, first=0.01, longest=0.05)
BRISK = Retry(attempts=10, first=0.01, longest=0.05, claim=1)
"""Its claims are renewed three times a second."""

# ---------------------------------------------------------------- what a scripted server says
PAINT = {"id": "call", "name": "paint", "arguments": "{}", "kind": "tool_result"}
IDLE: dict[str, Any] = {
    "id": "c",
    "running": None,
    "queued": [],
    "owed": [],
    "messageCount": 0,
    "runId": None,
}


def owes(*calls: dict[str, str], run: str | None = "run") -> httpx.Response:
    """The end of a run that hands these calls back; without a run: what is left after some results."""
    data = json.dumps({"type": "owed", "toolCalls": calls}).encode()
    place = b"" if run is None else f"id: {run}.1-9\n".encode()
    return stream(place + b"data: " + data + b"\n\n", DONE, run=run)


# ---------------------------------------------------------------- what the puppet does
def order(*calls: Sequence[str]) -> str:
    """Makes the agent call these tools; to their results it says "Done."."""
    return json.dumps({"calls": calls})


# ---------------------------------------------------------------- what came of it
async def results_of(raw: RawClient, conversation: str) -> list[tuple[object, bool]]:
    """Content of the results in the history, and whether they are errors."""
    kept = await raw.messages(conversation)
    return [(m["content"], m.get("isError", False)) for m in kept if m["role"] == "tool"]


def kinds(events: list[Event]) -> list[str]:
    """Neighbours of one kind counted once: how a text is cut into pieces may differ."""
    names = [type(event).__name__ for event in events]
    return [name for name, before in zip(names, ["", *names], strict=False) if name != before]


def joined(events: list[Event]) -> str:
    return "".join(event.content for event in events if isinstance(event, Text))


async def until_text(events: AsyncIterator[Event]) -> None:
    async for event in events:
        if isinstance(event, Text):
            return
    raise AssertionError("no text came")


async def collect(stream: Stream, told: list[Event]) -> None:
    async with stream:
        told.extend([event async for event in stream])


def of_kind(events: Sequence[Event], kind: type[Any]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


async def answers_in(raw: RawClient, conversation: str) -> list[tuple[str, object]]:
    """What was decided and what tools gave."""
    kept = await raw.messages(conversation)
    return [
        (each["role"], each.get("content", each.get("approved")))
        for each in kept
        if each["role"] in {"approval", "tool"}
    ]
