"""Turns of the chat socket, from events that a test writes."""

from collections.abc import Sequence
from itertools import count
from typing import Any

import pytest
from tests.support.logged_runs import RUN, LoggedRuns
from tests.unit.wire.chat_client import ChatClient, timeless

from passback.core.changes import Status
from passback.core.errors import InvalidCursor
from passback.core.events import (
    Cancelled,
    Compacted,
    Completed,
    Failed,
    HandedBack,
    Logged,
    Nested,
    Outcome,
    Position,
    ReasoningDelta,
    RunEvent,
    RunFinished,
    RunQueued,
    RunStarted,
    TextDelta,
    ToolCallArguments,
    ToolCallEnded,
    ToolCallStarted,
    ToolResulted,
    TurnStarted,
    UsageReported,
)
from passback.core.messages import (
    ApprovalMessage,
    AssistantMessage,
    CallId,
    ChildMessage,
    DataPart,
    MediaPart,
    Message,
    MessageId,
    Owed,
    RunId,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)
from passback.wire.chat.history import project, read_messages, read_turns_before
from passback.wire.chat.projections import JsonDict
from passback.wire.chat.said import Said, join_said, number_of, position_of
from passback.wire.chat.turns import Turns

pytestmark = pytest.mark.anyio

TURN = TurnStarted(MessageId("m"))
COMPLETED = Completed()
ASK = '{"questions":[{"question":"Which?","options":[{"label":"a","description":"A"},{"label":"b"}]}]}'
ASKED = (
    '{"questions": [{"question": "Which?", "options": [{"label": "a", "description": "A"}, '
    '{"label": "b"}], "multiSelect": false}], "source_loop": %s}'
)


def user(message_id: str = "u", text: str = "hi", **fields: Any) -> UserMessage:
    return UserMessage(MessageId(message_id), text, run_id=RUN.run_id, **fields)


class Story:
    """A run that is told as it goes."""

    def __init__(
        self, *messages: Message, posted: Sequence[Message] = (), first: int | None = None
    ) -> None:
        self.turns = Turns(messages)
        self.client = ChatClient(self.turns.views)
        self.epoch, self.seqs = 1, count(1)
        self.said: list[Said] = []
        first = len(messages) if first is None else first
        self.tell(RunStarted(RUN.run_id, first, len(posted)), posted=posted)

    def tell(self, *events: RunEvent, posted: Sequence[Message] = ()) -> list[Said]:
        said: list[Said] = []
        for event in events:
            position = Position(self.epoch, next(self.seqs))
            said += self.turns.feed(RUN, Logged(position, event), posted)
        self.client.take(said)
        self.said += said
        return said

    def end(self, outcome: Outcome = COMPLETED) -> JsonDict:
        self.tell(RunFinished(outcome))
        return self.client.ends[-1]

    def turn(self, turn_id: str) -> JsonDict:
        return self.client.turns[turn_id]


def names(said: Sequence[Said]) -> list[str]:
    return [each.data.get("patch_type", each.name) for each in said]


def call(call_id: str, name: str = "look", arguments: str = "{}", **kind: Any) -> list[RunEvent]:
    started = ToolCallStarted(CallId(call_id), name, kind.pop("client", False), **kind)
    return [started, ToolCallArguments(CallId(call_id), arguments)]


def ended(call_id: str) -> ToolCallEnded:
    return ToolCallEnded(CallId(call_id))


def resulted(call_id: str, text: str = "seen", **fields: Any) -> ToolResulted:
    return ToolResulted(CallId(call_id), text, **fields)


def nested(path: str, *events: RunEvent) -> list[RunEvent]:
    made = list(events)
    for call_id in reversed(path.split()):
        made = [Nested(CallId(call_id), event) for event in made]
    return made


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
    story.tell(UsageReported(Usage(5, 2), model="m", window=100), ended("c"), resulted("c"))
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
    shown = ("sequence", "model", "usage", "context_window", "status")
    assert [first[name] for name in shown] == [
        2,
        "m",
        {"input_tokens": 5, "output_tokens": 2},
        100,
        "completed",
    ]
    assert [second[name] for name in shown] == [3, None, None, 0, "completed"]


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


# ---------------------------------------------------------------- what the client owes
def owed(call_id: str, kind: Any = "tool_result", parent: str | None = None) -> Owed:
    return Owed(CallId(call_id), "x", "{}", kind, parent_id=CallId(parent) if parent else None)


def test_calls_wait_for_the_client() -> None:
    story = Story(posted=[user()])
    story.tell(TURN, *call("a", "paint", client=True), *call("b", "ask_user", ASK, client=True))
    story.tell(*call("c", "erase"), ended("a"), ended("b"))
    end = story.end(
        HandedBack((owed("a"), owed("b", "question"), owed("c", "approval"), owed("z")))
    )
    assert (end["status"], end["finish_reason"]) == ("completed", "awaiting_answer")
    assert end["pending_tool_call_ids"] == ["a", "b", "c", "z"]
    turn = story.turn("run_1.1")
    assert turn["status"] == "paused"
    assert [(each["tool_name"], each["status"]) for each in turn["tool_calls"]] == [
        ("paint", "awaiting_result"),
        ("AskUserQuestion", "awaiting_answer"),
        ("erase", "awaiting_answer"),
    ]
    assert turn["tool_calls"][1]["arguments"] == ASKED % "null"
    assert turn["tool_calls"][1]["display_name"] == "AskUserQuestion"


def test_a_call_before_one_of_the_server_is_pending_until_it_is_handed_back() -> None:
    story = Story(posted=[user()])
    story.tell(TURN, *call("a", "paint", client=True), *call("b"), ended("b"), resulted("b"))
    assert story.turn("run_1.1")["tool_calls"][0]["status"] == "pending"
    assert names(story.tell(RunFinished(HandedBack((owed("a"),))))) == [
        "set_tool_status",
        "turn:end",
        "chat:end",
    ]
    assert story.turn("run_1.1")["tool_calls"][0]["status"] == "awaiting_result"


def paused(*calls: ToolCall, run_id: str = "run_0") -> AssistantMessage:
    return AssistantMessage(MessageId("a"), "", calls, run_id=RunId(run_id))


def made(call_id: str, name: str = "paint", **fields: Any) -> ToolCall:
    return ToolCall(CallId(call_id), name, "{}", client=fields.pop("client", True), **fields)


def answered(call_id: str, text: str = "done", **fields: Any) -> ToolMessage:
    return ToolMessage(MessageId(f"t_{call_id}"), CallId(call_id), text, **fields)


EARLIER = UserMessage(MessageId("u0"), "go", run_id=RunId("run_0"))


def test_answers_are_patches_of_the_turn_that_asked() -> None:
    erase = made("c", "erase", client=False, asks="approval")
    before: list[Message] = [EARLIER, paused(made("a"), made("b"), erase)]
    yes = ApprovalMessage(MessageId("y"), CallId("c"), approved=True)
    posted: list[Message] = [
        answered("b", run_id=RunId("run_0")),  # told by the run before
        answered("a", run_id=RUN.run_id),
        yes,
        answered("zz"),
        ApprovalMessage(MessageId("y2"), CallId("a"), approved=True),  # it is answered
    ]
    story = Story(*before, posted=posted)
    assert names(story.said) == ["chat:start", "tool_result", "set_tool_status"]
    assert story.said[-1].data["sequence"] == story.said[-1].number
    assert names(story.tell(ended("c"), resulted("c", "erased"))) == ["tool_result", "set_status"]
    turn = story.turn("run_0.1")
    assert turn["status"] == "completed"
    assert [each.get("result") for each in turn["tool_calls"]] == ["done", None, "erased"]
    assert story.tell(resulted("c", "again")) == []


def test_a_denial_is_an_error_and_a_skipped_call_cancelled() -> None:
    before: list[Message] = [EARLIER, paused(made("a", asks="approval"), made("b"))]
    no = ApprovalMessage(MessageId("n"), CallId("a"), approved=False)
    posted: list[Message] = [
        no,
        answered("a", "no", is_error=True, synthetic="denied"),
        answered("b", "skipped", is_error=True, synthetic="superseded"),
        user("u1"),
    ]
    story = Story(*before, posted=posted)
    assert [each["status"] for each in story.turn("run_0.1")["tool_calls"]] == [
        "error",
        "cancelled",
    ]
    assert names(story.said)[-2:] == ["turn:start", "turn:end"]
    assert story.turn("u1")["sequence"] == 6


def test_a_message_of_a_run_that_came_to_nothing_is_told_once() -> None:
    earlier = UserMessage(MessageId("u0"), "go", run_id=RunId("run_0"))
    fresh, known = (
        Story(posted=[earlier, user()]),
        Story(earlier, posted=[earlier, user()], first=0),
    )
    assert fresh.said == known.said
    assert [each.data["id"] for each in fresh.said if each.name == "turn:end"] == ["u"]


# ---------------------------------------------------------------- sub-agents
def helper_asks(story: Story) -> None:
    story.tell(TURN, *call("h", "helper", '{"task": "find it"}'), ended("h"))
    story.tell(*nested("h", TURN, TextDelta("I ask."), *call("i", "inner"), ended("i")))
    story.tell(*nested("h i", TURN, *call("q", "ask_user", ASK, client=True), ended("q")))


def test_turns_of_sub_agents_have_the_nearest_call_as_their_parent() -> None:
    story = Story(posted=[user()])
    helper_asks(story)
    story.end(HandedBack((owed("q", "question", "i"),)))
    shown = {
        turn["id"]: (turn["loop_id"], turn["parent_fork_tool_call_id"], turn["sequence"])
        for turn in story.client.turns.values()
    }
    assert shown == {
        "u": ("root", None, 1),
        "run_1.1": ("root", None, 2),
        "run_1.h.1": ("h", "h", 1),
        "run_1.i.1": ("i", "i", 1),
    }
    question = story.turn("run_1.i.1")["tool_calls"][0]
    assert question["arguments"] == ASKED % '{"loop_name": "inner", "description": ""}'
    for turn_id in ("run_1.1", "run_1.h.1"):
        [above] = story.turn(turn_id)["tool_calls"]
        assert above["status"] == "awaiting_answer"
        assert above["pending_question_ref"] == {
            "child_loop_name": "inner",
            "child_tool_call_id": "q",
            "description": "",
        }
        assert story.turn(turn_id)["status"] == "paused"


def test_a_question_that_is_answered_bubbles_up_no_longer() -> None:
    task = '{"task": "find it"}'
    question = ToolCall(CallId("q"), "ask_user", ASK, client=True, asks="question")
    asking = AssistantMessage(MessageId("b"), "", (question, made("p")), run_id=RunId("run_0"))
    above = ToolCall(CallId("h"), "helper", task)
    before: list[Message] = [EARLIER, paused(above), ChildMessage(CallId("h"), asking)]
    answers = [ChildMessage(CallId("h"), answered(each, run_id=RUN.run_id)) for each in "qp"]
    assert project(before)[1]["tool_calls"][0]["pending_question_ref"] == {
        "child_loop_name": "helper",
        "child_tool_call_id": "q",
        "description": "find it",
    }
    story = Story(*before, posted=answers)
    [call_above] = story.turn("run_0.1")["tool_calls"]
    assert (call_above["status"], "pending_question_ref" in call_above) == ("pending", False)
    assert story.turn("run_0.h.1")["status"] == "completed"
    story.tell(*nested("h", TURN, TextDelta("found")), resulted("h", "found"))
    assert story.turn("run_1.h.1")["sequence"] == 2
    assert story.turn("run_0.1")["status"] == "completed"


@pytest.mark.parametrize(
    ("result", "kept"),
    [
        (resulted("h", "found"), True),
        (resulted("h", "The agent failed: gone", is_error=True), False),
        (resulted("h", "found\n[The agent was stopped before its end.]", is_error=True), True),
        (resulted("h", "stopped", is_error=True, synthetic="interrupted"), False),
    ],
)
def test_the_last_words_of_a_sub_agent_that_failed_are_void(
    result: ToolResulted, kept: bool
) -> None:
    story = Story(posted=[user()])
    story.tell(TURN, *call("h", "helper"), ended("h"), *nested("h", TURN, TextDelta("fou")), result)
    assert story.turn("run_1.h.1")["blocks"] == (
        [{"type": "text", "content": "fou"}] if kept else []
    )


def test_a_call_below_one_that_is_closed_is_cancelled() -> None:
    story = Story(posted=[user()])
    helper_asks(story)
    story.tell(*nested("h", *call("j"), ended("j"), *call("k"), ended("k"), resulted("k")))
    story.end(Cancelled())
    assert story.turn("run_1.h.1")["status"] == "interrupted"
    assert "run_1.i.1" not in story.client.turns  # its answer was not in the record yet
    statuses = [each["status"] for each in story.turn("run_1.h.1")["tool_calls"]]
    assert statuses == ["cancelled", "cancelled", "done"]
    skipped: list[Message] = [answered("h", is_error=True, synthetic="superseded"), user("u1")]
    before: list[Message] = [
        EARLIER,
        paused(made("h", "helper", client=False)),
        ChildMessage(CallId("h"), paused(made("q"))),
    ]
    turns = {turn["id"]: turn for turn in project([*before, *skipped])}
    assert turns["run_0.h.1"]["status"] == "completed"
    assert turns["run_0.h.1"]["tool_calls"][0]["status"] == "cancelled"


def test_the_first_of_several_questions_bubbles_up() -> None:
    story = Story(posted=[user()])
    helper_asks(story)
    story.tell(*nested("h i", *call("r", "ask_user", ASK, client=True), ended("r")))
    story.end(HandedBack((owed("q", "question", "i"), owed("r", "question", "i"))))
    [above] = story.turn("run_1.1")["tool_calls"]
    assert above["pending_question_ref"]["child_tool_call_id"] == "q"


def test_a_sub_agent_that_says_nothing_has_no_turn() -> None:
    story = Story(posted=[user()])
    story.tell(TURN, *call("h", "helper"), ended("h"))
    story.tell(*nested("h", UsageReported(Usage(1, 1))), resulted("h", "nothing"))
    assert names(story.tell(RunFinished(COMPLETED))) == ["turn:end", "chat:end"]
    assert [*story.client.turns] == ["u", "run_1.1"]


# ---------------------------------------------------------------- take-overs and late clients
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
    story.client.take(said)
    assert story.client.kept == fresh.client.kept
    story.epoch, story.seqs = 2, count(2)
    story.tell(TURN, TextDelta("anew"))
    story.end()
    assert position_of(story.said[-1].number).epoch == 2


def test_a_client_whose_cursor_is_void_is_told_the_run_anew() -> None:
    story, fresh = taken_over(KEPT, [*VOID, resulted("h"), TURN, TextDelta("b")])
    said = fresh.turns.restate(Position(2, 1))
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
        MessageId("a"), "hi", run_id=RUN.run_id, created=1_769_860_680_500, duration=500
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
    assert await read_messages(runs, RUN.key, 1, 5) == runs.history[1:]
    assert await read_messages(runs, RUN.key, 0, 0) == ()


def test_what_is_told_is_what_the_record_has() -> None:
    story = Story(posted=[user()])
    story.tell(TURN, ReasoningDelta("hm"), TextDelta("a"))
    story.end(Cancelled())
    partial = AssistantMessage(MessageId("m"), "a", partial=True, run_id=RUN.run_id)
    recorded = project([user(), partial])
    assert [*story.client.kept.values()] == [*map(timeless, recorded)]
