"""Errors become JSON that names the code and the request; nothing of an unknown error gets out."""

import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp
from tests.support.asgi_client import Answer, ask

from passback.core import errors
from passback.core.errors import PassbackError
from passback.http.access import Access
from passback.http.answers import STATUS, json_answer
from passback.http.routing import Endpoint
from passback.http.site import build_site
from passback.http.wires import Wire

pytestmark = pytest.mark.anyio


def _tree(root: type[PassbackError]) -> list[type[PassbackError]]:
    return [root, *(leaf for child in root.__subclasses__() for leaf in _tree(child))]


def _raising(error: Exception) -> ASGIApp:
    async def endpoint(request: Request) -> Response:
        raise error

    return build_site([Wire([Endpoint("/", endpoint, methods=["GET"])])], Access())


async def _error(error: Exception, **headers: str) -> Answer:
    return await ask(_raising(error), "GET", "/", headers=headers)


@pytest.mark.promise("P12")
def test_every_error_of_the_tree_has_a_status() -> None:
    own = {kind.code for kind in _tree(PassbackError) if kind.__module__ == errors.__name__}
    assert own == STATUS.keys()


@pytest.mark.promise("P12")
@pytest.mark.parametrize("kind", _tree(PassbackError), ids=lambda kind: kind.code)
async def test_an_error_is_told_as_json(kind: type[PassbackError]) -> None:
    answer = await _error(kind("what is wrong"), **{"x-request-id": "r-1"})
    assert answer.status == STATUS[kind.code]
    assert answer.json == {"code": kind.code, "message": "what is wrong", "request_id": "r-1"}
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-request-id"] == "r-1"


async def test_details_are_told_when_there_are_some() -> None:
    answer = await _error(errors.InvalidTool("bad", details={"tool": "t"}), **{"x-request-id": "r"})
    assert answer.json == {
        "code": "invalid_tool",
        "message": "bad",
        "details": {"tool": "t"},
        "request_id": "r",
    }


@pytest.mark.parametrize(
    ("error", "seconds"),
    [
        (errors.ConversationBusy("", retry_after=2.1), "3"),
        (errors.ConversationBusy("", retry_after=0.2), "1"),
        (errors.StoreUnavailable(""), "1"),
        (errors.StoreFull(""), "1"),
        (errors.ServerBusy(""), "1"),
        (errors.ShuttingDown(""), "1"),
        (errors.ModelRateLimited(""), "1"),
        (errors.QueueFull(""), "1"),
        (errors.InvalidRequest(""), None),
    ],
)
async def test_a_client_is_told_when_to_come_back(
    error: PassbackError, seconds: str | None
) -> None:
    assert (await _error(error)).headers.get("retry-after") == seconds


async def test_a_missing_key_is_asked_for() -> None:
    assert (await _error(errors.Unauthenticated(""))).headers["www-authenticate"] == "Bearer"


async def test_a_connection_is_closed_only_on_a_client_that_has_stopped_sending() -> None:
    assert (await _error(errors.RequestTimeout(""))).headers["connection"] == "close"
    assert "connection" not in (await _error(errors.BodyTooLarge(""))).headers


async def test_an_unknown_error_says_nothing_of_itself(caplog: pytest.LogCaptureFixture) -> None:
    answer = await ask(_raising(RuntimeError("tulip")), "GET", "/", headers={"x-request-id": "r"})
    assert answer.status == 500
    assert answer.json == {
        "code": "internal",
        "message": "the server met an unexpected error",
        "request_id": "r",
    }
    assert "tulip" in caplog.text


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [("GET", "/nowhere", 404, "not_found"), ("PUT", "/", 405, "method_not_allowed")],
)
async def test_what_is_not_routed_is_told_in_the_same_form(
    method: str, path: str, status: int, code: str
) -> None:
    app = _raising(RuntimeError())
    answer = await ask(app, method, path, headers={"x-request-id": "r"})
    assert (answer.status, answer.code) == (status, code)
    assert answer.json.keys() == {"code", "message", "request_id"}
    assert answer.headers["x-request-id"] == "r"


@pytest.mark.parametrize("given", ["", "a b", "a\x01", "é", "x" * 129, "<script>"])
async def test_a_strange_request_id_is_replaced(given: str) -> None:
    answer = await _error(errors.NotFound(""), **{"x-request-id": given})
    assert answer.json["request_id"].startswith("req_")
    assert answer.headers["x-request-id"] == answer.json["request_id"]


def test_an_answer_cannot_hold_what_json_cannot() -> None:
    with pytest.raises(ValueError, match="Out of range"):
        json_answer({"type": "http", "headers": []}, {"value": float("nan")})
