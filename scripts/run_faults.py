"""Play the fault scenarios with the programs that they need. Called by scripts/faults.

Usage: scripts/faults [--quick | --nightly] [--only NAME] [--points N] [--seed N] [--jobs N] [--json
FILE] [--report PAGE]

The scenarios are in tests/faults. Without redis-server or nginx nothing is played: half a proof is
none.
"""

import os
import subprocess
import sys
from pathlib import Path

import tools

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = {"TEST_REDIS_SERVER": "redis-server", "TEST_NGINX": "nginx"}


def main() -> int:
    finders = {"TEST_REDIS_SERVER": tools.find_redis, "TEST_NGINX": tools.find_nginx}
    found = {name: os.environ.get(name) or finder() for name, finder in finders.items()}
    missing = [PROGRAMS[name] for name, path in found.items() if not path]
    if missing:
        print(f"{' and '.join(missing)} cannot be had: install it, or set its variable")
        return 1
    programs = {name: path for name, path in found.items() if path}
    command = [sys.executable, "-m", "tests.faults", *sys.argv[1:]]
    return subprocess.run(command, cwd=ROOT, env=os.environ | programs, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
