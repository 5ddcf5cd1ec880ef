"""The models that clients may choose, by settings and agents, and the answers of the wires."""

from collections.abc import Sequence
from typing import Any

import anyio
import pytest
from tests.support.asgi_client import ask, ask_json

from passback.agent import Agent
from passback.app import Application
from passback.core.deltas import UsageChunk
from passback.core.errors import ConfigurationError, UnknownModel
from passback.core.messages import AssistantMessage, Usage
from passback.models.fallback import Fallback
from passback.models.scripted import ScriptedModel, calls, says
from passback.session import Session
from passback.settings import load_settings

pytestmark = pytest.mark.anyio

Json = dict[str, Any]
MEMORY = {"PASSBACK_STORE": "memory:"}
ALLOWED = {**MEMORY, "PASSBACK_MODELS": "demo:fast"}


def model(name: str, *texts: str) -> ScriptedModel:
    return ScriptedModel([[UsageChunk(Usage(1)), *says(each)] for each in texts], name=name)


async def post(application: Application, path: str, body: Json) -> tuple[int, Json]:
    with anyio.fail_after(10):
        answer = await ask_json(application.asgi, "POST", path, body)
    return answer.status, answer.json


async def send(application: Application, **body: Any) -> tuple[int, Json]:
    post_body = {"messages": [{"role": "user", "content": "hi"}], "conversationId": "c", **body}
    return await post(application, "/send-message?wait=true", post_body)


async def process(application: Application, **body: Any) -> tuple[int, Json]:
    message = {"role": "user", "content": [{"type": "text", "text": "hi"}]}
    return await post(
        application, "/process", {"input": [message], "session_id": "c", "stream": False, **body}
    )


# ---------------------------------------------------------------- answers
async def test_a_post_of_each_wire_chooses_a_model_that_answer_and_history_name() -> None:
    agent = Agent(model=model("x:own", "one"), models=[model("x:other", "two", "three")])
    application = Application(load_settings(MEMORY), agent)
    async with application.running():
        _, first = await send(application)
        _, second = await send(application, model="x:other")
        _, third = await process(application, model="other")
        assert (first["model"], second["model"], third["model"]) == ("x:own", "x:other", "x:other")
        history = await ask(application.asgi, "GET", "/conversations/c/messages")
        models = [(each["role"], each.get("model")) for each in history.json["messages"]]
        assert models == [
            *(("user", None), ("assistant", "x:own")),
            *(("user", "x:other"), ("assistant", "x:other")) * 2,
        ]


async def test_the_event_of_the_usage_names_the_model() -> None:
    application = Application(load_settings(MEMORY), Agent(model=model("x:own", "one")))
    body = {"messages": [{"role": "user", "content": "hi"}], "include": ["usage"]}
    async with application.running():
        answer = await ask_json(application.asgi, "POST", "/send-message", body)
    assert b'"model":"x:own"' in answer.body


@pytest.mark.parametrize("wire", [send, process])
@pytest.mark.parametrize("name", ["gpt-5", "", " "])
async def test_another_model_is_a_422_that_lists_the_allowed_ones(wire: Any, name: str) -> None:
    application = Application(load_settings(ALLOWED))
    async with application.running():
        status, refused = await wire(application, model=name)
        assert (status, refused["code"]) == (422, "unknown_model")
        assert refused["details"] == {"models": ["demo", "demo:fast"]}
        assert refused["message"].endswith("choose one of demo, demo:fast")
        assert (await ask(application.asgi, "GET", "/conversations/c")).status == 404


@pytest.mark.parametrize("wire", [send, process])
@pytest.mark.parametrize("settings", [MEMORY, ALLOWED])
async def test_null_is_the_agents_own_model_and_another_type_is_a_422(
    wire: Any, settings: dict[str, str]
) -> None:
    application = Application(load_settings(settings))
    async with application.running():
        status, answer = await wire(application, model=None)
        assert (status, answer["model"]) == (200, "demo")
        status, refused = await wire(application, model=["demo"])
        assert (status, refused["code"]) == (422, "invalid_request")
        assert refused["message"] == "model: Input should be a valid string"


@pytest.mark.parametrize("wire", [send, process])
@pytest.mark.parametrize("name", ["gpt-5", "", None])
async def test_without_a_choice_a_name_is_ignored(wire: Any, name: Any) -> None:
    application = Application(load_settings(MEMORY), Agent(model=model("x:own", "one")))
    async with application.running():
        status, answer = await wire(application, model=name)
        assert (status, answer["model"]) == (200, "x:own")


async def test_beside_results_alone_a_model_is_ignored_and_other_fields_are_not() -> None:
    script = [calls(("paint", {})), says("done")]
    application = Application(
        load_settings(ALLOWED), Agent(model=ScriptedModel(script, name="x:own"))
    )
    async with application.running():
        _, asked = await send(application, tools=[{"name": "paint"}])
        result = {"role": "tool", "toolCallId": asked["owed"][0]["id"], "content": "blue"}
        status, refused = await send(application, messages=[result], model="z", intent="x")
        assert (status, refused["message"]) == (
            422,
            (
                "structuredData, intent, constraints, instructions and outputSchema "
                "need a user message"
            ),
        )
        status, answer = await send(application, messages=[result], model="demo:fast")
        assert (status, answer["text"], answer["model"]) == (200, "done", "x:own")


# ---------------------------------------------------------------- allowed models
@pytest.mark.parametrize(
    ("settings", "agent", "allowed"),
    [
        ({}, Agent(), []),
        ({"MODELS": "demo:fast"}, Agent(), ["demo", "demo:fast"]),
        ({"MODELS": "demo,demo:fast"}, Agent(), ["demo", "demo:fast"]),
        ({"MODEL": "demo,demo:fast", "MODELS": "demo"}, Agent(), ["demo", "demo:fast"]),
        ({"MODELS": "demo:fast"}, Agent(models=[]), []),
        ({"MODELS": "demo"}, Agent(model=model("x:own")), ["x:own", "demo"]),
        (
            {"MODELS": "demo"},
            Agent(models=["demo:fast", model("x:a")]),
            ["demo", "demo:fast", "x:a"],
        ),
        (
            {},
            Agent(model=Fallback([model("x:a"), model("x:b")]), models=["demo"]),
            ["x:a", "x:b", "demo"],
        ),
        (
            {"MODEL": "openai:a", "MODELS": "openai:b,anthropic:c"},
            Agent(),
            ["openai:a", "openai:b", "anthropic:c"],
        ),
    ],
)
async def test_the_agents_own_and_the_allowed_models_may_be_chosen(
    settings: dict[str, str], agent: Agent, allowed: Sequence[str]
) -> None:
    given = {f"PASSBACK_{name}": value for name, value in settings.items()}
    keys = {"OPENAI_API_KEY": "sk-a", "ANTHROPIC_API_KEY": "sk-b"}
    application = Application(load_settings(MEMORY | given | keys), agent)
    async with application.running():
        if not allowed:
            assert (await send(application, model="z"))[0] == 200
            return
        _, refused = await send(application, model="z")
        assert refused["details"] == {"models": list(allowed)}


async def test_each_client_is_closed_and_checked_once() -> None:
    settings = load_settings(
        {**MEMORY, "PASSBACK_MODEL": "demo,demo:fast", "PASSBACK_MODELS": "demo:fast"}
    )
    [both] = Application(settings).backend.models
    assert isinstance(both, Fallback)
    other = Application(load_settings(ALLOWED), Agent(name="a"), Agent(name="b", model="demo:fast"))
    assert [each.name for each in other.backend.models] == ["demo", "demo:fast"]


def test_a_model_at_two_addresses_is_one_choice() -> None:
    two_addresses = {
        "PASSBACK_MODEL": "openai:a,openai:a",
        "PASSBACK_MODEL_BASE_URL": "http://127.0.0.1:1/v1,http://127.0.0.1:2/v1",
        "PASSBACK_MODELS": "demo",
    }
    Application(load_settings({**MEMORY, **two_addresses}))


@pytest.mark.parametrize(
    ("agent", "why"),
    [
        (
            Agent(name="a", models=[model("x:a"), model("x:a")]),
            "the agent 'a': models: two models are named 'x:a'",
        ),
        (Agent(model="openai:a"), "the agent: model: OpenAI needs a key"),
        (Agent(models=["anthropic:a"]), "the agent: models: Anthropic needs a key"),
    ],
)
def test_an_unusable_model_of_an_agent_is_an_error_that_names_the_agent(
    agent: Agent, why: str
) -> None:
    with pytest.raises(ConfigurationError, match=why):
        Application(load_settings(MEMORY), agent)


async def test_a_sub_agent_keeps_its_own_model() -> None:
    helper = Agent(name="helper", description="Helps.", model=model("x:helper", "helped"))
    boss = Agent(
        model=model("x:own"),
        models=[ScriptedModel([calls(("helper", {"task": "go"})), says("so")], name="x:other")],
        agents=[helper],
    )
    application = Application(load_settings(MEMORY), boss)
    async with application.running():
        _, answer = await send(application, model="other")
        assert (answer["text"], answer["model"]) == ("so", "x:other")
        history = await ask(application.asgi, "GET", "/conversations/c/messages")
        inner = [each["message"] for each in history.json["messages"] if each["role"] == "child"]
        assert [each.get("model") for each in inner] == [None, "x:helper"]


async def test_a_price_is_that_of_the_model_that_was_chosen() -> None:
    prices = {"PASSBACK_PRICES": "x:own=1/1, x:dear=1000000/0", "PASSBACK_RUN_BUDGET": "cost=1000"}
    agent = Agent(model=model("x:own", "a"), models=[model("x:dear", "b")])
    application = Application(load_settings(MEMORY | prices), agent)
    async with application.running():
        left = [
            (await send(application, model=name))[1]["usage"]["left"] for name in ("own", "dear")
        ]
    assert [1000 - each["cost"] for each in left] == pytest.approx([0.000001, 1])


async def test_a_session_may_choose_a_model() -> None:
    agent = Agent(model=model("x:own"), models=[model("x:other", "two")])
    async with Session(agent) as session:
        with pytest.raises(UnknownModel):
            await anext(session.submit("hi", model="z"))
        _ = [event async for event in session.submit("hi", model="other")]
        [_, answer] = await session.messages()
    assert isinstance(answer, AssistantMessage)
    assert answer.model == "x:other"


# ---------------------------------------------------------------- titles
async def title(application: Application) -> str:
    """Return the title when a model has written it."""
    with anyio.fail_after(10):
        while True:
            shown = await ask(application.asgi, "GET", "/conversations/c")
            if shown.json["title"] != "hi":
                return str(shown.json["title"])


@pytest.mark.parametrize("titles", ["model", "demo:fast"])
async def test_a_model_writes_titles_where_the_setting_says_so(titles: str) -> None:
    settings = {**MEMORY, "PASSBACK_MODEL": "demo:fast", "PASSBACK_TITLES": titles}
    application = Application(load_settings(settings))
    async with application.running():
        assert (await send(application))[0] == 200
        assert await title(application) == "A talk with the demo model"
        shown = await ask(application.asgi, "GET", "/conversations/c")
        messages = await ask(application.asgi, "GET", "/conversations/c/messages")
        [spent] = [m["usage"] for m in messages.json["messages"] if m["role"] == "assistant"]
        assert shown.json["usage"]["outputTokens"] > spent["outputTokens"]


async def test_the_model_that_has_answered_writes_the_title_at_its_own_price() -> None:
    own, other = model("x:own", "one"), model("x:other", "two", "“Blue”")
    settings = {**MEMORY, "PASSBACK_TITLES": "model", "PASSBACK_PRICES": "x:other=1000000/0"}
    application = Application(load_settings(settings), Agent(model=own, models=[other]))
    async with application.running():
        await send(application, model="x:other")
        assert await title(application) == "Blue"
        assert (await ask(application.asgi, "GET", "/conversations/c")).json["cost"] == 2.0


async def test_the_prices_of_a_named_model_count_for_its_titles() -> None:
    settings = {**MEMORY, "PASSBACK_TITLES": "demo:fast", "PASSBACK_PRICES": "demo:fast=0/1000000"}
    application = Application(load_settings(settings), Agent(model=model("x:own", "one")))
    async with application.running():
        await send(application)
        await title(application)
        shown = (await ask(application.asgi, "GET", "/conversations/c")).json
        assert shown["cost"] == shown["usage"]["outputTokens"] > 0


async def test_without_the_setting_no_model_is_asked_for_a_title() -> None:
    own = model("x:own", "one", "two")
    application = Application(load_settings(MEMORY), Agent(model=own))
    async with application.running():
        await send(application)
        await send(application)
        assert len(own.requests) == 2
        shown = (await ask(application.asgi, "GET", "/conversations/c")).json
        assert shown["title"] == "hi"


def test_the_model_of_titles_is_checked_and_closed_like_the_others() -> None:
    settings = load_settings({**MEMORY, "PASSBACK_TITLES": "demo:fast"})
    agents = Agent(name="a"), Agent(name="b")
    assert [one.name for one in Application(settings, *agents).backend.models] == [
        "demo",
        "demo:fast",
    ]
