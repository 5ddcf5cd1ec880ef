"""Agents that give tasks to others, for the tests of the engine."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager

from tests.support.runs import QUICK, worker

from passback.core.events import Nested, RunEvent, ToolCallStarted, innermost_event
from passback.core.messages import ApprovalMessage, CallId, Message, MessageId, RunRef, ToolMessage
from passback.core.ports import ModelClient
from passback.engine.agents import AgentSpec, ServedAgent
from passback.engine.ledger import Ledger
from passback.engine.service import RunService
from passback.engine.supervisor import Timing
from passback.engine.toolbox import ToolSources
from passback.models.scripted import calls
from passback.toolsets.agents import AgentTool, AgentTools
from passback.toolsets.functions import FunctionTool, FunctionTools, tool

TASK = calls(("helper", {"task": "find it"}))


@tool(permission="ask")
def erase() -> str:
    """Erase it."""
    return "erased"


def helper(
    model: ModelClient,
    *tools: FunctionTool,
    name: str = "helper",
    agents: Sequence[AgentTool] = (),
    concurrent: bool = True,
) -> AgentTool:
    tool_sources = ToolSources((FunctionTools(tools), AgentTools(agents)))
    actor = ServedAgent(AgentSpec(model, "help", max_turns=3), tool_sources, name)
    return AgentTool.of(actor, "Helps.", concurrent=concurrent)


def lead_worker(
    store: Ledger,
    model: ModelClient,
    *helpers: AgentTool,
    timing: Timing = QUICK,
    tools: Sequence[FunctionTool] = (),
) -> AbstractAsyncContextManager[RunService]:
    """A worker whose agent gives tasks to these."""
    toolsets = [AgentTools(helpers)]
    return worker(
        store, model, *tools, timing=timing, toolsets=toolsets, prompt="lead", max_turns=5
    )


def said_by_children(seen: Sequence[RunEvent]) -> list[RunEvent]:
    return [event.event for event in seen if isinstance(event, Nested)]


def approved(call_id: CallId) -> ApprovalMessage:
    return ApprovalMessage(MessageId("a"), call_id, approved=True)


async def deep_call(runs: RunService, run: RunRef) -> CallId:
    """The first call of an agent two deep, once readers have seen it begin."""
    async with runs.follow(run) as batches:
        async for batch in batches:
            for one in batch:
                event = innermost_event(one.event)
                if isinstance(event, ToolCallStarted) and event.client:
                    return event.call_id
    raise AssertionError("no such call")


def answers(messages: Sequence[Message]) -> list[object]:
    """The results that the calling agent got."""
    return [each.content for each in messages if isinstance(each, ToolMessage)]
