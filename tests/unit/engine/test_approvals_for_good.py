"""What a person allows for good is a tool as it is declared: one that changes is asked about again."""

from collections.abc import Sequence

import pytest
from tests.support.runs import approval, outcome, post, reply, says, worker
from tests.unit.engine.counted_tools import asked, called

from passback.core.events import HandedBack
from passback.core.messages import JsonObject, ToolCall, ToolResult, ToolSpec
from passback.core.permissions import Permission
from passback.core.ports import Store
from passback.core.toolsets import ToolContext, Toolset
from passback.models.scripted import ScriptedModel
from passback.models.scripted import says as words

pytestmark = pytest.mark.anyio


def _pay(schema: JsonObject, description: str) -> Toolset:
    """A tool as a foreign server declares it."""

    class Foreign:
        async def specs(self) -> Sequence[ToolSpec]:
            return [ToolSpec("pay", description, schema)]

        def is_read_only(self, _name: str, /) -> bool:
            return False

        def is_repeatable(self, _name: str, /) -> bool:
            return False

        def permission(self, _call: ToolCall, /) -> Permission:
            return Permission("ask")

        async def call(self, _call: ToolCall, _context: ToolContext, /) -> ToolResult:
            return ToolResult("paid")

    return Foreign()


@pytest.mark.parametrize(
    ("changed", "description", "is_asked"),
    [
        ({"properties": {"to": {"type": "string"}}, "type": "object"}, "Pay.", False),
        ({"type": "object", "properties": {"to": {"type": "string"}}}, "Pay, and tell.", True),
        ({"type": "object", "properties": {"to": {}, "note": {}}}, "Pay.", True),
    ],
    ids=["the same in another order", "another description", "another schema"],
)
@pytest.mark.promise("P13")
async def test_always_is_for_the_tool_as_it_was_declared(
    store: Store, changed: JsonObject, description: str, is_asked: bool
) -> None:
    first = _pay({"type": "object", "properties": {"to": {"type": "string"}}}, "Pay.")
    model = ScriptedModel([called("pay"), words("one"), called("pay"), words("two")])
    async with worker(store, model, toolsets=[first]) as runs:
        [call] = await asked(runs)
        assert await reply(runs, approval(call, always=True)) == "one"
    async with worker(store, model, toolsets=[_pay(changed, description)]) as runs:
        ending = await outcome(runs, await post(runs, says("again", "u2")))
        assert isinstance(ending, HandedBack) is is_asked
