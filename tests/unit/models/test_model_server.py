"""The tests' own model service: it must catch what providers refuse, and play scripts as a process too."""

import json
import sys
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from tests.support.model_server import (
    DONE,
    Act,
    Reply,
    event,
    model_server,
    read_script,
    says,
    violations_of,
)

pytestmark = pytest.mark.anyio

USER: dict[str, Any] = {"role": "user", "content": "hi"}


def asks(*ids: str) -> dict[str, Any]:
    return {"role": "assistant", "tool_calls": [{"id": call_id} for call_id in ids]}


def answers(call_id: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": ""}


@pytest.mark.parametrize(
    ("messages", "count"),
    [
        ([USER], 0),
        ([USER, asks("a", "b"), answers("b"), answers("a"), USER], 0),
        ([USER, asks("a"), answers("a"), asks("a"), answers("a")], 0),
        ([USER, asks("a")], 1),
        ([USER, asks("a", "b"), answers("a")], 1),
        ([USER, asks("a"), USER, answers("a")], 2),
        ([USER, asks("a"), answers("a"), answers("a")], 1),
        ([USER, answers("a")], 1),
        ([USER, asks("a", "a"), answers("a"), answers("a")], 1),
        ([USER, asks(""), answers("")], 1),
    ],
)
def test_calls_must_be_answered_once_next_to_them(
    messages: list[dict[str, Any]], count: int
) -> None:
    assert len(violations_of(messages)) == count


async def test_a_violation_is_refused_and_remembered() -> None:
    async with model_server(says("a")) as server, httpx.AsyncClient(trust_env=False) as client:
        url = f"{server.base_url}/chat/completions"
        refused = await client.post(url, json={"messages": [USER, asks("a")]})
        accepted = await client.post(url, json={"messages": [USER]})
        assert (refused.status_code, accepted.status_code) == (400, 200)
        assert server.violations == ["no answers to ['a']"]
        assert len(server.requests) == 2


async def test_an_empty_script_is_an_error_until_more_is_added() -> None:
    async with model_server() as server, httpx.AsyncClient(trust_env=False) as client:
        url = f"{server.base_url}/chat/completions"
        assert (await client.post(url, json={"messages": [USER]})).status_code == 500
        server.will(says("a"))
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
