"""What the settings of the model say: one model, or several in the order in which they are asked."""

from collections.abc import Collection
from dataclasses import field

from passback.core.errors import ConfigurationError
from passback.core.values import value


@value
class Choice:
    """One model: `kind:name`, and where it is."""

    kind: str
    name: str
    base_url: str | None = None
    api_key: str | None = field(default=None, repr=False)


def kinds(models: str, /) -> list[str]:
    """The kinds of the models of a list with commas."""
    return [_split(model)[0] for model in models.split(",")]


def choices(
    models: str, base_urls: str | None, api_keys: str | None, /, *, keyless: Collection[str] = ()
) -> list[Choice]:
    """The models of a list with commas. Of addresses and keys there is one for all, or one for each, which may be empty.

    The `keyless` kinds take neither.

    Raises:
        ConfigurationError: another number of them, or one key that would go to several services.
    """
    names = models.split(",")
    urls = _each("addresses", base_urls, len(names))
    keys = _each("keys", api_keys, len(names))
    chosen = [
        Choice(*_split(name), url, key) for name, url, key in zip(names, urls, keys, strict=True)
    ]
    places = {one.base_url or one.kind for one in chosen if one.kind not in keyless}
    if api_keys and "," not in api_keys and len(places) > 1:
        raise ConfigurationError("one key is for one service: give each model its own, with commas")
    return chosen


def _split(model: str) -> tuple[str, str]:
    kind, _, name = model.strip().partition(":")
    return kind, name


def _each(what: str, values: str | None, models: int) -> list[str | None]:
    """A value for each model. A single model's may have commas in it."""
    if values is None or models == 1:
        return [values] * models
    each: list[str | None] = [value.strip() or None for value in values.split(",")]
    if len(each) not in {1, models}:
        raise ConfigurationError(f"{models} models have one or {models} {what}, not {len(each)}")
    return each * (models // len(each))
