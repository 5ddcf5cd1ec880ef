"""A published client from before AG-UI 1.0, as UI kits have it, takes any stream, too."""

from collections.abc import AsyncGenerator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.ag_ui_client import OLDER, AgUiClient, Json, Seen, ag_ui_client, result, user
from tests.support.asgi_client import ask_json
from tests.support.lanes import examples
from tests.support.ledgers import open_ledger
from tests.support.runs import worker
from tests.unit.engine.sub_agents import erase, helper
from tests.unit.wire.ag_ui_events import EVENTS, OUTCOMES, RUN
from tests.unit.wire.ag_ui_site import HEADERS, PATH, site

from passback.core.events import Failed, Logged, Outcome, Position, RunEvent, RunFinished
from passback.models.scripted import ScriptedModel, calls, says
from passback.streams.frames import SseFramer
from passback.toolsets.agents import AgentTools
from passback.wire.ag_ui.encoder import AgUiEncoder

pytestmark = [pytest.mark.anyio, pytest.mark.node]

PAINT: Json = {"name": "paint", "description": "Paints.", "parameters": {"type": "object"}}


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def client() -> AsyncGenerator[AgUiClient]:
    async with ag_ui_client(OLDER) as client:
        yield client


@examples(100)
@given(st.lists(EVENTS, max_size=20), OUTCOMES)
async def test_every_log_is_a_stream_that_is_accepted(
    client: AgUiClient, events: list[RunEvent], outcome: Outcome
) -> None:
    encoder = AgUiEncoder("thread", "run", state={}, older=True)
    framer = SseFramer(encoder, RUN, remembers=True)
    log = [*events, RunFinished(outcome)]
    numbered = [Logged(Position(1, number), event) for number, event in enumerate(log, 1)]
    text = framer.frame_batch(numbered) + framer.end_frames()

    async def answer(_body: dict[str, Any]) -> tuple[int, str, str]:
        return 200, "text/event-stream", text

    await client.open("thread", bridge=answer)
    seen = await client.run(user("go"))
    seen.check_accepted()
    first = next(each for each in log if isinstance(each, RunFinished))
    is_failed = isinstance(first.outcome, Failed)
    assert seen.types[-1] == ("RUN_ERROR" if is_failed else "RUN_FINISHED")


def pending(seen: Seen) -> list[str]:
    """Return the calls that the client has without a result, as a UI kit finds them."""
    made = [call["id"] for each in seen.messages for call in each.get("toolCalls", ())]
    answered = {each["toolCallId"] for each in seen.messages if each["role"] == "tool"}
    return [each for each in made if each not in answered]


async def test_tools_interrupts_and_sub_agents(client: AgUiClient) -> None:
    script = [
        calls(("paint", {})),
        calls(("erase", {}), ("helper", {"task": "find it"})),
        says("done"),
    ]
    asked = helper(ScriptedModel([says("secret"), says("secret")]))
    async with (
        open_ledger("memory:") as store,
        worker(store, ScriptedModel(script), erase, toolsets=[AgentTools([asked])]) as runs,
    ):
        app = site(runs)

        async def answer(body: dict[str, Any]) -> tuple[int, str, str]:
            assert "protocolVersion" not in body
            got = await ask_json(app, "POST", PATH, body, headers=HEADERS)
            return got.status, got.headers.get("content-type", ""), got.body.decode()

        await client.open("thread", bridge=answer)
        tools: Json = {"tools": [PAINT]}
        seen = await client.run(user("go"), parameters=tools)
        seen.check_accepted()
        [call] = pending(seen)
        [finished] = seen.of("RUN_FINISHED")
        assert finished["metadata"] == {"pendingToolCallIds": [call]}
        assert "outcome" not in finished

        seen = await client.run(result(call), parameters=tools)
        seen.check_accepted()
        [finished] = seen.of("RUN_FINISHED")
        [interrupt] = finished["outcome"]["interrupts"]
        assert interrupt["metadata"]["toolCallName"] == "erase"
        assert "secret" not in seen.text

        resume = [
            {"interruptId": interrupt["id"], "status": "resolved", "payload": {"approved": True}}
        ]
        seen = await client.run(parameters={**tools, "resume": resume})
        seen.check_accepted()
        assert (seen.text, pending(seen)) == ("done", [])
        assert "outcome" not in seen.of("RUN_FINISHED")[0]

        await client.open("thread", bridge=answer)
        again = await client.run(parameters=tools)
        again.check_accepted()
        texts = [each.get("content") for each in again.messages if each["role"] == "assistant"]
        assert "secret" not in texts
        assert texts[-1] == "done"
