"""Restarts, crashes, signals, cancellations: everything acknowledged is there, once."""

import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import httpx
import pytest
from tests.e2e.workers import CUT, SECONDS, whole
from tests.support.server import running_server
from tests.support.wire import (
    DONE,
    ZONE,
    Client,
    Json,
    client_of,
    result,
    user,
    without_void,
)

pytestmark = [pytest.mark.anyio, pytest.mark.stores("sqlite")]

COUNTING = user("count to 1000")
"""A message whose answer takes half a minute, longer than any test waits."""


@pytest.fixture
def sqlite(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/passback.db"


# ---------------------------------------------------------------- restarts and crashes
async def test_a_restart_keeps_conversations_and_what_is_owed(
    sqlite: str, conversation: str
) -> None:
    async with running_server("--store", sqlite) as server, client_of(server.url) as client:
        await client.post(conversation, user("hi"))
        asked = await client.post(conversation, user("time zone"), tools=[ZONE])
        before = await client.conversation(conversation)
        server.terminate()
        assert await server.exit_code() == 0
    async with running_server("--store", sqlite) as server, client_of(server.url) as client:
        assert await client.conversation(conversation) == before
        final = await client.post(conversation, result(asked.call.id, "UTC"))
    assert final.text == 'Done. get-time-zone answered: "UTC".'


@pytest.mark.promise("P6", "P10")
async def test_after_a_crash_in_an_answer_the_restarted_server_gives_the_whole_answer(
    store: str, conversation: str
) -> None:
    arguments = ("--store", store, "--timing", "lease=1")
    async with running_server(*arguments) as server, client_of(server.url) as client:
        await client.post(conversation, user("hi"))
        async with client.stream(conversation, [user("count to 50")]) as stream:
            await stream.take(3)
            server.kill()
            seen = await stream.until_cut()
        assert DONE not in seen.types
    async with running_server(*arguments) as server, client_of(server.url) as client:
        with anyio.fail_after(SECONDS):
            answer = await whole(client, conversation)
        assert answer.headers["x-run-id"] == seen.headers["x-run-id"]
        assert answer.types == ["run-start", "text", "run-end", DONE]
        assert answer.text.endswith("49 50 - counted by the demo model.")
        assert (await client.post(conversation, user("count to 3"))).text.startswith("1 2 3")
        messages = [(m["role"], m["content"]) for m in (await client.messages(conversation))[2:]]
    assert messages[:2] == [("user", "count to 50"), ("assistant", answer.text)]
    assert [role for role, _ in messages[2:]] == ["user", "assistant"]


@pytest.mark.promise("P6", "P10")
async def test_a_run_that_too_many_workers_died_of_is_lost_and_the_next_one_begins(
    store: str, conversation: str
) -> None:
    arguments = ("--store", store, "--timing", "lease=1", "--timing", "max_attempts=1")
    async with (
        running_server(*arguments) as server,
        client_of(server.url) as client,
        client.stream(conversation, [user("count to 50")]) as stream,
    ):
        await stream.take(3)
        server.kill()
        seen = await stream.until_cut()
    async with running_server(*arguments) as server, client_of(server.url) as client:
        with anyio.fail_after(SECONDS):
            ended = await client.replay(
                conversation, run_id=seen.headers["x-run-id"], include=["rewind"]
            )
        final_commit_timeout, done = without_void(ended.frames)
        error = final_commit_timeout.event
        assert done.data == DONE
        assert (error["code"], error["retryable"]) == ("lost", True)
        assert (await client.post(conversation, user("count to 3"))).text.startswith("1 2 3")
        roles = [message["role"] for message in await client.messages(conversation)]
    assert roles == ["user", "user", "assistant"]


@pytest.mark.promise("P10")
@pytest.mark.parametrize("kill", [True, False])
async def test_acknowledged_results_survive_whatever_ends_the_server(
    sqlite: str, conversation: str, kill: bool
) -> None:
    arguments = ("--store", sqlite, "--timing", "lease=1")
    async with running_server(*arguments) as server, client_of(server.url) as client:
        asked = await client.post(conversation, user("time zone"), tools=[ZONE])
        given = result(asked.call.id, "UTC")
        async with client.stream(conversation, [given]):
            server.kill() if kill else server.terminate()
            await server.exit_code()
    async with running_server(*arguments) as server, client_of(server.url) as client:
        again = await client.post(conversation, given)
        assert again.status == 200
        roles = [message["role"] for message in await client.messages(conversation)]
    assert roles[:3] == ["user", "assistant", "tool"]
    assert roles.count("tool") == 1


# ---------------------------------------------------------------- signals
@pytest.mark.parametrize("press_ctrl_c", [False, True])
async def test_a_stop_lets_a_short_answer_end_and_exits_0(
    conversation: str, press_ctrl_c: bool
) -> None:
    async with running_server() as server, client_of(server.url) as client:
        async with client.stream(conversation, [user("count to 20")]) as stream:
            await stream.take(2)
            server.interrupt() if press_ctrl_c else server.terminate()
            answer = await stream.whole()
        assert answer.text.endswith("20 - counted by the demo model.")
        assert answer.types == ["text", DONE]
        assert await server.exit_code() == 0


@pytest.mark.promise("P6", "P10")
async def test_an_answer_that_a_stop_breaks_off_is_given_by_the_restarted_server(
    store: str, conversation: str
) -> None:
    arguments = ("--store", store, "--timing", "shutdown_grace=0")
    async with running_server(*arguments) as server, client_of(server.url) as client:
        async with client.stream(conversation, [user("count to 50")]) as stream:
            await stream.take(3)
            server.terminate()
            seen = await stream.whole()
        assert await server.exit_code() == 0
    assert (seen.types, seen.body[-len(CUT) :]) == (["text"], CUT)
    async with running_server(*arguments) as server, client_of(server.url) as client:
        with anyio.fail_after(SECONDS):
            answer = await whole(client, conversation)
        assert answer.headers["x-run-id"] == seen.headers["x-run-id"]
        assert answer.types == ["run-start", "text", "run-end", DONE]
        assert answer.text.endswith("49 50 - counted by the demo model.")
        _, kept = await client.messages(conversation)
    assert (kept["content"], "partial" in kept) == (answer.text, False)


@pytest.mark.promise("P12")
async def test_a_stopping_server_takes_no_new_posts_and_says_so(conversation: str) -> None:
    async with (
        running_server() as server,
        client_of(server.url) as client,
        client.stream(conversation, [user("count to 100")]) as stream,
        _post_begun(server.url, {"messages": [user("hi")]}) as finish,
    ):
        await stream.next()
        server.terminate()
        await client.until_refused()
        answer = await finish()
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b'"code":"shutting_down"' in answer
        assert (await stream.whole()).types == ["text", DONE]


@asynccontextmanager
async def _post_begun(url: str, body: Json) -> AsyncGenerator[Callable[[], Awaitable[bytes]]]:
    """Post a head that the server has read; the yielded function sends the body."""
    address, content = httpx.URL(url), json.dumps(body)
    head = (
        f"POST /send-message HTTP/1.1\r\nHost: {address.host}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(content)}\r\nExpect: 100-continue\r\n\r\n"
    )
    async with await anyio.connect_tcp(address.host, address.port or 80) as connection:

        async def finish() -> bytes:
            await connection.send(content.encode())
            with anyio.fail_after(20):
                return b"".join([chunk async for chunk in connection])

        await connection.send(head.encode())
        with anyio.fail_after(20):
            assert (await connection.receive()).startswith(b"HTTP/1.1 100 ")
        yield finish


async def test_a_second_ctrl_c_ends_a_server_without_waiting_for_its_answers(
    conversation: str,
) -> None:
    async with (
        running_server() as server,
        client_of(server.url) as client,
        client.stream(conversation, [COUNTING]) as stream,
    ):
        await stream.next()
        server.interrupt()
        await client.until_refused()
        server.interrupt()
        with anyio.fail_after(20):
            await server.process.wait()


# ---------------------------------------------------------------- cancel and delete


async def test_a_deleted_conversation_is_gone_with_its_logs(
    client: Client, conversation: str
) -> None:
    answer = await client.post(conversation, user("hi"))
    path = f"/conversations/{conversation}"
    assert (await client.http.delete(path)).status_code == 204
    assert (await client.http.delete(path)).json()["code"] == "conversation_not_found"
    gone = await client.replay(conversation, after=answer.frames[0].id)
    assert (gone.status, gone.json["code"]) == (404, "run_not_found")
    fresh = await client.post(conversation, user("hi"))
    assert fresh.types == ["text", DONE]
    assert (await client.conversation(conversation))["messageCount"] == 2


@pytest.mark.promise("P7")
async def test_a_tool_that_nothing_can_end_holds_up_neither_its_run_nor_the_server(
    store: str, conversation: str
) -> None:
    uncancellable = user(json.dumps({"calls": [["ignore_cancellation", {}]]}))
    async with (
        running_server("tests.support.served_agents:hanging", "--store", store) as server,
        client_of(server.url) as client,
    ):
        async with client.stream(conversation, [uncancellable], include=["run"]) as stream:
            await stream.until("tool-call-args")
            assert (await client.cancel(conversation)).json() == {"cancelled": True}
            seen = await stream.whole()
        assert seen.frames[-2].event == {
            "type": "run-end",
            "outcome": "cancelled",
            "model": "instructed",
        }
        assert (await client.post(conversation, user('{"say": "so"}'))).text == "so"
        server.terminate()
        assert await server.exit_code() == 0
