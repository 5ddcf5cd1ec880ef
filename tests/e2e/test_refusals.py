"""Requests that lead nowhere and clients that may not: refused in one form, and nothing is changed."""

import pytest
from tests.support.server import Server, running_server
from tests.support.wire import (
    PATH,
    ZONE,
    Client,
    check_refusal,
    client_of,
    result,
    user,
)

pytestmark = [pytest.mark.anyio, pytest.mark.promise("P13")]

JSON = {"content-type": "application/json"}


# ---------------------------------------------------------------- addresses, cursors, pages
@pytest.mark.parametrize(
    "case",
    [
        ("GET", "/nothing", {}, 404, "not_found"),
        ("POST", "/send-message/", JSON, 404, "not_found"),
        ("GET", PATH, {}, 405, "method_not_allowed"),
        ("PUT", "/conversations/C", {}, 405, "method_not_allowed"),
        ("GET", "/conversations/none", {}, 404, "conversation_not_found"),
        ("GET", "/conversations/none/messages", {}, 404, "conversation_not_found"),
        ("GET", "/conversations/none/stream", {}, 404, "conversation_not_found"),
        ("POST", "/conversations/none/cancel", {}, 404, "conversation_not_found"),
        ("DELETE", "/conversations/none", {}, 404, "conversation_not_found"),
        ("GET", "/conversations/%00", {}, 422, "invalid_request"),
        ("GET", "/conversations/%FF", {}, 400, "bad_request"),
        ("GET", "/conversations/" + "x" * 257, {}, 422, "invalid_request"),
        ("GET", "/conversations/C/messages?after=-1", {}, 422, "invalid_request"),
        ("GET", "/conversations/C/messages?after=x", {}, 422, "invalid_request"),
        ("GET", "/conversations/C/messages?limit=0", {}, 422, "invalid_request"),
        ("GET", "/conversations/C/messages?limit=1001", {}, 422, "invalid_request"),
        ("GET", "/conversations/C/stream", {"last-event-id": "x"}, 422, "invalid_cursor"),
        ("GET", "/conversations/C/stream", {"last-event-id": "run_0.1-1"}, 404, "run_not_found"),
        ("GET", "/conversations/C/stream", {"last-event-id": "a.-1-1"}, 422, "invalid_cursor"),
    ],
)
async def test_a_request_that_leads_nowhere_is_refused(
    waiting: tuple[Client, str], case: tuple[str, str, dict[str, str], int, str]
) -> None:
    client, conversation = waiting
    method, path, headers, status, code = case
    answer = await client.http.request(method, path.replace("C", conversation), headers=headers)
    check_refusal(answer, status, code)


# ---------------------------------------------------------------- who asks
FOREIGN = {
    "a foreign host": ({"host": "evil.example"}, 421, "foreign_host"),
    "a foreign host with our port": ({"host": "evil.example:8000"}, 421, "foreign_host"),
    "a host that begins like ours": ({"host": "localhost.evil.example"}, 421, "foreign_host"),
    "another machine's address": ({"host": "192.0.2.1"}, 421, "foreign_host"),
    "an empty host": ({"host": ""}, 421, "foreign_host"),
    "a foreign origin": ({"origin": "http://evil.example"}, 403, "foreign_origin"),
    "no page's origin": ({"origin": "null"}, 403, "foreign_origin"),
    "another machine's origin": ({"origin": "http://192.0.2.7:1"}, 403, "foreign_origin"),
}


@pytest.mark.parametrize("case", FOREIGN.values(), ids=FOREIGN)
@pytest.mark.parametrize("method", ["POST", "GET", "OPTIONS"])
async def test_foreign_names_and_pages_are_refused(
    waiting: tuple[Client, str], case: tuple[dict[str, str], int, str], method: str
) -> None:
    client, conversation = waiting
    headers, status, code = case
    path = PATH if method == "POST" else f"/conversations/{conversation}"
    body = {"conversationId": conversation, "messages": [user("hi")]} if method == "POST" else None
    answer = await client.http.request(method, path, json=body, headers=headers)
    check_refusal(answer, status, code)
    assert "access-control-allow-origin" not in answer.headers


async def test_our_own_page_may_call(server: Server, client: Client, conversation: str) -> None:
    answer = await client.post(conversation, user("hi"), headers={"origin": server.url})
    assert answer.status == 200


async def test_keys_separate_owners_and_a_request_without_one_is_refused(conversation: str) -> None:
    keys = "ann:key-of-ann-0123456789,bob:key-of-bob-0123456789"
    environment = {"PASSBACK_API_KEYS": keys}
    async with (
        running_server("--model", "demo:fast", environment=environment) as server,
        client_of(server.url, key="key-of-ann-0123456789") as ann,
        client_of(server.url, key="key-of-bob-0123456789") as bob,
        client_of(server.url, key="key-of-eve-0123456789") as eve,
        client_of(server.url) as nobody,
    ):
        asked = await ann.post(conversation, user("time zone"), tools=[ZONE])
        before = await ann.conversation(conversation)
        for stranger in (eve, nobody):
            refused = await stranger.http.get(f"/conversations/{conversation}")
            check_refusal(refused, 401, "unauthenticated")
            assert refused.headers["www-authenticate"] == "Bearer"
            posted = await stranger.http.post(PATH, json={"messages": [user("hi")]})
            check_refusal(posted, 401, "unauthenticated")
        unknown = {"status": 404, "code": "conversation_not_found"}
        assert await bob.conversation(conversation) == unknown
        stolen = await bob.post(conversation, result(asked.call.id, "UTC"))
        assert (stolen.status, stolen.json["code"]) == (404, "tool_call_not_found")
        assert await ann.conversation(conversation) == before
        assert (await nobody.http.get("/healthz")).status_code == 200
