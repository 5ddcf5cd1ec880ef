"""A PostgreSQL for the servers that are measured, with its defaults, as in production."""

import os
import pwd
import shutil
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.processes import BenchmarkError, Cores, free_port, run_server


@dataclass(frozen=True, slots=True)
class Postgres:
    """A server of PostgreSQL that runs."""

    url: str
    pid: int


@contextmanager
def run_postgres(folder: Path, cores: Cores) -> Generator[Postgres]:
    """Make and run a server until the block ends. As root, another user runs it.

    Raises:
        BenchmarkError: there is no PostgreSQL, or it did not start.
    """
    programs = find_programs()
    port, user = free_port(), _unprivileged_user()
    # the folder of the benchmarks is root's alone
    data = Path("/tmp" if user else folder) / f"passback-bench-postgres-{port}"
    data.mkdir(mode=0o700)
    try:
        if user:
            shutil.chown(data, user)
        make = [str(programs / "initdb"), "--username=bench", "--auth=trust", f"--pgdata={data}"]
        done = subprocess.run(
            make, capture_output=True, text=True, check=False, cwd=data, user=user
        )
        if done.returncode:
            raise BenchmarkError(f"initdb: {done.stderr.strip()[-300:]}")
        server = [str(programs / "postgres"), "-D", str(data), "-p", str(port)]
        server += ["-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="]
        log = folder / f"postgres-{port}.log"
        with run_server(server, port=port, log=log, cores=cores.others, user=user) as pid:
            yield Postgres(f"postgresql://bench@127.0.0.1:{port}/postgres?sslmode=disable", pid)
    finally:
        shutil.rmtree(data, ignore_errors=True)


def find_programs() -> Path:
    """Return the folder with the newest `postgres` and `initdb`."""
    found = shutil.which("postgres")
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda each: each.parent.name)
    if found or folders:
        return Path(found).parent if found else folders[-1]
    raise BenchmarkError("it needs PostgreSQL: apt-get install postgresql")


def _unprivileged_user() -> int | None:
    if os.geteuid():
        return None
    users = {each.pw_name: each.pw_uid for each in pwd.getpwall()}
    return users.get("postgres") or users["nobody"]
