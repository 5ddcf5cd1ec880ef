"""Workers die, stop or sleep in a run: another one goes on, and readers learn what is void."""

from collections.abc import Sequence

import anyio
import pytest
from tests.e2e.workers import CUT, SECONDS, Worker, broken_off, held, transcript, whole, worker
from tests.support.model_server import ModelServer, Reply, calls, event, says
from tests.support.wire import (
    DONE,
    Client,
    Frame,
    keyed,
    merged,
    text_of,
    user,
    without_void,
)

pytestmark = [pytest.mark.anyio, pytest.mark.promise("P10")]

REWINDS = ["run", "rewind"]


def rewind_of(frames: Sequence[Frame]) -> Frame:
    [found] = [frame for frame in frames if frame.type == "rewind"]
    return found


# ---------------------------------------------------------------- readers of a killed worker's run
@pytest.mark.promise("P3", "P6")
async def test_a_reader_on_another_worker_learns_what_is_void(
    model: ModelServer, victim: Worker, survivor: Client, conversation: str
) -> None:
    model.play(broken_off("old "), says("new ", "answer"))
    async with (
        victim.client.stream(conversation, [user("hi")]),
        survivor.follow(conversation, include=REWINDS) as followed,
    ):
        await followed.until("text")
        victim.server.kill()
        with anyio.fail_after(SECONDS):
            answer = await followed.whole()
    assert answer.types == ["run-start", "text", "rewind", "text", "run-end", DONE]
    assert rewind_of(answer.frames).event["to"] == answer.frames[0].id
    good = await whole(survivor, conversation)
    assert merged(without_void(answer.frames)) == merged(good.frames)
    assert await transcript(survivor, conversation) == [
        ("user", "hi", False),
        ("assistant", "new answer", False),
    ]
    assert len(model.requests) == 2


@pytest.mark.promise("P10")
async def test_who_follows_the_conversation_sees_it_and_the_runs_behind_it(
    model: ModelServer, victim: Worker, survivor: Client, conversation: str
) -> None:
    model.play(says("hello"), broken_off("void "), says("whole"), says("later"))
    await survivor.post(conversation, user("hi"))
    with anyio.fail_after(SECONDS):
        async with survivor.watch(conversation) as stream:
            async with victim.client.stream(conversation, [user("more")]):
                await stream.until("text")
                victim.server.kill()
            frames = await stream.whole_run()
            assert frames[0].type == "rewind"
            assert text_of(frames) == "whole"
            await survivor.post(conversation, user("on"))
            assert text_of(await stream.whole_run()) == "later"


@pytest.mark.promise("P3", "P6")
async def test_a_reader_who_knows_no_rewinds_gets_an_error_and_reads_the_whole_run_again(
    model: ModelServer, victim: Worker, survivor: Client, conversation: str
) -> None:
    model.play(broken_off("old "), says("new ", "answer"))
    async with (
        victim.client.stream(conversation, [user("hi")]) as stream,
        survivor.follow(conversation) as followed,
    ):
        await followed.until("text")
        victim.server.kill()
        with anyio.fail_after(SECONDS):
            answer = await followed.whole()
    assert answer.types == ["text", "error", DONE]
    *_, error, done = answer.frames
    assert (error.event["code"], error.event["retryable"]) == ("rewound", True)
    start = f"{stream.headers['x-run-id']}.0-0"
    assert (error.id, done.id) == (start, start)
    again = await survivor.replay(conversation, after=done.id)
    assert again.headers["x-run-id"] == stream.headers["x-run-id"]
    assert (again.types, again.text) == (["text", DONE], "new answer")
    assert merged(again.frames) == merged((await survivor.replay(conversation)).frames)


@pytest.mark.promise("P3", "P8")
async def test_clients_of_a_killed_worker_come_back_to_another_one(
    model: ModelServer, victim: Worker, survivor: Client, conversation: str
) -> None:
    model.play(broken_off("old "), says("new ", "answer"))
    hi, key = user("hi"), f"key-of-{conversation}"
    async with victim.client.stream(conversation, [hi], headers=keyed(key)) as stream:
        last = await stream.until("text")
        victim.server.kill()
        seen = await stream.until_cut()
    with anyio.fail_after(SECONDS):
        await whole(survivor, conversation)
    repeated = await survivor.post(conversation, hi, headers=keyed(key))
    assert (repeated.types, repeated.text) == (["text", DONE], "new answer")
    after = {"headers": keyed(key, after=last.id)}
    rest = await survivor.post(conversation, hi, **after, include=["rewind"])
    assert rest.types == ["rewind", "text", DONE]
    assert merged(without_void((*seen.frames, *rest.frames))) == merged(repeated.frames)
    followed = await survivor.replay(conversation, after=last.id, include=["rewind"])
    assert merged(followed.frames) == merged(rest.frames)
    rewound = await survivor.post(conversation, hi, **after)
    assert rewound.types == ["error", DONE]
    from_start = {"headers": keyed(key, after=rewound.frames[-1].id)}
    again = await survivor.post(conversation, hi, **from_start)
    assert merged(again.frames) == merged(repeated.frames)
    assert len(model.requests) == 2


async def test_the_turns_that_were_committed_before_a_worker_was_killed_stay(
    model: ModelServer, victim: Worker, survivor: Client, conversation: str
) -> None:
    asks = calls(("a", "price", '{"drink": "tea"}'))
    model.play(asks, broken_off("Tea "), says("It costs ", "3 euros."))
    async with (
        victim.client.stream(conversation, [user("tea?")]),
        survivor.follow(conversation, include=REWINDS) as followed,
    ):
        result = await followed.until("tool-result")
        await followed.until("text")
        victim.server.kill()
        with anyio.fail_after(SECONDS):
            answer = await followed.whole()
    assert answer.types[-6:] == ["tool-result", "text", "rewind", "text", "run-end", DONE]
    assert rewind_of(answer.frames).event["to"] == result.id
    good = await whole(survivor, conversation)
    assert merged(without_void(answer.frames)) == merged(good.frames)
    roles = [message["role"] for message in await survivor.messages(conversation)]
    assert roles == ["user", "assistant", "tool", "assistant"]
    assert len(model.requests) == 3


async def test_a_run_that_was_taken_over_says_how_many_workers_have_tried_it(
    model: ModelServer, victim: Worker, survivor: Client, conversation: str
) -> None:
    gate = anyio.Event()
    model.play(broken_off("old "), held("new ", gate, "answer"))
    async with (
        victim.client.stream(conversation, [user("hi")]) as stream,
        survivor.follow(conversation, include=REWINDS) as followed,
    ):
        await followed.until("text")
        running = (await survivor.conversation(conversation))["running"]
        assert (running["runId"], running["attempt"]) == (stream.headers["x-run-id"], 1)
        victim.server.kill()
        with anyio.fail_after(SECONDS):
            await followed.until("rewind")
        assert (await survivor.conversation(conversation))["running"] == running | {"attempt": 2}
        gate.set()
        assert (await followed.whole()).types[-1] == DONE
    assert (await survivor.conversation(conversation))["running"] is None


# ---------------------------------------------------------------- workers that stop
@pytest.mark.promise("P3")
async def test_a_worker_that_stops_within_a_turn_leaves_its_run_to_another(
    model: ModelServer, victim: Worker, survivor: Client, conversation: str
) -> None:
    gate = anyio.Event()
    model.play(broken_off("old "), held("new ", gate, "answer"))
    async with (
        victim.client.stream(conversation, [user("hi")], include=REWINDS) as stream,
        survivor.follow(conversation, include=REWINDS) as followed,
    ):
        await followed.until("text")
        victim.server.terminate()
        with anyio.fail_after(SECONDS):
            seen = await stream.whole()
            assert await victim.server.exit_code() == 0
            await followed.until("rewind")
        assert (seen.types, seen.body[-len(CUT) :]) == (["run-start", "text"], CUT)
        assert (await survivor.conversation(conversation))["running"]["attempt"] == 1
        gate.set()
        answer = await followed.whole()
    good = await whole(survivor, conversation)
    assert good.text == "new answer"
    assert merged(without_void(answer.frames)) == merged(good.frames)
    rest = await survivor.replay(conversation, after=seen.frames[-1].id, include=REWINDS)
    assert merged(without_void((*seen.frames, *rest.frames))) == merged(good.frames)


@pytest.mark.promise("P3")
async def test_a_worker_that_stops_leaves_its_run_between_two_turns_and_nothing_is_void(
    model: ModelServer, flags: Sequence[str], survivor: Client, conversation: str
) -> None:
    gate = anyio.Event()
    asks = calls(("a", "price", '{"drink": "tea"}'))
    model.play(Reply([event(content="Well. "), gate, *asks.steps]), says("3 euros."))
    async with worker(*flags, "--timing", f"shutdown_grace={SECONDS}") as stops:
        async with stops.client.stream(conversation, [user("tea?")], include=REWINDS) as stream:
            await stream.until("text")
            stops.server.terminate()
            await stops.client.until_refused()
            gate.set()
            with anyio.fail_after(SECONDS):
                seen = await stream.whole()
        assert await stops.server.exit_code() == 0
    assert (seen.types[-1], seen.body[-len(CUT) :]) == ("tool-result", CUT)
    with anyio.fail_after(SECONDS):
        rest = await survivor.replay(conversation, after=seen.frames[-1].id, include=REWINDS)
    assert (rest.types, rest.text) == (["text", "run-end", DONE], "3 euros.")
    good = await whole(survivor, conversation)
    assert merged((*seen.frames, *rest.frames)) == merged(good.frames)
    assert len(model.requests) == 2


# ---------------------------------------------------------------- a worker that sleeps
@pytest.mark.promise("P3", "P6")
async def test_a_worker_that_slept_longer_than_its_lease_changes_nothing_when_it_wakes_up(
    model: ModelServer, victim: Worker, survivor: Client, conversation: str
) -> None:
    gate = anyio.Event()
    model.play(held("old ", gate, "answer"), says("new ", "answer"))
    async with (
        victim.client.stream(conversation, [user("hi")], include=REWINDS) as stream,
        survivor.follow(conversation, include=REWINDS) as followed,
    ):
        await stream.until("text")
        await followed.until("text")
        victim.server.freeze()
        with anyio.fail_after(SECONDS):
            answer = await followed.whole()
        gate.set()
        victim.server.thaw()
        with anyio.fail_after(SECONDS):
            seen = await stream.whole()
    good = await whole(survivor, conversation)
    assert good.text == "new answer"
    assert merged(without_void(answer.frames)) == merged(good.frames)
    assert merged(without_void(seen.frames)) == merged(good.frames)
    assert merged((await whole(victim.client, conversation)).frames) == merged(good.frames)
    history = [("user", "hi", False), ("assistant", "new answer", False)]
    assert await transcript(survivor, conversation) == history
    assert await transcript(victim.client, conversation) == history
    model.play(says("fine"))
    assert (await victim.client.post(conversation, user("and now?"))).text == "fine"
