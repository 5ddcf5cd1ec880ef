"""Requests to the Responses API, their failures, and the check of the settings."""

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import TypeAlias

import anyio
import httpx
import pytest
import respx
from tests.support.responses_model_server import HEAD, Streamed, ending, reasoning, text
from tests.unit.models.streams import body_in_pieces, joined

from passback.core.deltas import (
    Finish,
    ModelDelta,
    ModelRequest,
    ReasoningBlock,
    TextChunk,
    UsageChunk,
)
from passback.core.errors import (
    ConfigurationError,
    ModelContextExceeded,
    ModelError,
    ModelIncomplete,
    ModelRateLimited,
    ModelRejected,
    ModelUnavailable,
)
from passback.core.messages import MessageId, UserMessage
from passback.models.openai_responses import Bounds, OpenAIResponses, create

pytestmark = pytest.mark.anyio

KEY = "sk-very-secret"
HI = ModelRequest([UserMessage(MessageId("m1"), "hi")])
STREAM = {"content-type": "text/event-stream"}
Step: TypeAlias = bytes | Exception | Streamed
AB: list[ModelDelta] = [TextChunk("ab"), Finish("stop")]


def answer(*steps: Step) -> httpx.Response:
    pieces: list[bytes | Exception] = []
    for step in steps:
        pieces += step.steps if isinstance(step, Streamed) else [step]
    return httpx.Response(200, headers=STREAM, content=body_in_pieces(*pieces))


WHOLE: tuple[Step, ...] = (*HEAD, text(0, "a", "b"), ending())


def failure(status: int, code: str | None = None, **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    error = {"message": f"what is {KEY}?", "type": "invalid_request_error", "code": code}
    return httpx.Response(status, headers=named, json={"error": error})


@asynccontextmanager
async def client_of(
    *replies: httpx.Response, base_url: str = "http://model.test/v1", name: str = "gpt-test"
) -> AsyncGenerator[tuple[OpenAIResponses, respx.Route]]:
    """Open a client, and a service in memory that gives one reply after the other."""
    service = respx.Router()
    route = service.route().mock(side_effect=replies)
    transport = httpx.MockTransport(service.async_handler)
    bounds = Bounds(retry_delay=0)
    client = OpenAIResponses(
        name, base_url=base_url, api_key=KEY, bounds=bounds, transport=transport
    )
    try:
        yield client, route
    finally:
        await client.aclose()


async def deltas_of(client: OpenAIResponses) -> list[ModelDelta]:
    """Return the deltas of the answer, without its usage."""
    with anyio.fail_after(10):
        async with client.stream(HI) as batches:
            deltas = [delta async for batch in batches for delta in batch]
    return joined(delta for delta in deltas if not isinstance(delta, UsageChunk))


# ---------------------------------------------------------------- requests
async def test_the_request_goes_to_the_responses_api_with_the_key() -> None:
    async with client_of(answer(*WHOLE)) as (client, service):
        assert await deltas_of(client) == AB
    [request] = [call.request for call in service.calls]
    assert (request.method, str(request.url)) == ("POST", "http://model.test/v1/responses")
    assert request.headers["authorization"] == f"Bearer {KEY}"
    sent = json.loads(request.content)
    assert (sent["model"], sent["store"], sent["stream"]) == ("gpt-test", False, True)


async def test_a_service_without_a_key_gets_none() -> None:
    service = respx.Router()
    route = service.route().mock(side_effect=[answer(*WHOLE)])
    transport = httpx.MockTransport(service.async_handler)
    client = OpenAIResponses("gpt-test", base_url="http://model.test", transport=transport)
    assert await deltas_of(client) == AB
    await client.aclose()
    assert "authorization" not in route.calls.last.request.headers


@pytest.mark.parametrize(
    ("base_url", "url"),
    [
        ("http://model.test/x/", "http://model.test/x/responses"),
        ("http://model.test/v1/responses", "http://model.test/v1/responses"),
        (
            "http://model.test/openai/v1?api-version=2",
            "http://model.test/openai/v1/responses?api-version=2",
        ),
    ],
)
async def test_the_address_of_the_responses_api_may_be_written_in_several_ways(
    base_url: str, url: str
) -> None:
    async with client_of(answer(*WHOLE), base_url=base_url) as (client, service):
        await deltas_of(client)
    assert [str(call.request.url) for call in service.calls] == [url]


async def test_reasoning_belongs_to_the_model_and_the_service_that_sealed_it() -> None:
    steps: tuple[Step, ...] = (*HEAD, reasoning(0, "sealed"), text(1, "ab"), ending())
    providers: list[str] = []
    for base_url in ("https://api.openai.com/v1", "http://127.0.0.1:4000/v1"):
        async with client_of(answer(*steps), base_url=base_url) as (client, _):
            deltas = await deltas_of(client)
        providers += [
            each.reasoning.provider for each in deltas if isinstance(each, ReasoningBlock)
        ]
    assert providers == ["openai-responses:gpt-test", "openai-responses:gpt-test@127.0.0.1:4000"]


async def test_a_key_is_not_shown() -> None:
    async with client_of() as (client, _):
        shown = [repr(client), repr(vars(client)), repr(vars(client)["_service"])]
    assert not [each for each in shown if KEY in each]


# ---------------------------------------------------------------- failures
@pytest.mark.parametrize(
    "busy",
    [failure(503, "server_error"), failure(429, "rate_limit_exceeded", retry_after="0")],
    ids=["overloaded", "rate limited"],
)
async def test_a_busy_service_is_asked_again(busy: httpx.Response) -> None:
    async with client_of(busy, answer(*WHOLE)) as (client, service):
        assert await deltas_of(client) == AB
    assert service.call_count == 2


async def test_a_long_retry_after_is_raised() -> None:
    async with client_of(failure(429, "rate_limit_exceeded", retry_after="60")) as (client, _):
        with pytest.raises(ModelRateLimited) as raised:
            await deltas_of(client)
    assert raised.value.retry_after == 60


@pytest.mark.parametrize(
    ("status", "code", "kind", "words"),
    [
        (400, None, ModelRejected, "refused the request"),
        (401, "invalid_api_key", ModelRejected, "refused the key"),
        (403, None, ModelRejected, "does not allow"),
        (404, "model_not_found", ModelRejected, "does not know the model"),
        (429, "insufficient_quota", ModelRejected, "no credit"),
        (400, "context_length_exceeded", ModelContextExceeded, "too long"),
        (400, "invalid_prompt", ModelRejected, "refused the content"),
    ],
)
async def test_a_refusal_by_the_responses_api_is_raised_at_once_without_its_text(
    status: int, code: str | None, kind: type[ModelError], words: str
) -> None:
    async with client_of(failure(status, code)) as (client, service):
        with pytest.raises(kind, match=words) as raised:
            await deltas_of(client)
    assert KEY not in raised.value.message
    assert service.call_count == 1


@pytest.mark.parametrize(
    ("end", "kind"),
    [(httpx.ReadError("cut"), ModelIncomplete), (httpx.ReadTimeout("silent"), ModelUnavailable)],
)
async def test_after_its_first_byte_a_response_is_not_requested_again(
    end: Exception, kind: type[ModelError]
) -> None:
    async with client_of(answer(*HEAD, text(0, "a"), end)) as (client, service):
        with pytest.raises(kind):
            await deltas_of(client)
    assert service.call_count == 1


async def test_what_follows_the_end_of_a_response_is_not_waited_for() -> None:
    never = httpx.ReadError("cut")
    async with client_of(answer(*WHOLE, never)) as (client, _):
        assert await deltas_of(client) == AB


async def test_a_response_that_is_not_streamed_is_read() -> None:
    message = text(0, "a", "b").item
    whole = {"object": "response", "status": "completed", "output": [message]}
    async with client_of(httpx.Response(200, json=whole)) as (client, _):
        assert await deltas_of(client) == AB


# ---------------------------------------------------------------- checking
def listing(*names: str) -> httpx.Response:
    return httpx.Response(200, json={"data": [{"id": name} for name in names]})


async def test_a_service_that_lists_the_model_is_fine() -> None:
    async with client_of(listing("gpt-test", "other")) as (client, service):
        assert await client.check() == []
    [request] = [call.request for call in service.calls]
    assert (request.method, str(request.url)) == ("GET", "http://model.test/v1/models")
    assert request.headers["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize(
    ("models", "words"),
    [
        (failure(401), "http://model.test/v1 refuses the key"),
        (listing("gpt-tests"), "has no model 'gpt-test'; it has gpt-tests"),
    ],
)
async def test_an_error_of_the_check_names_the_cause(models: httpx.Response, words: str) -> None:
    async with client_of(models) as (client, _):
        with pytest.raises(ModelRejected, match=words):
            await client.check()


async def test_a_base_url_with_the_path_of_responses_works_with_a_warning() -> None:
    address = "http://model.test/v1/responses"
    async with client_of(listing("gpt-test"), base_url=address) as (client, _):
        [warning] = await client.check()
    assert warning.endswith("has more than it needs: set it to http://model.test/v1")


# ---------------------------------------------------------------- settings
async def test_a_client_is_made_from_settings() -> None:
    client = create("gpt-5", api_key=KEY, timeout=7)
    assert (client.name, client.bounds.content_timeout) == ("openai-responses:gpt-5", 7)
    await client.aclose()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: create("", api_key=KEY), "openai-responses:NAME"),
        (lambda: create("gpt-5"), r"OpenAI needs a key \(OPENAI_API_KEY\)"),
        (lambda: create("gpt-5", base_url="model.test"), "https://host"),
        (lambda: create("gpt-5", api_key="sk-\nx"), "characters that no key has"),
    ],
)
def test_settings_that_cannot_work_with_the_responses_api_are_refused(
    make: Callable[[], OpenAIResponses], words: str
) -> None:
    with pytest.raises(ConfigurationError, match=words):
        make()
