"""The README of the Python client: its programs print what it shows, and its names exist."""

import re
import sys
from collections.abc import AsyncGenerator
from itertools import pairwise
from pathlib import Path

import anyio
import pytest
from tests.e2e.workers import EXAMPLES
from tests.support.server import Server, running_server

import passback_client

pytestmark = pytest.mark.anyio

FOLDER = Path(__file__).resolve().parents[2] / "client_tools" / "python"
README = (FOLDER / "README.md").read_text("utf-8")
BLOCKS: list[tuple[str, str]] = re.findall(
    r"^```(\w+)\n(.*?)^```$", README, re.DOTALL | re.MULTILINE
)
PROGRAMS = [
    (first[1], second[1])
    for first, second in pairwise(BLOCKS)
    if (first[0], second[0]) == ("python", "text")
]


@pytest.fixture(scope="module")
async def cafe() -> AsyncGenerator[Server]:
    """The agent of `examples`, whose tool needs approval."""
    permissions = {"PASSBACK_PERMISSIONS": "price=ask"}
    flags = ("my_agent:agent", "--model", "demo:fast")
    async with running_server(*flags, environment=permissions, cwd=str(EXAMPLES)) as server:
        yield server


@pytest.fixture(scope="module")
async def office() -> AsyncGenerator[Server]:
    """The agent that answers with records."""
    examples = str(EXAMPLES.parent / "docs" / "examples")
    async with running_server("structured_data:agent", cwd=examples) as server:
        yield server


@pytest.mark.parametrize(
    ("program", "output"),
    PROGRAMS,
    ids=["async", "plain", "output", "versions", "approve", "decide", "questions"],
)
async def test_a_program_prints_what_the_readme_shows(
    server: Server, cafe: Server, office: Server, program: str, output: str
) -> None:
    where = cafe if "price" in program else office if "invoices" in program else server
    assert await printed(program, where) == output.rstrip("\n")


async def printed(program: str, server: Server) -> str:
    """Run it against this server."""
    source = program.replace("http://127.0.0.1:8000", server.url)
    with anyio.fail_after(20):
        done = await anyio.run_process([sys.executable, "-W", "error", "-c", source])
    return done.stdout.decode().rstrip("\n")


async def test_the_program_of_the_reference_talks(server: Server) -> None:
    page = (FOLDER.parents[1] / "docs" / "reference" / "python-api.md").read_text("utf-8")
    [program] = re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    assert (await printed(program, server)).startswith("Hello! I am passback's demo model")


def test_the_readme_names_everything_in_the_package_and_nothing_else() -> None:
    named = set(re.findall(r"`(?:Client\()?([A-Z][A-Za-z]+)\b", README))
    public = set(passback_client.__all__)
    assert named - public - {"True", "False"} <= {"Idempotency"}
    assert public - named <= UNTOLD


UNTOLD = {"Event", "Conversation", "MessagePage", "OwedCall", "Stream", "ToolCall", "Limits"}
"""Names that only signatures and docstrings mention."""


def test_every_link_leads_to_a_file() -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)", README)
    assert links
    assert [link for link in links if not (FOLDER / link).exists()] == []
