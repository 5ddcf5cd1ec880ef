"""The Lua scripts, each atomic: it checks first and writes last. `KeyNames` makes their keys."""

import hashlib
from collections.abc import Sequence
from functools import cache
from importlib import resources

from passback.core.conversation.store import REMEMBERED_WRITES
from passback.core.messages import OwnerId
from passback.core.values import milliseconds, value
from passback.stores.layout import owner_tag
from passback.stores.options import DAY, KeepTimes, StoreOptions
from passback.stores.redis.servers import Argument

LAYOUT = "14"  # of keys and fields: raise it when either changes
GAP = "[]"  # the record of an entry without events
WRITE_ID_SIZE = 8  # bytes of the hash that is kept of a write's id
# Milliseconds for which an index keeps a conversation beyond its time to live, which begins anew
# with each write: one that is not noted again for longer may leave the index before its end.
LONGEST_RUN = milliseconds(7 * DAY)

READ_FIELDS: tuple[str, ...] = (
    *("version", "layout", "queue", "view", "view_bytes", "key", "head", "count", "fence"),
    *("expires", "seq", "signal", "due", "created", "updated", "owes"),
)
"""Fields of a conversation's state that each reading gives; the scripts use the first ones."""


@value
class KeyNames:
    """The keys of one store.

    Args:
        prefix: the beginning of all names.
        one_server: one server has all keys, so that a script may use those of a conversation and
            the indexes together.
    """

    prefix: str
    one_server: bool

    @property
    def due(self) -> str:
        """The index of the conversations that are due for recovery."""
        return f"{self.prefix}:due"

    def all(self, owner: OwnerId, /) -> str:
        """Return the index of an owner's conversations."""
        return f"{self.prefix}:conversations:{owner_tag(owner)}"

    def owing(self, owner: OwnerId, /) -> str:
        """Return the index of an owner's conversations that owe something."""
        return f"{self.prefix}:inbox:{owner_tag(owner)}"

    def indexes(self, owner: OwnerId, /) -> tuple[str, ...]:
        """Return the indexes that a script may use with the keys of a conversation."""
        return (self.due, self.all(owner), self.owing(owner)) if self.one_server else ()

    def spent(self, owner: OwnerId, part: str, /) -> str:
        """Return the name of a count of what was spent; those of one owner are on one server."""
        return self._tagged_key(owner_tag(owner), f"spent:{part}")

    @property
    def ready(self) -> str:
        """A key that is written to see whether writes are taken; it expires soon."""
        return f"{self.prefix}:ready"

    def state(self, tag: str, /) -> str:
        return self._tagged_key(tag, "state")

    def messages(self, tag: str, /) -> str:
        return self._tagged_key(tag, "messages")

    def logs(self, tag: str, /) -> str:
        return self._tagged_key(tag, "logs")

    def log(self, tag: str, run_id: str, /) -> str:
        return self._tagged_key(tag, f"log:{run_id}")

    def channel(self, tag: str, /) -> str:
        """Return the channel on which hints about a conversation are published."""
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


class Scripts:
    """The scripts of a store: its settings stand in their text, as constants."""

    def __init__(self, options: StoreOptions) -> None:
        self._constants = _constants(options)
        self.apply = self._load("entries", "messages", "apply")
        self.append = self._load("entries", "append")
        self.read = self._load("messages", "read")
        self.page = self._load("messages", "page")
        self.find = self._load("find")
        self.delete = self._load("delete")
        self.due = self._load("due")
        self.note = self._load("note")
        self.remove = self._load("remove")
        self.spend = self._load("spend")

    def _load(self, *parts: str) -> Script:
        """Return the script of files that follow each other, behind constants and the prelude."""
        text = b"".join([self._constants, *map(_read_part, ("prelude", *parts))])
        return Script(text, hashlib.sha1(text, usedforsecurity=False).hexdigest())


@cache
def _read_part(name: str) -> bytes:
    folder = resources.files("passback.stores.redis") / "lua"
    return (folder / f"{name}.lua").read_bytes()


def _constants(options: StoreOptions) -> bytes:
    idle, running = KeepTimes.when_idle(options), KeepTimes.when_running(options)
    kept = None if running.conversation is None else running.conversation + LONGEST_RUN
    constants: dict[str, int | str | None] = {
        "LAYOUT": f"'{LAYOUT}'",
        "GAP": f"'{GAP}'",
        "READ_FIELDS": "{" + str(READ_FIELDS)[1:-1] + "}",
        "WRITES_SIZE": REMEMBERED_WRITES * WRITE_ID_SIZE,
        "IDLE_TTL": idle.conversation,
        "RUNNING_TTL": running.conversation,
        "INDEX_TTL": kept,
        "IDLE_LOG": idle.log,
        "RUNNING_LOG": running.log,
        "LOG_BYTES": options.log_bytes,
    }
    lines = [f"local {n} = {'nil' if v is None else v}\n" for n, v in constants.items()]
    return "".join(lines).encode()
