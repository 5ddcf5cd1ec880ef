"""What tools tell of their progress reaches readers, from any thread, in bounds, and only while the call goes on."""

from collections.abc import AsyncIterator, Iterator, Sequence
from threading import Thread

import anyio.to_thread
import pytest
from tests.support.killable_worker import Faults
from tests.support.runs import events, post, says, worker

from passback.core.events import RunEvent, ToolProgressed, ToolResulted
from passback.core.ports import Store
from passback.core.toolsets import ToolContext
from passback.engine.children import CallContext
from passback.models.scripted import ScriptedModel, calls
from passback.models.scripted import says as words
from passback.toolsets.functions import FunctionTool, tool

pytestmark = pytest.mark.anyio


def told(said: Sequence[RunEvent]) -> list[str]:
    return [event.text for event in said if isinstance(event, ToolProgressed)]


async def said_while(store: Store, does: FunctionTool) -> list[str]:
    """What readers are told while a model calls the tool."""
    script = ScriptedModel([calls((does.spec.name, {})), words("done")])
    async with worker(store, script, does) as runs:
        return told(await events(runs, await post(runs, says())))


async def test_a_function_in_a_thread_tells_of_its_progress(memory: Store) -> None:
    @tool
    def count(context: ToolContext) -> str:
        """Count."""
        context.progress("one \ud83d")
        context.progress("two, at once")
        return "counted"

    assert await said_while(memory, count) == ["one \ufffd"]


@pytest.mark.parametrize("value", ["half \ud83d", ["half \ud83d"]])
async def test_progress_and_results_have_the_same_for_half_a_character(
    memory: Store, value: object
) -> None:
    @tool
    async def halve() -> AsyncIterator[object]:
        """Halve a character, twice."""
        yield value
        yield value

    script = ScriptedModel([calls(("halve", {})), words("done")])
    async with worker(memory, script, halve) as runs:
        said = await events(runs, await post(runs, says()))
    results = [event.content for event in said if isinstance(event, ToolResulted)]
    mended = "half \ufffd" if isinstance(value, str) else '["half \ufffd"]'
    assert (told(said), results) == ([mended], [mended])


async def test_words_have_a_length(memory: Store) -> None:
    @tool
    async def read(context: ToolContext) -> str:
        """Read."""
        context.progress("a" * 2000)
        return "read"

    assert await said_while(memory, read) == ["a" * 1000]


@pytest.mark.promise("P11")
async def test_what_a_generator_yields_is_told_in_the_same_bounds(memory: Store) -> None:
    @tool
    async def count() -> AsyncIterator[str]:
        """Count, and never wait."""
        for number in range(1000):
            yield f"number {number}"
        yield "counted"

    @tool
    def count_in_a_thread() -> Iterator[str]:
        """Count there."""
        for number in range(20_000):
            yield f"number {number}"
        yield "counted"

    script = ScriptedModel([calls(("count", {}), ("count_in_a_thread", {})), words("done")])
    async with worker(memory, script, count, count_in_a_thread) as runs:
        said = await events(runs, await post(runs, says()))
    results = [event for event in said if isinstance(event, ToolResulted)]
    assert [(event.content, event.is_error) for event in results] == [("counted", False)] * 2
    steps = told(said)
    assert steps.count("number 0") == 2
    assert len(steps) < 200


async def test_after_its_end_a_call_tells_nothing(memory: Store) -> None:
    kept: list[ToolContext] = []

    @tool
    async def leave(context: ToolContext) -> str:
        """Leave the context to others."""
        kept.append(context)
        return "left"

    @tool
    async def meddle() -> str:
        """Use the context of the other call."""
        kept[0].progress("from here")
        await anyio.to_thread.run_sync(kept[0].progress, "from a thread")
        return "meddled"

    script = ScriptedModel([calls(("leave", {}), ("meddle", {})), words("done")])
    async with worker(memory, script, leave, meddle) as runs:
        assert told(await events(runs, await post(runs, says()))) == []


async def test_words_that_are_on_their_way_when_the_call_ends_are_not_told(memory: Store) -> None:
    @tool
    async def hurry(context: ToolContext) -> str:
        """Tell from a thread, and be over before that is heard."""
        thread = Thread(target=context.progress, args=("too late",))
        thread.start()
        while thread.is_alive():
            pass  # the event loop hears nothing meanwhile
        assert isinstance(context, CallContext)
        context.ended()
        return "hurried"

    assert await said_while(memory, hurry) == []


async def test_what_is_told_while_a_result_is_being_stored_comes_behind_it(memory: Store) -> None:
    faults = Faults(memory)
    storing, heard = anyio.Event(), anyio.Event()

    async def the_result() -> None:
        storing.set()
        await heard.wait()

    async def the_turn() -> None:
        faults.first["commit"] = the_result

    faults.first["commit"] = the_turn

    @tool(read_only=True)
    async def quick() -> str:
        """Be done at once."""
        return "done"

    @tool(read_only=True)
    async def slow(context: ToolContext) -> str:
        """Tell of it while the other one's result is on its way to the store."""
        await storing.wait()
        context.progress("meanwhile")
        heard.set()
        return "done, too"

    script = ScriptedModel([calls(("quick", {}), ("slow", {})), words("so")])
    async with worker(faults.store, script, quick, slow) as runs:
        said = await events(runs, await post(runs, says()))
    kinds = [type(event) for event in said if isinstance(event, ToolResulted | ToolProgressed)]
    assert kinds == [ToolResulted, ToolProgressed, ToolResulted]
