"""The state of a conversation: derived data that changes only together with its messages."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from pydantic import JsonValue

from passback.core.budgets import RunSpent, Spent
from passback.core.messages import (
    UNUSED,
    Answer,
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
    add_usages,
    single_text,
)
from passback.core.permissions import REASON_CHARACTERS, LastingPermission, merge_lasting
from passback.core.transcript import (
    AddressedAgent,
    innermost_message,
    last_addressed_agent,
    lasting_permissions,
    posted_data,
    schema_of_answer,
)
from passback.core.values import value

MAX_REFUSALS: Final = 20  # kept in the state; older ones are in the messages only


@dataclass(frozen=True, slots=True)
class Refusal:
    """A call that a person or a rule denied. `reason` is the text that the model was given."""

    call_id: CallId
    tool: str
    reason: str


@value
class EarlierPlan:
    """The plan before the run `run_id`, for a rollback of that run."""

    run_id: RunId
    plan: tuple[PlanEntry, ...]


@value
class EarlierShared:
    """The shared state before the run `run_id`, for a rollback of that run."""

    run_id: RunId
    shared: JsonObject | None


@value
class TitleCall:
    """Amounts that the model call for a conversation's title has used, whatever came of it."""

    usage: Usage = UNUSED
    spent: Spent = field(default_factory=Spent)


@value
class State:
    """Derived data of a conversation.

    Attributes:
        plan: the tasks that the agent intends to do, in order.
        usage: of all messages of the transcript together.
        cost: of the model calls, in the currency of the prices.
        seconds: of work by all runs.
        history_start: the position of the first message that is still loaded; earlier ones stay in
            the record.
        agent: the name of the agent that the user asked last before `history_start`.
        tokens: of the model calls, input and output together; unlike `usage`, calls that left no
            message count, too.
        run: the amounts that the newest run has spent, where runs have limits.
        data: the structured data that was posted last before `history_start`.
        output_schema: the schema for the answer to the last user message before `history_start`.
        earlier_plan: the plan to restore if the run that replaced it is taken back.
        model: the name of the model that was chosen for that agent's answer.
        answered: whether somebody answers that agent's questions, as in `MessageContext`.
        lasting: the lasting permissions, oldest first; None if they have to be read from the
            messages.
        refusals: the newest denied calls, oldest first.
        shared: the state that server tools share with clients, across branches; None: empty.
        earlier_shared: the shared state to restore, as `earlier_plan`.
        title_call: of the title, if a model was asked for one; not part of the amounts above. It is
            stored beside the rest, which a run that goes on may overwrite: only
            `Store.write_title` changes it.
    """

    plan: tuple[PlanEntry, ...] = ()
    usage: Usage = UNUSED
    cost: float = 0.0
    seconds: float = 0.0
    history_start: int = 0
    agent: str = ""
    tokens: int = 0
    run: RunSpent | None = None
    data: JsonValue = None
    output_schema: JsonObject | None = None
    earlier_plan: EarlierPlan | None = None
    model: str = ""
    answered: bool | None = None
    lasting: tuple[LastingPermission, ...] | None = None
    refusals: tuple[Refusal, ...] = ()
    title_call: TitleCall | None = None
    shared: JsonObject | None = None
    earlier_shared: EarlierShared | None = None

    @property
    def addressed_agent(self) -> AddressedAgent:
        """The agent and model that the user asked last before `history_start`."""
        return AddressedAgent(self.agent, self.model, self.answered)

    def permissions(self, messages: Iterable[Message], /) -> tuple[LastingPermission, ...]:
        """Return the lasting permissions; `messages` are those from `history_start` on."""
        if self.lasting is not None:
            return self.lasting
        return merge_lasting((), lasting_permissions(messages))

    def with_answers(self, append: Sequence[Message], messages: Sequence[Message], /) -> "State":
        """Return the state after `append`, which follows `messages`.

        Lasting permissions and denials in it are added.
        """
        answers = [said for said in map(innermost_message, append) if isinstance(said, Answer)]
        if not answers:  # a user's message, or what a model says
            return self
        state = self
        # if answers that are given together disagree, the denial wins: it is added last
        if newer := sorted(lasting_permissions(answers), key=lambda one: not one.approved):
            state = replace(state, lasting=merge_lasting(self.permissions(messages), newer))
        results = [said for said in answers if isinstance(said, ToolMessage)]
        denied = [result for result in results if result.synthetic == "denied"]
        if not denied:  # nearly always: then the messages need not be searched
            return state
        names = {
            call.id: call.name
            for said in map(innermost_message, (*messages, *append))
            if isinstance(said, AssistantMessage)
            for call in said.tool_calls
        }
        refusals = [
            Refusal(
                result.call_id,
                names.get(result.call_id, ""),
                (single_text(result.content) or "")[:REASON_CHARACTERS],
            )
            for result in denied
        ]
        return replace(state, refusals=(*self.refusals, *refusals)[-MAX_REFUSALS:])

    def with_plan(self, plan: Plan, run_id: RunId, /) -> "State":
        """Return the state with the plan of a run, and keep the plan before it."""
        earlier = self.earlier_plan
        # only the first plan of a run replaces an earlier run's
        if earlier is None or earlier.run_id != run_id:
            earlier = EarlierPlan(run_id, self.plan)
        return replace(self, plan=plan, earlier_plan=earlier)

    def with_shared(self, shared: JsonObject, run_id: RunId, /) -> "State":
        """Return the state with the shared state of a run, and keep the one before it."""
        if (self.shared or {}) == shared:
            return self
        earlier = self.earlier_shared
        if earlier is None or earlier.run_id != run_id:
            earlier = EarlierShared(run_id, self.shared)
        return replace(self, shared=shared or None, earlier_shared=earlier)

    def after_own_end(self) -> "State":
        """Return the state after a run that ended by itself and cannot be taken back."""
        if self.earlier_plan is None and self.earlier_shared is None:
            return self
        return replace(self, earlier_plan=None, earlier_shared=None)

    def usage_with(self, messages: Iterable[Message], /) -> Usage:
        """Return the usage of the transcript with these messages appended."""
        usage = total_usage(messages)
        return self.usage if usage.is_nothing else self.usage + usage

    def after_rollback(self, messages: Sequence[Message], run_id: RunId | None, /) -> "State":
        """Return the state after a rollback of a run, which removes `messages`.

        Amounts spent for them stay spent: tokens, cost and seconds do not fall.
        """
        gone = {
            said.call_id
            for said in map(innermost_message, messages)
            if isinstance(said, ToolMessage)
        }
        earlier = self.earlier_plan
        plan = earlier.plan if earlier is not None and earlier.run_id == run_id else self.plan
        before = self.earlier_shared
        shared = before.shared if before is not None and before.run_id == run_id else self.shared
        usage = self.usage - total_usage(messages)
        kept = tuple(each for each in self.refusals if each.call_id not in gone)
        return replace(
            self,
            usage=usage,
            plan=plan,
            earlier_plan=None,
            shared=shared,
            earlier_shared=None,
            refusals=kept,
        )

    def on_branch(self, gained: Sequence[Message], /, *, anew: bool) -> "State":
        """Return the state after a change to a branch that goes on with `gained`.

        `anew`: the history is read from its beginning, so that its messages tell the rest.
        """
        state = replace(self, usage=self.usage_with(gained))
        if not anew:
            return state
        return replace(
            state, history_start=0, data=None, output_schema=None, model="", answered=None
        )

    def with_history_start(self, boundary: int, messages: Sequence[Message], /) -> "State":
        """Return the state with history that starts at `boundary`.

        Args:
            boundary: the position; not before `history_start`, and not within a turn.
            messages: the messages from `history_start` on.
        """
        dropped = messages[: boundary - self.history_start]
        asked = last_addressed_agent(dropped) or self.addressed_agent
        return replace(
            self,
            history_start=boundary,
            lasting=self.permissions(messages) or self.lasting,
            agent=asked.agent,
            model=asked.model,
            answered=asked.answered,
            data=posted_data(dropped, self.data),
            output_schema=schema_of_answer(dropped, self.output_schema),
        )


def total_usage(messages: Iterable[Message], /) -> Usage:
    """Return the usage of the model calls that gave these messages, sub-agents included."""
    total: Usage | None = None
    for message in map(innermost_message, messages):
        if isinstance(message, AssistantMessage | SummaryMessage) and message.usage is not None:
            total = add_usages(total, message.usage)
    return total or UNUSED


@dataclass(frozen=True, slots=True)
class ConversationState:
    """The state of a conversation, as its owner sees it.

    Attributes:
        plan: the tasks that the agent intends to do, in order.
        usage: tokens of all messages together, and of the call that wrote the title.
        cost: of all model calls, in the currency of the prices; 0 for models without a price.
        seconds: of work by all runs, models and tools, and of the call that wrote the title.
        refusals: the newest denied calls, oldest first.
        permissions: the lasting permissions, oldest first.
        data: the current structured data.
    """

    plan: tuple[PlanEntry, ...] = ()
    usage: Usage = UNUSED
    cost: float = 0.0
    seconds: float = 0.0
    refusals: tuple[Refusal, ...] = ()
    permissions: tuple[LastingPermission, ...] = ()
    data: JsonValue = None


def owner_view(state: State, data: JsonValue = None, /) -> ConversationState:
    """Return the state that a conversation's owner may see; `data` is that of `posted_data`."""
    title = state.title_call or TitleCall()
    return ConversationState(
        plan=state.plan,
        usage=state.usage + title.usage,
        cost=state.cost + title.spent.cost,
        seconds=state.seconds + title.spent.seconds,
        refusals=state.refusals,
        permissions=state.permissions(()),
        data=data,
    )
