"""Clients of the chat socket at real servers, by each transport, that show the turns of a session.

The clients are python-socketio's and `websockets`'; `Follower` keeps the turns as the documents of
the protocol say.
"""

import json
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import httpx
from tests.support.chat_site import PlainChat, plain_client
from tests.support.model_server import ModelServer, Reply, Request
from tests.support.socketio_client import SocketIoChat, socketio_client
from tests.support.wire import Json
from tests.unit.wire.chat_client import ChatClient
from typing_extensions import override

from passback.wire.chat.said import Said

Chat: TypeAlias = PlainChat | SocketIoChat

TRANSPORTS: Mapping[str, Sequence[str]] = {
    "plain": (),
    "socketio": ("polling", "websocket"),
    "polling": ("polling",),
}
"""The transports of Socket.IO's client by the name of a way to connect; none for a plain WebSocket."""


@asynccontextmanager
async def connected(way: str, url: str) -> AsyncGenerator[Chat]:
    """Connect a client to a server by a way of `TRANSPORTS`."""
    if transports := TRANSPORTS[way]:
        async with socketio_client(url, token=None, transports=transports) as client:
            yield client
    else:
        # with a bound, one that is not read would answer no pings
        async with plain_client(url, max_queue=None) as plain:
            yield plain


@dataclass(slots=True)
class Follower:
    """A client that shows a session.

    Attributes:
        chat: its connection.
        session: the id of the session.
        view: what it shows.
        events: what it was sent.
        seen: the events before it last came back.
    """

    chat: Chat
    session: str
    view: ChatClient = field(default_factory=ChatClient)
    events: list[Json] = field(default_factory=list[Json])
    seen: Sequence[Json] = ()

    @property
    def last(self) -> int:
        """The number of the last event."""
        return self.view.numbers[-1]

    async def subscribe(self, **sent: Any) -> "Follower":
        ack = await self.chat.call("session:subscribe", session_id=self.session, **sent)
        assert ack == {"status": "ok"}, ack
        return self

    async def resume(self, chat: Chat, **sent: Any) -> "Follower":
        """Go on with another connection behind the last event."""
        self.chat, self.seen = chat, tuple(self.events)
        return await self.subscribe(resume=True, after_sequence=self.last, **sent)

    async def send(self, message: str, **more: Any) -> Json:
        """Begin a chat, or go on with one; return the ack."""
        ack = await self.chat.call("chat:send", session_id=self.session, message=message, **more)
        assert ack["status"] == "ok", ack
        return ack

    async def until(self, words: str) -> None:
        """Read until the turns have some words."""
        while words not in json.dumps(self.view.turns):
            self.take(await self.chat.next())

    async def until_ends(self, count: int) -> None:
        """Read until so many chats have ended."""
        while len(self.view.ends) < count:
            self.take(await self.chat.next())

    async def until_cut(self) -> None:
        """Read until the connection ends."""
        self.take(*await self.chat.rest())

    async def leave(self) -> None:
        """Unsubscribe, and read all that came before."""
        ack = await self.chat.call("session:unsubscribe", session_id=self.session)
        assert ack == {"status": "ok"}, ack
        self.take(*self.chat.waiting())

    def take(self, *events: Json) -> None:
        self.events += events
        self.view.take(said_of(each) for event in events for each in typed_events(event))


def typed_events(event: Json) -> Sequence[Json]:
    """Return the events of a batch of raw ones, or the event itself."""
    if event["event"] != "turn:events":
        return [event]
    batch = event["data"]["events"]
    return [{"event": raw["type"], "data": {**raw["payload"], **numbered_of(raw)}} for raw in batch]


def numbered_of(raw: Json) -> Json:
    return {name: raw[name] for name in ("stream_sequence",) if name in raw}


def said_of(event: Json) -> Said:
    """Return an event as `ChatClient` takes it; without a number, with 0."""
    assert event["event"] != "system:error", event["data"]
    data = dict(event["data"])
    number = data.pop("stream_sequence", 0)
    data.pop("session_id", None)
    return Said(event["event"], data, number)


def pending_call(follower: Follower) -> Json:
    """Return the only call that the last chat has left to the client."""
    [call_id] = follower.view.ends[-1]["pending_tool_call_ids"]
    turns = follower.view.turns.values()
    calls: list[Json] = [call for turn in turns for call in turn["tool_calls"]]
    return next(call for call in calls if call["id"] == call_id)


# ---------------------------------------------------------------- sessions
async def create_session(url: str) -> str:
    async with httpx.AsyncClient(base_url=url, trust_env=False) as http:
        answer = await http.post("/api/sessions", json={})
        session: str = answer.json()["session_id"]
        return session


async def recorded_turns(url: str, session: str) -> dict[str, Json]:
    """Return the turns of a session as `ChatClient.kept` has them."""
    async with httpx.AsyncClient(base_url=url, trust_env=False) as http:
        answer = await http.get(f"/api/sessions/{session}/messages")
        turns: list[Json] = answer.json()
    return {turn["id"]: turn for turn in turns}


# ---------------------------------------------------------------- the model
TOPIC = re.compile(r"\[(\w+)\]")


class TopicModel(ModelServer):
    """A model service that plays replies of their own to each agent: its task, or the first message
    of its user, names them, as in `[topic] go`. The last one is played again and again.

    Attributes:
        topics: the replies by their names.
    """

    def __init__(self) -> None:
        super().__init__(())
        self.topics: dict[str, list[Reply]] = {}

    @override
    def _answer_to(self, request: Request) -> Reply:
        self.requests.append(request)
        first = next(each for each in request.shown if each["role"] == "user")
        found = TOPIC.search(json.dumps(first["content"]))
        assert found is not None, first
        replies = self.topics[found[1]]
        return replies.pop(0) if len(replies) > 1 else replies[0]
