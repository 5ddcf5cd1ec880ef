"""The Python client stops, leaves, and goes on elsewhere."""

import gc

import anyio
import pytest
from tests.e2e.workers import SECONDS, broken_off, held
from tests.support.model_server import ModelServer, calls, says
from tests.support.python_client import joined, until_text
from tests.support.server import Server

from passback_client import (
    Client,
    Refused,
    RunEnd,
    Text,
    Tool,
    ToolContext,
)

pytestmark = [pytest.mark.anyio, pytest.mark.measured]


# ---------------------------------------------------------------- stopping
async def test_cancel_stops_the_run_at_the_server(
    model: ModelServer, mine: Client, conversation: str
) -> None:
    model.play(broken_off("never ending"))
    stream = mine.send("go", conversation_id=conversation)
    assert not await stream.cancel()
    stream = mine.send("go", conversation_id=conversation)
    await until_text(stream)
    running = (await mine.conversation(conversation)).running
    assert running is not None
    assert running.run_id == stream.run_id
    assert await stream.cancel()
    ends = [event.outcome async for event in stream if isinstance(event, RunEnd)]
    assert ends == ["cancelled"]
    assert not await mine.cancel(conversation, run_id=stream.run_id)
    assert not await mine.cancel(conversation)
    with pytest.raises(Refused, match="run"):
        await mine.cancel(conversation, run_id="run_0")


async def test_cancel_stops_the_tools_that_run_and_leaves_their_calls_owed(
    model: ModelServer, mine: Client, conversation: str
) -> None:
    model.play(calls(("a", "slow", "{}")), says("At last."))
    begun, cancelled = anyio.Event(), anyio.Event()

    @mine.tool
    async def slow(context: ToolContext) -> str:
        begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            cancelled.set()
        return context.call.id

    stream = mine.send("go", conversation_id=conversation)

    async def stop() -> None:
        await begun.wait()
        assert not await stream.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stop)
        events = [event async for event in stream]
    assert isinstance(events[-1], RunEnd)
    assert cancelled.is_set()
    assert len((await mine.conversation(conversation)).owed) == 1


async def test_cancelling_the_reader_tells_plain_tools_and_another_process_can_go_on(
    model: ModelServer, played: Server, mine: Client, conversation: str
) -> None:
    model.play(calls(("a", "slow", "{}")), says("At last."))
    begun, cancelled = anyio.Event(), anyio.Event()

    @mine.tool
    def slow(context: ToolContext) -> str:
        anyio.from_thread.run_sync(begun.set)
        assert context.cancelled.wait(SECONDS)
        anyio.from_thread.run_sync(cancelled.set)
        return ""

    async def read() -> None:
        async for _ in mine.send("go", conversation_id=conversation):
            pass

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        await begun.wait()
        tasks.cancel_scope.cancel()
    await cancelled.wait()
    async with Client(played.url, tools=[Tool("slow", "", {}, lambda *_: "done")]) as other:
        events = [event async for event in other.resume(conversation)]
        assert joined(events) == "At last."
        assert [event async for event in other.resume(conversation)] == []


async def test_leaving_the_loop_closes_the_connection(
    model: ModelServer, mine: Client, conversation: str
) -> None:
    model.play(broken_off("never ending"))
    async for event in mine.send("go", conversation_id=conversation, on_disconnect="cancel"):
        if isinstance(event, Text):
            break
    gc.collect()
    await model.left.wait()  # nobody reads, so the run was cancelled


async def test_an_abandoned_stream_is_read_on_by_its_cursor(
    model: ModelServer, mine: Client, conversation: str
) -> None:
    gate = anyio.Event()
    model.play(held("one ", gate, "two"))
    async with mine.send("go", conversation_id=conversation) as stream:
        await until_text(stream)
        cursor = stream.cursor
    gate.set()
    rest = [event async for event in mine.resume(conversation, after=cursor)]
    assert joined(rest) == "two"
