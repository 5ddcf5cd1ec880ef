"""`/process`: a request that begins a session with a history of the agent."""

from typing import Any

import anyio
import pytest
from tests.support.agent_api import PATH, Json, decision, output, text, user
from tests.support.asgi_client import ask_json, exhaust_threads
from tests.support.logged_runs import LoggedRuns
from tests.unit.wire.agent_api_site import GREETING, site

from passback.core.messages import (
    AssistantMessage,
    HistoryMessage,
    ToolMessage,
    UserMessage,
    as_text,
)
from passback.core.posts import StartRun

pytestmark = pytest.mark.anyio

WITH_ASSISTANT = frozenset({"user", "tool", "assistant"})


async def _start(*messages: object, roles: frozenset[str] = WITH_ASSISTANT) -> StartRun:
    runs = LoggedRuns(*GREETING)
    body = {"session_id": "c", "input": list(messages)}
    answer = await ask_json(site(runs, allow_roles=roles), "POST", PATH, body)
    assert answer.status == 200, answer.body
    return runs.posts[0]


def _data_message(kind: str, data: Json, **more: Any) -> Json:
    return {"type": kind, "content": [{"type": "data", "data": data}], **more}


def call(call_id: str, kind: str = "function_call", arguments: str = "{}") -> Json:
    return _data_message(kind, {"call_id": call_id, "name": "look", "arguments": arguments})


def assistant(words: str, **more: Any) -> Json:
    return {"role": "assistant", "type": "message", "content": [text(words)], **more}


def _summary(message: HistoryMessage) -> str:
    text = as_text(message.content, media=lambda part: part.url)
    match message:
        case AssistantMessage(tool_calls=calls):
            return " ".join(["agent:", *filter(None, [text]), *(each.id for each in calls)])
        case ToolMessage(call_id=call_id):
            return f"{call_id}: {text}"
        case _:
            return text


RESULT = {"call_id": "c2", "name": "look", "output": "seen"}
NO_RESULT = "imported_1: The history of this conversation has no result of this call."


@pytest.mark.parametrize(
    ("given", "history"),
    [
        ([user("a"), assistant("b"), user("c")], ["a", "agent: b"]),
        (
            [user("a"), assistant("b"), call("c1"), call("c2"), output("c1", "x"), user("c")],
            ["a", "agent: b imported_1 imported_2", "imported_1: x", NO_RESULT.replace("1", "2")],
        ),
        (
            [
                user("a"),
                call("c2", "plugin_call"),
                _data_message("plugin_call_output", RESULT),
                user("c"),
            ],
            ["a", "agent: imported_1", "imported_1: seen"],
        ),
        (
            [
                user("a"),
                call("c1", "mcp_call"),
                assistant("b"),
                call("c2"),
                assistant("c"),
                user("d"),
            ],
            [
                *("a", "agent: imported_1", NO_RESULT),
                *("agent: b imported_2", NO_RESULT.replace("1", "2"), "agent: c"),
            ],
        ),
        # reasoning, requests for approval, decisions and blank messages are not stored
        (
            [
                *(user("a"), {"type": "reasoning", "content": [text("hm")]}, {"type": "heartbeat"}),
                *(assistant(" "), {"role": "assistant", "type": "message"}),
                *(_data_message("mcp_approval_request", {"id": "c1"}), decision("c1", True)),
                *(assistant("b"), user("c")),
            ],
            ["a", "agent: b"],
        ),
    ],
)
async def test_answers_of_the_agent_are_a_history_if_the_settings_allow_it(
    given: list[Json], history: list[str]
) -> None:
    post = await _start(*given)
    assert [_summary(each) for each in post.history] == history
    assert all(each.imported for each in post.history)
    assert (post.continues, post.flaw, post.resends) == (False, "", True)
    closed = [each for each in post.history if isinstance(each, ToolMessage) and each.synthetic]
    assert len(closed) == sum("no result" in each for each in history)


async def test_ids_given_by_the_client_are_kept() -> None:
    post = await _start(user("a", id="u1"), assistant("b", id="a1"), user("c", id="u2"))
    assert [each.id for each in post.history] == ["u1", "a1"]
    assert isinstance(post.messages[0], UserMessage)
    assert post.named == {"u2"}


@pytest.mark.promise("P13")
@pytest.mark.parametrize(
    ("given", "flaw"),
    [
        ([user("a"), call("c1", arguments="x"), user("b")], "input.1: the arguments of a call"),
        ([user("a"), {"type": "mcp_call"}, user("b")], "input.1: mcp_call needs one part of type"),
        (
            [user("a"), {"role": "tool"}, assistant("b"), user("c")],
            "input.1: a result is a message of",
        ),
        ([assistant("b"), user("c")], "input.0: a history has to begin with a user message"),
        ([user("a"), call("c1"), output("c1", "x")], "input.2: a new user message has to"),
        ([assistant("b", content=[{"type": "file"}]), user("c")], "input.0.content.0: file_url"),
    ],
)
async def test_errors_of_a_history_are_kept_for_later(given: list[Json], flaw: str) -> None:
    """If the conversation exists, the history is not used."""
    post = await _start(*given)
    assert (post.history, post.continues) == ((), True)
    assert post.flaw.startswith(flaw)


async def test_without_the_setting_a_history_is_ignored() -> None:
    post = await _start(user("a"), assistant("b"), user("c"), roles=frozenset({"user", "tool"}))
    assert (post.history, post.continues) == ((), True)
    assert post.flaw.startswith("a new conversation cannot begin with what the agent said")


async def test_large_arguments_of_a_history_do_not_block_the_event_loop() -> None:
    """They are read in a thread; small ones are not."""
    large = call("c1", arguments=f'{{"a": "{"x" * 20_000}"}}')
    posts: list[StartRun] = []

    async def begin() -> None:
        posts.append(await _start(user("a"), large, user("b")))

    async with anyio.create_task_group() as tasks, exhaust_threads() as awaited:
        await _start(user("a"), call("c1"), user("b"))
        tasks.start_soon(begin)
        await awaited()
        assert posts == []
    assert len(posts[0].history) == 3
