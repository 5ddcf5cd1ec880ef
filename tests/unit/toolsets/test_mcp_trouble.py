"""MCP servers that die, are not there, or do not answer: errors, logs and new connections."""

import json
import logging
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote, quote_plus

import anyio
import pytest
from tests.support.ledgers import open_ledger
from tests.support.mcp_raw import RawHttp, tool
from tests.support.mcp_servers import (
    CONTEXT,
    ROOT,
    called,
    names,
    raw,
    running,
    serving,
    tools,
    until_it_has,
)
from tests.support.mcp_tools import tools as tool_server
from tests.support.runs import events, post, says, worker
from tests.support.waiting import moment

from passback.core.errors import ConfigurationError, ToolsetUnavailable
from passback.core.events import ToolResulted
from passback.core.messages import CallId, ToolCall, ToolResult
from passback.models.scripted import ScriptedModel, calls
from passback.models.scripted import says as words
from passback.toolsets.functions import FunctionTools
from passback.toolsets.functions import tool as function
from passback.toolsets.mcp import MCPServer
from passback.toolsets.mcp.targets import StdioTarget, shown_line

pytestmark = pytest.mark.anyio

LOST = ToolResult(
    (
        "The connection to the MCP server 't' was lost during the call: "
        "nobody knows whether it was carried out."
    ),
    is_error=True,
)
SILENT = (sys.executable, "-m", "tests.support.mcp_raw", "--silent")


def logged_actions(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the kinds of the log's lines about servers."""
    return [vars(record)["action"] for record in caplog.records if "action" in vars(record)]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port: int = unused.getsockname()[1]
    return port


# ---------------------------------------------------------------- lost connections
async def test_a_server_that_dies_in_a_call_is_restarted(caplog: pytest.LogCaptureFixture) -> None:
    async with running(tools()) as server:
        before = await names(server)
        assert await called(server, "die") == LOST
        assert await called(server, "add", a=1, b=1) == ToolResult("2")
        assert await names(server) == before
    [line] = [record for record in caplog.records if record.name.endswith("reconnector")]
    assert line.getMessage() == "MCP server t: lost: its process ended, with the code 3"


async def test_an_http_server_that_comes_back_is_reconnected(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    site = RawHttp([[tool("say")]])
    port = free_port()
    server = MCPServer.http("t", f"http://127.0.0.1:{port}/mcp")
    with anyio.fail_after(30):
        async with server.running():
            async with serving(site.app, port):
                assert await server.ready() == []
            assert await called(server, "say") == LOST
            while await names(server):
                await moment()
            async with serving(site.app, port):
                await until_it_has(server, "t__say")
                assert await called(server, "say") == ToolResult("say")
    assert logged_actions(caplog) == ["toolset_lost", "toolset_unavailable", "toolset_available"]


@pytest.mark.promise("P10")
async def test_a_call_refused_for_an_unknown_session_is_made_again() -> None:
    site = RawHttp([[tool("say")]])
    async with serving(site.app) as url, running(MCPServer.http("t", url)) as server:
        site.session += 1
        assert await called(server, "say") == ToolResult("say")
    assert [asked for asked in site.asked if asked.startswith("tools/call")] == [
        "tools/call say",
        "tools/call say",
    ]


async def test_a_server_that_forgets_each_session_is_given_up() -> None:
    site = RawHttp([[tool("say")]])
    site.forgets = True
    async with serving(site.app) as url, running(MCPServer.http("t", url)) as server:
        assert await called(server, "say") == ToolResult(
            "The MCP server 't' is not connected. The tool was not called.", is_error=True
        )
    assert site.asked.count("tools/call say") == 2


async def test_the_loss_of_an_idle_http_server_is_noticed_too(
    caplog: pytest.LogCaptureFixture,
) -> None:
    port = free_port()
    server = MCPServer.http("t", f"http://127.0.0.1:{port}/mcp")
    with anyio.fail_after(30):
        async with server.running():
            for _ in range(2):
                async with serving(tool_server().streamable_http_app(), port):
                    await until_it_has(server, "t__add")
                while await names(server):
                    await moment()
    assert logged_actions(caplog) == ["toolset_lost", "toolset_unavailable"] * 2


async def test_a_server_that_stops_reading_is_restarted(tmp_path: Path) -> None:
    async with running(raw(tmp_path, [[tool("deaf"), tool("say")]])) as server:
        assert await called(server, "deaf") == ToolResult("deaf")
        assert await called(server, "say") == LOST
        assert await called(server, "say") == ToolResult("say")


async def test_a_silent_server_does_not_affect_other_tools(
    caplog: pytest.LogCaptureFixture,
) -> None:
    silent = MCPServer.stdio("silent", command=SILENT, cwd=ROOT, start_seconds=0.5)
    mine = FunctionTools([function(len_of)])
    script = [calls(("len_of", {"text": "four"})), words("4"), words("again")]
    with anyio.fail_after(30):
        async with silent.running():
            with pytest.raises(ToolsetUnavailable) as failure:
                await silent.ready()
            assert failure.value.message == (
                "the MCP server 'silent' cannot be used: it did not answer in 0.5 s"
            )
            model = ScriptedModel(script)
            async with (
                open_ledger("memory:") as store,
                worker(store, model, toolsets=[silent, mine]) as runs,
            ):
                received = await events(runs, await post(runs, says()))
                await events(runs, await post(runs, says("more", "u2")))
            assert [e.content for e in received if isinstance(e, ToolResulted)] == ["4"]
            assert [[spec.name for spec in one.tools] for one in model.requests] == [["len_of"]] * 3
            call = ToolCall(CallId("c"), "silent__any", "{}")
            assert await silent.call(call, CONTEXT) == ToolResult(
                (
                    "The MCP server 'silent' is not connected: it did not answer in 0.5 s. "
                    "The tool was not called."
                ),
                is_error=True,
            )
    assert logged_actions(caplog).count("toolset_unavailable") == 1


def len_of(text: str) -> int:
    """Return the length of a text."""
    return len(text)


async def test_a_server_that_failed_to_start_is_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    program = tmp_path / "program"
    server = MCPServer.stdio("t", command=[str(program), "-m", "tests.support.mcp_tools"], cwd=ROOT)
    with anyio.fail_after(30):
        async with server.running():
            with pytest.raises(ToolsetUnavailable, match="cannot be started: No such file"):
                await server.ready()
            assert await names(server) == []
            ready = tmp_path / "ready"
            ready.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
            ready.chmod(0o700)
            ready.rename(program)
            await until_it_has(server, "t__add")
            assert await server.ready() == []
    assert logged_actions(caplog)[:2] == ["toolset_unavailable", "toolset_available"]


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (["/nowhere/at/all"], "it cannot be started: No such file or directory"),
        ([sys.executable, "-c", "raise SystemExit(7)"], "its process ended, with the code 7"),
    ],
)
async def test_an_error_says_why_a_command_is_no_server(command: list[str], reason: str) -> None:
    server = MCPServer.stdio("t", command=command, cwd=ROOT)
    with anyio.fail_after(30):
        async with server.running():
            with pytest.raises(ToolsetUnavailable) as failure:
                await server.ready()
    assert failure.value.message == f"the MCP server 't' cannot be used: {reason}"


CRASH = """
import os, sys
for number in range(1000):
    print("line", number, file=sys.stderr)
key = os.environ["KEY"].splitlines()[1]
print("\\n\\x1b[31m", os.environ["TOKEN"], "and", key, "x" * 600, file=sys.stderr)
sys.stderr.write("KeyError: 'HOST'")
sys.exit(3)
"""


async def test_an_error_has_the_last_lines_of_a_process_without_secrets() -> None:
    command = [sys.executable, "-c", CRASH]
    env = {"TOKEN": "sesame", "KEY": "-----BEGIN-----\nopen-up\n"}
    server = MCPServer.stdio("t", command=command, cwd=ROOT, env=env, start_seconds=30)
    with anyio.fail_after(30):
        async with server.running():
            with pytest.raises(ToolsetUnavailable) as failure:
                await server.ready()
    reason = "its process ended, with the code 3"
    assert failure.value.message == f"the MCP server 't' cannot be used: {reason}"
    *lines, long_line, last = failure.value.said
    assert lines == ["line 997", "line 998", "line 999"]
    assert long_line == f" *** and *** {'x' * 600}"[: len(long_line)]
    assert (len(long_line), last) == (500, "KeyError: 'HOST'")


async def test_an_error_has_the_unfinished_last_line_of_a_silent_process() -> None:
    command = ["/bin/sh", "-c", "printf 'first\\nToken: sesame' >&2; exec cat >/dev/null"]
    server = MCPServer.stdio("t", command=command, env={"TOKEN": "sesame"}, start_seconds=0.3)
    last_lines: tuple[str, ...] = ()
    with anyio.fail_after(30):
        async with server.running():
            while not last_lines:  # an attempt that ends before the process has begun is made again
                with pytest.raises(ToolsetUnavailable, match="it did not answer") as failure:
                    await server.ready()
                last_lines = tuple(failure.value.said)
                await anyio.lowlevel.checkpoint()
    assert last_lines == ("first", "Token: ***")


@pytest.mark.parametrize(
    "encode",
    [
        repr,
        json.dumps,
        lambda text: json.dumps(text, ensure_ascii=False),
        quote,
        quote_plus,
        lambda text: f"{text[:9]}\x1b[0m{text[9:]}",
    ],
)
def test_a_secret_is_hidden_however_a_program_writes_it(encode: Callable[[str], str]) -> None:
    secret = "postgres://u:p\\w'd\"é/ @h/db"
    line = encode(secret).encode()
    shown = shown_line(b"no key " + line, StdioTarget(["x"], {"DB": secret}).secrets())
    assert shown.replace("'", "").replace('"', "") == "no key ***"


async def test_an_error_says_why_an_address_is_no_server_without_secrets(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    site = RawHttp([[]])
    site.refuses = 401
    async with serving(site.app) as url:
        server = MCPServer.http("t", f"{url}?key=sesame", headers={"X-Key": "Bearer sesame"})
        with anyio.fail_after(30):
            async with server.running():
                with pytest.raises(ToolsetUnavailable) as refused:
                    await server.ready()
    with anyio.fail_after(30):
        async with server.running():
            with pytest.raises(ToolsetUnavailable) as unreachable:
                await server.ready()
    assert refused.value.message.endswith(": it answered with the status 401")
    assert unreachable.value.message.endswith(": it cannot be reached: ConnectError")
    ours = [r.getMessage() for r in caplog.records if r.name.startswith("passback")]
    assert "sesame" not in "".join(ours)


@pytest.mark.parametrize("variable", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
async def test_environment_proxies_are_not_used(
    variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy would get the headers, and with them a key."""
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    proxy, site = RawHttp([[]]), RawHttp([[tool("say")]])
    async with serving(proxy.app) as other, serving(site.app) as url:
        monkeypatch.setenv(variable, other.removesuffix("/mcp"))
        async with running(MCPServer.http("t", url, headers={"Authorization": "k"})) as server:
            assert await names(server) == ["t__say"]
    assert proxy.asked == []


async def test_a_compressed_answer_is_refused() -> None:
    site = RawHttp([[]])
    site.encoding = "gzip"
    async with serving(site.app) as url:
        server = MCPServer.http("t", url)
        with anyio.fail_after(30):
            async with server.running():
                with pytest.raises(ToolsetUnavailable, match="an encoding that was not asked for"):
                    await server.ready()


# ---------------------------------------------------------------- the process
async def test_a_process_gets_a_small_environment_and_the_given_variables(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PASSBACK_MODEL_API_KEY", "sk-secret")
    async with running(tools(env={"TOKEN": "sesame"})) as server:
        result = await called(server, "environment")
    assert isinstance(result.content, str)
    given: dict[str, str] = json.loads(result.content)
    known = {"HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "LC_CTYPE", "TOKEN"}
    assert given["TOKEN"] == "sesame"
    assert given.keys() <= known


@pytest.mark.promise("P11")
async def test_the_output_of_a_process_is_logged_within_bounds_and_without_secrets(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    async with running(tools(env={"TOKEN": "sesame"})) as server:
        await called(server, "whisper", text="open \x1b[31m sesame\n")
        await called(server, "whisper", text="x" * 1000)
        await called(server, "whisper", text="\n\n")
        await called(server, "whisper", text="line\n", times=300)
        await called(server, "whisper", text="more\n", times=300)
    messages = [vars(r)["message"] for r in caplog.records if "toolset_says" in actions_of(r)]
    assert messages[0] == "MCP server t says: open  ***"
    assert messages[1] == "MCP server t says: " + "x" * 500
    assert messages[-1] == "MCP server t says: (what follows is not logged)"
    assert 100 < len(messages) <= 201


def actions_of(record: logging.LogRecord) -> str:
    return str(vars(record).get("action"))


async def test_a_process_that_ignores_its_end_is_killed_with_its_children() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(10)
        async with running(tools()) as server:
            result = await called(server, "linger", port=listening.getsockname()[1])
            assert result == ToolResult("connected")
            line, _ = listening.accept()
        with line:
            line.settimeout(10)
            assert line.recv(1) == b""  # closed by all processes


async def test_a_server_is_used_once_at_a_time() -> None:
    server = tools()
    for _ in range(2):
        async with running(server):
            with pytest.raises(ConfigurationError, match="'t' is in use already"):
                async with server.running():
                    pass
    with pytest.raises(ToolsetUnavailable, match="'t' is not running"):
        await server.ready()
    assert await server.specs() == ()
    assert await called(server, "add") == ToolResult(
        "The MCP server 't' is not connected. The tool was not called.", is_error=True
    )


# ---------------------------------------------------------------- unusual answers
async def test_a_server_with_malformed_answers_keeps_its_connection(tmp_path: Path) -> None:
    listed = [tool(name) for name in ("say", "nonsense", "refuse")]
    async with running(raw(tmp_path, [listed], "--loud", env={"TOKEN": "sesame"})) as server:
        assert await called(server, "nonsense") == ToolResult(
            "The answer of the MCP server makes no sense.", is_error=True
        )
        assert await called(server, "refuse") == ToolResult(
            "The MCP server refused the call: no, ***", is_error=True
        )
        call = ToolCall(CallId("c"), "t__say", '{"a": "\\ud800"}')
        assert await server.call(call, CONTEXT) == ToolResult(
            "The arguments cannot be read.", is_error=True
        )
        assert await called(server, "say") == ToolResult("say")
        assert await called(server, "gone") == ToolResult(
            "The MCP server 't' has no such tool any more.", is_error=True
        )


async def test_lone_surrogates_in_an_answer_are_replaced(tmp_path: Path) -> None:
    listed = [tool("half", description="half of \ud83d")]
    async with running(raw(tmp_path, [listed])) as server:
        assert [spec.description for spec in await server.specs()] == ["half of \ufffd"]


@pytest.mark.promise("P11")
@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_an_answer_that_is_too_large_is_not_read(tmp_path: Path, transport: str) -> None:
    listed = [tool("flood"), tool("say")]
    async with serving(RawHttp([listed]).app) as url:
        stdio = raw(tmp_path, [listed])
        async with running(stdio if transport == "stdio" else MCPServer.http("t", url)) as server:
            assert await called(server, "flood") == LOST
            assert await called(server, "say") == ToolResult("say")


async def test_tools_that_an_older_server_adds_are_offered(tmp_path: Path) -> None:
    async with running(raw(tmp_path, [[tool("grow")]])) as server:
        await called(server, "grow")
        await until_it_has(server, "t__grown")
