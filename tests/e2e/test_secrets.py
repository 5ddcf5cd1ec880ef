"""Keys of models and clients and the store's password never leave the server, whatever fails."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from tests.support.model_server import Act, Reply, calls, event, fails, model_server, says
from tests.support.redis_server import RedisServer, redis_server
from tests.support.server import running_server
from tests.support.wire import COLOR, PATH, client_of, result, user

pytestmark = [pytest.mark.anyio, pytest.mark.redis]

MODEL_KEY = "sk-canary-of-the-model-zx1q"
PASSWORD = "canary-of-the-store-zv7w"
CLIENT_KEY = "canary-of-a-client-zk9y"
CANARIES = ("canary-of-", "zx1q", "zv7w", "zk9y")
FAILURES = ("model_rejected", "half", "unauthenticated", "foreign_host", "store_unavailable")
TATTLING = fails(401, {"error": {"message": f"Incorrect API key provided: {MODEL_KEY}"}})
TATTLING_STREAM = Reply(
    [event(content="half"), {"error": {"message": f"bad key {MODEL_KEY}"}}, Act.CUT]
)
SCRIPT = (
    says("fine"),
    calls(("a", "set-color", '{"color":"blue"}')),
    says("blue"),
    TATTLING,
    TATTLING_STREAM,
    fails(500, {"error": {"message": MODEL_KEY}}),
)


class Listener:
    """Keeps everything that answers say."""

    def __init__(self) -> None:
        self.heard = ""

    async def hear(self, response: httpx.Response) -> None:
        await response.aread()
        self.heard += f"{response.status_code} {response.headers} {response.text}\n"


def check_silence(text: str) -> None:
    leaks = [line for line in text.splitlines() if any(canary in line for canary in CANARIES)]
    assert leaks == []


async def run_session(http: httpx.AsyncClient, conversation: str) -> None:
    """Posts that go well, models that fail, clients that may not."""
    body: dict[str, Any] = {"conversationId": conversation, "messages": [user("go")]}
    await http.post(PATH, json=body)
    asked = await http.post(PATH, json={**body, "tools": [COLOR]})
    call_id = asked.text.split('"toolCallId":"')[1].split('"')[0]
    await http.post(PATH, json={**body, "messages": [result(call_id, "blue")]})
    for _ in range(3):
        await http.post(PATH, json=body)
    for wrong in ("x", CLIENT_KEY[:-1], f"{CLIENT_KEY}x", MODEL_KEY, PASSWORD):
        await http.post(PATH, json=body, headers={"authorization": f"Bearer {wrong}"})
    await http.post(PATH, content=CLIENT_KEY)
    await http.post(PATH, json=body, headers={"host": "evil.example"})
    await http.get(f"/conversations/{conversation}/messages")
    await http.get("/openapi.json")


async def lose_the_store(http: httpx.AsyncClient, redis: RedisServer, conversation: str) -> None:
    """Stall the store, then stop it."""
    redis.pause()
    await http.get("/readyz")
    redis.resume()
    redis.stop()
    await http.post(PATH, json={"conversationId": conversation, "messages": [user("go")]})
    await http.get(f"/conversations/{conversation}")
    await http.get("/readyz")


@pytest.mark.timeout(120)
async def test_a_session_full_of_failures_with_the_log_at_debug_tells_no_secret(
    tmp_path: Path, conversation: str
) -> None:
    listener = Listener()
    log = tmp_path / "log"
    with redis_server(tmp_path, f"--requirepass {PASSWORD}") as redis, log.open("wb") as stderr:
        async with model_server(*SCRIPT) as model:
            environment = {
                "PASSBACK_STORE": f"redis://:{PASSWORD}@127.0.0.1:{redis.port}/0",
                "PASSBACK_MODEL": "openai:mock",
                "PASSBACK_MODEL_BASE_URL": model.base_url,
                "PASSBACK_MODEL_API_KEY": MODEL_KEY,
                "PASSBACK_API_KEYS": f"ann:{CLIENT_KEY}",
                "PASSBACK_LOG_LEVEL": "debug",
            }
            store = ("--store", environment["PASSBACK_STORE"])
            checked = await passback("check", environment)
            async with (
                running_server(*store, environment=environment, stderr=stderr) as server,
                client_of(server.url, key=CLIENT_KEY) as client,
            ):
                client.http.event_hooks["response"] = [listener.hear]
                await run_session(client.http, conversation)
                await lose_the_store(client.http, redis, conversation)
                checked += await passback("check", environment)
                assert server.process.stdout is not None
                server.terminate()
                printed = b"".join([chunk async for chunk in server.process.stdout]).decode()
    assert model.requests[0].headers["authorization"] == f"Bearer {MODEL_KEY}"
    assert [word for word in FAILURES if word not in listener.heard] == []
    assert "run failed: model_rejected" in log.read_text()
    for text in (listener.heard, server.banner + printed, log.read_text(), checked):
        check_silence(text)


async def passback(command: str, environment: Mapping[str, str]) -> str:
    """Everything that a command prints."""
    inherited = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    with anyio.fail_after(40):
        done = await anyio.run_process(
            [sys.executable, "-m", "passback", command],
            env={**inherited, **environment},
            check=False,
            stderr=subprocess.STDOUT,
        )
    text = done.stdout.decode()
    assert text
    return text


@pytest.mark.parametrize(
    "settings",
    [
        {"PASSBACK_STORE": f"redis://:{PASSWORD}@127.0.0.1:notaport/0"},
        {"PASSBACK_STORE": f"redis://:{PASSWORD}@127.0.0.1:1/0"},
        {"PASSBACK_LIMITS": PASSWORD},
        {"PASSBACK_API_KEYS": CLIENT_KEY},
        {"PASSBACK_MODEL_API_KEY": f"{MODEL_KEY}\n", "PASSBACK_MODEL": "openai:mock"},
        {"PASSBACK_MODEL_BASE_URL": f"ftp://ann:{PASSWORD}@x", "PASSBACK_MODEL": "openai:mock"},
    ],
    ids=str,
)
async def test_wrong_settings_are_named_and_not_shown(
    settings: dict[str, str], tmp_path: Path
) -> None:
    environment = {"XDG_STATE_HOME": str(tmp_path)} | settings
    text = await passback("check", environment)
    check_silence(text)
    assert "Traceback" not in text
