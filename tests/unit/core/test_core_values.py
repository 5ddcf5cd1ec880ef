"""The small values of the core: limits, permissions, texts."""

import math
import re
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, TypeAdapter, ValidationError
from tests.unit.core.admission import KEY, call

from passback.core import errors
from passback.core.budgets import (
    Budget,
    BudgetLimits,
    Left,
    Price,
    Spent,
    model_price,
    tightest_left,
)
from passback.core.changes import Enqueue, QueuedPost
from passback.core.errors import ConfigurationError, ConversationBusy, InvalidCursor, PassbackError
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
from passback.core.permissions import Decision, Permission, pattern_rule
from passback.core.posts import OnBusy, StartRun
from passback.core.text import (
    describe_validation_error,
    did_you_mean,
    nearest_names,
    replace_surrogates,
)
from passback.core.values import value


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


def test_an_error_has_a_code_and_a_message_for_the_client() -> None:
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
def test_a_queued_post_names_its_run_and_may_interrupt(on_busy: OnBusy, stops: bool) -> None:
    key = ConversationKey(OwnerId("owner"), ConversationId("conversation"))
    queued = QueuedPost(RunId("r"), StartRun(key, (), on_busy=on_busy))
    waiting = Enqueue(queued, {}, (), limit=1)
    assert waiting.run == RunRef(key, RunId("r"))
    assert queued.stops is waiting.stops is stops


def test_places_are_ordered_by_epoch_first() -> None:
    assert START < Position(1, 1) < Position(1, 2) < Position(2, 1)


# ---------------------------------------------------------------- sums
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
def test_lone_surrogates_in_a_text_are_replaced(text: str, expected: str) -> None:
    assert replace_surrogates(text) == expected


# ---------------------------------------------------------------- the decorator
@value
class Point:
    x: int
    y: int = 0


def test_values_of_the_same_fields_are_one() -> None:
    assert Point(1) == Point(1, 0)
    assert {Point(1), Point(1, 0)} == {replace(Point(2), x=1)}
    assert Point(1) != Point(2)


def test_a_value_has_its_fields_and_nothing_else() -> None:
    with pytest.raises(AttributeError):
        Point(1).z = 2  # type: ignore[attr-defined]


def _changed(point: Point) -> None:
    """Never called: a comment that mypy did not need would be an error of its own."""
    point.x = 2  # type: ignore[misc]


# ---------------------------------------------------------------- texts
NAMES = ("port", "prompt", "host", "cost", "max_run_tokens", "max_owner_tokens", "model_timeout")


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("port", ["port"]),
        ("prot", ["port"]),  # two that are swapped are one mistake
        ("pot", ["port"]),
        ("prt", ["port"]),
        ("prompot", ["prompt"]),
        ("hort", ["port", "host"]),  # equally near
        ("cots", ["cost"]),
        ("max_tokens", ["max_run_tokens", "max_owner_tokens"]),  # a word is missing
        ("timeout", ["model_timeout"]),
        ("fly", []),
        ("", []),
        ("_", []),
        ("port" * 30, []),
    ],
)
def test_the_nearest_names_are_suggested(text: str, meant: Sequence[str]) -> None:
    assert nearest_names(text, NAMES) == meant
    assert nearest_names(text, []) == []


@pytest.mark.parametrize(
    ("likely", "question"),
    [
        ([], ""),
        (["a"], " (did you mean a?)"),
        (["a", "b"], " (did you mean a or b?)"),
        (["a", "b", "c"], " (did you mean a, b or c?)"),
    ],
)
def test_the_question_names_all_of_them(likely: Sequence[str], question: str) -> None:
    assert did_you_mean(likely) == question


def test_no_more_than_three_are_suggested() -> None:
    assert nearest_names("key_a", ["key_b", "key_c", "key_d", "key_e"]) == [
        "key_b",
        "key_c",
        "key_d",
    ]


# ---------------------------------------------------------------- errors of validation
@pytest.mark.parametrize(
    ("form", "value", "words"),
    [
        (tuple[int, ...], {}, "Input should be a valid list"),
        (set[int], {}, "Input should be a valid list"),
        (frozenset[int], {}, "Input should be a valid list"),
        (list[int], {}, "Input should be a valid list"),
        (Mapping[str, int], [], "Input should be an object"),
        (dict[str, int], [], "Input should be an object"),
        (
            Annotated[tuple[int, ...], Field(max_length=1)],
            [1, 2],
            "List should have at most 1 item",
        ),
        (Annotated[set[int], Field(max_length=1)], [1, 2], "List should have at most 1 item"),
        (Annotated[frozenset[int], Field(min_length=1)], [], "List should have at least 1 item"),
    ],
)
def test_an_error_has_the_words_of_json(form: Any, value: object, words: str) -> None:
    with pytest.raises(ValidationError) as refused:
        TypeAdapter[object](form).validate_python(value)
    assert describe_validation_error(refused.value.errors()[0]).startswith(words)


# ---------------------------------------------------------------- limits
PRICES = {"a": Price(1, 10, 0.5), "b": Price(2, 8, 0.1)}

amounts = st.none() | st.integers(1, 1000)
limits = st.builds(BudgetLimits, amounts, amounts, amounts)
spendings = st.builds(
    Spent, st.integers(0, 2000), st.floats(0, 2000), st.floats(0, 2000, allow_subnormal=False)
)


# ---------------------------------------------------------------- limits
@pytest.mark.parametrize("amount", [0, -1, math.inf, math.nan])
def test_a_limit_leaves_something(amount: float) -> None:
    with pytest.raises(ConfigurationError):
        BudgetLimits(seconds=amount)
    with pytest.raises(ConfigurationError):
        BudgetLimits(cost=amount)


def test_what_is_left_is_never_less_than_nothing_and_only_of_what_is_limited() -> None:
    spent = Spent(30, 2.5, 0.5)
    assert BudgetLimits().left(spent) == Left()
    assert BudgetLimits(100, 3, 1).left(spent) == Left(None, 70, 0.5, 0.5)
    assert BudgetLimits(29, 2, 0.25).left(spent) == Left(None, 0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("left", "used_up"),
    [
        (Left(), False),
        (Left(turns=0), False),
        (Left(1, 1, 0.001, 0.001), False),
        (Left(tokens=0), True),
        (Left(seconds=0.0), True),
        (Left(cost=0.0), True),
    ],
)
def test_a_budget_is_used_up_when_one_kind_of_it_is(left: Left, used_up: bool) -> None:
    assert left.is_used_up is used_up


@given(limits, limits, spendings)
def test_the_tighter_of_two_limits_counts(
    one: BudgetLimits, other: BudgetLimits, spent: Spent
) -> None:
    both = tightest_left((one.left(spent), other.left(spent)))
    assert one.within(other).left(spent) == both == other.within(one).left(spent)


def test_a_budget_within_another_has_the_tighter_limits_of_each() -> None:
    assert not Budget().is_set
    one = Budget(BudgetLimits(tokens=5), owner=BudgetLimits(cost=1))
    other = Budget(BudgetLimits(tokens=9, seconds=2), BudgetLimits(seconds=3))
    assert one.within(other) == Budget(
        BudgetLimits(5, 2), BudgetLimits(seconds=3), BudgetLimits(cost=1)
    )
    assert one.is_set
    assert one.limits_cost
    assert not other.limits_cost
    assert (BudgetLimits().is_set, BudgetLimits(cost=1).is_set) == (False, True)


@given(spendings, spendings)
def test_what_is_added_can_be_taken_off(one: Spent, other: Spent) -> None:
    rest = one + other - other
    assert rest.tokens == one.tokens
    assert (rest.seconds, rest.cost) == pytest.approx((one.seconds, one.cost), abs=1e-9)


# ---------------------------------------------------------------- prices
def test_cached_input_has_a_price_of_its_own() -> None:
    usage = Usage(1_000_000, 100_000, cached_tokens=400_000)
    assert Price(1.25, 10, 0.125).of(usage) == pytest.approx(0.6 * 1.25 + 0.4 * 0.125 + 1)


def test_more_cached_tokens_than_tokens_cost_no_less_than_nothing() -> None:
    assert Price(1, 1, 0).of(Usage(1, 0, cached_tokens=5)) == 0


def test_a_model_without_a_price_costs_nothing_and_of_several_the_dearest_counts() -> None:
    assert model_price("c", PRICES) == Price()
    assert model_price("a", PRICES) == PRICES["a"]
    assert model_price("c,a,b", PRICES) == Price(2, 10, 0.5)


# ---------------------------------------------------------------- permissions
CALL = call("s", client=False)


@pytest.mark.parametrize(
    ("patterns", "name", "decision"),
    [
        ({"delete_*": "ask"}, "delete_file", "ask"),
        ({"delete_*": "ask"}, "Delete_file", None),
        ({"delete_*": "ask"}, "undelete_file", None),
        ({"delete_?": "ask"}, "delete_a", "ask"),
        ({"delete_[ab]": "ask"}, "delete_c", None),
        ({"delete_*": "ask", "*": "deny"}, "delete_file", "ask"),
        ({"*": "deny", "delete_*": "allow"}, "delete_file", "deny"),
        ({}, "delete_file", None),
    ],
)
@pytest.mark.anyio
async def test_the_first_pattern_that_fits_the_whole_name_decides(
    patterns: dict[str, Decision], name: str, decision: Decision | None
) -> None:
    run = RunRef(KEY, RunId("r"))
    answer = pattern_rule(patterns)(replace(CALL, name=name), run)
    assert isinstance(answer, Awaitable)
    assert await answer == decision


@pytest.mark.parametrize("word", ["", "yes", "ALLOW", None, True, False, "asks"])
def test_what_is_no_decision_is_no_permission(word: Decision) -> None:
    with pytest.raises(ConfigurationError, match="one of allow, deny, ask"):
        Permission(word)
    with pytest.raises(ConfigurationError, match="'delete' has to be one of allow, deny, ask"):
        pattern_rule({"delete": word})
