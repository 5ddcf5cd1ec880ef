"""All wires as one ASGI application, behind the gate."""

import re
from collections import Counter
from collections.abc import Awaitable, Sequence
from typing import Any

from starlette.routing import BaseRoute, Router
from starlette.types import ASGIApp, Lifespan, Receive, Scope, Send

from passback.core.errors import ConfigurationError
from passback.http.access import Access
from passback.http.access_log import AccessLog
from passback.http.gate import protect
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
    _refuse_doubles(routes)
    router = Router(
        routes,
        redirect_slashes=False,  # a redirect would be an answer without a request id
        default=answer_not_found,
        lifespan=lifespan,
    )
    public = frozenset(path for wire in wires for path in wire.public)
    site = protect(_with_shortcuts(router, routes), access, public=public)
    return AccessLog(site, routes)


def _refuse_doubles(routes: Sequence[BaseRoute]) -> None:
    """Raise ConfigurationError if two routes have one address, as one would never be reached."""
    served: set[str] = set()
    endpoints = [each for each in routes if isinstance(each, Endpoint)]
    for place in (
        f"{method} {_PARAMETER.sub('{}', each.path)}"
        for each in endpoints
        for method in sorted(each.methods or ())
    ):
        if place in served:
            raise ConfigurationError(f"{place} is served by two routes")
        served.add(place)


def _with_shortcuts(router: Router, routes: Sequence[BaseRoute]) -> ASGIApp:
    """Return an application that finds endpoints without parameters in a table.

    The router finds the others: it tries one pattern after the other, which takes longer.
    """
    plain = [each for each in routes if isinstance(each, Endpoint) and not each.param_convertors]
    uses = Counter(each.path for each in plain)
    endpoints = {each.path.encode("ascii"): each for each in plain if uses[each.path] == 1}

    def route_request(scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        # below a root path, the raw path has a prefix that no route_request has
        path = scope.get("raw_path") if not scope.get("root_path") else None
        if path is not None and (endpoint := endpoints.get(path)):
            scope["path_params"] = {}
            return endpoint.handle(scope, receive, send)
        return router(scope, receive, send)

    return route_request
