"""The main job over HTTP: chat, client tools and their results, in the exact form of the wire."""

import json
import re

import anyio
import pytest
from tests.support.server import Server
from tests.support.wire import (
    COLOR,
    DONE,
    PATH,
    ZONE,
    Client,
    Frame,
    FrameReader,
    Json,
    result,
    user,
)

pytestmark = pytest.mark.anyio

HELLO = (
    "Hello! I am passback's demo model: a few rules, no artificial intelligence. Ask me to count "
    "to 20, or declare a tool and name it in a message: I will call it."
)
BOT_PATH = "/v1/aibot/bots/default/send-message"


# ---------------------------------------------------------------- bytes
async def exchange(server: Server, request: bytes) -> bytes:
    """Send bytes and read the answer to its end, without an HTTP library between."""
    host, port = server.url.removeprefix("http://").split(":")
    answer = b""
    with anyio.fail_after(20):
        async with await anyio.connect_tcp(host, int(port)) as socket:
            await socket.send(request)
            while True:
                try:
                    answer += await socket.receive()
                except anyio.EndOfStream:
                    return answer


def post_request(server: Server, path: str, body: bytes) -> bytes:
    lines = [
        f"POST {path} HTTP/1.1",
        f"Host: {server.url.removeprefix('http://')}",
        "X-Request-Id: r-1",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        "Connection: close",
    ]
    return "".join(f"{line}\r\n" for line in [*lines, ""]).encode() + body


def read_answer(answer: bytes) -> tuple[str, dict[str, str], bytes]:
    """Status line, headers and the body out of its chunks."""
    head, _, chunked = answer.partition(b"\r\n\r\n")
    status, *lines = head.decode("ascii").split("\r\n")
    fields = (line.split(": ", 1) for line in lines)
    headers = {name.lower(): text for name, text in fields}
    body = b""
    while chunked != b"0\r\n\r\n":
        size, _, rest = chunked.partition(b"\r\n")
        length = int(size, 16)
        assert rest[length : length + 2] == b"\r\n"
        body, chunked = body + rest[:length], rest[length + 2 :]
    return status, headers, body


@pytest.mark.parametrize("path", [PATH, BOT_PATH])
async def test_a_stream_has_the_documented_bytes(
    server: Server, conversation: str, path: str
) -> None:
    messages = [{"role": "user", "content": "hi"}]
    body = {"botId": "x", "conversationId": conversation, "messages": messages}
    answer = await exchange(server, post_request(server, path, json.dumps(body).encode()))
    status, headers, stream = read_answer(answer)
    run_id = headers.pop("x-run-id")
    assert re.fullmatch(r"run_[0-9A-Za-z]{34}", run_id)
    assert headers.pop("date")
    assert (status, headers) == (
        "HTTP/1.1 200 OK",
        {
            "content-type": "text/event-stream; charset=utf-8",
            "cache-control": "no-store, no-transform",
            "x-content-type-options": "nosniff",
            "cross-origin-resource-policy": "same-origin",
            "x-accel-buffering": "no",
            "x-conversation-id": conversation,
            "x-request-id": "r-1",
            "connection": "close",
            "transfer-encoding": "chunked",
        },
    )
    reader = FrameReader()
    *texts, done = reader.feed(stream)
    reader.close()
    assert b"\r" not in stream
    assert [frame.event.keys() for frame in texts] == [{"type", "content"}] * len(texts)
    assert "".join(frame.event["content"] for frame in texts) == HELLO
    assert stream.endswith(f"id: {done.id}\ndata: [DONE]\n\n".encode())
    places = [re.fullmatch(rf"{run_id}\.(\d+)-(\d+)", frame.id) for frame in (*texts, done)]
    numbers = [(int(place[1]), int(place[2])) for place in places if place]
    assert numbers == sorted(numbers)
    assert len(set(numbers)) == len(texts) + 1


async def test_line_ends_of_any_kind_within_text_cannot_break_a_frame(
    client: Client, conversation: str
) -> None:
    words = "a\nb\rc\r\nd\u0085e\u2028f\u2029g\x0bh \U0001f600 \u00e9"
    answer = await client.post(conversation, user(words))
    assert f'You said: "{words}".' in answer.text
    assert answer.body.isascii()
    assert b"\r" not in answer.body


async def test_a_conversation_without_an_id_gets_one_in_a_header(client: Client) -> None:
    answer = await client.http.post(PATH, json={"messages": [user("hi")]})
    conversation = answer.headers["x-conversation-id"]
    kept = await client.messages(conversation)
    assert [message["role"] for message in kept] == ["user", "assistant"]


async def test_the_id_in_the_first_comment_goes_on_with_the_conversation(
    client: Client, conversation: str
) -> None:
    named = f'{conversation} é "day" 1\u2028'
    answer = await client.post(named, user("hi"))
    comment = answer.body.decode().split("\n")[0].removeprefix(": conversation ")
    words = '{"role": "user", "content": "hi"}'
    body = f'{{"conversationId": "{comment}", "messages": [{words}]}}'
    headers = {"content-type": "application/json"}
    await client.http.post(PATH, content=body.encode(), headers=headers)
    kept = await client.messages(named)
    assert [message["role"] for message in kept] == ["user", "assistant"] * 2


async def test_the_first_byte_comes_before_the_models_first_word(
    server: Server, client: Client, conversation: str
) -> None:
    async with client.stream(conversation, [user("hi")]) as stream:
        await stream.next()
        assert stream.raw.startswith(b": conversation ")


# ---------------------------------------------------------------- client tools
@pytest.mark.promise("P1")
async def test_a_client_tool_is_called_and_its_result_answered(
    client: Client, conversation: str
) -> None:
    asked = await client.post(conversation, user("set color to blue"), tools=[COLOR])
    assert asked.types == ["tool-call-start", "tool-call-args", "tool-call-end", DONE]
    assert (asked.call.name, asked.call.arguments) == ("set-color", {"color": "blue"})
    answer = await client.post(conversation, result(asked.call.id, "it is blue"))
    assert (answer.types, answer.text) == (
        ["text", DONE],
        'Done. set-color answered: "it is blue".',
    )
    messages = await client.messages(conversation)
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "assistant"]


async def test_tools_stay_declared_until_other_ones_replace_them(
    client: Client, conversation: str
) -> None:
    words = user("set color to blue, and my time zone")

    async def called(**more: object) -> list[str]:
        answer = await client.post(conversation, words, **more)
        return [call.name for call in answer.calls]

    assert await called(tools=[COLOR]) == ["set-color"]
    assert await called() == ["set-color"]
    assert await called(tools=[ZONE]) == ["get-time-zone"]
    assert await called(tools=[]) == []
    assert await called() == []


async def two_calls(client: Client, conversation: str) -> tuple[str, str]:
    answer = await client.post(
        conversation, user("my time zone, and set color to red"), tools=[COLOR, ZONE]
    )
    zone, color = answer.calls
    assert (zone.name, color.name) == ("get-time-zone", "set-color")
    return zone.id, color.id


@pytest.mark.parametrize("swapped", [False, True])
async def test_results_of_two_calls_may_come_in_one_post_in_any_order(
    client: Client, conversation: str, swapped: bool
) -> None:
    zone, color = await two_calls(client, conversation)
    results = [result(zone, "UTC"), result(color, "red")]
    answer = await client.post(conversation, *(results[::-1] if swapped else results))
    assert answer.text == 'Done. get-time-zone answered: "UTC". set-color answered: "red".'


@pytest.mark.promise("P2")
async def test_results_may_come_one_by_one_and_the_answer_names_what_is_owed(
    client: Client, conversation: str
) -> None:
    zone, color = await two_calls(client, conversation)
    parked = await client.post(conversation, result(color, "red"))
    assert (parked.types, parked.headers["x-owed-tool-calls"]) == ([DONE], zone)
    assert [owed["id"] for owed in (await client.conversation(conversation))["owed"]] == [zone]
    answer = await client.post(conversation, result(zone, "UTC"))
    assert answer.text == 'Done. get-time-zone answered: "UTC". set-color answered: "red".'


@pytest.mark.promise("P5")
async def test_a_user_who_goes_on_supersedes_the_calls_and_they_are_closed(
    client: Client, conversation: str
) -> None:
    zone, color = await two_calls(client, conversation)
    answer = await client.post(conversation, user("hi"))
    assert answer.text.startswith("Hello!")
    closed = [m for m in await client.messages(conversation) if m["role"] == "tool"]
    assert {message["toolCallId"] for message in closed} == {zone, color}
    assert [message["isError"] for message in closed] == [True, True]
    late = await client.post(conversation, result(zone, "UTC"))
    assert (late.status, late.json["code"]) == (409, "tool_result_conflict")


@pytest.mark.promise("P9", "P8")
async def test_the_first_result_wins_and_an_equal_one_joins_its_run(
    client: Client, conversation: str
) -> None:
    asked = await client.post(conversation, user("time zone"), tools=[ZONE])
    first = await client.post(conversation, result(asked.call.id, "UTC"))
    again = await client.post(conversation, result(asked.call.id, "UTC"))
    other = await client.post(conversation, result(asked.call.id, "CET"))
    assert again.headers["x-run-id"] == first.headers["x-run-id"]
    assert again.text == first.text
    assert (other.status, other.json["code"]) == (409, "tool_result_conflict")
    assert len(await client.messages(conversation)) == 4


@pytest.mark.promise("P9", "P13")
async def test_a_result_for_another_conversations_call_is_unknown(
    client: Client, conversation: str
) -> None:
    asked = await client.post(conversation, user("time zone"), tools=[ZONE])
    await client.post(f"{conversation}-2", user("hi"))
    before = await client.conversation(f"{conversation}-2")
    stolen = await client.post(f"{conversation}-2", result(asked.call.id, "UTC"))
    invented = await client.post(f"{conversation}-2", result("call_0", "UTC"))
    assert (stolen.status, stolen.json["code"]) == (404, "tool_call_not_found")
    assert (invented.status, _without_request_id(invented.json)) == (
        404,
        _without_request_id(stolen.json),
    )
    assert await client.conversation(f"{conversation}-2") == before


def _without_request_id(body: Json) -> Json:
    return {key: value for key, value in body.items() if key != "request_id"}


# ---------------------------------------------------------------- extras on request
async def test_more_events_come_only_to_those_who_ask(client: Client, conversation: str) -> None:
    include = ["reasoning", "usage", "message-ids", "run", "owed"]
    asked = await client.post(conversation, user("time zone"), tools=[ZONE], include=include)
    assert asked.types == [
        "run-start",
        "message",
        "tool-call-start",
        "tool-call-args",
        "usage",
        "tool-call-end",
        "owed",
        "run-end",
        DONE,
    ]
    owed, end = asked.frames[-3:-1]
    assert [call["id"] for call in owed.event["toolCalls"]] == [asked.call.id]
    assert end.event == {"type": "run-end", "outcome": "handed-back", "model": "demo:fast"}
    assert isinstance(asked.frames[-1], Frame)
