"""The client and the service: what is asked, how often, and what becomes of every way to fail."""

import gzip
import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import anyio
import httpx
import pytest
from tests.support.model_server import (
    DONE,
    Act,
    ModelServer,
    Reply,
    calls,
    event,
    fails,
    model_server,
    says,
)
from typing_extensions import override

from passback.core.deltas import Finish, ModelDelta, ModelRequest, TextChunk, ToolCallChunk
from passback.core.errors import (
    ConfigurationError,
    ModelError,
    ModelIncomplete,
    ModelRateLimited,
    ModelRejected,
    ModelUnavailable,
)
from passback.core.messages import MessageId, UserMessage
from passback.models.openai_chat import Bounds, OpenAIChat, create

pytestmark = pytest.mark.anyio

KEY = "sk-very-secret"
HI = ModelRequest([UserMessage(MessageId("m1"), "hi")])
HURRIED = Bounds(retry_delay=0, connect_timeout=2)
IMPATIENT = Bounds(retry_delay=0, content_timeout=0.2)
STREAM = {"content-type": "text/event-stream"}
AB = b"".join(b"data: %b\n\n" % json.dumps(event(content=text)).encode() for text in "ab")
AB_STOP = AB + b"data: %b\n\n" % json.dumps(event("stop")).encode() + DONE
AB_DELTAS: list[ModelDelta] = [TextChunk("ab"), Finish("stop")]

Answer = httpx.Response | Exception


class Body(httpx.AsyncByteStream):
    """A body in pieces, some of which are failures."""

    def __init__(self, *pieces: bytes | Exception) -> None:
        self._pieces = pieces

    @override
    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            if isinstance(piece, Exception):
                raise piece
            yield piece


class Service:
    """Answers one request after the other, the last answer again and again."""

    def __init__(self, *answers: Callable[[], Answer]) -> None:
        self._answers = list(answers)
        self.requests: list[httpx.Request] = []

    async def answer(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        make = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        answer = make()
        if isinstance(answer, Exception):
            raise answer
        return answer

    @asynccontextmanager
    async def client(self, base_url: str = "http://model.test/v1") -> AsyncGenerator[OpenAIChat]:
        transport = httpx.MockTransport(self.answer)
        client = OpenAIChat(
            "gpt-test", base_url=base_url, api_key=KEY, bounds=HURRIED, transport=transport
        )
        try:
            yield client
        finally:
            await client.aclose()


def ok(*pieces: bytes | Exception, **headers: str) -> Callable[[], Answer]:
    return lambda: httpx.Response(200, headers=STREAM | headers, stream=Body(*pieces))


def status(code: int, **headers: str) -> Callable[[], Answer]:
    return lambda: httpx.Response(code, headers=headers, json={"error": {"message": KEY}})


@asynccontextmanager
async def connected(
    *replies: Reply, bounds: Bounds = HURRIED
) -> AsyncGenerator[tuple[ModelServer, OpenAIChat]]:
    """A client over its usual transport, and a real server."""
    with anyio.fail_after(10):
        async with model_server(*replies) as server:
            client = OpenAIChat("mock", base_url=server.base_url, api_key=KEY, bounds=bounds)
            try:
                yield server, client
            finally:
                await client.aclose()


async def asked(client: OpenAIChat, request: ModelRequest = HI) -> list[ModelDelta]:
    """The whole answer, neighbouring texts joined over batches."""
    deltas: list[ModelDelta] = []
    with anyio.fail_after(10):
        async with client.stream(request) as batches:
            async for batch in batches:
                add(deltas, batch)
    return deltas


def add(deltas: list[ModelDelta], batch: Sequence[ModelDelta]) -> None:
    for delta in batch:
        if deltas and isinstance(delta, TextChunk) and isinstance(deltas[-1], TextChunk):
            deltas[-1] = TextChunk(deltas[-1].text + delta.text)
        else:
            deltas.append(delta)


async def failed(client: OpenAIChat) -> tuple[list[ModelDelta], ModelError]:
    """What came before the failure, and the failure."""
    deltas: list[ModelDelta] = []
    try:
        with anyio.fail_after(10):
            async with client.stream(HI) as batches:
                async for batch in batches:
                    add(deltas, batch)
    except ModelError as failure:
        return deltas, failure
    raise AssertionError(f"no failure, but {deltas}")


# ---------------------------------------------------------------- asking
async def test_the_request_goes_to_the_service_with_the_key() -> None:
    service = Service(ok(AB_STOP))
    async with service.client() as client:
        assert await asked(client) == AB_DELTAS
    [request] = service.requests
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
    service = Service(ok(AB_STOP))
    async with service.client(base_url) as client:
        await asked(client)
    assert [str(request.url) for request in service.requests] == [url]


async def test_cookies_of_the_service_are_not_kept() -> None:
    service = Service(ok(AB_STOP, **{"set-cookie": "session=1"}))
    async with service.client() as client:
        await asked(client)
        await asked(client)
    assert ["cookie" in request.headers for request in service.requests] == [False, False]


# ---------------------------------------------------------------- attempts
@pytest.mark.parametrize("code", [408, 429, 500, 529])
async def test_a_failure_that_may_pass_is_tried_again_twice(code: int) -> None:
    service = Service(status(code), status(code), ok(AB_STOP))
    async with service.client() as client:
        assert await asked(client) == AB_DELTAS
    assert len(service.requests) == 3


async def test_after_three_attempts_the_last_failure_is_told() -> None:
    service = Service(status(500), status(503), status(429), ok(AB_STOP))
    async with service.client() as client:
        deltas, failure = await failed(client)
    assert (deltas, type(failure), len(service.requests)) == ([], ModelRateLimited, 3)


@pytest.mark.parametrize("code", [301, 400, 401, 403, 404, 413, 422])
async def test_a_failure_that_will_stay_is_told_at_once(code: int) -> None:
    service = Service(status(code, location="http://elsewhere.test/"), ok(AB_STOP))
    async with service.client() as client:
        deltas, failure = await failed(client)
    assert (deltas, type(failure), len(service.requests)) == ([], ModelRejected, 1)


async def test_a_short_wait_that_the_service_asks_for_is_kept_and_a_long_one_is_told() -> None:
    service = Service(status(429, **{"retry-after": "0"}), status(429, **{"retry-after": "6"}))
    async with service.client() as client:
        _, failure = await failed(client)
    assert (type(failure), failure.retry_after) == (ModelRateLimited, 6)
    assert len(service.requests) == 2


async def test_a_connection_that_fails_before_the_first_byte_is_tried_again() -> None:
    service = Service(lambda: httpx.ConnectError("x"), ok(httpx.ReadError("x")), ok(AB_STOP))
    async with service.client() as client:
        assert await asked(client) == AB_DELTAS
    assert len(service.requests) == 3


async def test_after_the_first_byte_nothing_is_tried_again() -> None:
    service = Service(ok(AB, httpx.ReadError("x")), ok(AB_STOP))
    async with service.client() as client:
        deltas, failure = await failed(client)
    assert (deltas, type(failure), len(service.requests)) == ([TextChunk("ab")], ModelIncomplete, 1)


# ---------------------------------------------------------------- answers
async def test_one_read_is_one_batch() -> None:
    service = Service(ok(AB, AB_STOP))
    async with service.client() as client, client.stream(HI) as batches:
        seen = [batch async for batch in batches]
    assert seen == [[TextChunk("ab")], [TextChunk("ab")], [Finish("stop")]]


async def test_an_answer_that_just_ends_has_no_finish() -> None:
    async with Service(ok(AB)).client() as client:
        assert await asked(client) == [TextChunk("ab")]


async def test_an_answer_without_a_byte_has_no_finish() -> None:
    async with Service(ok()).client() as client:
        assert await asked(client) == []


async def test_an_answer_that_breaks_off_after_its_end_is_whole() -> None:
    until_stop = AB_STOP.removesuffix(DONE)
    async with Service(ok(until_stop, httpx.ReadError("x"))).client() as client:
        assert await asked(client) == AB_DELTAS


async def test_an_error_in_the_answer_comes_after_what_was_good() -> None:
    async with Service(ok(AB + b'data: {"error": {"code": 429}}\n\n' + AB_STOP)).client() as client:
        deltas, failure = await failed(client)
    assert (deltas, type(failure)) == ([TextChunk("ab")], ModelRateLimited)


async def test_an_answer_that_is_too_long_is_cut() -> None:
    bounds = Bounds(max_answer=10)
    endless = Reply([AB, AB, AB, AB, AB, AB, Act.STALL])
    async with connected(endless, bounds=bounds) as (_, client):
        deltas, failure = await failed(client)
    assert isinstance(failure, ModelIncomplete)
    assert deltas == [TextChunk("ab" * 5 + "a")]


async def test_a_service_that_does_not_stream_is_understood() -> None:
    body = {"choices": [{"message": {"content": "ab"}, "finish_reason": "stop"}]}
    service = Service(lambda: httpx.Response(200, json=body))
    async with service.client() as client:
        assert await asked(client) == AB_DELTAS


async def test_an_error_with_status_200_is_an_error() -> None:
    service = Service(lambda: httpx.Response(200, json={"error": {"code": "model_not_found"}}))
    async with service.client() as client:
        deltas, failure = await failed(client)
    assert (deltas, type(failure)) == ([], ModelRejected)


async def test_a_web_page_is_no_answer() -> None:
    async with Service(lambda: httpx.Response(200, html="<html>")).client() as client:
        _, failure = await failed(client)
    assert isinstance(failure, ModelRejected)
    assert "web page" in failure.message


async def test_a_compressed_answer_is_read() -> None:
    service = Service(ok(gzip.compress(AB_STOP), **{"content-encoding": "gzip"}))
    async with service.client() as client:
        assert await asked(client) == AB_DELTAS


async def test_a_compressed_answer_that_is_damaged_is_incomplete() -> None:
    damaged = b"not gzip at all"
    async with Service(ok(damaged, **{"content-encoding": "gzip"})).client() as client:
        deltas, failure = await failed(client)
    assert (deltas, type(failure)) == ([], ModelUnavailable)


# ---------------------------------------------------------------- a real connection
async def test_text_comes_as_it_is_sent() -> None:
    gate = anyio.Event()
    reply = Reply([event(content="a"), gate, event(content="b"), event("stop"), DONE])
    async with connected(reply) as (_, client), client.stream(HI) as batches:
        assert await anext(batches) == [TextChunk("a")]
        gate.set()
        rest: list[ModelDelta] = []
        async for batch in batches:
            add(rest, batch)
    assert rest == [TextChunk("b"), Finish("stop")]


async def test_calls_come_through() -> None:
    async with connected(calls(("x", "f", "{}"))) as (_, client):
        assert await asked(client) == [
            ToolCallChunk(0, "x", "f", "{"),
            ToolCallChunk(0, arguments="}"),
            Finish("tool_calls"),
        ]


async def test_the_connection_is_kept_for_the_next_request() -> None:
    async with connected(says("a", "b")) as (server, client):
        assert [await asked(client) for _ in range(3)] == [AB_DELTAS] * 3
        assert (server.connections, len(server.requests)) == (1, 3)


async def test_many_answers_are_read_at_once() -> None:
    gate = anyio.Event()
    reply = Reply([event(content="ab"), gate, event("stop"), DONE])
    answers: list[list[ModelDelta]] = []

    async with connected(reply) as (server, client):

        async def ask() -> None:
            answers.append(await asked(client))

        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(ask)
            while server.open_answers < 20:
                await anyio.wait_all_tasks_blocked()
            gate.set()
    assert answers == [AB_DELTAS] * 20


async def test_leaving_early_closes_the_connection() -> None:
    async with connected(Reply([event(content="a"), Act.STALL])) as (server, client):
        async with client.stream(HI) as batches:
            await anext(batches)
        await server.left.wait()


async def test_being_cancelled_closes_the_connection() -> None:
    async with connected(Reply([event(content="a"), Act.STALL])) as (server, client):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(asked, client)
            while not server.open_answers:
                await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
        await server.left.wait()


async def test_a_cut_in_the_middle_is_an_incomplete_answer() -> None:
    async with connected(Reply([AB, Act.CUT])) as (server, client):
        deltas, failure = await failed(client)
        assert (deltas, type(failure), len(server.requests)) == (
            [TextChunk("ab")],
            ModelIncomplete,
            1,
        )


async def test_a_cut_before_the_first_byte_is_tried_again() -> None:
    async with connected(Reply([Act.CUT]), says("a", "b")) as (server, client):
        assert await asked(client) == AB_DELTAS
        assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("steps", "before"),
    [([Act.STALL], []), ([AB, Act.STALL], [TextChunk("ab")])],
    ids=["before the first byte", "in the middle"],
)
async def test_silence_ends_the_wait_and_is_not_repeated(
    steps: list[bytes | Act], before: list[ModelDelta]
) -> None:
    async with connected(Reply(steps), bounds=IMPATIENT) as (server, client):
        deltas, failure = await failed(client)
        assert (deltas, type(failure)) == (before, ModelUnavailable)
        assert "too long" in failure.message
        assert len(server.requests) == 1


async def test_keep_alives_are_no_content() -> None:
    keep_alives: list[bytes | float] = [b": ping\n\n", 0.02] * 200
    async with connected(Reply([AB, *keep_alives]), bounds=IMPATIENT) as (_, client):
        deltas, failure = await failed(client)
    assert (deltas, type(failure)) == ([TextChunk("ab")], ModelUnavailable)


async def test_silence_after_the_end_of_the_answer_ends_it() -> None:
    reply = Reply([AB_STOP.removesuffix(DONE), Act.STALL])
    async with connected(reply, bounds=IMPATIENT) as (_, client):
        assert await asked(client) == AB_DELTAS


async def test_a_service_that_never_closes_does_not_hold_the_answer_up() -> None:
    async with connected(Reply([AB_STOP, Act.STALL])) as (_, client):
        assert await asked(client) == AB_DELTAS


async def test_a_service_that_refuses_connections_cannot_be_reached() -> None:
    async with model_server() as server:
        url = server.base_url
    client = OpenAIChat("mock", base_url=url, bounds=HURRIED)
    _, failure = await failed(client)
    await client.aclose()
    assert isinstance(failure, ModelUnavailable)
    assert failure.message == "the model's service cannot be reached"


async def test_a_service_that_does_not_speak_http_cannot_be_reached() -> None:
    async def babble(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            await stream.receive()
            await stream.send(b"SSH-2.0-OpenSSH\r\n\r\n")

    [listener] = (await anyio.create_tcp_listener(local_host="127.0.0.1")).listeners
    port = listener.extra(anyio.abc.SocketAttribute.local_port)
    client = OpenAIChat("mock", base_url=f"http://127.0.0.1:{port}/v1", bounds=HURRIED)
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, babble)
        _, failure = await failed(client)
        await client.aclose()
        tasks.cancel_scope.cancel()
    assert isinstance(failure, ModelUnavailable)


async def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    async with connected(says("a", "b")) as (_, client):
        assert await asked(client) == AB_DELTAS


# ---------------------------------------------------------------- the key
async def test_the_key_is_in_no_log_error_or_repr(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    echo = {"error": {"message": f"Incorrect API key provided: {KEY}"}}
    async with connected(fails(401, echo), Reply([AB, Act.CUT])) as (server, client):
        failures = [(await failed(client))[1] for _ in range(2)]
        assert [request.headers["authorization"] for request in server.requests] == [
            f"Bearer {KEY}"
        ] * 2
        told = [repr(client), str(vars(client)), caplog.text, *map(repr, failures)]
        told += [repr(failure.__cause__) for failure in failures]
    assert not [text for text in told if KEY in text]
    assert "status=401" in caplog.text


# ---------------------------------------------------------------- checking
def listing(*names: str) -> Callable[[], Answer]:
    return lambda: httpx.Response(200, json={"data": [{"id": name} for name in names]})


@pytest.mark.parametrize(
    "answer",
    [
        listing("gpt-test", "other"),
        listing("models/gpt-test"),
        listing("gpt-test:latest"),
        listing("openai/*"),
        listing(),
        status(404),
        status(405),
        status(501),
        lambda: httpx.Response(200, text="fine"),
        lambda: httpx.Response(200, json=["gpt-5"]),
        lambda: httpx.Response(200, json={"data": [1, {}]}),
    ],
)
async def test_a_service_that_has_the_model_or_tells_no_names_is_fine(
    answer: Callable[[], Answer],
) -> None:
    service = Service(answer)
    async with service.client() as client:
        await client.check()
    assert [str(request.url) for request in service.requests] == ["http://model.test/v1/models"]


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (status(401), ModelRejected, "http://model.test/v1 refuses the key, or wants one"),
        (status(403), ModelRejected, "does not allow this key"),
        (status(500), ModelUnavailable, "answers with the error 500"),
        (
            lambda: httpx.ConnectError(KEY),
            ModelUnavailable,
            "http://model.test/v1 cannot be reached",
        ),
        (ok(httpx.ReadError(KEY)), ModelUnavailable, "cannot be reached"),
        (
            listing("gpt-tests", "llama", "\x1b[2J" * 9),
            ModelRejected,
            "has no model 'gpt-test'; it has gpt-tests",
        ),
        (listing("x", "y", "z", "w"), ModelRejected, "it has x, y, z"),
    ],
)
async def test_what_is_wrong_is_said_in_plain_words(
    answer: Callable[[], Answer], kind: type[ModelError], words: str
) -> None:
    async with Service(answer).client() as client:
        with pytest.raises(kind) as raised:
            await client.check()
    assert words in raised.value.message
    assert KEY not in raised.value.message


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
        ("gpt-5", None, "sk-\nx", "characters that no key has"),
        ("gpt-5", None, "sk-ä", "characters that no key has"),
    ],
)
async def test_settings_that_cannot_work_are_refused(
    name: str, base_url: str | None, api_key: str | None, words: str
) -> None:
    with pytest.raises(ConfigurationError, match=words):
        create(name, base_url=base_url, api_key=api_key)
