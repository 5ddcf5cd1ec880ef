"""Schemas are checked as jsonschema checks them, in an amount of work that is bounded."""

import sys
from collections.abc import Mapping
from types import FrameType

import pytest
from jsonschema import Draft7Validator, Draft201909Validator, Draft202012Validator
from pydantic import JsonValue

from passback.schemas.checks import metaschema_of

pytestmark = pytest.mark.promise("P11")

OFFICIAL = {
    "https://json-schema.org/draft/2020-12/schema": Draft202012Validator,
    "https://json-schema.org/draft/2019-09/schema": Draft201909Validator,
    "http://json-schema.org/draft-07/schema#": Draft7Validator,
}
CALLS = 1_000_000
"""Of Python functions, for one schema; one of a thousand empty parts takes about half of them."""

MIXED: list[JsonValue] = [number if number % 2 else str(number) for number in range(10_000)]
NAMES: list[JsonValue] = [str(number) for number in range(8_000)]
NUMBERS: dict[str, JsonValue] = {str(number): 1 for number in range(7_000)}


def _nested(depth: int) -> JsonValue:
    schema: JsonValue = {}
    for _ in range(depth):
        schema = {"not": schema}
    return schema


def _problem(dialect: str, schema: Mapping[str, JsonValue]) -> str | None:
    """Return the path at which a schema is not valid."""
    check = metaschema_of({"$schema": dialect})
    assert check is not None
    problem = next(check.iter_errors(schema), None)
    return problem.json_path if problem else None


CHECKED: dict[str, dict[str, JsonValue]] = {
    "an empty one": {},
    "several types": {"properties": {"a": {"type": ["string", "null"]}}},
    "a type twice": {"properties": {"a": {"type": ["string", "string"]}}},
    "no type": {"properties": {"a": {"type": []}}},
    "an unknown type": {"properties": {"a": {"type": "colour"}}},
    "required names": {"required": ["a", "b"]},
    "a name required twice": {"required": ["a", "a"]},
    "a number required": {"required": ["a", 1]},
    "dependencies": {"dependencies": {"a": ["b"], "c": {"type": "object"}}},
    "a dependency twice": {"dependencies": {"a": ["b", "b"]}},
    "a dependency of no schema": {"dependencies": {"a": {"properties": {"b": 1}}}},
    "required together": {"dependentRequired": {"a": ["b", "b"]}},
    "items of several schemas": {"items": [{}, {"type": 1}]},
    "deep in other ones": {"properties": {"a": {"anyOf": [{"not": {"minLength": -1}}]}}},
    "a part that is none": {"$defs": {"a": 1}},
    "one value twice": {"enum": [1, 1]},
}


@pytest.mark.parametrize("dialect", OFFICIAL)
@pytest.mark.parametrize("schema", CHECKED.values(), ids=CHECKED.keys())
def test_schemas_are_checked_as_by_jsonschema(dialect: str, schema: dict[str, JsonValue]) -> None:
    official = OFFICIAL[dialect]
    expected = next(official(official.META_SCHEMA).iter_errors(schema), None)
    assert _problem(dialect, schema) == (expected and expected.json_path)


HOSTILE: dict[str, dict[str, JsonValue]] = {
    "types of all kinds": {"properties": {"a": {"type": MIXED}}},
    "required names of all kinds": {"required": MIXED},
    "dependencies of all kinds": {"dependencies": {"a": MIXED}, "dependentRequired": {"a": MIXED}},
    "many values": {"enum": MIXED},
    "many names": {"required": NAMES},
    "errors in an alternative": {"dependencies": {"a": {"properties": NUMBERS}}},
    "errors in another one": {"items": {"properties": NUMBERS}},
    "many levels": {"allOf": [_nested(60)] * 16},
    "many parts": {"allOf": [{}] * 1_000},
}


@pytest.mark.parametrize("dialect", OFFICIAL)
@pytest.mark.parametrize("schema", HOSTILE.values(), ids=HOSTILE.keys())
def test_the_work_for_a_schema_is_bounded(dialect: str, schema: dict[str, JsonValue]) -> None:
    calls = 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event == "call"
        if calls > CALLS:
            raise AssertionError("too much work")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        _problem(dialect, schema)
    finally:
        sys.setprofile(before)


@pytest.mark.parametrize("dialect", ["http://evil.example/schema", "", 1, None])
def test_another_dialect_has_no_metaschema(dialect: JsonValue) -> None:
    assert metaschema_of({"$schema": dialect}) is None
