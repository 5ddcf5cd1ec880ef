"""The log of a process: lines on standard error."""

import json
import logging
import math
import re
import sys
from collections.abc import Mapping
from datetime import UTC, datetime

from typing_extensions import override

_QUIET_TIME = 60  # in which a line that anybody can cause is written once
_PLAIN_VALUE = re.compile(r"[\w.:/@+{}-]+", re.ASCII)
_RECORD_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {
    "message",
    "asctime",
    "color_message",
}


class _TextFormatter(logging.Formatter):
    """One line per event, with its ids: as JSON where they could be taken for more than one value, or for a line."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        ids = "".join(
            f" {name}={_quoted_if_needed(str(value))}"
            for name, value in _extra_fields(record).items()
        )
        line, newline, trace = super().format(record).partition("\n")
        return line + ids + newline + trace


class _JsonFormatter(logging.Formatter):
    """One JSON object of ASCII per event, whatever its message holds: `time` (UTC), `level`, `logger`, `message`, its ids.

    Args:
        several: each object has the `process`.
    """

    def __init__(self, *, several: bool) -> None:
        super().__init__()
        self._several = several

    @override
    def format(self, record: logging.LogRecord) -> str:
        when = datetime.fromtimestamp(record.created, UTC)
        told: dict[str, object] = {
            "time": when.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if self._several:
            told["process"] = record.process
        if record.exc_info:
            told["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            told["stack"] = record.stack_info
        ids = {name: _json_value(value) for name, value in _extra_fields(record).items()}
        return json.dumps({**told, **ids, **told})  # no id takes the place of a field


def _extra_fields(record: logging.LogRecord) -> Mapping[str, object]:
    """Return what was said beside the message."""
    return {name: value for name, value in vars(record).items() if name not in _RECORD_FIELDS}


def _json_value(value: object) -> object:
    """Return a value as JSON has it, or else its text."""
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return value if value is None or isinstance(value, str | bool | int) else str(value)


def _quoted_if_needed(value: str) -> str:
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
        if record.created - self._passed.get(message, 0.0) < _QUIET_TIME:
            self._left_out[message] = self._left_out.get(message, 0) + 1
            return False
        self._passed[message] = record.created
        if left_out := self._left_out.pop(message, 0):
            record.msg = f"{message} ({left_out} more like this since the last such line)"
        return True


def log_to_stderr(level: str, form: str = "text", *, several: bool = False) -> None:
    """Log lines for people (`text`), or `json`; `several` processes write to it: each line says which."""
    process = " [%(process)d]" if several else ""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        _JsonFormatter(several=several)
        if form == "json"
        else _TextFormatter(f"%(asctime)s{process} %(levelname)s %(name)s: %(message)s")
    )
    # what Python itself warns of has two lines
    logging.captureWarnings(form == "json")
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # it writes a line for each request that cannot be read, and no key is needed to send one
    logging.getLogger("uvicorn.error").filters = [OncePerMinute()]
    # at info these write a line with the URL for each request to the model or to an MCP server
    for name in ("httpx", "httpx2"):
        logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLogger().level))
    # and these write down what an MCP server sends, and the id of the session with it
    for name in ("mcp", "client"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
