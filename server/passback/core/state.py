"""What a conversation knows beside its messages: it changes only together with them."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from pydantic import JsonValue

from passback.core.limits import RunSpent
from passback.core.messages import (
    UNUSED,
    AssistantMessage,
    ChildMessage,
    JsonObject,
    Message,
    RunId,
    SummaryMessage,
    Usage,
    together,
)
from passback.core.plans import Plan, PlanEntry
from passback.core.transcript import always_allowed, data_of, last_asked, schema_of
from passback.core.values import value


@value
class EarlierPlan:
    """What an agent meant to do before a run that goes on, or was stopped, had another plan."""

    run_id: RunId
    plan: tuple[PlanEntry, ...]


@value
class State:
    """Derived data of a conversation.

    Attributes:
        plan: what the agent means to do, in its order.
        usage: of all messages of the transcript together.
        cost: of the model calls, in the currency in which the server was told the prices.
        seconds: for how long runs have worked on it.
        tokens: of the model calls, input and output together; other than `usage` it counts what left no message, too.
        boundary: the position of the first message that is still read; those before it stay in the record.
        allowed: tools for which a person allowed all calls to come, in a message before the boundary: each as an `allowance`, sorted.
        agent: the name of the one that the user asked last before the boundary.
        run: what the newest run has spent, where runs have limits.
        data: the structured data that was posted last before the boundary.
        output_schema: what the answer to the last user message before the boundary has to fit.
        earlier_plan: comes back when the run that replaced it is taken back.
    """

    plan: tuple[PlanEntry, ...] = ()
    usage: Usage = UNUSED
    cost: float = 0.0
    seconds: float = 0.0
    boundary: int = 0
    allowed: tuple[str, ...] = ()
    agent: str = ""
    tokens: int = 0
    run: RunSpent | None = None
    data: JsonValue = None
    output_schema: JsonObject | None = None
    earlier_plan: EarlierPlan | None = None

    def with_plan(self, plan: Plan, run_id: RunId, /) -> "State":
        """As it is when a run has this plan."""
        earlier = self.earlier_plan
        if earlier is None or earlier.run_id != run_id:
            earlier = EarlierPlan(run_id, self.plan)
        return replace(self, plan=plan, earlier_plan=earlier)

    def settled(self) -> "State":
        """As it is behind a run that came to its own end: nothing of it will be taken back."""
        return self if self.earlier_plan is None else replace(self, earlier_plan=None)

    def usage_with(self, messages: Iterable[Message], /) -> Usage:
        """That of the transcript when these messages follow on it."""
        usage = usage_of(messages)
        return self.usage if usage.is_nothing else self.usage + usage

    def with_taken_back(self, messages: Iterable[Message], run_id: RunId | None, /) -> "State":
        """As it is without a run and these messages, which are what is taken back of it.

        What was spent for them stays spent: tokens, cost and seconds do not fall.
        """
        earlier = self.earlier_plan
        plan = earlier.plan if earlier is not None and earlier.run_id == run_id else self.plan
        usage = self.usage - usage_of(messages)
        return replace(self, usage=usage, plan=plan, earlier_plan=None)

    def with_boundary(self, boundary: int, messages: Sequence[Message], /) -> "State":
        """As it is when only what stands at `boundary` and behind it is read any more.

        Args:
            boundary: not before the present one, and not within a turn.
            messages: those that are read now.
        """
        passed = messages[: boundary - self.boundary]
        allowed, asked = always_allowed(passed).union(self.allowed), last_asked(passed)
        return replace(
            self,
            boundary=boundary,
            allowed=tuple(sorted(allowed)),
            agent=self.agent if asked is None else asked,
            data=data_of(passed, self.data),
            output_schema=schema_of(passed, self.output_schema),
        )


def usage_of(messages: Iterable[Message], /) -> Usage:
    """The tokens of the model calls that said these messages, those of sub-agents included."""
    total: Usage | None = None
    for message in messages:
        while isinstance(message, ChildMessage):
            message = message.message
        if isinstance(message, AssistantMessage | SummaryMessage) and message.usage is not None:
            total = together(total, message.usage)
    return total or UNUSED
