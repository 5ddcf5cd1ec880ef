"""Slash commands: the built-in ones, and the agent's own."""

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import TypeAlias

from passback.core.commands import (
    Command,
    CommandCall,
    CommandContext,
    CommandHandler,
    parse_command,
)
from passback.core.context import Fitted
from passback.core.errors import UnknownCommand
from passback.core.events import RunEvent
from passback.core.messages import (
    Message,
    SummaryMessage,
    UserMessage,
    new_message_id,
)
from passback.core.posts import StartRun
from passback.core.state import State
from passback.core.text import replace_surrogates
from passback.core.transcript import is_command
from passback.core.values import value
from passback.engine.guarding import CallBroken, call_function, guarded

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
        # a message that was marked as a command stays one when commands are switched off later
        if not messages or not (self.enabled or is_command(messages[-1])):
            return None
        call = parse_command(messages[-1])
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
        call = parse_command(messages[-1]) if self.enabled and messages else None
        return call is not None and call.name in _SHORTENING and call.name not in self.own

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
                nothing = SummaryMessage(new_message_id(), "", keeps=0)
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


def state_after_command(state: State, call: CommandCall) -> State:
    """Return the state after a command: /clear removes the plan."""
    return replace(state, plan=()) if call.name == "clear" else state
