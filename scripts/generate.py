"""Write what is generated from the code. Called by scripts/generate.

The page of the settings comes from `passback/settings.py`; the types of the JavaScript client come
from the JSDoc of its sources, and the vendored libraries of the playground from their npm packages;
both need Node.js.
"""

import os
import subprocess
import sys

import conversation_tables
import settings_reference
import tools
import vendored
from repository import ROOT

NPM_FOLDER = ROOT / "tests" / "js"


def main() -> int:
    settings_reference.write()
    conversation_tables.write()
    node = os.environ.get("TEST_NODE") or tools.find_node()
    if node is None or not tools.npm_ci(node, NPM_FOLDER):
        print("What is made of npm packages needs Node.js and these packages: none can be had")
        return 1
    vendored.write()
    compiler = NPM_FOLDER / "node_modules" / "typescript" / "bin" / "tsc"
    types = NPM_FOLDER / "tsconfig.types.json"
    return subprocess.run([node, str(compiler), "--project", str(types)], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
