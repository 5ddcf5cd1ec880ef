"""The calls of an answer, as a tree, and what its model calls used."""

from typing import Any

import pytest
from tests.support.python_client import DONE, Script, frame, stream

from passback_client import (
    AgentText,
    Answer,
    Call,
    Client,
    Interrupt,
    LimitExceeded,
    Limits,
    Output,
    Owed,
    OwedCall,
    Reasoning,
    Rewind,
    RunEnd,
    Text,
    ToolAnswer,
    ToolCallArgs,
    ToolCallEnd,
    ToolCallStart,
    ToolProgress,
    ToolResult,
    Usage,
)

pytestmark = pytest.mark.anyio


def fed(*events: Any, limits: Limits | None = None) -> Answer:
    answer = Answer(limits)
    for event in events:
        answer.feed(event)
    return answer


def test_what_a_sub_agent_does_stands_within_the_call_that_it_works_on() -> None:
    answer = fed(
        Text("I ask.", id="a.1-1"),
        ToolCallStart("1", "helper", id="a.1-2"),
        ToolCallArgs("1", '{"task"', id="a.1-3"),
        ToolCallArgs("1", ": 1}", id="a.1-4"),
        ToolCallEnd("1", id="a.1-5"),
        AgentText("1", "I look. ", id="a.1-6"),
        ToolCallStart("2", "find", id="a.1-7", parent_call_id="1"),
        ToolCallStart("3", "zone", id="a.1-8", parent_call_id="2"),
        ToolProgress("2", "half", id="a.1-9", parent_call_id="1"),
        ToolResult("2", "no", is_error=True, synthetic="denied", id="a.1-10", parent_call_id="1"),
        AgentText("1", "Found.", id="a.1-11"),
        ToolResult("1", "Found.", id="a.1-12"),
        ToolCallStart("4", "paint", id="a.1-13"),
    )
    zone = Call("3", "zone", "")
    find = Call(
        "2",
        "find",
        "",
        answered=True,
        result="no",
        is_error=True,
        synthetic="denied",
        progress="half",
        calls=(zone,),
    )
    helper = Call(
        "1",
        "helper",
        '{"task": 1}',
        complete=True,
        answered=True,
        result="Found.",
        agent_text="I look. Found.",
        calls=(find,),
    )
    assert answer.calls == (helper, Call("4", "paint", ""))


def test_a_tool_of_this_client_answers_a_call_of_the_run_before() -> None:
    owed = OwedCall("1", "paint", '{"color": "blue"}')
    answer = fed(
        Owed((owed,), id="a.1-1"),
        RunEnd("handed-back", id="a.1-2"),
        ToolAnswer("1", "paint", None),
        Text("Done.", id="b.1-1"),
    )
    painted = Call("1", "paint", '{"color": "blue"}', complete=True, answered=True)
    assert answer.calls == (painted,)


def test_who_comes_in_the_middle_is_told_what_can_be_known() -> None:
    answer = fed(
        AgentText("1", "On it.", id="a.1-1"),
        Owed((OwedCall("2", "ask", "{}", "approval", parent_call_id="3"),), id="a.1-2"),
        Owed((OwedCall("2", "ask", "{}", "approval", parent_call_id="3"),), id="a.1-3"),
        ToolCallEnd("unseen", id="a.1-4"),
        ToolResult("unseen", "?", id="a.1-5"),
    )
    asked = Call("2", "ask", "{}", complete=True)
    helpers = (
        Call("1", "", "", complete=True, agent_text="On it."),
        Call("3", "", "", complete=True, calls=(asked,)),
    )
    assert answer.calls == helpers


def test_a_call_that_is_asked_about_is_complete_and_one_that_begins_anew_keeps_its_place() -> None:
    answer = fed(
        ToolCallStart("1", "rm", id="a.1-1", parent_call_id="1"),
        ToolCallArgs("1", "{}", id="a.1-2"),
        Interrupt("1", "Really?", "approval", "rm", "{}", id="a.1-3"),
        ToolCallStart("2", "ls", id="a.1-4"),
    )
    assert answer.calls == (Call("1", "rm", "{}", complete=True), Call("2", "ls", ""))
    answer.feed(ToolCallStart("1", "cp", id="a.1-5", parent_call_id="2"))
    assert answer.calls == (Call("1", "cp", ""), Call("2", "ls", ""))


def test_a_rewind_takes_back_calls_usage_and_output_of_its_run_alone() -> None:
    kept = Usage(1, 2, 3, 4, id="a.1-2")
    answer = fed(
        ToolCallStart("1", "helper", id="a.1-1"),
        kept,
        RunEnd("handed-back", id="a.1-3"),
        ToolAnswer("1", "helper", "here"),
        AgentText("1", "Once.", id="b.1-1"),
        ToolCallStart("2", "find", id="b.1-2", parent_call_id="1"),
        Usage(9, 9, 9, 9, id="b.1-3"),
        Output({"a": 1}, id="b.1-4"),
        Rewind("b.1-1", id="b.2-1"),
    )
    helper = Call("1", "helper", "", answered=True, result="here", agent_text="Once.")
    assert (answer.calls, answer.model_calls, answer.output) == ((helper,), (kept,), None)


def test_the_model_is_the_one_that_spoke_last_sub_agents_aside_and_is_taken_back() -> None:
    answer = Answer()
    models: list[str | None] = [answer.model]
    for event in (
        Usage(1, 1, 0, 0, model="small", id="a.1-1"),
        Usage(1, 1, 0, 0, model="other", id="a.1-2", parent_call_id="1"),
        Usage(1, 1, 0, 0, id="a.1-3"),
        RunEnd("handed-back", id="a.1-4"),
        RunEnd("completed", model="large", id="b.1-1"),
        Usage(1, 1, 0, 0, model="void", id="c.1-1"),
        Rewind("c.1-0", id="c.2-1"),
    ):
        answer.feed(event)
        models.append(answer.model)
    assert models == [None, "small", "small", "small", "small", "large", "void", "large"]


def test_what_the_model_calls_used_is_told_one_by_one_and_together() -> None:
    one = Usage(1, 2, 3, 4, id="a.1-1")
    two = Usage(10, 20, 30, 40, estimated=True, id="a.1-2", parent_call_id="1")
    answer = fed(one, Reasoning("hm", id="a.1-3"), two)
    assert answer.model_calls == (one, two)
    assert answer.usage == Usage(11, 22, 33, 44, estimated=True)
    assert (fed(one).usage, fed().usage) == (Usage(1, 2, 3, 4), None)


@pytest.mark.parametrize(
    "event",
    [
        ToolCallArgs("1", "12345"),
        AgentText("1", "12345"),
        ToolResult("1", "12345"),
        ToolAnswer("1", "paint", "12345"),
        ToolAnswer("1", "paint", [1, 2]),
        ToolProgress("1", "12345"),
        Owed((OwedCall("2", "paint", "12345"),)),
    ],
    ids=lambda event: type(event).__name__,
)
def test_the_calls_of_an_answer_are_bounded(event: Any) -> None:
    start = ToolCallStart("1", "paint")
    fed(start, event, limits=Limits(call_chars=5))
    with pytest.raises(LimitExceeded, match="calls"):
        fed(start, event, limits=Limits(call_chars=4))


USED = {"inputTokens": 1, "outputTokens": 2, "cachedTokens": 0, "reasoningTokens": 0}


@pytest.mark.parametrize("include", [[], ["usage", "agents"]])
async def test_ask_asks_what_the_model_calls_use(include: Any) -> None:
    script = Script(stream(frame("run.1-1", type="usage", **USED), DONE))
    async with Client("http://host", transport=script.transport) as client:
        answer = await client.ask("hi", include=include)
    assert answer.usage == Usage(1, 2, 0, 0)
    needed = ["rewind", "run", "owed", "output"]
    assert script.bodies[0]["include"] == [*needed, *(include or ["usage"])]
