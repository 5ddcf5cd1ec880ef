"""Every setting is read from its variable, and a wrong one is named in an error."""

import re
from collections.abc import Iterator
from dataclasses import Field, FrozenInstanceError, fields, replace
from pathlib import Path
from typing import Any

import pytest

from passback.core.budgets import BudgetLimits, Price
from passback.core.errors import ConfigurationError
from passback.settings import (
    Settings,
    TimingSettings,
    all_settings,
    load_settings,
    own_settings,
    state_folder,
    variable_name,
)
from passback.wire.acp import AcpSettings
from passback.wire.agent_api import AgentApiSettings
from passback.wire.ai_sdk import AiSdkSettings
from passback.wire.responses import ResponsesSettings

KEY = "0123456789abcdef"

# numbers, flags, choices and parts are tested by their forms, below
GOOD: list[tuple[str, str, object]] = [
    ("host", "0.0.0.0", "0.0.0.0"),
    ("store", "redis://:pw@db/1", "redis://:pw@db/1"),
    ("model", "openai:gpt-test", "openai:gpt-test"),
    ("models", "openai:a, demo", ("openai:a", "demo")),
    ("model_base_url", "http://127.0.0.1:11434/v1", "http://127.0.0.1:11434/v1"),
    ("model_api_key", "sk-secret", "sk-secret"),
    ("openai_api_key", "sk-secret", "sk-secret"),
    ("anthropic_api_key", "sk-secret", "sk-secret"),
    ("model_window", "1000", 1_000),
    ("prompt", "Be brief.", "Be brief."),
    ("titles", "demo:fast", "demo:fast"),
    (
        "prices",
        "openai:a:1=1.25/10/0.125, b=0/2",
        {"openai:a:1": Price(1.25, 10, 0.125), "b": Price(0, 2, 0)},
    ),
    (
        "run_budget",
        "seconds=0.5 tokens=1000 cost=0.01",
        BudgetLimits(tokens=1000, seconds=0.5, cost=0.01),
    ),
    ("permissions", "delete_*=ask, *=allow", {"delete_*": "ask", "*": "allow"}),
    ("wires", "send_message, rest", ("send_message", "rest")),
    ("allowed_hosts", "Chat.Example,[::1]", frozenset({"chat.example", "[::1]"})),
    (
        "allowed_origins",
        "https://a.example http://b.example:8080",
        frozenset({"https://a.example", "http://b.example:8080"}),
    ),
    ("api_keys", f"ann:{KEY},bob:{KEY}:x", {KEY: "ann", f"{KEY}:x": "bob"}),
    ("allow_roles", "assistant", frozenset({"user", "tool", "assistant"})),
]

PRICES = "MODEL=INPUT/OUTPUT or MODEL=INPUT/OUTPUT/CACHED, ...; each a number up to 1e6"
PERMISSIONS = "PATTERN=DECISION, ...; decisions are allow, deny, ask"
KEYS = "OWNER:KEY, ...; each key of 16 or more ASCII characters"
WINDOW = "0, or a whole number from 1000 to 100000000"
ROLES = "user,tool and, if wanted, system and assistant"
BUDGET = "NAME=VALUE ... with the names tokens, seconds, cost"

BAD: list[tuple[str, str, str]] = [
    *(("port", bad, "a whole number from 0 to 65535") for bad in ("65536", "-1", "secret", "1.5")),
    ("max_turns", "0", "a whole number from 1 to 1000"),
    *(
        ("prices", bad, PRICES)
        for bad in (
            *("openai:a", "=1/2", "a=1", "a=1/2/3/4", "a=one/two"),
            *("a=1/-2", "a=1/1.2.3", "a=1/2000000"),
        )
    ),
    *(("model_window", bad, WINDOW) for bad in ("999", "-1", "many")),
    *(("permissions", bad, PERMISSIONS) for bad in ("delete", "=ask", "delete=perhaps")),
    ("model_timeout", "nan", "a number from 1 to 3600"),
    ("tool_timeout", "inf", "a number from 0.1 to 1e+09"),
    ("commands", "perhaps", "yes or no"),
    ("direct_sending", "maybe", "yes or no"),
    ("log_level", "loud", "one of debug, info, warning, error"),
    ("log_format", "xml", "one of text, json"),
    ("on_busy", "wait", "one of reject, enqueue, interrupt, rollback"),
    *(
        ("process_path", bad, "a path such as /process")
        for bad in ("process", "/", "/a/", "/{a}", "/a?b")
    ),
    *(
        ("allowed_origins", bad, "exact origins such as https://app.example.com")
        for bad in ("*", "https://a.example/", "https://a.example *")
    ),
    *(
        ("allowed_hosts", bad, "host names without scheme and port")
        for bad in ("https://a.example", "a.example:80")
    ),
    *(("api_keys", bad, KEYS) for bad in (KEY, "ann:short", f":{KEY}")),
    (
        "api_keys",
        f"alice:{KEY}, bob:{KEY}",
        "a key of its own for each owner: 'alice' and 'bob' have the same one",
    ),
    *(("allow_roles", bad, ROLES) for bad in ("user", "user,tool,robot", ",")),
    *(
        ("run_budget", bad, BUDGET)
        for bad in ("secret", "1000", "tokens", "secret=1", "tokens = 5", "turns=3")
    ),
]

BAD_PARTS = [
    ("timing", "lease=0", "lease must be a number from 1 to 600"),
    ("timing", "ping=3 lease=secret", "lease must be a number from 1 to 600"),
    ("timing", "max_attempts=1.5", "max_attempts must be a whole number from 1 to 100"),
    ("limits", "queue=", "queue must be a whole number from 1 to 10000"),
    ("limits", "history_bytes=65535", "history_bytes must be a whole number from 65536 to"),
    ("owner_budget", "cost=0", "cost must be a number from 1e-06 to 1e+06"),
    ("conversation_budget", "seconds=inf", "seconds must be a number from 0.001 to 1e+09"),
    ("store_options", "allow_eviction=secret", "allow_eviction must be yes or no"),
]


@pytest.mark.parametrize(("name", "text", "value"), GOOD, ids=[name for name, _, _ in GOOD])
def test_a_setting_is_read_from_its_variable(name: str, text: str, value: object) -> None:
    settings = load_settings({variable_name(name): text})
    assert getattr(settings, name) == value
    if name != "store":
        assert {
            one.name
            for one in own_settings()
            if getattr(settings, one.name) != getattr(load_settings({}), one.name)
        } == {name}


@pytest.mark.parametrize(
    ("text", "more"),
    [
        ("user,tool", set[str]()),
        ("user,tool,system", {"system"}),
        ("system,assistant", {"system", "assistant"}),
        ("assistant,tool,user", {"assistant"}),
    ],
)
def test_roles_are_added_to_user_and_tool(text: str, more: set[str]) -> None:
    assert load_settings({"PASSBACK_ALLOW_ROLES": text}).allow_roles == {"user", "tool", *more}


def test_a_setting_of_a_wire_is_passed_to_that_wire() -> None:
    settings = load_settings({"PASSBACK_PROCESS_PATH": "/agents/v1.0/process"})
    assert settings.of_wires["agent_api"] == AgentApiSettings("/agents/v1.0/process")
    defaults = {
        "agent_api": AgentApiSettings("/process"),
        "ai_sdk": AiSdkSettings("/api/chat"),
        "responses": ResponsesSettings("/v1"),
        "acp": AcpSettings(),
    }
    assert load_settings({}).of_wires == defaults


def test_a_currency_is_three_capital_letters() -> None:
    settings = load_settings({"PASSBACK_ACP_CURRENCY": "EUR", "PASSBACK_ACP_KEY": KEY})
    assert settings.of_wires["acp"] == AcpSettings(KEY, "EUR")
    for bad in ("eur", "EURO", "EU", "E1R", "\u00c4BC", "EUR\n"):
        with pytest.raises(ConfigurationError, match="must be a currency of three capital letters"):
            load_settings({"PASSBACK_ACP_CURRENCY": bad})


def test_no_two_settings_have_one_name() -> None:
    assert len({one.name for one in all_settings()}) == len(all_settings())


def other_values() -> Iterator[tuple[Field[Any], str | None, str]]:
    """Yield each setting or part that is a number, flag or choice, with the text of a value."""
    for one in own_settings():
        form = one.metadata["form"]
        parts = [(name, part.form) for name, part in form.parts.items()] or [(None, form)]
        for part, each in parts:
            if number := re.fullmatch(r"a (?:whole )?number from (\S+) to (\S+)", each.text):
                yield one, part, number[2]
            elif each.text.startswith("one of "):
                yield one, part, each.text.rpartition(" ")[2]
            elif each.text == "yes or no":
                value = getattr(Settings(), one.name)
                yield one, part, "no" if (getattr(value, part) if part else value) else "yes"


@pytest.mark.parametrize(
    ("setting", "part", "text"),
    [pytest.param(*each, id=f"{each[0].name} {each[1]}") for each in other_values()],
)
def test_a_number_flag_or_choice_is_read_and_a_wrong_one_is_named(
    setting: Field[Any], part: str | None, text: str
) -> None:
    def load(value: str) -> object:
        given = f"{part}={value}" if part else value
        return getattr(load_settings({variable_name(setting.name): given}), setting.name)

    form = setting.metadata["form"]
    form = form.parts[part].form if part else form
    default, value = getattr(Settings(), setting.name), form.read(text)
    assert load(text) == (replace(default, **{part: value}) if part else value) != default
    wrong = "perhaps" if isinstance(value, bool) else text + "0"  # ten times the largest
    place = variable_name(setting.name) + (f": {part} " if part else ": ")
    with pytest.raises(ConfigurationError, match=f"{place}must be {re.escape(form.text)}$"):
        load(wrong)


def test_every_setting_is_tested_here_and_has_a_help_text() -> None:
    tested = [name for name, _, _ in GOOD] + [one.name for one, _, _ in other_values()]
    assert {one.name for one in own_settings()} - set(tested) == set(), "GOOD lacks them"
    assert all(one.metadata["text"] for one in own_settings())


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [*((name, text, f"must be {why}") for name, text, why in BAD), *BAD_PARTS],
)
def test_a_wrong_value_is_named_and_never_shown(name: str, text: str, why: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        load_settings({variable_name(name): text})
    assert raised.value.message.startswith(f"PASSBACK_{name.upper()}: {why}")
    assert KEY not in raised.value.message
    assert "secret" not in raised.value.message
    assert "short" not in raised.value.message
    assert (raised.value.__cause__, raised.value.__context__) == (None, None)


def test_an_owner_may_have_several_keys_and_name_one_twice() -> None:
    given = f"ann:{KEY}, ann:{KEY}2, ann:{KEY}"
    assert load_settings({"PASSBACK_API_KEYS": given}).api_keys == {KEY: "ann", f"{KEY}2": "ann"}


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        (["PASSBACK_MODLE"], "PASSBACK_MODLE (did you mean PASSBACK_MODEL?)"),
        (["PASSBACK_OPENAI_API_KEY"], "PASSBACK_OPENAI_API_KEY (did you mean OPENAI_API_KEY?)"),
        (
            ["PASSBACK_POORT", "PASSBACK_A"],
            "PASSBACK_A, PASSBACK_POORT (did you mean PASSBACK_PORT?)",
        ),
        (["PASSBACK_PROT"], "PASSBACK_PROT (did you mean PASSBACK_PORT?)"),
        (
            ["PASSBACK_TIMEOUT"],
            "PASSBACK_TIMEOUT (did you mean PASSBACK_MODEL_TIMEOUT or PASSBACK_TOOL_TIMEOUT?)",
        ),
    ],
)
def test_an_unknown_setting_is_an_error_with_a_suggestion(names: list[str], problem: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        load_settings({"PASSBACK_PORT": "3", "OTHER": "4", **dict.fromkeys(names, "hidden")})
    assert raised.value.message == f"unknown setting {problem}"


def test_all_errors_are_reported_at_once_without_values() -> None:
    given = dict.fromkeys(
        ("PASSBACK_PORT", "PASSBACK_PROT", "PASSBACK_TIMING", "PASSBACK_LEASE"), "hidden=5"
    )
    with pytest.raises(ConfigurationError) as raised:
        load_settings({**given, "PASSBACK_HOST": "fine"})
    assert raised.value.message.splitlines() == [
        'PASSBACK_LEASE: write PASSBACK_TIMING="lease=..."',
        "unknown setting PASSBACK_PROT (did you mean PASSBACK_PORT?)",
        "PASSBACK_PORT: must be a whole number from 0 to 65535",
        (
            "PASSBACK_TIMING: must be NAME=VALUE ... with the names lease, max_attempts, "
            "log_delay, disconnect_grace, shutdown_grace, send_timeout, ping, "
            "pong_timeout, key_timeout"
        ),
    ]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            ["MAX_RUN_TOKENS", "MAX_RUN_SECONDS", "MAX_RUN_COST"],
            'RUN_BUDGET="cost=... seconds=... tokens=..."',
        ),
        (
            ["MAX_CONVERSATION_TOKENS", "MAX_CONVERSATION_SECONDS", "MAX_CONVERSATION_COST"],
            'CONVERSATION_BUDGET="cost=... seconds=... tokens=..."',
        ),
        (
            ["MAX_OWNER_TOKENS", "MAX_OWNER_SECONDS", "MAX_OWNER_COST"],
            'OWNER_BUDGET="cost=... seconds=... tokens=..."',
        ),
        (
            ["CONVERSATION_TTL", "LOG_TTL", "LOG_BYTES", "ALLOW_EVICTION"],
            'STORE_OPTIONS="allow_eviction=... ttl=... log_bytes=... log_ttl=..."',
        ),
        (
            ["MAX_BODY_BYTES", "MAX_BODIES_BYTES", "MAX_RESULT_BYTES", "MAX_DATA_BYTES"],
            'LIMITS="bodies_bytes=... body_bytes=... data_bytes=... result_bytes=..."',
        ),
        (
            ["MAX_ATTACHMENT_BYTES", "MAX_HISTORY_BYTES", "MAX_CONNECTIONS"],
            'LIMITS="attachment_bytes=... connections=... history_bytes=..."',
        ),
        (
            ["MAX_QUEUE", "MAX_OWNER_RUNS", "MAX_FUTILE_TURNS"],
            'LIMITS="futile_turns=... owner_runs=... queue=..."',
        ),
        (
            ["LEASE", "MAX_ATTEMPTS", "LOG_DELAY", "PING"],
            'TIMING="lease=... log_delay=... max_attempts=... ping=..."',
        ),
        (
            ["DISCONNECT_GRACE", "SHUTDOWN_GRACE", "SEND_TIMEOUT"],
            'TIMING="disconnect_grace=... send_timeout=... shutdown_grace=..."',
        ),
    ],
)
def test_an_old_name_is_refused_with_the_new_setting(old: list[str], new: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        load_settings({f"PASSBACK_{name}": "5" for name in old})
    olds = ", ".join(f"PASSBACK_{name}" for name in sorted(old))
    assert raised.value.message == f"{olds}: write PASSBACK_{new}"
    # the new one exists, and has parts of these names
    variable, _, parts = new.partition("=")
    [form] = [
        one.metadata["form"] for one in own_settings() if variable_name(one.name).endswith(variable)
    ]
    assert set(re.findall(r"(\w+)=", parts)) <= form.parts.keys()


def test_a_mistyped_part_gets_a_suggestion_and_is_not_shown() -> None:
    with pytest.raises(ConfigurationError) as raised:
        load_settings({"PASSBACK_TIMING": "ping=1 lese=3"})
    assert raised.value.message == "PASSBACK_TIMING: has an unknown name (did you mean lease?)"


def test_of_a_repeated_part_the_last_one_counts() -> None:
    timing = load_settings({"PASSBACK_TIMING": "ping=1 lease=2 ping=3"}).timing
    assert timing == TimingSettings(lease=2, ping=3)


def test_the_reference_has_every_setting_and_a_short_first_table() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "settings.md").read_text()
    common, rest = page.partition("\n## Secrets in files\n")[0].split("\n## Rarely needed\n")
    rows = [re.findall(r"^\| `([A-Z_]+)` \|", part, re.MULTILINE) for part in (common, rest)]
    assert len(rows[0]) <= 32
    assert sorted(rows[0] + rows[1]) == sorted(variable_name(one.name) for one in all_settings())


def test_the_names_of_parts_are_those_of_the_values() -> None:
    for one in own_settings():
        if parts := one.metadata["form"].parts:
            made = getattr(Settings(), one.name)
            in_the_url = {"prefix", "timeout", "max_connections"}  # parts of the store's URL
            names = {part.name for part in fields(made)} - in_the_url
            assert names == parts.keys(), (
                "each has a Part in settings.py: CONTRIBUTING.md, a setting"
            )
            assert all(part.text for part in parts.values())


def test_an_empty_variable_is_ignored() -> None:
    assert load_settings({"PASSBACK_PORT": "", "PASSBACK_API_KEYS": ""}) == load_settings({})


def test_secrets_are_not_in_the_repr_of_settings() -> None:
    shown = repr(
        load_settings(
            {
                "PASSBACK_STORE": "redis://:hidden1@db",
                "PASSBACK_MODEL_API_KEY": "hidden2",
                "OPENAI_API_KEY": "hidden4",
                "ANTHROPIC_API_KEY": "hidden5",
                "PASSBACK_API_KEYS": f"ann:hidden3{KEY}",
            }
        )
    )
    assert "hidden" not in shown
    assert "ann" not in shown


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        load_settings({}).port = 1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("host", "is_loopback"),
    [
        *((host, True) for host in ("127.0.0.1", "127.8.9.10", "localhost", "::1")),
        *((host, False) for host in ("0.0.0.0", "::", "192.168.1.7", "agents.example.com")),
    ],
)
def test_addresses_of_this_machine_alone_are_loopback(host: str, is_loopback: bool) -> None:
    assert load_settings({"PASSBACK_HOST": host}).is_loopback is is_loopback


# ---------------------------------------------------------------- the default store
def test_the_store_is_a_file_in_the_users_state_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/you")
    default = "sqlite:////home/you/.local/state/passback/passback.db"
    assert load_settings({}).store == default
    assert load_settings({"XDG_STATE_HOME": "relative"}).store == default
    assert (
        load_settings({"XDG_STATE_HOME": "/state"}).store == "sqlite:////state/passback/passback.db"
    )


def test_a_folder_with_special_characters_is_encoded_in_the_url() -> None:
    values = {"XDG_STATE_HOME": "/a b/50%/what?"}
    assert state_folder(values) == Path("/a b/50%/what?/passback")
    assert load_settings(values).store == "sqlite:////a%20b/50%25/what%3F/passback/passback.db"
