"""Settings and an agent become an application."""

import json
import socket
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from tests.support.asgi_client import Exchange, ask, exchange

from passback.agent import Agent
from passback.app import Application, create_app
from passback.cli import serve
from passback.core.errors import ConfigurationError
from passback.models.demo import DemoModel
from passback.models.fallback import Fallback
from passback.models.scripted import ScriptedModel, says
from passback.settings import Settings, load_settings, own_settings
from passback.toolsets.functions import tool

pytestmark = pytest.mark.anyio

MEMORY = {"PASSBACK_STORE": "memory:"}


async def test_every_setting_is_handed_over() -> None:
    """A worker that finds its port taken has read them all; the stores get their options whole."""
    read: set[str] = set()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        settings = load_settings({**MEMORY, "PASSBACK_PORT": str(taken.getsockname()[1])})
        groups = {
            name: noting(getattr(settings, name), f"{name}.", read) for name in ("limits", "timing")
        }
        noted: Settings = noting(replace(settings, **groups), "", read)
        read.clear()
        with pytest.raises(ConfigurationError, match="cannot listen"):
            await serve(noted, [])
    parts = {f"{name}.{one.name}" for name in groups for one in fields(getattr(settings, name))}
    by_the_command_line = {"workers", "allow_anonymous", "log_level", "log_format"}
    unread = parts.union(one.name for one in own_settings()) - by_the_command_line - read
    assert unread == set(), "hand them over: CONTRIBUTING.md, a setting"


def noting(value: Any, prefix: str, read: set[str]) -> Any:
    """The same dataclass, which notes the names of the attributes that are read."""

    def note(self: object, name: str) -> object:
        read.add(prefix + name)
        return object.__getattribute__(self, name)

    kind = type("Noting", (value.__class__,), {"__getattribute__": note})
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
    """Not wrapped in a group: the command line says it in plain words."""
    (tmp_path / "file").touch()
    application = Application(
        load_settings({"PASSBACK_STORE": f"sqlite:///{tmp_path}/file/store.db"})
    )
    with pytest.raises(ConfigurationError):
        async with application.running():
            pass


async def test_what_a_busy_conversation_means_is_a_setting() -> None:
    """The first post runs, the second waits, the third finds no room."""
    settings = load_settings(
        {**MEMORY, "PASSBACK_ON_BUSY": "enqueue", "PASSBACK_LIMITS": "queue=1"}
    )
    gate = anyio.Event()
    model = ScriptedModel([[gate, *says("one")], says("two")])
    application = Application(settings, Agent(model=model))
    body = b'{"conversationId": "c", "messages": [{"role": "user", "content": "hi"}]}'
    typed = {"content-type": "application/json"}

    def post() -> AbstractAsyncContextManager[Exchange]:
        return exchange(application.asgi, "POST", "/send-message", headers=typed, body=body)

    with anyio.fail_after(10):
        async with application.running(), post() as first, post() as second, post() as third:
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
async def test_how_large_a_message_and_a_history_may_be_are_settings(
    setting: dict[str, str], code: bytes
) -> None:
    """What is refused is not in the store: its conversation was never begun."""
    application = Application(load_settings({**MEMORY, **setting}), Agent(model=ScriptedModel([])))
    said = {"role": "user", "content": "x" * 100_000}
    body = json.dumps({"conversationId": "c", "messages": [said]}).encode()
    typed = {"content-type": "application/json"}
    async with application.running():
        async with exchange(
            application.asgi, "POST", "/send-message", headers=typed, body=body
        ) as refused:
            assert refused.status == 413
            assert code in await refused.rest()
        async with exchange(application.asgi, "GET", "/conversations/c") as never:
            assert never.status == 404


async def test_how_many_runs_an_owner_may_have_is_a_setting() -> None:
    """The second is told when to come back, and its conversation was never begun."""
    settings = load_settings({**MEMORY, "PASSBACK_LIMITS": "owner_runs=1"})
    gate = anyio.Event()
    application = Application(settings, Agent(model=ScriptedModel([[gate, *says("one")]])))
    body = '{"conversationId": "%s", "messages": [{"role": "user", "content": "hi"}]}'
    typed = {"content-type": "application/json"}

    def post(conversation: str) -> AbstractAsyncContextManager[Exchange]:
        said = (body % conversation).encode()
        return exchange(application.asgi, "POST", "/send-message", headers=typed, body=said)

    with anyio.fail_after(10):
        async with application.running(), post("a") as first:
            async with post("b") as second:
                assert (second.status, second.headers["retry-after"]) == (429, "1")
                assert b'"too_many_runs"' in await second.rest()
            gate.set()
            assert b"one" in await first.rest()
            async with exchange(application.asgi, "GET", "/conversations/b") as never:
                assert never.status == 404


@pytest.mark.promise("P7")
async def test_for_how_long_a_run_goes_on_without_a_reader_is_a_setting() -> None:
    settings = load_settings({**MEMORY, "PASSBACK_TIMING": "disconnect_grace=0"})
    model = ScriptedModel([["half", anyio.Event()]])
    application = Application(settings, Agent(model=model))
    body = b'{"messages": [{"role": "user", "content": "hi"}], "onDisconnect": "cancel"}'
    typed = {"content-type": "application/json"}
    with anyio.fail_after(10):
        async with application.running():
            async with exchange(
                application.asgi, "POST", "/send-message", headers=typed, body=body
            ) as one:
                while b"half" not in await one.chunk():
                    assert not one.ended
            while model.open_streams:
                await anyio.lowlevel.checkpoint()


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


def test_the_agents_model_comes_before_the_settings() -> None:
    nonsense = load_settings({**MEMORY, "PASSBACK_MODEL": "nonsense"})
    mine = ScriptedModel([])
    assert Application(nonsense, Agent(model=mine)).backend.models == (mine,)
    [named] = Application(nonsense, Agent(model="demo")).backend.models
    assert isinstance(named, DemoModel)
    with pytest.raises(ConfigurationError):
        Application(nonsense)


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
def test_agents_that_cannot_be_told_apart_are_refused(agents: Sequence[Agent], why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        Application(load_settings(MEMORY), *agents)


@pytest.mark.parametrize("window", [-1, 999, 100_000_001])
def test_a_window_that_is_none_is_refused(window: int) -> None:
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
        (
            "WIRES",
            "send_message,nosuchwire",
            "PASSBACK_WIRES: there is no wire called 'nosuchwire'; the wires are agent_api, page, ",
        ),
        ("WIRES", "agentapi", r"called 'agentapi' \(did you mean agent_api\?\)"),
        ("WIRES", "os.path", "PASSBACK_WIRES: there is no wire called 'os.path'"),
        ("PROCESS_PATH", "/send-message", "POST /send-message is served by two routes"),
        ("STORE", "mysql://db", "the store's URL has to begin with one of"),
    ],
)
def test_a_setting_that_names_nothing_is_refused(variable: str, value: str, why: str) -> None:
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
        ({"PASSBACK_HOST": "0.0.0.0"}, 403),  # what is refused then
        ({"PASSBACK_HOST": "0.0.0.0", "PASSBACK_API_KEYS": f"ann:{'k' * 16}"}, 200),
    ],
)
async def test_what_is_owed_is_listed_on_loopback_or_to_who_has_a_key(
    settings: dict[str, str], status: int
) -> None:
    application = Application(load_settings(MEMORY | settings))
    headers = {"authorization": f"Bearer {'k' * 16}"}
    async with application.running():
        answer = await ask(application.asgi, "GET", "/tool-calls?status=owed", headers=headers)
    assert answer.status == status
