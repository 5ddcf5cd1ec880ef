"""Routes for the conversations of every wire, in a vocabulary of our own."""

from passback.http.wires import Services, Wire, WireType
from passback.wire.rest import calls, commands, conversations


def build(services: Services, /) -> Wire:
    parts = [part.build(services) for part in (conversations, calls, commands)]
    return Wire(
        routes=[route for part in parts for route in part.routes],
        paths={path: item for part in parts for path, item in part.paths.items()},
        schemas={name: schema for part in parts for name, schema in part.schemas.items()},
        public=frozenset(path for part in parts for path in part.public),
    )


WIRE = WireType(build)
