"""The shared state of a conversation: its bounds, and the writes of calls."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from passback.core.messages import RunId, ToolResult
from passback.core.shared_state import (
    KEY_CHARACTERS,
    STATE_BYTES,
    STATE_DEPTH,
    CallState,
    RunState,
    StateChange,
    StateError,
    change_state,
    check_state,
    difference,
)
from passback.core.state import State

RUN, LATER = RunId("run_1"), RunId("run_2")
FULL = "x" * (STATE_BYTES - len('{"a":""}'))
DONE = ToolResult("done")
STATES = st.dictionaries(st.sampled_from("abc"), st.sampled_from([0, 1, None, [1], {"b": 2}]))


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth - 1):
        value = [value]
    return value


# ---------------------------------------------------------------- reading and writing
def test_a_call_reads_what_is_there_and_its_own_writes() -> None:
    state = CallState(lambda: {"a": 1, "b": {"c": [2]}})
    state.set("d", (3, None))
    state.update({"a": "x", "e": True})
    state.remove("b")
    state.remove("unknown")
    assert dict(state) == {"a": "x", "d": [3, None], "e": True}
    assert (len(state), state.get("b"), state.get("d"), "a" in state) == (3, None, [3, None], True)
    state.set("b", 0)
    assert state["b"] == 0
    state.remove("d")
    assert state.close() == StateChange({"a": "x", "e": True, "b": 0})


def test_values_are_copies() -> None:
    kept: dict[str, JsonValue] = {"a": [1]}
    state = CallState(lambda: kept)
    given: list[int] = [2]
    state.set("b", given)
    given.append(3)
    read: Any = state["a"]
    read.append(4)
    assert (kept, state["b"]) == ({"a": [1]}, [2])


def test_a_call_that_wrote_nothing_has_no_change() -> None:
    state = CallState()
    state.set("a", 1)
    state.remove("a")
    assert state.close() is None


def test_a_removed_key_is_gone() -> None:
    state = CallState(lambda: {"a": 1})
    state.remove("a")
    with pytest.raises(KeyError):
        state["a"]
    assert (list(state), state.close()) == ([], StateChange({}, ("a",)))


def test_writes_after_the_end_of_the_call_are_refused() -> None:
    state = CallState()
    state.close()
    with pytest.raises(StateError, match="the call has ended"):
        state.set("a", 1)
    with pytest.raises(StateError, match="the call has ended"):
        state.remove("a")


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"": 1}, f"a text of 1 to {KEY_CHARACTERS}"),
        ({"k" * (KEY_CHARACTERS + 1): 1}, f"a text of 1 to {KEY_CHARACTERS}"),
        ({1: 1}, f"a text of 1 to {KEY_CHARACTERS}"),
        ({"\ud800": 1}, "not Unicode"),
        ({"plan": []}, "'plan' of the shared state is the server's own"),
        ({"a": {1, 2}}, "the value of 'a' in the shared state is not JSON"),
        ({"a": float("nan")}, "not JSON"),
        ({"a": "\ud800"}, "not JSON"),
        ({"a": nested(100_000)}, "not JSON"),
        ({"a": nested(STATE_DEPTH + 1)}, f"nested deeper than {STATE_DEPTH}"),
        ({"__proto__": 1}, "the shared state cannot have the key '__proto__', which JavaScript"),
        ({"a": {"__proto__": 1}}, "the value of 'a' in the shared state cannot have the key '__p"),
        ({"a": [{"b": ({"__proto__": {}},)}]}, "the key '__proto__'"),
        ({"constructor": {"prototype": 1}}, "value of 'constructor' .* 'constructor.prototype'"),
        ({"a": {"constructor": {"prototype": {}}}}, "the key 'constructor.prototype'"),
        ({"a": FULL + "x"}, f"would have 655.. bytes, of at most {STATE_BYTES}"),
    ],
)
def test_what_cannot_be_kept_is_refused_and_changes_nothing(
    values: dict[str, object], problem: str
) -> None:
    state = CallState()
    state.set("b", 1)
    with pytest.raises(StateError, match=problem):
        state.update({"c": 2, **values})
    assert dict(state) == {"b": 1}


def test_the_bounds_themselves_are_legal() -> None:
    state = CallState()
    state.set("a", FULL)
    state.update({"a": 0, "k" * KEY_CHARACTERS: nested(STATE_DEPTH), "e": {"x": [{}]}})
    check_state(dict(state))
    with pytest.raises(StateError):
        check_state({"plan": 1})
    with pytest.raises(StateError):
        check_state({"a": FULL + "x"})


def test_words_that_only_resemble_such_keys_are_legal() -> None:
    state = CallState()
    values: dict[str, JsonValue] = {
        "prototype": {"__proto": "__proto__"},
        "constructor": ["prototype", {"prototype": 1}],
        "a": {"constructor": "prototype", "b": {"constructor": {"a": {"prototype": 1}}}},
    }
    state.update(values)
    assert dict(state) == values


def test_a_state_with_such_keys_that_is_kept_already_is_read_and_can_be_removed() -> None:
    kept: dict[str, JsonValue] = {"__proto__": 1, "a": {"__proto__": 2}}
    check_state(kept)
    state = CallState(lambda: kept)
    assert dict(state) == kept
    state.set("b", 3)
    state.remove("__proto__")
    assert state.close() == StateChange({"b": 3}, ("__proto__",))


@given(STATES, STATES)
def test_a_difference_leads_from_one_state_to_the_other(
    before: dict[str, JsonValue], after: dict[str, JsonValue]
) -> None:
    change = difference(before, after)
    assert (change is None) == (before == after)
    assert change is None or change_state(before, change) == after


# ---------------------------------------------------------------- in a run
def test_the_writes_of_a_call_count_when_it_ends() -> None:
    run = RunState({"a": 1})
    one, other = CallState(run.read), CallState(run.read)
    one.set("a", 2)
    other.set("a", 3)
    other.remove("b")
    assert (run.read(), other["a"]) == ({"a": 1}, 3)
    assert run.settle(other, DONE) == (DONE, StateChange({"a": 3}))
    assert run.settle(one, DONE) == (DONE, StateChange({"a": 2}))
    assert run.current == {"a": 2}
    assert run.settle(None, DONE) == (DONE, None)


def test_a_call_that_failed_has_written_nothing() -> None:
    run = RunState({})
    call = CallState(run.read)
    call.set("a", 1)
    failed = ToolResult("broken", is_error=True)
    assert run.settle(call, failed) == (failed, None)
    assert run.current == {}


def test_writes_that_do_not_fit_together_fail_the_later_call() -> None:
    run = RunState({})
    one, other = CallState(run.read), CallState(run.read)
    one.set("a", FULL)
    other.set("b", 1)
    assert run.settle(one, DONE)[1] is not None
    result, change = run.settle(other, DONE)
    assert (result.is_error, change, list(run.current)) == (True, None, ["a"])
    assert "of at most" in str(result.content)


# ---------------------------------------------------------------- in the conversation's state
def test_a_rollback_restores_what_the_run_found() -> None:
    first = State().with_shared({"a": 1}, RUN).after_own_end()
    assert (first.shared, first.earlier_shared) == ({"a": 1}, None)
    later = first.with_shared({"a": 2}, LATER).with_shared({"b": 1}, LATER)
    assert later.with_shared({"b": 1}, LATER) is later
    assert later.after_rollback((), LATER).shared == {"a": 1}
    assert later.after_rollback((), RUN).shared == {"b": 1}
    assert later.after_rollback((), LATER).earlier_shared is None
    assert State().with_shared({}, RUN) == State()
    assert later.with_shared({}, LATER).shared is None
