"""Keys on the chat socket: in the handshake, or as the first event; and its end."""

import json
from typing import Any

import pytest
from tests.support.chat_site import chat_site
from websockets.exceptions import ConnectionClosed

from passback import Agent
from passback.core.messages import ConversationId, ConversationKey, OwnerId
from passback.models.scripted import ScriptedModel, calls

pytestmark = pytest.mark.anyio

KEY, OTHER_KEY = "the-key-of-alice", "the-key-of-bob-x"
KEYS = {"api_keys": f"alice:{KEY},bob:{OTHER_KEY}"}
ALICE = OwnerId("alice")
AS_ALICE = {"Authorization": f"Bearer {KEY}"}
AS_BOB = {"Authorization": f"Bearer {OTHER_KEY}"}
CALL = "the call"


async def test_a_key_comes_in_the_handshake_or_as_an_event() -> None:
    async with chat_site(settings=KEYS) as site:
        session = await site.create(ALICE)
        async with site.client(additional_headers=AS_ALICE) as client:
            assert await client.call("session:subscribe", session_id=session) == {"status": "ok"}
            assert await client.call("auth", token=KEY) == {"status": "ok"}
        async with site.client() as client:
            refused = await client.call("session:subscribe", session_id=session)
            assert (refused["status"], refused["code"]) == ("error", "unauthenticated")
            await client.emit("auth", token=KEY)
            assert await client.call("session:subscribe", session_id=session) == {"status": "ok"}
        async with site.client() as client:
            assert (await client.call("auth", token=OTHER_KEY))["status"] == "ok"
            ack = await client.call("session:subscribe", session_id=session)
            assert ack["code"] == "conversation_not_found"


@pytest.mark.promise("P17")
@pytest.mark.parametrize(
    ("event", "data"),
    [
        ("session:subscribe", {}),
        ("session:subscribe", {"after_sequence": 2**33 + 1}),
        ("session:subscribe", {"after_sequence": 2**33 + 1, "resume": True}),
        ("session:unsubscribe", {}),
        ("chat:send", {"message": "hi"}),
        ("chat:send", {"message": "", "tool_results": [{"tool_call_id": CALL, "result": 1}]}),
        ("chat:stop", {}),
        ("chat:compact", {}),
    ],
)
async def test_another_owners_session_is_as_one_that_never_was(
    event: str, data: dict[str, Any]
) -> None:
    agent = Agent(model=ScriptedModel([calls(("paint", {}))]))
    async with chat_site(agent, settings=KEYS) as site:
        session = await site.create(ALICE)
        async with site.client(additional_headers=AS_ALICE) as alice:
            await alice.call("session:subscribe", session_id=session)
            tools = [{"name": "paint", "description": "", "parameters": {"type": "object"}}]
            await alice.emit("chat:send", session_id=session, message="go", tools=tools)
            await alice.chat()
        before = await site.runs.status(ConversationKey(ALICE, ConversationId(session)))
        data = json.loads(json.dumps(data).replace(CALL, before.owed[0].id))
        async with site.client(additional_headers=AS_BOB) as bob:
            stolen = await bob.call(event, session_id=session, **data)
            unknown = await bob.call(event, session_id=session[:-1] + "x", **data)
            assert json.dumps(stolen) == json.dumps(unknown).replace(session[:-1] + "x", session)
            assert bob.received == []
        assert await site.runs.status(ConversationKey(ALICE, ConversationId(session))) == before


@pytest.mark.parametrize("token", ["", "wrong", 1, None])
async def test_a_wrong_key_ends_the_socket_or_is_refused(token: object) -> None:
    async with chat_site(settings=KEYS) as site, site.client() as client:
        await client.emit("auth", token=token)
        error = (await client.next())["data"]
        if isinstance(token, str):
            assert error["code"] == "unauthenticated"
            with pytest.raises(ConnectionClosed) as closed:
                await client.next()
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1008
        else:
            assert error["code"] == "invalid_request"
            assert (await client.call("auth", token=KEY))["status"] == "ok"


async def test_a_wrong_key_is_the_ack_of_its_event() -> None:
    async with chat_site(settings=KEYS) as site, site.client() as client:
        assert (await client.call("auth", token="wrong"))["code"] == "unauthenticated"


async def test_ids_of_frames_may_be_numbers() -> None:
    async with chat_site() as site, site.client() as client:
        await client.connection.send(json.dumps({"event": "auth", "data": {"token": ""}, "id": 7}))
        assert await client.next() == {"event": "ack", "id": 7, "data": {"status": "ok"}}


async def test_a_server_that_stops_says_so() -> None:
    async with chat_site() as site, site.client() as client:
        session = await site.create()
        await client.call("session:subscribe", session_id=session)
        await site.application.drain()
        assert (await client.next())["data"]["code"] == "shutting_down"
        with pytest.raises(ConnectionClosed) as closed:
            await client.next()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1012
        assert "connect again" in closed.value.rcvd.reason
