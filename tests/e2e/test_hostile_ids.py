"""Run ids and event ids with bytes that no header may hold: each is one JSON refusal, and no line in the log."""

import pytest
from tests.support.wire import PATH, Client, check_refusal, user

pytestmark = [pytest.mark.anyio, pytest.mark.promise("P12", "P13")]

RUNS = {
    "CR LF": "x%0d%0aX-Injected:1",
    "CR": "x%0d",
    "LF": "x%0a",
    "NUL": "x%00",
    "DEL": "x%7f",
    "U+2028": "x%e2%80%a8",
    "invalid UTF-8": "x%ff",
}
ADDRESSES = (
    "/conversations/C/stream?runId=R",
    "/conversations/C/stream?lastEventId=R.1-1",
    "/conversations/C/stream?wait=1&runId=R",
    "/conversations/C/stream?wait=1&lastEventId=R.1-1",
    "/process/C/stream?stream=false&runId=R",
    "/process/C/stream?stream=false&lastEventId=R.1-1",
    "/process/C/stream?lastEventId=R.1-1",
)


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
async def test_an_id_that_no_header_may_hold_is_refused(
    waiting: tuple[Client, str], run: str
) -> None:
    client, conversation = waiting
    for address in ADDRESSES:
        path = address.replace("C", conversation).replace("R", run)
        answer = await client.http.get(path)
        check_refusal(answer, 404, "run_not_found")
        assert "x-injected" not in answer.headers
    cancelled = await client.http.post(f"/conversations/{conversation}/cancel?runId={run}")
    check_refusal(cancelled, 404, "run_not_found")


@pytest.mark.parametrize("run", [b"x\xff", b"x\xe2\x80\xa8"])
async def test_an_id_in_a_header_is_refused_on_every_route(
    waiting: tuple[Client, str], run: bytes
) -> None:
    client, conversation = waiting
    headers = {b"last-event-id": run + b".1-1"}
    post = {"conversationId": conversation, "messages": [user("hi")]}
    answers = [
        await client.http.get(f"/conversations/{conversation}/stream?wait=1", headers=headers),
        await client.http.get(f"/process/{conversation}/stream?stream=false", headers=headers),
        await client.http.post(PATH, json=post, headers=headers),
        await client.http.post("/process", json={"input": []}, headers=headers),
    ]
    for answer in answers:
        check_refusal(answer, 404, "run_not_found")
