"""`passback acp` with a small protocol in the place of ACP: its streams, its end, its exit codes."""

import itertools
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import pytest
from anyio.streams.buffered import BufferedByteReceiveStream
from anyio.streams.text import TextReceiveStream
from tests.support import stdio_agent
from tests.support.ledgers import open_ledger
from tests.support.waiting import pause, wait_until

from passback.agent import Agent
from passback.commands.acp import ServeClient, serve_stdio
from passback.core.messages import ConversationId, ConversationKey, OwnerId
from passback.http.wires import Services
from passback.models.scripted import ScriptedModel, says
from passback.settings import load_settings
from passback.streams.jsonrpc import Channel
from passback.streams.stdio import StdioFiles

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[3]
SECONDS = 60
WARNING = (
    b"passback: warning: The store is in memory: every conversation is gone when the server "
    b"stops.\n"
)
MODULE = """
import subprocess
from passback import Agent, tool

print("noise at import")
subprocess.run(["echo", "noise of a child at import"])

agent = Agent()
"""


def command(*arguments: str) -> Sequence[str]:
    return [sys.executable, "-m", "tests.support.stdio_agent", "acp", *arguments]


def environment(**variables: str) -> Mapping[str, str]:
    inherited = {
        name: text for name, text in os.environ.items() if not name.startswith("PASSBACK_")
    }
    return {**inherited, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'server'}", **variables}


def request(method: str, params: Any = None, request_id: int = 1) -> bytes:
    message = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}
    return json.dumps(message).encode() + b"\n"


def passback_acp(
    content: bytes, *arguments: str, cwd: Path | None = None, **variables: str
) -> subprocess.CompletedProcess[bytes]:
    """Run the command with an input that ends, from its first byte to its exit.

    The modules in `cwd` can be named.
    """
    given = environment(**variables)
    paths = given["PYTHONPATH"] if cwd is None else f"{cwd}{os.pathsep}{given['PYTHONPATH']}"
    return subprocess.run(
        command("--no-env-file", *arguments),
        env={**given, "PYTHONPATH": paths},
        cwd=cwd or ROOT,
        input=content,
        capture_output=True,
        timeout=SECONDS,
        check=False,
    )


def answers(output: bytes) -> dict[int, Any]:
    """Return the answers by the ids of their requests. Each line of the output has to be JSON."""
    found = [json.loads(line) for line in output.split(b"\n")[:-1]]
    assert output.endswith(b"\n")
    return {one["id"]: one.get("result", one.get("error")) for one in found if "id" in one}


class Editor:
    """A running command."""

    def __init__(self, process: anyio.abc.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.process = process
        self.stdin = process.stdin
        self._lines = BufferedByteReceiveStream(process.stdout)
        self.stderr = ""

    async def collect(self) -> None:
        assert self.process.stderr is not None
        async for text in TextReceiveStream(self.process.stderr):
            self.stderr += text

    async def send(self, method: str, params: Any = None, request_id: int = 1) -> None:
        await self.stdin.send(request(method, params, request_id))

    async def line(self) -> Any:
        return json.loads(await self._lines.receive_until(b"\n", 2**20))


@asynccontextmanager
async def editor(*arguments: str) -> AsyncGenerator[Editor]:
    process = await anyio.open_process(
        command("--no-env-file", "--store", "memory:", *arguments), env=environment(), cwd=ROOT
    )
    async with process, anyio.create_task_group() as tasks:
        one = Editor(process)
        tasks.start_soon(one.collect)
        try:
            with anyio.fail_after(SECONDS):
                yield one
        finally:
            if process.returncode is None:
                process.kill()


class Started:
    """A running command without an event loop."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self.stdin, self.stdout, self.stderr = process.stdin, process.stdout, process.stderr
        self.wait = process.wait


@contextmanager
def started() -> Iterator[Started]:
    process = subprocess.Popen(
        command("--no-env-file", "--store", "memory:"),
        env=environment(),
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with process:
        try:
            yield Started(process)
            assert process.wait(SECONDS) == 0
        finally:
            process.kill()


# ---------------------------------------------------------------- streams
def test_nothing_but_the_protocol_is_on_standard_output(tmp_path: Path) -> None:
    (tmp_path / "noisy.py").write_text(MODULE)

    done = passback_acp(
        request("make_noise") + request("tell", request_id=2),
        "noisy:agent",
        cwd=tmp_path,
        PASSBACK_STORE="memory:",
        PASSBACK_MODEL="openai:mine",
        PASSBACK_MODEL_BASE_URL="http://127.0.0.1:9/v1",
        PASSBACK_LOG_LEVEL="debug",
        PASSBACK_WORKERS="4",  # of a server that shares the file of settings
        PASSBACK_HOST="0.0.0.0",
    )

    # what a child has is what its program opens: not what this process has taken
    assert answers(done.stdout) == {
        1: {"read": "", "inherited": 4},
        2: {"owner": "anonymous", "command": "acp", "unneeded": []},
    }
    noise = done.stderr.decode()
    for one in ("at import", "of a child at import", "of print", "of the descriptor", "of a child"):
        assert f"noise {one}" in noise
    assert "warning: The store is in memory" in noise
    assert done.returncode == 0


def test_the_log_may_be_json_and_is_it_in_every_line() -> None:
    done = passback_acp(
        request("tell"),
        "--store",
        "memory:",
        "--log-format",
        "json",
        "--api-keys",
        "me:secret-of-16-letters",
    )

    assert answers(done.stdout)[1]["owner"] is None
    assert all(json.loads(line) for line in done.stderr.splitlines())
    assert b"secret-of" not in done.stderr + done.stdout
    assert done.returncode == 0


def test_a_line_of_20_megabytes_is_read_and_one_too_long_is_refused(tmp_path: Path) -> None:
    content = tmp_path / "input"
    with content.open("wb") as file:
        file.write(request("measure", {"text": "x" * 20_000_000}))
        file.write(b'"' + b"y" * (80 * 2**20) + b'"\n')
        file.write(request("measure", {"text": "é\u2028"}, 2))
    with content.open("rb") as reads, (tmp_path / "output").open("wb") as writes:
        code = subprocess.run(
            command("--no-env-file", "--store", "memory:"),
            env=environment(),
            cwd=ROOT,
            stdin=reads,
            stdout=writes,
            timeout=SECONDS,
            check=False,
        ).returncode

    assert answers((tmp_path / "output").read_bytes()) == {
        1: 20_000_000,
        2: 2,
        None: {"code": -32600, "message": f"the message is larger than {64 * 2**20} bytes"},
    }
    assert code == 0


def test_without_any_input_it_ends() -> None:
    done = subprocess.run(
        command("--no-env-file", "--store", "memory:"),
        env=environment(),
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=SECONDS,
        check=False,
    )

    assert (done.returncode, done.stdout) == (0, b"")


def test_a_slow_reader_stops_the_sender_and_loses_nothing() -> None:
    with started() as process:
        params = {"lines": 3, "length": 2**20, "waits": True}
        process.stdin.write(request("flood", params))
        process.stdin.flush()
        assert process.stderr.readline() == WARNING
        for number in range(3):
            # a pipe has room for a small part of a line
            assert not select.select([process.stderr], [], [], 0.1)[0]
            assert process.stdout.readline() == b"x" * 2**20 + b"\n"
            assert process.stderr.readline() == b"sent %d\n" % number
        assert answers(process.stdout.readline()) == {1: None}
        process.stdin.close()
        assert process.stdout.read() == b""


# ---------------------------------------------------------------- its end
async def test_a_client_that_leaves_ends_it_while_a_request_is_in_progress() -> None:
    async with editor() as one:
        await one.send("wait")
        await wait_until(lambda: "a request waits" in one.stderr)
        await one.stdin.aclose()
        assert await one.process.wait() == 0


def test_a_client_that_closes_its_output_ends_it_quietly() -> None:
    with started() as process:
        process.stdin.write(request("tell"))
        process.stdin.flush()
        assert process.stdout.readline()
        process.stdout.close()
        process.stdin.write(request("tell"))
        process.stdin.flush()
        log = process.stderr.read()  # to its end, while the input is still open
        process.wait(SECONDS)
    assert log == WARNING


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_it_with_a_last_word(number: signal.Signals) -> None:
    async with editor() as one:
        await one.send("tell")
        await one.line()
        one.process.send_signal(number)
        assert await one.line() == {"jsonrpc": "2.0", "method": "stopping"}
        assert await one.process.wait() == 0


async def test_runs_that_go_on_are_left_to_others_when_the_client_leaves(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'store.db'}"
    (tmp_path / "slow.py").write_text(
        "import time\nfrom passback import Agent, tool\n"
        "@tool\ndef block() -> str:\n    'Block.'\n    time.sleep(600)\n    return ''\n"
        "agent = Agent(tools=[block])\n"
    )
    content = request("start_run", {"conversation": "c", "text": "Use block", "waits": False})
    done = passback_acp(content, "slow:agent", "--store", store, cwd=tmp_path)

    assert done.returncode == 0
    async with open_ledger(store) as opened:
        status = await opened.status(ConversationKey(OwnerId("anonymous"), ConversationId("c")))
    assert status.run_id == answers(done.stdout)[1]


async def test_two_processes_share_a_store(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'store.db'}"
    async with editor("--store", store) as one, editor("--store", store) as other:
        for each in (one, other, one):
            await each.send("start_run", {"conversation": "c", "text": "hi", "waits": True})
            assert (await each.line())["result"] == "RunFinished"
        for each in (one, other):
            await each.stdin.aclose()
            assert await each.process.wait() == 0


# ---------------------------------------------------------------- in this process
class Stdio:
    """Two pipes in the place of standard input and output, and the command between them."""

    def __init__(self, tasks: anyio.abc.TaskGroup, **settings: str) -> None:
        self._tasks = tasks
        self.input, self.to_command = os.pipe()
        self.from_command, self.output = os.pipe()
        self._settings = load_settings({"PASSBACK_STORE": "memory:", **settings})
        self.served = anyio.Event()
        self.codes: list[int] = []

    def start(self, serve_client: ServeClient, model: ScriptedModel | None = None, /) -> None:
        self._tasks.start_soon(self._run, serve_client, model or ScriptedModel([]))

    async def _run(self, serve_client: ServeClient, model: ScriptedModel) -> None:
        async def serve(services: Services, channel: Channel) -> None:
            self.served.set()
            await serve_client(services, channel)

        files = StdioFiles(self.input, self.output)
        self.codes.append(await serve_stdio(self._settings, [Agent(model)], files, serve))

    async def end(self) -> int:
        """Return the exit code when the command has ended."""
        await wait_until(lambda: bool(self.codes))
        return self.codes[0]

    async def lines(self) -> list[Any]:
        content = await anyio.to_thread.run_sync(os.read, self.from_command, 2**20)
        return [json.loads(line) for line in content.splitlines()]

    def close(self) -> None:
        os.close(self.to_command)  # before the other end: a thread may read from that
        for one in (self.input, self.output, self.from_command):
            os.close(one)


@asynccontextmanager
async def stdio(**settings: str) -> AsyncGenerator[Stdio]:
    with anyio.fail_after(SECONDS):
        async with anyio.create_task_group() as tasks:
            one = Stdio(tasks, **settings)
            try:
                yield one
                await one.end()
            finally:
                one.close()


def start_run(*, waits: bool, request_id: int = 1) -> bytes:
    params = {"conversation": f"c{request_id}", "text": "hi", "waits": waits}
    return request("start_run", params, request_id)


async def test_a_run_may_end_in_time_after_a_signal() -> None:
    gate = anyio.Event()
    model = ScriptedModel([[gate, *says("done")]])
    async with stdio() as one:
        one.start(stdio_agent.serve_client, model)
        os.write(one.to_command, start_run(waits=True))
        await wait_until(lambda: bool(model.requests))
        os.kill(os.getpid(), signal.SIGTERM)
        answer: dict[str, Any] = {}
        for request_id in itertools.count(2):  # until the signal has come
            os.write(one.to_command, start_run(waits=False, request_id=request_id))
            [answer] = await one.lines()
            if "error" in answer:
                break
        assert answer["error"]["message"] == "this server is stopping"
        gate.set()
        assert await one.end() == 0
        assert await one.lines() == [
            {"jsonrpc": "2.0", "id": 1, "result": "RunFinished"},
            {"jsonrpc": "2.0", "method": "stopping"},
        ]


async def test_a_second_ctrl_c_does_not_wait_for_runs() -> None:
    model = ScriptedModel([[anyio.Event()]])
    async with stdio(PASSBACK_TIMING="shutdown_grace=3000") as one:
        one.start(stdio_agent.serve_client, model)
        os.write(one.to_command, start_run(waits=False))
        await wait_until(lambda: bool(model.requests))
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGTERM)  # is no second Ctrl-C
        await pause(0.05)
        assert not one.codes
        os.kill(os.getpid(), signal.SIGINT)

        assert await one.end() == 0
    assert not model.open_streams


async def test_a_wire_that_does_not_end_is_cancelled() -> None:
    async def hang(_services: Services, _channel: Channel) -> None:
        await anyio.sleep_forever()

    async with stdio() as one:
        one.start(hang)
        await one.served.wait()
        os.kill(os.getpid(), signal.SIGTERM)

        assert await one.end() == 0


async def test_a_terminal_gets_a_hint(capsys: pytest.CaptureFixture[str]) -> None:
    async def leave(_services: Services, _channel: Channel) -> None:
        """End at once."""

    terminal, shell = os.openpty()
    async with stdio() as one:
        os.dup2(shell, one.input)
        one.start(leave)
        assert await one.end() == 0
        os.close(terminal)  # ends the thread that reads
        os.close(shell)
    assert "standard input is a terminal" in capsys.readouterr().err


# ---------------------------------------------------------------- errors
@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["nosuch:agent"], "there is no module 'nosuch'"),
        (["--model", "gpt-5"], "PASSBACK_MODEL: no model is called 'gpt-5'"),
        (["--store", "sqlite:///"], "PASSBACK_STORE: the store's URL has to be"),
        (["--store", "sqlite:////proc/no/file.db"], "PASSBACK_STORE: "),
    ],
)
def test_settings_that_cannot_work_are_one_line(arguments: list[str], error: str) -> None:
    done = passback_acp(request("tell"), *arguments)

    assert (done.returncode, done.stdout) == (2, b"")
    [line] = done.stderr.decode().splitlines()
    assert line.startswith("passback: ")
    assert error in line


def test_closed_streams_are_one_line() -> None:
    program = [*command("--no-env-file", "--store", "memory:")]
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" <&-', "sh", *program],
        env=environment(),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("passback: standard input or output is closed")
    assert done.stderr.count("\n") == 1
