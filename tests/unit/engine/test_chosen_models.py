"""Models that a post chooses: for the answer to its message, over any runs and workers."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import anyio
import pytest
from tests.support.killable_worker import killable_worker
from tests.support.runs import (
    KEY,
    PAINT,
    RECOVERING,
    call_ids,
    events,
    outcome,
    post,
    record,
    result,
    until,
    worker,
)

from passback.core.deltas import UsageChunk
from passback.core.errors import ModelUnavailable, UnknownAgent, UnknownModel, UnsupportedAttachment
from passback.core.events import Cancelled, RunFinished, TextDelta, UsageReported
from passback.core.messages import (
    AssistantMessage,
    Content,
    Generation,
    MediaPart,
    MessageContext,
    MessageId,
    RunRef,
    Usage,
    UserMessage,
)
from passback.core.posts import StartRun
from passback.engine.agents import Agents, AgentSpec, ServedAgent
from passback.engine.ledger import Ledger
from passback.engine.service import RunService
from passback.models.fallback import Fallback
from passback.models.scripted import ScriptedModel, Turn, calls
from passback.models.scripted import says as words

pytestmark = pytest.mark.anyio

DOWN = ModelUnavailable("down")


def named(name: str, *turns: Turn, **more: Any) -> ScriptedModel:
    return ScriptedModel(turns, name=name, **more)


def user(model: str = "", message_id: str = "u", content: Content = "hi") -> UserMessage:
    context = MessageContext(model=model) if model else None
    return UserMessage(MessageId(message_id), content, context=context)


async def spoken(runs: RunService) -> list[tuple[str, str]]:
    """Return what was said, and by which model."""
    messages = [each for each in await record(runs) if isinstance(each, AssistantMessage)]
    return [(str(each.content), each.model) for each in messages]


def usual(*turns: Turn) -> ScriptedModel:
    return named("x:usual", *turns)


# ---------------------------------------------------------------- for how long
async def test_the_chosen_model_answers_a_message_to_its_end_on_another_worker(
    store: Ledger,
) -> None:
    own, other = usual(words("own")), named("x:other", calls(("paint", {})), words("painted"))
    async with worker(store, own, models=[own, other]) as runs:
        run = await post(runs, user("x:other"), tools=[PAINT])
        assert [e.model for e in await events(runs, run) if isinstance(e, RunFinished)] == [
            "x:other"
        ]
        [call] = await call_ids(runs)
    async with worker(store, own, models=[own, other]) as runs:
        await outcome(runs, await post(runs, result(call)))
        await outcome(runs, await post(runs, user(message_id="u2")))
        assert await spoken(runs) == [("", "x:other"), ("painted", "x:other"), ("own", "x:usual")]


@pytest.mark.promise("P10")
async def test_a_worker_that_takes_over_goes_on_with_the_chosen_model(store: Ledger) -> None:
    own, other = usual(), named("x:other", words("whole"))
    stuck = named("x:other", ["half", anyio.Event()])
    async with (
        worker(store, own, models=[own, other], timing=RECOVERING) as healthy,
        killable_worker(store, own, models=[own, stuck]) as dying,
    ):
        run = await post(dying.runs, user("other"))
        await until(dying.runs, run, TextDelta)
        await dying.kill()
        await outcome(healthy, run)
        assert await spoken(healthy) == [("whole", "x:other")]


async def test_a_post_that_waits_in_the_queue_keeps_its_model(store: Ledger) -> None:
    gate = anyio.Event()
    own, other = usual([gate, *words("own")]), named("x:other", words("other"))
    async with worker(store, own, models=[own, other]) as runs:
        await post(runs, user())
        waits = await post(runs, user("x:other", "u2"), on_busy="enqueue")
        gate.set()
        await outcome(runs, waits)
        assert await spoken(runs) == [("own", "x:usual"), ("other", "x:other")]


async def test_a_withdrawn_model_is_replaced_by_the_agents_own(memory: Ledger) -> None:
    own, other = usual(words("own")), named("x:other", calls(("paint", {})))
    async with worker(memory, own, models=[own, other]) as runs:
        await outcome(runs, await post(runs, user("x:other"), tools=[PAINT]))
        [call] = await call_ids(runs)
    async with worker(memory, own) as runs:
        await outcome(runs, await post(runs, result(call)))
        assert await spoken(runs) == [("", "x:other"), ("own", "x:usual")]


async def test_what_is_taken_back_does_not_choose_any_more(store: Ledger) -> None:
    own, other = usual(words("own")), named("x:other", ["half", anyio.Event()])
    async with worker(store, own, models=[own, other]) as runs:
        run = await post(runs, user("x:other"))
        await until(runs, run, TextDelta)
        await outcome(runs, await post(runs, user(message_id="u2"), on_busy="rollback"))
        assert await spoken(runs) == [("own", "x:usual")]


# ---------------------------------------------------------------- its name
async def test_the_models_to_choose_are_listed_with_the_agents_own_first(memory: Ledger) -> None:
    own, other = named("openai:one"), named("openai:two")
    async with worker(memory, own, models=[other, own]) as runs:
        assert runs.models() == ("openai:one", "openai:two")
    async with worker(memory, own) as runs:
        assert runs.models() == ("openai:one",)


async def test_a_name_may_be_short_and_is_kept_whole(memory: Ledger) -> None:
    own, other = usual(), named("x:other:5", words("a"))
    async with worker(memory, own, models=[own, other]) as runs:
        short = StartRun(KEY, (user("other:5"),), named=frozenset({MessageId("u")}))
        begun = await runs.start(short)
        assert isinstance(begun, RunRef)
        assert await runs.start(replace(short, messages=(user("x:other:5"),))) == begun
        await outcome(runs, begun)
        kept = [each.context for each in await record(runs) if isinstance(each, UserMessage)]
        assert kept == [MessageContext(model="x:other:5")]


async def test_the_name_of_several_models_means_the_agents_own(memory: Ledger) -> None:
    first, second = named("x:a", [DOWN], words("a")), named("x:b", words("b"))
    async with worker(memory, Fallback([first, second]), models=[first, second]) as runs:
        assert runs.models() == ("x:a,x:b", "x:a", "x:b")
        await outcome(runs, await post(runs, user("x:a,x:b")))
        assert await spoken(runs) == [("b", "x:b")]
        # it is not kept, so that whatever is the agent's own answers from then on
        assert [each.context for each in await record(runs) if isinstance(each, UserMessage)] == [
            None
        ]


@pytest.mark.parametrize("name", ["z", "X:a", "a", "x", "x:a,x:b", "\ud800"])
async def test_another_name_is_refused_with_those_that_there_are(memory: Ledger, name: str) -> None:
    models = [usual(), named("x:a"), named("y:a"), named("x:b")]
    async with worker(memory, models[0], models=models) as runs:
        with pytest.raises(UnknownModel, match="choose one of x:usual, x:a, y:a, x:b") as raised:
            await post(runs, user(name))
        assert raised.value.details == {"models": ["x:usual", "x:a", "y:a", "x:b"]}
        assert (await memory.status(KEY)).version == 0


async def test_where_there_is_nothing_to_choose_a_name_leaves_no_trace(memory: Ledger) -> None:
    async with worker(memory, usual(words("own"))) as runs:
        await outcome(runs, await post(runs, user("z")))
        assert await spoken(runs) == [("own", "x:usual")]
        assert (await record(runs))[0] == user()


# ---------------------------------------------------------------- checks by the chosen model
async def test_parts_that_the_chosen_model_cannot_take_are_refused(memory: Ledger) -> None:
    image = (MediaPart("image", "https://pictures.example/a.png"),)
    own, other = usual(), named("x:other", words("seen"), media=True)
    async with worker(memory, own, models=[own, other]) as runs:
        with pytest.raises(UnsupportedAttachment):
            await post(runs, user(content=image))
        await outcome(runs, await post(runs, user("x:other", content=image)))


async def test_each_model_to_choose_takes_media_of_its_own(memory: Ledger) -> None:
    own, other = usual(), named("x:other", media=True)
    async with worker(memory, own, models=[own, other]) as runs:
        assert runs.media() == runs.media(model="x:usual") == frozenset()
        assert runs.media(model="x:other") == {"image", "audio", "file"}


# ---------------------------------------------------------------- names of models in events
def used(turns: Sequence[object]) -> list[tuple[int, str]]:
    return [(e.usage.input_tokens, e.model) for e in turns if isinstance(e, UsageReported)]


async def test_of_several_models_the_one_that_answered_is_named(memory: Ledger) -> None:
    first, second = named("x:first", [DOWN]), named("x:second", [UsageChunk(Usage(3)), *words("b")])
    async with worker(memory, Fallback([first, second])) as runs:
        seen = await events(runs, await post(runs, user()))
        assert used(seen) == [(3, "x:second")]
        assert isinstance(seen[-1], RunFinished)
        assert seen[-1].model == "x:second"
        assert await spoken(runs) == [("b", "x:second")]


async def test_a_cut_answer_names_its_model(memory: Ledger) -> None:
    own = usual([UsageChunk(Usage(5, 1)), "half an answer", anyio.Event()])
    async with worker(memory, own) as runs:
        run = await post(runs, user())
        await until(runs, run, TextDelta)
        await runs.cancel(run)
        seen = await events(runs, run)
        assert used(seen) == [(5, "x:usual")]
        assert seen[-1] == RunFinished(Cancelled())
        assert seen[-1].model == "x:usual"
        assert await spoken(runs) == [("half an answer", "x:usual")]


async def test_a_run_without_an_answer_names_no_model(memory: Ledger) -> None:
    async with worker(memory, usual([anyio.Event()])) as runs:
        run = await post(runs, user())
        await runs.cancel(run)
        last = (await events(runs, run))[-1]
        assert isinstance(last, RunFinished)
        assert last.model == ""


# ---------------------------------------------------------------- the effort of reasoning
async def test_an_effort_can_be_chosen_where_the_options_name_one(memory: Ledger) -> None:
    async with worker(memory, usual()) as runs:
        assert runs.effort() is None
    async with worker(memory, usual(), options={"reasoning_effort": "medium"}) as runs:
        assert (runs.effort(), runs.effort("default")) == ("medium", "medium")


async def test_each_agent_has_an_effort_of_its_own(memory: Ledger) -> None:
    one = AgentSpec(usual(), options={"output_config": {"effort": "low"}})
    agents = [ServedAgent(one, name="one"), ServedAgent(AgentSpec(usual()), name="two")]
    runs = RunService(memory, Agents(agents))
    assert [runs.effort(name) for name in ("", "one", "two")] == ["low", "low", None]
    with pytest.raises(UnknownAgent):
        runs.effort("three")


async def test_the_chosen_effort_reaches_the_model_with_its_message_only(memory: Ledger) -> None:
    own = usual(calls(("paint", {})), words("painted"), words("again"))
    async with worker(memory, own, options={"reasoning_effort": "medium"}) as runs:
        context = MessageContext(generation=Generation(effort="high"))
        asked = UserMessage(MessageId("u"), "hi", context=context)
        await outcome(runs, await post(runs, asked, tools=[PAINT]))
        [call] = await call_ids(runs)
        await outcome(runs, await post(runs, result(call)))
        await outcome(runs, await post(runs, user(message_id="v")))
    assert [each.generation.effort for each in own.requests] == ["high", "high", None]
