"""The Lua scripts, each a whole state transition: it checks first and writes last."""

import hashlib
from importlib import resources

from passback.core.values import value


@value
class Script:
    text: bytes
    digest: str


def _load(*parts: str) -> Script:
    """A script of files that follow each other, behind the prelude."""
    folder = resources.files("passback.stores.redis") / "lua"
    text = b"".join((folder / f"{part}.lua").read_bytes() for part in ("prelude", *parts))
    return Script(text, hashlib.sha1(text, usedforsecurity=False).hexdigest())


READ = _load("read")
CHANGE = _load("conversation", "log", "change")
CLAIM_CALL = _load("claim_call")
ENQUEUE = _load("conversation", "enqueue")
APPEND = _load("log", "append")
COMMIT = _load("conversation", "log", "commit")
RELEASE = _load("release")
CANCEL = _load("conversation", "cancel")
KEEP_FOLLOWED = _load("keep_followed")
DELETE = _load("delete")
DUE_NOTE = _load("due_note")
DUE_TAKE = _load("due_take")
DUE_LOOK = _load("due_look")
DUE_SETTLE = _load("due_settle")
OWED_NOTE = _load("owed_note")
OWED_DROP = _load("owed_drop")
SPEND = _load("spend")
