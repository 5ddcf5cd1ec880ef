"""A conversation that changes between the chat socket, `/send-message` and the Agent API, on Redis,
with each post at the other worker than the one before.
"""

import json
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Any

import anyio
import pytest
from tests.e2e.chat_followers import (
    Follower,
    TopicModel,
    connected,
    create_session,
    pending_call,
    recorded_turns,
)
from tests.e2e.workers import SECONDS, Worker, worker
from tests.support.agent_api import (
    PATH,
    bodies,
    check_legal,
    decision,
    events_of,
    function,
    joined_text,
    output,
)
from tests.support.agent_api import user as agent_api_user
from tests.support.model_server import calls, listening, says
from tests.support.wire import Client, Json, client_tool, result, user

pytestmark = [pytest.mark.anyio, pytest.mark.promise("P18"), pytest.mark.timeout(120)]

FORM = '{"questions": [{"question": "Which?", "options": [{"label": "tea"}, {"label": "milk"}]}]}'
ASKS, PAINTS, WIPES = (
    calls((name, name, arguments))
    for name, arguments in (("ask_user", FORM), ("paint", "{}"), ("wipe", "{}"))
)
CHAT_TOOL: Json = {"name": "paint", "description": "Paint it.", "parameters": {"type": "object"}}


@dataclass(frozen=True, slots=True)
class Pair:
    """Two workers on one store, and their model."""

    one: Worker
    other: Worker
    model: TopicModel


@pytest.fixture(scope="module")
async def workers(store: str) -> AsyncGenerator[Pair]:
    async with listening(TopicModel()) as model:
        flags = (
            *("tests.support.served_agents:holding", "--store", store),
            *("--model", "openai:mock", "--model-base-url", model.base_url),
        )
        async with worker(*flags, cwd=None) as one, worker(*flags, cwd=None) as other:
            yield Pair(one, other, model)
        model.assert_no_violations()


async def process(client: Client, session: str, *messages: Json, **more: Any) -> Json:
    """Post to the Agent API, and return the end of the answer."""
    body = {"session_id": session, "input": list(messages), **more}
    answer = await client.http.post(PATH, json=body)
    assert answer.status_code == 200, answer.text
    return check_legal(events_of(answer.content))


async def ended(follower: Follower, chats: int) -> Follower:
    """Read until so many chats have ended."""
    await follower.until_ends(chats)
    return follower


def texts(turns: Sequence[Json]) -> list[str]:
    """The texts of turns, and the results of their calls."""
    found: list[str] = []
    for turn in turns:
        found += [block["content"] for block in turn["blocks"]]
        found += [call["result"] for call in turn["tool_calls"]]
    return found


async def test_what_begins_at_the_chat_socket_is_answered_at_the_other_protocols(
    workers: Pair,
) -> None:
    workers.model.topics = {"chat": [ASKS, PAINTS, WIPES, says("First."), says("Second.")]}
    one, other = workers.one.client, workers.other.client
    session = await create_session(workers.one.server.url)
    with anyio.fail_after(SECONDS):
        async with connected("plain", workers.one.server.url) as chat:
            view = await Follower(chat, session).subscribe()
            await view.send("[chat] go", tools=[CHAT_TOOL])
            question = pending_call(await ended(view, 1))["id"]
            answers = {"answers": [{"selected": ["milk"]}]}
            asked = await other.post(session, result(question, answers))
            assert asked.call.name == "paint"
            paint = pending_call(await ended(view, 2))["id"]
            assert paint == asked.call.id
            waits = await process(one, session, output(paint, "blue"))
            [approval] = bodies(waits, "mcp_approval_request")
            assert pending_call(await ended(view, 3))["id"] == approval["id"]
            said = await process(other, session, decision(approval["id"], True))
            assert joined_text(said) == "First."
            assert (await one.post(session, user("more"))).text == "Second."
            await ended(view, 5)
    recorded = await recorded_turns(workers.other.server.url, session)
    assert view.view.kept == recorded
    *before, first, more, second = texts(list(recorded.values()))
    assert before[0] == "[chat] go"
    assert "milk" in before[1]
    assert [*before[2:], first, more, second] == ["blue", "wiped", "First.", "more", "Second."]


async def test_what_begins_at_the_other_protocols_is_answered_at_the_chat_socket(
    workers: Pair,
) -> None:
    workers.model.topics = {"post": [PAINTS, ASKS, says("First."), WIPES, PAINTS, says("Second.")]}
    one, other = workers.one.client, workers.other.client
    session = await create_session(workers.one.server.url)
    with anyio.fail_after(SECONDS):
        async with (
            connected("socketio", workers.one.server.url) as chat,
            connected("polling", workers.other.server.url) as second_chat,
        ):
            here = await Follower(chat, session).subscribe()
            there = await Follower(second_chat, session).subscribe()
            declared = [client_tool("paint"), {"name": "ask_user"}]
            asked = await one.post(session, user("[post] go"), tools=declared)
            paint = pending_call(await ended(there, 1))
            assert (paint["id"], paint["status"]) == (asked.call.id, "awaiting_result")
            await there.send("", tool_results=[{"tool_call_id": paint["id"], "result": "blue"}])
            question = pending_call(await ended(here, 2))
            assert question["tool_name"] == "AskUserQuestion"
            answer = {"tool_call_id": question["id"], "selections": {"0": [1]}}
            await here.send("", askuser_answer=answer)
            await ended(here, 3)
            waits = await process(other, session, agent_api_user("more"), tools=[function("paint")])
            [approval] = bodies(waits, "mcp_approval_request")
            wipe = pending_call(await ended(here, 4))
            assert (wipe["id"], wipe["status"]) == (approval["id"], "awaiting_answer")
            await here.send(
                "", askuser_answer={"tool_call_id": wipe["id"], "selections": {"0": [0]}}
            )
            painted = pending_call(await ended(there, 5))
            await there.send("", tool_results=[{"tool_call_id": painted["id"], "result": "red"}])
            await ended(here, 6)
            await ended(there, 6)
    recorded = await recorded_turns(workers.other.server.url, session)
    assert here.view.kept == there.view.kept == recorded
    found = texts(list(recorded.values()))
    assert "milk" in json.dumps(found.pop(2))
    assert found == ["[post] go", "blue", "First.", "more", "wiped", "red", "Second."]
