"""Connected toolsets run as long as their application; tools that need no permission are found."""

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import anyio
import pytest
from pydantic_core import from_json
from tests.support.asgi_client import ask_json
from tests.support.mcp_servers import ROOT, names, tools

from passback.agent import Agent
from passback.app import Application
from passback.core.deltas import Finish, ModelDelta, TextChunk, ToolCallChunk
from passback.core.errors import ConfigurationError
from passback.core.messages import ToolCall, ToolResult, ToolSpec
from passback.core.permissions import Permission
from passback.core.toolsets import ToolContext
from passback.models.scripted import ScriptedModel
from passback.settings import load_settings
from passback.toolsets.functions import FunctionTool, FunctionTools, tool
from passback.toolsets.mcp import MCPServer

pytestmark = pytest.mark.anyio

MEMORY = {"PASSBACK_STORE": "memory:"}


@tool
def mine() -> None:
    """Do nothing."""


async def test_servers_are_connected_before_the_first_run_and_until_the_end() -> None:
    good = tools("good")
    missing = MCPServer.stdio("missing", command=["/nowhere/at/all"])
    application = Application(
        load_settings(MEMORY), Agent(ScriptedModel([]), toolsets=[missing, good])
    )
    with anyio.fail_after(30):
        async with application.running() as warnings:
            assert "good__add" in await names(good)
            [_, warning] = warnings
            assert warning == (
                "the MCP server 'missing' cannot be used: it cannot be started: "
                "No such file or directory; its tools are left out until it can be"
            )
    assert await names(good) == []


async def test_the_agent_api_shows_calls_of_mcp_tools_as_such() -> None:
    turns: list[list[ModelDelta]] = [
        [ToolCallChunk(0, "a", "good__add", '{"a": 1, "b": 2}'), Finish("tool_calls")],
        [TextChunk("three"), Finish("stop")],
    ]
    agent = Agent(ScriptedModel(turns), toolsets=[tools("good")])
    application = Application(load_settings(MEMORY), agent)
    body = {"input": [{"content": [{"type": "text", "text": "add"}]}], "stream": False}
    with anyio.fail_after(30):
        async with application.running():
            answer = await ask_json(application.asgi, "POST", "/process", body)
    call, result, words = answer.json["output"]
    assert [each["type"] for each in (call, result, words)] == [
        *("mcp_call", "mcp_call_output", "message")
    ]
    assert call["content"][0]["data"]["server_label"] == "good"
    assert result["content"][0]["data"]["name"] == "good__add"


async def test_an_error_beside_a_server_is_in_no_exception_group() -> None:
    """So that the command line can print it."""
    twice = [FunctionTools([mine]), FunctionTools([mine])]
    application = Application(
        load_settings(MEMORY), Agent(ScriptedModel([]), toolsets=[tools(), *twice])
    )
    with anyio.fail_after(30), pytest.raises(ConfigurationError, match="are named 'mine'"):
        async with application.running():
            pass


# ---------------------------------------------------------------- tools without permission
def named(name: str, **options: Any) -> FunctionTool:
    def act() -> None: ...

    return tool(name=name, **options)(act)


class ForeignToolset:
    """A toolset of an author, whose permission reads an argument that a call may lack."""

    async def specs(self) -> Sequence[ToolSpec]:
        return [ToolSpec(name, "", {"type": "object"}) for name in ("own", "picky")]

    def is_read_only(self, name: str, /) -> bool:
        return False

    def is_repeatable(self, name: str, /) -> bool:
        return False

    def permission(self, call: ToolCall, /) -> Permission:
        arguments = from_json(call.arguments)
        return Permission("allow" if call.name == "own" else arguments["decision"])

    async def call(self, call: ToolCall, context: ToolContext, /) -> ToolResult:
        return ToolResult("done")


WRITES = (
    named("write"),
    named("delete"),
    named("asks", permission="ask"),
    named("never", permission="deny"),
    named("read", read_only=True),
    named("shell", read_only=lambda: True),
)


@pytest.mark.parametrize(
    ("permissions", "settings", "unasked"),
    [
        (None, {}, ["write", "delete", "shell"]),
        ({"delete": "ask", "asks": "allow"}, {}, ["write", "asks", "shell"]),
        ({"delete": "ask"}, {"PASSBACK_PERMISSIONS": "delete=allow,s*=deny"}, ["write", "delete"]),
        # the agent's function decides for the other tools
        (lambda _call, _run: "ask", {"PASSBACK_PERMISSIONS": "asks=allow"}, ["asks"]),
    ],
)
async def test_tools_that_may_write_and_need_no_permission_are_found(
    permissions: Any, settings: dict[str, str], unasked: list[str]
) -> None:
    agent = Agent(ScriptedModel([]), tools=WRITES, permissions=permissions, data_tools=True)
    application = Application(load_settings(MEMORY | settings), agent)
    assert list(await application.backend.unasked_writes()) == unasked


async def test_tools_that_need_no_permission_are_found_in_all_agents_once() -> None:
    helper = Agent(ScriptedModel([]), name="helper", tools=[mine, named("help")], plan=True)
    agent = Agent(
        ScriptedModel([]), name="boss", tools=[mine], toolsets=[ForeignToolset()], agents=[helper]
    )
    application = Application(load_settings(MEMORY), agent, replace(agent, name="other"))
    assert sorted(await application.backend.unasked_writes()) == ["help", "mine", "own"]


def test_without_a_server_the_package_is_not_loaded() -> None:
    program = (
        "import sys, passback.cli, passback\n"
        "passback.MCPServer.stdio('t', command=['x'])\n"
        "packages = {'mcp', 'mcp_types', 'httpx2'}\n"
        "print({name for name in sys.modules if name.partition('.')[0] in packages})"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stdout == "set()\n"
