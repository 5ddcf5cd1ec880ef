"""Each field of an event is in every place that lists it: none is missing, none left over.

The types in `native/shapes.py` describe the events that the server sends. A field is named by its
event and its path, such as `usage.left.turns`.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, cast, get_args

from passback.core.events import Outcome, RunEvent
from passback.native.shapes import NATIVE_EVENT
from passback_client import events as client_events
from passback_client.errors import BadAnswer
from passback_client.parsing import parse_event

ROOT = Path(__file__).parents[2]
VECTORS_FILE = "tests/vectors/send_message.json"
VECTORS: list[dict[str, Any]] = json.loads((ROOT / VECTORS_FILE).read_text(encoding="utf-8"))
FRAMES: list[dict[str, Any]] = [
    json.loads(data)
    for data in sorted({data for vector in VECTORS for data in vector["data"]} - {"[DONE]"})
]


def schema_fields(schema: Mapping[str, Any], path: str, defs: Mapping[str, Any]) -> Iterator[str]:
    """Yield the fields of a JSON schema, `?` behind those that may be missing."""
    while "$ref" in schema or "items" in schema:
        schema = schema.get("items") or defs[schema["$ref"].rpartition("/")[2]]
    for name, one in schema.get("properties", {}).items():
        if name != "type":
            yield f"{path}.{name}{'' if name in schema.get('required', ()) else '?'}"
            yield from schema_fields(one, f"{path}.{name}", defs)


@cache
def sent() -> frozenset[str]:
    """Return the fields of all events that the server may send."""
    schema = NATIVE_EVENT.json_schema()
    kinds = schema["discriminator"]["mapping"]
    return frozenset(
        field
        for kind, reference in kinds.items()
        for field in schema_fields({"$ref": reference}, kind, schema["$defs"])
    )


def plain(names: Iterable[str]) -> set[str]:
    return {name.removesuffix("?") for name in names}


def json_fields(value: object, path: str) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Yield the fields of a JSON value, each with the object that has it, and its name there."""
    if isinstance(value, dict):
        owner = cast("dict[str, Any]", value)
        for name in [name for name in owner if f"{path}.{name}" in plain(sent())]:
            yield f"{path}.{name}", owner, name
            yield from json_fields(owner[name], f"{path}.{name}")
    for one in cast("list[object]", value) if isinstance(value, list) else ():
        yield from json_fields(one, path)


# ---------------------------------------------------------------- the vectors, and so the encoder
def test_the_vectors_feed_every_field_of_the_events_and_outcomes_of_a_run() -> None:
    fed = [innermost(event) for vector in VECTORS for event in vector["events"]]
    fed += [event["outcome"] for event in fed if "outcome" in event]
    given = {f"{event['type']}.{name}" for event in fed for name in event}
    kinds = {kind.__dataclass_fields__["type"].default: kind for kind in get_args(RunEvent)}
    kinds |= {kind.__dataclass_fields__["type"].default: kind for kind in get_args(Outcome)}
    known = {f"{name}.{one.name}" for name, kind in kinds.items() for one in fields(kind)}
    assert known - {"nested.type", "nested.call_id", "nested.event"} - given == set(), VECTORS_FILE


def innermost(event: dict[str, Any]) -> dict[str, Any]:
    return innermost(event["event"]) if event["type"] == "nested" else event


def test_the_vectors_have_every_field_that_is_sent() -> None:
    """The tests of the vectors then show that the encoder sends them."""
    given = {path for frame in FRAMES for path, _, _ in json_fields(frame, frame["type"])}
    assert plain(sent()) - given == set(), f"{VECTORS_FILE} lacks them"


# ---------------------------------------------------------------- the Python client
def read(frame: Mapping[str, Any]) -> client_events.Event | None:
    try:
        return parse_event(json.dumps(frame), "run.1-2")
    except BadAnswer:
        return None


def test_the_python_client_reads_every_field_and_has_defaults_for_optional_ones() -> None:
    """Without a field it reads another event, in some frame; or none, if it is always sent."""
    place = "client_tools/python/passback_client/events.py"
    found: set[str] = {"interrupt.payload.toolCallId"}  # the same as `interrupt.id`
    for frame in FRAMES:
        whole = read(frame)
        for path, owner, name in list(json_fields(frame, frame["type"])):
            value = owner.pop(name)
            other = read(frame)
            owner[name] = value
            if other != whole:
                found.add(path)
            assert other or f"{path}?" not in sent(), f"{place} has no default for {path}"
    assert plain(sent()) - found == set(), f"{place} lacks them"


def test_the_python_client_has_no_field_that_is_never_sent() -> None:
    """Each differs from its default in some frame of the vectors."""
    known: set[str] = set()
    filled: set[str] = set()
    for value in client_values([read(frame) for frame in FRAMES]):
        for one in fields(value):
            known.add(f"{type(value).__name__}.{one.name}")
            if getattr(value, one.name) != one.default:
                filled.add(f"{type(value).__name__}.{one.name}")
    conversation_only = {"OwedCall.deadline", "OwedCall.claimed_until"}
    assert known - filled - conversation_only == set()


def client_values(value: object) -> Iterator[Any]:
    """Yield the values of the client within a value."""
    if isinstance(value, list | tuple):
        for one in cast("Sequence[object]", value):
            yield from client_values(one)
    elif is_dataclass(value):
        yield value
        for field in fields(value):
            yield from client_values(getattr(value, field.name))


# ---------------------------------------------------------------- the JavaScript client
TYPES = (ROOT / "client_tools" / "js" / "types" / "events.d.ts").read_text(encoding="utf-8")
OBJECT_TYPES = {
    name: (dict(re.findall(r"^    (\w+\??): (.*);$", body, re.MULTILINE)), parents.split(" & ")[1:])
    for name, body, parents in re.findall(
        r"^export type (\w+) = \{\n(.*?)^\}([^;]*);$", TYPES, re.MULTILINE | re.DOTALL
    )
}


def type_fields(name: str, path: str) -> Iterator[str]:
    properties, parents = OBJECT_TYPES[name]
    for field, kind in properties.items():
        if field != "type":
            yield f"{path}.{field}"
            if (inner := kind.removesuffix("[]")) in OBJECT_TYPES:
                yield from type_fields(inner, f"{path}.{field.removesuffix('?')}")
    for parent in parents:
        yield from type_fields(parent, path)


def test_the_types_of_the_javascript_client_have_the_fields_that_are_sent() -> None:
    typed = {
        field
        for name, (properties, _) in OBJECT_TYPES.items()
        if (kind := properties.get("type", "").strip('"')) in {frame["type"] for frame in FRAMES}
        for field in type_fields(name, kind)
    }
    place = "client_tools/js/src/events.js, from which types/ is generated"
    assert plain(sent()) - plain(typed) == set(), f"{place}, lacks them"
    required = {name for name in typed if not name.endswith("?")}
    assert required & {name.removesuffix("?") for name in sent() if name.endswith("?")} == set()
    # every event has a place there, and conversations have owed calls, too
    more = {"cursor", "runId", "deadline", "claimedUntil"}
    unknown = plain(typed) - plain(sent())
    assert {name for name in unknown if name.rpartition(".")[2] not in more} == set(), place


# ---------------------------------------------------------------- the reference
PAGE = "docs/reference/events.md"


def documented_fields() -> Iterator[str]:
    """Yield the fields in the code of the page, `?` behind those that may be missing.

    The code is such as `{"type": "plan", "entries": [{"content"}], "old"?}`. A field that is not in
    all forms of its event may be missing.
    """
    page = (ROOT / PAGE).read_text(encoding="utf-8")
    forms: dict[str, list[set[str]]] = {}
    for kind, rest in re.findall(r'`\{"type": "([\w-]+)"(.*?)\}`', page):
        form, path, last = set[str](), [kind], ""
        for token in re.findall(r"\w+\??|[{}]", rest.replace('"', "")):
            match token:
                case "{":
                    path.append(last)
                case "}":
                    path.pop()
                case _:
                    last = token.removesuffix("?")
                    form.add(".".join([*path, token]))
        forms.setdefault(kind, []).append(form)
    for of_kind in forms.values():
        for name in plain(set[str]().union(*of_kind)):
            yield name if all(name in form for form in of_kind) else f"{name}?"


def test_the_reference_has_the_fields_that_are_sent() -> None:
    """The text of the page has the field that sub-agents add to the events of the second table."""
    by_sub_agents = {
        f"{kind}.parentToolCallId?"
        for kind in ("context", "message", "plan", "reasoning", "state", "tool-progress", "usage")
    }
    assert set(documented_fields()) == sent() - by_sub_agents, PAGE
