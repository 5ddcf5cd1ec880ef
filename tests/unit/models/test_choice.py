"""Models from the settings, one or several, with their addresses and keys."""

import pytest

from passback.core.errors import ConfigurationError
from passback.models.choice import ModelChoice, ModelServices, check_model_names


def openai(
    name: str, url: str | None = None, key: str | None = None, kind: str = "openai"
) -> ModelChoice:
    return ModelChoice(kind, name, url, key)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (("demo", None, None), [ModelChoice("demo", "")]),
        (("openai:a:b", "u,v", "k,l"), [openai("a:b", "u,v", "k,l")]),
        (
            ("openai:a, anthropic:b", None, "k, l"),
            [openai("a", None, "k"), openai("b", None, "l", "anthropic")],
        ),
        (("openai:a,openai:b", None, "k"), [openai("a", None, "k"), openai("b", None, "k")]),
        # two protocols of one service
        (
            ("openai:a,openai-responses:b", None, "k"),
            [openai("a", None, "k"), openai("b", None, "k", "openai-responses")],
        ),
        (
            ("openai:a,anthropic:b", "u", "k"),
            [openai("a", "u", "k"), openai("b", "u", "k", "anthropic")],
        ),
        (("openai:a,openai:b", ",v", "k,"), [openai("a", None, "k"), openai("b", "v")]),
        (
            ("openai:a,demo", None, "k"),
            [openai("a", None, "k"), ModelChoice("demo", "", None, "k")],
        ),
    ],
)
def test_each_model_has_its_address_and_key(
    settings: tuple[str, str | None, str | None], expected: list[ModelChoice]
) -> None:
    assert ModelServices(*settings).choices(settings[0]) == expected


LOCAL, GATEWAY = "http://127.0.0.1:1/v1", "https://gate.example/v1"


@pytest.mark.parametrize(
    ("settings", "agents_model", "expected"),
    [
        # at the address of the model of its name, else of the first of its kind
        (
            ("openai:a,openai:b", f"{LOCAL},{GATEWAY}", "k,l"),
            "openai:b",
            [openai("b", GATEWAY, "l")],
        ),
        (("openai:a,openai:b", f"{LOCAL},{GATEWAY}", "k,l"), "openai:c", [openai("c", LOCAL, "k")]),
        # at a gateway that has all of them, but not at another provider's own service
        (("openai:a", GATEWAY, "k"), "anthropic:b", [openai("b", GATEWAY, "k", "anthropic")]),
        (
            ("openai:a", GATEWAY, "k"),
            "openai-responses:b",
            [openai("b", GATEWAY, "k", "openai-responses")],
        ),
        (("openai:a", None, "k"), "anthropic:b", [ModelChoice("anthropic", "b")]),
        # another protocol of the same provider
        (
            ("anthropic:c,openai:a", None, "l,k"),
            "openai-responses:b",
            [openai("b", None, "k", "openai-responses")],
        ),
        (
            ("openai:a,anthropic:c", f"{LOCAL},", "k,l"),
            "openai-responses:b",
            [ModelChoice("openai-responses", "b")],
        ),
        (
            ("openai:a", "https://api.openai.com/v1", "k"),
            "anthropic:b",
            [ModelChoice("anthropic", "b")],
        ),
        (
            ("openai:a", None, "k"),
            "demo:fast,openai:b",
            [ModelChoice("demo", "fast"), openai("b", None, "k")],
        ),
        # the settings' model needs neither: both are for the agent's model
        (("demo", LOCAL, "k"), "openai:b", [openai("b", LOCAL, "k")]),
        (
            ("demo", None, "k,l"),
            "openai:b,anthropic:c",
            [openai("b", None, "k"), openai("c", None, "l", "anthropic")],
        ),
        (("nonsense", None, "k"), "openai:b", [openai("b", None, "k")]),
    ],
)
def test_a_model_of_an_agent_uses_the_addresses_and_keys_of_the_settings(
    settings: tuple[str, str | None, str | None], agents_model: str, expected: list[ModelChoice]
) -> None:
    assert ModelServices(*settings).choices(agents_model) == expected


@pytest.mark.parametrize(
    ("base_url", "key"),
    [
        (None, "own"),
        ("https://api.openai.com/v1", "own"),
        ("https://API.openai.com:443/v1", "own"),
        ("http://api.openai.com/v1", None),
        ("https://api.openai.com:8443/v1", None),
        ("https://api.openai.com.evil.example/v1", None),
        ("https://evil.example/api.openai.com/v1", None),
        (LOCAL, None),
    ],
)
def test_a_key_goes_to_its_own_service_only(base_url: str | None, key: str | None) -> None:
    keys = {"openai": "own", "anthropic": "other"}
    [chosen] = ModelServices("openai:a", base_url, None, keys).choices("openai:a")
    assert chosen.api_key == key
    [chosen] = ModelServices("openai:a", base_url, "settings", keys).choices("openai:a")
    assert chosen.api_key == "settings"


def test_a_providers_key_is_used_where_the_settings_have_none() -> None:
    services = ModelServices("openai:a,anthropic:b", None, "k,", {"openai": "x", "anthropic": "y"})
    assert [each.api_key for each in services.choices("openai:a,anthropic:b")] == ["k", "y"]


@pytest.mark.parametrize(
    ("settings", "agents_model", "message"),
    [
        (("openai:a,openai:b", "u,v,w", None), "", "2 models have one or 2 addresses, not 3"),
        (("openai:a,openai:b,openai:c", None, "k,l"), "", "3 models have one or 3 keys, not 2"),
        (("openai:a,anthropic:b", None, "secret"), "", "a key is sent to one service only"),
        (("openai:a,openai:b", "u,v", "secret"), "", "a key is sent to one service only"),
        (("demo", None, "secret"), "openai:a,anthropic:b", "a key is sent to one service only"),
    ],
)
def test_settings_that_do_not_fit_together_are_refused(
    settings: tuple[str, str | None, str | None], agents_model: str, message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message) as raised:
        ModelServices(*settings).choices(agents_model or settings[0])
    assert "secret" not in raised.value.message


def test_one_key_does_not_follow_the_models_of_agents_to_several_services() -> None:
    services = ModelServices("demo", None, "secret")
    services.choices("openai:a")
    with pytest.raises(ConfigurationError, match="a key is sent to one service only"):
        services.choices("anthropic:b")


def test_a_key_is_not_shown_by_a_choice() -> None:
    [chosen] = ModelServices("openai:a", None, "secret").choices("openai:a")
    assert "secret" not in repr(chosen)


def test_an_unknown_demo_model_is_refused_with_the_known_ones() -> None:
    check_model_names("demo, demo:fast")
    with pytest.raises(ConfigurationError) as raised:
        check_model_names("demo,demo:slow")
    assert raised.value.message == (
        "no model is called 'demo:slow'; of the kind demo there are demo, demo:fast"
    )


@pytest.mark.parametrize(
    ("model", "hint"),
    [
        ("gpt-5", " (did you mean openai:gpt-5?)"),
        ("claude-sonnet-5", " (did you mean anthropic:claude-sonnet-5?)"),
        ("qwen3:32b", " (did you mean openai:qwen3:32b?)"),
        ("ollama:qwen3", " (did you mean openai:qwen3 with PASSBACK_MODEL_BASE_URL?)"),
        ("opneai:gpt-5", " (did you mean openai:gpt-5?)"),
        ("openai_responses:gpt-5", " (did you mean openai-responses:gpt-5?)"),
        ("Anthropic:x", " (did you mean anthropic:x?)"),
        ("dmeo", " (did you mean demo?)"),
        ("", ""),
    ],
)
def test_an_unknown_kind_is_refused_with_a_suggestion(model: str, hint: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        check_model_names(f"openai:a, {model}")
    assert raised.value.message == (
        f"no model is called {model!r}{hint}; "
        "a model is KIND:NAME, of the kinds demo, openai, openai-responses, anthropic"
    )
