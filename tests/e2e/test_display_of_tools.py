"""What a client shows of messages and tools: title, kind, files, times and durations, over HTTP."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from tests.support.server import running_server

pytestmark = pytest.mark.anyio

ORDER = {"calls": [["edit_line", json.dumps({"path": "/notes.txt", "line": 3})], ["paint", "{}"]]}
PAINT = {"name": "paint", "title": "Paint it", "parameters": {"type": "object"}}
CALL = {"toolCallName": "edit_line", "title": "Edit a file", "kind": "edit"}


async def post(client: httpx.AsyncClient, conversation: str, **more: Any) -> list[dict[str, Any]]:
    """Order the calls; return the events about calls, without their ids and arguments."""
    message = {"role": "user", "content": json.dumps(ORDER)}
    body = {"conversationId": conversation, "messages": [message], "tools": [PAINT], **more}
    answer = await client.post("/send-message", json=body)
    assert answer.status_code == 200, answer.text
    lines = [line.removeprefix("data: ") for line in answer.text.splitlines()]
    events = [json.loads(line) for line in lines if line.startswith("{")]
    kept = [event for event in events if event["type"] != "tool-call-args"]
    return [{key: event[key] for key in event if key != "toolCallId"} for event in kept]


async def test_stream_and_history_show_titles_files_times_and_durations_to_who_asks() -> None:
    async with (
        running_server("tests.support.served_agents:editing") as server,
        httpx.AsyncClient(base_url=server.url, timeout=30) as client,
    ):
        began = datetime.now(UTC) - timedelta(milliseconds=1)
        shown = await post(client, "shown", include=["tools"])
        plain = await post(client, "plain")
        page = (await client.get("/conversations/shown/messages")).json()
        run_id = (await client.get("/conversations/shown")).json()["runId"]
    duration = next(each.pop("durationMs") for each in shown if each["type"] == "tool-result")
    edited = "line 3 of /notes.txt is edited"
    assert shown == [
        {"type": "tool-call-start", **CALL},
        {"type": "tool-call-start", "toolCallName": "paint", "title": "Paint it"},
        {"type": "tool-call-end"},
        {"type": "tool-begin", "locations": [{"path": "/notes.txt", "line": 3}]},
        {"type": "tool-result", "result": edited},
        {"type": "tool-call-end"},
    ]
    assert plain == [
        {"type": "tool-call-start", "toolCallName": "edit_line"},
        {"type": "tool-call-start", "toolCallName": "paint"},
        {"type": "tool-call-end"},
        {"type": "tool-result", "result": edited},
        {"type": "tool-call-end"},
    ]
    asked, answer, result = page["messages"]
    assert [each["role"] for each in page["messages"]] == ["user", "assistant", "tool"]
    assert {each["runId"] for each in page["messages"]} == {run_id}
    times = [datetime.fromisoformat(each["createdAt"]) for each in page["messages"]]
    in_order = [began, *times, datetime.now(UTC)]
    assert in_order == sorted(in_order)
    assert "durationMs" not in asked
    assert answer["durationMs"] > 0
    assert result["durationMs"] == duration > 0
    calls = [{key: call.get(key) for key in ("title", "kind")} for call in answer["toolCalls"]]
    assert calls == [
        {"title": "Edit a file", "kind": "edit"},
        {"title": "Paint it", "kind": None},
    ]
