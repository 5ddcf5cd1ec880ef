"""The tests' own model service: it must catch what providers refuse, and play scripts as a process too."""

import json
import sys
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from tests.support.model_server import DONE, Act, Reply, event, model_server, read_script, says

pytestmark = pytest.mark.anyio

USER: dict[str, Any] = {"role": "user", "content": "hi"}


async def test_a_violation_is_refused_and_shown_with_its_request() -> None:
    asks = {"id": "a", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    open_call = {"role": "assistant", "content": None, "tool_calls": [asks]}
    async with model_server(says("a")) as server, httpx.AsyncClient(trust_env=False) as client:
        url = f"{server.base_url}/chat/completions"
        refused = await client.post(url, json={"messages": [USER, open_call]})
        accepted = await client.post(url, json={"messages": [USER]})
        assert (refused.status_code, accepted.status_code) == (400, 200)
        assert [request.json for request in server.requests] == [{"messages": [USER]}]
        with pytest.raises(AssertionError, match=r"no answers to \['a'\], in (?s:.*)look"):
            server.assert_obeyed()


async def test_a_violation_that_nobody_asks_for_fails_at_the_end() -> None:
    async def stray() -> None:
        async with model_server(says("a")) as server, httpx.AsyncClient(trust_env=False) as client:
            answer = {"role": "tool", "tool_call_id": "a", "content": ""}
            await client.post(f"{server.base_url}/c", json={"messages": [USER, answer]})

    with pytest.raises(AssertionError, match="answers no open call"):
        await stray()


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
