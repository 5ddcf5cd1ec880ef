"""Clients of the chat socket that come late, or whose turns a take-over makes void."""

from collections.abc import Sequence
from itertools import count

import pytest
from tests.support.logged_runs import RUN
from tests.unit.wire.chat_client import ChatClient
from tests.unit.wire.chat_story import (
    COMPLETED,
    TURN,
    Story,
    call,
    ended,
    names,
    nested,
    resulted,
    user,
)

from passback.core.events import (
    Failed,
    Logged,
    Position,
    RunEvent,
    RunFinished,
    RunStarted,
    TextDelta,
)
from passback.wire.chat.said import Said, number_of, position_of
from passback.wire.chat.turns import Turns

pytestmark = pytest.mark.anyio


def test_a_late_client_gets_the_open_turns() -> None:
    story = Story(posted=[user()])
    story.tell(TURN, TextDelta("a"), *call("h", "helper"), ended("h"))
    story.tell(*nested("h", TURN, TextDelta("b")))
    snapshot = story.turns.snapshot()
    assert [each.data.get("id") for each in snapshot] == [None, "run_1.1", "run_1.h.1"]
    assert {each.number for each in snapshot} == {story.said[-1].number}
    late = ChatClient()
    late.turns = {each.data["id"]: each.data for each in snapshot[1:]}
    late.open = set(late.turns)
    late.take(story.tell(*nested("h", TextDelta("c")), resulted("h", "bc"), TURN, TextDelta("d")))
    late.take(story.tell(RunFinished(COMPLETED)))
    assert {**story.client.turns, **late.turns} == story.client.turns
    assert story.turns.snapshot() == []


def taken_over(kept: Sequence[RunEvent], void: Sequence[RunEvent]) -> tuple[Story, Story]:
    """A story until its worker is lost, and what another worker finds of it."""
    story, fresh = Story(posted=[user()]), Story(posted=[user()])
    story.tell(*kept, *void)
    fresh.tell(*kept)
    return story, fresh


KEPT = [TURN, TextDelta("a"), *call("h", "helper"), ended("h")]
VOID = nested("h", TURN, TextDelta("lost"))


@pytest.mark.parametrize(
    ("kept", "void", "told"),
    [
        (KEPT, VOID, ["turn:start", "turn:end"]),
        (
            KEPT,
            [*VOID, resulted("h"), TURN, TextDelta("b")],
            ["turn:start", "turn:end"] * 2 + ["turn:start"],
        ),
        ([TURN], [TextDelta("lost")], ["turn:start", "turn:end"]),
        (KEPT, [], []),
        ([*KEPT, resulted("h"), TURN, TextDelta("b")], [TextDelta("c")], ["turn:start"]),
        ([*KEPT, resulted("h"), TURN, TextDelta("b")], [TURN], ["turn:start"]),
    ],
)
def test_what_a_take_over_makes_void_is_told_anew(
    kept: list[RunEvent], void: list[RunEvent], told: list[str]
) -> None:
    story, fresh = taken_over(kept, void)
    said = story.turns.rewind(fresh.turns, Position(2, 1))
    assert names(said) == told
    # a client that gets some of it comes back to all of it
    assert len({each.number for each in said}) == (1 if told else 0)
    story.client.take(said)
    assert story.client.kept == fresh.client.kept
    story.epoch, story.seqs = 2, count(2)
    story.tell(TURN, TextDelta("anew"))
    story.end()
    assert position_of(story.said[-1].number).epoch == 2


def test_a_client_whose_cursor_is_void_is_told_the_run_anew() -> None:
    story, fresh = taken_over(KEPT, [*VOID, resulted("h"), TURN, TextDelta("b")])
    said = fresh.turns.restate(Position(2, 1))
    assert {each.number for each in said} == {number_of(Position(2, 1), len(said) - 1)}
    story.client.take(said)
    assert story.client.kept == fresh.client.kept
    assert [(each.name, each.data["id"]) for each in said] == [
        ("turn:start", "u"),
        ("turn:end", "u"),
        ("turn:start", "run_1.1"),
        ("turn:start", "run_1.2"),
        ("turn:end", "run_1.2"),
        ("turn:start", "run_1.h.1"),
        ("turn:end", "run_1.h.1"),
    ]


def test_a_turn_that_may_have_been_begun_is_told_as_void() -> None:
    kept = [*KEPT, resulted("h")]
    _, fresh = taken_over(kept, [TURN, TextDelta("lost")])
    fresh.tell(TURN)
    assert ids(fresh.turns.restate(Position(2, 1)))[-2:] == ["run_1.2"] * 2
    before = Turns()
    before.feed(RUN, Logged(Position(1, 1), RunStarted(RUN.run_id)))
    assert ids(before.restate(Position(2, 1))) == ["run_1.1"] * 2
    fresh.tell(TextDelta("b"))
    assert ids(fresh.turns.restate(Position(3, 1)))[-1] == "run_1.2"


def test_a_client_whose_cursor_is_void_is_told_the_end_of_a_run() -> None:
    story, fresh = taken_over(KEPT, [*VOID, resulted("h"), TURN, TextDelta("b")])
    fresh.epoch, fresh.seqs = 2, count(2)
    fresh.end(Failed("lost", "gone"))
    story.client.take(fresh.turns.restate(Position(2, 2)))
    assert story.client.kept == fresh.client.kept
    assert story.client.ends == fresh.client.ends


def ids(said: Sequence[Said]) -> list[str]:
    return [each.data["id"] for each in said]
