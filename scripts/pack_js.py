"""Pack the npm package of the JavaScript client as it is published.

Usage: scripts/pack_js.py ADDRESS [FOLDER]

ADDRESS is that of the repository on its code host, such as https://host/owner/name. Links of the
README are relative in the repository and lead nowhere on npm: the packed ones begin with it.
`repository`, `homepage` and `bugs` of package.json are made from it, too. The package goes to
FOLDER, by default `.cache/npm`; its path is printed. Publish it with `npm publish PATH`.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import tools
from repository import ROOT

PACKAGE = ROOT / "client_tools" / "js"
PLACE = PACKAGE.relative_to(ROOT).as_posix()
LINK = re.compile(r"\]\((?!\w+:|#)([^)#\s]*)")
ADDRESS = re.compile(r"https://[\w.-]+(?:/[\w.-]+)+")


class DeadLinkError(Exception):
    """The README links to a file that does not exist."""


def main() -> int:
    arguments = sys.argv[1:]
    if not 1 <= len(arguments) <= 2 or not ADDRESS.fullmatch(arguments[0]):
        print("Usage: scripts/pack_js.py ADDRESS [FOLDER]; ADDRESS is https://host/owner/name")
        return 2
    node = os.environ.get("TEST_NODE") or tools.find_node()
    npm = tools.npm_command(node) if node else None
    if node is None or npm is None:
        print("Node.js and npm are needed, and cannot be had")
        return 1
    folder = Path(arguments[1]) if len(arguments) > 1 else ROOT / ".cache" / "npm"
    folder.mkdir(parents=True, exist_ok=True)
    stage = folder / "package"
    try:
        stage_package(stage, arguments[0])
    except DeadLinkError as dead:
        print(dead)
        return 1
    command = [*npm, "pack", str(stage.resolve()), "--json", "--ignore-scripts"]
    environment = os.environ | {"PATH": f"{Path(node).parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        print(done.stderr, end="")
        return 1
    [packed] = json.loads(done.stdout)
    print(folder / packed["filename"])
    return 0


def stage_package(stage: Path, address: str) -> None:
    """Copy what is packed, with the address of the repository in it."""
    shutil.rmtree(stage, ignore_errors=True)
    manifest: dict[str, Any] = json.loads((PACKAGE / "package.json").read_text())
    for name in manifest["files"]:
        shutil.copytree(PACKAGE / name, stage / name)
    shutil.copy(PACKAGE / "LICENSE", stage)
    (stage / "README.md").write_text(relink((PACKAGE / "README.md").read_text(), address))
    manifest |= {
        "repository": {"type": "git", "url": f"git+{address}.git", "directory": PLACE},
        "homepage": f"{address}/tree/HEAD/{PLACE}#readme",
        "bugs": {"url": f"{address}/issues"},
    }
    (stage / "package.json").write_text(json.dumps(manifest, indent=2) + "\n")


def relink(text: str, address: str) -> str:
    """Return the README with absolute links.

    Raises:
        DeadLinkError: a link leads to no file.
    """

    def absolute(link: re.Match[str]) -> str:
        target = Path(os.path.normpath(PACKAGE / link[1]))
        if not target.exists():
            raise DeadLinkError(f"{PLACE}/README.md links to {link[1]}, which is not there")
        kind = "tree" if target.is_dir() else "blob"
        return f"]({address}/{kind}/HEAD/{target.relative_to(ROOT).as_posix()}"

    return LINK.sub(absolute, text)


if __name__ == "__main__":
    sys.exit(main())
