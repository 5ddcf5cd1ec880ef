"""The part of an application without HTTP: the store, the agents and their runs."""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import fields
from typing import Any, TypeVar, cast

import anyio

from passback.agent import Agent
from passback.agent_builder import AgentBuilder, named_in_errors
from passback.core.errors import ToolsetUnavailable
from passback.core.toolsets import ConnectedToolset
from passback.engine.service import RunService
from passback.engine.supervisor import HEARTBEAT, Timing
from passback.http.wires import PartialBodies, RequestLimits
from passback.settings import Settings
from passback.stores.open import open_store


class Backend:
    """The store, the models, the toolsets and the runs, and their lifetime.

    Raises:
        ConfigurationError: settings or agents that cannot work.
    """

    def __init__(self, settings: Settings, agents: Sequence[Agent]) -> None:
        with named_in_errors("PASSBACK_STORE"):
            self.store = open_store(settings.store, options=settings.store_options)
        builder = AgentBuilder(settings)
        self.runs = RunService(
            self.store,
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
                await stack.enter_async_context(self.store)
                warnings = await self.store.check()
            for one in self.connected:
                await stack.enter_async_context(one.running())
            warnings = [*warnings, *await _wait_until_ready(self.connected)]
            await self.refuse_clashes()  # a server's tools are known only after it is connected
            await stack.enter_async_context(self.runs.running())
            yield warnings


def request_limits(settings: Settings, /) -> RequestLimits:
    """Return the limits for one request, or one call from Python."""
    return _from_parts(RequestLimits, settings, send_seconds=settings.timing.send_timeout)


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
