"""Slash commands: messages of the user that the server answers and no model sees. Pure."""

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from passback.core.errors import InvalidRequest
from passback.core.messages import Message, RunRef, SystemMessage, UserMessage, single_text

COMMAND_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_COMMAND_TEXT: Final = re.compile(rf"/({COMMAND_NAME.pattern})(?:\s+(.*))?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class CommandCall:
    """A command that a user gave. `argument` is the text after its name."""

    name: str
    argument: str


@dataclass(frozen=True, slots=True)
class CommandContext:
    """The run in which a command was given, and the agent's `deps`."""

    run: RunRef
    deps: object = field(default=None, repr=False)


CommandHandler: TypeAlias = Callable[[str, CommandContext], str | Awaitable[str]]
"""A command's function: takes its argument and context, returns the answer."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command's name and description, as users see them."""

    name: str
    description: str


def refuse_accompanied_command(posted: Sequence[Message], /) -> None:
    """Check that a command is posted alone: it alone would be answered.

    Raises:
        InvalidRequest: the post has a command beside other messages of the user, or before another
            message.
    """
    commands = [each for each in posted if isinstance(each, UserMessage) and each.command]
    if not commands:
        return
    texts = [each for each in posted if isinstance(each, UserMessage | SystemMessage)]
    of_user = [each for each in texts if isinstance(each, UserMessage)]
    # system messages may stand before a command, as clients post them with every request
    if len(of_user) > 1 or texts[-1] not in commands:
        raise InvalidRequest("a command has to be posted alone, without other user messages")


def parse_command(message: Message, /) -> CommandCall | None:
    """Return the command in a message: a slash, a name, perhaps an argument.

    None if the message is something else, such as `/etc/hosts`.
    """
    text = single_text(message.content) if isinstance(message, UserMessage) else None
    found = None if text is None else _COMMAND_TEXT.fullmatch(text)
    return None if found is None else CommandCall(found[1], (found[2] or "").strip())
