"""Histories that a client imports: what is stored, what is refused, and what providers take."""

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.anthropic_rules import breaches_of
from tests.support.provider_rules import violations_of
from tests.unit.core.admission import minting, post, remembered, user

from passback.core.admission import Begins, ConversationSnapshot, Joins, decide_post
from passback.core.deltas import ModelRequest
from passback.core.errors import Conflict, InvalidRequest, UnknownToolCall
from passback.core.imported import ImportedPost, PlacedMessage, split_history
from passback.core.messages import (
    ApprovalMessage,
    AssistantMessage,
    CallId,
    HistoryMessage,
    MessageId,
    RefusalPart,
    RunId,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from passback.core.posts import (
    StartRun,
    key_receipt_name,
    message_fingerprint,
    message_receipt_name,
)
from passback.core.transcript import SYNTHETIC_TEXT, owed_answers, paired_messages, unanswered_calls
from passback.models.anthropic.encoding import encode_message
from passback.models.openai_chat.encoding import encode_request


def said(text: str = "", *calls: ToolCall, message_id: str = "a") -> AssistantMessage:
    return AssistantMessage(MessageId(message_id), text, calls)


def call(call_id: str, name: str = "look", arguments: str = "{}") -> ToolCall:
    return ToolCall(CallId(call_id), name, arguments)


def result(call_id: str, text: str = "seen", message_id: str = "t") -> ToolMessage:
    return ToolMessage(MessageId(message_id), CallId(call_id), text)


def read(*messages: HistoryMessage) -> ImportedPost:
    """The history of a post; messages get ids by their places where they are the same."""
    named = [replace(each, id=MessageId(f"{each.id}{at}")) for at, each in enumerate(messages)]
    return split_history([(f"messages.{at}", each) for at, each in enumerate(named)])


def plain(messages: Sequence[HistoryMessage]) -> list[object]:
    """Return the messages without their ids, which are all imported."""
    assert all(each.imported for each in messages)
    shown: list[object] = []
    for each in messages:
        match each:
            case AssistantMessage(content=content, tool_calls=calls):
                shown.append((content, *[(one.id, one.name, one.arguments) for one in calls]))
            case ToolMessage(call_id=call_id, content=content, is_error=is_error, synthetic=why):
                shown.append((call_id, content, is_error, why))
            case _:
                shown.append(each.content)
    return shown


UNANSWERED = (SYNTHETIC_TEXT["unanswered"], True, "unanswered")
NEW = user("go on", "new")
RULES = SystemMessage(MessageId("s"), "be kind")
GOOD: dict[str, tuple[Sequence[HistoryMessage], list[object], int]] = {
    "words": ([user("hi"), said("hello"), NEW], ["hi", ("hello",)], 1),
    "words of the operator's": (
        [RULES, user("hi"), said("a"), RULES, NEW],
        ["be kind", "hi", ("a",)],
        2,
    ),
    "several answers": ([user("hi"), said("a"), said("b"), NEW], ["hi", ("a",), ("b",)], 1),
    "a call and its result": (
        [user("hi"), said("", call("x", arguments='{"a": 1}')), result("x"), said("so"), NEW],
        [
            *("hi", ("", ("imported_1", "look", '{"a": 1}'))),
            *(("imported_1", "seen", False, None), ("so",)),
        ],
        1,
    ),
    "results in another order, and a failure": (
        [
            *(user("hi"), said(" ", call("x"), call("y", arguments=""))),
            *(result("y"), replace(result("x"), is_error=True), NEW),
        ],
        [
            "hi",
            ("", ("imported_1", "look", "{}"), ("imported_2", "look", "{}")),
            ("imported_2", "seen", False, None),
            ("imported_1", "seen", True, None),
        ],
        1,
    ),
    "calls without results": (
        [
            *(user("hi"), said("", call("x")), user("?")),
            *(said("b", call("y"), call("z")), result("y"), NEW),
        ],
        [
            *("hi", ("", ("imported_1", "look", "{}")), ("imported_1", *UNANSWERED), "?"),
            ("b", ("imported_2", "look", "{}"), ("imported_3", "look", "{}")),
            *(("imported_2", "seen", False, None), ("imported_3", *UNANSWERED)),
        ],
        1,
    ),
    "calls before other words of the agent": (
        [user("hi"), said("", call("x")), said("so"), NEW],
        ["hi", ("", ("imported_1", "look", "{}")), ("imported_1", *UNANSWERED), ("so",)],
        1,
    ),
}  # fmt: skip


@pytest.mark.promise("P5")
@pytest.mark.parametrize(("posted", "stored", "new"), GOOD.values(), ids=GOOD)
def test_a_history_is_stored_with_ids_of_ours_and_every_call_closed(
    posted: Sequence[HistoryMessage], stored: list[object], new: int
) -> None:
    imported = read(*posted)
    assert plain(imported.history) == stored
    assert [each.content for each in imported.new] == [each.content for each in posted[-new:]]
    assert not any(each.imported for each in imported.new)


LARGE = json.dumps({"a": "x" * 256 * 1024})
BAD: dict[str, tuple[Sequence[HistoryMessage], str]] = {
    "ends with the agent": ([user(), said("a")], "messages.1: a new user message has to follow"),
    "ends with a result": (
        [user(), said("", call("x")), result("x")],
        "messages.2: a new user message",
    ),
    "ends with the operator": ([user(), said("a"), RULES], "messages.2: a new user message"),
    "begins with the agent": ([RULES, said("a"), NEW], "messages.1: a history has to begin"),
    "says nothing": ([user(), said(" "), NEW], "messages.1: it has neither content nor calls"),
    "refuses in no words": (
        [user(), AssistantMessage(MessageId("a"), (RefusalPart(""),)), NEW],
        "messages.1: it has neither content nor calls",
    ),
    "a result of no call": ([user(), said("a"), result("x"), NEW], "messages.2: no call of"),
    "a result before its call": (
        [user(), result("x"), said("", call("x")), NEW],
        "messages.1: no call of",
    ),
    "two results": (
        [user(), said("", call("x")), result("x"), result("x"), NEW],
        "messages.3: no call of the agent's message right before it waits",
    ),
    "a late result": (
        [user(), said("", call("x")), user(), result("x"), said("a"), NEW],
        "messages.3: no call of",
    ),
    "an id of ours": ([user(), said("", call("x")), result("imported_1"), NEW], "messages.2: no"),
    "a call's id twice": (
        [user(), said("", call("x")), result("x"), said("", call("x")), NEW],
        "messages.3: an earlier call has the same id",
    ),
    "an id twice in one": ([user(), said("", call("x"), call("x")), NEW], "messages.1: an earlier"),
    "an odd name": ([user(), said("", call("x", "a.b")), NEW], "messages.1: the name of a call"),
    "no JSON": ([user(), said("", call("x", arguments="{")), NEW], "messages.1: the arguments of"),
    "a list": ([user(), said("", call("x", arguments="[]")), NEW], "messages.1: the arguments of"),
    "a key twice": (
        [user(), said("", call("x", arguments='{"a": 1, "a": 2}')), NEW],
        "messages.1: the arguments of a call have to be the text of a JSON object",
    ),
    "too long": ([user(), said("", call("x", arguments=LARGE)), NEW], "messages.1: the arguments"),
}


@pytest.mark.promise("P12", "P13")
@pytest.mark.parametrize(("posted", "why"), BAD.values(), ids=BAD)
def test_an_impossible_history_is_refused_in_place(
    posted: Sequence[HistoryMessage], why: str
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        read(*posted)
    assert refused.value.message.startswith(why)


def test_an_id_of_a_message_is_used_once() -> None:
    twice: list[PlacedMessage] = [
        ("input.0", user("a", "m")),
        ("input.1", said("b", message_id="m")),
        ("input.2", NEW),
    ]
    with pytest.raises(InvalidRequest, match=r"input\.1: an earlier message"):
        split_history(twice)


# ---------------------------------------------------------------- any history
IDS = st.sampled_from(["x", "y", "z", "w"])
POSTED = st.lists(
    st.one_of(
        st.just(user("hi")),
        st.just(RULES),
        st.builds(said, st.sampled_from(["", "text"]), st.builds(call, IDS)),
        st.just(said("text")),
        st.builds(result, IDS),
    ),
    max_size=10,
)


@given(POSTED)
@pytest.mark.promise("P5")
def test_every_provider_takes_a_history_that_was_stored(posted: list[HistoryMessage]) -> None:
    try:
        imported = read(user("first"), *posted, said("last"), NEW)
    except InvalidRequest:
        return
    messages = (*imported.history, *imported.new)
    assert (owed_answers(messages), unanswered_calls(messages)) == ((), ())
    shown = paired_messages(messages)
    assert sorted(map(repr, shown)) == sorted(map(repr, messages))
    request = ModelRequest(shown, "be brief")
    chat = json.loads(encode_request("m", "p", request))
    assert violations_of(chat["messages"]) == []
    assert breaches_of(json.loads(encode_message("m", "p", request).body)) == []


# ---------------------------------------------------------------- meaning of imports
HISTORY = read(user("hi"), said("", call("x")), result("x"), said("so"), NEW).history


def importing(key: str | None = None, *, resends: bool = False) -> StartRun:
    return replace(post(NEW, key=key, named=["new", "u0"]), history=HISTORY, resends=resends)


@pytest.mark.promise("P13")
def test_a_run_begins_behind_a_history_whose_calls_nobody_here_has_made() -> None:
    """Messages to the agent are known again by their ids: no call has a receipt."""
    verdict = decide_post(ConversationSnapshot((), exists=False), importing("k"), minting())
    first = HISTORY[0]
    assert isinstance(first, UserMessage)
    assert isinstance(verdict, Begins)
    assert verdict.append == (*HISTORY, NEW)
    assert verdict.receipts == {
        message_receipt_name(MessageId("u0")): message_fingerprint(first),
        message_receipt_name(MessageId("new")): message_fingerprint(NEW),
        key_receipt_name("k"): importing("k").fingerprint,
    }
    after = ConversationSnapshot((*verdict.append, said("yes")), remembered(verdict.receipts))
    for call_id in ("x", "imported_1"):
        with pytest.raises(UnknownToolCall):
            decide_post(after, post(result(call_id)), minting())


@pytest.mark.promise("P8")
def test_a_repeated_import_is_the_same_run() -> None:
    verdict = decide_post(ConversationSnapshot((), exists=False), importing("k"), minting())
    assert isinstance(verdict, Begins)
    after = ConversationSnapshot((*verdict.append, said("yes")), remembered(verdict.receipts))
    joined = Joins(RunId("r1"))
    assert decide_post(after, importing("k"), minting()) == joined
    assert decide_post(after, importing(), minting()) == joined  # by the ids of its messages
    other = replace(importing("k"), history=HISTORY[-1:])
    assert other.fingerprint != importing("k").fingerprint
    assert replace(other, resends=True).fingerprint == importing("k", resends=True).fingerprint


@pytest.mark.parametrize(
    "standing",
    [
        ConversationSnapshot([user()]),
        ConversationSnapshot([], start=4),
        ConversationSnapshot([], running=RunId("r")),
        ConversationSnapshot([], queued=[user()]),
    ],
    ids=["said", "forgotten", "running", "queued"],
)
def test_a_conversation_with_messages_takes_no_history(standing: ConversationSnapshot) -> None:
    with pytest.raises(Conflict, match="a history can only begin a new one"):
        decide_post(standing, replace(importing(), on_busy="enqueue"), minting())


def test_a_repeated_history_is_ignored_where_there_is_a_conversation() -> None:
    standing = ConversationSnapshot([user(), said("so")])
    verdict = decide_post(standing, importing(resends=True), minting())
    assert isinstance(verdict, Begins)
    assert verdict.append == (NEW,)


def test_results_that_are_in_the_history_are_no_answers_and_nothing_there_waits_for_approval() -> (
    None
):
    resending = replace(importing(resends=True), messages=(result("x"), NEW))
    verdict = decide_post(ConversationSnapshot((), exists=False), resending, minting())
    assert isinstance(verdict, Begins)
    assert verdict.append == (*HISTORY, NEW)
    approving = replace(
        importing(), messages=(ApprovalMessage(MessageId("p"), CallId("x"), True), NEW)
    )
    with pytest.raises(UnknownToolCall):
        decide_post(ConversationSnapshot((), exists=False), approving, minting())


def test_an_invalid_history_is_refused_where_there_is_no_conversation() -> None:
    flawed = replace(post(NEW), continues=True, resends=True, flaw="input.1: it has neither")
    with pytest.raises(InvalidRequest, match=r"input\.1: it has neither"):
        decide_post(ConversationSnapshot((), exists=False), flawed, minting())
    assert isinstance(decide_post(ConversationSnapshot([user()]), flawed, minting()), Begins)
