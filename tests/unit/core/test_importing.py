"""Documents of conversations: which can be imported, and what becomes of them."""

import copy
import json
from collections.abc import Sequence
from typing import Any

import pytest
from tests.unit.core.admission import minting

from passback.core.changes import RunRecord, dump_run
from passback.core.conversation.document import (
    DOCUMENT_END,
    FORMAT,
    VERSION,
    ConversationDocument,
    begin_document,
    document_of,
    read_document,
)
from passback.core.conversation.head import Head, head_of, status_of
from passback.core.conversation.importing import LATEST, MOST, Import, check_document
from passback.core.conversation.rules import Decided, Known
from passback.core.conversation.store import Due, Found, Span, View, Write
from passback.core.conversation.table import decide
from passback.core.errors import InvalidRequest
from passback.core.events import Completed
from passback.core.messages import ConversationId, ConversationKey, OwnerId, ToolMessage, Usage
from passback.core.transcript import SYNTHETIC_TEXT

KEY = ConversationKey(OwnerId("ann"), ConversationId("c"))
PRINT = "0123456789abcdef" * 4


def user(name: str, **more: Any) -> dict[str, Any]:
    return {"role": "user", "id": name, "content": "hello", "run_id": "run_1", **more}


def call(call_id: str, **more: Any) -> dict[str, Any]:
    return {"id": call_id, "name": "paint", "arguments": '{"a": 1}', **more}


def agent(name: str, *calls: dict[str, Any], **more: Any) -> dict[str, Any]:
    said = {"content": "" if calls else "so", "tool_calls": list(calls)}
    return {"role": "assistant", "id": name, **said, **more}


def tool(name: str, call_id: str, **more: Any) -> dict[str, Any]:
    return {"role": "tool", "id": name, "call_id": call_id, "content": "done", **more}


def approval(name: str, call_id: str, **more: Any) -> dict[str, Any]:
    return {"role": "approval", "id": name, "call_id": call_id, "approved": True, **more}


def child(call_id: str, message: dict[str, Any]) -> dict[str, Any]:
    return {"role": "child", "call_id": call_id, "message": message}


def summary(name: str, **more: Any) -> dict[str, Any]:
    return {"role": "summary", "id": name, "content": "in short", "keeps": 1, **more}


def owed(call_id: str, **more: Any) -> dict[str, Any]:
    return {"id": call_id, "name": "paint", "arguments": '{"a": 1}', **more}


def document(*messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A conversation that ends with its last message."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "id": "c",
        "leaf": len(messages) - 1,
        "messages": list(messages),
        **more,
    }


CLIENT = call("call_2", client=True)
FULL = document(
    user("m0", created=1_769_860_680_000),
    agent("m1", call("call_1"), usage={"input_tokens": 5}, duration=7, model="demo"),
    child("call_1", user("m2")),
    child("call_1", agent("m3", call("call_0"))),
    child("call_1", tool("m4", "call_0")),
    child("call_1", agent("m5")),
    tool("m6", "call_1"),
    agent("m7"),
    summary("m8"),
    # another branch, from the first answer
    user("m9"),
    agent("m10", CLIENT),
    title="The blue page",
    named=True,
    created=1,
    updated=2,
    settings={"model": "demo"},
    state={
        "plan": [{"content": "paint"}],
        "usage": {"input_tokens": 9},
        "cost": 0.5,
        "seconds": 2.5,
        "tokens": 9,
        "history_start": 1,
        "run": {"run_id": "run_2", "spent": {"tokens": 4}},
        "refusals": [{"call_id": "call_9", "tool": "erase", "reason": "no"}],
        "lasting": [{"tool": "erase", "digest": "", "approved": False, "reason": "no"}],
        "title_call": {"usage": {"input_tokens": 1}, "spent": {"tokens": 1}},
    },
    tools=[{"name": "paint", "description": "", "parameters": {"type": "object"}}],
    run={"run_id": "run_2", "committed": [3, 9], "run_start": 8, "stopped_early": True},
    epochs=4,
    owed=[owed("call_2")],
    answer_by=1_769_860_690_000,
    forks=[{"start": 9, "parent": 7}],
    runs={"run_7": json.loads(dump_run(RunRecord(3, 2, 5, 9, Completed(), "m", Usage(1, 2))))},
    receipts={
        "call:call_1": {"fingerprint": PRINT, "run_id": "run_1"},
        f"key:{PRINT[:32]}": {"fingerprint": PRINT},
        "message:m0 \u00fc": {"fingerprint": PRINT, "run_id": "run_1"},
    },
)


def checked(posted: dict[str, Any]) -> ConversationDocument:
    return check_document(read_document(posted), minting())


def written(posted: ConversationDocument, now: int = 0) -> Write:
    decided = decide(Known(Found(), Head()), Import(KEY, posted, "nonce"), now)
    assert isinstance(decided, Decided)
    assert decided.write is not None
    return decided.write


def found_after(write: Write) -> Found:
    """A conversation after its first write."""
    assert write.view is not None
    return Found(
        version=1,
        head=write.head or b"",
        fields={name: each for name, each in write.fields.items() if each is not None},
        receipts=write.receipts,
        runs=write.runs,
        message_count=len(write.messages),
        view=View(write.view.spans, 0),
    )


def exported(write: Write) -> Any:
    beginning = begin_document(document_of(found_after(write), ConversationId("c")))
    return json.loads(beginning + b",".join(write.messages) + DOCUMENT_END)


# ---------------------------------------------------------------- documents that are imported
def test_a_document_is_imported_as_it_is() -> None:
    made = checked(FULL)
    assert made == read_document(FULL)
    again = exported(written(made))
    assert read_document({**again, "created": 1, "updated": 2}) == made
    # and once more, byte for byte
    assert exported(written(checked(again))) == again


def test_the_write_has_all_that_a_conversation_has() -> None:
    write = written(checked(FULL), now=1_769_860_689_000)
    assert (write.key, write.guard.version, write.touches, write.owes) == (KEY, 0, True, True)
    assert write.due == Due(after=1000)
    assert write.view == View((Span(1, 8), Span(9)))
    head, status = head_of(found_after(write)), status_of(found_after(write))
    assert (head.history_start, head.epoch, head.committed) == (1, 3, (3, 9))
    assert (status.message_count, status.title, status.named) == (10, "The blue page", True)
    assert (status.run_id, status.run_start, status.stopped_early) == ("run_2", 8, True)
    assert [each.id for each in status.owed] == ["call_2"]
    assert write.fields["epochs"] == b"4"
    assert write.receipts["call:call_1"] == f"run_1|{PRINT}"


def test_a_conversation_without_messages_is_imported() -> None:
    write = written(checked(document()))
    assert (write.messages, write.owes, write.due) == ((), False, None)
    assert exported(write)["messages"] == []
    assert write.fields.keys() == {"state"}


def test_what_is_overdue_is_due_at_once() -> None:
    assert written(checked(FULL), now=MOST).due == Due(after=0)


# ---------------------------------------------------------------- calls that are closed
Closed = Sequence[tuple[str, int, list[str]]]
"""Calls that get a result, each with the message that it follows, and those that stay owed."""


def closed_in(posted: dict[str, Any]) -> tuple[list[tuple[str, int]], list[str]]:
    """Return the calls that got results, with the messages that these follow, and what is owed."""
    made, before = checked(posted), len(posted["messages"])
    results: list[tuple[str, int]] = []
    for number, message in enumerate(made.messages[before:], before):
        assert isinstance(message, ToolMessage)
        assert (message.content, message.is_error) == (SYNTHETIC_TEXT["interrupted"], True)
        results.append((message.call_id, made.tree.parent(number)))
    assert not made.running
    assert checked(exported(written(made))) == made  # nothing is left to close
    return results, [each.id for each in made.owed]


ASKS = call("call_3", asks="approval", reason="sure?")


@pytest.mark.parametrize(
    ("posted", "results", "left"),
    [
        # a client's calls stay owed, those of the server do not
        (document(user("a"), agent("b", CLIENT), owed=[owed("call_2")]), [], ["call_2"]),
        (
            document(
                user("a"), agent("b", ASKS), owed=[owed("call_3", kind="approval", reason="sure?")]
            ),
            [("call_3", 1)],
            [],
        ),
        (
            document(user("a"), agent("b", ASKS), approval("c", "call_3")),
            [("call_3", 2)],
            [],
        ),
        (
            document(
                user("a"),
                agent("b", CLIENT, ASKS, call("call_4")),
                tool("c", "call_4"),
                owed=[owed("call_2"), owed("call_3", kind="approval", reason="sure?")],
            ),
            [("call_3", 2)],
            ["call_2"],
        ),
        (
            document(
                user("a"),
                agent("b", call("call_4")),
                child("call_4", user("c")),
                child("call_4", agent("d", CLIENT)),
                owed=[owed("call_2", parent_id="call_4")],
            ),
            [("call_4", 3)],
            [],
        ),
        # nothing stays open of a run that went on
        (
            document(user("a"), agent("b", CLIENT, call("call_4")), running=True),
            [("call_2", 1), ("call_4", 2)],
            [],
        ),
        (document(user("a"), running=True), [], []),
        # the ends of other branches
        (
            document(
                user("a"),
                agent("b", ASKS),
                user("c"),
                agent("d", CLIENT),
                user("e"),
                forks=[{"start": 2, "parent": -1}, {"start": 4, "parent": -1}],
            ),
            [("call_3", 1)],
            [],
        ),
        # the end of the branch that is read is within another one
        (
            document(
                user("a"), agent("b", ASKS), tool("c", "call_3"),
                leaf=1, owed=[owed("call_3", kind="approval", reason="sure?")],
            ),
            [("call_3", 1)],
            [],
        ),
    ],
)  # fmt: skip
def test_calls_that_a_server_would_make_are_closed(
    posted: dict[str, Any], results: list[tuple[str, int]], left: list[str]
) -> None:
    assert closed_in(posted) == (results, left)


def test_branches_may_begin_within_the_work_of_a_sub_agent() -> None:
    begun = (
        user("a"),
        agent("b", call("call_4")),
        child("call_4", user("c")),
        child("call_4", agent("d", CLIENT)),
    )
    ends = [child("call_4", tool(name, "call_2")) for name in ("e", "f")]
    posted = document(*begun, *ends, forks=[{"start": 5, "parent": 3}])
    assert closed_in(posted) == ([("call_4", 4), ("call_4", 5)], [])


def test_a_deadline_ends_with_what_was_owed() -> None:
    posted = document(
        user("a"),
        agent("b", ASKS),
        owed=[owed("call_3", kind="approval", reason="sure?")],
        answer_by=5,
    )
    assert checked(posted).answer_by is None
    write = written(checked(posted))
    assert (write.due, write.owes) == (None, False)


# ---------------------------------------------------------------- documents that are refused
MANY = [call(f"call_{number}") for number in range(1001)]


@pytest.mark.parametrize(
    ("posted", "place"),
    [
        # transcripts
        (document(agent("a")), "messages.0"),
        (document(tool("a", "call_1")), "messages.0"),
        (document(approval("a", "call_1")), "messages.0"),
        (document(child("call_1", user("a"))), "messages.0"),
        (document(user("a"), agent("b", CLIENT), user("c")), "messages.2"),
        (document(user("a"), agent("b", CLIENT), agent("c")), "messages.2"),
        (document(user("a"), agent("b", CLIENT), tool("c", "call_9")), "messages.2"),
        (
            document(user("a"), agent("b", CLIENT), tool("c", "call_2"), tool("d", "call_2")),
            "messages.3",
        ),
        (document(user("a"), agent("b", CLIENT), approval("c", "call_2")), "messages.2"),
        (
            document(user("a"), agent("b", ASKS), approval("c", "call_3"), approval("d", "call_3")),
            "messages.3",
        ),
        (document(user("a"), agent("b", CLIENT, CLIENT)), "messages.1"),
        (document(user("a"), agent("b", *MANY)), "messages.1"),
        (
            document(user("a"), agent("b", ASKS), child("call_3", tool("c", "call_3"))),
            "messages.2",
        ),
        (
            document(
                user("a"),
                agent("b", call("call_4")),
                child("call_4", agent("c", CLIENT)),
                child("call_4", user("d")),
            ),
            "messages.3",
        ),
        # on each branch
        (
            document(user("a"), agent("b"), tool("c", "x"), forks=[{"start": 2, "parent": 0}]),
            "messages.2",
        ),
        (
            document(
                user("a"), agent("b", CLIENT), user("c"), tool("d", "call_2"),
                forks=[{"start": 2, "parent": -1}],
            ),
            "messages.3",
        ),
        # what a branch answers stays open for the others
        (
            document(
                user("a"), agent("b", CLIENT), tool("c", "call_2"), user("d"),
                forks=[{"start": 3, "parent": 1}],
            ),
            "messages.3",
        ),
        # the tree
        (document(user("a"), user("b"), leaf=2), "leaf"),
        (document(user("a"), leaf=-2), "leaf"),
        (document(leaf=0), "leaf"),
        (document(user("a"), user("b"), forks=[{"start": 2, "parent": -1}]), "forks.0.start"),
        (document(user("a"), user("b"), forks=[{"start": 0, "parent": -1}]), "forks.0.start"),
        (document(user("a"), user("b"), forks=[{"start": 1, "parent": 0}]), "forks.0.parent"),
        (document(user("a"), user("b"), forks=[{"start": 1, "parent": 1}]), "forks.0.parent"),
        (document(user("a"), user("b"), forks=[{"start": 1, "parent": -2}]), "forks.0.parent"),
        (
            document(
                user("a"), user("b"), user("c"),
                forks=[{"start": 2, "parent": 0}, {"start": 1, "parent": -1}],
            ),
            "forks.1.start",
        ),
        (
            document(
                user("a"), user("b"), user("c"),
                forks=[{"start": 2, "parent": 0}, {"start": 2, "parent": -1}],
            ),
            "forks.1.start",
        ),
        # what is owed
        (document(user("a"), agent("b", CLIENT)), "owed"),
        (document(user("a"), agent("b"), owed=[owed("call_2")]), "owed"),
        (document(user("a"), agent("b", CLIENT), owed=[owed("call_2", name="x")]), "owed"),
        (
            document(user("a"), agent("b", CLIENT), running=True, owed=[owed("call_2")]),
            "owed",
        ),
        # messages
        (document(user("")), "messages.0.id"),
        (document(user("a\nb")), "messages.0.id"),
        (document(user("a" * 257)), "messages.0.id"),
        (document(user("a", created=-1)), "messages.0.created"),
        (document(user("a", created=LATEST + 1)), "messages.0.created"),
        (document(user("a", run_id="run 1")), "messages.0.run_id"),
        (document(user("a"), agent("b", duration=-1)), "messages.1.duration"),
        (document(user("a"), agent("b", window=MOST + 1)), "messages.1.window"),
        (document(user("a"), agent("b", usage={"input_tokens": -1})), "messages.1.usage"),
        (document(user("a"), agent("b", usage={"output_tokens": 10**13})), "messages.1.usage"),
        (document(user("a"), summary("b", keeps=-1)), "messages.1.keeps"),
        (document(user("a"), summary("b", usage={"input_tokens": -1})), "messages.1.usage"),
        (
            document(user("a"), agent("b", call("")), tool("c", "")),
            "messages.1.tool_calls.0.id",
        ),
        (
            document(user("a"), agent("b", call("x", name="a b")), tool("c", "x")),
            "messages.1.tool_calls.0.name",
        ),
        (
            document(user("a"), agent("b", call("x", arguments="[]")), tool("c", "x")),
            "messages.1.tool_calls.0.arguments",
        ),
        (
            document(user("a"), agent("b", CLIENT), tool("c", "call_2", synthetic="denied")),
            "messages.2",
        ),
        (
            document(user("a"), agent("b", ASKS), child("call_3", user("\x00"))),
            "messages.2.id",
        ),
        (document({"role": "root", "id": "a"}), "messages.0"),
        (document({"id": "a"}), "messages.0"),
        (document(user("a", content=[{"type": "script", "text": ""}])), "messages.0"),
        (document(user("a", content=7)), "messages.0"),
        # the rest
        (document(format="other"), "format"),
        (document(version=2), "version"),
        (document(version="1"), "version"),
        (document(version=True), "version"),
        (document(title=7), "title"),
        (document(title="a\nb"), "title"),
        (document(title="x" * 201), "title"),
        (document(title=" "), "title"),
        (document(named=True), "named"),
        (document(created=-1), "created"),
        (document(answer_by=LATEST + 1), "created, updated, answer_by"),
        (document(epochs=-1), "epochs"),
        (document(epochs=MOST + 1), "epochs"),
        (document(epochs=10**400), "epochs"),
        (document(run={"run_id": ""}), "run.run_id"),
        (document(run={"run_id": "r", "committed": [1, 1]}), "run.committed"),
        (document(run={"run_id": "r", "committed": [0, -1]}), "run.committed"),
        (document(run={"run_id": "r", "run_start": 1}), "run.run_start"),
        (document(run={"run_id": "r", "run_start": -1}), "run.run_start"),
        (document(settings={"cwd": "x" * 70_000}), "the settings"),
        (document(settings={"decisions": [["a", "maybe"]]}), "settings"),
        (document(runs={"run_1": "other"}), "runs"),
        (document(runs={"run 1": {}}), "runs"),
        (document(runs={"run_1": {"messages": -1}}), "runs"),
        (document(runs={"run_1": {"spent": {"cost": -1.0}}}), "runs"),
        (document(runs={"run_1": {"usage": {"input_tokens": -1}}}), "runs"),
        (document(receipts={"other": {"fingerprint": PRINT}}), "receipts"),
        (document(receipts={"call:": {"fingerprint": PRINT}}), "receipts"),
        (document(receipts={"key:x": {"fingerprint": PRINT}}), "receipts"),
        (document(receipts={"call:x": {"fingerprint": "x"}}), "receipts"),
        (document(receipts={"call:x": {"fingerprint": PRINT, "run_id": "|"}}), "receipts"),
        (document(state={"cost": -0.1}), "state"),
        (document(state={"seconds": 1e13}), "state"),
        (document(state={"tokens": -1}), "state"),
        (document(state={"usage": {"cached_tokens": -1}}), "state.usage"),
        (document(state={"run": {"run_id": "", "spent": {}}}), "state.run"),
        (document(state={"run": {"run_id": "r", "spent": {"cost": -1}}}), "state.run"),
        (document(state={"title_call": {"spent": {"tokens": -1}}}), "state.title_call"),
        (document(state={"title_call": {"usage": {"input_tokens": -1}}}), "state.title_call"),
        (document(state={"history_start": 1}), "state.history_start"),
        (document(state={"history_start": -1}), "state.history_start"),
        (
            document(
                user("a"), agent("b", CLIENT), tool("c", "call_2"), state={"history_start": 2}
            ),
            "state.history_start",
        ),
        (
            document(
                state={"refusals": [{"call_id": "a", "tool": "b", "reason": ""}] * 21}
            ),
            "state.refusals",
        ),
        (document(state={"shared": {"plan": []}}), "state.shared"),
        (
            document(state={"earlier_shared": {"run_id": "r", "shared": {"": 1}}}),
            "state.shared",
        ),
        (
            document(
                state={
                    "lasting": [
                        {"tool": "t", "digest": "", "approved": False},
                        {"tool": "t", "digest": "", "approved": False},
                    ]
                }
            ),
            "state.lasting",
        ),
        (
            document(
                state={
                    "lasting": [
                        {"tool": f"t{n}", "digest": "", "approved": False} for n in range(65)
                    ]
                }
            ),
            "state.lasting",
        ),
        (
            document(
                state={
                    "lasting": [
                        {"tool": f"t{n}", "digest": "", "approved": True} for n in range(65)
                    ]
                }
            ),
            "state.lasting",
        ),
    ],
)  # fmt: skip
def test_a_document_that_the_server_cannot_have_written_is_refused(
    posted: dict[str, Any], place: str
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        checked(posted)
    message = refused.value.message
    assert message.startswith(place) or (place == "format" and FORMAT in message), message
    assert len(message) < 400


@pytest.mark.parametrize("posted", [None, [], "text", 7, {}])
def test_what_is_no_document_is_refused(posted: Any) -> None:
    with pytest.raises(InvalidRequest, match=FORMAT):
        read_document(posted)


def _places(part: Any, place: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [place]
    if isinstance(part, dict):
        for name, each in part.items():
            found += _places(each, (*place, name))
    if isinstance(part, list):
        for number, each in enumerate(part):
            found += _places(each, (*place, number))
    return found


@pytest.mark.parametrize("value", [None, -1, 10**30, 1e300, "", "x\0" * 300, [], {}, [[]], True])
def test_no_value_anywhere_does_harm(value: Any) -> None:
    """Whatever stands in the place of a part, the document is refused or is as good as another."""
    for place in _places(FULL)[1:]:
        posted = copy.deepcopy(FULL)
        inner: Any = posted
        for step in place[:-1]:
            inner = inner[step]
        inner[place[-1]] = copy.deepcopy(value)
        try:
            made = checked(posted)
        except InvalidRequest:
            continue
        again = exported(written(made))
        assert checked(again).messages == made.messages
        assert exported(written(checked(again))) == again


CALLS = [call(f"c{number}", client=True) for number in range(1000)]
LEFT = [owed(each["id"]) for each in CALLS[:-1]]


def test_a_long_conversation_with_many_branches_is_imported() -> None:
    ends = [tool(f"t{number}", f"c{number}") for number in range(1000)]
    turns = [turn for n in range(10_000) for turn in (user(f"u{n}"), agent(f"a{n}"))]
    forks = [{"start": 1002 + 2 * n, "parent": 1001} for n in range(1, 10_000)]
    made = checked(document(user("a"), agent("b", *CALLS), *ends, *turns, forks=forks))
    assert (len(made.messages), len(made.tree)) == (21_002, 1004)


def test_branches_within_turns_cost_no_more_than_they_may() -> None:
    def branches(count: int) -> dict[str, Any]:
        """A document with branches that begin where a thousand calls are open."""
        ends = [tool(f"t{number}", "c999") for number in range(count)]
        forks = [{"start": 2 + number, "parent": 1} for number in range(1, count)]
        return document(user("a"), agent("b", *CALLS), *ends, forks=forks, owed=LEFT)

    assert len(checked(branches(199)).owed) == 999
    with pytest.raises(InvalidRequest, match="too many branches begin within a turn"):
        checked(branches(20_000))
