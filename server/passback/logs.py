"""The log of a process: lines on standard error."""

import logging
import sys
from typing import TYPE_CHECKING

from typing_extensions import override

if TYPE_CHECKING:
    from collections.abc import Mapping


class _Formatter(logging.Formatter):
    """One line per event, with its ids."""

    _PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message"}

    @override
    def format(self, record: logging.LogRecord) -> str:
        extra: Mapping[str, object] = {
            name: value for name, value in vars(record).items() if name not in self._PLAIN
        }
        ids = "".join(f" {name}={value}" for name, value in extra.items())
        line, newline, trace = super().format(record).partition("\n")
        return line + ids + newline + trace


def log_to_stderr(level: str, *, several: bool = False) -> None:
    """`several` processes write to it: each line says which."""
    process = " [%(process)d]" if several else ""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Formatter(f"%(asctime)s{process} %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # at info these write a line with the URL for each request to the model or to an MCP server
    for name in ("httpx", "httpx2"):
        logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLogger().level))
    # and these write down what an MCP server sends, and the id of the session with it
    for name in ("mcp", "client"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
