"""An editor for tests: it starts `passback acp` and speaks the protocol with it, line by line.

It can send any bytes, keeps every frame of both directions in order, and answers what the agent
asks by handlers. Leaving `running_editor` checks each frame that the agent has sent by the schema
of the published npm package, and their order.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, TypeAlias

import anyio
import anyio.abc
import anyio.lowlevel
from tests.support.acp_order import Frame, order_faults
from tests.support.acp_schema import Json, faults_of
from tests.support.forked import Output, fork

ROOT = Path(__file__).parents[2]
SECONDS = 30
"""Bound of each wait, on a machine that is busy with other work, too."""
_WHOLE_LINE = 64 * 1024 * 1024  # bytes

Handler: TypeAlias = Callable[[Json], Awaitable[Json]]

ALL_CAPABILITIES: Json = {
    "fs": {"readTextFile": True, "writeTextFile": True},
    "terminal": True,
    "elicitation": {"form": {}, "url": {}},
    "session": {"notices": {}, "compaction": {}, "configOptions": {"boolean": {}}},
}


class AcpError(Exception):
    """An error in an answer: of the agent, or of a handler that refuses."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.data = data


class AgentEnded(Exception):
    """The agent's process ended before it answered."""


class Editor:
    """The client's side of one connection.

    Attributes:
        frames: what went through the connection, in the order in which the editor sent and read it.
        handlers: what answers the agent's requests, by method. Without one, the answer is -32601.
        has_ended: set when the agent has closed its output.
    """

    def __init__(self, process: anyio.abc.Process, tasks: anyio.abc.TaskGroup) -> None:
        self.process = process
        self.frames: list[Frame] = []
        self.handlers: dict[str, Handler] = {"session/request_permission": choose("allow_once")}
        self.has_ended = anyio.Event()
        self._faults: list[str] = []
        self._told: set[str] = set()
        self._tasks = tasks
        self._news = anyio.Event()
        self._methods: dict[Any, str] = {}
        self._answers: dict[Any, Json] = {}
        self._handling: dict[Any, tuple[Json, anyio.CancelScope]] = {}
        self._sending = anyio.Lock()
        self._next_id = 0
        self._is_killed = False

    # ------------------------------------------------------------ sending
    async def send_bytes(self, data: bytes) -> None:
        """Send bytes as they are, which no frame is kept of.

        Raises:
            anyio.BrokenResourceError: the agent reads no more.
        """
        assert self.process.stdin is not None
        with anyio.fail_after(SECONDS):
            async with self._sending:
                await self.process.stdin.send(data)

    async def send(self, message: Any) -> None:
        """Send one frame, of whatever form."""
        self.note(message)
        await self.send_bytes(json.dumps(message).encode() + b"\n")

    def note(self, message: Any) -> None:
        """Take a frame as sent, before its bytes are sent in a way of the test's own."""
        if isinstance(message, dict) and "id" in message and "method" in message:
            with suppress(TypeError):  # an id that is wrong on purpose
                self._methods[message["id"]] = str(message["method"])
        self.frames.append(Frame(is_sent=True, message=message))

    async def notify(self, method: str, /, **params: Any) -> None:
        await self.send({"jsonrpc": "2.0", "method": method, "params": params})

    async def begin(self, method: str, /, **params: Any) -> int:
        """Send a request, and return its id."""
        self._next_id += 1
        key = self._next_id
        await self.send({"jsonrpc": "2.0", "id": key, "method": method, "params": params})
        return key

    async def result(self, key: Any) -> Json:
        """Wait for the answer to a request.

        Raises:
            AcpError: it is an error.
            AgentEnded: none comes any more.
            TimeoutError: none came in time.
        """
        answer = await self.answer(key)
        if "error" in answer:
            error = answer["error"]
            raise AcpError(error["code"], error["message"], error.get("data"))
        result: Json = answer["result"]
        return result

    async def answer(self, key: Any) -> Json:
        """Wait for the whole answer to a request, an error or not; raises as `result`."""
        await self.wait_for(lambda: key in self._answers)
        return self._answers[key]

    def is_answered(self, key: Any) -> bool:
        return key in self._answers

    async def request(self, method: str, /, **params: Any) -> Json:
        """Send a request and wait for its result; raises as `result`."""
        return await self.result(await self.begin(method, **params))

    # ------------------------------------------------------------ what editors do
    async def open(self, capabilities: Json = ALL_CAPABILITIES, **more: Any) -> Json:
        """Initialize the connection."""
        info = {"name": "editor", "title": "An editor for tests", "version": "1"}
        return await self.request(
            "initialize",
            **{
                "protocolVersion": 1,
                "clientCapabilities": capabilities,
                "clientInfo": info,
                **more,
            },
        )

    async def new_session(self, cwd: Path | str, **more: Any) -> str:
        asked = {"cwd": str(cwd), "mcpServers": [], **more}
        made = await self.request("session/new", **asked)
        session: str = made["sessionId"]
        return session

    async def begin_prompt(self, session: str, *blocks: Json | str) -> int:
        """Send a prompt, of texts and other blocks, and return the request's id."""
        content = [each if isinstance(each, dict) else text_block(each) for each in blocks]
        return await self.begin("session/prompt", sessionId=session, prompt=content)

    async def stop_reason(self, key: int) -> str:
        reason: str = (await self.result(key))["stopReason"]
        return reason

    async def prompt(self, session: str, *blocks: Json | str) -> str:
        """Prompt, and return the stop reason."""
        return await self.stop_reason(await self.begin_prompt(session, *blocks))

    async def cancel(self, session: str) -> None:
        """Cancel, and answer the permissions that the agent asks for with `cancelled`."""
        await self.notify("session/cancel", sessionId=session)
        for message, scope in list(self._handling.values()):
            is_of_session = message["params"].get("sessionId") == session
            if is_of_session and message["method"] == "session/request_permission":
                scope.cancel()

    # ------------------------------------------------------------ what came
    def since(self, start: int = 0) -> list[Json]:
        """Return the frames that the agent has sent, from a place in `frames` on."""
        return [frame.message for frame in self.frames[start:] if not frame.is_sent]

    def updates(self, session: str, start: int = 0) -> list[Json]:
        """Return a session's updates, from a place in `frames` on."""
        return [
            each["params"]["update"]
            for each in self.since(start)
            if each.get("method") == "session/update" and each["params"]["sessionId"] == session
        ]

    def asked(self, method: str, start: int = 0) -> list[Json]:
        """Return the parameters of the agent's requests for this method."""
        return [each["params"] for each in self.since(start) if each.get("method") == method]

    async def update(self, session: str, kind: str, /, *, start: int = 0, **fields: Any) -> Json:
        """Wait for an update of this kind with these fields."""

        def found() -> list[Json]:
            return [
                each
                for each in self.updates(session, start)
                if each["sessionUpdate"] == kind and fields.items() <= each.items()
            ]

        await self.wait_for(lambda: bool(found()))
        return found()[0]

    async def wait_for(self, holds: Callable[[], bool]) -> None:
        """Wait until something holds, which only frames of the agent can change."""
        with anyio.fail_after(SECONDS):
            while not holds():
                if self.has_ended.is_set():
                    raise AgentEnded
                await self._news.wait()

    # ------------------------------------------------------------ reading
    async def read(self) -> None:
        """Read frames until the agent closes its output."""
        assert self.process.stdout is not None
        rest = bytearray()
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            async for chunk in self.process.stdout:
                rest += chunk
                *lines, last = rest.split(b"\n") if b"\n" in chunk else [rest]
                rest = bytearray(last)
                assert len(rest) < _WHOLE_LINE
                for line in lines:
                    self._take(bytes(line))
        if rest and not self._is_killed:
            self._faults.append(f"ends in the middle of a line: {bytes(rest[:200])!r}")
        self.has_ended.set()
        self._announce()

    def _take(self, line: bytes) -> None:
        try:
            message = json.loads(line.decode())
        except ValueError:
            self._faults.append(f"sends what is no JSON: {line[:200]!r}")
            self.frames.append(Frame(is_sent=False, message=line))
            return
        self.frames.append(Frame(is_sent=False, message=message))
        number = len(self.frames) - 1
        asked = None
        if isinstance(message, dict) and "method" not in message:
            key = message.get("id")
            asked = self._methods.get(key) if isinstance(key, (int, str)) else None
            self._answers[key] = message
        self._faults += [f"frame {number}: {fault}" for fault in faults_of(message, asked)]
        if isinstance(message, dict) and "method" in message:
            self._serve(message)
        self._announce()

    def _serve(self, message: Json) -> None:
        if message["method"] == "$/cancel_request":
            _, scope = self._handling.get(message["params"]["requestId"], (None, None))
            if scope is not None:
                scope.cancel()
        elif "id" in message:
            scope = anyio.CancelScope()
            self._handling[message["id"]] = (message, scope)
            self._tasks.start_soon(self._handle, message, scope)

    async def _handle(self, message: Json, scope: anyio.CancelScope) -> None:
        """Answer one request of the agent. Cancelled: as the protocol wants it of a client."""
        method, key = message["method"], message["id"]
        answer: Json = {"error": {"code": -32800, "message": "Cancelled"}}
        if method == "session/request_permission":
            answer = {"result": {"outcome": {"outcome": "cancelled"}}}
        with scope:
            handler = self.handlers.get(method)
            try:
                if handler is None:
                    raise AcpError(-32601, f"There is no method {method}")
                answer = {"result": await handler(message["params"])}
            except AcpError as error:
                answer = {"error": {"code": error.code, "message": error.message}}
        del self._handling[key]
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            await self.send({"jsonrpc": "2.0", "id": key, **answer})

    def _announce(self) -> None:
        news, self._news = self._news, anyio.Event()
        news.set()

    # ------------------------------------------------------------ the end
    def check(self) -> None:
        """Check each frame so far.

        Raises:
            AssertionError: one is not valid, or out of order; each is told once.
        """
        found = [*self._faults, *order_faults(self.frames)]
        faults = [fault for fault in found if fault not in self._told]
        self._told.update(faults)
        assert faults == [], "\n".join([*faults, *(f"{n} {each}" for n, each in self._shown())])

    def _shown(self) -> list[tuple[int, str]]:
        last = list(enumerate(self.frames))[-40:]
        return [(n, f"{'>' if each.is_sent else '<'} {each.message!s:.400}") for n, each in last]

    async def close(self) -> int:
        """Close the agent's input, and return its exit code."""
        assert self.process.stdin is not None
        with anyio.fail_after(SECONDS):
            await self.process.stdin.aclose()
            await self.has_ended.wait()
            return await self.process.wait()

    async def kill(self) -> None:
        """End the agent as a crash would, and wait for its end."""
        self._is_killed = True
        self.process.send_signal(signal.SIGKILL)
        with anyio.fail_after(SECONDS):
            await self.has_ended.wait()
            await self.process.wait()


# ---------------------------------------------------------------- handlers and blocks
def choose(kind: str) -> Handler:
    """Return a handler of permissions that takes the first option of a kind."""

    async def answer(params: Json) -> Json:
        await anyio.lowlevel.checkpoint()
        chosen = [each["optionId"] for each in params["options"] if each["kind"] == kind]
        return {"outcome": {"outcome": "selected", "optionId": chosen[0]}}

    return answer


async def never(_: Json) -> Json:
    """Leave a request unanswered until it is cancelled."""
    await anyio.sleep_forever()
    return {}


def text_block(text: str) -> Json:
    return {"type": "text", "text": text}


def joined_text(updates: list[Json], kind: str = "agent_message_chunk") -> str:
    """Return the text of all chunks of a kind."""
    return "".join(
        each["content"]["text"]
        for each in updates
        if each["sessionUpdate"] == kind and each["content"]["type"] == "text"
    )


# ---------------------------------------------------------------- the process
def acp_environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the variables of a process: those of this one without its settings, and these."""
    inherited = {
        name: text for name, text in os.environ.items() if not name.startswith("PASSBACK_")
    }
    return {**inherited, "PYTHONPATH": str(ROOT), **(more or {})}


def acp_command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "passback", "acp", *arguments]


@asynccontextmanager
async def running_editor(
    *arguments: str,
    cwd: Path,
    environment: Mapping[str, str] | None = None,
    stderr: Output = None,
) -> AsyncGenerator[Editor]:
    """Start an agent, and check on leaving that it ends by itself and made no mistake.

    Args:
        arguments: of `passback acp`.
        cwd: where the process is started.
        environment: settings of the agent, beside the variables of this process.
        stderr: where its log goes, as for `subprocess`; None: to that of the tests.

    Raises:
        AssertionError: a frame was not valid or out of order, or the exit code was not 0.
    """
    process = fork(
        "passback",
        ["acp", *arguments],
        env=acp_environment(environment),
        cwd=str(cwd),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
    )
    try:
        async with anyio.create_task_group() as tasks:
            editor = Editor(process, tasks)
            tasks.start_soon(editor.read)
            yield editor
            if process.returncode is None:
                code = await editor.close()
                assert code == 0, f"passback acp ended with {code}"
            tasks.cancel_scope.cancel()
        editor.check()
    finally:
        if process.returncode is None:
            process.kill()
        with anyio.CancelScope(shield=True), anyio.move_on_after(SECONDS):
            await process.wait()
            await process.aclose()
