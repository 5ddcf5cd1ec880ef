"""The inbox of each owner: conversations that may owe something, by the time of their handing back.

It is a hint, on whatever server. A conversation is noted before it owes something, and removed by a
reader that finds that it owes nothing. A conversation that neither runs nor owes cannot owe
something later without being noted again, under another score.
"""

from collections.abc import Sequence

from passback.core.changes import Inbox, InboxPlace, OwingConversation, Status
from passback.core.errors import StoreError, StoreUnavailable
from passback.core.messages import ConversationId, ConversationKey, OwnerId
from passback.core.values import value
from passback.stores.layout import InboxPageBuilder, conversation_tag
from passback.stores.redis import replies, scripts
from passback.stores.redis.link import RedisLink, ScriptCall
from passback.stores.redis.names import KeyNames
from passback.stores.redis.servers import Reply

ROUNDS = 16  # of reading entries, for one page
ENTRIES_PER_ROUND = 64  # conversations that one round reads
INBOX_ROOM = (
    1000  # entries of an inbox; beyond it, each new one makes its writer check `SAMPLE` others
)
SAMPLE = 3  # entries
_TAG_LENGTH = 32  # characters


@value
class Entry:
    """One member, the tag and the id of a conversation, with its score in microseconds."""

    member: bytes
    since: int

    @property
    def place(self) -> InboxPlace:
        return InboxPlace(self.since, self.member[:_TAG_LENGTH].decode())

    def key(self, owner: OwnerId, /) -> ConversationKey:
        found = self.member[_TAG_LENGTH:].decode("utf-8", "surrogatepass")
        return ConversationKey(owner, ConversationId(found))


class InboxIndex:
    """The inboxes of all owners; `ttl`: milliseconds for which one is kept, empty for ever."""

    def __init__(self, link: RedisLink, names: KeyNames, ttl: str) -> None:
        self._link = link
        self._names = names
        self._ttl = ttl

    async def note_owing(self, key: ConversationKey, /) -> Sequence[Entry]:
        """Note that a conversation is about to owe something.

        Returns entries for `remove_settled`, if the inbox has more than `INBOX_ROOM`.
        """
        member = f"{conversation_tag(key)}{key.id}".encode("utf-8", "surrogatepass")
        given = (member, self._ttl, INBOX_ROOM, SAMPLE)
        return _parse_entries(
            await self._link.run(
                ScriptCall(scripts.OWED_NOTE, (self._names.inbox(key.owner),), given)
            )
        )

    async def remove_settled(self, owner: OwnerId, entries: Sequence[Entry], /) -> None:
        """Remove those entries that owe nothing."""
        if entries:
            statuses = await self._read_statuses(owner, entries)
            await self._drop_entries(
                owner, [e for e, s in zip(entries, statuses, strict=True) if _owes_nothing(s)]
            )

    async def read_page(self, owner: OwnerId, after: InboxPlace | None, limit: int, /) -> Inbox:
        place, builder = after or InboxPlace(0, ""), InboxPageBuilder(limit)
        for _ in range(ROUNDS):
            entries = await self._entries_after(owner, place)
            statuses = await self._read_statuses(owner, entries)
            found = list(zip(entries, statuses, strict=True))
            await self._drop_entries(
                owner, [entry for entry, status in found if _owes_nothing(status)]
            )
            for entry, status in found:
                if status is None or status.running or not status.owed:
                    continue
                if not builder.try_add(OwingConversation(entry.key(owner), entry.place, status)):
                    return builder.full_page()
            if not entries:
                return builder.last_page()
            place = entries[-1].place
        return builder.last_page(place)

    async def _entries_after(self, owner: OwnerId, place: InboxPlace) -> Sequence[Entry]:
        """Read the next entries."""
        # Redis orders entries of the same score by their members, which begin with the tag
        bounds = (place.since, "+inf", "WITHSCORES", "LIMIT", 0, ENTRIES_PER_ROUND)
        reply = await self._link.command("ZRANGEBYSCORE", self._names.inbox(owner), *bounds)
        return [entry for entry in _parse_entries(reply) if entry.place > place]

    async def _read_statuses(self, owner: OwnerId, entries: Sequence[Entry]) -> list[Status | None]:
        """Read statuses; None for a damaged conversation, which must not hold up the others."""
        names, calls = self._names, list[ScriptCall]()
        for name in (conversation_tag(entry.key(owner)) for entry in entries):
            keys = names.state(name), names.messages(name), names.receipts(name), names.queue(name)
            calls.append(ScriptCall(scripts.READ, keys, (1, 0, 0, 0)))
        found = await self._link.run_all(calls) if calls else []
        return [_parse_status(reply) for reply in found]

    async def _drop_entries(self, owner: OwnerId, entries: Sequence[Entry]) -> None:
        given = [part for entry in entries for part in (entry.member, entry.since)]
        if given:
            await self._link.run(ScriptCall(scripts.OWED_DROP, (self._names.inbox(owner),), given))


def _owes_nothing(status: Status | None) -> bool:
    return status is not None and not (status.running or status.owed)


def _parse_status(reply: Reply | StoreError) -> Status | None:
    if isinstance(reply, StoreUnavailable):
        raise reply
    try:
        return None if isinstance(reply, StoreError) else replies.parse_status(reply)
    except StoreError:
        return None


def _parse_entries(reply: Reply) -> list[Entry]:
    pairs = zip(reply[::2], reply[1::2], strict=True)
    return [Entry(member, int(float(score))) for member, score in pairs]
