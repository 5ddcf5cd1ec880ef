"""Check the documents: the width of their lines, links to files, README's length, the site's list.

Anchors, and links between the site's pages, are checked where the site is built:
`scripts/build_site.py`.
"""

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

from repository import ROOT, files, relative

COLUMNS = 100
README_WORDS = 1000
# a line that cannot be wrapped
UNWRAPPABLE = re.compile(r"\s*(?:\||- \[|<|\S*https?://\S+$|!?\[[^\]]+\]\(\S+\)\S*$)")
LINK = re.compile(r"\]\((?!\w+:)([^)#\s]+)")
FENCE = re.compile(r"^\s*```")


def main() -> int:
    found = [
        f"{relative(page)}{problem}"
        for page in files("*.md")
        for problem in check(page, page.read_text())
    ]
    found += [f"README.md: {problem}" for problem in check_length((ROOT / "README.md").read_text())]
    found += check_lists()
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


def check(page: Path, text: str, /) -> Iterator[str]:
    """Return the place of each bad line of a page, and what is wrong with it."""
    for number, line in prose_lines(text):
        if len(line) > COLUMNS and not UNWRAPPABLE.match(line):
            yield f":{number}: has {len(line)} columns, more than {COLUMNS}"
        for target in LINK.findall(line):
            if not (page.parent / target).exists():
                yield f":{number}: links to {target}, which is not there"


def prose_lines(text: str) -> Iterator[tuple[int, str]]:
    """Return the lines outside code blocks, with their numbers."""
    is_code = False
    for number, line in enumerate(text.splitlines(), 1):
        if FENCE.match(line):
            is_code = not is_code
        elif not is_code:
            yield number, line


def check_length(readme: str, /) -> Iterator[str]:
    if (words := len(readme.split())) > README_WORDS:
        yield f"has {words} words, more than {README_WORDS}"


def check_lists() -> Iterator[str]:
    """Compare the pages of the site's navigation and of its front page with those that exist."""
    pages = {
        relative(page).removeprefix("docs/")
        for page in files("docs/*.md")
        if "examples" not in page.parts
    } - {"index.md"}
    index = (ROOT / "docs" / "index.md").read_text()
    listed = {target for target in LINK.findall(index) if not target.startswith("../")}
    sections: list[dict[str, list[str]]] = tomllib.loads((ROOT / "zensical.toml").read_text())[
        "project"
    ]["nav"]
    names = [name for section in sections for titled in section.values() for name in titled]
    shown = {name for name in names if not name.startswith("client_tools/")}
    for place, targets in (("docs/index.md", listed), ("zensical.toml", shown - {"index.md"})):
        yield from (f"{place}: does not list {name}" for name in sorted(pages - targets))
        yield from (
            f"{place}: lists {name}, which is not there" for name in sorted(targets - pages)
        )


if __name__ == "__main__":
    sys.exit(main())
