"""Whether a JSON Schema that somebody declares is one of ours. It is data: never fetched, its patterns not run here."""

from pydantic import JsonValue

from passback.core.messages import JsonObject
from passback.schemas.metaschemas import metaschema
from passback.schemas.references import KEYS, anchors, is_bounded, parts, target, texts

_PARTS = 1_000
"""Objects, arrays and booleans in one schema: checking one costs up to 0.2 ms, another value some hundredths of that."""


class Unfit(Exception):
    """What is wrong with a schema, in words."""


def judged(declared: JsonValue, /, *, of: str | None = "object") -> JsonObject:
    """The schema of an object; its type is added where it says none. A hostile one may take long.

    Args:
        declared: whatever was declared.
        of: the type that it has to say; None: any or none.

    Raises:
        Unfit: says why it is none.
    """
    if not isinstance(declared, dict):
        raise Unfit("its schema is not an object")
    schema: dict[str, JsonValue] = {**declared}
    if of is not None and schema.setdefault("type", of) != of:
        raise Unfit(f"its schema is not of type {of!r}")
    if part_count(schema) > _PARTS:
        raise Unfit(f"its schema has more than {_PARTS} parts")
    fitting = metaschema(schema)
    if fitting is None:
        raise Unfit("its $schema is none of draft 2020-12, 2019-09 and draft-07")
    problem = next(fitting.iter_errors(schema), None)
    if problem is not None:
        raise Unfit(f"its schema is not a valid JSON Schema at {problem.json_path[:200]}")
    _check_references(schema)
    return schema


def part_count(schema: JsonObject, /) -> int:
    """How many parts a schema has: objects, arrays and booleans."""
    return sum(1 for _ in parts(dict(schema)))


def _check_references(schema: dict[str, JsonValue]) -> None:
    """Refuse a reference that leaves the schema or leads nowhere, and other names below the top; none is ever fetched."""
    named = anchors(schema)
    for part in parts(schema):
        if not isinstance(part, dict):
            continue
        if part is not schema and texts(part, "$id", "$schema"):
            raise Unfit("its schema has an $id or a $schema below its top")
        for reference in texts(part, *KEYS):
            if not reference.startswith("#"):
                raise Unfit("its schema has a reference to another document")
            try:
                target(schema, named, reference)
            except LookupError:
                raise Unfit("its schema has a reference that leads nowhere") from None
    if not is_bounded(schema, named):
        raise Unfit("its schema applies too many schemas to one value, or one to itself")
