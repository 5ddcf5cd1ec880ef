"""Approvals and questions: who is asked, and how each answer is posted to a scripted server."""

import json
from collections.abc import Sequence
from typing import Any

import anyio
import httpx
import pytest
from tests.support.python_client import (
    DONE,
    IDLE,
    PAINT,
    Script,
    document,
    frame,
    owes,
    refusal,
    stream,
)
from tests.unit.client.replies import says

from passback_client import (
    Approval,
    BadSetup,
    Client,
    Decided,
    Decision,
    Event,
    Interrupt,
    Limits,
    Option,
    OwedCall,
    Question,
    Reply,
    Tool,
    ToolAnswer,
    ToolError,
)
from passback_client import sync as plain
from passback_client.approvals import Approver
from passback_client.execution import Execution, Toolbox

pytestmark = pytest.mark.anyio


BURN = {
    "id": "burn-1",
    "name": "burn",
    "arguments": '{"what": "all"}',
    "kind": "approval",
    "reason": "It is for ever.",
}
ASKED = Approval("burn-1", "burn", {"what": "all"}, "c d", "It is for ever.", server=True)
DENIED: dict[str, Any] = {"approved": False}
ALLOWED: dict[str, Any] = {"approved": True}
PAINTING = Tool("paint", "", {"type": "object"}, lambda *_: "blue", needs_approval=True)


def client_of(script: Script, **how: Any) -> Client:
    return Client("http://host", transport=script.transport, claims=False, **how)


async def events_of(script: Script, approve: Any, *tools: Tool) -> Sequence[Event]:
    with anyio.fail_after(10):
        async with client_of(script, approve=approve, tools=tools) as client:
            return [event async for event in client.send("hi")]


# ---------------------------------------------------------------- tools of the server
async def test_decisions_and_results_of_one_hand_back_are_posted_together() -> None:
    asked: list[Approval] = []

    async def approve(approval: Approval) -> bool:
        asked.append(approval)
        return True

    free = Tool("paint", "", {"type": "object"}, lambda *_: "blue")
    script = Script(owes(PAINT, BURN), says("Done."))
    events = await events_of(script, approve, free)
    assert asked == [ASKED]
    assert [each for each in events if isinstance(each, ToolAnswer | Decided)] == [
        ToolAnswer("call", "paint", "blue"),
        Decided("burn-1", "burn", approved=True),
    ]
    assert len(script.bodies) == 2
    assert script.bodies[1] == {
        "include": ["rewind", "run", "owed", "output"],
        "conversationId": "c d",
        "messages": [{"role": "tool", "toolCallId": "call", "content": "blue"}],
        "resume": [{"interruptId": "burn-1", "payload": ALLOWED}],
    }


@pytest.mark.parametrize(
    ("verdict", "payload"),
    [
        (True, ALLOWED),
        (False, DENIED),
        ("not today", DENIED | {"reason": "not today"}),
        (Decision(approved=True, reason="why not"), ALLOWED),
        (Decision(approved=True, always=True), ALLOWED | {"always": True}),
        (
            Decision(approved=False, reason="no", always=True),
            DENIED | {"reason": "no", "always": True},
        ),
        (Decision(approved=False, reason="\ud800" + "x" * 5000), None),
        (None, DENIED),
        (1, DENIED),
    ],
    ids=str,
)
async def test_the_answer_of_approve_is_posted(verdict: Any, payload: Any) -> None:
    script = Script(owes(BURN), says("Done."))
    await events_of(script, lambda _: verdict)
    [answer] = script.bodies[1]["resume"]
    assert "messages" not in script.bodies[1]
    if payload is None:
        payload = DENIED | {"reason": "\ufffd" + "x" * 4095 + " [cut]"}
    assert answer == {"interruptId": "burn-1", "payload": payload}


def broken(_: object) -> bool:
    raise OSError("no terminal")


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (BURN, "OSError: no terminal"),
        (BURN | {"arguments": "["}, "The arguments are not a JSON object, or are too large."),
    ],
    ids=["approve fails", "arguments that nobody can read"],
)
async def test_a_call_that_approve_cannot_judge_is_denied(
    call: dict[str, str], reason: str
) -> None:
    script = Script(owes(call), says("Done."))
    events = await events_of(script, broken)
    assert Decided("burn-1", "burn", approved=False, reason=reason) in events
    assert script.bodies[1]["resume"][0]["payload"] == DENIED | {"reason": reason}


async def test_without_approve_an_approval_stays_owed_and_a_later_decision_goes_on() -> None:
    reason = {"reason": "It is for ever.", "payload": {"kind": "approval", "arguments": "{}"}}
    asks = frame("run.1-2", type="interrupt", id="burn-1", **reason)
    script = Script(
        stream(asks, DONE), refusal(503, "store_unavailable", retry_after="0"), says("Done.")
    )
    async with client_of(script) as client:
        first = [event async for event in client.send("hi")]
        how: Any = {"approved": False, "reason": "no", "include": ["usage"]}
        second = [event async for event in client.decide("c", "burn-1", **how)]
    interrupt = Interrupt("burn-1", "It is for ever.", "approval", "", "{}", id="run.1-2")
    assert (first, [type(event).__name__ for event in second]) == ([interrupt], ["Text"])
    decided = {
        "include": ["rewind", "run", "owed", "output", "usage"],
        "conversationId": "c",
        "resume": {"interruptId": "burn-1", "payload": DENIED | {"reason": "no"}},
    }
    assert script.bodies[1:] == [decided, decided]
    assert len(set(script.headers("idempotency-key")[1:])) == 1


async def test_calls_that_this_client_cannot_answer_stay_owed() -> None:
    kinds = [BURN, BURN | {"kind": "question", "name": "ask_user"}, BURN | {"kind": "new"}]
    script = Script(owes(*kinds, PAINT), owes(*kinds, run=None))
    async with client_of(script) as client:
        events = [event async for event in client.send("hi")]
    assert [each.call_id for each in events if isinstance(each, ToolAnswer)] == ["call"]
    assert [m["toolCallId"] for m in script.bodies[1]["messages"]] == ["call"]


async def test_a_decision_that_came_too_late_is_dropped_and_the_run_is_read() -> None:
    newer = document(IDLE | {"runId": "next"})
    script = Script(owes(BURN), refusal(409, "tool_result_conflict"), newer, says("Done."))
    events = await events_of(script, lambda _: False)
    assert [type(event).__name__ for event in events] == ["Owed", "Text"]


def test_the_sync_client_decides_and_asks_too() -> None:
    script = Script(owes(BURN), says("Done."), says("Done.", "last"))
    how: Any = {"transport": script.transport, "claims": False, "approve": lambda _: "no"}
    with plain.Client("http://host", **how) as client:
        assert client.ask("hi").text == "Done."
        events = list(client.decide("c", "burn-2", approved=True, always=True))
    assert [type(event).__name__ for event in events] == ["Text"]
    assert [body.get("resume") for body in script.bodies[1:]] == [
        [{"interruptId": "burn-1", "payload": DENIED | {"reason": "no"}}],
        {"interruptId": "burn-2", "payload": ALLOWED | {"always": True}},
    ]


# ---------------------------------------------------------------- tools of the client
@pytest.mark.parametrize(
    ("verdict", "content"),
    [
        (True, "blue"),
        (False, "The user did not allow this call."),
        ("not today", "not today"),
        (Decision(approved=False, reason="no"), "no"),
        (Decision(approved=True), "blue"),
    ],
    ids=str,
)
async def test_a_client_tool_asks_for_approval_too(verdict: Any, content: str) -> None:
    asked: list[Approval] = []

    def approve(approval: Approval) -> Any:
        asked.append(approval)
        return verdict

    script = Script(owes(PAINT), says("Done."))
    events = await events_of(script, approve, PAINTING)
    assert asked == [Approval("call", "paint", {}, "c d")]
    [answer] = [event for event in events if isinstance(event, ToolAnswer)]
    assert (answer.content, answer.is_error) == (content, content != "blue")


async def test_a_tool_that_needs_approval_is_refused_where_nobody_can_be_asked() -> None:
    with pytest.raises(BadSetup, match="approve"):
        client_of(Script(), tools=[PAINTING])
    call = OwedCall("call", "paint", "{}")
    [answer] = await Execution(Toolbox({"paint": PAINTING}, Limits()), "c").answer([call], nobody)
    text = "The user did not allow this call."
    assert answer == ToolAnswer("call", "paint", text, is_error=True)


async def nobody(_: object) -> None:
    """Report no call as answered by others."""


# ---------------------------------------------------------------- asking
async def decided(approver: Approver, *calls: tuple[str, str]) -> list[Decision]:
    """Ask for all of these tools and conversations at once; return the decisions in order."""
    decisions: dict[int, Decision] = {}

    async def ask(index: int, name: str, conversation: str) -> None:
        decisions[index] = await approver.decide(Approval(f"call-{index}", name, {}, conversation))

    async with anyio.create_task_group() as tasks:
        for index, (name, conversation) in enumerate(calls):
            tasks.start_soon(ask, index, name, conversation)
    return [decisions[index] for index in range(len(calls))]


async def test_one_call_is_asked_for_at_a_time_and_lasting_approvals_not_again() -> None:
    asked: list[tuple[str, str]] = []
    here: list[str] = []

    async def approve(approval: Approval) -> Decision:
        assert here == []
        here.append(approval.id)
        await anyio.lowlevel.checkpoint()
        here.clear()
        asked.append((approval.name, approval.conversation_id))
        return Decision(approved=True, always=approval.name == "paint")

    calls = [("paint", "c"), ("paint", "c"), ("burn", "c"), ("paint", "d"), ("burn", "c")]
    given = await decided(Approver(approve), *calls)
    assert all(decision.approved for decision in given)
    assert sorted(asked) == [("burn", "c"), ("burn", "c"), ("paint", "c"), ("paint", "d")]


async def test_a_lasting_denial_is_not_asked_again_and_keeps_its_reason() -> None:
    asked: list[str] = []
    never = Decision(approved=False, reason="never", always=True)

    def approve(approval: Approval) -> Decision:
        asked.append(approval.conversation_id)
        return never

    assert await decided(Approver(approve), *[("burn", "c")] * 3, ("burn", "d")) == [never] * 4
    assert sorted(asked) == ["c", "d"]


def test_a_lasting_decision_is_retracted_by_the_name_of_the_tool() -> None:
    script = Script(httpx.Response(204, headers={"x-request-id": "req_1"}))
    with plain.Client("http://host", transport=script.transport) as client:
        client.retract("a/b", "delete file")
    [request] = script.requests
    path = "/conversations/a%2Fb/permissions/delete%20file"
    assert (request.method, request.url.raw_path.decode()) == ("DELETE", path)


async def test_lasting_approvals_are_remembered_within_bounds() -> None:
    asked: list[str] = []

    def approve(approval: Approval) -> Decision:
        asked.append(approval.name)
        return Decision(approved=True, always=True)

    approver = Approver(approve, remembered=2)
    for name in ("a", "b", "c", "b", "c", "a"):
        await decided(approver, (name, "c"))
    assert asked == ["a", "b", "c", "a"]
    server = Approval("call", "c", {}, "c", server=True)
    await approver.decide(server)
    await approver.decide(server)
    assert asked[4:] == ["c", "c"]


# ---------------------------------------------------------------- questions
ARGUMENTS: dict[str, Any] = {
    "questions": [
        {"question": "Which city?"},
        {
            "question": "Which days?",
            "header": "Days",
            "options": [{"label": "Sat", "description": "the 6th"}, {"label": "Sun"}],
            "multiple": True,
        },
        {"question": "Sure?", "options": [{"label": "Yes"}, {"label": "No"}], "freeText": False},
    ]
}
QUESTIONS = [
    Question("Which city?"),
    Question(
        "Which days?", (Option("Sat", "the 6th"), Option("Sun")), multiple=True, header="Days"
    ),
    Question("Sure?", (Option("Yes"), Option("No")), free_text=False),
]
NO_REPLY = Reply()


def asks(arguments: Any = ARGUMENTS) -> httpx.Response:
    call = {"id": "call", "name": "ask_user", "kind": "question"}
    return owes(call | {"arguments": json.dumps(arguments)})


async def answered(function: Any, arguments: Any = ARGUMENTS) -> tuple[Any, bool]:
    """Return the posted content, and whether it is an error."""
    script = Script(asks(arguments), says("Done."))
    with anyio.fail_after(10):
        async with Client("http://host", transport=script.transport, claims=False) as client:
            assert client.questions(function) is function
            assert (await client.ask("hi")).text == "Done."
    assert script.bodies[0]["tools"] == [{"name": "ask_user"}]
    [message] = script.bodies[1]["messages"]
    assert (message["role"], message["toolCallId"]) == ("tool", "call")
    return message["content"], message.get("isError", False)


async def test_a_function_is_given_questions_and_its_replies_are_posted() -> None:
    seen: list[Question] = []

    async def ask(questions: Sequence[Question]) -> Sequence[Reply]:
        seen.extend(questions)
        return Reply(text="Ulm"), Reply(("Sat", "Sun"), "or Monday"), Reply(text="Yes")

    answers = [{"text": "Ulm"}, {"selected": ["Sat", "Sun"], "text": "or Monday"}, {"text": "Yes"}]
    assert await answered(ask) == ({"answers": answers}, False)
    assert seen == QUESTIONS


def test_the_sync_client_asks_questions_with_one_function() -> None:
    script = Script(asks(), says("Done."))
    how: Any = {"transport": script.transport, "claims": False}
    with plain.Client("http://host", **how) as client:

        @client.questions
        def ask(questions: Sequence[Question]) -> list[Reply]:
            return [NO_REPLY for _ in questions]

        with pytest.raises(BadSetup, match="ask_user"):
            client.questions(ask)
        assert client.ask("hi").text == "Done."
    assert script.bodies[1]["messages"][0]["content"] == {"answers": [{}, {}, {}]}


@pytest.mark.parametrize(
    ("replies", "text"),
    [
        ([Reply(("Ulm",))], "'Which city?' does not fit: there is no option 'Ulm'"),
        ([NO_REPLY, Reply(("Mon",))], "'Which days?' does not fit: there is no option 'Mon'"),
        ([NO_REPLY, Reply(("Sat", "Sat"))], "'Which days?' does not fit: an option is there twice"),
        (
            [NO_REPLY, NO_REPLY, Reply(("Yes", "No"))],
            "'Sure?' does not fit: only one option can be",
        ),
        (
            [NO_REPLY, NO_REPLY, Reply(text="Hm")],
            "'Sure?' does not fit: only options can be chosen",
        ),
        ([Reply(text="a" * 100_001)], "'Which city?' does not fit: it is too long"),
        ([NO_REPLY, NO_REPLY, "Yes"], "A question was answered by a str."),
    ],
)
async def test_replies_that_do_not_fit_are_an_error_for_the_model(
    replies: list[Any], text: str
) -> None:
    content, is_error = await answered(lambda _: (replies + [NO_REPLY] * 3)[:3])
    assert text in content
    assert is_error


@pytest.mark.parametrize(
    ("given", "text"),
    [([NO_REPLY], "3 questions got 1 answers."), (None, "were answered by a NoneType.")],
    ids=["too few", "none"],
)
async def test_a_missing_reply_is_an_error_for_the_model(given: Any, text: str) -> None:
    content, is_error = await answered(lambda _: given)
    assert (text in content, is_error) == (True, True)


async def test_a_user_may_skip_every_question() -> None:
    def ask(_: object) -> list[Reply]:
        raise ToolError("The user went home.")

    assert await answered(ask) == ("The user went home.", True)


async def test_malformed_questions_are_an_error_for_the_model() -> None:
    content, is_error = await answered(lambda _: [], {"questions": [{}]})
    assert (content, is_error) == ("BadAnswer: the server sent no text 'question'", True)
