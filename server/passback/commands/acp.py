"""`passback acp`: an agent for the client that has started this process, usually an editor.

The client speaks the Agent Client Protocol on standard input and output. All else that is written
goes to standard error.
"""

import os
import signal
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

import anyio

from passback.agent import Agent
from passback.http.gate import ANONYMOUS
from passback.http.wires import Services
from passback.logs import print_warning
from passback.services import WorkerServices
from passback.settings import Settings
from passback.streams.jsonrpc import Channel
from passback.streams.stdio import StdioChannel, StdioFiles
from passback.workers import handle_signals

_LEFT_GRACE = 1  # seconds in which runs may end when the client has left; then they are handed over
_FINAL_SECONDS = 2  # in which a connection has to end when the server stops

ServeClient: TypeAlias = Callable[[Services, Channel], Awaitable[None]]
"""Serves one client until its channel ends, or the server stops."""


async def serve_stdio(
    settings: Settings, agents: Sequence[Agent], files: StdioFiles, serve_client: ServeClient, /
) -> int:
    """Serve one client until it leaves, or until SIGTERM or Ctrl-C. Return the exit code.

    On a signal runs have the time of the settings to end; a second Ctrl-C ends that time.
    """
    worker = WorkerServices(settings, agents)
    owner = None if settings.api_keys else ANONYMOUS
    channel = StdioChannel(files, worker.stopping, owner=owner)
    shutdown = _Shutdown(worker)
    with handle_signals(shutdown.handle_signal):
        async with (
            worker.backend.running() as warnings,
            channel.running(),
            anyio.create_task_group() as tasks,
        ):
            for warning in warnings:
                print_warning(warning, settings.log_format)
            if os.isatty(files.input):
                print_warning(
                    "standard input is a terminal, and this command speaks JSON-RPC: "
                    "let an editor start it. Ctrl-D ends it.",
                    settings.log_format,
                )
            tasks.start_soon(shutdown.run)
            with shutdown.serving:
                await serve_client(worker.services, channel)
            await worker.drain(_LEFT_GRACE)
            tasks.cancel_scope.cancel()
    return 0


class _Shutdown:
    """Ends a worker on a signal.

    Args:
        worker: is drained.

    Attributes:
        serving: the scope in which the client is served; cancelled if that does not end in time.
    """

    def __init__(self, worker: WorkerServices) -> None:
        self._worker = worker
        self._asked = anyio.Event()
        self._draining = anyio.CancelScope()
        self.serving = anyio.CancelScope()

    def handle_signal(self, number: signal.Signals) -> None:
        if self._asked.is_set() and number == signal.SIGINT:
            self._draining.cancel()
        self._asked.set()

    async def run(self) -> None:
        await self._asked.wait()
        with self._draining:
            await self._worker.drain()
        self._worker.stopping.set()
        await anyio.sleep(_FINAL_SECONDS)
        self.serving.cancel()
