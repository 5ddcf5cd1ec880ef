"""`/send-message`: posts, their options, and their answer, which is the run's log."""

from typing import Any
from urllib.parse import unquote

import pytest
from tests.support.asgi_client import ask_json
from tests.support.logged_runs import OPENING, RUN
from tests.unit.wire.send_message_site import HELLO, PATH, STREAM, greeting, send, site

from passback.core.messages import (
    UNNAMED,
    ApprovalMessage,
    CallId,
    ConversationId,
    ConversationKey,
    DataPart,
    MediaPart,
    MessageContext,
    MessageId,
    Owed,
    OwnerId,
    SystemMessage,
    TextPart,
    ToolMessage,
    ToolSpec,
    UserMessage,
)
from passback.core.posts import Parked
from passback.http.gate import Access

pytestmark = pytest.mark.anyio


# ---------------------------------------------------------------- messages
async def test_keys_may_be_written_with_underscores() -> None:
    runs = greeting()
    image = {"type": "image", "data": "aGk=", "media_type": "image/png"}
    await send(
        runs,
        {
            "conversation_id": "c",
            "messages": [
                {"role": "tool", "content": "1", "tool_call_id": "call_1", "is_error": True},
                {"role": "user", "id": "m1", "content": [image]},
            ],
            "resume": {"interrupt_id": "call_2", "payload": True},
            "structured_data": [1],
            "output_schema": {"type": "object"},
            "on_busy": "enqueue",
            "on_disconnect": "cancel",
        },
    )
    [post] = runs.posts
    approval, result, message = post.messages
    assert (post.key.id, post.on_busy, post.on_disconnect) == ("c", "enqueue", "cancel")
    assert isinstance(approval, ApprovalMessage)
    assert isinstance(result, ToolMessage)
    assert (approval.call_id, result.call_id, result.is_error) == ("call_2", "call_1", True)
    assert isinstance(message, UserMessage)
    assert (message.id, message.context) == (
        "m1",
        MessageContext([1], output_schema={"type": "object"}),
    )
    assert message.content == (MediaPart("image", "data:image/png;base64,aGk=", "image/png"),)


async def test_of_two_spellings_the_documented_one_wins() -> None:
    both = HELLO | {"conversation_id": "other"}
    assert (await send(greeting(), both)).headers["x-conversation-id"] == "c"


@pytest.mark.parametrize("path", [PATH, "/v1/aibot/bots/default/send-message"])
async def test_a_post_is_answered_with_the_log_of_its_run(path: str) -> None:
    runs = greeting()
    answer = await ask_json(site(runs), "POST", path, HELLO)
    assert (answer.status, answer.body) == (200, OPENING.encode() + STREAM)
    assert answer.headers["x-run-id"] == "run_1"
    [post] = runs.posts
    assert post.key == ConversationKey(OwnerId("anonymous"), ConversationId("c"))
    assert [type(message) for message in post.messages] == [UserMessage]
    assert post.tools is None


@pytest.mark.promise("P13")
async def test_the_conversation_belongs_to_the_owner_of_the_key() -> None:
    runs = greeting()
    app = site(runs, Access(keys={"a-key": OwnerId("alice")}))
    await ask_json(app, "POST", PATH, HELLO, headers={"authorization": "Bearer a-key"})
    assert runs.posts[0].key.owner == "alice"


@pytest.mark.parametrize("missing", [{}, {"conversationId": None}])
async def test_a_conversation_without_id_gets_one_of_its_own(missing: dict[str, Any]) -> None:
    runs = greeting()
    for _ in range(2):
        await send(runs, missing | {"messages": HELLO["messages"]})
    first, second = (post.key.id for post in runs.posts)
    assert first != second
    assert len(first) > 20


async def test_messages_are_read_in_their_order() -> None:
    runs = greeting()
    messages = [
        {"role": "tool", "content": "blue", "toolCallId": "call_1", "id": "ignored"},
        {"role": "tool", "content": {"ok": False}, "toolCallId": "call_2", "isError": True},
        {"role": "user", "content": "and now?", "botId": 1},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "see"},
                {"type": "image_url", "image_url": {"url": "https://x/"}},
            ],
        },
    ]
    await send(runs, HELLO | {"messages": messages, "botId": "b", "msg": 1})
    assert runs.posts[0].messages == (
        ToolMessage(UNNAMED, CallId("call_1"), "blue"),
        ToolMessage(UNNAMED, CallId("call_2"), (DataPart({"ok": False}),), is_error=True),
        UserMessage(UNNAMED, "and now?"),
        UserMessage(UNNAMED, (TextPart("see"), MediaPart("image", "https://x/"))),
    )


@pytest.mark.parametrize(
    ("resume", "decisions"),
    [
        (None, []),
        ([], []),
        ({"interruptId": "a", "payload": True}, [("a", True)]),
        (
            [
                {"interruptId": "a", "payload": "yes"},
                {"interruptId": "b", "payload": {"approved": False}},
            ],
            [("a", True), ("b", False)],
        ),
    ],
)
async def test_answers_to_interrupts_come_before_the_messages(
    resume: object, decisions: list[tuple[str, bool]]
) -> None:
    runs = greeting()
    await send(runs, HELLO | {"resume": resume})
    *answers, message = runs.posts[0].messages
    assert [(m.call_id, m.approved) for m in answers if isinstance(m, ApprovalMessage)] == decisions
    assert isinstance(message, UserMessage)


async def test_an_answer_needs_no_message() -> None:
    runs = greeting()
    await send(runs, {"conversationId": "c", "resume": {"interruptId": "a", "payload": "yes"}})
    [answer] = runs.posts[0].messages
    assert answer == ApprovalMessage(answer.id, CallId("a"), approved=True)


@pytest.mark.parametrize(
    ("tools", "specs"),
    [
        (None, None),
        ([], ()),
        (
            [{"name": "t", "parameters": '{"type": "object"}'}],
            (ToolSpec("t", "", {"type": "object"}),),
        ),
    ],
)
async def test_tools_are_set_cleared_or_kept(tools: object, specs: object) -> None:
    runs = greeting()
    await send(runs, HELLO | {"tools": tools})
    assert runs.posts[0].tools == specs


async def test_a_system_message_is_read_if_the_settings_allow_it() -> None:
    runs = greeting()
    app = site(runs, allow_roles=frozenset({"user", "tool", "system"}))
    await ask_json(app, "POST", PATH, {"messages": [{"role": "system", "content": "be kind"}]})
    [message] = runs.posts[0].messages
    assert message == SystemMessage(message.id, "be kind")


@pytest.mark.parametrize("conversation", ["c", "a b", "é/ü?#%", "x" * 256, "😀"])
async def test_a_conversations_id_may_be_any_short_text(conversation: str) -> None:
    runs = greeting()
    runs.answer = Parked(ConversationKey(OwnerId("o"), ConversationId(conversation)), ())
    answer = await send(runs, HELLO | {"conversationId": conversation})
    assert runs.posts[0].key.id == conversation
    assert unquote(answer.headers["x-conversation-id"]) == conversation


# ---------------------------------------------------------------- keys and ids
KEYS = ["k-1", '"k-1"']


@pytest.mark.promise("P8")
@pytest.mark.parametrize("key", KEYS)
async def test_a_post_has_its_idempotency_key(key: str) -> None:
    runs = greeting()
    await send(runs, HELLO, headers={"idempotency-key": key})
    await send(runs, HELLO)
    assert [post.idempotency_key for post in runs.posts] == ["k-1", None]


@pytest.mark.promise("P8")
async def test_a_keyed_post_without_a_conversation_finds_the_one_that_it_began() -> None:
    runs = greeting()
    app = site(runs, Access(keys={"a-key": OwnerId("alice"), "b-key": OwnerId("bob")}))
    for owner, key in (("a", "k-1"), ("a", '"k-1"'), ("a", "k-2"), ("b", "k-1")):
        headers = {"authorization": f"Bearer {owner}-key", "idempotency-key": key}
        await ask_json(app, "POST", PATH, {"messages": HELLO["messages"]}, headers=headers)
    first, again, *others = (post.key.id for post in runs.posts)
    assert first == again
    assert len({first, *others}) == 3


async def test_a_key_does_not_change_a_conversation_that_is_named() -> None:
    runs = greeting()
    await send(runs, HELLO, headers={"idempotency-key": "k-1"})
    assert runs.posts[0].key.id == "c"


@pytest.mark.promise("P8")
async def test_a_message_has_the_id_that_the_client_gave_it() -> None:
    runs = greeting()
    app = site(runs, allow_roles=frozenset({"user", "tool", "system"}))
    messages = [
        {"role": "tool", "content": "blue", "toolCallId": "call_1", "id": "a result's"},
        {"role": "system", "content": "be kind", "id": "s"},
        {"role": "user", "content": "named", "id": "é 😀"},
        {"role": "user", "content": "unnamed", "id": None},
    ]
    await ask_json(app, "POST", PATH, {"messages": messages})
    [post] = runs.posts
    ids = [message.id for message in post.messages]
    # the engine names those that the client has not named
    assert ids == [UNNAMED, MessageId("s"), MessageId("é 😀"), UNNAMED]
    assert post.named == frozenset(ids[1:3])


# ---------------------------------------------------------------- policies
@pytest.mark.parametrize("policy", ["reject", "enqueue", "interrupt", "rollback"])
@pytest.mark.parametrize("name", ["onBusy", "on_busy"])
async def test_a_post_sets_on_busy(name: str, policy: str) -> None:
    runs = greeting()
    await send(runs, HELLO | {name: policy})
    assert runs.posts[0].on_busy == policy


@pytest.mark.parametrize(
    ("given", "after"),
    [({}, None), ({"after": None}, None), ({"after": ""}, ""), ({"after": "m"}, "m")],
)
async def test_a_post_says_what_it_follows(given: dict[str, Any], after: str | None) -> None:
    runs = greeting()
    await send(runs, HELLO | given)
    assert runs.posts[0].after == after


async def test_a_post_without_messages_has_something_answered_anew() -> None:
    runs = greeting()
    answer = await send(runs, {"conversationId": "c", "after": "m"})
    assert answer.body.endswith(STREAM)
    assert (runs.posts[0].messages, runs.posts[0].after) == ((), "m")


@pytest.mark.parametrize("missing", [{}, {"onBusy": None}])
async def test_the_default_of_on_busy_is_a_setting(
    missing: dict[str, Any],
) -> None:
    runs = greeting()
    for app in (site(runs), site(runs, on_busy="enqueue")):
        await ask_json(app, "POST", PATH, HELLO | missing)
    assert [post.on_busy for post in runs.posts] == ["reject", "enqueue"]


@pytest.mark.promise("P7")
@pytest.mark.parametrize(
    ("option", "policy"),
    [
        ({}, "continue"),
        ({"onDisconnect": None}, "continue"),
        ({"onDisconnect": "continue"}, "continue"),
        ({"onDisconnect": "cancel"}, "cancel"),
        ({"on_disconnect": "cancel"}, "cancel"),
    ],
)
async def test_a_post_sets_on_disconnect_of_its_run(option: dict[str, Any], policy: str) -> None:
    runs = greeting()
    await send(runs, HELLO | option)
    assert runs.posts[0].on_disconnect == policy


# ---------------------------------------------------------------- answers
async def test_more_events_are_sent_on_request() -> None:
    answer = await send(greeting(), HELLO | {"include": ["run"]})
    assert b'data: {"type":"run-start","runId":"run_1"}\n\n' in answer.body
    assert b'data: {"type":"run-end","outcome":"completed","reason":"end_turn"}\n\n' in answer.body


async def test_an_unknown_include_is_refused_with_the_known_ones() -> None:
    runs = greeting()
    answer = await send(runs, HELLO | {"include": ["run", "", "tomorrow"]})
    problem = (
        "each word has to be one of agents, context, message-ids, output, owed, plan, progress, "
        "reasoning, rewind, run, state, tools, usage"
    )
    assert (answer.status, answer.code) == (422, "invalid_request")
    assert answer.json["message"] == f"include: {problem}"
    assert answer.json["details"] == {"problems": [{"at": "include", "problem": problem}]}
    assert runs.posts == []


@pytest.mark.parametrize(
    ("seen", "rest"),
    [("run_1.1-2", b"id: run_1.1-3\ndata: [DONE]\n\n"), ("run_0.1-2", STREAM), ("", STREAM)],
)
async def test_a_repeated_post_gets_the_unseen_rest_of_its_run(seen: str, rest: bytes) -> None:
    answer = await send(greeting(), HELLO, headers={"last-event-id": seen})
    assert answer.body == OPENING.encode() + rest


STILL_OWED = (Owed(CallId("call_1"), "t", "{}"), Owed(CallId("call_2"), "u", "{}"))


async def test_after_some_of_the_results_the_answer_names_the_owed_calls() -> None:
    runs = greeting()
    runs.answer = Parked(RUN.key, STILL_OWED)
    answer = await send(runs, HELLO)
    assert (answer.status, answer.body) == (
        200,
        OPENING.encode() + b": still owed: call_1 call_2\n\ndata: [DONE]\n\n",
    )
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert answer.headers["x-owed-tool-calls"] == "call_1,call_2"
    assert answer.headers["x-conversation-id"] == "c"
    assert "x-run-id" not in answer.headers


async def test_owed_calls_are_an_event_on_request() -> None:
    runs = greeting()
    runs.answer = Parked(RUN.key, STILL_OWED[:1])
    answer = await send(runs, HELLO | {"include": ["owed"]})
    assert answer.body == (
        b": conversation c\n\n"
        b": still owed: call_1\n\n"
        b'data: {"type":"owed","toolCalls":'
        b'[{"id":"call_1","name":"t","arguments":"{}","kind":"tool_result"}]}\n\n'
        b"data: [DONE]\n\n"
    )
