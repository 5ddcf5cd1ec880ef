"""Structured output by the service's own mode.

The mode takes a part of JSON Schema, and refuses a request with any other part. Limits that it
cannot enforce (lengths, ranges, patterns) are left out: passback checks every answer, and the
prompt has the whole schema. A schema that would lose a part of its shape is not sent at all.
"""

import re
from collections.abc import Mapping
from typing import Final

from pydantic import JsonValue

from passback.core.messages import JsonObject
from passback.models.http.decoding import JsonDict

_SUPPORTED: Final = {
    *("type", "properties", "required", "additionalProperties", "items", "minItems"),
    *("$ref", "anyOf", "oneOf", "enum", "const", "$defs", "definitions", "discriminator"),
    *("title", "description", "format"),
}
_SHAPE_KEYWORDS: Final = {"$ref", "anyOf", "oneOf", "enum", "const"}
_ANNOTATIONS: Final = ("title", "description")
_DROPPED: Final = {
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "pattern"),
    *("minLength", "maxLength", "maxItems", "uniqueItems", "minProperties", "maxProperties"),
    *("default", "examples", "deprecated", "readOnly", "writeOnly", "$schema", "$id", "$comment"),
}
_FORMATS: Final = {
    *("date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"),
}
_TYPES: Final = {"object", "array", "string", "integer", "number", "boolean", "null"}
_REFERENCE: Final = re.compile(r"#/(\$defs|definitions)/([^/~%]+)")

_MAX_DEPTH: Final = 32  # a recursive schema, which the service refuses, exceeds it
_MAX_PARTS: Final = 500
_MAX_OPTIONAL: Final = 24  # the service's own limit
_MAX_UNIONS: Final = 16  # the service's own limit

OLDER_MODELS: Final = re.compile(r"claude-(?:instant|[123]\b|(?:opus|sonnet)-4(?:-[01]\b|-20\d|$))")
"""Names of the models without the mode."""


def output_config(
    options: JsonObject, schema: JsonObject | None, effort: str | None = None, /
) -> JsonValue:
    """Return the field `output_config`, which asks for answers by a schema if the service takes it.

    A `format` in the options wins; if it is null, the field has none. An `effort` that was chosen
    replaces that of the options; without one there it is not sent, because the model may refuse it.
    """
    config = options.get("output_config", {})
    if not isinstance(config, dict):
        return config
    shape = None if schema is None or "format" in config else translate_schema(schema)
    asked: JsonDict = {name: value for name, value in config.items() if value is not None}
    if effort is not None and asked.get("effort"):
        asked["effort"] = effort
    return asked if shape is None else {**asked, "format": {"type": "json_schema", "schema": shape}}


def translate_schema(schema: JsonObject, /) -> JsonDict | None:
    """Translate a schema of type object to the service's part of JSON Schema.

    References are replaced by the schemas that they point to. Return None if the schema cannot be
    expressed in that part.
    """
    try:
        return _SchemaTranslator(schema).translate()
    except _UnsupportedSchema:
        return None


class _UnsupportedSchema(Exception):
    """The service refuses the schema, or would read it as a different one."""


class _SchemaTranslator:
    """A translation of one schema, with the counts that the service limits."""

    def __init__(self, schema: JsonObject) -> None:
        self._whole = schema
        self._parts = self._optional = self._unions = 0

    def translate(self) -> JsonDict:
        """Return the translated schema.

        Raises:
            _UnsupportedSchema: it cannot be expressed, or is not of type object.
        """
        translated = self._translate_schema(dict(self._whole), 0)
        if "properties" not in translated:
            raise _UnsupportedSchema
        return translated

    def _translate_schema(self, schema: JsonValue, depth: int) -> JsonDict:
        self._parts += 1
        if not isinstance(schema, dict) or depth > _MAX_DEPTH or self._parts > _MAX_PARTS:
            raise _UnsupportedSchema
        if schema.keys() - _SUPPORTED - _DROPPED:
            raise _UnsupportedSchema
        keywords = schema.keys() & _SHAPE_KEYWORDS
        has_type = schema.keys() & {"type", "properties"}
        # Two shapes at once would have to be merged into one.
        if len(keywords) > 1 or (has_type and keywords - {"enum", "const"}):
            raise _UnsupportedSchema
        translated: JsonDict
        match next(iter(keywords), "type"):
            case "$ref":
                # a name that nothing has is refused as what it leads to, no schema
                found = _REFERENCE.fullmatch(str(schema["$ref"]))
                named = self._whole.get(found[1]) if found else None
                target = named.get(found[2]) if found and isinstance(named, dict) else None
                translated = self._translate_schema(target, depth + 1)
            case "const":
                translated = _translate_values([schema["const"]], schema)
            case "enum":
                translated = _translate_values(schema["enum"], schema)
            case "type":
                translated = self._translate_typed(schema, depth)
            case union:
                # passback itself checks that exactly one alternative of `oneOf` fits.
                self._count_union()
                given = schema[union]
                alternatives = given if isinstance(given, list) else []
                translated = {
                    "anyOf": [self._translate_schema(one, depth + 1) for one in alternatives]
                }
        return translated | {name: schema[name] for name in _ANNOTATIONS if name in schema}

    def _translate_typed(self, schema: Mapping[str, JsonValue], depth: int) -> JsonDict:
        given = schema.get("type")
        types = given if isinstance(given, list) else [given]
        if not types or not all(isinstance(each, str) and each in _TYPES for each in types):
            raise _UnsupportedSchema
        if len(types) > 1:
            self._count_union()
        translated: JsonDict = {"type": given}
        if "object" in types:
            translated |= self._translate_object(schema, depth)
        if "array" in types:
            translated["items"] = self._translate_schema(schema.get("items"), depth + 1)
            if schema.get("minItems") in (0, 1):  # the service refuses any other value
                translated["minItems"] = schema["minItems"]
        if schema.get("format") in _FORMATS:  # and any other format
            translated["format"] = schema["format"]
        return translated

    def _translate_object(self, schema: Mapping[str, JsonValue], depth: int) -> JsonDict:
        """Translate a closed object.

        Raises:
            _UnsupportedSchema: it is a map or open, and the service takes closed objects only.
        """
        properties, required = schema.get("properties"), schema.get("required", [])
        if not isinstance(properties, dict) or not isinstance(required, list):
            raise _UnsupportedSchema
        if schema.get("additionalProperties", False) is not False or not properties:
            raise _UnsupportedSchema
        if any(name not in properties for name in required):
            raise _UnsupportedSchema
        self._optional += len(properties) - len(required)
        if self._optional > _MAX_OPTIONAL:
            raise _UnsupportedSchema
        return {
            "properties": {
                name: self._translate_schema(each, depth + 1) for name, each in properties.items()
            },
            "required": required,
            "additionalProperties": False,
        }

    def _count_union(self) -> None:
        self._unions += 1
        if self._unions > _MAX_UNIONS:
            raise _UnsupportedSchema


def _translate_values(values: JsonValue, schema: Mapping[str, JsonValue]) -> JsonDict:
    """Translate an `enum` of plain values.

    Raises:
        _UnsupportedSchema: a value is a list or an object.
    """
    if not isinstance(values, list) or any(isinstance(each, list | dict) for each in values):
        raise _UnsupportedSchema
    translated: JsonDict = {"enum": values}
    if "type" in schema:
        translated["type"] = schema["type"]
    return translated
