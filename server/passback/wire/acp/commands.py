"""Command lines of `run_command`: how they are shown, decided on, and told of. Pure."""

import json
import re
import shlex
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final

from pydantic import JsonValue

from passback.core.text import replace_surrogates
from passback.core.titles import fold_title
from passback.wire.acp.updates import shorten

OUTPUT_BYTES: Final = 64 * 1024  # of a command
_TITLE: Final = 180  # characters of a command line in a title
# what Python takes for printable, although nothing of it is seen
_UNSEEN: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0"
    "\U000e0000-\U000e0fff]"
)


def command_line(given: Mapping[str, Any], /) -> str:
    """Return the command of a call as one would type it in a shell of POSIX."""
    command = str(given.get("command", ""))
    args: JsonValue = given.get("args")
    return shlex.join([command, *map(str, args)]) if isinstance(args, list) else command


def command_title(line: str, /) -> str:
    """Return a command line as a title: the beginning of it, in Markdown."""
    folded = shorten(fold_title(line), _TITLE)
    return _inline_code(folded) if folded else ""


def command_text(line: str, folder: str | None, /) -> str:
    """Return a whole command line as Markdown that hides nothing of it.

    Args:
        line: the command.
        folder: in which it is run, if that has to be told.
    """
    shown = show_hidden(line)
    fence = "`" * max(3, _longest_run(shown) + 1)
    block = f"{fence}\n{shown}\n{fence}"
    if folder is None:
        return block
    place = show_hidden(folder).replace("\n", "\\n")
    return f"{block}\n\nin {_inline_code(place)}"


def _inline_code(text: str) -> str:
    fence = "`" * (_longest_run(text) + 1)
    pad = " " if "`" in text else ""  # a backtick at the end would join the fence
    return f"{fence}{pad}{text}{pad}{fence}"


def show_hidden(text: str, /) -> str:
    """Return a text with escapes in place of what cannot be seen, or reorders what can."""
    return "".join(each if _is_seen(each) else _escape(each) for each in text)


def _is_seen(character: str) -> bool:
    return character in "\n\t" or (character.isprintable() and _UNSEEN.match(character) is None)


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def _longest_run(text: str) -> int:
    return max(map(len, re.findall("`+", text)), default=0)


def command_key(given: Mapping[str, Any], folder: str, /) -> str:
    """Return the key of a lasting decision on this command, in this folder, and on no other.

    It is a digest: a command may have a secret in it, and decisions are stored as they are.
    """
    exact = json.dumps([given.get("command"), given.get("args"), folder])
    return f"run_command {sha256(exact.encode()).hexdigest()}"


def command_result(
    answer: JsonValue, ended: JsonValue, stopped_after: int | None, /
) -> tuple[str, bool]:
    """Return the result of a command for the model, and whether it is an error.

    Args:
        answer: of the editor to `terminal/output`.
        ended: its answer to `terminal/wait_for_exit`, for an editor that tells the end there only.
        stopped_after: seconds after which the command was stopped; None if it was not.
    """
    shown = answer if isinstance(answer, dict) else {}
    output = shown.get("output")
    text = replace_surrogates(output)[-OUTPUT_BYTES:] if isinstance(output, str) else ""
    head = "[the beginning is cut off]\n" if shown.get("truncated") is True else ""
    if stopped_after is not None:
        end, is_error = f"stopped after {stopped_after} s", True
    else:
        known = _read_end(shown.get("exitStatus")) or _read_end(ended)
        end, is_error = known or ("exit code unknown", True)
    return f"{head}{text.rstrip()}\n[{end}]".lstrip("\n"), is_error


def _read_end(status: JsonValue) -> tuple[str, bool] | None:
    """Return how a command has ended, and whether that is an error; None if it is not told."""
    code = status.get("exitCode") if isinstance(status, dict) else None
    by = status.get("signal") if isinstance(status, dict) else None
    if isinstance(by, str):
        return f"ended by {by[:32]}", True
    return (f"exit code {code}", code != 0) if type(code) is int else None
