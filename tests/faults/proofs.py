"""What the nightly run plays besides the scenarios: tests on every kind of store, with as many examples as a proof needs.

A proof is run in a process of its own, in the lane `nightly` of the tests.
"""

import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.tally import Tally

ROOT = Path(__file__).parents[2]
SLOWLY = "--timeout=1800"
"""Seconds: a property is tried for longer than a test usually takes."""
CLUE_LINES = 200
"""Of the output of a proof in which something was wrong."""


@dataclass(frozen=True, slots=True)
class Proof:
    """A proof.

    Args:
        about: what it shows.
        arguments: of the module.
        module: what is run.
        environment: variables beside those of this process.
    """

    about: str
    arguments: tuple[str, ...]
    module: str = "pytest"
    environment: Mapping[str, str] = field(default_factory=dict[str, str])

    def run(self) -> Tally:
        """Count the tests that were run. One that failed is a fault, and so is one that was skipped: half a proof is none."""
        with tempfile.TemporaryDirectory() as folder:
            result = Path(folder) / "tests.xml"
            told = ("-q", SLOWLY, f"--junitxml={result}") if self.module == "pytest" else ()
            done = subprocess.run(
                [sys.executable, "-m", self.module, *self.arguments, *told],
                cwd=ROOT,
                env=os.environ | {"TEST_LANE": "nightly"} | dict(self.environment),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            )
            tally = counted(result) if result.exists() else Tally()
        if done.returncode and not tally.faults:
            tally.faults.append(f"{self.module} ended with {done.returncode}")
        if tally.faults:
            tally.clues += done.stdout.splitlines()[-CLUE_LINES:]
        return tally


def counted(result: Path) -> Tally:
    """Return what a report of pytest, in the form of JUnit, says."""
    tally = Tally()
    for case in ET.parse(result).getroot().iter("testcase"):
        tally.points += 1
        for kind in ("failure", "error", "skipped"):
            if (found := case.find(kind)) is not None:
                name = f"{case.get('classname')}::{case.get('name')}"
                tally.faults.append(f"{kind}: {name}: {found.get('message', '')[:200]}")
    return tally


PROOFS = {
    "walks": Proof(
        "50,000 random operations, the same on every kind of store",
        ("tests/contract/test_store_random.py",),
    ),
    "lives": Proof(
        "20,000 moves in random lives of conversations, on each kind of store",
        ("tests/contract/test_conversation_lives.py",),
    ),
    "contract": Proof(
        "the contract of the stores, also on the newest Valkey, a Cluster and behind Sentinels",
        (
            "tests/contract",
            "--ignore=tests/contract/test_store_random.py",
            "--ignore=tests/contract/test_conversation_lives.py",
        ),
    ),
    "failover": Proof(
        "workers behind Sentinels whose master is killed", ("tests/faults/test_failover.py",)
    ),
    "policy model": Proof(
        "posts while a run goes on, against a model of the four policies",
        ("tests/faults/test_policy_model.py",),
    ),
    "properties": Proof("the unit tests, with twenty times the examples", ("tests/unit",)),
    "workers": Proof(
        "the end-to-end tests and the attacks, on each kind of store that workers can share",
        ("tests/e2e", "tests/attacks"),
    ),
    "plain sending": Proof(
        "the end-to-end tests and the attacks on servers that send by plain ASGI",
        ("tests/e2e", "tests/attacks"),
        environment={"TEST_DIRECT_SENDING": "false"},
    ),
    "benchmarks": Proof(
        "the servers of the benchmarks answer rightly",
        ("--check", "--redis-server", os.environ.get("TEST_REDIS_SERVER", "redis-server")),
        module="benchmarks",
    ),
}
"""By their names, which are no scenarios'."""
