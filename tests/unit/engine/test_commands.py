"""Slash commands: what a user may say that no model has to hear."""

from dataclasses import replace
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from tests.support.runs import (
    KEY,
    PAINT,
    call_ids,
    events,
    outcome,
    post,
    record,
    reply,
    result,
    worker,
)
from tests.support.runs import says as user
from tests.support.transcript_rules import said_in
from tests.unit.engine.budget_agents import serving
from typing_extensions import override

from passback.agent import Agent
from passback.backend import Backend
from passback.core.errors import (
    ConfigurationError,
    InvalidRequest,
    MessageTooLarge,
    UnknownAgent,
    UnknownCommand,
)
from passback.core.events import Cancelled, Completed
from passback.core.messages import (
    MessageId,
    PostedMessage,
    RunRef,
    SummaryMessage,
    SystemMessage,
    UserMessage,
)
from passback.core.posts import OnBusy, StartRun
from passback.engine.commands import CommandContext
from passback.engine.ledger import Ledger
from passback.models.scripted import ScriptedModel, calls, says
from passback.settings import load_settings
from passback.toolsets.functions import tool

pytestmark = pytest.mark.anyio

MEMORY = {"PASSBACK_STORE": "memory:"}


def shout(words: str, context: CommandContext) -> str:
    """Says it aloud."""
    return f"{words.upper()}{context.deps}"


@tool
def look() -> str:
    return "seen"


async def later(words: str, context: CommandContext) -> str:
    await anyio.lowlevel.checkpoint()
    return f"{words} for {context.run.key.owner}"


def leaves(words: str, context: CommandContext) -> str:
    raise SystemExit(words, context)


def broken(words: str, context: CommandContext) -> str:
    raise OSError(words, context)


class Unprintable:
    @override
    def __str__(self) -> str:
        raise OSError


def unprintable(words: str, context: CommandContext) -> Any:
    return Unprintable()


async def test_commands_are_answered_without_the_model() -> None:
    model = ScriptedModel([])
    agent = Agent(
        model=model,
        deps="!",
        commands={
            "shout": shout,
            "later": later,
            "oops": broken,
            "exit": leaves,
            "hm": unprintable,
        },
    )
    async with serving(agent) as runs:
        assert await reply(runs, user("/shout hello\nyou")) == "HELLO\nYOU!"
        assert await reply(runs, user("/later  soon ", "u2")) == "soon for owner"
        assert await reply(runs, user("/oops", "u3")) == "The command failed: OSError."
        assert await reply(runs, user("/exit", "u5")) == "The command failed: StrayExit."
        assert await reply(runs, user("/hm", "u6")) == "The command failed: OSError."
        help_text = await reply(runs, user("/help", "u4"))
        listed = [line.split()[0] for line in help_text.splitlines()]
        assert listed == [
            "/clear",
            "/compact",
            "/exit",
            "/help",
            "/hm",
            "/later",
            "/oops",
            "/shout",
        ]
        assert "Says it aloud." in help_text
        assert [each.name for each in runs.commands()] == [name[1:] for name in listed]
        messages = await record(runs)
    assert [message.role for message in messages] == ["user", "assistant"] * 6
    assert model.requests == []


async def test_a_cleared_conversation_is_forgotten_by_the_model_and_stays_in_the_record() -> None:
    plan = calls(("update_plan", {"entries": [{"content": "look"}]}))
    model = ScriptedModel([plan, says("one"), says("two")])
    async with serving(Agent(model=model, plan=True)) as runs:
        await events(runs, await post(runs, user("first")))
        assert await reply(runs, user("/clear", "u2")) == (
            "The agent has forgotten what was said before."
        )
        status = await runs.status(KEY)
        assert status.state.plan == ()
        assert status.state.history_start == status.message_count - 1
        assert await reply(runs, user("second", "u3")) == "two"
        messages = await record(runs)
    assert [message.content for message in model.requests[-1].messages] == ["second"]
    assert sum(isinstance(message, UserMessage) for message in messages) == 3
    assert sum(isinstance(message, SummaryMessage) for message in messages) == 1


async def test_a_conversation_is_summed_up_by_hand() -> None:
    script = [says("one " * 500), says("two " * 500), says("in short: one, two"), says("three")]
    async with serving(Agent(model=(model := ScriptedModel(script)), window=2_000)) as runs:
        assert await reply(runs, user("/compact", "u0")) == "There is nothing to sum up."
        await reply(runs, user("a", "u1"))
        await reply(runs, user("b", "u2"))
        text = await reply(runs, user("/compact", "u3"))
        assert text == "What was said before is summed up."
        assert await reply(runs, user("c", "u4")) == "three"
        [summary] = [m for m in await record(runs) if isinstance(m, SummaryMessage)]
    assert summary.content == "in short: one, two"
    assert "in short: one, two" in str(model.requests[-1].messages[0].content)


async def test_no_model_hears_a_command_or_its_answer() -> None:
    model = ScriptedModel([says("one"), calls(("look", {})), says("two"), says("three")])
    own = {"shout": shout, "oops": broken}
    agent = Agent(model=model, tools=[look], commands=own, deps="")
    async with serving(agent) as runs:
        await reply(runs, user("/help", "u1"))
        await reply(runs, user("first", "u2"))
        await reply(runs, user("/shout secret", "u3"))
        await reply(runs, user("/oops", "u4"))
        await reply(runs, user("second", "u5"))
        await reply(runs, user("/compact", "u6"))
        await reply(runs, user("third", "u7"))
        whole = await record(runs)
    shown = [message.content for message in model.requests[-1].messages]
    assert shown == ["first", "one", "second", "", "seen", "two", "third"]
    assert [said for said in said_in(whole) if said in ("/shout secret", "SECRET")] == [
        "/shout secret",
        "SECRET",
    ]


@pytest.mark.promise("P7")
async def test_a_command_that_was_cancelled_is_not_said_to_the_model_either() -> None:
    begun = anyio.Event()

    async def hang(words: str, context: CommandContext) -> str:
        begun.set()
        await anyio.sleep_forever()
        return f"{words}{context}"

    model = ScriptedModel([says("ok")])
    async with serving(Agent(model=model, commands={"hang": hang})) as runs:
        run = await post(runs, user("/hang on"))
        await begun.wait()
        assert await runs.cancel(run)
        assert await outcome(runs, run) == Cancelled()
        assert await reply(runs, user("hi", "u2")) == "ok"
    assert [message.content for message in model.requests[0].messages] == ["hi"]


async def test_a_summary_has_no_commands() -> None:
    script = [says("one " * 500), says("two " * 500), says("notes"), says("three")]
    model = ScriptedModel(script)
    async with serving(
        Agent(model=model, window=2_000, commands={"shout": shout}, deps="")
    ) as runs:
        await reply(runs, user("a", "u1"))
        await reply(runs, user("/shout secret", "u2"))
        await reply(runs, user("b", "u3"))
        await reply(runs, user("/compact", "u4"))
        await reply(runs, user("c", "u5"))
    asked, last = (str(request.messages) for request in model.requests[-2:])
    assert "one one" in asked
    for request in (asked, last):
        assert not any(word in request for word in ("secret", "SECRET", "/compact", "summed up"))


async def test_behind_a_cleared_conversation_the_window_is_filled_anew() -> None:
    script = [says("one"), says("two"), says("three " * 500), says("notes"), says("four")]
    model = ScriptedModel(script)
    async with serving(Agent(model=model, window=1_000)) as runs:
        await reply(runs, user("a", "u1"))
        await reply(runs, user("/clear", "u2"))
        assert await reply(runs, user("/compact", "u3")) == "There is nothing to sum up."
        assert await reply(runs, user("b" * 3_000, "u4")) == "two"
        with pytest.raises(MessageTooLarge):
            await post(runs, user("c" * 9_000, "u5"))


TOO_MANY: list[list[PostedMessage]] = [
    [user("/clear"), user("hi", "u2")],
    [user("hi"), user("/clear", "u2")],
    [user("/clear"), user("/help", "u2")],
    [user("/nonsense"), user("hi", "u2")],
    [user("/clear"), SystemMessage(MessageId("s"), "be kind")],
]


@pytest.mark.promise("P12")
@pytest.mark.parametrize("posted", TOO_MANY)
@pytest.mark.parametrize("on_busy", ["reject", "enqueue"])
async def test_a_command_is_posted_alone(posted: list[PostedMessage], on_busy: OnBusy) -> None:
    end = anyio.Event()
    async with serving(Agent(model=ScriptedModel([["hm", end, *says("hi")]]))) as runs:
        run = await post(runs, user("hi", "u0"))
        if on_busy == "reject":
            end.set()
            await outcome(runs, run)
        with pytest.raises(InvalidRequest, match="has to be posted alone"):
            await post(runs, *posted, on_busy=on_busy)
        end.set()
        await outcome(runs, run)
        assert len(await record(runs)) == 2


async def test_results_and_options_beside_a_command() -> None:
    """Results and options that the server has to know first, and what it knows already."""
    asked = Agent(model=ScriptedModel([calls(("paint", {})), says("so")]))
    async with serving(asked) as runs:
        await events(runs, await post(runs, user("hi"), tools=[PAINT]))
        [owed] = await call_ids(runs)
        system = SystemMessage(MessageId("s"), "be kind")
        await events(runs, await post(runs, result(owed), system, user("/help", "u2")))
        named = frozenset({MessageId("u3"), MessageId("u4")})
        first = await runs.start(StartRun(KEY, (user("/help", "u3"),), named=named))
        assert isinstance(first, RunRef)
        await events(runs, first)
        both = (user("/help", "u3"), user("go on", "u4"))
        then = await runs.start(StartRun(KEY, both, named=named))
        assert isinstance(then, RunRef)
        assert await outcome(runs, then) == Completed()


async def test_a_command_that_waited_is_one_still_when_it_has_its_turn() -> None:
    end = anyio.Event()
    model = ScriptedModel([["hm", end, *says("hi")], says("ok")])
    async with serving(Agent(model=model)) as runs:
        first = await post(runs, user("hi"))
        waits = await post(runs, user("/help", "u2"), on_busy="enqueue")
        end.set()
        assert await outcome(runs, first) == Completed()
        assert await outcome(runs, waits) == Completed()
        await reply(runs, user("more", "u3"))
    assert [m.content for m in model.requests[-1].messages] == ["hi", "hmhi", "more"]


@pytest.mark.promise("P10")
async def test_an_accepted_command_runs_where_commands_are_off(memory: Ledger) -> None:
    marked = replace(user("/clear"), command=True)
    async with worker(memory, ScriptedModel([])) as runs:
        assert "forgotten" in await reply(runs, marked)


@pytest.mark.parametrize("text", ["/nonsense", "/helpme now", "/clear-all"])
async def test_a_command_that_there_is_not_is_refused_and_nothing_is_stored(text: str) -> None:
    async with serving(Agent(model=ScriptedModel([says("hi")]))) as runs:
        await reply(runs, user("hi"))
        with pytest.raises(UnknownCommand, match="/clear, /compact, /help"):
            await post(runs, user(text, "u2"))
        assert len(await record(runs)) == 2


@pytest.mark.parametrize(
    "text", ["/etc/hosts is what?", "/Help", " /help", "/", "// comment", "a /help", "/9"]
)
async def test_what_only_looks_like_a_command_is_said_to_the_model(text: str) -> None:
    async with serving(Agent(model=(model := ScriptedModel([says("ok")])))) as runs:
        assert await reply(runs, user(text)) == "ok"
    assert model.requests[0].messages[-1].content == text


async def test_commands_can_be_turned_off() -> None:
    async with serving(Agent(model=ScriptedModel([says("so you say")])), commands="no") as runs:
        assert await reply(runs, user("/help")) == "so you say"
        assert runs.commands() == ()


async def test_a_command_supersedes_what_is_owed() -> None:
    async with serving(
        Agent(
            model=ScriptedModel([calls(("ask_user", {"questions": [{"question": "?"}]}))]),
            ask_user=True,
        )
    ) as runs:
        await events(runs, await post(runs, user("hi")))
        assert len(await call_ids(runs)) == 1
        run = await post(runs, user("/clear", "u2"))
        assert await outcome(runs, run) == Completed()
        assert await call_ids(runs) == []


@pytest.mark.parametrize("name", ["a b", "", "Loud", "x" * 33])
def test_names_that_cannot_be_commands_are_refused(name: str) -> None:
    with pytest.raises(
        ConfigurationError, match=r"Agent: commands\..*\[key\]: Input should be a name, at most 32"
    ):
        Agent(commands={name: shout})


async def test_the_commands_of_an_agent_that_there_is_not() -> None:
    agents = [Agent(name="a"), Agent(name="b", commands={"shout": shout})]
    runs = Backend(load_settings(MEMORY), agents).runs
    assert len(runs.commands("b")) == len(runs.commands("a")) + 1
    with pytest.raises(UnknownAgent):
        runs.commands("c")
