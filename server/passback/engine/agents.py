"""The agents of a server: what thinks in a run, and what it brings along."""

from collections.abc import Sequence
from dataclasses import field, replace

from passback.core.errors import UnknownAgent
from passback.core.messages import Message, UserMessage
from passback.core.posts import StartRun
from passback.core.transcript import last_asked
from passback.core.values import value
from passback.engine.brain import Brain
from passback.engine.toolbox import Equipment


@value
class Actor:
    """One agent. `name` is what clients ask for it by."""

    brain: Brain
    equipment: Equipment = field(default_factory=Equipment)
    name: str = ""


class Agents:
    """The agents of a server by their names; the first is asked where a post names none.

    A server with one agent has it answer to every name: there is a protocol whose path has to hold one.
    """

    def __init__(self, actors: Sequence[Actor]) -> None:
        self._actors = {actor.name: actor for actor in actors}
        self._first = actors[0]

    def addressed(self, post: StartRun) -> StartRun:
        """A post as it is to be kept: without a name that means nothing here. Raises UnknownAgent."""
        if not any(isinstance(each, UserMessage) and each.agent for each in post.messages):
            return post
        messages = (
            replace(each, agent=self._known(each.agent)) if isinstance(each, UserMessage) else each
            for each in post.messages
        )
        return replace(post, messages=tuple(messages))

    def named(self, name: str) -> Actor:
        """The agent of a name, or the one that is asked by default. Raises UnknownAgent."""
        return self._actors.get(self._known(name), self._first)

    def asked_in(self, messages: Sequence[Message], before: str = "") -> Actor:
        """The agent that the user asked last. Raises UnknownAgent when it is another server's.

        `before` is the name of the one that was asked before the first of the messages.
        """
        asked = last_asked(messages)
        try:
            return self.named(before if asked is None else asked)
        except UnknownAgent:
            raise UnknownAgent(
                "the agent that was asked last here is not on this server; a message to another one goes on"
            ) from None

    def _known(self, name: str) -> str:
        if not name or len(self._actors) == 1:
            return ""
        if name not in self._actors:
            raise UnknownAgent("this server has no agent of that name")
        return name
