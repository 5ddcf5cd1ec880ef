"""Conversations in Redis: one server, Sentinel or a Cluster, shared by any number of workers.

All keys of a conversation bear one hash tag, so that each state transition is one script on one
server:

    {prefix}:{tag}:state      hash    version, lease, what is owed, the client's tools
    {prefix}:{tag}:messages   list    the transcript
    {prefix}:{tag}:receipts   hash    name -> run and fingerprint
    {prefix}:{tag}:queue      list    posts that wait, each under its run
    {prefix}:{tag}:runs       zset    runs whose logs exist -> when these expire
    {prefix}:{tag}:log:{run}  stream  an entry per batch of events, its id is that of its last event

Beside them are `{prefix}:due`, `{prefix}:inbox:{owner}` and `{prefix}:conversations:{owner}`
(`indexes.py`), and, where owners have limits, the counts of what they spend,
`{prefix}:{owner}:spent:...`, which bear the owner's hash tag.

Leases go by the server's clock. Hints that a log has grown are published; a reader that misses one
reads the log a little later.
"""

from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Literal

import anyio

from passback.core.budgets import Spending, Spent
from passback.core.changes import (
    CallClaim,
    Change,
    ClaimRequest,
    Commit,
    ConversationPage,
    ConversationPlace,
    Enqueue,
    EnqueueAnswer,
    Inbox,
    InboxPlace,
    Lease,
    LeaseState,
    LoadedConversation,
    LogWrite,
    Page,
    Status,
    WrittenTitle,
)
from passback.core.conversation_settings import ConversationSettings, dump_settings
from passback.core.errors import LeaseLost, StoreError, StoreUnavailable, UnknownRun
from passback.core.events import START, Cursor, Logged, Position, RunEvent, RunFinished
from passback.core.messages import ConversationKey, OwnerId, RunId, RunRef
from passback.core.ports import Watch
from passback.core.posts import ReceiptName
from passback.stores.coordination import LargeWrites, is_large, is_large_commit
from passback.stores.layout import (
    PAGE_SIZE,
    SPENT_MOST,
    SPENT_TTL,
    PackedEntry,
    conversation_tag,
    make_fence,
    milliseconds,
    pack_change,
    pack_claim,
    pack_commit,
    pack_enqueue,
    pack_entry,
    pack_key,
    pack_spending,
    pack_title,
    unpack_position,
    unpack_spent,
)
from passback.stores.options import KeepTimes, StoreOptions
from passback.stores.redis import scripts
from passback.stores.redis.check import check_servers
from passback.stores.redis.hints import Hints
from passback.stores.redis.indexes import ConversationList, DueIndex, InboxIndex, index_member
from passback.stores.redis.link import RedisLink
from passback.stores.redis.scripts import KeyNames, ScriptCall
from passback.stores.redis.servers import (
    Argument,
    RedisTarget,
    Reply,
    Topology,
    parse_redis_url,
)

PING_TIMEOUT = 3.0  # seconds
READY_TTL = 10_000  # milliseconds
DELETE_ATTEMPTS = 5
ENTRIES_AT_ONCE = 64  # entries of a log that one read asks for
RUNS_AT_ONCE = 64  # runs whose logs one script writes: it blocks the server meanwhile
# Milliseconds until a conversation with a queue is due that the index does not have.
QUEUE_DUE = 10_000

_ChangeKind = Literal["park", "begin", "take_over", "fail_lost"]
_ENQUEUE_ANSWERS: dict[bytes, EnqueueAnswer] = {
    b"queued": "queued",
    b"full": "full",
    b"changed": "changed",
}


def open_redis(
    topology: Topology, rest: str, options: StoreOptions, /, *, tls: bool = False
) -> "RedisStore":
    """Return the store of a URL, of which `rest` is what stands behind the scheme.

    Raises:
        ConfigurationError: with what is wrong with the URL, never with a password in it.
    """
    return RedisStore(parse_redis_url(topology, rest, tls=tls), options)


class RedisStore:
    """The `Store` on Redis. It can be entered before the server is there."""

    def __init__(self, target: RedisTarget, options: StoreOptions | None = None) -> None:
        self._options = options or StoreOptions()
        self._target = target
        self._keep_idle = KeepTimes.when_idle(self._options)
        self._keep_running = KeepTimes.when_running(self._options)
        self._ttls = (
            scripts.ttl_argument(self._keep_idle),
            scripts.ttl_argument(self._keep_running),
        )
        self._names = KeyNames(self._options.prefix, one_server=target.topology != "cluster")
        self._link = RedisLink(target, self._options.max_connections, self._options.timeout)
        self._hints = Hints(self._link, self._names)
        self._due = DueIndex(self._link, self._names)
        self._inbox = InboxIndex(self._link, self._names, scripts.ttl_argument(self._keep_running))
        self._list = ConversationList(self._link, self._names, self._keep_idle.conversation)
        self._large_writes = LargeWrites(self._options.timeout)
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

    async def check(self) -> Sequence[str]:
        return await check_servers(
            self._link, self._names, allow_eviction=self._options.allow_eviction
        )

    async def ping(self) -> None:
        with anyio.move_on_after(PING_TIMEOUT) as scope:
            await self._link.on_each_server("PING")
            # a server that answers may be full, or take no writes
            await self._link.command("SET", self._names.ready, "1", "PX", READY_TTL)
        if scope.cancelled_caught:
            raise StoreUnavailable("Redis does not answer in time", retry_after=1)

    async def status(self, key: ConversationKey, /) -> Status:
        return scripts.parse_status(await self._run_read(key, (1, 0, 0)))

    async def load(
        self,
        key: ConversationKey,
        /,
        *,
        receipts: Collection[ReceiptName] = (),
        within: int | None = None,
    ) -> LoadedConversation:
        asked, most = tuple(receipts), -1 if within is None else within
        return scripts.parse_loaded(
            await self._run_read(key, (0, -1, most), asked, whole=True), asked
        )

    async def page(self, key: ConversationKey, /, *, start: int, limit: int) -> Page:
        return scripts.parse_page(
            await self._run_read(key, (start, start + limit - 1, PAGE_SIZE)), start
        )

    async def inbox(
        self, owner: OwnerId, /, *, after: InboxPlace | None = None, limit: int
    ) -> Inbox:
        return await self._inbox.read_page(owner, after, limit)

    async def conversations(
        self,
        owner: OwnerId,
        /,
        *,
        after: ConversationPlace | None = None,
        limit: int,
        search: str = "",
    ) -> ConversationPage:
        return await self._list.read_page(owner, after, limit, search)

    async def rename(self, key: ConversationKey, title: str, /) -> bool:
        keys = (self._names.state(conversation_tag(key)),)
        return bool(await self._link.run(ScriptCall(scripts.RENAME, keys, (title,))))

    async def configure(self, key: ConversationKey, settings: ConversationSettings, /) -> bool:
        keys = (self._names.state(conversation_tag(key)),)
        call = ScriptCall(scripts.CONFIGURE, keys, (dump_settings(settings),))
        return bool(await self._link.run(call))

    async def write_title(self, written: WrittenTitle, /) -> bool:
        packed = pack_title(written)
        arguments = (packed.created, packed.title, packed.call)
        call = ScriptCall(scripts.WRITE_TITLE, (self._names.state(packed.tag),), arguments)
        return bool(await self._link.run(call))

    async def _run_read(
        self,
        key: ConversationKey,
        messages: tuple[int, int, int],
        receipts: Sequence[ReceiptName] = (),
        *,
        whole: bool = False,
    ) -> Reply:
        """Run `lua/read.lua`; `messages`: the first and the last position, and a size in bytes."""
        tag, names = conversation_tag(key), self._names
        keys = names.state(tag), names.messages(tag), names.receipts(tag), names.queue(tag)
        return await self._link.run(
            ScriptCall(scripts.READ, keys, (*messages, int(whole), *receipts))
        )

    async def park(self, change: Change, /) -> bool:
        await self._note(self._list.note_call(change.key))
        return await self._run_change("park", change, RunId(""), None, 0) is not None

    async def begin(
        self, change: Change, run_id: RunId, events: tuple[RunEvent, ...], /, *, lease: float
    ) -> Lease | None:
        return await self._take_lease("begin", change, run_id, events, milliseconds(lease))

    async def take_over(
        self, change: Change, run_id: RunId, events: tuple[RunEvent, ...], /, *, lease: float
    ) -> Lease | None:
        return await self._take_lease("take_over", change, run_id, events, milliseconds(lease))

    async def fail_lost(
        self, change: Change, run_id: RunId, events: tuple[RunEvent, ...], /
    ) -> bool:
        return (
            await self._run_change("fail_lost", change, run_id, pack_entry(events), 0) is not None
        )

    async def _take_lease(
        self,
        kind: Literal["begin", "take_over"],
        change: Change,
        run_id: RunId,
        events: tuple[RunEvent, ...],
        lease: int,
    ) -> Lease | None:
        notes = [self._due.note_call(change.key, lease)]
        if kind == "begin":  # a take-over is no change of the client
            notes.append(self._list.note_call(change.key))
        await self._note(*notes)
        epoch = await self._run_change(kind, change, run_id, pack_entry(events), lease)
        if epoch is None:
            return None
        return Lease(RunRef(change.key, run_id), epoch, make_fence(epoch, change.nonce))

    async def _note(self, *calls: ScriptCall) -> None:
        """Write indexes, where the scripts do not: before the conversation that is to be in them.

        One that is due too early is only looked at.
        """
        if not self._names.one_server:
            for reply in await self._link.run_all(calls):
                if isinstance(reply, StoreError):
                    raise reply

    async def _run_change(
        self,
        kind: _ChangeKind,
        change: Change,
        run_id: RunId,
        entry: PackedEntry | None,
        lease: int,
    ) -> int | None:
        packed = pack_change(change)
        keep = self._keep_running if kind in {"begin", "take_over"} else self._keep_idle
        given = (
            kind,
            *scripts.change_arguments(packed),
            packed.key,
            self._names.channel(packed.tag),
            *self._ttls,
            index_member(change.key),
            self._list.ttl,
            run_id,
            lease,
            keep.log,
            self._options.log_bytes,
            *scripts.entry_arguments(entry),
            len(packed.messages),
            *packed.messages,
            *(text for receipt in packed.receipts for text in receipt),
        )
        keys = self._names.conversation_keys(packed.tag, run_id, owner=change.key.owner)
        call = ScriptCall(scripts.CHANGE, keys, given)
        large = entry is not None and is_large([entry.record])
        async with self._large_writes.hold_lock(large):
            reply = await self._link.run(call)
        return None if reply is None else int(reply)

    async def claim_call(self, request: ClaimRequest, /, *, seconds: float) -> CallClaim | None:
        packed = pack_claim(request, seconds)
        given = (packed.nonce, packed.expected, packed.call, packed.claimant, packed.milliseconds)
        call = ScriptCall(scripts.CLAIM_CALL, (self._names.state(packed.tag),), given)
        reply = await self._link.run(call)
        return None if reply is None else CallClaim(bool(reply[0]), reply[1], reply[2])

    async def enqueue(self, entry: Enqueue, /) -> EnqueueAnswer:
        packed, key = pack_enqueue(entry), entry.run.key
        due = self._due.note_call(key, QUEUE_DUE, if_unknown=True)
        await self._note(due, self._list.note_call(key))
        given = (
            packed.run_id,
            packed.record,
            packed.limit,
            int(packed.stops),
            QUEUE_DUE,
            packed.key,
            self._names.channel(packed.tag),
            scripts.ttl_argument(self._keep_running),
            self._keep_running.log,
            index_member(key),
            self._list.ttl,
            *scripts.entry_arguments(packed.entry),
            *(text for receipt in packed.receipts for text in receipt),
        )
        keys = self._names.conversation_keys(packed.tag, packed.run_id, owner=key.owner)
        return _ENQUEUE_ANSWERS[await self._link.run(ScriptCall(scripts.ENQUEUE, keys, given))]

    async def cancel(self, run: RunRef, finished: RunFinished, /) -> bool:
        tag = conversation_tag(run.key)
        given = (
            run.run_id,
            self._names.channel(tag),
            *self._ttls,
            self._keep_idle.log,
            *scripts.entry_arguments(pack_entry((finished,))),
        )
        keys = self._names.conversation_keys(tag, run.run_id)
        return bool(await self._link.run(ScriptCall(scripts.CANCEL, keys, given)))

    async def keep_followed(self, run: RunRef, /, *, seconds: float) -> None:
        keys = (self._names.state(conversation_tag(run.key)),)
        await self._link.run(
            ScriptCall(scripts.KEEP_FOLLOWED, keys, (run.run_id, milliseconds(seconds)))
        )

    async def take_due(self, limit: int, /, *, lease: float) -> Sequence[ConversationKey]:
        return await self._due.take_due(limit, milliseconds(lease))

    async def spend(self, spending: Spending, /) -> Spent:
        packed = pack_spending(spending)
        keys = [self._names.spent(packed.tag, part) for part in (packed.day, packed.lease)]
        return unpack_spent(
            await self._link.run(
                ScriptCall(
                    scripts.SPEND, keys, (SPENT_TTL, SPENT_MOST, packed.seq, *packed.amounts)
                )
            )
        )

    async def delete(self, key: ConversationKey, /) -> bool:
        tag, names, listed = conversation_tag(key), self._names, await self._list.find(key)
        for _ in range(DELETE_ATTEMPTS):
            # a script has to be given its keys: a run that begins meanwhile needs another attempt
            runs: list[bytes] = await self._link.command("ZRANGE", names.runs(tag), 0, -1)
            logs = (names.log(tag, run.decode()) for run in runs)
            keys = names.with_indexes(*names.conversation_parts(tag), *logs, owner=key.owner)
            given: list[Argument] = [names.channel(tag), pack_key(key), index_member(key), *runs]
            existed = await self._link.run(ScriptCall(scripts.DELETE, keys, given))
            if existed is not None:
                if existed:
                    await self._list.remove(key.owner, listed)
                return bool(existed)
        raise StoreUnavailable("the conversation changes too fast to be deleted", retry_after=1)

    async def append(
        self, writes: Sequence[LogWrite], /, *, lease: float
    ) -> Sequence[LeaseState | StoreError]:
        packed = [(write.lease, pack_entry(write.events, write.first)) for write in writes]
        large = is_large([entry.record for _, entry in packed if entry])
        async with self._large_writes.hold_lock(large):
            return await self._append_parts(packed, lease)

    async def renew(
        self, leases: Sequence[Lease], /, *, lease: float
    ) -> Sequence[LeaseState | StoreError]:
        return await self._append_parts([(held, None) for held in leases], lease)

    async def _append_parts(
        self, writes: Sequence[tuple[Lease, PackedEntry | None]], lease: float
    ) -> list[LeaseState | StoreError]:
        """Append to many runs, with one script where one server has all keys."""
        # that costs a third of a script for each run
        size = RUNS_AT_ONCE if self._names.one_server else 1
        parts = [writes[start : start + size] for start in range(0, len(writes), size)]
        limits = (milliseconds(lease), self._keep_running.log, self._options.log_bytes)
        calls: list[ScriptCall] = []
        for part in parts:
            keys: list[str] = []
            given: list[Argument] = [*limits]
            for held, entry in part:
                tag = conversation_tag(held.run.key)
                keys += (self._names.state(tag), self._names.log(tag, held.run.run_id))
                channel = self._names.channel(tag)
                own = int(self._hints.listens(tag))
                given += (held.fence, channel, own, *scripts.next_entry_arguments(entry))
            calls.append(ScriptCall(scripts.APPEND, keys, given))
        answers = await self._link.run_all(calls)
        return [
            state
            for part, answer in zip(parts, answers, strict=True)
            for state in scripts.parse_lease_states(answer, len(part))
        ]

    async def commit(self, commit: Commit, /, *, lease: float) -> bool:
        async with self._large_writes.hold_lock(is_large_commit(commit)):
            packed, key, time = pack_commit(commit), commit.log.lease.run.key, milliseconds(lease)
            write, within = packed.write, packed.answer_within
            noted = await self._inbox.note_owing(key) if packed.hands_back else ()
            if within is not None:
                await self._note(self._due.note_call(key, min(within, time)))
            given = (
                write.fence,
                packed.step,
                time,
                pack_key(key),
                self._names.channel(write.tag),
                *self._ttls,
                self._keep_idle.log if commit.ends else self._keep_running.log,
                self._options.log_bytes,
                write.run_id,
                int(packed.ends),
                int(packed.stopped_early),
                packed.owed,
                "" if within is None else within,
                *scripts.state_arguments(packed.state),
                *scripts.open_turns_arguments(packed.open_turns),
                *scripts.next_entry_arguments(write.entry),
                *packed.messages,
            )
            keys = self._names.conversation_keys(write.tag, write.run_id)
            waits = await self._link.run(ScriptCall(scripts.COMMIT, keys, given))
            if waits is None:
                raise LeaseLost("another worker owns this run now")
            with suppress(StoreError):  # the commit is written, whatever becomes of the inbox
                await self._inbox.remove_settled(key.owner, noted)
            return bool(waits)

    async def release(self, lease: Lease, /) -> bool:
        key = lease.run.key
        given = (lease.fence, self._names.channel(conversation_tag(key)), pack_key(key))
        keys = self._names.with_indexes(self._names.state(conversation_tag(key)))
        held = bool(await self._link.run(ScriptCall(scripts.RELEASE, keys, given)))
        if held:
            await self._note(self._due.note_call(key, 0))
        return held

    async def read_log(
        self, run: RunRef, /, *, after: Position = START, limit: int = 1000
    ) -> Sequence[Logged]:
        log = self._names.log(conversation_tag(run.key), run.run_id)
        logged: list[Logged] = []
        place, count = after, min(limit, ENTRIES_AT_ONCE)
        while len(logged) < limit:
            entries = await self._link.command("XRANGE", log, f"({place}", "+", "COUNT", count)
            read, place = scripts.parse_events(entries, place, limit - len(logged))
            logged += read
            if len(entries) < count:
                break
        # XRANGE answers alike for a log without new entries and for an unknown one
        if not logged and not await self._link.command("EXISTS", log):
            raise UnknownRun("there is no such run in this conversation, or its log has expired")
        return logged

    async def next_run(self, key: ConversationKey, /, *, after: Position) -> Cursor | None:
        tag, names = conversation_tag(key), self._names
        runs: list[bytes] = await self._link.command("ZRANGE", names.runs(tag), 0, -1)
        if not runs:
            return None
        logs = [names.log(tag, run.decode()) for run in runs]
        found = await self._link.run(ScriptCall(scripts.NEXT_LOG, logs, (str(after),)))
        if found is None:
            return None
        place: int = found[0]
        position: bytes = found[1]
        return Cursor(RunId(runs[place - 1].decode()), unpack_position(position.decode()))

    @asynccontextmanager
    async def watch(self, key: ConversationKey, /) -> AsyncGenerator[Watch]:
        async with self._hints.watching(conversation_tag(key)) as waiter:
            yield waiter
