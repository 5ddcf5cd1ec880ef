"""docs/how-to/other-languages.md: its programs do one round with the demo model."""

import os
import re
from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
import pytest
from tests.support.documents import ADDRESS, blocks_of
from tests.support.programs import missing
from tests.support.server import Server, running_server
from tests.support.wire import client_of

pytestmark = pytest.mark.anyio

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "how-to" / "other-languages.md").read_text()
PROGRAMS = {block.language: block.text for block in blocks_of(PAGE)}
ANSWER = 'Done. set-color answered: "The page is blue.".'


@pytest.fixture
async def server() -> AsyncGenerator[Server]:
    async with running_server("--model", "demo:fast") as running:
        yield running


def test_the_page_says_what_its_programs_print() -> None:
    assert f"`{ANSWER}`" in " ".join(PAGE.split())


@pytest.mark.nightly
@pytest.mark.timeout(180)
async def test_the_go_program_does_a_round(server: Server, tmp_path: Path) -> None:
    go = os.environ.get("TEST_GO") or missing("Go")
    program = tmp_path / "round.go"
    program.write_text(PROGRAMS["go"].replace(ADDRESS, server.url))
    with anyio.fail_after(120):
        done = await anyio.run_process([go, "run", str(program)])
    assert done.stdout.decode() == f"{ANSWER}\n"


async def test_the_bodies_of_the_kotlin_program_do_a_round(server: Server) -> None:
    tools, first, second = re.findall(r'"""(.*?)"""', PROGRAMS["kotlin"])
    headers = {"content-type": "application/json"}
    async with client_of(server.url) as client:
        asked = await client.http.post(
            "/send-message", content=first.replace("$tools", tools), headers=headers
        )
        [call] = re.findall(r'"tool-call-end","toolCallId":"(\w+)"', asked.text)
        answered = await client.http.post(
            "/send-message", content=second.replace("$call", call), headers=headers
        )
    pieces = re.findall(r'"type":"text","content":"((?:[^"\\]|\\.)*)"', answered.text)
    assert "".join(pieces).replace('\\"', '"') == ANSWER
