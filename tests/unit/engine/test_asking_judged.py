"""A call of `ask_user`: when it is owed as a question, and when it goes back to the model."""

from dataclasses import replace

import pytest
from pydantic import JsonValue
from tests.support.runs import (
    PAINT,
    call_ids,
    events,
    outcome,
    post,
    record,
    reply,
    result,
    says,
    worker,
)
from tests.unit.engine.counted_tools import CountedTools, answers_in, one_of

from passback.core.errors import ToolNameClash
from passback.core.events import (
    HandedBack,
    ToolCallEnded,
    ToolResulted,
)
from passback.core.messages import AssistantMessage, DataPart
from passback.core.ports import Store
from passback.core.questions import ASK_USER
from passback.models.scripted import ScriptedModel, calls
from passback.models.scripted import says as words

pytestmark = pytest.mark.anyio


FORM: dict[str, JsonValue] = {
    "questions": [{"question": "?", "options": [{"label": "a"}], "freeText": False}]
}


@pytest.mark.parametrize("declared", [True, False], ids=["declared", "offered by the agent"])
async def test_a_call_of_ask_user_is_owed_as_a_question(store: Store, declared: bool) -> None:
    model = ScriptedModel([calls(("ask_user", FORM)), words("so")])
    offers = [] if declared else [ASK_USER]
    async with worker(store, model, offers=offers) as runs:
        run = await post(runs, says(), tools=[ASK_USER] if declared else None)
        ending = await outcome(runs, run)
        assert isinstance(ending, HandedBack)
        assert [(each.name, each.kind) for each in ending.owed] == [("ask_user", "question")]
        (call_id,) = await call_ids(runs)
        assert ToolCallEnded(call_id) in await events(runs, run)
        answer = (DataPart({"answers": [{"selected": ["a"]}]}),)
        assert await reply(runs, result(call_id, answer)) == "so"
    assert ASK_USER in model.requests[0].tools


async def test_a_clients_own_ask_user_is_a_tool_like_any_other(memory: Store) -> None:
    own = PAINT.__class__("ask_user", "Mine.", PAINT.parameters)
    model = ScriptedModel([calls(("ask_user", {"any": 1})), words("so")])
    async with worker(memory, model, offers=[ASK_USER]) as runs:
        ending = await outcome(runs, await post(runs, says(), tools=[own]))
        assert isinstance(ending, HandedBack)
        assert [each.kind for each in ending.owed] == ["tool_result"]
        assert await reply(runs, result(ending.owed[0].id, "whatever")) == "so"
    assert model.requests[0].tools == (own,)


@pytest.mark.promise("P4")
async def test_questions_that_do_not_fit_the_schema_are_told_to_the_model(memory: Store) -> None:
    bad: dict[str, JsonValue] = {"questions": [{"question": "?", "options": ["a"]}]}
    model = ScriptedModel([calls(("ask_user", bad)), words("sorry")])
    async with worker(memory, model, offers=[ASK_USER]) as runs:
        assert await reply(runs, says()) == "sorry"
        [answer] = await answers_in(runs)
    assert answer.synthetic == "invalid"
    assert "at $.questions[0].options[0]" in str(answer.content)


UNANSWERABLE: dict[str, tuple[dict[str, JsonValue], str]] = {
    "two options of one name": (
        {"questions": [{"question": "?", "options": [{"label": "a"}, {"label": "a"}]}]},
        "at $.questions[0].options[1].label: another option of this question has the same label",
    ),
    "nothing to choose, and no words": (
        {"questions": [{"question": "?"}, {"question": "?", "freeText": False}]},
        "at $.questions[1].freeText: it is false, and there are no options: nothing could be answered",
    ),
}


@pytest.mark.promise("P4")
@pytest.mark.parametrize(("form", "told"), UNANSWERABLE.values(), ids=UNANSWERABLE)
async def test_questions_that_nobody_could_answer_go_back_to_the_model(
    memory: Store, form: dict[str, JsonValue], told: str
) -> None:
    model = ScriptedModel([calls(("ask_user", form)), calls(("ask_user", FORM)), words("so")])
    async with worker(memory, model, offers=[ASK_USER]) as runs:
        ending = await outcome(runs, run := await post(runs, says()))
        assert isinstance(ending, HandedBack)
        assert [each.kind for each in ending.owed] == ["question"]
        [answer] = await answers_in(runs)
        content = f"Not executed: nobody could answer these questions: {told}"
        assert (answer.content, answer.is_error, answer.synthetic) == (content, True, "invalid")
        assert ToolResulted(
            answer.call_id, content, is_error=True, synthetic="invalid"
        ) in await events(runs, run)


async def test_a_servers_own_ask_user_wins(memory: Store) -> None:
    counted = CountedTools()
    async with worker(
        memory, one_of("ask_user"), counted.tool("ask_user"), offers=[ASK_USER]
    ) as runs:
        assert await reply(runs, says()) == "so"
        [turn] = [m for m in await record(runs) if isinstance(m, AssistantMessage) and m.tool_calls]
    assert counted.done == {"ask_user": 1}
    assert turn.tool_calls[0].asks is None


@pytest.mark.promise("P14")
async def test_a_clients_tool_cannot_look_like_one_that_the_agent_offers(memory: Store) -> None:
    model = ScriptedModel([words("so")])
    loud = replace(ASK_USER, name="ASK_USER")
    async with worker(memory, model, offers=[ASK_USER]) as runs:
        with pytest.raises(ToolNameClash):
            await post(runs, says(), tools=[loud])
        assert await reply(runs, says()) == "so"
