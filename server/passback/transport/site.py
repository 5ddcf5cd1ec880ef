"""All wires as one ASGI application, behind the gate."""

from collections.abc import Sequence

from starlette.applications import Starlette
from starlette.types import ASGIApp, Lifespan

from passback.transport.access import Access
from passback.transport.gate import protect
from passback.transport.http import ERROR_HANDLERS
from passback.transport.wires import Wire


def build_site(
    wires: Sequence[Wire], access: Access, lifespan: Lifespan[Starlette] | None = None
) -> ASGIApp:
    """Mount the wires' routes; errors become JSON, and every request passes the gate."""
    app = Starlette(
        routes=[route for wire in wires for route in wire.routes],
        exception_handlers=ERROR_HANDLERS,
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False  # a redirect would be an answer without a request id
    return protect(app, access, public=frozenset(path for wire in wires for path in wire.public))
