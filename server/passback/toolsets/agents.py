"""A sub-agent is a tool: it is given a task, works on it in a transcript of its own, and its last words are the result."""

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from passback.core.errors import ConfigurationError, LeaseLost, PassbackError, StoreError
from passback.core.events import Completed, HandedBack, Outcome
from passback.core.ids import new_message_id
from passback.core.messages import (
    TOOL_NAME,
    TOOL_NAME_RULE,
    AssistantMessage,
    Message,
    ToolCall,
    ToolResult,
    ToolSpec,
    UserMessage,
    as_text,
)
from passback.core.permissions import ALLOWED, Permission
from passback.core.state import State
from passback.core.toolsets import ToolContext
from passback.engine.agents import Actor
from passback.engine.children import CallContext, ChildJournal
from passback.engine.loop import Loop, Work

DEEPEST = 5
"""How many agents may call each other."""


class Task(BaseModel):
    model_config = ConfigDict(extra="forbid")

    task: str = Field(
        min_length=1,
        description="What to do, with all that has to be known for it: nothing else is seen.",
    )


@dataclass(frozen=True, slots=True)
class AgentTool:
    """An agent that another one may give tasks to.

    Args:
        together: whether it may work beside other read-only calls.
    """

    actor: Actor
    spec: ToolSpec
    together: bool = False

    @classmethod
    def of(cls, actor: Actor, description: str, *, together: bool = False) -> "AgentTool":
        """Raises ConfigurationError when its name cannot be a tool's."""
        if not TOOL_NAME.fullmatch(actor.name):
            raise ConfigurationError(
                f"an agent that others call cannot be named {actor.name!r}: {TOOL_NAME_RULE}"
            )
        return cls(actor, ToolSpec(actor.name, description, Task.model_json_schema()), together)


class AgentTools:
    """A toolset of agents."""

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
        return self._tools[name].together

    def is_repeatable(self, name: str, /) -> bool:
        return True  # it goes on from what it has written down

    def permission(self, call: ToolCall, /) -> Permission:
        return ALLOWED

    async def call(self, call: ToolCall, context: ToolContext, /) -> ToolResult | None:
        if not isinstance(context, CallContext):
            raise TypeError("an agent can only be called within a run")
        if context.depth >= DEEPEST:
            return ToolResult("Too many agents call each other.", is_error=True)
        try:
            task = Task.model_validate_json(call.arguments).task
        except ValidationError:
            return ToolResult("The arguments have to be a task, as a text.", is_error=True)
        opening = () if context.transcript else (UserMessage(new_message_id(), task),)
        return await self._work(self._tools[call.name].actor, context, opening)

    async def _work(
        self, actor: Actor, context: CallContext, opening: Sequence[Message]
    ) -> ToolResult | None:
        journal = ChildJournal(context, opening)
        toolbox = await actor.equipment.toolbox(context.declared)
        work = Work(
            actor.brain,
            toolbox,
            (*context.transcript, *opening),
            sum(isinstance(each, AssistantMessage) for each in context.transcript),
            taken_over=context.taken_over,
            depth=context.depth + 1,
            allowed=context.allowed,
            state=State(data=context.data),
        )
        loop = Loop(work, journal, context.leaving, context.meter)
        try:
            await loop.run()
        except (LeaseLost, StoreError):
            raise
        except PassbackError as error:
            return ToolResult(f"The agent failed: {error.message}", is_error=True)
        return _result(journal.outcome, loop.messages)


def _result(outcome: Outcome | None, messages: Sequence[Message]) -> ToolResult | None:
    """The agent's last words; None: it waits for the client, or is left to another worker."""
    if outcome is None or isinstance(outcome, HandedBack):
        return None
    said = (each for each in reversed(messages) if isinstance(each, AssistantMessage))
    last = next(said, None)
    text = "" if last is None else as_text(last.content, media=lambda part: part.url)
    if isinstance(outcome, Completed) and outcome.reason == "end_turn":
        return ToolResult(text or "The agent is done, and says nothing.")
    return ToolResult(f"{text}\n[The agent was stopped before its end.]".lstrip(), is_error=True)
