"""Reads the fields of the server's JSON objects."""

import json
from typing import cast

from pydantic import JsonValue

from passback_client.errors import BadAnswer
from passback_client.events import JsonObject


def read_object(text: str | bytes) -> JsonObject:
    """Read a JSON object. Raises BadAnswer if the text is not one."""
    try:
        value = cast("JsonValue", json.loads(text))
    except (ValueError, RecursionError) as error:
        raise BadAnswer("the server sent something that is not JSON") from error
    return as_object(value)


def as_object(value: JsonValue) -> JsonObject:
    if not isinstance(value, dict):
        raise BadAnswer("the server sent something else than a JSON object")
    return value


def objects(fields: JsonObject, name: str) -> list[JsonObject]:
    value = fields.get(name)
    if not isinstance(value, list):
        raise BadAnswer(f"the server sent no list {name!r}")
    return [as_object(each) for each in value]


def text(fields: JsonObject, name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str):
        raise BadAnswer(f"the server sent no text {name!r}")
    return value


def optional_text(fields: JsonObject, name: str) -> str | None:
    value = fields.get(name)
    return value if isinstance(value, str) else None


def count(fields: JsonObject, name: str) -> int:
    value = fields.get(name)
    if not isinstance(value, int):
        raise BadAnswer(f"the server sent no number {name!r}")
    return value
