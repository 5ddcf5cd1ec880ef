"""ACP on a WebSocket at `/acp`: keys, limits, and its end."""

import json
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.support.acp_memory import FOLDER
from tests.support.acp_schema import Json
from tests.support.chat_site import ChatSite, chat_site
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from passback.agent import Agent
from passback.http.wires import Services
from passback.models.scripted import ScriptedModel, says
from passback.services import WorkerServices
from passback.settings import load_settings
from passback.wire.acp import PATH, build

pytestmark = pytest.mark.anyio

KEY = "sesame-open-yourself"
KEYS = {"api_keys": f"ann:{KEY}"}


class SocketEditor:
    """An editor with a WebSocket, which waits for each answer.

    Attributes:
        updates: that came while it waited.
    """

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self.updates: list[Json] = []

    async def answer(self, method: str, /, **params: Any) -> Json:
        """Send a request, and return its answer, an error or not."""
        await self.connection.send(
            json.dumps({"jsonrpc": "2.0", "id": method, "method": method, "params": params})
        )
        while "method" in (frame := json.loads(await self.connection.recv())):
            self.updates.append(frame["params"]["update"])
        answer: Json = frame["result"] if "result" in frame else frame["error"]
        return answer

    async def open(self) -> Json:
        return await self.answer("initialize", protocolVersion=1)

    async def new_session(self) -> str:
        session: str = (await self.answer("session/new", cwd=FOLDER, mcpServers=[]))["sessionId"]
        return session


@asynccontextmanager
async def editor_of(site: ChatSite, key: str = "") -> AsyncGenerator[SocketEditor]:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    address = site.url.replace("http", "ws", 1) + PATH
    async with connect(address, compression=None, additional_headers=headers) as connection:
        yield SocketEditor(connection)


@asynccontextmanager
async def served(
    *texts: str, settings: Mapping[str, str] | None = None
) -> AsyncGenerator[ChatSite]:
    agent = Agent(ScriptedModel([says(text) for text in texts]))
    async with chat_site(agent, settings=settings) as site:
        yield site


async def test_a_prompt_over_a_websocket() -> None:
    async with served("Hi.") as site, editor_of(site) as editor:
        answer = await editor.open()
        assert [each["id"] for each in answer["authMethods"]] == ["local"]
        assert await editor.answer("authenticate", methodId="local") == {}
        session = await editor.new_session()
        text = [{"type": "text", "text": "Hello"}]
        answer = await editor.answer("session/prompt", sessionId=session, prompt=text)
        assert answer == {"stopReason": "end_turn"}
        said = [each["content"]["text"] for each in editor.updates if "content" in each]
        assert said == ["Hi."]


async def test_no_program_is_started_for_an_editor_elsewhere() -> None:
    async with served() as site, editor_of(site) as editor:
        await editor.open()
        server = {"name": "a", "command": "/bin/true", "args": [], "env": []}
        for method in ("session/new", "session/load"):
            session = await editor.new_session()
            refused = await editor.answer(
                method, sessionId=session, cwd=FOLDER, mcpServers=[server]
            )
            assert refused["code"] == -32602
            assert "no programs are started" in refused["message"]


async def test_without_keys_sessions_are_listed_on_this_computer_only() -> None:
    async with served() as site, editor_of(site) as editor:
        await editor.open()
        assert await editor.answer("session/list") == {"sessions": []}
    async with served(settings={"host": "0.0.0.0"}) as site, editor_of(site) as editor:
        await editor.open()
        refused = await editor.answer("session/list")
        assert (refused["code"], "on this computer only" in refused["message"]) == (-32000, True)


async def test_a_key_may_come_with_the_handshake() -> None:
    async with served(settings=KEYS) as site, editor_of(site, KEY) as editor:
        answer = await editor.open()
        assert [each["id"] for each in answer["authMethods"]] == ["local"]
        session = await editor.new_session()
        listed = await editor.answer("session/list")
        assert [each["sessionId"] for each in listed["sessions"]] == [session]


async def test_a_wrong_key_is_refused_at_the_handshake() -> None:
    async with served(settings=KEYS) as site:
        with pytest.raises(InvalidStatus) as refused:
            async with editor_of(site, "sesame-close-yourself"):
                pass
        assert refused.value.response.status_code == 401


async def test_a_key_may_come_later() -> None:
    async with served(settings=KEYS) as site, editor_of(site) as editor:
        answer = await editor.open()
        assert [each["id"] for each in answer["authMethods"]] == ["api-key"]
        refused = await editor.answer("session/new", cwd=FOLDER, mcpServers=[])
        assert refused["code"] == -32000
        missing = await editor.answer("authenticate", methodId="api-key")
        assert (missing["code"], missing["message"]) == (
            -32000,
            "_meta.apiKey: the API key is missing",
        )
        given = {"methodId": "api-key", "_meta": {"apiKey": KEY}}
        assert await editor.answer("authenticate", **given) == {}
        session = await editor.new_session()
        listed = await editor.answer("session/list")
        assert [each["sessionId"] for each in listed["sessions"]] == [session]


async def test_a_wrong_key_ends_the_websocket() -> None:
    async with served(settings=KEYS) as site, editor_of(site) as editor:
        await editor.open()
        given = {"methodId": "api-key", "_meta": {"apiKey": "sesame-close-yourself"}}
        refused = await editor.answer("authenticate", **given)
        assert (refused["code"], "sesame" in refused["message"]) == (-32000, False)
        with pytest.raises(ConnectionClosed) as closed:
            await editor.connection.recv()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1008


async def test_when_the_server_stops_the_editor_is_told_to_come_back() -> None:
    async with served() as site, editor_of(site) as editor:
        await editor.open()
        await editor.new_session()
        await site.application.drain()
        with pytest.raises(ConnectionClosed) as closed:
            await editor.answer("session/list")
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1012


def services() -> Services:
    settings = load_settings({"PASSBACK_STORE": "memory:"})
    return WorkerServices(settings, [Agent(ScriptedModel([]))]).services


def test_without_the_package_websockets_there_is_no_route(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert len(build(services()).routes) == 1
    monkeypatch.setitem(sys.modules, "websockets", None)
    assert build(services()).routes == []
