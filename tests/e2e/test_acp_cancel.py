"""A cancelled prompt of ACP is answered `cancelled`, once, after all updates, whenever it comes."""

import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import TypeAlias

import anyio
import pytest
from tests.e2e.acp_stage import Stage, begin_session, call, later
from tests.support.acp_editor import Editor, choose, never
from tests.support.model_server import Act, ModelServer, Reply, event, says
from tests.support.waiting import pause

pytestmark = [pytest.mark.anyio, pytest.mark.node, pytest.mark.timeout(240)]

MOMENTS = 50
LONGEST = 0.03  # seconds: some turns are begun within, some are not
STALLS = Reply([event(content="So "), event(content="then"), Act.STALL])
PIECES = [f"{n} " for n in range(30)]

Moment: TypeAlias = Callable[[], Awaitable[None]]
Round: TypeAlias = Callable[[Stage, Moment], Awaitable[str]]


@pytest.fixture
async def stage(editor: Editor, model: ModelServer, tmp_path: Path) -> AsyncGenerator[Stage]:
    stage = await begin_session(editor, model, tmp_path)
    yield stage
    editor.check()


# ---------------------------------------------------------------- the situations
async def _right_behind_the_prompt(stage: Stage, moment: Moment) -> str:
    stage.model.play(STALLS)
    key = await stage.begin("Talk")
    await moment()
    await stage.cancel()
    return await stage.editor.stop_reason(key)


async def _while_it_asks_for_permission(stage: Stage, moment: Moment) -> str:
    stage.editor.handlers["session/request_permission"] = never
    stage.model.play(call("burn", parcel="it"), says("Not said."))
    key = await stage.begin("Burn it")
    await stage.editor.wait_for(lambda: bool(stage.asked("session/request_permission")))
    await moment()
    await stage.cancel()
    reason = await stage.editor.stop_reason(key)
    assert [each["status"] for each in stage.calls()] == ["failed"]
    return reason


async def _in_the_middle_of_a_tool(stage: Stage, moment: Moment) -> str:
    stage.editor.handlers["session/request_permission"] = choose("allow_once")
    stage.model.play(call("wait_forever"), says("Not said."))
    key = await stage.begin("Wait")
    await stage.update("tool_call_update", status="in_progress")
    await moment()
    await stage.cancel()
    reason = await stage.editor.stop_reason(key)
    assert [each["status"] for each in stage.calls()] == ["failed"]
    return reason


async def _with_nothing_running(stage: Stage, moment: Moment) -> str:
    await stage.cancel()
    await moment()
    stage.model.play(STALLS)
    key = await stage.begin("Talk")
    await stage.update("agent_message_chunk")
    assert not stage.editor.is_answered(key)
    await stage.cancel()
    reason = await stage.editor.stop_reason(key)
    await stage.cancel()
    return reason


async def _twice(stage: Stage, moment: Moment) -> str:
    stage.model.play(STALLS)
    key = await stage.begin("Talk")
    await moment()
    await stage.cancel()
    await moment()
    await stage.cancel()
    return await stage.editor.stop_reason(key)


@pytest.mark.parametrize(
    "situation",
    [
        _right_behind_the_prompt,
        _while_it_asks_for_permission,
        _in_the_middle_of_a_tool,
        _with_nothing_running,
        _twice,
    ],
)
async def test_a_cancel_at_any_moment_is_answered_once_and_spoils_nothing(
    stage: Stage, situation: Round
) -> None:
    moments = random.Random(situation.__name__)

    async def moment() -> None:
        await pause(moments.choice((0, moments.uniform(0, LONGEST))))

    for number in range(MOMENTS):
        assert await situation(later(stage), moment) == "cancelled"
        stage.model.play(says(f"Answer {number}."))
        after = later(stage)
        assert await after.prompt("Are you there?") == "end_turn"
        assert after.text == f"Answer {number}."
    stage.editor.check()


async def test_a_cancel_in_the_middle_of_a_text_keeps_what_was_said(stage: Stage) -> None:
    moments = random.Random("text")
    whole, reasons = "".join(PIECES), set[str]()
    for _ in range(MOMENTS):
        spaced = [step for piece in PIECES for step in (event(content=piece), 0.001)]
        stage.model.play(Reply([*spaced, event("stop"), b"data: [DONE]\n\n"]))
        turn = later(stage)
        key = await turn.begin("Count")
        await pause(moments.uniform(0, 0.1))
        await turn.cancel()
        reason = await stage.editor.stop_reason(key)
        reasons.add(reason)
        assert whole.startswith(turn.text)
        assert reason == "cancelled" or (reason, turn.text) == ("end_turn", whole)
        stage.model.play(says("Yes."))
        assert await stage.prompt("Are you there?") == "end_turn"
        assert turn.text.removesuffix("Yes.").strip() in str(stage.model.requests[-1].shown)
    assert "cancelled" in reasons
    stage.editor.check()


async def test_a_cancel_ends_the_models_answer(stage: Stage) -> None:
    stage.model.play(STALLS)
    key = await stage.begin("Talk")
    await stage.update("agent_message_chunk")
    await stage.cancel()
    assert await stage.editor.stop_reason(key) == "cancelled"
    with anyio.fail_after(5):
        await stage.model.left.wait()


async def test_a_cancel_answers_all_prompts_of_its_session_and_none_of_another(
    stage: Stage,
) -> None:
    other = await begin_session(stage.editor, stage.model, stage.folder)
    stage.model.play(STALLS)
    keys = [await stage.begin(f"Number {n}") for n in range(3)]
    foreign = await other.begin("Talk")
    await stage.update("agent_message_chunk")
    await other.update("agent_message_chunk")
    await stage.cancel()
    assert [await stage.editor.stop_reason(key) for key in keys] == ["cancelled"] * 3
    assert not stage.editor.is_answered(foreign)
    await other.cancel()
    assert await stage.editor.stop_reason(foreign) == "cancelled"


async def test_a_cancel_in_the_middle_of_a_command_kills_and_releases_its_terminal(
    stage: Stage,
) -> None:
    stage.workspace.output = None
    stage.model.play(call("run_command", command="make"), says("Not said."))
    key = await stage.begin("Build it")
    await stage.editor.wait_for(lambda: bool(stage.asked("terminal/wait_for_exit")))
    await stage.cancel()
    assert await stage.editor.stop_reason(key) == "cancelled"
    assert len(stage.asked("terminal/release")) == 1
    assert stage.workspace.terminals == {}
    assert [each["status"] for each in stage.calls()] == ["failed"]


async def test_closing_a_session_cancels_its_prompt_first(stage: Stage) -> None:
    stage.model.play(STALLS)
    key = await stage.begin("Talk")
    await stage.update("agent_message_chunk")
    closing = await stage.editor.begin("session/close", sessionId=stage.session)
    assert await stage.editor.stop_reason(key) == "cancelled"
    assert await stage.editor.result(closing) == {}


async def test_a_cancelled_request_is_answered_all_the_same(stage: Stage) -> None:
    stage.model.play(STALLS)
    key = await stage.begin("Talk")
    await stage.update("agent_message_chunk")
    await stage.editor.notify("$/cancel_request", requestId=key)
    answer = await stage.editor.answer(key)
    if "error" in answer:
        assert answer["error"]["code"] == -32800
    else:
        assert answer["result"] == {"stopReason": "cancelled"}
    stage.model.play(says("Yes."))
    assert await stage.prompt("Are you there?") == "end_turn"
