"""The Lua scripts, each a whole state transition: it checks first and writes last."""

import hashlib
from dataclasses import dataclass
from importlib import resources


@dataclass(frozen=True, slots=True)
class Script:
    text: bytes
    digest: str


def _load(name: str) -> Script:
    folder = resources.files("passback.stores.redis") / "lua"
    text = (folder / "prelude.lua").read_bytes() + (folder / f"{name}.lua").read_bytes()
    return Script(text, hashlib.sha1(text, usedforsecurity=False).hexdigest())


READ = _load("read")
CHANGE = _load("change")
APPEND = _load("append")
COMMIT = _load("commit")
CANCEL = _load("cancel")
DELETE = _load("delete")
