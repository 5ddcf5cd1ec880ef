"""The declaration of a wire, the services that it may use, and the parts that it gives.

A wire is a package `passback.wire.<name>` with `WIRE`, a `WireType`. `http.site.build_site` mounts
the wires as one ASGI application.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import field
from functools import partial
from typing import Any

from pydantic import JsonValue
from starlette.routing import BaseRoute

from passback.core.errors import ServerBusy
from passback.core.messages import OwnerId
from passback.core.posts import OnBusy
from passback.core.runs import Runs
from passback.core.signals import Signal
from passback.core.toolsets import MakeServerTools
from passback.core.values import value
from passback.http.answers import FormError
from passback.http.gate import Access, resolve_key
from passback.http.open_sockets import OpenSockets

MOST_BYTES = 64 * 1024 * 1024  # of request bodies that are arriving


class PartialBodies:
    """A count of the bytes of all request bodies that have arrived in part.

    Args:
        most: bytes of all bodies together.
        most_of_owner: bytes of the bodies of one owner.
    """

    def __init__(self, most: int = MOST_BYTES, most_of_owner: int = MOST_BYTES) -> None:
        self._most = most
        self._most_of_owner = most_of_owner
        self._held = 0
        self._held_of: dict[OwnerId, int] = {}

    @property
    def held(self) -> int:
        """The bytes that are counted at this moment."""
        return self._held

    def take(self, owner: OwnerId, size: int, /) -> None:
        """Count `size` more bytes.

        Raises:
            ServerBusy: there is no room for them. Nothing is counted then.
        """
        of_owner = self._held_of.get(owner, 0) + size
        if of_owner > self._most_of_owner or self._held + size > self._most:
            raise ServerBusy("too many bodies are arriving at once; send this one again later")
        self._held += size
        self._held_of[owner] = of_owner

    def release(self, owner: OwnerId, size: int, /) -> None:
        """Forget `size` bytes that were counted."""
        self._held -= size
        left = self._held_of.pop(owner) - size  # an owner without bytes keeps no entry
        if left:
            self._held_of[owner] = left


@value
class RequestLimits:
    """Limits for one request, or one WebSocket. Sizes are in bytes, times in seconds.

    A body has room for attachments of one and a half times their limit, in base64, so that
    attachments that are too large are refused as such and not as a body.
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
    socket_bytes: int = 6 * 1024 * 1024
    socket_queue_bytes: int = 1024 * 1024
    key_seconds: float = 10


@value
class Services:
    """The services and settings that all wires may use.

    Args:
        runs: the only way to the agents.
        limits: of one request.
        bodies: counts the bodies of all requests that are still arriving.
        sockets: counts the open WebSockets.
        resolve_key: returns the owner of a key that came within a protocol (`Wire.late_keys`).
            Raises Unauthenticated for any other text.
        stopping: set when the server is about to stop. Open streams then end, and clients
            reconnect.
        ping_seconds: silence after which a stream sends a comment.
        allow_roles: roles of messages that a client may post: `user`, `tool`, and optionally
            `system` and `assistant`, with which a conversation begins with a history.
        on_busy: default for a post that arrives during a run.
        mcp_servers: names of the agents' MCP servers. Their tools are named `<name>__<tool>`.
        tool_server: makes a toolset of an MCP server that a client names, to be run and lent by a
            wire (`Runs.lend`). Only for clients that may run programs here anyway. None: the
            package `mcp` is not installed.
        version: of this server.
    """

    runs: Runs
    stopping: Signal
    limits: RequestLimits = field(default_factory=RequestLimits)
    bodies: PartialBodies = field(default_factory=PartialBodies)
    sockets: OpenSockets = field(default_factory=OpenSockets)
    resolve_key: Callable[[str], OwnerId] = partial(resolve_key, Access())
    ping_seconds: float = 15
    allow_roles: frozenset[str] = frozenset({"user", "tool"})
    on_busy: OnBusy = "reject"
    mcp_servers: frozenset[str] = frozenset()
    tool_server: MakeServerTools | None = None
    version: str = "dev"


@value
class Wire:
    """One protocol, ready to be mounted.

    Args:
        routes: Starlette routes: `routing.Endpoint` for HTTP, `streams.sockets.SocketEndpoint` for
            WebSockets.
        paths: its part of the OpenAPI document's `paths`.
        types: what `paths` refers to, by their names: the document has a schema of each.
        public: paths that answer GET and HEAD without credentials.
        late_keys: paths where the key may come later, within the protocol; all below a path if it
            ends with a slash. The gate lets requests and WebSockets without a key through there,
            and the wire gives them an owner by `Services.resolve_key`. A wrong key is refused.
        error_form: gives its errors their form, where the protocol has one of its own.
        error_root: the beginning of addresses whose errors have that form, too, if no route has
            them.
        running: returns a context that is open while the wire is served, where it has tasks.
    """

    routes: Sequence[BaseRoute]
    paths: Mapping[str, JsonValue] = field(default_factory=dict[str, JsonValue])
    types: Sequence[Any] = ()
    public: frozenset[str] = frozenset()
    late_keys: frozenset[str] = frozenset()
    error_form: FormError | None = None
    error_root: str | None = None
    running: Callable[[], AbstractAsyncContextManager[None]] | None = None


@value
class WireType:
    """The declaration of a wire, `WIRE` in its package.

    Args:
        build: returns the wire, from the services and, if there are `settings`, their value.
        settings: the settings that only this wire has: a frozen dataclass whose fields are made by
            `setting_forms.setting`. All have defaults.
    """

    build: Callable[..., Wire]
    settings: type[Any] | None = None
