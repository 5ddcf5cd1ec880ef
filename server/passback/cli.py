"""The commands `passback serve`, `check` and `replay`."""

import argparse
import asyncio
import logging
import math
import os
import signal
import socket
import sys
from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import cast

import anyio
import uvicorn
from starlette.types import ASGIApp
from typing_extensions import override

from passback import __version__
from passback.agent import Agent
from passback.app import Application
from passback.core.errors import ConfigurationError, PassbackError, ToolsetUnavailable
from passback.core.ports import ModelClient
from passback.core.text import did_you_mean, nearest_names
from passback.engine.guarding import count_left_behind
from passback.environment import DEFAULT_ENV_FILE, load_env_file, read_variables
from passback.hotpath.collecting import collect_when_idle
from passback.http.protocol import BoundedHttpProtocol, OpenConnections
from passback.loading import load_agents
from passback.logs import log_to_stderr
from passback.replay import load_recording, replay_site
from passback.settings import (
    Settings,
    all_settings,
    flag_name,
    load_settings,
    moved_flag,
    variable_name,
)
from passback.workers import (
    EXIT_FAILED,
    WorkerConfig,
    WorkerPool,
    WorkerSlot,
    handle_signals,
    refuse_unshared_settings,
    take_slot,
)

logger = logging.getLogger(__name__)

EXIT_USAGE = 2
_REPLAY_GRACE = 1  # seconds; a replayed answer that is cut loses nothing

# Seconds that an idle connection stays open: longer than the idle timeouts of common proxies and
# clients. Otherwise they may send a request just as the server closes, not knowing if it arrived.
_KEEP_ALIVE = 75

_MAX_SHOWN_TOOLS = 20
_KILL_DELAY = 15  # seconds after the shutdown grace before a worker is killed


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    options = _parse_arguments(sys.argv[1:] if arguments is None else arguments)
    return _run_command(lambda: options.prepare(options))


def work(listening: int, line: int) -> int:
    """Run one worker of a `WorkerPool` and return the exit code."""
    with take_slot(listening, line) as slot:
        return _run_command(lambda: _prepare_worker(slot))


def _run_command(prepare: Callable[[], Coroutine[None, None, int]]) -> int:
    """Run a command in an event loop; print an error that it raises. Return the exit code."""
    factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    with suppress(ImportError):  # not on every platform
        import uvloop

        factory = uvloop.new_event_loop
    try:
        command = prepare()
        with asyncio.Runner(loop_factory=factory) as runner:
            code = runner.run(command)
            if count_left_behind():  # threads that never return: closing would wait for them
                logging.shutdown()
                sys.stdout.flush()
                os._exit(code)
    except ConfigurationError as error:
        for line in error.message.splitlines():
            print(f"passback: {line}", file=sys.stderr)
        return EXIT_USAGE
    except PassbackError as error:
        print(f"passback: {error.message}", file=sys.stderr)
        return EXIT_FAILED
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return code


def _parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the arguments. For wrong ones, print a suggestion and raise SystemExit."""
    parser = argparse.ArgumentParser(
        prog="passback",
        description="An agent server whose tools can run in the client's hands.",
    )
    parser.add_argument("--version", action="version", version=f"passback {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_agent_command(commands.add_parser("serve", help="serve an agent"), _prepare_serve)
    _add_agent_command(
        commands.add_parser("check", help="verify settings, store and model"),
        lambda options: check(_read_settings(options)[1], load_agents(options.agents)),
    )
    _add_replay_command(
        commands.add_parser("replay", help="play a run back that the page has exported")
    )
    # The first word is the command, because the parser's own flags take no values. argparse would
    # report an unknown one without a suggestion.
    command = next((one for one in arguments if not one.startswith("-")), None)
    if command is not None and command not in commands.choices:
        meant = did_you_mean(nearest_names(command, commands.choices))
        parser.error(f"unknown command {command!r}{meant}; there are {', '.join(commands.choices)}")
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        parser.error(_unknown_arguments_text(unknown, options.flags))
    return options


def _unknown_arguments_text(arguments: Sequence[str], flags: Sequence[str]) -> str:
    """Return an error text for unknown arguments, without values, which may be secrets.

    A value may begin with a dash, too: of a word with one dash only two characters are shown.
    """
    unknown = [
        one.partition("=")[0] if one.startswith("--") else one[:2]
        for one in arguments
        if one.startswith("-")
    ]
    if not unknown:
        return f"arguments too many: {' '.join(arguments)}"
    hints = [
        f"{one} (write {new})"
        if (new := moved_flag(one))
        else f"{one}{did_you_mean(nearest_names(one, flags))}"
        for one in unknown
    ]
    return f"unknown flag {', '.join(hints)}"


def _add_agent_command(
    parser: argparse.ArgumentParser,
    prepare: Callable[[argparse.Namespace], Coroutine[None, None, int]],
) -> None:
    flags = [*(flag_name(one.name) for one in all_settings()), "--env-file", "--no-env-file"]
    parser.set_defaults(prepare=prepare, flags=flags)
    parser.add_argument(
        "agents",
        nargs="*",
        metavar="MODULE:AGENT",
        help="an Agent of yours; of several, the first is asked where a request names none",
    )
    env_file = parser.add_mutually_exclusive_group()
    env_file.add_argument(
        "--env-file",
        metavar="PATH",
        type=Path,
        default=DEFAULT_ENV_FILE,
        help="a file of settings, NAME=VALUE lines; the environment wins (default: .env, if any)",
    )
    env_file.add_argument(
        "--no-env-file", dest="env_file", action="store_const", const=None, help="read no .env"
    )
    for one in all_settings():
        form = one.metadata["form"]
        takes = f": {form.text}; may be repeated" if form.parts else ""
        parser.add_argument(
            flag_name(one.name),
            action="append" if form.parts else "store",
            metavar=one.name.upper(),
            help=f"{one.metadata['text']}{takes} ({variable_name(one.name)})".replace("%", "%%"),
        )


def _prepare_serve(options: argparse.Namespace) -> Coroutine[None, None, int]:
    variables, settings = _read_settings(options)
    if settings.workers == 1:
        return serve(settings, load_agents(options.agents))
    timeout = settings.timing.shutdown_grace + _KILL_DELAY
    return serve_by_pool(settings, WorkerConfig(sys.argv, variables, options.agents, timeout))


def _prepare_worker(slot: WorkerSlot) -> Coroutine[None, None, int]:
    slot.end_with_pool()
    sys.argv = list(slot.order.argv)
    return serve(_load_settings(slot.order.variables), load_agents(slot.order.agents), slot)


def _read_settings(options: argparse.Namespace) -> tuple[Mapping[str, str], Settings]:
    """Return the settings, and the variables from which they are read."""
    env_file = load_env_file(options.env_file)
    flags: dict[str, str] = {}
    for one in all_settings():
        given: str | list[str] | None = getattr(options, one.name)
        if given is not None:  # a flag with parts may be repeated
            flags[variable_name(one.name)] = given if isinstance(given, str) else " ".join(given)
    variables = read_variables(os.environ, env_file, flags)
    try:
        settings = _load_settings(variables)
    except ConfigurationError as error:
        if not env_file.variables:
            raise
        where = f"(settings are also read from {options.env_file.absolute()})"
        raise ConfigurationError(f"{error.message}\n{where}") from error
    if env_file.warning:
        _print_warning(env_file.warning, settings)
    return variables, settings


def _load_settings(variables: Mapping[str, str]) -> Settings:
    settings = load_settings(variables)
    refuse_unshared_settings(settings)
    if not (settings.is_loopback or settings.api_keys or settings.allow_anonymous):
        raise ConfigurationError(
            f"PASSBACK_HOST: others can reach {settings.host}, and no keys are set: set "
            "PASSBACK_API_KEYS, or listen on 127.0.0.1; to serve everybody without a key, set "
            "PASSBACK_ALLOW_ANONYMOUS=yes"
        )
    log_to_stderr(settings.log_level, settings.log_format, several=settings.workers > 1)
    return settings


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
                _print_warning(warning, settings)
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
            _print_warning(text, application.settings)
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
        _print_warning(
            f"listening on {settings.host} without authentication: everybody who can reach this "
            "address can read and continue every conversation whose id they know, and spend your "
            "model's tokens. Set PASSBACK_API_KEYS, or listen on 127.0.0.1.",
            settings,
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
        f"  store   {application.backend.store.location}\n"
        f"  model   {', '.join(model.name for model in application.backend.models)}\n"
        f"{workers}{pages}\n"
        "Ctrl-C stops it.",
        flush=True,
    )


async def check(settings: Settings, agents: Sequence[Agent]) -> int:
    """Check everything that a server needs, print the findings and return the exit code."""
    backend = Application(settings, *agents).backend
    await backend.refuse_clashes()
    print("settings  ok")

    async def check_store() -> Sequence[str]:
        async with backend.store as store:
            return await store.check()

    healthy = await _report_check("store", backend.store.location, check_store)
    for model in backend.models:
        healthy &= await _report_check("model", model.name, partial(_check_model, model))
    async with AsyncExitStack() as stack:
        for one in backend.connected:
            await stack.enter_async_context(one.running())
        for one in backend.connected:
            healthy &= await _report_check("tools", one.name, one.ready)
        _print_unasked_writes(await backend.unasked_writes())
    return 0 if healthy else EXIT_FAILED


async def _report_check(
    part: str, name: str, attempt: Callable[[], Coroutine[None, None, Sequence[str]]]
) -> bool:
    try:
        warnings = await attempt()
    except PassbackError as error:
        print(f"{part:<9} {name}: {error.message}")
        for line in error.said if isinstance(error, ToolsetUnavailable) else ():
            print(f"{'':<9} it said: {line}")
        return False
    print(f"{part:<9} {name}: ok")
    for warning in warnings:
        print(f"{'':<9} warning: {warning}")
    return True


async def _check_model(model: ModelClient) -> Sequence[str]:
    try:
        return await model.check() or ()
    finally:
        await model.aclose()


def _print_unasked_writes(names: Sequence[str]) -> None:
    if not names:
        return
    shown = ", ".join(names[:_MAX_SHOWN_TOOLS])
    more = len(names) - _MAX_SHOWN_TOOLS
    count = (
        "1 tool may write and needs"
        if len(names) == 1
        else f"{len(names)} tools may write and need"
    )
    print(f"{'allowed':<9} {count} no permission: {shown}{f' and {more} more' if more > 0 else ''}")


def _add_replay_command(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(prepare=replay, flags=["--speed", "--port"])
    parser.add_argument("file", metavar="FILE", type=Path, help="what the page has exported")
    parser.add_argument(
        "--speed", metavar="X", type=_speed_argument, default=1, help="times as fast; 0: at once"
    )
    parser.add_argument(
        "--port",
        metavar="N",
        type=_port_argument,
        default=8000,
        help="on 127.0.0.1; 0: any free one",
    )


def _speed_argument(text: str) -> float:
    try:
        speed = float(text)
    except ValueError:
        speed = math.nan
    if not (math.isfinite(speed) and speed >= 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of 0 or more")
    return speed


def _port_argument(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 5 and int(text) <= 65535):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 to 65535")
    return int(text)


async def replay(options: argparse.Namespace) -> int:
    """Replay a recording to clients on this machine until SIGTERM or Ctrl-C."""
    log_to_stderr("warning")
    site = replay_site(load_recording(options.file), speed=options.speed)
    server = _Server(_server_config(site, _REPLAY_GRACE), asyncio.Event())
    server.on_listening = lambda address: print(
        f"passback {__version__} is listening on {address}\n\n"
        f"  page    {address}/\n"
        f"  plays   {options.file}\n\n"
        "Ctrl-C stops it.",
        flush=True,
    )
    with _open_socket("127.0.0.1", options.port, "--port") as listening:
        await server.serve([listening])
    return 0 if server.started else EXIT_FAILED


def _print_warning(text: str, settings: Settings) -> None:
    if settings.log_format == "json":
        # programs parse standard error in this mode, so every line must be JSON
        logger.warning("%s", text)
        return
    print(f"passback: warning: {text}", file=sys.stderr, flush=True)
