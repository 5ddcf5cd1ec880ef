"""The Lua scripts, each a whole state transition: it checks first and writes last.

`KeyNames` makes their keys. Functions make parts of the arguments, in the order in which the
scripts take them, and parse the replies into values of the core.
"""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from importlib import resources

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
from passback.core.messages import OwnerId
from passback.core.posts import ReceiptName
from passback.core.values import value
from passback.stores.layout import (
    STATUS_FIELDS,
    PackedChange,
    PackedEntry,
    PackedOpenTurns,
    PackedState,
    first_version,
    owner_tag,
    unpack_entries,
    unpack_position,
    unpack_receipt,
    unpack_status,
    unpacking_records,
)
from passback.stores.options import KeepTimes
from passback.stores.redis.servers import Argument, Reply, store_error


@value
class KeyNames:
    """The keys of one store.

    Args:
        prefix: the beginning of all names.
        one_server: one server has all keys, so that a script may use those of a conversation and
            the index together.
    """

    prefix: str
    one_server: bool

    @property
    def due(self) -> str:
        """The index of the conversations that are due for recovery."""
        return f"{self.prefix}:due"

    def inbox(self, owner: OwnerId, /) -> str:
        """Return the index of an owner's conversations that may owe something."""
        return f"{self.prefix}:inbox:{owner_tag(owner)}"

    def conversations(self, owner: OwnerId, /) -> str:
        """Return the list of an owner's conversations."""
        return f"{self.prefix}:conversations:{owner_tag(owner)}"

    def spent(self, owner_tag: str, part: str, /) -> str:
        """Return the name of a count of what was spent; those of one owner are on one server."""
        return self._tagged_key(owner_tag, f"spent:{part}")

    @property
    def ready(self) -> str:
        """A key that `ping` writes to see whether writes are taken; it expires soon."""
        return f"{self.prefix}:ready"

    def state(self, tag: str, /) -> str:
        return self._tagged_key(tag, "state")

    def messages(self, tag: str, /) -> str:
        return self._tagged_key(tag, "messages")

    def receipts(self, tag: str, /) -> str:
        return self._tagged_key(tag, "receipts")

    def runs(self, tag: str, /) -> str:
        return self._tagged_key(tag, "runs")

    def queue(self, tag: str, /) -> str:
        return self._tagged_key(tag, "queue")

    def log(self, tag: str, run_id: str, /) -> str:
        return self._tagged_key(tag, f"log:{run_id}")

    def conversation_parts(self, tag: str, /) -> tuple[str, ...]:
        """Return all keys of a conversation but the logs."""
        ours = self._tagged_key(tag, "")
        return (ours + "state", ours + "messages", ours + "receipts", ours + "runs", ours + "queue")

    def with_indexes(self, *keys: str, owner: OwnerId | None = None) -> tuple[str, ...]:
        """Return these keys, and the indexes behind them where a script may use both.

        `owner`: whose list of conversations is one of them; None for no list.
        """
        if not self.one_server:
            return keys
        return (*keys, self.due) if owner is None else (*keys, self.due, self.conversations(owner))

    def conversation_keys(
        self, tag: str, run_id: str, /, *, owner: OwnerId | None = None
    ) -> tuple[str, ...]:
        """Return the keys of `lua/conversation.lua`: the parts, the log of a run, the indexes."""
        return self.with_indexes(*self.conversation_parts(tag), self.log(tag, run_id), owner=owner)

    def channel(self, tag: str, /) -> str:
        """Return the channel on which hints are published that a log has grown."""
        return f"{self.prefix}:{tag}"

    def _tagged_key(self, tag: str, part: str) -> str:
        return f"{self.prefix}:{{{tag}}}:{part}"


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


LAYOUT = "13"  # of keys and fields: raise it when either changes
_CONSTANTS = (
    f"local LAYOUT = '{LAYOUT}'\nlocal STATUS_FIELDS = {{{str(STATUS_FIELDS)[1:-1]}}}\n".encode()
)


def _load_script(*parts: str) -> Script:
    """Return the script of files that follow each other, behind constants and the prelude."""
    folder = resources.files("passback.stores.redis") / "lua"
    text = _CONSTANTS + b"".join(
        (folder / f"{part}.lua").read_bytes() for part in ("prelude", *parts)
    )
    return Script(text, hashlib.sha1(text, usedforsecurity=False).hexdigest())


READ = _load_script("read")
CHANGE = _load_script("conversation", "listing", "log", "change")
CLAIM_CALL = _load_script("claim_call")
ENQUEUE = _load_script("conversation", "listing", "enqueue")
RENAME = _load_script("rename")
CONFIGURE = _load_script("configure")
WRITE_TITLE = _load_script("write_title")
TITLE = _load_script("title")
APPEND = _load_script("log", "append")
COMMIT = _load_script("conversation", "log", "commit")
NEXT_LOG = _load_script("next_log")
RELEASE = _load_script("release")
CANCEL = _load_script("conversation", "cancel")
KEEP_FOLLOWED = _load_script("keep_followed")
DELETE = _load_script("delete")
DUE_NOTE = _load_script("due_note")
DUE_TAKE = _load_script("due_take")
DUE_WAIT = _load_script("due_wait")
DUE_SETTLE = _load_script("due_settle")
INBOX_NOTE = _load_script("inbox_note")
LIST_NOTE = _load_script("listing", "list_note")
INDEX_REMOVE = _load_script("index_remove")
SPEND = _load_script("spend")


def change_arguments(packed: PackedChange, /) -> tuple[Argument, ...]:
    """Return the arguments of `lua/change.lua` from `nonce` to `settings`."""
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
        packed.title,
        int(packed.named),
        packed.settings or b"",
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


# ---------------------------------------------------------------- replies
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
