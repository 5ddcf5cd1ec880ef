"""Sub-agents as tools: a call is a task, and the agent's final message is the result.

A sub-agent works in a transcript of its own. It sees the task and nothing else, or begins as a fork
of its caller, with everything that the caller was shown.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Literal

import anyio
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from passback.core.errors import ConfigurationError, LeaseLost, PassbackError, StoreError
from passback.core.events import Completed, HandedBack, Outcome
from passback.core.messages import (
    TOOL_NAME,
    TOOL_NAME_RULE,
    UNNAMED,
    AssistantMessage,
    Message,
    MessageContext,
    ToolCall,
    ToolResult,
    ToolSpec,
    UserMessage,
    as_text,
)
from passback.core.permissions import ALLOWED, Permission
from passback.core.state import State
from passback.core.toolsets import ToolContext
from passback.core.transcript import AGENT_FAILED
from passback.engine.agents import ServedAgent
from passback.engine.children import CallContext, ChildJournal, Origin
from passback.engine.log import record_messages
from passback.engine.loop import Loop

MAX_DEPTH = 5  # nested calls from agent to agent

# Sub-agents of one run that work at the same time. Each depth has its own limit: with a common one,
# callers could hold all slots while they wait for the agents that they called.
MAX_CONCURRENT_AGENTS = 8

FORK_GUIDE = """\
You are a fork now: a copy of the agent that you were until here. Work on this task alone, with \
what you know, and do not go on with anything else. The agent gets your last words as the result, \
and nothing else of what you do: say in them all that it needs, in plain text, whatever form your \
answers to the user have to have."""
"""Instructions that follow the task of a fork."""


class Task(BaseModel):
    model_config = ConfigDict(extra="forbid")

    task: str = Field(
        min_length=1,
        description="What to do, with all that has to be known for it: nothing else is seen.",
    )


class ForkTask(Task):
    """A task for one who knows all that was said."""

    model_config = ConfigDict(title="Task")

    task: str = Field(
        min_length=1, description="What to do. All that was said before this call is known."
    )


@dataclass(frozen=True, slots=True)
class AgentTool:
    """An agent that another agent may call.

    Args:
        spec: the tool's specification for the model.
        actor: the agent that does the task. None: a fork of the caller.
        concurrent: the call may run beside other sub-agents and read-only calls.
    """

    spec: ToolSpec
    actor: ServedAgent | None
    concurrent: bool = True

    @classmethod
    def of(cls, actor: ServedAgent, description: str, *, concurrent: bool = True) -> "AgentTool":
        """Make a tool of an agent. Raises ConfigurationError if its name is no valid tool name."""
        spec = ToolSpec(callable_name(actor.name), description, Task.model_json_schema())
        return cls(spec, actor, concurrent)

    @classmethod
    def fork(cls, name: str, description: str, *, concurrent: bool = True) -> "AgentTool":
        """Make a tool that forks its caller. Raises ConfigurationError as `of` does."""
        spec = ToolSpec(callable_name(name), description, ForkTask.model_json_schema())
        return cls(spec, None, concurrent)


def callable_name(name: str, /) -> str:
    """Return the name if a tool may have it, else raise ConfigurationError."""
    if not TOOL_NAME.fullmatch(name):
        raise ConfigurationError(
            f"an agent that others call cannot be named {name!r}: {TOOL_NAME_RULE}"
        )
    return name


class AgentTools:
    """A toolset of agents."""

    begins_calls: Literal[True] = True

    def __init__(self, tools: Sequence[AgentTool]) -> None:
        self._tools: dict[str, AgentTool] = {}
        for one in tools:
            if one.spec.name in self._tools:
                raise ConfigurationError(
                    f"two agents that another one calls are named {one.spec.name!r}"
                )
            self._tools[one.spec.name] = one

    async def specs(self) -> Sequence[ToolSpec]:
        return [one.spec for one in self._tools.values()]

    def is_read_only(self, name: str, /) -> bool:
        return False  # the agent's own tools may write

    def is_concurrent(self, name: str, /) -> bool:
        return self._tools[name].concurrent

    def is_repeatable(self, name: str, /) -> bool:
        return True  # a repeated call continues from the sub-agent's journal

    def permission(self, call: ToolCall, /) -> Permission:
        return ALLOWED

    async def call(self, call: ToolCall, context: ToolContext, /) -> ToolResult | None:
        if not isinstance(context, CallContext):
            raise TypeError("an agent can only be called within a run")
        if context.depth >= MAX_DEPTH:
            return ToolResult("Too many agents call each other.", is_error=True)
        try:
            task = Task.model_validate_json(call.arguments).task
        except ValidationError:
            message = "The arguments have to be a task, as a text."
            return ToolResult(message, is_error=True, invalid=True)
        limiter = context.limiters.setdefault(
            context.depth, anyio.CapacityLimiter(MAX_CONCURRENT_AGENTS)
        )
        async with limiter:
            context.begin(())
            actor = self._tools[call.name].actor
            if actor is not None:
                sources = replace(actor.tool_sources, answered=context.answered)
                toolbox = await sources.build_toolbox(context.declared)
                return await self._run_agent(Origin(actor.spec, toolbox), context, task)
            origin = context.origin()
            if origin is None:  # the caller is a fork itself
                return ToolResult("A fork cannot fork again: do this yourself.", is_error=True)
            return await self._run_agent(origin, context, task)

    async def _run_agent(
        self, origin: Origin, context: CallContext, task: str
    ) -> ToolResult | None:
        spec = origin.spec
        opening: tuple[Message, ...] = ()
        # A transcript is there if the call was begun before, by this worker or by a lost one.
        if not context.transcript:
            at = datetime.now(UTC).isoformat(timespec="seconds") if spec.tells_time else ""
            guide = "" if origin.extra_prompt is None else FORK_GUIDE
            added = MessageContext(instructions=guide, at=at) if at or guide else None
            message = UserMessage(UNNAMED, task, context=added)
            opening = record_messages(context.run.key, [message], context.run.run_id)
        own = (*context.transcript, *opening)
        journal = ChildJournal(context, opening)
        loop = Loop(
            spec,
            origin.toolbox,
            (*origin.messages, *own),
            turns=sum(isinstance(each, AssistantMessage) for each in own),
            taken_over=context.taken_over,
            depth=context.depth + 1,
            lasting=context.lasting,
            state=State(data=context.data),
            seen=[*origin.seen, *spec.seen(own)],
            extra_prompt=origin.extra_prompt,
            limiters=context.limiters,
            shared=context.shared,
        )
        loop.bind(journal, context.meter, context.leaving)
        try:
            await loop.run()
        except (LeaseLost, StoreError):
            # The whole run has lost its ground: no result could be stored.
            raise
        except PassbackError as error:
            return ToolResult(f"{AGENT_FAILED}{error.message}", is_error=True)
        return _final_result(journal.outcome, loop.messages[len(origin.messages) :])


def _final_result(outcome: Outcome | None, messages: Sequence[Message]) -> ToolResult | None:
    """Return the agent's final text; None if it waits for the client or for another worker."""
    if outcome is None or isinstance(outcome, HandedBack):
        return None
    said = (each for each in reversed(messages) if isinstance(each, AssistantMessage))
    last = next(said, None)
    text = "" if last is None else as_text(last.content, media=lambda part: part.url)
    if isinstance(outcome, Completed) and outcome.reason == "end_turn":
        return ToolResult(text or "The agent is done, and says nothing.")
    return ToolResult(f"{text}\n[The agent was stopped before its end.]".lstrip(), is_error=True)
