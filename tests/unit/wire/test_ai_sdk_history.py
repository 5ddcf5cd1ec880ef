"""The stored messages of a chat, as the AI SDK's clients load them."""

from collections.abc import Sequence
from typing import Any

import pytest
from tests.support.ai_sdk import API, Json
from tests.support.asgi_client import ask
from tests.support.logged_runs import RUN, LoggedRuns
from tests.unit.wire.ai_sdk_site import recorded, site
from tests.unit.wire.test_ai_sdk_beginnings import EARLIER, FAILS, INNER, LATE, PAINT, WIPE
from typing_extensions import override

from passback.core.changes import Page, Status
from passback.core.errors import StoreUnavailable, UnknownConversation
from passback.core.messages import (
    ApprovalMessage,
    AssistantMessage,
    CallId,
    ChildMessage,
    ConversationKey,
    DataPart,
    MediaPart,
    Message,
    MessageId,
    RefusalPart,
    RunId,
    SummaryMessage,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)
from passback.wire.ai_sdk.encoder import NOT_MADE
from passback.wire.ai_sdk.history import read_page

pytestmark = pytest.mark.anyio

PATH = f"{API}/c/messages"
HI = UserMessage(MessageId("u1"), "hi")
STEP: Json = {"type": "step-start"}
OWN = ToolCall(CallId("call_o"), "paint", '{"a":1}', client=True)
SERVER = ToolCall(CallId("call_s"), "look", "{", title="Look")
ASKED = ToolCall(CallId("call_a"), "wipe", "{}", asks="approval", reason="Sure?")


def said(text: str = "hello", *calls: ToolCall, at: int = 1, **more: Any) -> AssistantMessage:
    return AssistantMessage(MessageId(f"m{at}"), text, calls, run_id=RunId(f"run_{at}"), **more)


def result(call: ToolCall, content: Any = "done", *more: Any) -> ToolMessage:
    return ToolMessage(MessageId(f"t_{call.id}"), call.id, content, *more)


def text(words: str) -> Json:
    return {"type": "text", "text": words, "state": "done"}


async def page_of(*messages: Message, query: str = "") -> Json:
    answer = await ask(site(recorded(*messages)), "GET", f"{PATH}{query}")
    assert answer.status == 200, answer.body
    page: Json = answer.json
    return page


async def parts_of(*messages: Message) -> list[Json]:
    """Return the parts of the agent's message that these messages are, behind one of the user."""
    first, answer = (await page_of(HI, *messages))["messages"]
    assert first["role"] == "user"
    parts: list[Json] = answer["parts"]
    return parts


async def test_a_chat_is_its_messages_oldest_first() -> None:
    assert await page_of(HI, said(model="m", usage=Usage(2, 3))) == {
        "messages": [
            {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "hi"}]},
            {
                "id": "run_1",
                "role": "assistant",
                "metadata": {
                    "conversationId": "c",
                    "runId": "run_1",
                    "model": "m",
                    "usage": {
                        "inputTokens": 2,
                        "outputTokens": 3,
                        "totalTokens": 5,
                        "cachedInputTokens": 0,
                        "reasoningTokens": 0,
                    },
                },
                "parts": [STEP, text("hello")],
            },
        ],
        "before": None,
    }


async def test_an_imported_answer_is_known_by_its_own_id() -> None:
    [_, answer] = (await page_of(HI, AssistantMessage(MessageId("m1"), "old")))["messages"]
    assert (answer["id"], answer["metadata"]) == ("m1", {"conversationId": "c"})


async def test_an_answer_has_all_runs_up_to_the_next_message_of_the_user() -> None:
    page = await page_of(
        HI,
        said("on it", OWN, usage=Usage(1, 1)),
        result(OWN),
        said("done", at=2, usage=Usage(1, 1)),
        SummaryMessage(MessageId("s"), "short", 1, usage=Usage(1, 0)),
        UserMessage(MessageId("u2"), "go on"),
        said("yes", at=3),
    )
    assert [each["id"] for each in page["messages"]] == ["u1", "run_1", "u2", "run_3"]
    answer = page["messages"][1]
    assert answer["metadata"]["runId"] == "run_2"
    assert answer["metadata"]["usage"]["totalTokens"] == 5
    part = {
        "type": "tool-paint",
        "toolCallId": "call_o",
        "state": "output-available",
        "input": {"a": 1},
        "output": "done",
    }
    assert answer["parts"] == [STEP, text("on it"), part, STEP, text("done")]


async def test_the_calls_of_a_beginning_are_shown_with_their_answers() -> None:
    named = {"toolName": "wipe", "toolCallId": WIPE.id, "title": "Wipe", "input": {}}
    asked = {"id": WIPE.id, "approved": True, "reason": "fine"}
    inner = {"toolMetadata": {"parentToolCallId": WIPE.id}, "input": {}, "output": "in"}
    own: Json = {"type": "tool-look", "input": {}}
    failed = {"state": "output-error", "errorText": "late", "providerExecuted": True}
    assert await parts_of(*EARLIER) == [
        STEP,
        {"type": "reasoning", "text": "hm", "state": "done"},
        text("on it"),
        {
            "type": "dynamic-tool",
            **named,
            "providerExecuted": False,
            "state": "approval-responded",
            "approval": asked,
        },
        {**own, "toolCallId": PAINT.id, "state": "output-available", "output": 1},
        {**own, "toolCallId": FAILS.id, "state": "output-error", "errorText": "broken"},
        {**own, "toolCallId": LATE.id, **failed},
        {
            "type": "dynamic-tool",
            "toolName": "look",
            "toolCallId": INNER.id,
            "providerExecuted": True,
            "state": "output-available",
            **inner,
        },
    ]


async def test_what_is_owed_is_open_in_the_last_message_only() -> None:
    nested = ChildMessage(SERVER.id, said("", ToolCall(CallId("call_n"), "look", "{}"), at=2))
    calls = said("", OWN, SERVER, ASKED)
    open_parts = await parts_of(calls, nested)
    assert [each.get("state") for each in open_parts] == [
        *(None, "input-available", "input-available", "approval-requested", "input-available")
    ]
    assert open_parts[2]["input"] == "{"  # no JSON: as it was written
    assert open_parts[3]["approval"] == {"id": "call_a", "requestReason": "Sure?"}
    [_, answer, _] = (await page_of(HI, calls, nested, HI))["messages"]
    for part in answer["parts"][1:]:
        assert (part["state"], part["errorText"]) == ("output-error", NOT_MADE)
        assert part["providerExecuted"] is True
        assert "approval" not in part


@pytest.mark.parametrize(
    ("approved", "answer", "shown"),
    [
        (True, ("gone",), {"state": "output-available", "output": "gone"}),
        (True, ("broken", True), {"state": "output-error", "errorText": "broken"}),
        (False, ("no", True, "denied"), {"state": "output-denied", "providerExecuted": False}),
    ],
)
async def test_a_decision_is_kept_with_its_call(
    approved: bool, answer: tuple[Any, ...], shown: Json
) -> None:
    decision = ApprovalMessage(MessageId("a"), ASKED.id, approved, "so it is")
    [_, part] = await parts_of(said("", ASKED), decision, result(ASKED, *answer))
    approval = {"id": "call_a", "requestReason": "Sure?", "approved": approved}
    assert part["approval"] == {**approval, "reason": "so it is"}
    assert part.items() >= {"providerExecuted": True, **shown}.items()


async def test_a_call_that_a_rule_denies_has_a_denial_of_its_own() -> None:
    [_, part] = await parts_of(said("", SERVER), result(SERVER, "no", True, "denied"))
    assert part["state"] == "output-denied"
    assert part["approval"] == {"id": "call_s", "approved": False}


async def test_a_decision_that_was_not_asked_for_is_kept() -> None:
    decision = ApprovalMessage(MessageId("a"), SERVER.id, True)
    [_, part] = await parts_of(said("", SERVER), decision)
    assert part["approval"] == {"id": "call_s", "approved": True}
    assert part["state"] == "approval-responded"


async def test_an_error_of_an_open_approval_has_none() -> None:
    [_, part] = await parts_of(said("", ASKED), result(ASKED, "late", True, "timeout"))
    assert (part["state"], part["errorText"]) == ("output-error", "late")
    assert "approval" not in part


async def test_a_sub_agent_that_ends_leaves_no_call_open() -> None:
    inner = ToolCall(CallId("call_n"), "look", "{}")
    other = ToolCall(CallId("call_m"), "look", "{}")
    parts = await parts_of(
        said("", SERVER),
        ChildMessage(SERVER.id, said("secret", inner, other, at=2)),
        ChildMessage(SERVER.id, result(other)),
        result(SERVER, "lost", True),
    )
    assert [each.get("errorText") for each in parts] == [None, "lost", NOT_MADE, None]


async def test_a_result_that_the_server_wrote_for_a_client_tool_is_not_posted_again() -> None:
    [_, part] = await parts_of(said("", OWN), result(OWN, "ok", False, "unanswered"))
    assert (part["state"], part["providerExecuted"]) == ("output-available", True)


async def test_a_last_step_with_the_clients_results_alone_is_followed_by_an_empty_one() -> None:
    assert (await parts_of(said("", OWN), result(OWN)))[-1] == STEP
    other = ToolCall(CallId("call_p"), "paint", "{}", client=True)
    parts = await parts_of(said("", OWN, other), result(OWN))
    assert [each["type"] for each in parts] == ["step-start", "tool-paint", "tool-paint"]


async def test_what_clients_are_not_shown_makes_no_message() -> None:
    hidden: tuple[Message, ...] = (
        SummaryMessage(MessageId("s"), "", 0),
        SystemMessage(MessageId("x"), "try again", "invalid"),
        ApprovalMessage(MessageId("y"), CallId("none"), True),
        ToolMessage(MessageId("z"), CallId("none"), "x"),
        ChildMessage(CallId("none"), said("secret")),
    )
    page = await page_of(*hidden, HI, *hidden)
    assert [each["id"] for each in page["messages"]] == ["u1"]
    assert page["before"] is None


async def test_messages_of_the_client_have_the_parts_that_it_posted() -> None:
    data = "data:image/png;base64,iVBORw0KGgo="
    asked = UserMessage(
        MessageId("u2"),
        (
            TextPart("look"),
            MediaPart("image", data),
            MediaPart("image", "https://a.example/x"),
            MediaPart("file", "https://a.example/y", name="y.bin"),
            MediaPart("file", "data:;base64,aGk="),
            MediaPart("audio", "https://a.example/z", "audio/wav"),
            DataPart({"a": 1}),
        ),
    )
    page = await page_of(SystemMessage(MessageId("s"), "be kind"), asked)
    assert [each["role"] for each in page["messages"]] == ["system", "user"]
    assert page["messages"][1]["parts"] == [
        {"type": "text", "text": "look"},
        {"type": "file", "mediaType": "image/png", "url": data},
        {"type": "file", "mediaType": "image/*", "url": "https://a.example/x"},
        {
            "type": "file",
            "mediaType": "application/octet-stream",
            "url": "https://a.example/y",
            "filename": "y.bin",
        },
        {"type": "file", "mediaType": "text/plain", "url": "data:;base64,aGk="},
        {"type": "file", "mediaType": "audio/wav", "url": "https://a.example/z"},
        {"type": "data-json", "data": {"a": 1}},
    ]


async def test_a_refusal_is_text() -> None:
    [_, part] = await parts_of(AssistantMessage(MessageId("m1"), (RefusalPart("no"),)))
    assert part == text("no")


# ---------------------------------------------------------------- pages
def story(turns: int) -> list[Message]:
    messages: list[Message] = []
    for at in range(turns):
        messages += [UserMessage(MessageId(f"u{at}"), f"{at}"), said("", SERVER, at=at)]
        messages += [result(SERVER), said("x", at=at)]
    return messages


@pytest.mark.parametrize("limit", [1, 2, 3, 100, 1000])
async def test_pages_add_up_to_the_whole(limit: int) -> None:
    messages = story(60)  # more than one read of the store
    whole = await page_of(*messages, query="?limit=1000")
    assert (len(whole["messages"]), whole["before"]) == (120, None)
    found: list[Json] = []
    query = f"?limit={limit}"
    for _ in range(121):
        page = await page_of(*messages, query=query)
        assert 1 <= len(page["messages"]) <= limit
        found[:0] = page["messages"]
        if page["before"] is None:
            break
        query = f"?limit={limit}&before={page['before']}"
    assert found == whole["messages"]


async def read(
    messages: Sequence[Message], most: int, before: int = 1000
) -> tuple[list[Json], Any]:
    page = await read_page(recorded(*messages), RUN.key, before, 100, most=most)
    return list(page.messages), page.before


async def test_a_page_has_a_bounded_size() -> None:
    messages: list[Message] = []
    for at in range(4):
        messages += [UserMessage(MessageId(f"u{at}"), "a" * 10), said("b" * 10, at=at)]
    for most, ids in [(10, ["run_3"]), (25, ["u3", "run_3"]), (30, ["run_2", "u3", "run_3"])]:
        found, before = await read(messages, most)
        assert ([each["id"] for each in found], before) == (ids, 8 - len(ids))
        older, _ = await read(messages, most, before)
        assert older[-1]["id"] == ("u3" if len(ids) == 1 else "run_2" if len(ids) == 2 else "u2")


async def test_an_answer_that_is_too_large_has_its_last_steps() -> None:
    turn = said("b" * 10, SERVER)
    messages: list[Message] = [
        HI,
        turn,
        result(SERVER),
        turn,
        result(SERVER, "c" * 100),
        said("end", at=2),
    ]
    [answer], before = await read(messages, 20)
    assert (answer["id"], answer["parts"], before) == ("run_1", [STEP, text("end")], 1)
    [answer], _ = await read(messages[:5], 20)  # one step at least
    assert [each["type"] for each in answer["parts"]] == ["step-start", "text", "dynamic-tool"]
    [first], before = await read(messages, 20, 1)
    assert (first["id"], before) == ("u1", None)


async def test_nested_messages_and_thoughts_count_for_the_size() -> None:
    nested = ChildMessage(SERVER.id, result(SERVER, "c" * 100))
    found, before = await read([HI, said("", SERVER), nested, HI], 50)
    assert ([each["id"] for each in found], before) == (["u1"], 3)


# ---------------------------------------------------------------- errors
async def test_a_chat_that_does_not_exist_is_empty() -> None:
    runs = LoggedRuns()
    answer = await ask(site(runs), "GET", f"{API}/new/messages")
    assert (answer.status, answer.json) == (200, {"messages": [], "before": None})
    assert not runs.posts


async def test_a_chat_that_is_deleted_while_it_is_read_is_empty() -> None:
    runs = recorded(HI, said())

    class Deleted(LoggedRuns):
        @override
        async def messages(self, key: ConversationKey, /, *, start: int, limit: int) -> Page:
            raise UnknownConversation("it is gone")

    gone = Deleted()
    gone.known = runs.known
    assert (await ask(site(gone), "GET", PATH)).json == {"messages": [], "before": None}


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("?before=0", "before has to be a number from 1 to 9007199254740992"),
        ("?before=x", "before has to be a number from 1 to 9007199254740992"),
        ("?before=", "before has to be a number from 1 to 9007199254740992"),
        ("?limit=0", "limit has to be a number from 1 to 1000"),
        ("?limit=1001", "limit has to be a number from 1 to 1000"),
        ("?limit=-1", "limit has to be a number from 1 to 1000"),
        ("?limit=1e3", "limit has to be a number from 1 to 1000"),
        ("?limit=1&limit=2", "limit"),
        ("?after=1", "after"),
    ],
)
async def test_a_bad_query_is_refused_with_a_sentence(query: str, problem: str) -> None:
    answer = await ask(site(recorded(HI)), "GET", f"{PATH}{query}")
    assert answer.status == 422
    assert problem in answer.body.decode()
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.headers["x-error-code"] == "invalid_request"


async def test_a_bad_id_and_a_store_that_fails_are_errors() -> None:
    assert (await ask(site(recorded(HI)), "GET", f"{API}/%7Ba%7D/messages")).status == 422

    class Away(LoggedRuns):
        @override
        async def status(self, key: ConversationKey, /) -> Status:
            raise StoreUnavailable("the store is away")

    answer = await ask(site(Away()), "GET", PATH)
    assert (answer.status, answer.headers["x-error-code"]) == (503, "store_unavailable")
