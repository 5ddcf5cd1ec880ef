"""From what a user writes to what runs: agents with their models, tools and rules."""

import importlib
import logging
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress

from passback.agent import Agent, Fork
from passback.context.compaction import Compaction
from passback.core.errors import ConfigurationError
from passback.core.limits import Budget, price_of
from passback.core.messages import CallId, ToolCall
from passback.core.permissions import Rule, by_pattern, decision_for
from passback.core.ports import ModelClient
from passback.core.questions import ASK_USER
from passback.core.toolsets import Connected, Toolset
from passback.engine.agents import Actor, Agents
from passback.engine.brain import Brain
from passback.engine.calling import CallBroken, boundary
from passback.engine.commands import Commands
from passback.engine.judging import Judge
from passback.engine.output import OutputJudge
from passback.engine.toolbox import Equipment
from passback.models.choice import Choice, choices, kinds
from passback.models.fallback import Fallback
from passback.schemas.arguments import objection
from passback.settings import Settings
from passback.toolsets.agents import AgentTool, AgentTools
from passback.toolsets.plan import PlanTools

MODELS: Mapping[str, str] = {
    "demo": "passback.models.demo",
    "openai": "passback.models.openai_chat",
    "anthropic": "passback.models.anthropic",
}

KEYLESS_MODELS = frozenset({"demo"})


class Casting:
    """Makes the agents of a server, and knows what they share."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._opened: dict[str, ModelClient] = {}
        self._models: dict[int, ModelClient] = {}
        self._connected: dict[int, Connected] = {}
        self._equipped: list[tuple[Agent, str, Equipment]] = []

    @property
    def models(self) -> Sequence[ModelClient]:
        """Each once, the first agent's first."""
        return tuple(self._models.values())

    @property
    def connected(self) -> Sequence[Connected]:
        """The toolsets with connections or processes, each once."""
        return tuple(self._connected.values())

    async def refuse_clashes(self) -> None:
        """Raises ConfigurationError when two tools of an agent have one name, also where it works for another."""
        for _agent, whose, equipment in self._equipped:
            with blaming(whose):
                await equipment.toolbox()

    async def unasked_writes(self) -> Sequence[str]:
        """Names of tools that may change something and that need no permission, of all agents, each once.

        A tool on which a function of its agent decides, call by call, is none of them, nor is what an agent brings by itself.
        """
        found: dict[str, None] = {}
        for agent, _whose, equipment in self._equipped:
            for toolset in equipment.toolsets:
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
        with suppress(CallBroken), boundary("permission", {"tool": name}, level=logging.DEBUG):
            return toolset.permission(ToolCall(CallId(""), name, "{}")).decision == "allow"
        return False

    def agents(self, given: Sequence[Agent]) -> Agents:
        """Raises ConfigurationError for agents that cannot work."""
        names = [agent.name or "" for agent in given]
        for name in names:
            if names.count(name) > 1:
                raise ConfigurationError(f"two agents are named {name!r}")
        return Agents([self._actor(agent, ()) for agent in given])

    def _actor(self, agent: Agent, callers: tuple[Agent, ...]) -> Actor:
        if any(agent is caller for caller in callers):
            raise ConfigurationError(f"the agent {agent.name!r} calls itself")
        settings = self._settings
        top = not callers
        model = self._model(agent.model)
        brain = Brain(
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
            agent.run_context(),
            agent.tell_time,
            self._budget(agent),
            price_of(model.name, settings.prices),
        )
        whose = f"the agent {agent.name!r}" if agent.name else "the agent"
        with blaming(whose):
            own = agent.own_toolsets()
        self._connected |= {id(one): one for one in own if isinstance(one, Connected)}
        toolsets = (*own, *self._delegates(agent, callers))
        equipment = Equipment(toolsets, (ASK_USER,) if agent.ask_user else ())
        self._equipped.append((agent, whose, equipment))
        return Actor(brain, equipment, agent.name or "")

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

    def _model(self, model: ModelClient | str | None) -> ModelClient:
        """The agent's own client, or the one that a name such as `openai:gpt-5` or the settings say."""
        if model is None or isinstance(model, str):
            name = model or self._settings.model
            if name not in self._opened:
                self._opened[name] = open_model(name, self._settings)
            model = self._opened[name]
        self._models[id(model)] = model
        return model


def open_model(names: str, settings: Settings) -> ModelClient:
    """The model of a name such as `openai:gpt-5`; of several with commas, each stands in for the one before.

    Raises:
        ConfigurationError: there is no such kind of model, or it lacks a setting.
    """
    for kind in kinds(names):
        if kind not in MODELS:
            raise ConfigurationError(
                f"PASSBACK_MODEL: no model is called {kind!r}; there are {', '.join(MODELS)}"
            )
    with blaming("PASSBACK_MODEL, PASSBACK_MODEL_BASE_URL, PASSBACK_MODEL_API_KEY"):
        chosen = choices(
            names, settings.model_base_url, settings.model_api_key, keyless=KEYLESS_MODELS
        )
        clients = [_model_client(choice, settings.model_timeout) for choice in chosen]
    return clients[0] if len(clients) == 1 else Fallback(clients)


def _model_client(choice: Choice, timeout: float) -> ModelClient:
    client: ModelClient = importlib.import_module(MODELS[choice.kind]).create(
        choice.name, base_url=choice.base_url, api_key=choice.api_key, timeout=timeout
    )
    return client


@contextmanager
def blaming(whom: str) -> Generator[None]:
    """Name what is at fault, settings or an agent: the floors below do not know them."""
    try:
        yield
    except ConfigurationError as error:
        raise ConfigurationError(f"{whom}: {error.message}") from error
