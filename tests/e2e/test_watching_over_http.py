"""Following a conversation over HTTP: posts of other clients, at other workers, are seen live."""

import anyio
import pytest
from tests.e2e.workers import SECONDS
from tests.support.wire import ZONE, Client, Frame, merged, result, text_of, user

pytestmark = pytest.mark.anyio


def posted(frames: list[Frame]) -> list[tuple[str, object]]:
    return [
        (message["role"], message["content"])
        for frame in frames
        if frame.type == "posted"
        for message in frame.event["messages"]
    ]


@pytest.mark.promise("P1", "P3")
async def test_a_second_client_sees_all_that_is_said_at_another_worker(
    pair: tuple[Client, Client], conversation: str
) -> None:
    one, other = pair
    await one.post(conversation, user("hello"))
    with anyio.fail_after(SECONDS):
        async with other.watch(conversation) as stream:
            answer = await one.post(conversation, user("time zone"), tools=[ZONE])
            asked = await stream.whole_run()
            assert posted(asked) == [("user", "time zone")]
            assert answer.call.id in {frame.event.get("toolCallId") for frame in asked}
            await one.post(conversation, result(answer.call.id, "UTC"))
            answered = await stream.whole_run()
            assert posted(answered) == [("tool", "UTC")]
            assert text_of(answered) == 'Done. get-time-zone answered: "UTC".'
        # a client that comes back gets what it has missed, at whichever worker
        await other.post(conversation, user("hello again"))
        for client in pair:
            async with client.watch(conversation, after=answered[-1].id) as stream:
                assert posted(await stream.whole_run()) == [("user", "hello again")]
            async with client.watch(conversation, after=asked[1].id) as stream:
                frames = await stream.whole_run()
                assert merged(frames) == merged(asked[2:])
                assert merged(await stream.whole_run()) == merged(answered)
        async with other.watch(conversation) as stream:
            assert (await one.http.delete(f"/conversations/{conversation}")).status_code == 204
            assert (await stream.next()).event == {"type": "deleted"}
        assert (await other.http.get(f"/conversations/{conversation}/events")).status_code == 404


async def test_a_switch_and_a_first_message_at_another_worker_are_told_at_once(
    pair: tuple[Client, Client], conversation: str
) -> None:
    one, other = pair
    path = f"/conversations/{conversation}"
    with anyio.fail_after(SECONDS):
        headers = {"accept": "text/event-stream"}
        absent = other.http.stream("GET", f"{path}/events?absent=wait", headers=headers)
        async with absent as response:
            assert response.status_code == 200
            await one.post(conversation, user("first"))
            async for line in response.aiter_lines():
                if '"run-end"' in line:
                    break
        [first, _] = await one.messages(conversation)
        await one.post(conversation, user("second"), after="")
        async with other.watch(conversation) as stream:
            switched = await one.http.post(f"{path}/leaf", json={"message": first["id"]})
            assert switched.status_code == 200
            [*_, last] = await one.messages(conversation)
            told = {"type": "switched", "message": last["id"]}
            assert (await stream.next()).event == told
            await one.post(conversation, user("third"))
            seen = await stream.whole_run()
            # for those who have not read them again
            assert [text for role, text in posted(seen) if role == "user"] == ["first", "third"]
