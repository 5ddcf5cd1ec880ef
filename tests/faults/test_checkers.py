"""The checkers find each planted violation, and none where there is none."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import TypeAlias

import pytest
from tests.faults import checkers
from tests.faults.evidence import FinalState, Operation, Post, open_calls, operation_from_json
from tests.faults.mock_model import prompt
from tests.faults.post_scenarios import check_policy
from tests.support.wire import DONE, Frame, Json

Spoil: TypeAlias = Callable[[list[Json]], object]
"""Plants a violation in a history."""


def question(token: str) -> Json:
    return {"role": "user", "content": prompt(token)}


def answer(token: str, call: int, words: int = 3, **more: object) -> Json:
    text = " ".join(f"{call}.{index}" for index in [*range(1, words + 1), "end"])
    return {"role": "assistant", "content": f"re {token}: {text}", **more}


def result(call: str, content: str) -> Json:
    return {"role": "tool", "toolCallId": call, "content": content}


def answer_with_calls(token: str, call: int, *ids: str) -> Json:
    return answer(token, call, toolCalls=[{"id": each} for each in ids])


def operation(token: str, invoked: float, acknowledged: float | None, **more: object) -> Operation:
    done = Operation(Post("c", token), invoked, acknowledged)
    for name, value in more.items():
        setattr(done, name, value)
    return done


def history() -> list[Json]:
    return [
        question("a"),
        answer_with_calls("a", 1, "x", "y"),
        result("x", "r"),
        {"role": "tool", "toolCallId": "y", "content": "superseded", "synthetic": "superseded"},
        question("b"),
        answer("b", 2),
        question("c"),
        answer("c", 3, words=2, content="re c: 3.1 3.2", partial=True),
    ]


OPERATIONS = (
    operation("a", 0, 1),
    operation("r", 2, 3),
    operation("b", 4, 5),
    operation("c", 4.5, 6),
    operation("refused", 4, None, refusal="409 conversation_busy"),
    operation("unknown", 4, None, indeterminate=True, refusal="409 conversation_busy"),
)
SHOWN = {1: ("a",), 2: ("a", "b"), 3: ("a", "b", "c")}


def test_a_history_as_it_should_be_has_no_violation() -> None:
    assert checkers.check_messages(OPERATIONS, history()) == []
    assert checkers.check_order(OPERATIONS, history()) == []
    assert checkers.check_answers(history()) == []
    assert checkers.check_tool_results(history()) == []
    assert checkers.check_context(history(), SHOWN) == []


@pytest.mark.parametrize(
    ("spoil", "violation"),
    [
        (lambda messages: messages.pop(0), "a was acknowledged and is lost"),
        (lambda messages: messages.pop(2), "r was acknowledged and is lost"),
        (lambda messages: messages.append(question("a")), "a was posted once and is there 2 times"),
        (
            lambda messages: messages.append(question("refused")),
            "refused was refused (409 conversation_busy)",
        ),
        (
            lambda messages: messages.extend([question("unknown")] * 2),
            "unknown was posted once and is there 2",
        ),
        (lambda messages: messages.append(question("z")), "z is there and was never posted"),
    ],
)
def test_lost_doubled_and_refused_messages_are_found(spoil: Spoil, violation: str) -> None:
    messages = history()
    spoil(messages)
    [found] = checkers.check_messages(OPERATIONS, messages)
    assert found.startswith(violation)


def test_an_indeterminate_message_may_be_there_and_one_rolled_back_may_be_missing() -> None:
    messages = [*history(), question("unknown")]
    assert checkers.check_messages(OPERATIONS, messages) == []
    assert checkers.check_messages(OPERATIONS, messages[1:], rolled_back={"a"}) == []


def test_messages_in_another_order_than_that_of_time_are_found() -> None:
    messages = [question("b"), question("a"), question("c")]
    assert checkers.check_order(OPERATIONS, messages) == [
        "a was acknowledged before b was posted, and comes after it"
    ]


def test_posts_at_the_same_time_may_stand_in_any_order() -> None:
    assert checkers.check_order(OPERATIONS, [question("a"), question("c"), question("b")]) == []


def test_an_answer_to_other_messages_than_those_before_it_is_found() -> None:
    shown = SHOWN | {2: ("b",)}
    [found] = checkers.check_context(history(), shown)
    assert found == "model call 2 was shown ['b'], its answer follows ['a', 'b']"


@pytest.mark.parametrize(
    ("text", "partial", "problem"),
    [
        ("re a: 1.1 1.2 1.end", False, ""),
        ("re a: 1.1 1.2", True, ""),
        ("re a: 1.1 2.2 2.end", False, "it mixes several model calls"),
        ("re a: 1.1 1.1 1.2 1.end", False, "it has gaps or repeats"),
        ("re a: 1.1 1.3", True, "it has gaps or repeats"),
        ("re a: 1.1", False, "its end is missing"),
        ("re a: 1.1 1.end 1.end", False, "it ends twice"),
    ],
)
def test_a_damaged_answer_is_found(text: str, partial: bool, problem: str) -> None:
    assert checkers.find_answer_defect(text, partial=partial) == problem


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        (answer("a", 1, content="re a: 1.1 1.end 2.end"), "it mixes several model calls"),
        (answer("b", 1), "is another's"),
    ],
)
def test_a_wrong_answer_of_a_history_is_found(message: Json, problem: str) -> None:
    [found] = checkers.check_answers([question("a"), message])
    assert problem in found


@pytest.mark.parametrize(
    ("messages", "violation"),
    [
        ([answer_with_calls("a", 1, "x"), question("b")], "calls were left open: ['x']"),
        ([question("a"), result("x", "r")], "a result answers no open call: x"),
        (
            [answer_with_calls("a", 1, "x"), result("x", "r"), result("x", "r")],
            "a result answers no open",
        ),
    ],
)
def test_calls_that_are_not_answered_once_are_found(messages: list[Json], violation: str) -> None:
    [found] = checkers.check_tool_results(messages)
    assert found.startswith(violation)


# ---------------------------------------------------------------- runs
def frame(number: int, kind: str, **more: object) -> Frame:
    return Frame(f"run.1-{number}", json.dumps({"type": kind, **more}))


END = frame(9, "run-end", outcome="completed", reason="end_turn")
LAST_FRAME = Frame("run.1-9", DONE)
RUN = [
    frame(1, "run-start", runId="run"),
    frame(2, "text", content="re a: 1.1 1.end"),
    END,
    LAST_FRAME,
]


def test_a_run_as_it_should_be_has_no_violation() -> None:
    assert checkers.check_single_end("run", RUN) == []
    assert checkers.check_outcome("run", RUN, {"completed"}) == []


@pytest.mark.parametrize(
    "frames",
    [
        RUN[:-1],
        RUN[:-2],
        [*RUN, END],
        [*RUN[:-1], END, LAST_FRAME],
        [END, *RUN[:2], LAST_FRAME],
        [],
    ],
)
def test_a_run_without_exactly_one_end_as_its_last_event_is_found(frames: list[Frame]) -> None:
    assert len(checkers.check_single_end("run", frames)) == 1


def test_a_run_that_failed_is_found() -> None:
    lost = frame(3, "run-end", outcome="failed", reason="lost")
    assert checkers.check_outcome("run", [lost], {"completed"}) == ["run ended as failed: lost"]
    assert checkers.check_outcome("run", [], {"completed"}) == ["run ended as nothing"]


# ---------------------------------------------------------------- streams
def test_a_stream_in_other_pieces_is_the_same_stream() -> None:
    pieces = [RUN[0], frame(2, "text", content="re a: "), frame(3, "text", content="1.1 1.end")]
    done = operation("a", 0, 1, frames=[*pieces, *RUN[2:]], ended=True)
    assert checkers.check_stream(done, RUN) == []
    assert checkers.check_answer_stored([answer("a", 1, content="re a: 1.1 1.end")], done) == []


@pytest.mark.parametrize(
    "frames",
    [[*RUN[:2], *RUN[1:]], [RUN[0], *RUN[2:]], [*RUN[:1], frame(2, "text", content="?"), *RUN[2:]]],
)
def test_a_stream_with_a_gap_a_repeat_or_another_text_is_found(frames: list[Frame]) -> None:
    done = operation("a", 0, 1, frames=frames, ended=True)
    assert len(checkers.check_stream(done, RUN)) == 1


def test_a_stream_that_never_ends_is_found() -> None:
    done = operation("a", 0, 1, frames=RUN[:2])
    assert checkers.check_stream(done, RUN) == ["a never ended for its client"]


def test_an_answer_that_a_client_read_and_nobody_stored_is_found() -> None:
    done = operation("a", 0, 1, frames=RUN, ended=True)
    assert len(checkers.check_answer_stored([question("a")], done)) == 1


def test_an_answer_in_several_turns_is_found_in_the_history() -> None:
    frames = [frame(1, "text", content="re a: 1.1 1.endre a: 2.1 2.end"), END, LAST_FRAME]
    done = operation("a", 0, 1, frames=frames, ended=True)
    turns = [question("a"), answer("a", 1, words=1), result("x", "(done)"), answer("a", 2, words=1)]
    assert checkers.check_answer_stored(turns, done) == []
    assert len(checkers.check_answer_stored(turns[:3], done)) == 1


def test_a_tool_that_was_started_twice_is_found() -> None:
    assert checkers.check_unsafe_tools(["once 1", "again 2", "again 2"]) == []
    assert checkers.check_unsafe_tools(["once 1", "once 1"]) == ["once 1 was started 2 times"]


def test_calls_are_open_until_the_server_answers_them() -> None:
    frames = [frame(n, "tool-call-end", toolCallId=call) for n, call in enumerate("ab")]
    assert open_calls([*frames, frame(3, "tool-result", toolCallId="a")]) == ["b"]


# ---------------------------------------------------------------- clients
def test_protocol_errors_are_found() -> None:
    assert checkers.check_protocol([operation("a", 0, 1, protocol_errors=["500"])]) == ["a: 500"]
    assert checkers.check_protocol(OPERATIONS) == []


def test_a_conversation_that_does_not_recover_in_time_is_found() -> None:
    assert checkers.check_recovery_times([0.1, 4.0], 4) == []
    assert len(checkers.check_recovery_times([0.1, 4.1, None], 4)) == 2


def test_too_few_acknowledged_posts_are_found() -> None:
    assert checkers.check_acknowledged_share(OPERATIONS, 0.6) == []
    [found] = checkers.check_acknowledged_share(OPERATIONS, 0.8)
    assert found == "only 4 of 6 user messages were acknowledged"


def test_a_result_whose_call_was_superseded_is_no_missing_acknowledgement() -> None:
    late = operation("late", 7, None, refusal="409 already_answered")
    late = replace(late, post=replace(late.post, call_id="call"))
    assert checkers.check_acknowledged_share([OPERATIONS[0], late], 1.0) == []


def test_operations_pass_between_processes_unchanged() -> None:
    done = replace(OPERATIONS[0], frames=list(RUN), run_id="run", ended=True)
    assert operation_from_json(json.loads(json.dumps(asdict(done)))) == done


# ---------------------------------------------------------------- policies
def run_of(token: str, policy: str, outcome: str) -> tuple[Operation, list[Frame]]:
    done = operation(token, 0, 1, run_id=f"run-{token}")
    done.post = replace(done.post, policy=policy)
    return done, [frame(1, "run-end", outcome=outcome)]


def policy_violations(
    messages: list[Json], *runs: tuple[Operation, list[Frame]], refused: Sequence[Operation] = ()
) -> list[str]:
    replays: dict[str, Sequence[Frame]] = {done.run_id: frames for done, frames in runs}
    state = FinalState(histories={"c": messages}, replays=replays)
    return check_policy([*(done for done, _ in runs), *refused], state, "c")


INTERRUPTED = run_of("a", "interrupt", "cancelled")
ROLLED_BACK = run_of("a", "rollback", "cancelled")
LAST = run_of("b", "interrupt", "completed")
LAST_ROLLBACK = run_of("b", "rollback", "completed")
PART = answer("a", 1, content="re a: 1.1", partial=True)
EXCHANGE = [question("b"), answer("b", 2)]


def test_a_history_as_its_policy_says_has_no_violation() -> None:
    assert policy_violations([question("a"), PART, *EXCHANGE], INTERRUPTED, LAST) == []
    assert policy_violations([question("a"), *EXCHANGE], INTERRUPTED, LAST) == []
    assert policy_violations(EXCHANGE, ROLLED_BACK, LAST_ROLLBACK) == []
    busy = operation("x", 0, None, refusal="409 conversation_busy")
    assert policy_violations(EXCHANGE, LAST, refused=[busy]) == []


@pytest.mark.parametrize(
    ("messages", "runs", "violation"),
    [
        (EXCHANGE, [INTERRUPTED, LAST], "a is missing, its run cancelled"),
        (
            [question("a"), answer("a", 1), *EXCHANGE],
            [INTERRUPTED, LAST],
            "a has a complete answer, its run was cancelled",
        ),
        (
            [question("a"), PART, *EXCHANGE],
            [run_of("a", "enqueue", "completed"), LAST],
            "a has no complete answer, its run completed",
        ),
        ([question("a"), *EXCHANGE], [ROLLED_BACK, LAST_ROLLBACK], "a was not rolled back"),
        ([question("a")], [INTERRUPTED], "the last message has no complete answer"),
    ],
)
def test_a_history_that_its_policy_forbids_is_found(
    messages: list[Json], runs: list[tuple[Operation, list[Frame]]], violation: str
) -> None:
    assert policy_violations(messages, *runs) == [violation]


def test_a_post_without_an_answer_may_be_the_last_although_its_repeat_was_refused() -> None:
    refused = operation("b", 0, None, refusal="409 conversation_busy")
    unsure = replace(refused, indeterminate=True)
    history = [question("a"), PART, *EXCHANGE]

    assert policy_violations(history, INTERRUPTED, refused=[unsure]) == []
    assert policy_violations(history, INTERRUPTED, refused=[refused]) == [
        "the last message has no complete answer"
    ]
    assert policy_violations(history[:-1], INTERRUPTED, refused=[unsure]) == [
        "the last message has no complete answer"
    ]


def test_a_refusal_that_a_policy_does_not_give_is_found() -> None:
    full = operation("x", 0, None, refusal="429 queue_full")
    assert policy_violations(EXCHANGE, LAST, refused=[full]) == [
        "x (reject) was refused with 429 queue_full"
    ]
    busy = operation("x", 0, None, refusal="409 conversation_busy")
    assert policy_violations([], refused=[busy]) == ["all posts were refused"]


# ---------------------------------------------------------------- all of them
def test_all_checkers_look_at_the_whole_evidence() -> None:
    lost = operation("a", 0, 1, run_id="run", frames=RUN[:2], protocol_errors=["500"])
    unanswered = operation("b", 2, None)
    state = FinalState({"c": [question("z")]}, {"run": RUN[:2]}, ["d cannot be read"])
    found = checkers.check_all([lost, unanswered], state, {}, checkers.Expectations())
    assert found == [
        "d cannot be read",
        "a: 500",
        "only 1 of 2 user messages were acknowledged",
        "c: a was acknowledged and is lost",
        "c: z is there and was never posted",
        "run has 0 ends and 0 [DONE]",
        "run ended as nothing",
        "a never ended for its client",
    ]


def test_only_a_stopped_run_may_be_rolled_back_and_only_where_it_is_expected() -> None:
    stopped, frames = run_of("a", "rollback", "cancelled")
    stopped.frames, stopped.ended = [*frames, LAST_FRAME], True
    state = FinalState({"c": []}, {"run-a": stopped.frames})
    outcomes = frozenset({"cancelled"})
    allowed = checkers.Expectations(outcomes, allows_rollback=True)
    assert checkers.check_all([stopped], state, {}, allowed) == []
    forbidden = checkers.Expectations(outcomes)
    assert checkers.check_all([stopped], state, {}, forbidden) == [
        "c: a was acknowledged and is lost"
    ]
