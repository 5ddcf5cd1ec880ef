"""`whatif` of `chat:send`: a message edited, or answered anew, behind a turn."""

from contextlib import suppress
from typing import Any

import anyio
import httpx
import pytest
from tests.support.chat_site import ChatSite, Json, PlainChat, chat_site
from tests.support.logged_runs import RUN, LoggedRuns
from tests.unit.wire.test_chat_plain import agent, key, record, say
from tests.unit.wire.test_chat_resume import shown

from passback import Agent
from passback.core.changes import Status
from passback.core.errors import UnknownMessage
from passback.core.messages import (
    AssistantMessage,
    CallId,
    ChildMessage,
    Message,
    MessageId,
    SummaryMessage,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from passback.core.transcript import UNKNOWN_TOOL
from passback.models.scripted import ScriptedModel, calls
from passback.models.scripted import says as words
from passback.wire.chat.history import find_end_of_turn

pytestmark = pytest.mark.anyio

PAINT: Json = {"name": "paint", "parameters": {"type": "object", "properties": {}}}


async def turns(site: ChatSite, session: str) -> list[Json]:
    async with httpx.AsyncClient(base_url=site.url) as http:
        found: list[Json] = (await http.get(f"/api/sessions/{session}/messages")).json()
        return found


def texts(found: list[Json]) -> list[str]:
    return [block["content"] for turn in found for block in turn["blocks"]]


async def edit(
    client: PlainChat, session: str, from_step: int, message: str = "other", **more: Any
) -> list[Json]:
    return await say(client, session, message, whatif={"from_step": from_step}, **more)


async def test_a_message_is_edited_and_all_clients_have_what_is_read() -> None:
    async with chat_site(agent(*(words(str(number)) for number in range(5)))) as site:
        session = await site.create()
        async with site.subscribed(session) as client, site.subscribed(session) as other:
            heard = await say(client, session, "one") + await say(client, session, "two")
            for step, message, left in (
                (2, "three", ["one", "0", "three", "2"]),
                (1, "", ["one", "3"]),
                (0, "four", ["four", "4"]),
            ):
                heard += await edit(client, session, step, message)
                found = await turns(site, session)
                assert texts(found) == left
                assert [*shown(heard).kept.values()] == found
            others = [event for _ in range(5) for event in await other.chat()]
            assert others == heard
            place = (await site.runs.branches(key(session)))[0]
            assert (place.after, len(place.versions)) == (None, 2)


async def test_a_turn_is_kept_with_the_results_of_its_calls() -> None:
    script = [calls(("paint", {})), words("one"), words("two"), words("three")]
    async with chat_site(agent(*script)) as site:
        session = await site.create()
        async with site.subscribed(session) as client:
            asked = await say(client, session, "go", tools=[PAINT])
            [call] = asked[-1]["data"]["pending_tool_call_ids"]
            await say(client, session, "", tool_results=[{"tool_call_id": call, "result": "blue"}])
            await edit(client, session, 2, "")
            [_, painted, last] = await turns(site, session)
            assert painted["tool_calls"][0]["result"] == "blue"
            assert texts([last]) == ["two"]
            given = {"quotes": [], "deprecate_entry_ids": ["entry_1"], "from_step": 2}
            await say(client, session, "more", whatif=given)
            assert texts(await turns(site, session)) == ["go", "more", "three"]


async def test_calls_that_wait_are_left_or_go_on_without_an_answer() -> None:
    script = [calls(("paint", {})), words("one"), calls(("paint", {})), words("two")]
    async with chat_site(agent(*script)) as site:
        session = await site.create()
        async with site.subscribed(session) as client:
            await say(client, session, "go", tools=[PAINT])
            nothing = await client.call(
                "chat:send", session_id=session, message="", whatif={"from_step": 2}
            )
            assert (nothing["status"], nothing["code"]) == ("error", "nothing_to_do")
            await edit(client, session, 2, "go on")
            [_, first, _, _] = await turns(site, session)
            assert first["tool_calls"][0]["status"] == "cancelled"
            asked = await edit(client, session, 0, "again")
            [call] = asked[-1]["data"]["pending_tool_call_ids"]
            await edit(client, session, 0, "no")
            results = [{"tool_call_id": call, "result": "blue"}]
            late = await client.call(
                "chat:send", session_id=session, message="", tool_results=results
            )
            assert (late["status"], late["code"]) == ("error", "tool_result_conflict")
            assert texts(await turns(site, session)) == ["no", "two"]


# ---------------------------------------------------------------- during a chat
@pytest.mark.parametrize(
    ("on_busy", "left"),
    [
        ("enqueue", ["one", "0", "two", "half whole"]),
        ("interrupt", ["one", "0", "two", "half "]),
        ("rollback", ["one", "0", "two", "half "]),
    ],
)
async def test_an_edit_during_a_chat_waits_for_its_end(on_busy: str, left: list[str]) -> None:
    gate = anyio.Event()
    script = [words("0"), ["half ", gate, *words("whole")], words("2")]
    async with chat_site(agent(*script)) as site:
        session = await site.create()
        async with site.subscribed(session) as client:
            await say(client, session, "one")
            await client.call("chat:send", session_id=session, message="two")
            await client.until("turn:patch")
            sent: Json = {"session_id": session, "message": "x", "whatif": {"from_step": 0}}
            refused = await client.call("chat:send", **sent)
            assert (refused["code"], refused["session_id"]) == ("conversation_busy", session)
            ack = await client.call("chat:send", **sent, on_busy=on_busy)
            assert ack["status"] == "ok"
            if on_busy == "enqueue":
                gate.set()
            stopped, last = [(await client.chat())[-1]["data"] for _ in range(2)]
            assert stopped["status"] == ("completed" if on_busy == "enqueue" else "interrupted")
            assert last["chat_run_id"] == ack["chat_run_id"]
            assert texts(await turns(site, session)) == ["x", "2"]
            [place] = await site.runs.branches(key(session))
            await site.runs.switch(key(session), place.versions[0])
            assert texts(await turns(site, session)) == left


async def test_a_turn_whose_calls_are_being_made_cannot_be_followed() -> None:
    gate = anyio.Event()

    async def look() -> str:
        """Look."""
        await gate.wait()
        return "seen"

    model = ScriptedModel([calls(("look", {})), words("done")])
    async with chat_site(Agent(model=model, tools=[look])) as site:
        session = await site.create()
        async with site.subscribed(session) as client:
            await client.call("chat:send", session_id=session, message="go")
            await client.until("turn:patch")
            refused = await client.call(
                "chat:send",
                session_id=session,
                message="x",
                whatif={"from_step": 2},
                on_busy="enqueue",
            )
            assert (refused["status"], refused["code"]) == ("error", "invalid_request")
            assert "answered only behind it" in refused["message"]
            gate.set()
            assert (await client.chat())[-1]["data"]["status"] == "completed"
            assert await record(site, session) == 4


# ---------------------------------------------------------------- plain requests
async def test_a_headless_chat_is_edited_too_and_errors_have_the_form_of_these_routes() -> None:
    async with chat_site(agent(words("0"), words("1"), words("2"))) as site:
        session = await site.create()
        path = f"/api/sessions/{session}/chat"
        async with httpx.AsyncClient(base_url=site.url) as http:
            await http.post(path, json={"message": "one"})
            edited = await http.post(path, json={"message": "x", "whatif": {"from_step": 0}})
            assert edited.json()["result"] == {"output": "1"}
            keyed = {"idempotency-key": "k"}
            more = {"message": "y", "whatif": {"from_step": 2, "deprecate_entry_ids": None}}
            for _ in range(2):
                answer = await http.post(path, json=more, headers=keyed)
                assert answer.json()["result"] == {"output": "2"}
            left = ["x", "1", "y", "2"]
            assert texts(await turns(site, session)) == left
            for body, status, code in (
                ({"message": "x", "whatif": {"from_step": 7}}, 404, "message_not_found"),
                ({"whatif": {"from_step": 1}}, 422, "invalid_request"),
                ({"message": "x", "whatif": {"from_step": -1}}, 422, "invalid_request"),
            ):
                refused = await http.post(path, json=body)
                assert (refused.status_code, refused.json()["code"]) == (status, code)
                assert {"detail", "code", "request_id"} <= refused.json().keys()
            assert texts(await turns(site, session)) == left


# ---------------------------------------------------------------- the end of a turn
CALL = CallId("c")
PARTS: list[Message] = [
    SystemMessage(MessageId("s1"), "be kind"),  # 1
    UserMessage(MessageId("u2"), "go"),  # 2
    AssistantMessage(MessageId("a3"), "", (ToolCall(CALL, "nosuch", "{}"),)),
    ToolMessage(MessageId("t4"), CALL, f"{UNKNOWN_TOOL}nosuch", synthetic="invalid"),
    AssistantMessage(MessageId("a5"), "no", (ToolCall(CallId("d"), "paint", "{}"),)),
    ToolMessage(MessageId("t6"), CallId("d"), "painted"),
    SummaryMessage(MessageId("m7"), "they painted", 0),
    AssistantMessage(MessageId("a8"), ""),
]


async def found_ends(*messages: Message) -> dict[int, str]:
    """The last messages of all turns that can be named."""
    runs, ends = LoggedRuns(), dict[int, str]()
    runs.history = messages
    runs.known[RUN.key] = Status(1, RUN.run_id, message_count=len(messages))
    for step in range(len(messages) + 2):
        with suppress(UnknownMessage):
            ends[step] = await find_end_of_turn(runs, RUN.key, step)
    return ends


async def test_results_belong_to_a_turn_and_what_says_nothing_does_not() -> None:
    ends = {0: "", 1: "s1", 2: "u2", 3: "t6", 4: "m7"}
    assert await found_ends(*PARTS) == ends
    another = UserMessage(MessageId("u9"), "more")
    assert await found_ends(*PARTS, another) == {**ends, 9: "u9"}
    # of the last call nobody was told
    assert await found_ends(*PARTS[:4]) == {0: "", 1: "s1", 2: "u2"}
    assert await found_ends() == {0: ""}


async def test_a_turn_is_found_behind_many_messages_of_a_sub_agent() -> None:
    steps = [
        ChildMessage(CALL, AssistantMessage(MessageId(f"b{number}"), "hm")) for number in range(250)
    ]
    delegates = AssistantMessage(MessageId("a2"), "", (ToolCall(CALL, "helper", "{}"),))
    done = ToolMessage(MessageId("t3"), CALL, "found")
    said = AssistantMessage(MessageId("a4"), "it is found")
    asked = UserMessage(MessageId("u1"), "go")
    messages: list[Message] = [asked, delegates, *steps, done, said]
    assert await found_ends(*messages) == {0: "", 1: "u1", 2: "t3", 3: "a4"}
