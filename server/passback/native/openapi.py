"""The OpenAPI 3.1 document, composed of the wires' parts and of what they share."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any, cast

from pydantic import JsonValue, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core.core_schema import WithDefaultSchema
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import override

from passback.core.errors import ConfigurationError
from passback.core.messages import JsonObject
from passback.http.answers import STATUS, write_json, written_answer
from passback.http.routing import Endpoint
from passback.http.wires import Wire
from passback.native.document import MAX_WAIT_SECONDS, RunAnswer, RunGoesOn
from passback.native.shapes import NATIVE_EVENT

# Codes with which any request may be answered. `invalid_request` is for a query parameter that a
# route does not take.
GATE_ERRORS = (
    "headers_too_large",
    "unauthenticated",
    "foreign_host",
    "foreign_origin",
    "invalid_request",
    "internal",
)

STORE_ERRORS = ("store_unavailable", "store_full", "store_error")
# Codes with which the answer of a run may be refused, or its failure reported before anything else
# was sent.
RUN_ERRORS = (
    "not_acceptable",
    "model_error",
    "model_unavailable",
    "model_rate_limited",
    "model_rejected",
    "model_context_exceeded",
    "model_incomplete",
    "model_astray",
    "output_invalid",
    "context_too_large",
    "lost",
)

BODY_ERRORS = (
    "bad_request",
    "body_too_large",
    "unsupported_media_type",
    "request_timeout",
    "server_busy",
)
# Codes with which the post of a conversation's new messages may be answered.
POST_ERRORS = (
    *BODY_ERRORS,
    "invalid_request",
    "invalid_tool",
    "tool_name_clash",
    "invalid_output_schema",
    "data_too_large",
    "attachment_too_large",
    "message_too_large",
    "history_too_large",
    "unsupported_attachment",
    "nothing_to_do",
    "result_too_large",
    "unknown_command",
    "unknown_model",
    "invalid_answer",
    "invalid_cursor",
    "reused",
    "conversation_busy",
    "queue_full",
    "schemas_busy",
    "too_many_runs",
    "tool_result_conflict",
    "tool_call_not_found",
    "message_not_found",
    "run_not_found",
    "cursor_expired",
    "agent_not_found",
    *RUN_ERRORS,
    *STORE_ERRORS,
    "shutting_down",
)

_REFERENCE_TEMPLATE = "#/components/schemas/{model}"

_ERROR_SCHEMA: JsonObject = {
    "type": "object",
    "description": "Every error before a stream begins, "
    "and the failure of a run that was waited for.",
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
        "description": "The request's own, when it had a sane one (`[A-Za-z0-9._-]{1,128}`), "
        "else a new one.",
        "schema": {"type": "string"},
    }
}

_LEFT_HEADERS: JsonObject = {
    f"X-Budget-Left-{kind}": {
        "description": f"{unit} that are left to conversation and owner, "
        "where that is limited and known.",
        "schema": {"type": "number"},
    }
    for kind, unit in (("Tokens", "Tokens"), ("Seconds", "Seconds"), ("Cost", "Costs"))
}

# Headers of the answer to a post of new messages.
POST_HEADERS: JsonObject = {
    "X-Conversation-Id": {
        "description": "The conversation; what is not visible ASCII is percent-encoded.",
        "schema": {"type": "string"},
    },
    "X-Run-Id": {
        "description": "The run whose events follow; missing when calls are still owed.",
        "schema": {"type": "string"},
    },
    "X-Owed-Tool-Calls": {
        "description": "The results are stored, no run began: "
        "these calls have to be answered first.",
        "schema": {"type": "string"},
    },
}

_RETRY_AFTER: JsonObject = {
    "Retry-After": {
        "description": "Seconds after which a repeat may succeed; without it, none will.",
        "schema": {"type": "integer", "minimum": 1},
    }
}
_TRANSIENT_STATUSES = frozenset({"409", "429", "503"})


def compose_document(wires: Sequence[Wire], /, *, version: str = "dev") -> JsonObject:
    """Return the document of all wires together.

    Raises:
        ConfigurationError: two wires describe one path, or one name of a schema, differently.
    """
    # each native event has a name, and their union has one
    union = NATIVE_EVENT.json_schema(ref_template=_REFERENCE_TEMPLATE)
    events = {**union.pop("$defs"), "NativeEvent": union}
    shared = {"Error": dict(_ERROR_SCHEMA), **events, **schemas_of(RunAnswer, RunGoesOn)}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "passback",
            "version": version,
            "summary": "An agent server whose tools can run in the client's hands.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "security": [{}, {"bearer": []}],
        "paths": _merge_paths(wires),
        "components": {
            "schemas": _merge_parts([shared, *(schemas_of(*wire.types) for wire in wires)]),
            "securitySchemes": {
                "bearer": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "Needed when the server is set up with API keys.",
                }
            },
        },
    }


def document_wire(wires: Sequence[Wire], /, *, version: str) -> Wire:
    """Return the wire that serves the document of the given wires, with itself, at `/openapi.json`.

    Raises:
        ConfigurationError: as `compose_document`.
    """

    async def get_document(request: Request) -> Response:
        return written_answer(request.scope, text())

    @cache
    def text() -> str:  # once, at the first request: it takes as long as a run, and never changes
        return write_json(compose_document([*wires, own], version=version))

    described = describe_operation(
        "describe",
        "This document.",
        {"200": json_response("The OpenAPI document.", {"type": "object"})},
    )
    path = "/openapi.json"
    own = Wire([Endpoint(path, get_document, methods=["GET"])], {path: {"get": described}})
    return own


def _merge_paths(wires: Sequence[Wire]) -> dict[str, JsonValue]:
    """Return what is at each path. Two wires may have one path, with methods of their own."""
    items: dict[str, list[JsonObject]] = {}
    for wire in wires:
        for path, item in wire.paths.items():
            items.setdefault(path, []).append(cast("JsonObject", item))
    return {path: _merge_parts(found) for path, found in items.items()}


def _merge_parts(parts: Iterable[Mapping[str, JsonValue]]) -> dict[str, JsonValue]:
    merged: dict[str, JsonValue] = {}
    for part in parts:
        for name, value in part.items():
            if merged.setdefault(name, value) != value:
                raise ConfigurationError(f"two wires describe {name!r} in different ways")
    return merged


class _Schemas(GenerateJsonSchema):
    """A generator of schemas that leaves out empty strings as defaults."""

    @override
    def default_schema(self, schema: WithDefaultSchema) -> JsonSchemaValue:
        # "" is how Python says that a key is missing, and not every key may be posted empty
        if schema.get("default") == "":
            return self.generate_inner(schema["schema"])
        return super().default_schema(schema)


@cache  # takes milliseconds, and tests ask many applications
def schemas_of(*types: type) -> Mapping[str, JsonValue]:
    """Return the schemas of classes and of all classes that they consist of, by name."""
    _, document = TypeAdapter.json_schemas(
        [(kind, "validation", TypeAdapter[Any](kind)) for kind in types],
        ref_template=_REFERENCE_TEMPLATE,
        schema_generator=_Schemas,
    )
    return MappingProxyType(document.get("$defs", {}))


def schema_reference(name: str, /) -> dict[str, JsonValue]:
    """Return a reference to the schema of this name."""
    return {"$ref": _REFERENCE_TEMPLATE.format(model=name)}


def json_response(
    description: str,
    schema: JsonObject,
    /,
    *,
    example: JsonValue = None,
    headers: JsonObject = REQUEST_ID_HEADER,
) -> dict[str, JsonValue]:
    """Return the description of an answer with a JSON document."""
    content: dict[str, JsonValue] = {"schema": dict(schema)}
    if example is not None:
        content["example"] = example
    return {
        "description": description,
        "headers": dict(headers),
        "content": {"application/json": content},
    }


def error_responses(
    *codes: str, status_of: Callable[[str], int] = STATUS.__getitem__, schema: str = "Error"
) -> dict[str, JsonValue]:
    """Return one answer for each status of these codes, with a schema of this name."""
    # the codes stand beside the schema, so that generated clients have one type for all errors
    by_status: dict[str, list[JsonValue]] = {}
    for code in dict.fromkeys(codes):
        by_status.setdefault(str(status_of(code)), []).append(code)
    return {
        status: {
            "x-codes": listed,
            **json_response(
                ", ".join(f"`{code}`" for code in listed),
                schema_reference(schema),
                headers={
                    **REQUEST_ID_HEADER,
                    **(_RETRY_AFTER if status in _TRANSIENT_STATUSES else {}),
                },
            ),
        }
        for status, listed in sorted(by_status.items())
    }


def answer_headers(headers: JsonObject, /) -> JsonObject:
    """Return the headers of every answer that follows a run, and `headers`."""
    return {**REQUEST_ID_HEADER, **_LEFT_HEADERS, **headers}


def run_responses(*, headers: JsonObject, example: str) -> dict[str, JsonValue]:
    """Return the answers that follow a run, in each of their formats.

    `x-event-schema` describes the `data` of each event.
    """
    headers = answer_headers(headers)
    # the document is the first one: most generators of clients take the first format they know
    formats: JsonObject = {
        "application/json": {"schema": schema_reference("RunAnswer"), "example": _EXAMPLE_ANSWER},
        "text/event-stream": {
            "schema": {"type": "string"},
            "x-event-schema": {"anyOf": [schema_reference("NativeEvent"), {"const": "[DONE]"}]},
            "example": example,
        },
        "text/plain": {"schema": {"type": "string"}, "example": "On it.\n"},
    }
    return {
        "200": {
            "description": "The run, to its end: its events, `[DONE]` is last; with `wait` "
            "(or where the client accepts only this) one JSON document; "
            "or the agent's answer as plain text.",
            "headers": dict(headers),
            "content": dict(formats),
        },
        "202": json_response(
            "The wait is over, the run goes on.",
            schema_reference("RunGoesOn"),
            example=_EXAMPLE_GOES_ON,
            headers={
                **headers,
                "Location": {
                    "description": "As `follow`.",
                    "schema": {"type": "string", "format": "uri-reference"},
                },
            },
        ),
    }


_EXAMPLE_IDS: Mapping[str, JsonValue] = {
    "runId": "run_693FyNLtTkEYVaTmsgaHHib8dHegXHoh9O",
    "conversationId": "6f1c2f8e-3c5b-4b0e-9d39-0f6b8f6c2a51",
}
_EXAMPLE_ANSWER: dict[str, JsonValue] = {
    **_EXAMPLE_IDS,
    "outcome": "handed-back",
    "reason": None,
    "text": "On it.",
    "owed": [
        {
            "id": "call_693FyNLtTkEYVaTmsgaHHi7FXgdN3QfLF9",
            "name": "change-background-color",
            "arguments": '{"color":"blue"}',
            "kind": "tool_result",
        }
    ],
    "usage": None,
    "model": "openai:gpt-5",
    "lastEventId": "run_693FyNLtTkEYVaTmsgaHHib8dHegXHoh9O.1-7",
}
_EXAMPLE_GOES_ON: dict[str, JsonValue] = {
    **_EXAMPLE_IDS,
    "follow": "conversations/6f1c2f8e-3c5b-4b0e-9d39-0f6b8f6c2a51/stream"
    "?runId=run_693FyNLtTkEYVaTmsgaHHib8dHegXHoh9O",
}


def describe_operation(
    operation_id: str,
    summary: str,
    responses: JsonObject,
    *codes: str,
    **more: JsonValue,
) -> dict[str, JsonValue]:
    """Return the description of one method of a path.

    Args:
        operation_id: its name.
        summary: one sentence for people.
        responses: its answers that are no errors, by status.
        codes: of its errors, without those of the gate.
        more: other keys of the description, such as `parameters`.
    """
    return {
        "operationId": operation_id,
        "summary": summary,
        **more,
        "responses": {**responses, **error_responses(*codes, *GATE_ERRORS)},
    }


def describe_parameter(
    name: str,
    where: str,
    description: str,
    schema: JsonObject | None = None,
    *,
    required: bool = False,
) -> JsonValue:
    """Return the description of a parameter. One in a path is always required."""
    return {
        "name": name,
        "in": where,
        "required": required or where == "path",
        "description": description,
        "schema": dict(schema or {"type": "string"}),
    }


WAIT = describe_parameter(
    "wait",
    "query",
    "Answer with one JSON document at the run's end, or after so many seconds (`true`: the most) "
    "with the address to go on.",
    {
        "anyOf": [
            {"type": "boolean"},
            {"type": "integer", "minimum": 1, "maximum": MAX_WAIT_SECONDS},
        ]
    },
)

# The headers by which a post may be repeated.
REPEATS: tuple[JsonValue, ...] = (
    describe_parameter(
        "Idempotency-Key",
        "header",
        "Names the post, so that a repeat of it is recognized and joins its run: 1 to 256 visible "
        "ASCII characters, in quotes or bare. Use one that cannot be guessed, such as a UUID.",
    ),
    describe_parameter(
        "Last-Event-ID",
        "header",
        "When a post is repeated: the last `id` that was seen. The events after it are sent.",
    ),
)


def json_body(
    schema: JsonObject, /, *, required: bool = True, example: JsonValue
) -> dict[str, JsonValue]:
    """Return the description of a JSON body."""
    return {
        "required": required,
        "content": {"application/json": {"schema": dict(schema), "example": example}},
    }
