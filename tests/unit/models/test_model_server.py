"""The model server of tests/support: its scripts, and the requests that it refuses."""

import json
import sys
from pathlib import Path

import anyio
import httpx
import pytest
from tests.support.model_server import (
    DONE,
    Act,
    Json,
    Reply,
    event,
    model_server,
    read_script,
    says,
)
from tests.support.provider_rules import violations_of

pytestmark = pytest.mark.anyio


USER: Json = {"role": "user", "content": "hi"}


async def test_a_violation_is_refused_and_reported_with_its_request() -> None:
    asks = {"id": "a", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    open_call = {"role": "assistant", "content": None, "tool_calls": [asks]}
    async with model_server(says("a")) as server, httpx.AsyncClient(trust_env=False) as client:
        url = f"{server.base_url}/chat/completions"
        refused = await client.post(url, json={"messages": [USER, open_call]})
        accepted = await client.post(url, json={"messages": [USER]})
        assert (refused.status_code, accepted.status_code) == (400, 200)
        assert [request.json for request in server.requests] == [{"messages": [USER]}]
        with pytest.raises(AssertionError, match=r"no answers to \['a'\], in (?s:.*)look"):
            server.assert_no_violations()


async def test_a_violation_fails_at_the_end_if_it_is_not_asked_for() -> None:
    async def post_stray_result() -> None:
        async with model_server(says("a")) as server, httpx.AsyncClient(trust_env=False) as client:
            answer = {"role": "tool", "tool_call_id": "a", "content": ""}
            await client.post(f"{server.base_url}/c", json={"messages": [USER, answer]})

    with pytest.raises(AssertionError, match="answers no open call"):
        await post_stray_result()


async def test_an_empty_script_is_an_error_until_more_is_added() -> None:
    async with model_server() as server, httpx.AsyncClient(trust_env=False) as client:
        url = f"{server.base_url}/chat/completions"
        assert (await client.post(url, json={"messages": [USER]})).status_code == 500
        server.play_afterwards(says("a"))
        assert (await client.post(url, json={"messages": [USER]})).content.endswith(DONE)


def test_a_script_can_be_written_in_json() -> None:
    script = [{"steps": [event("stop"), "raw", 0.5, "<cut>"], "ends": False}, {"status": 503}]
    assert read_script(json.dumps(script)) == [
        Reply([event("stop"), b"raw", 0.5, Act.CUT], ends=False),
        Reply([], 503),
    ]
    with pytest.raises(SystemExit, match="not a step: None"):
        read_script('[{"steps": [null]}]')


async def test_it_runs_as_a_process_until_its_input_ends(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text(json.dumps([{"steps": [event(content="a"), "data: [DONE]\n\n"]}]))
    command = [sys.executable, "-m", "tests.support.model_server", str(script)]
    with anyio.fail_after(30):
        async with await anyio.open_process(command) as process:
            assert process.stdin
            assert process.stdout
            url = (await process.stdout.receive()).decode().strip()
            async with httpx.AsyncClient(trust_env=False) as client:
                response = await client.post(f"{url}/chat/completions", json={"messages": [USER]})
            await process.stdin.aclose()
            assert await process.wait() == 0
    assert response.content.endswith(DONE)


# ---------------------------------------------------------------- the rules of providers
SYSTEM: Json = {"role": "system", "content": "be brief"}


def call(call_id: str, **function: object) -> Json:
    return {
        "id": call_id,
        "type": "function",
        "function": {"name": "look", "arguments": "{}"} | function,
    }


def asks(*calls: Json, content: str | None = None) -> Json:
    return {"role": "assistant", "content": content, "tool_calls": list(calls)}


def answers(call_id: str, content: object = "") -> Json:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


A, B = call("a"), call("b")
PICTURE = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}


@pytest.mark.parametrize(
    "messages",
    [
        [USER],
        [SYSTEM, SYSTEM, USER, SYSTEM, USER],
        [USER, {"role": "assistant", "content": "hello"}, USER],
        [{"role": "user", "content": [{"type": "text", "text": "look"}, PICTURE]}],
        [USER, asks(A, B), answers("b"), answers("a"), USER],
        [USER, asks(A, content="I look"), answers("a"), asks(B), answers("b", "seen")],
    ],
)
def test_messages_that_providers_accept_are_no_violation(messages: list[Json]) -> None:
    assert violations_of(messages) == []


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([], ["the first message behind the system's is missing, not user"]),
        ([SYSTEM, asks(A), answers("a")], ["is assistant, not user"]),
        ([USER, {"role": "function", "content": "x"}], ["message 1 has the role 'function'"]),
        ([{"role": "user", "content": ""}], ["message 0 says nothing"]),
        ([{"role": "user", "content": []}], ["message 0 says nothing"]),
        ([{"role": "user", "content": [{"type": "text", "text": ""}]}], ["message 0 says nothing"]),
        ([USER, {"role": "assistant", "content": None}], ["message 1 says nothing"]),
        ([USER, asks(A, content=""), answers("a")], ["message 1 has an empty text"]),
        ([USER, asks()], ["message 1 says nothing", "must not have `tool_calls`"]),
        ([{**USER, "tool_calls": [A]}, answers("a")], ["must not have `tool_calls`"]),
        ([USER, asks(A), answers("a", None)], ["message 2 is an answer without a text"]),
        ([USER, asks(call("")), answers("")], ["a call without an id or a type"]),
        ([USER, asks({"id": "a"}), answers("a")], ["or a type", "proper name", "no JSON object"]),
        ([USER, asks(call("a", name="no name")), answers("a")], ["without a proper name"]),
        ([USER, asks(call("a", arguments="[]")), answers("a")], ["that are no JSON object"]),
        ([USER, asks(call("a", arguments="{")), answers("a")], ["that are no JSON object"]),
        ([USER, asks(A)], ["no answers to ['a']"]),
        ([USER, asks(A, B), answers("a")], ["no answers to ['b']"]),
        ([USER, asks(A), USER, answers("a")], ["comes before the answers", "answers no open"]),
        ([USER, asks(A), answers("a"), answers("a")], ["message 3 answers no open call"]),
        ([USER, answers("a")], ["message 1 answers no open call"]),
        ([USER, asks(A, A), answers("a"), answers("a")], ["message 1 has ids that were used"]),
        ([USER, asks(A), answers("a"), asks(A), answers("a")], ["message 3 has ids that"]),
    ],
)
def test_each_violation_is_found(messages: list[Json], expected: list[str]) -> None:
    violations = violations_of(messages)
    assert len(violations) == len(expected)
    assert all(part in text for part, text in zip(expected, violations, strict=True))
