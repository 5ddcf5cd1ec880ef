"""README.md, executed: its commands give its answers, its files and figures are those there are.

So are the commands of the pages that it leads newcomers to first.
"""

import os
import re
import shlex
import sys
from collections.abc import AsyncGenerator, Mapping
from itertools import pairwise
from pathlib import Path

import anyio
import pytest
from tests.support.documents import SHAPES, Block, blocks_of, marked
from tests.support.model_server import model_server, says
from tests.support.programs import missing, program
from tests.support.server import Server, running_server
from tests.support.wire import FrameReader, client_of, user

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
ONLINE = (ROOT / "docs" / "tutorials" / "online.md").read_text()
TROUBLESHOOTING = (ROOT / "docs" / "how-to" / "troubleshooting.md").read_text()
RELIABILITY = (ROOT / "docs" / "explanation" / "reliability.md").read_text()
INSTALLED = (str(Path(sys.executable).with_name("passback")), "serve")
AS_MODULE = (sys.executable, "-m", "passback", "serve")
ADDRESS = "http://127.0.0.1:8000"
LEFT_OUT = "\n…\n\n"


# ---------------------------------------------------------------- README
def blocks(heading: str = "") -> list[Block]:
    """The fenced blocks of a section, or of all."""
    text = README
    if heading:
        [text] = [part for part in README.split("\n## ") if part.startswith(heading + "\n")]
    return blocks_of(text)


def exchanges(heading: str) -> list[tuple[str, str]]:
    """The requests of a section with the answers below them."""
    section = blocks(heading)
    return [(asked.text, answer.text) for asked, answer in pairwise(section) if asked.is_request]


def check_answer(answer: str, expected: str) -> None:
    """Check that all bytes are the same, but for what README marks."""
    shown = marked(answer)
    if LEFT_OUT not in expected:
        assert shown == expected
        return
    head, tail = expected.split(LEFT_OUT)
    assert (shown[: len(head)], shown[-len(tail) :]) == (head, tail)
    between = FrameReader()
    assert between.feed(answer.encode())
    between.close()


# ---------------------------------------------------------------- running it
async def output_of(command: list[str], environment: Mapping[str, str] | None = None) -> str:
    with anyio.fail_after(20):
        done = await anyio.run_process(command, env=environment, check=True)
    return done.stdout.decode()


async def run_requests(server: Server, heading: str) -> None:
    call_id = ""
    for request, expected in exchanges(heading):
        command = shlex.split(request.replace(ADDRESS, server.url).replace("call_…", call_id))
        answer = await output_of([program("curl"), *command[1:]])
        check_answer(answer, expected)
        if found := re.search(r"call_[0-9A-Za-z]{34}", answer):
            call_id = found[0]


@pytest.fixture
async def fresh_server(tmp_path: Path) -> AsyncGenerator[Server]:
    """Start a server as a newcomer does: no settings, an empty home."""
    async with running_server("--store", "", environment=newcomer(tmp_path)) as server:
        yield server


def newcomer(home: Path) -> dict[str, str]:
    return {"HOME": str(home), "XDG_STATE_HOME": ""}


async def test_a_start_prints_what_readme_shows(fresh_server: Server, tmp_path: Path) -> None:
    banner = marked(fresh_server.banner).replace(fresh_server.url, ADDRESS)
    assert banner.replace(str(tmp_path), "/home/you") == blocks("Start")[1].text
    page = await output_of([program("curl"), "--silent", f"{fresh_server.url}/"])
    assert page.startswith("<!doctype html>")


async def test_the_first_command_of_readme_serves() -> None:
    first = blocks("Start")[0].text.strip()
    if not (ROOT / ".venv" / "passback-stamp.json").exists():
        missing(f"a .venv that {first} made, and would not make anew,")
    async with (
        running_server(command=[str(ROOT / first)]) as server,
        client_of(server.url) as client,
    ):
        assert (await client.post("c", user("hi"))).text.startswith("Hello!")


async def test_the_three_requests_get_the_answers_that_readme_shows(fresh_server: Server) -> None:
    assert len(exchanges("Three requests")) == 3
    await run_requests(fresh_server, "Three requests")


@pytest.mark.parametrize("start", [INSTALLED, AS_MODULE], ids=["passback", "python -m"])
async def test_the_agent_of_readme_is_served_and_answers_as_shown(start: tuple[str, ...]) -> None:
    [source, command] = [
        block.text
        for block in blocks("Your own agent")
        if block.language == "python" or block.text.startswith("passback serve")
    ]
    example = ROOT / "examples" / "my_agent.py"
    assert example.read_text() == source
    _, _, agent = command.split()
    start = (program(start[0]), *start[1:])
    async with running_server(agent, command=start, cwd=str(example.parent)) as server:
        await run_requests(server, "Your own agent")


async def test_the_settings_of_a_real_model_reach_it_as_readme_shows() -> None:
    exports = dict(
        re.findall(r"^export (\w+)=(\S+)$", blocks("A real model")[0].text, re.MULTILINE)
    )
    async with model_server(says("I am real.")) as model:
        environment = exports | {"PASSBACK_MODEL_BASE_URL": model.base_url}
        async with (
            running_server(environment=environment) as server,
            client_of(server.url) as client,
        ):
            assert "\n  model   openai:gpt-5-mini\n" in server.banner
            assert (await client.post("c", user("Are you?"))).text == "I am real."
    [request] = model.requests
    assert exports.keys() == {f"PASSBACK_MODEL{end}" for end in ("", "_BASE_URL", "_API_KEY")}
    assert request.json["model"] == "gpt-5-mini"
    assert request.headers["authorization"] == f"Bearer {exports['PASSBACK_MODEL_API_KEY']}"


async def test_check_says_what_its_page_shows(tmp_path: Path) -> None:
    command, expected = blocks_of(TROUBLESHOOTING)
    assert command.text.split() == ["passback", "check"]
    environment = {**os.environ, **newcomer(tmp_path)}
    output = await output_of([sys.executable, "-m", "passback", "check"], environment)
    assert output.replace(str(tmp_path), "/home/you") == expected.text


# ---------------------------------------------------------------- nothing is left unproven
def test_every_command_of_readme_is_run_by_a_test() -> None:
    commands = {block.text.strip() for block in blocks() if block.language == "sh"}
    run = {request.strip() for heading in SECTIONS for request, _ in exchanges(heading)}
    run |= {"scripts/serve", "passback serve my_agent:agent"}
    run |= {block.text.strip() for block in blocks("A real model")}
    assert commands == run


SECTIONS = ("Three requests", "Your own agent")


def test_the_figures_of_readme_are_those_of_the_last_long_run() -> None:
    points = re.findall(r"^\| (kill-[\w-]+) \| (\d+) \|.*\| (\d+) \|$", RELIABILITY, re.MULTILINE)
    killed = {name: int(count) for name, count, _ in points}
    workers = sum(count for name, count in killed.items() if not name.startswith("kill-store"))
    stores = killed["kill-store-redis"]
    text = " ".join(README.split())
    assert f"{workers:,} workers and {stores:,} Redis servers were killed" in text
    assert {faults for *_, faults in points} == {"0"}


def test_the_image_of_the_tutorial_serves_an_agent_that_there_is() -> None:
    [dockerfile] = [block.text for block in blocks_of(ONLINE) if block.language == "dockerfile"]
    copied = re.findall(r"^COPY --chmod=444 (\S+) /agent/$", dockerfile, re.MULTILINE)
    assert [(ROOT / "examples" / name).exists() for name in copied] == [True]
    assert f'CMD ["serve", "{copied[0].removesuffix(".py")}:agent"]' in dockerfile


def test_every_link_of_readme_leads_to_a_file() -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)", README)
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_only_what_is_marked_in_the_documented_ways_may_differ() -> None:
    text = "".join(block.text for block in blocks()).replace(LEFT_OUT, "")
    for mark in SHAPES.values():
        text = text.replace(mark, "")
    assert "…" not in text
