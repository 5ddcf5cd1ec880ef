"""The published client of AG-UI, npm `@ag-ui/client`, in a Node.js that does as a test says.

It keeps the messages and verifies each stream. Its requests go to a server, or to a function of the
test (`bridge`).
"""

import json
import subprocess
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, TypeAlias, cast

import anyio
import anyio.to_thread
from tests.support.programs import missing, program

Json: TypeAlias = dict[str, Any]
Bridge: TypeAlias = Callable[[Json], Awaitable[tuple[int, str, str]]]
"""Answers a request with its status, its media type and its body."""

FOLDER = Path(__file__).resolve().parents[1] / "js"
SECONDS = 30

_ids = count(1)


def user(text: object, message_id: str = "") -> Json:
    """Return a new message of the user, as the client would make it; JSON if it is no text."""
    content = text if isinstance(text, str) else json.dumps(text)
    return {"id": message_id or f"user-{next(_ids)}", "role": "user", "content": content}


def result(call_id: str, content: str = "done", **fields: Any) -> Json:
    named = {"id": f"result-{next(_ids)}", "toolCallId": call_id}
    return {**named, "role": "tool", "content": content, **fields}


@dataclass(frozen=True, slots=True)
class Seen:
    """What the client saw of one run."""

    report: Json

    @property
    def types(self) -> list[str]:
        return [each["type"] for each in self.report["events"]]

    @property
    def end(self) -> Json:
        return cast("Json", self.report["end"])

    @property
    def messages(self) -> list[Json]:
        return cast("list[Json]", self.report["messages"])

    @property
    def text(self) -> str:
        """The text of the run's agent, without that of sub-agents."""
        return "".join(
            each["delta"] for each in self.of("TEXT_MESSAGE_CONTENT") if "subagentRunId" not in each
        )

    def of(self, kind: str) -> list[Json]:
        return [each for each in self.report["events"] if each["type"] == kind]

    def check_accepted(self) -> "Seen":
        """Fail if the client refused the stream, or warned about anything in it."""
        error, warnings = self.report["error"], self.report["warnings"]
        assert (error, warnings) == (None, []), (error, warnings, self.types)
        return self


@dataclass(eq=False, slots=True)
class AgUiClient:
    process: "subprocess.Popen[str]"
    bridge: Bridge | None = None
    thread: str = ""
    posts: list[Json] = field(default_factory=list[Json])

    async def open(self, thread: str, url: str = "", *, bridge: Bridge | None = None) -> None:
        """Begin a new client of a thread, without messages."""
        self.thread, self.bridge, self.posts = thread, bridge, []
        order: Json = {"threadId": thread, "url": url or "http://bridge/", "headers": {}}
        await self._order("open", **order, bridged=bridge is not None)

    async def set_messages(self, *messages: Json) -> None:
        await self._order("set", messages=list(messages))

    async def run(self, *messages: Json, parameters: Json | None = None, **order: Any) -> Seen:
        """Add messages, run the agent and return what the client saw."""
        done = await self._order(
            "run", messages=list(messages), parameters=parameters or {}, **order
        )
        return Seen(done)

    async def _order(self, op: str, **fields: Any) -> Any:
        with anyio.fail_after(SECONDS):
            await self._write({"op": op, **fields})
            while True:
                line = await anyio.to_thread.run_sync(self._read, abandon_on_cancel=True)
                said = json.loads(line)
                if "done" in said:
                    return said["done"]
                assert self.bridge is not None
                self.posts.append(said["post"])
                status, media_type, body = await self.bridge(said["post"])
                await self._write({"status": status, "type": media_type, "body": body})

    async def _write(self, value: Json) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{json.dumps(value)}\n")
        self.process.stdin.flush()

    def _read(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()


OLDER = "@ag-ui/client-0"
"""The package of a client from before AG-UI 1.0."""


@asynccontextmanager
async def ag_ui_client(package: str = "@ag-ui/client") -> AsyncGenerator[AgUiClient]:
    """Start the client; yield it, without a thread."""
    process = _start(package)
    with process:
        try:
            yield AgUiClient(process)
        finally:
            process.kill()


def _start(package: str) -> "subprocess.Popen[str]":
    node = program("node", variable="TEST_NODE")
    if not (FOLDER / "node_modules" / package).exists():
        missing(f"{package} in tests/js/node_modules")
    return subprocess.Popen(
        [node, str(FOLDER / "ag-ui.mjs"), package],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    )
