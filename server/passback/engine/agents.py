"""The agents that the engine runs, by name, and the agent that a post addresses."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import field, replace
from typing import Final, TypeAlias

from pydantic import JsonValue

from passback.core.budgets import Budget, Price
from passback.core.context import ContextPolicy, ExtraPrompt, PromptBuilder, Unbounded
from passback.core.deltas import ModelDelta, ModelRequest
from passback.core.errors import UnknownAgent, UnknownModel, UnsupportedAttachment
from passback.core.messages import (
    ConversationKey,
    JsonObject,
    MediaPart,
    Medium,
    Message,
    MessageContext,
    SystemMessage,
    UserMessage,
)
from passback.core.ports import ModelClient
from passback.core.posts import StartRun
from passback.core.state import State
from passback.core.transcript import AddressedAgent, is_command, last_addressed_agent
from passback.core.values import value
from passback.engine.commands import Commands
from passback.engine.judging import CallJudge, OutputJudge
from passback.engine.toolbox import LentTools, Toolbox, ToolSources

DEFAULT_AGENT: Final = "default"
"""Means the first agent, for clients that have to name one."""

Answering: TypeAlias = AbstractAsyncContextManager[AsyncIterator[Sequence[ModelDelta]]]


# of each medium the form that is taken if any is: a common type, and not by its address
_EXAMPLES = (
    MediaPart("image", "data:image/png;base64,AAAA", "image/png"),
    MediaPart("audio", "data:audio/wav;base64,AAAA", "audio/wav"),
    MediaPart("file", "data:application/pdf;base64,AAAA", "application/pdf"),
)


@value
class TitleModel:
    """The model that writes titles of conversations, and the price of its tokens."""

    model: ModelClient
    price: Price = field(default_factory=Price)


@value
class AgentSpec:
    """Everything a run needs to know about its agent: model, prompt, limits, policies.

    Args:
        max_futile_turns: limit of successive turns with only invalid calls, or with a refused
            answer.
        judge: decides which calls are made.
        deps: passed to the agent's tools; the model cannot see it.
        context: selects what the model sees of a transcript that is too large for it.
        commands: commands that users may call without the model.
        output: checks whether the last answer is what was asked for.
        builder: formats messages and their context for the model; None: they are shown as they are.
        extra_prompt: text for one run, asked for once per run.
        tells_time: add the time of each message.
        budget: limits the agent's runs, with the sub-agents that work for it.
        price: of the model's tokens.
        titles: writes the titles of its conversations; None: they keep the first message's.
    """

    model: ModelClient
    prompt: str = ""
    max_turns: int = 20
    max_futile_turns: int = 3
    options: JsonObject = field(default_factory=dict[str, JsonValue])
    judge: CallJudge = field(default_factory=CallJudge)
    deps: object = field(default=None, repr=False)
    context: ContextPolicy = field(default_factory=Unbounded)
    commands: Commands = field(default_factory=Commands)
    output: OutputJudge = field(default_factory=OutputJudge)
    builder: PromptBuilder | None = None
    extra_prompt: ExtraPrompt | None = None
    tells_time: bool = False
    budget: Budget = field(default_factory=Budget)
    price: Price = field(default_factory=Price)
    titles: TitleModel | None = None

    def seen(self, messages: Sequence[Message]) -> list[Message]:
        """Return the messages as the model sees them, with their context as text."""
        return list(messages if self.builder is None else map(self.builder.shown, messages))

    def is_large(self, append: Sequence[Message]) -> bool:
        """Return whether new messages end with one that may be too large for the model and that
        nothing can shorten.
        """
        last = append[-1] if append else None
        shown = isinstance(last, UserMessage | SystemMessage) and not is_command(last)
        return shown and self.context.is_large(self.seen(append))

    def refuse_attachments(self, append: Sequence[Message]) -> None:
        """Raise `UnsupportedAttachment` for the first attachment in new messages that the model
        does not take.
        """
        for message in append:
            if not isinstance(message, UserMessage | SystemMessage):
                continue
            if isinstance(message.content, str):
                continue
            for part in message.content:
                if isinstance(part, MediaPart) and (why := self.model.refuses(part)):
                    raise UnsupportedAttachment(
                        f"this agent cannot take an attachment of type {part.type!r}: {why}",
                        details={"type": part.type},
                    )

    @property
    def media(self) -> frozenset[Medium]:
        """The media that the model takes, if not in every form."""
        return frozenset(each.type for each in _EXAMPLES if self.model.refuses(each) is None)

    def request_frame(self, toolbox: Toolbox, extra: str = "") -> ModelRequest:
        """Return a request without messages: what all requests of a run share, whose extra prompt
        is `extra`.
        """
        system, static = self.prompt, None
        said, builder = toolbox.instructions, self.builder
        if said and builder is not None and (instructed := builder.instructed(said)):
            extra = f"{instructed}\n\n{extra}" if extra else instructed
        # what changes from run to run comes last, so that the provider can cache what is before it
        if extra:
            system, static = "\n\n".join(filter(None, (system, extra))), len(system)
        return ModelRequest((), system, tools=toolbox.specs(), options=self.options, static=static)


@value
class ServedAgent:
    """One agent of the server.

    Args:
        name: clients address the agent by it.
        models: the same spec with each model that a post may choose, by name; empty: no choice.
    """

    spec: AgentSpec
    tool_sources: ToolSources = field(default_factory=ToolSources)
    name: str = ""
    models: Mapping[str, AgentSpec] = field(default_factory=dict[str, AgentSpec])

    def full_model_name(self, name: str) -> str:
        """Return the full name of the model that a post chooses; empty if there is no choice.

        The provider may be left out of a name where one model remains. The name of the agent's own
        model means no choice if it stands for several, each of which may be chosen.

        Raises:
            UnknownModel: no model has this name, or several have.
        """
        if not self.models or name in self.models:
            return name if self.models else ""
        if name == self.spec.model.name:
            return ""
        # full names are provider:model
        meant = [each for each in self.models if each.partition(":")[2] == name]
        if len(meant) != 1:
            raise UnknownModel(
                f"no model of this name can be chosen here: choose one of {', '.join(self.models)}",
                details={"models": list(self.models)},
            )
        return meant[0]


class Agents:
    """The agents of a server by name; a post that names none addresses the first.

    `default` means the first, too, where no agent has this name: some clients have to name one.

    Attributes:
        lent: the tools that conversations have beside those of the agents.
    """

    def __init__(self, agents: Sequence[ServedAgent]) -> None:
        self.lent = LentTools()
        self._agents = {agent.name: agent for agent in agents}
        self._first = agents[0]

    def with_full_names(self, post: StartRun) -> StartRun:
        """Return a post with full agent and model names, without those that mean nothing here.

        Raises:
            UnknownAgent: the server has no agent of that name.
            UnknownModel: the agent has no such model.
        """
        messages = list(post.messages)
        for place, message in enumerate(messages):
            if not isinstance(message, UserMessage):
                continue
            context = message.context
            model = "" if context is None else context.model
            if not message.agent and not model:
                continue
            agent = self.agent_named(message.agent)
            if context is not None and model:
                context = replace(context, model=agent.full_model_name(model))
            context = None if context == MessageContext() else context
            is_named = len(self._agents) > 1 and message.agent in self._agents
            name = message.agent if is_named else ""
            messages[place] = replace(message, agent=name, context=context)
        addressed = tuple(messages)
        return post if addressed == post.messages else replace(post, messages=addressed)

    @property
    def names(self) -> Sequence[str]:
        """The names, that of the default agent first; empty for an agent without one."""
        return tuple(self._agents)

    def agent_named(self, name: str) -> ServedAgent:
        """Return the agent of a name, or the default agent. Raises UnknownAgent."""
        if not name:
            return self._first
        if name in self._agents:
            return self._agents[name]
        if name == DEFAULT_AGENT:
            return self._first
        raise UnknownAgent(
            "this server has no agent of that name: name one that GET /agents lists; without a "
            f"name, or as {DEFAULT_AGENT!r}, the first one answers"
        )

    def addressed_agent(
        self, key: ConversationKey, messages: Sequence[Message], state: State | None = None
    ) -> ServedAgent:
        """Return the agent that the user addressed last, with the model that was chosen, and with
        the tools that are lent to the conversation `key`.

        `state` is that of the conversation before the first of the messages.

        Raises:
            UnknownAgent: that agent is on another server.
        """
        asked = last_addressed_agent(messages)
        if asked is None:
            asked = AddressedAgent() if state is None else state.addressed_agent
        try:
            agent = self.agent_named(asked.agent)
        except UnknownAgent:
            raise UnknownAgent(
                "the agent that was asked last here is not on this server; "
                "send a message to another agent to continue"
            ) from None
        sources = agent.tool_sources
        if asked.answered is not None:
            sources = replace(sources, answered=asked.answered)
        if loans := self.lent.loans(key):
            sources = replace(sources, loans=loans)
        if sources is not agent.tool_sources:
            agent = replace(agent, tool_sources=sources)
        # the model may have been configured away since it was chosen
        spec = agent.models.get(asked.model)
        return agent if spec is None else replace(agent, spec=spec)
