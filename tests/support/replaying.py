"""A real `passback replay` in a process of its own."""

import re
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from anyio.streams.text import TextReceiveStream
from tests.support.server import START_SECONDS

_ADDRESS = re.compile(r"listening on (http://127\.0\.0\.1:\d+)\n")


@asynccontextmanager
async def replaying(file: Path, *arguments: str) -> AsyncGenerator[str]:
    """The address at which the file is played; ended on leaving, by Ctrl-C's signal for services."""
    command = [sys.executable, "-m", "passback", "replay", str(file), "--port", "0", *arguments]
    async with await anyio.open_process(command, stdin=subprocess.DEVNULL, stderr=None) as process:
        assert process.stdout is not None
        said = ""
        with anyio.fail_after(START_SECONDS):
            async for piece in TextReceiveStream(process.stdout):
                said += piece
                if found := _ADDRESS.search(said):
                    break
            else:
                raise AssertionError(f"it ended before it listened: {said}")
        try:
            yield found[1]
        finally:
            process.terminate()
            with anyio.fail_after(START_SECONDS):
                assert await process.wait() == 0
