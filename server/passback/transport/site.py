"""All wires as one ASGI application, behind the gate."""

from collections.abc import Sequence
from typing import Any

from starlette.routing import Router
from starlette.types import ASGIApp, Lifespan

from passback.transport.access import Access
from passback.transport.gate import protect
from passback.transport.routing import nothing_there
from passback.transport.wires import Wire


def build_site(
    wires: Sequence[Wire], access: Access, lifespan: Lifespan[Any] | None = None
) -> ASGIApp:
    """Mount the wires' routes; errors become JSON, and every request passes the gate."""
    router = Router(
        [route for wire in wires for route in wire.routes],
        redirect_slashes=False,  # a redirect would be an answer without a request id
        default=nothing_there,
        lifespan=lifespan,
    )
    return protect(router, access, public=frozenset(path for wire in wires for path in wire.public))
