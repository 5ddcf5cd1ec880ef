"""The index of the conversations that somebody has to look after, by the time when.

It is a hint. Where one server has all keys, the scripts write it with the conversation; in a Cluster it is a key on a
server of its own, written before a conversation needs it, and cleared only by those who have looked.
"""

from collections.abc import Iterable, Sequence

from passback.core.errors import StoreError
from passback.core.messages import ConversationKey
from passback.core.values import value
from passback.stores.layout import pack_key, tag, unpack_key
from passback.stores.redis import scripts
from passback.stores.redis.link import RedisLink, ScriptCall
from passback.stores.redis.names import Names

ROUNDS = 64  # of looking, in one search
NEVER = -1


@value
class _Taken:
    """What one caller may look after, under the score that says so."""

    score: bytes
    members: Sequence[bytes]


class Due:
    def __init__(self, link: RedisLink, names: Names) -> None:
        self._link = link
        self._names = names

    async def note(self, key: ConversationKey, after: int, /, *, if_unknown: bool = False) -> None:
        """Have a conversation looked after in `after` milliseconds, where the scripts do not see to it."""
        if not self._names.one_server:
            unless = ("NX",) if if_unknown else ()
            call = ScriptCall(scripts.DUE_NOTE, (self._names.due,), (after, pack_key(key), *unless))
            await self._link.run(call)

    async def search(self, limit: int, lease: int, /) -> list[ConversationKey]:
        """At most `limit` conversations that wait for somebody; each is the caller's for `lease` milliseconds."""
        found: list[ConversationKey] = []
        for _ in range(ROUNDS):
            if len(found) >= limit:
                break
            taken = await self._take(limit - len(found), lease)
            if not taken.members:
                break
            found += await self._look(taken)
        return found

    async def _take(self, limit: int, lease: int) -> _Taken:
        call = ScriptCall(scripts.DUE_TAKE, (self._names.due,), (limit, lease))
        return _Taken(*await self._link.run(call))

    async def _look(self, taken: _Taken) -> list[ConversationKey]:
        """Those that wait for somebody; it is put down when to look at the others again."""
        keys = {member: key for member in taken.members if (key := _key(member))}
        waits = {member: NEVER for member in taken.members if member not in keys}
        asked = zip(keys, await self._waits(keys.values()), strict=True)
        # what could not be asked is tried again later, as the taking has put down
        waits |= {member: wait for member, wait in asked if isinstance(wait, int)}
        settled = [part for member, wait in waits.items() if wait for part in (member, wait)]
        if settled:
            call = ScriptCall(scripts.DUE_SETTLE, (self._names.due,), (taken.score, *settled))
            await self._link.run(call)
        return [key for member, key in keys.items() if waits.get(member) == 0]

    async def _waits(self, keys: Iterable[ConversationKey]) -> list[int | StoreError]:
        """Milliseconds until somebody may have to look after each, 0 for at once."""
        calls: list[ScriptCall] = []
        for name in map(tag, keys):
            parts = (self._names.state(name), self._names.queue(name))
            calls.append(ScriptCall(scripts.DUE_LOOK, parts, ()))
        return await self._link.run_all(calls)


def _key(member: bytes) -> ConversationKey | None:
    """None for what is not ours: it must not be in the way of the others."""
    try:
        return unpack_key(member)
    except ValueError:
        return None
