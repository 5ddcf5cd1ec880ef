"""The pool of several workers, with small programs as workers; and turns of owners."""

import json
import logging
import os
import signal
import socket
import sys
from collections.abc import Generator, Sequence
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from typing_extensions import override

from passback.core.errors import ConfigurationError
from passback.core.messages import ConversationId, ConversationKey, OwnerId
from passback.pacing import FairLimiter
from passback.settings import load_settings
from passback.workers import (
    EXIT_FAILED,
    RestartPolicy,
    WorkerConfig,
    WorkerPool,
    refuse_unshared_settings,
    take_slot,
)

pytestmark = pytest.mark.anyio


SOON = RestartPolicy(pause=0.001, longest_pause=0.002, steady=60, failed_starts=3)
BEGIN = """
import os, signal, socket, sys, threading
from pathlib import Path

line = socket.socket(fileno=int(sys.argv[2]))
starts = Path("starts")
starts.open("a").write("x")
"""
READY = "line.sendall(b'ready\\n')\n"
WAIT = "signal.pause()\n"
ONCE = "if len(starts.read_text()) > 1: sys.exit(7)\n"
TWICE = "if len(starts.read_text()) > 2: os.kill(os.getppid(), signal.SIGTERM)\n"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def listening(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[socket.socket]:
    monkeypatch.chdir(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


async def run_pool(
    listening: socket.socket,
    *lines: str,
    count: int = 1,
    stop_timeout: float = 60,
    policy: RestartPolicy = SOON,
) -> int:
    """Run a pool of a program to its end; return the exit code."""
    command = (sys.executable, "-c", BEGIN + "".join(lines))
    config = WorkerConfig(argv=(), variables={}, agents=(), stop_timeout=stop_timeout)
    with anyio.fail_after(30):
        return await WorkerPool(listening, config, command=command, pace=policy).run(count)


def starts() -> int:
    return len(Path("starts").read_text())


# ---------------------------------------------------------------- starts
@pytest.mark.parametrize(
    ("end", "code", "logged"),
    [
        ("sys.exit(2)", 2, []),
        ("sys.exit(0)", 0, []),
        (
            "os.kill(os.getpid(), signal.SIGKILL)",
            128 + signal.SIGKILL,
            ["the first worker ended before it was ready (SIGKILL)"],
        ),
    ],
)
async def test_a_first_worker_that_cannot_start_is_not_tried_again(
    listening: socket.socket,
    caplog: pytest.LogCaptureFixture,
    end: str,
    code: int,
    logged: list[str],
) -> None:
    assert await run_pool(listening, end, count=3) == code
    assert starts() == 1
    assert caplog.messages == logged


async def test_a_missing_program_is_an_error(
    listening: socket.socket, caplog: pytest.LogCaptureFixture
) -> None:
    config = WorkerConfig(argv=(), variables={}, agents=(), stop_timeout=60)
    assert await WorkerPool(listening, config, command=["./nosuch"]).run(2) == EXIT_FAILED
    assert caplog.messages == ["a worker cannot be started: No such file or directory"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_stop_before_the_first_worker_is_ready_ends_it_without_a_log(
    listening: socket.socket, caplog: pytest.LogCaptureFixture, number: signal.Signals
) -> None:
    code = await run_pool(listening, f"os.kill(os.getppid(), {number.value})\n", WAIT, count=3)
    assert code == 128 + number
    assert starts() == 1
    assert caplog.messages == []


async def test_a_worker_ready_after_the_stop_is_awaited(listening: socket.socket) -> None:
    send_stop = "os.kill(os.getppid(), signal.SIGTERM)\nsignal.sigwait({signal.SIGTERM})\n"
    block_stop = "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})\n"
    finish = "sum(range(10**7))\nstarts.write_text('done')\n"
    assert await run_pool(listening, block_stop, send_stop, READY, finish) == 0
    assert starts() == len("done")


async def test_after_repeated_failed_starts_all_workers_are_stopped(
    listening: socket.socket, caplog: pytest.LogCaptureFixture
) -> None:
    assert await run_pool(listening, ONCE, READY, WAIT, count=2) == EXIT_FAILED
    assert starts() == 1 + SOON.failed_starts
    assert caplog.messages == [
        "worker ended by itself (exit code 7), another one starts in 0.001 s",
        "worker ended by itself (exit code 7), another one starts in 0.002 s",
        "workers end again and again before they are ready, the last one by exit code 7: stopping",
    ]


# ---------------------------------------------------------------- ends
async def test_the_pause_before_a_new_worker_grows_to_its_bound(
    listening: socket.socket, caplog: pytest.LogCaptureFixture
) -> None:
    policy = RestartPolicy(pause=0.001, longest_pause=0.003, steady=60)
    enough = (
        "if len(starts.read_text()) > 4: os.kill(os.getppid(), signal.SIGTERM); signal.pause()\n"
    )
    assert await run_pool(listening, READY, enough, "sys.exit(3)", policy=policy) == 0
    pauses = [message.rpartition("another one starts in ")[2] for message in caplog.messages]
    assert pauses == ["0.001 s", "0.002 s", "0.003 s", "0.003 s"]


async def test_the_end_of_a_worker_that_ran_long_resets_the_pause(
    listening: socket.socket, caplog: pytest.LogCaptureFixture
) -> None:
    policy = RestartPolicy(pause=0.001, steady=0)
    await run_pool(listening, READY, TWICE, "sys.exit(3)", policy=policy)
    assert {message.rpartition("another one starts in ")[2] for message in caplog.messages} == {
        "0.001 s"
    }


async def test_a_stop_during_the_pause_starts_no_worker(
    listening: socket.socket, caplog: pytest.LogCaptureFixture
) -> None:
    policy = RestartPolicy(pause=3600, longest_pause=3600)
    with caplog.filtering(_StopOnLog()):
        assert await run_pool(listening, READY, "sys.exit(3)", policy=policy) == 0
    assert starts() == 1


class _StopOnLog(logging.Filter):
    """Send a stop with each line of the log."""

    @override
    def filter(self, record: logging.LogRecord) -> bool:
        os.kill(os.getpid(), signal.SIGTERM)
        return True


async def test_a_worker_that_ignores_a_stop_is_killed(
    listening: socket.socket, caplog: pytest.LogCaptureFixture
) -> None:
    ignore_stop = "signal.signal(signal.SIGTERM, lambda *_: None)\n"
    send_stop = "os.kill(os.getppid(), signal.SIGTERM)\n"
    code = await run_pool(
        listening, ignore_stop, READY, send_stop, f"while True: {WAIT}", stop_timeout=0.1
    )
    assert code == EXIT_FAILED
    assert caplog.messages == ["worker killed: it does not end"]


async def test_nobody_can_connect_after_a_stop(listening: socket.socket) -> None:
    address = listening.getsockname()
    assert await run_pool(listening, READY, "os.kill(os.getppid(), signal.SIGTERM)\n", WAIT) == 0
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address)


# ---------------------------------------------------------------- a worker's side
async def test_a_worker_ends_if_its_pool_is_gone_before_its_config_arrives(
    listening: socket.socket,
) -> None:
    ours, theirs = socket.socketpair()
    ours.close()
    numbers = (os.dup(listening.fileno()), theirs.detach())
    with pytest.raises(SystemExit, match=str(EXIT_FAILED)), take_slot(*numbers):
        pass


async def test_a_slot_has_its_config_and_its_files_are_not_inherited(
    listening: socket.socket,
) -> None:
    ours, theirs = socket.socketpair()
    config = {
        "argv": ["passback"],
        "variables": {"PASSBACK_PORT": "1"},
        "agents": [],
        "stop_timeout": 1,
    }
    numbers = (os.dup(listening.fileno()), theirs.detach())
    for number in numbers:
        os.set_inheritable(number, True)
    with ours:
        ours.sendall(json.dumps(config).encode() + b"\n")
        with take_slot(*numbers) as slot:
            slot.ready()
            assert ours.recv(100) == b"ready\n"
            assert slot.order == WorkerConfig(["passback"], {"PASSBACK_PORT": "1"}, [], 1)
            assert slot.listening.getsockname() == listening.getsockname()
            assert [os.get_inheritable(number) for number in numbers] == [False, False]


# ---------------------------------------------------------------- settings of several workers
@pytest.mark.parametrize("store", ["memory:", "MEMORY:", "memory:///"])
async def test_several_workers_cannot_use_a_store_in_memory(store: str) -> None:
    with pytest.raises(ConfigurationError, match="several workers cannot share the store"):
        refuse_unshared_settings(load_settings({"PASSBACK_STORE": store, "PASSBACK_WORKERS": "2"}))
    refuse_unshared_settings(load_settings({"PASSBACK_STORE": store}))
    refuse_unshared_settings(load_settings({"PASSBACK_WORKERS": "2"}))


async def test_windows_has_one_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(ConfigurationError, match="on Windows one process serves an address"):
        refuse_unshared_settings(load_settings({"PASSBACK_WORKERS": "2"}))


# ---------------------------------------------------------------- turns of owners
class Work:
    """Work that ends when a test says so; `begun` has the owners and conversations, as `a1`."""

    def __init__(self, limiter: FairLimiter) -> None:
        self.begun: list[str] = []
        self._limiter = limiter
        self.ends: list[anyio.Event] = []

    async def do(self, name: str) -> None:
        key = ConversationKey(OwnerId(name[0]), ConversationId(name[1]))
        async with self._limiter.acquire(key):
            self.begun.append(name)
            end = anyio.Event()
            self.ends.append(end)
            await end.wait()

    async def end(self, number: int) -> None:
        self.ends[number].set()
        await anyio.wait_all_tasks_blocked()


async def turns(limiter: FairLimiter, wanted: Sequence[str], at_once: int) -> list[str]:
    """Return the order in which work begins if `at_once` pieces begin, and then end in order."""
    work = Work(limiter)
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            for name in wanted:
                tasks.start_soon(work.do, name)
                await anyio.wait_all_tasks_blocked()
            assert len(work.begun) == at_once
            for number in range(len(wanted)):
                await work.end(number)
    return work.begun


@pytest.mark.parametrize(
    ("number", "wanted", "at_once", "begun"),
    [
        # one place: owners take turns
        (1, "a1 a1 a1 b1 b1 c1", 1, "a1 b1 c1 a1 b1 a1"),
        # and so do the conversations of one
        (1, "a1 a1 a1 a2 a3", 1, "a1 a2 a3 a1 a1"),
        # one owner never has all of several places
        (2, "a1 a1 a1 b1 b1", 2, "a1 b1 a1 b1 a1"),
        (3, "a1 a2 a3 a4 b1 c1", 3, "a1 a2 b1 c1 a3 a4"),
        # otherwise the first to come is the first to begin
        (2, "a1 b1 c1 d1", 2, "a1 b1 c1 d1"),
    ],
)
@pytest.mark.promise("P11")
async def test_owners_take_turns(number: int, wanted: str, at_once: int, begun: str) -> None:
    assert await turns(FairLimiter(number, 5.0), wanted.split(), at_once) == begun.split()


@pytest.mark.promise("P11")
async def test_a_place_given_to_cancelled_work_goes_to_the_next() -> None:
    limiter = FairLimiter(1, 5.0)
    work = Work(limiter)
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(work.do, "a1")
            await anyio.wait_all_tasks_blocked()
            async with anyio.create_task_group() as others:
                others.start_soon(work.do, "b1")
                others.start_soon(work.do, "b2")
                await anyio.wait_all_tasks_blocked()
                work.ends[0].set()
                await anyio.lowlevel.checkpoint()
                others.cancel_scope.cancel()
            tasks.start_soon(work.do, "c1")
            await anyio.wait_all_tasks_blocked()
            assert work.begun[-1] == "c1"
            await work.end(len(work.begun) - 1)


@pytest.mark.promise("P11")
async def test_waiting_too_long_is_a_timeout_that_blocks_no_others() -> None:
    limiter = FairLimiter(1, 0.0)
    key = ConversationKey(OwnerId("a"), ConversationId("1"))
    async with limiter.acquire(key):
        with pytest.raises(TimeoutError):
            async with limiter.acquire(key):
                raise AssertionError("there is no second place")
    async with limiter.acquire(key):
        pass


@pytest.mark.promise("P11")
async def test_the_number_of_waiters_of_an_owner_is_limited() -> None:
    work = Work(FairLimiter(1, 60, most_waiting=2))
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            for name in ("a1", "a2", "a3", "b1"):
                tasks.start_soon(work.do, name)
                await anyio.wait_all_tasks_blocked()
            with pytest.raises(TimeoutError):
                await work.do("a4")
            for number in range(4):
                await work.end(number)
    assert sorted(work.begun) == ["a1", "a2", "a3", "b1"]
