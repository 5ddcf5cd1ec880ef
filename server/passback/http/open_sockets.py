"""The open WebSockets of a worker: how many there may be, and the server's side of each."""

from typing import Protocol

from starlette.types import Scope

from passback.core.errors import ServerBusy, TooManySockets
from passback.core.messages import OwnerId

SOCKET_LINK = "passback.socket"
"""Key in `scope["extensions"]`: the server's side of a WebSocket, a `SocketLink`."""

MOST_QUEUED_BYTES = 256 * 1024 * 1024  # that wait for the clients of all WebSockets together


class SocketLink(Protocol):
    """A WebSocket's connection, as `passback serve` gives it to the application."""

    @property
    def ready(self) -> bool:
        """A message can be sent without waiting."""
        ...

    def send_now(self, content: str | bytes, /) -> None:
        """Send a message at once. Allowed only while `ready`."""
        ...

    def admit(self, owner: OwnerId, /) -> None:
        """Record the owner: from here on messages may be large, and no other takes its place."""
        ...

    def fail(self, code: int, reason: str, /) -> None:
        """Close the WebSocket without waiting for its client to read."""
        ...


def socket_link(scope: Scope, /) -> SocketLink | None:
    """Return the server's side of a WebSocket, or None if the server is another one."""
    link: SocketLink | None = scope.get("extensions", {}).get(SOCKET_LINK)
    return link


def forget_socket_link(scope: Scope, /) -> None:
    """Remove the server's side from the scope of a WebSocket that has ended."""
    # both refer to each other, so they would stay in memory until the collector looks for cycles
    scope.get("extensions", {}).pop(SOCKET_LINK, None)


class Replaceable(Protocol):
    """An open WebSocket, as `OpenSockets` knows it."""

    def give_way(self) -> None:
        """Close it in favour of another one."""
        ...


class OpenSockets:
    """A count of the open WebSockets of a worker, and of those of each owner.

    When `most` are open, a new one replaces the one that has been without a key for longest: a
    client without a key cannot keep out clients that have one.

    Args:
        most: WebSockets of all owners together.
        most_of_owner: WebSockets of one owner.
        most_queued: bytes that wait for all clients together.
    """

    def __init__(
        self, most: int = 1024, most_of_owner: int = 64, *, most_queued: int = MOST_QUEUED_BYTES
    ) -> None:
        self._most = most
        self._most_of_owner = most_of_owner
        self._most_queued = most_queued
        self._keyless: dict[Replaceable, None] = {}  # in the order in which they came
        self._owners: dict[Replaceable, OwnerId] = {}
        self._count_of: dict[OwnerId, int] = {}
        self.queued = 0

    @property
    def count(self) -> int:
        """The open WebSockets."""
        return len(self._keyless) + len(self._owners)

    def enter(self, socket: Replaceable, /) -> None:
        """Count a new WebSocket, whose owner is not known.

        Raises:
            ServerBusy: there is no room for it.
        """
        if self.count >= self._most:
            longest = next(iter(self._keyless), None)
            if longest is None:
                raise ServerBusy(
                    f"{self._most} WebSockets are open, and no more are allowed "
                    "(sockets in PASSBACK_LIMITS); connect again later"
                )
            self.leave(longest)
            longest.give_way()
        self._keyless[socket] = None

    def claim(self, socket: Replaceable, owner: OwnerId, /) -> None:
        """Count a WebSocket as one of its owner.

        Raises:
            TooManySockets: the owner has as many as are allowed.
        """
        count = self._count_of.get(owner, 0)
        if count >= self._most_of_owner:
            raise TooManySockets(
                f"{count} WebSockets of this owner are open, and no more are allowed "
                "(owner_sockets in PASSBACK_LIMITS); close one"
            )
        self._keyless.pop(socket, None)
        self._owners[socket] = owner
        self._count_of[owner] = count + 1

    def leave(self, socket: Replaceable, /) -> None:
        """Forget a WebSocket. Nothing happens if it is not counted."""
        self._keyless.pop(socket, None)
        owner = self._owners.pop(socket, None)
        if owner is not None:
            left = self._count_of.pop(owner) - 1  # an owner without one keeps no entry
            if left:
                self._count_of[owner] = left

    def has_room(self, size: int, /) -> bool:
        """Return whether `size` more bytes may wait for clients."""
        return self.queued + size <= self._most_queued
