"""Tables as structured data: which values are one, their rows, and errors of unreadable ones."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from passback.core.tables import (
    BadTable,
    MixedColumn,
    Table,
    check_table,
    find_table,
    find_tables,
    mixed_columns,
    read_head,
    read_rows,
    replace_tables,
)


def csv(text: str) -> dict[str, JsonValue]:
    return {"mediaType": "text/csv", "text": text}


NO_TABLES: list[JsonValue] = [
    None,
    "a,b",
    [csv("a")],
    {"mediaType": "text/csv"},
    {"text": "a,b"},
    {"mediaType": "text/plain", "text": "a,b"},
    {"mediaType": 5, "text": "a,b"},
    {"mediaType": "text/csv", "text": ["a,b"]},
    {"deep": {"deeper": csv("a,a")}},
]


@pytest.mark.parametrize("data", NO_TABLES)
def test_what_does_not_say_so_is_no_table(data: JsonValue) -> None:
    assert find_table(data) is None
    assert [*find_tables(data)] == []
    assert replace_tables(data) == data


def test_tables_are_the_data_or_what_its_keys_hold() -> None:
    data: JsonValue = {"": csv("a\n1"), "b": csv("b\nx"), "c": 1}
    assert [key for key, _ in find_tables(data)] == ["", "b"]
    assert replace_tables(data) == {"": [{"a": 1}], "b": [{"b": "x"}], "c": 1}
    assert replace_tables(csv("a\n")) == []
    assert replace_tables({**csv("a\n1"), "name": "x"}) == [{"a": 1}]


COLUMNS: list[tuple[list[str], list[JsonValue]]] = [
    (["1", "-2.5", "1e3", ""], [1, -2.5, 1000.0, None]),
    (["12345678901234567890"], [12345678901234567890]),
    (["1", "007"], ["1", "007"]),
    ([" 120", "9 ", " "], [120, 9, None]),
    ([" true", "false"], [True, False]),
    ([" 120", "n/a"], [" 120", "n/a"]),
    (["+1"], ["+1"]),
    (["1,000", "1"], ["1,000", "1"]),
    (["1e999", "1"], ["1e999", "1"]),
    (["NaN", "1"], ["NaN", "1"]),
    (["9" * 5000], ["9" * 5000]),
    (["\N{ARABIC-INDIC DIGIT ONE}"], ["\N{ARABIC-INDIC DIGIT ONE}"]),
    (["true", "", "false"], [True, None, False]),
    (["true", "1"], ["true", "1"]),
    (["TRUE"], ["TRUE"]),
    (["a", "", "NULL"], ["a", None, "NULL"]),
    (["", ""], [None, None]),
]


@pytest.mark.parametrize(("fields", "values"), COLUMNS)
def test_a_column_has_values_of_one_kind(fields: list[str], values: list[JsonValue]) -> None:
    text = "n,c\n" + "".join(f'x,"{field}"\n' for field in fields)
    rows = read_rows(Table(text, "text/csv"))
    assert [row["c"] for row in rows] == values
    assert [type(row["c"]) for row in rows] == [type(value) for value in values]


BAD: list[tuple[str, str]] = [
    ("", "it has no header"),
    ("\n\r\n", "it has no header"),
    ("a,,b\n", "column 2 of its header has no name"),
    ("a,b,a\n", "its header has the column 'a' twice"),
    ("a;b\n1;2\n", "its header is a single column, 'a;b': separate its fields by ','"),
    ("a,b\n1,2\n\n3\n", "line 4 has 1 field, and the header 2"),
    ('a,b\n"x\ny",2\n1,2,3\n', "line 4 has 3 fields, and the header 2"),
    ('a,b\n"1,2\n3,4\n', "line 3: a quoted field does not end"),
    ('a,b\n"1"2,3\n', "line 2: ',' expected after"),
    (f"a\n{'x' * 140_000}\n", "line 2: field larger than field limit"),
]


@pytest.mark.parametrize(("text", "problem"), BAD)
def test_a_table_that_cannot_be_read_says_where(text: str, problem: str) -> None:
    for read in (check_table, read_rows):
        with pytest.raises(BadTable, match=problem.replace("(", r"\(")):
            read(Table(text, "text/csv"))


def test_the_head_of_a_table_is_read_alone() -> None:
    assert read_head(Table("a,b\n1,2\n3,4\nragged\n", "text/csv"), 2) == (
        ["a", "b"],
        [["1", "2"], ["3", "4"]],
    )
    with pytest.raises(BadTable):
        read_head(Table("a,a\n", "text/csv"), 1)


@pytest.mark.parametrize(
    ("fields", "mixed"),
    [
        (["1", " 2 ", "", "n/a", "3"], (1, 4, "n/a")),
        (["-", "1", "2", "3", "4", "x"], (2, 6, "-")),
        (["1", "2", "1e999"], (1, 3, "1e999")),
        (["1", "2", ""], None),
        (["1", "a"], None),  # as many texts as numbers
        (["a", "b", "1"], None),
        (["", ""], None),
    ],
)
def test_a_column_of_texts_whose_fields_are_mostly_numbers_is_named(
    fields: list[str], mixed: tuple[int, int, str] | None
) -> None:
    table = Table("n,c\n" + "".join(f"x,{field}\n" for field in fields), "text/csv")
    expected = [] if mixed is None else [MixedColumn("c", *mixed)]
    assert mixed_columns(table) == expected
    assert all(isinstance(row["c"], str | None) for row in read_rows(table)) or not expected
    assert mixed_columns(Table("n,c\n", "text/csv")) == []


@given(st.text(alphabet='ab1,;\t"\n\r \ufeff', max_size=40))
def test_any_text_is_a_table_or_says_why_not(text: str) -> None:
    table = find_table(csv(text))
    assert table is not None
    with suppress(BadTable):
        check_table(table)
        rows = read_rows(table)
        assert all(row.keys() == rows[0].keys() for row in rows)
