"""Recordings of runs, as the page exports them, made by hand."""

import json
from typing import Any


def frame(number: int, data: object, at: float = 0, run: str = "run_1") -> dict[str, Any]:
    text = data if isinstance(data, str) else json.dumps(data)
    return {"at": at, "id": f"{run}.1-{number}", "data": text}


def exchange(body: dict[str, Any] | None, *texts: str, run: str = "run_1") -> dict[str, Any]:
    frames = [
        frame(n, {"type": "text", "content": each}, run=run) for n, each in enumerate(texts, 1)
    ]
    return {
        "at": 0,
        "request": {"method": "POST", "path": "/send-message", "headers": {}, "body": body},
        "response": {"status": 200, "headers": {"x-run-id": run}, "body": None},
        "frames": [*frames, frame(len(texts) + 1, "[DONE]", run=run)],
        "cuts": [],
    }


def user(text: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}]}


def result(call: str) -> dict[str, Any]:
    return {"messages": [{"role": "tool", "toolCallId": call, "content": "done"}]}


STARTED = "2026-01-31T12:00:00.250Z"


def recording(*exchanges: dict[str, Any], **change: Any) -> bytes:
    value = {"format": "passback-run", "version": 1, "startedAt": STARTED, "exchanges": exchanges}
    return json.dumps(value | change).encode()
