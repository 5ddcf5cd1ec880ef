"""Turns of the chat socket that wait for their client, and those of sub-agents."""

import json

import pytest
from tests.support.chat_site import ANYBODY, chat_site
from tests.support.logged_runs import RUN
from tests.unit.wire.chat_story import (
    ASK,
    ASKED,
    COMPLETED,
    EARLIER,
    TURN,
    Story,
    answered,
    call,
    ended,
    helper_asks,
    made,
    names,
    nested,
    owed,
    paused,
    resulted,
    user,
)
from tests.unit.wire.test_chat_plain import delete_file, say

from passback import Agent
from passback.core.events import (
    Cancelled,
    HandedBack,
    RunFinished,
    TextDelta,
    ToolResulted,
    UsageReported,
)
from passback.core.messages import (
    ApprovalMessage,
    AssistantMessage,
    CallId,
    ChildMessage,
    ConversationId,
    ConversationKey,
    Message,
    MessageId,
    RunId,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)
from passback.models.scripted import ScriptedModel, calls
from passback.models.scripted import says as words
from passback.wire.chat.history import project

pytestmark = pytest.mark.anyio


# ---------------------------------------------------------------- what the client owes
def test_calls_wait_for_the_client() -> None:
    story = Story(posted=[user()])
    story.tell(TURN, *call("a", "paint", client=True), *call("b", "ask_user", ASK, client=True))
    story.tell(*call("c", "erase"), ended("a"), ended("b"))
    end = story.end(
        HandedBack((owed("a"), owed("b", "question"), owed("c", "approval"), owed("z")))
    )
    assert (end["status"], end["finish_reason"]) == ("completed", "awaiting_answer")
    assert end["pending_tool_call_ids"] == ["a", "b", "c", "z"]
    turn = story.turn("run_1.1")
    assert turn["status"] == "paused"
    assert [(each["tool_name"], each["status"]) for each in turn["tool_calls"]] == [
        ("paint", "awaiting_result"),
        ("AskUserQuestion", "awaiting_answer"),
        ("erase", "awaiting_answer"),
    ]
    assert turn["tool_calls"][1]["arguments"] == ASKED % "null"
    assert turn["tool_calls"][1]["display_name"] == "AskUserQuestion"


def test_a_call_before_one_of_the_server_is_pending_until_it_is_handed_back() -> None:
    story = Story(posted=[user()])
    story.tell(TURN, *call("a", "paint", client=True), *call("b"), ended("b"), resulted("b"))
    assert story.turn("run_1.1")["tool_calls"][0]["status"] == "pending"
    assert names(story.tell(RunFinished(HandedBack((owed("a"),))))) == [
        "set_tool_status",
        "turn:end",
        "chat:end",
    ]
    assert story.turn("run_1.1")["tool_calls"][0]["status"] == "awaiting_result"


def test_answers_are_patches_of_the_turn_that_asked() -> None:
    erase = made("c", "erase", client=False, asks="approval")
    before: list[Message] = [EARLIER, paused(made("a"), made("b"), erase)]
    yes = ApprovalMessage(MessageId("y"), CallId("c"), approved=True)
    posted: list[Message] = [
        answered("b", run_id=RunId("run_0")),  # told by the run before
        answered("a", run_id=RUN.run_id),
        yes,
        answered("zz"),
        ApprovalMessage(MessageId("y2"), CallId("a"), approved=True),  # it is answered
    ]
    story = Story(*before, posted=posted)
    assert names(story.said) == ["chat:start", "tool_result", "set_tool_status"]
    assert story.said[-1].data["sequence"] == story.said[-1].number
    assert names(story.tell(ended("c"), resulted("c", "erased"))) == ["tool_result", "set_status"]
    turn = story.turn("run_0.1")
    assert turn["status"] == "completed"
    assert [each.get("result") for each in turn["tool_calls"]] == ["done", None, "erased"]
    assert story.tell(resulted("c", "again")) == []


def test_a_denial_is_an_error_and_a_skipped_call_cancelled() -> None:
    before: list[Message] = [EARLIER, paused(made("a", asks="approval"), made("b"))]
    no = ApprovalMessage(MessageId("n"), CallId("a"), approved=False)
    posted: list[Message] = [
        no,
        answered("a", "no", is_error=True, synthetic="denied"),
        answered("b", "skipped", is_error=True, synthetic="superseded"),
        user("u1"),
    ]
    story = Story(*before, posted=posted)
    assert [each["status"] for each in story.turn("run_0.1")["tool_calls"]] == [
        "error",
        "cancelled",
    ]
    assert names(story.said)[-2:] == ["turn:start", "turn:end"]
    assert story.turn("u1")["sequence"] == 6


def test_a_message_of_a_run_that_came_to_nothing_is_told_once() -> None:
    earlier = UserMessage(MessageId("u0"), "go", run_id=RunId("run_0"))
    fresh, known = (
        Story(posted=[earlier, user()]),
        Story(earlier, posted=[earlier, user()], first=0),
    )
    assert fresh.said == known.said
    assert [each.data["id"] for each in fresh.said if each.name == "turn:end"] == ["u"]


# ---------------------------------------------------------------- sub-agents
def test_turns_of_sub_agents_have_the_nearest_call_as_their_parent() -> None:
    story = Story(posted=[user()])
    helper_asks(story)
    story.end(HandedBack((owed("q", "question", "i"),)))
    shown = {
        turn["id"]: (turn["loop_id"], turn["parent_fork_tool_call_id"], turn["sequence"])
        for turn in story.client.turns.values()
    }
    assert shown == {
        "u": ("root", None, 1),
        "run_1.1": ("root", None, 2),
        "run_1.h.1": ("h", "h", 1),
        "run_1.i.1": ("i", "i", 1),
    }
    question = story.turn("run_1.i.1")["tool_calls"][0]
    assert question["arguments"] == ASKED % '{"loop_name": "inner", "description": ""}'
    for turn_id in ("run_1.1", "run_1.h.1"):
        [above] = story.turn(turn_id)["tool_calls"]
        assert above["status"] == "awaiting_answer"
        assert above["pending_question_ref"] == {
            "child_loop_name": "inner",
            "child_tool_call_id": "q",
            "description": "",
        }
        assert story.turn(turn_id)["status"] == "paused"


def test_a_question_that_is_answered_bubbles_up_no_longer() -> None:
    task = '{"task": "find it"}'
    question = ToolCall(CallId("q"), "ask_user", ASK, client=True, asks="question")
    asking = AssistantMessage(MessageId("b"), "", (question, made("p")), run_id=RunId("run_0"))
    above = ToolCall(CallId("h"), "helper", task)
    before: list[Message] = [EARLIER, paused(above), ChildMessage(CallId("h"), asking)]
    answers = [ChildMessage(CallId("h"), answered(each, run_id=RUN.run_id)) for each in "qp"]
    assert project(before)[1]["tool_calls"][0]["pending_question_ref"] == {
        "child_loop_name": "helper",
        "child_tool_call_id": "q",
        "description": "find it",
    }
    story = Story(*before, posted=answers)
    [call_above] = story.turn("run_0.1")["tool_calls"]
    assert (call_above["status"], "pending_question_ref" in call_above) == ("pending", False)
    assert story.turn("run_0.h.1")["status"] == "completed"
    story.tell(*nested("h", TURN, TextDelta("found")), resulted("h", "found"))
    assert story.turn("run_1.h.1")["sequence"] == 2
    assert story.turn("run_0.1")["status"] == "completed"


@pytest.mark.parametrize(
    ("result", "kept"),
    [
        (resulted("h", "found"), True),
        (resulted("h", "The agent failed: gone", is_error=True), False),
        (resulted("h", "found\n[The agent was stopped before its end.]", is_error=True), True),
        (resulted("h", "stopped", is_error=True, synthetic="interrupted"), False),
    ],
)
def test_the_last_words_of_a_sub_agent_that_failed_are_void(
    result: ToolResulted, kept: bool
) -> None:
    story = Story(posted=[user()])
    story.tell(TURN, *call("h", "helper"), ended("h"), *nested("h", TURN, TextDelta("fou")), result)
    assert story.turn("run_1.h.1")["blocks"] == (
        [{"type": "text", "content": "fou"}] if kept else []
    )


def test_a_call_below_one_that_is_closed_is_cancelled() -> None:
    story = Story(posted=[user()])
    helper_asks(story)
    story.tell(*nested("h", *call("j"), ended("j"), *call("k"), ended("k"), resulted("k")))
    story.end(Cancelled())
    assert story.turn("run_1.h.1")["status"] == "interrupted"
    assert "run_1.i.1" not in story.client.turns  # its answer was not in the record yet
    statuses = [each["status"] for each in story.turn("run_1.h.1")["tool_calls"]]
    assert statuses == ["cancelled", "cancelled", "done"]
    skipped: list[Message] = [answered("h", is_error=True, synthetic="superseded"), user("u1")]
    before: list[Message] = [
        EARLIER,
        paused(made("h", "helper", client=False)),
        ChildMessage(CallId("h"), paused(made("q"))),
    ]
    turns = {turn["id"]: turn for turn in project([*before, *skipped])}
    assert turns["run_0.h.1"]["status"] == "completed"
    assert turns["run_0.h.1"]["tool_calls"][0]["status"] == "cancelled"


def test_a_question_may_have_a_header() -> None:
    asked = json.dumps({"questions": [{"question": "Which?", "header": "Size"}]})
    story = Story(posted=[user()])
    story.tell(TURN, *call("q", "ask_user", asked, client=True), ended("q"))
    story.end(HandedBack((owed("q", "question"),)))
    [shown] = story.turn("run_1.1")["tool_calls"]
    assert json.loads(shown["arguments"])["questions"] == [
        {"question": "Which?", "header": "Size", "options": [], "multiSelect": False}
    ]


def test_the_first_of_several_questions_bubbles_up() -> None:
    story = Story(posted=[user()])
    helper_asks(story)
    story.tell(*nested("h i", *call("r", "ask_user", ASK, client=True), ended("r")))
    story.end(HandedBack((owed("q", "question", "i"), owed("r", "question", "i"))))
    [above] = story.turn("run_1.1")["tool_calls"]
    assert above["pending_question_ref"]["child_tool_call_id"] == "q"


def test_a_sub_agent_that_says_nothing_has_no_turn() -> None:
    story = Story(posted=[user()])
    story.tell(TURN, *call("h", "helper"), ended("h"))
    story.tell(*nested("h", UsageReported(Usage(1, 1))), resulted("h", "nothing"))
    assert names(story.tell(RunFinished(COMPLETED))) == ["turn:end", "chat:end"]
    assert [*story.client.turns] == ["u", "run_1.1"]


# ---------------------------------------------------------------- denials
async def test_the_reason_of_a_denial_is_in_the_record_and_the_model_is_told_it() -> None:
    model = ScriptedModel([calls(("delete_file", {"path": "a"})), words("Kept.")])
    async with chat_site(Agent(model=model, tools=[delete_file])) as site:
        session = await site.create()
        async with site.subscribed(session) as client:
            events = await say(client, session)
            [call_id] = events[-1]["data"]["pending_tool_call_ids"]
            denial = {
                "tool_call_id": call_id,
                "selections": {"0": [1]},
                "custom": {"0": "Not now."},
            }
            events = await say(client, session, "", askuser_answer=denial)
        page = await site.runs.messages(
            ConversationKey(ANYBODY, ConversationId(session)), start=2, limit=2
        )
        decision, result = page.messages
        assert isinstance(decision, ApprovalMessage)
        assert (decision.approved, decision.reason) == (False, "Not now.")
        assert isinstance(result, ToolMessage)
        assert (result.call_id, result.synthetic) == (call_id, "denied")
        assert "Not now." in str(result.content)
        assert model.requests[-1].messages[-1] == result
        [patch] = [each for each in events if each["data"].get("patch_type") == "tool_result"]
        assert (patch["data"]["data"]["status"], patch["data"]["data"]["result"]) == (
            "error",
            result.content,
        )
