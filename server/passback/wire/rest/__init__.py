"""Routes for the conversations of every wire, and for the agents, in our own vocabulary."""

from passback.http.wires import Services, Wire, WireType
from passback.wire.rest import agents, branches, calls, conversations, documents, listing, runs


def build(services: Services, /) -> Wire:
    parts = (
        listing.build(services),
        documents.build(services),  # before ids, of which `import` may be one
        conversations.build(services),
        branches.build(services),
        calls.build(services),
        runs.build(services),
        agents.build(services),
    )
    return Wire(
        routes=[route for part in parts for route in part.routes],
        paths={path: item for part in parts for path, item in part.paths.items()},
        types=[each for part in parts for each in part.types],
        public=frozenset(path for part in parts for path in part.public),
    )


WIRE = WireType(build)
