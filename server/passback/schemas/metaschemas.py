"""Whether a schema is a valid JSON Schema, found out in a time that the number of its parts bounds.

The metaschemas are the official ones; some of their keywords are checked here, because jsonschema's own may compare each
item of a list with each other one, collect all errors of all alternatives, and look for the metaschema through all levels
of the schema: 64 KiB kept them busy for ten seconds.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias, cast

import jsonschema_specifications  # type: ignore[import-untyped]  # pyright: ignore[reportMissingTypeStubs]
from jsonschema import Draft7Validator, Draft201909Validator, Draft202012Validator
from jsonschema.exceptions import ValidationError
from jsonschema.protocols import Validator
from jsonschema.validators import extend  # pyright: ignore[reportUnknownVariableType]
from pydantic import JsonValue
from referencing import Registry, Specification
from referencing.jsonschema import (
    DRAFT7,
    DRAFT201909,
    DRAFT202012,
    EMPTY_REGISTRY,
    Schema,
)

_DOCUMENTS = cast("Registry[Mapping[str, Any]]", jsonschema_specifications.REGISTRY)
_extend = cast("Callable[..., Callable[..., Validator]]", extend)
_Errors: TypeAlias = Iterable[ValidationError]

DRAFT_2020_12: Final = "https://json-schema.org/draft/2020-12/schema"
DRAFT_2019_09: Final = "https://json-schema.org/draft/2019-09/schema"
DRAFT_7: Final = "http://json-schema.org/draft-07/schema"


def dialect(schema: Mapping[str, JsonValue], /) -> str | None:
    """The draft that a schema is written for, one of the above; None when its `$schema` is another one."""
    named = schema.get("$schema", DRAFT_2020_12)
    known = named.removesuffix("#") if isinstance(named, str) else ""
    return known if known in _METASCHEMAS else None


def metaschema(schema: Mapping[str, JsonValue], /) -> Validator | None:
    """What the schema itself has to fit; None when its `$schema` is not known.

    It has no format checker, so that the pattern of a schema is not even compiled.
    """
    known = dialect(schema)
    return _METASCHEMAS[known] if known else None


# ---------------------------------------------------------------- keywords
def _any_of(
    validator: Any, alternatives: Sequence[Schema], value: JsonValue, _schema: Schema
) -> _Errors:
    if not any(_fits(validator, value, each) for each in alternatives):
        yield ValidationError("fits none of the alternatives")


def _fits(validator: Any, value: JsonValue, schema: Schema) -> bool:
    return next(validator.descend(value, schema), None) is None


def _unique_items(_validator: Any, _yes: bool, value: JsonValue, _schema: Schema) -> _Errors:
    """In the metaschemas all lists whose items have to be unique are lists of texts."""
    if isinstance(value, list) and len({each for each in value if isinstance(each, str)}) < len(
        value
    ):
        yield ValidationError("has items that are repeated, or no texts")


# ---------------------------------------------------------------- metaschemas
def _bounded(official: type[Validator], draft: Specification[Schema]) -> Validator:
    def whole(_validator: Any, _to: str, value: JsonValue, _schema: Schema) -> _Errors:
        """Both kinds of reference lead to the whole metaschema, wherever they stand in it."""
        return root.iter_errors(value)

    keywords = {
        "anyOf": _any_of,
        "uniqueItems": _unique_items,
        "$dynamicRef": whole,
        "$recursiveRef": whole,
    }
    # A document that names its dialect would be checked with the keywords of jsonschema.
    documents = EMPTY_REGISTRY.with_resources(
        (uri, draft.create_resource(_unnamed(_DOCUMENTS.contents(uri)))) for uri in _DOCUMENTS
    )
    root = _extend(official, keywords)(_unnamed(official.META_SCHEMA), registry=documents)
    return root


def _unnamed(document: Mapping[str, Any]) -> Mapping[str, Any]:
    return {key: value for key, value in document.items() if key != "$schema"}


_METASCHEMAS: Mapping[str, Validator] = {
    DRAFT_2020_12: _bounded(Draft202012Validator, DRAFT202012),
    DRAFT_2019_09: _bounded(Draft201909Validator, DRAFT201909),
    DRAFT_7: _bounded(Draft7Validator, DRAFT7),
}
