"""The JavaScript modules of the playground and of the client library, by their own tests under Node."""

import subprocess
from pathlib import Path

import anyio
import pytest
from tests.support.programs import program

pytestmark = [pytest.mark.anyio, pytest.mark.node]

FOLDER = Path(__file__).parent
SECONDS = 50


@pytest.mark.parametrize("name", sorted(path.name for path in FOLDER.glob("*.test.mjs")))
async def test_the_modules_pass_their_tests(name: str) -> None:
    node = program("node", variable="TEST_NODE")
    with anyio.fail_after(SECONDS):
        done = await anyio.run_process(
            [node, "--test", name], cwd=FOLDER, check=False, stderr=subprocess.STDOUT
        )
    output = done.stdout.decode()
    assert done.returncode == 0, output
    assert "pass 0\n" not in output, output
