"""The servers that are compared, and how each is started."""

import os
import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.processes import Cores, free_port, running

PROXY = "proxy"
PROXY_REDIS = "proxy, Redis history"
PASSBACK_REDIS = "passback, redis"
PASSBACK_SQLITE = "passback, sqlite"
PASSBACK_MEMORY = "passback, memory"
NAMES = (PROXY, PROXY_REDIS, PASSBACK_REDIS, PASSBACK_SQLITE, PASSBACK_MEMORY)


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
    name: str
    url: str
    pid: int
    store_pid: int | None  # of a store outside the server


@contextmanager
def site(folder: Path, cores: Cores) -> Generator[Site]:
    """Start the mock model and Redis, the latter with an append-only file as in production."""
    model_port, redis_port = free_port(), free_port()
    model = [sys.executable, "-m", "benchmarks.upstream", "--port", str(model_port)]
    redis = ["redis-server", "--bind", "127.0.0.1", "--port", str(redis_port), "--save", ""]
    redis += ["--dir", str(folder), "--appendonly", "yes", "--appendfsync", "everysec"]
    with ExitStack() as stack:
        stack.enter_context(running(model, model_port, folder / "model.log", cores.others))
        store = running(redis, redis_port, folder / "redis.log", cores.others)
        yield Site(folder, cores, model_port, redis_port, stack.enter_context(store))


@contextmanager
def server(name: str, place: Site) -> Generator[Server]:
    """Start a server of `NAMES` on the servers' core.

    Raises:
        BenchmarkError: it did not start.
    """
    port = free_port()
    argv = [sys.executable, *_arguments(name, place, port)]
    log = place.folder / f"{name.replace(', ', '-').replace(' ', '-')}-{port}.log"
    with running(argv, port, log, place.cores.server, _environment()) as pid:
        store_pid = place.redis_pid if "redis" in name.lower() else None
        yield Server(name, f"http://127.0.0.1:{port}", pid, store_pid)


def _arguments(name: str, place: Site, port: int) -> list[str]:
    if name in (PROXY, PROXY_REDIS):
        argv = ["-m", "benchmarks.proxy", "--port", str(port), "--model", place.model_url]
        return [*argv, "--history", place.redis_url] if name == PROXY_REDIS else argv
    stores = {
        PASSBACK_REDIS: place.redis_url,
        PASSBACK_SQLITE: f"sqlite:///{place.folder}/conversations-{port}.db",
        PASSBACK_MEMORY: "memory:",
    }
    argv = ["-m", "passback", "serve", "--port", str(port), "--store", stores[name]]
    return [*argv, "--model", "openai:mock", "--model-base-url", place.model_url]


def _environment() -> dict[str, str]:
    """Ours, without settings that would change what is measured."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PASSBACK_")}
    return kept | {"PASSBACK_MODEL_API_KEY": "mock"}
