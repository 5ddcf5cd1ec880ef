"""Bad input over HTTP: a 4xx that says why, before any stream, and nothing is changed."""

import json
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from tests.support.model_server import model_server
from tests.support.server import running_server
from tests.support.wire import (
    PATH,
    Client,
    Json,
    check_refusal,
    client_of,
    client_tool,
    result,
    user,
)

pytestmark = [pytest.mark.anyio, pytest.mark.promise("P12")]

JSON = {"content-type": "application/json"}
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
MIB = 1024 * 1024


# ---------------------------------------------------------------- bodies
async def test_a_body_that_is_too_large_is_refused(waiting: tuple[Client, str]) -> None:
    client, _ = waiting
    body = json.dumps({"messages": [user("hi")], "extra": "x" * (6 * MIB)})
    answer = await client.http.post(PATH, content=body, headers=JSON)
    check_refusal(answer, 413, "body_too_large")


async def test_a_body_that_does_not_say_how_large_it_is_is_refused_when_it_is_too_large(
    waiting: tuple[Client, str],
) -> None:
    client, _ = waiting

    async def endless() -> AsyncGenerator[bytes]:
        yield b'{"extra":"'
        for _ in range(112):
            yield b"x" * 65536

    answer = await client.http.post(PATH, content=endless(), headers=JSON)
    check_refusal(answer, 413, "body_too_large")


# ---------------------------------------------------------------- values that are not allowed
def messages(*posted: object) -> Json:
    return {"messages": list(posted)}


def tools(*declared: object) -> Json:
    return {"messages": [user("hi")], "tools": list(declared)}


def tool(**changed: object) -> Json:
    return {**client_tool("fine"), **changed}


INVALID: dict[str, tuple[Json, int, str]] = {
    "no messages": ({}, 422, "nothing_to_do"),
    "a message that is no object": (messages("hi"), 422, "invalid_request"),
    "too many messages": (messages(*[user("hi")] * 1001), 422, "invalid_request"),
    "the system's role": (messages({"role": "system", "content": "x"}), 422, "invalid_request"),
    "two tools whose names look alike": (tools(tool(), tool(name="FINE")), 422, "tool_name_clash"),
    "too many tools": (tools(*[tool(name=f"t{i}") for i in range(129)]), 422, "invalid_tool"),
    "a schema that is too large": (
        tools(tool(parameters={"type": "object", "description": "x" * 70_000})),
        422,
        "invalid_tool",
    ),
    "a reference to a file": (
        tools(tool(parameters={"$ref": "file:///etc/passwd"})),
        422,
        "invalid_tool",
    ),
    "a result with an unknown id beside a user message": (
        messages(result("call_0", "UTC"), user("hi")),
        404,
        "tool_call_not_found",
    ),
    "a resume of nothing": (
        {"resume": {"interruptId": "i", "payload": True}},
        404,
        "tool_call_not_found",
    ),
    "an id of a megabyte": (
        {"conversationId": "x" * MIB, "messages": [user("hi")]},
        422,
        "invalid_request",
    ),
    "an id that is a template": (
        {"conversationId": "{a}", "messages": [user("hi")]},
        422,
        "invalid_request",
    ),
}


@pytest.mark.parametrize("case", INVALID.values(), ids=INVALID)
async def test_a_value_that_is_not_allowed_is_refused(
    waiting: tuple[Client, str], case: tuple[Json, int, str]
) -> None:
    client, conversation = waiting
    body, status, code = case
    answer = await client.http.post(PATH, json={"conversationId": conversation, **body})
    check_refusal(answer, status, code)


async def test_of_two_different_results_for_one_call_in_a_post_none_is_stored(
    waiting: tuple[Client, str],
) -> None:
    client, conversation = waiting
    [owed] = (await client.conversation(conversation))["owed"]
    posted = [result(owed["id"], "UTC"), result(owed["id"], "CET")]
    answer = await client.http.post(PATH, json={"conversationId": conversation, "messages": posted})
    check_refusal(answer, 409, "tool_result_conflict")


async def test_a_reference_to_another_document_is_refused_and_never_fetched(
    waiting: tuple[Client, str],
) -> None:
    client, conversation = waiting
    async with model_server() as elsewhere:
        schema = {"type": "object", "properties": {"a": {"$ref": f"{elsewhere.base_url}/models"}}}
        declared = [tool(parameters=json.dumps(schema))]
        body = {"conversationId": conversation, "messages": [user("hi")], "tools": declared}
        check_refusal(await client.http.post(PATH, json=body), 422, "invalid_tool")
        assert elsewhere.connections == 0


@pytest.mark.promise("P14")
async def test_a_client_tool_cannot_take_a_server_tools_name(conversation: str) -> None:
    agent = running_server("my_agent:agent", "--model", "demo:fast", cwd=str(EXAMPLES))
    async with agent as server, client_of(server.url) as client:
        for name in ("price", "PRICE"):
            body = {"conversationId": conversation, **tools(tool(name=name))}
            check_refusal(await client.http.post(PATH, json=body), 422, "tool_name_clash")
        gone = {"status": 404, "code": "conversation_not_found"}
        assert await client.conversation(conversation) == gone


# ---------------------------------------------------------------- conversation ids
@pytest.mark.parametrize("identity", ["a/b", "a..", "a b", "\u00e9\U0001f600", "%2e"])
async def test_a_strange_id_names_a_conversation_of_its_own(client: Client, identity: str) -> None:
    await client.post(identity, user("hi"))
    found = await client.http.get(f"/conversations/{_quoted(identity)}")
    assert (found.status_code, found.json()["id"]) == (200, identity)
    await client.http.delete(f"/conversations/{_quoted(identity)}")


def _quoted(identity: str) -> str:
    return "".join(f"%{byte:02X}" for byte in identity.encode())
