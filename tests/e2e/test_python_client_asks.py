"""Python clients that share a conversation: who allows a call, and who is asked a question."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import anyio
import pytest
from tests.e2e.workers import SECONDS
from tests.support.python_client import BRISK, answers_in, collect, joined, of_kind, order
from tests.support.server import Server
from tests.support.wire import Client as RawClient
from tests.support.wire import user

from passback_client import (
    Approval,
    Client,
    Decided,
    Decision,
    Event,
    Interrupt,
    Option,
    Question,
    Refused,
    Reply,
    Tool,
    ToolResult,
)
from passback_client import sync as plain

pytestmark = [pytest.mark.anyio, pytest.mark.measured]

ECHO = ["echo", '{"text": "hi"}']


# ---------------------------------------------------------------- approvals
@pytest.mark.parametrize(
    ("verdict", "expected"),
    [
        (True, [("approval", True), ("tool", "hi")]),
        ("not today", [("approval", False), ("tool", "not today")]),
    ],
    ids=["allowed", "denied"],
)
async def test_a_call_of_a_server_tool_is_allowed_or_denied(
    asking: Server, raw_asking: RawClient, conversation: str, verdict: Any, expected: list[Any]
) -> None:
    asked: list[Approval] = []

    def approve(approval: Approval) -> Any:
        asked.append(approval)
        return verdict

    with anyio.fail_after(SECONDS):
        async with Client(asking.url, approve=approve) as client:
            stream = client.send(order(ECHO), conversation_id=conversation)
            events = [event async for event in stream]
    [approval] = asked
    assert approval == Approval(
        approval.id, "echo", {"text": "hi"}, conversation, approval.reason, server=True
    )
    [interrupt] = of_kind(events, Interrupt)
    assert (interrupt.interrupt_id, interrupt.kind) == (approval.id, "approval")
    [decided] = of_kind(events, Decided)
    assert (decided.call_id, decided.approved) == (approval.id, verdict is True)
    assert joined(events) == "Done."
    kept = await answers_in(raw_asking, conversation)
    assert [role for role, _ in kept] == ["approval", "tool"]
    assert kept[0] == expected[0]
    assert expected[1][1] in str(kept[1][1])


async def test_decisions_and_results_go_together_and_what_is_always_allowed_is_not_asked_again(
    asking: Server, raw_asking: RawClient, conversation: str
) -> None:
    asked: list[str] = []

    async def approve(approval: Approval) -> Decision:
        asked.append(approval.name)
        return Decision(approved=True, always=True)

    paint = Tool("paint", "", {"type": "object"}, lambda *_: "blue", needs_approval=True)
    calls = order(["paint", "{}"], ECHO)
    with anyio.fail_after(SECONDS):
        async with Client(asking.url, approve=approve, tools=[paint]) as client:
            for _ in range(2):
                stream = client.send(calls, conversation_id=conversation)
                events = [event async for event in stream]
                assert joined(events) == "Done."
                [result] = of_kind(events, ToolResult)
                assert result.result == "hi"
    assert sorted(asked) == ["echo", "paint"]
    kept = await answers_in(raw_asking, conversation)
    assert sorted(map(str, kept)) == sorted(
        map(str, [("approval", True), *[("tool", "blue"), ("tool", "hi")] * 2])
    )


async def test_an_approval_that_nobody_is_asked_for_waits_for_a_decision_of_any_client(
    asking: Server, raw_asking: RawClient, conversation: str
) -> None:
    with anyio.fail_after(SECONDS):
        async with Client(asking.url) as client:
            stream = client.send(order(ECHO), conversation_id=conversation)
            [interrupt] = of_kind([event async for event in stream], Interrupt)
            [owed] = (await client.conversation(conversation)).owed
            assert (owed.id, owed.kind, owed.reason) == (
                interrupt.interrupt_id,
                "approval",
                interrupt.reason,
            )
            with pytest.raises(Refused) as caught:
                await anext(client.decide(conversation, "call_0", approved=True))
            assert (caught.value.status, caught.value.code) == (404, "tool_call_not_found")

        def use() -> list[Event]:
            with plain.Client(asking.url) as other:
                return list(other.decide(conversation, owed.id, approved=True))

        events = await anyio.to_thread.run_sync(use)
    assert joined(events) == "Done."
    assert await answers_in(raw_asking, conversation) == [("approval", True), ("tool", "hi")]


@pytest.mark.promise("P9")
@pytest.mark.parametrize("claims", [True, False], ids=["stops asking", "asks on"])
async def test_an_approval_that_another_client_answered_is_settled(
    asking: Server, raw_asking: RawClient, conversation: str, claims: bool
) -> None:
    """With claims the client stops asking; without, its own answer comes too late."""
    shown, answer = anyio.Event(), anyio.Event()
    mine: list[Event] = []

    async def approve(_: Approval) -> bool:
        shown.set()
        await answer.wait()
        return False

    with anyio.fail_after(SECONDS):
        async with (
            Client(asking.url, approve=approve, retry=BRISK, claims=claims) as one,
            Client(asking.url) as other,
            anyio.create_task_group() as tasks,
        ):
            asked = one.send(order(ECHO), conversation_id=conversation)
            tasks.start_soon(collect, asked, mine)
            await shown.wait()
            [owed] = (await other.conversation(conversation)).owed
            decided = other.decide(conversation, owed.id, approved=True)
            assert joined([event async for event in decided]) == "Done."
            if not claims:
                answer.set()
    assert (joined(mine), of_kind(mine, Decided)) == ("Done.", [])
    assert await answers_in(raw_asking, conversation) == [("approval", True), ("tool", "hi")]


# ---------------------------------------------------------------- questions
ASKED = {
    "questions": [
        {
            "question": "Which colours?",
            "options": [{"label": "blue"}, {"label": "green"}],
            "multiple": True,
        },
        {"question": "Sure?", "options": [{"label": "Yes"}], "freeText": False},
        {"question": "What is it called?"},
    ]
}


async def test_the_agent_asks_and_the_replies_of_a_function_answer(
    asking: Server, raw_asking: RawClient, conversation: str
) -> None:
    seen: list[Question] = []
    with anyio.fail_after(SECONDS):
        async with Client(asking.url) as client:

            @client.questions
            async def ask(questions: Sequence[Question]) -> Sequence[Reply]:
                seen.extend(questions)
                return [Reply(("blue", "green"), "or so"), Reply(), Reply(text="Sky")]

            message = order(["ask_user", json.dumps(ASKED)])
            answer = await client.ask(message, conversation_id=conversation)
    assert answer.text == "Done."
    assert seen == [
        Question("Which colours?", (Option("blue"), Option("green")), multiple=True),
        Question("Sure?", (Option("Yes"),), free_text=False),
        Question("What is it called?"),
    ]
    answers = [{"selected": ["blue", "green"], "text": "or so"}, {}, {"text": "Sky"}]
    [(role, content)] = await answers_in(raw_asking, conversation)
    assert (role, content) == ("tool", [{"type": "data", "data": {"answers": answers}}])


async def test_a_question_stays_owed_where_nobody_answers_and_a_later_client_does(
    asking: Server, raw_asking: RawClient, conversation: str
) -> None:
    declared: Any = {"name": "ask_user"}
    message = user(order(["ask_user", '{"questions": [{"question": "Why?"}]}']))
    await raw_asking.post(conversation, message, tools=[declared])

    def use(answer: Callable[[Any], Any] | None) -> str:
        with plain.Client(asking.url) as client:
            if answer is not None:
                client.questions(answer)
            return joined(list(client.resume(conversation)))

    with anyio.fail_after(SECONDS):
        assert await anyio.to_thread.run_sync(use, None) == ""
        [owed] = (await raw_asking.conversation(conversation))["owed"]
        assert owed["kind"] == "question"
        text = await anyio.to_thread.run_sync(use, lambda _: [Reply(text="So.")])
    assert text == "Done."


async def test_a_question_is_answered_when_somebody_likes(
    asking: Server, raw_asking: RawClient, conversation: str
) -> None:
    message = user(order(["ask_user", '{"questions": [{"question": "Why?"}]}']))
    await raw_asking.post(conversation, message, tools=[{"name": "ask_user"}])

    def use() -> list[Event]:
        with plain.Client(asking.url) as client:
            [owed] = client.conversation(conversation).owed
            unfit = client.answer(conversation, owed.id, {"answers": ["So."]})
            with pytest.raises(Refused) as caught:
                next(unfit)
            assert caught.value.code == "invalid_answer"
            assert caught.value.message == "answers.0: Input should be an object"
            return list(client.answer(conversation, owed.id, {"answers": [{"text": "So."}]}))

    with anyio.fail_after(SECONDS):
        assert joined(await anyio.to_thread.run_sync(use)) == "Done."
    [(role, content)] = await answers_in(raw_asking, conversation)
    assert (role, content) == ("tool", [{"type": "data", "data": {"answers": [{"text": "So."}]}}])
