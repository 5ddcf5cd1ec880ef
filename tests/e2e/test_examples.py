"""docs/examples: each file is an agent that is served and asked; the pages quote the files.

A new example needs one function in `plays_of_....py`, under its name: `@plays("name")`.
"""

import ast
import json
import re
import runpy
import shlex
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

import anyio
import httpx
import pytest
from tests.e2e import dialogs_of_agents, dialogs_of_tools
from tests.e2e.example_dialogs import DIALOGS
from tests.support.documents import blocks_of
from tests.support.server import running_server
from tests.support.wire import client_of

from passback import Agent
from passback.core.messages import (
    ConversationId,
    ConversationKey,
    OwnerId,
    RunId,
    RunRef,
    UserMessage,
)
from passback.models.scripted import ScriptedModel
from passback.session import Session

pytestmark = pytest.mark.anyio

DOCS = Path(__file__).resolve().parents[2] / "docs"
EXAMPLES = DOCS / "examples"
DIALOG_FILES = (dialogs_of_agents, dialogs_of_tools)

ELSEWHERE = {"mcp_agent", "notes_server", "own_server"}
"""Played by `test_mcp.py`, or below."""
PROGRAMS = {"from_python"}
"""Not served, but run."""
PAGES = ("how-to/agents", "explanation/context")
"""Pages whose code is that of examples; the others' is run by tests of their own."""
REAL = "leave `model` out to use that of your settings"
"""Comment by which an example says that its model is scripted."""


# ---------------------------------------------------------------- running them
def command_of(name: str) -> tuple[list[str], Mapping[str, str]]:
    """Return an example's command: the arguments, and variables before them."""
    text = (EXAMPLES / f"{name}.py").read_text()
    found = re.search(
        r"^(.*)passback serve (.+)$", ast.get_docstring(ast.parse(text)) or "", re.MULTILINE
    )
    assert found, name
    variables = dict(one.split("=", 1) for one in shlex.split(found[1]))
    return shlex.split(found[2]), variables


@pytest.mark.parametrize("name", sorted(DIALOGS))
async def test_an_example_does_what_its_page_says(name: str) -> None:
    arguments, variables = command_of(name)
    async with (
        running_server(*arguments, environment=variables, cwd=str(EXAMPLES)) as server,
        client_of(server.url) as client,
    ):
        await DIALOGS[name](client)


async def test_the_program_prints_what_the_page_shows() -> None:
    page = blocks_of((DOCS / "how-to" / "agents.md").read_text())
    shown = page[-1].text
    with anyio.fail_after(30):
        done = await anyio.run_process([sys.executable, str(EXAMPLES / "from_python.py")])
    assert done.stdout.decode() == shown


async def test_the_model_is_sent_the_prompt_of_the_page_about_layers() -> None:
    """The model's prompt, which no client sees."""
    agent = runpy.run_path(str(EXAMPLES / "prompt_layers.py"))["agent"]
    assert isinstance(agent, Agent)
    assert isinstance(agent.model, ScriptedModel)
    async with Session(agent, owner="anonymous") as session:
        async for _ in session.submit("Where is it?"):
            pass
    [request] = agent.model.requests
    prompt, customer = request.system[: request.static], request.system[request.static :]
    assert prompt.strip() == (
        "# Role\nYou answer for a shop.\n\n# Rules\n- Promise no date of delivery."
    )
    assert customer.strip() == (
        "# Context\nYou talk to Ann, a customer since 2019, who likes short answers."
    )
    [asked] = request.messages
    assert isinstance(asked, UserMessage)
    assert re.fullmatch(
        r"<user_context>\n<time>\S+\+00:00</time>\n</user_context>\n\nWhere is it\?",
        str(asked.content),
    )


async def test_the_model_is_sent_notes_of_the_owner_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the owner's name is: no path leads out of the folder."""
    shutil.copytree(EXAMPLES / "memories", tmp_path / "memories")
    monkeypatch.chdir(tmp_path)
    example = runpy.run_path(str(EXAMPLES / "memory.py"))
    agent, remembered = example["agent"], example["remembered"]
    assert isinstance(agent, Agent)
    assert isinstance(agent.model, ScriptedModel)
    async with Session(agent, owner="anonymous") as session:
        async for _ in session.submit("The usual."):
            pass
    [request] = agent.model.requests
    assert request.system[request.static :].strip() == (
        "# Context\nWhat you know of this customer:\n\n"
        "Likes black tea, without sugar.\n\nHad a new kettle in 2024, which leaks."
    )
    outside = tmp_path / "ben"
    outside.mkdir()
    (outside / "secret.md").write_text("secret")
    mine = tmp_path / "memories" / "ann"
    mine.mkdir()
    (mine / "tea.md").write_text("green")
    (mine / "theirs.md").symlink_to(outside / "secret.md")
    prompts = {owner: remembered(run_of(owner)) for owner in NASTY_OWNERS}
    assert prompts == dict.fromkeys(NASTY_OWNERS, "")
    assert remembered(run_of("ann")).endswith("customer:\n\ngreen")


NASTY_OWNERS = ("../ben", "..", ".", "", "ann/../../ben", "/etc", "ann\0", "ANN", "ann\n", "nobody")


def run_of(owner: str) -> RunRef:
    return RunRef(ConversationKey(OwnerId(owner), ConversationId("c")), RunId("r"))


@pytest.mark.parametrize(
    ("posted", "words"),
    [("Say it again", ["Say ", "it ", "again "]), ("", [])],
    ids=["three words", "none"],
)
async def test_a_server_of_ones_own_streams_the_builders_events(
    posted: str, words: list[str]
) -> None:
    app = runpy.run_path(str(EXAMPLES / "own_server.py"))["app"]
    message = {"role": "user", "content": [{"type": "text", "text": posted}]}
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app), base_url="http://own.test"
    ) as client:
        answered = await client.post("/process", json={"input": [message]})
        refused = [await client.post("/process", content=body) for body in (b"{", b'{"input":"x"}')]
    lines = answered.text.splitlines()
    events = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data:")]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    deltas = [event["text"] for event in events if event.get("delta")]
    assert deltas == words
    assert (events[0]["status"], events[-1]["status"]) == ("created", "completed")
    assert [answer.status_code for answer in refused] == [422, 422]


# ---------------------------------------------------------------- nothing is left unproven
def test_every_example_is_played_and_every_page_leads_to_one() -> None:
    names = {path.stem for path in EXAMPLES.glob("*.py")}
    linked = {
        name
        for page in DOCS.rglob("*.md")
        for name in re.findall(r"\(\.\./examples/(\w+)\.py\)", page.read_text())
    }
    assert names == DIALOGS.keys() | ELSEWHERE | PROGRAMS == linked
    assert {dialog.__module__ for dialog in DIALOGS.values()} == {
        one.__name__ for one in DIALOG_FILES
    }


@pytest.mark.parametrize("name", sorted({*DIALOGS, *PROGRAMS}))
def test_an_example_says_how_to_use_a_real_model(name: str) -> None:
    text = (EXAMPLES / f"{name}.py").read_text()
    assert REAL in text or "PASSBACK_MODEL=" in text


CODE = [
    pytest.param(block.text, id=f"{page}-{number}")
    for page in PAGES
    for number, block in enumerate(blocks_of((DOCS / f"{page}.md").read_text()))
    if block.language == "python"
]


@pytest.mark.parametrize("code", CODE)
def test_the_code_of_a_page_is_that_of_an_example(code: str) -> None:
    """But for the model that is played, and what else the example has."""
    shown = statements(code)
    assert shown
    assert any(shown <= statements(path.read_text()) for path in EXAMPLES.glob("*.py"))
    exec(
        compile(code, "page", "exec"), {"__name__": "page"}
    )  # it has all the imports that it needs


def statements(code: str) -> set[str]:
    """Return a module's statements, without imports, docstring and names of scripted models."""
    tree = ast.parse(code)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            node.keywords = [each for each in node.keywords if each.arg != "model"]
    kept = (node for node in tree.body if not isinstance(node, ast.Import | ast.ImportFrom))
    return {ast.unparse(node) for node in kept if not isinstance(node, ast.Expr)}
