"""The error tree, cursors, ids, sums, and what becomes of texts."""

import re
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from passback.core import errors, messages
from passback.core.changes import Enqueue, QueuedPost
from passback.core.errors import ConversationBusy, InvalidCursor, PassbackError
from passback.core.events import START, Cursor, Position
from passback.core.messages import (
    ConversationId,
    ConversationKey,
    DataPart,
    MediaPart,
    OwnerId,
    RefusalPart,
    RunId,
    RunRef,
    TextPart,
    Usage,
    as_text,
    fold_name,
)
from passback.core.posts import OnBusy, StartRun
from passback.core.text import replace_surrogates


# ---------------------------------------------------------------- errors
def tree(root: type[PassbackError]) -> Iterator[type[PassbackError]]:
    yield root
    for child in root.__subclasses__():
        yield from tree(child)


def drawn() -> list[tuple[int, str, str]]:
    """Depth, name and code of each error in the drawing of the module's docstring."""
    found = re.findall(r"^([│ ]*[├└]── )(\w+)(?: +(\w+))?", errors.__doc__ or "", re.MULTILINE)
    return [(len(lines) // 4, name, code) for lines, name, code in found]


def test_the_drawing_is_the_tree() -> None:
    def walk(parent: type[PassbackError], depth: int) -> Iterator[tuple[int, str, str]]:
        for child in parent.__subclasses__():
            shown = "" if child.__name__ == "ClientError" else child.code
            yield depth, child.__name__, shown
            yield from walk(child, depth + 1)

    names = [(depth, name, "" if name == "ClientError" else code) for depth, name, code in drawn()]
    assert names == list(walk(PassbackError, 1))


def test_every_error_has_a_code_of_its_own() -> None:
    codes = [error.code for error in tree(PassbackError)]
    assert len(set(codes)) == len(codes)
    assert all(re.fullmatch(r"[a-z_]+", code) for code in codes)


def test_an_error_carries_what_the_client_is_told() -> None:
    error = ConversationBusy("wait", retry_after=2, details={"run": "r"})
    assert (error.message, str(error), error.retry_after, error.details, error.retryable) == (
        "wait",
        "wait",
        2,
        {"run": "r"},
        True,
    )
    assert PassbackError("x").details == {}


# ---------------------------------------------------------------- cursors
COUNTS = st.integers(0, 10**15 - 1)


@given(st.text(min_size=1), COUNTS, COUNTS)
def test_a_cursor_is_read_back_as_it_was_written(run: str, epoch: int, seq: int) -> None:
    cursor = Cursor(RunId(run), Position(epoch, seq))
    assert Cursor.parse(str(cursor)) == cursor


def test_a_cursor_names_its_run_and_place() -> None:
    assert str(Cursor(RunId("run_1"), Position(2, 30))) == "run_1.2-30"


@pytest.mark.parametrize(
    "text",
    [
        *("", "1-2", ".1-2", "run", "run.", "run.1", "run.1-", "run.-2", "run.a-2", "run.1-2x"),
        *("run.1--2", "run.+1-2", "run.1- 2", "run.\u00b2-1", "run.\u0661-1", "run.1-1e3"),
        f"run.1-{'9' * 16}",
    ],
)
def test_what_is_no_cursor_is_refused(text: str) -> None:
    with pytest.raises(InvalidCursor):
        Cursor.parse(text)


@pytest.mark.parametrize(
    ("on_busy", "stops"),
    [("reject", False), ("enqueue", False), ("interrupt", True), ("rollback", True)],
)
def test_a_post_that_waits_names_its_run_and_may_stop_what_is_before_it(
    on_busy: OnBusy, stops: bool
) -> None:
    key = ConversationKey(OwnerId("owner"), ConversationId("conversation"))
    queued = QueuedPost(RunId("r"), StartRun(key, (), on_busy=on_busy))
    waiting = Enqueue(queued, {}, (), limit=1)
    assert waiting.run == RunRef(key, RunId("r"))
    assert queued.stops is waiting.stops is stops


def test_places_are_ordered_by_epoch_first() -> None:
    assert START < Position(1, 1) < Position(1, 2) < Position(2, 1)


# ---------------------------------------------------------------- ids and sums
def test_new_ids_say_what_they_name_and_are_safe_in_every_wire() -> None:
    made = [
        messages.new_conversation_id(),
        messages.new_run_id(),
        messages.new_message_id(),
        messages.new_call_id(),
    ]
    assert [re.fullmatch(r"(conv|run|msg|call)_[0-9a-f]{24}", one) is not None for one in made] == [
        True
    ] * 4
    assert len({messages.new_nonce() for _ in range(100)}) == 100


def test_usage_adds_up() -> None:
    assert Usage(1, 2, 3, 4) + Usage(10, 20, 30, 40) == Usage(11, 22, 33, 44)
    assert Usage(11, 22, 33, 44) - Usage(10, 20, 30, 40) == Usage(1, 2, 3, 4)
    assert (Usage(estimated=True) + Usage(1)).estimated
    assert (Usage(1) + Usage(estimated=True)).estimated
    assert not (Usage(1) + Usage(1)).estimated
    assert (Usage(2, estimated=True) - Usage(1)).estimated


# ---------------------------------------------------------------- texts
def test_content_becomes_a_text_line_by_line() -> None:
    parts = (
        TextPart("a"),
        DataPart({"ü": [1]}),
        MediaPart("image", "https://x/y.png"),
        RefusalPart("no"),
    )
    assert as_text(parts, media=lambda part: f"[{part.type}]") == 'a\n{"ü": [1]}\n[image]\nno'
    assert as_text("as it is", media=str) == "as it is"


def test_names_that_look_alike_are_folded_into_one() -> None:
    assert fold_name("Pa\uff49nt") == fold_name("pAint") == "paint"  # with a fullwidth i


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("ü🗨", "ü🗨"),
        ("a\ud83d", "a\ufffd"),
        ("\ude00b", "\ufffdb"),
        ("\ud83d\ude00", "😀"),
    ],
    ids=["ascii", "unicode", "high", "low", "pair"],
)
def test_a_text_with_halves_of_characters_is_mended(text: str, expected: str) -> None:
    assert replace_surrogates(text) == expected
