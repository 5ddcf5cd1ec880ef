"""Replies of the scripts, parsed into values of the core."""

from collections.abc import Collection, Mapping, Sequence

from passback.core.changes import (
    LeaseState,
    LoadedConversation,
    Page,
    Status,
    load_message,
    load_queued,
    load_tools,
)
from passback.core.errors import StoreError
from passback.core.events import Logged, Position
from passback.core.posts import ReceiptName
from passback.stores.layout import (
    STATUS_FIELDS,
    unpack_entries,
    unpack_position,
    unpack_receipt,
    unpack_status,
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


def parse_status(reply: Reply, /) -> Status:
    """Return the status. This and the others below raise StoreError for an unreadable record."""
    if reply is None:
        return Status()
    fields, queued, now, *_ = reply
    with unpacking_records():
        known = dict(zip(STATUS_FIELDS, fields, strict=True))
        return unpack_status(known, [run_id.decode() for run_id in queued], now)


def parse_loaded(reply: Reply, asked: Collection[ReceiptName], /) -> LoadedConversation:
    if reply is None:
        return LoadedConversation(Status())
    *_, messages, tools, waiting, receipts = reply
    # `lua/read.lua` gives no messages when they are larger than asked for
    left_out = messages is None
    records, posts = messages or (), [entry.partition(b"\0")[2] for entry in waiting]
    status = parse_status(reply)
    with unpacking_records():
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
    fields, _, _, messages, *_ = reply
    with unpacking_records():
        message_count = int(fields[STATUS_FIELDS.index("message_count")])
        return Page(tuple(map(load_message, messages)), start, message_count)


def parse_lease_states(
    reply: Reply | StoreError, count: int, /
) -> Sequence[LeaseState | StoreError]:
    """Return what one script says of `count` runs; an error of the script is each run's."""
    if isinstance(reply, StoreError):
        return [reply] * count
    # a damaged conversation has an error of its own
    return [store_error(a) if isinstance(a, Exception) else _LEASE_STATES[a] for a in reply]


def parse_events(entries: Reply, after: Position, limit: int, /) -> tuple[list[Logged], Position]:
    """Return events of entries, until `limit` is reached, and the last used entry's position."""
    logged: list[Logged] = []
    with unpacking_records():
        for entry_id, fields in entries:
            place = unpack_position(entry_id.decode())
            # one by one, so that a page ends where its last entry does
            logged += unpack_entries([(place, fields[b"events"])], after)
            after = place
            if len(logged) >= limit:
                break
    return logged, after
