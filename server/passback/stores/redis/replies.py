"""What the scripts answer, as values of the core."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from passback.core.changes import (
    LeaseState,
    Loaded,
    Page,
    Status,
    load_message,
    load_owed,
    load_queued,
    load_tools,
)
from passback.core.errors import StoreError
from passback.core.events import START, Logged, Position
from passback.core.messages import RunId
from passback.core.posts import ReceiptName
from passback.stores.layout import (
    unpack_claims,
    unpack_entries,
    unpack_open_turns,
    unpack_receipt,
    unpack_state,
    unpacking,
)
from passback.stores.redis.errors import store_error
from passback.stores.redis.servers import Reply

_LEASE_STATES: Mapping[bytes, LeaseState] = {
    b"held": "held",
    b"followed": "followed",
    b"cancelled": "cancelled",
    b"lost": "lost",
}
_COUNT = 6  # the place of `count` in what READ says of the state


def status(reply: Reply, /) -> Status:
    """Raises StoreError when a record cannot be read, as the others below do."""
    if reply is None:
        return Status()
    with unpacking():
        return _status(reply[0])


def loaded(reply: Reply, asked: Collection[ReceiptName], /) -> Loaded:
    if reply is None:
        return Loaded(Status())
    state, messages, tools, waiting, receipts = reply
    left_out = messages is None
    records, posts = messages or (), [entry.partition(b"\0")[2] for entry in waiting]
    with unpacking():
        status = _status(state)
        if status.history_bytes is None:
            status = replace(status, history_bytes=sum(map(len, records)))
        return Loaded(
            status,
            tuple(map(load_message, records)),
            load_tools(tools) if tools else (),
            {
                name: unpack_receipt(packed.decode())
                for name, packed in zip(asked, receipts, strict=True)
                if packed is not None
            },
            tuple(map(load_queued, posts)),
            left_out,
            sum(map(len, posts)),
        )


def page(reply: Reply, start: int, /) -> Page:
    if reply is None:
        return Page((), start, 0)
    with unpacking():
        return Page(tuple(map(load_message, reply[1])), start, int(reply[0][_COUNT]))


def _status(state: Reply) -> Status:
    version, run_id, running, lapsed, expires, owed, count, attempt, *more, queued = state
    (
        seq,
        committed,
        mark,
        cancelled,
        cut,
        cancel_on_disconnect,
        followed,
        answer_by,
        overdue,
        *more,
    ) = more
    claims, now, known, boundary, history, open_turns = more
    committed_to = position(committed) if committed else START
    open_calls = load_owed(owed)
    return Status(
        version=int(version),
        run_id=RunId(run_id.decode()) if run_id else None,
        running=running == b"1",
        lapsed=bool(lapsed),
        expires=int(expires or 0),
        owed=open_calls,
        message_count=int(count),
        attempt=int(attempt or 0),
        logged=committed_to._replace(seq=int(seq or 0)),
        committed=committed_to,
        open_turns=unpack_open_turns(open_turns),
        run_start=int(mark or 0),
        cancelled=bool(cancelled),
        stopped_early=cut == b"1",
        cancel_on_disconnect=cancel_on_disconnect == b"1",
        followed=bool(followed),
        queued=tuple(RunId(waiting.decode()) for waiting in queued),
        answer_by=int(answer_by) if answer_by else None,
        overdue=bool(overdue),
        claims=unpack_claims(claims.decode(), open_calls, now) if claims else (),
        state=unpack_state(known, int(boundary or 0)),
        history_bytes=None if history is None else int(history),
    )


def lease_states(reply: Reply | StoreError, count: int, /) -> Sequence[LeaseState | StoreError]:
    """What one script says of `count` runs; an error of the whole is each one's."""
    if isinstance(reply, StoreError):
        return [reply] * count
    return [store_error(a) if isinstance(a, Exception) else _LEASE_STATES[a] for a in reply]


def position(entry_id: bytes, /) -> Position:
    epoch, _, seq = entry_id.partition(b"-")
    return Position(int(epoch), int(seq))


def events(entries: Reply, after: Position, limit: int, /) -> tuple[list[Logged], Position]:
    """Events of entries, until `limit` is reached, and the place of the last entry that was used."""
    logged: list[Logged] = []
    with unpacking():
        for entry_id, fields in entries:
            place = position(entry_id)
            logged += unpack_entries([(place, fields[b"events"])], after)
            after = place
            if len(logged) >= limit:
                break
    return logged, after
