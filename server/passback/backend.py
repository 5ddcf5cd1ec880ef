"""What stands behind every wire, and behind a session without one: the store, the agents and their runs."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from passback.agent import Agent
from passback.casting import Casting, blaming
from passback.engine.runs import RunService
from passback.engine.supervisor import Tempo
from passback.settings import Settings
from passback.stores.open import open_store
from passback.stores.options import StoreOptions


class Backend:
    """The parts, and their life.

    Raises:
        ConfigurationError: settings or agents that cannot work.
    """

    def __init__(self, settings: Settings, agents: Sequence[Agent]) -> None:
        with blaming("PASSBACK_STORE"):
            self.store = open_store(settings.store, options=_store_options(settings))
        casting = Casting(settings)
        self.runs = RunService(self.store, casting.agents(agents or (Agent(),)), _tempo(settings))
        self.models = casting.models

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[Sequence[str]]:
        """Connect to the store and own the runs; gives warnings about the store's settings.

        Raises:
            ConfigurationError, StoreError: the store cannot be used.
        """
        async with AsyncExitStack() as stack:
            for model in self.models:
                stack.push_async_callback(model.aclose)
            with blaming("PASSBACK_STORE"):
                await stack.enter_async_context(self.store)
                warnings = await self.store.check()
            await stack.enter_async_context(self.runs.running())
            yield warnings


def _tempo(settings: Settings) -> Tempo:
    return Tempo(
        lease=settings.lease,
        log_delay=settings.log_delay,
        disconnect_grace=settings.disconnect_grace,
        max_attempts=settings.max_attempts,
        queue=settings.max_queue,
        tool_timeout=settings.tool_timeout,
    )


def _store_options(settings: Settings) -> StoreOptions:
    return StoreOptions(
        ttl=settings.conversation_ttl,
        log_ttl=settings.log_ttl,
        log_bytes=settings.log_bytes,
        allow_eviction=settings.allow_eviction,
    )
