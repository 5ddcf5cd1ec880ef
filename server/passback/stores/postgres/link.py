"""Connections to PostgreSQL: their bound, limits of time, repeats, errors; and one for hints."""

import asyncio
import logging
import math
import random
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from functools import cache
from importlib.resources import files
from typing import TypeAlias

import anyio
import asyncpg
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint

from passback.core.errors import ConfigurationError, StoreError, StoreFull, StoreUnavailable
from passback.stores.coordination import LogNotifications, LogWaiter
from passback.stores.options import StoreOptions

logger = logging.getLogger(__name__)

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
Rows: TypeAlias = "list[asyncpg.Record]"

LAYOUT = 1  # version of the tables and functions
OLDEST_VERSION = 13  # of PostgreSQL
MAX_CONNECTIONS = 16  # of one process, beside the one for hints
MAX_PREFIX = 63  # PostgreSQL cuts longer names
PAUSES = (0.05, 0.2, 0.8)  # seconds before each repeat, up to twice as long
FIRST_SHARE = 0.7  # of the time of an operation, for its first attempt
CLOSE_TIMEOUT = 1.0  # seconds
LISTEN_TIMEOUT = 1.0  # seconds to wait for the connection for hints before watching without it
RECONNECT_PAUSE = 0.5  # seconds
# All statements find few rows by an index, and read them in its order. Where the server does not
# know a table yet, or one log is most of it, it would read and sort all of that.
PLANNING = "SET jit = off; SET enable_seqscan = off; SET enable_bitmapscan = off"
SILENCE = 30.0  # seconds after which the connection for hints is tried

_FOLDER = files("passback.stores.postgres")
SCHEMA = (_FOLDER / "schema.sql").read_text("utf-8")
_PARTS = re.split(
    r"^-- (\w+)$", (_FOLDER / "statements.sql").read_text("utf-8"), flags=re.MULTILINE
)
STATEMENTS: Mapping[str, str] = dict(zip(_PARTS[1::2], _PARTS[2::2], strict=True))

_LOST = (
    asyncpg.PostgresConnectionError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.CannotConnectNowError,
    asyncpg.IdleSessionTimeoutError,
    asyncpg.ReadOnlySQLTransactionError,  # it has become a standby
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
    TimeoutError,
)
_REPEATED = (
    *_LOST,
    asyncpg.TooManyConnectionsError,
    asyncpg.TransactionRollbackError,  # two transactions were in each other's way
    asyncpg.UniqueViolationError,  # so they were, or two conversations had one time
)
BROKEN = (asyncpg.PostgresError, *_LOST)
"""What the driver raises."""

_POOLER = (
    "a pooler gives connections of PostgreSQL to others between transactions: set pool_mode of "
    "PgBouncer to session, or connect without it"
)
_ERRORS: Mapping[str, tuple[type[StoreError], str]] = {
    "53100": (StoreFull, "the disk of PostgreSQL is full"),
    "53300": (StoreUnavailable, "PostgreSQL has no connection free"),
    "25006": (StoreUnavailable, "PostgreSQL takes no writes at the moment"),
    "28000": (StoreError, "PostgreSQL refuses the user of the store's URL"),
    "28P01": (StoreError, "PostgreSQL refuses the user of the store's URL"),
    "3D000": (StoreError, "PostgreSQL has no database of this name"),
    "26000": (StoreError, _POOLER),
    "42P05": (StoreError, _POOLER),
}
"""By SQLSTATE."""

_UNAVAILABLE = ("08", "23", "40", "55", "57")  # classes of SQLSTATEs

_jitter = random.SystemRandom()


def locate(url: str, /) -> str:
    """Return a URL without its password and its options.

    Raises:
        ConfigurationError: it is none of a database.
    """
    found = re.fullmatch(
        r"postgresql://(?:(?P<user>[^/?#@:]*)(?::[^/?#@:]*)?@)?"
        r"(?P<hosts>(?:[\w.,-]|:\d|\[[\da-fA-F:.]+\])*)/(?P<database>[^/?#]+)(?:\?[^#]*)?",
        url,
    )
    if found is None:
        raise ConfigurationError(
            "the store's URL has to be postgresql://USER:PASSWORD@HOST:PORT/DATABASE; "
            "percent-encode / ? # @ : in a password"
        )
    user = f"{found['user']}@" if found["user"] else ""
    return f"postgresql://{user}{found['hosts']}/{found['database']}"


def store_error(code: str, /) -> StoreError:
    """Return the StoreError for an SQLSTATE, or for the name of an error that has none."""
    if code in _ERRORS:
        kind, text = _ERRORS[code]
    elif code[:2] in _UNAVAILABLE or len(code) != len("08000"):
        kind, text = StoreUnavailable, "PostgreSQL does not answer"
    else:
        kind, text = StoreError, "PostgreSQL answers with an error"
    return kind(f"{text} ({code})", retry_after=1 if kind is StoreUnavailable else None)


def _code(error: Exception) -> str:
    return getattr(error, "sqlstate", None) or type(error).__name__


def check_server(version: int, /, *, read_only: bool) -> None:
    """Raise ConfigurationError if a server, by the statement `settings`, cannot be used."""
    if version < OLDEST_VERSION:
        raise ConfigurationError(
            f"PostgreSQL {version} is too old: passback needs {OLDEST_VERSION} or newer"
        )
    if read_only:
        raise ConfigurationError(
            "PostgreSQL takes no writes: it is a standby, or default_transaction_read_only is on"
        )


@cache
def in_schema(text: str, schema: str, /) -> str:
    """Return SQL that is written for the schema `pb` for another one."""
    return re.sub(r"\bpb\.", f'"{schema}".', text)


@cache
def _call(function: str, names: tuple[str, ...]) -> str:
    arguments = ", ".join(f"{name} => ${i}" for i, name in enumerate(names, 1))
    # the names are from our code
    return f"SELECT * FROM pb.{function}({arguments}) AS answer"  # noqa: S608


# ---------------------------------------------------------------- connections
class Connections:
    """Connections to the server; all raise the StoreErrors of `store_error`.

    What is lost with its connection, or in conflict with another transaction, is repeated: every
    write may be. Connecting is lazy; the first connection makes the tables where there are none.
    """

    def __init__(self, url: str, options: StoreOptions) -> None:
        if len(options.prefix) > MAX_PREFIX:
            raise ConfigurationError(f"a prefix in PostgreSQL has at most {MAX_PREFIX} characters")
        self.location = locate(url)
        self._url = url
        self._schema = options.prefix
        self._timeout = options.timeout
        self._free = asyncio.Semaphore(min(options.max_connections, MAX_CONNECTIONS))
        self._idle: list[Connection] = []
        self._tasks: TaskGroup | None = None
        self._is_prepared = False

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[TaskGroup]:
        """Take calls inside the context; what runs in its task group ends with it."""
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            try:
                yield tasks
            finally:
                self._tasks = None
                tasks.cancel_scope.cancel()
                with anyio.CancelScope(shield=True):
                    while self._idle:
                        await _close(self._idle.pop())

    async def call(self, function: str, /, **given: object) -> Rows:
        """Call a function of `schema.sql`, with its arguments by name."""
        return await self.fetch(_call(function, tuple(given)), *given.values())

    async def fetch(self, text: str, *arguments: object, seconds: float = math.inf) -> Rows:
        """Run a statement, for `seconds` if that is less than the time of the settings."""
        now, seconds = asyncio.get_running_loop().time, min(seconds, self._timeout)
        until, pauses = now() + seconds, iter(PAUSES)
        end = now() + seconds * FIRST_SHARE
        while True:
            try:
                # asyncio's, because anyio's scope and limiter cost as much as the rest of a call
                async with asyncio.timeout_at(end), self._free:
                    return await self._fetch_once(in_schema(text, self._schema), arguments)
            except BROKEN as error:
                if isinstance(error, _LOST):
                    self._drop_idle()  # what has ended one connection has mostly ended all others
                pause, end = next(pauses, None), until
                wait = math.inf if pause is None else _jitter.uniform(pause, 2 * pause)
                if not isinstance(error, _REPEATED) or now() + wait >= until:
                    raise store_error(_code(error)) from error
            await asyncio.sleep(wait)

    async def _fetch_once(self, statement: str, arguments: Sequence[object]) -> Rows:
        while self._idle and self._idle[-1].is_closed():
            self._idle.pop()
        connection = self._idle.pop() if self._idle else await self.connect()
        is_usable = False
        try:
            rows = await connection.fetch(statement, *arguments)
            is_usable = True
        except asyncpg.PostgresError as error:
            is_usable = not isinstance(error, _LOST)
            raise
        finally:
            if is_usable and self._tasks is not None:
                self._idle.append(connection)
            elif self._tasks is not None:
                # the driver asks the server to cancel what nobody waits for any more
                self._tasks.start_soon(_close, connection)
            else:
                connection.terminate()
        return rows

    async def check_sessions(self) -> None:
        """Raise ConfigurationError if two connections are one of the server's, in turn.

        Settings and prepared statements would be those of others, and notifications get lost.
        """
        connections: list[Connection] = []
        try:
            async with asyncio.timeout(self._timeout):
                connections += [await self.connect() for _ in range(2)]
                pids = {await each.fetchval("SELECT pg_backend_pid()") for each in connections}
        except BROKEN as error:
            raise store_error(_code(error)) from error
        finally:
            for each in connections:
                each.terminate()
        if len(pids) < len(connections):
            raise ConfigurationError(_POOLER)

    def _drop_idle(self) -> None:
        while self._idle:
            self._idle.pop().terminate()

    async def connect(self) -> Connection:
        """Raises what the driver does, and ConfigurationError."""
        if self._tasks is None:
            raise StoreUnavailable("the store is closed")
        try:
            connection = await asyncpg.connect(
                self._url,
                server_settings={"application_name": "passback"},
                max_cached_statement_lifetime=0,
            )
        except (ValueError, OverflowError):  # its text may have the password
            raise ConfigurationError(
                "a port or an option in the store's URL cannot be used"
            ) from None
        with ExitStack() as stack:
            stack.callback(connection.terminate)
            await connection.execute(PLANNING)
            if not self._is_prepared:
                await self._prepare(connection)
                self._is_prepared = True
            stack.pop_all()
        return connection

    async def _prepare(self, connection: Connection) -> None:
        """Make the tables where there are none. Raises ConfigurationError if they do not fit."""
        [settings] = await connection.fetch(STATEMENTS["settings"])
        check_server(settings["version"], read_only=settings["read_only"])
        name = f'"{self._schema}"'
        try:
            async with connection.transaction():
                # several workers start at once
                await connection.execute("SELECT pg_advisory_xact_lock(hashtext($1))", name)
                if not await connection.fetchval("SELECT to_regnamespace($1) IS NOT NULL", name):
                    await connection.execute(f"CREATE SCHEMA {name}")
                layout = f"{name}.layout"
                if not await connection.fetchval("SELECT to_regclass($1) IS NOT NULL", layout):
                    await connection.execute(in_schema(SCHEMA, self._schema))
                    await connection.execute(in_schema(STATEMENTS["mark"], self._schema), LAYOUT)
                version = await connection.fetchval(in_schema(STATEMENTS["layout"], self._schema))
        except asyncpg.SyntaxOrAccessError as error:
            raise ConfigurationError(
                f"the store's tables cannot be made or read in the schema {self._schema!r} of "
                f"PostgreSQL ({error.sqlstate}): the user needs the right to create a schema in "
                "the database, or an empty schema of this name that belongs to it"
            ) from error
        if version != LAYOUT:
            raise ConfigurationError(
                f"the tables in the schema {self._schema!r} of PostgreSQL have version {version}, "
                f"and this passback has {LAYOUT}: use the passback that made them, another prefix, "
                "or another database"
            )


async def _close(connection: Connection) -> None:
    with suppress(*BROKEN):
        await connection.close(timeout=CLOSE_TIMEOUT)


# ---------------------------------------------------------------- hints
class Hints:
    """Notifications of the waiters of all processes, on one connection of each process.

    A hint is lost while there is no connection: each wait also ends by itself after a while.
    """

    def __init__(self, connections: Connections, channel: str) -> None:
        self._connections = connections
        self._channel = channel
        self._notifications = LogNotifications()
        self._announced: set[str] = set()
        self._wake = anyio.Event()
        self._listens = anyio.Event()
        self._is_lost = False
        self._pid = 0

    def announce(self, tag: str, /) -> None:
        """Notify this process at once, and the others soon."""
        self._notifications.notify(tag)
        self._announced.add(tag)
        self._wake.set()

    @asynccontextmanager
    async def watching(self, tag: str, /) -> AsyncGenerator[LogWaiter]:
        """Give a waiter that is notified from now on."""
        with self._notifications.registered(tag, LogWaiter()) as waiter:
            self._wake.set()
            with anyio.move_on_after(LISTEN_TIMEOUT):
                await self._listens.wait()
            yield waiter

    async def run(self) -> None:
        """Keep the connection once it is needed; run until cancelled."""
        await self._wake.wait()
        while True:
            try:
                await self._serve()
            except (*BROKEN, StoreError, ConfigurationError) as error:
                if not self._is_lost:  # else each attempt during an outage would be a line
                    logger.warning("wake-up hints from PostgreSQL broke off: %s", _code(error))
                self._is_lost = True
            self._listens = anyio.Event()
            self._announced.clear()
            self._notifications.notify_all()
            await anyio.sleep(RECONNECT_PAUSE)

    async def _serve(self) -> None:
        await checkpoint()  # which ends it where the store was closed meanwhile
        async with asyncio.timeout(SILENCE):
            connection = await self._connections.connect()
        try:
            connection.add_termination_listener(lambda _: self._wake.set())
            self._pid = connection.get_server_pid()
            await connection.add_listener(self._channel, self._hear)
            self._listens.set()
            self._is_lost = False
            self._notifications.notify_all()
            while True:
                with anyio.move_on_after(SILENCE):
                    await self._wake.wait()
                self._wake = anyio.Event()
                tags, self._announced = list(self._announced), set()
                # without any, it tells whether the connection is still there
                arguments = self._channel, tags
                await connection.fetch(STATEMENTS["notify"], *arguments, timeout=SILENCE)
        finally:
            with anyio.CancelScope(shield=True):
                await _close(connection)

    def _hear(self, _: object, pid: int, channel: str, payload: object) -> None:
        if pid != self._pid:  # what this process wrote, it has announced itself
            self._notifications.notify(str(payload))
