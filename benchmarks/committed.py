"""What the results that were committed last say of the goals."""

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Committed:
    """The medians by the goals' words, and words for the reader: where they are from, or why there are none."""

    words: str
    medians: Mapping[str, float]


def last_committed(path: Path) -> Committed:
    """The results in `path` as HEAD has them, whatever the file holds now."""
    found = _at_head(path)
    if found is None:
        return Committed(f"before: no {path.name} is committed, so there is nothing to compare", {})
    try:
        document = json.loads(found)
        medians = {goal["words"]: goal["measured"] for goal in document["goals"]}
        measured = {words: float(each) for words, each in medians.items() if each is not None}
        machine = ", ".join(f"{name} {value}" for name, value in document["machine"].items())
    except (ValueError, LookupError, TypeError, AttributeError):
        return Committed(f"before: the {path.name} that is committed cannot be read", {})
    words = f"before: the medians of the {path.name} that is committed. It may be of another machine: {machine}"
    return Committed(words, measured)


def _at_head(path: Path) -> str | None:
    """None: it is not there, or this is no checkout."""
    command = ["git", "-C", str(path.parent), "show", f"HEAD:./{path.name}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:  # no git
        return None
    return None if done.returncode else done.stdout
