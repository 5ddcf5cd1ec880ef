"""The services of one worker: what its wires may use, and their lifetime. Without a server."""

from collections.abc import Sequence
from functools import partial

from passback import __version__
from passback.agent import Agent
from passback.backend import Backend, bodies_of, request_limits
from passback.core.signals import Signal
from passback.http.gate import Access, resolve_key
from passback.http.open_sockets import OpenSockets
from passback.http.wires import Services
from passback.settings import Settings
from passback.toolsets.mcp import MCPServer, is_installed, server_tools


class WorkerServices:
    """The store, the agents and their runs, as wires use them.

    Attributes:
        settings: of this worker.
        backend: the store, the agents and their runs.
        access: who may do what.
        stopping: set when this worker is about to stop.
        services: for wires.

    Raises:
        ConfigurationError: settings or an agent that cannot work.
    """

    def __init__(self, settings: Settings, agents: Sequence[Agent]) -> None:
        self.settings = settings
        self.backend = Backend(settings, agents)
        self.stopping = Signal()
        self.access = Access(
            hosts=settings.allowed_hosts,
            origins=settings.allowed_origins,
            keys=settings.api_keys,
            loopback_only=settings.is_loopback,
            loopback_pages=settings.loopback_pages,
        )
        limits = settings.limits
        mcp_servers = frozenset(
            one.name for one in self.backend.connected if isinstance(one, MCPServer)
        )
        self.services = Services(
            runs=self.backend.runs,
            stopping=self.stopping,
            limits=request_limits(settings),
            bodies=bodies_of(settings),
            sockets=OpenSockets(limits.sockets, limits.owner_sockets),
            resolve_key=partial(resolve_key, self.access),
            ping_seconds=settings.timing.ping,
            allow_roles=settings.allow_roles,
            on_busy=settings.on_busy,
            mcp_servers=mcp_servers,
            tool_server=partial(server_tools, mcp_servers) if is_installed() else None,
            version=__version__,
        )

    async def drain(self, grace: float | None = None) -> None:
        """Shut down in order: no new runs, finish or hand over the open ones, end the streams.

        Args:
            grace: seconds in which runs may end; None for what the settings say.
        """
        # runs first: their last events must still reach the open streams
        usual = self.settings.timing.shutdown_grace
        await self.backend.runs.drain(usual if grace is None else min(grace, usual))
        self.stopping.set()
