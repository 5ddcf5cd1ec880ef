"""First contact: answers of a passback server, and the errors for any other answer."""

import json
from collections.abc import AsyncIterator
from contextlib import suppress

import anyio
import httpx
import pytest
from tests.support.careless_site import careless_site
from tests.support.python_client import (
    DONE,
    Chunks,
    Reply,
    Script,
    document,
    refusal,
    stream,
)
from tests.unit.client.replies import hello
from typing_extensions import override

from passback_client import BadAnswer, Client, Refused, Retry, Unreachable

pytestmark = pytest.mark.anyio

LONG_PAUSE = Retry(first=3600, longest=3600)
"""The first pause would be longer than any test."""
NOBODY = httpx.ConnectError("All connection attempts failed")
CAUSES = "Likely causes: nobody listens there; the address is wrong"
FOREIGN = "http://host did not answer as a passback server"
FOREIGN_CAUSES = (
    "Likely causes: the address or the port is wrong;"
    " a proxy there does not reach the server, or changes its answers"
)
KEY = "sk-0123456789"
EVENTS = {"content-type": "text/event-stream"}
JSON = {"content-type": "application/json"}


def foreign(status: int, headers: dict[str, str], body: bytes = b"") -> httpx.Response:
    """Return the answer of something that is not a passback server."""
    return httpx.Response(status, headers=headers, stream=Chunks([body]))


class Silent(httpx.AsyncByteStream):
    """A body that never arrives."""

    @override
    async def __aiter__(self) -> AsyncIterator[bytes]:
        await anyio.sleep_forever()
        yield b""


def client_of(script: Script, retry: Retry = LONG_PAUSE) -> Client:
    return Client("http://host", api_key=KEY, retry=retry, transport=script.transport)


# ---------------------------------------------------------------- nobody answers
@pytest.mark.parametrize(
    ("reply", "reason"),
    [(NOBODY, "All connection attempts failed"), (httpx.ReadTimeout("slow"), "ReadTimeout")],
    ids=["nobody", "silence"],
)
async def test_a_server_that_never_answered_is_named_at_once_with_what_may_be_wrong(
    reply: Reply, reason: str
) -> None:
    script = Script(*[reply] * 3)
    with anyio.fail_after(10):
        async with client_of(script) as client:
            for request in (client.ask("hi"), client.conversation("c"), client.messages("c")):
                with pytest.raises(Unreachable) as caught:
                    await request
                assert str(caught.value) == f"http://host did not answer ({reason}). {CAUSES}"
    assert len(script.requests) == 3
    timeouts = [each.extensions["timeout"]["connect"] for each in script.requests]
    assert timeouts == [2.0] * 3


# ---------------------------------------------------------------- something else answers
def quoted(text: str) -> str:
    return f"; it begins with {json.dumps(text, ensure_ascii=False)}"


GATEWAY = '{"code": "upstream_down", "message": "no"}'
UNNAMED = "status 200 and text/event-stream without the header X-Conversation-Id"


@pytest.mark.parametrize(
    ("reply", "what", "status"),
    [
        (foreign(200, EVENTS), UNNAMED, 200),
        (foreign(200, EVENTS, b"id: run.1-1\ndata: [DONE]\n\n"), UNNAMED, 200),
        (
            foreign(200, {"content-type": "text/html"}, b"<!doctype html>\n  <title>Vite</title>"),
            "status 200 and text/html" + quoted("<!doctype html> <title>Vite</title>"),
            200,
        ),
        (
            foreign(200, JSON | {"x-conversation-id": "c"}, b"{}"),
            "status 200 and application/json without the header X-Request-Id" + quoted("{}"),
            200,
        ),
        (
            foreign(404, JSON, "é".encode() * 90),
            "status 404 and application/json" + quoted("é" * 80 + "…"),
            404,
        ),
        (foreign(502, {"retry-after": "3"}, b"\0"), "status 502 and no Content-Type", 502),
        (
            foreign(503, JSON, GATEWAY.encode()),
            "status 503 and application/json" + quoted(GATEWAY),
            503,
        ),
        (
            foreign(503, JSON, b'{"code": "x", "request_id": 7}'),
            "status 503 and application/json" + quoted('{"code": "x", "request_id": 7}'),
            503,
        ),
        (
            foreign(500, JSON, f'{{"authorization": "Bearer {KEY}"}}'.encode()),
            "status 500 and application/json",
            500,
        ),
        (
            foreign(200, JSON, f"you sent {KEY}".encode()),
            "status 200 and application/json without the header X-Request-Id",
            200,
        ),
        (
            foreign(418, JSON, b"{" * 70_000),
            "status 418 and application/json" + quoted("{" * 80 + "…"),
            418,
        ),
        (foreign(301, {"location": "https://host"}), "status 301 and no Content-Type", 301),
    ],
    ids=str,
)
async def test_an_answer_of_another_server_is_an_error_at_once(
    reply: httpx.Response, what: str, status: int
) -> None:
    script = Script(reply)
    with anyio.fail_after(10):
        async with client_of(script) as client:
            with pytest.raises(BadAnswer) as caught:
                await client.ask("hi")
    error = caught.value
    assert str(error) == f"{FOREIGN}: {what}. {FOREIGN_CAUSES}"
    assert (error.code, error.status, error.retryable) == (
        "bad_answer",
        status,
        status in {502, 503},
    )
    assert len(script.requests) == 1


async def test_another_web_server_is_named_over_real_http() -> None:
    page = "<!doctype html><title>elsewhere</title><body>elsewhere"
    async with careless_site() as site:
        url = site.url("127.0.0.1")
        async with Client(url) as client:
            with anyio.fail_after(10), pytest.raises(BadAnswer) as caught:
                await client.ask("hi")
    came = f"status 200 and text/html{quoted(page)}"
    message = f"{url} did not answer as a passback server: {came}. {FOREIGN_CAUSES}"
    assert (str(caught.value), site.paths) == (message, ["/send-message"])


async def test_a_stream_that_never_comes_is_not_waited_for() -> None:
    reply = httpx.Response(200, headers=EVENTS, stream=Silent())
    with anyio.fail_after(10):
        async with client_of(Script(reply)) as client:
            with pytest.raises(BadAnswer):
                await client.ask("hi")


@pytest.mark.parametrize(
    ("headers", "body"),
    [({}, "<!doctype html>"), ({}, "{}"), ({"x-request-id": "proxy"}, "<!doctype html>")],
)
async def test_reading_a_conversation_from_another_server_is_an_error_too(
    headers: dict[str, str], body: str
) -> None:
    script = Script(foreign(200, JSON | headers, body.encode()))
    async with client_of(script) as client:
        with pytest.raises(BadAnswer) as caught:
            await client.conversation("c")
    lacks = "" if headers else " without the header X-Request-Id"
    got = f"status 200 and application/json{lacks}{quoted(body)}"
    assert str(caught.value) == f"{FOREIGN}: {got}. {FOREIGN_CAUSES}"


async def test_attempts_that_the_caller_counts_are_made_where_a_gateway_answers_first() -> None:
    script = Script(foreign(502, {}), foreign(503, JSON, GATEWAY.encode()), hello())
    async with client_of(script, Retry(attempts=3, first=0, longest=0)) as client:
        assert (await client.ask("hi")).text == "Hello"


# ---------------------------------------------------------------- contact
@pytest.mark.parametrize(
    "answer",
    [hello(), refusal(422, "invalid_request"), document({"cancelled": False})],
    ids=["an answer", "a refusal", "a document"],
)
async def test_after_any_answer_of_a_passback_server_the_client_goes_on_trying(
    answer: httpx.Response,
) -> None:
    script = Script(answer, NOBODY, httpx.Response(502))
    tried: list[int] = []
    async with client_of(script) as client:
        with suppress(Refused):
            if "x-conversation-id" in answer.headers or answer.is_error:
                await client.ask("hi")
            else:
                await client.cancel("c")
        for request in (client.ask, client.conversation):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(request, "c")
                await anyio.wait_all_tasks_blocked()
                tried.append(len(script.requests))
                tasks.cancel_scope.cancel()
    assert tried == [2, 3]
    assert [each.extensions["timeout"]["connect"] for each in script.requests] == [2.0, 10, 10]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "the server answered with status 404"),
        (b'{"code": "conversation_busy", "message": "no route"}', "no route"),
        (b'{"code": 1, "message": [], "request_id": 2}', "the server answered with status 404"),
    ],
)
async def test_after_a_first_answer_an_error_of_a_gateway_is_known_by_its_status(
    body: bytes, message: str
) -> None:
    async with client_of(Script(hello(), foreign(404, JSON, body))) as client:
        await client.ask("hi")
        with pytest.raises(Refused) as caught:
            await client.ask("hi", wait_while_busy=True)
    error = caught.value
    assert (error.code, error.status, error.retryable) == ("http_404", 404, False)
    assert str(error) == message


# ---------------------------------------------------------------- foreign streams
async def test_a_stream_that_ends_before_its_first_event_is_a_foreign_answer() -> None:
    done = b"id: run.1-3\n" + DONE
    look = document({"id": "c", "owed": [], "messageCount": 0})
    script = Script(stream(done), stream(done), look)
    async with client_of(script) as client:
        with pytest.raises(BadAnswer, match=r"^the stream ends before its first event$"):
            await client.ask("hi")
        # behind a cursor a stream may have no events left
        assert [event async for event in client.resume("c", after="run.1-2")] == []


@pytest.mark.parametrize("place", [b"", b"id: 5\n"])
async def test_an_event_of_a_run_without_a_passback_id_is_a_foreign_answer(place: bytes) -> None:
    chunks = [place + b'data: {"type": "text", "content": "Hi"}\n\n', place + DONE]
    async with client_of(Script(stream(*chunks))) as client:
        received: list[object] = []
        with pytest.raises(BadAnswer, match="no id of a passback server"):
            received.extend([event async for event in client.send("hi")])
    assert received == []
