"""The tables of docs/explanation/design.md, from the rules of a conversation.

scripts/generate writes them. As a program, this fails where they are not those of the code.
"""

import sys
from collections.abc import Iterable

from passback.core.conversation.table import STATES, TABLE
from passback.core.posts import WHAT_A_POST_MEANS
from repository import ROOT

PAGE = ROOT / "docs" / "explanation" / "design.md"


def main() -> int:
    if PAGE.read_text() != page():
        print(f"{PAGE.relative_to(ROOT)} is not that of the rules: run scripts/generate")
        return 1
    return 0


def write() -> None:
    PAGE.write_text(page())


def page() -> str:
    """Return the page with its tables as the code has them."""
    text = PAGE.read_text()
    for name, lines in (("commands", _commands()), ("posts", _posts())):
        begin, end = (
            f"<!-- {name}: written by `scripts/generate` -->\n",
            f"<!-- end of {name} -->\n",
        )
        head, _, rest = text.partition(begin)
        _, _, tail = rest.partition(end)
        table = "".join(line + "\n" for line in lines)
        text = head + begin + table + end + tail
    return text


def _commands() -> Iterable[str]:
    yield "| command | " + " | ".join(STATES) + " | what it does |"
    yield "|---|" + "---|" * len(STATES) + "---|"
    for command, row in TABLE.items():
        cells = (
            "yes" if state in row.states else "gone" if state == "gone" else row.otherwise
            for state in STATES
        )
        yield f"| `{command.__name__}` | {' | '.join(cells)} | {row.does} |"


def _posts() -> Iterable[str]:
    yield "| the conversation is | the post brings | what happens |"
    yield "|---|---|---|"
    for row in WHAT_A_POST_MEANS:
        yield f"| {' | '.join(row)} |"


if __name__ == "__main__":
    sys.exit(main())
