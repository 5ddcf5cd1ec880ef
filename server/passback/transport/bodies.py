"""The memory of the bodies that are still arriving, counted for all together and for each owner."""

from passback.core.errors import ServerBusy
from passback.core.messages import OwnerId

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
