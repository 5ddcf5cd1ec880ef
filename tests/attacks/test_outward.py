"""Addresses from clients, models' services and tools' servers are neither fetched nor followed."""

import json
from collections.abc import AsyncGenerator
from typing import Any
from uuid import uuid4

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import RedirectResponse
from starlette.routing import Route
from tests.support import agent_api, ai_sdk
from tests.support.anthropic_server import AnthropicServer
from tests.support.mcp_servers import serving
from tests.support.model_server import ModelServer, fails, listening, model_server, says
from tests.support.responses_model_server import ResponsesModelServer
from tests.support.server import Server, running_server
from tests.support.wire import PATH, Client, Json, check_refusal, client_of, client_tool, user

from passback.core.errors import ToolsetUnavailable
from passback.toolsets.mcp import MCPServer

pytestmark = [pytest.mark.anyio, pytest.mark.promise("P13")]

KEY = "the-key-that-goes-to-nobody-else"
REDIRECTS = (301, 302, 303, 307, 308)


@pytest.fixture(scope="module")
async def server(model: ModelServer) -> AsyncGenerator[Server]:
    settings = ("--model", "openai:mock", "--model-base-url", model.base_url)
    async with running_server(*settings) as server:
        yield server


@pytest.fixture(scope="module")
async def client(server: Server) -> AsyncGenerator[Client]:
    async with client_of(server.url) as client:
        yield client


@pytest.fixture
async def trap() -> AsyncGenerator[ModelServer]:
    """A server that nobody may connect to."""
    async with model_server(says("caught")) as trap:
        yield trap
        assert trap.connections == 0


# ---------------------------------------------------------------- posts
def part(**fields: object) -> Json:
    return {"messages": [user([{"type": "text", "text": "look"}, fields])]}


def process(**fields: object) -> Json:
    return {"input": [{"role": "user", "content": [agent_api.text("look"), fields]}]}


def url_source(url: str) -> Json:
    return {"type": "url", "value": url}


def thread(**fields: object) -> Json:
    message = {"id": "u", "role": "user", "content": [{"type": "text", "text": "look"}, fields]}
    return {"threadId": f"thread-{uuid4()}", "runId": "r", "messages": [message]}


ATTACHED: dict[str, tuple[str, Json]] = {
    "an image": (PATH, part(type="image", url="TRAP/a.png")),
    "an image with a type": (PATH, part(type="image", url="TRAP/a", mediaType="image/png")),
    "an image as in chat completions": (
        PATH,
        part(type="image_url", image_url={"url": "TRAP/a.png"}),
    ),
    "an image as a text": (PATH, part(type="image_url", image_url="TRAP/a.png")),
    "a file": (PATH, part(type="file", url="TRAP/a.pdf", mediaType="application/pdf")),
    "a sound": (PATH, part(type="audio", url="TRAP/a.wav", mediaType="audio/wav")),
    "data": (PATH, part(type="data", data={"url": "TRAP/a", "$ref": "TRAP/b"})),
    "an image of the Agent API": ("/process", process(type="image", image_url="TRAP/a.png")),
    "a file of the Agent API": ("/process", process(type="file", file_url="TRAP/a.pdf")),
    "a video of the Agent API": ("/process", process(type="video", video_url="TRAP/a.mp4")),
    "an image of the AI SDK": (
        ai_sdk.API,
        {"message": {**ai_sdk.user("a"), "parts": [ai_sdk.file_part("TRAP/a.png")]}},
    ),
    "an image of AG-UI": ("/ag-ui", thread(type="image", source=url_source("TRAP/a.png"))),
    "a video of AG-UI": ("/ag-ui", thread(type="video", source=url_source("TRAP/a.mp4"))),
    "structured data": (
        PATH,
        {"messages": [user("look")], "structuredData": {"$ref": "TRAP/a", "src": "TRAP/b"}},
    ),
    "an address in words": (PATH, {"messages": [user("![look](TRAP/a.png) <img src=TRAP/b>")]}),
}


def aimed_at(trap: ModelServer, value: Any) -> Any:
    return json.loads(json.dumps(value).replace("TRAP", trap.base_url))


@pytest.mark.parametrize("case", ATTACHED.values(), ids=ATTACHED)
async def test_an_address_in_a_post_is_passed_on_or_refused_and_never_fetched(
    client: Client, model: ModelServer, trap: ModelServer, case: tuple[str, Json]
) -> None:
    model.play(says("seen"))
    path, body = case
    answer = await client.http.post(path, json=aimed_at(trap, body))
    assert answer.status_code in {200, 422}
    if answer.status_code == 422:
        check_refusal(answer, 422, answer.json()["code"])
        assert model.requests == []
    assert trap.connections == 0


SCHEMAS: dict[str, Json] = {
    "a reference": {"$ref": "TRAP/a"},
    "a reference in a property": {"properties": {"a": {"$ref": "TRAP/a#/b"}}},
    "a dynamic reference": {"properties": {"a": {"$dynamicRef": "TRAP/a#b"}}},
    "a dialect": {"$schema": "TRAP/a"},
    "a base and a reference": {"$id": "TRAP/a", "properties": {"a": {"$ref": "b"}}},
    "a base with a dialect": {"$id": "TRAP/a", "$schema": "TRAP/b"},
    "a base inside": {"properties": {"a": {"$id": "TRAP/a", "$ref": "b"}}},
    "a vocabulary": {"$vocabulary": {"TRAP/a": True}, "$schema": "TRAP/b"},
    "a reference to a file": {"$ref": "file:///etc/passwd"},
    "a reference without a scheme": {"$ref": "//TRAP/a"},
}


@pytest.mark.parametrize("schema", SCHEMAS.values(), ids=SCHEMAS)
async def test_a_schema_that_leads_elsewhere_is_refused_and_never_fetched(
    client: Client, trap: ModelServer, conversation: str, schema: Json
) -> None:
    parameters = {"type": "object", **aimed_at(trap, schema)}
    asked = {"conversationId": conversation, "messages": [user("hi")]}
    tool = {**client_tool("fine"), "parameters": parameters}
    refused = await client.http.post(PATH, json={**asked, "tools": [tool]})
    check_refusal(refused, 422, "invalid_tool")
    refused = await client.http.post(PATH, json={**asked, "outputSchema": parameters})
    check_refusal(refused, 422, "invalid_output_schema")
    assert (await client.conversation(conversation))["status"] == 404


FOREIGN_SCHEMES = (
    *("file:///etc/passwd", "javascript:alert(1)", "gopher://127.0.0.1:6379/_FLUSHALL"),
    *("//127.0.0.1/a", "ftp://127.0.0.1/a", "http://127.0.0.1/a\r\nX: y", "a.png", ""),
    *(
        "http://127.0.0.1/\u2028",
        "data:image/svg+xml,<svg onload=alert(1)>",
        "blob:http://127.0.0.1/a",
    ),
)


@pytest.mark.parametrize("url", FOREIGN_SCHEMES)
async def test_an_attachment_of_another_kind_of_address_is_refused(
    client: Client, model: ModelServer, url: str
) -> None:
    model.play(says("seen"))
    for path, body in (
        (PATH, part(type="image", url=url)),
        ("/process", process(type="image", image_url=url)),
        ("/ag-ui", thread(type="image", source=url_source(url))),
    ):
        check_refusal(await client.http.post(path, json=body), 422, "invalid_request")
    assert model.requests == []


# ---------------------------------------------------------------- answers of services
@pytest.mark.parametrize(
    ("protocol", "serve"),
    [
        ("openai", ModelServer),
        ("openai-responses", ResponsesModelServer),
        ("anthropic", AnthropicServer),
    ],
)
async def test_a_models_service_that_redirects_is_not_followed(
    protocol: str, serve: type[ModelServer]
) -> None:
    async with listening(serve([])) as service, listening(ModelServer([])) as trap:
        settings = ("--model", f"{protocol}:mock", "--model-base-url", service.base_url)
        environment = {"PASSBACK_MODEL_API_KEY": KEY}
        async with (
            running_server(*settings, environment=environment) as server,
            client_of(server.url) as client,
        ):
            for status in REDIRECTS:
                service.play(fails(status, location=f"{trap.base_url}/{status}"))
                answer = await client.post(f"to-{status}", user("hi"))
                [error] = [each.event for each in answer.frames if each.type == "error"]
                assert (error["code"], error["retryable"]) == ("model_rejected", False)
                assert "redirects" in error["error"]
                [request] = service.requests
                assert KEY in str(request.headers)
        assert trap.connections == 0


@pytest.mark.parametrize("status", [302, 307, 308])  # as GET, and as they were
async def test_a_server_of_tools_that_redirects_is_not_followed(
    trap: ModelServer, status: int
) -> None:
    asked: list[str | None] = []

    async def redirect(request: Request) -> RedirectResponse:
        asked.append(request.headers.get("authorization"))
        return RedirectResponse(f"{trap.base_url}/mcp", status)

    app = Starlette(routes=[Route("/mcp", redirect, methods=["GET", "POST", "DELETE"])])
    async with serving(app) as url:
        tools = MCPServer.http("t", url, headers={"Authorization": KEY}, start_seconds=5)
        async with tools.running():
            with pytest.raises(ToolsetUnavailable) as failure:
                await tools.ready()
            assert await tools.specs() == []
    assert asked[0] == KEY
    assert KEY not in failure.value.message
    assert trap.connections == 0
