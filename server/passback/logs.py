"""Logging of a process: lines on standard error, as text or JSON."""

import json
import logging
import math
import re
import sys
from collections.abc import Mapping
from datetime import UTC, datetime

from typing_extensions import override

logger = logging.getLogger(__name__)

_QUIET_TIME = 60  # seconds in which a warning that any client can cause is written once
_PLAIN_VALUE = re.compile(r"[\w.:/@+{}-]+", re.ASCII)
_RECORD_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {
    "message",
    "asctime",
    "color_message",
}


class _TextFormatter(logging.Formatter):
    """One line per event, with its ids behind the message.

    An id that could be read as several values or as another line is quoted as JSON.
    """

    @override
    def format(self, record: logging.LogRecord) -> str:
        texts = {name: str(value) for name, value in _extra_fields(record).items()}
        ids = "".join(
            f" {name}={text if _PLAIN_VALUE.fullmatch(text) else json.dumps(text)}"
            for name, text in texts.items()
        )
        line, newline, trace = super().format(record).partition("\n")
        return line + ids + newline + trace


class _JsonFormatter(logging.Formatter):
    """One JSON object of ASCII per event: `time` (UTC), `level`, `logger`, `message` and its ids.

    Args:
        several: add the field `process`, the process's id.
    """

    def __init__(self, *, several: bool) -> None:
        super().__init__()
        self._several = several

    @override
    def format(self, record: logging.LogRecord) -> str:
        when = datetime.fromtimestamp(record.created, UTC)
        fields: dict[str, object] = {
            "time": when.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if self._several:
            fields["process"] = record.process
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            fields["stack"] = record.stack_info
        ids = {name: _json_value(value) for name, value in _extra_fields(record).items()}
        # twice, so that the fields come first and no id replaces one of them
        return json.dumps({**fields, **ids, **fields})


def _extra_fields(record: logging.LogRecord) -> Mapping[str, object]:
    """Return the attributes that the caller passed as `extra`."""
    return {name: value for name, value in vars(record).items() if name not in _RECORD_FIELDS}


def _json_value(value: object) -> object:
    """Return a value that JSON can hold unchanged, any other as its text."""
    if isinstance(value, float):  # JSON has no NaN and no infinity
        return value if math.isfinite(value) else str(value)
    return value if value is None or isinstance(value, str | bool | int) else str(value)


class OncePerMinute(logging.Filter):
    """Logging filter that passes each warning once a minute, and every error.

    The next warning that passes has the number of those that were left out in between.
    """

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
    """Set up logging to standard error.

    Args:
        level: the least level that is written.
        form: `text` for people, or `json`.
        several: several processes write to this stream; each line has the process's id.
    """
    process = " [%(process)d]" if several else ""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        _JsonFormatter(several=several)
        if form == "json"
        else _TextFormatter(f"%(asctime)s{process} %(levelname)s %(name)s: %(message)s")
    )
    # Python writes a warning as two lines, which no reader of JSON lines can parse
    logging.captureWarnings(form == "json")
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # these write a line for what is malformed, and any client without a key can send that
    for name in ("uvicorn.error", "passback.wire.chat.socketio"):
        logging.getLogger(name).filters = [OncePerMinute()]
    # at INFO these log the URL of each request to the model or to an MCP server
    for name in ("httpx", "httpx2"):
        logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLogger().level))
    # these log what an MCP server sends, and the id of the session with it, which is a secret
    for name in ("mcp", "client"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


def print_warning(text: str, form: str) -> None:
    """Write a warning to standard error for who starts a command.

    Args:
        text: the warning.
        form: of the log.
    """
    if form == "json":
        # programs parse standard error in this mode, so every line must be JSON
        logger.warning("%s", text)
        return
    sys.stderr.write(f"passback: warning: {text}\n")
    sys.stderr.flush()
