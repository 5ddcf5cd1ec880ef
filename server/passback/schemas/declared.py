"""Whether a JSON Schema that somebody declares is one of ours. It is data: never fetched, its patterns not run here."""

from pydantic import JsonValue

from passback.core.messages import JsonObject
from passback.schemas.metaschemas import metaschema
from passback.schemas.references import KEYS, anchors, is_bounded, parts, target, texts

_VALUES = 1_000
"""Objects, arrays and booleans in one schema: checking one costs up to 0.2 ms, another value some hundredths of that."""


class Unfit(Exception):
    """What is wrong with a schema, in words."""


def fit(schema: JsonValue, /, *, of: str | None = "object") -> JsonObject:
    """The schema, with its type. May take a fifth of a second: not for the event loop.

    Args:
        schema: nested no deeper than a parser allows.
        of: the type that it has to be of; None: any.

    Raises:
        Unfit: it is none that values can be checked with.
    """
    if not isinstance(schema, dict):
        raise Unfit("its schema is not an object")
    if of is not None and schema.setdefault("type", of) != of:
        raise Unfit(f"its schema is not of type {of!r}")
    if size(schema) > _VALUES:
        raise Unfit(f"its schema has more than {_VALUES} parts")
    fitting = metaschema(schema)
    if fitting is None:
        raise Unfit("its $schema is none of draft 2020-12, 2019-09 and draft-07")
    problem = next(fitting.iter_errors(schema), None)
    if problem is not None:
        raise Unfit(f"its schema is not a valid JSON Schema at {problem.json_path[:200]}")
    _check_references(schema)
    return schema


def size(schema: JsonObject, /) -> int:
    """How many parts cost time to check."""
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
