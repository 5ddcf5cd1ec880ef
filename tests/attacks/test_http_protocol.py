"""Bytes that two parsers may read in two ways are refused or answered once; none hides another."""

import json
from collections.abc import AsyncGenerator

import pytest
from tests.attacks.raw import HOST, Response, answers_to, connected
from tests.support.server import Server, running_server
from tests.support.wire import PATH, Client, client_of

pytestmark = [pytest.mark.anyio, pytest.mark.promise("P12", "P13")]

GET = b"GET /healthz HTTP/1.1\r\n" + HOST
LAST = GET + b"Connection: close\r\nX-Request-Id: last\r\n\r\n"


@pytest.fixture(scope="module")
async def server() -> AsyncGenerator[Server]:
    async with running_server("--model", "demo:fast") as server:
        yield server


@pytest.fixture(scope="module")
async def client(server: Server) -> AsyncGenerator[Client]:
    async with client_of(server.url) as client:
        yield client


def post_to(conversation: str) -> bytes:
    """A whole post, which begins a conversation if it is read as a request."""
    words = {"conversationId": conversation, "messages": [{"role": "user", "content": "hi"}]}
    body = json.dumps(words).encode()
    head = b"POST /send-message HTTP/1.1\r\n" + HOST + b"X-Request-Id: hidden\r\n"
    head += b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
    return head + body


HIDDEN = post_to("hidden")
SIZE = len(HIDDEN)


def posting(fields: bytes, behind: bytes) -> bytes:
    """A post with these header fields, and what stands behind its head."""
    head = b"POST /send-message HTTP/1.1\r\n" + HOST + b"Content-Type: application/json\r\n"
    return head + fields + b"\r\n" + behind


def chunked(body: bytes) -> bytes:
    return posting(b"Transfer-Encoding: chunked\r\n", body)


def coded(coding: bytes) -> bytes:
    """Return a post with this coding; a parser that ignores it finds the hidden request."""
    return posting(b"Transfer-Encoding: " + coding + b"\r\n", b"0\r\n\r\n" + HIDDEN)


def sized(length: bytes) -> bytes:
    return posting(b"Content-Length: " + length + b"\r\n", HIDDEN)


def getting(field: bytes) -> bytes:
    return GET + field + b"\r\n\r\n" + HIDDEN


async def is_there(client: Client, conversation: str) -> bool:
    """Return True if the conversation began, and delete it for the next attack."""
    return (await client.http.delete(f"/conversations/{conversation}")).status_code == 204


async def test_a_request_behind_another_is_seen_by_these_tests(
    server: Server, client: Client, conversation: str
) -> None:
    first, hidden, last = await answers_to(server.url, GET + b"\r\n" + post_to(conversation) + LAST)
    assert (first.status, hidden.status, last.status) == (200, 200, 200)
    assert hidden.headers["x-request-id"] == "hidden"
    assert await is_there(client, conversation)


# ---------------------------------------------------------------- readings that differ
REFUSED = {
    "a length and then a coding": posting(
        b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", b"0\r\n\r\n" + HIDDEN
    ),
    "a coding and then a length": posting(
        b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", b"0\r\n\r\n" + HIDDEN
    ),
    "two lengths": posting(b"Content-Length: 0\r\nContent-Length: %d\r\n" % SIZE, HIDDEN),
    "two equal lengths": posting(b"Content-Length: 2\r\nContent-Length: 2\r\n", b"{}" + HIDDEN),
    "a list of lengths": sized(b"0, %d" % SIZE),
    "a length with a plus": sized(b"+%d" % SIZE),
    "a length with a minus": sized(b"-%d" % SIZE),
    "a length in hexadecimal": sized(b"0x%x" % SIZE),
    "a length with an underscore": sized(b"1_0"),
    "a length with a blank inside": sized(b"1 0"),
    "a length in words": sized(b"ten"),
    "an empty length": sized(b""),
    "a length that overflows 64 bits to nothing": sized(b"18446744073709551616"),
    "a length that overflows 64 bits to two": sized(b"18446744073709551618"),
    "a blank behind the name of a length": posting(b"Content-Length : %d\r\n" % SIZE, HIDDEN),
    "a blank behind the name of a coding": posting(
        b"Transfer-Encoding : chunked\r\n", b"0\r\n\r\n" + HIDDEN
    ),
    "chunked and another coding behind it": coded(b"chunked, identity"),
    "chunked twice": coded(b"chunked, chunked"),
    "chunked and then a coding in a field of its own": coded(
        b"chunked\r\nTransfer-Encoding: identity"
    ),
    "a coding that begins unlike chunked": coded(b"xchunked"),
    "a coding with a parameter": coded(b"chunked;q=1"),
    "a coding behind a vertical tab": coded(b"\x0bchunked"),
    "a coding on a folded line": coded(b"\r\n chunked"),
    "a coding in HTTP/1.0": coded(b"chunked").replace(b"HTTP/1.1", b"HTTP/1.0", 1),
    "a chunk's size with a minus": chunked(b"-2\r\n{}\r\n0\r\n\r\n" + HIDDEN),
    "a chunk's size with a plus": chunked(b"+2\r\n{}\r\n0\r\n\r\n" + HIDDEN),
    "a chunk's size with 0x": chunked(b"0x2\r\n{}\r\n0\r\n\r\n" + HIDDEN),
    "a chunk's size that overflows 64 bits": chunked(b"10000000000000002\r\n{}\r\n0\r\n\r\n"),
    "a blank before a chunk's size": chunked(b" 2\r\n{}\r\n0\r\n\r\n" + HIDDEN),
    "a blank behind a chunk's size": chunked(b"2 \r\n{}\r\n0\r\n\r\n" + HIDDEN),
    "no size of a chunk": chunked(b"\r\n{}\r\n0\r\n\r\n" + HIDDEN),
    "a chunk that is longer than it says": chunked(b"2\r\n{}XX0\r\n\r\n" + HIDDEN),
    "chunks with bare line feeds": chunked(b"2\n{}\n0\n\n" + HIDDEN),
    "a bare line feed in a chunk's extension": chunked(b"2;a\nb\r\n{}\r\n0\r\n\r\n" + HIDDEN),
    "a head with bare line feeds": (GET + b"\r\n").replace(b"\r\n", b"\n") + HIDDEN,
    "a bare carriage return in a header": getting(b"X: a\rY: b"),
    "two bare carriage returns in a header": getting(b"X: a\r\rGET / HTTP/1.1"),
    "NUL in a header": getting(b"X: a\x00b"),
    "NUL in a header's name": getting(b"X\x00: b"),
    "DEL in a header's name": getting(b"X\x7f: b"),
    "a folded header": getting(b"X: a\r\n b"),
    "a folded first header": b"GET /healthz HTTP/1.1\r\n " + HOST + b"\r\n" + HIDDEN,
    "a header without a colon": getting(b"Nonsense"),
    "a header without a name": getting(b": x"),
    "NUL in the address": b"GET /healthz\x00 HTTP/1.1\r\n" + HOST + b"\r\n" + HIDDEN,
    "a tab behind the address": b"GET /healthz\tHTTP/1.1\r\n" + HOST + b"\r\n" + HIDDEN,
    "a blank before the method": b" GET /healthz HTTP/1.1\r\n" + HOST + b"\r\n" + HIDDEN,
    "a blank in the method": b"GE T /healthz HTTP/1.1\r\n" + HOST + b"\r\n" + HIDDEN,
    "a method in small letters": b"get /healthz HTTP/1.1\r\n" + HOST + b"\r\n" + HIDDEN,
    "a protocol in small letters": b"GET /healthz http/1.1\r\n" + HOST + b"\r\n" + HIDDEN,
    "a version that there is not": b"GET /healthz HTTP/1.2\r\n" + HOST + b"\r\n" + HIDDEN,
    "the preface of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9) + HIDDEN,
    "the hello of TLS": b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03" + bytes(100) + HIDDEN,
    "a tunnel": b"CONNECT 127.0.0.1:80 HTTP/1.1\r\n" + HOST + b"\r\n" + HIDDEN,
}


@pytest.mark.parametrize("content", REFUSED.values(), ids=REFUSED)
async def test_what_can_be_read_in_two_ways_is_refused_and_the_connection_closed(
    server: Server, client: Client, content: bytes
) -> None:
    [refusal] = await answers_to(server.url, content)
    check_unread(refusal)
    assert not await is_there(client, "hidden")


def check_unread(refusal: Response) -> None:
    error = json.loads(refusal.body)
    assert (refusal.status, error["code"]) == (400, "bad_request")
    assert refusal.headers["connection"] == "close"
    assert refusal.headers["x-request-id"] != "hidden"


# ---------------------------------------------------------------- odd, and clear
ANSWERED = {
    "a body of a request that needs none": (
        GET + b"Content-Length: %d\r\n\r\n" % SIZE + HIDDEN,
        200,
    ),
    "a coding in capital letters": (
        posting(b"tRANSFER-eNCODING: CHUNKED\r\n", b"2\r\n{}\r\n0\r\n\r\n"),
        422,
    ),
    "a tab before a coding": (
        posting(b"Transfer-Encoding:\tchunked\r\n", b"2\r\n{}\r\n0\r\n\r\n"),
        422,
    ),
    "a request within a chunk": (chunked(b"%x\r\n%b\r\n0\r\n\r\n" % (SIZE, HIDDEN)), 400),
    "an upgrade to HTTP/2": (
        GET + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
        b"HTTP2-Settings: AAMAAABk\r\n\r\n",
        200,
    ),
    "an upgrade to a WebSocket": (
        GET
        + b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        + b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        200,
    ),
    "a body that waits to be asked for": (
        posting(b"Expect: 100-continue\r\nContent-Length: 2\r\n", b"{}"),
        422,
    ),
    "empty lines before a request": (b"\r\n\r\n\r\n" + GET + b"\r\n", 200),
    "another host in the address than in its header": (
        b"GET http://evil.example/healthz HTTP/1.1\r\n" + HOST + b"\r\n",
        200,
    ),
    "no host": (b"GET /healthz HTTP/1.1\r\n\r\n", 421),
    "another host behind the first": (GET + b"Host: evil.example\r\n\r\n", 421),
    "bytes that are no ASCII in a header": (GET + b"X: \xff\xfe\r\n\r\n", 200),
}


@pytest.mark.parametrize("case", ANSWERED.values(), ids=ANSWERED)
async def test_what_is_only_odd_is_answered_once_and_the_next_request_too(
    server: Server, client: Client, case: tuple[bytes, int]
) -> None:
    content, status = case
    async with connected(server.url) as connection:
        await connection.send(content)
        first = await connection.response()
        assert first is not None
        assert first.status == status
        await connection.send(LAST)
        [last] = await connection.rest()
    assert (last.status, last.headers["x-request-id"]) == (200, "last")
    assert not await is_there(client, "hidden")


ENDED = {
    "HTTP/0.9": (b"GET /healthz\r\n\r\n", 421),
    "HTTP/1.0": (b"GET /healthz HTTP/1.0\r\n" + HOST + b"\r\n", 200),
    "a client that wants to close": (GET + b"Connection: close\r\n\r\n", 200),
}


@pytest.mark.parametrize("case", ENDED.values(), ids=ENDED)
async def test_behind_the_last_request_of_a_connection_nothing_is_read(
    server: Server, client: Client, case: tuple[bytes, int]
) -> None:
    content, status = case
    [only] = await answers_to(server.url, content + HIDDEN)
    assert only.status == status
    assert not await is_there(client, "hidden")


async def test_fifty_requests_at_once_are_answered_one_by_one_in_their_order(
    server: Server,
) -> None:
    requests = [GET + b"X-Request-Id: r%d\r\n\r\n" % number for number in range(50)]
    answers = await answers_to(server.url, b"".join(requests) + LAST)
    ids = [answer.headers["x-request-id"] for answer in answers]
    assert ids == [*(f"r{number}" for number in range(50)), "last"]


# ---------------------------------------------------------------- ids that end up in headers
@pytest.mark.parametrize(
    "name",
    [
        b"a b",
        b"a;b",
        b"a\tb",
        b"\xff",
        b"\xe2\x80\xa8",
        b"<script>",
        b"x" * 257,
        b"x" * 60_000,
        b"",
    ],
    ids=lambda name: repr(name)[:20],
)
async def test_a_request_id_that_is_odd_is_replaced(server: Server, name: bytes) -> None:
    content = GET + b"Connection: close\r\nX-Request-Id: " + name + b"\r\n\r\n"
    [answer] = await answers_to(server.url, content)
    assert answer.status == 200
    assert answer.headers["x-request-id"].startswith("req_")


@pytest.mark.parametrize("name", ["a\r\nX-Injected: 1", "a\u2028b", "é", "日本", "a\tb", "a\x7fb"])
async def test_a_conversations_id_cannot_write_a_header(client: Client, name: str) -> None:
    body = {"conversationId": name, "messages": [{"role": "user", "content": "hi"}]}
    answer = await client.http.post(PATH, json=body)
    assert "x-injected" not in answer.headers
    assert answer.status_code in {200, 422}
    if answer.status_code == 200:
        assert answer.headers["x-conversation-id"].isascii()
