"""Slash commands: what a user may say that no model has to hear. Pure."""

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from passback.core.messages import Message, RunRef, UserMessage

NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_CALLED: Final = re.compile(rf"/({NAME.pattern})(?:\s+(.*))?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class CommandCall:
    """A command as the user gave it; `argument` is what follows its name."""

    name: str
    argument: str


@dataclass(frozen=True, slots=True)
class CommandContext:
    """Where a command was given: the run, with its conversation and that one's owner, and what the agent's author gave."""

    run: RunRef
    deps: object = None


Handler: TypeAlias = Callable[[str, CommandContext], str | Awaitable[str]]
"""Given a command's argument, gives the answer."""


@dataclass(frozen=True, slots=True)
class Command:
    """What people are told of a command."""

    name: str
    description: str


def command_in(message: Message, /) -> CommandCall | None:
    """The command that a message is, if it begins with a slash and a name; `/etc/hosts` is none."""
    if not isinstance(message, UserMessage) or not isinstance(message.content, str):
        return None
    found = _CALLED.fullmatch(message.content)
    return None if found is None else CommandCall(found[1], (found[2] or "").strip())
