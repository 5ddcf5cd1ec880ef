"""The examples of the pages on models and on testing run."""

import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from passback import Agent
from passback.testing import serve_in_memory

DOCS = Path(__file__).parents[3] / "docs"


def examples_of(page: str) -> list[str]:
    text = (DOCS / page).read_text()
    return re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


EXAMPLES = examples_of("reference/models.md")


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_makes_an_agent(example: str) -> None:
    names: dict[str, object] = {}
    exec(example, names)
    agent = names["agent"]
    assert isinstance(agent, Agent)
    assert agent.model is names["model"]


def test_there_are_examples() -> None:
    assert len(EXAMPLES) == 6


@pytest.mark.anyio
async def test_a_model_of_ones_own_knows_what_was_posted_beside_the_words() -> None:
    names: dict[str, Any] = {}
    exec(EXAMPLES[-1], names)
    said = {"role": "user", "content": "How warm <b>is</b> it?"}
    native = {
        "conversationId": "c",
        "messages": [said],
        "structuredData": {"at": "</user_context>"},
        "instructions": "Be brief.",
        "intent": "to go out",
    }
    ag_ui = {
        "threadId": "d",
        "runId": "r1",
        "messages": [{**said, "id": "u1"}],
        "context": [{"description": "the place", "value": "Rome"}],
        "state": {"unit": "C"},
    }
    words = "You said: How warm <b>is</b> it?"
    known = {"context": [{"description": "the place", "value": "Rome"}], "state": {"unit": "C"}}
    async with (
        serve_in_memory(names["agent"]) as transport,
        httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client,
    ):

        async def answer(body: dict[str, Any]) -> str:
            given = (await client.post("/send-message?wait=true", json=body)).json()
            text: str = given["text"]
            return text

        bare = {"conversationId": "b", "messages": [said]}
        assert await answer(bare) == words
        assert await answer(native) == f'{words} I have: {{"at": "</user_context>"}}'
        again = {"conversationId": "c", "messages": [said]}
        assert await answer(again) == f'{words} I have: {{"at": "</user_context>"}}'
        assert (await client.post("/ag-ui", json=ag_ui)).status_code == 200
        assert (
            await answer({**again, "conversationId": "d"}) == f"{words} I have: {json.dumps(known)}"
        )


@pytest.mark.parametrize("example", examples_of("how-to/testing.md"))
def test_a_test_on_the_page_on_testing_passes(example: str) -> None:
    exec(example, {})
