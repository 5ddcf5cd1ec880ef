"""`passback serve --workers`: one address, several processes, and what becomes of them."""

import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
import httpx
import pytest
from tests.e2e.worker_processes import WorkerProcesses, command_line, worker_processes
from tests.e2e.workers import CUT, LEASE, SECONDS, whole
from tests.support.server import running_server
from tests.support.wire import DONE, ZONE, client_of, merged, result, user

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.stores("sqlite"),
    pytest.mark.timeout(120),
    pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc"),
]

COUNTING = "count to 1000"
"""A message whose answer takes half a minute, longer than any test waits."""


@pytest.fixture(scope="module")
async def two(store: str) -> AsyncGenerator[WorkerProcesses]:
    """Workers that no test ends."""
    async with worker_processes(2, "--store", store) as two:
        yield two


@pytest.fixture
def sqlite(tmp_path: Path) -> tuple[str, str]:
    return "--store", f"sqlite:///{tmp_path}/passback.db"


# ---------------------------------------------------------------- their settings
async def test_workers_have_the_settings_of_the_env_file_and_of_secrets_files(
    tmp_path: Path, sqlite: tuple[str, str]
) -> None:
    key = "a-key-of-16-letters"
    (tmp_path / "keys").write_text(f"ann:{key}\n")
    (tmp_path / ".env").write_text("PASSBACK_WORKERS=2\nPASSBACK_API_KEYS_FILE=keys\n")
    async with running_server(*sqlite, cwd=str(tmp_path)) as server:
        assert "\n  workers 2\n" in server.banner
        async with httpx.AsyncClient(base_url=server.url) as client:
            refused = await client.get("/commands")
            held = {"Authorization": f"Bearer {key}"}
            taken = await client.get("/commands", headers=held)
    assert (refused.status_code, taken.status_code) == (401, 200)


# ---------------------------------------------------------------- one address
@pytest.mark.promise("P1")
async def test_each_worker_answers_at_the_one_address_and_goes_on_where_another_stopped(
    two: WorkerProcesses, conversation: str
) -> None:
    one, other = two.pids
    async with two.client_at(one) as client:
        asked = await client.post(conversation, user("time zone"), tools=[ZONE])
    async with two.client_at(other) as client:
        answer = await client.post(conversation, result(asked.call.id, "UTC"))
    assert answer.text == 'Done. get-time-zone answered: "UTC".'


@pytest.mark.promise("P3", "P7")
async def test_a_run_of_one_worker_is_followed_live_and_cancelled_at_another(
    two: WorkerProcesses, conversation: str
) -> None:
    one, other = two.pids
    async with (
        two.post(one, conversation, COUNTING) as stream,
        two.at(other, lambda client: client.follow(conversation)) as followed,
    ):
        await stream.take(3)
        await followed.take(3)
        async with client_of(two.server.url) as client:
            assert (await client.cancel(conversation)).json() == {"cancelled": True}
        seen, followed_to_end = await stream.whole(), await followed.whole()
    assert seen.types == ["text", DONE]
    assert merged(seen.frames) == merged(followed_to_end.frames)


async def test_flags_reach_the_workers_and_are_on_no_command_line_of_theirs(
    sqlite: tuple[str, str],
) -> None:
    async with worker_processes(2, *sqlite, "--api-keys", "ann:canary-of-a-client") as two:
        for pid in two.pids:
            assert "canary" not in command_line(pid)
            async with two.client_at(pid, key="canary-of-a-client") as ann:
                assert (await ann.http.get("/tool-calls?status=owed")).status_code == 200


# ---------------------------------------------------------------- workers that end by themselves
@pytest.mark.promise("P6", "P10")
async def test_a_worker_killed_in_an_answer_loses_nothing_and_another_one_comes(
    store: str, conversation: str
) -> None:
    async with worker_processes(2, "--store", store, "--timing", f"lease={LEASE}") as two:
        killed = two.pids[0]
        async with two.post(killed, conversation, "count to 50") as stream:
            await stream.take(3)
            os.kill(killed, signal.SIGKILL)
            seen = await stream.until_cut()
        assert DONE not in seen.types
        async with client_of(two.server.url) as client:
            with anyio.fail_after(SECONDS):
                answer = await whole(client, conversation)
        assert answer.headers["x-run-id"] == seen.headers["x-run-id"]
        assert answer.types == ["run-start", "text", "run-end", DONE]
        assert answer.text.endswith("49 50 - counted by the demo model.")
        await two.until_ready(3)
        assert "worker ended by itself (SIGKILL), another one starts in 0.25 s" in two.log
        assert f"action=worker_ended pid={killed}\n" in two.log
        async with two.post(two.pids[2], conversation, "hi") as stream:
            assert (await stream.whole()).text.startswith("Hello!")


# ---------------------------------------------------------------- stops
@pytest.mark.parametrize("press_ctrl_c", [False, True])
async def test_a_stop_lets_short_answers_of_all_workers_end_and_leaves_no_process(
    sqlite: tuple[str, str], press_ctrl_c: bool
) -> None:
    """The banner came once."""
    async with worker_processes(2, *sqlite) as two:
        async with (
            two.post(two.pids[0], "one", "count to 20") as first,
            two.post(two.pids[1], "other", "count to 20") as second,
        ):
            await first.next()
            await second.next()
            two.server.interrupt() if press_ctrl_c else two.server.terminate()
            answers = [await first.whole(), await second.whole()]
        for answer in answers:
            assert answer.text.endswith("20 - counted by the demo model.")
            assert answer.types == ["text", DONE]
        assert two.server.process.stdout is not None
        assert [chunk async for chunk in two.server.process.stdout] == []
        assert await two.server.exit_code() == 0
        await two.until_all_are_gone()


@pytest.mark.promise("P6", "P10")
async def test_an_answer_that_a_stop_breaks_off_is_given_after_the_next_start(
    store: str, conversation: str
) -> None:
    flags = ("--store", store, "--timing", "shutdown_grace=0")
    async with worker_processes(2, *flags) as two:
        async with (
            client_of(two.server.url) as client,
            client.stream(conversation, [user("count to 50")]) as stream,
        ):
            await stream.take(3)
            two.server.terminate()
            seen = await stream.whole()
        assert await two.server.exit_code() == 0
        await two.until_all_are_gone()
    assert (seen.types[-1], seen.body[-len(CUT) :]) == ("text", CUT)
    async with worker_processes(2, *flags) as two, client_of(two.server.url) as client:
        with anyio.fail_after(SECONDS):
            answer = await whole(client, conversation)
    assert answer.headers["x-run-id"] == seen.headers["x-run-id"]
    assert answer.text.endswith("49 50 - counted by the demo model.")


async def test_a_second_ctrl_c_ends_all_workers_without_waiting_for_their_answers(
    sqlite: tuple[str, str],
) -> None:
    async with (
        worker_processes(2, *sqlite, "--timing", "shutdown_grace=600") as two,
        two.post(two.pids[0], "one", COUNTING) as first,
        two.post(two.pids[1], "other", COUNTING) as second,
    ):
        await first.next()
        await second.next()
        two.server.interrupt()
        async with client_of(two.server.url) as client:
            await client.until_refused()
        two.server.interrupt()
        await two.server.exit_code()
        await two.until_all_are_gone()


async def test_ctrl_c_while_workers_are_starting_is_a_stop_like_any_other(
    sqlite: tuple[str, str],
) -> None:
    flags = ("--workers", "3", *sqlite)
    async with running_server(*flags, stderr=subprocess.PIPE) as server:
        starting = WorkerProcesses(server)
        server.interrupt()
        assert await server.exit_code() == 0
        await starting.until_all_are_gone()
    assert starting.log == ""


async def test_workers_are_in_no_terminals_group_so_that_ctrl_c_comes_to_them_once(
    two: WorkerProcesses,
) -> None:
    assert [os.getpgid(pid) for pid in two.pids] == two.pids


async def test_workers_whose_keeper_is_killed_stop_as_if_they_were_asked_to(
    sqlite: tuple[str, str],
) -> None:
    async with worker_processes(2, *sqlite, "--timing", "shutdown_grace=0") as two:
        async with (
            two.post(two.pids[0], "one", COUNTING) as first,
            two.post(two.pids[1], "other", COUNTING) as second,
        ):
            await first.next()
            await second.next()
            two.server.kill()
            answers = [await first.whole(), await second.whole()]
        assert [answer.body[-len(CUT) :] for answer in answers] == [CUT, CUT]
        await two.until_all_are_gone()
    assert two.log.count("the process that keeps the workers is gone: stopping") == 2
