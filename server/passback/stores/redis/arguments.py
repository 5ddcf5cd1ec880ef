"""What the scripts are told, as they take it."""

from passback.stores.layout import (
    PackedChange,
    PackedEntry,
    PackedOpenTurns,
    PackedState,
    first_version,
)
from passback.stores.options import Keep
from passback.stores.redis.servers import Argument


def transcript(packed: PackedChange, /) -> tuple[Argument, ...]:
    """What `lua/change.lua` is told of a change, up to the messages."""
    return (
        packed.nonce,
        packed.expected,
        first_version(packed.nonce),
        packed.owed,
        packed.tools or b"",
        "" if packed.keep is None else packed.keep,
        packed.mark,
        packed.dequeues or "",
        int(packed.cancel_on_disconnect),
        *state(packed.state),
    )


def state(packed: PackedState | None, /) -> tuple[Argument, Argument]:
    """Empty: the state is kept."""
    return (b"", 0) if packed is None else packed


def open_turns(packed: PackedOpenTurns | None, /) -> tuple[Argument, Argument]:
    """Up to where the log is committed, and the record; empty: all of it is."""
    return ("", b"") if packed is None else (packed.committed, packed.record)


def ttl(keep: Keep, /) -> str:
    return "" if keep.conversation is None else str(keep.conversation)


def next_entry(packed: PackedEntry | None, /) -> tuple[Argument, Argument, Argument]:
    """With the number of its first event, which has to follow on what is there."""
    return (0 if packed is None else packed.first, *entry(packed))


def entry(packed: PackedEntry | None, /) -> tuple[Argument, Argument]:
    return (0, b"") if packed is None else (packed.last, packed.record)
