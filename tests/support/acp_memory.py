"""An editor in the process of the test: the other end of the channel that `serve_client` serves.

Leaving `memory_editor` checks the order of all frames that the agent has sent.
"""

import json
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any, cast

import anyio
import anyio.abc
from tests.support.acp_editor import ALL_CAPABILITIES, AcpError, Handler, choose, text_block
from tests.support.acp_order import Frame, order_faults
from tests.support.acp_schema import Json
from tests.support.acp_workspace import Workspace
from tests.support.waiting import wait_until

from passback.agent import Agent
from passback.core.messages import (
    UNNAMED,
    ConversationId,
    ConversationKey,
    OwnerId,
    PostedMessage,
    RunRef,
    ToolMessage,
    ToolSpec,
    UserMessage,
)
from passback.core.posts import Parked, StartRun
from passback.core.runs import Runs
from passback.http.gate import ANONYMOUS
from passback.models.scripted import ScriptedModel, Turn
from passback.services import WorkerServices
from passback.session import ContextHolder
from passback.settings import load_settings
from passback.wire.acp import AcpSettings, serve_client

FOLDER = "/srv/project"


class MemoryChannel:
    """A channel without a process: frames of the agent go to `editor`, those of the editor wait."""

    stopping = False

    def __init__(self, editor: "MemoryEditor", owner: OwnerId | None) -> None:
        self.owner = owner
        self._editor = editor
        self._frames: deque[str | bytes | None] = deque()
        self._news = anyio.Event()

    def put(self, frame: str | bytes | None) -> None:
        """Let the agent read a frame of the editor; None: the editor leaves."""
        self._frames.append(frame)
        self._news.set()

    def send(self, text: str) -> None:
        self._editor.take(text)

    async def receive(self) -> str | bytes | None:
        while not self._frames:
            self._news = anyio.Event()
            await self._news.wait()
        return self._frames.popleft()

    async def wait_until_sent(self) -> None:
        """Do nothing: the editor has read what was sent."""


class MemoryEditor:
    """The client's side of one connection.

    Attributes:
        worker: what serves it.
        frames: what went through the connection, in order.
        handlers: what answers the agent's requests, by method. Without one, the answer is -32601.
        workspace: the files, terminals and tools behind the usual handlers.
        session: the one that `new_session` made last.
        withdrawn: methods of requests that the agent has taken back.
        hooks, verbs: of the runs behind it (`HookedRuns`).
        failures: of handlers, which are none of the agent's.
        is_checked: the order of frames is checked. Not where the test breaks it, or where what
            another client has begun is shown.
    """

    def __init__(
        self, worker: WorkerServices, tasks: anyio.abc.TaskGroup, owner: OwnerId | None
    ) -> None:
        self.worker = worker
        self.channel = MemoryChannel(self, owner)
        self.frames: list[Frame] = []
        self.workspace = Workspace()
        self.handlers: dict[str, Handler] = {
            **self.workspace.handlers(),
            "session/request_permission": choose("allow_once"),
        }
        self.session = ""
        self.withdrawn: list[str] = []
        self.hooks: dict[str, Callable[[], Awaitable[object]]] = {}
        self.verbs: dict[str, Callable[..., Any]] = {}
        self.failures: list[Exception] = []
        self.is_checked = True
        self._tasks = tasks
        self._answers: dict[Any, Json] = {}
        self._handling: dict[Any, tuple[str, anyio.CancelScope]] = {}

    # ------------------------------------------------------------ sending
    def send(self, message: Json) -> None:
        self.frames.append(Frame(is_sent=True, message=message))
        self.channel.put(json.dumps(message))

    def notify(self, method: str, /, **params: Any) -> None:
        self.send({"jsonrpc": "2.0", "method": method, "params": params})

    def begin(self, method: str, /, **params: Any) -> int:
        """Send a request, and return its id."""
        key = len(self.frames)
        self.send({"jsonrpc": "2.0", "id": key, "method": method, "params": params})
        return key

    async def result(self, key: Any) -> Any:
        """Return the result of a request. Raises AcpError if it is refused."""
        await wait_until(lambda: key in self._answers)
        answer = self._answers[key]
        if "error" in answer:
            error = answer["error"]
            raise AcpError(error["code"], error["message"], error.get("data"))
        return answer["result"]

    def is_answered(self, key: Any) -> bool:
        return key in self._answers

    async def request(self, method: str, /, **params: Any) -> Any:
        return await self.result(self.begin(method, **params))

    async def refusal(self, method: str, /, **params: Any) -> AcpError:
        """Send a request that is refused, and return the error."""
        try:
            result = await self.request(method, **params)
        except AcpError as error:
            return error
        raise AssertionError(f"{method} is not refused: {result}")

    # ------------------------------------------------------------ what editors do
    async def open(self, capabilities: Json = ALL_CAPABILITIES) -> Json:
        """Initialize the connection."""
        answer: Json = await self.request(
            "initialize", protocolVersion=1, clientCapabilities=capabilities
        )
        return answer

    async def new_session(self, **more: Any) -> str:
        made = await self.request("session/new", **{"cwd": FOLDER, "mcpServers": [], **more})
        self.session = made["sessionId"]
        return self.session

    async def load(self, session: str = "", **more: Any) -> Json:
        self.session = session or self.session
        given = {"sessionId": self.session, "cwd": FOLDER, "mcpServers": [], **more}
        answer: Json = await self.request("session/load", **given)
        return answer

    def begin_prompt(self, *blocks: Json | str, session: str = "") -> int:
        content = [each if isinstance(each, dict) else text_block(each) for each in blocks]
        return self.begin("session/prompt", sessionId=session or self.session, prompt=content)

    async def stop_reason(self, key: int) -> str:
        reason: str = (await self.result(key))["stopReason"]
        return reason

    async def prompt(self, *blocks: Json | str) -> str:
        """Prompt, and return the stop reason."""
        return await self.stop_reason(self.begin_prompt(*blocks))

    async def refusal_of_prompt(self, *blocks: Json | str) -> AcpError:
        """Send a prompt that is refused, and return the error."""
        try:
            reason = await self.prompt(*blocks or ("Hello",))
        except AcpError as error:
            return error
        raise AssertionError(f"the prompt is not refused: {reason}")

    def cancel(self) -> None:
        self.notify("session/cancel", sessionId=self.session)

    def leave(self) -> None:
        self.channel.put(None)

    # ------------------------------------------------------------ what came
    def take(self, text: str) -> None:
        """Read a frame of the agent."""
        message = json.loads(text)
        self.frames.append(Frame(is_sent=False, message=message))
        if "method" not in message:
            assert message["id"] not in self._answers, "a request is answered twice"
            self._answers[message["id"]] = message
        elif message["method"] == "$/cancel_request":
            method, scope = self._handling[message["params"]["requestId"]]
            self.withdrawn.append(method)
            scope.cancel()
        elif "id" in message:
            scope = anyio.CancelScope()
            self._handling[message["id"]] = (message["method"], scope)
            self._tasks.start_soon(self._handle, message, scope)

    async def _handle(self, message: Json, scope: anyio.CancelScope) -> None:
        answer: Json = {"error": {"code": -32800, "message": "Cancelled"}}
        with scope:
            try:
                handler = self.handlers.get(message["method"])
                if handler is None:
                    raise AcpError(-32601, "There is no such method")
                answer = {"result": await handler(message["params"])}
            except AcpError as error:
                answer = {"error": {"code": error.code, "message": error.message}}
            except (AssertionError, LookupError) as error:  # of the test: it is told at the end
                self.failures.append(error)
        self.send({"jsonrpc": "2.0", "id": message["id"], **answer})

    def updates(self, start: int = 0, session: str = "") -> list[Json]:
        """Return a session's updates, from a place in `frames` on."""
        wanted = session or self.session
        return [
            frame.message["params"]["update"]
            for frame in self.frames[start:]
            if frame.message.get("method") == "session/update"
            and frame.message["params"]["sessionId"] == wanted
        ]

    def of_kind(self, kind: str, start: int = 0) -> list[Json]:
        return [each for each in self.updates(start) if each["sessionUpdate"] == kind]

    def calls(self, start: int = 0) -> list[Json]:
        """Return the calls that were announced, each as its last update left it."""
        found: dict[str, Json] = {}
        for each in self.updates(start):
            if each["sessionUpdate"] in {"tool_call", "tool_call_update"}:
                found.setdefault(each["toolCallId"], {}).update(each)
        return list(found.values())

    def asked(self, method: str) -> list[Json]:
        """Return the parameters of the agent's requests for a method."""
        return [
            frame.message["params"]
            for frame in self.frames
            if not frame.is_sent and frame.message.get("method") == method
        ]

    async def until_asked(self, method: str, times: int = 1) -> None:
        await wait_until(lambda: len(self.asked(method)) >= times)

    # ------------------------------------------------------------ behind it
    @property
    def runs(self) -> Runs:
        return self.worker.backend.runs

    @property
    def key(self) -> ConversationKey:
        return ConversationKey(ANONYMOUS, ConversationId(self.session))

    async def post(
        self, *messages: PostedMessage | str, tools: tuple[ToolSpec, ...] | None = None
    ) -> RunRef | Parked:
        """Post as another client of the same conversation; a text is a user's message."""
        made = [UserMessage(UNNAMED, each) if isinstance(each, str) else each for each in messages]
        return await self.runs.start(StartRun(self.key, tuple(made), tools, on_busy="enqueue"))

    async def until_idle(self) -> None:
        """Wait until no run of the session goes on."""
        while (await self.runs.status(self.key)).running:
            await anyio.lowlevel.checkpoint()


class HookedRuns:
    """The runs of a worker whose verbs may be delayed, or fail.

    Attributes:
        hooks: awaited before a verb, by its name.
        verbs: take the place of verbs, by their names.
    """

    def __init__(self, runs: Runs) -> None:
        self._runs = runs
        self.hooks: dict[str, Callable[[], Awaitable[object]]] = {}
        self.verbs: dict[str, Callable[..., Any]] = {}

    def __getattr__(self, name: str) -> Any:
        verb, hook = self.verbs.get(name) or getattr(self._runs, name), self.hooks.get(name)

        async def call(*given: Any, **named: Any) -> Any:
            assert hook is not None
            await hook()
            return await verb(*given, **named)

        return verb if hook is None else call


def failing(error: Exception) -> Callable[[], Awaitable[object]]:
    """Return a hook that fails."""

    async def fail() -> None:
        raise error

    return fail


def worker_of(
    *turns: Turn, settings: Mapping[str, str] | None = None, **agent: Any
) -> tuple[WorkerServices, ScriptedModel]:
    """Return the services of an agent whose model plays a script, with a store in memory."""
    model = ScriptedModel(turns, media=agent.pop("media", False))
    given = {"store": "memory:", **(settings or {})}
    loaded = load_settings({f"PASSBACK_{name.upper()}": text for name, text in given.items()})
    return WorkerServices(loaded, [Agent(model, **agent)]), model


@asynccontextmanager
async def connected(
    worker: WorkerServices,
    *,
    owner: OwnerId | None = ANONYMOUS,
    key: str = "",
    runs: HookedRuns | None = None,
    **changed: Any,
) -> AsyncGenerator[MemoryEditor]:
    """Connect an editor to a worker that runs. It is not initialized yet.

    Args:
        worker: the agent's.
        owner: of the channel; None: the editor has to authenticate.
        key: the key that was set for it.
        runs: in place of the worker's.
        changed: further fields of `Services`.
    """
    async with anyio.create_task_group() as tasks, anyio.create_task_group() as handling:
        editor = MemoryEditor(worker, handling, owner)
        serve = partial(serve_client, settings=AcpSettings(key))
        services = replace(worker.services, **changed)
        if runs is not None:
            services = replace(services, runs=cast("Runs", runs))
        tasks.start_soon(serve, services, editor.channel)
        yield editor
        editor.leave()
        handling.cancel_scope.cancel()
    assert editor.failures == []
    faults = order_faults(editor.frames) if editor.is_checked else []
    assert not faults, faults


@asynccontextmanager
async def memory_editor(
    *turns: Turn,
    capabilities: Json = ALL_CAPABILITIES,
    settings: Mapping[str, str] | None = None,
    **agent: Any,
) -> AsyncGenerator[tuple[MemoryEditor, ScriptedModel]]:
    """An editor whose connection is initialized, with a new session, and the model."""
    worker, model = worker_of(*turns, settings=settings, **agent)

    @asynccontextmanager
    async def serve() -> AsyncGenerator[MemoryEditor]:
        runs = HookedRuns(worker.backend.runs)
        async with worker.backend.running(), connected(worker, runs=runs) as editor:
            await editor.open(capabilities)
            await editor.new_session()
            editor.hooks, editor.verbs = runs.hooks, runs.verbs
            yield editor

    # in a task of its own: what a test raises is not to come out as a group of errors
    served = await ContextHolder(serve()).open()
    try:
        yield served.value, model
    finally:
        await served.close()


def told(model: ScriptedModel, number: int = -1) -> list[str]:
    """Return the results of tools that a request told the model."""
    messages = model.requests[number].messages
    return [str(each.content) for each in messages if isinstance(each, ToolMessage)]


def offered(model: ScriptedModel, number: int = -1) -> set[str]:
    """Return the names of the tools that a request offered to the model."""
    return {each.name for each in model.requests[number].tools}


def answering(result: Any) -> Any:
    """Return a handler that answers this, or refuses with an error."""

    async def answer(_: Json) -> Any:
        if isinstance(result, Exception):
            raise result
        return result

    return answer


def statuses(editor: MemoryEditor, start: int = 0) -> list[str]:
    return [each["status"] for each in editor.calls(start)]
