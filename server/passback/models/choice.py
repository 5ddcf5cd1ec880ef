"""What the settings of the model say: which models there are, where each of them is, and whose key goes there."""

from collections.abc import Mapping, Sequence
from dataclasses import field, replace

from passback.core.errors import ConfigurationError
from passback.core.text import did_you_mean, nearest
from passback.core.values import value
from passback.models.http.exchanges import checked_url

_HTTPS = 443


@value
class Kind:
    """A kind of models: the module that makes their clients, and the host of its provider, where they need a key.

    `models` are all that there are, where that is known.
    """

    module: str
    host: str = ""
    models: tuple[str, ...] = ()


KINDS: Mapping[str, Kind] = {
    "demo": Kind("passback.models.demo", models=("demo", "demo:fast")),
    "openai": Kind("passback.models.openai_chat", "api.openai.com"),
    "anthropic": Kind("passback.models.anthropic", "api.anthropic.com"),
}


@value
class Choice:
    """One model: `kind:name`, and where it is."""

    kind: str
    name: str
    base_url: str | None = None
    api_key: str | None = field(default=None, repr=False)

    @property
    def needs_key(self) -> bool:
        return bool(KINDS[self.kind].host)

    @property
    def place(self) -> str:
        """Return the service's address, or the kind whose own service it is."""
        return self.base_url or self.kind

    @property
    def is_at_home(self) -> bool:
        """Whether it is at the provider's own service, over TLS."""
        return self.base_url is None or _is_at(KINDS[self.kind].host, self.base_url)


class Services:
    """The services behind models, as the settings give their addresses and keys.

    Args:
        models: the models of the settings, with commas.
        base_urls: one address for all of them, or one for each, which may be empty.
        api_keys: as `base_urls`.
        own_keys: keys of providers by their kinds: sent to the provider's own service, where `api_keys` has none, and to
            no other.
    """

    def __init__(
        self,
        models: str,
        base_urls: str | None = None,
        api_keys: str | None = None,
        own_keys: Mapping[str, str | None] | None = None,
    ) -> None:
        self._models = models
        self._base_urls = base_urls
        self._api_keys = api_keys
        self._own_keys = own_keys or {}
        self._places: set[str] = set()

    def choices(self, models: str) -> list[Choice]:
        """Return the models of a list with commas, which may be another one than that of the settings.

        A model beside those of the settings is where they are: the one of its name, else the first of its kind, else all of
        them if they have one address that is not a provider's own. Any other is at its own provider's.

        Raises:
            ConfigurationError: an unknown kind, another number of addresses or keys, or one key that would go to several
                services.
        """
        refuse_unknown(models)
        return [self._with_key(one) for one in self._placed(models)]

    def _placed(self, models: str) -> Sequence[Choice]:
        if models == self._models:
            return self._listed(models)
        # what needs no key has none: then both are for the models that are named elsewhere
        settled = [one for one in self._settled() if one.needs_key]
        return (
            [_beside(settled, model) for model in models.split(",")]
            if settled
            else self._listed(models)
        )

    def _settled(self) -> Sequence[Choice]:
        known = all(_split(model)[0] in KINDS for model in self._models.split(","))
        return self._listed(self._models) if known else ()

    def _listed(self, models: str) -> Sequence[Choice]:
        names = models.split(",")
        urls = _each("addresses", self._base_urls, len(names))
        keys = _each("keys", self._api_keys, len(names))
        chosen = [
            Choice(*_split(name), url, key)
            for name, url, key in zip(names, urls, keys, strict=True)
        ]
        if self._api_keys and "," not in self._api_keys:
            self._places.update(one.place for one in chosen if one.needs_key)
        if len(self._places) > 1:
            raise ConfigurationError(
                "one key is for one service: give each model its own, with commas"
            )
        return chosen

    def _with_key(self, one: Choice) -> Choice:
        own = self._own_keys.get(one.kind)
        return replace(one, api_key=own) if own and not one.api_key and one.is_at_home else one


def refuse_unknown(models: str, /) -> None:
    """Raise ConfigurationError for the first model of a list with commas that there cannot be."""
    for model in models.split(","):
        kind, name = _split(model)
        if kind not in KINDS:
            raise ConfigurationError(
                f"no model is called {model.strip()!r}{did_you_mean(_likely(kind, name))}; "
                f"a model is KIND:NAME, of the kinds {', '.join(KINDS)}"
            )
        known = KINDS[kind].models
        if known and name and (whole := f"{kind}:{name}") not in known:
            raise ConfigurationError(
                f"no model is called {whole!r}{did_you_mean(nearest(whole, known))}; "
                f"of the kind {kind} there are {', '.join(known)}"
            )


def _likely(kind: str, name: str) -> Sequence[str]:
    """What may be meant by a model of no known kind: another spelling of one, or a name without its kind."""
    whole = f"{kind}:{name}" if name else kind
    if near := nearest(kind.lower(), KINDS):
        return [f"{each}:{name}" if name else each for each in near]
    if not kind:
        return []
    return [f"anthropic:{whole}" if kind.lower().startswith("claude") else f"openai:{whole}"]


def _beside(settled: Sequence[Choice], model: str) -> Choice:
    """Return a model where those of the settings are."""
    kind, name = _split(model)
    alone = Choice(kind, name)
    if not alone.needs_key:
        return alone
    for one in sorted(
        (one for one in settled if one.kind == kind), key=lambda one: one.name != name
    ):
        return replace(one, name=name)
    first = settled[0]
    is_one_place = len({one.place for one in settled}) == 1 and not first.is_at_home
    return replace(first, kind=kind, name=name) if is_one_place else alone


def _is_at(host: str, base_url: str) -> bool:
    url = checked_url(base_url)
    return url.scheme == "https" and url.host == host and url.port in {None, _HTTPS}


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
