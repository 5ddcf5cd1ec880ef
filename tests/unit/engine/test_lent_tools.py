"""Server tools that a process lends to one conversation, for as long as it holds them."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace

import anyio
import pytest
from tests.support.killable_worker import killable_worker
from tests.support.runs import (
    KEY,
    OTHER,
    PAINT,
    approval,
    call_ids,
    contents,
    outcome,
    post,
    record,
    says,
    worker,
)
from tests.unit.engine.sub_agents import helper
from typing_extensions import override

from passback.context.prompt import PromptLayers
from passback.core.errors import ToolNameClash, UnknownAgent
from passback.core.events import Completed, HandedBack
from passback.core.messages import RunRef, ToolCall, ToolMessage, ToolSpec
from passback.core.permissions import Permission
from passback.core.ports import ModelClient
from passback.core.transcript import SYNTHETIC_TEXT
from passback.engine.agents import Agents, AgentSpec, ServedAgent
from passback.engine.ledger import Ledger
from passback.engine.service import RunService
from passback.engine.toolbox import ToolSources
from passback.models.anthropic import Anthropic
from passback.models.scripted import ScriptedModel, calls
from passback.models.scripted import says as words
from passback.toolsets.agents import AgentTool, AgentTools
from passback.toolsets.functions import FunctionTool, FunctionTools, tool

pytestmark = pytest.mark.anyio

GONE = "Not executed: there is no such tool any more"


@tool
def weigh() -> str:
    """Weigh it."""
    return "2 kg"


@tool(permission="ask")
def break_up() -> str:
    """Break it up."""
    return "broken"


def function(name: str, answer: str) -> FunctionTool:
    return tool(name=name)(lambda: answer)


def named(name: str, answer: str) -> FunctionTools:
    return FunctionTools([function(name, answer)])


class Instructed(FunctionTools):
    """Tools with instructions for their use."""

    def __init__(self, name: str, instructions: str, *tools: FunctionTool) -> None:
        super().__init__(tools)
        self.name = name
        self.instructions = instructions


class GrowingTools(FunctionTools):
    """Tools that are more each time somebody asks for them."""

    def __init__(self) -> None:
        super().__init__([])
        self.asked = 0

    @override
    async def specs(self) -> Sequence[ToolSpec]:
        self.asked += 1
        return [replace(PAINT, name=f"tool_{number}") for number in range(self.asked)]


def offered(model: ScriptedModel) -> list[list[str]]:
    """Return the names of the tools that each request offered."""
    return [[spec.name for spec in request.tools] for request in model.requests]


async def test_a_lent_tool_is_called_like_the_agents_own_until_it_is_given_back(
    store: Ledger,
) -> None:
    model = ScriptedModel([calls(("weigh", {})), words("two"), calls(("weigh", {})), words("hm")])
    async with worker(store, model, function("add", "3")) as runs:
        with runs.lend(KEY, [FunctionTools([weigh])]):
            await outcome(runs, await post(runs, says("how heavy?")))
        await outcome(runs, await post(runs, says("and now?", "u2")))
        assert offered(model) == [["add", "weigh"]] * 2 + [["add"]] * 2
        assert await contents(runs) == [
            *("how heavy?", "", "2 kg", "two"),
            *("and now?", "", "Not executed: there is no tool named 'weigh'.", "hm"),
        ]


async def test_only_the_conversation_that_it_is_lent_to_has_a_tool(store: Ledger) -> None:
    model = ScriptedModel([words("a"), words("b")])
    async with worker(store, model) as runs:
        with runs.lend(KEY, [FunctionTools([weigh])]):
            for key in (OTHER, KEY):
                await outcome(runs, await post(runs, says(), key=key))
        assert offered(model) == [[], ["weigh"]]


async def test_each_run_asks_anew_for_the_tools(store: Ledger) -> None:
    model = ScriptedModel([words("a"), words("b")])
    growing = GrowingTools()
    async with worker(store, model) as runs:
        with runs.lend(KEY, [growing]):
            for number in "12":
                await outcome(runs, await post(runs, says(number, number)))
        assert offered(model) == [["tool_0"], ["tool_0", "tool_1"]]


async def test_two_loans_add_up_and_end_one_by_one(store: Ledger) -> None:
    model = ScriptedModel([calls(("both", {})), *map(words, "abcd")])
    async with worker(store, model) as runs:

        async def ask(number: int) -> None:
            await outcome(runs, await post(runs, says(f"{number}", f"u{number}")))

        with ExitStack() as stack:
            with runs.lend(KEY, [named("first", "1"), named("both", "1")]):
                stack.enter_context(runs.lend(KEY, [named("both", "2"), named("second", "2")]))
                await ask(1)
            await ask(2)
        await ask(3)
        with runs.lend(KEY, [named("later", "3")]):
            await ask(4)
        both = ["first", "both", "second"]
        assert offered(model) == [both, both, ["both", "second"], [], ["later"]]
        assert (await contents(runs))[2] == "1"


# ---------------------------------------------------------------- names that are taken
@pytest.mark.parametrize("name", ["Weigh", "weigh", "ask_user"])
async def test_a_tool_of_the_agent_wins_over_a_lent_one_of_its_name(
    store: Ledger, name: str
) -> None:
    model = ScriptedModel([calls(("Weigh", {})), words("ok")])
    async with worker(store, model, function("Weigh", "2 kg")) as runs:
        with runs.lend(KEY, [named("before", "")]), runs.lend(KEY, [named(name, "lent")]):
            await outcome(runs, await post(runs, says()))
        assert offered(model)[0] == ["Weigh", "before"]
        assert "2 kg" in await contents(runs)


@pytest.mark.promise("P14")
async def test_client_tools_cannot_shadow_a_lent_one(store: Ledger) -> None:
    async with worker(store, ScriptedModel([words("ok")])) as runs:
        with runs.lend(KEY, [named("paint", "painted")]):
            with pytest.raises(ToolNameClash, match="belongs to a tool of the server"):
                await post(runs, says(), tools=[PAINT])
            await outcome(runs, await post(runs, says(), tools=[PAINT], key=OTHER))
        assert (await runs.conversations(KEY.owner, limit=9)).conversations[0].key == OTHER


# ---------------------------------------------------------------- who has them
async def test_instructions_of_lent_tools_come_behind_those_of_the_agent(store: Ledger) -> None:
    model = ScriptedModel([words("a")])
    lent = [
        Instructed("files", "Not shown: the agent has such a server.", weigh),
        Instructed("silent", ""),
        Instructed("scales", "Use the scales.", break_up),
    ]
    spec = AgentSpec(model, builder=PromptLayers())
    sources = ToolSources(instructing=[Instructed("files", "Ask for files.")])
    runs = RunService(store, Agents([ServedAgent(spec, sources)]))
    with anyio.fail_after(30):
        async with runs.running():
            with runs.lend(KEY, lent):
                await outcome(runs, await post(runs, says()))
    system = model.requests[0].system
    assert 0 < system.index("Ask for files.") < system.index("Use the scales.")
    assert "Not shown" not in system
    assert "silent" not in system


async def test_a_fork_has_lent_tools_and_other_sub_agents_have_not(store: Ledger) -> None:
    tasks = calls(("helper", {"task": "weigh"}), ("twin", {"task": "weigh"}))
    model = ScriptedModel([tasks, words("2"), words("done")])
    child = ScriptedModel([words("1")])
    agents = AgentTools([helper(child), AgentTool.fork("twin", "Forks.")])
    async with worker(store, model, toolsets=[agents]) as runs:
        with runs.lend(KEY, [FunctionTools([weigh])]):
            await outcome(runs, await post(runs, says()))
    assert offered(child) == [[]]
    assert offered(model) == [["helper", "twin", "weigh"]] * 3


async def test_a_run_that_waited_in_the_queue_has_what_is_lent_when_it_begins(
    store: Ledger,
) -> None:
    go_on = anyio.Event()
    model = ScriptedModel([[go_on, "first"], words("second")])
    async with worker(store, model) as runs:
        await post(runs, says("1"))
        waiting = await post(runs, says("2", "u2"), on_busy="enqueue")
        with runs.lend(KEY, [FunctionTools([weigh])]):
            go_on.set()
            await outcome(runs, waiting)
        assert offered(model) == [[], ["weigh"]]


# ---------------------------------------------------------------- tools that are gone
async def test_a_call_that_is_permitted_when_its_tool_is_gone_says_so(store: Ledger) -> None:
    model = ScriptedModel([calls(("break_up", {})), words("pity")])
    async with worker(store, model) as runs:
        with runs.lend(KEY, [FunctionTools([break_up])]):
            owing = await outcome(runs, await post(runs, says()))
            assert isinstance(owing, HandedBack)
        [call_id] = await call_ids(runs)
        await outcome(runs, await post(runs, approval(call_id)))
        assert (await contents(runs))[-2:] == [GONE, "pity"]


@pytest.mark.parametrize("when", ["model", "rule", "batch"])
async def test_no_tool_is_called_after_its_loan_within_a_run(store: Ledger, when: str) -> None:
    """Whether it ends while the model answers, while the call is judged, or before its turn."""
    loan, called = ExitStack(), list[str]()

    def end_loan(_call: ToolCall, _run: RunRef) -> Permission | None:
        if when == "rule":
            loan.close()
        return None

    @tool
    async def first() -> str:
        """Come first."""
        loan.close()
        return "done"

    @tool
    async def lent() -> str:
        """Count."""
        called.append("lent")
        return "counted"

    go_on = anyio.Event()
    turn = calls(("first", {}), ("lent", {})) if when == "batch" else calls(("lent", {}))
    model = ScriptedModel([[*turn] if when != "model" else ["wait", go_on, *turn], words("hm")])
    async with worker(store, model, first, rules=[end_loan]) as runs:
        loan.enter_context(runs.lend(KEY, [FunctionTools([lent])]))
        run = await post(runs, says())
        if when == "model":
            loan.close()
            go_on.set()
        assert await outcome(runs, run) == Completed()
        gone = "Not executed: there is no tool named 'lent'." if when == "model" else GONE
        why = {"model": "invalid", "rule": "denied", "batch": None}[when]
        answer = (await record(runs))[-2]
        assert isinstance(answer, ToolMessage)
        assert (answer.content, answer.is_error, answer.synthetic) == (gone, True, why)
    assert called == []


@pytest.mark.promise("P10")
@pytest.mark.parametrize("is_lent", [True, False], ids=["lent there, too", "gone"])
async def test_a_worker_that_takes_a_run_over_uses_what_it_lends_itself(
    store: Ledger, *, is_lent: bool
) -> None:
    begun = [anyio.Event(), anyio.Event()]

    def reading(*events: anyio.Event) -> FunctionTools:
        def make(name: str) -> FunctionTool:
            @tool(name=name, read_only=True)
            async def read() -> str:
                if not events:
                    return name
                events[name == "two"].set()
                await anyio.sleep_forever()
                raise AssertionError

            return read

        return FunctionTools([make("one"), make("two"), weigh])

    turn = calls(("one", {}), ("two", {}), ("own", {}), ("weigh", {}))
    own = function("own", "mine")
    heir = ScriptedModel([words("over")])
    async with (
        worker(store, heir, own) as other,
        killable_worker(store, ScriptedModel([turn]), own) as dying,
    ):
        with dying.runs.lend(KEY, [reading(*begun)]), ExitStack() as stack:
            run = await post(dying.runs, says())
            for event in begun:
                await event.wait()
            await dying.kill()
            if is_lent:
                stack.enter_context(other.lend(KEY, [reading()]))
            assert await outcome(other, run) == Completed()
        interrupted = SYNTHETIC_TEXT["interrupted"]
        results = ["one", "two", "mine", "2 kg"] if is_lent else [interrupted] * 2
        results += [] if is_lent else ["mine", GONE]
        assert (await contents(other))[2:] == [*results, "over"]
        assert offered(heir) == [["own", "one", "two", "weigh"] if is_lent else ["own"]]


# ---------------------------------------------------------------- agents and media
def service(store: Ledger, *agents: tuple[str, ModelClient]) -> RunService:
    return RunService(store, Agents([ServedAgent(AgentSpec(m), name=name) for name, m in agents]))


async def test_agents_are_named_the_default_one_first(store: Ledger) -> None:
    model = ScriptedModel([])
    assert service(store, ("zoe", model), ("ann", model)).agents() == ("zoe", "ann")
    assert service(store, ("", model)).agents() == ("",)


async def test_media_are_those_that_the_model_takes(store: Ledger) -> None:
    everything, claude = ScriptedModel([], media=True), Anthropic("claude", api_key="k")
    runs = service(store, ("text", ScriptedModel([])), ("all", everything), ("claude", claude))
    assert runs.media() == runs.media("text") == frozenset()
    assert runs.media("all") == {"image", "audio", "file"}
    assert runs.media("claude") == {"image", "file"}
    assert runs.media("claude", model="unknown") == {"image", "file"}
    await claude.aclose()
    with pytest.raises(UnknownAgent):
        runs.media("other")
