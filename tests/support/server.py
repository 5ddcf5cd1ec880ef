"""A real server in a process of its own: `passback serve` on a free port."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

import anyio
import anyio.abc

START_SECONDS = 20
STOP_SECONDS = 20


@dataclass(frozen=True, slots=True)
class Server:
    """A server that listens at `url`."""

    url: str
    process: anyio.abc.Process

    def kill(self) -> None:
        """End it as a crash would."""
        self.process.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """Ask it to stop, as an operator does."""
        self.process.send_signal(signal.SIGTERM)


@asynccontextmanager
async def running_server(
    *arguments: str,
    environment: Mapping[str, str] | None = None,
    cwd: str | None = None,
) -> AsyncGenerator[Server]:
    """Serve with the `memory:` store unless told otherwise; ended on leaving.

    Args:
        arguments: as for `passback serve`: flags, and an agent as `module:agent`.
        environment: variables beside those of this process; `PASSBACK_*` of this process are left out.
        cwd: where it is started.
    """
    inherited = {
        name: text for name, text in os.environ.items() if not name.startswith("PASSBACK_")
    }
    store = () if "--store" in arguments else ("--store", "memory:")
    process = await anyio.open_process(
        [sys.executable, "-m", "passback", "serve", "--port", "0", *store, *arguments],
        env={**inherited, **(environment or {})},
        cwd=cwd,
        stderr=None,
        stdin=subprocess.DEVNULL,
    )
    try:
        async with process:
            try:
                with anyio.fail_after(START_SECONDS):
                    url = await _address(process)
                yield Server(url, process)
            finally:
                with anyio.CancelScope(shield=True), anyio.move_on_after(STOP_SECONDS):
                    if process.returncode is None:
                        process.terminate()
                    await process.wait()
                if process.returncode is None:
                    process.kill()
    finally:
        with anyio.CancelScope(shield=True), anyio.move_on_after(STOP_SECONDS):
            await process.wait()


async def _address(process: anyio.abc.Process) -> str:
    assert process.stdout is not None
    output = b""
    async for chunk in process.stdout:
        output += chunk
        if b"Ctrl-C" in output:
            found = re.search(rb"listening on (http://\S+)", output)
            assert found is not None
            return found[1].decode()
    raise AssertionError(f"the server did not start: {output.decode()}")
