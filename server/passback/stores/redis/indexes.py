"""Indexes of conversations, by what is to be done with them; what an index says is a hint."""

from collections.abc import Sequence
from contextlib import suppress

from passback.core.changes import Inbox, InboxPlace, OwingConversation, Status
from passback.core.errors import StoreError, StoreUnavailable
from passback.core.messages import ConversationId, ConversationKey, OwnerId
from passback.core.values import value
from passback.stores.layout import InboxPageBuilder, conversation_tag, pack_key, unpack_key
from passback.stores.redis import scripts
from passback.stores.redis.link import RedisLink
from passback.stores.redis.scripts import KeyNames, ScriptCall
from passback.stores.redis.servers import Reply

TAKES = 64  # of members of the due index, in one call
ROUNDS = 16  # of reading entries, for one page
ENTRIES_PER_ROUND = 64  # conversations that one round reads
# Entries of an inbox; beyond it, each new one makes its writer check `SAMPLE` others.
INBOX_ROOM = 1000
SAMPLE = 3  # entries
_NEVER = -1
_TAG_LENGTH = 32  # characters


@value
class _Taken:
    """Members that one worker has taken, under the score that marks them as taken."""

    score: bytes
    members: Sequence[bytes]


class DueIndex:
    """The conversations that are due for recovery, by the time when they are.

    Where one server has all keys, the scripts write it with the conversation. In a Cluster it is a
    key on a server of its own, written before a conversation needs it, and cleared only by a worker
    that has looked at the conversation.
    """

    def __init__(self, link: RedisLink, names: KeyNames) -> None:
        self._link = link
        self._names = names

    async def make_due(
        self, key: ConversationKey, after: int, /, *, if_unknown: bool = False
    ) -> None:
        """Make a conversation due in `after` milliseconds, where the scripts do not."""
        if not self._names.one_server:
            unless = ("NX",) if if_unknown else ()
            call = ScriptCall(scripts.DUE_NOTE, (self._names.due,), (after, pack_key(key), *unless))
            await self._link.run(call)

    async def take_due(self, limit: int, lease: int, /) -> list[ConversationKey]:
        """Take at most `limit` conversations that need recovery now.

        No other worker takes them for `lease` milliseconds.
        """
        found: list[ConversationKey] = []
        for _ in range(TAKES):
            if len(found) >= limit:
                break
            call = ScriptCall(scripts.DUE_TAKE, (self._names.due,), (limit - len(found), lease))
            taken = _Taken(*await self._link.run(call))
            if not taken.members:
                break
            found += await self._select_due(taken)
        return found

    async def _select_due(self, taken: _Taken) -> list[ConversationKey]:
        """Return the members that need recovery now; set when the others are due again."""
        keys: dict[bytes, ConversationKey] = {}
        calls: list[ScriptCall] = []
        for member in taken.members:
            with suppress(ValueError):  # a foreign member must not hold up the others
                keys[member] = unpack_key(member)
                tag = conversation_tag(keys[member])
                parts = (self._names.state(tag), self._names.queue(tag))
                calls.append(ScriptCall(scripts.DUE_WAIT, parts, ()))
        waits: dict[bytes, int] = {member: _NEVER for member in taken.members if member not in keys}
        # the milliseconds until each may need recovery: 0 for now, -1 for never
        asked = zip(keys, await self._link.run_all(calls), strict=True)
        # a conversation that could not be read is due again at the score of its taking
        waits |= {member: wait for member, wait in asked if isinstance(wait, int)}
        settled = [part for member, wait in waits.items() if wait for part in (member, wait)]
        if settled:
            call = ScriptCall(scripts.DUE_SETTLE, (self._names.due,), (taken.score, *settled))
            await self._link.run(call)
        return [key for member, key in keys.items() if waits.get(member) == 0]


@value
class InboxEntry:
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
    """The inbox of each owner: conversations that may owe something, by when they handed back.

    One is on whatever server. A conversation is noted before it owes something, and removed by a
    reader that finds that it owes nothing. A conversation that neither runs nor owes cannot owe
    something later without being noted again, under another score.

    Args:
        ttl: milliseconds for which an inbox is kept, empty for ever.
    """

    def __init__(self, link: RedisLink, names: KeyNames, ttl: str) -> None:
        self._link = link
        self._names = names
        self._ttl = ttl

    async def note_owing(self, key: ConversationKey, /) -> Sequence[InboxEntry]:
        """Note that a conversation is about to owe something.

        Returns entries for `remove_settled`, if the inbox has more than `INBOX_ROOM`.
        """
        member = f"{conversation_tag(key)}{key.id}".encode("utf-8", "surrogatepass")
        given = (member, self._ttl, INBOX_ROOM, SAMPLE)
        return _parse_entries(
            await self._link.run(
                ScriptCall(scripts.INBOX_NOTE, (self._names.inbox(key.owner),), given)
            )
        )

    async def remove_settled(self, owner: OwnerId, entries: Sequence[InboxEntry], /) -> None:
        """Remove those entries that owe nothing."""
        if entries:
            statuses = await self._read_statuses(owner, entries)
            await self._drop_entries(
                owner, [e for e, s in zip(entries, statuses, strict=True) if _owes_nothing(s)]
            )

    async def read_page(self, owner: OwnerId, after: InboxPlace | None, limit: int, /) -> Inbox:
        place, builder = after or InboxPlace(0, ""), InboxPageBuilder(limit)
        for _ in range(ROUNDS):
            # Redis orders entries of the same score by their members, which begin with the tag
            bounds = (place.since, "+inf", "WITHSCORES", "LIMIT", 0, ENTRIES_PER_ROUND)
            reply = await self._link.command("ZRANGEBYSCORE", self._names.inbox(owner), *bounds)
            entries = [entry for entry in _parse_entries(reply) if entry.place > place]
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

    async def _read_statuses(
        self, owner: OwnerId, entries: Sequence[InboxEntry]
    ) -> list[Status | None]:
        """Read statuses; None for a damaged conversation, which must not hold up the others."""
        names, calls = self._names, list[ScriptCall]()
        for tag in (conversation_tag(entry.key(owner)) for entry in entries):
            keys = names.state(tag), names.messages(tag), names.receipts(tag), names.queue(tag)
            calls.append(ScriptCall(scripts.READ, keys, (1, 0, 0, 0)))
        statuses: list[Status | None] = []
        for reply in await self._link.run_all(calls) if calls else []:
            if isinstance(reply, StoreUnavailable):
                raise reply
            status = None
            if not isinstance(reply, StoreError):
                with suppress(StoreError):
                    status = scripts.parse_status(reply)
            statuses.append(status)
        return statuses

    async def _drop_entries(self, owner: OwnerId, entries: Sequence[InboxEntry]) -> None:
        given = [part for entry in entries for part in (entry.member, entry.since)]
        if given:
            await self._link.run(
                ScriptCall(scripts.INBOX_REMOVE, (self._names.inbox(owner),), given)
            )


def _owes_nothing(status: Status | None) -> bool:
    return status is not None and not (status.running or status.owed)


def _parse_entries(reply: Reply) -> list[InboxEntry]:
    pairs = zip(reply[::2], reply[1::2], strict=True)
    return [InboxEntry(member, int(float(score))) for member, score in pairs]
