"""Which query parameters there are: every route of every wire is walked."""

from typing import Any

import pytest
from tests.support.asgi_client import ask
from tests.support.logged_runs import LoggedRuns

from passback.app import load_wire
from passback.core.events import Completed, RunFinished
from passback.http.access import Access
from passback.http.routing import Endpoint
from passback.http.sending import Signal
from passback.http.site import build_site
from passback.http.wires import Services
from passback.native.openapi import compose_document
from passback.settings import Settings

pytestmark = pytest.mark.anyio

SERVICES = Services(LoggedRuns(RunFinished(Completed())), Signal(), dict)
WIRES = {name: load_wire(name, SERVICES) for name in Settings().wires}
APP = build_site(list(WIRES.values()), Access())
PATHS: dict[str, Any] = compose_document(list(WIRES.values()))["paths"]  # type: ignore[assignment]
ROUTES = {
    f"{method} {route.path}": (method, route)
    for name, wire in WIRES.items()
    if name != "page"
    for route in wire.routes
    if isinstance(route, Endpoint)
    for method in sorted(route.methods or ())
}


@pytest.mark.promise("P12")
@pytest.mark.parametrize(("method", "route"), ROUTES.values(), ids=ROUTES)
async def test_a_parameter_that_a_route_does_not_have_is_refused(
    method: str, route: Endpoint
) -> None:
    answer = await ask(APP, method, f"{route.path.replace('{', '').replace('}', '')}?order=desc")
    assert answer.status == 422
    if method != "HEAD":
        assert (answer.code, answer.json["details"]["parameter"]) == ("invalid_request", "order")
        assert (
            PATHS[route.path][method.lower()]["responses"]["422"]["x-codes"].count(
                "invalid_request"
            )
            == 1
        )


@pytest.mark.parametrize(
    ("method", "route"), [each for each in ROUTES.values() if each[0] != "HEAD"]
)
def test_the_parameters_that_a_route_takes_are_those_that_are_described(
    method: str, route: Endpoint
) -> None:
    described = PATHS[route.path][method.lower()].get("parameters", [])
    assert route.query is not None
    assert sorted(route.query.get(method, ())) == sorted(
        each["name"] for each in described if each["in"] == "query"
    )


async def test_the_page_is_found_whatever_a_link_adds() -> None:
    for route in WIRES["page"].routes:
        assert isinstance(route, Endpoint)
        assert (await ask(APP, "GET", f"{route.path}?utm_source=a&_=1&_=2")).status == 200
