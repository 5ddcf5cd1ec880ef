"""The JavaScript modules of the playground and of the client library, by their own tests under Node."""

import subprocess
from pathlib import Path

import anyio
import pytest
from anyio.streams.text import TextReceiveStream
from tests.support.programs import program

pytestmark = [pytest.mark.anyio, pytest.mark.node]

FOLDER = Path(__file__).parent
SECONDS = 50


@pytest.mark.parametrize("name", sorted(path.name for path in FOLDER.glob("*.test.mjs")))
async def test_the_modules_pass_their_tests(name: str) -> None:
    command = [program("node", variable="TEST_NODE"), "--test", name]
    output = ""
    async with await anyio.open_process(
        command, cwd=FOLDER, stdin=subprocess.DEVNULL, stderr=subprocess.STDOUT
    ) as process:
        assert process.stdout is not None
        with anyio.move_on_after(SECONDS) as waiting:
            async for piece in TextReceiveStream(process.stdout):
                output += piece
        if waiting.cancelled_caught:
            process.terminate()  # which ends the process of the file, too
    # of one that hangs, the output names the last test that ended
    assert not waiting.cancelled_caught, output
    assert process.returncode == 0, output
    assert "pass 0\n" not in output, output
