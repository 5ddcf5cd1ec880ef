"""Clients on two workers: they find what is owed, and one of them runs the call."""

import pytest
from tests.support.wire import ZONE, Client, check_refusal, result, user

pytestmark = pytest.mark.anyio


async def test_two_tabs_on_two_workers_run_a_call_once(
    pair: tuple[Client, Client], conversation: str
) -> None:
    one, other = pair
    call = (await one.post(conversation, user("time zone"), tools=[ZONE])).call
    path = f"/conversations/{conversation}/tool-calls/{call.id}/claim"

    claimed = await one.http.post(path, json={"claimant": "tab 1", "seconds": 60})
    assert claimed.status_code == 200
    refused = await other.http.post(path, json={"claimant": "tab 2"})
    check_refusal(refused, 409, "call_claimed")
    assert 1 <= int(refused.headers["retry-after"]) <= 60
    [owed] = (await other.conversation(conversation))["owed"]
    assert owed["claimedUntil"] == claimed.json()["expiresAt"]

    given_back = await other.http.delete(path, params={"claimant": "tab 1"})
    assert given_back.status_code == 204
    assert (await other.http.post(path, json={"claimant": "tab 2"})).status_code == 200

    inbox = await one.http.get("/tool-calls", params={"status": "owed", "limit": 1000})
    found = [c for c in inbox.json()["toolCalls"] if c["conversationId"] == conversation]
    [listed] = (await other.conversation(conversation))["owed"]
    run_id = (await other.conversation(conversation))["runId"]
    assert found == [{"conversationId": conversation, "runId": run_id, **listed}]

    told = await one.post(conversation, result(call.id, "UTC"))
    assert told.text == 'Done. get-time-zone answered: "UTC".'
    inbox = await other.http.get("/tool-calls", params={"status": "owed", "limit": 1000})
    assert conversation not in {c["conversationId"] for c in inbox.json()["toolCalls"]}
    check_refusal(
        await one.http.post(path, json={"claimant": "tab 1"}), 409, "tool_result_conflict"
    )
