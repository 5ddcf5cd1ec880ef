"""Modes and options of an ACP session: what is decided by them, and what an editor is offered."""

from typing import Any

import pytest

from passback.core.conversation_settings import (
    NO_SETTINGS,
    SETTINGS_BYTES,
    ConversationSettings,
    dump_settings,
)
from passback.wire.acp.client_tools import Change
from passback.wire.acp.commands import command_key
from passback.wire.acp.modes import (
    Lasting,
    efforts,
    mode_of,
    options_view,
    standing_decision,
    with_decision,
)

MODELS = ("x:own", "x:other")
WRITE = Change("write_text_file", "in this session", "/srv/project/a.py")
RUN = Change("run_command 5", "this command")


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


# ---------------------------------------------------------------- decisions
@pytest.mark.parametrize(
    ("mode", "lasting", "change", "decision"),
    [
        ("", None, WRITE, None),
        ("ask", "allow", WRITE, "allow"),
        ("ask", "deny", WRITE, "deny"),
        ("accept_edits", None, WRITE, "allow"),
        ("accept_edits", None, RUN, None),
        ("accept_edits", "allow", RUN, "allow"),
        ("accept_edits", "deny", WRITE, "deny"),
        ("plan", "allow", WRITE, "deny"),
        ("bypass", None, RUN, "allow"),
        ("bypass", "deny", RUN, "deny"),
        ("of another protocol", None, RUN, None),
    ],
)
def test_a_mode_and_lasting_decisions(
    mode: str, lasting: Any, change: Change, decision: str | None
) -> None:
    decisions = () if lasting is None else ((change.key, lasting),)
    settings = ConversationSettings(cwd="/srv/project", mode=mode, decisions=decisions)
    assert standing_decision(settings, change) == decision
    other = Change("other", "in this session", change.path)
    standing = ConversationSettings(cwd="/srv/project", mode=mode)
    assert standing_decision(settings, other) == standing_decision(standing, other)


@pytest.mark.parametrize(
    ("cwd", "path", "is_within"),
    [
        ("/srv/project", "/srv/project/a/../b.py", True),
        ("/srv/project/", "/srv/project/b.py", True),
        ("/srv/project/../project", "/srv/project/b.py", True),
        ("/", "/etc/passwd", True),
        ("/srv/project", "/srv/project/../b.py", False),
        ("/srv/project", "/srv/project2/b.py", False),
        ("/srv/project", "/srv/PROJECT/b.py", False),
        ("/srv/project", "/srv/more/b.py", True),
        ("/srv/project", "/etc/passwd", False),
        ("", "/srv/b.py", False),
        ("C:\\Project", "c:/project/a/b.py", True),
        ("C:\\Project", "C:\\PROJECT\\b.py", True),
        ("C:\\Project", "C:\\Project\\..\\b.py", False),
        ("C:\\Project", "D:\\Project\\b.py", False),
    ],
)
def test_edits_are_accepted_in_the_folders_of_the_session(
    cwd: str, path: str, is_within: bool
) -> None:
    settings = ConversationSettings(cwd=cwd, directories=("/srv/more",), mode="accept_edits")
    change = Change("write_text_file", "in this session", path)
    assert (standing_decision(settings, change) == "allow") is is_within


def decided(*decisions: tuple[str, Lasting]) -> ConversationSettings:
    settings = NO_SETTINGS
    for key, lasting in decisions:
        kept = with_decision(settings, Change(key, "this command"), lasting)
        settings = ConversationSettings(decisions=kept)
    return settings


def test_a_new_decision_takes_the_place_of_an_earlier_one() -> None:
    settings = decided(("a", "allow"), ("b", "allow"), ("a", "deny"))
    assert settings.decisions == (("b", "allow"), ("a", "deny"))


def test_the_oldest_decisions_are_dropped_of_each_kind() -> None:
    keys = [command_key({"command": str(number)}, "/srv") for number in range(250)]
    denied = decided(("never", "deny"), *((key, "allow") for key in keys))
    assert denied.decisions == (("never", "deny"), *((key, "allow") for key in keys[-200:]))
    both = decided(*denied.decisions, *((f"{key}!", "deny") for key in keys))
    assert len(both.decisions) == 400
    assert len(dump_settings(both)) < SETTINGS_BYTES * 3 // 4


def test_what_another_protocol_has_set_is_shown_as_the_default() -> None:
    settings = ConversationSettings(mode="sesame", model="sesame")
    assert mode_of(settings) == "ask"
    _, model = options_view(settings, ["one", "two"])
    assert model["currentValue"] == "one"


# ---------------------------------------------------------------- effort
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
