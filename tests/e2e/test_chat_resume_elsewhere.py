"""A client of the chat socket that left one worker at any event resumes at another one, on Redis."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from dataclasses import dataclass

import anyio
import pytest
from tests.e2e.chat_followers import (
    Chat,
    Follower,
    TopicModel,
    connected,
    create_session,
    pending_call,
    recorded_turns,
)
from tests.e2e.workers import SECONDS, held
from tests.support.model_server import Reply, calls, event, listening, says
from tests.support.server import Server, running_server
from tests.support.wire import Json

pytestmark = [pytest.mark.anyio, pytest.mark.promise("P3"), pytest.mark.timeout(120)]

FORM = '{"questions": [{"question": "Which?", "options": [{"label": "tea"}]}]}'
PAINT: Json = {"name": "paint", "description": "Paint it.", "parameters": {"type": "object"}}
ENDS = 3
FORMS = {"plain": None, "socketio": "raw"}
"""Whether a client by a transport wants raw events."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Two workers on one store, and their model."""

    one: Server
    other: Server
    model: TopicModel


@pytest.fixture
async def workers(store: str) -> AsyncGenerator[Pair]:
    async with listening(TopicModel()) as model:
        flags = (
            *("tests.support.served_agents:holding", "--store", store),
            *("--model", "openai:mock", "--model-base-url", model.base_url),
        )
        async with running_server(*flags) as one, running_server(*flags) as other:
            yield Pair(one, other, model)
        model.assert_no_violations()


def tour(gate: anyio.Event) -> dict[str, list[Reply]]:
    """Three chats: a tool and a question, a sub-agent and a tool of the client, and a text that is
    held in its middle.
    """
    looks = [
        event(reasoning_content="hm, "),
        event(reasoning_content="well."),
        event(content="Let me "),
        event(content="see. "),
        *calls(("a", "price", '{"drink": "tea"}')).steps,
    ]
    soup = calls(("c", "cook", '{"task": "[soup] Cook."}'))
    turns = [Reply(looks), calls(("b", "ask_user", FORM)), soup, calls(("d", "paint", "{}"))]
    return {"tour": [*turns, held("The ", gate, "end", ".")], "soup": [says("So", "up.")]}


async def test_what_follows_each_event_is_the_same_at_another_worker(workers: Pair) -> None:
    gate = anyio.Event()
    workers.model.topics = tour(gate)
    session = await create_session(workers.one.url)
    with anyio.fail_after(3 * SECONDS):
        async with connected("plain", workers.one.url) as chat, AsyncExitStack() as stack:
            late = {
                way: await stack.enter_async_context(connected(way, workers.other.url))
                for way in FORMS
            }
            whole = await Follower(chat, session).subscribe()
            await whole.send("[tour] go", tools=[PAINT])
            await whole.until_ends(1)
            answer = {"tool_call_id": pending_call(whole)["id"], "selections": {"0": [0]}}
            await whole.send("", askuser_answer=answer)
            await whole.until_ends(2)
            result = {"tool_call_id": pending_call(whole)["id"], "result": "blue"}
            await whole.send("", tool_results=[result])
            await whole.until("The ")
            # each has to see a sign of life of the worker: they wait for it together
            waiting = [
                await left_at(whole, cut).resume(
                    await stack.enter_async_context(connected("plain", workers.other.url))
                )
                for cut in range(begin_of_last_chat(whole), len(whole.events) + 1)
            ]
            for each in waiting:
                await each.until("The ")
                assert each.view.turns == whole.view.turns
            gate.set()
            await whole.until_ends(ENDS)
            for each in waiting:
                await each.until_ends(ENDS)
            resumed = [
                await resumed_at(whole, cut, way, chat)
                for way, chat in late.items()
                for cut in range(1, len(whole.events) + 1)
            ]
            recorded = await recorded_turns(workers.other.url, session)
    assert whole.view.kept == recorded
    assert len(resumed) == 2 * len(whole.events) > 60
    for each in (*waiting, *resumed):
        assert each.view.turns == whole.view.turns
        assert each.view.numbers == sorted(set(each.view.numbers))
        assert [end["chat_run_id"] for end in each.view.ends] == [
            end["chat_run_id"] for end in whole.view.ends
        ]


def begin_of_last_chat(follower: Follower) -> int:
    """Return the number of events up to the beginning of the last chat."""
    begun = [at for at, each in enumerate(follower.events, 1) if each["event"] == "chat:start"]
    return begun[-1]


def left_at(whole: Follower, cut: int) -> Follower:
    """Return a client that has got so many events."""
    one = Follower(whole.chat, whole.session)
    one.take(*whole.events[:cut])
    return one


async def resumed_at(whole: Follower, cut: int, way: str, chat: Chat) -> Follower:
    one = await left_at(whole, cut).resume(chat, event_format=FORMS[way])
    await one.until_ends(ENDS)
    await one.leave()
    return one
