"""Structured output by the service's own mode: the schemas that are sent, and the others."""

import json
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from pydantic import BaseModel, Field, JsonValue
from tests.support.anthropic_rules import breaches_of
from tests.unit.models.anthropic.asking import HI, body

from passback.core.deltas import ModelRequest
from passback.models.anthropic import DEFAULT_BASE_URL, Anthropic
from passback.models.anthropic.outputs import translate_schema

TEXT: JsonValue = {"type": "string"}


def object_of(**properties: Any) -> dict[str, JsonValue]:
    """Return the schema of an object that requires all these properties."""
    return {"type": "object", "properties": properties, "required": [*properties]}


def closed_object(**properties: Any) -> dict[str, JsonValue]:
    return {**object_of(**properties), "additionalProperties": False}


# ---------------------------------------------------------------- the request
def test_an_output_schema_is_sent_as_an_output_format() -> None:
    asked = body(HI, output_schema=object_of(colour={**object_of(name=TEXT), "title": "Colour"}))
    shape = closed_object(colour={**closed_object(name=TEXT), "title": "Colour"})
    assert asked["output_config"] == {"format": {"type": "json_schema", "schema": shape}}
    assert "output_config" not in body(HI)


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ({"effort": "low"}, {"effort": "low", "format": {"type": "json_schema"}}),
        ({"format": None, "effort": "low"}, {"effort": "low"}),
        ({"format": None}, None),
        ("nonsense", "nonsense"),
    ],
)
def test_an_output_format_in_the_options_wins(given: JsonValue, sent: Any) -> None:
    config = json.loads(
        Anthropic("claude-sonnet-5", api_key="k")
        .encode(
            ModelRequest([HI], options={"output_config": given}, output_schema=object_of(a=TEXT))
        )
        .body
    ).get("output_config")
    if isinstance(config, dict) and "format" in config:
        config["format"].pop("schema")
    assert config == sent


@pytest.mark.parametrize(
    ("name", "base_url", "takes"),
    [
        ("claude-sonnet-4-5", DEFAULT_BASE_URL, True),
        ("claude-haiku-4-5-20251001", DEFAULT_BASE_URL, True),
        ("claude-opus-5", DEFAULT_BASE_URL, True),
        ("claude-sonnet-4-20250514", DEFAULT_BASE_URL, False),
        ("claude-opus-4-1", DEFAULT_BASE_URL, False),
        ("claude-3-7-sonnet-latest", DEFAULT_BASE_URL, False),
        ("claude-opus-5", "http://model.test", False),
    ],
)
def test_the_mode_is_used_only_for_models_and_services_known_to_have_it(
    name: str, base_url: str, takes: bool
) -> None:
    model = Anthropic(name, api_key="k", base_url=base_url)
    encoded = model.encode(ModelRequest([HI], output_schema=object_of(a=TEXT)))
    assert ("output_config" in json.loads(encoded.body)) is takes


# ---------------------------------------------------------------- schemas
class Line(BaseModel):
    what: str = Field(description="In one word.", max_length=40)
    price: float = Field(ge=0)


class Invoice(BaseModel):
    """An invoice."""

    customer: str
    kind: Literal["open", "paid"]
    lines: list[Line] = Field(min_length=2, max_length=9)
    first: Line
    note: str | None = None


class Chain(BaseModel):
    next: "Chain | None" = None


def test_a_pydantic_model_is_sent_without_unsupported_keywords() -> None:
    line = {
        **closed_object(
            what={"type": "string", "title": "What", "description": "In one word."},
            price={"type": "number", "title": "Price"},
        ),
        "title": "Line",
    }
    assert translate_schema(Invoice.model_json_schema()) == {
        "type": "object",
        "title": "Invoice",
        "description": "An invoice.",
        "properties": {
            "customer": {"type": "string", "title": "Customer"},
            "kind": {"type": "string", "title": "Kind", "enum": ["open", "paid"]},
            "lines": {"type": "array", "title": "Lines", "items": line},
            "first": line,
            "note": {"anyOf": [{"type": "string"}, {"type": "null"}], "title": "Note"},
        },
        "required": ["customer", "kind", "lines", "first"],
        "additionalProperties": False,
    }


KEPT: dict[str, tuple[JsonValue, JsonValue]] = {
    "a known format": ({"type": "string", "format": "date"}, {"type": "string", "format": "date"}),
    "another format": ({"type": "string", "format": "phone"}, TEXT),
    "a pattern": ({"type": "string", "pattern": "^a"}, TEXT),
    "one item at least": (
        {"type": "array", "items": TEXT, "minItems": 1},
        {"type": "array", "items": TEXT, "minItems": 1},
    ),
    "a constant": ({"const": 1}, {"enum": [1]}),
    "several types": ({"type": ["string", "null"]}, {"type": ["string", "null"]}),
    "exactly one": ({"oneOf": [TEXT, {"type": "null"}]}, {"anyOf": [TEXT, {"type": "null"}]}),
}


@pytest.mark.parametrize(("given", "kept"), KEPT.values(), ids=KEPT)
def test_supported_schemas_are_sent(given: JsonValue, kept: JsonValue) -> None:
    assert translate_schema(object_of(a=given)) == closed_object(a=kept)


NOT_SENT: dict[str, JsonValue] = {
    "a map": {"type": "object", "additionalProperties": TEXT},
    "a map beside names": {**object_of(b=TEXT), "additionalProperties": TEXT},
    "an open object": {**object_of(b=TEXT), "additionalProperties": True},
    "an object of anything": {"type": "object"},
    "an object of nothing": {"type": "object", "properties": {}, "additionalProperties": False},
    "an object that requires more": {**object_of(b=TEXT), "required": ["c"]},
    "an object that requires nonsense": {**object_of(b=TEXT), "required": "b"},
    "an array of anything": {"type": "array"},
    "anything": {},
    "true": True,
    "no type": {"type": []},
    "an unknown type": {"type": "text"},
    "a condition": {"if": TEXT, "type": "string"},
    "all of several": {"allOf": [TEXT]},
    "values that are not plain": {"enum": [[1], "a"]},
    "nonsense for values": {"enum": "a"},
    "two shapes in one": {"anyOf": [TEXT], "enum": ["a"]},
    "a shape beside a type": {"anyOf": [TEXT], "type": "string"},
    "a reference to its top": {"$ref": "#"},
    "a reference that leads nowhere": {"$ref": "#/$defs/none"},
    "a reference to nothing": {"$ref": "#/definitions/none"},
    "nonsense for a reference": {"$ref": 1},
    "too many unions": object_of(**{f"p{n}": {"type": ["string", "null"]} for n in range(17)}),
    "too many optional properties": {
        "type": "object",
        "properties": {f"p{n}": TEXT for n in range(25)},
    },
}


@pytest.mark.parametrize("given", NOT_SENT.values(), ids=NOT_SENT)
def test_a_schema_that_would_lose_a_part_of_its_shape_is_not_sent(given: JsonValue) -> None:
    assert translate_schema({**object_of(a=given), "$defs": {}}) is None


def test_recursive_and_exponential_schemas_are_not_sent() -> None:
    assert translate_schema(Chain.model_json_schema()) is None
    twice = {
        f"d{n}": object_of(a={"$ref": f"#/$defs/d{n + 1}"}, b={"$ref": f"#/$defs/d{n + 1}"})
        for n in range(20)
    }
    assert (
        translate_schema({**object_of(a={"$ref": "#/$defs/d0"}), "$defs": {**twice, "d20": TEXT}})
        is None
    )
    assert translate_schema({"type": "object", "anyOf": [object_of(a=TEXT)]}) is None
    assert translate_schema({"anyOf": [object_of(a=TEXT)]}) is None


# ---------------------------------------------------------------- any schema
NAMES = st.sampled_from(["a", "b", "c"])
LEAVES = st.sampled_from(
    [TEXT, {"type": "integer", "minimum": 3}, {"enum": ["x", None]}, {"const": True}, {}]
)


def _with(schemas: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    objects = st.fixed_dictionaries(
        {"type": st.just("object"), "properties": st.dictionaries(NAMES, schemas, max_size=3)},
        optional={
            "required": st.lists(NAMES, unique=True),
            "additionalProperties": st.booleans(),
            "patternProperties": st.just({"^x": TEXT}),
        },
    )
    arrays = st.fixed_dictionaries(
        {"type": st.just("array"), "items": schemas}, optional={"minItems": st.integers(0, 2)}
    )
    unions = st.fixed_dictionaries({"anyOf": st.lists(schemas, min_size=1, max_size=2)})
    references = st.fixed_dictionaries({"$ref": st.just("#/$defs/d")})
    return st.one_of(objects, arrays, unions, references)


SCHEMAS = st.recursive(LEAVES, _with, max_leaves=8)
VALUES = st.recursive(
    st.sampled_from(["x", None, True, 3, 4.5]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)


@given(SCHEMAS, SCHEMAS, VALUES)
@settings(max_examples=200, deadline=None)
def test_a_sent_schema_keeps_the_rules_and_allows_no_other_shape(
    schema: JsonValue, named: JsonValue, value: JsonValue
) -> None:
    whole: dict[str, JsonValue] = {**object_of(a=schema), "$defs": {"d": named}}
    shape = translate_schema(whole)
    if shape is None:
        return
    request = {
        "model": "m",
        "max_tokens": 1,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}],
        "output_config": {"format": {"type": "json_schema", "schema": shape}},
    }
    assert breaches_of(request) == []
    answer = {"a": value}
    if Draft202012Validator(shape).is_valid(answer):
        amiss = [error.validator for error in Draft202012Validator(whole).iter_errors(answer)]
        assert set(amiss) <= {"minimum", "minItems", "anyOf"}
