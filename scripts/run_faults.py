"""Play the fault scenarios with the programs that they need. Called by scripts/faults.

Usage: scripts/faults [--quick | --nightly] [--only NAME] [--points N] [--seed N] [--jobs N]
       [--json FILE] [--report PAGE]

The scenarios are in tests/faults. Without redis-server or nginx nothing is played: half a proof is
none. With --nightly the proofs of tests/faults/proofs.py follow, which need all programs of the
tests; what is missing then is a fault.
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
        print(f"{' and '.join(missing)} cannot be had: install it, or set its variable")
        return 1
    os.environ.update(run_tests.COMPILED)
    environment = os.environ | {name: path for name, path in found.items() if path}
    if "--nightly" in sys.argv:
        environment |= run_tests.prepare(nightly=True) or {}
    command = [sys.executable, "-m", "tests.faults", *sys.argv[1:]]
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
