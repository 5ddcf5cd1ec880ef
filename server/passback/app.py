"""The composition root: builds one ASGI application from settings and agents."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from starlette.types import ASGIApp

from passback import __version__
from passback.agent import Agent
from passback.core.errors import ConfigurationError
from passback.core.text import did_you_mean, nearest_names
from passback.http.site import build_site, socket_matcher
from passback.http.wires import Services, Wire
from passback.native.openapi import document_wire
from passback.services import WorkerServices
from passback.settings import Settings
from passback.wire import NAMES, load_wire_types


class Application:
    """One worker: an ASGI application, its parts, and their lifetime.

    Attributes:
        settings: of this worker.
        backend: the store, the agents and their runs.
        asgi: the application.
        bodies: counts what of bodies and messages has arrived.
        sockets: counts the open WebSockets.
        takes_socket: tells if a path is a WebSocket's; None if no wire has WebSockets.

    Raises:
        ConfigurationError: settings or an agent that cannot work.
    """

    def __init__(self, settings: Settings, *agents: Agent) -> None:
        self._worker = WorkerServices(settings, agents)
        self.settings = settings
        self.backend = self._worker.backend
        self.bodies = self._worker.services.bodies
        self.sockets = self._worker.services.sockets
        wires = self.build_wires(self._worker.services)
        wires.append(document_wire(wires, version=__version__))
        self._wires = wires
        self.takes_socket = socket_matcher(wires)
        self.asgi: ASGIApp = build_site(wires, self._worker.access, self._lifespan)

    def build_wires(self, services: Services, /) -> list[Wire]:
        """Build the wires that the settings name."""
        return [build_wire(name, services, self.settings) for name in self.settings.wires]

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[Sequence[str]]:
        """Connect and run the backend and the wires while the context is open; yield warnings."""
        async with AsyncExitStack() as stack:
            warnings = await stack.enter_async_context(self.backend.running())
            for wire in self._wires:
                if wire.running is not None:
                    await stack.enter_async_context(wire.running())
            yield warnings

    async def drain(self) -> None:
        """Shut down in order: no new runs, finish or hand over the open ones, end the streams.

        Clients of open streams are told to reconnect, and reach another worker.
        """
        await self._worker.drain()

    @asynccontextmanager
    async def _lifespan(self, _app: object) -> AsyncGenerator[None]:
        async with self.running():
            yield


def create_app(settings: Settings, *agents: Agent) -> ASGIApp:
    """Return an ASGI application with its own lifespan, for any ASGI server.

    The first agent answers requests that name none.
    """
    return Application(settings, *agents).asgi


def build_wire(name: str, services: Services, settings: Settings) -> Wire:
    """Build a wire. Raises ConfigurationError if there is no such wire."""
    kind = load_wire_types().get(name)
    if kind is None:
        raise ConfigurationError(
            f"PASSBACK_WIRES: there is no wire called {name!r}"
            f"{did_you_mean(nearest_names(name, NAMES))}; the wires are {', '.join(sorted(NAMES))}"
        )
    if kind.settings is None:
        return kind.build(services)
    return kind.build(services, settings.of_wires.get(name) or kind.settings())
