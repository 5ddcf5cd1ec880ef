"""Slash commands, which the server answers: the built-in ones, and the agent's own."""

import inspect
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from passback.core.context import Fitted
from passback.core.errors import InvalidRequest, UnknownCommand
from passback.core.events import RunEvent
from passback.core.ids import new_message_id
from passback.core.messages import (
    Message,
    RunRef,
    SummaryMessage,
    SystemMessage,
    UserMessage,
    single_text,
)
from passback.core.posts import StartRun
from passback.core.runs import Command
from passback.core.text import replace_surrogates
from passback.core.transcript import is_command
from passback.core.values import value
from passback.engine.guarding import CallBroken, call_function, guarded

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


Compact: TypeAlias = Callable[[], Awaitable[Fitted]]
"""Has what was said summed up."""

_HANDLER_TIMEOUT = 60.0  # for a command of the agent's author
_ANSWER_LENGTH = 64 * 1024  # characters of its answer
_BUILT_IN: Mapping[str, str] = {
    "help": "Lists the commands.",
    "clear": "Lets the agent forget what was said before; the history stays.",
    "compact": "Lets the agent sum up what was said before.",
}

# these shorten the history, so a conversation that is too large still takes them
_SHORTENING = frozenset({"clear", "compact"})


@value
class CommandReply:
    """A command's answer, and what it adds to the transcript before and after the answer."""

    text: str
    before: tuple[Message, ...] = ()
    events: tuple[RunEvent, ...] = ()
    after: tuple[Message, ...] = ()


@value
class Commands:
    """The commands of an agent.

    Args:
        own: the agent's commands by name; one with a built-in's name replaces it.
        enabled: texts may be commands.
    """

    own: Mapping[str, CommandHandler] = field(default_factory=dict[str, CommandHandler])
    enabled: bool = False

    @property
    def all_commands(self) -> Sequence[Command]:
        """All commands, sorted by name."""
        if not self.enabled:
            return ()
        described = {
            **_BUILT_IN,
            **{name: inspect.getdoc(handler) or "" for name, handler in self.own.items()},
        }
        return tuple(Command(name, described[name]) for name in sorted(described))

    def mark_commands(self, post: StartRun) -> StartRun:
        """Return the post with its commands marked as such. Raises UnknownCommand, as
        `last_command` does.
        """
        self.last_command(post.messages)
        if not self.enabled:
            return post
        messages = tuple(
            replace(each, command=True)
            if isinstance(each, UserMessage) and parse_command(each) is not None
            else each
            for each in post.messages
        )
        return post if messages == post.messages else replace(post, messages=messages)

    def last_command(self, messages: Sequence[Message]) -> CommandCall | None:
        """Return the command in the last message, or None.

        Raises:
            UnknownCommand: it looks like a command, and none has its name.
        """
        call = self._given(messages)
        if call is not None and call.name not in {*_BUILT_IN, *self.own}:
            names = ", ".join(f"/{command.name}" for command in self.all_commands)
            raise UnknownCommand(
                f"unknown command /{call.name}. Available: {names}. "
                "To send it as text, put a space in front"
            )
        return call

    def shortens_history(self, messages: Sequence[Message]) -> bool:
        """Return whether the last message is a built-in command that shortens what is read of a
        conversation.
        """
        call = self._given(messages)
        return call is not None and call.name in _SHORTENING and call.name not in self.own

    def _given(self, messages: Sequence[Message]) -> CommandCall | None:
        # a message that was marked as a command stays one when commands are switched off later
        if not messages or not (self.enabled or is_command(messages[-1])):
            return None
        return parse_command(messages[-1])

    def needs_model(self, call: CommandCall) -> bool:
        """Return whether a command needs the model."""
        return call.name == "compact" and call.name not in self.own

    async def run_command(
        self,
        call: CommandCall,
        context: CommandContext,
        compact: Compact,
    ) -> CommandReply:
        """Run a command. Raises ContextTooLarge, as `compact` does."""
        if call.name in self.own:
            try:
                with guarded("command", {"run_id": context.run.run_id}, _HANDLER_TIMEOUT):
                    text = str(await call_function(self.own[call.name], call.argument, context))
            except CallBroken as broken:
                return CommandReply(f"The command failed: {broken}.")
            return CommandReply(replace_surrogates(text)[:_ANSWER_LENGTH])
        match call.name:
            case "clear":
                nothing = SummaryMessage(new_message_id(context.run.key), "", keeps=0)
                return CommandReply(
                    "The agent has forgotten what was said before.", after=(nothing,)
                )
            case "compact":
                fitted = await compact()
                done = "What was said before is summed up."
                text = done if fitted.append else "There is nothing to sum up."
                return CommandReply(text, fitted.append, fitted.events)
            case _:
                lines = (f"/{each.name}  {each.description}" for each in self.all_commands)
                return CommandReply("\n".join(lines))
