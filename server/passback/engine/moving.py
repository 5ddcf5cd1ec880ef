"""Moving conversations from one store to another: copied as records, resumed, and compared.

A conversation is copied at one version of it. What takes several writes has a head that cannot be
read until the last one, so that no server uses half of a conversation, and the next move knows
what it may go on with. Nothing in the target is overwritten, and nothing in the source is changed.

Copied are head, fields, messages, receipts, run records and the queue, with what is due and owed.
Logs are not, nor who holds a lease: a run whose worker is gone goes on in the target.
"""

import hashlib
import logging
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Final, Literal, NamedTuple, TypeAlias

import anyio

from passback.core.changes import dump_events, load_message
from passback.core.conversation.head import first_version, head_of, reading_records
from passback.core.conversation.rules import make_fence
from passback.core.conversation.store import (
    Due,
    Found,
    Guard,
    LogChange,
    LogEntry,
    Query,
    QueueEntry,
    Span,
    Store,
    TakeLease,
    Wanted,
    Write,
)
from passback.core.errors import StoreError, StoreFull, StoreUnavailable
from passback.core.ids import ConversationTag, conversation_tag, new_nonce
from passback.core.messages import ConversationKey, OwnerId
from passback.core.values import value

logger = logging.getLogger(__name__)

UNFINISHED: Final = b"a move has not finished this conversation"
"""The head of a conversation until its last write: it cannot be read as one."""

UNREADABLE: Final = "it cannot be read"  # a fault

ATTEMPTS: Final = 20  # to copy a conversation that changes meanwhile
MESSAGES_AT_ONCE: Final = 256  # of a write; fewer if they are large
CONVERSATIONS_AT_ONCE: Final = 256  # of a page of the list
_EVERYTHING: Final = Wanted(queue=True, whole=True)

Phase: TypeAlias = Literal["list", "copy", "compare"]

Report: TypeAlias = Callable[[Phase, int, int], None]
"""Called with each step of a move: the phase, how many are done, and of how many (0: unknown)."""

Named: TypeAlias = ConversationKey | ConversationTag
"""A conversation; one whose name cannot be read by its tag."""

_Copied: TypeAlias = Literal["copied", "there", "running", "gone"]


@dataclass
class Moved:
    """The result of a move.

    Attributes:
        copied: conversations that this move has brought, or finished.
        there: those that were complete in the target before.
        running: those left out because a run goes on.
        faults: why others are not, or not equal, in the target.
        equal: those that are equal in both stores, compared in the end.
        found: conversations of the source in the end.
        target: conversations of the target in the end.
    """

    copied: int = 0
    there: int = 0
    running: set[ConversationKey] = field(default_factory=set[ConversationKey])
    faults: dict[Named, str] = field(default_factory=dict[Named, str])
    equal: int = 0
    found: int = 0
    target: int = 0

    @property
    def is_whole(self) -> bool:
        """True if all conversations of the source are in the target, and no half of another."""
        return self.equal == self.found and not self.faults


class _Place(NamedTuple):
    """A conversation in the order in which it is copied: lists of the target keep that order."""

    updated: int
    tag: str
    key: ConversationKey


@value
class _Begun:
    """The part of a conversation that the target has while it is copied."""

    version: int = 0
    message_count: int = 0
    queued: int = 0


async def move_conversations(
    source: Store,
    target: Store,
    /,
    *,
    report: Report | None = None,
    wait: float | None = None,
) -> Moved:
    """Copy all conversations of one store into another that has none, or some of them.

    Args:
        source: an open store.
        target: another one.
        report: told of each step.
        wait: seconds between looks at conversations whose runs go on, until these have ended;
            None: they are left out.

    Raises:
        StoreUnavailable, StoreFull: of either store. What was copied stays, and another move goes
            on with it.
    """
    moved, report = Moved(), report or _ignore
    places = await _list_places(source, moved, report)
    moved.found = len(places)
    for number, place in enumerate(places, 1):
        await _copy_into(moved, source, target, place.key)
        report("copy", number, len(places))
    while wait is not None and (left := tuple(moved.running)):
        await anyio.sleep(wait)
        for key in left:
            await _copy_into(moved, source, target, key)
    await _compare(source, target, moved, report)
    return moved


def _ignore(phase: Phase, done: int, total: int) -> None:
    pass


# ---------------------------------------------------------------- lists
async def _list_places(source: Store, moved: Moved, report: Report) -> Sequence[_Place]:
    """Return the conversations of a store, the one first that was touched first."""
    places: dict[str, _Place] = {}
    async for key, found in _stored(source):
        if found is None or isinstance(key, str):
            moved.faults[key] = UNREADABLE
            continue
        tag = conversation_tag(key)
        places[tag] = _Place(found.updated, tag, key)
        report("list", len(places), 0)
    return sorted(places.values(), key=attrgetter("updated", "tag"))


async def _stored(store: Store) -> AsyncIterator[tuple[Named, Found | None]]:
    """Give all conversations of a store; some may come twice."""
    query = Query(OwnerId(""), "stored", limit=CONVERSATIONS_AT_ONCE)
    while True:
        page = await store.query(query)
        for each in page.listed:
            yield each.key, each.found
        for tag in page.unnamed:
            yield tag, None
        if page.next is None:
            return
        query = replace(query, after=page.next)


# ---------------------------------------------------------------- copies
async def _copy_into(moved: Moved, source: Store, target: Store, key: ConversationKey) -> None:
    """Copy a conversation, and count it. One that cannot be copied does not stop the others."""
    moved.running.discard(key)
    with _noting_faults(moved, key):
        answer = await _copy(source, target, key)
        if answer == "running":
            moved.running.add(key)
        moved.copied += answer == "copied"
        moved.there += answer == "there"
        return
    with _noting_faults(moved, key):
        there = await target.read(key, Wanted())
        if there.version and there.head == UNFINISHED:
            await target.delete(key)


@contextmanager
def _noting_faults(moved: Moved, key: ConversationKey) -> Generator[None]:
    """Note why a conversation is not moved, the first reason alone."""
    try:
        yield
    except (StoreUnavailable, StoreFull):
        raise
    except StoreError as error:
        moved.faults.setdefault(key, error.message)


async def _copy(source: Store, target: Store, key: ConversationKey) -> _Copied:
    for _ in range(ATTEMPTS):
        found = await source.read(key, _EVERYTHING)
        there = await target.read(key, Wanted(queue=True))
        if there.version and there.head != UNFINISHED:
            return "there" if found.version else "gone"
        if found.version and is_running(found):
            return "running"
        head_of(found)  # raises for one that is damaged, before anything is written
        begins = found.version and await _begins(source, target, key, found, there)
        if there.version and not begins:
            await target.delete(key)
            there = Found()
        if not found.version:
            return "gone"
        begun = _Begun(there.version, there.message_count, len(there.queue))
        if await _write_copy(source, target, key, found, begun):
            return "copied"
    raise StoreError("it changes all the time, here or in the target")


def is_running(found: Found, /) -> bool:
    """Return whether a worker holds the lease of a conversation."""
    lease = found.lease
    return lease is not None and lease.expires > found.now


async def _begins(
    source: Store, target: Store, key: ConversationKey, found: Found, there: Found
) -> bool:
    """Return whether the unfinished copy in the target is the beginning of a conversation."""
    if there.queue != found.queue[: len(there.queue)]:
        return False
    span = Span(0, there.message_count)
    return await _hash_messages(source, key, span) == await _hash_messages(target, key, span)


async def _write_copy(
    source: Store, target: Store, key: ConversationKey, found: Found, begun: _Begun
) -> bool:
    """Write what the target lacks. False if the conversation has changed, here or there."""
    last: tuple[bytes, ...] = ()
    async for records in _pages(source, key, Span(begun.message_count, found.message_count)):
        if last:  # there are more behind them
            write = _part(key, begun, messages=last)
            if not (version := await _apply(target, write)):
                return False
            begun = replace(begun, version=version, message_count=begun.message_count + len(last))
        last = tuple(records)
    waiting = found.queue[begun.queued :]
    for entry in waiting[:-1]:
        write = _part(key, begun, messages=last, enqueue=entry)
        if not (version := await _apply(target, write)):
            return False
        begun = replace(begun, version=version, message_count=begun.message_count + len(last))
        last = ()
    if begun.message_count + len(last) != found.message_count:
        return False  # it was deleted meanwhile
    if (await source.read(key, Wanted())).version != found.version:
        return False
    write = _last_write(_part(key, begun, messages=last), found, waiting[-1:])
    return bool(await _apply(target, write))


def _part(
    key: ConversationKey,
    begun: _Begun,
    *,
    messages: tuple[bytes, ...],
    enqueue: QueueEntry | None = None,
) -> Write:
    nonce = new_nonce()
    return Write(
        key,
        nonce,
        Guard(version=begun.version),
        first_version=first_version(nonce),
        head=UNFINISHED,
        messages=messages,
        enqueue=enqueue,
    )


async def _apply(target: Store, write: Write) -> int:
    """Return the version afterwards; 0 if somebody else has written meanwhile."""
    applied = await target.apply(write)
    return 0 if applied is None else applied.version


def _last_write(write: Write, found: Found, waiting: Sequence[QueueEntry]) -> Write:
    """Return the write that makes a copy a conversation."""
    head = head_of(found)
    write = replace(
        write,
        head=found.head,
        fields=found.fields,
        view=found.view,
        receipts=found.receipts,
        enqueue=waiting[0] if waiting else None,
        runs=found.runs,
    )
    if found.lease is None or head.run_id is None:
        due = None if found.due is None else Due(after=max(0, found.due - found.now))
        return replace(write, due=due, owes=bool(head.owed))
    # its worker is gone: the lease is over at once, and a server of the target goes on. Readers of
    # the log see that it begins behind what is committed.
    gap = LogEntry(head.committed, 0, dump_events(()))
    return replace(
        write,
        log=LogChange(head.run_id, gap),
        lease=TakeLease(make_fence(head.epoch, write.id), 1, signal=found.lease.signal),
    )


async def _pages(store: Store, key: ConversationKey, span: Span) -> AsyncIterator[Sequence[bytes]]:
    """Give the messages of a span. They end early if the conversation was deleted.

    Raises:
        StoreError: a message is missing, or cannot be read.
    """
    start, end = span.start, span.end or 0
    while start < end:
        records = await store.page(key, (Span(start, end),), limit=MESSAGES_AT_ONCE)
        if not records:
            if (await store.read(key, Wanted())).message_count < end:
                return
            raise StoreError("messages of the conversation are missing")
        with reading_records():
            for record in records:
                load_message(record)
        yield records
        start += len(records)


# ---------------------------------------------------------------- comparison
async def _compare(source: Store, target: Store, moved: Moved, report: Report) -> None:
    """Compare all conversations of the source with the target's, and count those of both."""
    seen: set[str] = set()
    async for key, _ in _stored(source):
        if (tag := _tag_of(key)) in seen:
            continue
        seen.add(tag)
        if isinstance(key, str):
            moved.faults[key] = UNREADABLE
        elif key not in moved.running and key not in moved.faults:
            await _compare_one(source, target, key, moved)
        report("compare", len(seen), max(len(seen), moved.found))
    moved.found = len(seen)
    counted: set[str] = set()
    async for key, found in _stored(target):
        counted.add(tag := _tag_of(key))
        if found is not None and found.head == UNFINISHED and tag not in seen:
            # not deleted here: a move from another store may be at work on it
            moved.faults[key] = "half of it is in the target, and the source does not have it"
    moved.target = len(counted)


def _tag_of(key: Named) -> str:
    return key if isinstance(key, str) else conversation_tag(key)


async def _compare_one(source: Store, target: Store, key: ConversationKey, moved: Moved) -> None:
    with _noting_faults(moved, key):
        here, there = await hash_conversation(source, key), await hash_conversation(target, key)
        if here == there:
            moved.equal += 1
        elif there == NOTHING:
            moved.faults[key] = "it is not in the target: it has come meanwhile"
        else:
            moved.faults[key] = (
                "the target has another conversation of this name, or it has changed"
            )


async def hash_conversation(store: Store, key: ConversationKey, /) -> str:
    """Return a hash of all records of a conversation; `NOTHING` if there is none.

    Its version, its times and who holds its lease are left out.

    Raises:
        StoreError: it is damaged.
    """
    found = await store.read(key, _EVERYTHING)
    if not found.version:
        return NOTHING
    digest = _Digest()
    for part in _parts(found):
        digest.add(part)
    digest.add(await _hash_messages(store, key, Span(0, found.message_count)))
    return digest.hex


NOTHING: Final = ""


def _parts(found: Found) -> Iterable[bytes]:
    yield found.head
    for named in (found.fields, found.runs):
        yield b"%d" % len(named)
        for name, record in sorted(named.items()):
            yield name.encode("utf-8", "surrogatepass")
            yield record
    for name, text in sorted(found.receipts.items()):
        yield name.encode("utf-8", "surrogatepass")
        yield text.encode("utf-8", "surrogatepass")
    for entry in found.queue:
        yield entry.run_id.encode("utf-8", "surrogatepass")
        yield entry.record
    yield repr([(each.start, each.end) for each in found.view.spans]).encode()
    yield b"%d %d" % (found.message_count, found.lease is not None)


async def _hash_messages(store: Store, key: ConversationKey, span: Span) -> bytes:
    digest = _Digest()
    async for records in _pages(store, key, span):
        for record in records:
            digest.add(record)
    return digest.hex.encode()


class _Digest:
    """A hash of parts in their order, that differs for other parts."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def add(self, part: bytes) -> None:
        self._hash.update(b"%d:" % len(part))
        self._hash.update(part)

    @property
    def hex(self) -> str:
        return self._hash.hexdigest()
