"""Python clients that share a conversation of a real server: who runs a call."""

import signal
import subprocess
import sys
from typing import Any

import anyio
import httpx
import pytest
from tests.e2e.workers import SECONDS
from tests.support.python_client import BRISK, QUICK, answers_in, collect, joined, of_kind, order
from tests.support.server import Server
from tests.support.wire import Client as RawClient
from tests.support.wire import client_tool, user
from typing_extensions import override

from passback_client import (
    Client,
    Event,
    Tool,
    ToolAnswer,
    ToolContext,
)

pytestmark = [pytest.mark.anyio, pytest.mark.measured]

PAINT = client_tool("paint")


class Watching(httpx.AsyncBaseTransport):
    """Tells when the server has refused a claim."""

    def __init__(self) -> None:
        self.refused = anyio.Event()
        self._network = httpx.AsyncHTTPTransport()

    @override
    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response = await self._network.handle_async_request(request)
        if request.url.path.endswith("/claim") and response.status_code == 409:
            self.refused.set()
        return response

    @override
    async def aclose(self) -> None:
        await self._network.aclose()


class Painter:
    """A tool that counts, and paints when it is let."""

    def __init__(self) -> None:
        self.painted: list[str] = []
        self.begun = anyio.Event()
        self.let = anyio.Event()

    async def __call__(self, _: object, context: ToolContext) -> str:
        self.painted.append(context.call.id)
        self.begun.set()
        await self.let.wait()
        return "blue"


def painting(painter: Painter) -> list[Tool]:
    return [Tool("paint", "", {"type": "object"}, painter)]


async def test_a_tool_of_two_clients_in_one_conversation_runs_once(
    asking: Server, conversation: str
) -> None:
    painter, watching = Painter(), Watching()
    mine: list[Event] = []
    theirs: list[Event] = []
    how: Any = {"retry": BRISK, "tools": painting(painter)}
    with anyio.fail_after(SECONDS):
        async with (
            Client(asking.url, **how) as one,
            Client(asking.url, **how, transport=watching) as other,
            anyio.create_task_group() as tasks,
        ):
            asked = one.send(order(["paint", "{}"]), conversation_id=conversation)
            tasks.start_soon(collect, asked, mine)
            await painter.begun.wait()
            tasks.start_soon(collect, other.resume(conversation), theirs)
            await watching.refused.wait()
            painter.let.set()
    assert len(painter.painted) == 1
    assert [len(of_kind(events, ToolAnswer)) for events in (mine, theirs)] == [1, 0]
    assert [joined(events) for events in (mine, theirs)] == ["Done.", "Done."]


async def test_a_claim_is_renewed_for_as_long_as_the_tool_runs_and_gone_with_a_client_that_leaves(
    asking: Server, raw_asking: RawClient, conversation: str
) -> None:
    painter = Painter()
    with anyio.fail_after(SECONDS):
        async with Client(asking.url, retry=BRISK, tools=painting(painter)) as client:

            async def claimed_until() -> Any:
                [owed] = (await raw_asking.conversation(conversation))["owed"]
                return owed["claimedUntil"]

            async with anyio.create_task_group() as tasks:
                asked = client.send(order(["paint", "{}"]), conversation_id=conversation)
                tasks.start_soon(collect, asked, [])
                await painter.begun.wait()
                first = await claimed_until()
                while await claimed_until() in {first, None}:
                    pass
                tasks.cancel_scope.cancel()
            assert await claimed_until() is None
            painter.let.set()
            assert joined([event async for event in client.resume(conversation)]) == "Done."
    assert len(painter.painted) == 2


AT_WORK = """
import asyncio, signal, sys
from passback_client.sync import Client
# in the background the tests' processes ignore the signal
signal.signal(signal.SIGINT, signal.default_int_handler)
url, conversation, message = sys.argv[1:]
with Client(url) as client:
    @client.tool
    async def paint() -> str:
        print("begun", flush=True)
        await asyncio.sleep(3600)
        return "never"
    client.ask(message, conversation_id=conversation)
"""


async def test_ctrl_c_gives_the_claims_of_the_plain_client_back(
    asking: Server, raw_asking: RawClient, conversation: str
) -> None:
    arguments = [asking.url, conversation, order(["paint", "{}"])]
    command = [sys.executable, "-c", AT_WORK, *arguments]
    with anyio.fail_after(SECONDS):
        async with await anyio.open_process(command, stderr=subprocess.DEVNULL) as process:
            assert process.stdout is not None
            assert (await process.stdout.receive()).startswith(b"begun")
            [owed] = (await raw_asking.conversation(conversation))["owed"]
            assert owed["claimedUntil"] is not None
            process.send_signal(signal.SIGINT)
            assert await process.wait() != 0
    [owed] = (await raw_asking.conversation(conversation))["owed"]
    assert owed["claimedUntil"] is None


async def test_a_call_is_run_when_the_claim_of_another_client_lapses(
    asking: Server, raw_asking: RawClient, conversation: str
) -> None:
    call = (await raw_asking.post(conversation, user(order(["paint", "{}"])), tools=[PAINT])).call
    path = f"/conversations/{conversation}/tool-calls/{call.id}/claim"
    claimed = await raw_asking.http.post(path, json={"claimant": "gone", "seconds": 1})
    assert claimed.status_code == 200
    painter, watching = Painter(), Watching()
    painter.let.set()
    how: Any = {"retry": QUICK, "tools": painting(painter), "transport": watching}
    with anyio.fail_after(SECONDS):
        async with Client(asking.url, **how) as client:
            events = [event async for event in client.resume(conversation)]
    assert watching.refused.is_set()
    assert (painter.painted, joined(events)) == ([call.id], "Done.")


@pytest.mark.promise("P9")
async def test_without_claims_both_run_the_tool_and_the_first_result_counts(
    asking: Server, raw_asking: RawClient, conversation: str
) -> None:
    first, second = Painter(), Painter()
    mine: list[Event] = []
    with anyio.fail_after(SECONDS):
        async with (
            Client(asking.url, tools=painting(first), claims=False) as one,
            Client(asking.url, tools=[slow(second)], claims=False) as other,
            anyio.create_task_group() as tasks,
        ):
            asked = one.send(order(["paint", "{}"]), conversation_id=conversation)
            tasks.start_soon(collect, asked, mine)
            await first.begun.wait()
            second.let.set()
            theirs = [event async for event in other.resume(conversation)]
            first.let.set()
    assert (len(first.painted), len(second.painted)) == (1, 1)
    assert [len(of_kind(events, ToolAnswer)) for events in (mine, theirs)] == [0, 1]
    assert [joined(events) for events in (mine, theirs)] == ["Done.", "Done."]
    assert await answers_in(raw_asking, conversation) == [("tool", "red")]


def slow(painter: Painter) -> Tool:
    async def paint(arguments: object, context: ToolContext) -> str:
        await painter(arguments, context)
        return "red"

    return Tool("paint", "", {"type": "object"}, paint)
