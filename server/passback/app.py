"""The composition root: settings and an agent become one ASGI application."""

import importlib
import importlib.util
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager

from starlette.types import ASGIApp

from passback import __version__
from passback.agent import Agent
from passback.core.errors import ConfigurationError
from passback.core.messages import JsonObject
from passback.core.permissions import Rule, by_pattern
from passback.core.ports import ModelClient, Store
from passback.engine.judging import Judge
from passback.engine.loop import Brain
from passback.engine.output import OutputJudge
from passback.engine.runs import RunService
from passback.engine.supervisor import Tempo
from passback.schemas.arguments import objection
from passback.settings import Settings
from passback.stores.open import open_store
from passback.stores.options import StoreOptions
from passback.transport.access import Access
from passback.transport.openapi import compose
from passback.transport.signal import Signal
from passback.transport.site import build_site
from passback.transport.wires import Limits, Services, Wire

MODELS: Mapping[str, str] = {
    "demo": "passback.models.demo",
    "openai": "passback.models.openai_chat",
}


class Application:
    """One worker: the ASGI application `asgi`, its parts, and their life.

    Raises:
        ConfigurationError: settings or an agent that cannot work.
    """

    def __init__(self, settings: Settings, agent: Agent | None = None) -> None:
        agent = agent or Agent()
        self.settings = settings
        with _blaming("PASSBACK_STORE"):
            self.store: Store = open_store(settings.store, options=_store_options(settings))
        self.model: ModelClient = open_model(agent.model, settings)
        self._stopping = Signal()
        brain = Brain(
            self.model,
            agent.told(settings.prompt),
            agent.max_turns or settings.max_turns,
            settings.max_futile_turns,
            agent.options,
            Judge(objection, _rules(agent, settings)),
            OutputJudge(objection, agent.answer_schema()),
            agent.layers(),
            agent.run_context(),
            agent.tell_time,
        )
        tempo = Tempo(
            lease=settings.lease,
            log_delay=settings.log_delay,
            disconnect_grace=settings.disconnect_grace,
            max_attempts=settings.max_attempts,
            queue=settings.max_queue,
            tool_timeout=settings.tool_timeout,
        )
        self._runs = RunService(self.store, brain, agent.equipment(), tempo)
        services = Services(
            runs=self._runs,
            stopping=self._stopping,
            describe=self._describe,
            limits=Limits(
                body_bytes=settings.max_body_bytes,
                result_bytes=settings.max_result_bytes,
                data_bytes=settings.max_data_bytes,
                attachment_bytes=settings.max_attachment_bytes,
            ),
            ping_seconds=settings.ping,
            allow_roles=settings.allow_roles,
            on_busy=settings.on_busy,
            inbox=bool(settings.api_keys) or settings.is_loopback,
        )
        self._wires = [load_wire(name, services) for name in settings.wires]
        self.asgi: ASGIApp = build_site(self._wires, _access(settings), self._lifespan)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[Sequence[str]]:
        """Connect to the store and own the runs; gives warnings about the store's settings.

        Raises:
            ConfigurationError, StoreError: the store cannot be used.
        """
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self.model.aclose)
            with _blaming("PASSBACK_STORE"):
                await stack.enter_async_context(self.store)
                warnings = await self.store.check()
            await stack.enter_async_context(self._runs.running())
            yield warnings

    async def drain(self) -> None:
        """Take no new runs, let those that go on end or give them away, then tell open streams to reconnect."""
        await self._runs.drain(self.settings.shutdown_grace)
        self._stopping.set()

    @asynccontextmanager
    async def _lifespan(self, _app: object) -> AsyncGenerator[None]:
        async with self.running():
            yield

    def _describe(self) -> JsonObject:
        return compose(self._wires, version=__version__)


def create_app(settings: Settings, agent: Agent | None = None) -> ASGIApp:
    """An ASGI application with a lifespan of its own, for any ASGI server."""
    return Application(settings, agent).asgi


def open_model(model: ModelClient | str | None, settings: Settings) -> ModelClient:
    """The agent's own client, or the one that a name such as `openai:gpt-5` or the settings say.

    Raises:
        ConfigurationError: there is no such kind of model, or it lacks a setting.
    """
    if model is not None and not isinstance(model, str):
        return model
    kind, _, name = (model or settings.model).partition(":")
    if kind not in MODELS:
        raise ConfigurationError(
            f"PASSBACK_MODEL: no model is called {kind!r}; there are {', '.join(MODELS)}"
        )
    with _blaming("PASSBACK_MODEL, PASSBACK_MODEL_BASE_URL, PASSBACK_MODEL_API_KEY"):
        client: ModelClient = importlib.import_module(MODELS[kind]).create(
            name,
            base_url=settings.model_base_url,
            api_key=settings.model_api_key,
            timeout=settings.model_timeout,
        )
    return client


@contextmanager
def _blaming(variables: str) -> Generator[None]:
    """Name the settings at fault: the floors below do not know them."""
    try:
        yield
    except ConfigurationError as error:
        raise ConfigurationError(f"{variables}: {error.message}") from error


def load_wire(name: str, services: Services) -> Wire:
    """Raises ConfigurationError when there is no such wire."""
    module = f"passback.wire.{name}"
    if not name.isidentifier() or importlib.util.find_spec(module) is None:
        raise ConfigurationError(f"PASSBACK_WIRES: there is no wire called {name!r}")
    wire: Wire = importlib.import_module(module).build(services)
    return wire


def _rules(agent: Agent, settings: Settings) -> Sequence[Rule]:
    """The server's word goes before the agent's."""
    return (*([by_pattern(settings.permissions)] if settings.permissions else []), *agent.rules())


def _store_options(settings: Settings) -> StoreOptions:
    return StoreOptions(
        ttl=settings.conversation_ttl,
        log_ttl=settings.log_ttl,
        log_bytes=settings.log_bytes,
        allow_eviction=settings.allow_eviction,
    )


def _access(settings: Settings) -> Access:
    return Access(
        hosts=settings.allowed_hosts,
        origins=settings.allowed_origins,
        keys=settings.api_keys,
        loopback_only=settings.is_loopback,
    )
