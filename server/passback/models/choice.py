"""The models that the settings name: their kinds, their services, and the key of each service."""

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Final

from passback.core.errors import ConfigurationError
from passback.core.text import did_you_mean, nearest_names
from passback.core.values import value
from passback.models.http.service import checked_url

_HTTPS_PORT = 443


@value
class ModelKind:
    """A kind of model: the module of its client, and the provider's host if a key is needed.

    `models` lists all models of the kind, if they are known.
    """

    module: str
    host: str = ""
    models: tuple[str, ...] = ()


MODEL_KINDS: Mapping[str, ModelKind] = {
    "demo": ModelKind("passback.models.demo", models=("demo", "demo:fast")),
    "openai": ModelKind("passback.models.openai_chat", "api.openai.com"),
    "openai-responses": ModelKind("passback.models.openai_responses", "api.openai.com"),
    "anthropic": ModelKind("passback.models.anthropic", "api.anthropic.com"),
}


@value
class ModelChoice:
    """One model, `kind:name`, with the address and the key of its service."""

    kind: str
    name: str
    base_url: str | None = None
    api_key: str | None = field(default=None, repr=False)

    @property
    def needs_key(self) -> bool:
        return bool(MODEL_KINDS[self.kind].host)

    @property
    def service_address(self) -> str:
        """The service's address, or the provider's host if it is the provider's own service."""
        return self.base_url or MODEL_KINDS[self.kind].host

    @property
    def is_at_provider(self) -> bool:
        """True if requests go to the provider's own service, over TLS."""
        if self.base_url is None:
            return True
        url = checked_url(self.base_url)
        is_https = url.scheme == "https" and url.port in {None, _HTTPS_PORT}
        return is_https and url.host == MODEL_KINDS[self.kind].host


class ModelServices:
    """The services behind models, from the addresses and keys in the settings.

    Args:
        models: the models of the settings, separated by commas.
        base_urls: one address for all models, or one for each; an address may be empty.
        api_keys: as `base_urls`.
        own_keys: the providers' keys, by kind. Such a key is used where `api_keys` has none, and is
            sent to the provider's own service only.
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
        self._key_addresses: set[str] = set()

    def choices(self, models: str) -> list[ModelChoice]:
        """Return the models of a comma-separated list, which may differ from that of the settings.

        A model that the settings do not name is looked for at their services: at that of the same
        name, else at the first of its kind, else at that of its provider, else at the one address
        that all of them have, unless it is a provider's own. Otherwise it is at its own provider's
        service.

        Raises:
            ConfigurationError: a kind is unknown, the number of addresses or keys does not match,
                or one key would be sent to several services.
        """
        check_model_names(models)
        configured: Sequence[ModelChoice] = ()
        own_kinds = {_split_model(model)[0] for model in self._models.split(",")}
        if models != self._models and own_kinds <= MODEL_KINDS.keys():
            # If none of the settings' models needs a key, the addresses and keys of the settings
            # are meant for the models named elsewhere.
            configured = [one for one in self._parse_choices(self._models) if one.needs_key]
        found = (
            [_choice_beside(configured, model) for model in models.split(",")]
            if configured
            else self._parse_choices(models)
        )
        choices: list[ModelChoice] = []
        for choice in found:
            key = self._own_keys.get(choice.kind)
            # A provider's own key must not reach another service.
            takes_own_key = key and not choice.api_key and choice.is_at_provider
            choices.append(replace(choice, api_key=key) if takes_own_key else choice)
        return choices

    def _parse_choices(self, models: str) -> Sequence[ModelChoice]:
        names = models.split(",")
        urls = _split_setting("addresses", self._base_urls, len(names))
        keys = _split_setting("keys", self._api_keys, len(names))
        choices = [
            ModelChoice(*_split_model(name), url, key)
            for name, url, key in zip(names, urls, keys, strict=True)
        ]
        if self._api_keys and "," not in self._api_keys:
            # Remembered over calls: a later list must not send the same key to another service.
            self._key_addresses.update(one.service_address for one in choices if one.needs_key)
        if len(self._key_addresses) > 1:
            raise ConfigurationError(
                "a key is sent to one service only: give one key per model, separated by commas"
            )
        return choices


# Names of services that speak the chat-completions protocol, as people write them for a kind.
_COMPATIBLE_SERVICES: Final = frozenset(
    {"deepseek", "groq", "llamacpp", "lmstudio", "mistral", "ollama", "openrouter", "vllm"}
)


def check_model_names(models: str, /) -> None:
    """Check the names in a comma-separated list of models.

    Raises:
        ConfigurationError: a model is of an unknown kind, or its kind has no such model.
    """
    for model in models.split(","):
        kind, name = _split_model(model)
        if kind not in MODEL_KINDS:
            raise ConfigurationError(
                f"no model is called {model.strip()!r}{did_you_mean(_likely_models(kind, name))}; "
                f"a model is KIND:NAME, of the kinds {', '.join(MODEL_KINDS)}"
            )
        known = MODEL_KINDS[kind].models
        if known and name and (whole := f"{kind}:{name}") not in known:
            raise ConfigurationError(
                f"no model is called {whole!r}{did_you_mean(nearest_names(whole, known))}; "
                f"of the kind {kind} there are {', '.join(known)}"
            )


def _likely_models(kind: str, name: str) -> Sequence[str]:
    """Return what an unknown kind may mean: a misspelled kind, or a name without its kind."""
    whole = f"{kind}:{name}" if name else kind
    if near := nearest_names(kind.lower(), MODEL_KINDS):
        return [f"{each}:{name}" if name else each for each in near]
    if not kind:
        return []
    if name and kind.lower() in _COMPATIBLE_SERVICES:
        return [f"openai:{name} with PASSBACK_MODEL_BASE_URL"]
    # A name without its kind; names with a colon in them occur too, as of Ollama's tags.
    return [f"anthropic:{whole}" if kind.lower().startswith("claude") else f"openai:{whole}"]


def _choice_beside(configured: Sequence[ModelChoice], model: str) -> ModelChoice:
    """Return a model at the service of those of the settings that fits it best."""
    kind, name = _split_model(model)
    alone = ModelChoice(kind, name)
    if not alone.needs_key:
        return alone
    same_kind = [choice for choice in configured if choice.kind == kind]
    if same_kind:
        # False sorts first: the model of the same name, else the first of its kind.
        return replace(min(same_kind, key=lambda choice: choice.name != name), name=name)
    for choice in configured:
        if choice.is_at_provider and MODEL_KINDS[choice.kind].host == MODEL_KINDS[kind].host:
            return replace(choice, kind=kind, name=name)
    first = configured[0]
    has_one_address = len({choice.service_address for choice in configured}) == 1
    # A provider's own service has no models of another kind; a gateway may have any.
    if has_one_address and not first.is_at_provider:
        return replace(first, kind=kind, name=name)
    return alone


def _split_model(model: str) -> tuple[str, str]:
    kind, _, name = model.strip().partition(":")
    return kind, name


def _split_setting(what: str, values: str | None, models: int) -> list[str | None]:
    """Return a value for each model.

    Raises:
        ConfigurationError: there are neither one nor as many values as models.
    """
    if values is None or models == 1:  # the value of a single model may have commas in it
        return [values] * models
    each: list[str | None] = [value.strip() or None for value in values.split(",")]
    if len(each) not in {1, models}:
        raise ConfigurationError(f"{models} models have one or {models} {what}, not {len(each)}")
    return each * (models // len(each))
