"""The table of the design, "What a post means", row by row, where a run goes on or posts wait."""

from collections.abc import Sequence
from dataclasses import dataclass

import anyio
import pytest
from tests.e2e.stage import GO, OWING, PAID, SUPERSEDED, Past, Post, Stage, call_of, outcome_of
from tests.e2e.workers import SECONDS, held
from tests.support.model_server import Reply, says
from tests.support.wire import Answer

pytestmark = [pytest.mark.anyio, pytest.mark.promise("P2", "P5", "P9")]

# ---------------------------------------------------------------- something runs
FIRST = Post(["user: one"])


@dataclass(frozen=True, slots=True)
class Meanwhile:
    """A post that comes while the run of another one goes on.

    Args:
        post: what it brings.
        answer: see `Stage.seen`.
        first: how the run before it ends.
        history: what there is at the end.
        asks: what the model is shown by the run of this post.
        opens: the post that began the run that goes on.
        says: the run that goes on: half a text, or calls of which one has begun.
        at: the post comes when this has been seen of it.
        given: what came before.
    """

    post: Post
    answer: str
    first: str
    history: Sequence[str]
    asks: Sequence[str] = ()
    opens: Post = FIRST
    says: str = "text"
    at: str = "text"
    given: Sequence[Past] = ()


HALFWAY = "assistant (partial): half "
ONE = ["user: one", "assistant: half a word"]
TWO = ["user: two", "assistant: good"]
ANSWERS = Post(["zone: UTC", "color: red"])
ANSWERED = [*GO, "zone: UTC", "color: red"]
STOPS = {"interrupt", "rollback"}


def goes_on(on_busy: str, how: str, first: str, *history: str, asks: Sequence[str]) -> Meanwhile:
    """A message under a policy."""
    return Meanwhile(Post(["user: two"], on_busy=on_busy), how, first, list(history), asks)


def while_answered(*lines: str, is_: str) -> Meanwhile:
    """Results and others, while the run that two results have started goes on."""
    history = [*ANSWERED, "assistant: half a word"]
    return Meanwhile(Post(lines), is_, "completed", history, opens=ANSWERS, given=OWING)


def early(
    makes: str,
    *lines: str,
    is_: str,
    adds: Sequence[str],
    asks: Sequence[str] = (),
    at: str = "tool-call-start",
) -> Meanwhile:
    """Results of calls that are being made."""
    made = ["user: one", f"assistant: -> {makes}"]
    history = [*made, *adds, *(["assistant: good"] if asks else [])]
    shown = [*made, *asks] if asks else []
    return Meanwhile(Post(lines), is_, "handed-back", history, shown, says=makes, at=at)


MEANWHILE = {
    # ---------------- a user message, by policy
    "reject": goes_on("reject", "409 conversation_busy", "completed", *ONE, asks=[]),
    "no policy": goes_on("", "409 conversation_busy", "completed", *ONE, asks=[]),
    "enqueue": goes_on("enqueue", "waits, runs", "completed", *ONE, *TWO, asks=[*ONE, "user: two"]),
    "interrupt": goes_on(
        "interrupt",
        "waits, runs",
        "cancelled",
        "user: one",
        HALFWAY,
        *TWO,
        asks=["user: one", "assistant: half ", "user: two"],
    ),
    "rollback": goes_on("rollback", "waits, runs", "cancelled", *TWO, asks=["user: two"]),
    "rollback of a run that results started": Meanwhile(
        Post(["user: two"], on_busy="rollback"),
        "waits, runs",
        "cancelled",
        [*ANSWERED, *TWO],
        [*ANSWERED, "user: two"],
        opens=ANSWERS,
        given=OWING,
    ),
    "rollback of results and a message": Meanwhile(
        Post(["user: two"], on_busy="rollback"),
        "waits, runs",
        "cancelled",
        ["user: go", "assistant: -> zone, color", "color: red", "zone (superseded)", *TWO],
        [*GO, f"zone: {SUPERSEDED}", "color: red", "user: two"],
        opens=Post(["color: red", "user: and?"]),
        given=OWING,
    ),
    # ---------------- what is known, unknown or nothing
    "the same results": while_answered("zone: UTC", "color: red", is_="joins 2"),
    "one of them": while_answered("zone: UTC", is_="joins 2"),
    "another result": while_answered("zone: CET", is_="409 tool_result_conflict"),
    "another conversation's call": while_answered("foreign: x", is_="404 tool_call_not_found"),
    "nothing": while_answered(is_="422 nothing_to_do"),
    "a known result and a message": while_answered(
        "zone: UTC", "user: two", is_="409 conversation_busy"
    ),
    # ---------------- results of calls that are not handed back yet
    "an early result": early(
        "zone", "zone: UTC", is_="runs", adds=["zone: UTC"], asks=["zone: UTC"]
    ),
    "a result in the instant of its call's end": early(
        "zone",
        "zone: UTC",
        is_="runs",
        adds=["zone: UTC"],
        asks=["zone: UTC"],
        at="tool-call-end",
    ),
    "an early result and a message": early(
        "zone",
        "user: two",
        "zone: UTC",
        is_="runs",
        adds=["zone: UTC", "user: two"],
        asks=["zone: UTC", "user: two"],
    ),
    "an early result beside an unknown one": early(
        "zone", "zone: UTC", "foreign: x", is_="404 tool_call_not_found", adds=[]
    ),
    "an early result of two": early(
        "zone, color", "zone: UTC", is_="owes color", adds=["zone: UTC"]
    ),
    "an early result beside the server's call": early(
        "zone, price",
        "zone: UTC",
        is_="runs",
        adds=[PAID, "zone: UTC"],
        asks=["zone: UTC", PAID],
    ),
}


def gated(what: str, gate: anyio.Event) -> Reply:
    """Half a text, and the rest; or calls, the first of which has begun."""
    if what == "text":
        return held("half ", gate, "a word")
    first, *others = call_of(*what.split(", ")).steps
    return Reply([first, gate, *others])


async def answer_to(stage: Stage, post: Post, gate: anyio.Event, *, early: bool) -> Answer:
    """Post, and let what runs go on: when the answer has begun, or when the post was sent."""
    answers: list[Answer] = []

    async def ask() -> None:
        async with await stage.posting(post) as stream:
            if post.on_busy not in STOPS:
                gate.set()
            answers.append(await stream.whole())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        if early:
            await anyio.wait_all_tasks_blocked()
            gate.set()
    [answer] = answers
    return answer


@pytest.mark.promise("P4", "P7", "P8")
@pytest.mark.parametrize("what", MEANWHILE.values(), ids=MEANWHILE)
async def test_a_post_while_something_runs(stage: Stage, what: Meanwhile) -> None:
    await stage.call_elsewhere()
    await stage.lead(*what.given)
    gate = anyio.Event()
    stage.model.play(gated(what.says, gate), says("good"))
    with anyio.fail_after(SECONDS):
        async with await stage.posting(what.opens) as first:
            stage.runs.append(first.headers["x-run-id"])
            if what.at == "tool-call-end":
                gate.set()
            begun = await first.until(what.at)
            if what.at != "text":
                stage.calls["zone"] = begun.event["toolCallId"]
            early = what.at == "tool-call-start"
            answer = await answer_to(stage, what.post, gate, early=early)
            assert outcome_of(await first.whole()) == what.first
    assert stage.seen(answer) == what.answer
    assert await stage.history() == what.history
    assert stage.asked()[1:] == ([what.asks] if what.asks else [])


# ---------------------------------------------------------------- nothing runs, but posts wait
MADE = ["user: one", "assistant: -> zone"]
THEN_TWO = ["user: two", "assistant: good"]
WAITING = {
    "the result begins, they go on waiting": (
        ["zone: UTC"],
        "runs",
        [*MADE, "zone: UTC", "assistant: good", "user: two", "assistant: better"],
    ),
    "a message waits behind them, and they wait no longer": (
        ["user: three"],
        "waits, runs",
        [*MADE, "zone (superseded)", *THEN_TWO, "user: three", "assistant: better"],
    ),
    "the result that comes with it is the call's": (
        ["user: three", "zone: UTC"],
        "waits, runs",
        [*MADE, "zone: UTC", *THEN_TWO, "user: three", "assistant: better"],
    ),
}


@pytest.mark.parametrize("what", WAITING.values(), ids=WAITING)
async def test_a_post_when_others_wait_for_what_the_client_owes(
    stage: Stage, what: tuple[Sequence[str], str, Sequence[str]]
) -> None:
    lines, seen, history = what
    gate = anyio.Event()
    stage.model.play(gated("zone", gate), says("good"), says("better"))
    with anyio.fail_after(SECONDS):
        async with (
            await stage.posting(FIRST) as one,
            await stage.posting(Post(["user: two"], on_busy="enqueue")) as two,
        ):
            gate.set()
            assert outcome_of(await one.whole()) == "handed-back"
            assert await stage.owed() == ["zone"]
            assert stage.seen(await stage.post(Post(lines))) == seen
            assert stage.seen(await two.whole()) == "waits, runs"
    assert await stage.history() == history
    assert len(stage.asked()) == 3
