"""One editor: the order of its requests, what each is refused for, and what is in the answers."""

import json
from collections.abc import AsyncGenerator, Collection
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from tests.support.acp_editor import AcpError
from tests.support.acp_memory import (
    FOLDER,
    HookedRuns,
    MemoryEditor,
    connected,
    failing,
    memory_editor,
    worker_of,
)
from tests.support.acp_schema import Json
from tests.support.waiting import wait_until

from passback.core.deltas import Finish
from passback.core.errors import (
    BodyTooLarge,
    Conflict,
    InvalidRequest,
    PassbackError,
    StoreUnavailable,
    Unauthenticated,
    UnknownConversation,
)
from passback.core.messages import ToolSpec
from passback.core.toolsets import ToolServer
from passback.models.scripted import Turn, says
from passback.streams.jsonrpc import RpcError
from passback.wire.acp.connection import rpc_error

pytestmark = pytest.mark.anyio

SECRET = "hunter2"
KEY = "sesame-open-yourself"
KEYS = {"api_keys": f"ann:{KEY}"}
TOOL: Json = {"name": "paint", "description": "Paint", "parameters": {"type": "object"}}


def errors_of(editor: MemoryEditor) -> list[tuple[int, str]]:
    found = [frame.message.get("error") for frame in editor.frames if not frame.is_sent]
    return [(each["code"], each["message"]) for each in found if each]


# ---------------------------------------------------------------- errors
@pytest.mark.parametrize(
    ("error", "code", "data"),
    [
        (Unauthenticated("no"), -32000, {"code": "unauthenticated", "retryable": False}),
        (UnknownConversation("no"), -32002, {"code": "conversation_not_found", "retryable": False}),
        (InvalidRequest("no"), -32602, {"code": "invalid_request", "retryable": False}),
        (BodyTooLarge("no"), -32602, {"code": "body_too_large", "retryable": False}),
        (Conflict("no"), -32603, {"code": "conflict", "retryable": False}),
        (
            StoreUnavailable("no", retry_after=2, details={"any": 1}),
            -32603,
            {
                "code": "store_unavailable",
                "retryable": True,
                "retryAfter": 2,
                "details": {"any": 1},
            },
        ),
    ],
)
def test_errors_have_the_codes_of_the_protocol(error: PassbackError, code: int, data: Json) -> None:
    shown = rpc_error(error)
    assert (shown.code, shown.message, shown.data) == (code, "no", data)


def test_an_error_of_the_protocol_stays_as_it_is() -> None:
    error = RpcError(-32800, "cancelled")
    assert rpc_error(error) is error


async def test_before_initialize_all_else_is_refused() -> None:
    worker, _ = worker_of()
    async with worker.backend.running(), connected(worker) as editor:
        for method in ("session/new", "authenticate", "logout"):
            error = await editor.refusal(method)
            assert (error.code, error.message) == (-32600, "initialize has to come first")
        await editor.open({})
        assert await editor.new_session()


async def test_an_unknown_method_is_refused_and_an_unknown_notification_ignored() -> None:
    async with memory_editor(says("Hi.")) as (editor, _):
        editor.notify("session/unheard_of")
        editor.notify("session/cancel", sessionId=5)
        editor.notify("session/cancel", sessionId="elsewhere")
        editor.notify("$/cancel_request", requestId=[])
        editor.notify("$/cancel_request", requestId=12345)
        for method in ("session/unheard_of", "_vendor/anything"):
            error = await editor.refusal(method)
            assert (error.code, error.message) == (-32601, "there is no such method")
        assert await editor.prompt("Hello") == "end_turn"


@pytest.mark.parametrize(
    ("method", "params", "place"),
    [
        ("initialize", {"protocolVersion": SECRET}, "protocolVersion: "),
        ("initialize", {"protocolVersion": -1}, "protocolVersion: "),
        ("initialize", {}, "protocolVersion: "),
        ("authenticate", {"methodId": ""}, "methodId: "),
        ("authenticate", {"methodId": SECRET}, "methodId: "),
        ("logout", [SECRET], "params: "),
        ("session/new", [SECRET], "params: "),
        ("session/new", {"cwd": FOLDER}, "mcpServers: "),
        ("session/new", {"mcpServers": []}, "cwd: "),
        ("session/new", {"cwd": SECRET, "mcpServers": []}, "cwd: has to be an absolute path"),
        ("session/new", {"cwd": FOLDER, "mcpServers": [{"name": "a"}]}, "mcpServers: "),
        (
            "session/new",
            {"cwd": FOLDER, "mcpServers": [{"type": "http", "name": "a", "url": SECRET}]},
            "mcpServers: only servers that are started as a command",
        ),
        (
            "session/new",
            {
                "cwd": FOLDER,
                "mcpServers": [
                    {"name": "a", "command": "b", "env": [{"name": "c", "value": [SECRET]}]}
                ],
            },
            "mcpServers.0.env.0.value: ",
        ),
        (
            "session/new",
            {"cwd": FOLDER, "mcpServers": [{"name": "a", "command": "b", "args": [""]}]},
            "mcpServers: MCPServer.stdio: command: ",
        ),
        (
            "session/new",
            {"cwd": FOLDER, "mcpServers": [], "additionalDirectories": ["/a", SECRET]},
            "additionalDirectories.1: ",
        ),
        (
            "session/new",
            {"cwd": FOLDER, "mcpServers": [], "_meta": {"passback": {"tools": SECRET}}},
            "_meta.passback.tools: ",
        ),
        (
            "session/new",
            {"cwd": FOLDER, "mcpServers": [], "_meta": {"passback": {"tools": [{"name": ""}]}}},
            "",
        ),
        ("session/load", {"sessionId": "a", "cwd": FOLDER}, "mcpServers: "),
        ("session/load", {"sessionId": "{}", "cwd": FOLDER, "mcpServers": []}, "a conversation"),
        ("session/resume", {"cwd": FOLDER}, "sessionId: "),
        ("session/list", {"cursor": SECRET}, "cursor "),
        ("session/list", {"cwd": SECRET}, "cwd: "),
        ("session/close", {}, "sessionId: "),
        ("session/delete", {"sessionId": "{}"}, "a conversation id"),
        ("session/prompt", {"sessionId": "a"}, "prompt: "),
        ("session/prompt", {"sessionId": "a", "prompt": []}, "prompt: "),
        (
            "session/prompt",
            {"sessionId": "a", "prompt": [{"type": SECRET}]},
            "prompt.0.type: Input should be one of",
        ),
        ("session/set_mode", {"sessionId": "a"}, "modeId: "),
        ("session/set_config_option", {"sessionId": "a", "configId": "mode"}, "value: "),
    ],
)
async def test_bad_parameters_are_refused_with_their_place_and_without_their_values(
    method: str, params: Any, place: str
) -> None:
    async with memory_editor() as (editor, _):
        key = len(editor.frames)
        editor.send({"jsonrpc": "2.0", "id": key, "method": method, "params": params})
        with pytest.raises(AcpError) as refused:
            await editor.result(key)
        assert (refused.value.code, refused.value.message[: len(place)]) == (-32602, place)
        assert SECRET not in json.dumps([refused.value.message, refused.value.data])


async def test_parameters_that_are_left_out_are_none() -> None:
    async with memory_editor() as (editor, _):
        key = len(editor.frames)
        editor.send({"jsonrpc": "2.0", "id": key, "method": "session/list"})
        assert len((await editor.result(key))["sessions"]) == 1


async def test_an_unexpected_error_is_logged_and_not_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with memory_editor() as (editor, _):
        editor.hooks["conversations"] = failing(ValueError(SECRET))
        error = await editor.refusal("session/list")
        assert (error.code, error.message) == (-32603, "the server met an unexpected error")
        assert "a request of an editor failed" in caplog.text
        assert await editor.new_session()


async def test_a_failure_of_the_store_is_told_and_may_be_tried_again() -> None:
    async with memory_editor(says("Hi.")) as (editor, _):
        editor.hooks["start"] = failing(StoreUnavailable("the store cannot be reached"))
        error = await editor.refusal_of_prompt()
        assert (error.code, error.message) == (-32603, "the store cannot be reached")
        assert error.data["retryable"] is True
        del editor.hooks["start"]
        assert await editor.prompt("Hello") == "end_turn"


async def test_a_run_that_cannot_be_cancelled_is_followed_to_its_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    held = anyio.Event()
    async with memory_editor(["One.", held, Finish("stop")]) as (editor, _):
        editor.hooks["cancel"] = failing(StoreUnavailable("the store cannot be reached"))
        key = editor.begin_prompt("Hello")
        await wait_until(lambda: bool(editor.of_kind("agent_message_chunk")))
        editor.cancel()
        await wait_until(lambda: "a run cannot be cancelled" in caplog.text)
        held.set()
        assert await editor.stop_reason(key) == "cancelled"


async def test_a_cancelled_prompt_that_fails_is_cancelled() -> None:
    async with memory_editor(says("Hi.")) as (editor, _):

        async def cancel_and_fail() -> None:
            editor.cancel()
            await anyio.lowlevel.checkpoint()
            await anyio.lowlevel.checkpoint()
            raise StoreUnavailable("the store cannot be reached")

        editor.hooks["start"] = cancel_and_fail
        assert await editor.stop_reason(editor.begin_prompt("Hello")) == "cancelled"


# ---------------------------------------------------------------- the connection
async def test_initialize_tells_what_the_agent_can() -> None:
    worker, _ = worker_of(media=True)
    async with worker.backend.running(), connected(worker) as editor:
        answer = await editor.request("initialize", protocolVersion=7, clientCapabilities=[])
        assert answer["protocolVersion"] == 1
        assert answer["agentInfo"]["name"] == "passback"
        can = answer["agentCapabilities"]
        assert can["promptCapabilities"] == {"image": True, "audio": True, "embeddedContext": True}
        assert can["mcpCapabilities"] == {"http": False, "sse": False}
        assert [each["id"] for each in answer["authMethods"]] == ["local"]
        assert await editor.request("authenticate", methodId="local", _meta="none") == {}
        assert await editor.new_session()


async def test_of_the_media_only_those_that_the_model_takes_are_offered() -> None:
    async with memory_editor() as (editor, _):
        can = (await editor.open())["agentCapabilities"]["promptCapabilities"]
        assert (can["image"], can["audio"]) == (False, False)


async def test_where_keys_are_set_sessions_need_one() -> None:
    worker, _ = worker_of(settings=KEYS)
    async with worker.backend.running(), connected(worker, owner=None) as editor:
        answer = await editor.open()
        assert [each["id"] for each in answer["authMethods"]] == ["api-key"]
        for method in ("session/new", "session/list", "session/prompt"):
            assert (await editor.refusal(method)).code == -32000
        assert "api-key" in (await editor.refusal("authenticate", methodId="local")).message
        missing = await editor.refusal("authenticate", methodId="api-key", _meta={"apiKey": 5})
        assert (missing.code, "PASSBACK_ACP_KEY" in missing.message) == (-32000, True)
        wrong = await editor.refusal("authenticate", methodId="api-key", _meta={"apiKey": SECRET})
        assert (wrong.code, SECRET in wrong.message) == (-32000, False)
        key = {"apiKey": KEY}
        assert await editor.request("authenticate", methodId="api-key", _meta=key) == {}
        assert await editor.new_session()


async def test_a_key_that_is_set_needs_not_be_sent() -> None:
    worker, _ = worker_of(settings=KEYS)
    async with (
        worker.backend.running(),
        connected(worker, owner=None, key=KEY) as editor,
    ):
        await editor.open()
        assert await editor.request("authenticate", methodId="api-key") == {}
        assert await editor.new_session()


async def test_after_logout_sessions_need_a_key_again() -> None:
    worker, _ = worker_of(settings=KEYS)
    async with (
        worker.backend.running(),
        connected(worker, owner=None, key=KEY) as editor,
    ):
        await editor.open()
        await editor.request("authenticate", methodId="api-key")
        session = await editor.new_session()
        assert await editor.request("logout") == {}
        assert (await editor.refusal("session/new")).code == -32000
        await editor.request("authenticate", methodId="api-key")
        assert "session/load" in (await editor.refusal_of_prompt()).message
        assert await editor.load(session)


async def test_without_keys_logout_ends_the_sessions_only() -> None:
    async with memory_editor() as (editor, _):
        assert await editor.request("logout") == {}
        assert (await editor.refusal_of_prompt()).code == -32002
        assert await editor.new_session()


async def test_the_end_of_the_connection_leaves_its_runs_alone() -> None:
    held = anyio.Event()
    worker, model = worker_of([held, *says("Said.")])
    async with worker.backend.running():
        async with connected(worker) as editor:
            await editor.open()
            await editor.new_session()
            editor.begin_prompt("Hello")
            await wait_until(lambda: model.open_streams == 1)
        held.set()
        await editor.until_idle()
        assert (await editor.runs.status(editor.key)).message_count == 2


async def test_a_connection_may_end_right_behind_a_request() -> None:
    worker, _ = worker_of(says("Said."))
    async with worker.backend.running(), connected(worker) as editor:
        await editor.open()
        await editor.new_session()
        editor.begin_prompt("Hello")
        editor.begin("session/list")
        editor.leave()


# ---------------------------------------------------------------- cancelled requests
async def test_a_request_that_is_cancelled_is_answered() -> None:
    async with memory_editor(says("Said.")) as (editor, _):
        key = editor.begin("session/list")
        editor.notify("$/cancel_request", requestId=key)
        with pytest.raises(AcpError) as refused:
            await editor.result(key)
        assert (refused.value.code, refused.value.message) == (
            -32800,
            "the request was cancelled",
        )
        assert await editor.prompt("Hello") == "end_turn"


async def test_a_prompt_that_is_cancelled_by_its_id_ends_as_cancelled() -> None:
    held = anyio.Event()
    async with memory_editor(["Beginning", held], says("Said.")) as (editor, model):
        key = editor.begin_prompt("Hello")
        await wait_until(lambda: bool(editor.of_kind("agent_message_chunk")))
        second = editor.begin_prompt("And this")
        editor.notify("$/cancel_request", requestId=key)
        assert await editor.stop_reason(key) == "cancelled"
        assert await editor.stop_reason(second) == "end_turn"
        assert model.open_streams == 0


class WatchedServer:
    """An MCP server without tools, whose connection is watched."""

    name = "watched"
    is_running = False

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        self.is_running = True
        yield
        self.is_running = False

    async def ready(self) -> tuple[str, ...]:
        return ()

    async def specs(self) -> tuple[ToolSpec, ...]:
        return ()


@asynccontextmanager
async def watched_editor(*turns: Turn) -> AsyncGenerator[tuple[MemoryEditor, list[WatchedServer]]]:
    """An editor whose MCP servers are watched; each session has one."""
    servers: list[WatchedServer] = []

    def make(_server: ToolServer, taken: Collection[str]) -> WatchedServer:
        servers.append(WatchedServer())
        return servers[-1]

    worker, _ = worker_of(*turns)
    runs = HookedRuns(worker.backend.runs)
    async with (
        worker.backend.running(),
        connected(worker, tool_server=make, runs=runs) as editor,
    ):
        editor.hooks = runs.hooks
        await editor.open()
        yield editor, servers


WATCHED = [{"name": "watched", "command": "any"}]


@pytest.mark.parametrize("method", ["session/close", "session/delete", "logout"])
async def test_an_end_of_sessions_is_not_interrupted(method: str) -> None:
    async with watched_editor(["One.", anyio.Event()]) as (editor, servers):
        await editor.new_session(mcpServers=WATCHED)
        prompt = editor.begin_prompt("Hello")
        await wait_until(lambda: bool(editor.of_kind("agent_message_chunk")))
        if method == "logout":
            await editor.new_session(mcpServers=WATCHED)
            editor.is_checked = False  # logout cancels the prompt
        await wait_until(lambda: all(each.is_running for each in servers))
        key = editor.begin(method, sessionId=editor.session)
        editor.notify("$/cancel_request", requestId=key)
        assert await editor.result(key) == {}
        assert not any(each.is_running for each in servers)
        assert await editor.stop_reason(prompt) == "cancelled"
        is_listed = bool((await editor.request("session/list"))["sessions"])
        assert is_listed == (method != "session/delete")


async def test_a_load_that_is_cancelled_leaves_no_session_open() -> None:
    async with watched_editor(says("Hi.")) as (editor, servers):
        await editor.new_session()
        assert await editor.prompt("Hello") == "end_turn"
        given: Json = {"sessionId": editor.session, "cwd": FOLDER, "mcpServers": WATCHED}
        editor.hooks["messages"] = anyio.sleep_forever
        key = editor.begin("session/load", **given)
        await wait_until(lambda: bool(servers) and servers[0].is_running)
        editor.notify("$/cancel_request", requestId=key)
        with pytest.raises(AcpError, match="-32800"):
            await editor.result(key)
        await wait_until(lambda: not servers[0].is_running)
        assert (await editor.refusal_of_prompt()).code == -32002
