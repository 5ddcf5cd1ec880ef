"""Every setting from its variable, and what is said when one is wrong."""

from dataclasses import FrozenInstanceError, fields
from pathlib import Path

import pytest

from passback.core.budgets import Price
from passback.core.errors import ConfigurationError
from passback.settings import Settings, load_settings, state_folder, variable_name

KEY = "0123456789abcdef"

GOOD: list[tuple[str, str, object]] = [
    ("host", "0.0.0.0", "0.0.0.0"),
    ("port", "0", 0),
    ("workers", "2", 2),
    ("store", "redis://:pw@db/1", "redis://:pw@db/1"),
    ("model", "openai:gpt-test", "openai:gpt-test"),
    ("models", "openai:a, demo", ("openai:a", "demo")),
    ("model_base_url", "http://127.0.0.1:11434/v1", "http://127.0.0.1:11434/v1"),
    ("model_api_key", "sk-secret", "sk-secret"),
    ("openai_api_key", "sk-secret", "sk-secret"),
    ("anthropic_api_key", "sk-secret", "sk-secret"),
    ("model_timeout", "2.5", 2.5),
    ("model_window", "1000", 1_000),
    ("prompt", "Be brief.", "Be brief."),
    ("max_turns", "3", 3),
    ("max_futile_turns", "1", 1),
    (
        "prices",
        "openai:a:1=1.25/10/0.125, b=0/2",
        {"openai:a:1": Price(1.25, 10, 0.125), "b": Price(0, 2, 0)},
    ),
    ("max_run_tokens", "1000", 1000),
    ("max_run_seconds", "0.5", 0.5),
    ("max_run_cost", "0.01", 0.01),
    ("max_conversation_tokens", "1000", 1000),
    ("max_conversation_seconds", "0.5", 0.5),
    ("max_conversation_cost", "0.01", 0.01),
    ("max_owner_tokens", "1000", 1000),
    ("max_owner_seconds", "0.5", 0.5),
    ("max_owner_cost", "0.01", 0.01),
    ("permissions", "delete_*=ask, *=allow", {"delete_*": "ask", "*": "allow"}),
    ("commands", "no", False),
    ("wires", "send_message, rest", ("send_message", "rest")),
    ("process_path", "/agents/v1.0/process", "/agents/v1.0/process"),
    ("allowed_hosts", "Chat.Example,[::1]", frozenset({"chat.example", "[::1]"})),
    (
        "allowed_origins",
        "https://a.example http://b.example:8080",
        frozenset({"https://a.example", "http://b.example:8080"}),
    ),
    ("allow_loopback_pages", "no", False),
    ("api_keys", f"ann:{KEY},bob:{KEY}:x", {KEY: "ann", f"{KEY}:x": "bob"}),
    ("allow_anonymous", "yes", True),
    ("allow_roles", "assistant", frozenset({"user", "tool", "assistant"})),
    ("max_connections", "100", 100),
    ("send_timeout", "2.5", 2.5),
    ("max_body_bytes", "1024", 1024),
    ("max_bodies_bytes", "1024", 1024),
    ("max_result_bytes", "1024", 1024),
    ("max_data_bytes", "1024", 1024),
    ("max_attachment_bytes", "1024", 1024),
    ("conversation_ttl", "60", 60.0),
    ("log_ttl", "60", 60.0),
    ("log_bytes", "65536", 65536),
    ("log_delay", "0.001", 0.001),
    ("lease", "1.5", 1.5),
    ("max_attempts", "1", 1),
    ("on_busy", "enqueue", "enqueue"),
    ("max_queue", "1", 1),
    ("max_owner_runs", "1", 1),
    ("max_history_bytes", "65536", 65536),
    ("tool_timeout", "0.1", 0.1),
    ("disconnect_grace", "0", 0.0),
    ("shutdown_grace", "0", 0.0),
    ("ping", "1", 1.0),
    ("allow_eviction", "YES", True),
    ("log_level", "debug", "debug"),
    ("log_format", "json", "json"),
]

BAD: list[tuple[str, str, str]] = [
    ("port", "65536", "must be from 0 to 65535"),
    ("port", "-1", "must be from 0 to 65535"),
    ("port", "secret", "must be a number"),
    ("max_turns", "1.5", "must be a number"),
    ("max_turns", "0", "must be from 1 to 1000"),
    ("prices", "openai:a", "must be MODEL=INPUT/OUTPUT"),
    ("prices", "=1/2", "must be MODEL=INPUT/OUTPUT"),
    ("prices", "a=1", "must be MODEL=INPUT/OUTPUT"),
    ("prices", "a=1/2/3/4", "must be MODEL=INPUT/OUTPUT"),
    ("prices", "a=one/two", "must be MODEL=INPUT/OUTPUT"),
    ("prices", "a=1/-2", "must be MODEL=INPUT/OUTPUT"),
    ("prices", "a=1/1.2.3", "must be a number"),
    ("prices", "a=1/2000000", "must be from 0 to 1e+06"),
    ("max_run_tokens", "0", "must be from 1 to"),
    ("max_owner_cost", "0", "must be from"),
    ("max_conversation_seconds", "inf", "must be from"),
    ("model_window", "999", "must be 0, or from 1000 to 100000000"),
    ("model_window", "-1", "must be 0, or from 1000 to 100000000"),
    ("model_window", "many", "must be a number"),
    ("permissions", "delete", "must be PATTERN=DECISION"),
    ("permissions", "=ask", "must be PATTERN=DECISION"),
    (
        "permissions",
        "delete=perhaps",
        "must be PATTERN=DECISION, ...; decisions are allow, deny, ask",
    ),
    ("lease", "0", "must be from 1 to 600"),
    ("lease", "nan", "must be from 1 to 600"),
    ("log_delay", "inf", "must be from 0.001 to 5"),
    ("ping", "secret", "must be a number"),
    ("allow_eviction", "perhaps", "must be yes or no"),
    ("log_level", "loud", "must be one of debug, info, warning, error"),
    ("log_format", "xml", "must be one of text, json"),
    *(("process_path", bad, "must be a path") for bad in ("process", "/", "/a/", "/{a}", "/a?b")),
    ("allowed_origins", "*", "must be exact origins such as https://app.example.com"),
    ("allowed_origins", "https://a.example/", "must be exact origins such as"),
    ("allowed_hosts", "https://a.example", "must be host names without scheme and port"),
    ("allowed_hosts", "a.example:80", "must be host names without scheme and port"),
    ("api_keys", KEY, "must be OWNER:KEY"),
    ("api_keys", "ann:short", "must be OWNER:KEY"),
    ("api_keys", f":{KEY}", "must be OWNER:KEY"),
    (
        "api_keys",
        f"alice:{KEY}, bob:{KEY}",
        "must be a key of its own for each owner: 'alice' and 'bob' have the same one",
    ),
    ("log_bytes", "65535", "must be from 65536 to 2147483648"),
    ("workers", "0", "must be from 1 to 64"),
    ("workers", "65", "must be from 1 to 64"),
    ("max_attempts", "0", "must be from 1 to 100"),
    ("on_busy", "wait", "must be one of reject, enqueue, interrupt, rollback"),
    ("max_queue", "0", "must be from 1 to 10000"),
    ("max_owner_runs", "0", "must be from 1 to 1000000"),
    ("max_history_bytes", "65535", "must be from 65536 to 2147483648"),
    ("tool_timeout", "0", "must be from 0.1 to 1e+09"),
    ("disconnect_grace", "-1", "must be from 0 to 3600"),
    ("allow_roles", "user", "must be user,tool and, if wanted, system and assistant"),
    ("allow_roles", "user,tool,robot", "must be user,tool and, if wanted, system and assistant"),
    ("allow_roles", ",", "must be user,tool and, if wanted, system and assistant"),
]


@pytest.mark.parametrize(("name", "text", "value"), GOOD, ids=[name for name, _, _ in GOOD])
def test_a_setting_is_read_from_its_variable(name: str, text: str, value: object) -> None:
    settings = load_settings({variable_name(name): text})
    assert getattr(settings, name) == value
    if name != "store":
        assert {
            one.name
            for one in fields(Settings)
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
def test_roles_are_added_to_the_two_that_are_always_there(text: str, more: set[str]) -> None:
    assert load_settings({"PASSBACK_ALLOW_ROLES": text}).allow_roles == {"user", "tool", *more}


def test_every_setting_is_tested_here_and_has_a_help_text() -> None:
    assert [one.name for one in fields(Settings)] == [name for name, _, _ in GOOD]
    assert all(one.metadata["text"] for one in fields(Settings))


@pytest.mark.parametrize(("name", "text", "why"), BAD)
def test_a_wrong_value_is_named_and_never_shown(name: str, text: str, why: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        load_settings({variable_name(name): text})
    assert raised.value.message.startswith(f"PASSBACK_{name.upper()}: {why}")
    assert KEY not in raised.value.message
    if text in {"secret", "ann:short"}:
        assert text not in raised.value.message
        assert raised.value.__cause__ is None


def test_an_owner_may_have_several_keys_and_name_one_twice() -> None:
    given = f"ann:{KEY}, ann:{KEY}2, ann:{KEY}"
    assert load_settings({"PASSBACK_API_KEYS": given}).api_keys == {KEY: "ann", f"{KEY}2": "ann"}


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (["PASSBACK_MODLE"], "PASSBACK_MODLE (did you mean PASSBACK_MODEL?)"),
        (
            ["PASSBACK_OPENAI_API_KEY"],
            "PASSBACK_OPENAI_API_KEY (did you mean OPENAI_API_KEY?)",
        ),
        (
            ["PASSBACK_POORT", "PASSBACK_A"],
            "PASSBACK_A, PASSBACK_POORT (did you mean PASSBACK_PORT?)",
        ),
        (["PASSBACK_PROT"], "PASSBACK_PROT (did you mean PASSBACK_PORT?)"),
        (
            ["PASSBACK_TIMEOUT"],
            (
                "PASSBACK_TIMEOUT (did you mean PASSBACK_MODEL_TIMEOUT, PASSBACK_SEND_TIMEOUT or "
                "PASSBACK_TOOL_TIMEOUT?)"
            ),
        ),
    ],
)
def test_an_unknown_setting_is_an_error_that_names_it_and_what_may_be_meant(
    names: list[str], told: str
) -> None:
    with pytest.raises(ConfigurationError) as raised:
        load_settings({"PASSBACK_PORT": "3", "OTHER": "4", **dict.fromkeys(names, "hidden")})
    assert raised.value.message == f"unknown setting {told}"


def test_an_empty_variable_is_none_at_all() -> None:
    assert load_settings({"PASSBACK_PORT": "", "PASSBACK_API_KEYS": ""}) == load_settings({})


def test_secrets_are_not_in_the_settings_text() -> None:
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


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.10", "localhost", "::1"])
def test_this_machine_alone_is_loopback(host: str) -> None:
    assert load_settings({"PASSBACK_HOST": host}).is_loopback


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.7", "agents.example.com"])
def test_what_others_can_reach_is_not_loopback(host: str) -> None:
    assert not load_settings({"PASSBACK_HOST": host}).is_loopback


# ---------------------------------------------------------------- where conversations are kept
def test_the_store_is_a_file_in_the_users_state_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/you")
    default = "sqlite:////home/you/.local/state/passback/passback.db"
    assert load_settings({}).store == default
    assert load_settings({"XDG_STATE_HOME": "relative"}).store == default
    assert (
        load_settings({"XDG_STATE_HOME": "/state"}).store == "sqlite:////state/passback/passback.db"
    )


def test_a_folder_with_odd_characters_is_no_other_folder() -> None:
    values = {"XDG_STATE_HOME": "/a b/50%/what?"}
    assert state_folder(values) == Path("/a b/50%/what?/passback")
    assert load_settings(values).store == "sqlite:////a%20b/50%25/what%3F/passback/passback.db"
