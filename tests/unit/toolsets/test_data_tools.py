"""The data tools: their results for the data of a conversation, and the bounds of their queries."""

import json
import math
import os
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import anyio
import pytest
from pydantic import JsonValue

from passback.core.messages import (
    CallId,
    ConversationId,
    ConversationKey,
    OwnerId,
    RunId,
    RunRef,
    ToolCall,
    ToolResult,
)
from passback.core.toolsets import ToolContext
from passback.pacing import FairLimiter
from passback.toolsets.data import DATA_TOOLS, PLACES
from passback.toolsets.querying import Query, answer_query, summary

pytestmark = pytest.mark.anyio

RUN = RunRef(ConversationKey(OwnerId("owner"), ConversationId("c")), RunId("r"))
ORDERS: JsonValue = {
    "orders": [
        {"customer": "Ann", "total": 120, "paid": True},
        {"customer": "Bob", "total": 80.5, "paid": False},
        {"customer": "Ann", "total": 40},
    ],
    "year": 2026,
}
DOUBLINGS = " | ".join(["[@, @]"] * 60)


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True, scope="module")
async def shared_loop(anyio_backend: str) -> None:
    """One loop for all tests: the processes that it has started are used again."""


async def call(name: str, data: JsonValue = ORDERS, **arguments: Any) -> ToolResult:
    """Call a tool after a process has started: its start shall not count for the deadline."""
    await ask("query_data", {}, expression="@")
    return await ask(name, data, **arguments)


async def ask(name: str, data: JsonValue, **arguments: Any) -> ToolResult:
    made = ToolCall(CallId("c"), name, json.dumps(arguments))
    return await DATA_TOOLS.call(made, ToolContext(RUN, CallId("c"), data=data))


async def test_the_tools_change_nothing_and_may_run_together() -> None:
    specs = await DATA_TOOLS.specs()
    names = [spec.name for spec in specs]
    assert [(spec.title, spec.kind) for spec in specs] == [
        ("Query the data", "read"),
        ("Summarise the data", "read"),
        ("Check the data", "read"),
    ]
    assert names == ["query_data", "summarise_data", "validate_data"]
    assert all(DATA_TOOLS.is_read_only(name) and DATA_TOOLS.is_repeatable(name) for name in names)


# ---------------------------------------------------------------- results
@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ("orders[?total > `50`].customer", ["Ann", "Bob"]),
        ("sum(orders[].total)", 240.5),
        ("year", 2026),
        ("nothing", None),
        ("orders[0]", {"customer": "Ann", "total": 120, "paid": True}),
    ],
)
async def test_a_query_gives_json(expression: str, found: JsonValue) -> None:
    result = await call("query_data", expression=expression)
    assert not result.is_error
    assert json.loads(str(result.content)) == found


@pytest.mark.skipif(sys.platform != "linux", reason="finds the process in /proc")
async def test_a_query_whose_process_was_killed_meanwhile_is_made_in_another_one() -> None:
    assert not (await call("query_data", expression="year")).is_error
    waiting = query_processes()
    assert waiting
    for process in waiting:
        os.kill(process, signal.SIGKILL)
    assert (await ask("query_data", ORDERS, expression="year")).content == "2026"


def query_processes() -> list[int]:
    """Return the processes that wait for queries: those of tests before are used again."""
    children = Path(f"/proc/{os.getpid()}/task").glob("*/children")
    found = [int(pid) for each in children for pid in each.read_text().split()]
    return [
        pid for pid in found if b"anyio.to_process" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]


async def test_a_summary_describes_each_field() -> None:
    result = await call("summarise_data", expression="orders")
    assert json.loads(str(result.content)) == {
        "type": "list",
        "items": 3,
        "records": 3,
        "field_count": 3,
        "fields": {
            "customer": {
                "missing": 0,
                "types": {"text": 3},
                "min": "Ann",
                "max": "Bob",
                "distinct": 2,
                "most_common": [{"value": "Ann", "count": 2}, {"value": "Bob", "count": 1}],
            },
            "total": {
                "missing": 0,
                "types": {"number": 3},
                "min": 40,
                "max": 120,
                "mean": pytest.approx(80.1666667),
                "median": 80.5,
                "stdev": pytest.approx(40.0010417),
                "distinct": 3,
                "most_common": [
                    {"value": 120, "count": 1},
                    {"value": 80.5, "count": 1},
                    {"value": 40, "count": 1},
                ],
            },
            "paid": {
                "missing": 1,
                "types": {"boolean": 2},
                "distinct": 2,
                "most_common": [{"value": True, "count": 1}, {"value": False, "count": 1}],
            },
        },
    }


async def test_without_an_expression_all_is_summarised() -> None:
    summarised = json.loads(str((await call("summarise_data")).content))
    assert summarised["keys"] == 2
    assert summarised["fields"]["orders"]["items"] == 3
    assert summarised["fields"]["year"] == {"type": "number", "value": 2026}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ([], {"type": "list", "items": 0, "types": {}}),
        (
            [1, True, None, [2]],
            {
                "type": "list",
                "items": 4,
                "types": {"number": 1, "boolean": 1, "null": 1, "list": 1},
                "min": 1,
                "max": 1,
                "mean": 1,
                "median": 1,
                "distinct": 3,
                "most_common": [
                    {"value": 1, "count": 1},
                    {"value": True, "count": 1},
                    {"value": None, "count": 1},
                ],
            },
        ),
        (
            [10**400],
            {
                "type": "list",
                "items": 1,
                "types": {"number": 1},
                "min": 10**400,
                "max": 10**400,
                "mean": 10**400,
                "median": 10**400,
                "distinct": 1,
                "most_common": [{"value": 10**400, "count": 1}],
            },
        ),
        (
            [1e308, 1.5e308, {"a": math.inf}, {"a": math.nan}, "x"],
            {
                "type": "list",
                "items": 5,
                "records": 2,
                "others": {
                    "types": {"number": 2, "text": 1},
                    "min": 1e308,
                    "max": 1.5e308,
                    "mean": 1.25e308,
                    "stdev": pytest.approx(3.5355339e307),
                    "distinct": 3,
                    "most_common": [
                        {"value": 1e308, "count": 1},
                        {"value": 1.5e308, "count": 1},
                        {"value": "x", "count": 1},
                    ],
                },
                "field_count": 1,
                "fields": {
                    "a": {
                        "missing": 0,
                        "types": {"number": 2},
                        "distinct": 2,
                        "most_common": [
                            {"value": math.inf, "count": 1},
                            {"value": pytest.approx(math.nan, nan_ok=True), "count": 1},
                        ],
                    }
                },
            },
        ),
        (
            [10**400, 1.5, "x"],
            {
                "type": "list",
                "items": 3,
                "types": {"number": 2, "text": 1},
                "min": 1.5,
                "max": 10**400,
                "distinct": 3,
                "most_common": [
                    {"value": 10**400, "count": 1},
                    {"value": 1.5, "count": 1},
                    {"value": "x", "count": 1},
                ],
            },
        ),
        ("x" * 100, {"type": "text", "value": f"{'x' * 80}..."}),
        (
            {"a": {"b": {"c": 1}}},
            {
                "type": "object",
                "keys": 1,
                "fields": {
                    "a": {
                        "type": "object",
                        "keys": 1,
                        "fields": {"b": {"type": "object", "keys": 1}},
                    }
                },
            },
        ),
    ],
)
def test_any_value_has_a_summary(value: JsonValue, expected: JsonValue) -> None:
    assert summary(value) == expected


ORDER = {
    "type": "object",
    "properties": {"total": {"type": "number", "minimum": 50}},
    "required": ["customer"],
}


@pytest.mark.parametrize(
    ("arguments", "verdict"),
    [
        ({"schema": {"type": "object", "required": ["orders"]}}, "It fits."),
        ({"schema": ORDER, "expression": "orders[0]"}, "It fits."),
        (
            {"schema": {"type": "array", "items": ORDER}, "expression": "orders"},
            "It does not fit: at $[2].total: 40 is less than the minimum of 50",
        ),
    ],
)
async def test_data_is_validated_by_a_schema(arguments: dict[str, Any], verdict: str) -> None:
    result = await call("validate_data", **arguments)
    assert (result.content, result.is_error) == (verdict, False)


# ---------------------------------------------------------------- tables
CSV = 'customer,total,paid,zip,since\r\nAnn,120,true,0079,2024-02-01\r\n"Bob, jr.",80.5,,1010,\r\n'
ROWS = [
    {"customer": "Ann", "total": 120, "paid": True, "zip": "0079", "since": "2024-02-01"},
    {"customer": "Bob, jr.", "total": 80.5, "paid": None, "zip": "1010", "since": None},
]
TABLE: JsonValue = {"mediaType": "text/csv", "text": CSV}
TABLES: list[tuple[JsonValue, str]] = [
    (TABLE, "@"),
    ({"orders": TABLE, "year": 2026}, "orders"),
    ({"mediaType": "Text/CSV; charset=utf-8", "text": f"\ufeff{CSV}"}, "@"),
    (
        {
            "mediaType": "text/tab-separated-values",
            "text": CSV.replace(",", "\t").replace('"Bob\t jr."', "Bob, jr."),
        },
        "@",
    ),
]


@pytest.mark.parametrize(("data", "expression"), TABLES)
def test_a_table_is_a_list_of_rows(data: JsonValue, expression: str) -> None:
    text = json.dumps(data).encode()
    assert json.loads(answer_query(text, Query(expression, 1000))) == ROWS
    query = Query(f"{expression}[?total > `100`].customer", 100)
    assert answer_query(text, query) == '["Ann"]'
    summarised = json.loads(answer_query(text, Query(expression, 10_000, summarised=True)))
    assert (summarised["items"], summarised["records"], summarised["field_count"]) == (2, 2, 5)
    assert summarised["fields"]["total"] == {
        "missing": 0,
        "types": {"number": 2},
        "min": 80.5,
        "max": 120,
        "mean": 100.25,
        "median": 100.25,
        "stdev": pytest.approx(27.9307179),
        "distinct": 2,
        "most_common": [{"value": 120, "count": 1}, {"value": 80.5, "count": 1}],
    }
    assert summarised["fields"]["since"]["types"] == {"text": 1, "null": 1}


async def test_all_tools_take_a_table() -> None:
    found = await call("query_data", TABLE, expression="[?paid].zip")
    assert (found.content, found.is_error) == ('["0079"]', False)
    summarised = json.loads(str((await call("summarise_data", TABLE)).content))
    assert summarised["fields"]["customer"]["min"] == "Ann"
    checked = await call("validate_data", TABLE, schema=ORDER)
    assert (checked.content, checked.is_error) == ("Each of the 2 rows fits.", False)


CHECKS: list[tuple[str, dict[str, Any], str]] = [
    ("orders", ORDER, "It does not fit: at $[2].total: 40 is less than the minimum of 50"),
    ("orders", {"required": ["total"]}, "Each of the 3 rows fits."),
    ("orders", {"required": ["paid"]}, 'It does not fit: at $[2]: "paid" is a required property'),
    (
        "orders",
        {"$ref": "#/$defs/a", "$defs": {"a": {"maxProperties": 2}}},
        (
            "It does not fit: at $[0]: the object has too many properties; "
            "at $[1]: the object has too many properties"
        ),
    ),
    ("orders", {"type": ["array", "null"], "maxItems": 3}, "It fits."),
    ("orders[:0]", {"type": "object"}, "Each of the 0 rows fits."),
    (
        "orders[].total",
        {"type": "number"},
        'It does not fit: at $: the list is not of type "number"',
    ),
]


@pytest.mark.parametrize(("expression", "schema", "verdict"), CHECKS)
def test_each_row_is_validated_unless_the_schema_is_of_lists(
    expression: str, schema: dict[str, Any], verdict: str
) -> None:
    query = Query(expression, 1000, schema=schema)
    assert answer_query(json.dumps(ORDERS).encode(), query) == verdict


def test_a_malformed_table_is_an_error() -> None:
    ragged = b'{"orders": {"mediaType": "text/csv", "text": "a,b\\n1\\n"}}'
    with pytest.raises(
        ValueError, match=r"A table in the data cannot be read: line 2 has 1 field, "
    ):
        answer_query(ragged, Query("orders", 100))


HOSTILE: list[tuple[str, str]] = [
    ("many columns", ",".join(map(str, range(100_000))) + "\n" + "," * 99_999),
    ("many rows", "a,b\n" + "1,\n" * 20_000),
    ("numbers of many digits", "n\n" + "9" * 5000 + "\n" + "1" * 300 + "\n1e999\nNaN\n"),
]


@pytest.mark.promise("P11")
@pytest.mark.parametrize("text", [text for _, text in HOSTILE], ids=[name for name, _ in HOSTILE])
def test_a_hostile_table_is_summarised_in_bounds(text: str) -> None:
    data = json.dumps({"mediaType": "text/csv", "text": text}).encode()
    summarised = answer_query(data, Query("@", 65_537, summarised=True))
    assert len(summarised) <= 65_537
    assert summarised.startswith('{"type":"list"')
    checked = answer_query(data, Query("[0]", 100, schema={"type": "object"}))
    assert checked == "It fits."


# ---------------------------------------------------------------- errors
@pytest.mark.parametrize(
    ("name", "arguments", "error"),
    [
        ("query_data", {"expression": "orders["}, "The expression is not valid JMESPath"),
        ("query_data", {"expression": "sum(year)"}, "The expression is not valid JMESPath"),
        ("query_data", {"expression": "x" * 2001}, "expression: String should have at most 2000"),
        ("query_data", {}, "expression: Field required"),
        (
            "validate_data",
            {"schema": {"type": "fish"}},
            "The schema cannot be used: its schema is not a valid JSON Schema",
        ),
        (
            "validate_data",
            {"schema": {"$ref": "http://127.0.0.1:1/x"}},
            "The schema cannot be used: its schema has a reference to another document",
        ),
        ("validate_data", {"schema": {}, "expression": "orders["}, "The expression is not valid"),
        ("query_data", {"expression": "sum(`[1e308, 1e308]`)"}, "a number that JSON does not have"),
        ("query_data", {"expression": "[to_number('nan')]"}, "a number that JSON does not have"),
        ("summarise_data", {"expression": "to_number('inf')"}, "a number that JSON does not have"),
    ],
)
async def test_an_invalid_call_is_an_error_for_the_model(
    name: str, arguments: dict[str, Any], error: str
) -> None:
    result = await call(name, **arguments)
    assert result.is_error
    assert error in str(result.content)


MIXED: JsonValue = {"mediaType": "text/csv", "text": "who,open\nAnn,120\nBob,n/a\nCy,9\n"}
NOTE = (
    "Note: the column 'open' of 'bills' holds texts, as 1 of its 3 fields is not a number, "
    "the first 'n/a'. to_number() makes numbers of its texts, and null of the others.\n"
)


@pytest.mark.parametrize(
    ("query", "found"),
    [
        (Query("bills[0].open", 100), f'{NOTE}"120"'),
        (Query("bills[0].who || 'opened'", 100), '"Ann"'),
        (Query("sum(bills[].to_number(open))", 100), f"{NOTE}129"),
        (Query("bills[0].[who, open]", 5), f'{NOTE}["Ann'),
        (
            Query("bills", 100, schema={"properties": {"open": {"type": "number"}}}),
            (
                f'{NOTE}It does not fit: at $[0].open: "120" is not of type "number"; '
                'at $[1].open: "n/a" is not of type "number"; '
                'at $[2].open: "9" is not of type "number"'
            ),
        ),
        (Query("length(bills)", 100, summarised=True), f'{NOTE}{{"type":"number","value":3}}'),
    ],
)
def test_a_result_names_a_column_that_holds_texts_because_of_a_few_fields(
    query: Query, found: str
) -> None:
    assert answer_query(json.dumps({"bills": MIXED}).encode(), query) == found


def test_the_fields_of_a_column_are_counted_only_if_the_query_names_it() -> None:
    def work(expression: str) -> int:
        """Return how many functions are called to answer a query."""
        made = 0

        def count(_frame: FrameType, event: str, _argument: object) -> None:
            nonlocal made
            made += event == "call"

        sys.setprofile(count)
        try:
            assert answer_query(text, Query(expression, 100)) == "500"
        finally:
            sys.setprofile(None)
        return made

    text = json.dumps({"bills": {"mediaType": "text/csv", "text": "open\n" + "1\n" * 500}}).encode()
    assert work("length(bills) || 'none'") + 500 <= work("length(bills) || 'open'")


@pytest.mark.parametrize("expression", ["sum(bills[].open)", "bills[].open.abs(@)"])
def test_an_error_of_a_query_names_such_a_column_too(expression: str) -> None:
    with pytest.raises(ValueError, match="The expression ") as failed:
        answer_query(json.dumps({"bills": MIXED}).encode(), Query(expression, 100))
    assert str(failed.value).startswith(NOTE)


def test_notes_are_for_five_columns_with_short_names_and_values() -> None:
    header = ",".join([*"abcdefg", "h" * 100])
    rows = [",".join([field] * 8) for field in ("1", "2", "x" * 100)]
    table = {"mediaType": "text/csv", "text": "\n".join([header, *rows])}
    answer = answer_query(json.dumps(table).encode(), Query("[0].h", 100, summarised=True))
    notes = answer.splitlines()[:-1]
    assert [note[:21] for note in notes] == [f"Note: the column '{name}' " for name in "abcde"]
    assert f"the first '{'x' * 80}...'. " in notes[0]


async def test_without_data_each_tool_returns_an_error() -> None:
    for name in ("query_data", "summarise_data", "validate_data"):
        result = await call(name, None, expression="@", schema={})
        if name != "validate_data":
            result = await call(name, None, expression="@")
        text = "There is no structured data in this conversation."
        assert (result.content, result.is_error) == (text, True)


# ---------------------------------------------------------------- bounds
@pytest.mark.promise("P11")
@pytest.mark.parametrize(
    "expression",
    [
        pytest.param(DOUBLINGS, id="a result that is 2^60 times as large"),
        pytest.param(" | ".join(["[@, @] | []"] * 60), id="a list of 2^60 items"),
        pytest.param("[" * 900 + "@" + "]" * 900, id="an expression that is deep"),
    ],
)
async def test_a_hostile_query_ends_and_the_next_one_is_served(expression: str) -> None:
    result = await call("query_data", [{"a": 1}], expression=expression)
    assert len(str(result.content)) < 70_000
    assert result.is_error or "[cut" in str(result.content)
    assert (await call("query_data", expression="year")).content == "2026"


@pytest.mark.promise("P11")
async def test_a_query_waits_for_those_of_others_within_a_bound() -> None:
    other = ConversationKey(OwnerId("other"), ConversationId("c"))
    PLACES.set(FairLimiter(1, 0.0))
    async with PLACES.get().acquire(other):
        result = await call("query_data", expression="year")
        refusal = "The query was not made: it waited 0 seconds for others. Ask again later."
        assert (result.content, result.is_error) == (refusal, True)
    PLACES.set(FairLimiter(1, 5.0))
    results: list[ToolResult] = []

    async def ask() -> None:
        results.append(await call("query_data", expression="year"))

    async with anyio.create_task_group() as tasks, PLACES.get().acquire(other):
        tasks.start_soon(ask)
        await anyio.wait_all_tasks_blocked()
        assert results == []
    assert [each.content for each in results] == ["2026"]


async def test_a_part_that_is_too_large_is_not_validated() -> None:
    result = await call(
        "validate_data", ["x" * 1000], schema={}, expression=" | ".join(["[@, @]"] * 15)
    )
    assert result.is_error
    assert "too large" in str(result.content)


def test_a_result_is_written_up_to_its_limit() -> None:
    assert answer_query(b'{"a": [1, 2]}', Query("a", 100)) == "[1,2]"
    assert answer_query(b'{"a": [1, 2]}', Query("a", 3)) == "[1,"
