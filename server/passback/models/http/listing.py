"""What a service's list of models says about the settings."""

import difflib
import re
from collections.abc import Sequence
from http import HTTPStatus

import httpx
from pydantic import JsonValue
from pydantic_core import from_json

from passback.core.errors import ModelError, ModelRejected, ModelUnavailable
from passback.core.values import value

_PRINTABLE_NAME = re.compile(r"[\w.:/@+-]{1,80}")

_VERSION = "/v1"
_DATE = re.compile(r"-\d{8}$")
_UNDATED = re.compile(r"-(latest|0)$")
"""What stands in the place of a date, for the newest."""


@value
class Listing:
    """The answer to `GET /models`: its status, and the names of models in it; none where it is no such list."""

    status: int
    names: Sequence[str]

    @property
    def is_refused(self) -> bool:
        """Whether the key was refused, or lacked."""
        return self.status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}

    @property
    def is_broken(self) -> bool:
        """Whether the service cannot answer now."""
        return (
            self.status >= HTTPStatus.INTERNAL_SERVER_ERROR
            and self.status != HTTPStatus.NOT_IMPLEMENTED
        )


def read_listing(status: int, body: bytes, /) -> Listing:
    return Listing(status, _names(_parsed(body)) if status == HTTPStatus.OK else [])


def likely_bases(base: httpx.URL, models: httpx.URL, /) -> Sequence[httpx.URL]:
    """Return the addresses that a base URL without its list of models may stand for: at most 3, of the same service.

    `models` is where the list was looked for: one that is below `/v1` already is looked for nowhere else.
    """
    path = base.path.rstrip("/")
    if models.path != f"{path}/models" or path.endswith(_VERSION):
        return ()
    upto, version, _ = path.partition(f"{_VERSION}/")
    paths = [*([upto + _VERSION] if version else []), path + _VERSION, _VERSION]
    return [base.copy_with(path=each) for each in dict.fromkeys(paths)]


def is_within(base: httpx.URL, given: str, /) -> bool:
    """Return whether an address as it was given leads further than the base URL."""
    return len(httpx.URL(given.strip()).path.rstrip("/")) > len(base.path.rstrip("/"))


def shown(base: httpx.URL, /) -> str:
    """Return an address as people may see it: some services have their keys in the query."""
    return str(base.copy_with(query=None)).rstrip("/")


def objection(base_url: str, model: str, listing: Listing, /) -> ModelError | None:
    """What is wrong when `GET /models` is answered so; a service that has no such list is fine."""
    status, names = listing.status, listing.names
    if status == HTTPStatus.UNAUTHORIZED:
        return ModelRejected(f"{base_url} refuses the key, or wants one")
    if status == HTTPStatus.FORBIDDEN:
        return ModelRejected(f"{base_url} does not allow this key to list its models")
    if listing.is_broken:
        return ModelUnavailable(f"{base_url} answers with the error {status}")
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
