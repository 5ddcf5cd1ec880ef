"""The log of a process: lines on standard error."""

import json
import logging
import re
import sys
from typing import TYPE_CHECKING

from typing_extensions import override

if TYPE_CHECKING:
    from collections.abc import Mapping

_CALM_SECONDS = 60  # in which a line that anybody can cause is written once
_PLAIN_VALUE = re.compile(r"[\w.:/@+-]+", re.ASCII)


class _Formatter(logging.Formatter):
    """One line per event, with its ids: as JSON where they could be taken for more than one value, or for a line."""

    _PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message"}

    @override
    def format(self, record: logging.LogRecord) -> str:
        extra: Mapping[str, object] = {
            name: value for name, value in vars(record).items() if name not in self._PLAIN
        }
        ids = "".join(f" {name}={_one_word(str(value))}" for name, value in extra.items())
        line, newline, trace = super().format(record).partition("\n")
        return line + ids + newline + trace


def _one_word(value: str) -> str:
    return value if _PLAIN_VALUE.fullmatch(value) else json.dumps(value)


class OncePerMinute(logging.Filter):
    """Passes a warning once a minute, the next time with the number of those it left out; all errors pass."""

    def __init__(self) -> None:
        super().__init__()
        self._passed: dict[str, float] = {}
        self._left_out: dict[str, int] = {}

    @override
    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno > logging.WARNING:
            return True
        message = record.msg
        if record.created - self._passed.get(message, 0.0) < _CALM_SECONDS:
            self._left_out[message] = self._left_out.get(message, 0) + 1
            return False
        self._passed[message] = record.created
        if left_out := self._left_out.pop(message, 0):
            record.msg = f"{message} ({left_out} more like this since the last such line)"
        return True


def log_to_stderr(level: str, *, several: bool = False) -> None:
    """`several` processes write to it: each line says which."""
    process = " [%(process)d]" if several else ""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Formatter(f"%(asctime)s{process} %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # it writes a line for each request that cannot be read, and no key is needed to send one
    logging.getLogger("uvicorn.error").filters = [OncePerMinute()]
    # at info these write a line with the URL for each request to the model or to an MCP server
    for name in ("httpx", "httpx2"):
        logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLogger().level))
    # and these write down what an MCP server sends, and the id of the session with it
    for name in ("mcp", "client"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
