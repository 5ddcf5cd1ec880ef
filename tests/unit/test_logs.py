"""The lines of the log: one for each event, with values that are escaped, and rate limits."""

import json
import logging
import math
import os
import warnings
from datetime import datetime

import pytest

from passback.logs import OncePerMinute, log_to_stderr


@pytest.fixture(autouse=True)
def _restore_logging() -> object:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    chat = "passback.wire.chat.socketio"
    names = ("uvicorn.error", chat, "httpx", "httpx2", "mcp", "client")
    before = {
        name: (logging.getLogger(name).level, logging.getLogger(name).filters) for name in names
    }
    yield
    logging.captureWarnings(False)
    root.handlers[:], root.level = handlers, level
    for name, (its_level, filters) in before.items():
        logging.getLogger(name).setLevel(its_level)
        logging.getLogger(name).filters = filters


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("run_1.1-2", "run_1.1-2"),
        ("/conversations/{id}", "/conversations/{id}"),
        (12, "12"),
        ("a run_id=b", '"a run_id=b"'),
        ("a\u2028b\nc", r'"a\u2028b\nc"'),
        ("", '""'),
    ],
)
def test_a_value_cannot_forge_a_line_or_another_value(
    value: object, written: str, capsys: pytest.CaptureFixture[str]
) -> None:
    log_to_stderr("warning")
    logging.getLogger("passback").warning("it happened", extra={"conversation_id": value})
    [line] = capsys.readouterr().err.splitlines()
    assert line.endswith(f" WARNING passback: it happened conversation_id={written}")


def test_as_json_each_event_is_an_object_on_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    log_to_stderr("info", "json")
    log = logging.getLogger("passback.test")
    log.info("it\nhappened \u2028 %s", "\ud800", extra={"status": 200, "time": "forged", "at": 1.5})
    try:
        raise ValueError("first\nsecond")
    except ValueError:
        log.exception("it failed", extra={"id": KeyError("a"), "nan": math.nan, "none": None})
    logging.getLogger("uvicorn.error").warning("Invalid HTTP request received.", stack_info=True)
    warnings.showwarning("late", UserWarning, "a.py", 1)
    log.debug("not this")
    written = capsys.readouterr().err
    assert written.isascii()
    happened, failed, unread, warned = map(json.loads, written.splitlines())
    assert datetime.fromisoformat(happened["time"]).tzinfo is not None
    assert {**happened, "time": ""} == {
        "time": "",
        "level": "info",
        "logger": "passback.test",
        "message": "it\nhappened \u2028 \ud800",
        "status": 200,
        "at": 1.5,
    }
    assert failed["level"] == "error"
    assert failed["exception"].endswith("ValueError: first\nsecond")
    assert (failed["id"], failed["nan"], failed["none"]) == ("'a'", "nan", None)
    assert (unread["logger"], unread["level"]) == ("uvicorn.error", "warning")
    assert unread["stack"].startswith("Stack (most recent call last):\n")
    assert (warned["logger"], "UserWarning: late" in warned["message"]) == ("py.warnings", True)


def test_as_json_several_processes_log_their_ids(capsys: pytest.CaptureFixture[str]) -> None:
    log_to_stderr("warning", "json", several=True)
    logging.getLogger("passback").warning("here")
    assert json.loads(capsys.readouterr().err)["process"] == os.getpid()


@pytest.mark.parametrize("name", ["uvicorn.error", "passback.wire.chat.socketio"])
def test_what_clients_without_a_key_send_fills_no_log(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    log_to_stderr("warning")
    for number in range(5):
        logging.getLogger(name).warning("malformed: %s", number)
    assert [line.rsplit(": ", 2)[1:] for line in capsys.readouterr().err.splitlines()] == [
        ["malformed", "0"]
    ]


def filtered(
    log: OncePerMinute, message: str, second: float, level: int = logging.WARNING
) -> str | None:
    """Return the text that is written of a record at a second, or None."""
    record = logging.LogRecord("uvicorn.error", level, "", 0, message, (), None)
    record.created = 1_000_000 + second
    return record.getMessage() if log.filter(record) else None


def test_a_repeated_warning_is_written_once_a_minute_with_a_count() -> None:
    log = OncePerMinute()
    assert filtered(log, "invalid", 0) == "invalid"
    assert [filtered(log, "invalid", second) for second in (1, 2, 59.9)] == [None, None, None]
    assert filtered(log, "another", 3) == "another"
    assert filtered(log, "invalid", 60) == "invalid (3 more like this since the last such line)"
    assert filtered(log, "invalid", 121) == "invalid"


def test_errors_are_always_written() -> None:
    log = OncePerMinute()
    assert [filtered(log, "broken", second, logging.ERROR) for second in (0, 1)] == ["broken"] * 2
