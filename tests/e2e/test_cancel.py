"""Runs that somebody stops, from any worker, and runs that end with their last reader."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack

import anyio
import pytest
from tests.e2e.workers import SECONDS, Worker, broken_off, held, transcript, whole, worker
from tests.support.model_server import ModelServer, says
from tests.support.wire import DONE, Client, check_refusal, merged, user

pytestmark = [pytest.mark.anyio, pytest.mark.promise("P7")]

A_SECOND = 3
"""Limit with room for a machine that has other work."""
CANCELLED = {"type": "run-end", "outcome": "cancelled"}
STOPPED = CANCELLED | {"model": "openai:mock"}


# ---------------------------------------------------------------- cancel
async def test_cancel_on_another_worker_ends_the_run_within_a_second_and_hangs_up_on_the_model(
    model: ModelServer, played_pair: tuple[Client, Client], conversation: str
) -> None:
    model.play(broken_off("half ", "an answer"))
    one, other = played_pair
    async with (
        one.stream(conversation, [user("hi")], include=["run"]) as stream,
        other.follow(conversation, include=["run"]) as followed,
    ):
        while stream.so_far.text != "half an answer":
            await stream.next()
        assert (model.open_answers, model.left.is_set()) == (1, False)
        cancelled = await other.cancel(conversation)
        assert (cancelled.status_code, cancelled.json()) == (202, {"cancelled": True})
        with anyio.fail_after(A_SECOND):
            answer, seen = await stream.whole(), await followed.whole()
            await model.left.wait()
    assert answer.types == ["run-start", "text", "run-end", DONE]
    assert answer.frames[-2].event == STOPPED
    assert merged(seen.frames) == merged(answer.frames)
    assert await transcript(other, conversation) == [
        ("user", "hi", False),
        ("assistant", "half an answer", True),
    ]
    model.play(says("fine"))
    assert (await other.post(conversation, user("go on"))).text == "fine"
    shown = [each["content"] for each in model.requests[0].shown]
    assert shown[-3:] == ["hi", "half an answer", "go on"]


@pytest.mark.promise("P10")
async def test_a_run_whose_worker_has_just_died_can_be_cancelled(
    model: ModelServer, victim: Worker, survivor: Client, conversation: str
) -> None:
    model.play(broken_off("old "), broken_off("new "))
    async with victim.client.stream(conversation, [user("hi")]) as stream:
        await stream.until("text")
        victim.server.kill()
        await victim.server.exit_code()
    assert (await survivor.cancel(conversation)).json() == {"cancelled": True}
    with anyio.fail_after(SECONDS):
        ended = await whole(survivor, conversation)
    assert ended.frames[-2].event == CANCELLED
    assert ended.text in {"", "new "}
    assert [content for _, content, _ in await transcript(survivor, conversation)][1:] in (
        [],
        ["new "],
    )


@pytest.mark.promise("P12")
async def test_what_does_not_go_on_cannot_be_cancelled_on_any_worker(
    model: ModelServer, played_pair: tuple[Client, Client], conversation: str
) -> None:
    model.play(says("An answer."))
    ended = (await played_pair[0].post(conversation, user("hi"))).headers["x-run-id"]
    foreign = await played_pair[0].post(f"{conversation}-2", user("hi"))
    before = await played_pair[0].conversation(conversation)
    for client in played_pair:
        check_refusal(await client.cancel(conversation, run_id=ended), 409, "conflict")
        for unknown in (foreign.headers["x-run-id"], "run_0"):
            refused = await client.cancel(conversation, run_id=unknown)
            check_refusal(refused, 404, "run_not_found")
        assert (await client.cancel(conversation)).json() == {"cancelled": False}
    assert await played_pair[1].conversation(conversation) == before


# ---------------------------------------------------------------- onDisconnect
@pytest.fixture(scope="module")
async def short_grace_pair(flags: Sequence[str]) -> AsyncGenerator[tuple[Client, Client]]:
    """A `played_pair` on which runs without readers end after a second."""
    more = (*flags, "--timing", "disconnect_grace=1")
    async with worker(*more) as one, worker(*more) as other:
        yield one.client, other.client


async def test_a_run_that_was_to_end_with_its_reader_is_cancelled_when_he_leaves(
    model: ModelServer, short_grace_pair: tuple[Client, Client], conversation: str
) -> None:
    model.play(broken_off("half "))
    one, other = short_grace_pair
    async with one.stream(conversation, [user("hi")], onDisconnect="cancel") as stream:
        await stream.until("text")
    with anyio.fail_after(SECONDS):
        await model.left.wait()
        ended = await whole(other, conversation)
    assert ended.frames[-2].event == STOPPED
    assert await transcript(other, conversation) == [
        ("user", "hi", False),
        ("assistant", "half ", True),
    ]


async def test_a_run_that_was_to_end_with_its_reader_goes_on_while_another_worker_has_one(
    model: ModelServer, short_grace_pair: tuple[Client, Client], conversation: str
) -> None:
    gate = anyio.Event()
    model.play(held("half ", gate, "an answer"), broken_off("nobody hears "))
    one, other = short_grace_pair
    async with AsyncExitStack() as stays:
        async with one.stream(conversation, [user("hi")], onDisconnect="cancel") as stream:
            await stream.until("text")
            followed = await stays.enter_async_context(other.follow(conversation))
            await followed.until("text")
        # a run whose reader leaves later, and nobody follows: when it is cancelled, the first one's
        # time is over, too
        async with one.stream(f"{conversation}-2", [user("hi")], onDisconnect="cancel") as stream:
            await stream.until("text")
        with anyio.fail_after(SECONDS):
            await model.left.wait()
            assert (await whole(other, f"{conversation}-2")).frames[-2].event == STOPPED
        gate.set()
        with anyio.fail_after(SECONDS):
            answer = await followed.whole()
    assert (answer.types, answer.text) == (["text", DONE], "half an answer")
    assert await transcript(other, conversation) == [
        ("user", "hi", False),
        ("assistant", "half an answer", False),
    ]


@pytest.mark.promise("P10")
async def test_a_run_that_was_to_end_with_its_reader_does_so_also_when_both_lost_their_worker(
    model: ModelServer,
    short_grace_pair: tuple[Client, Client],
    flags: Sequence[str],
    conversation: str,
) -> None:
    model.play(broken_off("old "), broken_off("new "))
    async with (
        worker(*flags, "--timing", "disconnect_grace=1") as dies,
        dies.client.stream(conversation, [user("hi")], onDisconnect="cancel") as stream,
    ):
        await stream.until("text")
        dies.server.kill()
        with anyio.fail_after(SECONDS):
            for _ in range(2):  # the worker that died hangs up, then the one that took over
                await model.left.wait()
                model.left = anyio.Event()
            ended = await whole(short_grace_pair[0], conversation)
    assert (ended.frames[-2].event, ended.text) == (STOPPED, "new ")
    history = [("user", "hi", False), ("assistant", "new ", True)]
    assert await transcript(short_grace_pair[1], conversation) == history
