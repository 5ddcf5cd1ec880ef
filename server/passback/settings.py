"""All settings in one frozen value, read from a mapping: the environment is an argument.

Each setting is a variable, `PASSBACK_<NAME>` except for the keys of providers, and a flag
`--<name>` of `passback serve`; the flag wins. A setting of several parts takes them by their
names: `PASSBACK_TIMING="lease=15 ping=30"`.

pydantic-settings is not used: it passes unknown variables and malformed lines of `.env` over,
refuses foreign names there, and reads neither a mapping nor `*_FILE`, so it would save no code.
"""

import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from functools import partial
from pathlib import Path
from urllib.parse import quote

from passback.core.budgets import Budget, BudgetLimits, Price
from passback.core.errors import ConfigurationError
from passback.core.messages import OwnerId
from passback.core.permissions import Decision
from passback.core.posts import OnBusy
from passback.core.text import did_you_mean, nearest_names
from passback.setting_forms import (
    FLAG,
    HOSTS,
    KEYS,
    ORIGINS,
    PERMISSIONS,
    PRICES,
    ROLES,
    TEXT,
    WINDOW,
    WORDS,
    Part,
    choice_form,
    integer_form,
    is_loopback,
    number_form,
    parts_form,
    setting,
)
from passback.stores.options import StoreOptions
from passback.wire import NAMES, load_wire_types

PREFIX = "PASSBACK_"
STATE_HOME = "XDG_STATE_HOME"
# As the providers' tools call them.
_UNPREFIXED = frozenset({"openai_api_key", "anthropic_api_key"})

_secret = partial(setting, secret=True)


@dataclass(frozen=True, slots=True)
class TimingSettings:
    """Timeouts and intervals of a worker. `max_attempts` is a number, all others are seconds."""

    lease: float = 10
    max_attempts: int = 3
    log_delay: float = 0.05
    disconnect_grace: float = 5
    shutdown_grace: float = 10
    send_timeout: float = 30
    ping: float = 15
    pong_timeout: float = 20
    key_timeout: float = 10


@dataclass(frozen=True, slots=True)
class LimitSettings:
    """Limits of what one request, one conversation, one owner and all may take."""

    body_bytes: int = 6 * 2**20
    bodies_bytes: int = 64 * 2**20
    result_bytes: int = 2**20
    data_bytes: int = 256 * 2**10
    attachment_bytes: int = 3 * 2**20
    history_bytes: int = 32 * 2**20
    connections: int = 4096
    queue: int = 16
    owner_runs: int = 500
    futile_turns: int = 3
    sockets: int = 1024
    owner_sockets: int = 64
    socket_bytes: int = 6 * 2**20
    socket_queue_bytes: int = 2**20


_BUDGET = parts_form(
    BudgetLimits,
    {
        "tokens": Part(integer_form(1, 10**12), "tokens of input and output together"),
        "seconds": Part(number_form(0.001, 1e9), "seconds of work, tools included"),
        "cost": Part(number_form(1e-6, 1e6), "in the currency of the prices"),
    },
)
_TIMING = parts_form(
    TimingSettings,
    {
        "lease": Part(
            number_form(1, 600), "seconds of silence after which a worker's run counts as lost"
        ),
        "max_attempts": Part(
            integer_form(1, 100), "workers that may try one run before it counts as lost"
        ),
        "log_delay": Part(
            number_form(0.001, 5),
            "seconds that streamed text may wait before it is stored; up to "
            "four times longer while no other worker has a reader",
        ),
        "disconnect_grace": Part(
            number_form(0, 3600),
            "seconds without a reader before a run is cancelled, if its request asked for that",
        ),
        "shutdown_grace": Part(
            number_form(0, 3600),
            "seconds that runs get to end after SIGTERM or Ctrl-C; then "
            "another worker continues them",
        ),
        "send_timeout": Part(
            number_form(0.1, 3600),
            "seconds in which a client has to read a MiB of its answer, or the whole rest; of a "
            "WebSocket, to go on reading",
        ),
        "ping": Part(
            number_form(1, 300),
            "seconds of silence before a stream sends a comment, and between the pings of a "
            "WebSocket",
        ),
        "pong_timeout": Part(
            number_form(1, 300), "seconds in which the client of a WebSocket has to answer a ping"
        ),
        "key_timeout": Part(
            number_form(0.1, 300),
            "seconds in which a key has to come over a WebSocket that was opened without one",
        ),
    },
)
_LIMITS = parts_form(
    LimitSettings,
    {
        "body_bytes": Part(integer_form(1024, 2**30), "the largest body of a request"),
        "bodies_bytes": Part(
            integer_form(1024, 2**34),
            "bytes of all bodies that are still arriving at a process; one owner of several may "
            "fill half of it, and a largest body always fits",
        ),
        "result_bytes": Part(integer_form(1024, 2**30), "the largest result of a client's tool"),
        "data_bytes": Part(integer_form(1024, 2**30), "the largest structured data of a post"),
        "attachment_bytes": Part(
            integer_form(1024, 2**30),
            "the largest inline images, sounds and files of a message, together",
        ),
        "history_bytes": Part(
            integer_form(2**16, 2**31),
            "the largest history that a post may lead to",
        ),
        "connections": Part(
            integer_form(16, 1_000_000),
            "connections that a worker holds open; beyond, those that wait for a request are "
            "closed, longest first",
        ),
        "queue": Part(
            integer_form(1, 10_000), "posts that may wait for one conversation's run to end"
        ),
        "owner_runs": Part(integer_form(1, 10**6), "runs of an owner in one worker at once"),
        "futile_turns": Part(
            integer_form(1, 1000),
            "model calls in a row that may bring nothing but invalid tool calls, or answers that "
            "do not fit their schema",
        ),
        "sockets": Part(
            integer_form(1, 1_000_000), "WebSockets of a worker at once; each is a connection"
        ),
        "owner_sockets": Part(
            integer_form(1, 1_000_000), "WebSockets of an owner in one worker at once"
        ),
        "socket_bytes": Part(
            integer_form(1024, 2**30), "the largest message that comes over a WebSocket"
        ),
        "socket_queue_bytes": Part(
            integer_form(1024, 2**30), "bytes that may wait for the client of a WebSocket to read"
        ),
    },
)
_STORE_OPTIONS = parts_form(
    StoreOptions,
    {
        "ttl": Part(
            number_form(60, 1e9),
            "seconds after the last write until a conversation is removed (default: never)",
        ),
        "log_ttl": Part(
            number_form(60, 1e9), "seconds after its end for which a run can be streamed again"
        ),
        "log_bytes": Part(
            integer_form(64 * 1024, 2**31),
            "the largest log of a run; beyond it, its beginning is removed",
        ),
        "allow_eviction": Part(
            FLAG, "start on a Redis whose eviction policy may drop conversations"
        ),
    },
)


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings. The text of each is also the help of its flag."""

    host: str = setting("127.0.0.1", TEXT, "address to listen on")
    port: int = setting(8000, integer_form(0, 65535), "port to listen on; 0: any free one")
    workers: int = setting(
        1,
        integer_form(1, 64),
        "processes that serve the address; more than one share the store, which is SQLite, "
        "Redis or PostgreSQL then",
    )
    store: str = _secret(
        "",
        TEXT,
        "where conversations are kept: postgresql://, redis://, rediss://, redis+sentinel://, "
        "redis+cluster://, sqlite:///FILE or memory: (default: a SQLite file in your state folder)",
    )
    store_options: StoreOptions = setting(
        StoreOptions,
        _STORE_OPTIONS,
        "how long the store keeps conversations and logs, and how much",
    )
    model: str = setting(
        "demo",
        TEXT,
        "the model: demo, openai:NAME, openai-responses:NAME or anthropic:NAME; of several, "
        "separated by commas, the next one is asked if one fails",
    )
    models: tuple[str, ...] = setting(
        (),
        WORDS,
        "models that a request may choose, separated by commas; without "
        "any, a request's choice is ignored",
    )
    model_base_url: str | None = setting(
        None,
        TEXT,
        "address of a service that speaks the model's protocol, such as http://127.0.0.1:11434/v1",
    )
    model_api_key: str | None = _secret(None, TEXT, "its key; the variable is safer than the flag")
    openai_api_key: str | None = _secret(
        None, TEXT, "key for OpenAI's own service, where the model's key is not set"
    )
    anthropic_api_key: str | None = _secret(
        None, TEXT, "key for Anthropic's own service, where the model's key is not set"
    )
    model_timeout: float = setting(
        60, number_form(1, 3600), "seconds that a model may be silent before or in its answer"
    )
    model_window: int = setting(
        128_000,
        WINDOW,
        "tokens that the model takes, request and answer together; older parts of a "
        "conversation make room for new ones (0: nothing is left out)",
    )
    prompt: str | None = setting(None, TEXT, "system prompt (default: the agent's)")
    max_turns: int = setting(20, integer_form(1, 1000), "model calls in one run")
    prices: Mapping[str, Price] = setting(
        dict[str, Price], PRICES, "price of a million tokens, in any currency"
    )
    run_budget: BudgetLimits = setting(BudgetLimits, _BUDGET, "what one run may use")
    conversation_budget: BudgetLimits = setting(
        BudgetLimits, _BUDGET, "what all runs of a conversation together may use"
    )
    owner_budget: BudgetLimits = setting(
        BudgetLimits, _BUDGET, "what all runs of an owner on one day (UTC) together may use"
    )
    permissions: Mapping[str, Decision] = setting(
        dict[str, Decision],
        PERMISSIONS,
        "which server tools may be called; the first pattern that fits counts",
    )
    titles: str = setting(
        "message",
        TEXT,
        "who writes the titles of conversations: message (the beginning of the first one), model "
        "(the one that has answered), or a model by its name, such as openai:gpt-5-mini",
        rare=True,
    )
    commands: bool = setting(
        True,
        FLAG,
        "whether messages such as /help are commands",
        rare=True,
    )
    wires: tuple[str, ...] = setting(NAMES, WORDS, "protocols that are served")
    allowed_hosts: frozenset[str] = setting(
        frozenset[str](), HOSTS, "names under which clients reach the server, besides localhost"
    )
    allowed_origins: frozenset[str] = setting(
        frozenset[str](), ORIGINS, "origins of web pages elsewhere that may call the server"
    )
    allow_loopback_pages: bool = setting(
        True,
        FLAG,
        "whether pages of this machine, such as those of http://localhost:5173, may call a "
        "server that listens on loopback only",
        rare=True,
    )
    direct_sending: bool = setting(
        True,
        FLAG,
        "whether streams are written to their connections without a task each, which is faster",
        rare=True,
    )
    api_keys: Mapping[str, OwnerId] = _secret(
        dict[str, OwnerId], KEYS, "require one of these as bearer token"
    )
    allow_anonymous: bool = setting(
        False, FLAG, "serve everybody without a key, also beyond this machine"
    )
    allow_roles: frozenset[str] = setting(
        frozenset({"user", "tool"}),
        ROLES,
        "roles of messages that clients may post, besides user and tool: "
        "system, assistant (a history)",
    )
    limits: LimitSettings = setting(
        LimitSettings, _LIMITS, "sizes and counts per request, conversation and owner"
    )
    timing: TimingSettings = setting(TimingSettings, _TIMING, "timeouts and intervals of a worker")
    on_busy: OnBusy = setting(
        "reject",
        choice_form("reject", "enqueue", "interrupt", "rollback"),
        "what happens to a message during a run, unless the request says it",
    )
    tool_timeout: float | None = setting(
        None,
        number_form(0.1, 1e9),
        "seconds that a client may take to answer its tool calls; then the model continues without",
    )
    log_level: str = setting(
        "warning", choice_form("debug", "info", "warning", "error"), "how much is logged to stderr"
    )
    log_format: str = setting(
        "text",
        choice_form("text", "json"),
        "format of the log: lines for people, or one JSON object per line",
    )

    of_wires: Mapping[str, object] = field(default_factory=dict[str, object])
    """The settings that only one wire has, by its name: the value that its package declares. A wire
    that is not here has its defaults."""

    @property
    def budget(self) -> Budget:
        return Budget(self.run_budget, self.conversation_budget, self.owner_budget)

    @property
    def loopback_pages(self) -> bool:
        """True if pages of this machine may call the server."""
        return self.allow_loopback_pages and self.is_loopback

    @property
    def is_loopback(self) -> bool:
        """True if only programs of this machine can reach the server."""
        return is_loopback(self.host)


_MOVED: Mapping[str, tuple[str, str]] = {
    "max_run_tokens": ("run_budget", "tokens"),
    "max_run_seconds": ("run_budget", "seconds"),
    "max_run_cost": ("run_budget", "cost"),
    "max_conversation_tokens": ("conversation_budget", "tokens"),
    "max_conversation_seconds": ("conversation_budget", "seconds"),
    "max_conversation_cost": ("conversation_budget", "cost"),
    "max_owner_tokens": ("owner_budget", "tokens"),
    "max_owner_seconds": ("owner_budget", "seconds"),
    "max_owner_cost": ("owner_budget", "cost"),
    "conversation_ttl": ("store_options", "ttl"),
    "log_ttl": ("store_options", "log_ttl"),
    "log_bytes": ("store_options", "log_bytes"),
    "allow_eviction": ("store_options", "allow_eviction"),
    "max_body_bytes": ("limits", "body_bytes"),
    "max_bodies_bytes": ("limits", "bodies_bytes"),
    "max_result_bytes": ("limits", "result_bytes"),
    "max_data_bytes": ("limits", "data_bytes"),
    "max_attachment_bytes": ("limits", "attachment_bytes"),
    "max_history_bytes": ("limits", "history_bytes"),
    "max_connections": ("limits", "connections"),
    "max_queue": ("limits", "queue"),
    "max_owner_runs": ("limits", "owner_runs"),
    "max_futile_turns": ("limits", "futile_turns"),
    "lease": ("timing", "lease"),
    "max_attempts": ("timing", "max_attempts"),
    "log_delay": ("timing", "log_delay"),
    "disconnect_grace": ("timing", "disconnect_grace"),
    "shutdown_grace": ("timing", "shutdown_grace"),
    "send_timeout": ("timing", "send_timeout"),
    "ping": ("timing", "ping"),
}
"""Old names of settings, each with the setting and the part that replace it."""


def variable_name(name: str, /) -> str:
    """Return the variable of a setting.

    Keys of providers have the names that the providers' own tools read.
    """
    return name.upper() if name in _UNPREFIXED else PREFIX + name.upper()


def flag_name(name: str, /) -> str:
    """Return the flag of a setting."""
    return "--" + name.replace("_", "-")


def own_settings() -> Sequence[Field[typing.Any]]:
    """Return the fields of `Settings` that are settings."""
    return [one for one in fields(Settings) if one.metadata]


def wire_settings() -> Mapping[str, Sequence[Field[typing.Any]]]:
    """Return the settings that only one wire has, by the name of the wire."""
    return {
        name: fields(each.settings) for name, each in load_wire_types().items() if each.settings
    }


def all_settings() -> Sequence[Field[typing.Any]]:
    """Return all settings, those of single wires last."""
    return [*own_settings(), *(one for each in wire_settings().values() for one in each)]


def load_settings(values: Mapping[str, str], /) -> Settings:
    """Read settings from variables; variables without the prefix are ignored.

    Raises:
        ConfigurationError: names each `PASSBACK_*` that is unknown or wrong, a line each, without
            its value.
    """
    known = {variable_name(one.name): one for one in all_settings()}
    wrong = _name_errors([name for name in values if name.startswith(PREFIX) and name not in known])
    chosen: dict[str, typing.Any] = {}
    for name, one in known.items():
        # Compose passes variables that are not set on as empty ones
        if (value := values.get(name, "")) == "":
            continue
        try:
            chosen[one.name] = one.metadata["form"].read(value)
        except ConfigurationError as error:
            wrong.append(f"{name}: {error.message}")
    if wrong:
        raise ConfigurationError("\n".join(wrong))
    # not the field's default, because the folder depends on the environment
    chosen.setdefault("store", f"sqlite:///{quote(str(state_folder(values)))}/passback.db")
    of_wires: dict[str, object] = {}
    for name, kind in load_wire_types().items():
        if kind.settings:
            given = {one.name: chosen.pop(one.name, None) for one in fields(kind.settings)}
            of_wires[name] = kind.settings(**{n: v for n, v in given.items() if v is not None})
    return Settings(**chosen, of_wires=of_wires)


def _name_errors(unknown: Iterable[str]) -> list[str]:
    """Return a text for each setting that has other names, and one for all that are unknown.

    An unknown one is followed by the one that may be meant.
    """
    names = [one.name for one in all_settings()]
    moved: dict[str, dict[str, str]] = {}
    others: list[str] = []
    for name in sorted(unknown):
        if found := _MOVED.get(name.removeprefix(PREFIX).lower()):
            moved.setdefault(variable_name(found[0]), {})[name] = f"{found[1]}=..."
        else:
            # without the prefix, which would make all names alike
            near = nearest_names(name.removeprefix(PREFIX).lower(), names)
            others.append(f"{name}{did_you_mean([variable_name(one) for one in near])}")
    texts = [
        f'{", ".join(parts)}: write {name}="{" ".join(parts.values())}"'
        for name, parts in moved.items()
    ]
    return [*texts, *([f"unknown setting {', '.join(others)}"] if others else [])]


def moved_flag(name: str, /) -> str | None:
    """Return how the flag of an old name is written, such as `--timing lease=...`."""
    found = _MOVED.get(name.removeprefix("--").replace("-", "_"))
    return found and f"{flag_name(found[0])} {found[1]}=..."


def state_folder(values: Mapping[str, str], /) -> Path:
    """Return the user's state folder (XDG base directory specification)."""
    base = values.get(STATE_HOME, "")
    if Path(base).is_absolute():  # the specification says to ignore a relative path
        return Path(base) / "passback"
    return Path.home() / ".local" / "state" / "passback"
