"""Redis servers in trouble, badly set up, encrypted, or behind a Sentinel."""

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
import trustme
from tests.contract.door.writes import (
    ALL,
    LONG,
    OVER,
    a_write,
    append,
    applied,
    due_keys,
    entry,
    first_write,
    leased,
    log_of,
    made,
    new_key,
    new_run,
    running,
    whole,
)
from tests.contract.redis.doors import open_door
from tests.support.programs import missing
from tests.support.redis_server import (
    RedisKind,
    RedisServer,
    free_port,
    redis_server,
    start,
)

from passback.core.conversation.store import (
    Amounts,
    Append,
    Appended,
    Due,
    Guard,
    LogChange,
    QueueEntry,
    RenewLease,
    SpentUnder,
    TakeLease,
    Write,
)
from passback.core.errors import ConfigurationError, StoreError, StoreFull, StoreUnavailable
from passback.core.ids import conversation_tag
from passback.core.messages import ConversationKey, RunId
from passback.stores.options import StoreOptions

pytestmark = [pytest.mark.anyio, pytest.mark.redis]


def commit(key: ConversationKey, run_id: RunId, message: bytes = b"said") -> Write:
    """End the run that has the lease."""
    log = LogChange(run_id, entry(1, 2), ends=True)
    return replace(a_write(key, Guard(fence="one")), messages=(message,), log=log, lease="end")


def next_append(key: ConversationKey, run_id: RunId) -> Append:
    return Append(key, run_id, "one", entry(1, 2))


# ---------------------------------------------------------------- a server in trouble
async def test_a_server_that_is_away_is_unavailable_and_found_again(
    tmp_path: Path, redis_kind: RedisKind
) -> None:
    with redis_server(tmp_path, kind=redis_kind) as server:
        port = server.port
        async with open_door(server.url) as store:
            run = await running(store)
            server.stop()
            with anyio.fail_after(15):
                with pytest.raises(StoreUnavailable):
                    await store.append([next_append(*run)], lease=LONG)
                with pytest.raises(StoreUnavailable):
                    await store.check(briefly=True)
                with pytest.raises(StoreUnavailable):
                    await store.check()
            again = start(tmp_path, f"--port {port}", "--save ''", kind=redis_kind)
            try:
                await store.check(briefly=True)
                assert await append(store, next_append(*run)) == [Appended(held=False)]
            finally:
                again.kill()
                again.communicate(timeout=5)


async def test_a_server_that_hangs_is_unavailable_in_time(own_redis: RedisServer) -> None:
    async with open_door(own_redis.url, StoreOptions(timeout=1)) as store:
        run = await running(store)
        write = commit(*run)
        own_redis.pause()
        with anyio.fail_after(5), pytest.raises(StoreUnavailable):
            await store.apply(write)
        own_redis.resume()
        with anyio.fail_after(5):
            await applied(store, write)
        assert await log_of(store, *run) == [entry(1, 1), entry(1, 2)]
        assert (await whole(store, run[0])).messages == (b"said",)


Make = Callable[[ConversationKey, RunId], Write]
FENCED = Guard(fence="one")
WRITES: dict[str, Make] = {
    "commit": commit,
    "message": lambda key, _: replace(a_write(key), messages=(b"late",)),
    "enqueue": lambda key, _: replace(a_write(key), enqueue=QueueEntry(new_run(), b"waits")),
    "log of another": lambda key, _: replace(a_write(key), log=LogChange(new_run(), entry(2, 1))),
    "void": lambda key, run_id: replace(
        a_write(key),
        log=LogChange(run_id, entry(9, 1), void_after=entry(1, 1).position),
        lease=TakeLease("two", LONG),
    ),
    "void all": lambda key, run_id: replace(
        a_write(key, FENCED), log=LogChange(run_id, void_after=entry(1, 0).position)
    ),
    "log without an entry": lambda key, run_id: replace(
        a_write(key, FENCED), log=LogChange(run_id), lease=RenewLease(LONG)
    ),
    "release": lambda key, _: replace(a_write(key, FENCED), lease="release"),
    "end": lambda key, _: replace(a_write(key, FENCED), lease="end", due=Due(), owes=False),
    "removal": lambda key, _: replace(a_write(key), fields={"title": None}),
    "first": lambda key, _: first_write(ConversationKey(key.owner, new_key().id)),
    "first with a run": lambda key, _: replace(
        first_write(ConversationKey(key.owner, new_key().id)),
        log=LogChange(new_run(), entry(1, 1)),
        lease=TakeLease("one", LONG),
        messages=(b"new",),
    ),
}


async def test_a_full_server_takes_nothing_and_reads_on(own_redis: RedisServer) -> None:
    async with open_door(own_redis.url) as store:
        key, run_id = await running(store)
        filled = replace(a_write(key), fields={"title": b"title"}, messages=(b"hello",), owes=True)
        await applied(store, filled)
        owner, before = key.owner, await whole(store, key)
        known = {name: own_redis.command("DUMP", name) for name in own_redis.command("KEYS", "*")}
        own_redis.command("CONFIG", "SET", "maxmemory", 1)

        spent = SpentUnder(owner, "today", "lease", Amounts(1, 2, 3), 1)
        works: dict[str, Awaitable[object]] = {
            name: store.apply(make(key, run_id)) for name, make in WRITES.items()
        }
        works |= {"check": store.check(briefly=True), "spend": store.spend(spent)}
        for name, work in works.items():
            try:
                await work
            except StoreFull:
                continue
            raise AssertionError(f"{name} was accepted")
        renewal = Append(key, run_id, "one")
        for given in (next_append(key, run_id), renewal):
            (appended,) = await store.append([given], lease=LONG)
            assert type(appended) is StoreFull

        assert await whole(store, key) == before
        assert await log_of(store, key, run_id) == [entry(1, 1)]
        now = {name: own_redis.command("DUMP", name) for name in own_redis.command("KEYS", "*")}
        assert now == known

        own_redis.command("CONFIG", "SET", "maxmemory", 0)
        await store.check(briefly=True)
        await applied(store, commit(key, run_id))


async def test_a_replica_refuses_writes(own_redis: RedisServer) -> None:
    async with open_door(own_redis.url) as store:
        run = await running(store)
        own_redis.command("REPLICAOF", "127.0.0.1", free_port())

        with pytest.raises(StoreUnavailable):
            await store.check(briefly=True)
        with pytest.raises(StoreUnavailable):
            await store.apply(commit(*run))
        (appended,) = await store.append([next_append(*run)], lease=LONG)
        assert type(appended) is StoreUnavailable

        own_redis.command("REPLICAOF", "NO", "ONE")
        await applied(store, commit(*run))


# ---------------------------------------------------------------- a part of a cluster
HALF = 8192  # slots


@pytest.fixture
def halves(tmp_path: Path, redis_kind: RedisKind) -> Iterator[tuple[RedisServer, RedisServer]]:
    """A cluster of two servers, of which one goes on when the other is away."""
    options = (
        "--cluster-enabled yes",
        "--cluster-announce-ip 127.0.0.1",
        "--cluster-require-full-coverage no",
        "--cluster-node-timeout 60000",
    )
    folders = tmp_path / "low", tmp_path / "high"
    for folder in folders:
        folder.mkdir()
    with (
        redis_server(folders[0], *options, kind=redis_kind) as low,
        redis_server(folders[1], *options, kind=redis_kind) as high,
    ):
        low.command("CLUSTER", "ADDSLOTS", *range(HALF))
        high.command("CLUSTER", "ADDSLOTS", *range(HALF, 2 * HALF))
        high.command("CLUSTER", "SET-CONFIG-EPOCH", 2)
        low.command("CLUSTER", "MEET", "127.0.0.1", high.port)
        yield low, high


async def all_slots_known(*servers: RedisServer) -> None:
    with anyio.fail_after(20):
        for server in servers:
            while b"cluster_slots_ok:16384" not in server.command(
                "CLUSTER", "INFO"
            ) or b"cluster_state:ok" not in server.command("CLUSTER", "INFO"):
                await anyio.lowlevel.checkpoint()


def key_of(server: RedisServer, *, low: bool) -> ConversationKey:
    """A conversation of one half."""
    while True:
        key = new_key()
        slot: int = server.command("CLUSTER", "KEYSLOT", conversation_tag(key))
        if (slot < HALF) == low:
            return key


@pytest.mark.nightly
@pytest.mark.parametrize("trouble", [RedisServer.stop, RedisServer.pause])
async def test_runs_go_on_when_another_part_of_the_cluster_is_away(
    halves: tuple[RedisServer, RedisServer], trouble: Callable[[RedisServer], None]
) -> None:
    low, high = halves
    await all_slots_known(low, high)
    async with open_door(low.cluster_url, StoreOptions(timeout=2)) as store:
        runs = [(key_of(low, low=place < 2), new_run()) for place in range(4)]
        for key, run_id in runs:
            await applied(store, first_write(key))
            await leased(store, key, run_id)
        trouble(high)
        for given in (
            [next_append(*run) for run in runs],
            [Append(*run, "one") for run in runs],
        ):
            with anyio.fail_after(5):
                answers = await store.append(given, lease=LONG)
            assert answers[:2] == [Appended(held=True)] * 2
            assert [type(answer) for answer in answers[2:]] == [StoreUnavailable] * 2
        for run in runs[:2]:
            assert await log_of(store, *run) == [entry(1, 1), entry(1, 2)]


@pytest.mark.nightly
async def test_abandoned_conversations_are_found_on_all_servers_of_a_cluster(
    halves: tuple[RedisServer, RedisServer],
) -> None:
    low, high = halves
    await all_slots_known(low, high)
    async with open_door(low.cluster_url) as store:
        keys = [key_of(low, low=place < 2) for place in range(4)]
        for key in keys:
            await applied(store, first_write(key))
            await leased(store, key, new_run(), milliseconds=OVER)
        assert await due_keys(store, milliseconds=LONG) == {*keys}
        assert await due_keys(store, milliseconds=LONG) == set()
        for key in keys:
            await applied(store, replace(a_write(key, FENCED), lease="release"))
        assert await due_keys(store, milliseconds=LONG) == {*keys}


# ---------------------------------------------------------------- settings
@pytest.mark.parametrize(
    ("settings", "warnings"),
    [
        ({"appendonly": "no"}, ["appendonly no"]),
        ({"appendonly": "yes", "appendfsync": "everysec"}, ["one second"]),
        ({"appendonly": "yes", "appendfsync": "no"}, ["many seconds"]),
        ({"appendonly": "yes", "appendfsync": "always"}, []),
    ],
)
async def test_settings_that_may_lose_data_are_named(
    own_redis: RedisServer, settings: dict[str, str], warnings: list[str]
) -> None:
    for name, value in settings.items():
        own_redis.command("CONFIG", "SET", name, value)
    async with open_door(own_redis.url) as store:
        found = await store.check()

    assert len(found) == len(warnings)
    assert all(part in warning for part, warning in zip(warnings, found, strict=True))


async def test_a_server_that_evicts_keys_is_refused_unless_it_is_allowed(
    own_redis: RedisServer,
) -> None:
    own_redis.command("CONFIG", "SET", "maxmemory-policy", "volatile-lru")
    async with open_door(own_redis.url) as store:
        with pytest.raises(ConfigurationError, match="volatile-lru"):
            await store.check()
    async with open_door(own_redis.url, StoreOptions(allow_eviction=True)) as store:
        assert any("volatile-lru" in warning for warning in await store.check())


async def test_a_server_that_permits_no_look_at_its_keys_is_used(own_redis: RedisServer) -> None:
    own_redis.command("ACL", "SETUSER", "app", "on", ">hunter2", "~*", "&*", "+@all", "-scan")
    async with open_door(f"redis://app:hunter2@127.0.0.1:{own_redis.port}") as store:
        await store.check()


async def test_a_server_that_hides_its_settings_is_used_with_a_warning(
    own_redis: RedisServer,
) -> None:
    own_redis.command("ACL", "SETUSER", "app", "on", ">hunter2", "~*", "&*", "+@all", "-config")
    async with open_door(f"redis://app:hunter2@127.0.0.1:{own_redis.port}") as store:
        (warning,) = await store.check()
        await made(store)

    assert "could not be verified" in warning


@pytest.mark.parametrize("login", ["", ":hunter3@", "nobody:hunter3@"])
async def test_a_refused_login_is_named_and_its_password_is_not(
    own_redis: RedisServer, login: str
) -> None:
    own_redis.command("CONFIG", "SET", "requirepass", "hunter2")
    async with open_door(f"redis://{login}127.0.0.1:{own_redis.port}") as store:
        with pytest.raises(ConfigurationError, match="refuses") as refused:
            await store.check()
        with pytest.raises(StoreError) as failed:
            await store.read(new_key(), ALL)

    shown = f"{refused.value!r} {refused.value.__cause__!r} {failed.value!r} {store.location}"
    assert "hunter" not in shown


# ---------------------------------------------------------------- TLS and Sentinel
async def test_an_encrypted_connection_checks_the_servers_name(tmp_path: Path) -> None:
    port, authority = free_port(), trustme.CA()
    (key, cert), ca = write_certificate(authority, tmp_path), tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(ca)
    files = f"--tls-key-file {key}", f"--tls-cert-file {cert}", f"--tls-ca-cert-file {ca}"
    try:
        server = start(tmp_path, "--port 0", f"--tls-port {port}", "--tls-auth-clients no", *files)
    except AssertionError:
        missing("a redis-server with TLS")
    try:
        async with open_door(f"rediss://127.0.0.1:{port}?ssl_ca_certs={ca}") as store:
            run = await running(store)
            async with store.watch(run[0]):
                await applied(store, commit(*run))
        async with open_door(f"rediss://127.0.0.1:{port}") as store:
            with anyio.fail_after(10), pytest.raises(StoreUnavailable):
                await store.read(new_key(), ALL)
    finally:
        server.kill()
        server.communicate(timeout=5)


def write_certificate(authority: trustme.CA, folder: Path) -> tuple[Path, Path]:
    certificate = authority.issue_cert("127.0.0.1")
    key, chain = folder / "key.pem", folder / "cert.pem"
    certificate.private_key_pem.write_to_path(key)
    certificate.cert_chain_pems[0].write_to_path(chain)
    return key, chain


@pytest.mark.nightly
async def test_the_master_is_found_through_a_sentinel(
    own_redis: RedisServer, redis_kind: RedisKind, tmp_path: Path
) -> None:
    port = free_port()
    config = tmp_path / "sentinel.conf"
    write_sentinel(config, port, own_redis.port)
    sentinel = start(tmp_path, str(config), "--sentinel", kind=redis_kind)
    try:
        async with open_door(f"redis+sentinel://127.0.0.1:{port}/main") as store:
            await store.check()
            run = await running(store)
            async with store.watch(run[0]):
                await applied(store, commit(*run))
                assert own_redis.listeners() == 2  # the sentinel's own, and ours
            assert await log_of(store, *run) == [entry(1, 1), entry(1, 2)]
        async with open_door(f"redis+sentinel://127.0.0.1:{port}/another") as store:
            with anyio.fail_after(5), pytest.raises(StoreUnavailable):
                await store.read(new_key(), ALL)
    finally:
        sentinel.kill()
        sentinel.communicate(timeout=5)


def write_sentinel(config: Path, port: int, master: int) -> None:
    config.write_text(f"port {port}\nsentinel monitor main 127.0.0.1 {master} 1\n")
