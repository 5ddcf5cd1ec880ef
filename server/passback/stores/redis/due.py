"""The index of the conversations that are due for recovery, by the time when they are.

It is a hint. Where one server has all keys, the scripts write it with the conversation. In a
Cluster it is a key on a server of its own, written before a conversation needs it, and cleared only
by a worker that has looked at the conversation.
"""

from collections.abc import Iterable, Sequence

from passback.core.errors import StoreError
from passback.core.messages import ConversationKey
from passback.core.values import value
from passback.stores.layout import conversation_tag, pack_key, unpack_key
from passback.stores.redis import scripts
from passback.stores.redis.link import RedisLink, ScriptCall
from passback.stores.redis.names import KeyNames

ROUNDS = 64  # of taking members, in one call
NEVER = -1


@value
class _Taken:
    """Members that one worker has taken, under the score that marks them as taken."""

    score: bytes
    members: Sequence[bytes]


class DueIndex:
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
        for _ in range(ROUNDS):
            if len(found) >= limit:
                break
            taken = await self._take_members(limit - len(found), lease)
            if not taken.members:
                break
            found += await self._select_due(taken)
        return found

    async def _take_members(self, limit: int, lease: int) -> _Taken:
        call = ScriptCall(scripts.DUE_TAKE, (self._names.due,), (limit, lease))
        return _Taken(*await self._link.run(call))

    async def _select_due(self, taken: _Taken) -> list[ConversationKey]:
        """Return the members that need recovery now; set when the others are due again."""
        keys = {member: key for member in taken.members if (key := _parse_key(member))}
        waits = {member: NEVER for member in taken.members if member not in keys}
        asked = zip(keys, await self._read_waits(keys.values()), strict=True)
        # a conversation that could not be read is due again at the score of its taking
        waits |= {member: wait for member, wait in asked if isinstance(wait, int)}
        settled = [part for member, wait in waits.items() if wait for part in (member, wait)]
        if settled:
            call = ScriptCall(scripts.DUE_SETTLE, (self._names.due,), (taken.score, *settled))
            await self._link.run(call)
        return [key for member, key in keys.items() if waits.get(member) == 0]

    async def _read_waits(self, keys: Iterable[ConversationKey]) -> list[int | StoreError]:
        """Read the milliseconds until each may need recovery: 0 for now, -1 for never."""
        calls: list[ScriptCall] = []
        for name in map(conversation_tag, keys):
            parts = (self._names.state(name), self._names.queue(name))
            calls.append(ScriptCall(scripts.DUE_WAIT, parts, ()))
        return await self._link.run_all(calls)


def _parse_key(member: bytes) -> ConversationKey | None:
    """Return None for a foreign member: it must not hold up the others."""
    try:
        return unpack_key(member)
    except ValueError:
        return None
