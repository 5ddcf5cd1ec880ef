"""Turns of the chat socket, from events that a test writes and from records."""

import pytest
from tests.support.logged_runs import RUN, LoggedRuns
from tests.unit.wire.chat_client import ChatClient
from tests.unit.wire.chat_story import (
    COMPLETED,
    TURN,
    Story,
    answered,
    call,
    ended,
    made,
    names,
    resulted,
    user,
)

from passback.core.changes import Status
from passback.core.errors import InvalidCursor
from passback.core.events import (
    Cancelled,
    Compacted,
    Completed,
    Failed,
    Logged,
    Outcome,
    Position,
    ReasoningDelta,
    RunFinished,
    RunQueued,
    TextDelta,
    ToolCallArguments,
    TurnEnded,
    TurnStarted,
    UsageReported,
)
from passback.core.messages import (
    AssistantMessage,
    CallId,
    DataPart,
    MediaPart,
    Message,
    MessageId,
    SystemMessage,
    TextPart,
    Usage,
    UserMessage,
)
from passback.native.earlier import read_range
from passback.wire.chat.history import project, read_turns_before
from passback.wire.chat.said import join_said, number_of, position_of
from passback.wire.chat.turns import Turns

pytestmark = pytest.mark.anyio


def answer_ended() -> TurnEnded:
    return TurnEnded(MessageId("m"), "m", Usage(5, 2), window=100, duration=40)


# ---------------------------------------------------------------- numbers
def test_numbers_grow_with_positions_and_lead_back_to_them() -> None:
    places = [(1, 1, 0), (1, 1, 1), (1, 2, 0), (1, 2**23 - 1, 9), (2, 1, 0), (2**19, 5, 1023)]
    numbers = [number_of(Position(epoch, seq), place) for epoch, seq, place in places]
    assert numbers == sorted(set(numbers))
    assert numbers[-1] < 2**53
    assert [position_of(number) for number in numbers] == [Position(*at[:2]) for at in places]


def test_places_beyond_the_last_share_its_number() -> None:
    assert number_of(Position(1, 1), 5_000) == number_of(Position(1, 1), 1_023)
    assert number_of(Position(1, 1), 5_000) < number_of(Position(1, 2))
    assert number_of(Position(1, 2**40)) == number_of(Position(1, 2**23 - 1))


@pytest.mark.parametrize("number", [-1, 0, 1, 1 << 33, 2**53, 2**60])
def test_a_number_that_no_event_has_is_refused(number: int) -> None:
    with pytest.raises(InvalidCursor):
        position_of(number)


def test_neighbouring_pieces_of_a_text_are_joined() -> None:
    story = Story(posted=[user()])
    said = story.tell(
        TURN,
        ReasoningDelta("h"),
        ReasoningDelta("m"),
        TextDelta("a"),
        *call("c"),
        ended("c"),
        TextDelta("b"),
        TextDelta("c"),
        TextDelta(""),
        TextDelta("d"),
    )
    joined = join_said(said)
    assert [
        (name, each.data.get("data", {}).get("text_delta"))
        for name, each in zip(names(joined), joined, strict=True)
    ] == [
        ("turn:start", None),
        ("add_content", "hm"),
        ("add_content", "a"),
        ("add_tool_call", None),
        ("add_content", "bcd"),
    ]
    assert joined[-1].number == said[-1].number
    assert joined[-1].data["sequence"] == said[-1].data["sequence"]
    assert join_said([]) == []
    client, again = ChatClient(), ChatClient()
    client.take(said)
    again.take(joined)
    assert client.turns == again.turns


# ---------------------------------------------------------------- turns
def test_a_chat_is_told_turn_by_turn() -> None:
    story = Story(posted=[user(created=1_769_860_680_000)])
    story.tell(TURN, TextDelta("On "), TextDelta("it."), *call("c", title="Look around"))
    story.tell(answer_ended(), ended("c"), resulted("c"))
    story.tell(TURN, TextDelta("Done."))
    assert story.end() == {
        "status": "completed",
        "result": None,
        "finish_reason": "completed",
        "pending_tool_call_ids": [],
        "chat_run_id": "run_1",
    }
    assert names(story.said) == [
        "chat:start",
        "turn:start",
        "turn:end",
        "turn:start",
        "add_content",
        "add_content",
        "add_tool_call",
        "tool_result",
        "turn:end",
        "turn:start",
        "add_content",
        "turn:end",
        "chat:end",
    ]


def test_a_turn_has_all_fields_of_the_protocol() -> None:
    story = Story(posted=[user(created=1_769_860_680_000)])
    story.tell(TURN, *call("c", title="Look around"))
    story.tell(answer_ended(), ended("c"), resulted("c"))
    story.tell(TURN, TextDelta("Done."))
    story.end()
    assert story.turn("u") == {
        "id": "u",
        "sequence": 1,
        "turn_id": "u",
        "loop_id": "root",
        "kind": "message",
        "role": "user",
        "status": "completed",
        "blocks": [{"type": "text", "content": "hi"}],
        "tool_calls": [],
        "model": None,
        "usage": None,
        "duration_ms": 0,
        "started_at": "2026-01-31T11:58:00.000Z",
        "context_window": 0,
        "memory_refs": None,
        "parent_fork_tool_call_id": None,
    }
    first, second = story.turn("run_1.1"), story.turn("run_1.2")
    assert first["tool_calls"] == [
        {
            "id": "c",
            "tool_name": "look",
            "display_name": "Look around",
            "arguments": "{}",
            "status": "done",
            "result": "seen",
            "duration_ms": 0,
        }
    ]
    shown = ("sequence", "model", "usage", "duration_ms", "context_window", "status")
    assert [first[name] for name in shown] == [
        2,
        "m",
        {"input_tokens": 5, "output_tokens": 2},
        40,
        100,
        "completed",
    ]
    assert [second[name] for name in shown] == [3, None, None, 0, 0, "completed"]


def test_the_time_of_a_turn_is_known_from_its_start() -> None:
    story = Story(posted=[user()])
    begun = TurnStarted(MessageId("m"), 1_769_860_680_000)
    said = story.tell(begun, TextDelta("Done."), answer_ended())
    assert said[0].data["started_at"] == "2026-01-31T11:58:00.000Z"
    assert said[0].data["usage"] is None
    story.end()
    assert story.turn("run_1.1")["started_at"] == said[0].data["started_at"]


def test_parts_of_a_message_are_blocks_of_text() -> None:
    parts = (
        TextPart("look"),
        MediaPart("image", "data:image/png;base64,AAAA", name="sky.png"),
        MediaPart("image", "https://example.org/a.png"),
        MediaPart("file", "data:text/plain;base64,AAAA", media_type="text/plain"),
        MediaPart("audio", "data:,"),
        DataPart({"a": 1}),
        TextPart(""),
    )
    [turn] = project([UserMessage(MessageId("u"), parts)])
    assert [block["content"] for block in turn["blocks"]] == [
        "look",
        "[image: sky.png]",
        "[image: https://example.org/a.png]",
        "[file: text/plain]",
        "[audio: attached]",
        '{"a": 1}',
    ]


def test_a_call_without_valid_arguments_has_none() -> None:
    story = Story(posted=[user()])
    story.tell(TURN, *call("c", arguments="{no"), resulted("c", is_error=True, synthetic="invalid"))
    [shown] = story.turn("run_1.1")["tool_calls"]
    assert (shown["arguments"], shown["status"]) == ("{}", "error")


def test_events_of_unknown_calls_and_of_other_protocols_are_left_out() -> None:
    story = Story(posted=[user()])
    said = story.tell(
        RunQueued(RUN.run_id),
        ToolCallArguments(CallId("x"), "{}"),
        ended("x"),
        resulted("x"),
        UsageReported(Usage(1, 1)),
        Compacted("snip", 2, 1),
    )
    assert said == []


def test_a_text_without_a_beginning_begins_a_turn() -> None:
    story = Story()
    assert names(story.tell(TextDelta("a"))) == ["turn:start", "add_content"]
    assert story.end()["status"] == "completed"


def test_an_answer_without_words_is_no_turn() -> None:
    story = Story(posted=[user()])
    assert story.tell(TURN, TURN) == []
    story.end()
    assert [*story.client.turns] == ["u"]


def test_a_thought_without_words_is_taken_back() -> None:
    story = Story(posted=[user()])
    story.tell(TURN, ReasoningDelta("hm"), TURN)
    story.tell(TURN)
    assert names(story.tell(RunFinished(Completed()))) == ["turn:start", "turn:end", "chat:end"]
    assert story.turn("run_1.1")["blocks"] == []
    assert story.turn("run_1.1")["status"] == "interrupted"


def test_the_next_answer_has_the_place_of_a_thought_without_words() -> None:
    story = Story(posted=[user()])
    story.tell(TURN, ReasoningDelta("hm"), TURN, TextDelta("a"))
    story.end()
    assert story.turn("run_1.1")["blocks"] == [{"type": "text", "content": "a"}]
    assert [*story.client.turns] == ["u", "run_1.1"]


# ---------------------------------------------------------------- how a chat ends
@pytest.mark.parametrize(
    ("outcome", "status", "reason", "turn_status"),
    [
        (Completed("max_turns"), "completed", "max_turns", "completed"),
        (Completed("refusal"), "completed", "completed", "completed"),
        (Completed("max_tokens"), "completed", "completed", "interrupted"),
        (Completed("budget"), "completed", "completed", "interrupted"),
        (Cancelled(), "interrupted", "completed", "interrupted"),
        (Failed("model_error", "gone"), "failed", "tool_error", "interrupted"),
        (Failed("output_invalid", "no"), "failed", "tool_error", "completed"),
    ],
)
def test_a_chat_ends_with_a_status_and_a_reason(
    outcome: Outcome, status: str, reason: str, turn_status: str
) -> None:
    story = Story(posted=[user()])
    story.tell(TURN, TextDelta("a"))
    end = story.end(outcome)
    assert (end["status"], end["finish_reason"]) == (status, reason)
    assert story.turn("run_1.1")["status"] == turn_status
    if isinstance(outcome, Failed):
        assert end["error"] == {"code": outcome.code, "message": outcome.message}
    else:
        assert "error" not in end


def test_an_answer_that_was_stopped_keeps_its_text_alone() -> None:
    story = Story(posted=[user()])
    story.tell(TURN, ReasoningDelta("hm"), TextDelta("a"), *call("c"))
    story.end(Cancelled())
    turn = story.turn("run_1.1")
    assert (turn["blocks"], turn["tool_calls"]) == ([{"type": "text", "content": "a"}], [])


def test_a_thought_that_was_stopped_is_taken_back() -> None:
    story = Story(posted=[user()])
    story.tell(TURN, ReasoningDelta("hm"))
    story.end(Cancelled())
    assert story.client.kept.keys() == {"u"}


def test_calls_of_a_run_that_was_stopped_are_cancelled() -> None:
    story = Story(posted=[user()])
    story.tell(TURN, *call("a"), *call("b", "paint", client=True), ended("a"))
    story.end(Cancelled())
    turn = story.turn("run_1.1")
    assert turn["status"] == "interrupted"
    assert [each["status"] for each in turn["tool_calls"]] == ["cancelled"] * 2


@pytest.mark.parametrize("outcome", [COMPLETED, Cancelled()])
def test_a_chat_may_end_before_its_first_turn(outcome: Outcome) -> None:
    story = Story(posted=[user()])
    assert names(story.tell(RunFinished(outcome))) == ["chat:end"]


def test_a_chat_that_never_began_has_a_beginning_and_an_end() -> None:
    turns = Turns()
    said = turns.feed(RUN, Logged(Position(1, 1), RunFinished(Cancelled())))
    assert names(said) == ["chat:start", "chat:end"]
    assert turns.snapshot() == []


# ---------------------------------------------------------------- the record
def test_an_imported_history_has_the_ids_of_its_messages() -> None:
    history: list[Message] = [
        SystemMessage(MessageId("s"), "Be brief.", imported=True),
        AssistantMessage(MessageId("a1"), "Hello.", imported=True),
        UserMessage(MessageId("u1"), "hi", imported=True),
        AssistantMessage(MessageId("a2"), "", (made("c"),), imported=True),
        answered("c", synthetic="unanswered", is_error=True),
        AssistantMessage(MessageId("a3"), ""),
    ]
    turns = project(history)
    assert [(turn["id"], turn["sequence"], turn["role"]) for turn in turns] == [
        ("s", 1, "system"),
        ("a1", 2, "assistant"),
        ("u1", 3, "user"),
        ("a2", 4, "assistant"),
    ]
    assert turns[3]["tool_calls"][0]["status"] == "cancelled"


def test_a_recorded_turn_has_its_times() -> None:
    message = AssistantMessage(
        MessageId("a"), "hi", run_id=RUN.run_id, started=1_769_860_680_000, duration=500
    )
    [turn] = project([message])
    assert (turn["started_at"], turn["duration_ms"]) == ("2026-01-31T11:58:00.000Z", 500)


def test_a_refused_draft_is_no_end() -> None:
    draft = AssistantMessage(MessageId("a"), "{", partial=True, run_id=RUN.run_id)
    refusal = SystemMessage(MessageId("s"), "no", synthetic="invalid", run_id=RUN.run_id)
    assert [turn["status"] for turn in project([user(), draft, refusal])] == ["completed"] * 2
    assert [turn["status"] for turn in project([user(), draft])] == ["completed", "interrupted"]
    assert project([refusal]) == []


def test_a_call_of_no_tool_is_not_shown() -> None:
    unknown = answered(
        "c", "Not executed: there is no tool named 'x'.", is_error=True, synthetic="invalid"
    )
    silent = AssistantMessage(MessageId("a"), "", (made("c", client=False),), run_id=RUN.run_id)
    last = AssistantMessage(MessageId("b"), "ok", run_id=RUN.run_id)
    assert [
        (turn["id"], turn["sequence"]) for turn in project([user(), silent, unknown, last])
    ] == [
        ("u", 1),
        ("run_1.1", 2),
    ]
    spoken = AssistantMessage(MessageId("a"), "hm", (made("c", client=False),), run_id=RUN.run_id)
    [_, turn] = project([user(), spoken, unknown])
    assert turn["tool_calls"] == []


async def test_the_record_is_read_back_to_the_last_message_of_the_user() -> None:
    runs = LoggedRuns()
    runs.known[RUN.key] = Status(1)
    answers = [AssistantMessage(MessageId(f"a{at}"), "hi") for at in range(150)]
    refusal = SystemMessage(MessageId("s"), "no", synthetic="invalid")
    runs.history = (user("u0"), user("u1"), refusal, *answers)
    turns = await read_turns_before(runs, RUN.key, 153)
    assert [turn["id"] for turn in turns.views] == ["u1", *(f"a{at}" for at in range(150))]
    assert turns.views[0]["sequence"] == 2
    runs.history = tuple(answers)
    turns = await read_turns_before(runs, RUN.key, 150)
    assert [turn["sequence"] for turn in turns.views] == [*range(1, 151)]
    assert (await read_turns_before(runs, RUN.key, 0)).views == []


async def test_messages_are_read_until_there_are_no_more() -> None:
    runs = LoggedRuns()
    runs.known[RUN.key] = Status(1)
    runs.history = (user("u0"), user("u1"))
    assert await read_range(runs, RUN.key, 1, 6) == runs.history[1:]
    assert await read_range(runs, RUN.key, 0, 0) == ()


def test_what_is_told_is_what_the_record_has() -> None:
    story = Story(posted=[user()])
    story.tell(TURN, ReasoningDelta("hm"), TextDelta("a"))
    story.end(Cancelled())
    partial = AssistantMessage(MessageId("m"), "a", partial=True, run_id=RUN.run_id)
    recorded = project([user(), partial])
    assert [*story.client.kept.values()] == recorded
