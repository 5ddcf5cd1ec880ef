"""A Redis master, its replica, and three Sentinels that promote the replica."""

from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import anyio
from tests.support.redis_server import RedisKind, RedisServer, free_port, redis_server, start
from tests.support.waiting import pause

SERVICE = "main"
QUORUM = 2
DOWN_AFTER = 500
"""Milliseconds of silence after which a Sentinel takes the master to be gone."""
SETTLING = 60
"""Seconds that Sentinels may take: on a busy machine one may do nothing for half a minute."""
LOOK = 0.05


@dataclass(frozen=True, slots=True)
class Failover:
    """Use `failover`. `master` is the one of the beginning, and `replica` its successor."""

    master: RedisServer
    replica: RedisServer
    sentinels: Sequence[RedisServer]

    @property
    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{each.port}" for each in self.sentinels)
        return f"redis+sentinel://{hosts}/{SERVICE}"

    async def replicated(self) -> None:
        """Wait until the replica has all that the master has acknowledged up to this call."""
        written = int(_role(self.master)[1])
        with anyio.fail_after(SETTLING):
            while _role(self.replica)[3] != b"connected" or int(_role(self.replica)[4]) < written:
                await pause(LOOK)

    async def cut(self) -> None:
        """Cut the replica off: it loses what the master acknowledges after this."""
        self.replica.command("CONFIG", "SET", "masterauth", "refused")
        self.master.command("CLIENT", "KILL", "TYPE", "replica")
        with anyio.fail_after(SETTLING):
            while _role(self.replica)[3] == b"connected":
                await pause(LOOK)

    async def promoted(self) -> None:
        """Wait until the replica is the master."""
        with anyio.fail_after(SETTLING):
            while _role(self.replica)[0] != b"master":
                await pause(LOOK)

    async def watched(self) -> None:
        """Wait until the Sentinels know all that a failover needs."""
        with anyio.fail_after(SETTLING):
            while not all(map(_is_watchful, self.sentinels)):
                await pause(LOOK)


def _role(server: RedisServer) -> Sequence[Any]:
    role: Sequence[Any] = server.command("ROLE")
    return role


def _is_watchful(sentinel: RedisServer) -> bool:
    master = _pairs(sentinel.command("SENTINEL", "MASTER", SERVICE))
    replicas = [_pairs(each) for each in sentinel.command("SENTINEL", "REPLICAS", SERVICE)]
    others = [_pairs(each) for each in sentinel.command("SENTINEL", "SENTINELS", SERVICE)]
    return (
        master[b"flags"] == b"master"
        and [each[b"master-link-status"] for each in replicas] == [b"ok"]
        and [each[b"flags"] for each in others] == [b"sentinel"] * 2
    )


def _pairs(flat: Sequence[bytes]) -> dict[bytes, bytes]:
    return dict(zip(flat[::2], flat[1::2], strict=True))


@asynccontextmanager
async def failover(folder: Path, kind: RedisKind = "redis") -> AsyncGenerator[Failover]:
    """Start all five, each with a folder of its own in `folder`; ended on leaving."""
    with ExitStack() as stack:
        folders = [folder / name for name in ("master", "replica", "one", "two", "three")]
        for each in folders:
            each.mkdir(parents=True)
        # by itself a master waits five seconds for more replicas before it sends its data
        early = ("--repl-diskless-sync-delay 0",)
        master = stack.enter_context(redis_server(folders[0], *early, kind=kind))
        replica = stack.enter_context(redis_server(folders[1], *early, kind=kind))
        replica.command("REPLICAOF", "127.0.0.1", master.port)
        servers = Failover(master, replica, ())
        await servers.replicated()
        ports = [free_port() for _ in range(3)]
        sentinels = [
            stack.enter_context(sentinel(home, kind, master, ports[place:] + ports[:place]))
            for place, home in enumerate(folders[2:])
        ]
        servers = replace(servers, sentinels=sentinels)
        await servers.watched()
        yield servers


@contextmanager
def sentinel(
    home: Path, kind: RedisKind, master: RedisServer, ports: Sequence[int] = ()
) -> Generator[RedisServer]:
    """Start a Sentinel. `ports`: its own, and the others', because finding them takes seconds."""
    own, *others = ports or [free_port()]
    lines = [
        f"port {own}",
        f"sentinel myid {own:040}",
        f"sentinel monitor {SERVICE} 127.0.0.1 {master.port} {QUORUM}",
        f"sentinel down-after-milliseconds {SERVICE} {DOWN_AFTER}",
        f"sentinel failover-timeout {SERVICE} 10000",
        *(f"sentinel known-sentinel {SERVICE} 127.0.0.1 {port} {port:040}" for port in others),
    ]
    config = home / "sentinel.conf"
    config.write_text("\n".join(lines) + "\n")
    process = start(home, str(config), "--sentinel", kind=kind)
    server = RedisServer(own, process)
    try:
        yield server
    finally:
        server.stop()
        if process.stdout:
            process.stdout.close()
