"""`/process`: a request that begins a session with what the agent said."""

from typing import Any

import anyio
import pytest
from tests.support.agent_api import PATH, Json, decision, output, text, user
from tests.support.asgi_client import ask_json, no_thread
from tests.support.logged_runs import LoggedRuns
from tests.unit.wire.agent_api_site import SAID, site

from passback.core.messages import (
    AssistantMessage,
    HistoryMessage,
    ToolMessage,
    UserMessage,
    as_text,
)
from passback.core.posts import StartRun

pytestmark = pytest.mark.anyio

TRUSTING = frozenset({"user", "tool", "assistant"})


async def _start(*messages: object, roles: frozenset[str] = TRUSTING) -> StartRun:
    runs = LoggedRuns(*SAID)
    body = {"session_id": "c", "input": list(messages)}
    answer = await ask_json(site(runs, allow_roles=roles), "POST", PATH, body)
    assert answer.status == 200, answer.body
    return runs.posts[0]


def _of(kind: str, data: Json, **more: Any) -> Json:
    return {"type": kind, "content": [{"type": "data", "data": data}], **more}


def call(call_id: str, kind: str = "function_call", arguments: str = "{}") -> Json:
    return _of(kind, {"call_id": call_id, "name": "look", "arguments": arguments})


def told(words: str, **more: Any) -> Json:
    return {"role": "assistant", "type": "message", "content": [text(words)], **more}


def _plain(message: HistoryMessage) -> str:
    said = as_text(message.content, media=lambda part: part.url)
    match message:
        case AssistantMessage(tool_calls=calls):
            return " ".join(["agent:", *filter(None, [said]), *(each.id for each in calls)])
        case ToolMessage(call_id=call_id):
            return f"{call_id}: {said}"
        case _:
            return said


RESULT = {"call_id": "c2", "name": "look", "output": "seen"}
CLOSED = "imported_1: The history of this conversation has no result of this call."


@pytest.mark.parametrize(
    ("given", "history"),
    [
        ([user("a"), told("b"), user("c")], ["a", "agent: b"]),
        (
            [user("a"), told("b"), call("c1"), call("c2"), output("c1", "x"), user("c")],
            ["a", "agent: b imported_1 imported_2", "imported_1: x", CLOSED.replace("1", "2")],
        ),
        (
            [user("a"), call("c2", "plugin_call"), _of("plugin_call_output", RESULT), user("c")],
            ["a", "agent: imported_1", "imported_1: seen"],
        ),
        (
            [user("a"), call("c1", "mcp_call"), told("b"), call("c2"), told("c"), user("d")],
            [
                *("a", "agent: imported_1", CLOSED),
                *("agent: b imported_2", CLOSED.replace("1", "2"), "agent: c"),
            ],
        ),
        # what was thought, asked and decided is not stored, and what says nothing neither
        (
            [
                *(user("a"), {"type": "reasoning", "content": [text("hm")]}, {"type": "heartbeat"}),
                *(told(" "), {"role": "assistant", "type": "message"}),
                *(_of("mcp_approval_request", {"id": "c1"}), decision("c1", True)),
                *(told("b"), user("c")),
            ],
            ["a", "agent: b"],
        ),
    ],
)
async def test_what_the_agent_said_is_a_history_where_the_settings_allow_it(
    given: list[Json], history: list[str]
) -> None:
    post = await _start(*given)
    assert [_plain(each) for each in post.history] == history
    assert all(each.imported for each in post.history)
    assert (post.continues, post.flaw, post.resends) == (False, "", True)
    closed = [each for each in post.history if isinstance(each, ToolMessage) and each.synthetic]
    assert len(closed) == sum("no result" in each for each in history)


async def test_ids_that_the_client_gave_are_kept() -> None:
    post = await _start(user("a", id="u1"), told("b", id="a1"), user("c", id="u2"))
    assert [each.id for each in post.history] == ["u1", "a1"]
    assert isinstance(post.messages[0], UserMessage)
    assert post.named == {"u2"}


@pytest.mark.promise("P13")
@pytest.mark.parametrize(
    ("given", "flaw"),
    [
        ([user("a"), call("c1", arguments="x"), user("b")], "input.1: the arguments of a call"),
        ([user("a"), {"type": "mcp_call"}, user("b")], "input.1: mcp_call needs one part of type"),
        ([user("a"), {"role": "tool"}, told("b"), user("c")], "input.1: a result is a message of"),
        ([told("b"), user("c")], "input.0: a history has to begin with a user message"),
        ([user("a"), call("c1"), output("c1", "x")], "input.2: a new user message has to"),
        ([told("b", content=[{"type": "file"}]), user("c")], "input.0.content.0: file_url"),
    ],
)
async def test_faults_of_a_history_are_kept_for_later(given: list[Json], flaw: str) -> None:
    """Where there is such a conversation, nothing of it is read."""
    post = await _start(*given)
    assert (post.history, post.continues) == ((), True)
    assert post.flaw.startswith(flaw)


async def test_without_the_setting_it_is_passed_over() -> None:
    post = await _start(user("a"), told("b"), user("c"), roles=frozenset({"user", "tool"}))
    assert (post.history, post.continues, post.flaw) == ((), True, "")


async def test_large_arguments_in_it_do_not_hold_up_the_event_loop() -> None:
    """They wait for a thread; small ones need none."""
    large = call("c1", arguments=f'{{"a": "{"x" * 20_000}"}}')
    said: list[StartRun] = []

    async def begin() -> None:
        said.append(await _start(user("a"), large, user("b")))

    async with anyio.create_task_group() as tasks, no_thread() as awaited:
        await _start(user("a"), call("c1"), user("b"))
        tasks.start_soon(begin)
        await awaited()
        assert said == []
    assert len(said[0].history) == 3
