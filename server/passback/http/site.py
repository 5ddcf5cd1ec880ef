"""All wires as one ASGI application, behind the gate."""

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from starlette.routing import Match, Route, Router, WebSocketRoute
from starlette.types import ASGIApp, Lifespan, Receive, Scope, Send

from passback.core.errors import ConfigurationError
from passback.http.access_log import AccessLog
from passback.http.answers import set_error_body
from passback.http.gate import Access, Gate
from passback.http.routing import Endpoint, answer_not_found
from passback.http.wires import Wire

_PARAMETER = re.compile(r"\{\w+\}")


def build_site(
    wires: Sequence[Wire], access: Access, lifespan: Lifespan[Any] | None = None
) -> ASGIApp:
    """Mount the wires' routes; errors become JSON, and every request passes the gate and is logged.

    Raises:
        ConfigurationError: two routes have one address.
    """
    routes = [route_request for wire in wires for route_request in wire.routes]
    places = Counter(
        f"{method} {_PARAMETER.sub('{}', each.path)}"
        for each in routes
        if isinstance(each, Endpoint | WebSocketRoute)
        for method in (sorted(each.methods or ()) if isinstance(each, Endpoint) else ["WebSocket"])
    )
    for place, count in places.items():
        if count > 1:  # one of the two would never be reached
            raise ConfigurationError(f"{place} is served by two routes")
    router = Router(
        routes,
        redirect_slashes=False,  # a redirect would be an answer without a request id
        default=answer_not_found,
        lifespan=lifespan,
    )
    public = frozenset(path for wire in wires for path in wire.public)
    methods = {
        method for each in routes if isinstance(each, Route) for method in each.methods or ()
    }
    site = Gate(router, access, public=public, methods=methods)
    return AccessLog(_with_error_bodies(site, wires), routes)


def _with_error_bodies(site: ASGIApp, wires: Sequence[Wire]) -> ASGIApp:
    """Return the site, in which each error has the form of its wire, also at the gate."""
    forms = [(each, wire.error_body) for wire in wires if wire.error_body for each in wire.routes]
    if not forms:
        return site

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            # a path with another method is the wire's, too
            found = (form for route, form in forms if route.matches(scope)[0] is not Match.NONE)
            if (form := next(found, None)) is not None:
                set_error_body(scope, form)
        await site(scope, receive, send)

    return serve
