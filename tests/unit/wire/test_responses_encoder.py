"""Run events become the events of one response."""

from typing import Any

import pytest
from tests.unit.wire.responses_events import (
    RUN_ID,
    Json,
    added_up,
    broken,
    encoder,
    events_of,
    frames_of,
    items_of,
    log_of,
    note,
    numbers_of,
    play,
    streamed,
    texts_of,
    types_of,
)

from passback.core.events import (
    START,
    Cancelled,
    Compacted,
    Completed,
    ContextWarned,
    Cursor,
    Failed,
    HandedBack,
    Nested,
    Outcome,
    OutputAccepted,
    PlanUpdated,
    ReasoningDelta,
    RunEvent,
    RunFinished,
    RunQueued,
    RunStarted,
    StateChanged,
    TextDelta,
    ToolBegan,
    ToolCallArguments,
    ToolCallEnded,
    ToolCallStarted,
    ToolProgressed,
    ToolResulted,
    TurnEnded,
    TurnStarted,
    UsageReported,
)
from passback.core.messages import (
    CallId,
    DataPart,
    MediaPart,
    MessageId,
    Owed,
    PlanEntry,
    TextPart,
    ToolCall,
    Usage,
)
from passback.wire.responses.encoder import REFUSED
from passback.wire.responses.items import STOPPED

A, B, C = CallId("call_a"), CallId("call_b"), CallId("call_c")
BEGUN = RunStarted(RUN_ID)
TURN = TurnStarted(MessageId("msg_m"), 1_700_000_000_000)
WHOLE = TurnEnded(MessageId("msg_m"), duration=2500)
END = RunFinished(Completed())
HI = (BEGUN, TURN, TextDelta("hi"), WHOLE, END)
SCHEMA = note(
    text={"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}}},
)


def between(*events: RunEvent, **more: Any) -> list[Json]:
    """Return what comes between the beginning of a response and its end."""
    found = play(BEGUN, *events, END, **more)
    added_up(found)
    assert types_of(found)[:2] == ["created", "in_progress"]
    return found[2:-1]


def call(call_id: CallId, arguments: str = "{}", name: str = "look") -> tuple[RunEvent, ...]:
    """A call of the server's as the model makes it."""
    begun = ToolCallStarted(call_id, name, client=False)
    return (begun, ToolCallArguments(call_id, arguments), ToolCallEnded(call_id))


def owed(call_id: CallId = A, arguments: str = '{"a":1}', **more: Any) -> Owed:
    return Owed(call_id, more.pop("name", "paint"), arguments, **more)


# ---------------------------------------------------------------- texts
def test_a_text_is_a_message_with_one_part() -> None:
    found = play(*HI)
    assert types_of(found) == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    assert numbers_of(found) == list(range(9))
    at: Json = {"item_id": "msg_m", "output_index": 0, "content_index": 0}
    part: Json = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
    item: Json = {"id": "msg_m", "type": "message", "status": "in_progress", "role": "assistant"}
    whole = {**part, "text": "hi"}
    done = {**item, "status": "completed", "content": [whole]}
    assert [
        {k: v for k, v in each.items() if k not in {"type", "sequence_number"}}
        for each in found[2:-1]
    ] == [
        {"output_index": 0, "item": {**item, "content": []}},
        {**at, "part": part},
        {**at, "delta": "hi", "logprobs": []},
        {**at, "text": "hi", "logprobs": []},
        {**at, "part": whole},
        {"output_index": 0, "item": done},
    ]
    assert found[0]["response"] == {
        **note(),
        "id": "resp_1",
        "object": "response",
        "status": "in_progress",
        "completed_at": None,
        "error": None,
        "incomplete_details": None,
        "output": [],
        "usage": None,
    }
    assert found[-1]["response"] == {
        **found[0]["response"],
        "status": "completed",
        "completed_at": 1_700_000_002,
        "output": [done],
    }


def test_each_frame_is_two_lines_of_ascii_and_the_last_is_done() -> None:
    text = streamed(log_of(BEGUN, TURN, TextDelta('你\n"\u2028\\'), TextDelta("\r\x00"), END))
    assert text.isascii()
    assert all(frame.count("\n") == 1 for frame in frames_of(text)[:-1])
    [said] = texts_of(added_up(events_of(text)))
    assert said == '你\n"\u2028\\\r\x00'


def test_deltas_are_never_joined() -> None:
    deltas: list[RunEvent] = [TextDelta(each) for each in "hello"]
    found = play(BEGUN, TURN, *deltas, END)
    assert [each["delta"] for each in found if "delta" in each] == list("hello")


def test_what_each_turn_says_is_a_message() -> None:
    other = TurnStarted(MessageId("msg_n"))
    final = added_up(play(BEGUN, TURN, TextDelta("a"), WHOLE, other, TextDelta("b"), WHOLE, END))
    assert [each["id"] for each in final["output"]] == ["msg_m", "msg_n"]
    assert items_of(final) == [("message", "completed")] * 2


def test_a_turn_that_did_not_end_leaves_an_incomplete_message() -> None:
    other = TurnStarted(MessageId("msg_n"))
    final = added_up(play(BEGUN, TURN, TextDelta("a"), other, TextDelta("b"), WHOLE, END))
    assert items_of(final) == [("message", "incomplete"), ("message", "completed")]


def test_a_text_behind_the_thoughts_behind_a_text_has_an_id_of_its_own() -> None:
    said: list[RunEvent] = [
        TextDelta("a"),
        ReasoningDelta("x"),
        TextDelta("b"),
        ReasoningDelta("y"),
    ]
    final = added_up(play(BEGUN, TURN, *said, WHOLE, END))
    assert [each["id"] for each in final["output"]] == ["msg_m", "rs_m", "msg_m_2", "rs_m_2"]


def test_text_outside_a_turn_is_a_message_of_the_run() -> None:
    final = added_up(play(BEGUN, TextDelta("a"), END))
    assert [each["id"] for each in final["output"]] == ["msg_1"]


def test_thoughts_are_a_summary() -> None:
    found = between(TURN, ReasoningDelta("hm, "), ReasoningDelta("well"), WHOLE)
    assert types_of(found) == [
        "output_item.added",
        "reasoning_summary_part.added",
        *["reasoning_summary_text.delta"] * 2,
        "reasoning_summary_text.done",
        "reasoning_summary_part.done",
        "output_item.done",
    ]
    assert found[0]["item"] == {"id": "rs_m", "type": "reasoning", "summary": []}
    summary = {"type": "summary_text", "text": "hm, well"}
    assert found[-1]["item"] == {"id": "rs_m", "type": "reasoning", "summary": [summary]}
    at = {"item_id": "rs_m", "output_index": 0, "summary_index": 0}
    assert found[2].items() >= {**at, "delta": "hm, "}.items()


# ---------------------------------------------------------------- the client's calls
def test_a_call_of_the_client_is_shown_when_it_is_owed() -> None:
    begun = ToolCallStarted(A, "paint", client=True)
    pieces = (ToolCallArguments(A, '{"a"'), ToolCallArguments(A, ":1}"), WHOLE, ToolCallEnded(A))
    events = (BEGUN, TURN, TextDelta("so"), begun, *pieces, RunFinished(HandedBack((owed(),))))
    found = play(*events)
    assert types_of(found)[5:-1] == [
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
    ]
    item = {"id": "fc_a", "type": "function_call", "call_id": "call_a", "name": "paint"}
    assert found[8]["item"] == {**item, "status": "in_progress", "arguments": ""}
    assert found[10].items() >= {"name": "paint", "arguments": '{"a":1}'}.items()
    final = added_up(found)
    assert final["output"][1] == {**item, "status": "completed", "arguments": '{"a":1}'}
    assert final["status"] == "completed"


def test_calls_come_one_after_the_other() -> None:
    calls = tuple(owed(each) for each in (A, B, C))
    found = play(BEGUN, TURN, RunFinished(HandedBack(calls)))
    assert items_of(added_up(found)) == [("function_call", "completed")] * 3
    assert [each["output_index"] for each in found[2:-1]] == [n for n in range(3) for _ in range(4)]


@pytest.mark.parametrize("outcome", [Completed(), Failed("internal", "no"), Cancelled()])
def test_a_call_that_comes_to_nothing_is_never_shown(outcome: Outcome) -> None:
    begun = ToolCallStarted(A, "paint", client=True)
    refused = ToolResulted(A, "wrong", True, "invalid")
    final = added_up(
        play(BEGUN, TURN, begun, ToolCallArguments(A, "{"), refused, RunFinished(outcome))
    )
    assert final["output"] == []


def test_an_approval_is_asked_for_with_the_tool_of_its_server() -> None:
    asked = (owed(A, "{}", name="git__push", kind="approval"), owed(B, name="rm", kind="approval"))
    found = play(BEGUN, TURN, RunFinished(HandedBack(asked)), mcp_servers=["git"])
    request = {"id": "call_a", "type": "mcp_approval_request", "server_label": "git"}
    final = added_up(found)
    assert final["output"][0] == {**request, "name": "push", "arguments": "{}"}
    assert final["output"][1]["server_label"] == "server"
    assert types_of(found)[2:4] == ["output_item.added", "output_item.done"]


def test_a_question_is_a_call() -> None:
    asked = owed(A, '{"questions":[]}', name="ask_user", kind="question")
    final = added_up(play(BEGUN, TURN, RunFinished(HandedBack((asked,)))))
    assert items_of(final) == [("function_call", "completed")]


# ---------------------------------------------------------------- the server's calls
def test_a_call_of_the_server_is_shown_while_it_works() -> None:
    events = (TURN, *call(A, '{"at":1}'), WHOLE, ToolBegan(A), ToolProgressed(A, "half"))
    found = between(*events, ToolResulted(A, "seen"))
    assert types_of(found) == [
        "output_item.added",
        "mcp_call.in_progress",
        "mcp_call_arguments.delta",
        "mcp_call_arguments.done",
        "mcp_call.completed",
        "output_item.done",
    ]
    item = {
        "id": "mcp_a",
        "type": "mcp_call",
        "server_label": "server",
        "name": "look",
        "approval_request_id": None,
        "error": None,
    }
    assert found[0]["item"] == {**item, "status": "in_progress", "arguments": "", "output": None}
    assert found[-1]["item"] == {
        **item,
        "status": "completed",
        "arguments": '{"at":1}',
        "output": "seen",
    }


def test_a_failed_call_has_an_error() -> None:
    found = between(TURN, *call(A), ToolBegan(A), ToolResulted(A, "broken", True))
    assert types_of(found)[-2:] == ["mcp_call.failed", "output_item.done"]
    item = found[-1]["item"]
    assert (item["status"], item["error"], item["output"]) == ("failed", broken("broken"), None)


def test_a_denied_call_is_shown_with_its_refusal() -> None:
    found = between(TURN, *call(A), ToolResulted(A, "no", True, "denied"))
    assert found[-1]["item"]["error"] == broken("no")


def test_a_call_of_the_server_that_was_invalid_is_not_shown() -> None:
    assert between(TURN, *call(A, "{"), ToolResulted(A, "wrong", True, "invalid")) == []


def test_a_call_that_began_is_shown_whatever_became_of_it() -> None:
    found = between(TURN, *call(A), ToolBegan(A), ToolResulted(A, "wrong", True, "invalid"))
    assert found[-1]["item"]["status"] == "failed"


def test_a_result_of_parts_is_one_text() -> None:
    parts = (TextPart("a"), DataPart({"b": 1}), MediaPart("image", "https://x.test/i.png"))
    found = between(TURN, *call(A), ToolResulted(A, parts))
    assert found[-1]["item"]["output"] == 'a\n{"b": 1}\n[image]'


def test_calls_at_once_are_never_mixed() -> None:
    made = (*call(A), *call(B), *call(C))
    began = (ToolBegan(A), ToolBegan(B), ToolBegan(C))
    results = (ToolResulted(C, "c"), ToolResulted(A, "a"), ToolResulted(B, "b"))
    found = between(TURN, TextDelta("so"), *made, WHOLE, *began, *results)
    done = [each["item"] for each in found if each["type"] == "response.output_item.done"]
    assert [(each["id"], each.get("output")) for each in done] == [
        ("msg_m", None),
        ("mcp_a", "a"),
        ("mcp_c", "c"),
        ("mcp_b", "b"),
    ]


@pytest.mark.parametrize(
    ("outcome", "status"), [(Cancelled(), "cancelled"), (Failed("lost", "gone"), "failed")]
)
def test_a_call_that_is_stopped_ends_and_shows_those_behind_it(
    outcome: Outcome, status: str
) -> None:
    began = (*call(A), *call(B), ToolBegan(A), ToolBegan(B), ToolResulted(B, "b"))
    final = added_up(play(BEGUN, TURN, *began, RunFinished(outcome)))
    assert final["status"] == status
    assert [(each["id"], each["output"], each["error"]) for each in final["output"]] == [
        ("mcp_a", None, broken(STOPPED)),
        ("mcp_b", "b", None),
    ]


def test_a_call_whose_sub_agent_waits_for_the_client_is_incomplete() -> None:
    events = (BEGUN, TURN, *call(A), ToolBegan(A), RunFinished(HandedBack((owed(B),))))
    final = added_up(play(*events))
    assert items_of(final) == [("mcp_call", "incomplete"), ("function_call", "completed")]


def test_an_approved_call_of_an_earlier_run_has_its_name() -> None:
    known = {
        A: ToolCall(A, "git__push", '{"to":1}'),
        B: ToolCall(B, "paint", "{}", client=True),
    }
    events = (ToolBegan(A), ToolCallEnded(A), ToolResulted(A, "done"), ToolResulted(B, "late"))
    found = between(*events, known=known, mcp_servers=("git",))
    [item] = [each["item"] for each in found if each["type"] == "response.output_item.done"]
    assert (item["server_label"], item["name"], item["arguments"]) == ("git", "push", '{"to":1}')


def test_what_has_no_item_is_not_shown() -> None:
    inner = Nested(A, TextDelta("secret"))
    more = (PlanUpdated((PlanEntry("x"),)), StateChanged({"a": 1}), ToolBegan(C))
    assert between(inner, *more, ContextWarned(1, 2), Compacted("snip", 2, 1)) == []


# ---------------------------------------------------------------- structured output
def test_a_draft_is_held_until_it_is_accepted() -> None:
    draft = (TURN, TextDelta("not "), TextDelta("json"), WHOLE)
    again = (TurnStarted(MessageId("msg_n")), TextDelta('```json\n{"a": 1}\n```'), WHOLE)
    events = (BEGUN, *draft, *again, OutputAccepted({"a": 1}), END)
    for end in range(1, len(events)):
        assert "output_text" not in streamed(log_of(*events[:end]), note=SCHEMA)
    final = added_up(play(*events, note=SCHEMA))
    assert texts_of(final) == ['{"a":1}']
    assert final["output"][0]["id"] == "msg_n"
    assert final["text"]["format"]["type"] == "json_schema"


def test_thoughts_about_a_draft_are_shown() -> None:
    found = play(BEGUN, TURN, ReasoningDelta("hm"), TextDelta("no"), WHOLE, note=SCHEMA)
    assert types_of(found)[-1] == "reasoning_summary_text.delta"


def test_what_no_schema_was_applied_to_is_shown_at_the_end() -> None:
    """A command's answer, and that to outputs whose question had no schema."""
    events = (BEGUN, TURN, TextDelta("these are "), TextDelta("my commands"), WHOLE, END)
    assert texts_of(added_up(play(*events, note=SCHEMA))) == ["these are my commands"]


@pytest.mark.parametrize(
    "outcome",
    [
        Cancelled(),
        Failed("output_invalid", "never"),
        Completed("max_turns"),
        Completed("budget"),
        HandedBack((owed(),)),
    ],
)
def test_a_draft_that_was_not_accepted_is_no_message(outcome: Outcome) -> None:
    events = (BEGUN, TURN, TextDelta("draft"), WHOLE, RunFinished(outcome))
    assert texts_of(added_up(play(*events, note=SCHEMA))) == []


def test_an_accepted_answer_that_was_shown_is_not_shown_twice() -> None:
    """The agent has a schema of its own."""
    events = (BEGUN, TURN, TextDelta('{"a": 1}'), WHOLE, OutputAccepted({"a": 1}), END)
    assert texts_of(added_up(play(*events))) == ['{"a": 1}']


@pytest.mark.parametrize("form", [{"type": "json_object"}, SCHEMA["text"]["format"]])
def test_a_held_text_counts_for_the_length(form: Json) -> None:
    held = note(text={"format": form})
    found = play(BEGUN, TURN, TextDelta("long"), END, note=held, most=3)
    assert added_up(found)["error"]["code"] == "cursor_expired"


# ---------------------------------------------------------------- ends
def test_a_refusal_is_a_part_of_its_own() -> None:
    found = play(BEGUN, TURN, RunFinished(Completed("refusal")))
    assert types_of(found)[2:] == [
        "output_item.added",
        "content_part.added",
        "refusal.delta",
        "refusal.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    final = added_up(found)
    assert final["output"][0]["content"] == [{"type": "refusal", "refusal": REFUSED}]
    assert final["output"][0]["id"] == "msg_1"


@pytest.mark.parametrize(
    ("said", "asked", "texts", "refusals"),
    [
        ((TextDelta("I will not."),), note(), ["I will not."], []),
        ((TextDelta("I will not."),), SCHEMA, [], ["I will not."]),
        ((ReasoningDelta("hm"),), note(), [], [REFUSED]),
        ((TextDelta("a"), WHOLE, TURN), note(), ["a"], [REFUSED]),
    ],
)
def test_the_models_own_words_of_refusal_are_kept(
    said: tuple[RunEvent, ...], asked: Json, texts: list[str], refusals: list[str]
) -> None:
    found = play(BEGUN, TURN, *said, RunFinished(Completed("refusal")), note=asked)
    final = added_up(found)
    assert (texts_of(final), texts_of(final, "refusal")) == (texts, refusals)
    assert final["status"] == "completed"


@pytest.mark.parametrize(
    ("outcome", "last", "status", "reason"),
    [
        (Completed(), "completed", "completed", None),
        (Completed("max_tokens"), "incomplete", "incomplete", "max_output_tokens"),
        (Completed("max_turns"), "incomplete", "incomplete", "max_turns"),
        (Completed("budget"), "incomplete", "incomplete", "budget"),
        (Cancelled(), "incomplete", "cancelled", None),
        (Failed("internal", "no"), "failed", "failed", None),
        (HandedBack(()), "completed", "completed", None),
    ],
)
def test_each_outcome_has_its_last_event(
    outcome: Outcome, last: str, status: str, reason: str | None
) -> None:
    found = play(BEGUN, TURN, TextDelta("hi"), WHOLE, RunFinished(outcome))
    final = added_up(found)
    assert types_of(found)[-1] == last
    assert final["status"] == status
    assert final["incomplete_details"] == (None if reason is None else {"reason": reason})
    assert (final["completed_at"] is not None) == (status == "completed")
    whole = status == "completed" or reason in {"max_turns", "budget"}
    assert items_of(final) == [("message", "completed" if whole else "incomplete")]


@pytest.mark.parametrize(
    ("code", "shown", "kind"),
    [
        ("model_unavailable", "model_unavailable", "model_error"),
        ("model_rate_limited", "rate_limit_exceeded", "too_many_requests"),
        ("model_context_exceeded", "context_length_exceeded", "invalid_request_error"),
        ("lost", "server_error", "server_error"),
        ("internal", "server_error", "server_error"),
        ("what is this", "what is this", "invalid_request_error"),
    ],
)
def test_an_error_has_the_protocols_code(code: str, shown: str, kind: str) -> None:
    final = added_up(play(BEGUN, RunFinished(Failed(code, "words"))))
    assert final["error"] == {"code": shown, "message": "words", "type": kind, "param": None}


def test_a_run_that_waits_is_queued() -> None:
    found = play(RunQueued(RUN_ID), *HI)
    assert types_of(found)[:3] == ["created", "queued", "in_progress"]
    assert [each["response"]["status"] for each in found[:3]] == ["queued"] * 2 + ["in_progress"]
    assert numbers_of(found) == list(range(len(found)))
    added_up(found)


def test_a_run_that_never_began_has_a_beginning_and_an_end() -> None:
    assert types_of(play(RunFinished(Cancelled()))) == ["created", "incomplete"]


@pytest.mark.parametrize("kind", [TextDelta, ReasoningDelta])
def test_a_response_that_is_too_long_fails(kind: type[TextDelta | ReasoningDelta]) -> None:
    found = play(BEGUN, TURN, kind("abc"), kind("d"), kind("e"), END, most=4)
    final = added_up(found)
    assert (final["status"], final["error"]["code"]) == ("failed", "cursor_expired")
    assert [each["delta"] for each in found if "delta" in each] == ["abc", "d"]


# ---------------------------------------------------------------- usage
def test_the_usage_of_all_turns_and_sub_agents_is_reported_at_the_end() -> None:
    reports = (
        UsageReported(Usage(7, 3, 2, 1)),
        Nested(A, Nested(B, UsageReported(Usage(10, 20)))),
        UsageReported(Usage(100, 200, estimated=True)),
    )
    final = added_up(play(BEGUN, TURN, *reports, END))
    assert final["usage"] == {
        "input_tokens": 117,
        "input_tokens_details": {"cached_tokens": 2, "cache_write_tokens": 0},
        "output_tokens": 223,
        "output_tokens_details": {"reasoning_tokens": 1},
        "total_tokens": 340,
    }


def test_a_usage_of_nothing_is_none() -> None:
    assert added_up(play(BEGUN, UsageReported(Usage()), END))["usage"] is None


# ---------------------------------------------------------------- documents
def test_the_document_is_the_last_response() -> None:
    one = encoder()
    for event in HI:
        one.feed(event)
    assert one.document(Cursor(RUN_ID, START)) == added_up(play(*HI))
    assert one.chars == 2


def test_the_document_of_a_failed_run_is_its_failure() -> None:
    one, failed = encoder(), Failed("internal", "no")
    one.feed(RunFinished(failed))
    assert one.document(Cursor(RUN_ID, START)) == failed


def test_a_named_conversation_is_repeated() -> None:
    named = {**note(), "conversation": {"id": "c"}}
    found = play(*HI, note=named)
    assert all(each["response"]["conversation"] == {"id": "c"} for each in found[:2])
    added_up(found)
