"""Agents with tools of MCP servers, served and checked as in docs/how-to/mcp.md."""

import os
import subprocess
import sys
from pathlib import Path

import anyio
import pytest
from tests.support.documents import blocks_of
from tests.support.mcp_servers import ROOT
from tests.support.model_server import calls, model_server, says
from tests.support.server import running_server
from tests.support.wire import DONE, client_of, user

pytestmark = pytest.mark.anyio

EXAMPLES = ROOT / "docs" / "examples"
PAGE = (ROOT / "docs" / "how-to" / "mcp.md").read_text()

AGENT = f"""
import sys
from passback import Agent, MCPServer
from passback.models.scripted import ScriptedModel, calls, says

add, die = ("good__add", {{"a": 2, "b": 3}}), ("good__die", {{}})
model = ScriptedModel([calls(add, die), says("Done.")])
tools = [sys.executable, "-m", "tests.support.mcp_tools"]
good = MCPServer.stdio("good", command=tools, cwd={str(ROOT)!r})
sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
silent = MCPServer.stdio("silent", command=sleep, start_seconds=3)
missing = MCPServer.stdio("missing", command=["/nowhere/at/all"], env={{"TOKEN": "sesame"}})
agent = Agent(model, toolsets=[silent, good, missing])
"""
"""An agent with one good server of three; the process dies at the model's second call."""

SILENT = "the MCP server 'silent' cannot be used: it did not answer in 3 s"
MISSING = "the MCP server 'missing' cannot be used: it cannot be started: No such file or directory"


async def test_a_broken_mcp_server_makes_a_warning_and_tools_of_others_are_called(
    tmp_path: Path,
) -> None:
    (tmp_path / "my_agent.py").write_text(AGENT)
    with (tmp_path / "log").open("wb") as log:
        async with (
            running_server("my_agent:agent", cwd=str(tmp_path), stderr=log) as server,
            client_of(server.url) as client,
        ):
            answer = await client.post("c", user("Go on."))
            server.terminate()
            assert await server.exit_code() == 0
    assert answer.text == "Done."
    events = [frame.event for frame in answer.frames if frame.data != DONE]
    results = [event for event in events if event["type"] == "tool-result"]
    assert [event["result"] for event in results] == [
        "5",
        (
            "The connection to the MCP server 'good' was lost during the call: "
            "nobody knows whether it was carried out."
        ),
    ]
    text = (tmp_path / "log").read_text()
    for warning in (SILENT, MISSING):
        assert f"passback: warning: {warning}; its tools are left out until it can be\n" in text
    assert "sesame" not in text
    assert "Traceback" not in text


def passback(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "passback", *arguments],
        env={**os.environ, "HOME": "/home/you", "XDG_STATE_HOME": ""},
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )


def test_check_says_which_servers_answer(tmp_path: Path) -> None:
    (tmp_path / "my_agent.py").write_text(AGENT)
    ended = passback(
        "check", "my_agent:agent", "--store", f"sqlite:///{tmp_path}/s.db", cwd=tmp_path
    )
    *_, silent, good, missing, allowed = ended.stdout.splitlines()
    assert [silent, good, missing] == [
        f"tools     silent: {SILENT}",
        "tools     good: ok",
        f"tools     missing: {MISSING}",
    ]
    # of those that are there
    assert allowed.startswith(
        "allowed   16 tools may write and need no permission: good__add, good__put, good__wipe, "
    )
    assert ended.returncode == 1


CRASHES = """
import sys

from passback import Agent
from passback.toolsets.mcp import MCPServer

program = "import os; raise KeyError('no server called ' + os.environ['TOKEN'])"
command = [sys.executable, "-c", program]
crashes = MCPServer.stdio("crashes", command=command, env={"TOKEN": "sesame"})
agent = Agent(toolsets=[crashes])
"""


def test_check_shows_what_a_server_that_crashes_said_last(tmp_path: Path) -> None:
    (tmp_path / "my_agent.py").write_text(CRASHES)
    ended = passback("check", "my_agent:agent", "--store", "memory:", cwd=tmp_path)
    lines = ended.stdout.splitlines()
    place = lines.index(
        "tools     crashes: the MCP server 'crashes' cannot be used: "
        "its process ended, with the code 1"
    )
    assert lines[place + 1] == "          it said: Traceback (most recent call last):"
    assert "          it said: KeyError: 'no server called ***'" in lines[place:]
    assert "sesame" not in ended.stdout + ended.stderr
    assert ended.returncode == 1


# ---------------------------------------------------------------- docs/how-to/mcp.md
def test_the_agent_of_the_page_is_that_of_the_examples() -> None:
    [source] = [block.text for block in blocks_of(PAGE) if block.language == "python"]
    assert (EXAMPLES / "mcp_agent.py").read_text() == source


def test_check_says_what_the_page_shows(tmp_path: Path) -> None:
    [shown] = [block.text for block in blocks_of(PAGE) if block.text.startswith("settings ")]
    ended = passback(
        "check", "mcp_agent:agent", "--store", f"sqlite:///{tmp_path}/s.db", cwd=EXAMPLES
    )
    store = "sqlite:////home/you/.local/state/passback/passback.db"
    assert ended.stdout.replace(f"sqlite:///{tmp_path}/s.db", store) == shown


async def test_the_agent_of_the_page_calls_the_tools_of_its_server() -> None:
    script = (
        calls(("1", "notes__add_note", '{"text": "buy tea"}')),
        calls(("2", "notes__find_notes", '{"word": "tea"}')),
        says("You wanted tea."),
    )
    async with model_server(*script) as model:
        flags = ("--model", "openai:mock", "--model-base-url", model.base_url)
        async with (
            running_server("mcp_agent:agent", *flags, cwd=str(EXAMPLES)) as server,
            client_of(server.url) as client,
        ):
            with anyio.fail_after(30):
                answer = await client.post("c", user("What did I want?"))
    assert answer.text == "You wanted tea."
    offered = [tool["function"]["name"] for tool in model.requests[0].json["tools"]]
    assert offered == ["notes__add_note", "notes__find_notes"]
    results = [m["content"] for m in model.requests[2].json["messages"] if m["role"] == "tool"]
    assert results == ["Kept as number 1.", "buy tea"]
