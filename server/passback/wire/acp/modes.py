"""Permission modes of a session, and its options as the editor shows them. Pure."""

from collections.abc import Mapping, Sequence
from typing import Final, Literal

from passback.core.conversation_settings import ConversationSettings
from passback.core.errors import InvalidRequest
from passback.core.messages import EFFORTS
from passback.wire.acp.client_tools import RUN_COMMAND
from passback.wire.acp.updates import Update

_MODES: Final[Mapping[str, tuple[str, str]]] = {
    "ask": ("Ask", "Asks before files are changed and commands are run"),
    "accept_edits": ("Accept edits", "Files are changed without asking; commands ask"),
    "bypass": ("Bypass permissions", "Nothing asks"),
    "plan": ("Plan", "No file is changed and no command is run"),
}
_DEFAULT: Final = "ask"


def check_mode(mode: str, /) -> str:
    """Return a mode that the client has chosen. Raises InvalidRequest if there is none such."""
    if mode not in _MODES:
        raise InvalidRequest(f"there is no such mode; the modes are {', '.join(_MODES)}")
    return mode


def mode_of(settings: ConversationSettings, /) -> str:
    """Return the mode of a conversation, also of one that another protocol has set up."""
    return settings.mode if settings.mode in _MODES else _DEFAULT


def standing_decision(
    settings: ConversationSettings, tool: str, /
) -> Literal["allow", "deny"] | None:
    """Return the decision on a call of a tool of the editor's that changes something.

    None: the person is asked.
    """
    mode = mode_of(settings)
    lasting = dict(settings.decisions).get(tool)
    if mode == "plan" or lasting == "deny":
        return "deny"
    edits = mode == "accept_edits" and tool != RUN_COMMAND.name
    return "allow" if mode == "bypass" or edits or lasting == "allow" else None


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
