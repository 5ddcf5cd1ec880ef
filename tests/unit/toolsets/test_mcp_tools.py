"""The tools of MCP servers: their calls by stdio and by HTTP, and their results."""

from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any

import anyio
import pytest
from tests.support.ledgers import open_ledger
from tests.support.mcp_servers import CONTEXT, called, names, running, serving, tools, until_it_has
from tests.support.mcp_tools import tools as tool_server
from tests.support.runs import events, post, says, worker

from passback.core.events import ToolProgressed, ToolResulted
from passback.core.messages import Content, DataPart, MediaPart, TextPart, ToolResult, ToolSpec
from passback.core.toolsets import ToolContext
from passback.models.scripted import ScriptedModel, calls
from passback.models.scripted import says as words
from passback.toolsets.mcp import MCPServer

pytestmark = pytest.mark.anyio

ADD = ToolSpec(
    "t__add",
    "Add two numbers.",
    {
        "type": "object",
        "title": "addArguments",
        "properties": {
            "a": {"title": "A", "type": "integer"},
            "b": {"title": "B", "type": "integer"},
        },
        "required": ["a", "b"],
    },
    title="Add",
)


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """Allow a server with the scope of a module."""
    return "asyncio"


@pytest.fixture(scope="module")
async def stdio() -> AsyncGenerator[MCPServer]:
    server = tools(seconds=20)
    async with server.running():
        await server.ready()
        yield server


async def test_a_servers_tools_are_named_after_it_and_called(stdio: MCPServer) -> None:
    assert (await stdio.specs())[0] == ADD
    assert await called(stdio, "add", a=2, b=3) == ToolResult("5")


async def test_a_server_by_http_gets_the_headers_and_its_repr_has_none() -> None:
    async with serving(tool_server().streamable_http_app()) as url:
        headers = {"Authorization": "Bearer sesame", "X-Two": "words"}
        server = MCPServer.http("t", url, headers=headers)
        async with running(server):
            assert (await server.specs())[0] == ADD
            assert await called(server, "add", a=2, b=3) == ToolResult("5")
            given = await called(server, "header", name="authorization")
            assert given == ToolResult("Bearer sesame")
        assert repr(server) == "MCPServer('t')"


@pytest.mark.parametrize("trusted", [False, True])
async def test_tool_hints_count_only_from_a_trusted_server(trusted: bool) -> None:
    async with running(tools(trust_hints=trusted)) as server:
        hints = {
            name: (server.is_read_only(f"t__{name}"), server.is_repeatable(f"t__{name}"))
            for name in ("add", "put", "wipe", "fail", "unknown")
        }
    trusted_hints = {"add": (True, True), "put": (False, True)} if trusted else {}
    assert hints == dict.fromkeys(hints, (False, False)) | trusted_hints
    assert not server.is_read_only("t__add")
    assert not server.is_repeatable("t__add")


@pytest.mark.parametrize("trusted", [False, True])
async def test_titles_are_those_of_the_server_and_kinds_follow_from_trusted_hints(
    trusted: bool,
) -> None:
    """Hints that contradict each other say nothing."""
    async with running(tools(trust_hints=trusted)) as server:
        specs = {spec.name: spec for spec in await server.specs()}
    shown = {
        name: (specs[f"t__{name}"].title, specs[f"t__{name}"].kind)
        for name in ("add", "put", "wipe", "die", "grow", "fail")
    }
    kinds = {"add": "read", "die": "edit", "grow": "edit"} if trusted else {}
    titles = {"add": "Add", "wipe": "Wipe all"}
    assert shown == {name: (titles.get(name, ""), kinds.get(name, "other")) for name in shown}


async def test_a_call_begins_when_it_is_sent_to_the_server() -> None:
    """A call that is not sent does not begin."""
    begun: list[str] = []

    def context(name: str) -> ToolContext:
        return replace(CONTEXT, begin=lambda _locations: begun.append(name))

    async with running(tools()) as server:
        assert await called(server, "add", context("good"), a=2, b=3) == ToolResult("5")
        assert (await called(server, "no_such", context("unknown"))).is_error
    assert (await called(server, "add", context("closed"), a=2, b=3)).is_error
    assert begun == ["good"]


# ---------------------------------------------------------------- results
@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("text", (TextPart("one"), TextPart("two 😀"))),
        ("image", (MediaPart("image", "data:image/png;base64,aW1hZ2U=", "image/png"),)),
        ("audio", (MediaPart("audio", "data:audio/wav;base64,c291bmQ=", "audio/wav"),)),
        (
            "resource",
            (
                TextPart("[note://1]\nwritten"),
                MediaPart("image", "data:image/gif;base64,ZmlsZQ==", "image/gif", "note://2"),
                MediaPart("audio", "data:audio/mpeg;base64,c291bmQ=", "audio/mpeg", "note://3"),
                MediaPart(
                    "file",
                    "data:application/octet-stream;base64,ZmlsZQ==",
                    "application/octet-stream",
                    "note://4",
                ),
            ),
        ),
        (
            "link",
            (
                MediaPart("file", "https://example.org/page", "text/html", "page"),
                MediaPart("file", "http://example.org/odd", None, "odd"),
                TextPart("[resource secret: file:///etc/passwd]"),
            ),
        ),
        (
            "broken",
            (
                TextPart("[left out: image, which is not valid]"),
                TextPart("[left out: audio, which is not valid]"),
            ),
        ),
        (
            "large",
            (
                MediaPart("image", "data:image/png;base64," + "A" * 300_000, "image/png"),
                TextPart("[left out: image, which is larger than the limit]"),
            ),
        ),
        ("many", (*(TextPart(str(n)) for n in range(100)), TextPart("[left out: 5 more parts]"))),
        ("none", ""),
    ],
)
async def test_each_kind_of_content_becomes_parts_of_a_result(
    stdio: MCPServer, kind: str, content: Content
) -> None:
    assert await called(stdio, "show", kind=kind) == ToolResult(content)


@pytest.mark.promise("P11")
async def test_a_long_result_is_cut_with_one_note() -> None:
    async with running(tools(result_limit=100)) as server:
        long = await called(server, "show", kind="long")
        data = await called(server, "data", text="", size=200)
    cut = "\n[cut: the result was longer than the limit]"
    assert long == ToolResult((TextPart("x" * 60), TextPart("y" * 40 + cut)))
    assert data == ToolResult(('{"n":"' + "1" * 200)[:100] + cut)


async def test_structured_data_is_added_unless_the_text_has_it(stdio: MCPServer) -> None:
    assert await called(stdio, "put", text="x") == ToolResult('{\n  "put": "x"\n}')
    assert await called(stdio, "wipe") == ToolResult((TextPart("wiped"), TextPart("all")))
    both = await called(stdio, "data", text="See the data.", size=2)
    assert both == ToolResult((TextPart("See the data."), DataPart({"n": "11"})))
    assert await called(stdio, "data", text="", size=1) == ToolResult((DataPart({"n": "1"}),))


async def test_a_failure_is_an_error(stdio: MCPServer) -> None:
    assert await called(stdio, "fail") == ToolResult("It is broken.", is_error=True)
    refused = await called(stdio, "add", a="x")
    assert refused.is_error
    assert "a valid integer" in str(refused.content)


# ---------------------------------------------------------------- progress
async def test_a_call_reports_its_progress(stdio: MCPServer) -> None:
    steps: list[Any] = [[1, None, None], [2, 10, None], [2.5, 10, "reading"], [3, None, "x" * 2000]]
    async with (
        serving(tool_server().streamable_http_app()) as url,
        running(MCPServer.http("t", url)) as http,
    ):
        for server in (stdio, http):
            progress: list[str] = []
            context = replace(CONTEXT, progress=progress.append)
            result = await called(server, "advance", context, steps=steps)
            assert result == ToolResult("arrived")
            assert progress == ["1", "2 of 10", "reading (2.5 of 10)", "x" * 1000]


async def test_the_progress_of_a_call_is_an_event_of_the_run(stdio: MCPServer) -> None:
    script = ScriptedModel([calls(("t__advance", {"steps": [[1, 3, "reading"]]})), words("so")])
    async with open_ledger("memory:") as store, worker(store, script, toolsets=[stdio]) as runs:
        received = await events(runs, await post(runs, says()))
    [step] = [event for event in received if isinstance(event, ToolProgressed)]
    [result] = [event for event in received if isinstance(event, ToolResulted)]
    assert step == ToolProgressed(result.call_id, "reading (1 of 3)")


# ---------------------------------------------------------------- deadlines and cancelling
async def test_a_call_that_times_out_is_cancelled_at_the_server() -> None:
    async with running(tools(seconds=1)) as server:
        late = await called(server, "wait")
        assert late == ToolResult("The tool did not answer in 1 s.", is_error=True)
        assert await called(server, "cancelled") == ToolResult("cancelled")


@pytest.mark.parametrize("transport", ["stdio", "http"])
@pytest.mark.promise("P7")
async def test_a_call_that_is_cancelled_is_cancelled_at_the_server(transport: str) -> None:
    async with serving(tool_server().streamable_http_app()) as url:
        server = tools() if transport == "stdio" else MCPServer.http("t", url)
        async with running(server), anyio.create_task_group() as tasks:
            tasks.start_soon(called, server, "wait")
            assert await called(server, "begun") == ToolResult("begun")
            tasks.cancel_scope.cancel()
            with anyio.CancelScope(shield=True):
                assert await called(server, "cancelled") == ToolResult("cancelled")


# ---------------------------------------------------------------- changes
@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_tools_that_a_server_adds_are_offered(transport: str) -> None:
    async with serving(tool_server().streamable_http_app()) as url:
        server = tools() if transport == "stdio" else MCPServer.http("t", url)
        async with running(server):
            assert "t__grown" not in await names(server)
            assert await called(server, "grow", name="grown") == ToolResult("grown")
            await until_it_has(server, "t__grown")
            assert await called(server, "grown") == ToolResult("grown")
