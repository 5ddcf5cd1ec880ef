"""What of a posted AG-UI thread is new, and where it goes on."""

import json
from typing import Any

import anyio
import httpx
import pytest
from tests.support.logged_runs import RUN, LoggedRuns
from tests.unit.wire.ag_ui_site import (
    Json,
    Thread,
    assistant,
    call_of,
    message_of,
    post,
    posted,
    threads,
    tool_result,
    types_of,
    user,
)

from passback import Agent, tool
from passback.core.changes import Status
from passback.core.deltas import Finish
from passback.core.errors import ModelUnavailable
from passback.core.events import Completed, RunFinished
from passback.core.ids import new_message_id
from passback.core.messages import ConversationId, ConversationKey, MessageId, OwnerId
from passback.models.scripted import Step
from passback.testing import ScriptedModel, calls, says

pytestmark = pytest.mark.anyio

KEY = ConversationKey(OwnerId("anonymous"), ConversationId("c"))
PAINT: Json = {"name": "paint", "description": "Paints.", "parameters": {}}
ASK_USER: Json = {"name": "ask_user", "description": "Asks."}
QUESTIONS: Json = {
    "questions": [{"question": "Which?", "options": [{"label": "a"}, {"label": "b"}]}]
}


@tool(permission="ask")
def erase() -> str:
    """Erase it."""
    return "erased"


@tool
def look() -> str:
    """Look."""
    return "seen"


def agent(*script: list[Step], **fields: Any) -> Agent:
    return Agent(model=ScriptedModel([*script]), tools=[erase, look], **fields)


def said_to(model: ScriptedModel, number: int = -1) -> list[str]:
    """Return the texts of a request's messages."""
    texts = [str(each.content) for each in model.requests[number].messages]
    return [each.rpartition("</user_context>\n\n")[2] for each in texts]


# ---------------------------------------------------------------- going on
async def test_a_thread_goes_on_with_its_whole_history() -> None:
    model = ScriptedModel([says("one"), says("two")])
    async with threads(Agent(model=model)) as client:
        thread = Thread(client)
        first = message_of(await thread.post(user("a")))
        second = await thread.post(user("a"), first, user("b", "u2"))
        assert message_of(second)["content"] == "two"
        assert said_to(model) == ["a", "one", "b"]
        assert await thread.texts() == ["a", "one", "b", "two"]
        assert [each["id"] for each in await thread.recorded()][:3] == ["u1", first["id"], "u2"]


async def test_what_only_the_client_knows_is_ignored() -> None:
    async with threads(agent(says("one"), says("two"))) as client:
        thread = Thread(client)
        own = [{"role": "activity"}, {"role": "reasoning", "id": "r", "content": "hm"}]
        first = message_of(await thread.post(assistant("hello"), *own, user("a")))
        await thread.post(assistant("hello"), user("a"), first, assistant("local"), user("b", "u2"))
        assert await thread.texts() == ["a", "one", "b", "two"]


async def test_a_long_thread_is_searched_from_its_end() -> None:
    async with threads(agent(*[says(f"{n}") for n in range(70)])) as client:
        thread = Thread(client)
        first = message_of(await thread.post(user("q", "q0")))
        said = first
        for number in range(1, 69):
            said = message_of(await thread.post(said, user("q", f"q{number}")))
        last = message_of(await thread.post(user("q", "q0"), first, user("anew", "n")))
        assert last["content"] == "69"
        assert await thread.texts() == ["q", "0", "anew", "69"]


async def test_messages_that_nobody_knows_replace_the_thread() -> None:
    """The client has edited its first message: the old branch stays."""
    async with threads(agent(says("one"), says("two"))) as client:
        thread = Thread(client)
        await thread.post(user("a"))
        await thread.post(user("b", "u2"))
        assert await thread.texts() == ["b", "two"]
        assert [each["after"] for each in (await thread.status())["branches"]] == [None]


# ---------------------------------------------------------------- branches
async def test_an_edited_message_begins_a_branch() -> None:
    async with threads(agent(*[says(each) for each in ("one", "two", "three", "four")])) as client:
        thread = Thread(client)
        first = message_of(await thread.post(user("a")))
        await thread.post(user("a"), first, user("b", "u2"))
        third = message_of(await thread.post(user("a"), first, user("c", "u3")))
        assert await thread.texts() == ["a", "one", "c", "three"]
        [place] = (await thread.status())["branches"]
        assert (place["after"], place["versions"]) == (first["id"], ["u2", "u3"])
        await thread.post(user("a"), first, user("c", "u3"), third, user("d", "u4"))
        assert await thread.texts() == ["a", "one", "c", "three", "d", "four"]


async def test_a_message_that_is_edited_under_its_id_begins_a_branch() -> None:
    async with threads(agent(says("one"), says("two"), says("three"))) as client:
        thread = Thread(client)
        first = message_of(await thread.post(user("a")))
        await thread.post(user("a"), first, user("b", "u2"))
        await thread.post(user("a"), first, user("B", "u2"))
        assert await thread.texts() == ["a", "one", "B", "three"]
        [place] = (await thread.status())["branches"]
        assert place["versions"][0] == "u2" != place["versions"][1]


async def test_a_client_goes_back_to_a_branch_that_it_has_left() -> None:
    async with threads(agent(*[says(each) for each in ("one", "two", "three", "four")])) as client:
        thread = Thread(client)
        first = message_of(await thread.post(user("a")))
        second = message_of(await thread.post(user("a"), first, user("b", "u2")))
        await thread.post(user("a"), first, user("c", "u3"))
        await thread.post(user("a"), first, user("b", "u2"), second, user("d", "u4"))
        assert await thread.texts() == ["a", "one", "b", "two", "d", "four"]


async def test_a_message_of_a_branch_that_was_left_is_answered_anew() -> None:
    async with threads(agent(*[says(each) for each in ("one", "two", "three", "four")])) as client:
        thread = Thread(client)
        first = message_of(await thread.post(user("a")))
        await thread.post(user("a"), first, user("b", "u2"))
        await thread.post(user("a"), first, user("c", "u3"))
        fourth = await thread.post(user("a"), first, user("b", "u2"))
        assert message_of(fourth)["content"] == "four"
        assert await thread.texts() == ["a", "one", "b", "four"]


async def test_an_answer_that_the_client_has_dropped_is_given_anew() -> None:
    async with threads(agent(says("one"), says("two"))) as client:
        thread = Thread(client)
        await thread.post(user("a"))
        assert message_of(await thread.post(user("a")))["content"] == "two"
        assert await thread.texts() == ["a", "two"]


async def test_an_answer_after_results_is_given_anew() -> None:
    async with threads(agent(calls(("look", {})), says("one"), says("two"))) as client:
        thread = Thread(client)
        events = await thread.post(user("a"))
        [result] = [each for each in events if each["type"] == "TOOL_CALL_RESULT"]
        seen = tool_result(result["toolCallId"], "seen", result["messageId"])
        again = await thread.post(user("a"), call_of(events), seen)
        assert message_of(again)["content"] == "two"
        assert await thread.texts() == ["a", "", "seen", "two"]


async def test_a_failed_message_is_answered_by_posting_it_again() -> None:
    failing: list[Step] = [ModelUnavailable("it is away")]
    async with threads(agent(failing, says("one"))) as client:
        thread = Thread(client)
        events = await thread.post(user("a"))
        assert types_of(events)[-1] == "RUN_ERROR"
        assert message_of(await thread.post(user("a")))["content"] == "one"
        assert [each["role"] for each in await thread.recorded()] == ["user", "assistant"]


async def test_an_answer_that_was_cut_is_given_anew() -> None:
    failing: list[Step] = ["half", ModelUnavailable("it is away")]
    async with threads(agent(failing, says("one"))) as client:
        thread = Thread(client)
        events = await thread.post(user("a"))
        assert types_of(events)[-1] == "RUN_ERROR"
        half = message_of(events)
        assert await thread.texts() == ["a", half["content"]] == ["a", "half"]
        await thread.post(user("a"), half)
        assert await thread.texts() == ["a", "one"]


async def test_an_answer_that_was_never_recorded_stands_for_the_recorded_one() -> None:
    """A worker died after its client had seen it, and another one has answered."""
    async with threads(agent(says("one"), says("two"), says("three"))) as client:
        thread = Thread(client)
        await thread.post(user("a"))
        void = assistant(new_message_id(KEY), "void")
        said = [user("a"), void, user("b", "u2")]
        await thread.post(*said)
        assert await thread.texts() == ["a", "one", "b", "two"]
        # before a message of the user that the client does not have, it is an edit all the same
        await thread.post(user("a"), void, user("c", "u3"))
        assert await thread.texts() == ["a", "c", "three"]


async def test_an_answer_that_the_record_does_not_have_is_given_anew() -> None:
    async with threads(agent(says("one"), says("two"))) as client:
        thread = Thread(client)
        await thread.post(user("a"))
        await thread.post(user("a"), assistant(new_message_id(KEY), "void"))
        assert await thread.texts() == ["a", "two"]


async def test_a_result_of_the_server_is_history_also_if_it_is_not_recorded() -> None:
    """As that of a call in an answer that broke off."""
    async with threads(agent(says("one"), says("two"))) as client:
        thread = Thread(client)
        await thread.post(user("a"))
        void = assistant(new_message_id(KEY), "", "c1")
        await thread.post(user("a"), void, tool_result("c1", "stopped", "c1_result"))
        assert await thread.texts() == ["a", "two"]


async def test_a_thread_with_its_last_answer_has_nothing_new() -> None:
    async with threads(agent(says("one"))) as client:
        thread = Thread(client)
        first = message_of(await thread.post(user("a")))
        status, code, message = await thread.refusal(user("a"), first)
        assert (status, code) == (422, "nothing_to_do")
        assert "leave out the agent's last message" in message


# ---------------------------------------------------------------- repeats
async def test_a_repeat_of_a_request_joins_its_run() -> None:
    async with threads(agent(says("one"), says("two"))) as client:
        thread = Thread(client)
        first = await thread.post(user("a"), runId="r1")
        again = await thread.post(user("a"), runId="r1")
        assert again == first
        second = [user("a"), message_of(first), user("b", "u2")]
        two = await thread.post(*second, runId="r2")
        assert await thread.post(*second, runId="r2") == two
        assert await thread.post(user("a"), runId="r1") == first
        assert await thread.texts() == ["a", "one", "b", "two"]


async def test_a_repeat_with_the_last_event_gets_the_rest() -> None:
    async with threads(agent(says("one", "two"))) as client:
        thread = Thread(client)
        whole = await thread.post(user("a"), runId="r1")
        assert thread.answer is not None
        ids = [line[4:] for line in thread.answer.text.split("\n") if line.startswith("id: ")]
        assert len(ids) == len(whole)
        for number, last in enumerate(ids):
            rest = await thread.post(user("a"), runId="r1", headers={"last-event-id": last})
            assert rest == whole[number + 1 :]


async def test_a_run_id_names_one_request() -> None:
    async with threads(agent(says("one"), says("two"))) as client:
        thread = Thread(client)
        first = message_of(await thread.post(user("a"), runId="r1"))
        status, code, message = await thread.refusal(user("a"), first, user("b", "u2"), runId="r1")
        assert (status, code) == (422, "reused")
        assert "runId" in message
        keyed = {"idempotency-key": "k"}
        await thread.post(user("a"), first, user("b", "u2"), runId="r1", headers=keyed)
        assert await thread.texts() == ["a", "one", "b", "two"]


async def test_a_client_with_nothing_new_follows_the_run_that_goes_on() -> None:
    going_on = anyio.Event()
    async with threads(agent(["on", going_on, Finish("stop")])) as client:
        thread = Thread(client)
        async with thread.stream(user("a"), runId="r1") as one:
            first = [await one.until("TEXT_MESSAGE_CONTENT")]
            async with thread.stream(user("a"), runId="r2") as two:
                await two.until("TEXT_MESSAGE_CONTENT")
                going_on.set()
                await two.until("RUN_FINISHED")
            await one.until("RUN_FINISHED")
        assert first[0]["delta"] == "on"
        assert types_of(one.events) == types_of(two.events)
        assert (one.events[0]["runId"], two.events[0]["runId"]) == ("r1", "r2")
        assert await thread.texts() == ["a", "on"]


async def test_a_thread_with_a_run_refuses_a_new_message_or_lets_it_wait() -> None:
    going_on = anyio.Event()
    waiting: list[Step] = ["on", going_on, Finish("stop")]
    script = [waiting, says("two")]
    async with threads(agent(*script)) as client:
        thread = Thread(client)
        async with thread.stream(user("a")) as one:
            partial = await one.until("TEXT_MESSAGE_CONTENT")
            said = [user("a"), assistant(partial["messageId"], "on"), user("b", "u2")]
            assert (await thread.refusal(*said))[:2] == (409, "conversation_busy")
            waits = {"passback": {"onBusy": "enqueue"}}
            async with thread.stream(*said, forwardedProps=waits) as two:
                await two.until("RUN_STARTED")
                going_on.set()
                await one.until("RUN_FINISHED")
                await two.until("RUN_FINISHED")
        assert await thread.texts() == ["a", "on", "b", "two"]


# ---------------------------------------------------------------- results and answers
async def test_results_end_the_wait_and_the_history_is_not_read_again() -> None:
    async with threads(agent(calls(("paint", {})), says("done"), says("more"))) as client:
        thread = Thread(client)
        events = await thread.post(user("a"), tools=[PAINT])
        called = call_of(events)
        [call_id] = events[-1]["outcome"]["pendingToolCallIds"]
        said = [user("a"), called, tool_result(call_id, "blue")]
        done = await thread.post(*said, tools=[PAINT])
        assert message_of(done)["content"] == "done"
        # another text for the same call is history by now
        said[2] = tool_result(call_id, "red")
        await thread.post(*said, message_of(done), user("b", "u2"), tools=[PAINT])
        assert await thread.texts() == ["a", "", "blue", "done", "b", "more"]


async def test_results_may_come_one_by_one_and_again() -> None:
    two_calls = calls(("paint", {}), ("paint", {"a": 1}))
    async with threads(agent(two_calls, says("done"))) as client:
        thread = Thread(client)
        events = await thread.post(user("a"), tools=[PAINT])
        one, two = events[-1]["outcome"]["pendingToolCallIds"]
        said = [user("a"), call_of(events), tool_result(one, "1")]
        for _ in range(2):
            parked = await thread.post(*said, tools=[PAINT])
            assert types_of(parked) == ["RUN_STARTED", "RUN_FINISHED"]
            assert parked[-1]["outcome"] == {"type": "success", "pendingToolCallIds": [two]}
            assert thread.answer is not None
            assert thread.answer.headers["x-owed-tool-calls"] == two
        done = await thread.post(*said, tool_result(two, "2"), tools=[PAINT])
        assert message_of(done)["content"] == "done"
        assert await thread.texts() == ["a", "", "1", "2", "done"]


async def test_a_message_beside_results_comes_after_them() -> None:
    async with threads(agent(calls(("paint", {})), says("done"))) as client:
        thread = Thread(client)
        events = await thread.post(user("a"), tools=[PAINT])
        [call_id] = events[-1]["outcome"]["pendingToolCallIds"]
        await thread.post(
            user("a"), call_of(events), tool_result(call_id, "blue"), user("b", "u2"), tools=[PAINT]
        )
        assert await thread.texts() == ["a", "", "blue", "b", "done"]


async def test_a_message_instead_of_results_goes_on_without_them() -> None:
    async with threads(agent(calls(("paint", {})), says("done"))) as client:
        thread = Thread(client)
        events = await thread.post(user("a"), tools=[PAINT])
        await thread.post(user("a"), call_of(events), user("b", "u2"), tools=[PAINT])
        assert (await thread.recorded())[2]["synthetic"] == "superseded"


@pytest.mark.parametrize(
    ("given", "kept", "failed"),
    [
        ({"content": "blue"}, "blue", False),
        ({"content": "", "error": "no"}, "no", True),
        ({"content": "half", "error": "no"}, "half", True),
        ({"content": [{"type": "text", "text": "x"}]}, [{"type": "text", "text": "x"}], False),
    ],
)
async def test_a_result_is_a_text_or_parts_and_may_be_an_error(
    given: Json, kept: object, failed: bool
) -> None:
    async with threads(agent(calls(("paint", {})), says("done"))) as client:
        thread = Thread(client)
        events = await thread.post(user("a"), tools=[PAINT])
        [call_id] = events[-1]["outcome"]["pendingToolCallIds"]
        given = {"role": "tool", "id": "t", "toolCallId": call_id, **given}
        await thread.post(user("a"), call_of(events), given, tools=[PAINT])
        recorded = (await thread.recorded())[2]
        assert (recorded["content"], recorded.get("isError", False)) == (kept, failed)


@pytest.mark.parametrize(
    ("entry", "result"),
    [
        ({"status": "resolved", "payload": {"approved": True}}, "erased"),
        ({"status": "resolved", "payload": True}, "erased"),
        ({"status": "resolved", "payload": {"approved": False, "reason": "no"}}, "says: no"),
        ({"status": "cancelled"}, "says: The user has cancelled it."),
    ],
)
async def test_an_approval_is_an_interrupt_that_resume_answers(entry: Json, result: str) -> None:
    async with threads(agent(calls(("erase", {})), says("done"))) as client:
        thread = Thread(client)
        events = await thread.post(user("a"))
        [interrupt] = events[-1]["outcome"]["interrupts"]
        resume = [{"interruptId": interrupt["id"], **entry}]
        said = [user("a"), call_of(events)]
        done = await thread.post(*said, resume=resume, runId="r2")
        assert types_of(done)[1] == "TOOL_CALL_RESULT"
        assert done[1]["content"].endswith(result)
        # the same answer once more, under its run id and under another one
        assert await thread.post(*said, resume=resume, runId="r2") == done
        again = await thread.post(*said, resume=resume)
        assert types_of(again) == types_of(done)


@pytest.mark.parametrize(
    ("entry", "content", "failed"),
    [
        (
            {"status": "resolved", "payload": {"answers": [{"selected": ["a"]}]}},
            [{"type": "data", "data": {"answers": [{"selected": ["a"]}]}}],
            False,
        ),
        ({"status": "cancelled"}, "The user has cancelled it.", True),
    ],
)
async def test_a_question_is_an_interrupt_too(entry: Json, content: object, failed: bool) -> None:
    async with threads(agent(calls(("ask_user", QUESTIONS)), says("done"))) as client:
        thread = Thread(client)
        events = await thread.post(user("a"), tools=[ASK_USER])
        [interrupt] = events[-1]["outcome"]["interrupts"]
        resume = [{"interruptId": interrupt["id"], **entry}]
        said = [user("a"), call_of(events)]
        await thread.post(*said, resume=resume, tools=[ASK_USER])
        recorded = (await thread.recorded())[2]
        assert (recorded["content"], recorded.get("isError", False)) == (content, failed)
        again = await thread.post(*said, resume=resume, tools=[ASK_USER])
        assert message_of(again)["content"] == "done"


async def test_a_question_may_be_answered_as_a_tool_too() -> None:
    async with threads(agent(calls(("ask_user", QUESTIONS)), says("done"))) as client:
        thread = Thread(client)
        events = await thread.post(user("a"), tools=[ASK_USER])
        call_id = events[-1]["outcome"]["interrupts"][0]["id"]
        answer = tool_result(call_id, json.dumps({"answers": [{"selected": ["b"]}]}))
        done = await thread.post(user("a"), call_of(events), answer, tools=[ASK_USER])
        assert message_of(done)["content"] == "done"


async def test_a_decision_that_is_none_is_refused_and_changes_nothing() -> None:
    async with threads(agent(calls(("erase", {})), says("done"))) as client:
        thread = Thread(client)
        events = await thread.post(user("a"))
        [interrupt] = events[-1]["outcome"]["interrupts"]
        said = [user("a"), call_of(events)]
        entry: Json = {"interruptId": interrupt["id"], "status": "resolved", "payload": {"ok": 1}}
        status, code, message = await thread.refusal(*said, resume=[entry])
        assert (status, code) == (422, "invalid_request")
        assert message.startswith("resume.0: the payload")
        assert len((await thread.status())["owed"]) == 1
        both = [entry | {"payload": each} for each in (True, False)]
        assert (await thread.refusal(*said, resume=both))[:2] == (409, "tool_result_conflict")


async def test_after_a_failure_an_answer_that_was_given_counts_once() -> None:
    """The published client answers an interrupt again and again until a run has ended well."""
    failing: list[Step] = [ModelUnavailable("it is away")]
    script = [calls(("erase", {})), failing, says("done"), says("more")]
    async with threads(agent(*script)) as client:
        thread = Thread(client)
        events = await thread.post(user("a"))
        [interrupt] = events[-1]["outcome"]["interrupts"]
        said = [user("a"), call_of(events)]
        yes = [{"interruptId": interrupt["id"], "status": "resolved", "payload": True}]
        failed = await thread.post(*said, resume=yes)
        assert types_of(failed)[-1] == "RUN_ERROR"
        # the run that failed is tried again, also with another answer: the first one counts
        no = [{"interruptId": interrupt["id"], "status": "cancelled"}]
        done = await thread.post(*said, resume=no)
        assert message_of(done)["content"] == "done"
        await thread.post(*said, message_of(done), user("b", "u2"), resume=no)
        assert await thread.texts() == ["a", "", "", "erased", "done", "b", "more"]


# ---------------------------------------------------------------- a history from elsewhere
async def test_a_history_from_elsewhere_begins_a_thread_where_that_is_allowed() -> None:
    model = ScriptedModel([says("two"), says("three")])
    async with threads(Agent(model=model), allow_roles="system,assistant") as client:
        thread = Thread(client)
        said = [
            assistant("hello", "Hello!"),
            {"id": "s", "role": "developer", "content": "be kind"},
            user("a"),
            assistant("theirs", "one", "c1"),
            tool_result("c1", "seen"),
            user("b", "u2"),
        ]
        events = await thread.post(*said)
        assert await thread.texts() == ["be kind", "a", "one", "seen", "b", "two"]
        assert [each["id"] for each in await thread.recorded()][2:3] == ["theirs"]
        await thread.post(*said, message_of(events), user("c", "u3"))
        assert await thread.texts() == ["be kind", "a", "one", "seen", "b", "two", "c", "three"]


async def test_a_conversation_without_messages_is_begun() -> None:
    runs = LoggedRuns(RunFinished(Completed()))
    runs.known[RUN.key] = Status(1)
    await post(runs, posted(user("a")))
    [begun] = runs.posts
    assert (begun.after, begun.messages[0].id) == (None, MessageId("u1"))
    assert begun.named == frozenset({MessageId("u1")})


# ---------------------------------------------------------------- other wires
async def test_a_conversation_goes_on_from_one_wire_to_the_other() -> None:
    model = ScriptedModel([says(each) for each in ("one", "two", "three")])
    async with threads(Agent(model=model)) as client:
        thread = Thread(client)

        async def send(text: str) -> httpx.Response:
            body = {"conversationId": "c", "messages": [{"role": "user", "content": text}]}
            return await client.post("/send-message?wait=true", json=body)

        await send("a")
        history = await thread.post()
        known = history[1]["messages"]
        second = await thread.post(*known, user("b", "u2"))
        assert (await send("c")).json()["text"] == "three"
        assert await thread.texts() == ["a", "one", "b", "two", "c", "three"]
        assert message_of(second)["content"] == "two"
        assert said_to(model) == ["a", "one", "b", "two", "c"]


async def test_calls_of_one_wire_are_answered_on_the_other() -> None:
    script = [calls(("paint", {})), says("one"), calls(("paint", {})), says("two")]
    async with threads(agent(*script)) as client:
        thread = Thread(client)
        events = await thread.post(user("a"), tools=[PAINT])
        [call_id] = events[-1]["outcome"]["pendingToolCallIds"]
        body: Json = {"messages": [{"role": "tool", "toolCallId": call_id, "content": "blue"}]}
        await client.post("/send-message", json={**body, "conversationId": "c"})
        asked = {"conversationId": "c", "messages": [{"role": "user", "content": "b"}]}
        document = (await client.post("/send-message?wait=true", json=asked)).json()
        [owed] = document["owed"]
        history = (await thread.post())[1]["messages"]
        await thread.post(*history, tool_result(owed["id"], "red"), tools=[PAINT])
        assert (await thread.texts())[-2:] == ["red", "two"]
