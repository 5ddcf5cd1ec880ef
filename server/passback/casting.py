"""From what a user writes to what runs: agents with their models, tools and rules."""

import importlib
import logging
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace

from passback.agent import Agent, Fork
from passback.context.compaction import Compaction
from passback.core.budgets import Budget, price_of
from passback.core.errors import ConfigurationError
from passback.core.messages import CallId, ToolCall
from passback.core.permissions import Rule, by_pattern, decision_for
from passback.core.ports import ModelClient
from passback.core.questions import ASK_USER
from passback.core.toolsets import Connected, Instructing, Toolset
from passback.engine.agents import Agents, AgentSpec, ServedAgent
from passback.engine.commands import Commands
from passback.engine.guarding import CallBroken, guarded
from passback.engine.judging import Judge
from passback.engine.output import OutputJudge
from passback.engine.toolbox import ToolSources
from passback.models.choice import KINDS, Choice, Services, refuse_unknown
from passback.models.fallback import Fallback
from passback.schemas.arguments import objection
from passback.settings import Settings
from passback.toolsets.agents import AgentTool, AgentTools
from passback.toolsets.plan import PlanTools

_MODEL_SETTINGS = "PASSBACK_MODEL, PASSBACK_MODEL_BASE_URL, PASSBACK_MODEL_API_KEY"


class Casting:
    """Makes the agents of a server, and knows what they share."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._opened = Opened(settings)
        self._models: dict[int, ModelClient] = {}
        self._connected: dict[int, Connected] = {}
        self._with_tools: list[tuple[Agent, str, ToolSources]] = []

    @property
    def models(self) -> Sequence[ModelClient]:
        """Each once, the first agent's first; without those that a `Fallback` among them closes and checks."""
        models = self._models.values()
        within = {id(each) for one in models if isinstance(one, Fallback) for each in one.models}
        return tuple(one for one in models if id(one) not in within)

    @property
    def connected(self) -> Sequence[Connected]:
        """The toolsets with connections or processes, each once."""
        return tuple(self._connected.values())

    async def refuse_clashes(self) -> None:
        """Raises ConfigurationError when two tools of an agent have one name, also where it works for another."""
        for _agent, whose, tool_sources in self._with_tools:
            with named_in_errors(whose):
                await tool_sources.toolbox()

    async def unasked_writes(self) -> Sequence[str]:
        """Names of tools that may change something and that need no permission, of all agents, each once.

        A tool on which a function of its agent decides, call by call, is none of them, nor is what an agent brings by itself.
        """
        found: dict[str, None] = {}
        for agent, _whose, tool_sources in self._with_tools:
            for toolset in tool_sources.toolsets:
                if isinstance(toolset, AgentTools | PlanTools):
                    continue
                names = [spec.name for spec in await toolset.specs()]
                writing = (name for name in names if not toolset.is_read_only(name))
                found |= {name: None for name in writing if self._is_allowed(agent, toolset, name)}
        return tuple(found)

    def _is_allowed(self, agent: Agent, toolset: Toolset, name: str) -> bool:
        """Whether a tool may be called, whatever its arguments, as far as no function decides."""
        for decisions in (self._settings.permissions, agent.permissions):
            if callable(decisions):
                return False
            if decision := decision_for(name, decisions or {}):
                return decision == "allow"
        # a toolset of others may want to see the arguments of a call, and what cannot be judged is not made
        with suppress(CallBroken), guarded("permission", {"tool": name}, level=logging.DEBUG):
            return toolset.permission(ToolCall(CallId(""), name, "{}")).decision == "allow"
        return False

    def agents(self, given: Sequence[Agent]) -> Agents:
        """Raises ConfigurationError for agents that cannot work."""
        with named_in_errors("PASSBACK_MODELS"):
            for model in self._settings.models:
                refuse_unknown(model)
        names = [agent.name or "" for agent in given]
        for name in names:
            if names.count(name) > 1:
                raise ConfigurationError(
                    f"two agents are named {name!r}: give each a name of its own, as in Agent(name='other')"
                )
        return Agents([self._actor(agent, ()) for agent in given])

    def _actor(self, agent: Agent, callers: tuple[Agent, ...]) -> ServedAgent:
        if any(agent is caller for caller in callers):
            raise ConfigurationError(f"the agent {agent.name!r} calls itself")
        settings = self._settings
        top = not callers
        whose = f"the agent {agent.name!r}" if agent.name else "the agent"
        model = self._model(agent, whose)
        spec = AgentSpec(
            model,
            agent.told(settings.prompt if top else None),
            agent.max_turns or settings.max_turns,
            settings.max_futile_turns,
            agent.options,
            Judge(objection, self._rules(agent)),
            agent.deps,
            Compaction(self._window(agent)),
            Commands(agent.commands, self._settings.commands),
            OutputJudge(objection, agent.answer_schema(), agent.answer_check()),
            agent.layers(),
            agent.extra_prompt(),
            agent.tell_time,
            self._budget(agent),
            price_of(model.name, settings.prices),
        )
        with named_in_errors(whose):
            own = agent.own_toolsets()
        self._connected |= {id(one): one for one in own if isinstance(one, Connected)}
        toolsets = (*own, *self._delegates(agent, callers))
        tool_sources = ToolSources(
            toolsets,
            (ASK_USER,) if agent.ask_user else (),
            [one for one in own if isinstance(one, Instructing)],
        )
        self._with_tools.append((agent, whose, tool_sources))
        models = self._models_to_choose(agent, spec, whose) if top else dict[str, AgentSpec]()
        return ServedAgent(spec, tool_sources, agent.name or "", models)

    def _budget(self, agent: Agent) -> Budget:
        budget = agent.budget.within(self._settings.budget)
        if budget.limits_cost and not self._settings.prices:
            raise ConfigurationError("PASSBACK_PRICES: a limit of the cost needs prices")
        return budget

    def _delegates(self, agent: Agent, callers: tuple[Agent, ...]) -> Sequence[AgentTools]:
        tools = [self._delegate(other, (*callers, agent)) for other in agent.agents]
        return [AgentTools(tools)] if tools else []

    def _delegate(self, other: Agent | Fork, callers: tuple[Agent, ...]) -> AgentTool:
        if isinstance(other, Fork):
            return AgentTool.fork(other.name, other.description, concurrent=other.concurrent)
        actor = self._actor(other, callers)
        return AgentTool.of(actor, other.description, concurrent=other.concurrent)

    def _window(self, agent: Agent) -> int:
        """Tokens; 0: nothing is left out."""
        return self._settings.model_window if agent.window is None else agent.window

    def _rules(self, agent: Agent) -> Sequence[Rule]:
        """The server's word goes before the agent's."""
        server = self._settings.permissions
        return (*([by_pattern(server)] if server else []), *agent.rules())

    # ---------------------------------------------------------------- models
    def _model(self, agent: Agent, whose: str) -> ModelClient:
        """The agent's own client, or the one that a name such as `openai:gpt-5` or the settings say."""
        if isinstance(agent.model, ModelClient):
            return self._kept(agent.model)
        if agent.model is not None:
            with named_in_errors(f"{whose}: model"):
                return self._kept(self._opened.named(agent.model))
        with named_in_errors("PASSBACK_MODEL"):
            refuse_unknown(self._settings.model)
        with named_in_errors(_MODEL_SETTINGS):
            return self._kept(self._opened.named(self._settings.model))

    def _models_to_choose(
        self, agent: Agent, spec: AgentSpec, whose: str
    ) -> Mapping[str, AgentSpec]:
        """The brain with each model that a post may choose: its own ones, and those that are allowed beside them."""
        allowed: Sequence[ModelClient | str] = (
            self._settings.models if agent.models is None else agent.models
        )
        if not allowed:
            return {}
        own = spec.model.models if isinstance(spec.model, Fallback) else (spec.model,)
        whose = "PASSBACK_MODELS" if agent.models is None else f"{whose}: models"
        if agent.models is None:
            # an agent's own client stands for the model of the settings that has its name
            allowed = [each for each in allowed if each not in {one.name for one in own}]
        with named_in_errors(whose):
            others = [*map(self._kept, self._opened.each(allowed))]
            models = _by_name(own, others)
        return {name: self._thinking_with(one, spec) for name, one in models.items()}

    def _thinking_with(self, model: ModelClient, spec: AgentSpec) -> AgentSpec:
        if model is spec.model:
            return spec
        return replace(spec, model=model, price=price_of(model.name, self._settings.prices))

    def _kept(self, model: ModelClient) -> ModelClient:
        return self._models.setdefault(id(model), model)


class Opened:
    """The clients of models that have names, each once."""

    def __init__(self, settings: Settings) -> None:
        keys = {"openai": settings.openai_api_key, "anthropic": settings.anthropic_api_key}
        self._services = Services(
            settings.model, settings.model_base_url, settings.model_api_key, keys
        )
        self._timeout = settings.model_timeout
        self._clients: dict[Choice, ModelClient] = {}
        self._named: dict[str, ModelClient] = {}

    def named(self, names: str) -> ModelClient:
        """The model of a name such as `openai:gpt-5`; of several with commas, each stands in for the one before.

        Raises:
            ConfigurationError: there is no such kind of model, or it lacks a setting.
        """
        if names not in self._named:
            clients = self._clients_of(names)
            self._named[names] = clients[0] if len(clients) == 1 else Fallback(clients)
        return self._named[names]

    def each(self, models: Sequence[ModelClient | str]) -> Sequence[ModelClient]:
        """A client for each of the models, which are clients or single names. Raises as `named`."""
        names = [one for one in models if isinstance(one, str)]
        opened = iter(self._clients_of(",".join(names)) if names else ())
        return [next(opened) if isinstance(one, str) else one for one in models]

    def _clients_of(self, names: str) -> Sequence[ModelClient]:
        return [self._client(choice) for choice in self._services.choices(names)]

    def _client(self, choice: Choice) -> ModelClient:
        if choice not in self._clients:
            self._clients[choice] = importlib.import_module(KINDS[choice.kind].module).create(
                choice.name,
                base_url=choice.base_url,
                api_key=choice.api_key,
                timeout=self._timeout,
            )
        return self._clients[choice]


def _by_name(
    own: Sequence[ModelClient], others: Sequence[ModelClient]
) -> Mapping[str, ModelClient]:
    """Return an agent's models by their names; of one at several addresses, the first.

    Raises:
        ConfigurationError: another model has the name of one of them.
    """
    models: dict[str, ModelClient] = {}
    for one in own:
        models.setdefault(one.name, one)
    for one in others:
        if models.setdefault(one.name, one) is not one:
            raise ConfigurationError(f"two models are named {one.name!r}")
    return models


@contextmanager
def named_in_errors(whom: str) -> Generator[None]:
    """Name what is at fault, settings or an agent: the floors below do not know them."""
    try:
        yield
    except ConfigurationError as error:
        raise ConfigurationError(f"{whom}: {error.message}") from error
