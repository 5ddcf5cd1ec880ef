"""Writes for the tests of the door: short to make, distinct, and legal."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from math import inf

from passback.core.conversation.store import (
    Append,
    Appended,
    Applied,
    Found,
    Guard,
    LogChange,
    LogEntry,
    Place,
    Query,
    QueryPage,
    Store,
    TakeLease,
    Wanted,
    Write,
)
from passback.core.events import START, Position
from passback.core.ids import conversation_tag
from passback.core.messages import ConversationId, ConversationKey, OwnerId, RunId

LONG = 10**9  # milliseconds of what is not over during a test
OVER = 0  # milliseconds of what is over at once
ALL = Wanted(within=inf, queue=True)
OWNER = OwnerId("owner")

_numbers = count(1)


def new_key(owner: OwnerId = OWNER) -> ConversationKey:
    return ConversationKey(owner, ConversationId(f"conversation-{next(_numbers)}"))


def new_owner() -> OwnerId:
    return OwnerId(f"owner \u00fc {next(_numbers)}")


def new_run() -> RunId:
    return RunId(f"run-{next(_numbers)}")


def new_id() -> str:
    return f"write:{next(_numbers)}"


def tag_of(key: ConversationKey) -> str:
    return conversation_tag(key)


def a_write(key: ConversationKey, guard: Guard | None = None) -> Write:
    """Return a write, of nothing yet, on any version of a conversation that is there."""
    return Write(key, new_id(), guard or Guard())


def first_write(key: ConversationKey) -> Write:
    return a_write(key, Guard(version=0))


def entry(epoch: int, seq: int, size: int = 1, record: bytes = b"") -> LogEntry:
    """An entry whose last event has this position."""
    return LogEntry(Position(epoch, seq), size, record or f"record {epoch}-{seq}".encode())


def entries(epoch: int, first: int, last: int) -> list[LogEntry]:
    return [entry(epoch, seq) for seq in range(first, last + 1)]


async def applied(store: Store, write: Write) -> Applied:
    answer = await store.apply(write)
    assert answer is not None
    return answer


async def made(store: Store, *messages: bytes, owner: OwnerId = OWNER) -> ConversationKey:
    """Make a conversation."""
    key = new_key(owner)
    await applied(store, replace(first_write(key), messages=messages))
    return key


async def leased(
    store: Store,
    key: ConversationKey,
    run_id: RunId,
    *,
    fence: str = "one",
    epoch: int = 1,
    milliseconds: int = LONG,
) -> None:
    """Give out the lease of a conversation, and open an epoch in the log of its run."""
    begins = replace(
        a_write(key),
        log=LogChange(run_id, entry(epoch, 1)),
        lease=TakeLease(fence, milliseconds),
    )
    await applied(store, begins)


async def running(
    store: Store, *, milliseconds: int = LONG, owner: OwnerId = OWNER
) -> tuple[ConversationKey, RunId]:
    """Make a conversation whose run has the lease `one`, and one entry in its log."""
    key, run_id = await made(store, owner=owner), new_run()
    await leased(store, key, run_id, milliseconds=milliseconds)
    return key, run_id


async def append(store: Store, *appends: Append, lease: int = LONG) -> Sequence[Appended]:
    """Append, where no error is expected."""
    answers: list[Appended] = []
    for answer in await store.append(appends, lease=lease):
        assert isinstance(answer, Appended)
        answers.append(answer)
    return answers


async def filled(
    store: Store,
    key: ConversationKey,
    run_id: RunId,
    given: Sequence[LogEntry],
    *,
    fence: str = "one",
) -> None:
    """Append entries one after the other."""
    for each in given:
        assert (await append(store, Append(key, run_id, fence, each)))[0].held


async def whole(store: Store, key: ConversationKey, wanted: Wanted = ALL) -> Found:
    return await store.read(key, wanted)


async def log_of(
    store: Store, key: ConversationKey, run_id: RunId | None, after: Position = START
) -> list[LogEntry] | None:
    """Read all entries of a log, or None if there is no such log."""
    page = await store.log(key, run_id, after=after, limit=10_000)
    return None if page is None else list(page.entries)


async def all_pages(store: Store, query: Query) -> list[QueryPage]:
    """Read an index to its end."""
    pages, seen = [await store.query(query)], list[Place]()
    while (place := pages[-1].next) is not None:
        assert place not in seen
        seen.append(place)
        pages.append(await store.query(replace(query, after=place)))
    return pages


async def keys_in(store: Store, query: Query) -> list[ConversationKey]:
    return [listed.key for page in await all_pages(store, query) for listed in page.listed]


async def due_keys(store: Store, *, milliseconds: int = 0) -> set[ConversationKey]:
    """Take all that is due; for no time, so that it stays due."""
    return set(await store.due(10_000, milliseconds=milliseconds))
