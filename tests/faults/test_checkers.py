"""The checkers find what is wrong: one planted fault each, and nothing where nothing is."""

import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.faults import checkers
from tests.faults.records import Operation, Post, as_json, from_json, open_calls
from tests.faults.traced_model import order
from tests.support.wire import DONE, Frame, Json

Spoil = Callable[[list[Json]], object]


def said(token: str) -> Json:
    return {"role": "user", "content": order(token)}


def answered(token: str, call: int, words: int = 3, **more: object) -> Json:
    text = " ".join(f"{call}.{index}" for index in [*range(1, words + 1), "end"])
    return {"role": "assistant", "content": f"re {token}: {text}", **more}


def result(call: str, content: str) -> Json:
    return {"role": "tool", "toolCallId": call, "content": content}


def calling(token: str, call: int, *ids: str) -> Json:
    return answered(token, call, toolCalls=[{"id": each} for each in ids])


def operation(token: str, invoked: float, acknowledged: float | None, **more: object) -> Operation:
    done = Operation(Post("c", token), invoked, acknowledged)
    for name, value in more.items():
        setattr(done, name, value)
    return done


def history() -> list[Json]:
    return [
        said("a"),
        calling("a", 1, "x", "y"),
        result("x", "r"),
        {"role": "tool", "toolCallId": "y", "content": "superseded", "synthetic": "superseded"},
        said("b"),
        answered("b", 2),
        said("c"),
        answered("c", 3, words=2, content="re c: 3.1 3.2", partial=True),
    ]


OPERATIONS = (
    operation("a", 0, 1),
    operation("r", 2, 3),
    operation("b", 4, 5),
    operation("c", 4.5, 6),
    operation("refused", 4, None, refusal="409 conversation_busy"),
    operation("unknown", 4, None, doubtful=True, refusal="409 conversation_busy"),
)
SEEN = {1: ("a",), 2: ("a", "b"), 3: ("a", "b", "c")}


def test_a_history_as_it_should_be_has_no_fault() -> None:
    assert checkers.kept(OPERATIONS, history()) == []
    assert checkers.in_order(OPERATIONS, history()) == []
    assert checkers.whole(history()) == []
    assert checkers.paired(history()) == []
    assert checkers.prefixes(history(), SEEN) == []


@pytest.mark.parametrize(
    ("spoil", "fault"),
    [
        (lambda told: told.pop(0), "a was acknowledged and is lost"),
        (lambda told: told.pop(2), "r was acknowledged and is lost"),
        (lambda told: told.append(said("a")), "a was posted once and is there 2 times"),
        (lambda told: told.append(said("refused")), "refused was refused (409 conversation_busy)"),
        (lambda told: told.extend([said("unknown")] * 2), "unknown was posted once and is there 2"),
        (lambda told: told.append(said("z")), "z is there and was never posted"),
    ],
)
def test_lost_doubled_and_refused_messages_are_found(spoil: Spoil, fault: str) -> None:
    told = history()
    spoil(told)
    [found] = checkers.kept(OPERATIONS, told)
    assert found.startswith(fault)


def test_a_message_in_doubt_may_be_there_and_one_taken_back_may_be_missing() -> None:
    told = [*history(), said("unknown")]
    assert checkers.kept(OPERATIONS, told) == []
    assert checkers.kept(OPERATIONS, told[1:], taken_back={"a"}) == []


def test_an_order_that_is_not_that_of_time_is_found() -> None:
    told = [said("b"), said("a"), said("c")]
    assert checkers.in_order(OPERATIONS, told) == [
        "a was acknowledged before b was posted, and is behind it"
    ]


def test_posts_at_the_same_time_may_stand_in_any_order() -> None:
    assert checkers.in_order(OPERATIONS, [said("a"), said("c"), said("b")]) == []


def test_an_answer_to_other_messages_than_those_before_it_is_found() -> None:
    shown = SEEN | {2: ("b",)}
    [fault] = checkers.prefixes(history(), shown)
    assert fault == "call 2 of the model was shown ['b'], its answer follows ['a', 'b']"


@pytest.mark.parametrize(
    ("text", "partial", "problem"),
    [
        ("re a: 1.1 1.2 1.end", False, ""),
        ("re a: 1.1 1.2", True, ""),
        ("re a: 1.1 2.2 2.end", False, "it mixes several calls of the model"),
        ("re a: 1.1 1.1 1.2 1.end", False, "it has gaps or repeats"),
        ("re a: 1.1 1.3", True, "it has gaps or repeats"),
        ("re a: 1.1", False, "its end is missing"),
        ("re a: 1.1 1.end 1.end", False, "it ends twice"),
    ],
)
def test_a_torn_answer_is_found(text: str, partial: bool, problem: str) -> None:
    assert checkers.torn(text, partial=partial) == problem


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (answered("a", 1, content="re a: 1.1 1.end 2.end"), "it mixes several calls"),
        (answered("b", 1), "is another's"),
    ],
)
def test_a_wrong_answer_of_a_history_is_found(answer: Json, problem: str) -> None:
    [fault] = checkers.whole([said("a"), answer])
    assert problem in fault


@pytest.mark.parametrize(
    ("told", "fault"),
    [
        ([calling("a", 1, "x"), said("b")], "calls were left open: ['x']"),
        ([said("a"), result("x", "r")], "a result answers no open call: x"),
        ([calling("a", 1, "x"), result("x", "r"), result("x", "r")], "a result answers no open"),
    ],
)
def test_calls_that_are_not_answered_once_are_found(told: list[Json], fault: str) -> None:
    [found] = checkers.paired(told)
    assert found.startswith(fault)


# ---------------------------------------------------------------- runs
def frame(number: int, kind: str, **more: object) -> Frame:
    return Frame(f"run.1-{number}", json.dumps({"type": kind, **more}))


END = frame(9, "run-end", outcome="completed", reason="end_turn")
LAST = Frame("run.1-9", DONE)
RUN = [frame(1, "run-start", runId="run"), frame(2, "text", content="re a: 1.1 1.end"), END, LAST]


def test_a_run_as_it_should_be_has_no_fault() -> None:
    assert checkers.ended_once("run", RUN) == []
    assert checkers.ended_well("run", RUN, {"completed"}) == []


@pytest.mark.parametrize(
    "frames", [RUN[:-1], RUN[:-2], [*RUN, END], [*RUN[:-1], END, LAST], [END, *RUN[:2], LAST], []]
)
def test_a_run_without_exactly_one_end_as_its_last_event_is_found(frames: list[Frame]) -> None:
    assert len(checkers.ended_once("run", frames)) == 1


def test_a_run_that_failed_is_found() -> None:
    lost = frame(3, "run-end", outcome="failed", reason="lost")
    assert checkers.ended_well("run", [lost], {"completed"}) == ["run ended as failed: lost"]
    assert checkers.ended_well("run", [], {"completed"}) == ["run ended as nothing"]


# ---------------------------------------------------------------- streams
def test_a_stream_that_was_cut_into_other_pieces_adds_up() -> None:
    pieces = [RUN[0], frame(2, "text", content="re a: "), frame(3, "text", content="1.1 1.end")]
    held = operation("a", 0, 1, frames=[*pieces, *RUN[2:]], ended=True)
    assert checkers.adds_up(held, RUN) == []
    assert checkers.told([answered("a", 1, content="re a: 1.1 1.end")], held) == []


@pytest.mark.parametrize(
    "frames",
    [[*RUN[:2], *RUN[1:]], [RUN[0], *RUN[2:]], [*RUN[:1], frame(2, "text", content="?"), *RUN[2:]]],
)
def test_a_stream_with_a_gap_a_repeat_or_another_text_is_found(frames: list[Frame]) -> None:
    held = operation("a", 0, 1, frames=frames, ended=True)
    assert len(checkers.adds_up(held, RUN)) == 1


def test_a_stream_that_never_ends_is_found() -> None:
    held = operation("a", 0, 1, frames=RUN[:2])
    assert checkers.adds_up(held, RUN) == ["a never ended for its client"]


def test_an_answer_that_a_client_saw_and_nobody_kept_is_found() -> None:
    held = operation("a", 0, 1, frames=RUN, ended=True)
    assert len(checkers.told([said("a")], held)) == 1


def test_an_answer_in_several_turns_is_found_in_the_history() -> None:
    frames = [frame(1, "text", content="re a: 1.1 1.endre a: 2.1 2.end"), END, LAST]
    held = operation("a", 0, 1, frames=frames, ended=True)
    turns = [said("a"), answered("a", 1, words=1), result("x", "(done)"), answered("a", 2, words=1)]
    assert checkers.told(turns, held) == []
    assert len(checkers.told(turns[:3], held)) == 1


def test_work_that_was_begun_twice_is_found() -> None:
    assert checkers.done_once(["once 1", "again 2", "again 2"]) == []
    assert checkers.done_once(["once 1", "once 1"]) == ["once 1 was begun 2 times"]


def test_calls_are_open_until_the_server_answers_them() -> None:
    frames = [frame(n, "tool-call-end", toolCallId=call) for n, call in enumerate("ab")]
    assert open_calls([*frames, frame(3, "tool-result", toolCallId="a")]) == ["b"]


# ---------------------------------------------------------------- clients
def test_what_a_server_must_not_do_is_found() -> None:
    assert checkers.polite([operation("a", 0, 1, notes=["500"])]) == ["a: 500"]
    assert checkers.polite(OPERATIONS) == []


def test_a_conversation_that_is_not_usable_in_time_is_found() -> None:
    assert checkers.usable([0.1, 4.0], 4) == []
    assert len(checkers.usable([0.1, 4.1, None], 4)) == 2


def test_too_few_acknowledged_posts_are_found() -> None:
    assert checkers.enough(OPERATIONS, 0.6) == []
    [fault] = checkers.enough(OPERATIONS, 0.8)
    assert fault == "only 4 of 6 user messages were acknowledged"


def test_a_result_whose_call_was_superseded_is_no_missing_acknowledgement() -> None:
    late = operation("late", 7, None, refusal="409 already_answered")
    late = replace(late, post=replace(late.post, answers="call"))
    assert checkers.enough([OPERATIONS[0], late], 1.0) == []


def test_operations_pass_between_processes_unchanged() -> None:
    done = replace(OPERATIONS[0], frames=list(RUN), run_id="run", ended=True)
    assert from_json(json.loads(json.dumps(as_json(done)))) == done
