"""Validation of schemas against the official metaschemas, in time bounded by their size.

Some keywords are replaced, because jsonschema's own may compare each item of a list with every
other, collect all errors of all alternatives, and search all levels of the schema for the
metaschema: 64 KiB kept them busy for ten seconds.
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


def dialect_of(schema: Mapping[str, JsonValue], /) -> str | None:
    """Return the draft of a schema, one of the above; None if its `$schema` is another one."""
    named = schema.get("$schema", DRAFT_2020_12)
    known = named.removesuffix("#") if isinstance(named, str) else ""
    return known if known in _METASCHEMAS else None


def metaschema_of(schema: Mapping[str, JsonValue], /) -> Validator | None:
    """Return the validator of schemas in a schema's dialect; None if its `$schema` is unknown.

    It has no format checker, so that patterns in the schema are not even compiled.
    """
    known = dialect_of(schema)
    return _METASCHEMAS[known] if known else None


def _check_any_of(
    validator: Any, alternatives: Sequence[Schema], value: JsonValue, _schema: Schema
) -> _Errors:
    if not any(_fits(validator, value, each) for each in alternatives):
        yield ValidationError("fits none of the alternatives")


def _fits(validator: Any, value: JsonValue, schema: Schema) -> bool:
    return next(validator.descend(value, schema), None) is None


def _check_unique_items(_validator: Any, _yes: bool, value: JsonValue, _schema: Schema) -> _Errors:
    """Check lists of texts: in the metaschemas no other items have to be unique."""
    if isinstance(value, list) and len({each for each in value if isinstance(each, str)}) < len(
        value
    ):
        yield ValidationError("has items that are repeated, or no texts")


def _bounded_metaschema(official: type[Validator], draft: Specification[Schema]) -> Validator:
    def check_whole(_validator: Any, _to: str, value: JsonValue, _schema: Schema) -> _Errors:
        """Check against the whole metaschema: both kinds of reference always refer to it."""
        return bounded.iter_errors(value)

    keywords = {
        "anyOf": _check_any_of,
        "uniqueItems": _check_unique_items,
        "$dynamicRef": check_whole,
        "$recursiveRef": check_whole,
    }
    # jsonschema would check a document that names its dialect with its own keywords
    documents = EMPTY_REGISTRY.with_resources(
        (uri, draft.create_resource(_without_dialect(_DOCUMENTS.contents(uri))))
        for uri in _DOCUMENTS
    )
    bounded = _extend(official, keywords)(
        _without_dialect(official.META_SCHEMA), registry=documents
    )
    return bounded


def _without_dialect(document: Mapping[str, Any]) -> Mapping[str, Any]:
    return {key: value for key, value in document.items() if key != "$schema"}


_METASCHEMAS: Mapping[str, Validator] = {
    DRAFT_2020_12: _bounded_metaschema(Draft202012Validator, DRAFT202012),
    DRAFT_2019_09: _bounded_metaschema(Draft201909Validator, DRAFT201909),
    DRAFT_7: _bounded_metaschema(Draft7Validator, DRAFT7),
}
