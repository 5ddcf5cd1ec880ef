"""Build the site of the documents: `docs/`, with the clients' READMEs beside them, and llms.txt.

Usage: scripts/build_site.py [FOLDER]

The site goes to FOLDER, by default `.cache/site/site`. A link that leads nowhere, to a page or to
an anchor, fails the build. It needs no network once `requirements/docs.txt` is installed, in an
environment of its own below `.cache/tools`.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import tools
from repository import ROOT

STAGE = ROOT / ".cache" / "site"
CLIENTS = ("client_tools/python/README.md", "client_tools/js/README.md")
LINK = re.compile(r"\]\(([^)#\s]+)")


def main() -> int:
    zensical = tools.find_zensical()
    if zensical is None:
        print("zensical cannot be had, so the site is not built")
        return 1
    stage_pages()
    environment = os.environ | {"NO_COLOR": "1"}
    done = subprocess.run(
        [zensical, "build", "--strict", "--clean"], cwd=STAGE, env=environment, check=False
    )
    if done.returncode:
        return done.returncode
    site, docs = STAGE / "site", STAGE / "docs"
    for page in docs.rglob("*.md"):  # programs get the pages as they are written, and their list
        shutil.copy(page, site / page.relative_to(docs))
    (site / "llms.txt").write_text((docs / "index.md").read_text())
    if len(sys.argv) > 1:
        shutil.copytree(site, sys.argv[1], dirs_exist_ok=True)
    return 0


def stage_pages() -> None:
    """Copy the pages to one folder, so that no link leads out of it."""
    docs = STAGE / "docs"
    shutil.rmtree(docs, ignore_errors=True)
    shutil.copytree(ROOT / "docs", docs)
    shutil.copy(ROOT / "zensical.toml", STAGE)
    for name in CLIENTS:
        (docs / name).parent.mkdir(parents=True)
        shutil.copy(ROOT / name, docs / name)
    for page in docs.rglob("*.md"):
        name = page.relative_to(docs).as_posix()
        source = ROOT / name if name in CLIENTS else ROOT / "docs" / name
        page.write_text(relink_page(page.read_text(), source, page))


def relink_page(text: str, source: Path, page: Path) -> str:
    """Return a page's text whose links lead to where the staged pages are."""

    def relink(link: re.Match[str]) -> str:
        target = link[1]
        if ":" in target:
            return link[0]
        found = Path(os.path.normpath(source.parent / target))
        if found == ROOT / "README.md":
            found = ROOT / "docs" / "index.md"
        name = found.relative_to(ROOT).as_posix().removeprefix("docs/")
        staged = STAGE / "docs" / name
        # the build names a link that is left as it is
        return f"]({os.path.relpath(staged, page.parent)}" if staged.exists() else link[0]

    return LINK.sub(relink, text)


if __name__ == "__main__":
    sys.exit(main())
