"""The inbox of each owner: which of its conversations may owe something, by the time when it was handed back.

It is a hint, on whatever server: written before a conversation owes something, and cleared of what owes nothing by those
who look. What does not run and owes nothing cannot come to owe something without being noted anew, under another score.
"""

from collections.abc import Sequence

from passback.core.changes import Inbox, Owing, Place, Status
from passback.core.errors import StoreError, StoreUnavailable
from passback.core.messages import ConversationId, ConversationKey, OwnerId
from passback.core.values import value
from passback.stores.layout import InboxPageBuilder, tag
from passback.stores.redis import replies, scripts
from passback.stores.redis.link import RedisLink, ScriptCall
from passback.stores.redis.names import Names
from passback.stores.redis.servers import Reply

ROUNDS = 16  # of looking, for one page
AT_ONCE = 64  # conversations that one round looks at
ROOM = 1000  # entries of an inbox from which on each new one makes somebody look at some others
SAMPLE = 3
_TAG = 32  # characters


@value
class Entry:
    """A member of an index under its score; it is the tag of a conversation and its id."""

    member: bytes
    since: int

    @property
    def place(self) -> Place:
        return Place(self.since, self.member[:_TAG].decode())

    def key(self, owner: OwnerId, /) -> ConversationKey:
        found = self.member[_TAG:].decode("utf-8", "surrogatepass")
        return ConversationKey(owner, ConversationId(found))


class InboxIndex:
    """`ttl`: for how many milliseconds an index is kept, empty for ever."""

    def __init__(self, link: RedisLink, names: Names, ttl: str) -> None:
        self._link = link
        self._names = names
        self._ttl = ttl

    async def note(self, key: ConversationKey, /) -> Sequence[Entry]:
        """Say that a conversation is about to owe something; gives others to tidy up, where there are very many."""
        member = f"{tag(key)}{key.id}".encode("utf-8", "surrogatepass")
        given = (member, self._ttl, ROOM, SAMPLE)
        return _entries(
            await self._link.run(
                ScriptCall(scripts.OWED_NOTE, (self._names.inbox(key.owner),), given)
            )
        )

    async def tidy(self, owner: OwnerId, entries: Sequence[Entry], /) -> None:
        """Remove those of some entries that owe nothing."""
        if entries:
            statuses = await self._statuses(owner, entries)
            await self._drop(owner, [e for e, s in zip(entries, statuses, strict=True) if _done(s)])

    async def page(self, owner: OwnerId, after: Place | None, limit: int, /) -> Inbox:
        place, filling = after or Place(0, ""), InboxPageBuilder(limit)
        for _ in range(ROUNDS):
            entries = await self._behind(owner, place)
            statuses = await self._statuses(owner, entries)
            found = list(zip(entries, statuses, strict=True))
            await self._drop(owner, [entry for entry, status in found if _done(status)])
            for entry, status in found:
                if status is None or status.running or not status.owed:
                    continue
                if not filling.take(Owing(entry.key(owner), entry.place, status)):
                    return filling.full()
            if not entries:
                return filling.ended()
            place = entries[-1].place
        return filling.ended(place)

    async def _behind(self, owner: OwnerId, place: Place) -> Sequence[Entry]:
        """The next entries; those of the same moment are told apart by their tags, in which order Redis has them."""
        bounds = (place.since, "+inf", "WITHSCORES", "LIMIT", 0, AT_ONCE)
        reply = await self._link.command("ZRANGEBYSCORE", self._names.inbox(owner), *bounds)
        return [entry for entry in _entries(reply) if entry.place > place]

    async def _statuses(self, owner: OwnerId, entries: Sequence[Entry]) -> list[Status | None]:
        """How conversations stand; None for one that is damaged, which must not be in the way of the others."""
        names, calls = self._names, list[ScriptCall]()
        for name in (tag(entry.key(owner)) for entry in entries):
            keys = names.state(name), names.messages(name), names.receipts(name), names.queue(name)
            calls.append(ScriptCall(scripts.READ, keys, (1, 0, 0, 0)))
        found = await self._link.run_all(calls) if calls else []
        return [_status(reply) for reply in found]

    async def _drop(self, owner: OwnerId, entries: Sequence[Entry]) -> None:
        given = [part for entry in entries for part in (entry.member, entry.since)]
        if given:
            await self._link.run(ScriptCall(scripts.OWED_DROP, (self._names.inbox(owner),), given))


def _done(status: Status | None) -> bool:
    return status is not None and not (status.running or status.owed)


def _status(reply: Reply | StoreError) -> Status | None:
    if isinstance(reply, StoreUnavailable):
        raise reply
    try:
        return None if isinstance(reply, StoreError) else replies.status(reply)
    except StoreError:
        return None


def _entries(reply: Reply) -> list[Entry]:
    pairs = zip(reply[::2], reply[1::2], strict=True)
    return [Entry(member, int(float(score))) for member, score in pairs]
