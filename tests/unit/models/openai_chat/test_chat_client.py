"""What is asked, how often, and what becomes of each answer."""

import gzip
import json

import httpx
import pytest
from tests.support.model_server import (
    DONE,
    Reply,
)
from tests.unit.models.openai_chat.chat_service import (
    AB,
    AB_DELTAS,
    AB_STOP,
    HI,
    KEY,
    answering,
    asked,
    client_of,
    connected,
    failed,
    ok,
    status,
)

from passback.core.deltas import Finish, TextChunk
from passback.core.errors import (
    ModelIncomplete,
    ModelRateLimited,
    ModelRejected,
)

pytestmark = pytest.mark.anyio


# ---------------------------------------------------------------- asking
async def test_the_request_goes_to_the_service_with_the_key() -> None:
    service = answering(ok(AB_STOP))
    async with client_of(service) as client:
        assert await asked(client) == AB_DELTAS
    [request] = [call.request for call in service.calls]
    assert (request.method, str(request.url)) == ("POST", "http://model.test/v1/chat/completions")
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert request.headers["content-type"] == "application/json"
    assert json.loads(request.content)["messages"] == [{"role": "user", "content": "hi"}]


@pytest.mark.parametrize(
    ("base_url", "url"),
    [
        ("http://model.test", "http://model.test/chat/completions"),
        ("http://model.test/v1/", "http://model.test/v1/chat/completions"),
        (" http://model.test/v1/chat/completions ", "http://model.test/v1/chat/completions"),
        (
            "http://model.test/v1?api-version=2",
            "http://model.test/v1/chat/completions?api-version=2",
        ),
        ("http://[::1]:8080/v1", "http://[::1]:8080/v1/chat/completions"),
    ],
)
async def test_the_base_url_may_be_written_in_several_ways(base_url: str, url: str) -> None:
    service = answering(ok(AB_STOP))
    async with client_of(service, base_url) as client:
        await asked(client)
    assert [str(call.request.url) for call in service.calls] == [url]


async def test_cookies_of_the_service_are_not_kept() -> None:
    service = answering(ok(AB_STOP, **{"set-cookie": "session=1"}), ok(AB_STOP))
    async with client_of(service) as client:
        await asked(client)
        await asked(client)
    assert ["cookie" in call.request.headers for call in service.calls] == [False, False]


# ---------------------------------------------------------------- attempts
@pytest.mark.parametrize("code", [408, 429, 500, 529])
async def test_a_failure_that_may_pass_is_tried_again_twice(code: int) -> None:
    service = answering(status(code), status(code), ok(AB_STOP))
    async with client_of(service) as client:
        assert await asked(client) == AB_DELTAS
    assert len(service.calls) == 3


async def test_after_three_attempts_the_last_failure_is_told() -> None:
    service = answering(status(500), status(503), status(429), ok(AB_STOP))
    async with client_of(service) as client:
        deltas, failure = await failed(client)
    assert (deltas, type(failure), len(service.calls)) == ([], ModelRateLimited, 3)


@pytest.mark.parametrize("code", [301, 400, 401, 403, 404, 422])
async def test_a_failure_that_will_stay_is_told_at_once(code: int) -> None:
    service = answering(status(code, location="http://elsewhere.test/"), ok(AB_STOP))
    async with client_of(service) as client:
        deltas, failure = await failed(client)
    assert (deltas, type(failure), len(service.calls)) == ([], ModelRejected, 1)


async def test_a_short_wait_that_the_service_asks_for_is_kept_and_a_long_one_is_told() -> None:
    service = answering(status(429, **{"retry-after": "0"}), status(429, **{"retry-after": "6"}))
    async with client_of(service) as client:
        _, failure = await failed(client)
    assert (type(failure), failure.retry_after) == (ModelRateLimited, 6)
    assert len(service.calls) == 2


async def test_a_connection_that_fails_before_the_first_byte_is_tried_again() -> None:
    service = answering(httpx.ConnectError("x"), ok(httpx.ReadError("x")), ok(AB_STOP))
    async with client_of(service) as client:
        assert await asked(client) == AB_DELTAS
    assert len(service.calls) == 3


async def test_after_the_first_byte_nothing_is_tried_again() -> None:
    service = answering(ok(AB, httpx.ReadError("x")), ok(AB_STOP))
    async with client_of(service) as client:
        deltas, failure = await failed(client)
    assert (deltas, type(failure), len(service.calls)) == ([TextChunk("ab")], ModelIncomplete, 1)


# ---------------------------------------------------------------- answers
async def test_one_read_is_one_batch() -> None:
    service = answering(ok(AB, AB_STOP))
    async with client_of(service) as client, client.stream(HI) as batches:
        seen = [batch async for batch in batches]
    assert list(map(list, seen)) == [[TextChunk("ab")], [TextChunk("ab"), Finish("stop")]]


async def test_an_answer_that_just_ends_has_no_finish() -> None:
    async with client_of(answering(ok(AB))) as client:
        assert await asked(client) == [TextChunk("ab")]


async def test_an_answer_without_a_byte_has_no_finish() -> None:
    async with client_of(answering(ok())) as client:
        assert await asked(client) == []


async def test_an_answer_that_breaks_off_after_its_end_is_whole() -> None:
    until_stop = AB_STOP.removesuffix(DONE)
    async with client_of(answering(ok(until_stop, httpx.ReadError("x")))) as client:
        assert await asked(client) == AB_DELTAS


async def test_an_error_in_the_answer_comes_after_what_was_good() -> None:
    async with client_of(
        answering(ok(AB + b'data: {"error": {"code": 429}}\n\n' + AB_STOP))
    ) as client:
        deltas, failure = await failed(client)
    assert (deltas, type(failure)) == ([TextChunk("ab")], ModelRateLimited)


async def test_a_service_that_does_not_stream_is_understood() -> None:
    body = {"choices": [{"message": {"content": "ab"}, "finish_reason": "stop"}]}
    service = answering(httpx.Response(200, json=body))
    async with client_of(service) as client:
        assert await asked(client) == AB_DELTAS


async def test_an_error_with_status_200_is_an_error() -> None:
    service = answering(httpx.Response(200, json={"error": {"code": "model_not_found"}}))
    async with client_of(service) as client:
        deltas, failure = await failed(client)
    assert (deltas, type(failure)) == ([], ModelRejected)


async def test_a_web_page_is_no_answer() -> None:
    async with client_of(answering(httpx.Response(200, html="<html>"))) as client:
        _, failure = await failed(client)
    assert isinstance(failure, ModelRejected)
    assert "web page" in failure.message


UNASKED = (
    "the model's service answers with a content encoding that was not asked for: "
    "switch its compression off"
)


@pytest.mark.parametrize("encoding", ["gzip", "GZIP", "deflate, gzip", "br", "x-unknown"])
async def test_an_answer_with_an_encoding_that_was_not_asked_for_is_refused_unread(
    encoding: str,
) -> None:
    """Unpacked, it could be of any size; of this one nothing may be read."""
    service = answering(ok(httpx.ReadError("read"), **{"content-encoding": encoding}))
    async with client_of(service) as client:
        deltas, failure = await failed(client)
    assert (deltas, type(failure), failure.message) == ([], ModelRejected, UNASKED)
    assert [call.request.headers["accept-encoding"] for call in service.calls] == ["identity"]


async def test_the_encoding_of_an_answer_over_a_connection_is_seen_too() -> None:
    """400 KB that unpack to 400 MB, a part of it: they came to 138 MiB of memory."""
    bomb = gzip.compress(bytes(4 * 1024 * 1024))
    headers = {"content-type": "text/event-stream", "content-encoding": "gzip"}
    async with connected(Reply([bomb], headers=headers)) as (server, client):
        deltas, failure = await failed(client)
    assert (deltas, type(failure), failure.message) == ([], ModelRejected, UNASKED)
    assert len(server.requests) == 1


async def test_an_answer_that_says_that_it_is_not_encoded_is_read() -> None:
    service = answering(ok(AB_STOP, **{"content-encoding": "identity"}))
    async with client_of(service) as client:
        assert await asked(client) == AB_DELTAS


async def test_a_refusal_that_is_encoded_is_known_by_its_status() -> None:
    body = gzip.compress(b'{"error": {"code": "insufficient_quota"}}')

    service = answering(
        httpx.Response(401, headers={"content-encoding": "gzip"}, stream=httpx.ByteStream(body))
    )
    async with client_of(service) as client:
        _, failure = await failed(client)
    assert (type(failure), failure.message) == (
        ModelRejected,
        "the model's service refused the key",
    )
