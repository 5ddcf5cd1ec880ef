"""`passback acp` as a process: its start, keys, servers of tools, outputs and end; and its socket."""

import json
import os
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.e2e.acp_stage import (
    AGENT,
    begin_session,
    call,
    offered,
    opened_editor,
    settings_of,
    told,
)
from tests.support.acp_editor import (
    ALL_CAPABILITIES,
    AcpError,
    running_editor,
    text_block,
)
from tests.support.acp_order import Frame, order_faults
from tests.support.acp_schema import Json, faults_of
from tests.support.mcp_servers import ROOT, TOOLS
from tests.support.model_server import DONE, Act, ModelServer, Reply, event, says
from tests.support.server import running_server
from tests.support.waiting import wait_until
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

pytestmark = [pytest.mark.anyio, pytest.mark.node]

KEY = "a-key-that-nobody-may-see"
STALLS = Reply([event(content="So "), Act.STALL])


def tools_server(name: str = "parcels", **environment: str) -> Json:
    """A server of tools as an editor gives it, that writes its process id to `PID_FILE`."""
    env = [{"name": each, "value": text} for each, text in environment.items()]
    path = {"name": "PYTHONPATH", "value": str(ROOT)}
    script = "import os, sys; open(os.environ['PID_FILE'], 'w').write(str(os.getpid()));"
    script += " os.execv(sys.executable, [sys.executable, '-m', 'tests.support.mcp_tools'])"
    return {"name": name, "command": TOOLS[0], "args": ["-c", script], "env": [path, *env]}


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


# ---------------------------------------------------------------- start
@pytest.mark.parametrize("version", [0, 1, 2, 65_535])
async def test_whatever_version_a_client_has_the_agent_has_the_first(
    model: ModelServer, tmp_path: Path, version: int
) -> None:
    async with running_editor(
        AGENT, cwd=tmp_path, environment=settings_of(model, tmp_path)
    ) as editor:
        opened = await editor.open(protocolVersion=version)
        assert opened["protocolVersion"] == 1


async def test_the_agent_tells_what_it_can(model: ModelServer, tmp_path: Path) -> None:
    async with running_editor(
        AGENT, cwd=tmp_path, environment=settings_of(model, tmp_path)
    ) as editor:
        opened = await editor.open()
        able = opened["agentCapabilities"]
        assert able["loadSession"] is True
        assert able["promptCapabilities"]["embeddedContext"] is True
        assert able["sessionCapabilities"].keys() >= {"list", "resume", "close", "delete"}
        assert able.get("mcpCapabilities", {}).get("sse", False) is False
        assert opened["agentInfo"]["name"]
        assert opened["agentInfo"]["version"]
        assert [each["id"] for each in opened["authMethods"]] == ["local"]
        assert await editor.request("authenticate", methodId="local") == {}


# ---------------------------------------------------------------- keys
async def test_where_keys_are_set_sessions_need_one(model: ModelServer, tmp_path: Path) -> None:
    keys = settings_of(model, tmp_path, PASSBACK_API_KEYS=f"ann:{KEY}")
    with tempfile.TemporaryFile("w+b") as log:
        async with running_editor(AGENT, cwd=tmp_path, environment=keys, stderr=log) as editor:
            opened = await editor.open()
            assert [each["id"] for each in opened["authMethods"]] == ["api-key"]
            for method in ("session/new", "session/list"):
                with pytest.raises(AcpError) as refused:
                    await editor.request(method, cwd=str(tmp_path), mcpServers=[])
                assert refused.value.code == -32000
            for wrong in ({"apiKey": f"{KEY}-not"}, {"apiKey": 5}, {}):
                with pytest.raises(AcpError) as refused:
                    await editor.request("authenticate", methodId="api-key", _meta=wrong)
                assert refused.value.code in {-32000, -32602}
            given = {"apiKey": KEY}
            assert await editor.request("authenticate", methodId="api-key", _meta=given) == {}
            model.play(says("Hello Ann."))
            session = await editor.new_session(tmp_path)
            assert await editor.prompt(session, "Hello") == "end_turn"
            if "logout" in opened["agentCapabilities"].get("auth", {}):
                await editor.request("logout")
                with pytest.raises(AcpError) as refused:
                    await editor.request("session/new", cwd=str(tmp_path), mcpServers=[])
                assert refused.value.code == -32000
            assert KEY not in json.dumps(editor.since())
        log.seek(0)
        assert KEY.encode() not in log.read()


async def test_a_key_may_come_from_the_environment(model: ModelServer, tmp_path: Path) -> None:
    keys = settings_of(model, tmp_path, PASSBACK_API_KEYS=f"ann:{KEY}", PASSBACK_ACP_KEY=KEY)
    async with running_editor(AGENT, cwd=tmp_path, environment=keys) as editor:
        await editor.open()
        assert await editor.request("authenticate", methodId="api-key") == {}
        assert await editor.new_session(tmp_path)


# ---------------------------------------------------------------- servers of tools
async def test_a_session_has_the_tools_of_its_own_servers_until_it_ends(
    model: ModelServer, tmp_path: Path
) -> None:
    pid_file = tmp_path / "pid"
    async with opened_editor(model, tmp_path) as editor:
        server = tools_server(PID_FILE=str(pid_file))
        stage = await begin_session(editor, model, tmp_path, mode="bypass", mcpServers=[server])
        model.play(says("Hi."))
        assert await stage.prompt("Hello") == "end_turn"
        theirs = {each for each in offered(model) if "parcels" in each}
        assert theirs
        pid = int(pid_file.read_text())
        other = await begin_session(editor, model, tmp_path)
        model.play(says("Hi."))
        assert await other.prompt("Hello") == "end_turn"
        assert offered(model) & theirs == set()
        assert is_running(pid)
        await editor.request("session/close", sessionId=stage.session)
        await wait_until(lambda: not is_running(pid))


async def test_a_server_that_is_broken_is_told_and_the_session_goes_on(
    model: ModelServer, tmp_path: Path
) -> None:
    broken = {"name": "broken", "command": "/nowhere/to/be/found", "args": [], "env": []}
    pid_file = tmp_path / "pid"
    servers = [broken, tools_server(PID_FILE=str(pid_file))]
    async with opened_editor(model, tmp_path) as editor:
        stage = await begin_session(editor, model, tmp_path, mcpServers=servers)
        model.play(says("Hi."))
        assert await stage.prompt("Hello") == "end_turn"
        assert [each for each in offered(model) if "parcels" in each]
        assert "broken" in json.dumps(stage.updates)


async def test_all_children_end_with_the_input(model: ModelServer, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    async with opened_editor(model, tmp_path) as editor:
        server = tools_server(PID_FILE=str(pid_file))
        stage = await begin_session(editor, model, tmp_path, mcpServers=[server])
        model.play(STALLS)
        await stage.begin("Talk")
        await stage.update("agent_message_chunk")
        pid = int(pid_file.read_text())
        assert await editor.close() == 0
        await wait_until(lambda: not is_running(pid))


# ---------------------------------------------------------------- outputs and end
async def test_what_modules_tools_and_children_print_is_no_part_of_the_protocol(
    model: ModelServer, tmp_path: Path
) -> None:
    with tempfile.TemporaryFile("w+b") as log:
        environment = settings_of(model, tmp_path)
        async with running_editor(
            AGENT, cwd=tmp_path, environment=environment, stderr=log
        ) as editor:
            await editor.open()
            stage = await begin_session(editor, model, tmp_path)
            model.play(call("print_much"), says("It is printed."))
            assert await stage.prompt("Print") == "end_turn"
            assert told(model) == ["printed"]
        log.seek(0)
        printed = log.read()
    for text in (b"BY A MODULE", b"PRINTED BY A TOOL", b"WRITTEN BY A TOOL", b"BY A CHILD"):
        assert text in printed


async def test_a_process_that_is_told_to_stop_ends(model: ModelServer, tmp_path: Path) -> None:
    async with opened_editor(model, tmp_path) as editor:
        stage = await begin_session(editor, model, tmp_path)
        model.play(STALLS)
        await stage.begin("Talk")
        await stage.update("agent_message_chunk")
        editor.process.terminate()
        with anyio.fail_after(20):
            await editor.process.wait()
            await editor.has_ended.wait()


@pytest.mark.parametrize("agent", ["no_such_module:agent", "tests.support.acp_agents:nobody"])
async def test_an_agent_that_is_not_there_is_an_error_outside_of_the_protocol(
    tmp_path: Path, agent: str
) -> None:
    with tempfile.TemporaryFile("w+b") as log:
        async with running_editor(agent, cwd=tmp_path, stderr=log) as editor:
            with anyio.fail_after(20):
                assert await editor.process.wait() == 2
                await editor.has_ended.wait()
            assert editor.frames == []
        log.seek(0)
        assert agent.partition(":")[0].encode() in log.read()


# ---------------------------------------------------------------- the socket
class Socket:
    """A client on the WebSocket, which holds each frame to the schema."""

    def __init__(self, connection: ClientConnection) -> None:
        self.frames: list[Frame] = []
        self._connection = connection

    async def ask(self, method: str, **params: Any) -> Json:
        """Send a request, take what comes until its answer, and return that."""
        key = len(self.frames)
        message = {"jsonrpc": "2.0", "id": key, "method": method, "params": params}
        self.frames.append(Frame(True, message))
        await self._connection.send(json.dumps(message))
        with anyio.fail_after(30):
            while True:
                came: Json = json.loads(await self._connection.recv())
                self.frames.append(Frame(False, came))
                is_answer = came.get("id") == key and "method" not in came
                assert faults_of(came, method if is_answer else None) == []
                if is_answer:
                    return came


@asynccontextmanager
async def socket_to(model: ModelServer, folder: Path, **settings: str) -> AsyncGenerator[str]:
    """The address of the WebSocket of a server."""
    environment = settings_of(model, folder, **settings)
    store = environment["PASSBACK_STORE"]
    async with running_server(AGENT, "--store", store, environment=environment) as server:
        yield f"{server.url.replace('http', 'ws', 1)}/acp"


async def test_the_same_goes_by_a_websocket(model: ModelServer, tmp_path: Path) -> None:
    async with socket_to(model, tmp_path) as url, connect(url, proxy=None) as connection:
        socket = Socket(connection)
        opened = await socket.ask(
            "initialize", protocolVersion=1, clientCapabilities=ALL_CAPABILITIES
        )
        assert opened["result"]["protocolVersion"] == 1
        made = await socket.ask("session/new", cwd=str(tmp_path), mcpServers=[])
        session = made["result"]["sessionId"]
        model.play(says("Hello ", "by a socket."))
        asked = {"sessionId": session, "prompt": [text_block("Hello")]}
        assert (await socket.ask("session/prompt", **asked))["result"]["stopReason"] == "end_turn"
        assert "by a socket." in str(socket.frames)
        again = await socket.ask(
            "session/load", sessionId=session, cwd=str(tmp_path), mcpServers=[]
        )
        assert "result" in again
        assert order_faults(socket.frames) == []


async def test_a_socket_is_told_costs_in_the_currency_of_the_settings(
    model: ModelServer, tmp_path: Path
) -> None:
    prices = {"PASSBACK_PRICES": "openai:mock=1000/10000", "PASSBACK_ACP_CURRENCY": "CHF"}
    async with (
        socket_to(model, tmp_path, **prices) as url,
        connect(url, proxy=None) as connection,
    ):
        socket = Socket(connection)
        await socket.ask("initialize", protocolVersion=1)
        made = await socket.ask("session/new", cwd=str(tmp_path), mcpServers=[])
        usage = {"choices": [], "usage": {"prompt_tokens": 30, "completion_tokens": 4}}
        model.play(Reply([event(content="Hi."), event("stop"), usage, DONE]))
        asked = {"sessionId": made["result"]["sessionId"], "prompt": [text_block("Hello")]}
        assert "result" in await socket.ask("session/prompt", **asked)
        updates = [each.message.get("params", {}).get("update", {}) for each in socket.frames]
        costs = [each["cost"] for each in updates if "cost" in each]
        assert costs == [{"amount": 0.07, "currency": "CHF"}]


async def test_a_socket_of_a_foreign_page_is_refused(model: ModelServer, tmp_path: Path) -> None:
    async with socket_to(model, tmp_path) as url:
        with pytest.raises((InvalidStatus, ConnectionClosed)):
            async with connect(url, proxy=None, origin="https://evil.example") as connection:  # type: ignore[arg-type]  # a NewType of str
                await connection.recv()


async def test_a_socket_needs_a_key_where_keys_are_set(model: ModelServer, tmp_path: Path) -> None:
    async with (
        socket_to(model, tmp_path, PASSBACK_API_KEYS=f"ann:{KEY}") as url,
        connect(url, proxy=None) as connection,
    ):
        socket = Socket(connection)
        await socket.ask("initialize", protocolVersion=1)
        refused = await socket.ask("session/new", cwd=str(tmp_path), mcpServers=[])
        assert refused["error"]["code"] == -32000
        given = {"apiKey": KEY}
        assert "result" in await socket.ask("authenticate", methodId="api-key", _meta=given)
        assert "result" in await socket.ask("session/new", cwd=str(tmp_path), mcpServers=[])
        assert KEY not in json.dumps([each.message for each in socket.frames if not each.is_sent])
