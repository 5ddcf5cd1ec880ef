"""The command line: `passback serve`, `acp`, `check`, `replay`, `move` and `erase`.

The module of a command is imported when it is run: an editor waits for the start of `passback acp`,
which needs no HTTP server.
"""

import argparse
import asyncio
import logging
import math
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import Field, replace
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, cast

from passback import __version__
from passback.core.errors import ConfigurationError, PassbackError
from passback.core.text import did_you_mean, nearest_names
from passback.engine.guarding import count_left_behind
from passback.environment import DEFAULT_ENV_FILE, load_env_file, read_variables
from passback.loading import leave_current_folder, load_agents
from passback.logs import log_to_stderr, print_warning
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
    WorkerSlot,
    refuse_unshared_settings,
    take_slot,
)

if TYPE_CHECKING:
    from passback.commands.acp import ServeClient

EXIT_USAGE = 2
_THREAD_SECONDS = 0.5  # in which threads without work end
_KILL_DELAY = 15  # seconds after the shutdown grace before a worker is killed


def main(
    arguments: Sequence[str] | None = None, *, serve_client: "ServeClient | None" = None
) -> int:
    """Run the command line and return the exit code.

    Args:
        arguments: of the command line; None for those of this process.
        serve_client: serves the client of `passback acp`; None for the wire of ACP.
    """
    options = _parse_arguments(sys.argv[1:] if arguments is None else arguments)
    options.serve_client = serve_client
    return _run_command(lambda: options.prepare(options))


def work(listening: int, line: int) -> int:
    """Run one worker of a `WorkerPool` and return the exit code."""
    with take_slot(listening, line) as slot:
        return _run_command(lambda: _prepare_worker(slot))


def _run_command(prepare: Callable[[], Coroutine[None, None, int]]) -> int:
    """Run a command in an event loop; print an error that it raises. Return the exit code."""
    factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    try:
        command = prepare()
        with suppress(ImportError):  # not on every platform
            import uvloop

            factory = uvloop.new_event_loop
        with asyncio.Runner(loop_factory=factory) as runner:
            code = runner.run(command)
            # closing, and Python's exit, would wait for what never returns
            if count_left_behind() or _is_thread_busy():
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


def _is_thread_busy() -> bool:
    """Return whether a thread of a tool, or of other code of an agent, still works."""
    deadline = monotonic() + _THREAD_SECONDS
    threads = [one for one in threading.enumerate() if one.name == "AnyIO worker thread"]
    for thread in threads:  # those that have nothing to do are told to end
        thread.join(max(0.0, deadline - monotonic()))
    return any(thread.is_alive() for thread in threads)


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
        commands.add_parser("acp", help="serve an agent to the editor that starts this command"),
        _prepare_acp,
        reads_env_file=False,
    )
    _add_agent_command(
        commands.add_parser("check", help="verify settings, store and model"), _prepare_check
    )
    _add_replay_command(
        commands.add_parser("replay", help="play a run back that the page has exported")
    )
    _add_move_command(
        commands.add_parser("move", help="copy all conversations of a store into another")
    )
    _add_erase_command(commands.add_parser("erase", help="delete all conversations of an owner"))
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
    if not unknown:  # a URL may have a password
        shown = ("a URL" if "://" in one else one for one in arguments)
        return f"arguments too many: {' '.join(shown)}"
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
    *,
    reads_env_file: bool = True,
) -> None:
    parser.set_defaults(prepare=prepare)
    parser.add_argument(
        "agents",
        nargs="*",
        metavar="MODULE:AGENT",
        help="an Agent of yours; of several, the first is asked where a request names none",
    )
    _add_settings(parser, all_settings(), reads_env_file=reads_env_file)


def _add_settings(
    parser: argparse.ArgumentParser,
    settings: Sequence[Field[Any]],
    *more: str,
    reads_env_file: bool = True,
) -> None:
    """Add a flag for each setting, and those of the `.env` file; `more` are the parser's others."""
    flags = [*(flag_name(one.name) for one in settings), "--env-file", "--no-env-file", *more]
    parser.set_defaults(flags=flags)
    env_file = parser.add_mutually_exclusive_group()
    env_file.add_argument(
        "--env-file",
        metavar="PATH",
        type=Path,
        default=DEFAULT_ENV_FILE if reads_env_file else None,
        help="a file of settings, NAME=VALUE lines; the environment wins (default: "
        f"{'.env, if any' if reads_env_file else 'none'})",
    )
    env_file.add_argument(
        "--no-env-file", dest="env_file", action="store_const", const=None, help="read no .env"
    )
    for one in settings:
        form = one.metadata["form"]
        takes = f": {form.text}; may be repeated" if form.parts else ""
        parser.add_argument(
            flag_name(one.name),
            action="append" if form.parts else "store",
            metavar=one.name.upper(),
            help=f"{one.metadata['text']}{takes} ({variable_name(one.name)})".replace("%", "%%"),
        )


def _prepare_serve(options: argparse.Namespace) -> Coroutine[None, None, int]:
    from passback.commands.serve import serve, serve_by_pool

    variables, settings = _read_settings(options)
    if settings.workers == 1:
        return serve(settings, load_agents(options.agents))
    timeout = settings.timing.shutdown_grace + _KILL_DELAY
    return serve_by_pool(settings, WorkerConfig(sys.argv, variables, options.agents, timeout))


def _prepare_worker(slot: WorkerSlot) -> Coroutine[None, None, int]:
    from passback.commands.serve import serve

    slot.end_with_pool()
    sys.argv = list(slot.order.argv)
    return serve(_load_settings(slot.order.variables), load_agents(slot.order.agents), slot)


def _prepare_acp(options: argparse.Namespace) -> Coroutine[None, None, int]:
    # an editor starts this in the folder of a project, which may be a stranger's: nothing of it is
    # imported, and its .env sends no key anywhere
    leave_current_folder(os.environ.get("PYTHONPATH", ""))
    from passback.commands.acp import serve_stdio
    from passback.streams.stdio import take_stdio
    from passback.wire.acp import AcpSettings, serve_client

    files = take_stdio()  # first: the module of an agent may print
    settings = _read_settings(options, listens=False)[1]
    of_wire = cast("AcpSettings | None", settings.of_wires.get("acp"))
    serve = options.serve_client or partial(serve_client, settings=of_wire)
    agents = load_agents(options.agents, searches_folder=False)
    return serve_stdio(settings, agents, files, serve)


def _prepare_check(options: argparse.Namespace) -> Coroutine[None, None, int]:
    from passback.commands.check import check

    return check(_read_settings(options)[1], load_agents(options.agents))


def _read_settings(
    options: argparse.Namespace, *, listens: bool = True
) -> tuple[Mapping[str, str], Settings]:
    """Return the settings, and the variables from which they are read."""
    env_file = load_env_file(options.env_file)
    flags: dict[str, str] = {}
    for one in all_settings():
        given: str | list[str] | None = getattr(options, one.name, None)
        if given is not None:  # a flag with parts may be repeated
            flags[variable_name(one.name)] = given if isinstance(given, str) else " ".join(given)
    variables = read_variables(os.environ, env_file, flags)
    try:
        settings = _load_settings(variables, listens=listens)
    except ConfigurationError as error:
        if not env_file.variables:
            raise
        where = f"(settings are also read from {options.env_file.absolute()})"
        raise ConfigurationError(f"{error.message}\n{where}") from error
    if env_file.warning:
        print_warning(env_file.warning, settings.log_format)
    return variables, settings


def _load_settings(variables: Mapping[str, str], *, listens: bool = True) -> Settings:
    """Return the settings of a server that listens, or of one that has a single client."""
    settings = load_settings(variables)
    if listens:
        refuse_unshared_settings(settings)
        _refuse_open_address(settings)
    else:
        settings = replace(settings, workers=1)
    log_to_stderr(settings.log_level, settings.log_format, several=settings.workers > 1)
    return settings


def _refuse_open_address(settings: Settings) -> None:
    """Raise ConfigurationError if everybody could reach a server without keys by accident."""
    if not (settings.is_loopback or settings.api_keys or settings.allow_anonymous):
        raise ConfigurationError(
            f"PASSBACK_HOST: others can reach {settings.host}, and no keys are set: set "
            "PASSBACK_API_KEYS, or listen on 127.0.0.1; to serve everybody without a key, set "
            "PASSBACK_ALLOW_ANONYMOUS=yes"
        )


def _add_replay_command(parser: argparse.ArgumentParser) -> None:
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
    faults = parser.add_argument_group(
        "faults", "What goes wrong, beside what went wrong in the recording."
    )
    for name, (metavar, kind, text) in _FAULTS.items():
        faults.add_argument(flag_name(name), metavar=metavar, type=kind, help=text)
    faults.add_argument(
        "--twice",
        action="store_const",
        const=True,
        help="lose the answer to each post once, so that it is posted twice",
    )
    faults.add_argument(
        "--clean", action="store_true", help="play nothing that went wrong in the recording"
    )
    flags = ["--speed", "--port", *map(flag_name, _FAULTS), "--twice", "--clean"]
    parser.set_defaults(prepare=_prepare_replay, flags=flags)


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


def _milliseconds(text: str) -> float:
    try:
        milliseconds = float(text)
    except ValueError:
        milliseconds = math.nan
    if not 0 <= milliseconds <= _LONGEST_DELAY:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 to {_LONGEST_DELAY}")
    return milliseconds


def _event_number(text: str) -> int:
    """Return the number of an event, from 1."""
    if not (text.isascii() and text.isdecimal() and len(text) <= 9 and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 to 999999999")
    return int(text)


def _event_numbers(text: str) -> Sequence[int]:
    return [_event_number(one) for one in _words(text)]


def _refusals(text: str) -> Sequence[int]:
    words = _words(text)
    if unknown := [one for one in words if one not in ("409", "429", "503")]:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is not 409, 429 or 503")
    return [int(one) for one in words]


def _words(text: str) -> Sequence[str]:
    words = text.split(",")
    if len(words) > _MOST_WORDS:
        raise argparse.ArgumentTypeError(f"more than {_MOST_WORDS} values")
    return words


def _seconds(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 4 and int(text) <= 3600):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 to 3600")
    return int(text)


def _seed(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 18):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at most 18 digits")
    return int(text)


_LONGEST_DELAY = 600_000  # milliseconds
_MOST_WORDS = 1000  # in a list of events or refusals
# flags of a replay, by the fields of `Faults` that they replace
_FAULTS: Mapping[str, tuple[str, Callable[[str], object], str]] = {
    "cut_after": ("N,N...", _event_numbers, "break the answer off behind each of these events"),
    "take_over_after": (
        "N",
        _event_number,
        "break the answer off behind this event; another worker takes the run over",
    ),
    "delay": ("MS", _milliseconds, "milliseconds by which each event comes later"),
    "delay_first": ("MS", _milliseconds, "milliseconds before the answer to a post begins"),
    "refuse": ("STATUS,...", _refusals, "first refuse each post with 409, 429 or 503"),
    "retry_after": ("S", _seconds, "seconds in the Retry-After of these refusals (default: 1)"),
    "seed": ("N", _seed, "more faults at random places, the same for the same number"),
}


def _prepare_replay(options: argparse.Namespace) -> Coroutine[None, None, int]:
    from passback.commands.serve import replay

    given = {name: getattr(options, name) for name in (*_FAULTS, "twice")}
    fields = {name: value for name, value in given.items() if value is not None}
    return replay(options, fields)


def _add_move_command(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(prepare=_prepare_move)
    parser.add_argument("source", metavar="FROM_URL", help="the store to copy, as in --store")
    parser.add_argument("target", metavar="TO_URL", help="the store that gets the conversations")
    parser.add_argument(
        "--wait",
        action="store_true",
        help="wait for the ends of the runs that go on; without it, their conversations are left "
        "out",
    )
    _add_settings(parser, _settings_named("store_options"), "--wait")


def _prepare_move(options: argparse.Namespace) -> Coroutine[None, None, int]:
    from passback.commands.move import move

    settings = _read_settings(options, listens=False)[1]
    return move(options.source, options.target, settings, wait=options.wait)


def _add_erase_command(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(prepare=_prepare_erase)
    parser.add_argument(
        "--owner", required=True, metavar="NAME", help="whose; without API keys it is anonymous"
    )
    _add_settings(parser, _settings_named("store", "store_options"), "--owner")


def _prepare_erase(options: argparse.Namespace) -> Coroutine[None, None, int]:
    from passback.commands.erase import erase

    return erase(options.owner, _read_settings(options, listens=False)[1])


def _settings_named(*names: str) -> Sequence[Field[Any]]:
    return [one for one in all_settings() if one.name in names]
