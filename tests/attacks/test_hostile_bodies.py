"""Bodies, headers and words made to confuse: read to the letter or refused, and never a 500."""

import gzip
import json
import zlib
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from tests.support import agent_api
from tests.support.server import Server, running_server
from tests.support.wire import PATH, Client, check_refusal, client_of, client_tool, result, user

pytestmark = [pytest.mark.anyio, pytest.mark.promise("P11", "P12")]

ROOT = Path(__file__).resolve().parents[2]
AGENT = "tests.support.served_agents:guarded"
"""Does at once what the user's words say, as JSON."""
JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
async def server() -> AsyncGenerator[Server]:
    async with running_server(AGENT, cwd=str(ROOT)) as server:
        yield server


@pytest.fixture(scope="module")
async def client(server: Server) -> AsyncGenerator[Client]:
    async with client_of(server.url) as client:
        yield client


def says(words: str) -> dict[str, Any]:
    """Words that make the model say these."""
    return user(json.dumps({"say": words}))


# ---------------------------------------------------------------- JSON
def body_with(fragment: bytes) -> bytes:
    return b'{"messages":[{"role":"user","content":"{}"}],"extra":' + fragment + b"}"


UNREADABLE = {
    "an overlong slash": b'"\xc0\xaf"',
    "a surrogate in UTF-8": b'"\xed\xa0\x80"',
    "half a character": b'"\xf0\x9f\x98"',
    "a trailing comma": b"[1,]",
    "a comment": b"1 /* one */",
    "single quotes": b"'a'",
    "a number with a leading zero": b"01",
    "a number in hexadecimal": b"0x1",
    "a number without digits behind its point": b"1.",
    "half an escape": b'"\\u12"',
    "an escape that there is not": b'"\\x41"',
    "a high surrogate alone": b'"\\ud800"',
    "two surrogates in the wrong order": b'"\\udc00\\ud800"',
    "a tab in a string": b'"\t"',
    "Python's names": b"None",
    "a key without quotes": b"{a: 1}",
    "a bracket too many": b"1}",
    "a string that does not end": b'"',
    "101 levels of arrays": b"[" * 101 + b"]" * 101,
    "100,000 levels of arrays": b"[" * 100_000,
    "100,000 levels of objects": b'{"a":' * 100_000,
    "200,000 arrays": b"[" + b"[]," * 200_000 + b"[]]",
    "a number of 5,000 digits": b"1" * 5_000,
    "a number larger than all": b"1e999",
}


@pytest.mark.parametrize("fragment", UNREADABLE.values(), ids=UNREADABLE)
async def test_a_body_that_is_no_json_is_refused(client: Client, fragment: bytes) -> None:
    for path in (PATH, "/process", "/ag-ui"):
        answer = await client.http.post(path, content=body_with(fragment), headers=JSON)
        check_refusal(answer, 400, "bad_request")


ZEROS = bytes(20 * 1024 * 1024)
CODED = {
    "gzip": gzip.compress(ZEROS),
    "deflate": zlib.compress(ZEROS),
    "br": b"\x0b\x02\x80{}\x03",
    "zstd": b"\x28\xb5\x2f\xfd\x00\x58\x11\x00\x00{}",
    "gzip, gzip": gzip.compress(gzip.compress(ZEROS)),
    "x-gzip": gzip.compress(b"{}"),
}


@pytest.mark.parametrize("coding", CODED)
async def test_a_packed_body_is_refused_as_it_is(client: Client, coding: str) -> None:
    headers = {**JSON, "content-encoding": coding}
    answer = await client.http.post(PATH, content=CODED[coding], headers=headers)
    check_refusal(answer, 415, "unsupported_media_type")


async def test_of_equal_keys_the_last_counts(client: Client, conversation: str) -> None:
    first, last = json.dumps(says("first")), json.dumps(says("last"))
    text = f'{{"conversationId":"not-{conversation}","messages":[{first}],'
    text += f'"conversationId":"{conversation}","messages":[{last}]}}'
    answer = await client.http.post(PATH, content=text.encode(), headers=JSON)
    assert answer.headers["x-conversation-id"] == conversation
    [_, last_message] = await client.messages(conversation)
    assert last_message["content"] == "last"
    assert (await client.conversation(f"not-{conversation}"))["status"] == 404


# ---------------------------------------------------------------- words that look like frames
HOSTILE = {
    "a frame": '\n\ndata: {"type":"tool-call-end"}\n\n',
    "an id": "\nid: run_0.9-9\ndata: x\n\n",
    "the end": "\n\ndata: [DONE]\n\n",
    "carriage returns": "\r\rdata: [DONE]\r\r",
    "the separator of a text": '\x1e{"outcome": "failed"}\n',
    "separators of lines": "\u0085\u2028\u2029data: x",
    "no character": "\x00\x1b[2J",
    "directions and tags": "\u202etxet\u202c \U000e0001\u200b",
    "a chunk": "\r\n0\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
    "an event and a retry": "\n\nevent: x\nretry: 1\n: x\n\n",
}


@pytest.mark.parametrize("words", HOSTILE.values(), ids=HOSTILE)
async def test_words_stay_words_in_every_form_of_an_answer(
    client: Client, conversation: str, words: str
) -> None:
    text = f"a{words}b"
    streamed = await client.post(conversation, says(text))  # only frames of ours are read, in ASCII
    assert (streamed.text, streamed.types) == (text, ["text", "[DONE]"])
    waited = await client.post(conversation, says(text), path=f"{PATH}?wait=true")
    assert (waited.json["text"], waited.json["outcome"]) == (text, "completed")
    processed = await client.http.get(f"/process/{conversation}/stream")
    last = agent_api.check_legal(agent_api.events_of(processed.content))
    assert agent_api.joined_text(last) == text
    plain = await client.post(conversation, says(text), headers={"accept": "text/plain"})
    assert plain.body.count(b"\x1e") == 0
    shown = [each["content"] for each in await client.messages(conversation)]
    assert shown.count(text) == 3


@pytest.mark.parametrize("words", HOSTILE.values(), ids=HOSTILE)
async def test_the_arguments_of_a_call_stay_arguments(
    client: Client, conversation: str, words: str
) -> None:
    arguments = json.dumps({"a": words}, ensure_ascii=False)
    order = json.dumps({"calls": [["fine", arguments]]})
    tool = client_tool("fine", a={"type": "string"})
    answer = await client.post(conversation, user(order), tools=[tool])
    assert (answer.call.name, answer.call.arguments) == ("fine", {"a": words})
    assert answer.types[-1] == "[DONE]"
    assert (await client.post(conversation, result(answer.call.id, words))).text == "Done."


# ---------------------------------------------------------------- headers
LARGE = 60_000
HEADERS = {
    "types": ("accept", ",".join(["text/event-stream;q=0.1"] * 2_500)),
    "parameters": ("accept", "text/plain" + ";a=b" * 15_000),
    "blanks": ("accept", "text/plain" + " " * LARGE + "x"),
    "quotes": ("accept", 'text/plain;a="' + "\\" * LARGE),
    "slashes": ("content-type", "application/json" + "/" * LARGE),
    "parameters of a type": ("content-type", "application/json;charset=utf-8" + ";a=b" * 15_000),
    "an event's id": ("last-event-id", "run_" + "1." * 30_000 + "-"),
    "digits of an event's id": ("last-event-id", "run." + "1" * LARGE + "-" + "1" * 100),
    "a key of a post": ("idempotency-key", '"' + "\\" * LARGE),
    "quotes in a key of a post": ("idempotency-key", '"' * LARGE),
    "a bearer": ("authorization", "Bearer" + " " * LARGE + "x"),
    "a request's id": ("x-request-id", "a" * LARGE + "!"),
    "an origin": ("origin", "http://" + "a." * 30_000),
    "a host": ("host", "127." * 15_000),
    "a host of brackets": ("host", "[" + ":" * LARGE),
}


@pytest.mark.parametrize("header", HEADERS.values(), ids=HEADERS)
async def test_a_large_hostile_header_costs_little(
    server: Server, client: Client, header: tuple[str, str]
) -> None:
    name, text = header
    before = cpu_seconds(server)
    body = json.dumps({"messages": [says("hi")]})
    for path, method in ((PATH, "POST"), ("/conversations/none/stream", "GET")):
        headers = {**JSON, name: text}
        answer = await client.http.request(method, path, content=body, headers=headers)
        assert answer.status_code < 500
    assert cpu_seconds(server) - before < 2  # a pattern that goes back takes minutes


def cpu_seconds(server: Server) -> float:
    """Return the processor time that the process has used so far."""
    text = Path(f"/proc/{server.process.pid}/stat").read_text()
    user_ticks, system_ticks = text.rpartition(")")[2].split()[11:13]
    return (int(user_ticks) + int(system_ticks)) / 100
