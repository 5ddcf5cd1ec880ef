"""Play the fault scenarios with the programs that they need. Called by scripts/faults.

Usage: scripts/faults [--quick | --nightly] [--only NAME] [--points N] [--seed N] [--jobs N]
       [--json FILE] [--report PAGE]

tests/faults/scenarios.py has the scenarios. Without redis-server or nginx none of them is played.
With --nightly the tests of tests/faults/nightly_tests.py follow, which need all programs of the
tests; a test that is skipped because one is missing is a violation.
"""

import os
import subprocess
import sys
from pathlib import Path

import run_tests
import tools

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = {"TEST_REDIS_SERVER": "redis-server", "TEST_NGINX": "nginx"}


def main() -> int:
    finders = {"TEST_REDIS_SERVER": tools.find_redis, "TEST_NGINX": tools.find_nginx}
    found = {name: os.environ.get(name) or finder() for name, finder in finders.items()}
    missing = [PROGRAMS[name] for name, path in found.items() if not path]
    if missing:
        names = " and ".join(missing)
        print(f"Not found: {names}. Install it, or set its variable (see CONTRIBUTING.md).")
        return 1
    os.environ.update(run_tests.COMPILED)
    environment = os.environ | {name: path for name, path in found.items() if path}
    if "--nightly" in sys.argv:
        environment |= run_tests.prepare(nightly=True) or {}
    command = [sys.executable, "-m", "tests.faults", *sys.argv[1:]]
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
