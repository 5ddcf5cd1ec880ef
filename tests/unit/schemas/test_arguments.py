"""Arguments are judged as jsonschema judges them, and what is wrong is said in few words."""

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
X: dict[str, JsonValue] = {"x": 1}


async def judge(schema: dict[str, JsonValue], arguments: JsonValue) -> str | None:
    return await find_objection(
        ToolSpec("t", "", {"type": "object", **schema}), json.dumps(arguments), KEY
    )


async def of_x(schema: JsonValue, x: JsonValue) -> str | None:
    """What is wrong with one property."""
    return await judge({"properties": {"x": schema}}, {"x": x})


# ---------------------------------------------------------------- words
async def test_arguments_that_fit() -> None:
    assert await of_x({"enum": ["blue", "red"]}, "red") is None


WORDS: list[tuple[dict[str, JsonValue], JsonValue, str]] = [
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
        'at $: "a" is a required property; at $: "b" is a required property; at $: "c" is a required property',
    ),
]


@pytest.mark.parametrize(("schema", "arguments", "words"), WORDS)
async def test_what_is_wrong_is_said_with_its_place(
    schema: dict[str, JsonValue], arguments: JsonValue, words: str
) -> None:
    assert await judge(schema, arguments) == words


@pytest.mark.promise("P11")
async def test_the_words_are_few_whatever_the_values_are() -> None:
    long = "y" * 5_000
    schema: dict[str, JsonValue] = {
        "additionalProperties": {"type": "integer", "enum": [[long] * 9, {long: long}, long]}
    }
    words = await judge(schema, {long: long, "a": long})
    assert words is not None
    assert len(words) < 1_300
    assert "y" * 150 not in words.replace(f"$.{'y' * 198}", "")


# ---------------------------------------------------------------- judged as by the library
SCHEMAS: list[dict[str, JsonValue]] = [
    {"patternProperties": {"^a": {"type": "string"}}, "additionalProperties": False},
    {"patternProperties": {"^a": {}}, "additionalProperties": {"type": "integer"}},
    {"patternProperties": {"^a": {}}, "unevaluatedProperties": False},
    {"allOf": [{"properties": {"a": {}}}], "unevaluatedProperties": False},
    {"allOf": [{"unevaluatedProperties": True}], "unevaluatedProperties": False},
    {"allOf": [{"additionalProperties": True}], "unevaluatedProperties": False},
    {"anyOf": [{"required": ["a"], "properties": {"a": {}}}, {"properties": {"b": {}}}], "unevaluatedProperties": {"type": "string"}},
    {"if": {"required": ["a"]}, "then": {"properties": {"a": {}}}, "else": {"properties": {"b": {}}}, "unevaluatedProperties": False},
    {"if": {"required": ["a"], "properties": {"a": {}}}, "unevaluatedProperties": False},
    {"dependentSchemas": {"a": {"properties": {"a": {}, "b": {}}}}, "unevaluatedProperties": False},
    {"$ref": "#/$defs/d", "$defs": {"d": {"properties": {"a": {"type": "integer"}}}}, "unevaluatedProperties": False},
    {"$ref": "#/$defs/d", "$defs": {"d": {"properties": {"a": {"type": "integer"}}}}},
    {"properties": {"a": {"$ref": "#"}}, "additionalProperties": False},
    {"properties": {"a": {"$ref": "#here"}}, "$defs": {"d": {"$anchor": "here", "type": "object"}}},
    {"properties": {"a": {"uniqueItems": True}}},
    {"properties": {"a": {"items": [{"type": "integer"}], "additionalItems": {"type": "string"}, "unevaluatedItems": False}}},
    {"properties": {"a": {"items": [{"type": "integer"}], "unevaluatedItems": False}}},
    {"properties": {"a": {"items": {"type": "integer"}, "unevaluatedItems": False}}},
    {"properties": {"a": {"prefixItems": [{}], "unevaluatedItems": False}}},
    {"properties": {"a": {"prefixItems": [{}], "contains": {"type": "string"}, "unevaluatedItems": False}}},
    {"properties": {"a": {"allOf": [{"unevaluatedItems": {"type": "integer"}}], "unevaluatedItems": False}}},
    {"properties": {"a": {"contains": {"const": 1}, "minContains": 2}}},
    {"properties": {"a": {"patternProperties": {"^a": {}}, "unevaluatedProperties": False}}},
    {"properties": {"a": {"oneOf": [{"type": "integer"}, {"minimum": 2}]}}},
    {"propertyNames": {"pattern": "^a"}, "minProperties": 1},
    {"dependentRequired": {"a": ["b"]}, "not": {"required": ["c"]}},
    {"properties": {"a": {"const": {"b": 1}}, "b": False, "c": {"format": "date"}}},
    {"properties": {"a": {"multipleOf": 0.1, "exclusiveMinimum": 0}, "b": {"maxLength": 1}}},
    {"$dynamicAnchor": "n", "properties": {"a": {"$dynamicRef": "#n"}}, "maxProperties": 1},
    {"$recursiveAnchor": True, "properties": {"a": {"$recursiveRef": "#"}}, "maxProperties": 1},
    {"definitions": {"d": {"type": "string"}}, "properties": {"a": {"$ref": "#/definitions/d", "maxLength": 1}}},
]  # fmt: skip


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
    assert (await of_x({"uniqueItems": True}, items) is None) is different


_leaves = st.one_of(
    st.sampled_from([None, True, False, 0, 1, 1.0, 0.3, -1, "", "a", "ab", "2026-01-01"])
)
_values = st.recursive(
    _leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner),
    max_leaves=8,
)


def _cases() -> Iterator[tuple[str, dict[str, JsonValue]]]:
    """Each schema in each draft that would let it be declared and knows its keywords."""
    for draft, official in OFFICIAL.items():
        for schema in SCHEMAS:
            whole = {"$schema": draft, "type": "object", **schema}
            declared = official(official.META_SCHEMA).is_valid(whole)
            # draft 2019-09 has no prefixItems, and jsonschema then takes what `contains` finds as looked at
            foreign = {OLD: "$anchor", MIDDLE: "prefixItems"}.get(draft)
            if declared and not (foreign and foreign in json.dumps(schema)):
                yield draft, whole


@pytest.mark.parametrize(("draft", "schema"), list(_cases()), ids=json.dumps)
@given(arguments=st.dictionaries(st.sampled_from(["a", "b", "ab", "c"]), _values, max_size=3))
@examples(25)
def test_arguments_are_judged_as_by_jsonschema(
    draft: str, schema: dict[str, JsonValue], arguments: Any
) -> None:
    found = asyncio.run(find_objection(ToolSpec("t", "", schema), json.dumps(arguments), KEY))
    assert (found is None) is OFFICIAL[draft](schema).is_valid(arguments), found


@pytest.mark.parametrize(
    ("items", "fits"), [([1], True), ([1, "a"], True), ([1, "a", 2], False), ([1, 2], False)]
)
async def test_contained_items_are_not_left_over(items: list[JsonValue], fits: bool) -> None:
    schema: dict[str, JsonValue] = {
        "prefixItems": [{}],
        "contains": {"type": "string"},
        "minContains": 0,
        "unevaluatedItems": False,
    }
    assert (await of_x(schema, items) is None) is fits


# ---------------------------------------------------------------- what is not run
@pytest.mark.parametrize("pattern", ["(?=a)b", "(("])
async def test_what_a_pattern_says_that_is_not_run_is_left_to_the_tool(pattern: str) -> None:
    assert await of_x({"pattern": pattern}, "anything") is None
    assert (
        await judge({"patternProperties": {pattern: False}, "additionalProperties": False}, X)
        is None
    )
    assert (
        await judge({"patternProperties": {pattern: False}, "unevaluatedProperties": False}, X)
        is None
    )


async def test_a_format_is_a_note_and_no_rule() -> None:
    assert await of_x({"format": "date-time"}, "yesterday") is None


@pytest.mark.parametrize("reference", ["http://127.0.0.1/", "#/nowhere", "#anchor", "other.json"])
async def test_a_reference_that_leads_nowhere_is_not_fetched(reference: str) -> None:
    """A declaration with one is refused; this one was stored all the same."""
    words = "its schema cannot be applied: a reference in it leads nowhere"
    assert await of_x({"$ref": reference}, 1) == words


async def test_a_dialect_below_the_top_changes_nothing() -> None:
    inner: JsonValue = {"$schema": OLD, "$id": "http://x/", "pattern": "^(a+)+$"}
    assert await of_x(inner, "a" * 5_000 + "!") is not None


async def test_true_and_false_are_schemas() -> None:
    referred: dict[str, JsonValue] = {"$defs": {"no": False, "yes": True}}
    assert await judge({**referred, "properties": {"x": {"$ref": "#/$defs/yes"}}}, X) is None
    assert await judge({**referred, "properties": {"x": {"$ref": "#/$defs/no"}}}, X) is not None
