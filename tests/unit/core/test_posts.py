"""Keys and fingerprints by which repeated posts are recognised."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue
from tests.unit.core.admission import KEY, post, result, user

from passback.core.messages import (
    UNNAMED,
    ApprovalMessage,
    AssistantMessage,
    CallId,
    ChildMessage,
    Content,
    ConversationId,
    ConversationKey,
    DataPart,
    Generation,
    JsonObject,
    MediaPart,
    Message,
    MessageContext,
    MessageId,
    OwnerId,
    PostedMessage,
    RefusalPart,
    RunId,
    SummaryMessage,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    ToolSpec,
    UserMessage,
)
from passback.core.posts import (
    StartRun,
    call_receipt_name,
    content_fingerprint,
    key_receipt_name,
    message_receipt_name,
    receipt_names,
    with_arrival_time,
)
from passback.core.state import State
from passback.core.transcript import (
    count_futile_turns,
    paired_messages,
    posted_data,
    recorded_message,
    schema_of_answer,
)

PAINT = ToolSpec("paint", "Paints.", {"type": "object", "properties": {"a": {}, "b": {}}})
TURNED = ToolSpec("paint", "Paints.", {"properties": {"b": {}, "a": {}}, "type": "object"})


# ---------------------------------------------------------------- contents
def test_equal_content_has_one_fingerprint_whatever_the_order_of_keys() -> None:
    one = (DataPart({"a": 1, "b": [None, "ü"]}), TextPart("x"))
    same = (DataPart({"b": [None, "ü"], "a": 1}), TextPart("x"))
    assert content_fingerprint(one) == content_fingerprint(same)
    assert len(content_fingerprint(one)) == 64


@pytest.mark.parametrize(
    "other",
    [
        "done ",
        (TextPart("done"),),
        (RefusalPart("done"),),
        (DataPart("done"),),
        (MediaPart("file", "done"),),
        (),
    ],
)
def test_other_content_has_another_fingerprint(other: Content) -> None:
    assert content_fingerprint("done") != content_fingerprint(other)


def test_an_error_has_another_fingerprint_than_the_same_words_as_a_result() -> None:
    assert (
        content_fingerprint("done", True)
        != content_fingerprint("done")
        == content_fingerprint("done", False)
    )


# ---------------------------------------------------------------- whole posts
IDS = st.text(max_size=5).map(MessageId)
TEXTS = st.text(max_size=5)
POSTED: st.SearchStrategy[PostedMessage] = st.one_of(
    st.builds(UserMessage, IDS, TEXTS),
    st.builds(SystemMessage, IDS, TEXTS),
    st.builds(ToolMessage, IDS, TEXTS.map(CallId), TEXTS, st.booleans()),
)
POSTS = st.builds(
    StartRun,
    st.just(KEY),
    st.lists(POSTED, max_size=3).map(tuple),
    st.none() | st.lists(st.builds(ToolSpec, TEXTS, TEXTS, st.just({})), max_size=2).map(tuple),
)


@given(POSTS, st.lists(IDS, min_size=3, max_size=3))
@pytest.mark.promise("P8")
def test_posts_that_say_the_same_have_one_fingerprint_whatever_ids_were_minted(
    posted: StartRun, minted: list[MessageId]
) -> None:
    anew = tuple(
        replace(message, id=new) for message, new in zip(posted.messages, minted, strict=False)
    )
    again = replace(
        posted,
        messages=anew,
        named=frozenset(minted),
        idempotency_key="k",
        on_busy="enqueue",
        on_disconnect="cancel",
    )
    assert again.fingerprint == posted.fingerprint


def test_the_order_of_a_schemas_keys_makes_no_other_post() -> None:
    assert post(user(), tools=(PAINT,)).fingerprint == post(user(), tools=(TURNED,)).fingerprint


def test_posts_that_say_something_else_have_other_fingerprints() -> None:
    several = [
        post(user("a")),
        post(user("b")),
        post(user("a"), user("b")),
        post(user("b"), user("a")),
        post(SystemMessage(MessageId("u"), "a")),
        post(result("c1", "a")),
        post(result("c2", "a")),
        post(ToolMessage(MessageId("t"), CallId("c1"), "a", is_error=True)),
        post(user("a"), tools=()),
        post(user("a"), tools=(PAINT,)),
    ]
    assert len({each.fingerprint for each in several}) == len(several)


def with_context(content: str = "a", **fields: Any) -> UserMessage:
    return UserMessage(MessageId("u"), content, context=MessageContext(**fields))


@pytest.mark.promise("P8")
def test_what_a_post_says_beside_words_makes_it_another_post() -> None:
    several = [
        with_context(),
        with_context(data={"a": 1}),
        with_context(data={"a": 2}),
        with_context(intent="buy"),
        with_context(instructions="buy"),
        with_context(constraints=("buy",)),
        with_context(output_schema={"type": "object"}),
        with_context(generation=Generation(seed=1)),
        with_context(generation=Generation(seed=2)),
        with_context(forgets=True),
    ]
    assert len({post(each).fingerprint for each in several}) == len(several)
    prints = {content_fingerprint(each.content, False, each.context) for each in several}
    assert len(prints) == len(several)


@pytest.mark.promise("P8")
def test_a_brief_that_says_nothing_leaves_no_trace_and_the_time_is_no_part_of_it() -> None:
    plain = post(user("a"))
    assert post(with_context()).fingerprint == plain.fingerprint
    assert with_arrival_time(plain, "2026-01-31T12:00:00+00:00").fingerprint == plain.fingerprint
    assert content_fingerprint("a", False, MessageContext(at="now")) == content_fingerprint("a")
    data = post(with_context(data=[1]))
    assert (
        with_arrival_time(data, "now").fingerprint
        == with_arrival_time(data, "later").fingerprint
        == data.fingerprint
    )


def test_only_user_messages_are_dated() -> None:
    posted = with_arrival_time(post(result("c1"), with_context(intent="buy")), "now")
    assert posted.messages == (result("c1"), with_context(intent="buy", at="now"))


# ---------------------------------------------------------------- names
def test_a_post_may_be_known_by_its_results_its_names_and_its_key() -> None:
    posted = post(result("c1"), user("hi", "m1"), user("ho", "minted"), key="k", named=["m1"])
    assert receipt_names(posted) == {"call:c1", "message:m1", key_receipt_name("k")}
    assert receipt_names(post(user())) == frozenset()


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_receipt_names_of_different_kinds_differ(name: str) -> None:
    names = {
        call_receipt_name(CallId(name)),
        message_receipt_name(MessageId(name)),
        key_receipt_name(name),
    }
    assert len(names) == 3
    assert {each.partition(":")[0] for each in names} == {"call", "message", "key"}


def test_a_keys_receipt_is_short_however_long_the_key_and_does_not_show_it() -> None:
    name = key_receipt_name("hunter2" * 1000)
    assert len(name) == len("key:") + 32
    assert "hunter2" not in name
    assert name != key_receipt_name("hunter2" * 1001)


def test_what_a_post_says_does_not_depend_on_where_it_is_said() -> None:
    """Receipts belong to a conversation: a key in another one is another key."""
    there = ConversationKey(OwnerId("owner"), ConversationId("elsewhere"))
    assert replace(post(user()), key=there).fingerprint == post(user()).fingerprint


# ---------------------------------------------------------------- context of messages
OBJECT: JsonObject = {"type": "object"}
EARLIER: JsonObject = {"type": "object", "title": "earlier"}
SCHEMA = MessageContext(output_schema=OBJECT)
DATA = MessageContext({"a": 1})
FORGET = SummaryMessage(MessageId("s"), "", keeps=0)


def said(context: MessageContext | None, name: str = "u") -> UserMessage:
    return UserMessage(MessageId(name), "hi", context=context)


def answer(*calls: str) -> AssistantMessage:
    made = tuple(ToolCall(CallId(call), "look", "{}") for call in calls)
    return AssistantMessage(MessageId("a"), "" if calls else "words", made)


def refused() -> SystemMessage:
    return SystemMessage(MessageId("s"), "no", synthetic="invalid")


def invalid(call: str) -> ToolMessage:
    return ToolMessage(MessageId("t"), CallId(call), "no", is_error=True, synthetic="invalid")


@pytest.mark.parametrize(
    ("messages", "schema", "data"),
    [
        ([], EARLIER, "earlier"),
        ([answer("c"), result("c")], EARLIER, "earlier"),
        ([said(DATA), answer()], None, {"a": 1}),
        ([said(DATA), answer(), said(SCHEMA, "u2")], OBJECT, {"a": 1}),
        ([said(SCHEMA), said(MessageContext([2]), "u2"), said(None, "u3")], None, [2]),
        ([said(SCHEMA), answer("c"), result("c")], OBJECT, "earlier"),
        ([said(MessageContext(0))], None, 0),
        ([said(DATA), said(MessageContext(forgets=True), "u2")], None, None),
        ([said(MessageContext(forgets=True)), said(DATA, "u2")], None, {"a": 1}),
        ([said(DATA), FORGET, said(None, "u2")], None, None),
        ([FORGET], EARLIER, None),
        ([FORGET, said(DATA)], None, {"a": 1}),
        ([said(DATA), replace(FORGET, content="notes"), said(None, "u2")], None, {"a": 1}),
        ([said(DATA), replace(FORGET, keeps=1), said(None, "u2")], None, {"a": 1}),
    ],
)
def test_the_last_message_says_the_schema_and_the_last_data_count(
    messages: Sequence[Message], schema: JsonObject | None, data: JsonValue
) -> None:
    assert schema_of_answer(messages, EARLIER) == schema
    assert posted_data(messages, "earlier") == data


@pytest.mark.parametrize("boundary", range(4))
def test_a_boundary_takes_along_what_was_posted_before_it(boundary: int) -> None:
    messages: list[Message] = [
        said(MessageContext([1], output_schema=OBJECT)),
        answer("c"),
        result("c"),
    ]
    whole = State().with_history_start(0, messages)
    moved = State().with_history_start(boundary, messages)
    for state in (moved, moved.with_history_start(3, messages[boundary:])):
        left = messages[state.history_start :]
        assert schema_of_answer(left, state.output_schema) == OBJECT
        assert posted_data(left, state.data) == [1]
    assert whole == State()


@pytest.mark.parametrize(
    ("messages", "turns"),
    [
        ([user()], 0),
        ([user(), answer(), refused()], 1),
        ([user(), answer(), refused(), refused()], 2),
        ([user(), answer("c"), invalid("c"), answer(), refused()], 2),
        ([user(), answer(), refused(), answer("c"), result("c")], 0),
        ([user(), answer(), refused(), user("again")], 0),
        ([user(), SystemMessage(MessageId("s"), "be kind")], 0),
    ],
)
def test_refused_answers_are_futile_turns(messages: Sequence[Message], turns: int) -> None:
    assert count_futile_turns(messages) == turns


@pytest.mark.promise("P5")
def test_corrections_are_sent_as_a_users_message() -> None:
    posted = SystemMessage(MessageId("p"), "be kind")
    shown = paired_messages([posted, user(), answer(), refused()])
    assert shown == (posted, user(), answer(), UserMessage(MessageId("s"), "no"))


# ---------------------------------------------------------------- what the server adds
def test_times_and_runs_are_no_part_of_a_fingerprint_and_titles_are() -> None:
    said = user("hi")
    plain = StartRun(KEY, (said,), (PAINT,))
    later = replace(plain, messages=(replace(said, created=5, run_id=RunId("r")),))
    assert later.fingerprint == plain.fingerprint
    titled = replace(plain, tools=(replace(PAINT, title="Paint"),))
    assert titled.fingerprint != plain.fingerprint


def test_a_message_gets_the_time_and_the_run_that_it_lacks() -> None:
    run = RunId("r")

    def recorded(message: Message) -> tuple[int, str]:
        found = recorded_message(message, 5, run, lambda: MessageId("made"))
        assert found == message
        return found.created, found.run_id

    said = user("hi")
    inner = ToolMessage(MessageId("t"), CallId("c"), "seen")
    assert recorded(said) == (5, "r")
    assert recorded(replace(said, created=3)) == (3, "r")
    assert recorded(replace(said, run_id=RunId("q"))) == (5, "q")
    assert recorded(ChildMessage(CallId("p"), ChildMessage(CallId("q"), inner))) == (5, "r")
    assert recorded(ApprovalMessage(MessageId("a"), CallId("c"), True)) == (5, "r")
    assert recorded(SummaryMessage(MessageId("s"), "", 1)) == (5, "r")
    assert recorded(replace(said, imported=True)) == (0, "")


def test_a_message_gets_an_id_if_it_has_none() -> None:
    def recorded(message: Message) -> str:
        return recorded_message(message, 5, RunId("r"), lambda: MessageId("made")).id

    unnamed = replace(user("hi"), id=UNNAMED)
    assert recorded(unnamed) == recorded(replace(unnamed, imported=True)) == "made"
    assert recorded(ChildMessage(CallId("p"), unnamed)) == "made"
    assert recorded(user("hi", "u7")) == "u7"


def test_posts_with_digests_are_equal_if_these_are() -> None:
    one = replace(post(user("a")), digest="1")
    assert one.fingerprint == replace(post(user("b"), tools=(PAINT,)), digest="1").fingerprint
    assert one.fingerprint != replace(one, digest="2").fingerprint
    assert one.fingerprint != post(user("a")).fingerprint
