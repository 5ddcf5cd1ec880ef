"""Real PostgreSQL servers of the tests' own, each on a free local port and in a folder of its own.

PostgreSQL does not run as root: there it is run as the user `postgres`, or as `nobody`.
"""

import asyncio
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from collections import deque
from collections.abc import AsyncGenerator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import anyio
import asyncpg
from tests.support.programs import missing

STOP_SECONDS = 20
USER, PASSWORD = "tester", "a-password-of-tests"
QUICK = ("fsync=off",)
"""Settings of a server whose data nobody wants back."""
_TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = 'pb' AND tablename <> 'layout'"
CLEAR = (
    f"DO $$ DECLARE name text; BEGIN FOR name IN {_TABLES} LOOP EXECUTE 'DELETE FROM pb.' || name;"
    " END LOOP; END $$"
)
"""A statement that empties the store's tables, if they are there."""

_SETTINGS = (
    "listen_addresses=127.0.0.1", "unix_socket_directories=", "lc_messages=C", "max_wal_size=256MB",
)  # fmt: skip
_databases = count(1)


class PostgresServer:
    """Use `postgres_server`.

    Attributes:
        port: it stays through a restart.
    """

    def __init__(self, folder: Path, settings: tuple[str, ...]) -> None:
        self.port = _free_port()
        self._folder = folder
        self._settings = settings
        self._process: subprocess.Popen[str] | None = None
        self._drain: threading.Thread | None = None

    def url(
        self,
        database: str = "postgres",
        *,
        port: int = 0,
        user: str = USER,
        # asyncio logs an error of the driver's where a call is cancelled as it asks for TLS
        options: str = "?sslmode=disable",
    ) -> str:
        return f"postgresql://{user}:{PASSWORD}@127.0.0.1:{port or self.port}/{database}{options}"

    def new_database(self) -> str:
        """Make an empty database; return its name."""
        name = f"test{next(_databases)}"
        self.run(f"CREATE DATABASE {name}")
        return name

    def end_connections(self, database: str, *, which: str = "true") -> int:
        """End connections, as an administrator can; return how many."""
        chosen = f"SELECT pid FROM pg_stat_activity WHERE datname = '{database}' AND {which}"
        ended = f"SELECT pg_terminate_backend(pid, 5000) FROM ({chosen} OFFSET 0) AS chosen"
        return len(self.run(ended))

    def clear(self) -> None:
        """Empty the tables of the database `postgres`: this takes less time than another one."""
        self.run(CLEAR, "SELECT 1")

    def run(self, *statements: str, database: str = "postgres") -> list[Any]:
        """Run statements beside the store that is tested; return the first column of the last."""

        async def run_all() -> list[Any]:
            connection = await asyncpg.connect(self.url(database))
            try:
                for statement in statements[:-1]:
                    await connection.execute(statement)
                return [row[0] for row in await connection.fetch(statements[-1])]
            finally:
                await connection.close()

        with ThreadPoolExecutor(1) as thread:  # where no loop runs yet
            return thread.submit(lambda: asyncio.run(run_all())).result()

    def start(self) -> None:
        """Return when it answers, with all that it had acknowledged."""
        settings = [word for each in (*_SETTINGS, *self._settings) for word in ("-c", each)]
        command = [_program("postgres"), "-D", str(self._folder), "-p", str(self.port), *settings]
        self._process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            cwd=self._folder,
            env={"LC_ALL": "C.UTF-8", "PATH": os.defpath},
            **_run_as(),
        )
        lines = self._process.stdout
        assert lines is not None
        if not any("ready to accept connections" in line for line in lines):
            raise AssertionError(f"postgres ended with {self._process.wait(STOP_SECONDS)}")
        # a full pipe would stop the server
        self._drain = threading.Thread(target=deque, args=(lines, 0), daemon=True)
        self._drain.start()

    def kill(self) -> None:
        """End it, and all its processes, as a crash would."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)  # no others begin meanwhile
        for pid in [self._process.pid, *self.backends()]:
            os.kill(pid, signal.SIGKILL)
        self._await_end()

    def _await_end(self) -> None:
        assert self._process is not None
        self._process.wait(STOP_SECONDS)
        if self._drain and self._process.stdout:
            self._drain.join(STOP_SECONDS)
            self._process.stdout.close()

    def stop(self) -> None:
        """End it as an administrator does who does not wait for clients (a fast shutdown)."""
        assert self._process is not None
        self._process.send_signal(signal.SIGINT)
        self._await_end()

    def backends(self) -> list[int]:
        """Return the processes that serve it."""
        assert self._process is not None
        pid = self._process.pid
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    def pause(self) -> None:
        """Let it keep its connections and say nothing on them; it takes others."""
        for pid in self.backends():
            os.kill(pid, signal.SIGSTOP)

    def resume(self) -> None:
        for pid in self.backends():
            os.kill(pid, signal.SIGCONT)


@contextmanager
def postgres_server(*settings: str) -> Iterator[PostgresServer]:
    """Make and start a server with more settings, as `name=value`; end it on leaving."""
    # not in pytest's folders, which other users may not enter
    with tempfile.TemporaryDirectory(prefix="passback-postgres-") as name:
        folder, password = Path(name) / "data", Path(name) / "password"
        password.write_text(PASSWORD)
        folder.mkdir(mode=0o700)
        run_as = _run_as()
        for path in (Path(name), folder, password):
            if run_as:
                shutil.chown(path, run_as["user"], run_as["group"])
        options = ["--no-sync", f"--username={USER}", "--auth=scram-sha-256", "--encoding=UTF8"]
        subprocess.run(
            [_program("initdb"), *options, f"--pwfile={password}", f"--pgdata={folder}"],
            check=True,
            capture_output=True,
            cwd=name,
            env={"LC_ALL": "C.UTF-8", "PATH": os.defpath},
            **run_as,
        )
        server = PostgresServer(folder, settings)
        server.start()
        try:
            yield server
        finally:
            server.kill()


class StoppablePostgres:
    """Use `stoppable_postgres`."""

    def __init__(self, server: PostgresServer) -> None:
        self.server = server
        self.port = server.port

    def url_at(self, port: int) -> str:
        """Return the store's URL for those who reach the server at a port."""
        return self.server.url(port=port)

    async def start(self) -> None:
        """Return when it answers, with all that it had acknowledged."""
        await anyio.to_thread.run_sync(self.server.start)

    async def kill(self) -> None:
        """End it, and all its processes, as a crash would."""
        await anyio.to_thread.run_sync(self.server.kill)

    async def stop(self) -> None:
        """End it as an administrator does who does not wait for clients."""
        await anyio.to_thread.run_sync(self.server.stop)


@asynccontextmanager
async def stoppable_postgres() -> AsyncGenerator[StoppablePostgres]:
    """A server that writes each change to the disk before it answers; ended on leaving."""
    running = postgres_server()
    server = await anyio.to_thread.run_sync(running.__enter__)
    try:
        yield StoppablePostgres(server)
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(running.__exit__, None, None, None)


def _program(name: str) -> str:
    """Return a program of the newest version that is here: `TEST_POSTGRES` names the server's."""
    given = os.environ.get("TEST_POSTGRES") or shutil.which("postgres")
    folders = [Path(given).parent] if given else sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    found = [str(folder / name) for folder in folders if (folder / name).exists()]
    return found[-1] if found else missing("PostgreSQL")


def _run_as() -> dict[str, Any]:
    """Return the arguments of `subprocess` for a user that PostgreSQL runs as."""
    if os.geteuid() != 0:
        return {}
    names = {each.pw_name: each for each in pwd.getpwall()}
    user = names.get("postgres") or names["nobody"]
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": ()}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
