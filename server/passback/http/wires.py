"""What a wire is given and what it gives back.

A wire is a module `passback.wire.<name>` with `build(services: Services) -> Wire`. `transport.site.build_site`
puts the wires together into one ASGI application.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field

from pydantic import JsonValue
from starlette.routing import BaseRoute

from passback.core.errors import ServerBusy
from passback.core.messages import JsonObject, OwnerId
from passback.core.ports import Runs
from passback.core.posts import OnBusy
from passback.core.values import value
from passback.http.sending import Signal

MOST_BYTES = 64 * 1024 * 1024


class Bodies:
    """The bytes of all bodies of this process of which a part is here and the rest is not.

    Args:
        most: bytes of all together.
        most_of_owner: bytes of one owner's.
    """

    def __init__(self, most: int = MOST_BYTES, most_of_owner: int = MOST_BYTES) -> None:
        self._most = most
        self._most_of_owner = most_of_owner
        self._held = 0
        self._held_of: dict[OwnerId, int] = {}

    @property
    def held(self) -> int:
        """Bytes that are counted at this moment."""
        return self._held

    def take(self, owner: OwnerId, size: int, /) -> None:
        """Count `size` more bytes. Raises ServerBusy, and counts nothing, when there is no room for them."""
        of_owner = self._held_of.get(owner, 0) + size
        if of_owner > self._most_of_owner or self._held + size > self._most:
            raise ServerBusy("too many bodies are arriving at once; send this one again later")
        self._held += size
        self._held_of[owner] = of_owner

    def release(self, owner: OwnerId, size: int, /) -> None:
        """Forget `size` bytes that were counted."""
        self._held -= size
        left = self._held_of.pop(owner) - size
        if left:
            self._held_of[owner] = left


@value
class RequestLimits:
    """How much one request may ask of us. Sizes in bytes, times in seconds.

    A body has room for attachments of one and a half times their limit, in base64: what is too large is refused as that,
    and not as a body.
    """

    body_bytes: int = 6 * 1024 * 1024
    body_seconds: float = 10
    result_bytes: int = 1024 * 1024
    data_bytes: int = 256 * 1024
    attachment_bytes: int = 3 * 1024 * 1024
    depth: int = 64
    tools: int = 128
    schema_bytes: int = 64 * 1024
    send_seconds: float = 30
    answer_chars: int = 16 * 1024 * 1024


@value
class Services:
    """What a wire may use.

    Args:
        runs: the only door to the agent.
        limits: how much one request may ask.
        bodies: counts the bodies of all requests that are still arriving.
        stopping: set when the server is about to stop; open streams then end so that clients reconnect.
        describe: gives the OpenAPI document of all wires together; called once, at the first request for it.
        ping_seconds: silence after which a stream sends a comment.
        allow_roles: roles of messages that a client may post: `user`, `tool`, and if wanted `system` and `assistant`, which begins
            a conversation with a history.
        on_busy: what a post means that comes during a run and does not say it itself.
        inbox: whether it is told which conversations there are: not where everyone who reaches the server is one owner.
        process_path: where the Agent API is.
        mcp_servers: names of the agents' MCP servers, by which their tools are known: `<name>__<tool>`.
    """

    runs: Runs
    stopping: Signal
    describe: Callable[[], JsonObject]
    limits: RequestLimits = field(default_factory=RequestLimits)
    bodies: Bodies = field(default_factory=Bodies)
    ping_seconds: float = 15
    allow_roles: frozenset[str] = frozenset({"user", "tool"})
    on_busy: OnBusy = "reject"
    inbox: bool = True
    process_path: str = "/process"
    mcp_servers: frozenset[str] = frozenset()


@value
class Wire:
    """One protocol, ready to be mounted.

    Args:
        routes: Starlette routes, mostly `routing.Endpoint`.
        paths: its part of the OpenAPI document's `paths`.
        schemas: its part of `components.schemas`; two wires may name the same schema if it is the same.
        public: paths that answer GET and HEAD without credentials.
    """

    routes: Sequence[BaseRoute]
    paths: Mapping[str, JsonValue] = field(default_factory=dict[str, JsonValue])
    schemas: Mapping[str, JsonValue] = field(default_factory=dict[str, JsonValue])
    public: frozenset[str] = frozenset()
