"""The agents of a server, in the Python client, with a scripted server."""

from typing import Any

import pytest
from tests.support.python_client import QUICK, Script, document, refusal

from passback_client import (
    AgentCommand,
    AgentModel,
    AgentView,
    BadAnswer,
    Client,
    PostLimits,
    Refused,
    ServerAgents,
)
from passback_client import sync as plain

pytestmark = pytest.mark.anyio

LIMITS = {"bodyBytes": 600, "attachmentBytes": 300}
MODELS = [{"id": "openai:gpt-5", "media": ["audio", "image"]}, {"id": "demo", "media": []}]
CLERK = {"id": "clerk", "models": MODELS, "commands": [{"name": "help", "description": "Lists."}]}
AGENTS = {"agents": [CLERK, {"id": "other", "models": [], "commands": []}], "limits": LIMITS}
EXPECTED = ServerAgents(
    (
        AgentView(
            "clerk",
            (AgentModel("openai:gpt-5", ("audio", "image")), AgentModel("demo", ())),
            (AgentCommand("help", "Lists."),),
        ),
        AgentView("other", (), ()),
    ),
    PostLimits(600, 300),
)


async def test_the_agents_are_read_with_their_models_commands_and_limits() -> None:
    newer = {**AGENTS, "newer": True, "limits": {**LIMITS, "newer": 1}}
    script = Script(refusal(503, "store_unavailable"), document(newer))
    async with Client("http://host/p", transport=script.transport, retry=QUICK) as client:
        assert await client.agents() == EXPECTED
    paths = [(request.method, request.url.raw_path) for request in script.requests]
    assert paths == [("GET", b"/p/agents")] * 2


def test_they_are_read_without_async() -> None:
    script = Script(document(AGENTS), refusal(401, "unauthorized"))
    with plain.Client("http://host", transport=script.transport) as client:
        assert client.agents() == EXPECTED
        with pytest.raises(Refused):
            client.agents()


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {**AGENTS, "agents": None},
        {**AGENTS, "agents": [{"id": "a", "models": []}]},
        {**AGENTS, "agents": [{**CLERK, "models": [{"id": "m", "media": "image"}]}]},
        {**AGENTS, "limits": {"bodyBytes": "many", "attachmentBytes": 1}},
    ],
)
async def test_an_answer_without_agents_is_a_bad_one(fields: dict[str, Any]) -> None:
    script = Script(document(fields))
    async with Client("http://host", transport=script.transport) as client:
        with pytest.raises(BadAnswer):
            await client.agents()
