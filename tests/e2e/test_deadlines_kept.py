"""Deadlines of owed calls, which do not depend on the worker that handed them back."""

from collections.abc import Sequence

import anyio
import pytest
from tests.e2e.workers import SECONDS, transcript, whole, worker
from tests.support.model_server import ModelServer, calls, says
from tests.support.wire import ZONE, check_refusal, result, user

pytestmark = [pytest.mark.anyio, pytest.mark.promise("P10")]

TIMEOUT = "Nobody answered this call in time."
OWES = calls(("a", "get-time-zone", "{}"), ("b", "get-time-zone", "{}"))


@pytest.mark.promise("P1", "P9")
async def test_a_deadline_is_kept_by_another_worker_after_the_first_was_killed(
    model: ModelServer, flags: Sequence[str], conversation: str
) -> None:
    model.play(OWES, says("Then ", "without."))
    in_time = (*flags, "--tool-timeout", "2")
    async with worker(*in_time) as survivor, worker(*in_time) as victim:
        asked = await victim.client.post(conversation, user("when?"), tools=[ZONE])
        one, other = asked.calls
        parked = await victim.client.post(conversation, result(one.id, "UTC"))
        assert parked.headers["x-owed-tool-calls"] == other.id
        victim.server.kill()
        await victim.server.exit_code()

        client = survivor.client
        with anyio.fail_after(SECONDS):
            while (
                len(model.requests) < 2
            ):  # nobody asks for the conversation: it is found by the scan
                await client.http.get("/healthz")
        assert (await whole(client, conversation)).text == "Then without."
        assert await transcript(client, conversation) == [
            ("user", "when?", False),
            ("assistant", "", False),
            ("tool", "UTC", False),
            ("tool", TIMEOUT, False),
            ("assistant", "Then without.", False),
        ]
        shown = [each["content"] for each in model.requests[1].shown]
        assert shown[-2:] == ["UTC", f"Error: {TIMEOUT}"]
        late = await client.http.post(
            "/send-message",
            json={"conversationId": conversation, "messages": [result(other.id, "CET")]},
        )
        check_refusal(late, 409, "tool_result_conflict")
        assert "time" in late.json()["message"]
    assert len(model.requests) == 2
