"""Options of an ACP session: what an editor is offered, and the value in force."""

from typing import Any

import pytest

from passback.core.conversation_settings import NO_SETTINGS, ConversationSettings
from passback.wire.acp.modes import efforts, options_view

MODELS = ("x:own", "x:other")


def values(settings: ConversationSettings, effort: str | None) -> dict[str, Any]:
    return {each["id"]: each["currentValue"] for each in options_view(settings, MODELS[:1], effort)}


def test_the_effort_is_offered_where_the_agent_has_one() -> None:
    assert [each["id"] for each in options_view(NO_SETTINGS, MODELS, None)] == ["mode", "model"]
    [*_, option] = options_view(NO_SETTINGS, MODELS, "medium")
    assert option == {
        "type": "select",
        "id": "effort",
        "name": "Effort",
        "category": "thought_level",
        "currentValue": "medium",
        "options": [
            {"value": "low", "name": "Low"},
            {"value": "medium", "name": "Medium"},
            {"value": "high", "name": "High"},
        ],
    }


@pytest.mark.parametrize(
    ("default", "offered"),
    [
        (None, []),
        ("low", ["low", "medium", "high"]),
        ("xhigh", ["xhigh", "low", "medium", "high"]),
    ],
)
def test_the_efforts_are_those_of_all_services_and_the_agents_own(
    default: str | None, offered: list[str]
) -> None:
    assert [*efforts(default)] == offered


@pytest.mark.parametrize(
    ("chosen", "default", "shown"),
    [
        ("", "medium", "medium"),
        ("high", "medium", "high"),
        ("max", "max", "max"),
        ("max", "low", "low"),  # it was the agent's own when it was chosen
        ("high", None, None),
    ],
)
def test_the_effort_in_force_is_the_chosen_one_or_the_agents_own(
    chosen: str, default: str | None, shown: str | None
) -> None:
    shown_values = values(ConversationSettings(effort=chosen), default)
    assert shown_values.get("effort") == shown
