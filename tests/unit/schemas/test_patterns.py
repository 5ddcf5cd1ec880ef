"""Patterns have the meaning of ECMA-262, and are run without backtracking and within bounds."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from passback.schemas.patterns import pattern_occurs

FOUND = [
    ("", ""),
    ("b", "abc"),
    (r"^\d{4}-\d{2}$", "2026-11"),
    (r"^[\w.+-]+@[\w-]+$", "a.b+c@d-e"),
    (r"^[^\W\d]$", "a"),
    (r"\bred\b", "a red car"),
    (r"^[\b]$", "\b"),
    (r"^\<\/\>$", "</>"),
    (r"^[[&~]+$", "[&~"),
    (r"^[\]]$", "]"),
    (r"^\p{L}+$", "été"),
    (r"^[\p{L}\p{N}]+$", "é9"),
    (r"^\P{L}$", "1"),
    (r"^(?:a|b){2,}$", "abab"),
    (r"^(?<year>\d+)$", "1"),
    (r"^\u00e9\x41$", "éA"),
    (r"^[\s\S]*$", "a\nb"),
    ("^.{1,3}$", "äöü"),
]


@pytest.mark.parametrize(("pattern", "text"), FOUND)
def test_a_pattern_is_found(pattern: str, text: str) -> None:
    assert pattern_occurs(pattern, text) is True


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("b", "ac"),
        (r"^\d$", "٣"),
        (r"^\w$", "é"),
        (r"^\W$", "a"),
        (r"^\D$", "1"),
        (r"\bé", "é"),
        (r"a$", "a\n"),
        (r"^[^\d]$", "1"),
    ],
)
def test_a_pattern_is_not_found(pattern: str, text: str) -> None:
    assert pattern_occurs(pattern, text) is False


@pytest.mark.parametrize(
    "pattern",
    [
        "(",
        ")",
        "a)(b",
        "(?=a)b",
        r"(a)\1",
        "[]",
        "[^]",
        "[a",
        "[+--]",
        r"\cA",
        r"\u{zz}",
        "a{",
        "a{,3}",
        "{",
    ],
)
def test_a_pattern_unknown_to_the_engine_is_not_run(pattern: str) -> None:
    assert pattern_occurs(pattern, "a") is None


@pytest.mark.promise("P11")
@pytest.mark.parametrize(
    "pattern",
    [
        "(?:(?:a{1000}){1000}){1000}",
        "a{999999}",
        r"\p{L}{1000}",
        r"(?:[\p{L}\p{N}\p{S}]{10}){10}",
        r"(?:.{100}){100}",
        "ab" * 15_000,
    ],
)
def test_a_pattern_that_compiles_to_a_large_program_is_not_run(pattern: str) -> None:
    assert pattern_occurs(pattern, "a") is None


@pytest.mark.promise("P11")
@pytest.mark.parametrize(
    "pattern", ["^(a+)+$", "^(a|a)*$", "^(a|aa)+$", "^(.*a){20}$", "(x+x+)+y", "^([a-z]+)*b$"]
)
def test_a_pattern_that_makes_others_backtrack_ends_at_once(pattern: str) -> None:
    assert pattern_occurs(pattern, "a" * 10_000 + "!") is False


@pytest.mark.promise("P11")
def test_a_search_that_may_take_long_is_not_made() -> None:
    assert pattern_occurs("^[ab]*a[ab]{1000}$", "ab" * 100) is False
    assert pattern_occurs("^[ab]*a[ab]{1000}$", "ab" * 10_000) is None


_atoms = st.sampled_from(
    ["a", "b", ".", "[ab]", "[^a]", r"\d", r"\w", "(?:ab|b)", "^", "$", r"\.", "[a-c.]"]
)
_patterns = st.lists(
    st.tuples(_atoms, st.sampled_from(["", "*", "+", "?", "{2}", "{1,2}"])), max_size=4
).map(lambda pieces: "".join(a if a in "^$" else a + q for a, q in pieces))


@given(_patterns, st.text("ab.1 ", max_size=6))
def test_a_plain_pattern_is_found_where_python_finds_it(pattern: str, text: str) -> None:
    assert pattern_occurs(pattern, text) is bool(re.search(pattern, text, re.ASCII))
