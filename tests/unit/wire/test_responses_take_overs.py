"""Another worker goes on with a response: numbers, what is void, and streams that are resumed."""

import pytest
from tests.unit.wire.responses_events import (
    RUN_ID,
    added_up,
    broken,
    encoder,
    event_of,
    events_of,
    framer,
    frames_of,
    items_of,
    log_of,
    numbers_of,
    replayed,
    streamed,
    texts_of,
    types_of,
)

from passback.core.events import (
    START,
    Cancelled,
    Completed,
    Failed,
    Logged,
    Outcome,
    Position,
    ReasoningDelta,
    Rewound,
    RunFinished,
    RunQueued,
    RunStarted,
    TextDelta,
    ToolBegan,
    ToolCallArguments,
    ToolCallStarted,
    ToolProgressed,
    ToolResulted,
    TurnEnded,
    TurnStarted,
    UsageReported,
)
from passback.core.messages import CallId, MessageId, Usage
from passback.wire.responses.encoder import DONE, LEASE_NUMBERS

A = CallId("call_a")
BEGUN = RunStarted(RUN_ID)
FIRST, SECOND = TurnStarted(MessageId("msg_m")), TurnStarted(MessageId("msg_n"))
WHOLE = TurnEnded(MessageId("msg_m"), duration=1000)
END = RunFinished(Completed())
KEPT = (BEGUN, FIRST, TextDelta("kept"), WHOLE, UsageReported(Usage(1, 2)))
VOID = (SECOND, TextDelta("vo"), TextDelta("id"))
ANEW = (TurnStarted(MessageId("msg_o")), TextDelta("anew"), WHOLE, UsageReported(Usage(10, 20)))


def taken_over(*lives: tuple[int, int]) -> list[Logged]:
    """A log of a run whose workers were lost behind what is kept.

    Args:
        lives: for each worker but the first, its epoch, and how many of the void events it added.
    """
    log = log_of(*KEPT, *VOID, epoch=5)
    to = Position(5, len(KEPT))
    for number, (epoch, void) in enumerate(lives, 1):
        said = VOID[:void] if number < len(lives) else (*ANEW, END)
        log += log_of(Rewound(to), *said, epoch=epoch)
    return log


ONCE = taken_over((6, 0))
LATER = taken_over((6, 3), (9, 0))  # posts that waited meanwhile have epochs of their own
LOGS = pytest.mark.parametrize("log", [ONCE, LATER], ids=["once", "twice"])


# ---------------------------------------------------------------- numbers
def test_numbers_of_the_first_worker_have_no_gaps_whatever_its_epoch() -> None:
    log = [*log_of(RunQueued(RUN_ID), epoch=3), *log_of(*KEPT, END, epoch=8)]
    found = events_of(streamed(log))
    assert numbers_of(found) == list(range(len(found)))
    assert types_of(found)[:3] == ["created", "queued", "in_progress"]


@pytest.mark.parametrize(("log", "leases"), [(ONCE, 1), (LATER, 4)])
def test_each_epoch_has_numbers_of_its_own(log: list[Logged], leases: int) -> None:
    live = numbers_of(events_of(streamed(log)))
    assert live == sorted(set(live))
    replay = numbers_of(events_of(streamed(replayed(log))))
    first = leases * LEASE_NUMBERS
    assert next(each for each in replay if each >= LEASE_NUMBERS) == first
    assert [each for each in live if each >= first] == [each for each in replay if each >= first]


@LOGS
def test_a_replay_has_the_events_of_what_is_kept_as_they_were(log: list[Logged]) -> None:
    live, replay = (frames_of(streamed(each)) for each in (log, replayed(log)))
    kept = live[: live.index(next(each for each in live if "vo" in each)) - 2]
    assert replay[: len(kept) - 3] == kept[:-3]


# ---------------------------------------------------------------- what is void
@LOGS
def test_what_is_void_ends_and_is_no_part_of_the_response(log: list[Logged]) -> None:
    live, replay = (events_of(streamed(each)) for each in (log, replayed(log)))
    final = added_up(live, gaps=True)
    assert final == added_up(replay, gaps=True)
    assert texts_of(final) == ["kept", "anew"]
    assert final["usage"]["total_tokens"] == 33
    assert items_of(final) == [("message", "completed")] * 2
    void = [
        each["item"]["status"]
        for each in live
        if each["type"] == "response.output_item.done" and each["item"]["id"] == "msg_n"
    ]
    assert set(void) == {"incomplete"}


def test_at_a_rewind_the_response_goes_on() -> None:
    one = framer(encoder())
    one.frame_batch(log_of(*KEPT, *VOID, epoch=5))
    frames = frames_of(one.frame_batch(log_of(Rewound(Position(5, len(KEPT))), epoch=6)))
    found = list(map(event_of, frames))
    assert types_of(found) == [
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "in_progress",
    ]
    assert texts_of(found[-1]["response"]) == ["kept"]
    assert found[-1]["response"]["status"] == "in_progress"


def test_void_thoughts_end() -> None:
    thought = (SECOND, ReasoningDelta("hm"))
    log = log_of(*KEPT, *thought, epoch=5)
    log += log_of(Rewound(Position(5, len(KEPT))), *ANEW, END, epoch=6)
    final = added_up(events_of(streamed(log)), gaps=True)
    assert [each["type"] for each in final["output"]] == ["message", "message"]


def test_a_call_that_its_worker_left_ends_and_has_the_result_that_the_next_one_gives() -> None:
    began = (ToolCallStarted(A, "look", client=False), ToolCallArguments(A, "{}"), ToolBegan(A))
    closed = ToolResulted(A, "interrupted", True, "interrupted")
    log = log_of(*KEPT, *began, ToolProgressed(A, "void"), epoch=5)
    to = Position(5, len(KEPT) + len(began))
    log += log_of(Rewound(to), closed, *ANEW, END, epoch=6)
    final = added_up(events_of(streamed(log)), gaps=True)
    [call] = [each for each in final["output"] if each["type"] == "mcp_call"]
    assert (call["status"], call["error"]) == ("failed", broken("interrupted"))
    again = added_up(events_of(streamed(replayed(log))), gaps=True)
    assert [each for each in again["output"] if each["type"] == "mcp_call"] == [call]


def test_a_worker_that_is_lost_between_turns_leaves_nothing_void() -> None:
    log = [*log_of(*KEPT, epoch=5), *log_of(Rewound(Position(5, len(KEPT))), *ANEW, END, epoch=6)]
    found = events_of(streamed(log))
    assert streamed(log) == streamed(replayed(log))
    assert types_of(found).count("in_progress") == 1


@pytest.mark.parametrize("outcome", [Completed("max_tokens"), Cancelled(), Failed("lost", "gone")])
def test_a_text_is_whole_that_an_earlier_worker_ended(outcome: Outcome) -> None:
    """Live it ended before the worker was lost, and so it does in a replay."""
    log = [*log_of(*KEPT, *VOID, epoch=5), *log_of(Rewound(Position(5, len(KEPT))), epoch=6)]
    log += log_of(RunFinished(outcome), epoch=6, first=2)
    live, replay = (events_of(streamed(each)) for each in (log, replayed(log)))
    assert added_up(live, gaps=True)["output"] == added_up(replay, gaps=True)["output"]
    kept = [each for each in live if each.get("item", {}).get("id") == "msg_m"]
    assert [each for each in replay if each.get("item", {}).get("id") == "msg_m"] == kept
    assert kept[-1]["item"]["status"] == "completed"
    # in one life it is cut
    [item] = added_up(events_of(streamed(log_of(*KEPT, RunFinished(outcome)))))["output"]
    assert item["status"] == "incomplete"


def test_a_response_whose_beginning_is_lost_fails() -> None:
    log = [*log_of(*KEPT, *VOID, epoch=5), *log_of(Rewound(START), *ANEW, END, epoch=6)]
    found = events_of(streamed(log))
    assert types_of(found)[-1] == "failed"
    assert found[-1]["response"]["error"]["code"] == "rewound"
    assert streamed(log).count(DONE) == 1


# ---------------------------------------------------------------- resuming
def rest_of(text: str, after: int) -> str:
    """Return what is left of a stream behind a number."""
    frames = [
        each
        for each in frames_of(text)
        if each == f"data: {DONE}" or event_of(each)["sequence_number"] > after
    ]
    return "".join(f"{each}\n\n" for each in frames)


@LOGS
def test_a_replay_behind_any_number_is_the_rest(log: list[Logged]) -> None:
    whole = streamed(replayed(log))
    for after in range(-1, len(frames_of(whole)) + 2):
        assert streamed(replayed(log), after=after) == rest_of(whole, after)
    for after in numbers_of(events_of(whole)):
        assert streamed(replayed(log), after=after) == rest_of(whole, after)


@LOGS
def test_a_number_of_what_is_void_goes_on_with_the_next_worker(log: list[Logged]) -> None:
    whole = streamed(replayed(log))
    for after in numbers_of(events_of(streamed(log))):
        rest = streamed(replayed(log), after=after)
        assert rest == rest_of(whole, after)
        assert "anew" in rest or after >= LEASE_NUMBERS


@LOGS
def test_batches_of_any_size_give_the_same_stream(log: list[Logged]) -> None:
    one = framer(encoder())
    assert "".join(one.frame_batch([each]) for each in log) + one.end_frames() == streamed(log)
