"""Conversations in Redis: one server, Sentinel or a Cluster, shared by any number of workers.

All keys of a conversation bear one hash tag, so that each state transition is one script on one server:

    {prefix}:{tag}:state      hash    version, lease, what is owed, the client's tools
    {prefix}:{tag}:messages   list    the transcript
    {prefix}:{tag}:answers    hash    call id -> run and fingerprint
    {prefix}:{tag}:runs       zset    runs whose logs exist -> when these expire
    {prefix}:{tag}:log:{run}  stream  an entry per batch of events, its id is that of its last event

Leases go by the server's clock. Hints that a log has grown are published; the log alone is the truth.
"""

from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Literal

import anyio

from passback.core.changes import (
    Change,
    Commit,
    Lease,
    LeaseState,
    Loaded,
    LogWrite,
    Page,
    Status,
)
from passback.core.errors import LeaseLost, StoreError, StoreUnavailable, UnknownRun
from passback.core.events import START, Logged, Position, RunEvent, RunFinished
from passback.core.messages import CallId, ConversationKey, RunId, RunRef
from passback.core.ports import Watch
from passback.core.records import load_message, load_owed, load_tools
from passback.stores.layout import (
    PAGE_SIZE,
    PackedEntry,
    fence,
    first_version,
    pack_change,
    pack_commit,
    pack_entry,
    tag,
    unpack_answer,
    unpack_entries,
    unpacking,
)
from passback.stores.options import Keep, StoreOptions, milliseconds
from passback.stores.redis import scripts
from passback.stores.redis.check import check_servers
from passback.stores.redis.errors import store_error
from passback.stores.redis.hints import Hints
from passback.stores.redis.link import Call, RedisLink
from passback.stores.redis.servers import Argument, Reply
from passback.stores.redis.url import RedisTarget

PING_TIMEOUT = 3.0
DELETE_ATTEMPTS = 5
ENTRIES_AT_ONCE = 64  # entries of a log that one read asks for
RUNS_AT_ONCE = 64  # whose logs one script writes: it holds up all others for so long


class RedisStore:
    """The `Store` on Redis. Entering it does not need the server to be there yet."""

    def __init__(self, target: RedisTarget, options: StoreOptions | None = None) -> None:
        self._options = options or StoreOptions()
        self._target = target
        self._idle = Keep.idle(self._options)
        self._running = Keep.running(self._options)
        self._link = RedisLink(target, self._options.max_connections, self._options.patience)
        self._hints = Hints(self._link, self._options.prefix)
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> "RedisStore":
        self._link.open()
        self._stack.push_async_callback(self._close)
        tasks = await self._stack.enter_async_context(anyio.create_task_group())
        self._stack.callback(tasks.cancel_scope.cancel)
        tasks.start_soon(self._hints.listen)
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._stack.aclose()

    async def _close(self) -> None:
        with anyio.CancelScope(shield=True), anyio.move_on_after(5):
            await self._link.aclose()

    @property
    def location(self) -> str:
        return self._target.location

    async def check(self) -> Sequence[str]:
        return await check_servers(self._link, allow_eviction=self._options.allow_eviction)

    async def ping(self) -> None:
        with anyio.move_on_after(PING_TIMEOUT) as scope:
            await self._link.on_each_server("PING")
        if scope.cancelled_caught:
            raise StoreUnavailable("Redis does not answer in time", retry_after=1)

    # ------------------------------------------------------------ conversations
    async def status(self, key: ConversationKey, /) -> Status:
        reply = await self._read(key, (1, 0, 0))
        with unpacking():
            return _status(reply)

    async def load(self, key: ConversationKey, /, *, calls: Collection[CallId] = ()) -> Loaded:
        asked = tuple(calls)
        reply = await self._read(key, (0, -1, 0), asked, with_tools=True)
        if reply is None:
            return Loaded(Status())
        *_, tools, messages, answers = reply
        with unpacking():
            return Loaded(
                _status(reply),
                tuple(map(load_message, messages)),
                load_tools(tools) if tools else (),
                {
                    call: unpack_answer(answer.decode())
                    for call, answer in zip(asked, answers, strict=True)
                    if answer is not None
                },
            )

    async def page(self, key: ConversationKey, /, *, start: int, limit: int) -> Page:
        reply = await self._read(key, (start, start + limit - 1, PAGE_SIZE))
        if reply is None:
            return Page((), start, 0)
        with unpacking():
            return Page(tuple(map(load_message, reply[7])), start, int(reply[5]))

    async def _read(
        self,
        key: ConversationKey,
        messages: tuple[int, int, int],
        calls: Sequence[str] = (),
        *,
        with_tools: bool = False,
    ) -> Reply:
        """`messages`: positions of the first and the last, and how many bytes they may have, 0 for any number."""
        return await self._link.run(
            Call(scripts.READ, self._keys(tag(key))[:3], (*messages, int(with_tools), *calls))
        )

    async def park(self, change: Change, /) -> bool:
        return await self._change("park", change, None, None, 0) is not None

    async def begin(
        self, change: Change, run_id: RunId, events: tuple[RunEvent, ...], /, *, lease: float
    ) -> Lease | None:
        epoch = await self._change("begin", change, run_id, pack_entry(events), milliseconds(lease))
        if epoch is None:
            return None
        return Lease(RunRef(change.key, run_id), epoch, fence(epoch, change.nonce))

    async def reap(self, change: Change, run_id: RunId, finished: RunFinished, /) -> bool:
        return await self._change("reap", change, run_id, pack_entry((finished,)), 0) is not None

    async def _change(
        self,
        kind: Literal["park", "begin", "reap"],
        change: Change,
        run_id: RunId | None,
        entry: PackedEntry | None,
        lease: int,
    ) -> int | None:
        packed = pack_change(change)
        keep = self._running if kind == "begin" else self._idle
        arguments = (
            kind,
            packed.nonce,
            packed.expected,
            first_version(packed.nonce),
            packed.owed,
            packed.tools or b"",
            _ttl(keep),
            self._hints.channel(packed.tag),
            run_id or "",
            lease,
            keep.log,
            *_entry(entry),
            len(packed.messages),
            *packed.messages,
            *(text for answer in packed.answers for text in answer),
        )
        keys = (*self._keys(packed.tag), self._log(packed.tag, run_id or ""))
        reply = await self._link.run(Call(scripts.CHANGE, keys, arguments))
        return None if reply is None else int(reply)

    async def cancel(self, run: RunRef, /) -> bool:
        state, *_ = self._keys(tag(run.key))
        return bool(await self._link.run(Call(scripts.CANCEL, (state,), (run.run_id,))))

    async def delete(self, key: ConversationKey, /) -> bool:
        name = tag(key)
        keys = self._keys(name)
        for _ in range(DELETE_ATTEMPTS):
            runs = [run.decode() for run in await self._link.command("ZRANGE", keys[3], 0, -1)]
            logs = (self._log(name, run) for run in runs)
            arguments = (self._hints.channel(name), *runs)
            existed = await self._link.run(Call(scripts.DELETE, (*keys, *logs), arguments))
            if existed is not None:
                return bool(existed)
        raise StoreUnavailable("the conversation changes too fast to be deleted", retry_after=1)

    # ------------------------------------------------------------ what the owner of a lease writes
    async def append(
        self, writes: Sequence[LogWrite], /, *, lease: float
    ) -> Sequence[LeaseState | StoreError]:
        packed = [(write.lease, pack_entry(write.events, write.first)) for write in writes]
        return await self._append(packed, lease)

    async def renew(
        self, leases: Sequence[Lease], /, *, lease: float
    ) -> Sequence[LeaseState | StoreError]:
        return await self._append([(held, None) for held in leases], lease)

    async def _append(
        self, writes: Sequence[tuple[Lease, PackedEntry | None]], lease: float
    ) -> list[LeaseState | StoreError]:
        """One script for many runs where one server has them all: a third of what one for each run costs here."""
        size = 1 if self._target.topology == "cluster" else RUNS_AT_ONCE
        parts = [writes[start : start + size] for start in range(0, len(writes), size)]
        replies = await self._link.run_all([self._append_call(part, lease) for part in parts])
        return [
            answer
            for part, reply in zip(parts, replies, strict=True)
            for answer in _lease_states(reply, len(part))
        ]

    def _append_call(self, part: Sequence[tuple[Lease, PackedEntry | None]], lease: float) -> Call:
        keys: list[str] = []
        arguments: list[Argument] = [milliseconds(lease), self._running.log]
        for held, entry in part:
            name = tag(held.run.key)
            keys += (self._keys(name)[0], self._log(name, held.run.run_id))
            arguments += (held.fence, self._hints.channel(name), *_entry(entry))
        return Call(scripts.APPEND, keys, arguments)

    async def commit(self, commit: Commit, /, *, lease: float) -> None:
        packed = pack_commit(commit)
        write = packed.write
        keep = self._idle if commit.ends else self._running
        arguments = (
            write.fence,
            packed.step,
            milliseconds(lease),
            _ttl(keep),
            keep.log,
            self._hints.channel(write.tag),
            write.run_id,
            int(packed.ends),
            packed.owed,
            *_entry(write.entry),
            *packed.messages,
        )
        keys = (*self._keys(write.tag), self._log(write.tag, write.run_id))
        if await self._link.run(Call(scripts.COMMIT, keys, arguments)) == b"lost":
            raise LeaseLost("another worker owns this run now")

    # ------------------------------------------------------------ logs
    async def read_log(
        self, run: RunRef, /, *, after: Position = START, limit: int = 1000
    ) -> Sequence[Logged]:
        log = self._log(tag(run.key), run.run_id)
        logged: list[Logged] = []
        while len(logged) < limit:
            place = logged[-1].position if logged else after
            entries = await self._link.command(
                "XRANGE", log, f"({place}", "+", "COUNT", min(limit, ENTRIES_AT_ONCE)
            )
            with unpacking():
                logged += unpack_entries(
                    ((_position(e[0]), e[1][b"events"]) for e in entries), place
                )
            if len(entries) < min(limit, ENTRIES_AT_ONCE):
                break
        if not logged and not await self._link.command("EXISTS", log):
            raise UnknownRun("there is no such run in this conversation, or its log has expired")
        return logged

    @asynccontextmanager
    async def watch(self, run: RunRef, /) -> AsyncGenerator[Watch]:
        async with self._hints.watching(tag(run.key)) as bell:
            yield bell

    # ------------------------------------------------------------ names
    def _keys(self, name: str) -> tuple[str, str, str, str]:
        stem = f"{self._options.prefix}:{{{name}}}"
        return f"{stem}:state", f"{stem}:messages", f"{stem}:answers", f"{stem}:runs"

    def _log(self, name: str, run_id: str) -> str:
        return f"{self._options.prefix}:{{{name}}}:log:{run_id}"


_LEASE_STATES: Mapping[bytes, LeaseState] = {
    b"held": "held",
    b"cancelled": "cancelled",
    b"lost": "lost",
}


def _lease_states(reply: Reply | StoreError, count: int) -> Sequence[LeaseState | StoreError]:
    """What one script says of `count` runs; an error of the whole is each one's."""
    if isinstance(reply, StoreError):
        return [reply] * count
    return [store_error(a) if isinstance(a, Exception) else _LEASE_STATES[a] for a in reply]


def _status(reply: Reply) -> Status:
    if reply is None:
        return Status()
    version, run_id, running, lapsed, owed, count, *_ = reply
    return Status(
        int(version),
        RunId(run_id.decode()) if run_id else None,
        running == b"1",
        bool(lapsed),
        load_owed(owed),
        int(count),
    )


def _ttl(keep: Keep) -> str:
    return "" if keep.conversation is None else str(keep.conversation)


def _entry(entry: PackedEntry | None) -> tuple[Argument, Argument]:
    return (0, b"") if entry is None else (entry.last, entry.record)


def _position(entry_id: bytes) -> Position:
    epoch, _, seq = entry_id.partition(b"-")
    return Position(int(epoch), int(seq))
