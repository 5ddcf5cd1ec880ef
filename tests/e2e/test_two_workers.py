"""Two workers on one store: any of them can take any request of a conversation."""

import anyio
import pytest
from tests.support.lanes import rounds
from tests.support.wire import (
    DONE,
    ZONE,
    Answer,
    Client,
    merged,
    result,
    user,
)

pytestmark = [pytest.mark.anyio, pytest.mark.stores("redis", "postgres")]

ROUNDS = rounds(30, nightly=1000)


@pytest.mark.promise("P1")
async def test_a_call_made_on_one_worker_is_answered_on_the_other(
    pair: tuple[Client, Client], conversation: str
) -> None:
    one, other = pair
    asked = await one.post(conversation, user("time zone"), tools=[ZONE])
    answer = await other.post(conversation, result(asked.call.id, "UTC"))
    assert answer.text == 'Done. get-time-zone answered: "UTC".'
    assert await one.conversation(conversation) == await other.conversation(conversation)


@pytest.mark.promise("P4")
@pytest.mark.timeout(60 + ROUNDS)
async def test_a_result_posted_at_the_end_of_its_call_is_no_conflict(
    pair: tuple[Client, Client], conversation: str
) -> None:
    for number in range(ROUNDS):
        asks, tells = pair if number % 2 else pair[::-1]
        takes = tells if number % 4 < 2 else asks
        async with asks.stream(conversation, [user("time zone")], tools=[ZONE]) as stream:
            ended = await stream.until("tool-call-end")
            answer = await takes.post(conversation, result(ended.event["toolCallId"], str(number)))
            assert (await stream.whole()).types[-1] == DONE
        assert (answer.status, answer.text) == (200, f'Done. get-time-zone answered: "{number}".')
    assert (await pair[0].conversation(conversation))["messageCount"] == 4 * ROUNDS


@pytest.mark.promise("P8")
async def test_equal_results_posted_to_both_workers_at_once_are_one_run(
    pair: tuple[Client, Client], conversation: str
) -> None:
    asked = await pair[0].post(conversation, user("time zone"), tools=[ZONE])
    answers: list[Answer] = []

    async def tell(client: Client) -> None:
        answers.append(await client.post(conversation, result(asked.call.id, "UTC")))

    async with anyio.create_task_group() as tasks:
        for client in pair:
            tasks.start_soon(tell, client)
    one, other = answers
    assert (one.status, other.status) == (200, 200)
    assert merged(one.frames) == merged(other.frames)
    assert (await pair[0].conversation(conversation))["messageCount"] == 4


async def test_of_two_posts_at_once_one_is_refused_as_busy(
    slow_pair: tuple[Client, Client], conversation: str
) -> None:
    answers: list[Answer] = []

    async def ask(client: Client) -> None:
        answer = await client.post(conversation, user("count to 1000"))
        answers.append(answer)
        if answer.status == 409:  # until then the other one goes on
            await client.http.post(f"/conversations/{conversation}/cancel")

    async with anyio.create_task_group() as tasks:
        for client in slow_pair:
            tasks.start_soon(ask, client)
    answers.sort(key=lambda answer: answer.status)
    assert [answer.status for answer in answers] == [200, 409]
    refused = answers[1]
    assert (refused.json["code"], refused.headers["retry-after"]) == ("conversation_busy", "1")
    said = await slow_pair[0].messages(conversation)
    assert [each["role"] for each in said].count("user") == 1


async def test_a_conversation_deleted_on_one_worker_while_the_other_answers_is_gone(
    slow_pair: tuple[Client, Client], conversation: str
) -> None:
    one, other = slow_pair
    async with one.stream(conversation, [user("count to 1000")]) as stream:
        await stream.next()
        deleted = await other.http.delete(f"/conversations/{conversation}")
        assert deleted.status_code == 204
        with anyio.fail_after(20):
            answer = await stream.whole()
    assert answer.types == ["text", "error", DONE]
    gone = {"status": 404, "code": "conversation_not_found"}
    assert await one.conversation(conversation) == gone
    assert await other.conversation(conversation) == gone
    assert (await one.post(conversation, user("hi"))).text.startswith("Hello!")
    assert (await other.conversation(conversation))["messageCount"] == 2
