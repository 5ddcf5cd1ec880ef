"""The servers that are compared, and how each is started."""

import os
import subprocess
import sys
import uuid
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.postgres import run_postgres
from benchmarks.processes import BenchmarkError, Cores, free_port, run_server, wait_for_workers
from benchmarks.workloads import BURST, PACED, SCALING, Workload

ROOT = Path(__file__).resolve().parent.parent

PROXY = "proxy"
PROXY_REDIS = "proxy, Redis history"
PLAIN = "plain server, Redis history"
PASSBACK_REDIS = "passback, redis"
PASSBACK_UNLOGGED = "passback, redis, log off"
PASSBACK_UNLOOPED = "passback, redis, loop off"
PASSBACK_TWO_READERS = "passback, redis, two readers"
PASSBACK_ELSEWHERE = "passback, redis, reader elsewhere"
PASSBACK_AGENT_API = "passback, redis, Agent API"
PASSBACK_AG_UI = "passback, redis, AG-UI"
PASSBACK_AI_SDK = "passback, redis, AI SDK"
PASSBACK_CHAT = "passback, redis, chat socket"
PASSBACK_ACP = "passback, redis, ACP"
PASSBACK_TWO_WORKERS = "passback, redis, two workers"
PASSBACK_SQLITE = "passback, sqlite"
PASSBACK_POSTGRES = "passback, postgres"
PASSBACK_MEMORY = "passback, memory"
PROXIES = (PLAIN, PROXY, PROXY_REDIS)
# Neighbours are measured one right after the other: those that are compared stand together.
NAMES = (
    *(PLAIN, PROXY, PROXY_REDIS, PASSBACK_UNLOGGED, PASSBACK_UNLOOPED, PASSBACK_REDIS),
    *(PASSBACK_POSTGRES, PASSBACK_TWO_WORKERS, PASSBACK_AGENT_API, PASSBACK_AG_UI),
    *(PASSBACK_AI_SDK, PASSBACK_CHAT, PASSBACK_ACP),
    *(PASSBACK_TWO_READERS, PASSBACK_ELSEWHERE, PASSBACK_SQLITE, PASSBACK_MEMORY),
)
PASSBACK_TOOLS = "passback, redis, ten tools"  # measured by itself, see `benchmarks.ten_tools`
UNLOGGED = "unlogged"  # the scheme of a store's URL, see `benchmarks.unlogged`

# servers that answer one question, and under which workloads
WORKLOADS_OF_SERVER: Mapping[str, tuple[Workload, ...]] = {
    PLAIN: (PACED, BURST),
    PASSBACK_UNLOGGED: (PACED, BURST),
    PASSBACK_AGENT_API: (PACED, BURST),
    PASSBACK_AG_UI: (PACED, BURST),
    PASSBACK_AI_SDK: (PACED, BURST),
    PASSBACK_CHAT: (PACED, BURST),
    PASSBACK_ACP: (PACED, BURST),
    PASSBACK_UNLOOPED: (PACED,),
    PASSBACK_TWO_READERS: (PACED,),
    PASSBACK_ELSEWHERE: (PACED,),
    PASSBACK_TWO_WORKERS: (SCALING,),
}
DIALECT_OF_SERVER: Mapping[str, str] = {
    PASSBACK_AGENT_API: "agent-api",
    PASSBACK_AG_UI: "ag-ui",
    PASSBACK_AI_SDK: "ai-sdk",
    PASSBACK_CHAT: "chat",
    PASSBACK_ACP: "acp",
}
"""Other ways into the same server."""
# workloads that answer one question, and of which servers
SERVERS_OF_WORKLOAD: Mapping[str, tuple[str, ...]] = {
    SCALING.name: (PASSBACK_REDIS, PASSBACK_TWO_WORKERS)
}


def is_measured(name: str, work: Workload) -> bool:
    if name in WORKLOADS_OF_SERVER:
        return work.name in {each.name for each in WORKLOADS_OF_SERVER[name]}
    return name in SERVERS_OF_WORKLOAD.get(work.name, NAMES)


def is_general(name: str) -> bool:
    """Return True for a server that is compared in everything, not in a single question."""
    return name not in WORKLOADS_OF_SERVER


@dataclass(frozen=True, slots=True)
class Testbed:
    """The surroundings of the servers: a mock model, a real redis-server, a folder for files."""

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
        shares_core: True if its two workers share a core, and wait for each other.
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
def start_testbed(folder: Path, cores: Cores, redis_server: str) -> Generator[Testbed]:
    """Start the mock model, and the program `redis_server` with a log file as in production."""
    model_port, redis_port = free_port(), free_port()
    model = [sys.executable, "-m", "benchmarks.upstream", "--port", str(model_port)]
    redis = [redis_server, "--bind", "127.0.0.1", "--port", str(redis_port), "--save", ""]
    redis += ["--dir", str(folder), "--appendonly", "yes", "--appendfsync", "everysec"]
    model_log, redis_log = folder / "model.log", folder / "redis.log"
    with (
        run_server(model, port=model_port, log=model_log, cores=cores.others),
        run_server(redis, port=redis_port, log=redis_log, cores=cores.others) as redis_pid,
    ):
        yield Testbed(folder, cores, model_port, redis_port, redis_pid)


@contextmanager
def start_server(name: str, testbed: Testbed, *, checkout: Path = ROOT) -> Generator[Server]:
    """Start a server, of the passback in the folder `checkout`, on the servers' core.

    The second of two workers has the spare core, if there is one.

    Raises:
        BenchmarkError: it did not start.
    """
    if name == PASSBACK_POSTGRES:
        with (
            run_postgres(testbed.folder, testbed.cores) as postgres,
            _start_server(name, testbed, checkout, postgres.url) as server,
        ):
            yield replace(server, store_pid=postgres.pid)
        return
    with _start_server(name, testbed, checkout, store_url(name, testbed)) as server:
        yield server


@contextmanager
def _start_server(name: str, testbed: Testbed, checkout: Path, store: str) -> Generator[Server]:
    port = free_port()
    is_proxy = name in PROXIES
    argv = proxy_command(name, testbed) if is_proxy else passback_command(name, testbed, store)
    argv += ["--port", str(port)]
    log = testbed.folder / f"{name.replace(', ', '-').replace(' ', '-')}-{port}.log"
    store_pid = testbed.redis_pid if "redis" in name.lower() else None
    url, cores = f"http://127.0.0.1:{port}", testbed.cores
    # without settings that would change what is measured
    env = {key: value for key, value in os.environ.items() if not key.startswith("PASSBACK_")}
    env |= {"PASSBACK_MODEL_API_KEY": "mock", "PYTHONPATH": str(checkout / "server")}
    if name != PASSBACK_TWO_WORKERS:
        with run_server(argv, port=port, log=log, cores=cores.server, env=env) as pid:
            yield Server(name, url, pid, store_pid)
        return
    both = cores.server | cores.spare
    with run_server(argv, port=port, log=log, cores=both, env=env) as parent:
        first, second = wait_for_workers(parent, port, 2)
        shared = not cores.spare
        yield Server(name, url, first, store_pid, second_pid=second, shares_core=shared)


@contextmanager
def start_or_reuse(name: str, testbed: Testbed, started: Mapping[str, Server]) -> Generator[Server]:
    """Start a server of `NAMES`, or take one that has started, with other readers or dialect.

    Raises:
        BenchmarkError: it did not start, or the one to take is missing.
    """
    if name not in {PASSBACK_TWO_READERS, PASSBACK_ELSEWHERE, *DIALECT_OF_SERVER}:
        with start_server(name, testbed) as target:
            yield target
        return
    if PASSBACK_REDIS not in started:
        raise BenchmarkError(f"it needs {PASSBACK_REDIS!r}")
    first = replace(started[PASSBACK_REDIS], name=name)
    if name in DIALECT_OF_SERVER:
        yield replace(first, dialect=DIALECT_OF_SERVER[name])
        return
    if name == PASSBACK_TWO_READERS:
        yield replace(first, second_reader=first.url)
        return
    with start_server(PASSBACK_REDIS, testbed) as other:
        second = replace(first, second_reader=other.url, second_pid=other.pid)
        yield replace(second, shares_core=True)


def proxy_command(name: str, testbed: Testbed) -> list[str]:
    python, module = sys.executable, "benchmarks.proxy"
    if name == PLAIN:
        # of an environment of its own: the SDK's packages would cost our server time
        module = "benchmarks.plain"
        finder = [sys.executable, str(ROOT / "scripts" / "tools.py"), "--plain-server"]
        done = subprocess.run(finder, stdout=subprocess.PIPE, text=True, check=False)
        python = done.stdout.strip()
        if not python:
            raise BenchmarkError("its packages cannot be had")
    history = [] if name == PROXY else ["--history", testbed.redis_url]
    return [python, "-m", module, "--model", testbed.model_url, *history]


def store_url(name: str, testbed: Testbed) -> str:
    stores = {
        PASSBACK_UNLOGGED: f"{UNLOGGED}:{testbed.redis_url}",
        PASSBACK_SQLITE: f"sqlite:///{testbed.folder}/conversations-{uuid.uuid4().hex}.db",
        PASSBACK_MEMORY: "memory:",
    }
    return stores.get(name, testbed.redis_url)


def passback_command(name: str, testbed: Testbed, store: str) -> list[str]:
    modules = {
        PASSBACK_UNLOGGED: "benchmarks.unlogged",
        PASSBACK_UNLOOPED: "benchmarks.unlooped",
    }
    argv = [sys.executable, "-m", modules.get(name, "passback"), "serve", "--no-env-file"]
    argv += ["--store", store]
    argv += [
        "--limits",
        "owner_runs=100000,connections=100000,sockets=100000,owner_sockets=100000",
    ]  # one owner has all streams
    if name == PASSBACK_TOOLS:
        return [*argv, "benchmarks.ten_tools:agent"]
    argv += ["--model", "openai:mock", "--model-base-url", testbed.model_url]
    if name == PASSBACK_TWO_WORKERS:
        argv += ["--workers", "2"]
    if name == PASSBACK_UNLOGGED:
        argv += ["--timing", "lease=60"]  # nothing renews it
    return argv
