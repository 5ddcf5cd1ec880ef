"""The published client of OpenAI, driven in a process of its own, and streams of Responses."""

import json
import os
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias

import anyio
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream
from tests.support.programs import missing
from tests.support.server import START_SECONDS

Json: TypeAlias = dict[str, Any]

BASE: Final = "/v1"
PATH: Final = f"{BASE}/responses"
_PROGRAM: Final = Path(__file__).resolve().parents[1] / "e2e" / "openai_client.py"
_MOST_BYTES: Final = 16 * 1024 * 1024  # of a line
_SECONDS: Final = 30  # of one command: a run may be taken over meanwhile
DELTA: Final = "response.output_text.delta"
ENDS: Final = {"response.completed", "response.failed", "response.incomplete"}


def function(name: str, **properties: Json) -> Json:
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    return {"type": "function", "name": name, "description": "", "parameters": parameters}


def output(call_id: str, words: str) -> Json:
    return {"type": "function_call_output", "call_id": call_id, "output": words}


# ---------------------------------------------------------------- the client
class OpenAIClients:
    """Clients of the package in one process of Python."""

    def __init__(self, process: Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._stdin = process.stdin
        self._stdout = BufferedByteReceiveStream(process.stdout)

    async def until_ready(self) -> None:
        """Wait until the package is imported, however busy the machine is."""
        with anyio.fail_after(START_SECONDS):
            assert await self._stdout.receive_until(b"\n", _MOST_BYTES) == b"ready"

    async def command(self, **command: Any) -> Json:
        with anyio.fail_after(_SECONDS):
            await self._stdin.send(f"{json.dumps(command)}\n".encode())
            line = await self._stdout.receive_until(b"\n", _MOST_BYTES)
        shown: Json = json.loads(line)
        return shown


class OpenAIClient:
    """One client: it speaks to one server in one way."""

    def __init__(self, clients: OpenAIClients, url: str, way: str, **options: Any) -> None:
        self._clients = clients
        self._kind = {"url": f"{url}{BASE}", "way": way, "options": options}

    async def ask(self, op: str, **arguments: Any) -> Json:
        return await self._clients.command(op=op, **arguments, **self._kind)

    async def call(self, method: str, *args: Any, **params: Any) -> Json:
        shown = await self.ask("call", method=method, args=args, params=params)
        assert "error" not in shown or "class" not in (shown["error"] or {}), shown
        return shown

    async def create(self, **params: Any) -> Json:
        return await self.call("responses.create", **params)

    async def refused(self, method: str, *args: Any, **params: Any) -> Json:
        """Return the exception of a call."""
        shown = await self.ask("call", method=method, args=args, params=params)
        error: Json = shown["error"]
        return error

    async def events(
        self, response: str | None = None, *, most: int | None = None, **params: Any
    ) -> list[Json]:
        """Read a stream: of a new response, or of one that there is."""
        asked = {"params": {"stream": True, **params}, "response": response, "most": most}
        shown = await self.ask("events", **asked)
        assert "events" in shown, shown
        events: list[Json] = shown["events"]
        return events

    async def begin(self, response: str | None = None, **params: Any) -> list[Json]:
        """Begin to read a stream as `events` does, up to the first text. `rest` reads on."""
        asked = {"params": {"stream": True, **params}, "response": response, "until": DELTA}
        shown = await self.ask("begin", **asked)
        assert "events" in shown, shown
        events: list[Json] = shown["events"]
        return events

    async def rest(self) -> tuple[list[Json], str | None]:
        """Read on to the end of that stream. Return the events, and the exception that broke it."""
        shown = await self.ask("rest")
        return shown["events"], shown["broken"]


@asynccontextmanager
async def openai_clients() -> AsyncGenerator[OpenAIClients]:
    """Run the published package."""
    # the environment of this judge has the package, too
    python = os.environ.get("TEST_AGENTSCOPE") or missing("openai")
    environment = {**os.environ, "NO_PROXY": "*"}
    async with await anyio.open_process(
        [python, str(_PROGRAM)], env=environment, stderr=None
    ) as process:
        try:
            clients = OpenAIClients(process)
            await clients.until_ready()
            yield clients
        finally:
            process.kill()


# ---------------------------------------------------------------- streams
_FRAME: Final = re.compile(rb"event: (?P<type>[\w.]+)\ndata: (?P<data>[^\n]+)\n\n")
_OTHER: Final = re.compile(rb"(?::[^\n]*\n\n|retry: \d+\n\n)*")


def data_of(body: bytes) -> list[str]:
    """Return what the frames of a stream have, whose every byte has to be in place."""
    done = b"data: [DONE]\n\n"
    assert body.endswith(done)
    body, found = body.removesuffix(done), []
    while body := body[_OTHER.match(body).end() :]:  # type: ignore[union-attr]  # it may be empty
        frame = _FRAME.match(body)
        assert frame, f"not a frame: {body[:200]!r}"
        found.append(frame["data"].decode())
        assert json.loads(found[-1])["type"] == frame["type"].decode()
        body = body[frame.end() :]
    return [*found, "[DONE]"]


def check_legal(events: Sequence[Json], *, first: int = 0) -> Json:
    """Check a whole stream: numbers without gaps, items in order, the sums. Return the response."""
    numbers = [each["sequence_number"] for each in events]
    assert numbers == list(range(first, first + len(events)))
    assert events[0]["type"] == "response.created"
    assert [each["type"] for each in events if each["type"] in ENDS] == [events[-1]["type"]]
    response: Json = events[-1]["response"]
    assert {each["response"]["id"] for each in events if "response" in each} == {response["id"]}
    assert done_items(events) == response["output"]
    for index, item in enumerate(response["output"]):
        _check_item([each for each in events if each.get("output_index") == index], item)
    return response


def done_items(events: Sequence[Json]) -> list[Json]:
    return [each["item"] for each in events if each["type"] == "response.output_item.done"]


def _check_item(events: Sequence[Json], item: Json) -> None:
    added, *inner, done = events
    assert (added["type"], done["type"]) == (
        *("response.output_item.added", "response.output_item.done"),
    )
    assert {each["item_id"] for each in inner} <= {item["id"]}
    assert (added["item"]["id"], added["item"]["type"]) == (item["id"], item["type"])
    kind = item["type"]
    said = "".join(each["delta"] for each in inner if each["type"].endswith(".delta"))
    if kind == "message":
        assert said == text_of(item)
    elif kind == "reasoning":
        assert said == "".join(each["text"] for each in item["summary"])
    elif kind in {"function_call", "mcp_call"}:
        assert (added["item"]["arguments"], said) == ("", item["arguments"])


def text_of(item: Json) -> str:
    return "".join(each.get("text") or each.get("refusal") or "" for each in item["content"])


def texts(response: Mapping[str, Any]) -> list[str]:
    return [text_of(each) for each in response["output"] if each["type"] == "message"]


def of_type(response: Mapping[str, Any], kind: str) -> list[Json]:
    return [each for each in response["output"] if each["type"] == kind]
