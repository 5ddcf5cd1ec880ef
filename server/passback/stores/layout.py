"""Names and records that all stores share, whatever their database."""

import hashlib
import logging
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from passback.core.budgets import Spending, Spent
from passback.core.changes import (
    Change,
    ClaimedCall,
    ClaimRequest,
    Commit,
    ConversationPage,
    ConversationPlace,
    Enqueue,
    Inbox,
    InboxPlace,
    Lease,
    ListedConversation,
    OwingConversation,
    Status,
    WrittenTitle,
    dump_events,
    dump_message,
    dump_open_turns,
    dump_owed,
    dump_queued,
    dump_state,
    dump_title_call,
    dump_tools,
    load_events,
    load_open_turns,
    load_owed,
    load_state,
    load_title_call,
)
from passback.core.conversation_settings import NO_SETTINGS, dump_settings, load_settings
from passback.core.errors import TRIMMED, CursorExpired, StoreError
from passback.core.events import START, Logged, Position, RunEvent
from passback.core.messages import CallId, ConversationId, ConversationKey, Owed, OwnerId, RunId
from passback.core.posts import Receipt, Receipts
from passback.core.state import State
from passback.core.values import value

logger = logging.getLogger(__name__)

SPENT_TTL = 2 * 24 * 3600 * 1000  # milliseconds for which the counts of owners are kept
# The largest count of an owner, which stays there: Lua counts in doubles, exact up to this.
SPENT_MOST = 2**53 - 1
_BILLIONTHS = 10**9

PAGE_SIZE = 8 * 2**20  # bytes of records in one page, unless its first message alone is larger

# raised while unpacking a record that is damaged or of another version
_UNREADABLE = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError)


def milliseconds(seconds: float, /) -> int:
    return round(seconds * 1000)


@contextmanager
def unpacking_records() -> Generator[None]:
    """Turn the error of an unreadable record into a StoreError without its text.

    The text may quote the record.
    """
    try:
        yield
    except _UNREADABLE as error:
        logger.warning("a record in the store cannot be read: %s", type(error).__name__)
        raise StoreError("a record of the conversation cannot be read") from None


@lru_cache(maxsize=10_000)
def conversation_tag(key: ConversationKey, /) -> str:
    """Return the name of a conversation in a store.

    It is 32 hex digits, so that no id can inject, collide or be too long.
    """
    return hashlib.sha256(pack_key(key)).hexdigest()[:32]


def pack_key(key: ConversationKey, /) -> bytes:
    """Pack owner and id: recovery finds conversations by records, and needs their keys."""
    return f"{key.owner}\0{key.id}".encode("utf-8", "surrogatepass")


def unpack_key(packed: bytes, /) -> ConversationKey:
    owner, _, conversation = packed.decode("utf-8", "surrogatepass").partition("\0")
    return ConversationKey(OwnerId(owner), ConversationId(conversation))


def pack_owner(owner: OwnerId, /) -> bytes:
    return owner.encode("utf-8", "surrogatepass")


@lru_cache(maxsize=10_000)
def owner_tag(owner: OwnerId, /) -> str:
    """Return the name of an owner in a store, as `tag` does for a conversation."""
    return hashlib.sha256(pack_owner(owner)).hexdigest()[:32]


def first_version(nonce: str, /) -> int:
    """Return the version of a conversation after its first change.

    Versions count up from a number that the first change's nonce decides. A change that was
    computed for a conversation that has since been deleted and created again does not match the
    new one by chance.
    """
    return 1 + int.from_bytes(hashlib.sha256(nonce.encode()).digest()[:5], "big")


def make_fence(epoch: int, nonce: str, /) -> str:
    return f"{epoch}:{nonce}"


class PackedState(NamedTuple):
    """A `State` as a store writes it: a record, and `history_start`, by which messages are read."""

    record: bytes
    history_start: int


def pack_state(state: State | None, /) -> PackedState | None:
    return None if state is None else PackedState(dump_state(state), state.history_start)


class PackedOpenTurns(NamedTuple):
    """An `OpenTurns` as a store writes it: a record, and the number of the event that is then the
    last committed one.
    """

    record: bytes
    committed: int


@value
class PackedChange:
    """A `Change` as a store writes it."""

    tag: str
    key: bytes
    owner: bytes
    nonce: str
    expected: int
    messages: tuple[bytes, ...]
    receipts: tuple[tuple[str, str], ...]
    owed: bytes
    owes: bool
    tools: bytes | None
    keep_messages: int | None
    run_start: int
    dequeues: str | None
    cancel_on_disconnect: bool
    state: PackedState | None
    title: str
    named: bool
    settings: bytes | None


def pack_change(change: Change, /) -> PackedChange:
    return PackedChange(
        tag=conversation_tag(change.key),
        key=pack_key(change.key),
        owner=pack_owner(change.key.owner),
        nonce=change.nonce,
        expected=change.expected,
        messages=tuple(map(dump_message, change.append)),
        receipts=pack_receipts(change.receipts),
        owed=dump_owed(change.owed),
        owes=bool(change.owed),
        tools=None if change.tools is None else dump_tools(change.tools),
        keep_messages=change.keep_messages,
        run_start=change.run_start,
        dequeues=change.dequeues,
        cancel_on_disconnect=change.cancel_on_disconnect,
        state=pack_state(change.state),
        title=change.title or "",
        named=change.named,
        settings=None if change.settings is None else dump_settings(change.settings),
    )


@value
class PackedTitle:
    """A `WrittenTitle` as a store writes it. `created` is in milliseconds."""

    tag: str
    created: int
    title: str
    call: bytes


def pack_title(written: WrittenTitle, /) -> PackedTitle:
    return PackedTitle(
        conversation_tag(written.key), written.created, written.title, dump_title_call(written.call)
    )


def pack_receipts(receipts: Receipts, /) -> tuple[tuple[str, str], ...]:
    return tuple(
        (name, f"{each.run_id or ''}|{each.fingerprint}") for name, each in receipts.items()
    )


def unpack_receipt(packed: str, /) -> Receipt:
    run_id, _, fingerprint = packed.rpartition("|")
    return Receipt(fingerprint, RunId(run_id) if run_id else None)


@value
class PackedClaim:
    """A `ClaimRequest` as a store writes it.

    `call` and `claimant` have no spaces; `claimant` is a hash.
    """

    tag: str
    nonce: str
    expected: int
    call: str
    claimant: str
    milliseconds: int


def pack_claim(request: ClaimRequest, seconds: float, /) -> PackedClaim:
    # what the client calls itself is not stored
    claimant = hashlib.sha256(request.claimant.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    call = quote(request.call_id, safe="")
    return PackedClaim(
        tag=conversation_tag(request.key),
        nonce=request.nonce,
        expected=request.expected,
        call=call,
        claimant=claimant,
        milliseconds=milliseconds(seconds),
    )


def unpack_claims(packed: str, owed: Sequence[Owed], now: int, /) -> tuple[ClaimedCall, ...]:
    """Return the claims of owed calls that have not expired.

    `packed` repeats `call claimant until`, separated by spaces.
    """
    words, open_calls = packed.split(), {call.id for call in owed}
    claims = (
        ClaimedCall(CallId(unquote(call)), int(until))
        for call, until in zip(words[::3], words[2::3], strict=True)
    )
    return tuple(each for each in claims if each.call_id in open_calls and each.until > now)


STATUS_FIELDS: tuple[str, ...] = (
    "version",
    "run_id",
    "running",
    "lease_expires",
    "owed",
    "message_count",
    "attempt",
    "seq",
    "committed",
    "run_start",
    "cancelled",
    "stopped_early",
    "cancel_on_disconnect",
    "followed_until",
    "answer_by",
    "claims",
    "state",
    "history_start",
    "history_bytes",
    "open_turns",
    "title",
    "named",
    "title_call",
    "settings",
    "created",
    "updated",
)
"""Names under which all stores keep what a `Status` is made of.

`created` and `updated` are in microseconds, so that no two changes have the same.
"""


def unpack_status(fields: Mapping[str, Any], queued: Iterable[str], now: int, /) -> Status:
    """Return the status of `STATUS_FIELDS`; `now` in milliseconds of the store's clock.

    A number may come as its digits, a text as its bytes; what has never been set is None or empty.
    """

    def number(name: str) -> int:
        return int(fields[name] or 0)

    def text(name: str) -> str:
        found = fields[name] or ""
        return found.decode() if isinstance(found, bytes) else found

    running, answer_by = bool(number("running")), number("answer_by") or None
    committed = unpack_position(text("committed")) if fields["committed"] else START
    owed, record, turns = load_owed(fields["owed"]), fields["state"], fields["open_turns"]
    called, settings = fields["title_call"], fields["settings"]
    state = replace(
        load_state(record) if record else State(),
        # it may have been set back since the record was written
        history_start=number("history_start"),
        title_call=load_title_call(called) if called else None,
    )
    return Status(
        version=number("version"),
        run_id=RunId(text("run_id")) if fields["run_id"] else None,
        running=running,
        lapsed=running and number("lease_expires") <= now,
        lease_expires=number("lease_expires"),
        owed=owed,
        message_count=number("message_count"),
        attempt=number("attempt"),
        # opening an epoch commits its first entry, so both positions are of one epoch
        logged=committed._replace(seq=number("seq")),
        committed=committed,
        open_turns=load_open_turns(turns) if turns else None,
        run_start=number("run_start"),
        cancelled=running and bool(number("cancelled")),
        stopped_early=bool(number("stopped_early")),
        cancel_on_disconnect=bool(number("cancel_on_disconnect")),
        followed=number("followed_until") > now,
        queued=tuple(map(RunId, queued)),
        answer_by=answer_by,
        overdue=not running and answer_by is not None and answer_by <= now,
        claims=unpack_claims(text("claims"), owed, now),
        state=state,
        history_bytes=number("history_bytes"),
        title=text("title"),
        named=bool(number("named")),
        settings=load_settings(settings) if settings else NO_SETTINGS,
        created=number("created") // 1000,
        updated=number("updated") // 1000,
    )


def unpack_position(packed: str, /) -> Position:
    """Return the position that `str` has written."""
    epoch, _, seq = packed.partition("-")
    return Position(int(epoch), int(seq))


class PackedAmounts(NamedTuple):
    """A `Spent` as the stores count it: whole numbers, whose sum depends on no order."""

    tokens: int
    milliseconds: int
    billionths: int


@value
class PackedSpending:
    """A `Spending` as a store writes it: an owner's counts of a day and of a lease."""

    tag: str
    day: str
    lease: str
    amounts: PackedAmounts
    seq: int


def pack_spending(spending: Spending, /) -> PackedSpending:
    run, spent = spending.run, spending.spent
    given = (spent.tokens, milliseconds(spent.seconds), round(spent.cost * _BILLIONTHS))
    amounts = PackedAmounts(*(min(SPENT_MOST, each) for each in given))
    return PackedSpending(
        owner_tag(run.key.owner),
        f"day:{spending.day}",
        f"run:{run.run_id}:{spending.epoch}",
        amounts,
        spending.seq,
    )


def unpack_spent(amounts: Sequence[int], /) -> Spent:
    tokens, time, cost = amounts
    return Spent(tokens, time / 1000, cost / _BILLIONTHS)


@value
class PackedEnqueue:
    """An `Enqueue` as a store writes it."""

    tag: str
    key: bytes
    run_id: str
    record: bytes
    receipts: tuple[tuple[str, str], ...]
    entry: "PackedEntry | None"
    limit: int
    stops: bool


def pack_enqueue(entry: Enqueue, /) -> PackedEnqueue:
    return PackedEnqueue(
        tag=conversation_tag(entry.run.key),
        key=pack_key(entry.run.key),
        run_id=entry.run.run_id,
        record=dump_queued(entry.queued),
        receipts=pack_receipts(entry.receipts),
        entry=pack_entry(entry.events),
        limit=entry.limit,
        stops=entry.stops,
    )


@value
class PackedEntry:
    """One entry of a log: a batch of `size` events, under the number of its last one."""

    last: int
    size: int
    record: bytes

    @property
    def first(self) -> int:
        return self.last - self.size + 1


@value
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
    return PackedWrite(
        conversation_tag(lease.run.key), lease.run.run_id, lease.epoch, lease.fence, entry
    )


@value
class PackedCommit:
    """A `Commit` as a store writes it."""

    write: PackedWrite
    step: int
    messages: tuple[bytes, ...]
    owed: bytes
    ends: bool
    stopped_early: bool
    answer_within: int | None
    hands_back: bool
    state: PackedState | None
    open_turns: PackedOpenTurns | None


def pack_commit(commit: Commit, /) -> PackedCommit:
    log, open_turns = commit.log, None
    if (turns := commit.open_turns) is not None:
        open_turns = PackedOpenTurns(dump_open_turns(turns), turns.committed.seq)
    return PackedCommit(
        write=pack_write(log.lease, pack_entry(log.events, log.first)),
        step=commit.step,
        messages=tuple(map(dump_message, commit.append)),
        owed=dump_owed(commit.owed),
        ends=commit.ends,
        stopped_early=commit.stopped_early,
        answer_within=None if commit.answer_within is None else milliseconds(commit.answer_within),
        hands_back=commit.ends and bool(commit.owed),
        state=pack_state(commit.state),
        open_turns=open_turns,
    )


def unpack_entries(entries: Iterable[tuple[Position, bytes]], after: Position, /) -> list[Logged]:
    """Return the events after a position, from entries in order.

    Each entry comes with the position of its last event.

    Raises:
        CursorExpired: entries that followed the position are missing. A take-over removes the last
            entries of an epoch and opens the next one with number 1; trimming removes from the
            front, and never up to such an opening.
    """
    logged: list[Logged] = []
    place = after
    for last, record in entries:
        events = load_events(record)
        first = last.seq - len(events) + 1
        # an entry of a later epoch has to begin with its opening, number 1
        if first > (place.seq if last.epoch == place.epoch else 0) + 1:
            raise CursorExpired(TRIMMED)
        place = last
        for position, event in zip(
            (Position(last.epoch, seq) for seq in range(first, last.seq + 1)), events, strict=True
        ):
            if position > after:
                logged.append(Logged(position, event))
    return logged


class InboxPageBuilder:
    """Builder of one inbox page, oldest first, with at most `limit` calls."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._characters = PAGE_SIZE
        self._owing: list[OwingConversation] = []

    def try_add(self, owing: OwingConversation) -> bool:
        """Add a conversation; return False if the page has no room. The first one always fits."""
        calls = owing.status.owed
        size = sum(len(call.arguments) for call in calls)
        # a page without its first conversation would never end
        if self._owing and (len(calls) > self._limit or size > self._characters):
            return False
        self._owing.append(owing)
        self._limit -= len(calls)
        self._characters -= size
        return True

    def full_page(self) -> Inbox:
        """Return the page after a conversation did not fit."""
        return Inbox(tuple(self._owing), self._owing[-1].place)

    def last_page(self, more: InboxPlace | None = None) -> Inbox:
        """Return the page when there is no other conversation, or none up to `more`."""
        return Inbox(tuple(self._owing), more)


class ConversationPageBuilder:
    """Builder of one page of an owner's conversations, newest first, with at most `limit`."""

    def __init__(self, limit: int) -> None:
        self.room = limit
        self._characters = PAGE_SIZE
        self._listed: list[ListedConversation] = []

    def try_add(self, listed: ListedConversation) -> bool:
        """Add a conversation; return False if the page has no room. The first one always fits."""
        size = sum(len(call.arguments) for call in listed.status.owed)
        if not self.room or (self._listed and size > self._characters):
            return False
        self._listed.append(listed)
        self.room -= 1
        self._characters -= size
        return True

    def full_page(self) -> ConversationPage:
        """Return the page after a conversation did not fit."""
        return ConversationPage(tuple(self._listed), self._listed[-1].place)

    def last_page(self, more: ConversationPlace | None = None) -> ConversationPage:
        """Return the page when there is no other conversation, or none up to `more`."""
        return ConversationPage(tuple(self._listed), more)
