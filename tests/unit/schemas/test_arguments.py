"""Arguments are checked as jsonschema checks them; an objection is short and names the place."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft7Validator, Draft201909Validator, Draft202012Validator
from pydantic import JsonValue
from tests.support.lanes import examples

from passback.core.messages import ConversationId, ConversationKey, OwnerId, ToolSpec
from passback.schemas.arguments import find_objection

pytestmark = [pytest.mark.anyio, pytest.mark.promise("P4")]

KEY = ConversationKey(OwnerId("owner"), ConversationId("conversation"))
OLD = "http://json-schema.org/draft-07/schema#"
MIDDLE = "https://json-schema.org/draft/2019-09/schema"
NEW = "https://json-schema.org/draft/2020-12/schema"
OFFICIAL = {OLD: Draft7Validator, MIDDLE: Draft201909Validator, NEW: Draft202012Validator}
WITH_X: dict[str, JsonValue] = {"x": 1}


async def objection_to(schema: dict[str, JsonValue], arguments: JsonValue) -> str | None:
    return await find_objection(
        ToolSpec("t", "", {"type": "object", **schema}), json.dumps(arguments), KEY
    )


async def objection_to_x(schema: JsonValue, x: JsonValue) -> str | None:
    """Return the objection to the value of one property."""
    return await objection_to({"properties": {"x": schema}}, {"x": x})


# ---------------------------------------------------------------- objections
async def test_arguments_that_fit() -> None:
    assert await objection_to_x({"enum": ["blue", "red"]}, "red") is None


OBJECTIONS: list[tuple[dict[str, JsonValue], JsonValue, str]] = [
    ({"required": ["color"]}, {}, 'at $: "color" is a required property'),
    (
        {"properties": {"color": {"enum": ["blue", "red"]}}},
        {"color": "pink"},
        'at $.color: "pink" is not one of ["blue", "red"]',
    ),
    (
        {"additionalProperties": False},
        {"a": 1, "b": 2},
        'at $: there are properties that are not declared: "a", "b"',
    ),
    (
        {"additionalProperties": False},
        dict.fromkeys("abcdefg", 1),
        'at $: there are properties that are not declared: "a", "b", "c", "d", "e" and 2 more',
    ),
    (
        {"properties": {"a": {"items": {"type": "integer"}}}},
        {"a": [1, [2], 3]},
        'at $.a[1]: the list is not of type "integer"',
    ),
    (
        {"properties": {"a": {"type": "string"}}},
        {"a": {"b": 1}},
        'at $.a: the object is not of type "string"',
    ),
    ({"properties": {"a": {"pattern": "^b"}}}, {"a": "c"}, 'at $.a: "c" does not match "^b"'),
    (
        {"properties": {"a": {"uniqueItems": True}}},
        {"a": [1, 1.0]},
        "at $.a: the list has items that are repeated",
    ),
    (
        {"properties": {"a": {"anyOf": [{"type": "null"}, {"type": "object", "required": ["k"]}]}}},
        {"a": {}},
        'at $.a: "k" is a required property',
    ),
    (
        {"unevaluatedProperties": False},
        {"a": 1},
        'at $: there are properties that no part of the schema declares: "a"',
    ),
    (
        {"required": ["a", "b", "c", "d"]},
        {},
        "; ".join(f'at $: "{name}" is a required property' for name in "abc"),
    ),
]


@pytest.mark.parametrize(("schema", "arguments", "objection"), OBJECTIONS)
async def test_an_objection_names_its_place(
    schema: dict[str, JsonValue], arguments: JsonValue, objection: str
) -> None:
    assert await objection_to(schema, arguments) == objection


@pytest.mark.promise("P11")
async def test_an_objection_is_short_whatever_the_values_are() -> None:
    long = "y" * 5_000
    schema: dict[str, JsonValue] = {
        "additionalProperties": {"type": "integer", "enum": [[long] * 9, {long: long}, long]}
    }
    objection = await objection_to(schema, {long: long, "a": long})
    assert objection is not None
    assert len(objection) < 1_300
    assert "y" * 150 not in objection.replace(f"$.{'y' * 198}", "")


# ---------------------------------------------------------------- compared with jsonschema
SCHEMAS: list[dict[str, JsonValue]] = [
    {"patternProperties": {"^a": {"type": "string"}}, "additionalProperties": False},
    {"patternProperties": {"^a": {}}, "additionalProperties": {"type": "integer"}},
    {"patternProperties": {"^a": {}}, "unevaluatedProperties": False},
    {"allOf": [{"properties": {"a": {}}}], "unevaluatedProperties": False},
    {"allOf": [{"unevaluatedProperties": True}], "unevaluatedProperties": False},
    {"allOf": [{"additionalProperties": True}], "unevaluatedProperties": False},
    {
        "anyOf": [{"required": ["a"], "properties": {"a": {}}}, {"properties": {"b": {}}}],
        "unevaluatedProperties": {"type": "string"},
    },
    {
        "if": {"required": ["a"]},
        "then": {"properties": {"a": {}}},
        "else": {"properties": {"b": {}}},
        "unevaluatedProperties": False,
    },
    {"if": {"required": ["a"], "properties": {"a": {}}}, "unevaluatedProperties": False},
    {"dependentSchemas": {"a": {"properties": {"a": {}, "b": {}}}}, "unevaluatedProperties": False},
    {
        "$ref": "#/$defs/d",
        "$defs": {"d": {"properties": {"a": {"type": "integer"}}}},
        "unevaluatedProperties": False,
    },
    {"$ref": "#/$defs/d", "$defs": {"d": {"properties": {"a": {"type": "integer"}}}}},
    {"properties": {"a": {"$ref": "#"}}, "additionalProperties": False},
    {"properties": {"a": {"$ref": "#here"}}, "$defs": {"d": {"$anchor": "here", "type": "object"}}},
    {"properties": {"a": {"uniqueItems": True}}},
    {
        "properties": {
            "a": {
                "items": [{"type": "integer"}],
                "additionalItems": {"type": "string"},
                "unevaluatedItems": False,
            }
        }
    },
    {"properties": {"a": {"items": [{"type": "integer"}], "unevaluatedItems": False}}},
    {"properties": {"a": {"items": {"type": "integer"}, "unevaluatedItems": False}}},
    {"properties": {"a": {"prefixItems": [{}], "unevaluatedItems": False}}},
    {
        "properties": {
            "a": {"prefixItems": [{}], "contains": {"type": "string"}, "unevaluatedItems": False}
        }
    },
    {
        "properties": {
            "a": {"allOf": [{"unevaluatedItems": {"type": "integer"}}], "unevaluatedItems": False}
        }
    },
    {"properties": {"a": {"contains": {"const": 1}, "minContains": 2}}},
    {"properties": {"a": {"patternProperties": {"^a": {}}, "unevaluatedProperties": False}}},
    {"properties": {"a": {"oneOf": [{"type": "integer"}, {"minimum": 2}]}}},
    {"propertyNames": {"pattern": "^a"}, "minProperties": 1},
    {"dependentRequired": {"a": ["b"]}, "not": {"required": ["c"]}},
    {"properties": {"a": {"const": {"b": 1}}, "b": False, "c": {"format": "date"}}},
    {"properties": {"a": {"multipleOf": 0.1, "exclusiveMinimum": 0}, "b": {"maxLength": 1}}},
    {"$dynamicAnchor": "n", "properties": {"a": {"$dynamicRef": "#n"}}, "maxProperties": 1},
    {"$recursiveAnchor": True, "properties": {"a": {"$recursiveRef": "#"}}, "maxProperties": 1},
    {
        "definitions": {"d": {"type": "string"}},
        "properties": {"a": {"$ref": "#/definitions/d", "maxLength": 1}},
    },
]


@pytest.mark.parametrize(
    ("items", "different"),
    [
        ([1, 1.0], False),
        ([1, True], True),
        ([0, False], True),
        ([0, -0.0], False),
        ([2**53, 2.0**53], False),
        ([2**53 + 1, 2.0**53], True),
        ([10**300, 1e300], True),
        ([int(1e300), 1e300], False),
        ([0.1, 0.1], False),
        ([0.1, 0.10000000000000002], True),
        ([1, "1"], True),
        ([1, 2**61], True),
        ([[1], [1.0]], False),
        ([{"a": 1}, {"a": 1.0}], False),
        ([{"a": 1}, {"a": True}], True),
    ],
    ids=repr,
)
async def test_numbers_are_equal_by_their_value(items: JsonValue, different: bool) -> None:
    assert (await objection_to_x({"uniqueItems": True}, items) is None) is different


_leaves = st.one_of(
    st.sampled_from([None, True, False, 0, 1, 1.0, 0.3, -1, "", "a", "ab", "2026-01-01"])
)
_values = st.recursive(
    _leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner),
    max_leaves=8,
)


def _cases() -> Iterator[tuple[str, dict[str, JsonValue]]]:
    """Yield each schema in each draft that allows it and knows its keywords."""
    for draft, official in OFFICIAL.items():
        for schema in SCHEMAS:
            whole = {"$schema": draft, "type": "object", **schema}
            declared = official(official.META_SCHEMA).is_valid(whole)
            # draft 2019-09 has no prefixItems; jsonschema counts items of `contains` as evaluated
            foreign = {OLD: "$anchor", MIDDLE: "prefixItems"}.get(draft)
            if declared and not (foreign and foreign in json.dumps(schema)):
                yield draft, whole


@pytest.mark.parametrize(("draft", "schema"), list(_cases()), ids=json.dumps)
@given(arguments=st.dictionaries(st.sampled_from(["a", "b", "ab", "c"]), _values, max_size=3))
@examples(25)
def test_arguments_are_checked_as_by_jsonschema(
    draft: str, schema: dict[str, JsonValue], arguments: Any
) -> None:
    found = asyncio.run(find_objection(ToolSpec("t", "", schema), json.dumps(arguments), KEY))
    assert (found is None) is OFFICIAL[draft](schema).is_valid(arguments), found


@pytest.mark.parametrize(
    ("items", "fits"), [([1], True), ([1, "a"], True), ([1, "a", 2], False), ([1, 2], False)]
)
async def test_contained_items_count_as_evaluated(items: list[JsonValue], fits: bool) -> None:
    schema: dict[str, JsonValue] = {
        "prefixItems": [{}],
        "contains": {"type": "string"},
        "minContains": 0,
        "unevaluatedItems": False,
    }
    assert (await objection_to_x(schema, items) is None) is fits


# ---------------------------------------------------------------- keywords that are not checked
@pytest.mark.parametrize("pattern", ["(?=a)b", "(("])
async def test_a_pattern_that_is_not_run_refuses_nothing(pattern: str) -> None:
    assert await objection_to_x({"pattern": pattern}, "anything") is None
    assert (
        await objection_to(
            {"patternProperties": {pattern: False}, "additionalProperties": False}, WITH_X
        )
        is None
    )
    assert (
        await objection_to(
            {"patternProperties": {pattern: False}, "unevaluatedProperties": False}, WITH_X
        )
        is None
    )


async def test_a_format_refuses_nothing() -> None:
    assert await objection_to_x({"format": "date-time"}, "yesterday") is None


@pytest.mark.parametrize("reference", ["http://127.0.0.1/", "#/nowhere", "#anchor", "other.json"])
async def test_a_reference_that_leads_nowhere_is_not_fetched(reference: str) -> None:
    """A declaration with such a reference is refused, but it may have been stored earlier."""
    objection = "its schema cannot be applied: a reference in it leads nowhere"
    assert await objection_to_x({"$ref": reference}, 1) == objection


async def test_a_dialect_below_the_top_changes_nothing() -> None:
    inner: JsonValue = {"$schema": OLD, "$id": "http://x/", "pattern": "^(a+)+$"}
    assert await objection_to_x(inner, "a" * 5_000 + "!") is not None


async def test_true_and_false_are_schemas() -> None:
    referred: dict[str, JsonValue] = {"$defs": {"no": False, "yes": True}}
    assert (
        await objection_to({**referred, "properties": {"x": {"$ref": "#/$defs/yes"}}}, WITH_X)
        is None
    )
    assert (
        await objection_to({**referred, "properties": {"x": {"$ref": "#/$defs/no"}}}, WITH_X)
        is not None
    )
