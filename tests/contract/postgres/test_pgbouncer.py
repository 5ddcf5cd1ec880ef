"""PgBouncer between workers and PostgreSQL: with sessions it is not noticed, else it is refused."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import anyio
import pytest
from tests.contract.door.writes import a_write, applied, made, whole
from tests.support.postgres_server import PASSWORD, USER, PostgresServer
from tests.support.programs import program
from tests.support.redis_server import free_port
from tests.support.waiting import moment

from passback.core.errors import ConfigurationError, StoreUnavailable
from passback.stores.postgres import PostgresStore

pytestmark = [pytest.mark.anyio, pytest.mark.postgres, pytest.mark.nightly]

LATE = 60  # seconds, for which no test waits
CONFIGURATION = """
[databases]
* = host=127.0.0.1 port={server}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = scram-sha-256
auth_file = {folder}/users
pool_mode = {mode}
default_pool_size = 40
"""


@contextmanager
def pgbouncer(server: PostgresServer, mode: str) -> Iterator[int]:
    """Run PgBouncer before a server; give its port."""
    port = free_port()
    # not in pytest's folders, which other users may not enter: it does not run as root
    with tempfile.TemporaryDirectory(prefix="passback-pgbouncer-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "users").write_text(f'"{USER}" "{PASSWORD}"\n')
        settings = CONFIGURATION.format(server=server.port, port=port, folder=name, mode=mode)
        (folder / "pgbouncer.ini").write_text(settings)
        user = () if os.geteuid() else ("-u", "nobody")
        path = program("pgbouncer", variable="TEST_PGBOUNCER")
        command = [path, "-q", *user, str(folder / "pgbouncer.ini")]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
            try:
                yield port
            finally:
                process.terminate()


async def opened(store: PostgresStore) -> None:
    """Wait until it can be reached."""
    with anyio.fail_after(20):
        while True:
            with suppress(StoreUnavailable):
                await store.check(briefly=True)
                return
            await moment()


async def test_with_sessions_of_their_own_workers_do_not_notice_it(
    shared_postgres: PostgresServer, database: str
) -> None:
    with pgbouncer(shared_postgres, "session") as port:
        url = shared_postgres.url(database, port=port)
        async with PostgresStore(url) as store, PostgresStore(url) as peer:
            await opened(store)
            await store.check()
            key = await made(store)
            with anyio.fail_after(20):
                async with peer.watch(key) as watch:
                    await watch.wait(0)  # a first hint comes with the connection
                    await applied(store, a_write(key))
                    await watch.wait(LATE)
            async with anyio.create_task_group() as tasks:
                for _ in range(50):
                    tasks.start_soon(whole, store, key)
            assert (await whole(peer, key)).version == 2


async def test_one_that_gives_connections_to_others_is_refused(
    shared_postgres: PostgresServer, database: str
) -> None:
    with pgbouncer(shared_postgres, "transaction") as port:
        async with PostgresStore(shared_postgres.url(database, port=port)) as store:
            await opened(store)
            with pytest.raises(ConfigurationError, match="pool_mode of PgBouncer to session"):
                await store.check()
