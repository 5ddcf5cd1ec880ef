"""A conversation with an agent from Python, without HTTP."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from passback.agent import Agent
from passback.core.deltas import UsageChunk
from passback.core.errors import ConfigurationError, UnknownToolCall
from passback.core.events import Completed, HandedBack, RunEvent, RunFinished, TextDelta
from passback.core.messages import ToolSpec, Usage
from passback.core.permissions import LastingPermission, declaration_digest
from passback.core.state import ConversationState
from passback.models.scripted import ScriptedModel, calls, says
from passback.session import Session
from passback.toolsets.functions import FunctionTools, tool

pytestmark = pytest.mark.anyio

PAINT = ToolSpec("paint", "", {"type": "object"})


def text(said: Sequence[RunEvent]) -> str:
    return "".join(event.text for event in said if isinstance(event, TextDelta))


async def test_an_agent_answers_and_remembers() -> None:
    model = ScriptedModel([says("Hello."), says("You said hi.")])
    with anyio.fail_after(10):
        async with Session(Agent(model=model)) as session:
            first = [event async for event in session.submit("hi")]
            second = [event async for event in session.submit("what did I say?")]
            messages = await session.messages()
    assert (text(first), first[-1]) == ("Hello.", RunFinished(Completed()))
    assert text(second) == "You said hi."
    assert [message.role for message in messages] == ["user", "assistant"] * 2
    assert len(model.requests[1].messages) == 3


async def test_a_session_without_a_context_keeps_its_conversation_in_its_store(
    tmp_path: Path,
) -> None:
    store = f"sqlite:///{tmp_path}/talks.db"
    model = ScriptedModel([says("Hello."), says("Again.")])
    agent = Agent(model=model)
    with anyio.fail_after(10):
        session = Session(agent, store=store, conversation="c")
        assert text([event async for event in session.submit("hi")]) == "Hello."
        assert text([event async for event in session.submit("hi")]) == "Again."
        async with Session(agent, store=store, conversation="c") as other:
            assert other.conversation_id == "c"
            assert len(await other.messages()) == 4
    assert len(model.requests[1].messages) == 3


async def test_what_is_owed_is_answered_by_the_caller() -> None:
    @tool(permission="ask")
    def erase() -> str:
        return "erased"

    script = [calls(("paint", {}), ("paint", {})), calls(("erase", {})), says("done")]
    with anyio.fail_after(10):
        agent = Agent(model=ScriptedModel(script), tools=[erase])
        async with Session(agent, tools=[PAINT]) as session:
            assert await session.owed() == ()
            said = [event async for event in session.submit("go")]
            finished = said[-1]
            assert isinstance(finished, RunFinished)
            assert isinstance(finished.outcome, HandedBack)
            first, second = await session.owed()
            assert finished.outcome.owed == (first, second)
            assert [event async for event in session.answer(first.id, "blue")] == []
            async for _ in session.answer(second.id, "no paint", is_error=True):
                pass
            [approval] = await session.owed()
            assert approval.kind == "approval"
            said = [event async for event in session.decide(approval.id, approved=True)]
            assert text(said) == "done"


async def test_a_run_that_is_left_goes_on_until_it_is_cancelled() -> None:
    gate = anyio.Event()
    model = ScriptedModel([["a", gate, *says("b")], says("c")])
    with anyio.fail_after(10):
        async with Session(Agent(model=model)) as session:
            assert not await session.cancel()
            submission = session.submit("hi")
            async for event in submission:
                if isinstance(event, TextDelta):
                    break
            await submission.aclose()
            assert model.open_streams == 1
            assert await session.cancel()
            while model.open_streams:
                await anyio.lowlevel.checkpoint()
            assert not await session.cancel()


async def test_a_message_that_is_not_taken_raises_where_it_is_iterated() -> None:
    with anyio.fail_after(10):
        async with Session(Agent(model=ScriptedModel([]))) as session:
            with pytest.raises(UnknownToolCall):
                await anext(session.answer("call_x", "blue"))
            assert await session.messages() == ()


async def test_mistakes_are_told_where_they_are_made(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="PASSBACK_STORE"):
        Session(Agent(), store="nonsense:")
    with pytest.raises(ConfigurationError, match="PASSBACK_MAX_TURNS"):
        Session(Agent(), settings={"MAX_TURNS": "x"})
    session = Session(Agent())
    with pytest.raises(RuntimeError, match="async with"):
        await session.owed()
    (tmp_path / "file").touch()
    with anyio.fail_after(10), pytest.raises(ConfigurationError):
        async with Session(Agent(), store=f"sqlite:///{tmp_path}/file/talks.db"):
            pass
    session = Session(Agent(), store=f"sqlite:///{tmp_path}/file/talks.db")
    with anyio.fail_after(10), pytest.raises(ConfigurationError):
        await anext(session.submit("hi"))


async def test_the_state_of_a_session_is_one_value() -> None:
    @tool(permission="ask")
    def erase() -> str:
        return "erased"

    async def read(said: AsyncIterator[RunEvent]) -> None:
        async for _ in said:
            pass

    script = [calls(("erase", {})), says("kept"), calls(("erase", {})), says("kept")]
    used = UsageChunk(Usage(1000, 100))
    agent = Agent(model=ScriptedModel([[used, *each] for each in script]), tools=[erase])
    [spec] = await FunctionTools([erase]).specs()
    never = LastingPermission("erase", declaration_digest(spec), False, "No.")
    settings = {"prices": "scripted=2/8"}
    with anyio.fail_after(10):
        async with Session(agent, settings=settings) as session:
            assert await session.state() == ConversationState()
            await session.retract("erase")
            await read(session.submit("go", structured_data=[{"a": 1}]))
            [owed] = await session.owed()
            await read(session.decide(owed.id, approved=False, reason="No.", always=True))
            await read(session.submit("again"))
            state = await session.state()
            assert [each.tool for each in state.refusals] == ["erase", "erase"]
            assert replace(state, refusals=(), seconds=0) == ConversationState(
                usage=Usage(4000, 400), cost=0.0112, permissions=(never,), data=[{"a": 1}]
            )
            await session.retract("erase")
            assert (await session.state()).permissions == ()
