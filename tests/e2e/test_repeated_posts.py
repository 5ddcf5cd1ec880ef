"""Repeated posts: one run and one call of the model, whoever sends them, wherever and whenever."""

import anyio
import httpx
import pytest
from tests.e2e.workers import SECONDS, held, transcript
from tests.support.model_server import ModelServer, says
from tests.support.wire import (
    PATH,
    Answer,
    Client,
    Json,
    check_refusal,
    keyed,
    merged,
    user,
)

pytestmark = [pytest.mark.anyio, pytest.mark.promise("P8")]

TIMES = 10


@pytest.mark.parametrize("known_by", ["key", "message id"])
async def test_a_post_that_is_made_ten_times_at_once_and_once_after_the_end_is_one_run(
    model: ModelServer, played_pair: tuple[Client, Client], conversation: str, known_by: str
) -> None:
    model.play(says("The ", "only ", "answer."))
    message = user("hi") | ({"id": "message-1"} if known_by == "message id" else {})
    headers = keyed(conversation) if known_by == "key" else {}
    answers: list[Answer] = []

    async def ask(client: Client) -> None:
        answers.append(
            await client.post(conversation, message, headers=headers, include=["run", "usage"])
        )

    with anyio.fail_after(SECONDS):
        async with anyio.create_task_group() as tasks:
            for number in range(TIMES):
                tasks.start_soon(ask, played_pair[number % 2])
        for client in played_pair:
            await ask(client)
    assert [answer.status for answer in answers] == [200] * (TIMES + 2)
    streams = [merged(answer.frames) for answer in answers]
    assert streams == [streams[0]] * len(streams)
    assert len(model.requests) == 1
    assert await transcript(played_pair[0], conversation) == [
        ("user", "hi", False),
        ("assistant", "The only answer.", False),
    ]


async def test_a_repeat_that_comes_during_the_run_follows_it_live(
    model: ModelServer, played_pair: tuple[Client, Client], conversation: str
) -> None:
    gate, hi = anyio.Event(), user("hi")
    model.play(held("half ", gate, "an answer"))
    first, other = played_pair
    async with (
        first.stream(conversation, [hi], headers=keyed("quoted")) as stream,
        other.stream(conversation, [hi], headers=keyed('"quoted"')) as repeated,
    ):
        assert (await repeated.until("text")).event["content"] == "half "
        gate.set()
        with anyio.fail_after(SECONDS):
            answer, again = await stream.whole(), await repeated.whole()
    assert again.headers["x-run-id"] == answer.headers["x-run-id"]
    assert merged(again.frames) == merged(answer.frames)
    assert len(model.requests) == 1


async def test_a_keyed_post_without_a_conversation_finds_the_one_that_it_began(
    model: ModelServer, played_pair: tuple[Client, Client], conversation: str
) -> None:
    model.play(says("An answer."))
    body = {"messages": [user("hi")]}

    async def ask(client: Client, body: Json) -> httpx.Response:
        return await client.http.post(PATH, json=body, headers=keyed(f"key-{conversation}"))

    first, again = [await ask(client, body) for client in played_pair]
    names = ("x-conversation-id", "x-run-id")
    assert [again.headers[name] for name in names] == [first.headers[name] for name in names]
    assert again.text == first.text
    began = await transcript(played_pair[0], first.headers["x-conversation-id"])
    assert [role for role, *_ in began] == ["user", "assistant"]
    check_refusal(await ask(played_pair[1], {"messages": [user("bye")]}), 422, "reused")
    assert len(model.requests) == 1
