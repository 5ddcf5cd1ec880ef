"""Connections that break: what was missed can be read on, and the run does not notice."""

from collections.abc import AsyncGenerator

import pytest
from tests.support.server import running_server
from tests.support.wire import ZONE, Client, client_of, merged, result, user

pytestmark = [pytest.mark.anyio, pytest.mark.promise("P3")]


@pytest.fixture(scope="module")
async def slow_client() -> AsyncGenerator[Client]:
    """A client of a server whose model says some thirty words a second."""
    async with running_server() as server, client_of(server.url) as client:
        yield client


async def test_reading_on_within_a_call_gives_the_rest_of_it(
    client: Client, conversation: str
) -> None:
    asked = await client.post(conversation, user("time zone"), tools=[ZONE])
    for index, frame in enumerate(asked.frames[:-1], 1):
        rest = await client.replay(conversation, after=frame.id)
        assert merged((*asked.frames[:index], *rest.frames)) == merged(asked.frames)


async def test_without_an_id_the_newest_run_is_read_from_its_start(
    client: Client, conversation: str
) -> None:
    await client.post(conversation, user("count to 3"))
    newest = await client.post(conversation, user("hi"))
    replayed = await client.replay(conversation)
    assert replayed.headers["x-run-id"] == newest.headers["x-run-id"]
    assert merged(replayed.frames) == merged(newest.frames)


async def test_an_older_run_is_read_on_by_its_own_ids(client: Client, conversation: str) -> None:
    older = await client.post(conversation, user("count to 3"))
    await client.post(conversation, user("hi"))
    rest = await client.replay(conversation, after=older.frames[0].id)
    assert rest.headers["x-run-id"] == older.headers["x-run-id"]
    assert merged((older.frames[0], *rest.frames)) == merged(older.frames)


@pytest.mark.promise("P7")
async def test_a_client_that_leaves_does_not_stop_the_run(
    slow_client: Client, conversation: str
) -> None:
    async with slow_client.stream(conversation, [user("count to 20")]) as stream:
        [first] = await stream.take(1)
    assert (await slow_client.conversation(conversation))["status"] == "running"
    rest = await slow_client.replay(conversation, after=first.id)
    numbers = " ".join(str(number) for number in range(1, 21))
    whole = f"{numbers} - counted by the demo model."
    assert first.event["content"] + rest.text == whole
    _, answer = await slow_client.messages(conversation)
    assert (answer["content"], "partial" in answer) == (whole, False)


async def test_a_repeated_result_reads_on_where_its_first_post_broke_off(
    slow_client: Client, conversation: str
) -> None:
    asked = await slow_client.post(conversation, user("time zone"), tools=[ZONE])
    given = result(asked.call.id, "UTC")
    async with slow_client.stream(conversation, [given]) as stream:
        [first] = await stream.take(1)
    headers = {"last-event-id": first.id}
    rest = await slow_client.post(conversation, given, headers=headers)
    assert first.event["content"] + rest.text == 'Done. get-time-zone answered: "UTC".'
