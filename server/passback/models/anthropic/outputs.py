"""Structured output by the service's own mode: it takes a part of JSON Schema, and refuses a request that goes beyond it.

What it cannot be told to hold to (lengths, ranges, patterns) is left out: answers are checked all the same, and the
model is told the whole schema by its prompt. A schema of whose shape something would be lost is not told at all.
"""

import re
from collections.abc import Mapping
from typing import Final

from pydantic import JsonValue

from passback.core.messages import JsonObject
from passback.models.anthropic.content import Block

_TOLD: Final = {
    *("type", "properties", "required", "additionalProperties", "items", "minItems"),
    *("$ref", "anyOf", "oneOf", "enum", "const", "$defs", "definitions", "discriminator"),
    *("title", "description", "format"),
}
_SHAPES: Final = {"$ref", "anyOf", "oneOf", "enum", "const"}
_WORDS: Final = ("title", "description")
_LEFT_OUT: Final = {
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "pattern"),
    *("minLength", "maxLength", "maxItems", "uniqueItems", "minProperties", "maxProperties"),
    *("default", "examples", "deprecated", "readOnly", "writeOnly", "$schema", "$id", "$comment"),
}
_FORMATS: Final = {
    *("date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"),
}
_TYPES: Final = {"object", "array", "string", "integer", "number", "boolean", "null"}
_REFERENCE: Final = re.compile(r"#/(\$defs|definitions)/([^/~%]+)")

_DEEPEST: Final = 32
_MOST_PARTS: Final = 500
_MOST_OPTIONAL: Final = 24
_MOST_UNIONS: Final = 16
"""The last two are the service's own; what is recursive, which it refuses, is deeper than the first."""

OLDER_MODELS: Final = re.compile(r"claude-(?:instant|[123]\b|(?:opus|sonnet)-4(?:-[01]\b|-20\d|$))")
"""Those that do not have the mode."""


def output_config(options: JsonObject, schema: JsonObject | None, /) -> JsonValue:
    """The field `output_config`, which asks for answers of a schema where the service takes it.

    A `format` of the options wins, and null there is none.
    """
    config = options.get("output_config", {})
    if not isinstance(config, dict):
        return config
    shape = None if schema is None or "format" in config else told(schema)
    asked: Block = {name: value for name, value in config.items() if value is not None}
    return asked if shape is None else {**asked, "format": {"type": "json_schema", "schema": shape}}


def told(schema: JsonObject, /) -> Block | None:
    """A schema of type object as the service takes it, its references replaced by what they lead to. None: it does not."""
    try:
        return _Teller(schema).whole()
    except _Untold:
        return None


class _Untold(Exception):
    """The service does not take this, or would make something else of it."""


class _Teller:
    def __init__(self, schema: JsonObject) -> None:
        self._whole = schema
        self._parts = self._optional = self._unions = 0

    def whole(self) -> Block:
        told = self._schema(dict(self._whole), 0)
        if "properties" not in told:
            raise _Untold
        return told

    def _schema(self, schema: JsonValue, depth: int) -> Block:
        self._parts += 1
        if not isinstance(schema, dict) or depth > _DEEPEST or self._parts > _MOST_PARTS:
            raise _Untold
        if schema.keys() - _TOLD - _LEFT_OUT:
            raise _Untold
        told = self._shape(schema, depth)
        return told | {name: schema[name] for name in _WORDS if name in schema}

    def _shape(self, schema: Mapping[str, JsonValue], depth: int) -> Block:
        said = schema.keys() & _SHAPES
        if len(said) > 1 or (said - {"enum", "const"} and schema.keys() & {"type", "properties"}):
            raise _Untold  # two of them would have to be made one
        match next(iter(said), "type"):
            case "$ref":
                return self._schema(self._target(schema["$ref"]), depth + 1)
            case "const":
                return _values([schema["const"]], schema)
            case "enum":
                return _values(schema["enum"], schema)
            case "type":
                return self._typed(schema, depth)
            case union:
                return self._union(schema[union], depth)

    def _target(self, reference: JsonValue) -> JsonValue:
        found = _REFERENCE.fullmatch(reference) if isinstance(reference, str) else None
        named = self._whole.get(found[1]) if found else None
        if found is None or not isinstance(named, dict):
            raise _Untold
        return named.get(found[2])

    def _union(self, alternatives: JsonValue, depth: int) -> Block:
        """Also one of which exactly one is to fit: that is checked here."""
        self._count_union()
        each = alternatives if isinstance(alternatives, list) else []
        return {"anyOf": [self._schema(one, depth + 1) for one in each]}

    def _typed(self, schema: Mapping[str, JsonValue], depth: int) -> Block:
        given = schema.get("type")
        types = given if isinstance(given, list) else [given]
        if not types or not all(isinstance(each, str) and each in _TYPES for each in types):
            raise _Untold
        if len(types) > 1:
            self._count_union()
        told: Block = {"type": given}
        if "object" in types:
            told |= self._object(schema, depth)
        if "array" in types:
            told["items"] = self._schema(schema.get("items"), depth + 1)
            if schema.get("minItems") in (0, 1):
                told["minItems"] = schema["minItems"]
        if schema.get("format") in _FORMATS:
            told["format"] = schema["format"]
        return told

    def _object(self, schema: Mapping[str, JsonValue], depth: int) -> Block:
        """Closed: the service knows no others. So it is not told of those that are maps, or meant to be open."""
        properties, required = schema.get("properties"), schema.get("required", [])
        if not isinstance(properties, dict) or not isinstance(required, list):
            raise _Untold
        if schema.get("additionalProperties", False) is not False or not properties:
            raise _Untold
        if any(name not in properties for name in required):
            raise _Untold
        self._optional += len(properties) - len(required)
        if self._optional > _MOST_OPTIONAL:
            raise _Untold
        return {
            "properties": {
                name: self._schema(each, depth + 1) for name, each in properties.items()
            },
            "required": required,
            "additionalProperties": False,
        }

    def _count_union(self) -> None:
        self._unions += 1
        if self._unions > _MOST_UNIONS:
            raise _Untold


def _values(values: JsonValue, schema: Mapping[str, JsonValue]) -> Block:
    """Plain ones only."""
    if not isinstance(values, list) or any(isinstance(each, list | dict) for each in values):
        raise _Untold
    told: Block = {"enum": values}
    if "type" in schema:
        told["type"] = schema["type"]
    return told
