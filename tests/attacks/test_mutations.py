"""Thousands of nearly right requests on all routes: no 500, and no traceback in the log."""

import json
import random
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.attacks.raw import HOST, Connection, Response, connected
from tests.support import agent_api, ai_sdk
from tests.support.server import running_server
from tests.support.wire import PATH, client_tool, result, user

pytestmark = [pytest.mark.anyio, pytest.mark.promise("P12")]

ROOT = Path(__file__).resolve().parents[2]
BASES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    (
        "POST",
        PATH,
        {"conversationId": "m-1", "messages": [user("hi")], "tools": [client_tool("a")]},
    ),
    (
        "POST",
        PATH,
        {"conversationId": "m-2", "messages": [user("use a")], "tools": [client_tool("a")]},
    ),
    ("POST", PATH, {"conversationId": "m-2", "messages": [result("call_1", "x")]}),
    (
        "POST",
        PATH,
        {
            "conversationId": "m-1",
            "resume": [{"interruptId": "call_1", "payload": {"approved": True}}],
        },
    ),
    (
        "POST",
        f"{PATH}?wait=true",
        {
            "messages": [
                user([{"type": "text", "text": "hi"}, {"type": "data", "data": {"a": [1]}}])
            ],
            "structuredData": {"rows": [{"a": 1}]},
            "intent": "i",
            "constraints": ["c"],
            "instructions": "s",
            "include": ["run", "owed"],
            "onBusy": "enqueue",
        },
    ),
    ("POST", "/process", {"session_id": "m-3", "input": [agent_api.user("hi")]}),
    (
        "POST",
        "/process",
        {"session_id": "m-3", "input": [agent_api.output("call_1", "x")], "stream": False},
    ),
    ("POST", "/process", {"session_id": "m-1", "input": [agent_api.decision("call_1", True)]}),
    ("POST", ai_sdk.API, {"id": "m-5", "messages": [ai_sdk.user("hi")], "tools": [{"name": "a"}]}),
    (
        "POST",
        ai_sdk.API,
        {
            "id": "m-5",
            "message": ai_sdk.agent(
                ai_sdk.tool_part("output-available", output=1),
                ai_sdk.tool_part("approval-responded", approval={"id": "call_1", "approved": True}),
            ),
        },
    ),
    ("POST", ai_sdk.API, {"id": "m-1", "trigger": "regenerate-message", "messageId": "run_1"}),
    (
        "POST",
        "/ag-ui",
        {
            "threadId": "m-4",
            "runId": "run-1",
            "protocolVersion": "1.0",
            "messages": [
                {"id": "u", "role": "user", "content": [{"type": "text", "text": "hi"}]},
                {"id": "t", "role": "tool", "toolCallId": "call_1", "content": "x", "error": "no"},
            ],
            "tools": [{"name": "f", "description": "d", "parameters": {"type": "object"}}],
            "context": [{"description": "d", "value": "v"}],
            "state": {"a": 1},
            "forwardedProps": {"passback": {"onBusy": "enqueue"}},
        },
    ),
    (
        "POST",
        "/ag-ui",
        {
            "threadId": "m-1",
            "runId": "run-2",
            "messages": [{"id": "u", "role": "user", "content": "hi"}],
            "resume": [{"interruptId": "call_1", "status": "resolved", "payload": True}],
        },
    ),
    ("GET", "/ag-ui/threads/m-1/stream?runId=r&lastEventId=run_1.1-1", {}),
    ("POST", "/conversations/m-1/tool-calls/call_1/claim", {"claimant": "me", "seconds": 5}),
    ("POST", "/conversations/m-1/cancel", {"runId": "run_1"}),
    ("GET", "/conversations/m-1/messages?after=0&limit=10", {}),
    ("GET", "/tool-calls?status=owed&limit=5&after=1-a", {}),
    ("GET", "/conversations?limit=5&after=1-a&search=hi", {}),
    ("PATCH", "/conversations/m-1", {"title": "a title"}),
    ("DELETE", "/conversations/m-1/tool-calls/call_1/claim?claimant=me", {}),
    ("DELETE", "/conversations/m-4", {}),
)
VALUES: tuple[Any, ...] = (
    *(
        None,
        True,
        0,
        -1,
        1.5,
        2**63,
        10**400,
        1e308,
        "",
        " ",
        "\x00",
        "\u2028",
        "\U0001f600",
        "a" * 300,
    ),
    *(
        [],
        {},
        [[]],
        [None],
        {"": ""},
        {"a": {"a": []}},
        [{}] * 3,
        "__proto__",
        "../..",
        "{}",
        "[DONE]",
    ),
)
SEED, CONNECTIONS, EACH = 20, 4, 600


def mutated(chance: random.Random) -> bytes:
    """One of the requests, changed in some places."""
    method, path, body = chance.choice(BASES)
    changed = json.loads(json.dumps(body))
    for _ in range(chance.randrange(1, 4)):
        _change(chance, changed)
    content = json.dumps(changed, ensure_ascii=chance.random() < 0.5).encode("utf-8", "replace")
    if chance.random() < 0.3:
        content = _damaged(chance, content)
    if chance.random() < 0.3:
        path = _readdressed(chance, path)
    head = f"{method} {path} HTTP/1.1\r\n".encode() + HOST
    head += b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(content)
    return head + content


def _change(chance: random.Random, body: Any) -> None:
    """Another value somewhere inside, one fewer or one more."""
    places = list(_places(body))
    if not places:
        return
    holder, key = chance.choice(places)
    match chance.randrange(4):
        case 0:
            del holder[key]
        case 1 if isinstance(holder, dict):
            holder[f"{key}{chance.choice('sX_')}"] = deepcopy(chance.choice(VALUES))
        case 2 if isinstance(holder, list):
            times = chance.choice((1, 3, 1200))
            holder.extend(deepcopy(holder[key]) for _ in range(times))
        case _:
            holder[key] = deepcopy(chance.choice(VALUES))


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    if not isinstance(value, dict | list):
        return
    for key in value if isinstance(value, dict) else range(len(value)):
        yield value, key
        yield from _places(value[key])


def _damaged(chance: random.Random, content: bytes) -> bytes:
    at = chance.randrange(len(content) + 1)
    match chance.randrange(3):
        case 0:
            return content[:at]
        case 1:
            return content[:at] + bytes([chance.randrange(256)]) + content[at:]
        case _:
            return content[:at] + bytes([chance.randrange(256)]) + content[at + 1 :]


def _readdressed(chance: random.Random, path: str) -> str:
    """Replace characters, percent-encoded where they could end the line."""
    at = chance.randrange(1, len(path))
    added = chance.choice(
        ("%00", "%ff", "%0d%0a", "/", "..", "%2f", "&a=1", "=", "?", "%", "x" * 300)
    )
    return path[:at] + added + path[at + chance.randrange(2) :]


@pytest.mark.timeout(120)
async def test_thousands_of_mutated_requests_make_no_500_and_no_traceback(tmp_path: Path) -> None:
    """The sample follows from SEED; another one makes another sample."""
    log = tmp_path / "log"
    agent = ("tests.attacks.agent:agent", "--model", "demo:fast")
    with log.open("wb") as stderr:
        async with running_server(*agent, cwd=str(ROOT), stderr=stderr) as server:
            await _attacked(server.url)
    assert "Traceback" not in log.read_text()


async def _attacked(url: str) -> None:
    failed: list[tuple[bytes, Response | None]] = []
    counts: dict[int, int] = {}

    async def attack(number: int) -> None:
        chance = random.Random(SEED + number)
        contents = [mutated(chance) for _ in range(EACH)]
        while contents:
            async with connected(url, seconds=60) as connection:
                await _send(connection, contents, failed, counts)

    async with anyio.create_task_group() as tasks:
        for number in range(CONNECTIONS):
            tasks.start_soon(attack, number)
    assert failed == []
    assert counts.keys() >= {200, 400, 404, 422}  # they reach what is behind the first look


async def _send(
    connection: Connection,
    contents: list[bytes],
    failed: list[tuple[bytes, Response | None]],
    counts: dict[int, int],
) -> None:
    """Send what is left, until the server closes the connection."""
    while contents:
        content = contents.pop()
        await connection.send(content)
        answer = await connection.response()
        if answer is None or answer.status >= 500:
            failed.append((content, answer))
        if answer is None:
            return
        counts[answer.status] = counts.get(answer.status, 0) + 1
        if answer.headers.get("connection") == "close":
            return
