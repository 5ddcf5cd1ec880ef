"""`/send-message`: a post with a history."""

from typing import Any

import anyio
import pytest
from tests.support.asgi_client import Answer, ask_json, exhaust_threads
from tests.support.logged_runs import LoggedRuns
from tests.unit.wire.send_message_site import PATH, greeting, site

from passback.core.messages import (
    AssistantMessage,
    CallId,
    MessageContext,
    MessageId,
    TextPart,
    ToolCall,
    ToolMessage,
    UserMessage,
)

pytestmark = pytest.mark.anyio

WITH_ASSISTANT = frozenset({"user", "tool", "assistant"})


async def _post(
    runs: LoggedRuns, *messages: object, roles: frozenset[str] = WITH_ASSISTANT, **more: Any
) -> Answer:
    app = site(runs, allow_roles=roles)
    return await ask_json(app, "POST", PATH, {"messages": list(messages), **more})


def _call(call_id: str = "c1", arguments: str = '{"a":1}', **more: Any) -> dict[str, Any]:
    return {"id": call_id, "function": {"name": "look", "arguments": arguments}, **more}


USER = {"role": "user", "content": "hi", "id": "u1"}
SAYS = {"role": "assistant", "content": [{"type": "text", "text": "hello"}], "id": "a1"}
ASKS = {"role": "assistant", "content": " ", "toolCalls": [_call(type="function", client=True)]}
SEEN = {"role": "tool", "toolCallId": "c1", "content": "seen"}
NEW = {"role": "user", "content": "go on", "id": "u2"}


async def test_a_history_is_separated_from_new_messages() -> None:
    runs = greeting()
    answer = await _post(runs, USER, SAYS, ASKS, SEEN, NEW, intent="to see")
    assert answer.status == 200
    [post] = runs.posts
    call_message = post.history[2]
    assert post.history == (
        UserMessage(MessageId("u1"), "hi", imported=True),
        AssistantMessage(MessageId("a1"), (TextPart("hello"),), imported=True),
        AssistantMessage(
            call_message.id, "", (ToolCall(CallId("imported_1"), "look", '{"a":1}'),), imported=True
        ),
        ToolMessage(post.history[3].id, CallId("imported_1"), "seen", imported=True),
    )
    assert post.messages == (
        UserMessage(MessageId("u2"), "go on", context=MessageContext(intent="to see")),
    )
    assert post.named == {"u1", "a1", "u2"}


@pytest.mark.parametrize("content", [None, "", []])
async def test_calls_need_no_text_and_may_be_spelled_tool_calls(content: object) -> None:
    runs = greeting()
    asks = {"role": "assistant", "content": content, "tool_calls": [_call()]}
    await _post(runs, USER, asks, {"role": "assistant", "content": "so", "tool_calls": None}, NEW)
    [post] = runs.posts
    assert [each.content for each in post.history][:2] == ["hi", ""]
    assert [each.role for each in post.history] == ["user", "assistant", "tool", "assistant"]


@pytest.mark.promise("P12", "P13")
@pytest.mark.parametrize(
    ("messages", "why"),
    [
        ([USER, {"role": "assistant"}, NEW], "messages.1: it has neither content nor calls"),
        ([USER, {**SAYS, "content": 1}, NEW], "messages.1.content: "),
        ([USER, {**ASKS, "toolCalls": [{"id": "c1"}]}, NEW], "messages.1.toolCalls.0.function: "),
        ([USER, {**ASKS, "toolCalls": [_call("")]}, NEW], "messages.1.toolCalls.0.id: "),
        ([USER, {**ASKS, "toolCalls": [_call(type="x")]}, NEW], "messages.1.toolCalls.0.type: "),
        ([USER, {**ASKS, "toolCalls": [_call(arguments="x")]}, NEW], "messages.1: the arguments"),
        ([USER, SAYS, SEEN, NEW], "messages.2: no call of the agent's message right before it"),
        ([SAYS, NEW], "messages.0: a history has to begin with a user message"),
        ([USER, SAYS], "messages.1: a new user message has to follow the history"),
        ([USER, SAYS, {**NEW, "id": "u1"}], "messages.2: an earlier message of the post has"),
        ([{"role": "system", "content": "x"}, SAYS, NEW], "messages.0: the role 'system' is not"),
    ],
)
async def test_errors_of_a_history_name_their_place(messages: list[object], why: str) -> None:
    runs = greeting()
    answer = await _post(runs, *messages)
    assert (answer.status, answer.code) == (422, "invalid_request")
    assert answer.json["message"].startswith(why)
    assert runs.posts == []


@pytest.mark.promise("P13")
async def test_a_history_needs_the_setting_that_its_refusal_names() -> None:
    answer = await _post(greeting(), USER, SAYS, NEW, roles=frozenset({"user", "tool"}))
    assert answer.json["message"] == (
        "messages.1: the role 'assistant' is not allowed here (PASSBACK_ALLOW_ROLES)"
    )


async def test_large_arguments_of_a_history_do_not_block_the_event_loop() -> None:
    """They are read in a thread; small ones are not."""
    runs = greeting()
    large = {**ASKS, "toolCalls": [_call(arguments=f'{{"a": "{"x" * 20_000}"}}')]}
    async with anyio.create_task_group() as tasks, exhaust_threads() as awaited:
        await _post(runs, USER, ASKS, SEEN, NEW)
        tasks.start_soon(_post, runs, USER, large, SEEN, NEW)
        await awaited()
        assert len(runs.posts) == 1
    assert len(runs.posts[1].history) == 3
