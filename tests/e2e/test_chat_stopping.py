"""A worker that is told to stop: each client of its chat socket is told to connect again."""

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack

import anyio
import pytest
from tests.e2e.chat_followers import (
    TRANSPORTS,
    Chat,
    Follower,
    TopicModel,
    connected,
    create_session,
    recorded_turns,
)
from tests.e2e.workers import SECONDS, broken_off, held
from tests.support.chat_site import PlainChat
from tests.support.model_server import listening, says
from tests.support.server import Server, running_server
from tests.support.wire import Json, client_of
from websockets.asyncio.client import connect

pytestmark = [pytest.mark.anyio, pytest.mark.promise("P3"), pytest.mark.timeout(120)]

RESTART = (1012, "the server stops: connect again, to another worker")


@pytest.fixture(scope="module")
async def topics() -> AsyncGenerator[TopicModel]:
    async with listening(TopicModel()) as model:
        yield model
        model.assert_no_violations()


@pytest.fixture(scope="module")
def worker_flags(store: str, topics: TopicModel) -> Sequence[str]:
    model = ("--model", "openai:mock", "--model-base-url", topics.base_url)
    return ("--store", store, *model, "--timing", "lease=2")


@pytest.fixture(scope="module")
async def heir(worker_flags: Sequence[str]) -> AsyncGenerator[Server]:
    """The worker that goes on."""
    async with running_server(*worker_flags) as server:
        yield server


async def last_word(chat: Chat) -> tuple[Sequence[Json], str]:
    """Return what a client was still told, and the code of the last word."""
    with anyio.fail_after(SECONDS):
        *events, last = await chat.rest()
    assert last["event"] == "system:error", last
    if isinstance(chat, PlainChat):
        assert (chat.connection.close_code, chat.connection.close_reason) == RESTART
    return events, last["data"]["code"]


async def take_rest(follower: Follower, way: str) -> None:
    """Have a busy client read to the end of its connection.

    One that polls may be between two polls when the worker stops to listen: it is not told then.
    """
    if way == "polling":
        events = await follower.chat.rest()
        follower.take(*(each for each in events if each["event"] != "system:error"))
    else:
        told, code = await last_word(follower.chat)
        assert code == "shutting_down"
        follower.take(*told)


async def test_clients_of_every_kind_are_told_and_go_on_at_another_worker(
    topics: TopicModel, worker_flags: Sequence[str], heir: Server
) -> None:
    topics.topics = {"long": [broken_off("void"), says("who", "le")], "later": [says("here")]}
    async with AsyncExitStack() as stack:

        async def client(way: str, url: str) -> Chat:
            return await stack.enter_async_context(connected(way, url))

        grace = ("--timing", "shutdown_grace=0")
        stops = await stack.enter_async_context(running_server(*worker_flags, *grace))
        session, idle = await create_session(stops.url), await create_session(stops.url)
        busy = {
            way: await Follower(await client(way, stops.url), session).subscribe()
            for way in TRANSPORTS
        }
        waiting = {
            way: await Follower(await client(way, stops.url), idle).subscribe()
            for way in TRANSPORTS
        }
        alone = [await client(way, stops.url) for way in TRANSPORTS]
        by_hand = await stack.enter_async_context(
            connect(stops.url.replace("http", "ws") + "/socket.io/?EIO=4&transport=websocket")
        )
        await by_hand.recv()
        await by_hand.send("40")
        await by_hand.recv()
        await busy["plain"].send("[long] go")
        for each in busy.values():
            await each.until("void")
        stops.terminate()
        for way, each in busy.items():
            await take_rest(each, way)
        for chat in (*alone, *(each.chat for each in waiting.values())):
            assert await last_word(chat) == ([], "shutting_down")
        word = str(await by_hand.recv())
        assert json.loads(word[2:])[1]["code"] == "shutting_down"
        await by_hand.wait_closed()
        assert (by_hand.close_code, by_hand.close_reason) == RESTART
        assert await stops.exit_code() == 0
        for way, each in busy.items():
            await each.resume(await client(way, heir.url))
            await each.until_ends(1)
            await each.leave()
            assert each.view.kept == await recorded_turns(heir.url, session)
            assert "void" not in json.dumps(each.view.kept)
            assert each.view.ends[0]["status"] == "completed"
        for way, each in waiting.items():
            each.chat = await client(way, heir.url)
            await each.subscribe()
        await waiting["plain"].send("[later] go")
        for each in waiting.values():
            await each.until_ends(1)
            assert each.view.kept == await recorded_turns(heir.url, idle)


async def test_a_chat_that_ends_while_a_worker_stops_is_told_before_the_last_word(
    topics: TopicModel, worker_flags: Sequence[str], heir: Server
) -> None:
    gate = anyio.Event()
    topics.topics = {"short": [held("one ", gate, "two")], "next": [says("three")]}
    async with AsyncExitStack() as stack:
        grace = ("--timing", f"shutdown_grace={SECONDS}")
        stops = await stack.enter_async_context(running_server(*worker_flags, *grace))
        session = await create_session(stops.url)
        clients = {
            way: await Follower(
                await stack.enter_async_context(connected(way, stops.url)), session
            ).subscribe()
            for way in TRANSPORTS
        }
        await clients["plain"].send("[short] go")
        for each in clients.values():
            await each.until("one ")
        http = await stack.enter_async_context(client_of(stops.url))
        stops.terminate()
        await http.until_refused()
        refused = await clients["socketio"].chat.call(
            "chat:send", session_id=session, message="[next] go", on_busy="enqueue"
        )
        assert (refused["status"], refused["code"]) == ("error", "shutting_down")
        gate.set()
        for way, each in clients.items():
            await take_rest(each, way)
            assert len(each.view.ends) == 1 or way == "polling"
        assert await stops.exit_code() == 0
        for way, each in clients.items():
            again = await stack.enter_async_context(connected(way, heir.url))
            await each.resume(again)
            await each.until_ends(1)
            assert each.view.ends[0]["status"] == "completed"
        one = clients["plain"]
        await one.send("[next] go")
        for each in clients.values():
            await each.until_ends(2)
            assert each.view.kept == await recorded_turns(heir.url, session)
