"""A message that comes while a run goes on: what each policy makes of it, over two workers."""

import anyio
import pytest
from tests.e2e.workers import SECONDS, Worker, broken_off, held, transcript
from tests.support.model_server import ModelServer, says
from tests.support.wire import DONE, Client, Json, keyed, user

pytestmark = pytest.mark.anyio

RUN = ["run"]
CANCELLED = {"type": "run-end", "outcome": "cancelled"}


async def test_posts_that_are_enqueued_are_answered_in_their_order(
    model: ModelServer, played_pair: tuple[Client, Client], conversation: str
) -> None:
    gate = anyio.Event()
    model.play(held("first ", gate, "answer"), says("second answer"), says("third answer"))
    one, other = played_pair
    waits: Json = {"onBusy": "enqueue", "include": RUN}
    async with (
        one.stream(conversation, [user("one")]) as first,
        other.stream(conversation, [user("two")], **waits) as second,
        one.stream(conversation, [user("three")], **waits) as third,
    ):
        for stream in (second, third):
            queued = await stream.next()
            assert queued.event == {"type": "run-queued", "runId": stream.headers["x-run-id"]}
        waiting = [stream.headers["x-run-id"] for stream in (second, third)]
        assert (await other.conversation(conversation))["queued"] == waiting
        gate.set()
        with anyio.fail_after(SECONDS):
            answers = [await stream.whole() for stream in (first, second, third)]
    assert [answer.text for answer in answers] == ["first answer", "second answer", "third answer"]
    for answer in answers[1:]:
        assert answer.types == ["run-queued", "run-start", "text", "run-end", DONE]
    assert [(role, content) for role, content, _ in await transcript(one, conversation)] == [
        ("user", "one"),
        ("assistant", "first answer"),
        ("user", "two"),
        ("assistant", "second answer"),
        ("user", "three"),
        ("assistant", "third answer"),
    ]


@pytest.mark.promise("P7")
async def test_a_post_that_waits_may_be_cancelled_or_lose_its_client(
    model: ModelServer, played_pair: tuple[Client, Client], conversation: str
) -> None:
    gate = anyio.Event()
    model.play(held("first ", gate, "answer"), says("third answer"))
    one, other = played_pair
    async with one.stream(conversation, [user("one")]) as first:
        async with other.stream(conversation, [user("two")], onBusy="enqueue", include=RUN) as two:
            async with other.stream(conversation, [user("three")], onBusy="enqueue") as three:
                left_run = three.headers["x-run-id"]
            cancelled = await one.cancel(conversation, run_id=two.headers["x-run-id"])
            assert (cancelled.status_code, cancelled.json()) == (202, {"cancelled": True})
            with anyio.fail_after(SECONDS):
                stopped = await two.whole()
        assert stopped.types == ["run-queued", "run-end", DONE]
        assert stopped.frames[-2].event == CANCELLED
        gate.set()
        with anyio.fail_after(SECONDS):
            assert (await first.whole()).text == "first answer"
            answered = await one.replay(conversation, run_id=left_run)
    assert answered.text == "third answer"
    contents = [
        content for role, content, _ in await transcript(one, conversation) if role == "user"
    ]
    assert contents == ["one", "three"]
    assert len(model.requests) == 2


@pytest.mark.promise("P10")
async def test_posts_that_wait_survive_the_worker_that_accepted_them(
    model: ModelServer, victim: Worker, survivor: Client, conversation: str
) -> None:
    model.play(broken_off("old "), says("first answer"), says("second answer"))
    one, two = user("one"), user("two")
    headers = keyed(f"two-{conversation}")
    async with (
        victim.client.stream(conversation, [one]) as first,
        victim.client.stream(conversation, [two], headers=headers, onBusy="enqueue") as second,
    ):
        await first.until("text")
        waiting = second.headers["x-run-id"]
        victim.server.kill()
    with anyio.fail_after(SECONDS):
        answer = await survivor.post(conversation, two, headers=headers, include=RUN)
    assert (answer.headers["x-run-id"], answer.text) == (waiting, "second answer")
    assert answer.types == ["run-queued", "run-start", "text", "run-end", DONE]
    assert await transcript(survivor, conversation) == [
        ("user", "one", False),
        ("assistant", "first answer", False),
        ("user", "two", False),
        ("assistant", "second answer", False),
    ]
