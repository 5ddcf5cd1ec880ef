"""What a conversation knows beside its messages: it changes only together with them."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from pydantic import JsonValue

from passback.core.budgets import RunSpent
from passback.core.messages import (
    UNUSED,
    AssistantMessage,
    CallId,
    JsonObject,
    Message,
    Plan,
    PlanEntry,
    RunId,
    SummaryMessage,
    ToolMessage,
    Usage,
    lone_text,
    together,
)
from passback.core.permissions import REASON_CHARACTERS, LastingPermission, with_newest
from passback.core.transcript import (
    Asked,
    data_of,
    innermost,
    last_asked,
    lasting_permissions,
    schema_of,
)
from passback.core.values import value

MOST_REFUSALS: Final = 20
"""Refusals that are kept beside the messages."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A call of a tool that was denied, by a person or by a rule; `reason` is what the model was told."""

    call_id: CallId
    tool: str
    reason: str


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
        allowed: as an older version kept what a person allowed for good in messages before the boundary: each a tool's name,
            a blank, and the digest of its declaration.
        agent: the name of the one that the user asked last before the boundary.
        model: the name of the model that was chosen for that one's answer.
        run: what the newest run has spent, where runs have limits.
        data: the structured data that was posted last before the boundary.
        output_schema: what the answer to the last user message before the boundary has to fit.
        earlier_plan: comes back when the run that replaced it is taken back.
        lasting: what people have answered for good, oldest first; None: it has to be gathered from the messages.
        refusals: the newest calls that were denied, oldest first.
    """

    plan: tuple[PlanEntry, ...] = ()
    usage: Usage = UNUSED
    cost: float = 0.0
    seconds: float = 0.0
    history_start: int = 0
    allowed: tuple[str, ...] = ()
    agent: str = ""
    tokens: int = 0
    run: RunSpent | None = None
    data: JsonValue = None
    output_schema: JsonObject | None = None
    earlier_plan: EarlierPlan | None = None
    model: str = ""
    lasting: tuple[LastingPermission, ...] | None = None
    refusals: tuple[Refusal, ...] = ()

    @property
    def asked(self) -> Asked:
        """Whom the user asked last before the boundary."""
        return Asked(self.agent, self.model)

    def permissions(self, messages: Iterable[Message], /) -> tuple[LastingPermission, ...]:
        """Return what people have answered for good; `messages` are those from the boundary on."""
        if self.lasting is not None:
            # as an older version kept it, a denial has approvals beside it
            return with_newest(self.lasting, ())
        named = (each.partition(" ") for each in self.allowed)
        earlier = (LastingPermission(tool, digest, True) for tool, _, digest in named if digest)
        return with_newest(earlier, lasting_permissions(messages))

    def with_answers(self, append: Sequence[Message], messages: Sequence[Message], /) -> "State":
        """Return the state with what is answered for good, and denied, in messages that follow on `messages`."""
        state = self
        # of answers that are given together a denial counts, in whatever order they stand
        if newer := sorted(lasting_permissions(append), key=lambda one: not one.approved):
            state = replace(state, lasting=with_newest(self.permissions(messages), newer))
        if denied := tuple(_refusals(append, messages)):
            state = replace(state, refusals=(*self.refusals, *denied)[-MOST_REFUSALS:])
        return state

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

    def with_taken_back(self, messages: Sequence[Message], run_id: RunId | None, /) -> "State":
        """As it is without a run and these messages, which are what is taken back of it.

        What was spent for them stays spent: tokens, cost and seconds do not fall.
        """
        gone = {said.call_id for said in map(innermost, messages) if isinstance(said, ToolMessage)}
        earlier = self.earlier_plan
        plan = earlier.plan if earlier is not None and earlier.run_id == run_id else self.plan
        usage = self.usage - usage_of(messages)
        kept = tuple(each for each in self.refusals if each.call_id not in gone)
        return replace(self, usage=usage, plan=plan, earlier_plan=None, refusals=kept)

    def with_boundary(self, boundary: int, messages: Sequence[Message], /) -> "State":
        """As it is when only what stands at `boundary` and behind it is read any more.

        Args:
            boundary: not before the present one, and not within a turn.
            messages: those that are read now.
        """
        passed = messages[: boundary - self.history_start]
        asked = last_asked(passed) or self.asked
        return replace(
            self,
            history_start=boundary,
            allowed=(),
            lasting=self.permissions(messages) or self.lasting,
            agent=asked.agent,
            model=asked.model,
            data=data_of(passed, self.data),
            output_schema=schema_of(passed, self.output_schema),
        )


def usage_of(messages: Iterable[Message], /) -> Usage:
    """The tokens of the model calls that said these messages, those of sub-agents included."""
    total: Usage | None = None
    for message in map(innermost, messages):
        if isinstance(message, AssistantMessage | SummaryMessage) and message.usage is not None:
            total = together(total, message.usage)
    return total or UNUSED


def _refusals(append: Sequence[Message], messages: Sequence[Message]) -> Iterator[Refusal]:
    """The denied calls among messages that follow on `messages`; these, or the former, have the calls."""
    results = [said for said in map(innermost, append) if isinstance(said, ToolMessage)]
    denied = [result for result in results if result.synthetic == "denied"]
    if not denied:  # as nearly always
        return
    names = {
        call.id: call.name
        for said in map(innermost, (*messages, *append))
        if isinstance(said, AssistantMessage)
        for call in said.tool_calls
    }
    for result in denied:
        reason = (lone_text(result.content) or "")[:REASON_CHARACTERS]
        yield Refusal(result.call_id, names.get(result.call_id, ""), reason)


# ---------------------------------------------------------------- what its owner may see
@dataclass(frozen=True, slots=True)
class ConversationState:
    """A conversation beside its messages, as its owner sees it.

    Attributes:
        plan: what the agent means to do, in its order.
        usage: tokens of all messages together.
        cost: of all its model calls, in the currency of the prices; 0 for models without a price.
        seconds: for how long runs have worked on it, models and tools.
        refusals: the newest calls that were denied, oldest first.
        permissions: what people have answered for good, oldest first.
        data: the structured data that counts.
    """

    plan: tuple[PlanEntry, ...] = ()
    usage: Usage = UNUSED
    cost: float = 0.0
    seconds: float = 0.0
    refusals: tuple[Refusal, ...] = ()
    permissions: tuple[LastingPermission, ...] = ()
    data: JsonValue = None


def seen_by_owner(state: State, data: JsonValue = None, /) -> ConversationState:
    """Return what a conversation's owner is shown; `data` is what `data_of` finds in the messages."""
    return ConversationState(
        state.plan,
        state.usage,
        state.cost,
        state.seconds,
        state.refusals,
        state.permissions(()),
        data,
    )
