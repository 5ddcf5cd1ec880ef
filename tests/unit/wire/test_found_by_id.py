"""What the server made is found by its id alone: a run's record, and what a post continues."""

from typing import Any

import httpx
import pytest
from tests.support.agent_api import output
from tests.support.agent_api import user as said

from passback import Agent
from passback.core.ids import new_call_id, new_run_id
from passback.core.messages import ConversationId, ConversationKey, OwnerId
from passback.testing import ScriptedModel, calls, says, serve_in_memory

pytestmark = pytest.mark.anyio

URL = "http://127.0.0.1"
PAINT = {"name": "paint", "description": "Paints.", "parameters": {"type": "object"}}
ASK = {"messages": [{"role": "user", "content": "paint"}], "tools": [PAINT]}
KEYS = {"ann": "a" * 20, "bob": "b" * 20}
KEYED = {"api_keys": ",".join(f"{name}:{key}" for name, key in KEYS.items())}
OPEN = {"host": "0.0.0.0"}  # no socket is opened
UNUSED = ConversationKey(OwnerId("anonymous"), ConversationId("never-used"))


def painter() -> Agent:
    """An agent that calls the client's tool once, and then says that it is done, again and again."""
    return Agent(model=ScriptedModel([calls(("paint", {})), *[says("done")] * 3]), name="painter")


def result(call_id: str) -> dict[str, Any]:
    return {"messages": [{"role": "tool", "tool_call_id": call_id, "content": "ok"}]}


async def owed_call(client: httpx.AsyncClient, **headers: str) -> tuple[str, str, str]:
    """Have a call handed back; return its id, its conversation's and its run's."""
    handed = await client.post("/send-message?wait=true", json=ASK, headers=headers)
    document = handed.json()
    assert document["outcome"] == "handed-back"
    return document["owed"][0]["id"], document["conversationId"], document["runId"]


async def test_results_alone_continue_the_conversation_of_their_call() -> None:
    async with (
        serve_in_memory(painter()) as transport,
        httpx.AsyncClient(transport=transport, base_url=URL) as client,
    ):
        call_id, conversation, run_id = await owed_call(client)
        first = await client.post("/send-message?wait=true", json=result(call_id))
        assert (first.json()["text"], first.json()["conversationId"]) == ("done", conversation)
        again = await client.post("/send-message?wait=true", json=result(call_id))
        assert again.json()["runId"] == first.json()["runId"] != run_id
        page = (await client.get(f"/conversations/{conversation}/messages")).json()["messages"]
        assert [each["role"] for each in page] == ["user", "assistant", "tool", "assistant"]
        # another version of the answer: that it names a message is enough
        anew = await client.post("/send-message?wait=true", json={"after": page[2]["id"]})
        assert (anew.json()["text"], anew.json()["conversationId"]) == ("done", conversation)


async def test_a_named_conversation_counts_more_than_a_call() -> None:
    async with (
        serve_in_memory(painter()) as transport,
        httpx.AsyncClient(transport=transport, base_url=URL) as client,
    ):
        call_id, conversation, _ = await owed_call(client)
        other = await client.post("/send-message", json=result(call_id) | {"conversationId": "d"})
        assert (other.status_code, other.json()["code"]) == (404, "tool_call_not_found")
        unknown = await client.post("/send-message", json=result(new_call_id(UNUSED)))
        assert (unknown.status_code, unknown.json()["code"]) == (404, "tool_call_not_found")
        assert (await client.get(f"/conversations/{conversation}")).json()["owed"]


async def test_an_approval_alone_continues_the_conversation_of_its_call() -> None:
    async def paint() -> str:
        """Paint."""
        return "painted"

    agent = Agent(
        model=ScriptedModel([calls(("paint", {})), says("done")]),
        tools=[paint],
        permissions={"paint": "ask"},
    )
    async with (
        serve_in_memory(agent) as transport,
        httpx.AsyncClient(transport=transport, base_url=URL) as client,
    ):
        asked = await client.post(
            "/send-message?wait=true", json={"messages": [{"role": "user", "content": "paint"}]}
        )
        resume = {"interruptId": asked.json()["owed"][0]["id"], "payload": {"approved": True}}
        done = await client.post("/send-message?wait=true", json={"resume": resume})
    assert done.json()["text"] == "done"
    assert done.json()["conversationId"] == asked.json()["conversationId"]


async def test_the_agent_api_finds_the_session_of_a_result() -> None:
    async with (
        serve_in_memory(painter()) as transport,
        httpx.AsyncClient(transport=transport, base_url=URL) as client,
    ):
        call_id, conversation, _ = await owed_call(client)
        for given in [output(call_id, "ok")], [said("paint"), output(call_id, "ok")]:
            answer = await client.post("/process", json={"input": given, "stream": False})
            assert (answer.status_code, answer.json()["session_id"]) == (200, conversation)
        page = (await client.get(f"/conversations/{conversation}/messages")).json()["messages"]
        anew = {"input": [], "after": page[2]["id"], "stream": False}
        answer = await client.post("/process", json=anew)
        assert (answer.status_code, answer.json()["session_id"]) == (200, conversation)


async def test_a_run_is_found_by_its_id_in_the_conversations_of_its_owner() -> None:
    async with (
        serve_in_memory(painter(), settings=KEYED) as transport,
        httpx.AsyncClient(transport=transport, base_url=URL) as client,
    ):
        ann, bob = ({"authorization": f"Bearer {key}"} for key in KEYS.values())
        call_id, conversation, run_id = await owed_call(client, **ann)
        found = await client.get(f"/runs/{run_id}", headers=ann)
        named = await client.get(f"/conversations/{conversation}/runs/{run_id}", headers=ann)
        assert found.json() == named.json()
        assert found.json()["conversationId"] == conversation

        key = ConversationKey(OwnerId("ann"), ConversationId(conversation))
        hidden = [(run_id, bob), (new_run_id(key), ann), (new_run_id(UNUSED), ann), ("run_1", ann)]
        for unknown, headers in hidden:
            answer = await client.get(f"/runs/{unknown}", headers=headers)
            assert (answer.status_code, answer.json()["code"]) == (404, "run_not_found")
        stolen = await client.post("/send-message", json=result(call_id), headers=bob)
        assert (stolen.status_code, stolen.json()["code"]) == (404, "tool_call_not_found")
        assert (await client.get(f"/runs/{run_id}")).status_code == 401


@pytest.mark.promise("P13")
async def test_no_id_stands_for_a_conversation_whose_id_is_a_secret() -> None:
    async with (
        serve_in_memory(painter(), settings=OPEN) as transport,
        httpx.AsyncClient(transport=transport, base_url=URL) as client,
    ):
        call_id, conversation, run_id = await owed_call(client)
        answer = await client.get(f"/runs/{run_id}")
        assert (answer.status_code, answer.json()["code"]) == (403, "keys_needed")
        answer = await client.post("/send-message", json=result(call_id))
        assert (answer.status_code, answer.json()["code"]) == (404, "tool_call_not_found")
        assert conversation not in answer.text
        named = result(call_id) | {"conversationId": conversation}
        assert (await client.post("/send-message?wait=1", json=named)).json()["text"] == "done"


async def test_what_was_deleted_is_not_found() -> None:
    async with (
        serve_in_memory(painter()) as transport,
        httpx.AsyncClient(transport=transport, base_url=URL) as client,
    ):
        call_id, conversation, run_id = await owed_call(client)
        await client.delete(f"/conversations/{conversation}")
        assert (await client.get(f"/runs/{run_id}")).status_code == 404
        answer = await client.post("/send-message", json=result(call_id))
        assert (answer.status_code, answer.json()["code"]) == (404, "tool_call_not_found")
