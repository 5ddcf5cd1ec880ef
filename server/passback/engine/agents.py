"""The agents that the engine runs: what a run needs to know of one, and which one a post asks."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import field, replace
from typing import TypeAlias

from pydantic import JsonValue

from passback.core.budgets import Budget, Price
from passback.core.context import Context, ContextPolicy, Unbounded
from passback.core.deltas import ModelDelta, ModelRequest
from passback.core.errors import UnknownAgent, UnknownModel
from passback.core.messages import (
    JsonObject,
    Message,
    MessageContext,
    ModelMessage,
    SystemMessage,
    UserMessage,
)
from passback.core.ports import ExtraPrompt, ModelClient, PromptBuilder
from passback.core.posts import StartRun
from passback.core.transcript import Asked, last_asked, unheard
from passback.core.values import value
from passback.engine.commands import Commands
from passback.engine.judging import Judge
from passback.engine.output import OutputJudge
from passback.engine.toolbox import Toolbox, ToolSources

Answering: TypeAlias = AbstractAsyncContextManager[AsyncIterator[Sequence[ModelDelta]]]


@value
class AgentSpec:
    """What thinks in a run: a model, told who it is, for at most so many turns.

    Args:
        max_futile_turns: how many turns in a row may make nothing but invalid calls, or give no answer that is accepted.
        judge: says which of its calls are made.
        deps: for its tools; the model cannot see it.
        context: decides what it is shown of a transcript that becomes too large for it.
        commands: what users may say without it.
        output: says whether its last word is what was asked for.
        builder: says how it is shown the words of others, and what was posted beside them; None: the words as they are.
        told: what it is told in one run only.
        tells_time: whether it is told when a message came.
        budget: limits its runs, and with them the sub-agents that work for it.
        price: of its model's tokens.
    """

    model: ModelClient
    prompt: str = ""
    max_turns: int = 20
    max_futile_turns: int = 3
    options: JsonObject = field(default_factory=dict[str, JsonValue])
    judge: Judge = field(default_factory=Judge)
    deps: object = field(default=None, repr=False)
    context: ContextPolicy = field(default_factory=Unbounded)
    commands: Commands = field(default_factory=Commands)
    output: OutputJudge = field(default_factory=OutputJudge)
    builder: PromptBuilder | None = None
    told: ExtraPrompt | None = None
    tells_time: bool = False
    budget: Budget = field(default_factory=Budget)
    price: Price = field(default_factory=Price)

    def seen(self, messages: Sequence[Message]) -> list[Message]:
        """A transcript with all that the model is told, as its words."""
        return list(messages if self.builder is None else map(self.builder.shown, messages))

    def is_large(self, append: Sequence[Message]) -> bool:
        """Return whether new messages end with one that may be too large to be shown, and that nothing can shorten."""
        last = append[-1] if append else None
        shown = isinstance(last, UserMessage | SystemMessage) and not unheard(last)
        return shown and self.context.is_large(self.seen(append))

    def watch(self, toolbox: Toolbox, told: str = "") -> Context:
        """What the model is to be shown in a run in which it is told so."""
        return self.context.watch(self.model, self._request(toolbox, (), None, told))

    def ask(
        self,
        toolbox: Toolbox,
        messages: Sequence[ModelMessage],
        schema: JsonObject | None = None,
        told: str = "",
    ) -> Answering:
        """The model's answer to what it is shown, begun by entering it."""
        return self.model.stream(self._request(toolbox, messages, schema, told))

    def _instructed(self, toolbox: Toolbox) -> str:
        said = toolbox.instructions
        return self.builder.instructed(said) if said and self.builder is not None else ""

    def _request(
        self,
        toolbox: Toolbox,
        messages: Sequence[ModelMessage],
        schema: JsonObject | None,
        told: str,
    ) -> ModelRequest:
        system, static = self.prompt, None
        if instructed := self._instructed(toolbox):
            told = f"{instructed}\n\n{told}" if told else instructed
        if told:
            system, static = "\n\n".join(filter(None, (system, told))), len(system)
        return ModelRequest(messages, system, toolbox.specs(), self.options, schema, static)


@value
class ServedAgent:
    """One agent.

    Args:
        name: what clients ask for it by.
        models: the same brain with each of the models that a post may choose, by their names; empty: it chooses none.
    """

    spec: AgentSpec
    tool_sources: ToolSources = field(default_factory=ToolSources)
    name: str = ""
    models: Mapping[str, AgentSpec] = field(default_factory=dict[str, AgentSpec])

    def with_model(self, name: str) -> "ServedAgent":
        """Return the agent with the model of a name; with its own for one that cannot be chosen any more."""
        spec = self.models.get(name)
        return self if spec is None else replace(self, spec=spec)

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

    def __init__(self, actors: Sequence[ServedAgent]) -> None:
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
        return replace(message, agent=agent, brief=None if brief == MessageContext() else brief)

    def named(self, name: str) -> ServedAgent:
        """The agent of a name, or the one that is asked by default. Raises UnknownAgent."""
        return self._actors.get(self._known(name), self._first)

    def asked_in(self, messages: Sequence[Message], before: Asked | None = None) -> ServedAgent:
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
