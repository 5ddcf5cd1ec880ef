"""A page of an owner's inbox, as the stores fill it: whole conversations, within bounds."""

from passback.core.changes import Inbox, Owing, Place
from passback.stores.layout import PAGE_SIZE


class Filling:
    """A page that is being filled, oldest first; `limit`: how many calls it may have."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._characters = PAGE_SIZE
        self._owing: list[Owing] = []

    def take(self, owing: Owing) -> bool:
        """False: there is no room for this conversation; the first one always fits."""
        calls = owing.status.owed
        size = sum(len(call.arguments) for call in calls)
        if self._owing and (len(calls) > self._limit or size > self._characters):
            return False
        self._owing.append(owing)
        self._limit -= len(calls)
        self._characters -= size
        return True

    def full(self) -> Inbox:
        """The page, when one more conversation did not fit."""
        return Inbox(tuple(self._owing), self._owing[-1].place)

    def ended(self, more: Place | None = None) -> Inbox:
        """The page, when there was no other conversation, or none up to a place."""
        return Inbox(tuple(self._owing), more)
