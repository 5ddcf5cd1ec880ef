"""The servers that are compared, and how each is started."""

import os
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.processes import BenchmarkError, Cores, free_port, ready_workers, running
from benchmarks.workloads import BURST, PACED, SCALING, Workload

_ROOT = Path(__file__).resolve().parent.parent

PROXY = "proxy"
PROXY_REDIS = "proxy, Redis history"
PLAIN = "plain server, Redis history"
PASSBACK_REDIS = "passback, redis"
PASSBACK_UNLOGGED = "passback, redis, log off"
PASSBACK_UNLOOPED = "passback, redis, loop off"
PASSBACK_TWO_READERS = "passback, redis, two readers"
PASSBACK_ELSEWHERE = "passback, redis, reader elsewhere"
PASSBACK_AGENT_API = "passback, redis, Agent API"
PASSBACK_TWO_WORKERS = "passback, redis, two workers"
PASSBACK_SQLITE = "passback, sqlite"
PASSBACK_MEMORY = "passback, memory"
# Neighbours are measured one right after the other: those that are compared stand together.
NAMES = (
    *(PLAIN, PROXY, PROXY_REDIS, PASSBACK_UNLOGGED, PASSBACK_UNLOOPED, PASSBACK_REDIS),
    *(PASSBACK_TWO_WORKERS, PASSBACK_AGENT_API),
    *(PASSBACK_TWO_READERS, PASSBACK_ELSEWHERE, PASSBACK_SQLITE, PASSBACK_MEMORY),
)
PASSBACK_TOOLS = "passback, redis, ten tools"  # measured by itself, see `benchmarks.tools`
UNLOGGED = "unlogged"  # the scheme of a store's URL, see `benchmarks.unlogged`

_WORKS: Mapping[str, tuple[Workload, ...]] = {
    PLAIN: (PACED, BURST),
    PASSBACK_UNLOGGED: (PACED, BURST),
    PASSBACK_AGENT_API: (PACED, BURST),
    PASSBACK_UNLOOPED: (PACED,),
    PASSBACK_TWO_READERS: (PACED,),
    PASSBACK_ELSEWHERE: (PACED,),
    PASSBACK_TWO_WORKERS: (SCALING,),
}
"""Those that answer one question, and under which workloads."""
_SERVERS: Mapping[str, tuple[str, ...]] = {SCALING.name: (PASSBACK_REDIS, PASSBACK_TWO_WORKERS)}
"""Workloads that answer one question, and of which servers."""

_PRODUCTS = {
    PASSBACK_UNLOGGED: "benchmarks.unlogged",
    PASSBACK_UNLOOPED: "benchmarks.unlooped",
}


def takes_part(name: str, work: Workload) -> bool:
    if name in _WORKS:
        return work.name in {each.name for each in _WORKS[name]}
    return name in _SERVERS.get(work.name, NAMES)


def is_whole(name: str) -> bool:
    """Whether it is a server that is compared in everything, not one that answers a single question."""
    return name not in _WORKS


@dataclass(frozen=True, slots=True)
class Site:
    """What the servers stand on: a mock model, a real redis-server, a folder for files and logs."""

    folder: Path
    cores: Cores
    model_port: int
    redis_port: int
    redis_pid: int

    @property
    def model_url(self) -> str:
        return f"http://127.0.0.1:{self.model_port}/v1"

    @property
    def redis_url(self) -> str:
        return f"redis://127.0.0.1:{self.redis_port}/0"


@dataclass(frozen=True, slots=True)
class Server:
    """A server that runs.

    Attributes:
        store_pid: of a store outside the server.
        second_reader: the URL where each run has a second reader.
        second_pid: of a second worker that has a part in it.
        shares_core: whether its two workers do, and wait for each other.
        dialect: in which it is asked.
    """

    name: str
    url: str
    pid: int
    store_pid: int | None
    second_reader: str | None = None
    second_pid: int | None = None
    shares_core: bool = False
    dialect: str = "wire"


@contextmanager
def site(folder: Path, cores: Cores, redis_server: str) -> Generator[Site]:
    """Start the mock model and Redis, a program with this name, the latter with an append-only file as in production."""
    model_port, redis_port = free_port(), free_port()
    model = [sys.executable, "-m", "benchmarks.upstream", "--port", str(model_port)]
    redis = [redis_server, "--bind", "127.0.0.1", "--port", str(redis_port), "--save", ""]
    redis += ["--dir", str(folder), "--appendonly", "yes", "--appendfsync", "everysec"]
    with ExitStack() as stack:
        stack.enter_context(running(model, model_port, folder / "model.log", cores.others))
        store = running(redis, redis_port, folder / "redis.log", cores.others)
        yield Site(folder, cores, model_port, redis_port, stack.enter_context(store))


@contextmanager
def server(name: str, place: Site, *, checkout: Path = _ROOT) -> Generator[Server]:
    """Start a server on the servers' core, one of two workers on the spare one too, if there is one.

    `checkout`: the folder whose passback it is.

    Raises:
        BenchmarkError: it did not start.
    """
    port = free_port()
    python = _plain_python() if name == PLAIN else sys.executable
    argv = [python, *_arguments(name, place, port)]
    log = place.folder / f"{name.replace(', ', '-').replace(' ', '-')}-{port}.log"
    store_pid = place.redis_pid if "redis" in name.lower() else None
    url, cores = f"http://127.0.0.1:{port}", place.cores
    env = _environment() | {"PYTHONPATH": f"{checkout / 'server'}"}
    if name != PASSBACK_TWO_WORKERS:
        with running(argv, port, log, cores.server, env) as pid:
            yield Server(name, url, pid, store_pid)
        return
    with running(argv, port, log, cores.server | cores.spare, env) as keeper:
        first, second = ready_workers(keeper, port, 2)
        alone = not cores.spare
        yield Server(name, url, first, store_pid, second_pid=second, shares_core=alone)


@contextmanager
def contestant(name: str, place: Site, started: Mapping[str, Server]) -> Generator[Server]:
    """A server of `NAMES`: one of its own, or one that has started already, with more readers or asked in another dialect.

    Raises:
        BenchmarkError: it did not start, or that one is missing.
    """
    if name not in {PASSBACK_TWO_READERS, PASSBACK_ELSEWHERE, PASSBACK_AGENT_API}:
        with server(name, place) as target:
            yield target
        return
    if PASSBACK_REDIS not in started:
        raise BenchmarkError(f"it needs {PASSBACK_REDIS!r}")
    first = replace(started[PASSBACK_REDIS], name=name)
    if name == PASSBACK_AGENT_API:
        yield replace(first, dialect="agent-api")
        return
    if name == PASSBACK_TWO_READERS:
        yield replace(first, second_reader=first.url)
        return
    with server(PASSBACK_REDIS, place) as other:
        second = replace(first, second_reader=other.url, second_pid=other.pid)
        yield replace(second, shares_core=True)


def _arguments(name: str, place: Site, port: int) -> list[str]:
    if name in (PLAIN, PROXY, PROXY_REDIS):
        module = "benchmarks.plain" if name == PLAIN else "benchmarks.proxy"
        argv = ["-m", module, "--port", str(port), "--model", place.model_url]
        return argv if name == PROXY else [*argv, "--history", place.redis_url]
    stores = {
        PASSBACK_UNLOGGED: f"{UNLOGGED}:{place.redis_url}",
        PASSBACK_SQLITE: f"sqlite:///{place.folder}/conversations-{port}.db",
        PASSBACK_MEMORY: "memory:",
    }
    store = stores.get(name, place.redis_url)
    argv = ["-m", _PRODUCTS.get(name, "passback"), "serve", "--no-env-file"]
    argv += ["--port", str(port), "--store", store]
    argv += ["--limits", "owner_runs=100000,connections=100000"]  # one owner has all streams
    if name == PASSBACK_TWO_WORKERS:
        argv += ["--workers", "2"]
    if name == PASSBACK_TOOLS:
        return [*argv, "benchmarks.ten_tools:agent"]
    argv += ["--model", "openai:mock", "--model-base-url", place.model_url]
    return (
        [*argv, "--timing", "lease=60"] if name == PASSBACK_UNLOGGED else argv
    )  # nothing renews it


def _plain_python() -> str:
    """Of an environment of its own: the SDK brings packages along that would cost our server time."""
    finder = [sys.executable, str(_ROOT / "scripts" / "tools.py"), "--plain-server"]
    found = subprocess.run(finder, stdout=subprocess.PIPE, text=True, check=False).stdout.strip()
    if not found:
        raise BenchmarkError("its packages cannot be had")
    return found


def _environment() -> dict[str, str]:
    """Ours, without settings that would change what is measured."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PASSBACK_")}
    return kept | {"PASSBACK_MODEL_API_KEY": "mock"}
