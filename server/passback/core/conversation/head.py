"""The head of a conversation, and what else a store keeps of it, as records.

A head is written by whoever has the lease, or by anybody while nobody has. What others may write
during a run stands beside it: in fields, the queue, the receipts, and the signal of the lease.
"""

import hashlib
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import field, replace
from typing import Final

from pydantic import TypeAdapter

from passback.core.budgets import Spent
from passback.core.changes import (
    ClaimedCall,
    LoadedConversation,
    OpenTurns,
    RunRecord,
    Status,
    load_message,
    load_queued,
    load_state,
    load_title_call,
    load_tools,
)
from passback.core.conversation.store import Found, Wanted
from passback.core.conversation.tree import Tree
from passback.core.conversation_settings import NO_SETTINGS, load_settings
from passback.core.errors import StoreError
from passback.core.events import START, Position
from passback.core.messages import (
    UNUSED,
    CallId,
    Owed,
    RunId,
    Usage,
)
from passback.core.posts import Receipt, ReceiptName
from passback.core.state import State
from passback.core.values import value

CANCEL: Final = "cancel"
"""The signal of a lease whose run somebody has asked to cancel."""

UNREADABLE: Final = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError)
"""Raised while reading a record that is damaged or of another version."""


@value
class Head:
    """The part of a conversation that changes with the transcript or the lease alone.

    Attributes are as in `Status`, and:
        epoch: the newest one of the run.
        tree: says which of the stored messages are read.
        run: the record of the run that goes on, so far.
        before: what the conversation had spent when that began.
        usage_before: the usage of its messages then.
    """

    run_id: RunId | None = None
    epoch: int = 0
    committed: Position = START
    open_turns: OpenTurns | None = None
    owed: tuple[Owed, ...] = ()
    attempt: int = 0
    run_start: int = 0
    stopped_early: bool = False
    cancel_on_disconnect: bool = False
    answer_by: int | None = None
    history_start: int = 0
    tree: Tree = Tree()
    run: RunRecord | None = None
    before: Spent = Spent()
    usage_before: Usage = UNUSED
    unchanged: int | None = None


@value
class Claims:
    """Clients at work on owed calls: by call, who, and until when in the store's milliseconds."""

    by_call: Mapping[CallId, tuple[str, int]] = field(default_factory=dict[CallId, tuple[str, int]])

    def at(self, now: int, /) -> "Claims":
        """Return the claims that last."""
        return Claims({call: each for call, each in self.by_call.items() if each[1] > now})


_head_adapter: TypeAdapter[Head] = TypeAdapter(Head)
_claims_adapter: TypeAdapter[Claims] = TypeAdapter(Claims)


def dump_head(head: Head, /) -> bytes:
    return _head_adapter.serializer.to_json(head, exclude_defaults=True)


def load_head(record: bytes, /) -> Head:
    return _head_adapter.validate_json(record)


def dump_claims(claims: Claims, /) -> bytes:
    return _claims_adapter.serializer.to_json(claims)


# fields of a conversation
STATE = "state"
TITLE = "title"
NAMED = "named"  # it is there if a client gave the title
TITLE_CALL = "title_call"
SETTINGS = "settings"
CLAIMS = "claims"
FOLLOWED = "followed"  # milliseconds of the store's clock, in digits
EPOCHS = "epochs"  # the newest epoch of all runs, also of those that wait, in digits
TOOLS = "tools"

STATUS_FIELDS: Final = (STATE, TITLE, NAMED, TITLE_CALL, SETTINGS, CLAIMS, FOLLOWED, EPOCHS)
"""Names of the fields that a `Status` is made of."""

STATUS: Final = Wanted(STATUS_FIELDS)


@contextmanager
def reading_records() -> Generator[None]:
    """Turn the error of an unreadable record into a StoreError without its text.

    The text may quote the record.
    """
    try:
        yield
    except UNREADABLE as error:
        kind = type(error).__name__
        raise StoreError(f"a record of the conversation cannot be read: {kind}") from None


def head_of(found: Found, /) -> Head:
    """Return the head of a conversation. Raises StoreError for an unreadable record."""
    if not found.version:
        return Head()
    with reading_records():
        return load_head(found.head)


def status_of(found: Found, /) -> Status:
    """Return the status of a conversation. Raises StoreError for an unreadable record."""
    if not found.version:
        return Status()
    head = head_of(found)
    with reading_records():
        return _read_status(found, head)


def _read_status(found: Found, head: Head) -> Status:
    fields, lease, now = found.fields, found.lease, found.now
    running, state, called = lease is not None, fields.get(STATE), fields.get(TITLE_CALL)
    open_ids = {call.id for call in head.owed}
    claims = CLAIMS in fields and load_claims(fields[CLAIMS]).at(now).by_call
    return Status(
        version=found.version,
        run_id=head.run_id,
        running=running,
        lapsed=lease is not None and (not lease.fence or lease.expires <= now),
        lease_expires=0 if lease is None else lease.expires,
        owed=head.owed,
        message_count=len(head.tree),
        attempt=head.attempt,
        logged=head.committed if lease is None else Position(head.epoch, lease.seq),
        committed=head.committed,
        open_turns=head.open_turns,
        run_start=head.run_start,
        cancelled=lease is not None and lease.signal == CANCEL,
        stopped_early=head.stopped_early,
        cancel_on_disconnect=head.cancel_on_disconnect,
        followed=int(fields.get(FOLLOWED, 0)) > now,
        queued=tuple(each.run_id for each in found.queue),
        answer_by=head.answer_by,
        overdue=not running and head.answer_by is not None and head.answer_by <= now,
        claims=tuple(
            ClaimedCall(call, until)
            for call, (_, until) in (claims or {}).items()
            if call in open_ids
        ),
        state=replace(
            load_state(state) if state else State(),
            history_start=head.history_start,
            title_call=load_title_call(called) if called else None,
        ),
        history_bytes=found.view.size,
        title=fields.get(TITLE, b"").decode(),
        named=NAMED in fields,
        settings=load_settings(fields[SETTINGS]) if SETTINGS in fields else NO_SETTINGS,
        created=found.created // 1000,
        updated=found.updated // 1000,
        tree=head.tree,
        stored=found.message_count,
        unchanged=head.unchanged,
    )


def load_claims(record: bytes, /) -> Claims:
    return _claims_adapter.validate_json(record)


def loaded_conversation(found: Found, /) -> LoadedConversation:
    """Return a conversation with its messages. Raises StoreError for an unreadable record."""
    status = status_of(found)
    if not found.version:
        return LoadedConversation(status)
    with reading_records():
        return LoadedConversation(
            status,
            messages=tuple(map(load_message, found.messages or ())),
            tools=load_tools(found.fields[TOOLS]) if TOOLS in found.fields else (),
            receipts={name: load_receipt(text) for name, text in found.receipts.items()},
            queue=tuple(load_queued(each.record) for each in found.queue),
            left_out=found.messages is None,
            queue_bytes=sum(len(each.record) for each in found.queue),
        )


def newest_epoch(found: Found, /) -> int:
    """Return the newest epoch of all runs of a conversation."""
    return int(found.fields.get(EPOCHS, 0))


def dump_receipts(receipts: Mapping[ReceiptName, Receipt], /) -> dict[str, str]:
    return {name: f"{each.run_id or ''}|{each.fingerprint}" for name, each in receipts.items()}


def load_receipt(text: str, /) -> Receipt:
    run_id, _, fingerprint = text.rpartition("|")
    return Receipt(fingerprint, RunId(run_id) if run_id else None)


# ---------------------------------------------------------------- names
def first_version(nonce: str, /) -> int:
    """Return the version of a conversation after its first write.

    Versions count up from a number that the write's nonce decides. A change that was judged on a
    conversation that has since been deleted and made again does not match the other one by chance.
    """
    return 1 + int.from_bytes(hashlib.sha256(nonce.encode()).digest()[:5], "big")
