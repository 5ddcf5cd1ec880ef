"""The forms of an answer of the routes that follow a run, and the refusal of other forms."""

from typing import Any

import pytest
from starlette.types import ASGIApp
from tests.support.asgi_client import Answer, ask, ask_json
from tests.support.logged_runs import OPENING, RUN, LoggedRuns
from tests.unit.wire.send_message_site import HELLO, STREAM, greeting

from passback.app import build_wire
from passback.core.events import Completed, RunFinished
from passback.core.messages import CallId, Owed
from passback.core.posts import Parked
from passback.core.signals import Signal
from passback.http.gate import Access
from passback.http.routing import Endpoint
from passback.http.site import build_site
from passback.http.wires import Services
from passback.native.openapi import compose_document, document_wire
from passback.settings import Settings
from passback.wire import rest, send_message

pytestmark = pytest.mark.anyio


EVENTS = OPENING.encode() + STREAM
DOCUMENT: dict[str, object] = {
    "runId": "run_1",
    "conversationId": "c",
    "outcome": "completed",
    "reason": "end_turn",
    "text": "hi",
    "owed": [],
    "usage": None,
    "model": None,
    "lastEventId": "run_1.1-3",
}
ROUTES = (
    ("POST", "/send-message"),
    ("POST", "/v1/aibot/bots/b/send-message"),
    ("GET", "/conversations/c/stream"),
)
on_each_route = pytest.mark.parametrize("route", ROUTES, ids=[path for _, path in ROUTES])
Route = tuple[str, str]


def _app(runs: LoggedRuns) -> ASGIApp:
    services = Services(runs, Signal())
    return build_site([send_message.build(services), rest.build(services)], Access())


async def _ask(runs: LoggedRuns, route: Route, query: str, *accept: str, **more: str) -> Answer:
    method, path = route
    headers = [*(("accept", each) for each in accept), *more.items()]
    if method == "GET":
        query = f"?runId=run_1{query.replace('?', '&')}"
        return await ask(_app(runs), method, path + query, headers=headers)
    return await ask_json(_app(runs), method, path + query, HELLO, headers=headers)


@on_each_route
@pytest.mark.parametrize(
    ("query", "accept"),
    [
        ("", []),
        ("", ["*/*"]),
        ("", ["text/event-stream"]),
        ("", ["application/json, text/plain, */*"]),
        ("", ["text/plain;q=0.5", "text/event-stream"]),
        ("?wait=false", []),
    ],
)
async def test_events_are_the_default_form(route: Route, query: str, accept: list[str]) -> None:
    answer = await _ask(greeting(), route, query, *accept)
    assert (answer.status, answer.body) == (200, EVENTS)
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"


@on_each_route
@pytest.mark.parametrize(
    ("query", "accept"),
    [
        ("?wait=true", []),
        ("?wait=1", ["*/*"]),
        ("?wait=3600", ["application/json"]),
        ("?wait=true", ["text/html, */*;q=0.1"]),
        ("", ["application/json"]),
        ("", ["text/plain;q=0.5", "application/*"]),
    ],
)
async def test_a_document_is_sent_for_wait_or_if_only_json_is_accepted(
    route: Route, query: str, accept: list[str]
) -> None:
    answer = await _ask(greeting(), route, query, *accept)
    assert (answer.status, answer.json) == (200, DOCUMENT)


@on_each_route
@pytest.mark.parametrize("query", ["", "?wait=false"])
async def test_text_is_sent_if_it_is_preferred(route: Route, query: str) -> None:
    answer = await _ask(greeting(), route, query, "text/plain, text/event-stream;q=0.9")
    assert (answer.status, answer.body) == (200, b"hi\n")


@on_each_route
async def test_a_document_has_the_whole_run_and_a_text_only_the_unseen_rest(route: Route) -> None:
    seen = {"last-event-id": "run_1.1-2"}
    assert (await _ask(greeting(), route, "?wait=true", **seen)).json == DOCUMENT
    assert (await _ask(greeting(), route, "", "text/plain", **seen)).body == b""


@pytest.mark.promise("P12")
@on_each_route
@pytest.mark.parametrize(
    "query",
    [
        f"?wait={value}"
        for value in ("0", "-1", "3601", "9" * 30, "", "yes", "True", "1.5", "1e3", "%C2%B2")
    ],
)
async def test_a_malformed_wait_is_refused(route: Route, query: str) -> None:
    runs = greeting()
    answer = await _ask(runs, route, query)
    assert (answer.status, answer.code) == (422, "invalid_request")
    assert answer.json["message"] == (
        "wait has to be true, false, or a number of seconds from 1 to 3600"
    )
    assert answer.json["details"] == {"parameter": "wait"}
    assert runs.posts == []


@pytest.mark.promise("P12")
@on_each_route
@pytest.mark.parametrize(
    ("query", "accept", "available"),
    [
        ("", "text/html", ["text/event-stream", "application/json", "text/plain"]),
        ("?wait=true", "text/plain", ["application/json"]),
        ("?wait=5", "text/event-stream", ["application/json"]),
    ],
)
async def test_an_unavailable_form_is_refused_with_the_available_ones(
    route: Route, query: str, accept: str, available: list[str]
) -> None:
    runs = greeting()
    answer = await _ask(runs, route, query, accept)
    assert (answer.status, answer.code) == (406, "not_acceptable")
    assert answer.json["details"] == {"available": available}
    assert runs.posts == []


# ---------------------------------------------------------------- some of the results
OWED = {"id": "call_1", "name": "t", "arguments": "{}", "kind": "tool_result"}


@pytest.mark.parametrize("query", ["", "?wait=true"])
async def test_owed_calls_are_named_in_each_form(query: str) -> None:
    runs = greeting()
    runs.answer = Parked(RUN.key, (Owed(CallId("call_1"), "t", "{}"),))
    answer = await _ask(runs, ROUTES[0], query, "*/*" if query else "text/plain")
    if query:
        without_run = {"runId": None, "lastEventId": None, "text": "", "reason": None}
        assert answer.json == DOCUMENT | without_run | {"outcome": "handed-back", "owed": [OWED]}
    else:
        assert answer.body == (
            b'\x1e{"outcome": "handed-back", "owed": [{"id": "call_1", "name": "t", '
            b'"arguments": "{}", "kind": "tool_result"}]}\n'
        )
    assert answer.status == 200
    assert answer.headers["x-owed-tool-calls"] == "call_1"
    assert answer.headers["x-conversation-id"] == "c"
    assert "x-run-id" not in answer.headers


# ---------------------------------------------------------------- queries
SERVICES = Services(LoggedRuns(RunFinished(Completed())), Signal())
WIRES = {name: build_wire(name, SERVICES, Settings()) for name in Settings().wires}
WIRES["document"] = document_wire([*WIRES.values()], version="1")
APP = build_site(list(WIRES.values()), Access())
PATHS: dict[str, Any] = compose_document(list(WIRES.values()))["paths"]  # type: ignore[assignment]
QUERY_ROUTES = {
    f"{method} {route.path}": (method, route)
    for name, wire in WIRES.items()
    if name != "page"
    for route in wire.routes
    if isinstance(route, Endpoint) and route.query is not None  # None: a library's own protocol
    for method in sorted(route.methods or ())
}


@pytest.mark.promise("P12")
@pytest.mark.parametrize(("method", "route"), QUERY_ROUTES.values(), ids=QUERY_ROUTES)
async def test_an_unknown_parameter_is_refused(method: str, route: Endpoint) -> None:
    answer = await ask(APP, method, f"{route.path.replace('{', '').replace('}', '')}?order=desc")
    described = PATHS[route.path]["get" if method == "HEAD" else method.lower()]["responses"]
    [status] = [
        int(status)
        for status, each in described.items()
        if "invalid_request" in each.get("x-codes", ())
    ]
    assert answer.status == status
    if method == "HEAD":
        return
    if answer.headers["content-type"].startswith("text/plain"):
        assert answer.code == "invalid_request"
        assert b"no query parameter 'order'" in answer.body
    elif "error" in answer.json:
        assert (answer.json["error"]["param"], status) == ("order", 400)
    else:
        assert answer.code == "invalid_request"
        assert answer.json["details"]["parameter"] == "order"
    assert described[str(status)]["x-codes"].count("invalid_request") == 1


@pytest.mark.parametrize(
    ("method", "route"), [each for each in QUERY_ROUTES.values() if each[0] != "HEAD"]
)
def test_routes_take_the_parameters_they_describe(method: str, route: Endpoint) -> None:
    described = PATHS[route.path][method.lower()].get("parameters", [])
    assert route.query is not None
    assert sorted(route.query.get(method, ())) == sorted(
        each["name"] for each in described if each["in"] == "query"
    )


async def test_the_page_ignores_query_parameters() -> None:
    for route in WIRES["page"].routes:
        assert isinstance(route, Endpoint)
        assert (await ask(APP, "GET", f"{route.path}?utm_source=a&_=1&_=2")).status == 200
