"""The OpenAPI document is valid and complete, and answers fit it."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import validate
from starlette.routing import Route
from tests.support.asgi_client import ask, ask_json
from tests.support.logged_runs import RUN, LoggedRuns

from passback.core.changes import Status
from passback.core.errors import ConfigurationError
from passback.core.events import Completed, RunFinished
from passback.core.messages import (
    AssistantMessage,
    CallId,
    MessageId,
    Owed,
    RunId,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from passback.core.signals import Signal
from passback.http.answers import STATUS
from passback.http.gate import Access
from passback.http.site import build_site
from passback.http.wires import Services, Wire
from passback.native.openapi import compose_document, document_wire
from passback.wire import chat, page, rest, send_message

pytestmark = pytest.mark.anyio

RUNS = LoggedRuns(RunFinished(Completed()))
SERVICES = Services(RUNS, Signal())
WIRES = [module.build(SERVICES) for module in (send_message, rest, page, chat)]
WIRES.append(document_wire([*WIRES], version="1.2.3"))
DOCUMENT: dict[str, Any] = json.loads(json.dumps(compose_document(WIRES, version="1.2.3")))
APP = build_site(WIRES, Access())
METHODS = {"get", "post", "put", "delete", "patch"}

OPERATIONS = {
    f"{method} {path}": operation
    for path, item in DOCUMENT["paths"].items()
    for method, operation in item.items()
    if method in METHODS
}


def _fits(value: object, schema: dict[str, Any]) -> None:
    Draft202012Validator({**schema, "components": DOCUMENT["components"]}).validate(value)


def test_the_document_is_valid() -> None:
    validate(DOCUMENT)
    assert DOCUMENT["openapi"] == "3.1.0"
    assert DOCUMENT["info"]["version"] == "1.2.3"


def test_every_route_is_described_and_every_description_is_a_route() -> None:
    routed = {
        f"{method.lower()} {route.path}"
        for wire in WIRES
        for route in wire.routes
        if isinstance(route, Route)
        for method in (route.methods or set()) - {"HEAD"}
    }
    files = {f"get {path}" for path in WIRES[2].public} - {"get /"}
    by_a_library = {"get /socket.io/", "post /socket.io/"}  # a protocol of its own
    assert routed - files - by_a_library == OPERATIONS.keys()


def test_every_operation_has_a_name_of_its_own() -> None:
    names = [operation["operationId"] for operation in OPERATIONS.values()]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS.keys())
def test_each_code_is_described_with_its_status(operation: dict[str, Any]) -> None:
    for status, response in operation["responses"].items():
        if int(status) < 400:
            continue
        for code in response["x-codes"]:
            assert str(STATUS[code]) == status


def test_every_code_of_requests_is_described() -> None:
    described = {
        code
        for operation in OPERATIONS.values()
        for response in operation["responses"].values()
        for code in response.get("x-codes", [])
    }
    roots = {"client_error", "refused"}  # base classes, never raised
    # internal, raised only at start, or of no operation
    not_of_requests = {"lease_lost", "toolset_unavailable", "configuration_error", "not_found"}
    not_of_requests |= {"too_many_sockets", "upgrade_required"}  # of WebSockets
    assert described == STATUS.keys() - roots - not_of_requests


def test_a_post_is_described_with_the_headers_of_requests_and_answers() -> None:
    post = OPERATIONS["post /send-message"]
    parameters = {each["name"] for each in post["parameters"]}
    assert parameters == {"wait", "Idempotency-Key", "Last-Event-ID"}
    with_retry_after = {
        status
        for status, response in post["responses"].items()
        if "Retry-After" in response["headers"]
    }
    assert with_retry_after == {"409", "429", "503"}


def _examples() -> Iterator[Any]:
    for name, operation in OPERATIONS.items():
        bodies = {"request": operation.get("requestBody", {}), **operation["responses"]}
        contents = [(of, each) for of in bodies for each in bodies[of].get("content", {}).values()]
        for of, content in contents:
            if "example" in content:
                yield pytest.param(content["example"], content["schema"], id=f"{name}, {of}")


@pytest.mark.parametrize(("example", "schema"), list(_examples()))
def test_each_example_fits_its_schema(example: object, schema: dict[str, Any]) -> None:
    _fits(example, schema)


def test_each_event_of_an_example_fits_the_events_schema() -> None:
    stream = OPERATIONS["post /send-message"]["responses"]["200"]["content"]["text/event-stream"]
    frames = stream["example"].removesuffix("\n\n").split("\n\n")
    assert len(frames) == 5
    for frame in frames:
        data = frame.partition("data: ")[2]
        _fits(data if data == "[DONE]" else json.loads(data), stream["x-event-schema"])


async def test_the_example_of_a_post_is_accepted() -> None:
    content = OPERATIONS["post /send-message"]["requestBody"]["content"]["application/json"]
    assert (await ask_json(APP, "POST", "/send-message", content["example"])).status == 200


HISTORY = (
    UserMessage(MessageId("m1"), "paint"),
    AssistantMessage(
        MessageId("m2"), "", (ToolCall(CallId("a"), "paint", "{}", client=True),), partial=True
    ),
    ToolMessage(MessageId("m3"), CallId("a"), "late", is_error=True, synthetic="timeout"),
)


@pytest.mark.parametrize(
    ("method", "path", "described"),
    [
        ("GET", "/conversations/c", "/conversations/{id}"),
        ("GET", "/conversations/c/messages", "/conversations/{id}/messages"),
        ("GET", "/conversations/unknown", "/conversations/{id}"),
        ("POST", "/conversations/c/cancel", "/conversations/{id}/cancel"),
        ("POST", "/conversations/c/cancel?runId=x", "/conversations/{id}/cancel"),
        ("GET", "/healthz", "/healthz"),
        ("GET", "/readyz", "/readyz"),
        ("GET", "/openapi.json", "/openapi.json"),
        ("POST", "/send-message", "/send-message"),
        ("GET", "/conversations/c/stream?runId=run_1&wait=true", "/conversations/{id}/stream"),
        ("GET", "/conversations/c/stream?wait=0", "/conversations/{id}/stream"),
        ("GET", "/api/sessions", "/api/sessions"),
        ("GET", "/api/sessions?limit=0", "/api/sessions"),
        ("GET", "/api/sessions/c", "/api/sessions/{id}"),
        ("GET", "/api/sessions/unknown", "/api/sessions/{id}"),
        ("GET", "/api/sessions/c/messages", "/api/sessions/{id}/messages"),
        ("GET", "/api/config/models", "/api/config/models"),
        ("GET", "/api/version", "/api/version"),
        ("GET", "/api/health", "/api/health"),
    ],
)
async def test_answers_fit_their_description(method: str, path: str, described: str) -> None:
    owed = (Owed(CallId("a"), "paint", "{}"),)
    RUNS.known[RUN.key] = Status(1, RUN.run_id, True, owed=owed, queued=(RunId("run_2"),))
    RUNS.history = HISTORY
    answer = await ask(APP, method, path)
    response = OPERATIONS[f"{method.lower()} {described}"]["responses"][str(answer.status)]
    _fits(answer.json, response["content"]["application/json"]["schema"])
    assert answer.status < 400 or answer.code in response["x-codes"]
    assert "x-request-id" in answer.headers


def test_two_wires_cannot_claim_one_path() -> None:
    other: dict[str, Any] = {"get": {"operationId": "other"}}
    with pytest.raises(ConfigurationError, match="get"):
        compose_document([Wire([], paths={"/a": {"get": {}}}), Wire([], paths={"/a": other})])


def test_two_wires_may_have_a_path_with_methods_of_their_own() -> None:
    wires = [Wire([], paths={"/a": {"post": {}}}), Wire([], paths={"/a": {"get": {}}})]
    assert compose_document(wires)["paths"] == {"/a": {"post": {}, "get": {}}}


async def test_the_document_is_made_once() -> None:
    wires = [Wire([], paths={"/a": {}})]
    app = build_site([document_wire(wires, version="1")], Access())
    first = (await ask(app, "GET", "/openapi.json")).json
    wires.append(Wire([], paths={"/b": {}}))
    assert (await ask(app, "GET", "/openapi.json")).json == first
    assert first["paths"].keys() == {"/a", "/openapi.json"}


def test_names_of_schemas_have_no_module() -> None:
    assert [name for name in DOCUMENT["components"]["schemas"] if "__" in name] == []
