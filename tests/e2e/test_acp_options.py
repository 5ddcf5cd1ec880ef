"""Options of a session in an editor, and its cost: what is set, and what reaches the model."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.acp_stage import Stage, begin_session, later, opened_editor
from tests.support.acp_editor import AcpError, Editor
from tests.support.acp_schema import Json
from tests.support.model_server import DONE, ModelServer, Reply, event, fails, says

pytestmark = [pytest.mark.anyio, pytest.mark.node]

AGENT = "tests.support.acp_agents:thinker"


@pytest.fixture(scope="module")
async def editor(
    model: ModelServer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[Editor]:
    folder = tmp_path_factory.mktemp("agent")
    async with opened_editor(
        model,
        folder,
        agent=AGENT,
        PASSBACK_PRICES="openai:mock=1000/10000",
        PASSBACK_ACP_CURRENCY="EUR",
    ) as editor:
        yield editor


@pytest.fixture
async def stage(editor: Editor, model: ModelServer, tmp_path: Path) -> AsyncGenerator[Stage]:
    stage = await begin_session(editor, model, tmp_path)
    yield stage
    editor.check()


async def choose_option(stage: Stage, option: str, value: str) -> dict[str, Any]:
    """Set an option, and return the values of all."""
    answer = await stage.editor.request(
        "session/set_config_option", sessionId=stage.session, configId=option, value=value
    )
    return {each["id"]: each["currentValue"] for each in answer["configOptions"]}


async def loaded_values(stage: Stage) -> dict[str, Any]:
    answer = await stage.editor.request(
        "session/load", sessionId=stage.session, cwd=str(stage.folder), mcpServers=[]
    )
    return {each["id"]: each["currentValue"] for each in answer["configOptions"]}


# ---------------------------------------------------------------- effort
async def test_the_chosen_effort_reaches_the_model_from_the_next_prompt_on(stage: Stage) -> None:
    stage.model.play(says("Short."), says("Long."), says("Still long."))
    assert await stage.prompt("Think") == "end_turn"
    assert (await choose_option(stage, "effort", "high"))["effort"] == "high"
    assert await stage.prompt("Think hard") == "end_turn"
    assert (await choose_option(stage, "mode", "plan"))["effort"] == "high"
    assert (await loaded_values(stage))["effort"] == "high"
    assert await stage.prompt("Go on") == "end_turn"
    asked = [each.json["reasoning_effort"] for each in stage.model.requests]
    assert asked == ["medium", "high", "high"]


@pytest.mark.parametrize("value", ["xhigh", "", "HIGH", 2, True])
async def test_an_effort_that_is_not_offered_is_refused(stage: Stage, value: Any) -> None:
    with pytest.raises(AcpError) as refused:
        await choose_option(stage, "effort", value)
    assert refused.value.code == -32602
    assert (await loaded_values(stage))["effort"] == "medium"


async def test_an_agent_without_an_effort_offers_none(model: ModelServer, tmp_path: Path) -> None:
    async with opened_editor(model, tmp_path) as editor:
        stage = await begin_session(editor, model, tmp_path)
        assert "effort" not in await loaded_values(stage)
        with pytest.raises(AcpError) as refused:
            await choose_option(stage, "effort", "high")
        assert refused.value.code == -32602


# ---------------------------------------------------------------- cost
def used(text: str, given: int, answered: int) -> Reply:
    """A reply for which the service reports its tokens."""
    usage = {"prompt_tokens": given, "completion_tokens": answered}
    return Reply([event(content=text), event("stop"), {"choices": [], "usage": usage}, DONE])


def costs(stage: Stage) -> list[Json | None]:
    """Return the cost of each update of the usage, None for those without."""
    return [each.get("cost") for each in stage.updates if each["sessionUpdate"] == "usage_update"]


async def test_the_last_update_of_the_usage_has_the_cost_of_the_whole_session(
    stage: Stage,
) -> None:
    stage.model.play(used("One.", 30, 4), used("Two.", 50, 2))
    assert await stage.prompt("One") == "end_turn"
    first = {"amount": 0.07, "currency": "EUR"}
    assert costs(stage) == [None, first]
    stage = later(stage)
    assert await stage.prompt("Two") == "end_turn"
    assert costs(stage) == [first, {"amount": 0.14, "currency": "EUR"}]


async def test_the_cost_comes_before_the_answer_also_of_a_prompt_that_fails(
    stage: Stage,
) -> None:
    stage.model.play(used("One.", 30, 4), fails(400))
    key = await stage.begin("One")
    assert await stage.editor.stop_reason(key) == "end_turn"
    frames = [frame.message for frame in stage.editor.frames[stage.start :]]
    [told] = [n for n, each in enumerate(frames) if "EUR" in str(each)]
    assert told < next(
        n for n, each in enumerate(frames) if each.get("id") == key and "result" in each
    )
    stage = later(stage)
    with pytest.raises(AcpError):
        await stage.prompt("Two")
    assert costs(stage) == []  # it has cost nothing more
