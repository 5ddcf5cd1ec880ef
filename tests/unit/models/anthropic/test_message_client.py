"""Requests to Anthropic's service, their failures, and the check of the settings."""

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import anyio
import httpx
import pytest
import respx
from tests.support.anthropic_server import START, ending, event, text
from tests.unit.models.streams import body_in_pieces

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
    ModelRejected,
    ModelUnavailable,
)
from passback.core.messages import MessageId, UserMessage
from passback.models.anthropic import Anthropic, Bounds, create

pytestmark = pytest.mark.anyio

KEY = "sk-ant-very-secret"
HI = ModelRequest([UserMessage(MessageId("m1"), "hi")])
HEAD = [START, *text(0, "a", "b")]
STREAM = {"content-type": "text/event-stream"}


def answer(*pieces: bytes | Exception) -> httpx.Response:
    return httpx.Response(200, headers=STREAM, content=body_in_pieces(*pieces))


def failure(status: int, kind: str, **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    error = {"type": kind, "message": f"what is {KEY}?"}
    return httpx.Response(status, headers=named, json={"type": "error", "error": error})


@asynccontextmanager
async def client_of(
    *replies: httpx.Response, base_url: str = "http://model.test", name: str = "claude-test"
) -> AsyncGenerator[tuple[Anthropic, respx.Route]]:
    """Open a client, and a service in memory that gives one reply after the other."""
    service = respx.Router()
    route = service.route().mock(side_effect=replies)
    transport = httpx.MockTransport(service.async_handler)
    bounds = Bounds(retry_delay=0)
    client = Anthropic(name, base_url=base_url, api_key=KEY, bounds=bounds, transport=transport)
    try:
        yield client, route
    finally:
        await client.aclose()


async def deltas_of(client: Anthropic) -> list[ModelDelta]:
    """Return the deltas of the answer, without its usage."""
    with anyio.fail_after(10):
        async with client.stream(HI) as batches:
            deltas = [delta async for batch in batches for delta in batch]
    return [delta for delta in deltas if not isinstance(delta, UsageChunk)]


# ---------------------------------------------------------------- requests
async def test_the_request_goes_to_anthropics_service_with_key_and_version() -> None:
    async with client_of(answer(*HEAD, *ending())) as (client, service):
        assert await deltas_of(client) == [TextChunk("a"), TextChunk("b"), Finish("stop")]
    [request] = [call.request for call in service.calls]
    assert (request.method, str(request.url)) == ("POST", "http://model.test/v1/messages")
    assert request.headers["x-api-key"] == KEY
    assert request.headers["anthropic-version"] == "2023-06-01"
    assert "authorization" not in request.headers
    assert json.loads(request.content)["model"] == "claude-test"


@pytest.mark.parametrize(
    "base_url",
    [
        "http://model.test/x",
        "http://model.test/x/",
        "http://model.test/x/v1",
        "http://model.test/x/v1/messages",
    ],
)
async def test_the_address_of_the_service_may_be_written_in_several_ways(base_url: str) -> None:
    async with client_of(answer(*HEAD, *ending()), base_url=base_url) as (client, service):
        await deltas_of(client)
    assert [call.request.url.path for call in service.calls] == ["/x/v1/messages"]


async def test_thoughts_belong_to_the_service_that_made_them() -> None:
    """A signature is of no use to another service of the same protocol."""
    signed = {"type": "thinking", "thinking": "hm", "signature": "s"}
    steps = [
        event("content_block_start", index=0, content_block=signed),
        event("content_block_stop", index=0),
        *ending(),
    ]
    providers: list[str] = []
    for base_url in ("https://api.anthropic.com", "http://127.0.0.1:4000/v1"):
        async with client_of(answer(*steps), base_url=base_url) as (client, _):
            deltas = await deltas_of(client)
        providers += [
            each.reasoning.provider for each in deltas if isinstance(each, ReasoningBlock)
        ]
    assert providers == ["anthropic", "anthropic@127.0.0.1:4000"]


async def test_a_key_is_not_shown() -> None:
    async with client_of() as (client, _):
        shown = [repr(client), repr(vars(client)), repr(vars(client)["_service"])]
    assert not [each for each in shown if KEY in each]


# ---------------------------------------------------------------- failures
@pytest.mark.parametrize(
    "overloaded",
    [failure(529, "overloaded_error"), failure(429, "rate_limit_error", retry_after="0")],
    ids=["overloaded", "rate limited"],
)
async def test_a_service_that_is_overloaded_is_asked_again(overloaded: httpx.Response) -> None:
    async with client_of(overloaded, answer(*HEAD, *ending())) as (client, service):
        assert (await deltas_of(client))[-1] == Finish("stop")
    assert service.call_count == 2


async def test_a_context_too_long_for_anthropic_has_an_error_of_its_own() -> None:
    async with client_of(failure(413, "request_too_large")) as (client, service):
        with pytest.raises(ModelContextExceeded, match="too long"):
            await deltas_of(client)
    assert service.call_count == 1


@pytest.mark.parametrize(
    ("status", "kind", "words"),
    [
        (400, "invalid_request_error", "refused the request"),
        (401, "authentication_error", "refused the key"),
        (402, "billing_error", "no credit"),
        (403, "permission_error", "does not allow"),
        (404, "not_found_error", "does not know the model"),
    ],
)
async def test_a_refusal_by_anthropic_is_raised_at_once_without_its_text(
    status: int, kind: str, words: str
) -> None:
    async with client_of(failure(status, kind)) as (client, service):
        with pytest.raises((ModelRejected, ModelContextExceeded), match=words) as raised:
            await deltas_of(client)
    assert KEY not in raised.value.message
    assert service.call_count == 1


@pytest.mark.parametrize(
    ("end", "kind"),
    [(httpx.ReadError("cut"), ModelIncomplete), (httpx.ReadTimeout("silent"), ModelUnavailable)],
)
async def test_after_its_first_byte_an_answer_is_not_requested_again(
    end: Exception, kind: type[ModelError]
) -> None:
    async with client_of(answer(*HEAD, end)) as (client, service):
        with pytest.raises(kind):
            await deltas_of(client)
    assert service.call_count == 1


async def test_an_answer_that_breaks_off_after_its_end_is_complete() -> None:
    cut = httpx.ReadError("cut")
    async with client_of(answer(*HEAD, ending()[0], cut)) as (client, _):
        assert (await deltas_of(client))[-1] == Finish("stop")


async def test_an_answer_of_anthropic_that_is_not_streamed_is_read() -> None:
    whole = {"type": "message", "content": [{"type": "text", "text": "ab"}]}
    async with client_of(httpx.Response(200, json=whole)) as (client, _):
        assert await deltas_of(client) == [TextChunk("ab"), Finish("stop")]


# ---------------------------------------------------------------- checking
def listing(*names: str) -> httpx.Response:
    return httpx.Response(200, json={"data": [{"id": name} for name in names], "has_more": False})


@pytest.mark.parametrize(
    "models",
    [
        listing("claude-test", "other"),
        listing("claude-test-20260102"),
        httpx.Response(404, json={}),
    ],
)
async def test_a_service_that_lists_the_model_or_nothing_is_fine(models: httpx.Response) -> None:
    async with client_of(models) as (client, service):
        warnings = await client.check()
    unlisted = "http://model.test has no list of models: whether it has this one was not checked"
    assert warnings == ([] if models.status_code == 200 else [unlisted])
    [request] = [call.request for call in service.calls]
    assert (request.method, request.url.raw_path) == ("GET", b"/v1/models?limit=1000")
    assert request.headers["x-api-key"] == KEY


@pytest.mark.parametrize("alias", ["claude-test-latest", "claude-test-0"])
async def test_an_alias_of_the_newest_model_is_fine(alias: str) -> None:
    async with client_of(listing("claude-test-20260102"), name=alias) as (client, _):
        assert await client.check() == []


@pytest.mark.parametrize(
    ("models", "kind", "words"),
    [
        (failure(401, "authentication_error"), ModelRejected, "http://model.test refuses the key"),
        (failure(529, "overloaded_error"), ModelUnavailable, "answers with the error 529"),
        (listing("claude-tests"), ModelRejected, "has no model 'claude-test'; it has claude-tests"),
    ],
)
async def test_an_error_of_the_check_of_anthropics_settings_names_the_cause(
    models: httpx.Response, kind: type[ModelError], words: str
) -> None:
    async with client_of(models) as (client, _):
        with pytest.raises(kind, match=words):
            await client.check()


@pytest.mark.parametrize("given", ["/v1/messages", "/messages", "/v1", "/v1/"])
async def test_an_anthropic_base_url_with_too_much_path_works_with_a_warning(given: str) -> None:
    address = f"http://model.test{given}"
    async with client_of(listing("claude-test"), base_url=address) as (client, _):
        [warning] = await client.check()
    assert warning == (
        "the base URL (PASSBACK_MODEL_BASE_URL) has more than it needs: set it to http://model.test"
    )


# ---------------------------------------------------------------- settings
async def test_an_anthropic_client_is_made_from_settings() -> None:
    client = create("claude-5", api_key=KEY, timeout=7)
    assert (client.name, client.bounds.content_timeout) == ("anthropic:claude-5", 7)
    await client.aclose()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: create("", api_key=KEY), "anthropic:NAME"),
        (lambda: create("claude-5"), "Anthropic needs a key"),
        (lambda: create("claude-5", base_url="model.test"), "https://host"),
        (lambda: create("claude-5", api_key="sk-\nx"), "characters that no key has"),
    ],
)
def test_settings_that_cannot_work_with_anthropic_are_refused(
    make: Callable[[], Anthropic], words: str
) -> None:
    with pytest.raises(ConfigurationError, match=words):
        make()
