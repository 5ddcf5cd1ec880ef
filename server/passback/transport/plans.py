"""A plan as clients see it."""

from typing_extensions import TypedDict

from passback.core.plans import PlanEntry, PlanPriority, PlanStatus


class PlanEntryView(TypedDict):
    """One thing that the agent means to do."""

    content: str
    priority: PlanPriority
    status: PlanStatus


def plan_entry(entry: PlanEntry, /) -> PlanEntryView:
    return {"content": entry.content, "priority": entry.priority, "status": entry.status}
