"""The Agent API's published package is the judge: its own models and its client understand every event."""

import json
import os
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.support import agentscope_judge
from tests.support.agent_api import (
    PATH,
    Json,
    bodies,
    check_legal,
    events_of,
    function,
    output,
    said,
    user,
)
from tests.support.model_server import ModelServer, Reply, calls, event, says
from tests.support.programs import missing
from tests.support.wire import Client

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
    """What we sent, and what the package made of it."""
    python = os.environ.get("TEST_AGENTSCOPE") or missing("agentscope-runtime")
    url, headers = str(client.http.base_url.join(PATH)), {"idempotency-key": name}
    script = str(Path(agentscope_judge.__file__))
    with anyio.fail_after(50):
        done = await anyio.run_process(
            [python, script, url, json.dumps(headers)],
            input=json.dumps(request).encode(),
            env={**os.environ, "NO_PROXY": "*"},
            stderr=None,
        )
    sent = await client.http.post(PATH, json=request, headers=headers)
    return events_of(sent.content), json.loads(done.stdout)


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
            # the stream was told anew: its times are of the answer
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
    assert (said(last), said(last, "reasoning")) == ("".join(words), "hm")
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
    assert said(check_legal(sent)) == "Blue it is."
