"""Updates of an ACP session: what an editor is told of a run, live and from the record."""

from collections.abc import Sequence
from typing import Any

import pytest

from passback.core.events import (
    Compacted,
    ContextWarned,
    Logged,
    Nested,
    OutputAccepted,
    PlanUpdated,
    Position,
    ReasoningDelta,
    Rewound,
    RunEvent,
    RunStarted,
    TextDelta,
    ToolBegan,
    ToolCallArguments,
    ToolCallEnded,
    ToolCallStarted,
    ToolProgressed,
    ToolResulted,
    TurnStarted,
    UsageReported,
)
from passback.core.messages import (
    UNUSED,
    ApprovalMessage,
    AssistantMessage,
    CallId,
    ChildMessage,
    DataPart,
    Location,
    MediaPart,
    Message,
    MessageId,
    Owed,
    PlanEntry,
    Reasoning,
    RefusalPart,
    RunId,
    SummaryMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from passback.wire.acp.updates import Abilities, Description, Update, Updates

ONE, TWO, THREE = CallId("call_1"), CallId("call_2"), CallId("call_3")
ALL = Abilities(notices=True, compaction=True)
MESSAGE = MessageId("msg_1")


def describe_write(name: str, _arguments: str) -> Description | None:
    diff = {"type": "diff", "path": "/srv/a", "oldText": None, "newText": "x"}
    return (
        Description("Write a", "edit", (Location("/srv/a"),), (diff,)) if name == "write" else None
    )


NONE = Abilities()


def made(abilities: Abilities = NONE) -> Updates:
    return Updates(abilities, describe_write)


def logged(*events: RunEvent, epoch: int = 1) -> Sequence[Logged]:
    return [Logged(Position(epoch, seq), event) for seq, event in enumerate(events, 1)]


def begun(call_id: CallId = ONE, name: str = "search", arguments: str = "{}") -> list[RunEvent]:
    return [
        ToolCallStarted(call_id, name, client=name == "write"),
        ToolCallArguments(call_id, arguments),
        ToolCallEnded(call_id),
    ]


def brief(updates: Sequence[Update]) -> list[Any]:
    """Return the kind of each update, and what it says of a call or with a text."""
    return [
        (
            each["sessionUpdate"],
            each.get("status") or each.get("content", {}).get("text")
            if not isinstance(each.get("content"), list)
            else each.get("status") or "content",
        )
        for each in updates
    ]


def text_of(update: Update) -> str:
    [content] = update["content"]
    text: str = content["content"]["text"]
    return text


def test_neighbouring_pieces_of_one_text_are_one_chunk() -> None:
    updates = made().feed(
        logged(
            RunStarted(RunId("run_1")),
            TurnStarted(MESSAGE),
            ReasoningDelta("h"),
            ReasoningDelta("m"),
            TextDelta("a"),
            TextDelta("b"),
            OutputAccepted(1),
        )
    )
    assert brief(updates) == [("agent_thought_chunk", "hm"), ("agent_message_chunk", "ab")]
    assert {each["messageId"] for each in updates} == {MESSAGE}


def test_a_text_whose_turn_is_unknown_has_no_message_id_and_an_empty_one_is_left_out() -> None:
    assert made().feed(logged(TextDelta(""))) == []
    [chunk] = made().feed(logged(TextDelta("a")))
    assert "messageId" not in chunk


@pytest.mark.parametrize(
    ("title", "shown"),
    [
        ("Read\n a\u202e\u200bb\tc", "Read ab c"),
        ("x" * 200, "x" * 200),
        ("x" * 201, "x" * 199 + "…"),
        ("x" * 198 + " yyy", "x" * 198 + "…"),
        ("\u200b", "search"),
        ("", "search"),
    ],
)
def test_a_title_is_one_line_and_shows_where_it_is_cut(title: str, shown: str) -> None:
    [announced] = made().feed(logged(ToolCallStarted(ONE, "search", client=False, title=title)))
    assert announced["title"] == shown


def test_a_call_from_its_announcement_to_its_result() -> None:
    updates = made().feed(
        logged(
            *begun(arguments='{"q": 1}'),
            ToolBegan(ONE, (Location("/srv/a", 3), Location("/srv/b"))),
            ToolProgressed(ONE, "half"),
            ToolResulted(ONE, "found"),
            ToolResulted(ONE, "twice"),
        )
    )
    announced, complete, began, progressed, resulted = updates
    assert announced == {
        "sessionUpdate": "tool_call",
        "toolCallId": ONE,
        "title": "search",
        "kind": "other",
        "name": "search",
        "status": "pending",
    }
    assert complete["rawInput"] == {"q": 1}
    assert (began["status"], began["locations"]) == (
        "in_progress",
        [{"path": "/srv/a", "line": 3}, {"path": "/srv/b"}],
    )
    assert text_of(progressed) == "half"
    assert (resulted["status"], text_of(resulted)) == ("completed", "found")


def test_a_failed_call_shows_why_and_data_is_raw_output_too() -> None:
    updates = made().feed(
        logged(
            *begun(),
            *begun(TWO),
            ToolResulted(ONE, (DataPart({"a": 1}),)),
            ToolResulted(TWO, "no", is_error=True),
        )
    )
    assert (updates[-2]["rawOutput"], text_of(updates[-2])) == ({"a": 1}, '{"a": 1}')
    assert (updates[-1]["status"], text_of(updates[-1])) == ("failed", "no")


def test_a_diff_stays_when_the_call_has_succeeded_and_gives_way_to_an_error() -> None:
    updates = made()
    shown = updates.feed(logged(*begun(ONE, "write"), *begun(TWO, "write")))
    assert [each.get("title") for each in shown] == ["write", "Write a"] * 2
    assert shown[1]["content"][0]["type"] == "diff"
    begun_late, done = updates.settle(ONE, "Wrote it.", is_error=False)
    assert begun_late["status"] == "in_progress"
    assert "content" not in done
    [failed] = updates.settle(TWO, "Not written.", is_error=True)
    assert text_of(failed) == "Not written."


def test_events_of_unknown_calls_are_left_out() -> None:
    events: list[RunEvent] = [ToolCallArguments(ONE, "{}"), ToolCallEnded(ONE), ToolBegan(ONE)]
    assert made().feed(logged(*events, ToolProgressed(ONE, "x"), ToolResulted(ONE, "y"))) == []


def test_plan_and_usage() -> None:
    plan = (PlanEntry("cook", "high", "in_progress"),)
    usage = UsageReported(UNUSED, context_used=10, window=100)
    updates = made().feed(logged(PlanUpdated(plan), usage, UsageReported(UNUSED)))
    assert updates == [
        {
            "sessionUpdate": "plan",
            "entries": [{"content": "cook", "priority": "high", "status": "in_progress"}],
        },
        {"sessionUpdate": "usage_update", "used": 10, "size": 100},
    ]


def test_the_cost_is_told_once_with_the_use_of_the_context() -> None:
    updates = Updates(NONE, describe_write, "EUR")
    assert updates.spend(0.1) == []  # the use of the context is not known
    used = {"sessionUpdate": "usage_update", "used": 10, "size": 100}
    [told] = updates.feed(logged(UsageReported(UNUSED, context_used=10, window=100)))
    assert told == used
    assert updates.spend(0.0) == []  # the model has no price
    cost = {"amount": 0.3, "currency": "EUR"}
    assert updates.spend(0.1 + 0.2) == [{**used, "cost": cost}]
    assert updates.spend(0.3) == []
    # an editor may take each update as a whole: the next one has the cost that is known
    [more] = updates.feed(logged(UsageReported(UNUSED, context_used=20, window=100)))
    assert more == {**used, "used": 20, "cost": cost}
    assert updates.spend(0.5) == [{**more, "cost": {"amount": 0.5, "currency": "EUR"}}]
    assert more["cost"] == cost
    assert told == used


SUMMARY = SummaryMessage(MessageId("msg_s"), "It was about soup.", 0)


@pytest.mark.parametrize(
    ("abilities", "told"),
    [
        (NONE, []),
        (Abilities(notices=True), [("notice", None), ("notice", None)]),
        (ALL, [("notice", None), ("compaction_update", "completed")]),
    ],
)
def test_notices_and_compaction_come_where_the_editor_takes_them(
    abilities: Abilities, told: list[Any]
) -> None:
    compacted = Compacted("summary", 100, 10, SUMMARY)
    forgot = Compacted("cut", 100, 10, SummaryMessage(MessageId("msg_f"), "", 0))
    updates = made(abilities).feed(
        logged(ContextWarned(61, 100), compacted, forgot, Compacted("snip", 100, 90))
    )
    assert brief(updates) == told
    if updates:
        assert updates[0]["title"] == "61 % of the context is full"


def test_calls_that_a_take_over_voids_have_failed_and_others_go_on() -> None:
    updates = made()
    updates.feed(logged(*begun(ONE), *begun(TWO)))
    void = updates.feed(logged(Rewound(Position(1, 3)), epoch=2))
    assert [(each["toolCallId"], each["status"]) for each in void] == [(TWO, "failed")]
    done = updates.feed(logged(ToolResulted(ONE, "kept"), epoch=2))
    assert [each["status"] for each in done] == ["in_progress", "completed"]


def nested(*events: RunEvent) -> list[RunEvent]:
    return [Nested(ONE, event) for event in events]


def test_a_sub_agent_is_the_content_of_its_call() -> None:
    updates = made()
    shown = updates.feed(
        logged(
            *begun(ONE, "helper"),
            ToolBegan(ONE),
            *nested(TurnStarted(MESSAGE), TextDelta("I "), TextDelta("look"), *begun(TWO)),
            *nested(ToolBegan(TWO), ToolResulted(TWO, "seen")),
        )
    )
    assert [each["toolCallId"] for each in shown] == [ONE] * 4
    assert text_of(shown[-1]) == "I look\n• search"
    more = updates.feed(logged(*nested(TextDelta("x" * 5000))))
    assert len(text_of(more[0])) == 4000
    assert updates.feed(logged(*nested(ToolCallEnded(THREE)))) == []
    assert updates.feed(logged(Nested(TWO, TextDelta("of no known call")))) == []
    assert updates.feed(logged(Nested(THREE, TextDelta("of no known call")))) == []


def test_a_sub_agents_call_that_needs_the_user_is_announced_with_its_parent() -> None:
    updates = made()
    updates.feed(logged(*begun(ONE, "helper"), ToolBegan(ONE), *nested(*begun(TWO, "write"))))
    [announced] = updates.announce(Owed(TWO, "write", "{}", "approval", parent_id=ONE))
    assert announced["_meta"] == {"passback": {"parentToolCallId": ONE}}
    assert (announced["status"], announced["title"]) == ("pending", "Write a")
    assert updates.announce(Owed(TWO, "write", "{}")) == []
    assert updates.view(TWO)["status"] == "pending"
    done = updates.feed(logged(Nested(ONE, ToolBegan(TWO)), Nested(ONE, ToolResulted(TWO, "ok"))))
    assert [(each["toolCallId"], each["status"]) for each in done] == [
        (TWO, "in_progress"),
        (TWO, "completed"),
    ]


def test_a_call_that_was_never_seen_is_announced_as_it_is_owed() -> None:
    updates = made()
    [announced] = updates.announce(Owed(ONE, "write", '{"a": 1}', parent_id=TWO))
    assert (announced["rawInput"], announced["title"]) == ({"a": 1}, "Write a")
    [began] = updates.begin(ONE)
    [shown] = updates.show(ONE, [{"type": "terminal", "terminalId": "t"}])
    [done] = updates.settle(ONE, "ok", is_error=False)
    assert (began["status"], shown["content"][0]["terminalId"]) == ("in_progress", "t")
    assert "content" not in done


def test_a_server_tool_with_the_name_of_a_client_tool_is_shown_by_its_own_name() -> None:
    updates = made()
    shown = updates.feed(
        logged(
            ToolCallStarted(ONE, "write", client=False, title="Write a song"), ToolCallEnded(ONE)
        )
    )
    assert [each["title"] for each in shown] == ["Write a song"]
    assert "content" not in shown[0]
    [announced] = updates.announce(Owed(TWO, "write", "{}", "approval"))
    read = updates.read([AssistantMessage(MESSAGE, "", (ToolCall(THREE, "write", "{}"),))])
    assert [each["title"] for each in (announced, *read)] == ["write"] * 2


def test_open_calls_fail_at_the_end_of_a_prompt() -> None:
    updates = made()
    updates.feed(logged(*begun(ONE), *begun(TWO), ToolResulted(ONE, "done")))
    assert [each["toolCallId"] for each in updates.settle_all()] == [TWO]
    assert updates.settle_all() == []


def test_the_record_tells_the_same_as_the_run() -> None:
    image = MediaPart("image", "data:image/png;base64,aGk=", "image/png")
    link = MediaPart("file", "https://example.com/a.pdf", name="a.pdf")
    inline = MediaPart("file", "data:text/csv;base64,aGk=", "text/csv")
    messages: list[Message] = [
        UserMessage(MESSAGE, (TextPart("hi"), image, link, inline)),
        UserMessage(MessageId("msg_2"), "and"),
        AssistantMessage(
            MessageId("msg_3"),
            "Well",
            (
                ToolCall(ONE, "write", "{}", client=True),
                ToolCall(TWO, "search", "{}", title="Search"),
            ),
            (Reasoning("hm", "p"),),
        ),
        ApprovalMessage(MessageId("msg_4"), ONE, approved=True),
        ChildMessage(TWO, AssistantMessage(MessageId("msg_5"), "inner")),
        ToolMessage(MessageId("msg_6"), ONE, "Wrote it."),
        ToolMessage(MessageId("msg_7"), TWO, "no", is_error=True),
        ToolMessage(MessageId("msg_8"), THREE, "of no call"),
        SUMMARY,
        AssistantMessage(MessageId("msg_9"), (TextPart("So"), RefusalPart("no"))),
        AssistantMessage(MessageId("msg_10"), ""),
    ]
    updates = made(ALL).read(messages)
    assert brief(updates) == [
        ("user_message_chunk", "hi"),
        ("user_message_chunk", None),
        ("user_message_chunk", None),
        ("user_message_chunk", "[text/csv]"),
        ("user_message_chunk", "and"),
        ("agent_thought_chunk", "hm"),
        ("agent_message_chunk", "Well"),
        ("tool_call", "pending"),
        ("tool_call", "pending"),
        ("tool_call_update", "in_progress"),
        ("tool_call_update", "completed"),
        ("tool_call_update", "failed"),
        ("compaction_update", "completed"),
        ("agent_message_chunk", "So"),
        ("agent_message_chunk", "no"),
    ]
    assert updates[1]["content"] == {"type": "image", "data": "aGk=", "mimeType": "image/png"}
    assert updates[2]["content"]["uri"] == "https://example.com/a.pdf"
    assert [each["title"] for each in updates[7:9]] == ["Write a", "Search"]
