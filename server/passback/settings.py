"""All settings in one frozen value, read from a mapping: the environment is an argument.

Each setting is a variable, `PASSBACK_<NAME>` except for the keys of providers, and a flag
`--<name>` of `passback serve`; the flag wins.
"""

import re
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import quote

from passback.core.budgets import Budget, BudgetLimits, Price
from passback.core.errors import ConfigurationError
from passback.core.messages import OwnerId
from passback.core.permissions import DECISIONS, Decision
from passback.core.posts import OnBusy
from passback.core.text import did_you_mean, nearest_names

PREFIX = "PASSBACK_"
# As the providers' tools call them.
_UNPREFIXED = frozenset({"openai_api_key", "anthropic_api_key"})

MIN_WINDOW = 1_000  # tokens
MAX_WINDOW = 100_000_000  # tokens


def _parse_text(value: str) -> str:
    return value


def _number_between(low: float, high: float) -> Callable[[str], float]:
    def parse(value: str) -> float:
        number = float(value)
        if not low <= number <= high:
            raise ValueError(f"must be from {low:g} to {high:g}")
        return number

    return parse


def _integer_between(low: int, high: int) -> Callable[[str], int]:
    def parse(value: str) -> int:
        number = int(value)
        if not low <= number <= high:
            raise ValueError(f"must be from {low} to {high}")
        return number

    return parse


def _parse_window(value: str) -> int:
    number = int(value)
    # 0: no window, nothing is left out
    if number != 0 and not MIN_WINDOW <= number <= MAX_WINDOW:
        raise ValueError(f"must be 0, or from {MIN_WINDOW} to {MAX_WINDOW}")
    return number


def _parse_flag(value: str) -> bool:
    match value.lower():
        case "1" | "true" | "yes" | "on":
            return True
        case "0" | "false" | "no" | "off":
            return False
        case _:
            raise ValueError("must be yes or no")


def _one_of(*allowed: str) -> Callable[[str], str]:
    def parse(value: str) -> str:
        if value not in allowed:
            raise ValueError(f"must be one of {', '.join(allowed)}")
        return value

    return parse


def _parse_words(value: str) -> tuple[str, ...]:
    return tuple(word for word in re.split(r"[,\s]+", value) if word)


def _parse_origins(value: str) -> frozenset[str]:
    for origin in (origins := _parse_words(value)):
        if not re.fullmatch(r"https?://[^/\s*]+", origin):
            raise ValueError("must be exact origins such as https://app.example.com")
    return frozenset(origins)


def _parse_hosts(value: str) -> frozenset[str]:
    for host in (hosts := _parse_words(value.lower())):
        if not re.fullmatch(r"[a-z0-9._-]+|\[[0-9a-f:]+\]", host):
            raise ValueError("must be host names without scheme and port")
    return frozenset(hosts)


def _parse_keys(value: str) -> Mapping[str, OwnerId]:
    keys: dict[str, OwnerId] = {}
    for entry in _parse_words(value):
        owner, colon, key = entry.partition(":")
        if not (owner and colon and len(key) >= 16 and key.isascii()):
            raise ValueError("must be OWNER:KEY, ...; each key of 16 or more ASCII characters")
        # an owner may have several keys, but a key names one owner
        if keys.setdefault(key, OwnerId(owner)) != owner:
            raise ValueError(
                "must be a key of its own for each owner: "
                f"{keys[key]!r} and {owner!r} have the same one"
            )
    return keys


def _parse_roles(value: str) -> frozenset[str]:
    roles = frozenset(_parse_words(value))
    always, more = frozenset({"user", "tool"}), frozenset({"system", "assistant"})
    # either the additional roles alone, or the whole list
    if not roles or not (roles <= more or always <= roles <= always | more):
        raise ValueError("must be user,tool and, if wanted, system and assistant")
    # clients may always post these two, named or not
    return roles | always


def _parse_permissions(value: str) -> Mapping[str, Decision]:
    permissions: dict[str, Decision] = {}
    for entry in _parse_words(value):
        pattern, equals, decision = entry.rpartition("=")
        if not (pattern and equals) or decision not in DECISIONS:
            raise ValueError(f"must be PATTERN=DECISION, ...; decisions are {', '.join(DECISIONS)}")
        permissions[pattern] = typing.cast("Decision", decision)
    return permissions


def _parse_path(value: str) -> str:
    if not re.fullmatch(r"(/[\w.~-]+)+", value, re.ASCII):
        raise ValueError("must be a path such as /process")
    return value


def _parse_prices(value: str) -> Mapping[str, Price]:
    prices: dict[str, Price] = {}
    for entry in _parse_words(value):
        found = re.fullmatch(r"(.+)=([\d.]+)/([\d.]+)(?:/([\d.]+))?", entry)
        if found is None:
            raise ValueError("must be MODEL=INPUT/OUTPUT or MODEL=INPUT/OUTPUT/CACHED, ...")
        # without a price of its own, cached input costs as much as other input
        model, *numbers = found.groups(default=found[2])
        prices[model] = Price(*map(_number_between(0, 1e6), numbers))
    return prices


_TOKEN_LIMIT = _integer_between(1, 10**12)
_TIME_LIMIT = _number_between(0.001, 1e9)
_COST_LIMIT = _number_between(1e-6, 1e6)


def _setting(
    default: object, parse: Callable[[str], object], text: str, *, secret: bool = False
) -> typing.Any:
    metadata = types.MappingProxyType({"parse": parse, "text": text})
    return field(default=default, metadata=metadata, repr=not secret)


_secret = partial(_setting, secret=True)


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings. The text of each is also the help of its flag."""

    host: str = _setting("127.0.0.1", _parse_text, "address to listen on")
    port: int = _setting(8000, _integer_between(0, 65535), "port to listen on; 0: any free one")
    workers: int = _setting(
        1,
        _integer_between(1, 64),
        "processes that serve the address; more than one share the store, which is SQLite or "
        "Redis then",
    )
    store: str = _secret(
        "",
        _parse_text,
        "where conversations are kept: redis://, rediss://, redis+sentinel://, redis+cluster://, "
        "sqlite:///FILE or memory: (default: a SQLite file in your state folder)",
    )
    model: str = _setting(
        "demo",
        _parse_text,
        "the model: demo, openai:NAME or anthropic:NAME; of several with commas the next is "
        "asked when one fails",
    )
    models: tuple[str, ...] = _setting(
        (),
        _parse_words,
        "models that a post may choose instead, named as the model is, with commas; without "
        "any, what posts say of it is passed over",
    )
    model_base_url: str | None = _setting(
        None,
        _parse_text,
        "address of a service that speaks the model's protocol, such as http://127.0.0.1:11434/v1",
    )
    model_api_key: str | None = _secret(
        None, _parse_text, "its key; the variable is safer than the flag"
    )
    openai_api_key: str | None = _secret(
        None, _parse_text, "key for OpenAI's own service, where the model's key is not set"
    )
    anthropic_api_key: str | None = _secret(
        None, _parse_text, "key for Anthropic's own service, where the model's key is not set"
    )
    model_timeout: float = _setting(
        60, _number_between(1, 3600), "seconds that a model may be silent before or in its answer"
    )
    model_window: int = _setting(
        128_000,
        _parse_window,
        "tokens that the model takes, request and answer together; older parts of a "
        "conversation make room for new ones "
        "(0: nothing is left out)",
    )
    prompt: str | None = _setting(
        None, _parse_text, "what the model is told first (default: the agent's)"
    )
    max_turns: int = _setting(20, _integer_between(1, 1000), "model calls in one run")
    max_futile_turns: int = _setting(
        3,
        _integer_between(1, 1000),
        "model calls in a row that may bring nothing but invalid tool calls, or answers that do "
        "not fit their schema",
    )
    prices: Mapping[str, Price] = field(
        default_factory=dict[str, Price],
        metadata={
            "parse": _parse_prices,
            "text": (
                "MODEL=INPUT/OUTPUT/CACHED, ...: what a million tokens cost, in whatever currency"
            ),
        },
    )
    max_run_tokens: int | None = _setting(
        None, _TOKEN_LIMIT, "tokens of input and output that one run may use"
    )
    max_run_seconds: float | None = _setting(
        None, _TIME_LIMIT, "seconds that one run may work, tools included"
    )
    max_run_cost: float | None = _setting(
        None, _COST_LIMIT, "what one run may cost, in the currency of the prices"
    )
    max_conversation_tokens: int | None = _setting(
        None,
        _TOKEN_LIMIT,
        "tokens of input and output that all runs of a conversation together may use",
    )
    max_conversation_seconds: float | None = _setting(
        None,
        _TIME_LIMIT,
        "seconds that all runs of a conversation together may work, tools included",
    )
    max_conversation_cost: float | None = _setting(
        None,
        _COST_LIMIT,
        "what all runs of a conversation together may cost, in the currency of the prices",
    )
    max_owner_tokens: int | None = _setting(
        None,
        _TOKEN_LIMIT,
        "tokens of input and output that all runs of an owner on one day (UTC) may use",
    )
    max_owner_seconds: float | None = _setting(
        None,
        _TIME_LIMIT,
        "seconds that all runs of an owner on one day (UTC) may work, tools included",
    )
    max_owner_cost: float | None = _setting(
        None,
        _COST_LIMIT,
        "what all runs of an owner on one day (UTC) may cost, in the currency of the prices",
    )
    permissions: Mapping[str, Decision] = field(
        default_factory=dict[str, Decision],
        metadata={
            "parse": _parse_permissions,
            "text": (
                "which server tools may be called: PATTERN=allow, deny or ask, ...; the "
                "first that fits counts"
            ),
        },
    )
    commands: bool = _setting(
        True, _parse_flag, "whether a message such as /help is a command, and not for the model"
    )
    wires: tuple[str, ...] = _setting(
        ("send_message", "agent_api", "rest", "page"), _parse_words, "what is served"
    )
    process_path: str = _setting("/process", _parse_path, "where the Agent API is served")
    allowed_hosts: frozenset[str] = _setting(
        frozenset[str](), _parse_hosts, "names under which the server is reached, beside localhost"
    )
    allowed_origins: frozenset[str] = _setting(
        frozenset[str](), _parse_origins, "origins of web pages elsewhere that may call the server"
    )
    allow_loopback_pages: bool = _setting(
        True,
        _parse_flag,
        "whether pages of this machine, such as those of http://localhost:5173, may call a "
        "server that listens on "
        "loopback only",
    )
    api_keys: Mapping[str, OwnerId] = field(
        default_factory=dict[str, OwnerId],
        repr=False,
        metadata={
            "parse": _parse_keys,
            "text": "OWNER:KEY, ...: require one of these as bearer token",
        },
    )
    allow_anonymous: bool = _setting(
        False,
        _parse_flag,
        "serve everybody without a key, also beyond this machine",
    )
    allow_roles: frozenset[str] = _setting(
        frozenset({"user", "tool"}),
        _parse_roles,
        "roles of messages that clients may post, beside user and tool: system, assistant (a "
        "history)",
    )
    max_connections: int = _setting(
        4096,
        _integer_between(16, 1_000_000),
        "connections that a worker holds open; beyond, those that wait for a request are "
        "closed, longest first",
    )
    send_timeout: float = _setting(
        30,
        _number_between(0.1, 3600),
        "seconds in which a client has to read what it is sent, a MiB of it at least",
    )
    max_body_bytes: int = _setting(
        6 * 1024 * 1024, _integer_between(1024, 2**30), "the largest body of a request"
    )
    max_bodies_bytes: int = _setting(
        64 * 1024 * 1024,
        _integer_between(1024, 2**34),
        "bytes of all bodies that are still arriving at a process; one owner of several may "
        "fill half of it, and a largest "
        "body always fits",
    )
    max_result_bytes: int = _setting(
        1024 * 1024, _integer_between(1024, 2**30), "the largest result of a client's tool"
    )
    max_data_bytes: int = _setting(
        256 * 1024, _integer_between(1024, 2**30), "the largest structured data of a post"
    )
    max_attachment_bytes: int = _setting(
        3 * 1024 * 1024,
        _integer_between(1024, 2**30),
        "the largest inline images, sounds and files of a message, together",
    )
    conversation_ttl: float | None = _setting(
        None, _number_between(60, 1e9), "seconds after which an untouched conversation is removed"
    )
    log_ttl: float = _setting(
        3600, _number_between(60, 1e9), "seconds for which an ended run can be streamed again"
    )
    log_bytes: int = _setting(
        16 * 1024 * 1024,
        _integer_between(64 * 1024, 2**31),
        "how large a run's log may become before its beginning is dropped",
    )
    log_delay: float = _setting(
        0.05,
        _number_between(0.001, 5),
        "seconds after which streamed text is stored; it may be four times as many while nobody "
        "reads it through another worker",
    )
    lease: float = _setting(
        10, _number_between(1, 600), "seconds of silence after which a worker's run counts as lost"
    )
    max_attempts: int = _setting(
        3, _integer_between(1, 100), "workers that may try one run before it counts as lost"
    )
    on_busy: OnBusy = _setting(
        "reject",
        _one_of("reject", "enqueue", "interrupt", "rollback"),
        "what a message means while a run goes on, where the request does not say it",
    )
    max_queue: int = _setting(
        16, _integer_between(1, 10_000), "posts that may wait for one conversation's run to end"
    )
    max_owner_runs: int = _setting(
        500, _integer_between(1, 10**6), "runs of an owner in one worker at once"
    )
    max_history_bytes: int = _setting(
        32 * 2**20,
        _integer_between(2**16, 2**31),
        "how large what is read of a conversation may become by a post",
    )
    tool_timeout: float | None = _setting(
        None,
        _number_between(0.1, 1e9),
        "seconds that a client may take to answer its tool calls; then the model goes on without",
    )
    disconnect_grace: float = _setting(
        5,
        _number_between(0, 3600),
        "seconds without a reader after which a run is cancelled that asked for it",
    )
    shutdown_grace: float = _setting(
        10,
        _number_between(0, 3600),
        "seconds that runs get to end after SIGTERM or Ctrl-C; then another worker goes on with "
        "them",
    )
    ping: float = _setting(
        15, _number_between(1, 300), "seconds of silence before a stream sends a comment"
    )
    allow_eviction: bool = _setting(
        False, _parse_flag, "start on a Redis whose eviction policy may drop conversations"
    )
    log_level: str = _setting(
        "warning", _one_of("debug", "info", "warning", "error"), "how much is logged to stderr"
    )
    log_format: str = _setting(
        "text", _one_of("text", "json"), "how: lines for people, or one JSON object a line"
    )

    @property
    def budget(self) -> Budget:
        return Budget(
            BudgetLimits(self.max_run_tokens, self.max_run_seconds, self.max_run_cost),
            BudgetLimits(
                self.max_conversation_tokens,
                self.max_conversation_seconds,
                self.max_conversation_cost,
            ),
            BudgetLimits(self.max_owner_tokens, self.max_owner_seconds, self.max_owner_cost),
        )

    @property
    def loopback_pages(self) -> bool:
        """True if pages of this machine may call the server."""
        return self.allow_loopback_pages and self.is_loopback

    @property
    def is_loopback(self) -> bool:
        """True if only programs of this machine can reach the server."""
        try:
            return self.host == "localhost" or ip_address(self.host).is_loopback
        except ValueError:  # any other name may resolve to any address
            return False


def variable_name(name: str, /) -> str:
    """Return the variable of a setting.

    Keys of providers have the names that the providers' own tools read.
    """
    return name.upper() if name in _UNPREFIXED else PREFIX + name.upper()


def load_settings(values: Mapping[str, str], /) -> Settings:
    """Read settings from variables; variables without the prefix are ignored.

    Raises:
        ConfigurationError: names a `PASSBACK_*` that is unknown or wrong, without its value.
    """
    known = {variable_name(one.name): one for one in fields(Settings)}
    unknown = sorted(name for name in values if name.startswith(PREFIX) and name not in known)
    if unknown:
        raise ConfigurationError(f"unknown setting {', '.join(map(_suggest_variable, unknown))}")
    chosen: dict[str, typing.Any] = {}
    for name, one in known.items():
        # Compose passes variables that are not set on as empty ones
        if (value := values.get(name, "")) == "":
            continue
        try:
            chosen[one.name] = one.metadata["parse"](value)
        except ValueError as error:
            # int() and float() quote the value, which may be a secret in the wrong variable
            why = text if (text := str(error)).startswith("must be") else "must be a number"
            raise ConfigurationError(f"{name}: {why}") from None
    # not the field's default, because the folder depends on the environment
    chosen.setdefault("store", f"sqlite:///{quote(str(state_folder(values)))}/passback.db")
    return Settings(**chosen)


def _suggest_variable(unknown: str) -> str:
    """Return an unknown variable with the one that may be meant."""
    names = [one.name for one in fields(Settings)]
    # without the prefix, which would make all names alike
    near = nearest_names(unknown.removeprefix(PREFIX).lower(), names)
    return f"{unknown}{did_you_mean([variable_name(name) for name in near])}"


def state_folder(values: Mapping[str, str], /) -> Path:
    """Return the user's state folder (XDG base directory specification)."""
    base = values.get("XDG_STATE_HOME", "")
    if Path(base).is_absolute():  # the specification says to ignore a relative path
        return Path(base) / "passback"
    return Path.home() / ".local" / "state" / "passback"
