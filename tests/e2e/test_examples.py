"""docs/examples: each file is an agent that is served and asked, as its page says.

A new example needs one function here, under its name: `@plays("name")`.
"""

import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeAlias

import pytest
from tests.support.server import running_server
from tests.support.wire import Client, client_of, user

pytestmark = pytest.mark.anyio

DOCS = Path(__file__).resolve().parents[2] / "docs"
EXAMPLES = DOCS / "examples"
WAIT = "/send-message?wait=true"

ELSEWHERE = {"mcp_agent", "notes_server"}
"""Played by `test_mcp.py`."""

Play: TypeAlias = Callable[[Client], Awaitable[None]]
PLAYS: dict[str, Play] = {}


def plays(name: str) -> Callable[[Play], Play]:
    """What a client does with the example of this name."""

    def noted(play: Play) -> Play:
        PLAYS[name] = play
        return play

    return noted


# ---------------------------------------------------------------- the examples
@plays("structured_data")
async def structured_data(client: Client) -> None:
    invoices = [{"customer": "Bob", "open": 80}, {"customer": "Ann", "open": 120}]
    words = user("Who owes us most?")
    answer = await client.post("c", words, structuredData={"invoices": invoices}, path=WAIT)
    told = answer.json
    assert (told["outcome"], told["output"]) == ("completed", {"customer": "Ann", "open": 120})
    # what streamed was a draft: the first answer lacked something
    assert told["text"] == '{"customer": "Ann"}{"customer": "Ann", "open": 120}'
    messages = await client.messages("c")
    assert [each["role"] for each in messages] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "system",
        "assistant",
    ]
    assert messages[0]["structuredData"] == {"invoices": invoices}
    assert messages[2]["content"] == '{"customer":"Ann","open":120}'
    assert messages[4]["synthetic"] == "invalid"
    assert '"open" is a required property' in messages[4]["content"]


# ---------------------------------------------------------------- running them
@pytest.mark.parametrize("name", sorted(PLAYS))
async def test_an_example_does_what_its_page_says(name: str) -> None:
    async with (
        running_server(f"{name}:agent", cwd=str(EXAMPLES)) as server,
        client_of(server.url) as client,
    ):
        await PLAYS[name](client)


def test_every_example_is_played_and_every_page_leads_to_one() -> None:
    names = {path.stem for path in EXAMPLES.glob("*.py")}
    linked = {
        name
        for page in DOCS.glob("*.md")
        for name in re.findall(r"\(examples/(\w+)\.py\)", page.read_text())
    }
    assert names == PLAYS.keys() | ELSEWHERE == linked
