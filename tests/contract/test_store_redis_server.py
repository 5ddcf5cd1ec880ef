"""Redis servers in trouble, badly set up, encrypted, or behind a Sentinel."""

from collections.abc import Callable, Iterator
from pathlib import Path

import anyio
import pytest
import trustme
from tests.support.programs import missing
from tests.support.redis_server import (
    RedisKind,
    RedisServer,
    free_port,
    redis_server,
    start,
)
from tests.support.store_values import (
    CANCELLED,
    LONG,
    begin_run,
    change,
    ending,
    new_key,
    take_over_run,
    texts,
    user,
    waiting,
)

from passback.core.errors import (
    ConfigurationError,
    StoreError,
    StoreFull,
    StoreUnavailable,
)
from passback.core.messages import ConversationKey
from passback.stores.layout import conversation_tag
from passback.stores.open import open_store
from passback.stores.options import StoreOptions

pytestmark = [pytest.mark.anyio, pytest.mark.redis]


# ---------------------------------------------------------------- a server in trouble
async def test_a_server_that_is_away_is_unavailable_and_found_again(
    tmp_path: Path, redis_kind: RedisKind
) -> None:
    with redis_server(tmp_path, kind=redis_kind) as server:
        port = server.port
        async with open_store(server.url) as store:
            held = await begin_run(store, new_key())
            server.stop()
            with anyio.fail_after(10):
                with pytest.raises(StoreUnavailable):
                    await store.append([texts(held, 2, "a")], lease=LONG)
                with pytest.raises(StoreUnavailable):
                    await store.ping()
                with pytest.raises(StoreUnavailable):
                    await store.check()
            again = start(tmp_path, f"--port {port}", "--save ''", kind=redis_kind)
            try:
                await store.ping()
                assert await store.append([texts(held, 2, "a")], lease=LONG) == ["lost"]
            finally:
                again.kill()
                again.communicate(timeout=5)


async def test_a_server_that_hangs_is_unavailable_in_time(own_redis: RedisServer) -> None:
    async with open_store(own_redis.url, options=StoreOptions(timeout=1)) as store:
        held = await begin_run(store, new_key())
        own_redis.pause()
        with anyio.fail_after(5), pytest.raises(StoreUnavailable):
            await store.commit(ending(held, 0, 2), lease=LONG)
        own_redis.resume()
        with anyio.fail_after(5):
            await store.commit(ending(held, 0, 2), lease=LONG)

        assert len(await store.read_log(held.run)) == 2


async def test_a_full_server_takes_nothing_and_reads_on(own_redis: RedisServer) -> None:
    async with open_store(own_redis.url) as store:
        held = await begin_run(store, new_key(), user("hello"))
        waits = waiting(held.run.key)
        await store.enqueue(waits)
        lapsed = await begin_run(store, new_key())
        await store.append([texts(lapsed, 2, "a")], lease=0)
        before = await store.load(held.run.key)
        own_redis.command("CONFIG", "SET", "maxmemory", 1)

        with pytest.raises(StoreFull):
            await store.ping()
        with pytest.raises(StoreFull):
            await store.commit(ending(held, 0, 2, say="lost"), lease=LONG)
        (appended,) = await store.append([texts(held, 2, "a")], lease=LONG)
        assert type(appended) is StoreFull
        with pytest.raises(StoreFull):
            await store.park(change(new_key(), 0, user("new")))
        with pytest.raises(StoreFull):
            await store.enqueue(waiting(held.run.key))
        with pytest.raises(StoreFull):
            await store.cancel(waits.run, CANCELLED)
        with pytest.raises(StoreFull):
            await store.release(held)
        with pytest.raises(StoreFull):
            await take_over_run(store, lapsed.run.key, user("taken over"))
        assert await store.load(held.run.key) == before
        assert [each.position.seq for each in await store.read_log(lapsed.run)] == [1, 2]
        assert len(await store.read_log(held.run)) == 1

        own_redis.command("CONFIG", "SET", "maxmemory", 0)
        await store.ping()
        await store.commit(ending(held, 0, 2, say="kept"), lease=LONG)


async def test_a_replica_refuses_writes(own_redis: RedisServer) -> None:
    async with open_store(own_redis.url) as store:
        held = await begin_run(store, new_key(), user("hello"))
        own_redis.command("REPLICAOF", "127.0.0.1", free_port())

        with pytest.raises(StoreUnavailable):
            await store.ping()
        with pytest.raises(StoreUnavailable):
            await store.commit(ending(held, 0, 2), lease=LONG)
        (appended,) = await store.append([texts(held, 2, "a")], lease=LONG)
        assert type(appended) is StoreUnavailable

        own_redis.command("REPLICAOF", "NO", "ONE")
        await store.commit(ending(held, 0, 2), lease=LONG)


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
    async with open_store(low.cluster_url, options=StoreOptions(timeout=2)) as store:
        leases = [await begin_run(store, key_of(low, low=place < 2)) for place in range(4)]
        trouble(high)
        with anyio.fail_after(5):
            appended = await store.append([texts(held, 2, "a") for held in leases], lease=LONG)
        with anyio.fail_after(5):
            renewed = await store.renew(leases, lease=LONG)

        for answers in (appended, renewed):
            assert answers[:2] == ["held", "held"]
            assert [type(answer) for answer in answers[2:]] == [StoreUnavailable] * 2
        for held in leases[:2]:
            assert [logged.position.seq for logged in await store.read_log(held.run)] == [1, 2]


@pytest.mark.nightly
async def test_abandoned_conversations_are_found_on_all_servers_of_a_cluster(
    halves: tuple[RedisServer, RedisServer],
) -> None:
    low, high = halves
    await all_slots_known(low, high)
    async with open_store(low.cluster_url) as store:
        keys = [key_of(low, low=place < 2) for place in range(4)]
        leases = [await begin_run(store, key, lease=0) for key in keys]
        assert {*await store.take_due(9, lease=LONG)} == {*keys}
        assert await store.take_due(9, lease=LONG) == []

        for held in leases:
            assert await store.release(held)
        assert {*await store.take_due(9, lease=LONG)} == {*keys}
        for key in keys:
            taken = await take_over_run(store, key)
            assert await store.enqueue(waiting(key)) == "queued"
            assert await store.commit(ending(taken, 0, 2), lease=0)


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
    async with open_store(own_redis.url) as store:
        found = await store.check()

    assert len(found) == len(warnings)
    assert all(part in warning for part, warning in zip(warnings, found, strict=True))


async def test_a_server_that_evicts_keys_is_refused_unless_it_is_allowed(
    own_redis: RedisServer,
) -> None:
    own_redis.command("CONFIG", "SET", "maxmemory-policy", "volatile-lru")
    async with open_store(own_redis.url) as store:
        with pytest.raises(ConfigurationError, match="volatile-lru"):
            await store.check()
    async with open_store(own_redis.url, options=StoreOptions(allow_eviction=True)) as store:
        assert any("volatile-lru" in warning for warning in await store.check())


@pytest.mark.parametrize("changed", [("HDEL",), ("HSET", "7")])
async def test_conversations_of_another_layout_are_refused(
    own_redis: RedisServer, changed: tuple[str, ...]
) -> None:
    key = new_key()
    async with open_store(own_redis.url, options=StoreOptions(prefix="own")) as store:
        await begin_run(store, key)
        await store.check()
        verb, *value = changed
        own_redis.command(verb, f"own:{{{conversation_tag(key)}}}:state", "layout", *value)
        with pytest.raises(ConfigurationError, match="'own' are of another version"):
            await store.check()
    async with open_store(own_redis.url) as other:
        await other.check()


@pytest.mark.nightly
async def test_conversations_of_another_layout_are_refused_in_a_cluster(
    redis_cluster_url: str, shared_cluster: RedisServer
) -> None:
    key = new_key()
    async with open_store(redis_cluster_url) as store:
        await begin_run(store, key)
        await store.check()
        shared_cluster.command("HDEL", f"pb:{{{conversation_tag(key)}}}:state", "layout")
        with pytest.raises(ConfigurationError, match="another version"):
            await store.check()


@pytest.mark.parametrize("foreign", [("SET", "foreign"), ("HSET", "newest_epoch", "3")])
async def test_a_damaged_conversation_is_no_other_layout(
    own_redis: RedisServer, foreign: tuple[str, ...]
) -> None:
    verb, *value = foreign
    own_redis.command(verb, f"pb:{{{conversation_tag(new_key())}}}:state", *value)
    async with open_store(own_redis.url) as store:
        await store.check()


async def test_a_server_that_permits_no_look_at_its_keys_is_used(own_redis: RedisServer) -> None:
    own_redis.command("ACL", "SETUSER", "app", "on", ">hunter2", "~*", "&*", "+@all", "-scan")
    async with open_store(f"redis://app:hunter2@127.0.0.1:{own_redis.port}") as store:
        await store.check()


async def test_a_server_that_hides_its_settings_is_used_with_a_warning(
    own_redis: RedisServer,
) -> None:
    own_redis.command("ACL", "SETUSER", "app", "on", ">hunter2", "~*", "&*", "+@all", "-config")
    async with open_store(f"redis://app:hunter2@127.0.0.1:{own_redis.port}") as store:
        (warning,) = await store.check()
        await begin_run(store, new_key())

    assert "could not be verified" in warning


@pytest.mark.parametrize("login", ["", ":hunter3@", "nobody:hunter3@"])
async def test_a_refused_login_is_named_and_its_password_is_not(
    own_redis: RedisServer, login: str
) -> None:
    own_redis.command("CONFIG", "SET", "requirepass", "hunter2")
    async with open_store(f"redis://{login}127.0.0.1:{own_redis.port}") as store:
        with pytest.raises(ConfigurationError, match="refuses") as refused:
            await store.check()
        with pytest.raises(StoreError) as failed:
            await store.status(new_key())

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
        async with open_store(f"rediss://127.0.0.1:{port}?ssl_ca_certs={ca}") as store:
            held = await begin_run(store, new_key(), user("hello"))
            async with store.watch(held.run.key):
                await store.commit(ending(held, 0, 2), lease=LONG)
        async with open_store(f"rediss://127.0.0.1:{port}") as store:
            with anyio.fail_after(10), pytest.raises(StoreUnavailable):
                await store.status(new_key())
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
        async with open_store(f"redis+sentinel://127.0.0.1:{port}/main") as store:
            await store.check()
            held = await begin_run(store, new_key(), user("hello"))
            async with store.watch(held.run.key):
                await store.commit(ending(held, 0, 2), lease=LONG)
                assert own_redis.listeners() == 2  # the sentinel's own, and ours
            assert len(await store.read_log(held.run)) == 2
        async with open_store(f"redis+sentinel://127.0.0.1:{port}/another") as store:
            with anyio.fail_after(5), pytest.raises(StoreUnavailable):
                await store.status(new_key())
    finally:
        sentinel.kill()
        sentinel.communicate(timeout=5)


def write_sentinel(config: Path, port: int, master: int) -> None:
    config.write_text(f"port {port}\nsentinel monitor main 127.0.0.1 {master} 1\n")
