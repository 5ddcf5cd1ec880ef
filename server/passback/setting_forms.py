"""The forms that settings take: each reads a text, and says in words what the text must be."""

import re
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address

from passback.core.budgets import Price
from passback.core.errors import ConfigurationError
from passback.core.messages import OwnerId
from passback.core.permissions import DECISIONS, Decision
from passback.core.text import did_you_mean, nearest_names

MIN_WINDOW = 1_000  # tokens
MAX_WINDOW = 100_000_000  # tokens


@dataclass(frozen=True, slots=True, eq=False)
class Form:
    """The form of a setting.

    Args:
        text: the form in words; an error says that the value must be this.
        parse: returns the value. Raises ValueError for any other text; or ConfigurationError, whose
            message replaces `text` and never has the value.
        parts: the names of a setting of several parts.
    """

    text: str
    parse: Callable[[str], object]
    parts: Mapping[str, "Part"] = field(default_factory=dict[str, "Part"])

    def read(self, value: str) -> object:
        """Return the value.

        Raises:
            ConfigurationError: what the value must be, without the value.
        """
        try:
            return self.parse(value)
        except ValueError:
            # without a cause: int() and float() quote the value, which may be a secret
            raise ConfigurationError(f"must be {self.text}") from None


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a setting of several parts: what it takes, and its meaning."""

    form: Form
    text: str


def setting(
    default: object, form: Form, text: str, *, secret: bool = False, rare: bool = False
) -> typing.Any:
    """Return the field of a setting, for a frozen dataclass.

    Args:
        default: its value, or a function that makes the value.
        form: what it takes.
        text: what it means; the help of its flag.
        secret: its value is never shown.
        rare: it stands in the second table of the reference.
    """
    metadata = types.MappingProxyType(
        {"form": form, "text": text, "is_secret": secret, "is_rare": rare}
    )
    if callable(default):
        return field(default_factory=default, metadata=metadata, repr=not secret)
    return field(default=default, metadata=metadata, repr=not secret)


def is_loopback(host: str, /) -> bool:
    """Return True for a name or an address by which only programs of this machine are reached."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:  # any other name may resolve to any address
        return False


def number_form(low: float, high: float, /) -> Form:
    def parse(value: str) -> float:
        return _checked_range(float(value), low, high)

    return Form(f"a number from {low:g} to {high:g}", parse)


def integer_form(low: int, high: int, /) -> Form:
    def parse(value: str) -> int:
        return _checked_range(int(value), low, high)

    return Form(f"a whole number from {low} to {high}", parse)


_NumberT = typing.TypeVar("_NumberT", int, float)


def _checked_range(number: _NumberT, low: float, high: float) -> _NumberT:
    if not low <= number <= high:
        raise ValueError
    return number


def _parse_flag(value: str) -> bool:
    match value.lower():
        case "1" | "true" | "yes" | "on":
            return True
        case "0" | "false" | "no" | "off":
            return False
        case _:
            raise ValueError


def choice_form(*allowed: str) -> Form:
    return Form(f"one of {', '.join(allowed)}", lambda value: allowed[allowed.index(value)])


def _parse_words(value: str) -> tuple[str, ...]:
    return tuple(word for word in re.split(r"[,\s]+", value) if word)


def _words_like(pattern: str) -> Callable[[str], frozenset[str]]:
    def parse(value: str) -> frozenset[str]:
        words = _parse_words(value)
        if not all(re.fullmatch(pattern, word) for word in words):
            raise ValueError
        return frozenset(words)

    return parse


def _parse_keys(value: str) -> Mapping[str, OwnerId]:
    keys: dict[str, OwnerId] = {}
    for entry in _parse_words(value):
        owner, colon, key = entry.partition(":")
        if not (owner and colon and len(key) >= 16 and key.isascii()):
            raise ValueError
        # an owner may have several keys, but a key names one owner
        if keys.setdefault(key, OwnerId(owner)) != owner:
            raise ConfigurationError(
                "must be a key of its own for each owner: "
                f"{keys[key]!r} and {owner!r} have the same one"
            )
    return keys


def _parse_roles(value: str) -> frozenset[str]:
    roles = frozenset(_parse_words(value))
    always, more = frozenset({"user", "tool"}), frozenset({"system", "assistant"})
    # either the additional roles alone, or the whole list
    if not roles or not (roles <= more or always <= roles <= always | more):
        raise ValueError
    # clients may always post these two, named or not
    return roles | always


def _parse_permissions(value: str) -> Mapping[str, Decision]:
    permissions: dict[str, Decision] = {}
    for entry in _parse_words(value):
        pattern, equals, decision = entry.rpartition("=")
        if not (pattern and equals) or decision not in DECISIONS:
            raise ValueError
        permissions[pattern] = typing.cast("Decision", decision)
    return permissions


def _parse_path(value: str) -> str:
    if not re.fullmatch(r"(/[\w.~-]+)+", value, re.ASCII):
        raise ValueError
    return value


def _parse_currency(value: str) -> str:
    if not re.fullmatch("[A-Z]{3}", value):
        raise ValueError
    return value


def _parse_prices(value: str) -> Mapping[str, Price]:
    prices: dict[str, Price] = {}
    for entry in _parse_words(value):
        found = re.fullmatch(r"(.+)=([\d.]+)/([\d.]+)(?:/([\d.]+))?", entry)
        if found is None:
            raise ValueError
        # without a price of its own, cached input costs as much as other input
        model, *numbers = found.groups(default=found[2])
        prices[model] = Price(*(_checked_range(float(number), 0, 1e6) for number in numbers))
    return prices


TEXT = Form("a text", str)
WORDS = Form("names, separated by commas", _parse_words)
FLAG = Form("yes or no", _parse_flag)
WINDOW = Form(  # 0: no window, nothing is left out
    f"0, or a whole number from {MIN_WINDOW} to {MAX_WINDOW}",
    lambda value: int(value) and _checked_range(int(value), MIN_WINDOW, MAX_WINDOW),
)
ORIGINS = Form("exact origins such as https://app.example.com", _words_like(r"https?://[^/\s*]+"))
HOSTS = Form(
    "host names without scheme and port",
    lambda value: _words_like(r"[a-z0-9._-]+|\[[0-9a-f:]+\]")(value.lower()),
)
KEYS = Form("OWNER:KEY, ...; each key of 16 or more ASCII characters", _parse_keys)
ROLES = Form("user,tool and, if wanted, system and assistant", _parse_roles)
PERMISSIONS = Form(
    f"PATTERN=DECISION, ...; decisions are {', '.join(DECISIONS)}", _parse_permissions
)
PATH = Form("a path such as /process", _parse_path)
CURRENCY = Form("a currency of three capital letters, such as USD", _parse_currency)
PRICES = Form(
    "MODEL=INPUT/OUTPUT or MODEL=INPUT/OUTPUT/CACHED, ...; each a number up to 1e6", _parse_prices
)


def parts_form(kind: Callable[..., object], parts: Mapping[str, Part], /) -> Form:
    """Return the form of a setting of several parts, whose value is `kind(**parts)`.

    Parts stand in any order; of a part that is given twice the last one counts.
    """

    def parse(value: str) -> object:
        given: dict[str, object] = {}
        for entry in _parse_words(value):
            name, equals, number = entry.partition("=")
            # the name is not shown, because the entry may be a secret in the wrong variable
            likely = nearest_names(name, parts) if equals and name not in parts else ()
            if likely:
                raise ConfigurationError(f"has an unknown name{did_you_mean(likely)}")
            if not equals or name not in parts:
                raise ValueError
            try:
                given[name] = parts[name].form.read(number)
            except ConfigurationError as error:
                raise ConfigurationError(f"{name} {error.message}") from None
        return kind(**given)

    return Form(f"NAME=VALUE ... with the names {', '.join(parts)}", parse, parts)
