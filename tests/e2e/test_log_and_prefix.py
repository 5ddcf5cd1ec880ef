"""First contact: pages of another origin, the log, a proxy's path, tools of others."""

import json
from pathlib import Path

import anyio
import pytest
from tests.attacks.raw import answers_to
from tests.e2e.prefix_proxy import prefixed
from tests.support.server import Server, running_server
from tests.support.wire import PATH, Client, client_of, user

pytestmark = pytest.mark.anyio

KEY = "open-sesame-0123456789"
WORDS = "a tulip that nobody logs"
PREFIX = "/agents"


async def test_the_log_of_a_server_tells_each_request_as_json_and_no_secret(tmp_path: Path) -> None:
    log = tmp_path / "log"
    flags = ("--log-format", "json", "--log-level", "info", "--api-keys", f"ann:{KEY}")
    with log.open("wb") as stderr:
        async with (
            running_server("--model", "demo:fast", *flags, stderr=stderr) as server,
            client_of(server.url, key=KEY) as client,
        ):
            assert "  origins http://localhost:PORT" in server.banner
            for _ in range(2):
                await client.http.get("/healthz", headers={"origin": "http://app.example"})
            await client.http.get("/conversations/c", headers={"authorization": "Bearer wrong"})
            await client.http.get(f"/conversations/{WORDS}?order=desc")
            await client.post("c", user(WORDS))
            await answers_to(server.url, b"no request\r\n\r\n")
            server.terminate()
            assert await server.exit_code() == 0
    text = log.read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    assert not [secret for secret in (KEY, "tulip", "wrong", "order") if secret in text]
    asked = [
        (line.get("method"), line.get("route"), line["status"], line.get("code"), line.get("owner"))
        for line in lines
        if line["message"] == "request"
    ]
    assert asked == [
        *[("GET", "/healthz", 403, "foreign_origin", None)] * 2,
        ("GET", "/conversations/{id}", 401, "unauthenticated", None),
        ("GET", "/conversations/{id}", 422, "invalid_request", "ann"),
        ("POST", "/send-message", 200, None, "ann"),
        (None, None, 400, "bad_request", None),
    ]
    refused = [line["message"] for line in lines if line["logger"] == "passback.http.gate"]
    assert refused == [
        "refused the origin http://app.example: to allow it, list it in PASSBACK_ALLOWED_ORIGINS"
    ]
    assert {line["logger"].partition(".")[0] for line in lines} == {"passback", "uvicorn"}


async def test_where_to_wait_again_survives_a_proxy_that_strips_a_prefix(
    slow: Server,
) -> None:
    async with (
        prefixed(slow.url, PREFIX) as url,
        client_of(url) as client,
        anyio.create_task_group() as tasks,
    ):

        async def check(path: str, name: str) -> None:
            post = {"conversationId": name, "messages": [user("count to 40")]}
            waits = await client.http.post(f"{url}{path}?wait=1", json=post)
            assert waits.status_code == 202
            follow = waits.url.join(waits.json()["follow"])
            assert (follow.path, follow) == (
                f"{PREFIX}/conversations/{name}/stream",
                waits.url.join(waits.headers["location"]),
            )
            answer = await client.http.get(follow.copy_add_param("wait", "true"))
            assert answer.json()["text"].startswith("1 2 3 ")

        for path in (PATH, "/v1/aibot/bots/default/send-message"):
            tasks.start_soon(check, path, path.strip("/").replace("/", "-"))


async def test_a_tool_that_chat_completions_would_take_is_called(
    client: Client, conversation: str
) -> None:
    parameters = {
        "type": "object",
        "properties": {"color": {"type": "string"}},
        "required": ["color"],
    }
    tool = {"type": "function", "function": {"name": "set-color", "parameters": parameters}}
    answer = await client.post(conversation, user("Say it with set-color: blue."), tools=[tool])
    assert (answer.call.name, answer.call.arguments) == ("set-color", {"color": "blue"})
