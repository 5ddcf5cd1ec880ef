"""Functions that are called again when they fail."""

import pytest

from passback.core.messages import (
    CallId,
    ConversationId,
    ConversationKey,
    OwnerId,
    RunId,
    RunRef,
    ToolCall,
    ToolResult,
)
from passback.core.toolsets import ToolContext
from passback.toolsets.functions import FunctionTools, ToolError, tool

pytestmark = pytest.mark.anyio

RUN = RunRef(ConversationKey(OwnerId("o"), ConversationId("c")), RunId("r"))
CONTEXT = ToolContext(RUN, CallId("c"))


@pytest.mark.parametrize(
    ("retries", "told", "logged"),
    [
        (0, "The tool failed: OSError.", ("ERROR", "tool failed")),
        (2, "third time", ("WARNING", "attempt failed")),
    ],
)
async def test_a_call_is_tried_again_where_its_tool_says_so(
    caplog: pytest.LogCaptureFixture, retries: int, told: str, logged: tuple[str, str]
) -> None:
    attempts: list[int] = []

    @tool(retries=retries)
    def flaky() -> str:
        attempts.append(1)
        if len(attempts) < 3:
            raise OSError
        return "third time"

    got = await FunctionTools([flaky]).call(ToolCall(CallId("c"), "flaky", "{}"), CONTEXT)
    assert got == ToolResult(told, is_error=not retries)
    assert len(attempts) == retries + 1
    lines = [(line.levelname, line.message) for line in caplog.records]
    assert lines == [logged] * (retries or 1)


async def test_what_a_tool_says_itself_is_not_tried_again() -> None:
    attempts: list[int] = []

    @tool(retries=5)
    def sure() -> str:
        attempts.append(1)
        raise ToolError("it is not there")

    got = await FunctionTools([sure]).call(ToolCall(CallId("c"), "sure", "{}"), CONTEXT)
    assert got == ToolResult("it is not there", is_error=True)
    assert attempts == [1]
