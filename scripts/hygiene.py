"""Check every text file of the repository for what must not be in one.

Hosts of package registries and paths of one machine: the files must mean the same everywhere. Notes
to oneself: an issue is the place. Merge leftovers, blanks at line ends, a missing last newline.
Lines of more than 100 columns, in files for which no other check has this rule.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from repository import files, relative

COLUMNS = 100
# Ruff checks Python, documents.py Markdown
WRAPPED = {".css", ".html", ".js", ".lua", ".mjs", ".sh", ".toml", ".ts", ".yaml", ".yml", ""}
UNWRAPPED = ("client_tools/js/types/", "requirements/", "tests/vectors/", "LICENSE")
LONG_LINK = re.compile(r"\S*\s*\S*https?://\S+")

# written so that no pattern finds itself
RULES = {
    "names a package registry": (
        r"(?:\bpypi|pythonhosted|\bnpmjs|yarnpkg|deb\.debian)\.(?:org|com|io)"
    ),
    "names a folder of one machine": (
        r"(?<![\w.~$}*-])"
        r"/(?:work|root|home/(?!you\b)[a-z]\w*|Users/\w+)(?:/|\b)(?!:)"
    ),
    "holds a note to oneself": r"\b(?:TO[D]O|FIX[M]E)\b",
    "holds a leftover of a merge": r"^(?:<{7}|>{7}) ",
    "ends a line with blanks": r"[ \t]+$",
}
PATTERNS = {problem: re.compile(pattern) for problem, pattern in RULES.items()}


def main() -> int:
    found = [
        f"{relative(path)}:{line}: {problem}"
        for path in files()
        if (text := decode_text(path.read_bytes())) is not None
        for line, problem in [*check(text), *check_width(path, text)]
    ]
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


def check(text: str, /) -> Iterator[tuple[int, str]]:
    """Return the number of each bad line, and what is wrong with it."""
    lines = text.split("\n")
    for number, line in enumerate(lines, 1):
        for problem, pattern in PATTERNS.items():
            if pattern.search(line):
                yield number, problem
    if text and lines[-1]:
        yield len(lines), "has no newline at its end"


def check_width(path: Path, text: str, /) -> Iterator[tuple[int, str]]:
    """Return the number of each line that is too long, except lines of one long link."""
    if path.suffix not in WRAPPED or relative(path).startswith(UNWRAPPED):
        return
    for number, line in enumerate(text.split("\n"), 1):
        if len(line) > COLUMNS and not LONG_LINK.fullmatch(line.strip()):
            yield number, f"has {len(line)} columns, more than {COLUMNS}"


def decode_text(content: bytes) -> str | None:
    if b"\0" in content:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return None


if __name__ == "__main__":
    sys.exit(main())
