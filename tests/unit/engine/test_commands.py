"""Slash commands: what a user may say that no model has to hear."""

import anyio
import anyio.lowlevel
import pytest
from tests.support.runs import KEY, call_ids, events, outcome, post, record, reply
from tests.support.runs import says as user

from passback.agent import Agent
from passback.backend import Backend
from passback.core.commands import CommandContext
from passback.core.errors import ConfigurationError, UnknownAgent, UnknownCommand
from passback.core.events import Completed
from passback.core.messages import SummaryMessage, UserMessage
from passback.models.scripted import ScriptedModel, calls, says
from passback.settings import load

pytestmark = pytest.mark.anyio

MEMORY = {"PASSBACK_STORE": "memory:"}


def shout(words: str, context: CommandContext) -> str:
    """Says it aloud."""
    return f"{words.upper()}{context.deps}"


async def later(words: str, context: CommandContext) -> str:
    await anyio.lowlevel.checkpoint()
    return f"{words} for {context.run.key.owner}"


def leaves(words: str, context: CommandContext) -> str:
    raise SystemExit(words, context)


def broken(words: str, context: CommandContext) -> str:
    raise OSError(words, context)


def backend(agent: Agent, **settings: str) -> Backend:
    return Backend(load({**MEMORY, **settings}), [agent])


async def test_commands_are_answered_without_the_model() -> None:
    model = ScriptedModel([])
    agent = Agent(
        model=model,
        deps="!",
        commands={"shout": shout, "later": later, "oops": broken, "exit": leaves},
    )
    given = backend(agent)
    with anyio.fail_after(10):
        async with given.running():
            runs = given.runs
            assert await reply(runs, user("/shout hello\nyou")) == "HELLO\nYOU!"
            assert await reply(runs, user("/later  soon ", "u2")) == "soon for owner"
            assert await reply(runs, user("/oops", "u3")) == "The command failed: OSError."
            assert await reply(runs, user("/exit", "u5")) == "The command failed: StrayExit."
            told = await reply(runs, user("/help", "u4"))
            listed = [line.split()[0] for line in told.splitlines()]
            assert listed == ["/clear", "/compact", "/exit", "/help", "/later", "/oops", "/shout"]
            assert "Says it aloud." in told
            assert [each.name for each in runs.commands()] == [name[1:] for name in listed]
            messages = await record(runs)
    assert [message.role for message in messages] == ["user", "assistant"] * 5
    assert model.requests == []


async def test_a_cleared_conversation_is_forgotten_by_the_model_and_stays_in_the_record() -> None:
    plan = calls(("update_plan", {"entries": [{"content": "look"}]}))
    model = ScriptedModel([plan, says("one"), says("two")])
    given = backend(Agent(model=model, plan=True))
    with anyio.fail_after(10):
        async with given.running():
            runs = given.runs
            await events(runs, await post(runs, user("first")))
            assert await reply(runs, user("/clear", "u2")) == (
                "The agent has forgotten what was said before."
            )
            status = await runs.status(KEY)
            assert status.state.plan == ()
            assert status.state.boundary == status.message_count - 1
            assert await reply(runs, user("second", "u3")) == "two"
            messages = await record(runs)
    assert [message.content for message in model.requests[-1].messages] == ["second"]
    assert sum(isinstance(message, UserMessage) for message in messages) == 3
    assert sum(isinstance(message, SummaryMessage) for message in messages) == 1


async def test_a_conversation_is_summed_up_by_hand() -> None:
    script = [says("one " * 500), says("two " * 500), says("in short: one, two"), says("three")]
    given = backend(Agent(model=(model := ScriptedModel(script)), window=2_000))
    with anyio.fail_after(10):
        async with given.running():
            runs = given.runs
            assert await reply(runs, user("/compact", "u0")) == "There is nothing to sum up."
            await reply(runs, user("a", "u1"))
            await reply(runs, user("b", "u2"))
            said = await reply(runs, user("/compact", "u3"))
            assert said == "What was said before is summed up."
            assert await reply(runs, user("c", "u4")) == "three"
            [summary] = [m for m in await record(runs) if isinstance(m, SummaryMessage)]
    assert summary.content == "in short: one, two"
    assert "in short: one, two" in str(model.requests[-1].messages[0].content)


@pytest.mark.parametrize("text", ["/nonsense", "/helpme now", "/clear-all"])
async def test_a_command_that_there_is_not_is_refused_and_nothing_is_stored(text: str) -> None:
    given = backend(Agent(model=ScriptedModel([says("hi")])))
    with anyio.fail_after(10):
        async with given.running():
            await reply(given.runs, user("hi"))
            with pytest.raises(UnknownCommand, match="/clear, /compact, /help"):
                await post(given.runs, user(text, "u2"))
            assert len(await record(given.runs)) == 2


@pytest.mark.parametrize(
    "text", ["/etc/hosts is what?", "/Help", " /help", "/", "// comment", "a /help", "/9"]
)
async def test_what_only_looks_like_a_command_is_said_to_the_model(text: str) -> None:
    given = backend(Agent(model=(model := ScriptedModel([says("ok")]))))
    with anyio.fail_after(10):
        async with given.running():
            assert await reply(given.runs, user(text)) == "ok"
    assert model.requests[0].messages[-1].content == text


async def test_commands_can_be_turned_off() -> None:
    given = backend(Agent(model=ScriptedModel([says("so you say")])), PASSBACK_COMMANDS="no")
    with anyio.fail_after(10):
        async with given.running():
            assert await reply(given.runs, user("/help")) == "so you say"
            assert given.runs.commands() == ()


async def test_a_command_supersedes_what_is_owed() -> None:
    given = backend(
        Agent(
            model=ScriptedModel([calls(("ask_user", {"questions": [{"question": "?"}]}))]),
            ask_user=True,
        )
    )
    with anyio.fail_after(10):
        async with given.running():
            runs = given.runs
            await events(runs, await post(runs, user("hi")))
            assert len(await call_ids(runs)) == 1
            run = await post(runs, user("/clear", "u2"))
            assert await outcome(runs, run) == Completed()
            assert await call_ids(runs) == []


def test_names_that_cannot_be_commands_are_refused_at_start() -> None:
    with pytest.raises(ConfigurationError, match="cannot be named 'a b'"):
        backend(Agent(commands={"a b": shout}))


async def test_the_commands_of_an_agent_that_there_is_not() -> None:
    agents = [Agent(name="a"), Agent(name="b", commands={"shout": shout})]
    given = Backend(load(MEMORY), agents)
    assert len(given.runs.commands("b")) == len(given.runs.commands("a")) + 1
    with pytest.raises(UnknownAgent):
        given.runs.commands("c")
