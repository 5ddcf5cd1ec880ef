"""How the stores name and write down what the door gives them: the part that does not depend on the engine."""

import hashlib
import logging
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache

from passback.core.changes import Change, Commit, Lease
from passback.core.errors import StoreError
from passback.core.events import Logged, Position, RunEvent
from passback.core.messages import ConversationKey, RunId
from passback.core.records import dump_events, dump_message, dump_owed, dump_tools, load_events
from passback.core.transcript import Answer

logger = logging.getLogger(__name__)

PAGE_SIZE = 8 * 2**20  # bytes of records in one page, unless its first message alone is larger

# what it raises to unpack a record that is damaged or of another version
_UNREADABLE = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError)


@contextmanager
def unpacking() -> Generator[None]:
    """Makes a StoreError of what an unreadable record raises, whose text may quote the record."""
    try:
        yield
    except _UNREADABLE as error:
        logger.warning("a record in the store cannot be read: %s", type(error).__name__)
        raise StoreError("a record of the conversation cannot be read") from None


@lru_cache(maxsize=10_000)
def tag(key: ConversationKey, /) -> str:
    """The name of a conversation in a store: 32 hex digits, so that no id can inject, collide or be too long."""
    name = f"{key.owner}\0{key.id}".encode("utf-8", "surrogatepass")
    return hashlib.sha256(name).hexdigest()[:32]


def first_version(nonce: str, /) -> int:
    """The version of a conversation after its first change.

    Versions count up from a number that the first change decides: what was judged by a conversation that has
    since been deleted and made anew cannot fit the new one by chance.
    """
    return 1 + int.from_bytes(hashlib.sha256(nonce.encode()).digest()[:5], "big")


def fence(epoch: int, nonce: str, /) -> str:
    return f"{epoch}:{nonce}"


@dataclass(frozen=True, slots=True)
class PackedChange:
    """A `Change` as a store writes it."""

    tag: str
    nonce: str
    expected: int
    messages: tuple[bytes, ...]
    answers: tuple[tuple[str, str], ...]
    owed: bytes
    tools: bytes | None


def pack_change(change: Change, /) -> PackedChange:
    return PackedChange(
        tag(change.key),
        change.nonce,
        change.expected,
        tuple(map(dump_message, change.append)),
        tuple((call_id, pack_answer(answer)) for call_id, answer in change.answers.items()),
        dump_owed(change.owed),
        None if change.tools is None else dump_tools(change.tools),
    )


def pack_answer(answer: Answer, /) -> str:
    return f"{answer.run_id or ''}|{answer.fingerprint}"


def unpack_answer(packed: str, /) -> Answer:
    run_id, _, fingerprint = packed.rpartition("|")
    return Answer(fingerprint, RunId(run_id) if run_id else None)


@dataclass(frozen=True, slots=True)
class PackedEntry:
    """One entry of a log: a batch of events, under the number of its last one."""

    last: int
    size: int
    record: bytes


@dataclass(frozen=True, slots=True)
class PackedWrite:
    """A `LogWrite` as a store writes it; without an entry when there are no events."""

    tag: str
    run_id: str
    epoch: int
    fence: str
    entry: PackedEntry | None


def pack_entry(events: Sequence[RunEvent], first: int = 1, /) -> PackedEntry | None:
    if not events:
        return None
    return PackedEntry(first + len(events) - 1, len(events), dump_events(events))


def pack_write(lease: Lease, entry: PackedEntry | None = None, /) -> PackedWrite:
    return PackedWrite(tag(lease.run.key), lease.run.run_id, lease.epoch, lease.fence, entry)


@dataclass(frozen=True, slots=True)
class PackedCommit:
    """A `Commit` as a store writes it."""

    write: PackedWrite
    step: int
    messages: tuple[bytes, ...]
    owed: bytes
    ends: bool


def pack_commit(commit: Commit, /) -> PackedCommit:
    log = commit.log
    return PackedCommit(
        pack_write(log.lease, pack_entry(log.events, log.first)),
        commit.step,
        tuple(map(dump_message, commit.append)),
        dump_owed(commit.owed),
        commit.ends,
    )


def unpack_entries(entries: Iterable[tuple[Position, bytes]], after: Position, /) -> list[Logged]:
    """Events after a position from entries in order, each with the position of its last event."""
    logged: list[Logged] = []
    for last, record in entries:
        events = load_events(record)
        first = last.seq - len(events) + 1
        for position, event in zip(
            (Position(last.epoch, seq) for seq in range(first, last.seq + 1)), events, strict=True
        ):
            if position > after:
                logged.append(Logged(position, event))
    return logged
