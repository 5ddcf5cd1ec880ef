"""Indexes of conversations, by what is to be done with them; what an index says is a hint."""

from collections.abc import Sequence
from contextlib import suppress

from passback.core.changes import (
    ConversationPage,
    ConversationPlace,
    Inbox,
    InboxPlace,
    ListedConversation,
    OwingConversation,
    Status,
)
from passback.core.errors import StoreError, StoreUnavailable
from passback.core.messages import ConversationId, ConversationKey, OwnerId
from passback.core.titles import title_filter
from passback.core.values import value
from passback.stores.layout import (
    ConversationPageBuilder,
    InboxPageBuilder,
    conversation_tag,
    milliseconds,
    pack_key,
    unpack_key,
)
from passback.stores.options import DAY
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
# Milliseconds for which a list keeps a conversation beyond its time to live, which begins anew with
# each turn of a run: a run that lasts longer may leave the list before its end.
LONGEST_RUN = milliseconds(7 * DAY)
# Microseconds until a conversation that is listed and not there counts as gone. In a Cluster it is
# listed before it is written.
WRITE_TIME = 60_000_000
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

    def note_call(
        self, key: ConversationKey, after: int, /, *, if_unknown: bool = False
    ) -> ScriptCall:
        """Return the call that makes a conversation due in `after` milliseconds."""
        unless = ("NX",) if if_unknown else ()
        return ScriptCall(scripts.DUE_NOTE, (self._names.due,), (after, pack_key(key), *unless))

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
class IndexEntry:
    """One member, the tag and the id of a conversation, with its score in microseconds."""

    member: bytes
    score: int

    @property
    def tag(self) -> str:
        return self.member[:_TAG_LENGTH].decode()

    def key(self, owner: OwnerId, /) -> ConversationKey:
        found = self.member[_TAG_LENGTH:].decode("utf-8", "surrogatepass")
        return ConversationKey(owner, ConversationId(found))


class _OwnerIndex:
    """An index of an owner's conversations: reading them, and removing entries."""

    def __init__(self, link: RedisLink, names: KeyNames) -> None:
        self._link = link
        self._names = names

    async def _read_statuses(
        self, owner: OwnerId, entries: Sequence[IndexEntry]
    ) -> list[Status | None]:
        """Read statuses; None for a damaged conversation, which must not hold up the others."""
        names, calls = self._names, list[ScriptCall]()
        for tag in (conversation_tag(entry.key(owner)) for entry in entries):
            keys = names.state(tag), names.messages(tag), names.receipts(tag), names.queue(tag)
            calls.append(ScriptCall(scripts.READ, keys, (1, 0, 0, 0)))
        statuses: list[Status | None] = []
        for reply in await self._run_reads(calls):
            status = None
            if not isinstance(reply, StoreError):
                with suppress(StoreError):
                    status = scripts.parse_status(reply)
            statuses.append(status)
        return statuses

    async def _run_reads(self, calls: Sequence[ScriptCall]) -> list[Reply | StoreError]:
        """Run scripts; the answer of one that meets a damaged conversation is its error."""
        replies = await self._link.run_all(calls) if calls else []
        for reply in replies:
            if isinstance(reply, StoreUnavailable):
                raise reply
        return replies

    async def _drop_entries(
        self, index: str, entries: Sequence[IndexEntry], /, *, age: int = 0
    ) -> None:
        """Remove entries that have not changed since they were read, nor in `age` microseconds."""
        given = [part for entry in entries for part in (entry.member, entry.score)]
        if given:
            await self._link.run(ScriptCall(scripts.INDEX_REMOVE, (index,), (age, *given)))


class InboxIndex(_OwnerIndex):
    """The inbox of each owner: conversations that may owe something, by when they handed back.

    One is on whatever server. A conversation is noted before it owes something, and removed by a
    reader that finds that it owes nothing. A conversation that neither runs nor owes cannot owe
    something later without being noted again, under another score.

    Args:
        ttl: milliseconds for which an inbox is kept, empty for ever.
    """

    def __init__(self, link: RedisLink, names: KeyNames, ttl: str) -> None:
        super().__init__(link, names)
        self._ttl = ttl

    async def note_owing(self, key: ConversationKey, /) -> Sequence[IndexEntry]:
        """Note that a conversation is about to owe something.

        Returns entries for `remove_settled`, if the inbox has more than `INBOX_ROOM`.
        """
        given = (index_member(key), self._ttl, INBOX_ROOM, SAMPLE)
        return _parse_entries(
            await self._link.run(
                ScriptCall(scripts.INBOX_NOTE, (self._names.inbox(key.owner),), given)
            )
        )

    async def remove_settled(self, owner: OwnerId, entries: Sequence[IndexEntry], /) -> None:
        """Remove those entries that owe nothing."""
        if entries:
            statuses = await self._read_statuses(owner, entries)
            settled = [e for e, s in zip(entries, statuses, strict=True) if _owes_nothing(s)]
            await self._drop_entries(self._names.inbox(owner), settled)

    async def read_page(self, owner: OwnerId, after: InboxPlace | None, limit: int, /) -> Inbox:
        index = self._names.inbox(owner)
        place, builder = after or InboxPlace(0, ""), InboxPageBuilder(limit)
        for _ in range(ROUNDS):
            # Redis orders entries of the same score by their members, which begin with the tag
            bounds = (place.since, "+inf", "WITHSCORES", "LIMIT", 0, ENTRIES_PER_ROUND)
            reply = await self._link.command("ZRANGEBYSCORE", index, *bounds)
            entries = [entry for entry in _parse_entries(reply) if _inbox_place(entry) > place]
            statuses = await self._read_statuses(owner, entries)
            found = list(zip(entries, statuses, strict=True))
            await self._drop_entries(
                index, [entry for entry, status in found if _owes_nothing(status)]
            )
            for entry, status in found:
                if status is None or status.running or not status.owed:
                    continue
                owing = OwingConversation(entry.key(owner), _inbox_place(entry), status)
                if not builder.try_add(owing):
                    return builder.full_page()
            if not entries:
                return builder.last_page()
            place = _inbox_place(entries[-1])
        return builder.last_page(place)


def _inbox_place(entry: IndexEntry) -> InboxPlace:
    return InboxPlace(entry.score, entry.tag)


def _owes_nothing(status: Status | None) -> bool:
    return status is not None and not (status.running or status.owed)


class ConversationList(_OwnerIndex):
    """The conversations of each owner, by when a client last changed them.

    Where one server has all keys, the scripts write a list with the conversation. In a Cluster it
    is on whatever server, and written before the conversation: what is not written after all is in
    it too new, or until a reader finds that there is no such conversation.

    Args:
        ttl: milliseconds for which a conversation is kept, None for ever.
    """

    def __init__(self, link: RedisLink, names: KeyNames, ttl: int | None) -> None:
        super().__init__(link, names)
        self.ttl = "" if ttl is None else str(ttl + LONGEST_RUN)

    def note_call(self, key: ConversationKey, /) -> ScriptCall:
        """Return the call that lists a conversation as changed now."""
        names = (self._names.conversations(key.owner),)
        return ScriptCall(scripts.LIST_NOTE, names, (index_member(key), self.ttl))

    async def find(self, key: ConversationKey, /) -> Sequence[IndexEntry]:
        """Return the entry of a conversation that the scripts do not remove with it."""
        if self._names.one_server:
            return ()
        member = index_member(key)
        name = self._names.conversations(key.owner)
        score = await self._link.command("ZSCORE", name, member)
        return () if score is None else (IndexEntry(member, int(float(score))),)

    async def remove(self, owner: OwnerId, entries: Sequence[IndexEntry], /) -> None:
        """Remove conversations that were deleted, unless they were listed again since."""
        await self._drop_entries(self._names.conversations(owner), entries)

    async def read_page(
        self, owner: OwnerId, after: ConversationPlace | None, limit: int, /, search: str
    ) -> ConversationPage:
        place, builder = after, ConversationPageBuilder(limit)
        for _ in range(ROUNDS):
            entries = await self._read_entries(owner, place)
            if not entries:
                return builder.last_page()
            matching = await self._select_matching(owner, entries, search)
            statuses = await self._read_statuses(owner, matching[: builder.room + 1])
            found = list(zip(matching, statuses, strict=False))
            await self._drop_gone(owner, [e for e, s in found if s is not None and not s.version])
            for entry, status in found:
                if status is None or not status.version:
                    continue
                listed = ListedConversation(entry.key(owner), _list_place(entry), status)
                if not builder.try_add(listed):
                    return builder.full_page()
            # not all that match were read, and some of those that were are gone or damaged
            place = _list_place(found[-1][0] if len(found) < len(matching) else entries[-1])
        return builder.last_page(place)

    async def _read_entries(
        self, owner: OwnerId, place: ConversationPlace | None
    ) -> list[IndexEntry]:
        name, newest = self._names.conversations(owner), "+inf" if place is None else place.updated
        bounds = (newest, "-inf", "WITHSCORES", "LIMIT", 0, ENTRIES_PER_ROUND)
        entries = _parse_entries(await self._link.command("ZREVRANGEBYSCORE", name, *bounds))
        return [each for each in entries if place is None or _list_place(each) < place]

    async def _select_matching(
        self, owner: OwnerId, entries: Sequence[IndexEntry], search: str
    ) -> Sequence[IndexEntry]:
        """Return the entries whose title matches, and remove those of conversations that are gone.

        A damaged conversation does not match.
        """
        if not search:
            return entries
        matches, tags = title_filter(search), [conversation_tag(e.key(owner)) for e in entries]
        calls = [ScriptCall(scripts.TITLE, (self._names.state(tag),), ()) for tag in tags]
        replies = await self._run_reads(calls)
        found = list(zip(entries, replies, strict=True))
        await self._drop_gone(owner, [entry for entry, reply in found if reply is None])
        return [e for e, reply in found if isinstance(reply, bytes) and matches(_read_title(reply))]

    async def _drop_gone(self, owner: OwnerId, entries: Sequence[IndexEntry]) -> None:
        await self._drop_entries(self._names.conversations(owner), entries, age=WRITE_TIME)


def _read_title(record: bytes) -> str:
    return record.decode(errors="replace")


def _list_place(entry: IndexEntry) -> ConversationPlace:
    return ConversationPlace(entry.score, entry.tag)


def index_member(key: ConversationKey, /) -> bytes:
    """Return the member of a conversation in an index of its owner."""
    return f"{conversation_tag(key)}{key.id}".encode("utf-8", "surrogatepass")


def _parse_entries(reply: Reply) -> list[IndexEntry]:
    pairs = zip(reply[::2], reply[1::2], strict=True)
    return [IndexEntry(member, int(float(score))) for member, score in pairs]
