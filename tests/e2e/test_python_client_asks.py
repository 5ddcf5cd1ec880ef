"""Python clients that share a conversation of a real server: who runs a call, who allows one, who is asked."""

import json
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

import anyio
import httpx
import pytest
from tests.e2e.workers import SECONDS
from tests.support.python_client import QUICK, joined
from tests.support.server import Server, running_server
from tests.support.wire import Client as RawClient
from tests.support.wire import client_of, client_tool, user
from typing_extensions import override

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
    Retry,
    Stream,
    Tool,
    ToolAnswer,
    ToolContext,
    ToolResult,
)
from passback_client import sync as plain

pytestmark = pytest.mark.anyio

PAINT = client_tool("paint")
ECHO = ["echo", '{"text": "hi"}']
BRISK = Retry(attempts=10, first=0.01, longest=0.05, claim=1)


def order(*calls: Sequence[str]) -> str:
    """Makes the agent call these tools; to their results it says "Done."."""
    return json.dumps({"calls": calls})


@pytest.fixture(scope="module")
async def asking() -> AsyncGenerator[Server]:
    """Its agent has a tool `echo` that needs approval."""
    permissions = {"PASSBACK_PERMISSIONS": "echo=ask"}
    async with running_server("tests.support.puppet:agent", environment=permissions) as server:
        yield server


@pytest.fixture
async def raw(asking: Server) -> AsyncGenerator[RawClient]:
    async with client_of(asking.url) as client:
        yield client


class Watching(httpx.AsyncBaseTransport):
    """Tells when the server has refused a claim."""

    def __init__(self) -> None:
        self.refused = anyio.Event()
        self._network = httpx.AsyncHTTPTransport()

    @override
    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response = await self._network.handle_async_request(request)
        if request.url.path.endswith("/claim") and response.status_code == 409:
            self.refused.set()
        return response

    @override
    async def aclose(self) -> None:
        await self._network.aclose()


class Painter:
    """A tool that counts, and paints when it is let."""

    def __init__(self) -> None:
        self.painted: list[str] = []
        self.begun = anyio.Event()
        self.let = anyio.Event()

    async def __call__(self, _: object, context: ToolContext) -> str:
        self.painted.append(context.call.id)
        self.begun.set()
        await self.let.wait()
        return "blue"


def painting(painter: Painter) -> list[Tool]:
    return [Tool("paint", "", {"type": "object"}, painter)]


async def collect(stream: Stream, told: list[Event]) -> None:
    async with stream:
        told.extend([event async for event in stream])


def of_kind(events: Sequence[Event], kind: type[Any]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


async def history(raw: RawClient, conversation: str) -> list[tuple[str, object]]:
    """What was decided and what tools gave."""
    kept = await raw.messages(conversation)
    return [
        (each["role"], each.get("content", each.get("approved")))
        for each in kept
        if each["role"] in {"approval", "tool"}
    ]


# ---------------------------------------------------------------- claims
async def test_a_tool_of_two_clients_in_one_conversation_runs_once(
    asking: Server, conversation: str
) -> None:
    painter, watching = Painter(), Watching()
    mine: list[Event] = []
    theirs: list[Event] = []
    how: Any = {"retry": BRISK, "tools": painting(painter)}
    with anyio.fail_after(SECONDS):
        async with (
            Client(asking.url, **how) as one,
            Client(asking.url, **how, transport=watching) as other,
            anyio.create_task_group() as tasks,
        ):
            asked = one.send(order(["paint", "{}"]), conversation_id=conversation)
            tasks.start_soon(collect, asked, mine)
            await painter.begun.wait()
            tasks.start_soon(collect, other.resume(conversation), theirs)
            await watching.refused.wait()
            painter.let.set()
    assert len(painter.painted) == 1
    assert [len(of_kind(events, ToolAnswer)) for events in (mine, theirs)] == [1, 0]
    assert [joined(events) for events in (mine, theirs)] == ["Done.", "Done."]


async def test_a_claim_is_renewed_for_as_long_as_the_tool_runs_and_gone_with_a_client_that_leaves(
    asking: Server, raw: RawClient, conversation: str
) -> None:
    painter = Painter()
    with anyio.fail_after(SECONDS):
        async with Client(asking.url, retry=BRISK, tools=painting(painter)) as client:

            async def claimed_until() -> Any:
                [owed] = (await raw.conversation(conversation))["owed"]
                return owed["claimedUntil"]

            async with anyio.create_task_group() as tasks:
                asked = client.send(order(["paint", "{}"]), conversation_id=conversation)
                tasks.start_soon(collect, asked, [])
                await painter.begun.wait()
                first = await claimed_until()
                while await claimed_until() in {first, None}:
                    pass
                tasks.cancel_scope.cancel()
            assert await claimed_until() is None
            painter.let.set()
            assert joined([event async for event in client.resume(conversation)]) == "Done."
    assert len(painter.painted) == 2


AT_WORK = """
import asyncio, signal, sys
from passback_client.sync import Client
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the tests run in the background
url, conversation, message = sys.argv[1:]
with Client(url) as client:
    @client.tool
    async def paint() -> str:
        print("begun", flush=True)
        await asyncio.sleep(3600)
        return "never"
    client.ask(message, conversation_id=conversation)
"""


async def test_ctrl_c_gives_the_claims_of_the_plain_client_back(
    asking: Server, raw: RawClient, conversation: str
) -> None:
    arguments = [asking.url, conversation, order(["paint", "{}"])]
    command = [sys.executable, "-c", AT_WORK, *arguments]
    with anyio.fail_after(SECONDS):
        async with await anyio.open_process(command, stderr=subprocess.DEVNULL) as process:
            assert process.stdout is not None
            assert (await process.stdout.receive()).startswith(b"begun")
            [owed] = (await raw.conversation(conversation))["owed"]
            assert owed["claimedUntil"] is not None
            process.send_signal(signal.SIGINT)
            assert await process.wait() != 0
    [owed] = (await raw.conversation(conversation))["owed"]
    assert owed["claimedUntil"] is None


async def test_a_call_is_run_when_the_claim_of_another_client_lapses(
    asking: Server, raw: RawClient, conversation: str
) -> None:
    call = (await raw.post(conversation, user(order(["paint", "{}"])), tools=[PAINT])).call
    path = f"/conversations/{conversation}/tool-calls/{call.id}/claim"
    claimed = await raw.http.post(path, json={"claimant": "gone", "seconds": 1})
    assert claimed.status_code == 200
    painter, watching = Painter(), Watching()
    painter.let.set()
    how: Any = {"retry": QUICK, "tools": painting(painter), "transport": watching}
    with anyio.fail_after(SECONDS):
        async with Client(asking.url, **how) as client:
            events = [event async for event in client.resume(conversation)]
    assert watching.refused.is_set()
    assert (painter.painted, joined(events)) == ([call.id], "Done.")


@pytest.mark.promise("P9")
async def test_without_claims_both_run_the_tool_and_the_first_result_counts(
    asking: Server, raw: RawClient, conversation: str
) -> None:
    first, second = Painter(), Painter()
    mine: list[Event] = []
    with anyio.fail_after(SECONDS):
        async with (
            Client(asking.url, tools=painting(first), claims=False) as one,
            Client(asking.url, tools=[slow(second)], claims=False) as other,
            anyio.create_task_group() as tasks,
        ):
            asked = one.send(order(["paint", "{}"]), conversation_id=conversation)
            tasks.start_soon(collect, asked, mine)
            await first.begun.wait()
            second.let.set()
            theirs = [event async for event in other.resume(conversation)]
            first.let.set()
    assert (len(first.painted), len(second.painted)) == (1, 1)
    assert [len(of_kind(events, ToolAnswer)) for events in (mine, theirs)] == [0, 1]
    assert [joined(events) for events in (mine, theirs)] == ["Done.", "Done."]
    assert await history(raw, conversation) == [("tool", "red")]


def slow(painter: Painter) -> Tool:
    async def paint(arguments: object, context: ToolContext) -> str:
        await painter(arguments, context)
        return "red"

    return Tool("paint", "", {"type": "object"}, paint)


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
    asking: Server, raw: RawClient, conversation: str, verdict: Any, expected: list[Any]
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
    kept = await history(raw, conversation)
    assert [role for role, _ in kept] == ["approval", "tool"]
    assert kept[0] == expected[0]
    assert expected[1][1] in str(kept[1][1])


async def test_decisions_and_results_go_together_and_what_is_always_allowed_is_not_asked_again(
    asking: Server, raw: RawClient, conversation: str
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
    kept = await history(raw, conversation)
    assert sorted(map(str, kept)) == sorted(
        map(str, [("approval", True), *[("tool", "blue"), ("tool", "hi")] * 2])
    )


async def test_an_approval_that_nobody_is_asked_for_waits_for_a_decision_of_any_client(
    asking: Server, raw: RawClient, conversation: str
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
    assert await history(raw, conversation) == [("approval", True), ("tool", "hi")]


@pytest.mark.promise("P9")
@pytest.mark.parametrize("claims", [True, False], ids=["is told", "asks on, in vain"])
async def test_an_approval_that_another_client_answered_is_settled(
    asking: Server, raw: RawClient, conversation: str, claims: bool
) -> None:
    """With claims it learns of it while it asks; without, its own answer comes too late."""
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
    assert await history(raw, conversation) == [("approval", True), ("tool", "hi")]


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
    asking: Server, raw: RawClient, conversation: str
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
    [(role, content)] = await history(raw, conversation)
    assert (role, content) == ("tool", [{"type": "data", "data": {"answers": answers}}])


async def test_a_question_stays_owed_where_nobody_answers_and_a_later_client_does(
    asking: Server, raw: RawClient, conversation: str
) -> None:
    declared: Any = {"name": "ask_user"}
    message = user(order(["ask_user", '{"questions": [{"question": "Why?"}]}']))
    await raw.post(conversation, message, tools=[declared])

    def use(answer: Callable[[Any], Any] | None) -> str:
        with plain.Client(asking.url) as client:
            if answer is not None:
                client.questions(answer)
            return joined(list(client.resume(conversation)))

    with anyio.fail_after(SECONDS):
        assert await anyio.to_thread.run_sync(use, None) == ""
        [owed] = (await raw.conversation(conversation))["owed"]
        assert owed["kind"] == "question"
        said = await anyio.to_thread.run_sync(use, lambda _: [Reply(text="So.")])
    assert said == "Done."
