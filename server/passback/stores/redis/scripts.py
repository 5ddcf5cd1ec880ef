"""The Lua scripts, each a whole state transition: it checks first and writes last.

The functions make parts of the arguments, in the order in which the scripts take them.
"""

import hashlib
from collections.abc import Sequence
from importlib import resources

from passback.core.values import value
from passback.stores.layout import (
    PackedChange,
    PackedEntry,
    PackedOpenTurns,
    PackedState,
    first_version,
)
from passback.stores.options import KeepTimes
from passback.stores.redis.servers import Argument


@value
class Script:
    text: bytes
    digest: str


@value
class ScriptCall:
    """One call of a script; all its keys are of one conversation."""

    script: Script
    keys: Sequence[str]
    arguments: Sequence[Argument]

    def command(self, *, with_text: bool = False) -> tuple[Argument, ...]:
        how = ("EVAL", self.script.text) if with_text else ("EVALSHA", self.script.digest)
        return (*how, len(self.keys), *self.keys, *self.arguments)


def _load_script(*parts: str) -> Script:
    """Return the script of files that follow each other, behind the prelude."""
    folder = resources.files("passback.stores.redis") / "lua"
    text = b"".join((folder / f"{part}.lua").read_bytes() for part in ("prelude", *parts))
    return Script(text, hashlib.sha1(text, usedforsecurity=False).hexdigest())


READ = _load_script("read")
CHANGE = _load_script("conversation", "log", "change")
CLAIM_CALL = _load_script("claim_call")
ENQUEUE = _load_script("conversation", "enqueue")
APPEND = _load_script("log", "append")
COMMIT = _load_script("conversation", "log", "commit")
RELEASE = _load_script("release")
CANCEL = _load_script("conversation", "cancel")
KEEP_FOLLOWED = _load_script("keep_followed")
DELETE = _load_script("delete")
DUE_NOTE = _load_script("due_note")
DUE_TAKE = _load_script("due_take")
DUE_WAIT = _load_script("due_wait")
DUE_SETTLE = _load_script("due_settle")
OWED_NOTE = _load_script("owed_note")
OWED_DROP = _load_script("owed_drop")
SPEND = _load_script("spend")


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
