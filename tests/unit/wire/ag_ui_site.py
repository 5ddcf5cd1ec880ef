"""A site with `/ag-ui`, and the requests of its clients without a socket."""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any, TypeAlias

import anyio
import httpx
from starlette.types import ASGIApp
from tests.support.asgi_client import SECONDS, Answer, ask_json

from passback import Agent
from passback.core.runs import Runs
from passback.core.signals import Signal
from passback.http.gate import Access
from passback.http.site import build_site
from passback.http.wires import Services
from passback.testing import serve_in_memory
from passback.wire.ag_ui import build

Json: TypeAlias = dict[str, Any]

PATH = "/ag-ui"
HEADERS = {"accept": "text/event-stream"}

_runs = count(1)


def site(runs: Runs, **settings: Any) -> ASGIApp:
    return build_site([build(Services(runs, Signal(), **settings))], Access())


def posted(*messages: Json, thread: str = "c", **fields: Any) -> Json:
    """Return a request with all fields that the published client sends."""
    return {
        "threadId": thread,
        "runId": f"run-{next(_runs)}",
        "protocolVersion": "1.0",
        "tools": [],
        "context": [],
        "forwardedProps": {},
        "state": {},
        "messages": list(messages),
        **fields,
    }


def user(text: object, message_id: str = "u1") -> Json:
    return {"id": message_id, "role": "user", "content": text}


def assistant(message_id: str, text: str = "hi", *calls: str, **fields: Any) -> Json:
    made = [
        {"id": each, "type": "function", "function": {"name": "paint", "arguments": "{}"}}
        for each in calls
    ]
    said = {"id": message_id, "role": "assistant", "content": text, **fields}
    return {**said, "toolCalls": made} if made else said


def tool_result(
    call_id: str, content: object = "done", message_id: str = "", **fields: Any
) -> Json:
    named = {"id": message_id or f"result-{call_id}", "toolCallId": call_id}
    return {**named, "role": "tool", "content": content, **fields}


async def post(runs: Runs, value: object, path: str = PATH, **settings: Any) -> Answer:
    return await ask_json(site(runs, **settings), "POST", path, value, headers=HEADERS)


def events_of(body: bytes | str) -> list[Json]:
    """Return the events of a stream, each in a frame with one line of data."""
    text = body if isinstance(body, str) else body.decode()
    frames = [each for each in text.split("\n\n") if each and not each.startswith(":")]
    return [json.loads(each.rpartition("data: ")[2]) for each in frames if "data: " in each]


def types_of(events: Sequence[Json]) -> list[str]:
    return [each["type"] for each in events]


@dataclass(slots=True)
class Reading:
    """A stream that is read; `events` are those read so far."""

    lines: AsyncIterator[str]
    events: list[Json] = field(default_factory=list[Json])

    async def until(self, kind: str) -> Json:
        """Read on to the next event of a type, and return it."""
        with anyio.fail_after(SECONDS):
            async for line in self.lines:
                if line.startswith("data: "):
                    self.events.append(json.loads(line[6:]))
                    if self.events[-1]["type"] == kind:
                        return self.events[-1]
        raise AssertionError(f"no {kind} in {types_of(self.events)}")


class Thread:
    """A client of one thread over HTTP, which posts what a test says, and no more."""

    def __init__(self, client: httpx.AsyncClient, thread: str = "c", path: str = PATH) -> None:
        self.client, self.thread, self.path = client, thread, path
        self.answer: httpx.Response | None = None

    async def post(self, *messages: Json, **fields: Any) -> list[Json]:
        """Post messages; return the events of the answer."""
        headers = {**HEADERS, **fields.pop("headers", {})}
        body = posted(*messages, thread=self.thread, **fields)
        self.answer = await self.client.post(self.path, json=body, headers=headers)
        assert self.answer.status_code == 200, self.answer.text
        return events_of(self.answer.text)

    @asynccontextmanager
    async def stream(self, *messages: Json, **fields: Any) -> AsyncGenerator["Reading"]:
        """Post messages, and read the answer event by event."""
        body = posted(*messages, thread=self.thread, **fields)
        async with self.client.stream("POST", self.path, json=body, headers=HEADERS) as answer:
            yield Reading(answer.aiter_lines())

    async def refusal(self, *messages: Json, **fields: Any) -> tuple[int, str, str]:
        """Post messages that are refused; return status, code and message."""
        body = posted(*messages, thread=self.thread, **fields)
        self.answer = await self.client.post(self.path, json=body, headers=HEADERS)
        error = self.answer.json()
        return self.answer.status_code, error["code"], error["message"]

    async def recorded(self) -> list[Json]:
        """Return the messages of the branch that is read."""
        page = await self.client.get(f"/conversations/{self.thread}/messages?limit=1000")
        messages: list[Json] = page.json()["messages"]
        return messages

    async def texts(self) -> list[str]:
        return [str(each.get("content", "")) for each in await self.recorded()]

    async def status(self) -> Json:
        shown: Json = (await self.client.get(f"/conversations/{self.thread}")).json()
        return shown


@asynccontextmanager
async def threads(*agents: Agent, **settings: str) -> AsyncGenerator[httpx.AsyncClient]:
    """Serve agents without a socket, with all wires; yield a client."""
    async with (
        serve_in_memory(*agents, settings=settings) as transport,
        httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client,
    ):
        yield client


def message_of(events: Sequence[Json]) -> Json:
    """Return the message that a client makes of the first text of a stream."""
    start = next(each for each in events if each["type"] == "TEXT_MESSAGE_START")
    name = start["messageId"]
    text = [
        each["delta"]
        for each in events
        if each["type"] == "TEXT_MESSAGE_CONTENT" and each["messageId"] == name
    ]
    return assistant(name, "".join(text))


def call_of(events: Sequence[Json]) -> Json:
    """Return the message that a client makes of the first call of a stream."""
    start = next(each for each in events if each["type"] == "TOOL_CALL_START")
    return assistant(start["parentMessageId"], "", start["toolCallId"])
