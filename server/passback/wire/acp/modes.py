"""Permission modes of a session, and its options as the editor shows them. Pure."""

from collections.abc import Mapping, Sequence
from typing import Final, Literal, TypeAlias

from passback.core.conversation_settings import ConversationSettings
from passback.core.errors import InvalidRequest
from passback.core.messages import EFFORTS
from passback.wire.acp.client_tools import Change, paths_of
from passback.wire.acp.updates import Update

Lasting: TypeAlias = Literal["allow", "deny"]

_MODES: Final[Mapping[str, tuple[str, str]]] = {
    "ask": ("Ask", "Asks before files are changed and commands are run"),
    "accept_edits": ("Accept edits", "Files in the session's folders are changed without asking"),
    "bypass": ("Bypass permissions", "Nothing asks"),
    "plan": ("Plan", "No file is changed and no command is run"),
}
_DEFAULT: Final = "ask"
_MOST_DECISIONS: Final = 200  # of each kind, so that they fit in the settings


def check_mode(mode: str, /) -> str:
    """Return a mode that the client has chosen. Raises InvalidRequest if there is none such."""
    if mode not in _MODES:
        raise InvalidRequest(f"there is no such mode; the modes are {', '.join(_MODES)}")
    return mode


def mode_of(settings: ConversationSettings, /) -> str:
    """Return the mode of a conversation, also of one that another protocol has set up."""
    return settings.mode if settings.mode in _MODES else _DEFAULT


def standing_decision(settings: ConversationSettings, change: Change, /) -> Lasting | None:
    """Return the decision on a call that changes something; None: the person is asked."""
    mode = mode_of(settings)
    lasting = dict(settings.decisions).get(change.key)
    if mode == "plan" or lasting == "deny":
        return "deny"
    edits = mode == "accept_edits" and change.path is not None and _is_within(settings, change.path)
    return "allow" if mode == "bypass" or edits or lasting == "allow" else None


def _is_within(settings: ConversationSettings, path: str) -> bool:
    """Return whether a path is in one of the folders of a session, as it is spelt."""
    rules = paths_of(settings.cwd)
    wanted = rules.normcase(rules.normpath(path))
    for each in (settings.cwd, *settings.directories):
        folder = rules.normcase(rules.normpath(each))
        if wanted.startswith(rules.join(folder, "")):
            return True
    return False


def with_decision(
    settings: ConversationSettings, change: Change, lasting: Lasting, /
) -> tuple[tuple[str, Lasting], ...]:
    """Return the lasting decisions of a session with a new one, the oldest ones dropped."""
    others = [each for each in settings.decisions if each[0] != change.key]
    same = [each for each in others if each[1] == lasting]
    dropped = set(same[: max(0, len(same) + 1 - _MOST_DECISIONS)])
    return (*(each for each in others if each not in dropped), (change.key, lasting))


def modes_view(settings: ConversationSettings, /) -> Update:
    """Return the modes and the one in force (`modes` of the protocol)."""
    return {
        "currentModeId": mode_of(settings),
        "availableModes": [
            {"id": mode, "name": name, "description": text} for mode, (name, text) in _MODES.items()
        ],
    }


def efforts(default: str | None, /) -> Sequence[str]:
    """Return the efforts of reasoning that may be chosen; `default` is the agent's own."""
    if default is None:
        return ()
    return EFFORTS if default in EFFORTS else (default, *EFFORTS)


def options_view(
    settings: ConversationSettings, models: Sequence[str], effort: str | None = None, /
) -> list[Update]:
    """Return all options and their values (`configOptions` of the protocol).

    Args:
        settings: of the conversation.
        models: that may be chosen, the agent's own first.
        effort: of reasoning, by default; None if none can be chosen.
    """
    options = [
        _select(
            "mode",
            "Permissions",
            "mode",
            mode_of(settings),
            {mode: name for mode, (name, _) in _MODES.items()},
        )
    ]
    if len(models) > 1:
        chosen = settings.model if settings.model in models else models[0]
        options.append(_select("model", "Model", "model", chosen, {one: one for one in models}))
    if effort is not None:
        choices = efforts(effort)
        chosen = settings.effort if settings.effort in choices else effort
        labels = {one: one.capitalize() for one in choices}
        options.append(_select("effort", "Effort", "thought_level", chosen, labels))
    return options


def _select(
    option_id: str, name: str, category: str, current: str, choices: Mapping[str, str]
) -> Update:
    return {
        "type": "select",
        "id": option_id,
        "name": name,
        "category": category,
        "currentValue": current,
        "options": [{"value": each, "name": label} for each, label in choices.items()],
    }
