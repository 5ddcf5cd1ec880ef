"""Resuming on the chat socket: at every cut point, in every form, and behind what is void."""

import json
from typing import Any

import anyio
import pytest
from tests.support.chat_site import ChatSite, Json, chat_site
from tests.unit.wire.chat_client import ChatClient
from tests.unit.wire.test_chat_plain import agent, say, told

from passback.core.events import Position
from passback.models.scripted import calls, says
from passback.wire.chat.said import Said, number_of

pytestmark = pytest.mark.anyio


def shown(events: list[Json]) -> ChatClient:
    """Return a client that has got events."""
    client = ChatClient()
    take(client, events)
    return client


def take(client: ChatClient, events: list[Json]) -> None:
    for each in events:
        data = dict(each["data"])
        number = data.pop("stream_sequence", 0)
        del data["session_id"]
        client.take([Said(each["event"], data, number)])


async def two_chats(site: ChatSite, session: str) -> list[Json]:
    async with site.subscribed(session) as client:
        return [*await say(client, session), *await say(client, session)]


def script() -> Any:
    return agent(
        ["I look.", *calls(("bash", {"command": "ls"}))],
        says("Two ", "files."),
        calls(("bash", {"command": "wc"})),
        says("Three."),
    )


async def test_what_follows_each_cut_adds_up_to_the_whole() -> None:
    async with chat_site(script()) as site:
        session = await site.create()
        events = await two_chats(site, session)
        whole = shown(events)
        for cut, last in enumerate(events[:-1]):
            number = last["data"]["stream_sequence"]
            client = shown(events[: cut + 1])
            async with site.subscribed(session, after_sequence=number) as late:
                rest = await late.chat()
                while len(client.ends) + sum(each["event"] == "chat:end" for each in rest) < 2:
                    rest += await late.chat()
            take(client, rest)
            assert client.turns == whole.turns
            assert client.ends == whole.ends


@pytest.mark.parametrize("event_format", [None, "raw"])
async def test_a_cut_between_pieces_that_came_one_by_one(event_format: str | None) -> None:
    gates = [anyio.Event() for _ in range(3)]
    pieces = ["One ", gates[0], "two ", gates[1], "three ", gates[2], *says("four.")]
    async with chat_site(agent(pieces)) as site:
        session = await site.create()
        events: list[Json] = []
        async with site.subscribed(session) as client:
            await client.emit("chat:send", session_id=session, message="go")
            for gate in gates:
                events += await client.until("turn:patch")
                gate.set()
            events += await client.chat()
        whole = shown(events)
        for cut, last in enumerate(events[:-1], 1):
            number = last["data"]["stream_sequence"]
            resumed = {"after_sequence": number, "event_format": event_format}
            async with site.subscribed(session, **resumed) as late:
                one = shown(events[:cut])
                take(one, typed(await late.chat()))
            assert (one.turns, one.ends) == (whole.turns, whole.ends)


def typed(events: list[Json]) -> list[Json]:
    """Return events of either form as typed ones."""
    found: list[Json] = []
    for each in events:
        for raw in each["data"].get("events", ()):
            numbered = {"stream_sequence": raw["stream_sequence"], "session_id": "s"}
            found.append({"event": raw["type"], "data": {**raw["payload"], **numbered}})
        if each["event"] != "turn:events":
            found.append(each)
    return found


async def test_from_the_end_only_what_comes_is_sent() -> None:
    async with chat_site(agent(says("One."), says("Two."))) as site:
        session = await site.create()
        async with site.subscribed(session) as client:
            first = await say(client, session)
        end = first[-1]["data"]["stream_sequence"]
        async with (
            site.subscribed(session, after_sequence=end, resume=True) as late,
            site.subscribed(session, after_sequence=0) as fresh,
            site.subscribed(session, after_sequence=0, resume=True) as from_the_start,
        ):
            assert await from_the_start.chat() == first
            second = await say(late, session)
            assert await fresh.chat() == second
            assert await from_the_start.chat() == second
        async with site.subscribed(session, after_sequence=0, resume=True) as last:
            assert await last.chat() == second


async def test_raw_events_are_resumed_and_a_client_may_subscribe_again() -> None:
    async with chat_site(script()) as site:
        session = await site.create()
        events = await two_chats(site, session)
        cut = events[4]["data"]["stream_sequence"]
        async with site.subscribed(session) as client:
            ack = await client.call(
                "session:subscribe", session_id=session, event_format="raw", after_sequence=cut
            )
            assert ack == {"status": "ok"}
            batch = await client.next()
            numbers = [each["stream_sequence"] for each in batch["data"]["events"]]
            assert numbers[0] > cut
            assert (await client.chat())[-1] == events[-1] or (await client.chat())[-1] == events[
                -1
            ]


async def test_a_running_chat_is_resumed_though_its_text_is_not_stored_yet() -> None:
    gate = anyio.Event()
    late_log = {"timing": "log_delay=5"}
    async with chat_site(agent(["One ", gate, *says("two.")]), settings=late_log) as site:
        session = await site.create()
        async with site.subscribed(session) as client:
            await client.emit("chat:send", session_id=session, message="go")
            before = await client.until("turn:patch")
            number = before[-1]["data"]["stream_sequence"]
            async with site.subscribed(session, after_sequence=number) as late:
                gate.set()
                rest = await late.chat()
                assert rest == await client.chat()
                assert "One" not in json.dumps(rest[0])
                take(shown(before), rest)
            beyond = number_of(Position(1, 1000))
            ack = await client.call("session:subscribe", session_id=session, after_sequence=beyond)
            assert ack["code"] == "invalid_cursor"


async def test_leaving_while_reading_alone() -> None:
    gate = anyio.Event()
    async with chat_site(agent(["One ", gate, *says("two.")])) as site:
        session = await site.create()
        async with site.subscribed(session) as client:
            await client.emit("chat:send", session_id=session, message="go")
            first = await client.next()
            number = first["data"]["stream_sequence"]
            async with site.subscribed(session, after_sequence=number) as late:
                await late.call("session:unsubscribe", session_id=session)
            gate.set()
            assert told(await client.chat())[-1] == "chat:end completed completed"
