"""Slash commands: what a user may say that no model has to hear. Pure."""

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from passback.core.errors import InvalidRequest
from passback.core.messages import Message, RunRef, SystemMessage, UserMessage, lone_text

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
    deps: object = field(default=None, repr=False)


Handler: TypeAlias = Callable[[str, CommandContext], str | Awaitable[str]]
"""Given a command's argument, gives the answer."""


@dataclass(frozen=True, slots=True)
class Command:
    """What people are told of a command."""

    name: str
    description: str


def refuse_company(posted: Sequence[Message], /) -> None:
    """Return if no command stands among other messages of a post: it would be answered, and they would not.

    Raises:
        InvalidRequest: one does.
    """
    said = [each for each in posted if isinstance(each, UserMessage | SystemMessage)]
    asked = [each for each in said if isinstance(each, UserMessage)]
    called = [each for each in asked if each.command]
    if called and (len(asked) > 1 or said[-1] not in called):
        raise InvalidRequest("a command has to be posted alone, without other messages of the user")


def command_in(message: Message, /) -> CommandCall | None:
    """The command that a message is, if it begins with a slash and a name; `/etc/hosts` is none."""
    text = lone_text(message.content) if isinstance(message, UserMessage) else None
    found = None if text is None else _CALLED.fullmatch(text)
    return None if found is None else CommandCall(found[1], (found[2] or "").strip())
