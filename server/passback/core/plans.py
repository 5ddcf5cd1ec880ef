"""What an agent means to do, entry by entry."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

PlanPriority: TypeAlias = Literal["high", "medium", "low"]
PlanStatus: TypeAlias = Literal["pending", "in_progress", "completed"]


@dataclass(frozen=True, slots=True)
class PlanEntry:
    """One thing that the agent means to do."""

    content: str
    priority: PlanPriority = "medium"
    status: PlanStatus = "pending"


Plan: TypeAlias = tuple[PlanEntry, ...]
