"""Whatever the tools write, the published client of AG-UI has the state that is kept."""

from collections.abc import AsyncGenerator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.ag_ui_client import OLDER, AgUiClient, Bridge, ag_ui_client, user
from tests.support.asgi_client import ask_json
from tests.support.lanes import examples
from tests.support.ledgers import open_ledger
from tests.support.runs import worker
from tests.unit.engine.sub_agents import helper
from tests.unit.wire.ag_ui_site import HEADERS, PATH, site

from passback.core.messages import ConversationId, ConversationKey, OwnerId
from passback.core.toolsets import ToolContext
from passback.engine.service import RunService
from passback.models.scripted import ScriptedModel, Step, calls, says
from passback.toolsets.agents import AgentTools
from passback.toolsets.functions import ToolError, tool
from passback.toolsets.plan import PlanTools

pytestmark = [pytest.mark.anyio, pytest.mark.node]

KEY = ConversationKey(OwnerId("anonymous"), ConversationId("thread"))
KEYS = st.sampled_from(["a", "b", "c/d", "~"])
VALUES: st.SearchStrategy[Any] = st.sampled_from([0, None, "x", [1, [2]], {"e": {"f": []}}])


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module", params=["@ag-ui/client", OLDER])
async def client(request: pytest.FixtureRequest) -> AsyncGenerator[AgUiClient]:
    async with ag_ui_client(request.param) as client:
        yield client


@tool
def write(key: str, value: Any, context: ToolContext) -> str:
    """Write."""
    context.state.set(key, value)
    return "written"


@tool
def remove(key: str, context: ToolContext) -> str:
    """Remove."""
    context.state.remove(key)
    return "removed"


@tool
def breaks(key: str, context: ToolContext) -> str:
    """Write and break."""
    context.state.set(key, "never")
    raise ToolError("broken")


WRITES: st.SearchStrategy[tuple[str, dict[str, Any]]] = st.one_of(
    st.builds(lambda key, value: ("write", {"key": key, "value": value}), KEYS, VALUES),
    st.builds(lambda name, key: (name, {"key": key}), st.sampled_from(["remove", "breaks"]), KEYS),
    st.just(("helper", {"task": "write"})),
    st.just(("update_plan", {"entries": [{"content": "look"}]})),
)
TURNS = st.lists(WRITES, min_size=1, max_size=3).map(lambda made: calls(*made))


def bridge(runs: RunService) -> Bridge:
    app = site(runs)

    async def answer(body: dict[str, Any]) -> tuple[int, str, str]:
        got = await ask_json(app, "POST", PATH, body, headers=HEADERS)
        return got.status, got.headers.get("content-type", ""), got.body.decode()

    return answer


@examples(30)
@given(
    st.lists(TURNS, min_size=3, max_size=3), st.sampled_from([{}, {"a": "mine", "own": 1}, None])
)
async def test_the_state_of_the_client_is_what_was_written(
    client: AgUiClient, turns: list[list[Step]], own: dict[str, Any] | None
) -> None:
    script = [step for turn in turns for step in (turn, says("done"))]
    helped = [calls(("write", {"key": "b", "value": [0]})), says("written")] * 9
    asked = helper(ScriptedModel(helped), write)
    async with (
        open_ledger("memory:") as store,
        worker(
            store,
            ScriptedModel(script),
            *(write, remove, breaks),
            toolsets=[AgentTools([asked]), PlanTools()],
        ) as runs,
    ):
        await client.open(KEY.id, bridge=bridge(runs))
        for number in range(len(turns)):
            state = {"state": own} if number == 0 else {}
            seen = await client.run(user(f"go {number}"), **state)
            seen.check_accepted()
            kept = (await runs.status(KEY)).state
            shown = dict(seen.report["state"] or {})
            assert shown.items() >= (kept.shared or {}).items()
            mine = shown.keys() - (kept.shared or {}).keys() - {"plan"}
            assert mine <= (own or {}).keys()
            assert bool(kept.plan) == ("plan" in shown)
        await client.open(KEY.id, bridge=bridge(runs))
        kept = (await runs.status(KEY)).state
        again = await client.run()
        again.check_accepted()
        shown = dict(again.report["state"] or {})
        shown.pop("plan", None)
        assert shown == (kept.shared or {})
