"""The Lua scripts, each a whole state transition: it checks first and writes last."""

import hashlib
from importlib import resources

from passback.core.values import value


@value
class Script:
    text: bytes
    digest: str


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
