"""Requests to a chat service, their attempts, and the answers."""

import gzip
import json

import httpx
import pytest
import respx
from tests.support.model_server import DONE, Reply
from tests.unit.models.openai_chat.chat_service import (
    AB,
    AB_DELTAS,
    AB_STOP,
    HI,
    KEY,
    answering,
    client_of,
    connected,
    deltas_of,
    failure_of,
    ok,
    status,
)

from passback.core.deltas import Finish, TextChunk
from passback.core.errors import (
    ConfigurationError,
    ModelError,
    ModelIncomplete,
    ModelRateLimited,
    ModelRejected,
    ModelUnavailable,
)
from passback.models.openai_chat import create

pytestmark = pytest.mark.anyio


# ---------------------------------------------------------------- requests
async def test_the_request_goes_to_the_service_with_the_key() -> None:
    service = answering(ok(AB_STOP))
    async with client_of(service) as client:
        assert await deltas_of(client) == AB_DELTAS
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
        await deltas_of(client)
    assert [str(call.request.url) for call in service.calls] == [url]


async def test_cookies_of_the_service_are_not_kept() -> None:
    service = answering(ok(AB_STOP, **{"set-cookie": "session=1"}), ok(AB_STOP))
    async with client_of(service) as client:
        await deltas_of(client)
        await deltas_of(client)
    assert ["cookie" in call.request.headers for call in service.calls] == [False, False]


# ---------------------------------------------------------------- attempts
@pytest.mark.parametrize("code", [408, 429, 500, 529])
async def test_a_retryable_failure_is_tried_again_twice(code: int) -> None:
    service = answering(status(code), status(code), ok(AB_STOP))
    async with client_of(service) as client:
        assert await deltas_of(client) == AB_DELTAS
    assert len(service.calls) == 3


async def test_after_three_attempts_the_last_failure_is_raised() -> None:
    service = answering(status(500), status(503), status(429), ok(AB_STOP))
    async with client_of(service) as client:
        deltas, failure = await failure_of(client)
    assert (deltas, type(failure), len(service.calls)) == ([], ModelRateLimited, 3)


@pytest.mark.parametrize("code", [301, 400, 401, 403, 404, 422])
async def test_a_failure_that_is_not_retryable_is_raised_at_once(code: int) -> None:
    service = answering(status(code, location="http://elsewhere.test/"), ok(AB_STOP))
    async with client_of(service) as client:
        deltas, failure = await failure_of(client)
    assert (deltas, type(failure), len(service.calls)) == ([], ModelRejected, 1)


async def test_a_short_retry_after_is_waited_for_and_a_long_one_is_raised() -> None:
    service = answering(status(429, **{"retry-after": "0"}), status(429, **{"retry-after": "6"}))
    async with client_of(service) as client:
        _, failure = await failure_of(client)
    assert (type(failure), failure.retry_after) == (ModelRateLimited, 6)
    assert len(service.calls) == 2


async def test_a_connection_that_fails_before_the_first_byte_is_tried_again() -> None:
    service = answering(httpx.ConnectError("x"), ok(httpx.ReadError("x")), ok(AB_STOP))
    async with client_of(service) as client:
        assert await deltas_of(client) == AB_DELTAS
    assert len(service.calls) == 3


async def test_after_the_first_byte_nothing_is_tried_again() -> None:
    service = answering(ok(AB, httpx.ReadError("x")), ok(AB_STOP))
    async with client_of(service) as client:
        deltas, failure = await failure_of(client)
    assert (deltas, type(failure), len(service.calls)) == ([TextChunk("ab")], ModelIncomplete, 1)


# ---------------------------------------------------------------- answers
async def test_one_read_is_one_batch() -> None:
    service = answering(ok(AB, AB_STOP))
    async with client_of(service) as client, client.stream(HI) as batches:
        seen = [batch async for batch in batches]
    assert list(map(list, seen)) == [[TextChunk("ab")], [TextChunk("ab"), Finish("stop")]]


async def test_an_answer_that_only_ends_has_no_finish() -> None:
    async with client_of(answering(ok(AB))) as client:
        assert await deltas_of(client) == [TextChunk("ab")]


async def test_an_answer_without_a_byte_has_no_finish() -> None:
    async with client_of(answering(ok())) as client:
        assert await deltas_of(client) == []


async def test_an_answer_that_breaks_off_after_its_finish_is_complete() -> None:
    until_stop = AB_STOP.removesuffix(DONE)
    async with client_of(answering(ok(until_stop, httpx.ReadError("x")))) as client:
        assert await deltas_of(client) == AB_DELTAS


async def test_an_error_in_the_answer_comes_after_the_text_before_it() -> None:
    async with client_of(
        answering(ok(AB + b'data: {"error": {"code": 429}}\n\n' + AB_STOP))
    ) as client:
        deltas, failure = await failure_of(client)
    assert (deltas, type(failure)) == ([TextChunk("ab")], ModelRateLimited)


async def test_an_answer_that_is_not_streamed_is_read() -> None:
    body = {"choices": [{"message": {"content": "ab"}, "finish_reason": "stop"}]}
    service = answering(httpx.Response(200, json=body))
    async with client_of(service) as client:
        assert await deltas_of(client) == AB_DELTAS


async def test_an_error_with_status_200_is_an_error() -> None:
    service = answering(httpx.Response(200, json={"error": {"code": "model_not_found"}}))
    async with client_of(service) as client:
        deltas, failure = await failure_of(client)
    assert (deltas, type(failure)) == ([], ModelRejected)


async def test_a_web_page_is_no_answer() -> None:
    async with client_of(answering(httpx.Response(200, html="<html>"))) as client:
        _, failure = await failure_of(client)
    assert isinstance(failure, ModelRejected)
    assert "web page" in failure.message


UNASKED_ENCODING = (
    "the model's service answers with a content encoding that was not asked for: "
    "switch its compression off"
)


@pytest.mark.parametrize("encoding", ["gzip", "GZIP", "deflate, gzip", "br", "x-unknown"])
async def test_an_unasked_content_encoding_is_refused_unread(encoding: str) -> None:
    """Decompressed, it could be of any size; none of this body may be read."""
    service = answering(ok(httpx.ReadError("read"), **{"content-encoding": encoding}))
    async with client_of(service) as client:
        deltas, failure = await failure_of(client)
    assert (deltas, type(failure), failure.message) == ([], ModelRejected, UNASKED_ENCODING)
    assert [call.request.headers["accept-encoding"] for call in service.calls] == ["identity"]


async def test_a_content_encoding_over_a_connection_is_refused_too() -> None:
    """Decompressing even a part of it would take much memory."""
    bomb = gzip.compress(bytes(4 * 1024 * 1024))
    headers = {"content-type": "text/event-stream", "content-encoding": "gzip"}
    async with connected(Reply([bomb], headers=headers)) as (server, client):
        deltas, failure = await failure_of(client)
    assert (deltas, type(failure), failure.message) == ([], ModelRejected, UNASKED_ENCODING)
    assert len(server.requests) == 1


async def test_an_answer_of_the_encoding_identity_is_read() -> None:
    service = answering(ok(AB_STOP, **{"content-encoding": "identity"}))
    async with client_of(service) as client:
        assert await deltas_of(client) == AB_DELTAS


async def test_a_refusal_that_is_encoded_is_known_by_its_status() -> None:
    body = gzip.compress(b'{"error": {"code": "insufficient_quota"}}')

    service = answering(
        httpx.Response(401, headers={"content-encoding": "gzip"}, stream=httpx.ByteStream(body))
    )
    async with client_of(service) as client:
        _, failure = await failure_of(client)
    assert (type(failure), failure.message) == (
        ModelRejected,
        "the model's service refused the key",
    )


# ---------------------------------------------------------------- the check at start
def listing(*names: str) -> httpx.Response:
    return httpx.Response(200, json={"data": [{"id": name} for name in names]})


@pytest.mark.parametrize(
    "answer",
    [
        listing("gpt-test", "other"),
        listing("models/gpt-test"),
        listing("gpt-test:latest"),
        listing("gpt-test-20260102"),
        listing("openai/*"),
        listing(),
        status(404),
        status(405),
        status(501),
        httpx.Response(200, text="fine"),
        httpx.Response(200, json=["gpt-5"]),
        httpx.Response(200, json={"data": [1, {}]}),
    ],
)
async def test_a_service_with_the_model_or_no_list_is_fine(answer: httpx.Response) -> None:
    service = answering(answer, answer, answer)
    async with client_of(service) as client:
        warnings = await client.check()
    has_names = "gpt-test" in answer.text or "*" in answer.text
    unlisted = "http://model.test/v1 has no list of models: whether it has this one was not checked"
    assert warnings == ([] if has_names else [unlisted])
    assert [str(call.request.url) for call in service.calls] == ["http://model.test/v1/models"]


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (status(401), ModelRejected, "http://model.test/v1 refuses the key, or wants one"),
        (status(403), ModelRejected, "does not allow this key"),
        (status(500), ModelUnavailable, "answers with the error 500"),
        (httpx.ConnectError(KEY), ModelUnavailable, "http://model.test/v1 cannot be reached"),
        (ok(httpx.ReadError(KEY)), ModelUnavailable, "cannot be reached"),
        (
            listing("gpt-tests", "llama", "\x1b[2J" * 9),
            ModelRejected,
            "has no model 'gpt-test'; it has gpt-tests",
        ),
        (
            ok(httpx.ReadError(KEY), **{"content-encoding": "gzip"}),
            ModelRejected,
            "a content encoding that was not asked for",
        ),
        (listing("gpt-test:32b"), ModelRejected, "has no model 'gpt-test'; it has gpt-test:32b"),
        (listing("x", "y", "z", "w"), ModelRejected, "it has x, y, z"),
    ],
)
async def test_an_error_of_the_check_names_the_cause(
    answer: httpx.Response | Exception, kind: type[ModelError], words: str
) -> None:
    async with client_of(answering(answer)) as client:
        with pytest.raises(kind) as raised:
            await client.check()
    assert words in raised.value.message
    assert KEY not in raised.value.message


# ---------------------------------------------------------------- the base URL
RIGHT = "http://model.test/v1"


def serving(*, key_is_wrong: bool = False) -> respx.Router:
    """Return a service with a list of models at the right address only."""
    router = respx.Router()
    models = router.get(f"{RIGHT}/models", headers={"authorization": f"Bearer {KEY}"})
    models.mock(httpx.Response(401) if key_is_wrong else listing("gpt-test"))
    router.route(host="model.test").respond(404, text="<h1>nothing here</h1>")
    return router


@pytest.mark.parametrize("key_is_wrong", [False, True])
@pytest.mark.parametrize(
    "given",
    [
        "http://model.test",
        "http://model.test/",
        "http://model.test/chat/completions",
        "http://model.test/v1/completions",
        "http://model.test/api/chat",
        "http://model.test?secret=x",
    ],
)
async def test_a_wrong_base_url_is_refused_with_the_right_one(
    given: str, key_is_wrong: bool
) -> None:
    service = serving(key_is_wrong=key_is_wrong)
    async with client_of(service, given) as client:
        with pytest.raises(ModelRejected) as raised:
            await client.check()
    assert raised.value.message.endswith(
        f"has no list of models, and {RIGHT} has: "
        f"set the base URL (PASSBACK_MODEL_BASE_URL) to {RIGHT}"
    )
    assert "secret" not in raised.value.message
    assert KEY not in raised.value.message
    assert len(service.calls) <= 4


async def test_a_base_url_with_too_much_path_works_with_a_warning() -> None:
    async with client_of(serving(), f"{RIGHT}/chat/completions/") as client:
        assert await client.check() == [
            f"the base URL (PASSBACK_MODEL_BASE_URL) has more than it needs: set it to {RIGHT}"
        ]


@pytest.mark.parametrize("status", [401, 403])
async def test_a_key_that_is_refused_at_all_addresses_is_the_error(status: int) -> None:
    service = respx.Router()
    service.route().respond(status)
    async with client_of(service, "http://model.test") as client:
        with pytest.raises(
            ModelRejected, match=r"^http://model\.test (refuses the key|does not allow)"
        ):
            await client.check()


# ---------------------------------------------------------------- settings
async def test_a_client_is_made_from_settings() -> None:
    client = create("gpt-5", base_url=None, api_key=KEY)
    assert client.name == "openai:gpt-5"
    await client.aclose()


@pytest.mark.parametrize(
    ("name", "base_url", "api_key", "words"),
    [
        ("", None, KEY, "openai:NAME"),
        ("gpt-5", None, None, "OpenAI needs a key"),
        ("gpt-5", "", "", "OpenAI needs a key"),
        ("gpt-5", "model.test/v1", None, "https://host/v1"),
        ("gpt-5", "ftp://model.test/v1", None, "https://host/v1"),
        ("gpt-5", "http://user:pass@model.test/v1", None, "https://host/v1"),
        ("gpt-5", "http://model.test/v1#x", None, "https://host/v1"),
        ("gpt-5", "http://[::1/v1", None, "not a URL"),
        ("gpt-5", f"http://{'x' * 70}.test/v1", None, "not a URL"),
        ("gpt-5", None, "sk-\nx", "characters that no key has"),
        ("gpt-5", None, "sk-ä", "characters that no key has"),
    ],
)
async def test_settings_that_cannot_work_are_refused(
    name: str, base_url: str | None, api_key: str | None, words: str
) -> None:
    with pytest.raises(ConfigurationError, match=words):
        create(name, base_url=base_url, api_key=api_key)
