"""What an agent means to do, entry by entry."""

from typing import Literal, TypeAlias

from passback.core.values import value

PlanPriority: TypeAlias = Literal["high", "medium", "low"]
PlanStatus: TypeAlias = Literal["pending", "in_progress", "completed"]


@value
class PlanEntry:
    """One thing that the agent means to do."""

    content: str
    priority: PlanPriority = "medium"
    status: PlanStatus = "pending"


Plan: TypeAlias = tuple[PlanEntry, ...]
