"""The files of this repository, for the checks that read them."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# copies of published files, in which nothing is to be mended
VENDORED = "client_tools/playground/vendor/"


def files(*patterns: str) -> Iterator[Path]:
    """Yield tracked and new files that are not ignored, whose names fit one of git's patterns.

    Files in VENDORED are left out.
    """
    command = [
        "git",
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
        "--",
        *patterns,
    ]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in sorted(set(listed.split("\0")) - {""}):
        if not name.startswith(VENDORED) and (path := ROOT / name).is_file():
            yield path


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()
