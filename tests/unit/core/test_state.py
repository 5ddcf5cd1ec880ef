"""What a conversation knows beside its messages, and what it takes along when its boundary moves."""

from dataclasses import replace

from passback.core.messages import (
    ApprovalMessage,
    AssistantMessage,
    CallId,
    ChildMessage,
    Message,
    MessageId,
    RunId,
    Usage,
    UserMessage,
)
from passback.core.plans import PlanEntry
from passback.core.state import State, usage_of

PLAN = (PlanEntry("look"),)


def said(usage: Usage | None = None) -> AssistantMessage:
    return AssistantMessage(MessageId("a"), "text", usage=usage)


def approval(tool: str, *, approved: bool = True, always: bool = True) -> ApprovalMessage:
    call = CallId("c")
    return ApprovalMessage(MessageId("p"), call, approved, always=always, tool=tool, digest="1")


USER = UserMessage(MessageId("u"), "hi")
MESSAGES: list[Message] = [USER, said(Usage(1, 2)), USER, said(), said(Usage(10, 20, 30, 40))]


def test_usage_is_that_of_the_messages_that_tell_it() -> None:
    assert usage_of(MESSAGES) == Usage(11, 22, 30, 40)
    assert usage_of([]) == Usage()


def test_usage_is_also_that_of_sub_agents() -> None:
    inner = ChildMessage(CallId("b"), said(Usage(1)))
    messages: list[Message] = [
        ChildMessage(CallId("a"), inner),
        ChildMessage(CallId("a"), USER),
        said(Usage(10)),
    ]
    assert usage_of(messages) == Usage(11)


def test_a_boundary_takes_along_who_was_asked_last_before_it() -> None:
    second, first = replace(USER, agent="second"), replace(USER, agent="")
    moved = State().with_boundary(2, [second, said(), first])
    assert moved.agent == "second"
    assert moved.with_boundary(3, [said()]).agent == "second"
    assert moved.with_boundary(3, [first]).agent == ""


def test_what_is_taken_back_was_not_used_but_stays_paid() -> None:
    known = State(PLAN, Usage(5), cost=0.25, seconds=3, boundary=7)
    added = replace(known, usage=known.usage_with(MESSAGES))
    assert added == replace(known, usage=Usage(16, 22, 30, 40))
    assert added.with_taken_back(MESSAGES, None) == known


def test_a_boundary_takes_along_what_was_allowed_before_it() -> None:
    """What is approved once, denied, or said behind the boundary, is not."""
    messages: list[Message] = [
        approval("rm"),
        approval("once", always=False),
        approval("no", approved=False),
        USER,
        approval("later"),
    ]
    known = State(PLAN, boundary=10, allowed=("shell", "cat"))
    moved = known.with_boundary(14, messages)
    assert moved == State(PLAN, boundary=14, allowed=("cat", "rm 1", "shell"))
    assert moved.with_boundary(15, messages[4:]).allowed == ("cat", "later 1", "rm 1", "shell")
    assert moved.with_boundary(14, messages[4:]) == moved


# ---------------------------------------------------------------- the plan
ONE, TWO = RunId("r1"), RunId("r2")
NEXT = (PlanEntry("then"),)


def test_the_plan_of_a_run_that_is_taken_back_is_the_one_before_it() -> None:
    known = State(PLAN, Usage(1))
    replanned = known.with_plan(NEXT, ONE).with_plan((), ONE)
    assert replanned.plan == ()
    assert replanned.with_taken_back([], ONE) == known
    # a later run's plan, too, comes back only as far as that run is taken back
    assert replanned.with_plan(NEXT, TWO).with_taken_back([], TWO).plan == ()


def test_a_run_without_a_plan_of_its_own_takes_none_back() -> None:
    replanned = State(PLAN).with_plan(NEXT, ONE)
    assert replanned.with_taken_back([], TWO) == State(NEXT)
    assert replanned.settled() == State(NEXT)
    assert replanned.settled().with_taken_back([], ONE) == State(NEXT)
    assert State(PLAN).settled() == State(PLAN)
