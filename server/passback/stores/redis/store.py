"""The `Store` on Redis."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import anyio

from passback.core.conversation.store import (
    Amounts,
    Append,
    Appended,
    Applied,
    Found,
    LogPage,
    Query,
    QueryPage,
    Span,
    SpentUnder,
    Wanted,
    Watch,
    Write,
)
from passback.core.errors import StoreError, StoreUnavailable
from passback.core.events import Position
from passback.core.ids import ConversationTag, conversation_tag
from passback.core.messages import ConversationKey, RunId
from passback.stores.layout import PAGE_SIZE, SPENT_MOST, SPENT_TTL, unpacking_records
from passback.stores.options import StoreOptions
from passback.stores.redis.check import check_servers
from passback.stores.redis.hints import Hints
from passback.stores.redis.indexes import Indexes
from passback.stores.redis.link import RedisLink
from passback.stores.redis.records import (
    changes_due,
    due_member,
    index_member,
    is_touched,
    pack_spans,
    pack_write,
    parse_applied,
    parse_entries,
    parse_found,
)
from passback.stores.redis.scripts import KeyNames, ScriptCall, Scripts
from passback.stores.redis.servers import Argument, RedisTarget, Reply, store_error

PING_TIMEOUT = 3.0  # seconds
READY_TTL = 10_000  # milliseconds
DELETE_ATTEMPTS = 5
RUNS_AT_ONCE = 64  # runs whose logs one script writes: it blocks the server meanwhile


class RedisStore:
    """The `Store` on Redis. It can be entered before the server is there."""

    def __init__(self, target: RedisTarget, options: StoreOptions | None = None) -> None:
        self._options = options or StoreOptions()
        self._target = target
        self._scripts = Scripts(self._options)
        self._names = KeyNames(self._options.prefix, one_server=target.topology != "cluster")
        self._link = RedisLink(target, self._options.max_connections, self._options.timeout)
        self._hints = Hints(self._link, self._names)
        self._indexes = Indexes(self._link, self._names, self._scripts)
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> "RedisStore":
        self._link.open()
        self._stack.push_async_callback(self._link.aclose)
        tasks = await self._stack.enter_async_context(anyio.create_task_group())
        self._stack.callback(tasks.cancel_scope.cancel)
        tasks.start_soon(self._hints.listen)
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._stack.aclose()

    @property
    def location(self) -> str:
        return self._target.location

    @property
    def sees_followers(self) -> bool:
        """False in a cluster: a server counts its own listeners, not those of the others."""
        return self._names.one_server

    async def check(self, /, *, briefly: bool = False) -> Sequence[str]:
        if not briefly:
            return await check_servers(
                self._link, self._names, allow_eviction=self._options.allow_eviction
            )
        with anyio.move_on_after(PING_TIMEOUT) as scope:
            await self._link.on_each_server("PING")
            # a server that answers may be full, or take no writes
            await self._link.command("SET", self._names.ready, "1", "PX", READY_TTL)
        if scope.cancelled_caught:
            raise StoreUnavailable("Redis does not answer in time", retry_after=1)
        return ()

    # ---------------------------------------------------------------- reads
    async def read(self, key: ConversationKey | ConversationTag, wanted: Wanted, /) -> Found:
        tag = key if isinstance(key, str) else conversation_tag(key)
        reply = await self._link.run(self._indexes.read_call(tag, wanted))
        return parse_found(reply, wanted, with_key=isinstance(key, str))

    async def log(
        self, key: ConversationKey, run_id: RunId | None, /, *, after: Position, limit: int
    ) -> LogPage | None:
        tag, names = conversation_tag(key), self._names
        given: tuple[Argument, ...] = (str(after), limit, PAGE_SIZE)
        if run_id is None:
            runs = await self._read_runs(tag)
        else:
            runs, given = [run_id], (*given, run_id)
        keys = (names.logs(tag), *(names.log(tag, run) for run in runs))
        reply = await self._link.run(ScriptCall(self._scripts.find, keys, given))
        if reply is None:
            return None
        place: int = reply[0]
        entries, more = parse_entries(reply[1]), len(reply) > 2
        return LogPage(RunId(runs[place - 2]), entries, more or len(entries) == limit)

    async def page(
        self, key: ConversationKey, spans: Sequence[Span], /, *, limit: int
    ) -> Sequence[bytes]:
        keys = (self._names.messages(conversation_tag(key)),)
        given = (pack_spans(spans), limit, PAGE_SIZE)
        found: list[bytes] = await self._link.run(ScriptCall(self._scripts.page, keys, given))
        return found

    async def query(self, query: Query, /) -> QueryPage:
        if query.index == "stored":
            return await self._indexes.read_stored(query)
        return await self._indexes.read_page(query)

    async def due(self, limit: int, /, *, milliseconds: int) -> Sequence[ConversationKey]:
        return await self._indexes.take_due(limit, milliseconds)

    @asynccontextmanager
    async def watch(self, key: ConversationKey, /) -> AsyncGenerator[Watch]:
        async with self._hints.watching(conversation_tag(key)) as waiter:
            yield waiter

    # ---------------------------------------------------------------- writes
    async def apply(self, write: Write, /) -> Applied | None:
        await self._indexes.note(write)
        tag, names = conversation_tag(write.key), self._names
        run_id = "" if write.log is None else write.log.run_id
        keys = [names.state(tag), names.messages(tag), names.log(tag, run_id), names.logs(tag)]
        if is_touched(write) or write.owes is not None:
            keys += names.indexes(write.key.owner)
        elif changes_due(write):
            keys += names.indexes(write.key.owner)[:1]
        given = pack_write(write, names.channel(tag))
        reply = await self._link.run(ScriptCall(self._scripts.apply, keys, given))
        if reply is not None:
            await self._indexes.note_applied(write)
        return parse_applied(reply)

    async def append(
        self, appends: Sequence[Append], /, *, lease: int
    ) -> Sequence[Appended | StoreError]:
        # with one script where one server has all keys: that costs a third of one for each run
        size = RUNS_AT_ONCE if self._names.one_server else 1
        parts = [appends[start : start + size] for start in range(0, len(appends), size)]
        calls = [self._append_call(part, lease) for part in parts]
        replies = await self._link.run_all(calls)
        return [
            answer
            for part, reply in zip(parts, replies, strict=True)
            for answer in self._parse_appended(part, reply)
        ]

    def _append_call(self, appends: Sequence[Append], lease: int) -> ScriptCall:
        names, keys = self._names, list[str]()
        given: list[Argument] = [lease]
        for each in appends:
            tag, entry = conversation_tag(each.key), each.entry
            keys += (names.state(tag), names.log(tag, each.run_id), names.logs(tag))
            given += (each.fence, names.channel(tag))
            if entry is None:
                given += ("", "", "", "")
            else:
                given += (entry.position.epoch, entry.size, entry.position.seq, entry.record)
        return ScriptCall(self._scripts.append, keys, given)

    def _parse_appended(
        self, appends: Sequence[Append], reply: Reply | StoreError
    ) -> list[Appended | StoreError]:
        if isinstance(reply, StoreError):  # of the script: it is each run's
            return [reply] * len(appends)
        answers: list[Appended | StoreError] = []
        for each, answer in zip(appends, reply, strict=True):
            if answer is None:
                answers.append(Appended(held=False))
            elif isinstance(answer, Exception):  # a damaged conversation has an error of its own
                answers.append(store_error(answer))
            else:
                listeners, _, signal = answer.decode().partition(" ")
                own = int(self._hints.listens(conversation_tag(each.key)))
                answers.append(Appended(True, int(listeners) > own, signal))
        return answers

    async def spend(self, spent: SpentUnder, /) -> Amounts:
        parts = (f"day:{spent.day}", f"run:{spent.lease}")
        keys = [self._names.spent(spent.owner, part) for part in parts]
        given = (SPENT_TTL, SPENT_MOST, spent.seq, *spent.amounts)
        return Amounts(*await self._link.run(ScriptCall(self._scripts.spend, keys, given)))

    async def delete(self, key: ConversationKey, /) -> bool:
        tag, names, indexed = conversation_tag(key), self._names, await self._indexes.find(key)
        parts = (names.state(tag), names.messages(tag), names.logs(tag))
        for _ in range(DELETE_ATTEMPTS):
            # a script has to be given its keys: a run that begins meanwhile needs another attempt
            runs = await self._read_runs(tag)
            keys = (*parts, *(names.log(tag, run) for run in runs), *names.indexes(key.owner))
            members = due_member(key), index_member(key)
            given: tuple[Argument, ...] = (names.channel(tag), *members, *runs)
            existed = await self._link.run(ScriptCall(self._scripts.delete, keys, given))
            if existed is not None:
                await self._indexes.remove(indexed if existed else ())
                return bool(existed)
        raise StoreUnavailable("the conversation changes too fast to be deleted", retry_after=1)

    async def _read_runs(self, tag: str) -> list[str]:
        """Return the runs whose logs exist, as far as is known."""
        runs: list[bytes] = await self._link.command("ZRANGE", self._names.logs(tag), 0, -1)
        with unpacking_records():
            return [run.decode() for run in runs]
