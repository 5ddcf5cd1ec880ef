"""What an `Agent` says becomes what its runs are told and held to."""

from typing import Any

import pytest
from pydantic import BaseModel

from passback import Agent
from passback.app import Application
from passback.context.prompt import ASK_GUIDE, DATA_GUIDE, PASTED, Layers, output_guide
from passback.core.errors import ConfigurationError
from passback.core.messages import ConversationId, ConversationKey, OwnerId, RunId, RunRef
from passback.settings import Settings

RUN = RunRef(ConversationKey(OwnerId("ann"), ConversationId("c")), RunId("r"))


class Answer(BaseModel):
    city: str


SCHEMA = Answer.model_json_schema()


@pytest.mark.parametrize(
    ("agent", "told"),
    [
        (Agent(), ""),
        (Agent(prompt="You sell."), "You sell."),
        (Agent(prompt="You sell.", data_tools=True), f"You sell.\n\n{DATA_GUIDE}"),
        (Agent(ask_user=True), ASK_GUIDE),
        (Agent(output_schema=Answer), output_guide(SCHEMA)),
    ],
)
def test_a_guide_is_given_for_what_the_agent_uses(agent: Agent, told: str) -> None:
    assert agent.told() == told


def test_the_settings_prompt_takes_the_place_of_the_agents_words_only() -> None:
    agent = Agent(prompt="You sell.", data_tools=True)
    assert agent.told("You buy.") == f"You buy.\n\n{DATA_GUIDE}"


@pytest.mark.parametrize("schema", [Answer, SCHEMA])
def test_answers_have_a_schema_or_a_model(schema: Any) -> None:
    assert Agent(output_schema=schema).answer_schema() == SCHEMA
    assert Agent().answer_schema() is None


@pytest.mark.promise("P12")
@pytest.mark.parametrize("schema", [{"type": "array"}, {"properties": 1}, {"$ref": "https://x/"}])
def test_a_schema_that_is_none_is_refused_at_the_start(schema: Any) -> None:
    with pytest.raises(ConfigurationError, match="the agent's output_schema: its schema"):
        Application(Settings(store="memory:"), Agent(output_schema=schema))


@pytest.mark.anyio
async def test_data_tools_are_offered_where_the_agent_wants_them() -> None:
    for wanted, names in (
        (True, {"query_data", "summarise_data", "validate_data"}),
        (False, set()),
    ):
        agent = Agent(data_tools=wanted)
        specs = [spec for toolset in agent.own_toolsets() for spec in await toolset.specs()]
        assert {spec.name for spec in specs} == names
        assert agent.layers() == Layers(PASTED if wanted else None)


@pytest.mark.anyio
async def test_a_context_is_asked_of_the_authors_function() -> None:
    context = Agent(context=lambda run: f"for {run.key.owner}").run_context()
    assert context is not None
    assert await context(RUN) == "for ann"
    assert Agent().run_context() is None
