"""Measure the start of `passback acp`: from the start of the process to its first answer.

    python -m benchmarks.acp_start --rounds 10

Prints one JSON object: the median of the seconds, of the CPU seconds of the whole process, and of
the CPU seconds of a process that imports pydantic and anyio and does nothing.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence

_REQUEST = b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}\n'
_ACP = ["-m", "passback", "acp", "--no-env-file", "--store", "memory:"]
_IMPORTS = ["-c", "import pydantic, anyio"]


def run(arguments: Sequence[str], sent: bytes) -> tuple[float, float]:
    """Run Python until its first line, or its end; return the seconds, and its CPU seconds."""
    before = _children_seconds()
    began = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(sent)
        process.stdin.flush()
        answer = process.stdout.readline()
        seconds = time.perf_counter() - began
        process.stdin.close()
    if sent and b'"result"' not in answer:
        raise RuntimeError(f"no answer: {answer!r}")
    return seconds, _children_seconds() - before


def _children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description="the start of passback acp")
    parser.add_argument("--rounds", type=int, default=10)
    rounds = range(parser.parse_args().rounds)
    starts = [run(_ACP, _REQUEST) for _ in rounds]
    imports = [run(_IMPORTS, b"") for _ in rounds]
    median = {
        "seconds": statistics.median(seconds for seconds, _ in starts),
        "cpu_seconds": statistics.median(cpu for _, cpu in starts),
        "cpu_seconds_of_imports": statistics.median(cpu for _, cpu in imports),
    }
    print(json.dumps({name: round(value, 3) for name, value in median.items()}))


if __name__ == "__main__":
    main()
