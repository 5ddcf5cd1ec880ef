"""Models and client of the Agent API's published package understand every event."""

import json
import os
import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream
from tests.e2e import agentscope_client
from tests.support.agent_api import (
    PATH,
    Json,
    bodies,
    check_legal,
    events_of,
    function,
    joined_text,
    output,
    user,
)
from tests.support.model_server import ModelServer, Reply, calls, event, says
from tests.support.programs import missing
from tests.support.wire import Client

from passback.builders import Event, ResponseBuilder, encode

pytestmark = pytest.mark.anyio

CLASSES = {"response": "AgentResponse", "message": "Message"}
COLOR = function("set-color", color={"type": "string"})
USAGE = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}


def _thinks(thought: str, *words: str) -> Reply:
    return Reply(
        [
            event(reasoning_content=thought),
            *(event(content=word) for word in words),
            event("stop"),
            {"choices": [], "usage": USAGE},
            b"data: [DONE]\n\n",
        ]
    )


async def _judged(client: Client, name: str, **request: Any) -> tuple[list[Json], Json]:
    """Return what we sent, and what the package made of it."""
    url, headers = str(client.http.base_url.join(PATH)), {"idempotency-key": name}
    judged = await _judge(url, headers, request)
    sent = await client.http.post(PATH, json=request, headers=headers)
    return events_of(sent.content), judged


async def _judge(url: str, headers: Json, request: Json) -> Json:
    python = os.environ.get("TEST_AGENTSCOPE") or missing("agentscope-runtime")
    script = str(Path(agentscope_client.__file__))
    with anyio.fail_after(50):
        done = await anyio.run_process(
            [python, script, url, json.dumps(headers)],
            input=json.dumps(request).encode(),
            env={**os.environ, "NO_PROXY": "*"},
            stderr=None,
        )
    judged: Json = json.loads(done.stdout)
    return judged


@asynccontextmanager
async def _played(events: Sequence[Event]) -> AsyncGenerator[str]:
    """The address of a server that answers every request with these events."""
    body = "".join(f"data: {encode(event)}\n\n" for event in events).encode()
    head = f"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {len(body)}\r\n"

    async def answer(stream: SocketStream) -> None:
        async with stream:
            reader = BufferedByteReceiveStream(stream)
            asked = (await reader.receive_until(b"\r\n\r\n", 65_536)).lower()
            length = re.search(rb"content-length: (\d+)", asked)
            await reader.receive_exactly(int(length[1]) if length else 0)
            await stream.send(f"{head}connection: close\r\n\r\n".encode() + body)

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
    port = listener.extra(SocketAttribute.local_port)
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, answer)
        yield f"http://127.0.0.1:{port}{PATH}"
        tasks.cancel_scope.cancel()


def _check_understood(sent: list[Json], judged: Json) -> None:
    """Each event became an object of the right class with all that it says."""
    for way in ("stream", "astream"):
        # how many pieces a text comes in is a matter of time
        assert all(each["class"].endswith("Content") for each in judged[way] if _is_piece(each))
        understood = [each for each in judged[way] if not _is_piece(each)]
        whole = [each for each in sent if not _is_piece(each)]
        for ours, theirs in zip(whole, understood, strict=True):
            kind = CLASSES.get(ours["object"]) or f"{ours.get('type', '').title()}Content"
            assert theirs.pop("class") == kind
            # the stream was sent anew: its times are of the answer
            assert _timeless(theirs).items() >= _timeless(ours).items()


def _is_piece(event: Json) -> bool:
    return bool(event["object"] == "content" and event["status"] == "in_progress")


def _timeless(event: Json) -> Json:
    timely = {"created_at", "completed_at", "sequence_number"}
    plain = {key: event[key] for key in event.keys() - timely}
    if "output" in plain:
        plain["output"] = [each["id"] for each in plain["output"]]
    if "content" in plain:
        plain["content"] = len(plain["content"])
    return plain


async def test_words_and_thoughts_are_understood(
    played_pair: tuple[Client, Client], model: ModelServer, conversation: str
) -> None:
    client, _ = played_pair
    words = ("so ", "\u0085\u2028\u2029", '"é😀"')
    model.play(_thinks("hm", *words))
    sent, judged = await _judged(
        client, conversation, input=[user("think")], session_id=conversation
    )
    _check_understood(sent, judged)
    last = check_legal(sent)
    assert (joined_text(last), joined_text(last, "reasoning")) == ("".join(words), "hm")
    assert judged["rebuilt"] == ["hm", "".join(words)]
    assert last["usage"]["input_tokens"] == 3


async def test_calls_of_the_client_and_of_the_server_are_understood(
    played_pair: tuple[Client, Client], model: ModelServer, conversation: str
) -> None:
    client, _ = played_pair
    model.play(
        calls(("a", "price", '{"drink":"tea"}'), ("b", "set-color", '{"color":"blue"}')),
        says("Blue it is."),
    )
    asked = {"session_id": conversation, "tools": [COLOR]}
    sent, judged = await _judged(client, conversation, input=[user("set color")], **asked)
    _check_understood(sent, judged)
    last = check_legal(sent)
    [call] = bodies(last, "function_call")
    assert (call["name"], call["arguments"]) == ("set-color", '{"color":"blue"}')
    assert last["metadata"] == {"requires_action": [call["call_id"]]}
    [server_call], [answered] = bodies(last, "plugin_call"), bodies(last, "plugin_call_output")
    assert server_call["call_id"] == answered["call_id"]
    more = {"input": [output(call["call_id"], "blue")], **asked}
    sent, judged = await _judged(client, f"{conversation}-2", **more)
    _check_understood(sent, judged)
    assert joined_text(check_legal(sent)) == "Blue it is."


async def test_the_client_edits_and_has_a_message_answered_anew(
    played_pair: tuple[Client, Client], model: ModelServer, conversation: str
) -> None:
    client, _ = played_pair
    model.play(says("Paris."), says("Rome."), says("Rome, again."))
    asked: dict[str, Any] = {"session_id": conversation}
    said = user("Of France?", id=f"u-{conversation}")
    await _judged(client, f"{conversation}-1", input=[said], **asked)
    edited = user("Of Italy?", id=f"v-{conversation}")
    sent, judged = await _judged(client, f"{conversation}-2", input=[edited], after="", **asked)
    _check_understood(sent, judged)
    assert judged["rebuilt"] == ["Rome."]
    sent, judged = await _judged(client, f"{conversation}-3", input=[], after=edited["id"], **asked)
    _check_understood(sent, judged)
    assert judged["rebuilt"] == ["Rome, again."]
    shown = await client.messages(conversation)
    assert [each["id"] for each in shown] == [edited["id"], check_legal(sent)["output"][0]["id"]]


async def test_a_message_that_announces_itself_is_understood() -> None:
    events: list[Event] = []
    response = ResponseBuilder("s", on_event=events.append)
    response.created()
    response.in_progress()
    message = response.create_message_builder()
    message.add_delta_content({"type": "text", "text": "Look"})
    message.add_delta_content({"type": "text", "text": ": ", "index": 0})
    message.content_completed(0)
    image = message.create_content_builder("image", index=1)
    image.set_image_url("https://example.com/image.jpg")
    image.complete()
    message.complete()
    response.completed()
    async with _played(events) as url:
        judged = await _judge(url, {}, {"input": [user("look")]})
    _check_understood(list(events), judged)
    assert judged["rebuilt"] == ["Look: "]
