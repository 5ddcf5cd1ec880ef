"""docs/how-to/shell.md, executed; and how a run that breaks looks to a script."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest
from tests.e2e.workers import broken_off
from tests.support.documents import Block, blocks_of, check_commands
from tests.support.model_server import Act, ModelServer, Reply, event, fails, says
from tests.support.programs import program
from tests.support.server import Server, running_server
from tests.support.wire import Client

pytestmark = pytest.mark.anyio

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "shell.md"
WORDS = PAGE.read_text("utf-8")
FIRST = blocks_of(WORDS)[0]
AGENT = next(block.text for block in blocks_of(WORDS) if block.language == "python")
SERVED = re.split(r"`passback serve ?([^`]*)`", WORDS)[1:]
PARTS = {command: blocks_of(part) for command, part in zip(SERVED[::2], SERVED[1::2], strict=True)}
"""The blocks of the page by the arguments of the server that they are for."""

SECONDS = 50


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("arguments", "blocks"), PARTS.items(), ids=PARTS)
async def test_the_chapter_prints_what_it_shows(
    arguments: str, blocks: Sequence[Block], tmp_path: Path
) -> None:
    (tmp_path / "my_files.py").write_text(AGENT)
    async with running_server(*arguments.split(), cwd=str(tmp_path)) as server:
        assert await check_commands([FIRST, *blocks], server.url, tmp_path) > 1


def test_every_command_of_the_chapter_is_run() -> None:
    assert list(PARTS) == ["", "my_files:agent", "--tool-timeout 3"]
    assert [block for blocks in PARTS.values() for block in blocks] == blocks_of(WORDS)


def test_the_chapter_is_linked_and_its_links_lead_somewhere() -> None:
    assert "(docs/how-to/shell.md)" in (PAGE.parents[2] / "README.md").read_text("utf-8")
    links = re.findall(r"\]\(([^)#]+)", PAGE.read_text("utf-8"))
    assert [link for link in links if not (PAGE.parent / link).exists()] == []


# ---------------------------------------------------------------- failures
@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a `curl`."""

    code: int
    output: str
    headers: Mapping[str, str]


async def curl(server: Server, folder: Path, query: str = "", *flags: str, **body: object) -> Ended:
    messages = [{"role": "user", "content": "hi"}]
    posted = json.dumps({"messages": messages, **body})
    head = folder / "head"
    typed = ("-H", "Content-Type: application/json")
    with anyio.fail_after(SECONDS):
        done = await anyio.run_process(
            [
                *(program("curl"), "-sS", "-N", f"-D{head}", *typed, *flags, "-d", posted),
                f"{server.url}/send-message{query}",
            ],
            check=False,
        )
    lines = (line.partition(": ") for line in head.read_text().splitlines()[1:])
    return Ended(
        done.returncode, done.stdout.decode(), {name.lower(): text for name, _, text in lines}
    )


TEXT = ("-H", "Accept: text/plain")
HALF = Reply([event(content="half"), Act.CUT])


@pytest.mark.promise("P12")
async def test_a_text_whose_run_fails_breaks_off_with_a_line_that_says_why(
    model: ModelServer, played: Server, tmp_path: Path
) -> None:
    model.play(HALF)
    ended = await curl(played, tmp_path, "", *TEXT)
    words, _, ending = ended.output.partition("\x1e")
    assert (ended.code, words) == (18, "half\n")
    assert json.loads(ending).items() >= {"outcome": "failed", "code": "model_incomplete"}.items()
    assert ended.headers["x-run-id"].startswith("run_")


@pytest.mark.promise("P12")
@pytest.mark.parametrize("form", [("", *TEXT), ("?wait=true",)], ids=["text", "document"])
async def test_a_run_that_fails_at_once_fails_the_command(
    model: ModelServer, played: Server, raw: Client, tmp_path: Path, form: tuple[str, ...]
) -> None:
    model.play(fails(401))
    ended = await curl(played, tmp_path, form[0], "--fail-with-body", *form[1:])
    assert (ended.code, json.loads(ended.output)["code"]) == (22, "model_rejected")
    run_id, conversation = ended.headers["x-run-id"], ended.headers["x-conversation-id"]
    assert (await raw.conversation(conversation))["runId"] == run_id


async def test_a_document_of_a_run_that_fails_in_its_middle_is_an_error(
    model: ModelServer, played: Server, tmp_path: Path
) -> None:
    model.play(HALF)
    ended = await curl(played, tmp_path, "?wait=true", "-f")
    assert (ended.code, ended.output) == (22, "")


@pytest.mark.promise("P7")
@pytest.mark.parametrize("form", [("", *TEXT), ("?wait=true",)], ids=["text", "document"])
async def test_who_leaves_while_waiting_leaves_the_run_unless_the_post_said_so(
    model: ModelServer, played: Server, raw: Client, tmp_path: Path, form: tuple[str, ...]
) -> None:
    """The server's grace is short: the run is cancelled, and the model's stream closed."""
    model.play(broken_off("half"))
    leaves = (*form[1:], "--max-time", "1")
    ended = await curl(
        played, tmp_path, form[0], *leaves, onDisconnect="cancel", conversationId=form[0] + "gone"
    )
    assert ended.code == 28
    with anyio.fail_after(SECONDS):
        await model.left.wait()
        whole = await raw.replay(f"{form[0]}gone".replace("?", "%3F"), include=["run"])
    assert whole.frames[-2].event == {
        "type": "run-end",
        "outcome": "cancelled",
        "model": "openai:mock",
    }


async def test_a_cancelled_text_breaks_off(
    model: ModelServer, played: Server, raw: Client, tmp_path: Path
) -> None:
    model.play(broken_off("half"))
    ended: list[Ended] = []

    async def read() -> None:
        ended.append(await curl(played, tmp_path, "", *TEXT, conversationId="stopped"))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        with anyio.fail_after(SECONDS):
            while not (await raw.conversation("stopped")).get("running"):
                await anyio.wait_all_tasks_blocked()
        async with raw.follow("stopped") as stream:
            await stream.until("text")
            assert (await raw.cancel("stopped")).status_code == 202
    assert (ended[0].code, ended[0].output) == (18, 'half\n\x1e{"outcome": "cancelled"}\n')


async def test_a_connection_serves_on_after_a_document(
    model: ModelServer, played: Server, raw: Client
) -> None:
    for text in ("one", "two"):
        model.play(says(text))
        body = {"messages": [{"role": "user", "content": "hi"}]}
        answer = await raw.http.post("/send-message?wait=true", json=body)
        assert (answer.status_code, answer.json()["text"]) == (200, text)
