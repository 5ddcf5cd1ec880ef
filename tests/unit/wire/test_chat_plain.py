"""The chat socket as a plain WebSocket, by the published client `websockets`."""

import pytest
from tests.support.chat_site import Json, chat_site

from passback.agent import Agent
from passback.models.scripted import ScriptedModel, says

pytestmark = pytest.mark.anyio


def names(events: list[Json]) -> list[str]:
    return [each["event"] for each in events]


async def test_a_chat_without_tools() -> None:
    model = ScriptedModel([says("Paris", "."), says("Rome.")])
    async with chat_site(Agent(model=model)) as site:
        session = await site.create()
        async with site.subscribed(session) as client:
            await client.emit("chat:send", session_id=session, message="The capital of France?")
            events = await client.chat()
            print(events)
            assert 0
