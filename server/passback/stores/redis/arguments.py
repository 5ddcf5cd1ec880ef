"""Arguments of the scripts, in the order in which they take them."""

from passback.stores.layout import (
    PackedChange,
    PackedEntry,
    PackedOpenTurns,
    PackedState,
    first_version,
)
from passback.stores.options import KeepTimes
from passback.stores.redis.servers import Argument


def change_arguments(packed: PackedChange, /) -> tuple[Argument, ...]:
    """Return the arguments of `lua/change.lua` from `nonce` to `history_start`."""
    return (
        packed.nonce,
        packed.expected,
        first_version(packed.nonce),
        packed.owed,
        packed.tools or b"",
        "" if packed.keep_messages is None else packed.keep_messages,
        packed.run_start,
        packed.dequeues or "",
        int(packed.cancel_on_disconnect),
        *state_arguments(packed.state),
    )


def state_arguments(packed: PackedState | None, /) -> tuple[Argument, Argument]:
    """Return record and `history_start`; an empty record keeps the stored state."""
    return (b"", 0) if packed is None else packed


def open_turns_arguments(packed: PackedOpenTurns | None, /) -> tuple[Argument, Argument]:
    """Return `committed` and the record; both are empty where the whole log is committed."""
    return ("", b"") if packed is None else (packed.committed, packed.record)


def ttl_argument(keep: KeepTimes, /) -> str:
    return "" if keep.conversation is None else str(keep.conversation)


def next_entry_arguments(packed: PackedEntry | None, /) -> tuple[Argument, Argument, Argument]:
    """Return `entry_arguments` behind the number of the first event.

    The script compares that number with the last event of the log.
    """
    return (0 if packed is None else packed.first, *entry_arguments(packed))


def entry_arguments(packed: PackedEntry | None, /) -> tuple[Argument, Argument]:
    return (0, b"") if packed is None else (packed.last, packed.record)
