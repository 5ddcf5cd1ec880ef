"""What a service's list of models says about the settings."""

import difflib
import re
from http import HTTPStatus

from pydantic import JsonValue
from pydantic_core import from_json

from passback.core.errors import ModelError, ModelRejected, ModelUnavailable

_PRINTABLE_NAME = re.compile(r"[\w.:/@+-]{1,80}")

_DATE = re.compile(r"-\d{8}$")
_UNDATED = re.compile(r"-(latest|0)$")
"""What stands in the place of a date, for the newest."""


def objection(base_url: str, model: str, status: int, body: bytes, /) -> ModelError | None:
    """What is wrong when `GET /models` is answered so; a service that has no such list is fine."""
    if status == HTTPStatus.UNAUTHORIZED:
        return ModelRejected(f"{base_url} refuses the key, or wants one")
    if status == HTTPStatus.FORBIDDEN:
        return ModelRejected(f"{base_url} does not allow this key to list its models")
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR and status != HTTPStatus.NOT_IMPLEMENTED:
        return ModelUnavailable(f"{base_url} answers with the error {status}")
    names = _names(_parsed(body)) if status == HTTPStatus.OK else []
    if not names or any(_is_meant(name, model) for name in names):
        return None
    near = difflib.get_close_matches(model, names, 3, 0.3) or names[:3]
    return ModelRejected(f"{base_url} has no model {model!r}; it has {', '.join(near)}")


def _parsed(body: bytes) -> JsonValue:
    try:
        parsed: JsonValue = from_json(body)
    except ValueError:
        return None
    return parsed


def _names(listing: JsonValue) -> list[str]:
    """The names in the list; what could be anything but a name is left out."""
    models = listing.get("data") if isinstance(listing, dict) else None
    if not isinstance(models, list):
        return []
    names = [str(model.get("id") or "") for model in models if isinstance(model, dict)]
    return [name for name in names if "*" in name or _PRINTABLE_NAME.fullmatch(name)]


def _is_meant(name: str, model: str) -> bool:
    """Whether the list's name is the model: with a folder before it, a tag or a date behind it, or a wildcard."""
    if "*" in name:
        return True
    if _UNDATED.sub("", model) == _DATE.sub("", name):
        return True
    return model in (name, name.rpartition("/")[2], name.partition(":")[0])
