"""Asks an agent that calls ten tools at once, and measures how long all of them take together.

    python -m benchmarks.tools --url http://127.0.0.1:9200 --requests 20

Prints a JSON list: for each request the milliseconds from the last end of a call to the last result, at the client.
The agent is `benchmarks.ten_tools`.
"""

import argparse
import asyncio
import json
import time
from urllib.parse import urlsplit

import uvloop
from typing_extensions import override

from benchmarks.client import WIRE, Connection, Reply, new_conversation, request_bytes
from benchmarks.ten_tools import CALLS

_END, _RESULT = b'"type":"tool-call-end"', b'"type":"tool-result"'


class Watch(Connection):
    """Notes when all calls of an answer had ended, and when all had their results."""

    called = resulted = 0.0

    @override
    def ask(self, request: bytes) -> "asyncio.Future[Reply]":
        self.called = self.resulted = 0.0
        return super().ask(request)

    @override
    def data_received(self, data: bytes) -> None:
        now = time.perf_counter()
        super().data_received(data)
        if not self.called and self.body.count(_END) == CALLS:
            self.called = now
        if not self.resulted and self.body.count(_RESULT) == CALLS:
            self.resulted = now


async def measure(url: str, requests: int) -> list[float]:
    """Raises SystemExit for an answer that has not all the results."""
    address = urlsplit(url)
    assert address.hostname is not None
    assert address.port is not None
    loop = asyncio.get_running_loop()
    _, watch = await loop.create_connection(lambda: Watch(WIRE), address.hostname, address.port)
    taken: list[float] = []
    for _ in range(requests):
        await watch.ask(request_bytes(WIRE, address.netloc, "look", new_conversation()))
        if not (watch.called and watch.resulted):
            raise SystemExit(f"the answer has not all the results: {watch.body[-300:]!r}")
        taken.append((watch.resulted - watch.called) * 1000)
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(description="ten tools at once")
    parser.add_argument("--url", required=True)
    parser.add_argument("--requests", type=int, required=True)
    options = parser.parse_args()
    print(json.dumps(uvloop.run(measure(options.url, options.requests))))


if __name__ == "__main__":
    main()
