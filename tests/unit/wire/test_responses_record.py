"""A response as the record has it, and the items of its request."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.support.logged_runs import RUN, LoggedRuns
from tests.unit.wire.responses_events import FIELDS, Json, broken, items_of, note, texts_of

from passback.core.changes import RunRecord, Status
from passback.core.events import Cancelled, Completed, Failed, HandedBack, Outcome
from passback.core.messages import (
    ApprovalMessage,
    AssistantMessage,
    CallId,
    ChildMessage,
    Content,
    DataPart,
    MediaPart,
    Message,
    MessageId,
    Owed,
    Reasoning,
    RunId,
    Synthetic,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)
from passback.wire.responses.encoder import REFUSED
from passback.wire.responses.record import RecordedRun, input_items, read_run, recorded_response

pytestmark = pytest.mark.anyio

A, B = CallId("call_a"), CallId("call_b")
ASKED = UserMessage(MessageId("u"), "go")
SCHEMA = note(
    text={"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}}},
)
EARLIER = RunId("run_0")


def turn(content: Content, *calls: ToolCall, message_id: str = "msg_m") -> AssistantMessage:
    return AssistantMessage(MessageId(message_id), content, calls)


def result(call_id: CallId, content: Content = "seen") -> ToolMessage:
    return ToolMessage(MessageId(f"t_{call_id}"), call_id, content)


def of_run(run_id: RunId, messages: Sequence[Message]) -> list[Message]:
    found: list[Message] = []
    for each in messages:
        assert not isinstance(each, ChildMessage)
        found.append(replace(each, run_id=run_id))
    return found


async def found(
    *messages: Message, outcome: Outcome | None = None, before: tuple[Message, ...] = ()
) -> RecordedRun:
    """Read a run whose messages are these, behind those of an earlier run."""
    runs = LoggedRuns()
    runs.history = (*of_run(EARLIER, before), *of_run(RUN.run_id, messages))
    runs.known[RUN.key] = Status(1, RUN.run_id, message_count=len(runs.history))
    runs.records[RUN.run_id] = RunRecord(outcome=outcome or Completed(), usage=Usage(1, 2))
    return await read_run(runs, RUN)


async def shown(*messages: Message, asked: Json | None = None, **more: object) -> Json:
    one = await found(*messages, **more)  # type: ignore[arg-type]
    return recorded_response(one, note() if asked is None else asked, ("git",))


# ---------------------------------------------------------------- output
async def test_a_turn_is_its_thoughts_its_text_and_its_calls() -> None:
    said = replace(
        turn("so", ToolCall(A, "git__log", '{"n":1}'), ToolCall(B, "paint", "{}", client=True)),
        reasoning=(Reasoning("hm, ", "x"), Reasoning("well", "x")),
        started=1_700_000_000_000,
        duration=2500,
    )
    owed = HandedBack((Owed(B, "paint", "{}"),))
    response = await shown(ASKED, said, result(A), outcome=owed)
    assert [each["id"] for each in response["output"]] == ["rs_m", "msg_m", "mcp_a", "fc_b"]
    thoughts, text, server, client = response["output"]
    assert thoughts["summary"] == [{"type": "summary_text", "text": "hm, well"}]
    assert text["content"][0]["text"] == "so"
    assert (server["server_label"], server["name"], server["output"]) == ("git", "log", "seen")
    assert (client["call_id"], client["arguments"]) == ("call_b", "{}")
    assert (response["status"], response["completed_at"]) == ("completed", 1_700_000_002)
    assert response["usage"]["total_tokens"] == 3
    assert response.keys() == FIELDS


async def test_an_approval_is_asked_for() -> None:
    asked = HandedBack((Owed(A, "rm", "{}", kind="approval"),))
    response = await shown(ASKED, turn("", ToolCall(A, "rm", "{}", asks="approval")), outcome=asked)
    assert items_of(response) == [("mcp_approval_request", "")]


async def test_an_approved_call_was_made_by_an_earlier_run() -> None:
    before = (ASKED, turn("", ToolCall(A, "rm", '{"f":1}', asks="approval"), message_id="msg_b"))
    own = (ApprovalMessage(MessageId("yes"), A, True), result(A, "gone"), turn("done"))
    response = await shown(*own, before=before)
    assert items_of(response) == [("mcp_call", "completed"), ("message", "completed")]
    assert response["output"][0]["arguments"] == '{"f":1}'


@pytest.mark.parametrize("between", [50, 150, 250])
async def test_the_call_is_found_however_many_messages_are_between(between: int) -> None:
    before = (turn("", ToolCall(A, "rm", "{}")), *[ASKED] * between)
    response = await shown(result(A), turn("done"), before=before)
    assert [each["type"] for each in response["output"]] == ["mcp_call", "message"]


async def test_what_was_no_call_is_not_shown() -> None:
    made = turn("", ToolCall(A, "look", "{}"), ToolCall(B, "paint", "{}", client=True))
    invalid = replace(result(A), synthetic="invalid", is_error=True)
    refused = replace(result(B), synthetic="invalid", is_error=True)
    unknown = result(CallId("call_c"))
    assert (await shown(ASKED, made, invalid, refused, unknown))["output"] == []


@pytest.mark.parametrize("synthetic", ["superseded", "timeout"])
async def test_a_call_that_nobody_approved_is_not_shown(synthetic: Synthetic) -> None:
    before = (turn("", ToolCall(A, "rm", "{}", asks="approval")),)
    closed = replace(result(A), synthetic=synthetic, is_error=True)
    response = await shown(closed, ASKED, turn("well"), before=before)
    assert items_of(response) == [("message", "completed")]


async def test_a_failed_call_has_its_error() -> None:
    failed = replace(result(A, "broken"), is_error=True)
    [item] = (await shown(ASKED, turn("", ToolCall(A, "look", "{}")), failed))["output"]
    assert (item["status"], item["error"], item["output"]) == ("failed", broken("broken"), None)


async def test_a_partial_text_is_incomplete() -> None:
    response = await shown(ASKED, replace(turn("so f"), partial=True), outcome=Cancelled())
    assert (response["status"], items_of(response)) == ("cancelled", [("message", "incomplete")])
    assert response["completed_at"] is None


# ---------------------------------------------------------------- structured output, refusals
async def test_only_the_accepted_answer_is_shown() -> None:
    rejected = SystemMessage(MessageId("s"), "not accepted", synthetic="invalid")
    drafts = (turn('{"a": "no"}'), rejected, turn('```json\n{"a": 1}\n```', message_id="msg_n"))
    response = await shown(ASKED, *drafts, asked=SCHEMA)
    assert texts_of(response) == ['{"a":1}']
    assert response["output"][0]["id"] == "msg_n"
    failed = await shown(*drafts[:2], asked=SCHEMA, outcome=Failed("output_invalid", "never"))
    assert failed["output"] == []
    assert failed["error"]["code"] == "output_invalid"


@pytest.mark.parametrize(
    ("outcome", "texts"),
    [
        (Completed(), ["draft"]),
        (Completed("max_tokens"), []),
        (Completed("budget"), []),
        (Cancelled(), []),
        (HandedBack(()), []),
    ],
)
async def test_a_text_that_was_held_is_shown_at_the_end_of_an_answer(
    outcome: Outcome, texts: list[str]
) -> None:
    assert texts_of(await shown(ASKED, turn("draft"), asked=SCHEMA, outcome=outcome)) == texts


async def test_no_text_stands_before_a_call_where_one_was_held() -> None:
    made = turn("draft", ToolCall(A, "look", "{}"))
    response = await shown(ASKED, made, result(A), asked=SCHEMA, outcome=Completed())
    assert items_of(response) == [("mcp_call", "completed")]


@pytest.mark.parametrize(
    ("messages", "asked", "texts", "refusals"),
    [
        ((ASKED,), note(), [], [REFUSED]),
        ((), note(), [], [REFUSED]),  # on a branch that was left
        ((ASKED, turn("I will not.")), note(), ["I will not."], []),
        ((ASKED, turn("I will not.")), SCHEMA, [], ["I will not."]),
        ((ASKED, turn("a", ToolCall(A, "look", "{}")), result(A)), note(), ["a"], [REFUSED]),
    ],
)
async def test_a_refusal_is_a_message(
    messages: tuple[Message, ...], asked: Json, texts: list[str], refusals: list[str]
) -> None:
    response = await shown(*messages, asked=asked, outcome=Completed("refusal"))
    assert (texts_of(response), texts_of(response, "refusal")) == (texts, refusals)
    if refusals:
        assert response["output"][-1]["id"] == "msg_1"


async def test_a_run_that_goes_on_is_shown_as_far_as_it_is() -> None:
    one = await found(ASKED, turn("so far"))
    going = replace(one, record=RunRecord())
    response = recorded_response(going, note(), ())
    assert (response["status"], texts_of(response)) == ("in_progress", ["so far"])
    assert (response["usage"], response["error"]) == (None, None)


# ---------------------------------------------------------------- input
async def test_the_items_of_a_request_are_its_messages_outputs_and_decisions() -> None:
    parts = (
        TextPart("look"),
        MediaPart("image", "https://x.test/i.png"),
        MediaPart("file", "https://x.test/a.pdf", None, "a.pdf"),
        DataPart({"a": [1]}),
    )
    before = (turn("", ToolCall(A, "rm", "{}"), ToolCall(B, "paint", "{}", client=True)),)
    denied = ApprovalMessage(MessageId("no"), A, False, "too dear")
    approved = ApprovalMessage(MessageId("yes"), A, True)
    output = result(B, (TextPart("blue"), MediaPart("image", "https://x.test/b.png")))
    server = replace(result(A), id=MessageId("server"))
    closed = replace(result(B), id=MessageId("closed"), synthetic="superseded")
    foreign = replace(result(CallId("call_x"), "late"), id=MessageId("foreign"))
    own = (output, denied, approved, foreign, UserMessage(MessageId("u"), parts))
    one = await found(*own, server, closed, turn("done"), before=before)
    assert input_items(one) == [
        {
            "id": "t_call_b",
            "type": "function_call_output",
            "status": "completed",
            "call_id": "call_b",
            "output": "blue\nhttps://x.test/b.png",
        },
        {
            "id": "no",
            "type": "mcp_approval_response",
            "approval_request_id": "call_a",
            "approve": False,
            "reason": "too dear",
        },
        {
            "id": "yes",
            "type": "mcp_approval_response",
            "approval_request_id": "call_a",
            "approve": True,
            "reason": None,
        },
        {
            "id": "foreign",
            "type": "function_call_output",
            "status": "completed",
            "call_id": "call_x",
            "output": "late",
        },
        {
            "id": "u",
            "type": "message",
            "status": "completed",
            "role": "user",
            "content": [
                {"type": "input_text", "text": "look"},
                {"type": "input_image", "image_url": "https://x.test/i.png", "detail": "auto"},
                {"type": "input_file", "file_url": "https://x.test/a.pdf", "filename": "a.pdf"},
                {"type": "input_text", "text": '{"a":[1]}'},
            ],
        },
    ]
