"""All wires as one ASGI application, behind the gate."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from starlette.routing import Match, Route, Router, WebSocketRoute
from starlette.types import ASGIApp, Lifespan, Receive, Scope, Send

from passback.core.errors import ConfigurationError, UpgradeRequired
from passback.http.access_log import AccessLog
from passback.http.answers import error_answer, set_error_form
from passback.http.gate import Access, Gate
from passback.http.requests import sent_path
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
        default=_answer_unrouted(socket_matcher(wires)),
        lifespan=lifespan,
    )
    public = frozenset(path for wire in wires for path in wire.public)
    methods = {
        method for each in routes if isinstance(each, Route) for method in each.methods or ()
    }
    late_keys = frozenset(path for wire in wires for path in wire.late_keys)
    site = Gate(router, access, public=public, late_keys=late_keys, methods=methods)
    return AccessLog(_with_error_forms(site, wires), routes)


def socket_matcher(wires: Sequence[Wire]) -> Callable[[str], bool] | None:
    """Return a function that tells if a path, as it was sent, is a WebSocket's.

    None if no wire has WebSockets.
    """
    routes = [each for wire in wires for each in wire.routes if isinstance(each, WebSocketRoute)]
    if not routes:
        return None

    def takes_socket(path: str) -> bool:
        scope: Scope = {"type": "websocket", "path": path, "headers": []}
        return any(route.matches(scope)[0] is Match.FULL for route in routes)

    return takes_socket


def _answer_unrouted(takes_socket: Callable[[str], bool] | None) -> ASGIApp:
    """Return the application for addresses that no route has."""
    if takes_socket is None:
        return answer_not_found

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and takes_socket(sent_path(scope)):
            error = UpgradeRequired("this address takes only WebSockets (RFC 6455, version 13)")
            await error_answer(scope, error)(scope, receive, send)
        else:
            await answer_not_found(scope, receive, send)

    return answer


def _with_error_forms(site: ASGIApp, wires: Sequence[Wire]) -> ASGIApp:
    """Return the site, in which each error has the form of its wire, also at the gate."""
    forms = [(wire, wire.error_form) for wire in wires if wire.error_form]
    if not forms:
        return site

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        found = (form for wire, form in forms if _is_address_of(wire, scope))
        if (form := next(found, None)) is not None:
            set_error_form(scope, form)
        await site(scope, receive, send)

    return serve


def _is_address_of(wire: Wire, scope: Scope) -> bool:
    """Return whether a wire has the address of a request, be it with another method."""
    below = wire.error_root
    if below is not None and scope["type"] != "lifespan" and sent_path(scope).startswith(below):
        return True
    return any(route.matches(scope)[0] is not Match.NONE for route in wire.routes)
