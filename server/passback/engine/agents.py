"""The agents of a server: what thinks in a run, and what it brings along."""

from collections.abc import Mapping, Sequence
from dataclasses import field, replace

from passback.core.errors import UnknownAgent, UnknownModel
from passback.core.messages import Brief, Message, UserMessage
from passback.core.posts import StartRun
from passback.core.transcript import Asked, last_asked
from passback.core.values import value
from passback.engine.brain import Brain
from passback.engine.toolbox import Equipment


@value
class Actor:
    """One agent.

    Args:
        name: what clients ask for it by.
        models: the same brain with each of the models that a post may choose, by their names; empty: it chooses none.
    """

    brain: Brain
    equipment: Equipment = field(default_factory=Equipment)
    name: str = ""
    models: Mapping[str, Brain] = field(default_factory=dict[str, Brain])

    def with_model(self, name: str) -> "Actor":
        """Return the agent with the model of a name; with its own for one that cannot be chosen any more."""
        brain = self.models.get(name)
        return self if brain is None else replace(self, brain=brain)

    def model_named(self, name: str) -> str:
        """Return the whole name of the model that a post chooses, empty where it has no choice.

        A name may stand without its provider where that leaves one model.

        Raises:
            UnknownModel: it names none, or several.
        """
        if not self.models or name in self.models:
            return name if self.models else ""
        meant = [each for each in self.models if each.partition(":")[2] == name]
        if len(meant) != 1:
            raise UnknownModel(
                f"no model of this name can be chosen here: choose one of {', '.join(self.models)}",
                details={"models": list(self.models)},
            )
        return meant[0]


class Agents:
    """The agents of a server by their names; the first is asked where a post names none.

    A server with one agent has it answer to every name: there is a protocol whose path has to hold one.
    """

    def __init__(self, actors: Sequence[Actor]) -> None:
        self._actors = {actor.name: actor for actor in actors}
        self._first = actors[0]

    def addressed(self, post: StartRun) -> StartRun:
        """Return a post as it is to be kept: with whole names, and without those that mean nothing here.

        Raises UnknownAgent or UnknownModel.
        """
        if not any(isinstance(each, UserMessage) and _names(each) for each in post.messages):
            return post
        messages = (
            self._addressed(each) if isinstance(each, UserMessage) else each
            for each in post.messages
        )
        return replace(post, messages=tuple(messages))

    def _addressed(self, message: UserMessage) -> UserMessage:
        agent, brief = self._known(message.agent), message.brief
        if brief is not None and brief.model:
            brief = replace(brief, model=self.named(agent).model_named(brief.model))
        return replace(message, agent=agent, brief=None if brief == Brief() else brief)

    def named(self, name: str) -> Actor:
        """The agent of a name, or the one that is asked by default. Raises UnknownAgent."""
        return self._actors.get(self._known(name), self._first)

    def asked_in(self, messages: Sequence[Message], before: Asked | None = None) -> Actor:
        """The agent that the user asked last, with the model that was chosen. Raises UnknownAgent when it is another server's.

        `before` is who was asked before the first of the messages.
        """
        agent, model = last_asked(messages) or before or Asked()
        try:
            return self.named(agent).with_model(model)
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


def _names(message: UserMessage) -> bool:
    """Return whether a message says who is to answer it."""
    return bool(message.agent or (message.brief is not None and message.brief.model))
