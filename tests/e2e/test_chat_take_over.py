"""A worker is killed in the middle of chats: no client of the chat socket keeps void words.

Each chat has reached a point of its own when the worker that runs it is killed. Clients by two
transports were at that worker and come back to the other one; others were at the other one all the
time.
"""

import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

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
from tests.e2e.workers import LEASE, SECONDS, broken_off
from tests.support.gates import Gate, gate
from tests.support.model_server import Act, Reply, calls, event, listening, says
from tests.support.server import Server, running_server
from tests.support.wire import Json

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.promise("P3", "P6", "P10"),
    pytest.mark.timeout(180),  # for all chats, on a busy machine
]

VOID = "void words"
"""What the model says before the worker is killed, in a turn that is not complete then."""
FORM = '{"questions": [{"question": "Where to?", "options": [{"label": "staging"}]}]}'
PAINT: Json = {"name": "paint", "description": "Paint it.", "parameters": {"type": "object"}}
WAYS = ("plain", "socketio")


@dataclass(frozen=True, slots=True)
class Point:
    """A point at which a worker is killed.

    Attributes:
        replies: what the model answers, before and behind it.
        shown: words that a client shows when it is reached, in any order.
        said: words that are shown in the end.
        answers: the first chat ends with a call of the client's: whether it is answered `before`
            the worker is killed, or `behind` it.
        ends: the chats.
        options: of `chat:send`.
        result: of the last chat.
        others: what the model answers to sub-agents.
    """

    replies: Sequence[Reply]
    shown: Sequence[str] = (VOID,)
    said: str = "whole"
    answers: str = ""
    ends: int = 1
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    result: Json | None = None
    others: Mapping[str, Sequence[Reply]] = field(default_factory=dict[str, Sequence[Reply]])


WHOLE = says("who", "le")
HALF_CALL = [event(content=VOID), *calls(("a", "price", '{"drink": "tea"}')).steps[:1], Act.STALL]


def held(name: str, port: int) -> Reply:
    """A call of a tool that waits at a gate."""
    return calls(("a", name, json.dumps({"port": port})))


def cook(*topics: str) -> Reply:
    """Calls of sub-agents, one for each topic."""
    return calls(*((topic, "cook", json.dumps({"task": f"[{topic}] Cook."})) for topic in topics))


def points(port: int) -> dict[str, Point]:
    """Return the points; their tools wait at the gate with this port."""
    asks, paints = calls(("a", "ask_user", FORM)), calls(("a", "paint", "{}"))
    tea = calls(("a", "price", '{"drink": "tea"}'))
    tools = {"tools": [PAINT]}
    return {
        "text": Point([broken_off("The ", VOID), WHOLE]),
        "thought": Point([Reply([event(reasoning_content=VOID), Act.STALL]), WHOLE]),
        "half_call": Point([Reply(HALF_CALL), tea, WHOLE]),
        "second_turn": Point([tea, broken_off(VOID), WHOLE]),
        "tool": Point([held("hold", port), WHOLE], shown=('"hold"',), said="may or may not"),
        "repeatable_tool": Point(
            [held("hold_again", port), WHOLE], shown=('"hold_again"',), said="let go again"
        ),
        "question": Point([asks, WHOLE], shown=("awaiting_answer",), answers="behind", ends=2),
        "answer": Point([asks, broken_off(VOID), WHOLE], answers="before", ends=2),
        "approval": Point(
            [calls(("a", "wipe", "{}")), WHOLE],
            *(("awaiting_answer",), "wiped", "behind", 2),
        ),
        "client_tool": Point(
            [paints, WHOLE], *(("awaiting_result",), "blue", "behind", 2), options=tools
        ),
        "client_result": Point(
            [paints, broken_off(VOID), WHOLE], *((VOID,), "blue", "before", 2), options=tools
        ),
        "sub_agent": Point(
            [cook("soup"), WHOLE], others={"soup": [broken_off(VOID), says("Soup.")]}
        ),
        "two_sub_agents": Point(
            [cook("rice", "fish"), WHOLE],
            shown=(VOID, "Fish."),
            others={"rice": [broken_off(VOID), says("Rice.")], "fish": [says("Fish.")]},
        ),
        "queue": Point([broken_off(VOID), WHOLE, says("second")], said="second", ends=2),
        "headless": Point(
            [broken_off(VOID), WHOLE], options={"headless": True}, result={"output": "whole"}
        ),
    }


NAMES = tuple(points(0))


@dataclass(slots=True)
class Told:
    """What the clients of one chat were told.

    Attributes:
        point: where the worker was killed.
        session: the id of the session.
        connections: closes them.
        mine: clients that were at that worker, by their transports; `left` is the number of events
            that each had then.
        beside: clients of the other worker.
        recorded: the turns in the end.
        resumed: clients that left one of the others at one of its events, and came back to the other
            worker afterwards.
    """

    point: Point
    session: str
    connections: AsyncExitStack = field(default_factory=AsyncExitStack)
    mine: dict[str, Follower] = field(default_factory=dict[str, Follower])
    beside: dict[str, Follower] = field(default_factory=dict[str, Follower])
    left: dict[str, int] = field(default_factory=dict[str, int])
    recorded: dict[str, Json] = field(default_factory=dict[str, Json])
    resumed: list[Follower] = field(default_factory=list[Follower])

    @property
    def all(self) -> Sequence[Follower]:
        return [*self.mine.values(), *self.beside.values()]

    async def connect(self, way: str, server: Server) -> Chat:
        return await self.connections.enter_async_context(connected(way, server.url))


class Play:
    """All chats, from their beginning to their end.

    Args:
        victim, survivor: the workers.
        model: of the workers.
    """

    def __init__(self, victim: Server, survivor: Server, model: TopicModel) -> None:
        self._victim = victim
        self._survivor = survivor
        self._model = model

    async def begin(self, name: str, point: Point) -> Told:
        """Bring a chat to its point."""
        self._model.topics |= {name: list(point.replies)}
        self._model.topics |= {topic: list(replies) for topic, replies in point.others.items()}
        told = Told(point, await create_session(self._victim.url))
        for way in WAYS:
            for server, clients in ((self._victim, told.mine), (self._survivor, told.beside)):
                clients[way] = Follower(await told.connect(way, server), told.session)
                await clients[way].subscribe()
        mine = told.mine["plain"]
        await mine.send(f"[{name}] go", **point.options)
        if point.answers == "before":
            for each in told.all:
                await each.until_ends(1)
            await answer(mine)
        for each in told.all:
            await reach(each, point)
        if name == "queue":
            await mine.send("second", on_busy="enqueue")
        return told

    async def end(self, told: Told) -> None:
        """Go on at the other worker, and read all to the end."""
        for way, each in told.mine.items():
            await each.until_cut()
            told.left[way] = len(each.events)
            await each.resume(await told.connect(way, self._survivor))
        if told.point.answers == "behind":
            await answer(told.beside["plain"])
        for each in told.all:
            await each.until_ends(told.point.ends)
            await each.leave()
        told.recorded = await recorded_turns(self._survivor.url, told.session)
        await self._resume_each(told, told.mine["plain"].events[: told.left["plain"]])
        await self._resume_each(told, told.beside["socketio"].events)
        await told.connections.aclose()

    async def _resume_each(self, told: Told, events: Sequence[Json]) -> None:
        """Come back behind each event that has a number, if nobody has who had seen the same."""
        chat = await told.connect("plain", self._survivor)
        done = [each.seen for each in told.resumed]
        for cut in range(1, len(events) + 1):
            one = Follower(chat, told.session)
            one.take(*events[:cut])
            if tuple(one.events) in done or "stream_sequence" not in events[cut - 1]["data"]:
                continue
            told.resumed.append(one)
            await one.resume(chat)
            await one.until_ends(told.point.ends)
            await one.leave()


async def reach(follower: Follower, point: Point) -> None:
    """Read up to the point."""
    for words in point.shown:
        await follower.until(words)
    if point.answers == "behind":
        await follower.until_ends(1)


async def answer(follower: Follower) -> None:
    """Answer the call that waits."""
    call = pending_call(follower)
    named = {"tool_call_id": call["id"]}
    if call["status"] == "awaiting_result":
        await follower.send("", tool_results=[{**named, "result": "blue"}])
    else:
        given = {**named, "selections": {"0": [0]}}
        await follower.send("", askuser_answer=given)


@pytest.fixture(scope="module")
async def all_told(store: str) -> AsyncGenerator[Mapping[str, Told]]:
    """All chats, of which one worker was killed when each had reached its point."""
    async with listening(TopicModel()) as model, gate() as held_at, AsyncExitStack() as stack:
        flags = (
            *("tests.support.served_agents:holding", "--store", store),
            *("--timing", f"lease={LEASE}"),
            *("--model", "openai:mock", "--model-base-url", model.base_url),
        )
        survivor = await stack.enter_async_context(running_server(*flags))
        victim = await stack.enter_async_context(running_server(*flags))
        with anyio.fail_after(5 * SECONDS):
            yield await played(Play(victim, survivor, model), victim, held_at)
        model.assert_no_violations()


async def played(play: Play, victim: Server, held_at: Gate) -> Mapping[str, Told]:
    told = {name: await play.begin(name, each) for name, each in points(held_at.port).items()}
    for _ in ("tool", "repeatable_tool"):
        await held_at.reached()
    victim.kill()
    await victim.exit_code()
    held_at.opened.set()
    for each in told.values():
        await play.end(each)
    return told


@pytest.mark.parametrize("name", NAMES)
async def test_all_clients_show_what_is_recorded(all_told: Mapping[str, Told], name: str) -> None:
    told = all_told[name]
    assert told.point.said in json.dumps(told.recorded)
    assert VOID not in json.dumps(told.recorded)
    for each in told.all:
        assert each.view.kept == told.recorded
        assert each.view.ends == told.all[0].view.ends
    ends = told.all[0].view.ends
    assert [end["status"] for end in ends] == ["completed"] * told.point.ends
    assert ends[-1]["result"] == told.point.result


@pytest.mark.parametrize("name", NAMES)
async def test_a_client_that_left_at_any_event_comes_back_to_the_other_worker(
    all_told: Mapping[str, Told], name: str
) -> None:
    told = all_told[name]
    assert len(told.resumed) >= told.left["plain"] > 0
    for each in told.resumed:
        assert each.view.kept == told.recorded
        assert each.view.ends == told.all[0].view.ends
