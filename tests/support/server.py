"""Real servers in processes of their own, each on a free port: `passback serve` and `replay`."""

import os
import re
import signal
import subprocess
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import anyio
import anyio.abc
from anyio.streams.text import TextReceiveStream
from tests.support.forked import Output, fork

START_SECONDS = 120  # on a machine that is busy with other work, too
STOP_SECONDS = 20


@dataclass(frozen=True, slots=True)
class Server:
    """A server that listens at `url`; `banner` is what it printed at its start."""

    url: str
    process: anyio.abc.Process
    banner: str

    def kill(self) -> None:
        """End it as a crash would."""
        self.process.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """Ask it to stop, as an operator does."""
        self.process.send_signal(signal.SIGTERM)

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        self.process.send_signal(signal.SIGINT)

    def freeze(self) -> None:
        """Stop the process, which keeps its connections and its memory."""
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    async def exit_code(self) -> int:
        """Wait for its end."""
        with anyio.fail_after(STOP_SECONDS):
            return await self.process.wait()


@asynccontextmanager
async def running_server(
    *arguments: str,
    environment: Mapping[str, str] | None = None,
    cwd: str | None = None,
    stderr: Output = None,
    module: str = "passback",
    command: Sequence[str] = (),
) -> AsyncGenerator[Server]:
    """Serve with the `memory:` store unless the arguments name another; ended on leaving.

    Args:
        arguments: as for `passback serve`: flags, and an agent as `module:agent`.
        environment: variables beside those of this process; `PASSBACK_*` of this process are left
            out.
        cwd: where it is started.
        stderr: where its log goes, as for `subprocess`; None: to that of the tests.
        module: what is run as a program to serve.
        command: executed to serve, instead of a module that is forked.
    """
    inherited = {
        name: text for name, text in os.environ.items() if not name.startswith("PASSBACK_")
    }
    if (sending := os.environ.get("TEST_DIRECT_SENDING")) is not None:
        inherited["PASSBACK_DIRECT_SENDING"] = sending
    store = () if "--store" in arguments else ("--store", "memory:")
    # what a developer keeps in the repository's .env is for containers
    env_file = ("--no-env-file",) if cwd is None else ()
    flags = ["--port", "0", *env_file, *store, *arguments]
    variables = {**inherited, **(environment or {})}
    process = await _open(module, command, flags, env=variables, cwd=cwd, stderr=stderr)
    try:
        async with process:
            try:
                with anyio.fail_after(START_SECONDS):
                    url, banner = await _address(process)
                yield Server(url, process, banner)
            finally:
                with suppress(ProcessLookupError):  # as soon as it has ended
                    process.send_signal(signal.SIGCONT)  # a frozen one would not stop
                    process.terminate()
                    with anyio.CancelScope(shield=True), anyio.move_on_after(STOP_SECONDS):
                        await process.wait()
                    process.kill()
    finally:
        with anyio.CancelScope(shield=True), anyio.move_on_after(STOP_SECONDS):
            await process.wait()


async def _open(
    module: str,
    command: Sequence[str],
    flags: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: str | None,
    stderr: Output,
) -> anyio.abc.Process:
    if command:
        return await anyio.open_process(
            [*command, *flags], stdin=subprocess.DEVNULL, env=env, cwd=cwd, stderr=stderr
        )
    start = partial(
        fork, module, ["serve", *flags], env=env, cwd=cwd, stdout=subprocess.PIPE, stderr=stderr
    )
    # the first has to wait until the process that is forked is ready
    return await anyio.to_thread.run_sync(start)


async def _address(process: anyio.abc.Process) -> tuple[str, str]:
    assert process.stdout is not None
    output = b""
    async for chunk in process.stdout:
        output += chunk
        if b"Ctrl-C stops it.\n" in output:
            found = re.search(rb"listening on (http://\S+)", output)
            assert found is not None
            return found[1].decode(), output.decode()
    raise AssertionError(f"the server did not start: {output.decode()}")


_ADDRESS = re.compile(r"listening on (http://127\.0\.0\.1:\d+)\n")


@asynccontextmanager
async def replaying(file: Path, *arguments: str) -> AsyncGenerator[str]:
    """Play the file at the address that is yielded; ended on leaving, by Ctrl-C's signal."""
    start = partial(
        fork,
        "passback",
        ["replay", str(file), "--port", "0", *arguments],
        env=os.environ,
        stdout=subprocess.PIPE,
    )
    async with await anyio.to_thread.run_sync(start) as process:
        assert process.stdout is not None
        printed = ""
        with anyio.fail_after(START_SECONDS):
            async for piece in TextReceiveStream(process.stdout):
                printed += piece
                if found := _ADDRESS.search(printed):
                    break
            else:
                raise AssertionError(f"it ended before it listened: {printed}")
        try:
            yield found[1]
        finally:
            process.terminate()
            with anyio.fail_after(START_SECONDS):
                assert await process.wait() == 0
