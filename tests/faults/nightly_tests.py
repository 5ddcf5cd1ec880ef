"""The tests that `scripts/faults --nightly` runs after the scenarios, in the lane `nightly`.

They run on every kind of store, with more examples than in CI, each entry in a process of its own.
"""

import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.results import Result

ROOT = Path(__file__).parents[2]
TIMEOUT = "--timeout=1800"
"""Seconds for one test, because a property with many examples takes long."""
OUTPUT_LINES = 200
"""Lines of the output that are kept if something was wrong."""


@dataclass(frozen=True, slots=True)
class NightlyTests:
    """A module to run, usually pytest, with its arguments and additional environment variables."""

    about: str
    arguments: tuple[str, ...]
    module: str = "pytest"
    environment: Mapping[str, str] = field(default_factory=dict[str, str])

    def run(self) -> Result:
        """Run the tests and count them. One that was skipped is a violation, like a failed one."""
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder) / "tests.xml"
            flags = ("-q", TIMEOUT, f"--junitxml={report}") if self.module == "pytest" else ()
            done = subprocess.run(
                [sys.executable, "-m", self.module, *self.arguments, *flags],
                cwd=ROOT,
                env=os.environ | {"TEST_LANE": "nightly"} | dict(self.environment),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            )
            result = read_junit_report(report) if report.exists() else Result()
        if done.returncode and not result.violations:
            result.violations.append(f"{self.module} ended with {done.returncode}")
        if result.violations:
            result.diagnostics += done.stdout.splitlines()[-OUTPUT_LINES:]
        return result


def read_junit_report(report: Path) -> Result:
    result = Result()
    for case in ET.parse(report).getroot().iter("testcase"):
        result.points += 1
        for kind in ("failure", "error", "skipped"):
            if (found := case.find(kind)) is not None:
                name = f"{case.get('classname')}::{case.get('name')}"
                result.violations.append(f"{kind}: {name}: {found.get('message', '')[:200]}")
    return result


NIGHTLY_TESTS = {
    "random-operations": NightlyTests(
        "50,000 random operations, the same on every kind of store",
        ("tests/contract/test_store_random.py",),
    ),
    "random-conversations": NightlyTests(
        "20,000 steps of random conversations, on each kind of store",
        ("tests/contract/test_conversation_lives.py",),
    ),
    "contract": NightlyTests(
        "the contract of the stores, also on the newest Valkey, a Cluster and behind Sentinels",
        (
            "tests/contract",
            "--ignore=tests/contract/test_store_random.py",
            "--ignore=tests/contract/test_conversation_lives.py",
        ),
    ),
    "failover": NightlyTests(
        "workers behind Sentinels whose master is killed", ("tests/faults/test_failover.py",)
    ),
    "policy-model": NightlyTests(
        "posts during a run, against a model of the four policies",
        ("tests/faults/test_policy_model.py",),
    ),
    "model": NightlyTests(
        "5,000,000 states of clients, workers and recovery, with more faults than in CI",
        ("tests/model",),
    ),
    "properties": NightlyTests("the unit tests, with twenty times the examples", ("tests/unit",)),
    "workers": NightlyTests(
        "the end-to-end tests and the attacks, on each kind of store that workers can share",
        ("tests/e2e", "tests/attacks"),
    ),
    "plain-sending": NightlyTests(
        "the end-to-end tests and the attacks on servers that send by plain ASGI",
        ("tests/e2e", "tests/attacks"),
        environment={"TEST_DIRECT_SENDING": "false"},
    ),
    "benchmarks": NightlyTests(
        "the answers of the servers of the benchmarks are correct",
        ("--check", "--redis-server", os.environ.get("TEST_REDIS_SERVER", "redis-server")),
        module="benchmarks",
    ),
}
"""By names that no scenario has."""
