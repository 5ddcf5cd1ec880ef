"""The part of an application without HTTP: the store, the agents and their runs.

`AgentBuilder` builds the served agents from a user's: their models, tools and rules.
"""

import importlib
import logging
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import fields, replace
from typing import Any, TypeVar, cast

import anyio

from passback.agent import Agent, Fork
from passback.context.compaction import Compaction
from passback.core.budgets import model_price
from passback.core.errors import ConfigurationError, ToolsetUnavailable
from passback.core.messages import CallId, ToolCall
from passback.core.permissions import decision_for, pattern_rule
from passback.core.ports import ModelClient
from passback.core.questions import ASK_USER
from passback.core.toolsets import ConnectedToolset, Instructing, Toolset
from passback.engine.agents import Agents, AgentSpec, ServedAgent, TitleModel
from passback.engine.commands import Commands
from passback.engine.guarding import CallBroken, guarded
from passback.engine.judging import CallJudge, OutputJudge
from passback.engine.ledger import Ledger
from passback.engine.service import RunService
from passback.engine.supervisor import HEARTBEAT, Timing
from passback.engine.toolbox import ToolSources
from passback.http.wires import PartialBodies, RequestLimits
from passback.models.choice import MODEL_KINDS, ModelChoice, ModelServices, check_model_names
from passback.models.fallback import Fallback
from passback.schemas.arguments import find_objection
from passback.settings import Settings
from passback.stores.open import open_store
from passback.toolsets.agents import AgentTool, AgentTools
from passback.toolsets.plan import PlanTools

_MODEL_SETTINGS = "PASSBACK_MODEL, PASSBACK_MODEL_BASE_URL, PASSBACK_MODEL_API_KEY"


class Backend:
    """The store, the models, the toolsets and the runs, and their lifetime.

    Raises:
        ConfigurationError: settings or agents that cannot work.
    """

    def __init__(self, settings: Settings, agents: Sequence[Agent]) -> None:
        with named_in_errors("PASSBACK_STORE"):
            self.ledger = Ledger(open_store(settings.store, options=settings.store_options))
        builder = AgentBuilder(settings)
        self.runs = RunService(
            self.ledger,
            builder.agents(agents or (Agent(),)),
            _from_parts(
                Timing,
                settings,
                heartbeat=min(HEARTBEAT, settings.timing.lease / 3),
                tool_timeout=settings.tool_timeout,
            ),
        )
        self.models = builder.models
        self.connected = builder.connected
        self.refuse_clashes = builder.refuse_clashes
        self.unasked_writes = builder.unasked_writes

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[Sequence[str]]:
        """Connect the store and the toolsets and run the runs; yield warnings about them.

        Raises:
            ConfigurationError: the store cannot be used, or two tools of an agent have one name.
            StoreError: the store cannot be used.
        """
        async with AsyncExitStack() as stack:
            for model in self.models:
                stack.push_async_callback(model.aclose)
            with named_in_errors("PASSBACK_STORE"):
                await stack.enter_async_context(self.ledger)
                warnings = await self.ledger.check()
            for one in self.connected:
                await stack.enter_async_context(one.running())
            warnings = [*warnings, *await _wait_until_ready(self.connected)]
            await self.refuse_clashes()  # a server's tools are known only after it is connected
            await stack.enter_async_context(self.runs.running())
            yield warnings


def request_limits(settings: Settings, /) -> RequestLimits:
    """Return the limits for one request, or one call from Python."""
    return _from_parts(
        RequestLimits,
        settings,
        send_seconds=settings.timing.send_timeout,
        key_seconds=settings.timing.key_timeout,
    )


def bodies_of(settings: Settings, /) -> PartialBodies:
    """Return the limits for all request bodies in memory; a single owner may use all of it."""
    limits = settings.limits
    most = max(limits.bodies_bytes, limits.body_bytes)
    are_several = len(set(settings.api_keys.values())) > 1
    share = max(most // 2, limits.body_bytes) if are_several else most
    return PartialBodies(most, share)


async def _wait_until_ready(toolsets: Sequence[ConnectedToolset]) -> Sequence[str]:
    """Wait for all toolsets concurrently and return their warnings.

    A toolset that cannot be used is a warning only: it may become available later.
    """
    warnings: list[str] = []

    async def wait(one: ConnectedToolset) -> None:
        try:
            warnings.extend(await one.ready())
        except ToolsetUnavailable as error:
            warnings.append(f"{error.message}; its tools are left out until it can be")

    async with anyio.create_task_group() as tasks:
        for one in toolsets:
            tasks.start_soon(wait, one)
    return warnings


_ValueT = TypeVar("_ValueT")


def _from_parts(kind: Callable[..., _ValueT], settings: Settings, /, **others: object) -> _ValueT:
    """Build a dataclass: its fields are parts of the limits and the timing by name, or `others`."""
    wanted = {one.name for one in fields(cast("Any", kind))}
    return kind(
        **others,
        **{
            name: getattr(group, name)
            for group in (settings.limits, settings.timing)
            for name in wanted & {one.name for one in fields(group)}
        },
    )


class AgentBuilder:
    """Build the agents of a server, and own the models and toolsets that they share."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._clients = ModelClients(settings)
        self._models: dict[int, ModelClient] = {}
        self._connected: dict[int, ConnectedToolset] = {}
        self._tool_owners: list[tuple[Agent, str, ToolSources]] = []

    @property
    def models(self) -> Sequence[ModelClient]:
        """Each model once, the first agent's first.

        Models inside a `Fallback` are left out: it checks and closes them itself.
        """
        models = self._models.values()
        within = {id(each) for one in models if isinstance(one, Fallback) for each in one.models}
        return tuple(one for one in models if id(one) not in within)

    @property
    def connected(self) -> Sequence[ConnectedToolset]:
        """The toolsets with connections or processes, each once."""
        return tuple(self._connected.values())

    async def refuse_clashes(self) -> None:
        """Raise ConfigurationError if two tools of an agent, or of a sub-agent, have one name."""
        for _agent, label, tool_sources in self._tool_owners:
            with named_in_errors(label):
                await tool_sources.build_toolbox()

    async def unasked_writes(self) -> Sequence[str]:
        """Return the names of all tools that may write and need no permission, each once.

        Left out are tools that a function of the agent decides about, call by call, and the tools
        that agents bring themselves: sub-agents and the plan.
        """
        found: dict[str, None] = {}
        for agent, _label, tool_sources in self._tool_owners:
            for toolset in tool_sources.toolsets:
                if isinstance(toolset, AgentTools | PlanTools):
                    continue
                names = [spec.name for spec in await toolset.specs()]
                writing = (name for name in names if not toolset.is_read_only(name))
                found |= {name: None for name in writing if self._is_allowed(agent, toolset, name)}
        return tuple(found)

    def _is_allowed(self, agent: Agent, toolset: Toolset, name: str) -> bool:
        """Return True if a tool may be called with any arguments, without a function's decision."""
        for decisions in (self._settings.permissions, agent.permissions):
            if callable(decisions):
                return False
            if decision := decision_for(name, decisions or {}):
                return decision == "allow"
        # A user's toolset may need arguments to decide, and raise without: such a call is denied.
        with suppress(CallBroken), guarded("permission", {"tool": name}, level=logging.DEBUG):
            return toolset.permission(ToolCall(CallId(""), name, "{}")).decision == "allow"
        return False

    def agents(self, given: Sequence[Agent]) -> Agents:
        """Build the served agents. Raises ConfigurationError for agents that cannot work."""
        with named_in_errors("PASSBACK_MODELS"):
            for model in self._settings.models:
                check_model_names(model)
        names = [agent.name or "" for agent in given]
        for name in names:
            if names.count(name) > 1:
                raise ConfigurationError(
                    f"two agents are named {name!r}: give each a name of its own, "
                    "as in Agent(name='other')"
                )
        return Agents([self._build_agent(agent, ()) for agent in given])

    def _build_agent(self, agent: Agent, callers: tuple[Agent, ...]) -> ServedAgent:
        """Build an agent and its sub-agents; `callers` are the agents above it."""
        if any(agent is caller for caller in callers):
            raise ConfigurationError(f"the agent {agent.name!r} calls itself")
        settings = self._settings
        top = not callers  # prompt and models of the settings are for agents that users address
        label = f"the agent {agent.name!r}" if agent.name else "the agent"
        model = self._agent_model(agent, label)
        budget = agent.budget.within(settings.budget)
        if budget.limits_cost and not settings.prices:
            raise ConfigurationError("PASSBACK_PRICES: a cost limit needs prices")
        # the server's rules come first, and so win
        rules = [pattern_rule(settings.permissions)] if settings.permissions else []
        spec = AgentSpec(
            model=model,
            prompt=agent.static_prompt(settings.prompt if top else None),
            max_turns=agent.max_turns or settings.max_turns,
            max_futile_turns=settings.limits.futile_turns,
            options=agent.options,
            judge=CallJudge(find_objection, (*rules, *agent.permission_rules())),
            deps=agent.deps,
            context=Compaction(settings.model_window if agent.window is None else agent.window),
            commands=Commands(agent.commands, settings.commands),
            output=OutputJudge(find_objection, agent.answer_schema(), agent.answer_check()),
            builder=agent.prompt_layers(),
            extra_prompt=agent.extra_prompt(),
            tells_time=agent.tell_time,
            budget=budget,
            price=model_price(model.name, settings.prices),
        )
        spec = self._with_titles(spec) if top else spec
        with named_in_errors(label):
            own = agent.own_toolsets()
        self._connected |= {id(one): one for one in own if isinstance(one, ConnectedToolset)}
        sub_agents = [
            AgentTool.fork(other.name, other.description, concurrent=other.concurrent)
            if isinstance(other, Fork)
            else AgentTool.of(
                self._build_agent(other, (*callers, agent)),
                other.description,
                concurrent=other.concurrent,
            )
            for other in agent.agents
        ]
        toolsets = (*own, AgentTools(sub_agents)) if sub_agents else tuple(own)
        tool_sources = ToolSources(
            toolsets,
            (ASK_USER,) if agent.ask_user else (),
            [one for one in own if isinstance(one, Instructing)],
        )
        self._tool_owners.append((agent, label, tool_sources))
        models = self._models_to_choose(agent, spec, label) if top else dict[str, AgentSpec]()
        return ServedAgent(spec, tool_sources, agent.name or "", models)

    def _agent_model(self, agent: Agent, label: str) -> ModelClient:
        """Return the agent's own client, or the one that its model's name or settings select."""
        if isinstance(agent.model, ModelClient):
            return self._remember_model(agent.model)
        if agent.model is not None:
            with named_in_errors(f"{label}: model"):
                return self._remember_model(self._clients.named(agent.model))
        # two steps, because only the second one needs the other settings to be named in an error
        with named_in_errors("PASSBACK_MODEL"):
            check_model_names(self._settings.model)
        with named_in_errors(_MODEL_SETTINGS):
            return self._remember_model(self._clients.named(self._settings.model))

    def _with_titles(self, spec: AgentSpec) -> AgentSpec:
        """Return the spec with the model that writes titles, if one does."""
        name = self._settings.titles
        if name == "message":
            return spec
        if name == "model":
            return replace(spec, titles=TitleModel(spec.model, spec.price))
        with named_in_errors("PASSBACK_TITLES"):
            check_model_names(name)
            model = self._remember_model(self._clients.named(name))
        return replace(spec, titles=TitleModel(model, model_price(name, self._settings.prices)))

    def _models_to_choose(
        self, agent: Agent, spec: AgentSpec, label: str
    ) -> Mapping[str, AgentSpec]:
        """Return a spec by name for each model that a post may choose, the agent's own included."""
        allowed: Sequence[ModelClient | str] = (
            self._settings.models if agent.models is None else agent.models
        )
        if not allowed:
            return {}
        own = spec.model.models if isinstance(spec.model, Fallback) else (spec.model,)
        label = "PASSBACK_MODELS" if agent.models is None else f"{label}: models"
        if agent.models is None:
            # an agent's own client replaces the model of the same name from the settings
            allowed = [each for each in allowed if each not in {one.name for one in own}]
        models: dict[str, ModelClient] = {}
        for one in own:  # of one model at several addresses, the first client
            models.setdefault(one.name, one)
        with named_in_errors(label):
            for one in map(self._remember_model, self._clients.each(allowed)):
                if models.setdefault(one.name, one) is not one:
                    raise ConfigurationError(f"two models are named {one.name!r}")
        prices = self._settings.prices
        return {
            name: spec
            if one is spec.model
            else self._with_titles(replace(spec, model=one, price=model_price(one.name, prices)))
            for name, one in models.items()
        }

    def _remember_model(self, model: ModelClient) -> ModelClient:
        return self._models.setdefault(id(model), model)


class ModelClients:
    """The clients of named models, each opened once."""

    def __init__(self, settings: Settings) -> None:
        keys = {
            "openai": settings.openai_api_key,
            "openai-responses": settings.openai_api_key,
            "anthropic": settings.anthropic_api_key,
        }
        self._services = ModelServices(
            settings.model, settings.model_base_url, settings.model_api_key, keys
        )
        self._timeout = settings.model_timeout
        self._clients: dict[ModelChoice, ModelClient] = {}
        self._named: dict[str, ModelClient] = {}

    def named(self, names: str) -> ModelClient:
        """Return the client for a name such as `openai:gpt-5`.

        Several names, with commas between them, give a `Fallback`: each model replaces a failing
        one before it.

        Raises:
            ConfigurationError: there is no such kind of model, or it lacks a setting.
        """
        if names not in self._named:
            clients = self._named_clients(names)
            self._named[names] = clients[0] if len(clients) == 1 else Fallback(clients)
        return self._named[names]

    def each(self, models: Sequence[ModelClient | str]) -> Sequence[ModelClient]:
        """Return a client for each model, given as a client or a name. Raises as `named`."""
        names = [one for one in models if isinstance(one, str)]
        opened = iter(self._named_clients(",".join(names)) if names else ())
        return [next(opened) if isinstance(one, str) else one for one in models]

    def _named_clients(self, names: str) -> Sequence[ModelClient]:
        choices = self._services.choices(names)
        for choice in choices:
            if choice not in self._clients:
                kind = importlib.import_module(MODEL_KINDS[choice.kind].module)
                self._clients[choice] = kind.create(
                    choice.name,
                    base_url=choice.base_url,
                    api_key=choice.api_key,
                    timeout=self._timeout,
                )
        return [self._clients[choice] for choice in choices]


@contextmanager
def named_in_errors(subject: str) -> Generator[None]:
    """Put the name of a setting or an agent before the text of a ConfigurationError.

    The modules that raise it do not know which setting or agent a value came from.
    """
    try:
        yield
    except ConfigurationError as error:
        raise ConfigurationError(f"{subject}: {error.message}") from error
