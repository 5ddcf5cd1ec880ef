"""What the settings of the model mean, for one model and for several."""

import pytest

from passback.core.errors import ConfigurationError
from passback.models.choice import Choice, choices, kinds


def chosen(models: str, urls: str | None = None, keys: str | None = None) -> list[Choice]:
    return choices(models, urls, keys, keyless={"demo"})


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (("demo", None, None), [Choice("demo", "")]),
        (("openai:a:b", "u,v", "k,l"), [Choice("openai", "a:b", "u,v", "k,l")]),
        (
            ("openai:a, anthropic:b", None, "k, l"),
            [Choice("openai", "a", None, "k"), Choice("anthropic", "b", None, "l")],
        ),
        (
            ("openai:a,openai:b", None, "k"),
            [Choice("openai", "a", None, "k"), Choice("openai", "b", None, "k")],
        ),
        (
            ("openai:a,anthropic:b", "u", "k"),
            [Choice("openai", "a", "u", "k"), Choice("anthropic", "b", "u", "k")],
        ),
        (
            ("openai:a,openai:b", ",v", "k,"),
            [Choice("openai", "a", None, "k"), Choice("openai", "b", "v")],
        ),
        (
            ("openai:a,demo", None, "k"),
            [Choice("openai", "a", None, "k"), Choice("demo", "", None, "k")],
        ),
    ],
)
def test_each_model_has_its_address_and_key(
    settings: tuple[str, str | None, str | None], expected: list[Choice]
) -> None:
    assert chosen(*settings) == expected


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (("openai:a,openai:b", "u,v,w", None), "2 models have one or 2 addresses, not 3"),
        (("openai:a,openai:b,openai:c", None, "k,l"), "3 models have one or 3 keys, not 2"),
        (("openai:a,anthropic:b", None, "secret"), "one key is for one service"),
        (("openai:a,openai:b", "u,v", "secret"), "one key is for one service"),
    ],
)
def test_settings_that_do_not_fit_together_are_refused(
    settings: tuple[str, str | None, str | None], words: str
) -> None:
    with pytest.raises(ConfigurationError, match=words) as raised:
        chosen(*settings)
    assert "secret" not in raised.value.message


def test_a_key_is_not_shown_by_a_choice() -> None:
    assert "secret" not in repr(chosen("openai:a", None, "secret"))


def test_the_kinds_are_known_before_the_rest() -> None:
    assert kinds("openai:a, nonsense") == ["openai", "nonsense"]
