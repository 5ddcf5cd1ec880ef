"""Keys on the chat socket: in the handshake, or as the first event; and its end."""

import json

import pytest
from tests.support.chat_site import chat_site
from websockets.exceptions import ConnectionClosed

from passback.core.messages import OwnerId

pytestmark = pytest.mark.anyio

KEY, OTHER_KEY = "the-key-of-alice", "the-key-of-bob-x"
KEYS = {"api_keys": f"alice:{KEY},bob:{OTHER_KEY}"}
ALICE = OwnerId("alice")


async def test_a_key_comes_in_the_handshake_or_as_an_event() -> None:
    async with chat_site(settings=KEYS) as site:
        session = await site.create(ALICE)
        own = {"Authorization": f"Bearer {KEY}"}
        async with site.client(additional_headers=own) as client:
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
