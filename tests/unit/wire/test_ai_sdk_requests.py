"""Of the messages that a client of the AI SDK posts, what is new counts."""

from typing import Any

import pytest
from tests.support.ai_sdk import API, Json, agent, tool_part, user
from tests.support.asgi_client import ask_json
from tests.support.logged_runs import RUN, LoggedRuns
from tests.unit.wire.ai_sdk_site import GREETING, post, recorded, site

from passback.core.messages import (
    ApprovalMessage,
    AssistantMessage,
    CallId,
    DataPart,
    MediaPart,
    Message,
    MessageId,
    Owed,
    RunId,
    SystemMessage,
    TextPart,
    ToolMessage,
    UserMessage,
)
from passback.core.posts import StartRun
from passback.core.runs import BranchPoint

pytestmark = pytest.mark.anyio

STEP: Json = {"type": "step-start"}
PIXEL = "data:image/png;base64,iVBORw0KGgo="


def says(text: str, message_id: str = "", run_id: str = "") -> UserMessage:
    return UserMessage(MessageId(message_id), text, run_id=RunId(run_id))


def tells(text: str, message_id: str, run_id: str) -> AssistantMessage:
    return AssistantMessage(MessageId(message_id), text, run_id=RunId(run_id))


async def command(body: Json, runs: LoggedRuns | None = None, **request: Any) -> StartRun:
    runs = runs or LoggedRuns(*GREETING)
    answer = await post(runs, {"id": "c", **body}, **request)
    assert answer.status == 200, answer.body
    return runs.posts[-1]


# ---------------------------------------------------------------- new messages
async def test_the_messages_behind_the_agents_last_one_are_new_and_the_last_keeps_its_id() -> None:
    messages = [user("a", "u1"), agent(), user("b", "u2"), user("c", "u3")]
    found = await command({"messages": messages})
    assert found.messages == (says("b"), says("c", "u3"))
    assert found.named == {"u3"}
    assert (found.resends, found.continues, found.after) == (True, True, None)
    assert "begin" in found.flaw


async def test_a_first_message_may_begin_a_chat() -> None:
    found = await command({"messages": [user("a", "u1")]})
    assert (found.continues, found.flaw) == (False, "")
    assert found.key == RUN.key


async def test_the_new_message_alone_is_enough() -> None:
    found = await command({"message": user("b", "u2")})
    assert (found.messages, found.named) == ((says("b", "u2"),), frozenset({"u2"}))


async def test_a_chat_without_an_id_is_a_new_one() -> None:
    runs = LoggedRuns(*GREETING)
    for body in ({}, {"id": ""}, {"id": None}):
        await ask_json(site(runs), "POST", API, {**body, "message": user("b")})
    assert len({each.key.id for each in runs.posts}) == 3


async def test_a_message_has_texts_files_and_data() -> None:
    parts = [
        {"type": "text", "text": "look"},
        {"type": "file", "mediaType": "image/PNG; q=1", "url": PIXEL, "filename": "a.png"},
        {"type": "file", "mediaType": "image/*", "url": "https://x.test/b"},
        {"type": "file", "mediaType": "audio", "url": "https://x.test/c"},
        {"type": "file", "mediaType": "text/plain", "url": "https://x.test/d"},
        {"type": "data-place", "data": {"x": 1}},
    ]
    found = await command({"message": {"id": "u", "role": "user", "parts": parts}})
    assert found.messages == (
        UserMessage(
            MessageId("u"),
            (
                TextPart("look"),
                MediaPart("image", PIXEL, "image/png", "a.png"),
                MediaPart("image", "https://x.test/b"),
                MediaPart("audio", "https://x.test/c"),
                MediaPart("file", "https://x.test/d", "text/plain"),
                DataPart({"x": 1}),
            ),
        ),
    )


async def test_what_a_request_says_beside_its_messages_is_as_on_other_wires() -> None:
    tool = {"name": "paint", "parameters": {"type": "object"}}
    body: Json = {
        "message": user("b", "u"),
        "agent": "painter",
        "intent": "paint",
        "tools": [tool],
        "onBusy": "enqueue",
        "onDisconnect": "cancel",
        "unknown": 1,
    }
    found = await command(body, headers={"idempotency-key": "k"})
    [message] = found.messages
    assert isinstance(message, UserMessage)
    assert message.context is not None
    assert (message.agent, message.context.intent) == ("painter", "paint")
    assert found.tools is not None
    assert [each.name for each in found.tools] == ["paint"]
    assert (found.on_busy, found.on_disconnect) == ("enqueue", "cancel")
    assert found.idempotency_key == "k"


async def test_a_system_message_needs_the_setting() -> None:
    system = {"id": "s", "role": "system", "parts": [{"type": "text", "text": "be kind"}]}
    runs = LoggedRuns(*GREETING)
    body = {"id": "c", "messages": [system, user("a", "u")]}
    answer = await post(runs, body)
    assert (answer.status, answer.headers["x-error-code"]) == (422, "invalid_request")
    app = site(runs, allow_roles=frozenset({"user", "system"}))
    assert (await ask_json(app, "POST", API, body)).status == 200
    assert runs.posts[0].messages == (SystemMessage(MessageId(""), "be kind"), says("a", "u"))


# ---------------------------------------------------------------- answers
ANSWERS: Json = agent(
    STEP,
    tool_part("output-available", "call_old", output="before"),
    STEP,
    {"type": "text", "text": "on it"},
    tool_part("output-available", "call_a", output={"b": 1}),
    tool_part("output-available", "call_b"),
    tool_part("output-error", "call_c", errorText="broken"),
    tool_part("approval-responded", "call_d", approval={"id": "call_d", "approved": True}),
    {
        **tool_part("approval-responded", "call_e", providerExecuted=True),
        "type": "dynamic-tool",
        "approval": {"id": "call_e", "approved": False, "reason": "no"},
    },
    tool_part("output-available", "call_f", output=1, providerExecuted=True),
    tool_part("output-available", "call_g", output=1, preliminary=True),
    tool_part("input-available", "call_h"),
)


async def test_answers_are_those_of_the_client_in_the_last_step() -> None:
    found = await command({"messages": [user("go"), ANSWERS]})
    unnamed = MessageId("")
    assert found.messages == (
        ToolMessage(unnamed, CallId("call_a"), (DataPart({"b": 1}),)),
        ToolMessage(unnamed, CallId("call_b"), (DataPart(None),)),
        ToolMessage(unnamed, CallId("call_c"), "broken", is_error=True),
        ApprovalMessage(unnamed, CallId("call_d"), True),
        ApprovalMessage(unnamed, CallId("call_e"), False, "no"),
    )
    assert found.continues


async def test_an_earlier_message_may_be_gone_on_with() -> None:
    messages = [user("go"), ANSWERS, user("and?", "u2"), agent(message_id="run_2")]
    found = await command({"messages": messages, "messageId": "run_1"})
    assert len(found.messages) == 5


async def test_answers_before_a_new_message_count_while_they_are_owed() -> None:
    """A client keeps them in its list for ever; those that came too late must not be an error."""
    runs = recorded(owed=(Owed(CallId("call_a"), "paint", "{}"),))
    found = await command({"messages": [user("go"), ANSWERS, user("and?", "u2")]}, runs)
    answer = ToolMessage(MessageId(""), CallId("call_a"), (DataPart({"b": 1}),))
    assert found.messages == (answer, says("and?", "u2"))


# ---------------------------------------------------------------- edits
HISTORY: tuple[Message, ...] = (
    says("a", "u1", "run_1"),
    tells("A", "a1", "run_1"),
    tells("A2", "a2", "run_1"),
    says("b", "u2", "run_2"),
    tells("B", "a3", "run_2"),
)


async def edit(messages: list[Json], runs: LoggedRuns | None = None, **more: Any) -> StartRun:
    runs = runs or recorded(*HISTORY)
    return await command({"messages": messages, "messageId": messages[-1]["id"], **more}, runs)


async def test_an_edited_message_follows_what_the_first_one_followed() -> None:
    found = await edit([user("a", "u1"), agent(message_id="run_1"), user("B!", "u2")])
    assert (found.after, found.messages, found.named) == ("a2", (says("B!"),), frozenset())


async def test_an_edited_first_message_follows_none() -> None:
    assert (await edit([user("A!", "u1")])).after == ""


async def test_a_message_that_was_edited_before_is_found_on_its_other_branch() -> None:
    """The client has one id for both versions."""
    runs = recorded(*HISTORY[:3], says("b2", "other", "run_3"))
    runs.points = [
        BranchPoint(None, (MessageId("u1"), MessageId("u0")), None),
        BranchPoint(MessageId("a2"), (MessageId("u2"), MessageId("other")), None),
    ]
    found = await command({"message": user("b3", "u2"), "messageId": "u2"}, runs)
    assert (found.after, found.messages) == ("a2", (says("b3"),))
    runs.points = [BranchPoint(None, (MessageId("u1"),), None)]
    assert (await edit([user("a3", "u1")], recorded(says("a2", "x")))).after == ""


async def test_a_message_with_another_id_is_found_by_the_answer_before_it() -> None:
    found = await edit([user("a"), agent(message_id="run_1"), user("B!", "mine")])
    assert found.after == "a2"
    found = await edit([user("a"), agent(message_id="a1"), user("B!", "mine")])
    assert found.after == "a2"
    assert (await edit([user("A!", "mine")])).after == ""


async def test_an_edited_message_that_was_refused_comes_last() -> None:
    runs = recorded(*HISTORY[:3])
    found = await edit([user("a"), agent(message_id="run_1"), user("B!", "mine")], runs)
    assert (found.after, found.messages) == (None, (says("B!"),))


async def test_an_edited_message_of_a_chat_that_never_began_begins_it() -> None:
    found = await edit([user("A!", "u1")], LoggedRuns(*GREETING))
    assert (found.after, found.messages) == (None, (says("A!"),))


# ---------------------------------------------------------------- regenerating
async def again(runs: LoggedRuns | None = None, **body: Any) -> StartRun:
    return await command({"trigger": "regenerate-message", **body}, runs or recorded(*HISTORY))


async def test_a_message_of_the_user_is_answered_anew() -> None:
    found = await again(messages=[user("a", "u1")], messageId="run_1")
    assert (found.after, found.messages) == ("u1", ())
    found = await again(messages=[user("a", "u1"), agent(message_id="run_1"), user("b", "u2")])
    assert (found.after, found.messages) == ("u2", ())


async def test_a_message_that_was_edited_is_found_by_its_content() -> None:
    """Its id is that of the first version, on another branch, or even of one here."""
    found = await again(messages=[user("x"), agent(message_id="run_1"), user("b", "other")])
    assert found.after == "u2"
    found = await again(messages=[user("x"), agent(message_id="run_1"), user("b", "u1")])
    assert found.after == "u2"
    parts = (TextPart("b"), DataPart(1))
    runs = recorded(*HISTORY[:3], UserMessage(MessageId("v"), parts, run_id=RunId("run_2")))
    shown = [{"type": "text", "text": "b"}, {"type": "data-x", "data": 1}]
    message = {"id": "u2", "role": "user", "parts": shown}
    found = await again(runs, messages=[user("x"), agent(message_id="run_1"), message])
    assert found.after == "v"


async def test_a_message_that_was_refused_is_posted_when_it_is_regenerated() -> None:
    found = await again(messages=[user("x"), agent(message_id="run_2"), user("new", "u3")])
    assert (found.after, found.messages, found.named) == (
        None,
        (says("new", "u3"),),
        frozenset({"u3"}),
    )
    found = await again(messages=[user("x"), agent(message_id="strange"), user("b", "u3")])
    assert (found.after, found.messages) == (None, (says("b", "u3"),))
    found = await again(message=user("new", "u3"))
    assert (found.after, found.messages) == (None, (says("new", "u3"),))
    found = await again(LoggedRuns(*GREETING), messages=[user("new", "u3")])
    assert (found.after, found.messages) == (None, (says("new", "u3"),))


async def test_ids_alone_are_enough_to_regenerate() -> None:
    assert (await again(messageId="run_1")).after == "u1"
    assert (await again(messageId="a2")).after == "u1"
    assert (await again(messageId="u2")).after == "u2"
    assert (await again()).after == "u2"


async def test_what_belongs_to_a_message_of_the_user_counts_only_with_one() -> None:
    """An app's transport says it with each request."""
    found = await again(messages=[user("a", "u1")], structuredData=1, outputSchema="{")
    assert (found.after, found.messages) == ("u1", ())
    found = await command({"messages": [user("go"), ANSWERS], "intent": "paint"})
    assert len(found.messages) == 5


# ---------------------------------------------------------------- long chats
async def test_a_place_before_what_is_searched_is_unknown() -> None:
    """Rather than to go on at the wrong one."""
    told = [tells(str(n), f"m{n}", "run_0") for n in range(10_000)]
    runs = recorded(says("first", "u0", "run_0"), *told)
    for messages, of in (
        ([user("A!", "u0")], "u0"),
        ([user("x"), agent(message_id="run_9"), user("B!", "u9")], "u9"),
    ):
        answer = await post(runs, {"id": "c", "messages": messages, "messageId": of})
        assert (answer.status, answer.headers["x-error-code"]) == (404, "message_not_found")
    runs = recorded(says("first", "u0", "run_0"), says("next", "u1"), *told[1:])
    answer = await post(runs, {"id": "c", "message": user("B!", "u1"), "messageId": "u1"})
    assert (answer.status, answer.headers["x-error-code"]) == (404, "message_not_found")
