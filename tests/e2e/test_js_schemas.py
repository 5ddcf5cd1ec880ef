"""Tools of the JavaScript client with schemas of Zod, ArkType and Valibot, at a real server."""

import json
from pathlib import Path

import anyio
import pytest
from tests.support.programs import missing, program
from tests.support.server import Server

pytestmark = [pytest.mark.anyio, pytest.mark.node]

FOLDER = Path(__file__).resolve().parents[1] / "js"
SECONDS = 40


async def test_a_model_is_told_what_is_wrong_with_its_arguments(server: Server) -> None:
    if not (FOLDER / "node_modules" / "arktype").exists():
        missing("arktype in tests/js/node_modules")
    node = program("node", variable="TEST_NODE")
    with anyio.fail_after(SECONDS):
        command = [node, str(FOLDER / "client-schemas.mjs"), server.url]
        done = await anyio.run_process(command, check=False)
    assert done.returncode == 0, done.stderr.decode()
    answered = "Done. set-color answered: "
    failed = 'Done. set-color failed: "The arguments do not fit: color: '
    assert json.loads(done.stdout) == {
        "zod": [f'{answered}"{{"color": "blue"}}".', f'{failed}is unknown".'],
        "arktype": [
            f'{answered}"{{"color": "BLUE"}}".',
            f'{failed}color must be known (was "pink")".',
        ],
        "valibot": [f'{answered}"{{"color": "blue"}}".', f'{failed}is unknown".'],
    }
