"""Agents: permissions, the check of their arguments, and their prompt."""

import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import anyio
import anyio.to_process
import pytest
from pydantic import BaseModel, JsonValue
from tests.support.asgi_client import ask_json

from passback import Agent, Fork, Permission, tool
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
    ToolCall,
    ToolMessage,
    UserMessage,
)
from passback.core.permissions import Decision, Rule
from passback.core.questions import ASK_USER
from passback.models.scripted import ScriptedModel, calls, says
from passback.session import Session
from passback.settings import Settings, load_settings
from passback.toolsets.plan import PlanTools
from passback.toolsets.querying import Query, run_query

pytestmark = pytest.mark.anyio


POST = {"conversationId": "c", "messages": [{"role": "user", "content": "go"}]}


@tool(permission=Permission("ask", "The tool's word."))
def pay() -> str:
    return "paid"


def private(call: ToolCall, _run: RunRef) -> Permission | None:
    return Permission("deny", "The agent's word.") if call.name == "pay" else None


ALLOWED, ASKED = "paid", "The tool's word."
PERMISSION_CASES: list[tuple[str, Mapping[str, Decision] | Rule | None, str]] = [
    ("", None, ASKED),
    ("", {}, ASKED),
    ("", {"p*": "allow"}, ALLOWED),
    ("", {"x": "deny"}, ASKED),
    ("", private, "Not executed: The agent's word."),
    ("pay=allow", private, ALLOWED),
    ("x=allow", private, "Not executed: The agent's word."),
    ("x=deny, p?y=allow, *=deny", {"pay": "deny"}, ALLOWED),
    ("pay=deny", {"pay": "allow"}, "Not executed: this tool may not be called"),
    ("pay=ask", {"pay": "allow"}, "The agent wants to call pay."),
]


@pytest.mark.parametrize(("setting", "permissions", "content"), PERMISSION_CASES)
async def test_permissions_of_the_settings_win_over_the_agent_and_then_the_tool(
    setting: str, permissions: Mapping[str, Decision] | Rule | None, content: str
) -> None:
    model = ScriptedModel([calls(("pay", {})), says("so")])
    agent = Agent(model=model, tools=[pay], permissions=permissions)
    settings = load_settings({"PASSBACK_STORE": "memory:", "PASSBACK_PERMISSIONS": setting})
    application = Application(settings, agent)
    with anyio.fail_after(10):
        async with application.running():
            answer = await ask_json(application.asgi, "POST", "/send-message", POST)
    assert answer.status == 200
    assert f'"{content}"' in answer.body.decode()


@pytest.mark.parametrize("permissions", [{"pay": "perhaps"}, {"pay": None}])
def test_an_agent_with_an_unknown_decision_does_not_start(
    permissions: Mapping[str, Decision],
) -> None:
    with pytest.raises(
        ConfigurationError, match=r"\.pay: Input should be 'allow', 'deny' or 'ask'"
    ):
        Application(load_settings({"PASSBACK_STORE": "memory:"}), Agent(permissions=permissions))


@pytest.mark.parametrize("offers", [True, False])
async def test_an_agent_may_offer_to_ask_the_user(offers: bool) -> None:
    model = ScriptedModel([says("so")])
    agent = Agent(model=model, tools=[pay], ask_user=offers)
    application = Application(load_settings({"PASSBACK_STORE": "memory:"}), agent)
    with anyio.fail_after(10):
        async with application.running():
            await ask_json(application.asgi, "POST", "/send-message", POST)
    assert model.requests[0].tools == ((pay.spec, ASK_USER) if offers else (pay.spec,))


@pytest.mark.promise("P12")
async def test_an_approval_for_a_removed_agent_is_refused_and_another_continues(
    tmp_path: Path,
) -> None:
    settings = load_settings({"PASSBACK_STORE": f"sqlite:///{tmp_path}/talks.db"})
    others = [Agent(ScriptedModel([says("so")]), name="b"), Agent(ScriptedModel([]), name="c")]
    gone = Agent(ScriptedModel([calls(("pay", {}))]), tools=[pay], name="a")
    path = "/v1/aibot/bots/{}/send-message?wait=true"
    with anyio.fail_after(20):
        first = Application(settings, gone, *others)
        async with first.running():
            asked = (await ask_json(first.asgi, "POST", path.format("a"), POST)).json
        second = Application(settings, *others)
        async with second.running():
            answer = {"interruptId": asked["owed"][0]["id"], "payload": {"approved": False}}
            resume = {"conversationId": "c", "resume": answer}
            refused = await ask_json(second.asgi, "POST", path.format("b"), resume)
            accepted = await ask_json(second.asgi, "POST", path.format("b"), POST)
    assert (refused.status, refused.json["code"], refused.json["message"]) == (
        404,
        "agent_not_found",
        (
            "the agent that was asked last here is not on this server; "
            "send a message to another agent to continue"
        ),
    )
    assert (accepted.status, accepted.json["text"]) == (200, "so")


# ---------------------------------------------------------------- arguments
NAMES = "at most 32 of a-z, 0-9, _ and -, a letter first"
MODEL = "Input should be a model's name, such as 'openai:gpt-5', or a client"
TEXT = "Input should be a valid string"
UNICODE = f"{TEXT}, unable to parse raw data as a unicode string"
BOOLEAN = "Input should be a valid boolean"
RULE = "a function of two arguments, the call and the run"


def two_arguments(_text: str, _context: object) -> str:
    return ""


MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"model": 5}, f"{MODEL} (given: 5)"),
    ({"model": ScriptedModel}, f"{MODEL} (given: the class ScriptedModel)"),
    ({"models": "openai:a"}, "'str' instances are not allowed as a Sequence value (given: str)"),
    ({"models": ["openai:a,openai:b"]}, f"{MODEL} (given: str)"),
    ({"models": [5]}, f"{MODEL} (given: 5)"),
    ({"prompt": None}, f"{TEXT} (given: None)"),
    ({"prompt": "\ud800"}, f"{UNICODE} (given: str)"),
    ({"tools": 5}, "Input should be an instance of Sequence (given: 5)"),
    ({"tools": [5]}, "Input should be a function (given: 5)"),
    (
        {"toolsets": [PlanTools]},
        "Input should be a toolset, such as an MCPServer (given: the class PlanTools)",
    ),
    ({"agents": [5]}, "Input should be an Agent or a Fork (given: 5)"),
    ({"concurrent": 0}, f"{BOOLEAN} (given: 0)"),
    ({"conduct": None}, f"{TEXT} (given: None)"),
    ({"name": 5}, f"{TEXT} (given: 5)"),
    ({"description": b""}, f"{TEXT} (given: bytes)"),
    ({"max_turns": 0}, "Input should be greater than or equal to 1 (given: 0)"),
    ({"max_turns": "x"}, "Input should be a valid integer (given: str)"),
    ({"options": 5}, "Input should be a valid dictionary (given: 5)"),
    ({"options": {"key": object()}}, ".key: input was not a valid JSON value (given: object)"),
    ({"permissions": 5}, f"Input should be a dict of decisions by tool name, or {RULE} (given: 5)"),
    ({"permissions": {5: "ask"}}, f".5.[key]: {TEXT} (given: 5)"),
    ({"permissions": {"pay": "no"}}, ".pay: Input should be 'allow', 'deny' or 'ask' (given: str)"),
    ({"permissions": lambda _call: "ask"}, f"Input should be {RULE} (given: function)"),
    ({"ask_user": 1}, f"{BOOLEAN} (given: 1)"),
    ({"window": True}, "Input should be 0, or from 1000 to 100000000 tokens (given: True)"),
    ({"window": 999}, "Input should be 0, or from 1000 to 100000000 tokens (given: 999)"),
    ({"plan": "x"}, f"{BOOLEAN} (given: str)"),
    ({"budget": 5}, "Input should be an instance of Budget (given: 5)"),
    ({"context": 5}, "Input should be a function of one argument, the run (given: 5)"),
    (
        {"context": lambda: ""},
        "Input should be a function of one argument, the run (given: function)",
    ),
    ({"tell_time": None}, f"{BOOLEAN} (given: None)"),
    ({"data_tools": "no"}, f"{BOOLEAN} (given: str)"),
    (
        {"output_schema": int},
        "a JSON Schema of type object, or a pydantic model (given: the class int)",
    ),
    ({"commands": [1]}, "Input should be a valid dictionary (given: list)"),
    ({"commands": {"X": two_arguments}}, f"Input should be a name, {NAMES} (given: str)"),
    (
        {"commands": {"x": lambda: ""}},
        (
            ".x: Input should be a function of two arguments, the text and a CommandContext "
            "(given: function)"
        ),
    ),
]


@pytest.mark.parametrize(("given", "problem"), MISTAKES)
def test_a_wrong_argument_of_an_agent_is_named(given: Mapping[str, Any], problem: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        Agent(**given)
    [name] = given
    assert raised.value.message.startswith((f"Agent: {name}: ", f"Agent: {name}."))
    assert raised.value.message.endswith(problem)


def test_every_argument_of_an_agent_but_deps_is_checked() -> None:
    checked = {name for given, _ in MISTAKES for name in given}
    assert checked == {one.name for one in fields(Agent)} - {"deps"}


def test_a_pydantic_model_without_a_schema_is_an_error_at_start() -> None:
    class WithoutSchema(BaseModel):
        model_config = {"arbitrary_types_allowed": True}

        thing: Agent

    with pytest.raises(ConfigurationError, match="output_schema has no JSON Schema"):
        Application(
            load_settings({"PASSBACK_STORE": "memory:"}), Agent(output_schema=WithoutSchema)
        )


@pytest.mark.parametrize(
    ("make", "given", "problem"),
    [
        (Fork, {"name": None}, f"name: {TEXT} (given: None)"),
        (Fork, {"description": 5}, f"description: {TEXT} (given: 5)"),
        (Fork, {"concurrent": "no"}, f"concurrent: {BOOLEAN} (given: str)"),
        (tool, {"name": 5}, f"name: {TEXT} (given: 5)"),
        (tool, {"description": "\ud800"}, f"description: {UNICODE} (given: str)"),
        (tool, {"seconds": "60"}, "seconds: Input should be a valid number (given: str)"),
        (tool, {"seconds": 0}, "seconds: Input should be greater than 0 (given: 0)"),
        (tool, {"retries": -1}, "retries: Input should be greater than or equal to 0 (given: -1)"),
        (tool, {"repeatable": 1}, f"repeatable: {BOOLEAN} (given: 1)"),
        (
            tool,
            {"read_only": None},
            (
                "read_only: Input should be True, False, or a function of the tool's arguments "
                "(given: None)"
            ),
        ),
    ],
)
def test_a_wrong_argument_of_a_fork_or_a_tool_is_named(
    make: Callable[..., object], given: Mapping[str, Any], problem: str
) -> None:
    with pytest.raises(ConfigurationError) as raised:
        make(**given)
    assert raised.value.message == f"{make.__name__}: {problem}"


# ---------------------------------------------------------------- the prompt
RUN = RunRef(ConversationKey(OwnerId("ann"), ConversationId("c")), RunId("r"))


class Answer(BaseModel):
    city: str


SCHEMA = Answer.model_json_schema()


@pytest.mark.parametrize(
    ("agent", "prompt"),
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
def test_the_prompt_has_a_section_for_each_feature_in_use(agent: Agent, prompt: str) -> None:
    assert agent.static_prompt() == prompt


def test_the_prompt_of_the_settings_replaces_only_that_of_the_agent() -> None:
    agent = Agent(prompt="You sell.", data_tools=True, conduct="Be kind.")
    rules = "# Rules\nBe kind."
    assert agent.static_prompt("You buy.") == f"# Role\nYou buy.\n\n{rules}\n\n{DATA_GUIDE}"


@pytest.mark.parametrize("schema", [Answer, SCHEMA])
def test_an_answer_has_a_schema_or_a_pydantic_model(schema: Any) -> None:
    assert Agent(output_schema=schema).answer_schema() == SCHEMA
    assert Agent().answer_schema() is None


@pytest.mark.promise("P12")
@pytest.mark.parametrize("schema", [{"type": "array"}, {"properties": 1}, {"$ref": "https://x/"}])
def test_an_invalid_schema_is_refused_at_start(schema: Any) -> None:
    with pytest.raises(ConfigurationError, match="the agent's output_schema: its schema"):
        Application(Settings(store="memory:"), Agent(output_schema=schema))


@pytest.mark.anyio
async def test_data_tools_are_an_option() -> None:
    for wanted, names in (
        (True, {"query_data", "summarise_data", "validate_data"}),
        (False, set()),
    ):
        agent = Agent(data_tools=wanted)
        specs = [spec for toolset in agent.own_toolsets() for spec in await toolset.specs()]
        assert {spec.name for spec in specs} == names
        assert agent.prompt_layers() == PromptLayers(MAX_PASTED_BYTES if wanted else None)


@pytest.mark.anyio
async def test_a_text_in_a_column_of_numbers_is_noted_in_prompt_and_results() -> None:
    query = calls(("query_data", {"expression": "sum(bills[].open)"}))
    model = ScriptedModel([query, says("so")])
    rows = "who,open\nBob,n/a\n" + "Ann,120\n" * 4000
    data: JsonValue = {"bills": {"mediaType": "text/csv", "text": rows}}
    # a process starts first: its start shall not count for the deadline of the query
    await anyio.to_process.run_sync(run_query, b"{}", Query("@", 10))
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
async def test_a_context_comes_from_the_authors_function() -> None:
    context = Agent(context=lambda run: f"for {run.key.owner}").extra_prompt()
    assert context is not None
    assert await context(RUN) == "# Context\nfor ann"
    assert Agent().extra_prompt() is None


@pytest.mark.anyio
async def test_the_time_stays_with_its_message_and_nothing_before_it_changes() -> None:
    """Each request begins with the whole one before it, which the model's service has cached."""
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
async def test_a_prompt_may_be_empty() -> None:
    model = ScriptedModel([says("one")])
    async with Session(Agent(model=model, conduct="", tell_time=False)) as session:
        async for _ in session.submit("hi"):
            pass
    [request] = model.requests
    assert request.system == ""
    assert [message.content for message in request.messages] == ["hi"]
