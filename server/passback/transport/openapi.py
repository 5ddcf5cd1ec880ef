"""The OpenAPI 3.1 document: composed of the wires' parts, with what they share."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import JsonValue, TypeAdapter

from passback.core.errors import ConfigurationError
from passback.core.messages import JsonObject
from passback.transport.http import STATUS
from passback.transport.native import NATIVE_EVENT
from passback.transport.wires import Wire

GATE_ERRORS = (
    "headers_too_large",
    "unauthenticated",
    "foreign_host",
    "foreign_origin",
    "internal",
)
"""Codes with which any request may be answered."""

STORE_ERRORS = ("store_unavailable", "store_full", "store_error")
BODY_ERRORS = ("bad_request", "body_too_large", "unsupported_media_type", "request_timeout")

_REF = "#/components/schemas/{model}"

_ERROR: JsonObject = {
    "type": "object",
    "description": "Every error before a stream begins.",
    "required": ["code", "message", "request_id"],
    "properties": {
        "code": {"type": "string", "description": "Stable, for programs."},
        "message": {"type": "string", "description": "One sentence, for people."},
        "details": {"type": "object", "description": "More, for some codes."},
        "request_id": {"type": "string", "description": "Also in the header `X-Request-Id`."},
    },
}

REQUEST_ID_HEADER: JsonObject = {
    "X-Request-Id": {
        "description": "The request's own, when it had a sane one (`[A-Za-z0-9._-]{1,128}`), else a new one.",
        "schema": {"type": "string"},
    }
}

_RETRY_AFTER: JsonObject = {
    "Retry-After": {
        "description": "Seconds after which a repeat may succeed; without it, none will.",
        "schema": {"type": "integer", "minimum": 1},
    }
}
_PASSING = frozenset({"409", "429", "503"})
"""Statuses of errors that may be over soon."""


def compose(wires: Sequence[Wire], /, *, version: str = "dev") -> JsonObject:
    """The document of all wires together.

    Raises:
        ConfigurationError: two wires claim one path, or give one name to two schemas.
    """
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "passback",
            "version": version,
            "summary": "An agent server whose tools can run in the client's hands.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "security": [{}, {"bearer": []}],
        "paths": _merged(wire.paths for wire in wires),
        "components": {
            "schemas": _merged(
                [{"Error": dict(_ERROR)}, _event_schemas(), *(wire.schemas for wire in wires)]
            ),
            "securitySchemes": {
                "bearer": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "Needed when the server is set up with API keys.",
                }
            },
        },
    }


def _merged(parts: Iterable[Mapping[str, JsonValue]]) -> dict[str, JsonValue]:
    merged: dict[str, JsonValue] = {}
    for part in parts:
        for name, value in part.items():
            if merged.setdefault(name, value) != value:
                raise ConfigurationError(f"two wires describe {name!r} in different ways")
    return merged


# ---------------------------------------------------------------- schemas
def schemas_of(*types: type) -> dict[str, JsonValue]:
    """The schemas of classes, by their names, with all that they are made of."""
    _, document = TypeAdapter.json_schemas(
        [(kind, "validation", TypeAdapter[Any](kind)) for kind in types], ref_template=_REF
    )
    return dict(document["$defs"])


def _event_schemas() -> dict[str, JsonValue]:
    """The union of native events under one name, and each of them."""
    union = NATIVE_EVENT.json_schema(ref_template=_REF)
    return {**union.pop("$defs"), "NativeEvent": union}


def reference(name: str, /) -> dict[str, JsonValue]:
    return {"$ref": _REF.format(model=name)}


# ---------------------------------------------------------------- answers
def json_response(
    description: str,
    schema: JsonObject,
    /,
    *,
    example: JsonValue = None,
    headers: JsonObject = REQUEST_ID_HEADER,
) -> dict[str, JsonValue]:
    content: dict[str, JsonValue] = {"schema": dict(schema)}
    if example is not None:
        content["example"] = example
    return {
        "description": description,
        "headers": dict(headers),
        "content": {"application/json": content},
    }


def error_responses(*codes: str) -> dict[str, JsonValue]:
    """One answer per status, with its codes."""
    by_status: dict[str, list[JsonValue]] = {}
    for code in codes:
        by_status.setdefault(str(STATUS[code]), []).append(code)
    return {
        status: json_response(
            ", ".join(f"`{code}`" for code in listed),
            {"allOf": [reference("Error"), {"properties": {"code": {"enum": listed}}}]},
            headers={**REQUEST_ID_HEADER, **(_RETRY_AFTER if status in _PASSING else {})},
        )
        for status, listed in sorted(by_status.items())
    }


def stream_response(
    description: str, /, *, headers: JsonObject, example: str
) -> dict[str, JsonValue]:
    """A stream of native events; `x-event-schema` describes the `data` of each."""
    return {
        "description": description,
        "headers": {**REQUEST_ID_HEADER, **headers},
        "content": {
            "text/event-stream": {
                "schema": {"type": "string"},
                "x-event-schema": {"anyOf": [reference("NativeEvent"), {"const": "[DONE]"}]},
                "example": example,
            }
        },
    }


# ---------------------------------------------------------------- requests
def operation(
    operation_id: str,
    summary: str,
    responses: JsonObject,
    *codes: str,
    **more: JsonValue,
) -> dict[str, JsonValue]:
    """One method of a path; `codes` are its errors beside those of the gate, `more` its `parameters` and the like."""
    return {
        "operationId": operation_id,
        "summary": summary,
        **more,
        "responses": {**responses, **error_responses(*codes, *GATE_ERRORS)},
    }


def parameter(
    name: str,
    where: str,
    description: str,
    schema: JsonObject | None = None,
    *,
    required: bool = False,
) -> JsonValue:
    return {
        "name": name,
        "in": where,
        "required": required or where == "path",
        "description": description,
        "schema": dict(schema or {"type": "string"}),
    }


def json_body(
    schema: JsonObject, /, *, required: bool = True, example: JsonValue
) -> dict[str, JsonValue]:
    return {
        "required": required,
        "content": {"application/json": {"schema": dict(schema), "example": example}},
    }
