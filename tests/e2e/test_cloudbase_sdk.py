"""A published client of the protocol, npm `@cloudbase/js-sdk`, against the real server."""

import json
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.support.programs import missing, program
from tests.support.server import Server

pytestmark = [pytest.mark.anyio, pytest.mark.node]

FOLDER = Path(__file__).resolve().parents[1] / "js"


@pytest.fixture(scope="module")
async def report(server: Server) -> dict[str, Any]:
    """Return what the client saw."""
    node = program("node", variable="TEST_NODE")
    if not (FOLDER / "node_modules" / "@cloudbase").exists():
        missing("@cloudbase/js-sdk in tests/js/node_modules")
    with anyio.fail_after(40):
        done = await anyio.run_process([node, str(FOLDER / "cloudbase.mjs"), server.url])
    seen: dict[str, Any] = json.loads(done.stdout.decode().splitlines()[-1])
    return seen


async def test_the_sdk_sees_the_events_of_a_chat_and_nothing_else(report: dict[str, Any]) -> None:
    assert report["version"].endswith("3.7.0")
    assert {tuple(event) for event in report["events"]} == {("type", "content")}
    text = "".join(event["content"] for event in report["events"])
    assert text.startswith("Hello! I am passback's demo model")


async def test_its_text_is_the_whole_answer(report: dict[str, Any]) -> None:
    assert report["text"] == "".join(event["content"] for event in report["events"])


async def test_the_sdk_runs_a_tool_of_its_own_and_gets_the_answer(report: dict[str, Any]) -> None:
    asked = report["roundTrip"]["asked"]
    kinds = [event["type"] for event in asked]
    assert (kinds[0], kinds[-1]) == ("tool-call-start", "tool-call-end")
    assert set(kinds[1:-1]) == {"tool-call-args"}
    assert len({event["toolCallId"] for event in asked}) == 1
    assert report["roundTrip"]["answer"] == 'Done. shout answered: "HEAR ME!".'


async def test_the_sdk_passes_on_synthetic_results_and_shows_none(
    report: dict[str, Any],
) -> None:
    events, text = report["invalidCall"]["events"], report["invalidCall"]["text"]
    [result] = [event for event in events if event["type"] == "tool-result"]
    assert (result["isError"], result["synthetic"]) == (True, "invalid")
    assert text == "".join(event["content"] for event in events if event["type"] == "text")


async def test_a_refused_request_raises_there_with_our_code_and_message(
    report: dict[str, Any],
) -> None:
    error = report["refusal"]["error"]
    assert '"code": "invalid_request"' in error
    assert '"message":' in error
    assert '"request_id":' in error


async def test_the_sdk_called_no_other_server(report: dict[str, Any]) -> None:
    assert report["strangers"] == []
