"""Copy the libraries that the playground is served with out of their npm packages.

`tests/js/package.json` pins the versions. Called by scripts/generate, which installs the packages.
"""

import json
import re
import sys
from pathlib import Path

from repository import ROOT, VENDORED

FOLDER = ROOT / VENDORED
MODULES = ROOT / "tests" / "js" / "node_modules"
NOTICES = "LICENSES.txt"
# each file of the page, and the file of the package that it is
COPIES = {
    "highlight.js": "@highlightjs/cdn-assets/es/highlight.min.js",
    "markdown-it.js": "markdown-it/dist/browser/markdown-it.esm.min.mjs",
}
# the packages that these files contain
CONTAINED = (
    "@highlightjs/cdn-assets",
    "entities",
    "linkify-it",
    "markdown-it",
    "mdurl",
    "punycode.js",
    "uc.micro",
)
HEADING = re.compile(r"^# (\S+) (\S+), (\S+)$", re.MULTILINE)


def main() -> int:
    write()
    return 0


def write() -> None:
    for name, content in expected_files().items():
        (FOLDER / name).write_bytes(content)


def expected_files() -> dict[str, bytes]:
    """Return the content of each vendored file, as the installed packages have it."""
    files = {name: (MODULES / path).read_bytes() for name, path in COPIES.items()}
    return {**files, NOTICES: "\n".join(map(notice, CONTAINED)).encode()}


def notice(name: str, /) -> str:
    """Return the version, the SPDX name and the text of a package's licence."""
    folder = MODULES / name
    about = json.loads((folder / "package.json").read_text(encoding="utf-8"))
    [text] = folder.glob("LICENSE*")
    heading = f"# {name} {about['version']}, {about['license']}"
    return f"{heading}\n\n{text.read_text(encoding='utf-8').strip()}\n"


def licences(folder: Path = FOLDER, /) -> dict[str, str]:
    """Return the SPDX name of each vendored package's licence."""
    found = HEADING.findall((folder / NOTICES).read_text(encoding="utf-8"))
    return {f"{name} {version}": licence for name, version, licence in found}


if __name__ == "__main__":
    sys.exit(main())
