"""Replies of the scripts, parsed into values of the core."""

from collections.abc import Collection, Mapping, Sequence

from passback.core.changes import (
    LeaseState,
    LoadedConversation,
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
    unpacking_records,
)
from passback.stores.redis.link import store_error
from passback.stores.redis.servers import Reply

_LEASE_STATES: Mapping[bytes, LeaseState] = {
    b"held": "held",
    b"followed": "followed",
    b"cancelled": "cancelled",
    b"lost": "lost",
}
_MESSAGE_COUNT = 6  # index of `message_count` in the status of `lua/read.lua`


def parse_status(reply: Reply, /) -> Status:
    """Return the status. This and the others below raise StoreError for an unreadable record."""
    if reply is None:
        return Status()
    with unpacking_records():
        return _parse_state(reply[0])


def parse_loaded(reply: Reply, asked: Collection[ReceiptName], /) -> LoadedConversation:
    if reply is None:
        return LoadedConversation(Status())
    state, messages, tools, waiting, receipts = reply
    # `lua/read.lua` gives no messages when they are larger than asked for
    left_out = messages is None
    records, posts = messages or (), [entry.partition(b"\0")[2] for entry in waiting]
    with unpacking_records():
        status = _parse_state(state)
        return LoadedConversation(
            status,
            messages=tuple(map(load_message, records)),
            tools=load_tools(tools) if tools else (),
            receipts={
                name: unpack_receipt(packed.decode())
                for name, packed in zip(asked, receipts, strict=True)
                if packed is not None
            },
            queue=tuple(map(load_queued, posts)),
            left_out=left_out,
            queue_bytes=sum(map(len, posts)),
        )


def parse_page(reply: Reply, start: int, /) -> Page:
    if reply is None:
        return Page((), start, 0)
    with unpacking_records():
        return Page(tuple(map(load_message, reply[1])), start, int(reply[0][_MESSAGE_COUNT]))


def _parse_state(state: Reply) -> Status:
    version, run_id, running, lapsed, lease_expires, owed, message_count, attempt, *more, queued = (
        state
    )
    (
        seq,
        committed,
        run_start,
        cancelled,
        stopped_early,
        cancel_on_disconnect,
        followed,
        answer_by,
        overdue,
        *more,
    ) = more
    claims, now, known_state, history_start, history_bytes, open_turns = more
    committed_to = parse_position(committed) if committed else START
    open_calls = load_owed(owed)
    return Status(
        version=int(version),
        run_id=RunId(run_id.decode()) if run_id else None,
        running=running == b"1",
        lapsed=bool(lapsed),
        lease_expires=int(lease_expires or 0),
        owed=open_calls,
        message_count=int(message_count),
        attempt=int(attempt or 0),
        logged=committed_to._replace(seq=int(seq or 0)),
        committed=committed_to,
        open_turns=unpack_open_turns(open_turns),
        run_start=int(run_start or 0),
        cancelled=bool(cancelled),
        stopped_early=stopped_early == b"1",
        cancel_on_disconnect=cancel_on_disconnect == b"1",
        followed=bool(followed),
        queued=tuple(RunId(waiting.decode()) for waiting in queued),
        answer_by=int(answer_by) if answer_by else None,
        overdue=bool(overdue),
        claims=unpack_claims(claims.decode(), open_calls, now) if claims else (),
        state=unpack_state(known_state, int(history_start or 0)),
        history_bytes=int(history_bytes),
    )


def parse_lease_states(
    reply: Reply | StoreError, count: int, /
) -> Sequence[LeaseState | StoreError]:
    """Return what one script says of `count` runs; an error of the script is each run's."""
    if isinstance(reply, StoreError):
        return [reply] * count
    # a damaged conversation has an error of its own
    return [store_error(a) if isinstance(a, Exception) else _LEASE_STATES[a] for a in reply]


def parse_position(entry_id: bytes, /) -> Position:
    epoch, _, seq = entry_id.partition(b"-")
    return Position(int(epoch), int(seq))


def parse_events(entries: Reply, after: Position, limit: int, /) -> tuple[list[Logged], Position]:
    """Return events of entries, until `limit` is reached, and the last used entry's position."""
    logged: list[Logged] = []
    with unpacking_records():
        for entry_id, fields in entries:
            place = parse_position(entry_id)
            # one by one, so that a page ends where its last entry does
            logged += unpack_entries([(place, fields[b"events"])], after)
            after = place
            if len(logged) >= limit:
                break
    return logged, after
