"""The chat socket as Socket.IO, by the published client python-socketio."""

import anyio
import pytest
import socketio
from tests.support.chat_site import chat_site

from passback.agent import Agent
from passback.models.scripted import ScriptedModel, says

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("transports", [["polling"], ["websocket"], ["polling", "websocket"]])
async def test_a_chat_without_tools(transports: list[str]) -> None:
    model = ScriptedModel([says("Paris", "."), says("Rome.")])
    async with chat_site(Agent(model=model)) as site:
        session = await site.create()
        client = socketio.AsyncClient()
        events = []
        done = anyio.Event()

        def take(name, data):
            events.append((name, data))
            if name == "chat:end":
                done.set()

        client.on("*", take)
        await client.connect(site.url, transports=transports, auth={"token": "x"})
        await client.emit("session:subscribe", {"session_id": session})
        ack = await client.call("chat:send", {"session_id": session, "message": "The capital?"})
        print(ack)
        with anyio.fail_after(10):
            await done.wait()
        print(events)
        await client.disconnect()
        assert len(events) == 7
