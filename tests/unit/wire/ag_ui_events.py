"""Any run events at all, in any order, for the tests of the encoder of AG-UI."""

from hypothesis import strategies as st

from passback.core.events import (
    Cancelled,
    Completed,
    Failed,
    HandedBack,
    Nested,
    OutputAccepted,
    PlanUpdated,
    ReasoningDelta,
    RunEvent,
    RunFinished,
    RunQueued,
    StateChanged,
    TextDelta,
    ToolCallArguments,
    ToolCallEnded,
    ToolCallStarted,
    ToolProgressed,
    ToolResulted,
    TurnStarted,
    UsageReported,
    unwrap_event,
)
from passback.core.messages import CallId, MessageId, Owed, PlanEntry, RunId, Usage

RUN = RunId("run_1")
CALL, OTHER, DEEP = CallId("call_1"), CallId("call_2"), CallId("call_3")
DONE = RunFinished(Completed())

IDS = st.sampled_from([CALL, OTHER, DEEP])
LEAVES: st.SearchStrategy[RunEvent] = st.one_of(
    st.builds(TextDelta, st.sampled_from(["a", ""])),
    st.builds(ReasoningDelta, st.just("hm")),
    st.builds(TurnStarted, st.sampled_from([MessageId("m1"), MessageId("m2")])),
    st.builds(ToolCallStarted, IDS, st.just("look"), st.booleans()),
    st.builds(ToolCallArguments, IDS, st.sampled_from(["{}", '{"__proto__": {"a": 1}}'])),
    st.builds(ToolCallEnded, IDS),
    st.builds(ToolResulted, IDS, st.just("x"), st.booleans()),
    st.builds(ToolProgressed, IDS, st.just("x")),
    st.just(DONE),
    st.just(RunQueued(RUN)),
    st.just(PlanUpdated((PlanEntry("a"),))),
    st.builds(
        StateChanged,
        st.sampled_from([{}, {"a": 1}, {"__proto__": 1, "a": {"__proto__": 1}}]),
        st.sampled_from([(), ("b",), ("__proto__",)]),
    ),
    st.just(OutputAccepted({"__proto__": {"constructor": {"prototype": 1}}})),
    st.just(UsageReported(Usage(1, 1))),
)


def _named_apart(event: RunEvent) -> RunEvent:
    """Return the event with a message id that no other agent's message has."""
    path, inner = unwrap_event(event)
    if isinstance(inner, TurnStarted):
        inner = TurnStarted(MessageId("_".join((inner.message_id, *path))))
    for call_id in reversed(path):
        inner = Nested(call_id, inner)
    return inner


EVENTS = st.recursive(LEAVES, lambda inner: st.builds(Nested, IDS, inner), max_leaves=3).map(
    _named_apart
)
OUTCOMES = st.one_of(
    st.builds(Completed),
    st.builds(Cancelled),
    st.builds(Failed, st.just("c"), st.just("m")),
    st.builds(
        HandedBack,
        st.lists(
            st.builds(Owed, IDS, st.just("n"), st.just("{}"), st.sampled_from(["approval"])),
            max_size=2,
        ).map(tuple),
    ),
)
