"""The JSON Schema of the Agent Client Protocol as the published npm package has it, held strictly.

The package's schema lets objects have fields that it does not name. The protocol does not: what an
implementation adds goes to `_meta`. So each object here may have named fields only.
"""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeAlias

from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match
from tests.support.programs import missing

Json: TypeAlias = dict[str, Any]

FOLDER = Path(__file__).resolve().parents[1] / "js"
_SCHEMA = FOLDER / "node_modules/@agentclientprotocol/sdk/schema/v1/schema.json"
_SHOWN = 600  # characters of an error
_COMBINED = frozenset({"$ref", "allOf", "anyOf", "oneOf", "title", "description", "discriminator"})
_REQUEST: Final = {"jsonrpc", "id", "method", "params"}
_ANSWER: Final = {"jsonrpc", "id", "result", "error"}


def faults_of(frame: Any, asked: str | None = None) -> list[str]:
    """Return what is wrong with a frame that an agent has sent.

    Args:
        frame: what one line says.
        asked: the method that it answers; None: it is no answer, or one to what was no request.
    """
    if not isinstance(frame, dict):
        return [f"is no object: {frame!r:.200}"]
    if frame.get("jsonrpc") != "2.0":
        return [f"has no jsonrpc 2.0: {frame!r:.200}"]
    return list(_faults_of_call(frame) if "method" in frame else _faults_of_answer(frame, asked))


def _faults_of_call(frame: Json) -> Iterator[str]:
    method = frame["method"]
    if not isinstance(method, str):
        yield f"has a method that is no text: {method!r}"
        return
    yield from _unknown_fields(frame, _REQUEST)
    if "id" in frame and type(frame["id"]) not in {int, str}:
        yield f"{method} has an id that is neither a number nor a text: {frame['id']!r}"
    if method.startswith("_"):
        return
    name = (
        "CancelRequestNotification"
        if method == "$/cancel_request"
        else _named(method, answers=False)
    )
    if name is None:
        yield f"{method} is no method of a client"
    elif name.endswith("Notification") == ("id" in frame):
        yield f"{method} is {'a notification and has' if 'id' in frame else 'a request without'} an id"
    else:
        yield from _violations(name, frame.get("params"), method)


def _faults_of_answer(frame: Json, asked: str | None) -> Iterator[str]:
    yield from _unknown_fields(frame, _ANSWER)
    if ("result" in frame) == ("error" in frame):
        yield "has not exactly one of result and error"
    elif "id" not in frame:
        yield "has no id"
    elif "error" in frame:
        yield from _violations("Error", frame["error"], f"the error of {asked}")
    elif asked is None:
        yield "answers what was no request"
    elif not asked.startswith("_"):
        # a method that the schema does not know has no result
        name = _named(asked, answers=True)
        yield from (
            _violations(name, frame["result"], f"the answer of {asked}")
            if name
            else [f"{asked} is no method of an agent, and has a result"]
        )


def _unknown_fields(frame: Json, known: set[str]) -> Iterator[str]:
    if unknown := frame.keys() - known:
        yield f"has fields that JSON-RPC does not have: {sorted(unknown)}"


def _violations(name: str, value: Any, what: str) -> Iterator[str]:
    for error in _validator(name, _variant(value)).iter_errors(value):
        worst = best_match([error])
        yield f"{what}: {worst.json_path}: {worst.message[:_SHOWN]}"


def _variant(value: Any) -> str:
    """Return the kind of a `session/update`; empty: of anything else."""
    update = value.get("update") if isinstance(value, dict) else None
    kind = update.get("sessionUpdate") if isinstance(update, dict) else None
    return kind if isinstance(kind, str) else ""


# ---------------------------------------------------------------- the schema
@cache
def _definitions() -> Json:
    if not _SCHEMA.exists():
        missing("@agentclientprotocol/sdk in tests/js/node_modules")
    known: Json = json.loads(_SCHEMA.read_text())["$defs"]
    return known


@cache
def _named(method: str, *, answers: bool) -> str | None:
    """Return the definition of a method's parameters or result: an agent calls what is the
    client's, and answers what is its own.
    """
    side = "agent" if answers else "client"
    ends = ("Response",) if answers else ("Request", "Notification")
    found = (
        name
        for name, each in _definitions().items()
        if (each.get("x-method"), each.get("x-side")) == (method, side) and name.endswith(ends)
    )
    return next(found, None)


@cache
def _validator(name: str, variant: str) -> Draft202012Validator:
    """Return the validator of a definition.

    Args:
        name: the definition.
        variant: of a session's update: its errors are then about that variant only.
    """
    schema = _flattened({"$ref": f"#/$defs/{name}"})
    if variant:
        update = schema["properties"]["update"]
        kinds = [each["properties"]["sessionUpdate"] for each in update["anyOf"]]
        chosen = [
            one
            for one, kind in zip(update["anyOf"], kinds, strict=True)
            if kind["const"] == variant
        ]
        schema["properties"]["update"] = {"anyOf": chosen or update["anyOf"]}
    return Draft202012Validator(schema)


def _flattened(schema: Any) -> Any:
    """Return a schema without references and conjunctions, whose objects have named fields only."""
    if not isinstance(schema, dict):
        return schema
    found = [_closed(each) for each in _alternatives(schema)]
    return found[0] if len(found) == 1 else {"anyOf": found}


def _closed(schema: Json) -> Json:
    if "properties" not in schema or "additionalProperties" in schema:
        return schema
    return {**schema, "additionalProperties": False}


def _alternatives(schema: Json) -> list[Json]:
    """Return the forms of a value, each as one conjunction that is worked out."""
    own = {key: each for key, each in schema.items() if key not in _COMBINED}
    if "properties" in own:
        own["properties"] = {name: _flattened(each) for name, each in own["properties"].items()}
    for key in {"items", "additionalProperties"} & own.keys():
        own[key] = _flattened(own[key])
    forms = [own]
    parts = list(schema.get("allOf", ()))
    if "$ref" in schema:
        parts.append(_definitions()[schema["$ref"].removeprefix("#/$defs/")])
    for part in parts:
        forms = _products(forms, _alternatives(part))
    for key in ("anyOf", "oneOf"):
        if key in schema:
            forms = _products(forms, [form for one in schema[key] for form in _alternatives(one)])
    return forms


def _products(forms: list[Json], more: list[Json]) -> list[Json]:
    return [_joined(one, other) for one in forms for other in more]


def _joined(one: Json, other: Json) -> Json:
    joined = {**one, **other}
    if "properties" in one and "properties" in other:
        joined["properties"] = {**one["properties"], **other["properties"]}
    if "required" in one and "required" in other:
        joined["required"] = [*one["required"], *other["required"]]
    return joined
