"""Edit, regenerate, switch and fork with the Python client, against a real server."""

from typing import Any

import anyio
import pytest
from tests.e2e.workers import SECONDS, held
from tests.support.model_server import ModelServer, calls, says
from tests.support.python_client import joined, until_text
from tests.support.server import Server

from passback_client import (
    Answer,
    BranchPoint,
    Busy,
    Client,
    Refused,
    RunEnd,
    Stream,
    ToolAnswer,
)
from passback_client import sync as plain
from passback_client.events import OnBusy

pytestmark = [pytest.mark.anyio, pytest.mark.measured]


async def ids(client: Client, conversation: str) -> list[str]:
    return [each["id"] for each in (await client.messages(conversation)).messages]


async def contents(client: Client, conversation: str) -> list[Any]:
    return [each.get("content") for each in (await client.messages(conversation)).messages]


async def text_of(stream: Stream) -> str:
    return joined([event async for event in stream])


# ---------------------------------------------------------------- versions
async def test_a_message_is_edited_answered_anew_and_read_in_another_version(
    model: ModelServer, mine: Client, conversation: str
) -> None:
    model.play(*(says(str(number)) for number in range(4)))
    await mine.ask("one", conversation_id=conversation)
    one, answer = await ids(mine, conversation)
    assert (await mine.conversation(conversation)).branches == ()

    assert await text_of(mine.regenerate(conversation, one)) == "1"
    newer = (await ids(mine, conversation))[-1]
    assert (await mine.conversation(conversation)).branches == (
        BranchPoint(one, (answer, newer), newer),
    )

    assert (await mine.ask("other", conversation_id=conversation, after="")).text == "2"
    other = (await ids(mine, conversation))[0]
    assert await contents(mine, conversation) == ["other", "2"]
    edited = await mine.conversation(conversation)
    assert edited.branches == (BranchPoint(None, (one, other), other),)

    switched = await mine.switch_branch(conversation, answer)
    assert switched.branches[1] == BranchPoint(one, (answer, newer), answer)
    assert switched == await mine.conversation(conversation)
    assert await contents(mine, conversation) == ["one", "0"]
    await mine.ask("more", conversation_id=conversation)
    assert [each["content"] for each in model.requests[-1].shown] == ["one", "0", "more"]


async def test_a_conversation_is_forked_at_a_message_of_any_branch(
    model: ModelServer, mine: Client, conversation: str
) -> None:
    model.play(*(says(str(number)) for number in range(3)))
    await mine.ask("one", conversation_id=conversation)
    left = await ids(mine, conversation)
    await mine.ask("other", conversation_id=conversation, after="")
    copy = await mine.fork(conversation, after=left[1], new_id=f"{conversation}-copy")
    assert (copy.id, copy.message_count) == (f"{conversation}-copy", 2)
    assert await contents(mine, copy.id) == ["one", "0"]
    assert (await mine.ask("two", conversation_id=copy.id)).text == "2"
    whole = await mine.fork(conversation)
    assert await contents(mine, whole.id) == ["other", "1"]
    assert (await mine.fork(conversation, after="")).message_count == 0
    keyed = [await mine.fork(conversation, idempotency_key=conversation) for _ in range(2)]
    assert keyed[0] == keyed[1]
    with pytest.raises(Refused) as refused:
        await mine.fork(conversation, new_id=copy.id)
    assert (refused.value.status, refused.value.code) == (409, "conflict")


async def test_tools_run_in_an_answer_that_is_written_anew(
    model: ModelServer, mine: Client, conversation: str
) -> None:
    model.play(says("0"), calls(("a", "paint", "{}")), says("1"), says("2"))
    await mine.ask("one", conversation_id=conversation)
    [one, _] = await ids(mine, conversation)

    @mine.tool
    def paint() -> str:
        """Paint it."""
        return "painted"

    answer = Answer()
    async for event in mine.regenerate(conversation, one, include=["usage"]):
        answer.feed(event)
    assert (answer.text, [call.result for call in answer.calls]) == ("1", ["painted"])
    painted = (await ids(mine, conversation))[2]
    assert await text_of(mine.regenerate(conversation, painted)) == "2"
    assert await contents(mine, conversation) == ["one", "", "painted", "2"]


async def test_a_client_without_async_does_all_of_it(
    model: ModelServer, played: Server, conversation: str
) -> None:
    model.play(*(says(str(number)) for number in range(3)))

    def talk() -> None:
        with plain.Client(played.url) as client:
            client.ask("one", conversation_id=conversation)
            one, answer = [each["id"] for each in client.messages(conversation).messages]
            assert joined(list(client.regenerate(conversation, one))) == "1"
            assert client.ask("x", conversation_id=conversation, after="").text == "2"
            switched = client.switch_branch(conversation, answer)
            assert switched.branches[-1].current == answer
            assert client.fork(conversation, after=one).message_count == 1

    with anyio.fail_after(SECONDS):
        await anyio.to_thread.run_sync(talk)


# ---------------------------------------------------------------- during a run
async def test_an_edit_during_a_run_is_refused_as_busy(
    model: ModelServer, mine: Client, conversation: str
) -> None:
    gate = anyio.Event()
    model.play(says("0"), held("slow ", gate, "answer"), says("2"))
    await mine.ask("one", conversation_id=conversation)
    [one, _] = await ids(mine, conversation)
    running = mine.send("two", conversation_id=conversation)
    await until_text(running)
    with pytest.raises(Busy):
        await text_of(mine.regenerate(conversation, one, on_busy="reject"))
    with pytest.raises(Busy):
        await text_of(mine.send("x", conversation_id=conversation, after=""))
    with anyio.fail_after(SECONDS), pytest.raises(Busy):  # and is not repeated
        await mine.switch_branch(conversation, one)
    gate.set()
    assert await text_of(mine.regenerate(conversation, one, wait_while_busy=True)) == "2"
    assert await contents(mine, conversation) == ["one", "2"]
    await running.aclose()


@pytest.mark.parametrize(
    ("on_busy", "ends"),
    [
        ("enqueue", ("completed", "slow answer")),
        ("interrupt", ("cancelled", "slow ")),
        ("rollback", ("cancelled", "slow ")),
    ],
)
async def test_an_edit_during_a_run_waits_for_its_end(
    model: ModelServer, mine: Client, conversation: str, on_busy: OnBusy, ends: tuple[str, str]
) -> None:
    gate = anyio.Event()
    model.play(says("0"), held("slow ", gate, "answer"), says("2"))
    await mine.ask("one", conversation_id=conversation)
    [one, _] = await ids(mine, conversation)
    running = mine.send("two", conversation_id=conversation)
    await until_text(running)
    edit = mine.send("x", conversation_id=conversation, after="", on_busy=on_busy)
    await anext(edit)
    if on_busy == "enqueue":
        gate.set()
    assert [e.outcome async for e in running if isinstance(e, RunEnd)] == [ends[0]]
    assert await text_of(edit) == "2"
    assert await contents(mine, conversation) == ["x", "2"]
    await mine.switch_branch(conversation, one)
    assert await contents(mine, conversation) == ["one", "0", "two", ends[1]]


# ---------------------------------------------------------------- what cannot be
async def test_what_cannot_be_answered_anew_is_refused(
    model: ModelServer, mine: Client, conversation: str
) -> None:
    model.play(calls(("a", "paint", "{}"), ("b", "paint", "{}")), says("Done."))

    @mine.tool
    def paint() -> str:
        """Paint it."""
        return "painted"

    events = [event async for event in mine.send("go", conversation_id=conversation)]
    assert sum(isinstance(event, ToolAnswer) for event in events) == 2
    before = await mine.conversation(conversation)
    _, asked, first, _, done = await ids(mine, conversation)
    refused = {
        "no": (404, "message_not_found"),
        asked: (422, "invalid_request"),
        first: (422, "invalid_request"),
        done: (422, "nothing_to_do"),
        "": (422, "nothing_to_do"),
        "a\n": (422, "invalid_request"),
    }
    for after, (status, code) in refused.items():
        with pytest.raises(Refused) as error:
            await text_of(mine.regenerate(conversation, after))
        assert (error.value.status, error.value.code) == (status, code)
    with pytest.raises(Refused) as error:
        await mine.ask("hi", conversation_id=conversation, after="no")
    assert error.value.code == "message_not_found"
    with pytest.raises(Refused) as error:
        await mine.switch_branch(conversation, "no")
    assert error.value.code == "message_not_found"
    with pytest.raises(Refused) as error:
        await mine.fork(conversation, after="no")
    assert error.value.code == "message_not_found"
    assert await mine.conversation(conversation) == before
