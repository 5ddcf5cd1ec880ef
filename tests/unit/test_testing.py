"""`passback.testing`: a server in memory for the tests of agents, and a transport to it."""

import anyio
import httpx
import pytest
from starlette.types import Receive, Scope, Send

import passback_client
from passback import Agent, tool
from passback.errors import ConfigurationError
from passback.models import Finish
from passback.testing import AsgiTransport, ScriptedModel, calls, says, serve_in_memory

pytestmark = pytest.mark.anyio

URL = "http://127.0.0.1"


async def test_an_agent_is_served_to_the_published_client() -> None:
    @tool
    def menu() -> str:
        """Return the menu."""
        return "soup"

    model = ScriptedModel([calls(("menu", {})), says("There is ", "soup.")])
    async with (
        serve_in_memory(Agent(model=model, tools=[menu])) as transport,
        passback_client.Client(URL, transport=transport) as client,
    ):
        answer = await client.ask("hungry")
    assert answer.text == "There is soup."
    assert model.open_streams == 0


async def test_a_stream_arrives_while_the_model_answers() -> None:
    gate = anyio.Event()
    model = ScriptedModel([["first", gate, "last", Finish("stop")]])
    async with (
        serve_in_memory(Agent(model=model)) as transport,
        httpx.AsyncClient(transport=transport, base_url=URL) as client,
    ):
        post = {"messages": [{"role": "user", "content": "hi"}]}
        async with client.stream("POST", "/send-message", json=post) as answer:
            read = ""
            async for text in answer.aiter_text():
                read += text
                if "first" in read:
                    assert "last" not in read or gate.is_set()
                    gate.set()
        assert "last" in read
        assert answer.headers["x-conversation-id"]


async def test_settings_come_only_from_the_argument(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PASSBACK_API_KEYS", "other:secret")
    agent = Agent(model=ScriptedModel([]))
    async with (
        serve_in_memory(agent, settings={"api_keys": "ann:a-secret-of-ann-alone"}) as transport,
        httpx.AsyncClient(transport=transport, base_url=URL) as client,
    ):
        bearer = {"authorization": "Bearer a-secret-of-ann-alone"}
        assert (await client.get("/conversations/c")).status_code == 401
        assert (await client.get("/conversations/c", headers=bearer)).status_code == 404
    with pytest.raises(ConfigurationError, match="PASSBACK_NONSENSE"):
        async with serve_in_memory(agent, settings={"nonsense": "1"}):
            pass


async def test_an_error_of_a_test_is_raised_as_it_is() -> None:
    with pytest.raises(ZeroDivisionError):
        async with serve_in_memory(Agent(model=ScriptedModel([]))):
            raise ZeroDivisionError


async def test_an_application_gets_the_disconnect_of_its_client() -> None:
    left = anyio.Event()

    async def endless(_scope: Scope, receive: Receive, send: Send) -> None:
        assert (await receive())["body"] == b"hi"
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"one", "more_body": True})
        assert (await receive())["type"] == "http.disconnect"
        left.set()
        await send({"type": "http.response.body", "body": b"two", "more_body": True})

    async with anyio.create_task_group() as tasks:
        transport = AsgiTransport(endless, tasks)
        async with httpx.AsyncClient(transport=transport, base_url="https://site") as client:
            async with client.stream("POST", "/", content=b"hi") as answer:
                assert await anext(answer.aiter_bytes()) == b"one"
            with anyio.fail_after(5):
                await left.wait()


async def test_an_application_without_an_answer_is_an_error() -> None:
    async def silent(_scope: Scope, _receive: Receive, _send: Send) -> None:
        await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as tasks:
        with pytest.raises(httpx.RemoteProtocolError, match="gave no answer"):
            await AsgiTransport(silent, tasks).handle_async_request(httpx.Request("GET", URL))
