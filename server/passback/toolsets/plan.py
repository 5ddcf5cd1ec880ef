"""`update_plan`: the tool by which an agent publishes its plan and progress."""

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from passback.core.messages import (
    PlanEntry,
    PlanPriority,
    PlanStatus,
    ToolCall,
    ToolResult,
    ToolSpec,
)
from passback.core.permissions import ALLOWED, Permission
from passback.core.text import describe_validation_error
from passback.core.toolsets import ToolContext

UPDATE_PLAN = "update_plan"


# No docstrings on these models: pydantic would put them, as descriptions, into the tool's schema.
class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid")

    content: Annotated[str, Field(min_length=1, max_length=1000)]
    priority: PlanPriority = "medium"
    status: PlanStatus = "pending"


class _Entries(BaseModel):
    model_config = ConfigDict(extra="forbid")

    entries: Annotated[
        list[_Entry],
        Field(max_length=100, description="All of the plan: it replaces the last one."),
    ]


class PlanTools:
    """A toolset with the single tool `update_plan`."""

    begins_calls: Literal[True] = True

    async def specs(self) -> Sequence[ToolSpec]:
        return [
            ToolSpec(
                UPDATE_PLAN,
                "Say what you mean to do, and how far you are: the user sees it. Use it for work "
                "of several steps; give the whole plan each time, with at most one entry in "
                "progress.",
                _Entries.model_json_schema(),
                "Update the plan",
                "think",
            )
        ]

    def is_read_only(self, name: str, /) -> bool:
        return False

    def is_repeatable(self, name: str, /) -> bool:
        return True

    def permission(self, call: ToolCall, /) -> Permission:
        return ALLOWED

    async def call(self, call: ToolCall, context: ToolContext, /) -> ToolResult:
        try:
            given = _Entries.model_validate_json(call.arguments).entries
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            place = ".".join(str(step) for step in first["loc"]) or "arguments"
            message = f"The plan is not valid: {place}: {describe_validation_error(first)}"
            return ToolResult(message, is_error=True, invalid=True)
        context.begin(())
        plan = tuple(PlanEntry(each.content, each.priority, each.status) for each in given)
        return ToolResult("The user sees the plan.", plan=plan)
