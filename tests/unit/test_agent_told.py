"""What an `Agent` says becomes what its runs are told and held to."""

import re
from typing import Any

import pytest
from pydantic import BaseModel, JsonValue

from passback import Agent
from passback.app import Application
from passback.context.prompt import (
    ASK_GUIDE,
    CONDUCT,
    DATA_GUIDE,
    MAX_PASTED_BYTES,
    PromptLayers,
    output_guide,
)
from passback.core.errors import ConfigurationError
from passback.core.messages import (
    ConversationId,
    ConversationKey,
    OwnerId,
    RunId,
    RunRef,
    ToolMessage,
    UserMessage,
)
from passback.models.scripted import ScriptedModel, calls, says
from passback.session import Session
from passback.settings import Settings

RUN = RunRef(ConversationKey(OwnerId("ann"), ConversationId("c")), RunId("r"))


class Answer(BaseModel):
    city: str


SCHEMA = Answer.model_json_schema()


@pytest.mark.parametrize(
    ("agent", "told"),
    [
        (Agent(), f"# Rules\n{CONDUCT}"),
        (Agent(conduct=""), ""),
        (Agent(prompt="You sell."), f"# Role\nYou sell.\n\n# Rules\n{CONDUCT}"),
        (
            Agent(prompt="## Salesman\nYou sell.", conduct="Be kind."),
            "## Salesman\nYou sell.\n\n# Rules\nBe kind.",
        ),
        (Agent(prompt="#1 of all shops", conduct=""), "# Role\n#1 of all shops"),
        (
            Agent(prompt="You sell.", data_tools=True, conduct=""),
            f"# Role\nYou sell.\n\n{DATA_GUIDE}",
        ),
        (Agent(ask_user=True), f"# Rules\n{CONDUCT}\n\n{ASK_GUIDE}"),
        (Agent(output_schema=Answer, conduct=""), output_guide(SCHEMA)),
    ],
)
def test_the_prompt_has_sections_and_a_guide_for_what_the_agent_uses(
    agent: Agent, told: str
) -> None:
    assert agent.static_prompt() == told


def test_the_settings_prompt_takes_the_place_of_the_agents_words_only() -> None:
    agent = Agent(prompt="You sell.", data_tools=True, conduct="Be kind.")
    rules = "# Rules\nBe kind."
    assert agent.static_prompt("You buy.") == f"# Role\nYou buy.\n\n{rules}\n\n{DATA_GUIDE}"


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
        assert agent.prompt_layers() == PromptLayers(MAX_PASTED_BYTES if wanted else None)


@pytest.mark.anyio
async def test_an_odd_field_in_a_column_of_numbers_is_told_in_prompt_and_results() -> None:
    query = calls(("query_data", {"expression": "sum(bills[].open)"}))
    model = ScriptedModel([query, says("so")])
    rows = "who,open\nBob,n/a\n" + "Ann,120\n" * 4000
    data: JsonValue = {"bills": {"mediaType": "text/csv", "text": rows}}
    async with Session(Agent(model, data_tools=True)) as session:
        _ = [event async for event in session.submit("How much?", structured_data=data)]
    [words] = [one for one in model.requests[0].messages if isinstance(one, UserMessage)]
    assert '"mixed":{"open":"text: 1 of its first 2046 fields is not a number"}' in str(
        words.content
    )
    [result] = [one for one in model.requests[1].messages if isinstance(one, ToolMessage)]
    assert "Note: the column 'open' of 'bills' holds texts, as 1 of its 4001" in str(result.content)
    assert result.is_error


@pytest.mark.anyio
async def test_a_context_is_asked_of_the_authors_function() -> None:
    context = Agent(context=lambda run: f"for {run.key.owner}").extra_prompt()
    assert context is not None
    assert await context(RUN) == "# Context\nfor ann"
    assert Agent().extra_prompt() is None


@pytest.mark.anyio
async def test_the_time_stays_with_its_message_and_nothing_before_it_changes() -> None:
    """What the model's service has in its cache of a request, the next one begins with."""
    model = ScriptedModel([says("one"), says("two")])
    async with Session(Agent(model=model, prompt="You sell.")) as session:
        for words in ("hi", "go on"):
            async for _ in session.submit(words):
                pass
    first, second = model.requests
    assert first.system == second.system == f"# Role\nYou sell.\n\n# Rules\n{CONDUCT}"
    assert second.messages[: len(first.messages)] == first.messages
    timed = r"<user_context>\n<time>\d{4}-\S+\+00:00</time>\n</user_context>\n\n"
    for message, words in ((second.messages[0], "hi"), (second.messages[2], "go on")):
        assert re.fullmatch(timed + words, str(message.content))


@pytest.mark.anyio
async def test_an_agent_may_be_told_nothing_but_the_words() -> None:
    model = ScriptedModel([says("one")])
    async with Session(Agent(model=model, conduct="", tell_time=False)) as session:
        async for _ in session.submit("hi"):
            pass
    [request] = model.requests
    assert request.system == ""
    assert [message.content for message in request.messages] == ["hi"]
