"""MCP servers that a client names: their names, their permissions, and the end of a process."""

import json
import socket
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from tests.support.asgi_client import ask_json
from tests.support.mcp_raw import tool
from tests.support.mcp_servers import CONTEXT, ROOT, TOOLS, tools
from tests.support.transcript_rules import said_in
from typing_extensions import override

from passback.agent import Agent
from passback.app import Application
from passback.core.errors import ConfigurationError, ToolsetUnavailable
from passback.core.messages import (
    CallId,
    ConversationId,
    ConversationKey,
    OwnerId,
    ToolCall,
    ToolResult,
)
from passback.core.toolsets import MakeServerTools, ServerTools, ToolServer
from passback.http.wires import Services, Wire
from passback.models.scripted import ScriptedModel, calls
from passback.models.scripted import says as words
from passback.settings import load_settings
from passback.toolsets.mcp import MCPServer

pytestmark = pytest.mark.anyio

ADDING = ToolServer("tools", TOOLS, {"TOKEN": "sesame"}, str(ROOT))


class OpenedApplication(Application):
    """An application that shows the services of its wires."""

    services: Services

    @override
    def build_wires(self, services: Services, /) -> list[Wire]:
        self.services = services
        return super().build_wires(services)


def application(agent: Agent | None = None) -> OpenedApplication:
    agent = agent or Agent(ScriptedModel([]))
    return OpenedApplication(load_settings({"PASSBACK_STORE": "memory:"}), agent)


def maker(agent: Agent | None = None) -> MakeServerTools:
    make = application(agent).services.tool_server
    assert make is not None
    return make


async def unusable(made: ServerTools) -> str:
    """Run a toolset; return why it cannot be used."""
    with anyio.fail_after(30):
        async with made.running():
            with pytest.raises(ToolsetUnavailable) as why:
                await made.ready()
            assert list(await made.specs()) == []
    return why.value.message


def test_without_the_package_there_are_no_tool_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    assert application().services.tool_server is None


def test_a_tool_server_is_shown_without_its_variables() -> None:
    assert "sesame" not in repr(ADDING)
    assert hash(ADDING) == hash(replace(ADDING, env={}))


# ---------------------------------------------------------------- names
@pytest.mark.parametrize(
    ("name", "legal"),
    [
        ("files", "files"),
        ("My-files_2", "My-files_2"),
        ("my files (local)", "my-files-local"),
        ("a__b", "a_b"),
        ("_files_", "files"),
        ("@scope/files.v2", "scope-files-v2"),
        ("会話", "server"),
        ("", "server"),
        ("x" * 40, "x" * 32),
        ("x" * 31 + "__y", "x" * 31),
    ],
)
def test_the_name_of_a_client_is_made_legal(name: str, legal: str) -> None:
    assert maker()(replace(ADDING, name=name)).name == legal
    assert MCPServer.stdio(legal, command=["x"]).name == legal


def test_a_name_that_is_taken_gets_a_number() -> None:
    make = maker(Agent(ScriptedModel([]), toolsets=[tools("files")]))
    taken: list[str] = []
    for name in ("files", "Files", "fi les", "fi-les", "x" * 40, "x" * 32, "x" * 30 + "_xy"):
        taken.append(make(replace(ADDING, name=name), taken).name)
    assert taken == [
        *("files-2", "Files-3", "fi-les", "fi-les-2"),
        *("x" * 32, "x" * 30 + "-2", "x" * 30 + "_x"),
    ]
    assert make(replace(ADDING, name="x" * 29 + "_yz"), ["x" * 29 + "_yz"]).name == "x" * 29 + "-2"


# ---------------------------------------------------------------- what they may do
async def test_tools_that_only_read_are_called_and_others_are_asked_about() -> None:
    made = maker()(ADDING)
    with anyio.fail_after(30):
        async with made.running():
            assert await made.ready() == []
            decisions = {
                spec.name: made.permission(ToolCall(CallId("c"), spec.name, "{}")).decision
                for spec in await made.specs()
            }
            call = ToolCall(CallId("c"), "tools__environment", "{}")
            result = await made.call(call, CONTEXT)
    assert (decisions["tools__add"], decisions["tools__put"]) == ("allow", "ask")
    assert isinstance(result, ToolResult)
    assert isinstance(result.content, str)
    assert json.loads(result.content)["TOKEN"] == "sesame"


async def test_a_lent_server_is_used_over_http_by_its_conversation() -> None:
    turn = calls(("tools__add", {"a": 1, "b": 2}))
    app = application(Agent(ScriptedModel([turn, words("three")])))
    services, make = app.services, app.services.tool_server
    assert make is not None
    key = ConversationKey(OwnerId("anonymous"), ConversationId("c"))
    body = {"conversationId": "c", "messages": [{"role": "user", "content": "add"}]}
    with anyio.fail_after(30):
        async with app.running():
            made = make(ADDING)
            async with made.running():
                await made.ready()
                with services.runs.lend(key, [made]):
                    answer = await ask_json(app.asgi, "POST", "/send-message?wait=true", body)
            page = await services.runs.messages(key, start=0, limit=9)
    assert answer.status == 200
    assert [*said_in(page.messages)] == ["add", "", "3", "three"]


# ---------------------------------------------------------------- the process
async def test_a_process_is_asked_to_end_before_it_is_killed(tmp_path: Path) -> None:
    """It notes the end of its input and a SIGTERM, and ends of neither."""
    path = tmp_path / "tools.json"
    path.write_text(json.dumps([[tool("say")]]))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(10)
        stays = f"--stays={listening.getsockname()[1]}"
        command = (sys.executable, "-m", "tests.support.mcp_raw", str(path), stays)
        made = maker()(ToolServer("raw", command, cwd=str(ROOT)))
        with anyio.fail_after(30):
            async with made.running():
                await made.ready()
                assert [spec.name for spec in await made.specs()] == ["raw__say"]
                line, _ = listening.accept()
        with line:
            line.settimeout(10)
            noted = b"".join(iter(lambda: line.recv(99), b""))  # to its end: the process is gone
    assert noted == b"input ended, terminated, "


@pytest.mark.parametrize(
    ("command", "cwd", "why"),
    [
        (("/nowhere/at/all",), "", "it cannot be started: No such file or directory"),
        ((str(ROOT),), "", "it cannot be started: Permission denied"),
        ((sys.executable,), "/nowhere", "it cannot be started: No such file or directory"),
        ((sys.executable, "-c", "\0"), "", "the connection broke: ValueError"),
        ((sys.executable, "-c", "exit(3)"), "", "its process ended, with the code 3"),
    ],
)
async def test_a_command_that_is_broken_is_told_by_ready(
    command: Sequence[str], cwd: str, why: str
) -> None:
    made = maker()(ToolServer("broken", tuple(command), {"TOKEN": "sesame"}, cwd))
    assert await unusable(made) == f"the MCP server 'broken' cannot be used: {why}"


@pytest.mark.parametrize(
    "server", [ToolServer("x", ()), ToolServer("x", ("\ud800",)), ToolServer("x", ("",))]
)
def test_a_server_without_a_command_is_refused(server: ToolServer) -> None:
    with pytest.raises(ConfigurationError, match=r"^MCPServer.stdio: command"):
        maker()(server)
