"""`passback serve` and `passback replay`: serving HTTP by uvicorn."""

import argparse
import asyncio
import socket
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import cast

import anyio
import uvicorn
from starlette.types import ASGIApp
from typing_extensions import override

from passback import __version__
from passback.agent import Agent
from passback.app import Application
from passback.core.errors import ConfigurationError
from passback.hotpath.collecting import collect_when_idle
from passback.http.protocol import BoundedHttpProtocol, OpenConnections
from passback.logs import log_to_stderr, print_warning
from passback.replay import PlayFaults, replay_site
from passback.replay.recording import load_recording
from passback.settings import Settings
from passback.workers import EXIT_FAILED, WorkerConfig, WorkerPool, WorkerSlot, handle_signals

_REPLAY_GRACE = 1  # seconds; a replayed answer that is cut loses nothing

# Seconds that an idle connection stays open: longer than the idle timeouts of common proxies and
# clients. Otherwise they may send a request just as the server closes, not knowing if it arrived.
_KEEP_ALIVE = 75


async def serve_by_pool(settings: Settings, order: WorkerConfig) -> int:
    """Serve with several workers until SIGTERM or Ctrl-C; a second Ctrl-C ends at once."""
    with _listen_by_settings(settings) as listening:
        return await WorkerPool(listening, order).run(settings.workers)


async def serve(settings: Settings, agents: Sequence[Agent], slot: WorkerSlot | None = None) -> int:
    """Serve until SIGTERM or Ctrl-C; a second Ctrl-C ends at once.

    In a pool, `slot` is the place of this worker.
    """
    return await serve_application(Application(settings, *agents), slot)


async def serve_application(application: Application, slot: WorkerSlot | None = None) -> int:
    """Serve an application as `serve` does."""
    settings = application.settings
    stop = asyncio.Event()
    connections = OpenConnections(settings.limits.connections, settings.timing.send_timeout)
    # in a pool only one worker prints messages, as all are equal
    prints = slot is None or slot.order.announces
    sockets = _socket_protocol(application, connections, prints=prints)
    http = partial(
        BoundedHttpProtocol,
        connections=connections,
        sends_directly=settings.direct_sending,
        takes_socket=application.takes_socket if sockets else None,
    )
    config = _server_config(application.asgi, int(settings.timing.shutdown_grace) + 5, http)
    if sockets is not None:
        config.ws = cast("type[asyncio.Protocol]", sockets)
    config.ws_max_size = settings.limits.socket_bytes
    config.ws_ping_interval = settings.timing.ping
    config.ws_ping_timeout = settings.timing.pong_timeout
    server = _Server(config, stop)

    def greet(address: str) -> None:
        if prints:
            _print_greeting(application, address)
        if slot is not None:
            slot.ready()

    server.on_listening = greet
    with slot.listening if slot else _listen_by_settings(settings) as listening:
        async with application.running() as warnings, anyio.create_task_group() as tasks:
            for warning in warnings if prints else ():
                print_warning(warning, settings.log_format)
            tasks.start_soon(collect_when_idle, lambda: not server.server_state.tasks)
            tasks.start_soon(_drain_on_stop, stop, application)
            await server.serve([listening])
            tasks.cancel_scope.cancel()
    return 0 if server.started else EXIT_FAILED


def _socket_protocol(
    application: Application, connections: OpenConnections, *, prints: bool
) -> Callable[..., asyncio.Protocol] | None:
    """Return the protocol of WebSockets; None if no wire has them, or the package is missing."""
    if application.takes_socket is None:
        return None
    try:
        from passback.http.socket_protocol import BoundedSocketProtocol
    except ModuleNotFoundError:
        if prints:
            text = "no WebSockets are served: pip install 'passback[chat]'"
            print_warning(text, application.settings.log_format)
        return None
    return partial(
        BoundedSocketProtocol,
        connections=connections,
        bodies=application.bodies,
        sends_directly=application.settings.direct_sending,
    )


def _server_config(
    application: ASGIApp, grace: int, http: Callable[..., asyncio.Protocol] = BoundedHttpProtocol
) -> uvicorn.Config:
    """Return uvicorn's configuration; open responses may take `grace` seconds to end."""
    return uvicorn.Config(
        application,
        http=cast("type[asyncio.Protocol]", http),
        ws="none",
        ws_per_message_deflate=False,  # a small message could be a very large one
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=grace,
        timeout_keep_alive=_KEEP_ALIVE,
    )


def _listen_by_settings(settings: Settings) -> socket.socket:
    return _open_socket(settings.host, settings.port, "PASSBACK_HOST, PASSBACK_PORT")


def _open_socket(host: str, port: int, names: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise ConfigurationError(f"{names}: cannot listen: {error.strerror}") from error
    # asyncio's own loop leaves it out for such a socket: the second answer of a connection would
    # then wait 40 ms for the client's system
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


class _Server(uvicorn.Server):
    """A server that calls `on_listening` with its address, and sets `stop` on a signal.

    uvicorn waits for open connections after a signal; `stop` allows draining them meanwhile.
    """

    on_listening: Callable[[str], None]

    def __init__(self, config: uvicorn.Config, stop: asyncio.Event) -> None:
        super().__init__(config)
        self._stop = stop

    @override
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            host, port = self.servers[0].sockets[0].getsockname()[:2]
            self.on_listening(f"http://{f'[{host}]' if ':' in host else host}:{port}")

    @override
    @contextmanager
    def capture_signals(self) -> Generator[None]:
        # uvicorn's version raises the signal again at the end: a clean stop looks like a crash then
        with handle_signals(lambda number: self.handle_exit(number, None)):
            yield

    @override
    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._stop.set()
        super().handle_exit(sig, frame)


async def _drain_on_stop(stop: asyncio.Event, application: Application) -> None:
    await stop.wait()
    await application.drain()


def _print_greeting(application: Application, address: str) -> None:
    settings = application.settings
    if not settings.is_loopback and not settings.api_keys:
        print_warning(
            f"listening on {settings.host} without authentication: everybody who can reach this "
            "address can read and continue every conversation whose id they know, and spend your "
            "model's tokens. Set PASSBACK_API_KEYS, or listen on 127.0.0.1.",
            settings.log_format,
        )
    workers = f"  workers {settings.workers}\n" if settings.workers > 1 else ""
    pages = (
        "  origins http://localhost:PORT and the like may call it (PASSBACK_ALLOW_LOOPBACK_PAGES)\n"
        if settings.loopback_pages
        else ""
    )
    body = """'{"messages":[{"role":"user","content":"hi"}]}'"""
    print(
        f"passback {__version__} is listening on {address}\n\n"
        f"  page    {address}/\n"
        f"  curl    curl -N {address}/send-message -H 'Content-Type: application/json' -d {body}\n"
        f"  store   {application.backend.ledger.location}\n"
        f"  model   {', '.join(model.name for model in application.backend.models)}\n"
        f"{workers}{pages}\n"
        "Ctrl-C stops it.",
        flush=True,
    )


async def replay(options: argparse.Namespace, faults: Mapping[str, object]) -> int:
    """Replay a recording to clients on this machine until SIGTERM or Ctrl-C.

    Args:
        options: of the command line.
        faults: fields of `Faults` that take the place of the recording's.
    """
    log_to_stderr("warning")
    recording = load_recording(options.file)
    play_faults = PlayFaults(faults, ignores_recorded=options.clean)
    site = replay_site(recording, speed=options.speed, faults=play_faults)
    server = _Server(_server_config(site, _REPLAY_GRACE), asyncio.Event())
    described = play_faults.apply(recording.faults).describe()
    faults_line = f"  faults  {described}\n" if described else ""
    server.on_listening = lambda address: print(
        f"passback {__version__} is listening on {address}\n\n"
        f"  page    {address}/\n"
        f"  plays   {options.file}\n"
        f"{faults_line}\n"
        "Ctrl-C stops it.",
        flush=True,
    )
    with _open_socket("127.0.0.1", options.port, "--port") as listening:
        await server.serve([listening])
    return 0 if server.started else EXIT_FAILED
