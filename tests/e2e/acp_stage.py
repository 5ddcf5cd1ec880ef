"""A session in an editor, whose agent's model the test plays."""

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from itertools import count, groupby
from pathlib import Path
from typing import Any

from tests.support.acp_editor import (
    ALL_CAPABILITIES,
    Editor,
    choose,
    joined_text,
    running_editor,
)
from tests.support.acp_schema import Json
from tests.support.acp_workspace import Workspace
from tests.support.model_server import DONE, ModelServer, Reply, calls, event

AGENT = "tests.support.acp_agents:agent"
MODEL = "openai:mock"


def settings_of(model: ModelServer, folder: Path, **more: str) -> dict[str, str]:
    """Return variables of an agent whose model is played, and whose sessions are in a folder."""
    return {
        "PASSBACK_MODEL": MODEL,
        "PASSBACK_MODEL_BASE_URL": model.base_url,
        "PASSBACK_STORE": f"sqlite:///{folder}/passback.db",
        **more,
    }


@dataclass(frozen=True, slots=True)
class Stage:
    """One session.

    Attributes:
        session: its id.
        folder: its working directory.
        start: the place in the editor's frames at which it began.
    """

    editor: Editor
    model: ModelServer
    workspace: Workspace
    session: str
    folder: Path
    start: int

    @property
    def updates(self) -> list[Json]:
        return self.editor.updates(self.session, self.start)

    @property
    def text(self) -> str:
        """What the agent has said."""
        return joined_text(self.updates)

    async def prompt(self, *blocks: Json | str) -> str:
        return await self.editor.prompt(self.session, *blocks)

    async def begin(self, *blocks: Json | str) -> int:
        return await self.editor.begin_prompt(self.session, *blocks)

    async def update(self, kind: str, /, **fields: Any) -> Json:
        return await self.editor.update(self.session, kind, start=self.start, **fields)

    async def cancel(self) -> None:
        await self.editor.cancel(self.session)

    def asked(self, method: str) -> list[Json]:
        return [
            each
            for each in self.editor.asked(method, self.start)
            if each.get("sessionId") == self.session
        ]

    def calls(self, title: str = "") -> list[Json]:
        """Return the calls that were announced, each as its last update left it."""
        found: dict[str, Json] = {}
        for each in self.updates:
            if each["sessionUpdate"] in {"tool_call", "tool_call_update"}:
                found.setdefault(each["toolCallId"], {}).update(each)
        return [each for each in found.values() if title in each["title"]]

    @property
    def story(self) -> list[str]:
        """Return what happened in the session, in order, each in a few words, repeats as one."""
        told = [
            word
            for frame in self.editor.frames[self.start :]
            if isinstance(frame.message, dict) and (word := self._tell(frame.message))
        ]
        return [word for word, _ in groupby(told)]

    def _tell(self, message: Json) -> str:
        params = message.get("params") or {}
        if message.get("method") != "session/update":
            asks = "id" in message and params.get("sessionId") == self.session
            stop = (message.get("result") or {}).get("stopReason")
            return f"stops: {stop}" if stop else message.get("method", "") if asks else ""
        if params["sessionId"] != self.session:
            return ""
        update = params["update"]
        kind: str = update["sessionUpdate"]
        if kind == "tool_call":
            return f"{kind}: {update.get('status', 'pending')}"
        if kind == "tool_call_update":
            return f"{kind}: {update['status']}" if "status" in update else ""
        return kind if kind in {"plan", "agent_message_chunk", "agent_thought_chunk"} else ""


async def begin_session(
    editor: Editor, model: ModelServer, folder: Path, *, mode: str = "", **more: Any
) -> Stage:
    """Make a session with a workspace of its own.

    Args:
        editor: the connection.
        model: what plays the model.
        folder: the session's working directory.
        mode: which mode it gets; empty: the default one.
        more: further parameters of `session/new`.
    """
    workspace = Workspace()
    editor.handlers.clear()
    editor.handlers.update(workspace.handlers())
    editor.handlers["session/request_permission"] = choose("allow_once")
    start = len(editor.frames)
    session = await editor.new_session(folder, **more)
    if mode:
        await editor.request("session/set_mode", sessionId=session, modeId=mode)
    return Stage(editor, model, workspace, session, folder, start)


@asynccontextmanager
async def opened_editor(
    model: ModelServer,
    folder: Path,
    *,
    agent: str = AGENT,
    capabilities: Json = ALL_CAPABILITIES,
    **settings: str,
) -> AsyncGenerator[Editor]:
    """An editor whose connection is initialized."""
    environment = settings_of(model, folder, **settings)
    async with running_editor(agent, cwd=folder, environment=environment) as editor:
        await editor.open(capabilities)
        yield editor


def later(stage: Stage) -> Stage:
    """Return the same session, seen from now on."""
    return replace(stage, start=len(stage.editor.frames))


# ---------------------------------------------------------------- replies of the model
_numbers = count(1)


def call(name: str, /, **arguments: Any) -> Reply:
    """A reply that is one call."""
    return calls((f"call_{next(_numbers)}", name, json.dumps(arguments)))


def says_and_calls(text: str, *asked: tuple[str, Json]) -> Reply:
    """A text, then calls, given as name and arguments."""
    steps = [event(content=text)]
    for index, (name, arguments) in enumerate(asked):
        key = f"call_{next(_numbers)}"
        function = {"name": name, "arguments": json.dumps(arguments)}
        steps.append(event(tool_calls=[{"index": index, "id": key, "function": function}]))
    return Reply([*steps, event("tool_calls"), DONE])


def told(model: ModelServer, number: int = -1) -> list[str]:
    """Return the results of tools that a request told the model."""
    shown: Sequence[Json] = model.requests[number].shown
    return [str(each["content"]) for each in shown if each["role"] == "tool"]


def offered(model: ModelServer, number: int = -1) -> set[str]:
    """Return the names of the tools that a request offered to the model."""
    tools = model.requests[number].json.get("tools", [])
    return {each["function"]["name"] for each in tools}
