"""An agent that calls ten read-only tools of 100 ms at once, and a client that asks it.

    passback serve benchmarks.ten_tools:agent
    python -m benchmarks.ten_tools --url http://127.0.0.1:9200 --requests 20

The client prints a JSON list: for each request the milliseconds from the last end of a call to the
last result.
"""

import argparse
import json
import time
from asyncio import Future

import anyio
import uvloop
from typing_extensions import override

from benchmarks.client import Connection, Reply, new_conversation_id
from passback import Agent, tool
from passback.testing import ScriptedModel, calls, says

CALLS = 10
TOOL_SECONDS = 0.1


@tool(read_only=True)
async def look_up(word: str) -> str:
    """Look a word up."""
    await anyio.sleep(TOOL_SECONDS)
    return f"{word}: found"


_script = [calls(*(("look_up", {"word": f"word {n}"}) for n in range(CALLS))), says("done")]
agent = Agent(model=ScriptedModel(_script, per_message=True), tools=[look_up])


class ToolTimer(Connection):
    """A connection that notes when all calls of an answer had ended, and all had their results."""

    calls_ended = results_came = 0.0

    @override
    def ask(self, prompt: str, conversation: str) -> Future[Reply]:
        self.calls_ended = self.results_came = 0.0
        return super().ask(prompt, conversation)

    @override
    def data_received(self, data: bytes) -> None:
        now = time.perf_counter()
        super().data_received(data)
        if not self.calls_ended and self.body.count(b'"type":"tool-call-end"') == CALLS:
            self.calls_ended = now
        if not self.results_came and self.body.count(b'"type":"tool-result"') == CALLS:
            self.results_came = now


async def measure(url: str, requests: int) -> list[float]:
    """Ask, one request after the other.

    Raises:
        SystemExit: an answer has not all the results.
    """
    connection = await ToolTimer.open(url)
    taken: list[float] = []
    for _ in range(requests):
        await connection.ask("look", new_conversation_id())
        if not (connection.calls_ended and connection.results_came):
            raise SystemExit(f"the answer has not all the results: {connection.body[-300:]!r}")
        taken.append((connection.results_came - connection.calls_ended) * 1000)
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(description="ten tools at once")
    parser.add_argument("--url", required=True)
    parser.add_argument("--requests", type=int, required=True)
    options = parser.parse_args()
    print(json.dumps(uvloop.run(measure(options.url, options.requests))))


if __name__ == "__main__":
    main()
