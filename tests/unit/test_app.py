"""Settings and an agent become an application."""

import json
import socket
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.support.asgi_client import Exchange, ask, exchange
from tests.support.waiting import wait_until

from passback.agent import Agent
from passback.app import Application, create_app
from passback.commands.serve import serve
from passback.core.errors import ConfigurationError
from passback.models.demo import DemoModel
from passback.models.fallback import Fallback
from passback.models.scripted import ScriptedModel, says
from passback.settings import Settings, load_settings, own_settings
from passback.toolsets.functions import tool

pytestmark = pytest.mark.anyio

MEMORY = {"PASSBACK_STORE": "memory:"}


async def test_every_setting_is_handed_over() -> None:
    """A worker that finds its port in use has read them all; the stores get all their options."""
    read: set[str] = set()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        settings = load_settings({**MEMORY, "PASSBACK_PORT": str(taken.getsockname()[1])})
        groups = {
            name: recording(getattr(settings, name), f"{name}.", read)
            for name in ("limits", "timing")
        }
        recorded: Settings = recording(replace(settings, **groups), "", read)
        read.clear()
        with pytest.raises(ConfigurationError, match="cannot listen"):
            await serve(recorded, [])
    parts = {f"{name}.{one.name}" for name in groups for one in fields(getattr(settings, name))}
    by_the_command_line = {"workers", "allow_anonymous", "log_level", "log_format"}
    unread = parts.union(one.name for one in own_settings()) - by_the_command_line - read
    assert unread == set(), "hand them over: CONTRIBUTING.md, a setting"


def recording(value: Any, prefix: str, read: set[str]) -> Any:
    """Return the same dataclass, which records the names of the attributes that are read."""

    def record(self: object, name: str) -> object:
        read.add(prefix + name)
        return object.__getattribute__(self, name)

    kind = type("Recording", (value.__class__,), {"__getattribute__": record})
    return kind(**{one.name: getattr(value, one.name) for one in fields(value)})


async def test_a_worker_runs_and_drains() -> None:
    model = ScriptedModel([], name="mine")
    application = Application(load_settings(MEMORY), Agent(model=model))
    assert application.backend.models == (model,)
    with anyio.fail_after(10):
        async with application.running() as warnings:
            assert len(warnings) == 1
            assert "in memory" in warnings[0]
            await application.drain()


async def test_the_application_has_a_lifespan_for_any_server() -> None:
    asgi = create_app(load_settings(MEMORY))
    sent: list[object] = []
    send_in, receive = anyio.create_memory_object_stream[dict[str, str]](2)
    with send_in, receive:
        for kind in ("startup", "shutdown"):
            send_in.send_nowait({"type": f"lifespan.{kind}"})

        async def send(message: object) -> None:
            sent.append(message)

        with anyio.fail_after(10):
            await asgi({"type": "lifespan", "state": {}}, receive.receive, send)
    assert sent == [{"type": "lifespan.startup.complete"}, {"type": "lifespan.shutdown.complete"}]


async def test_a_store_that_cannot_be_used_is_an_error_of_its_own_kind(tmp_path: Path) -> None:
    """It is in no exception group, so that the command line can print it."""
    (tmp_path / "file").touch()
    application = Application(
        load_settings({"PASSBACK_STORE": f"sqlite:///{tmp_path}/file/store.db"})
    )
    with pytest.raises(ConfigurationError):
        async with application.running():
            pass


def post(
    application: Application, text: str = "hi", **options: str
) -> AbstractAsyncContextManager[Exchange]:
    """Send a message to the conversation `c`, unless `options` names another one."""
    message = {"role": "user", "content": text}
    return exchange(
        application.asgi,
        "POST",
        "/send-message",
        headers={"content-type": "application/json"},
        body=json.dumps({"conversationId": "c", "messages": [message], **options}).encode(),
    )


async def test_on_busy_and_the_length_of_the_queue_are_settings() -> None:
    """The first post runs, the second waits, the third finds no room."""
    settings = load_settings(
        {**MEMORY, "PASSBACK_ON_BUSY": "enqueue", "PASSBACK_LIMITS": "queue=1"}
    )
    gate = anyio.Event()
    model = ScriptedModel([[gate, *says("one")], says("two")])
    application = Application(settings, Agent(model=model))
    with anyio.fail_after(10):
        async with (
            application.running(),
            post(application) as first,
            post(application) as second,
            post(application) as third,
        ):
            assert [one.status for one in (first, second)] == [200, 200]
            assert third.status >= 400
            assert b'"queue_full"' in await third.rest()
            gate.set()
            assert b"one" in await first.rest()
            assert b"two" in await second.rest()


@pytest.mark.parametrize(
    ("setting", "code"),
    [
        ({"PASSBACK_MODEL_WINDOW": "1000"}, b'"message_too_large"'),
        ({"PASSBACK_LIMITS": "history_bytes=65536"}, b'"history_too_large"'),
    ],
)
async def test_the_sizes_of_a_message_and_a_history_are_settings(
    setting: dict[str, str], code: bytes
) -> None:
    """A refused message is not stored: its conversation does not exist."""
    application = Application(load_settings({**MEMORY, **setting}), Agent(model=ScriptedModel([])))
    async with application.running():
        async with post(application, text="x" * 100_000) as refused:
            assert refused.status == 413
            assert code in await refused.rest()
        async with exchange(application.asgi, "GET", "/conversations/c") as never:
            assert never.status == 404


async def test_the_number_of_runs_of_an_owner_is_a_setting() -> None:
    """The second is refused with a time to retry, and its conversation does not exist."""
    settings = load_settings({**MEMORY, "PASSBACK_LIMITS": "owner_runs=1"})
    gate = anyio.Event()
    application = Application(settings, Agent(model=ScriptedModel([[gate, *says("one")]])))
    with anyio.fail_after(10):
        async with application.running(), post(application, conversationId="a") as first:
            async with post(application, conversationId="b") as second:
                assert (second.status, second.headers["retry-after"]) == (429, "1")
                assert b'"too_many_runs"' in await second.rest()
            gate.set()
            assert b"one" in await first.rest()
            async with exchange(application.asgi, "GET", "/conversations/b") as never:
                assert never.status == 404


@pytest.mark.promise("P7")
async def test_the_time_of_a_run_without_a_reader_is_a_setting() -> None:
    settings = load_settings({**MEMORY, "PASSBACK_TIMING": "disconnect_grace=0"})
    model = ScriptedModel([["half", anyio.Event()]])
    application = Application(settings, Agent(model=model))
    with anyio.fail_after(10):
        async with application.running():
            async with post(application, onDisconnect="cancel") as one:
                while b"half" not in await one.chunk():
                    assert not one.ended
            await wait_until(lambda: model.open_streams == 0)


async def test_several_models_are_asked_in_turn() -> None:
    settings = load_settings(
        {
            **MEMORY,
            "PASSBACK_MODEL": "anthropic:a, openai:b,demo",
            "PASSBACK_MODEL_API_KEY": "sk-one,sk-two,",
            "PASSBACK_MODEL_TIMEOUT": "7",
        }
    )
    [model] = Application(settings).backend.models
    assert isinstance(model, Fallback)
    assert model.name == "anthropic:a,openai:b,demo"
    await model.aclose()


def test_the_model_of_an_agent_wins_over_the_settings() -> None:
    unusable = load_settings({**MEMORY, "PASSBACK_MODEL": "nonsense"})
    mine = ScriptedModel([])
    assert Application(unusable, Agent(model=mine)).backend.models == (mine,)
    [named] = Application(unusable, Agent(model="demo")).backend.models
    assert isinstance(named, DemoModel)
    with pytest.raises(ConfigurationError):
        Application(unusable)


def test_agents_of_one_model_share_its_client() -> None:
    mine = ScriptedModel([])
    given = Agent(name="a"), Agent(name="b", model="demo"), Agent(name="c", model=mine)
    first, second = Application(load_settings(MEMORY), *given).backend.models
    assert isinstance(first, DemoModel)
    assert second is mine


@pytest.mark.parametrize(
    ("agents", "why"),
    [
        ((Agent(name="a"), Agent(name="a")), "two agents are named 'a'"),
        ((Agent(agents=[Agent(name="not a name")]),), "cannot be named 'not a name'"),
        ((Agent(agents=[Agent()]),), "cannot be named ''"),
        ((Agent(agents=[Agent(name="a"), Agent(name="a")]),), "are named 'a'"),
    ],
)
def test_agents_without_a_unique_name_are_refused(agents: Sequence[Agent], why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        Application(load_settings(MEMORY), *agents)


@pytest.mark.parametrize("window", [-1, 999, 100_000_001])
def test_an_invalid_window_is_refused(window: int) -> None:
    with pytest.raises(ConfigurationError, match="window: Input should be 0, or from 1000"):
        Agent(window=window)


@pytest.mark.parametrize("window", [None, 0, 1_000])
def test_a_window_may_be_the_agents_own(window: int | None) -> None:
    Application(load_settings(MEMORY), Agent(window=window))


@pytest.mark.parametrize(
    ("variable", "value", "why"),
    [
        ("MODEL", "gpt-5", "^PASSBACK_MODEL: no model is called 'gpt-5'"),
        ("MODEL", "demo,gpt-5", "^PASSBACK_MODEL: no model is called 'gpt-5'"),
        ("MODEL", "demo,", "^PASSBACK_MODEL: no model is called ''"),
        ("MODEL", "anthropic:", "the model needs a name: anthropic:NAME"),
        (
            "MODEL",
            "anthropic:a",
            r"PASSBACK_MODEL_API_KEY: Anthropic needs a key \(ANTHROPIC_API_KEY\)",
        ),
        ("MODELS", "gpt-5", "PASSBACK_MODELS: no model is called 'gpt-5'.*openai:gpt-5"),
        ("MODELS", "openai:a", r"PASSBACK_MODELS: OpenAI needs a key \(OPENAI_API_KEY\)"),
        ("TITLES", "gpt-5", "PASSBACK_TITLES: no model is called 'gpt-5'.*openai:gpt-5"),
        ("TITLES", "openai:a", r"PASSBACK_TITLES: OpenAI needs a key \(OPENAI_API_KEY\)"),
        (
            "WIRES",
            "send_message,nosuchwire",
            "PASSBACK_WIRES: there is no wire called 'nosuchwire'; the wires are acp, ag_ui, agent_api, ai_sdk, ",
        ),
        ("WIRES", "agentapi", r"called 'agentapi' \(did you mean agent_api\?\)"),
        ("WIRES", "os.path", "PASSBACK_WIRES: there is no wire called 'os.path'"),
        ("PROCESS_PATH", "/send-message", "POST /send-message is served by two routes"),
        ("STORE", "mysql://db", "the store's URL has to begin with one of"),
    ],
)
def test_a_setting_with_an_unknown_name_is_refused(variable: str, value: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        create_app(load_settings({**MEMORY, f"PASSBACK_{variable}": value}))


def test_two_tools_of_one_name_are_refused_at_the_start() -> None:
    def same() -> None: ...

    with pytest.raises(ConfigurationError, match="two tools"):
        create_app(load_settings(MEMORY), Agent(tools=[same, tool(same)]))


@pytest.mark.parametrize(
    ("settings", "status"),
    [
        ({}, 200),
        ({"PASSBACK_HOST": "0.0.0.0"}, 403),  # beyond loopback without keys
        ({"PASSBACK_HOST": "0.0.0.0", "PASSBACK_API_KEYS": f"ann:{'k' * 16}"}, 200),
    ],
)
async def test_owed_calls_are_listed_on_loopback_or_with_a_key(
    settings: dict[str, str], status: int
) -> None:
    application = Application(load_settings(MEMORY | settings))
    headers = {"authorization": f"Bearer {'k' * 16}"}
    async with application.running():
        answer = await ask(application.asgi, "GET", "/tool-calls?status=owed", headers=headers)
    assert answer.status == status
