"""Requests that lead nowhere and clients without rights: refused in one form, without effect."""

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


EVIL = "http://evil.example"
REFUSED: dict[str, tuple[str, str, dict[str, str], int, str]] = {
    "no route": ("GET", "/nothing", {}, 404, "not_found"),
    "no route for a post": ("POST", f"{PATH}/", JSON, 404, "not_found"),
    "no method": ("GET", PATH, {}, 405, "method_not_allowed"),
    "no conversation": ("GET", "/conversations/none/stream", {}, 404, "conversation_not_found"),
    "no id": ("GET", "/conversations/%FF", {}, 400, "bad_request"),
    "no page": ("GET", "/conversations/C/messages?limit=1001", {}, 422, "invalid_request"),
    "no cursor": ("GET", "/conversations/C/stream", {"last-event-id": "x"}, 422, "invalid_cursor"),
    "no run": ("GET", "/conversations/C/stream?runId=x%0d%0aX:1", {}, 404, "run_not_found"),
    "no JSON": ("POST", PATH, {"content-type": "text/plain"}, 415, "unsupported_media_type"),
    "a foreign host": ("GET", "/conversations/C", {"host": "evil.example"}, 421, "foreign_host"),
    "an empty host": ("GET", "/conversations/C", {"host": ""}, 421, "foreign_host"),
    "a foreign origin": ("POST", PATH, {**JSON, "origin": EVIL}, 403, "foreign_origin"),
    "a foreign preflight": ("OPTIONS", PATH, {"origin": EVIL}, 403, "foreign_origin"),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
async def test_what_leads_nowhere_or_comes_from_elsewhere_is_refused(
    waiting: tuple[Client, str], case: tuple[str, str, dict[str, str], int, str]
) -> None:
    client, conversation = waiting
    method, path, headers, status, code = case
    answer = await client.http.request(method, path.replace("C", conversation), headers=headers)
    check_refusal(answer, status, code)
    assert {"access-control-allow-origin", "x"}.isdisjoint(answer.headers)


async def test_our_own_page_may_call(server: Server, client: Client, conversation: str) -> None:
    answer = await client.post(conversation, user("hi"), headers={"origin": server.url})
    assert answer.status == 200


@pytest.mark.promise("P17")
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
