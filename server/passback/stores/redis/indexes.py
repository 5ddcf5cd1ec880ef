"""Indexes of conversations: those that are due, and those of an owner. What one says is a hint.

Where one server has all keys, the scripts write the indexes with a conversation. In a Cluster each
is on whatever server, and written before the conversation: what is not written after all is in it
too early or too new, until a reader finds out.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from passback.core.conversation.store import (
    Found,
    Listed,
    Place,
    Query,
    QueryPage,
    TakeLease,
    Wanted,
    Write,
)
from passback.core.errors import StoreError, StoreUnavailable
from passback.core.ids import ConversationTag, conversation_tag
from passback.core.messages import ConversationId, ConversationKey, OwnerId
from passback.core.values import value
from passback.stores.redis.link import RedisLink
from passback.stores.redis.records import (
    due_member,
    index_member,
    is_touched,
    owes_since,
    pack_wanted,
    parse_due_member,
    parse_found,
)
from passback.stores.redis.scripts import KeyNames, ScriptCall, Scripts
from passback.stores.redis.servers import Argument

TAKES = 64  # of members of the due index, in one call
TIES = 16  # entries of one time, which can only come from different servers
# Microseconds until a conversation that is indexed and not there counts as gone. In a Cluster it is
# indexed before it is written.
WRITE_TIME = 60_000_000
_TAG_LENGTH = 32  # characters


class Indexes:
    """The indexes of a store."""

    def __init__(self, link: RedisLink, names: KeyNames, scripts: Scripts) -> None:
        self._link = link
        self._names = names
        self._scripts = scripts

    def read_call(self, tag: str, wanted: Wanted, /) -> ScriptCall:
        """Return the call that reads a conversation."""
        keys = (self._names.state(tag), self._names.messages(tag))
        return ScriptCall(self._scripts.read, keys, pack_wanted(wanted))

    async def note(self, write: Write, /) -> None:
        """Write indexes, where the scripts do not, before the write that they are for."""
        if self._names.one_server:
            return
        key, names, calls = write.key, self._names, list[ScriptCall]()
        if (after := _due_after(write)) is not None:
            calls.append(ScriptCall(self._scripts.note, (names.due,), (due_member(key), after)))
        noted = ((is_touched(write), names.all), (write.owes, names.owing))
        for is_noted, index in noted:
            if is_noted:
                member = (index_member(key),)
                calls.append(ScriptCall(self._scripts.note, (index(key.owner),), member))
        for reply in await self._link.run_all(calls) if calls else ():
            if isinstance(reply, StoreError):
                raise reply

    async def note_applied(self, write: Write, /) -> None:
        """Let recovery look at a conversation that has lost its lease, where the scripts do not.

        It is noted after the write: who looks before that puts it off.
        """
        has_ended = write.lease == "release" or (write.lease == "end" and write.due is None)
        if has_ended and not self._names.one_server:
            given = (due_member(write.key), 0)
            await self._link.run(ScriptCall(self._scripts.note, (self._names.due,), given))

    # ------------------------------------------------------------ due conversations
    async def take_due(self, limit: int, milliseconds: int, /) -> list[ConversationKey]:
        """Take at most `limit` conversations that are due.

        No other worker takes them for so many milliseconds.
        """
        found: list[ConversationKey] = []
        settled: Sequence[Argument] = (0,)  # the score of the last taking, and what is not due
        asked = limit
        for _ in range(TAKES):
            given = (asked, milliseconds, *settled)
            call = ScriptCall(self._scripts.due, (self._names.due,), given)
            score, members = await self._link.run(call)
            if not members:
                break
            due, others = await self._look_at(members)
            found += due
            settled = (score, *others)
            # without more that is due, the next call only settles
            asked = 0 if len(members) < asked else limit - len(found)
            if not asked and not others:
                break
        return found

    async def _look_at(
        self, members: Sequence[bytes]
    ) -> tuple[list[ConversationKey], list[Argument]]:
        """Return the members that are due, and the others, each with the time when it is due."""
        due: list[ConversationKey] = []
        others: list[Argument] = []
        keys: dict[bytes, ConversationKey] = {}
        for member in members:
            try:
                keys[member] = parse_due_member(member)
            except ValueError:  # a foreign member must not hold up the others
                others += (member, "")
        read = await self._read_all([*map(conversation_tag, keys.values())], Wanted())
        for (member, key), each in zip(keys.items(), read, strict=True):
            if each is None:
                continue  # it is due again when the time of its taking is over
            found = each.found
            at = found.due if found.lease is None else found.lease.expires
            if at is not None and at <= found.now:
                due.append(key)
            else:
                others += (member, "" if at is None else at)
        return due, others

    # ------------------------------------------------------------ conversations of an owner
    async def read_page(self, query: Query, /) -> QueryPage:
        wanted = Wanted(fields=query.fields)
        entries, has_more = await self._read_entries(query)
        keys = [each.key(query.owner) for each in entries]
        read = await self._read_all([*map(conversation_tag, keys)], wanted)
        gone: list[_Entry] = []
        listed: list[Listed] = []
        for entry, key, each in zip(entries, keys, read, strict=True):
            if each is not None and not each.belongs_to(query.index):
                gone.append(entry)
            else:
                listed.append(Listed(key, entry.place, None if each is None else each.found))
        await self._drop(self._index(query), gone)
        return QueryPage(tuple(listed), entries[-1].place if has_more and entries else None)

    async def read_stored(self, query: Query, /) -> QueryPage:
        """Return conversations of all owners, in the order of a scan.

        A place is a server's name and its cursor. Of a damaged conversation only the tag is known.
        """
        after, wanted = query.after, Wanted(fields=query.fields)
        server, cursor = (None, 0) if after is None else (after.tag, after.time)
        pattern = self._names.state("*")
        keys, server, cursor = await self._link.scan(server, cursor, pattern, query.limit)
        tags = [
            key.partition(b"{")[2].partition(b"}")[0].decode("ascii", "replace") for key in keys
        ]
        listed: list[Listed] = []
        unnamed: list[ConversationTag] = []
        calls = [self.read_call(tag, wanted) for tag in tags]
        replies = await self._link.run_all(calls) if calls else ()
        for tag, reply in zip(tags, replies, strict=True):
            if isinstance(reply, StoreUnavailable):
                raise reply
            try:
                if isinstance(reply, StoreError):
                    raise reply
                found = parse_found(reply, wanted, with_key=True)
            except StoreError:
                unnamed.append(ConversationTag(tag))
                continue
            if found.key is not None and conversation_tag(found.key) == tag:
                listed.append(Listed(found.key, Place(cursor, tag), replace(found, key=None)))
            elif found.version:
                unnamed.append(ConversationTag(tag))
        place = None if server is None else Place(cursor, server)
        return QueryPage(tuple(listed), place, tuple(unnamed))

    async def find(self, key: ConversationKey, /) -> Sequence[tuple[str, "_Entry"]]:
        """Return the entries of a conversation that the scripts do not remove with it."""
        if self._names.one_server:
            return ()
        member, found = index_member(key), list[tuple[str, _Entry]]()
        for index in (self._names.all(key.owner), self._names.owing(key.owner)):
            score = await self._link.command("ZSCORE", index, member)
            if score is not None:
                found.append((index, _Entry(member, int(float(score)))))
        return found

    async def remove(self, found: Sequence[tuple[str, "_Entry"]], /) -> None:
        """Remove a conversation that was deleted, unless it was noted again since."""
        for index, entry in found:
            await self._drop(index, [entry], age=0)

    def _index(self, query: Query) -> str:
        names, owner = self._names, query.owner
        return names.all(owner) if query.index == "all" else names.owing(owner)

    async def _read_entries(self, query: Query) -> tuple[list["_Entry"], bool]:
        """Return the entries of a page, and whether there are more behind them."""
        after, index, count = query.after, self._index(query), query.limit + TIES + 1
        if query.index == "all":
            bounds = ("ZREVRANGEBYSCORE", index, "+inf" if after is None else after.time, "-inf")
        else:
            bounds = ("ZRANGEBYSCORE", index, 0 if after is None else after.time, "+inf")
        reply = await self._link.command(*bounds, "WITHSCORES", "LIMIT", 0, count)
        pairs = zip(reply[::2], reply[1::2], strict=True)
        entries = [_Entry(member, int(float(score))) for member, score in pairs]
        is_full = len(entries) == count
        # Redis orders entries of the same time by their members, which begin with the tag
        if after is not None and query.index == "all":
            entries = [each for each in entries if each.place < after]
        elif after is not None:
            entries = [each for each in entries if each.place > after]
        return entries[: query.limit], is_full or len(entries) > query.limit

    async def _drop(
        self, index: str, entries: Sequence["_Entry"], *, age: int | None = None
    ) -> None:
        """Remove entries that have not changed since they were read, nor in `age` microseconds."""
        if age is None:
            age = 0 if self._names.one_server else WRITE_TIME
        given = [part for entry in entries for part in (entry.member, entry.score)]
        if given:
            await self._link.run(ScriptCall(self._scripts.remove, (index,), (age, *given)))

    async def _read_all(
        self, tags: Sequence[str], wanted: Wanted
    ) -> Sequence["_ReadConversation | None"]:
        """Read conversations; None for a damaged one, which must not hold up the others."""
        read: list[_ReadConversation | None] = []
        calls = [self.read_call(tag, wanted) for tag in tags]
        for reply in await self._link.run_all(calls) if calls else ():
            if isinstance(reply, StoreUnavailable):
                raise reply
            read.append(None)
            if not isinstance(reply, StoreError):
                with suppress(StoreError):
                    found = parse_found(reply, wanted)
                    read[-1] = _ReadConversation(found, owes_since(reply) is not None)
        return read


@value
class _ReadConversation:
    """A conversation that an index names."""

    found: Found
    owes: bool

    def belongs_to(self, index: str) -> bool:
        return self.found.version > 0 and (index == "all" or self.owes)


@value
class _Entry:
    """One member, the tag and the id of a conversation, with its score in microseconds."""

    member: bytes
    score: int

    @property
    def place(self) -> Place:
        return Place(self.score, self.member[:_TAG_LENGTH].decode())

    def key(self, owner: OwnerId, /) -> ConversationKey:
        found = self.member[_TAG_LENGTH:].decode("utf-8", "surrogatepass")
        return ConversationKey(owner, ConversationId(found))


def _due_after(write: Write) -> int | None:
    """Return in how many milliseconds the conversation may be due at first after a write."""
    if isinstance(write.lease, TakeLease):
        return write.lease.milliseconds
    if write.due is None:
        return None
    times = [each for each in (write.due.after, write.due.queued) if each is not None]
    return min(times, default=None)
