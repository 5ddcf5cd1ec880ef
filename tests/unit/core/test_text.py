"""Suggestions for a name that there is not."""

from collections.abc import Sequence

import pytest

from passback.core.text import did_you_mean, nearest_names

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
def test_what_is_near_is_suggested_and_all_that_is_equally_near(
    text: str, meant: Sequence[str]
) -> None:
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
