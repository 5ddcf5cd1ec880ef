"""What only Redis can do: lose replies, expire keys, be full, read-only, away, or badly set up."""

from collections.abc import AsyncGenerator, Iterator
from pathlib import Path

import anyio
import pytest
import redis
import trustme
from tests.support.conversations import (
    FINISHED,
    LONG,
    begun,
    change,
    ending,
    new_key,
    new_nonce,
    new_run,
    texts,
    turn,
    user,
)
from tests.support.lossy_proxy import LossyProxy, lossy_proxy
from tests.support.redis_server import RedisServer, free_port, redis_server, start

from passback.core.changes import Change, Loaded, Status
from passback.core.errors import (
    ConfigurationError,
    LeaseLost,
    StoreError,
    StoreFull,
    StoreUnavailable,
    UnknownRun,
)
from passback.core.events import Completed, RunFinished, RunStarted
from passback.core.messages import CallId, ConversationKey
from passback.core.ports import Store
from passback.core.transcript import Answer
from passback.stores.layout import tag
from passback.stores.open import open_store
from passback.stores.options import StoreOptions

pytestmark = [pytest.mark.anyio, pytest.mark.redis]

DAY = 24 * 3600


@pytest.fixture
async def store(redis_url: str) -> AsyncGenerator[Store]:
    async with open_store(redis_url) as opened:
        yield opened


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[RedisServer]:
    """A server that a test may break."""
    with redis_server(tmp_path) as server:
        yield server


def keys_of(server: RedisServer, key: ConversationKey) -> set[str]:
    """The kinds of keys that a conversation has."""
    stem = f"pb:{{{tag(key)}}}:"
    found = [name.decode() for name in server.command("KEYS", "*")]
    assert all(name.startswith("pb:") for name in found)
    return {name.removeprefix(stem) for name in found if name.startswith(stem)}


# ---------------------------------------------------------------- lost replies
@pytest.fixture
async def proxy(shared_redis: RedisServer, redis_url: str) -> AsyncGenerator[LossyProxy]:
    async with lossy_proxy(shared_redis.port) as between:
        yield between


@pytest.fixture
async def lossy(proxy: LossyProxy) -> AsyncGenerator[Store]:
    """A store on a connection that loses replies when the proxy is told so."""
    async with open_store(f"redis://127.0.0.1:{proxy.port}") as opened:
        await opened.ping()
        yield opened


@pytest.mark.parametrize("count", [1, 2])
async def test_a_write_whose_reply_is_lost_is_applied_once(
    lossy: Store, store: Store, proxy: LossyProxy, count: int
) -> None:
    key, run_id = new_key(), new_run()
    opening = change(key, 0, user("hello"))
    finished = RunFinished(Completed())

    proxy.lose_replies(count)
    held = await lossy.begin(opening, run_id, (RunStarted(run_id),), lease=LONG)
    assert held is not None
    proxy.lose_replies(count)
    assert await lossy.append([texts(held, 2, "a")], lease=LONG) == ["held"]
    proxy.lose_replies(count)
    await lossy.commit(turn(held, 0, 3, say="said"), lease=0)
    proxy.lose_replies(count)
    closing = change(key, (await store.status(key)).version, user("closed"))
    assert await lossy.reap(closing, run_id, finished)
    proxy.lose_replies(count)
    assert await lossy.park(change(key, (await store.status(key)).version, user("parked")))
    following = await begun(store, key)
    proxy.lose_replies(count)
    await lossy.commit(ending(following, 0, 2, say="goodbye"), lease=LONG)

    assert proxy.lost == 6 * count
    loaded = await store.load(key)
    assert [message.content for message in loaded.messages] == [
        "hello", "said", "closed", "parked", "goodbye",
    ]  # fmt: skip
    assert [str(logged.position) for logged in await store.read_log(held.run)] == [
        "1-1", "1-2", "2-1",
    ]  # fmt: skip
    assert len(await store.read_log(following.run)) == 2


async def test_replies_that_are_always_lost_are_told(lossy: Store, proxy: LossyProxy) -> None:
    proxy.lose_replies(100)

    with anyio.fail_after(5), pytest.raises(StoreUnavailable):
        await lossy.status(new_key())

    assert proxy.lost == 3


async def test_twenty_runs_are_appended_in_one_round_trip(
    store: Store, shared_redis: RedisServer
) -> None:
    leases = [await begun(store, new_key()) for _ in range(20)]
    await store.renew(leases, lease=LONG)
    writes = [texts(held, 2, "a", "b", "c") for held in leases]
    with redis.Redis(port=shared_redis.port, protocol=2) as observer:
        first, second = reads(observer), reads(observer)
        assert await store.append(writes, lease=LONG) == ["held"] * 20
        third = reads(observer)

    own = second - first
    assert third - second - own == 1


def reads(observer: redis.Redis) -> int:
    """How often the server has read from its clients."""
    return int(observer.info("stats")["total_reads_processed"])


async def test_forgotten_scripts_are_sent_again(store: Store, shared_redis: RedisServer) -> None:
    first, second = await begun(store, new_key()), await begun(store, new_key())
    shared_redis.command("SCRIPT", "FLUSH")

    states = await store.append([texts(held, 2, "a") for held in (first, second)], lease=LONG)

    assert states == ["held", "held"]
    assert len(await store.read_log(second.run)) == 2
    await store.commit(ending(first, 0, 3), lease=LONG)


async def test_one_connection_serves_more_callers_than_there_are_connections(
    redis_url: str,
) -> None:
    async with open_store(redis_url, options=StoreOptions(max_connections=1)) as store:
        keys = [new_key() for _ in range(50)]
        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                for key in keys:
                    tasks.start_soon(begun, store, key)
        assert all([(await store.status(key)).running for key in keys])


async def test_all_watches_share_one_connection(store: Store, shared_redis: RedisServer) -> None:
    runs = [(await begun(store, new_key())).run for _ in range(20)]
    with anyio.fail_after(5):
        async with store.watch(runs[0]), store.watch(runs[1]), store.watch(runs[2]) as watch:
            await watch.wait()
            listeners = count_listeners(shared_redis)

    assert listeners == 1


def count_listeners(server: RedisServer) -> int:
    clients: bytes = server.command("CLIENT", "LIST", "TYPE", "PUBSUB")
    return len(clients.splitlines())


async def test_hints_come_back_after_the_connection_broke(
    store: Store, shared_redis: RedisServer
) -> None:
    held = await begun(store, new_key())
    channel = f"pb:{tag(held.run.key)}"
    async with store.watch(held.run) as watch:
        shared_redis.command("CLIENT", "KILL", "TYPE", "PUBSUB")
        with anyio.fail_after(5):
            await watch.wait()
            while shared_redis.command("PUBSUB", "NUMSUB", channel)[1] == 0:
                await anyio.lowlevel.checkpoint()


# ---------------------------------------------------------------- time to live
async def test_without_a_ttl_a_conversation_stays_and_only_its_log_expires(
    store: Store, shared_redis: RedisServer
) -> None:
    key = new_key()
    held = await begun(store, key, user("hello"))
    running = lifetimes(shared_redis)
    await store.commit(ending(held, 0, 2), lease=LONG)

    kept = {"state": -1, "messages": -1, "runs": -1}
    log = f"log:{held.run.run_id}"
    assert running == {**kept, log: DAY}
    assert lifetimes(shared_redis) == {**kept, log: 3600}


async def test_with_a_ttl_all_keys_of_a_conversation_expire_together(
    redis_url: str, shared_redis: RedisServer
) -> None:
    key = new_key()
    async with open_store(redis_url, options=StoreOptions(ttl=600, log_ttl=60)) as store:
        await store.park(
            Change(key, new_nonce(), 0, (user("hello"),), {CallId("c"): Answer("ab" * 32)})
        )
        parked = lifetimes(shared_redis)
        held = await begun(store, key)
        running = lifetimes(shared_redis)
        await store.commit(ending(held, 0, 2), lease=LONG)
        ended = lifetimes(shared_redis)
        lapsed = await begun(store, key, lease=0)
        version = (await store.status(key)).version
        await store.reap(change(key, version), lapsed.run.run_id, FINISHED)
        reaped = lifetimes(shared_redis)

    kept = {"state", "messages", "answers"}
    first, second = f"log:{held.run.run_id}", f"log:{lapsed.run.run_id}"
    assert parked == dict.fromkeys(kept, 600)
    assert running == dict.fromkeys({*kept, "runs", first}, DAY)
    assert ended == {**dict.fromkeys({*kept, "runs"}, 600), first: 60}
    assert reaped == {**dict.fromkeys({*kept, "runs"}, 600), first: 60, second: 60}


async def test_a_log_does_not_outlive_its_conversation(
    redis_url: str, shared_redis: RedisServer
) -> None:
    async with open_store(redis_url, options=StoreOptions(ttl=60)) as store:
        held = await begun(store, new_key(), user("hello"))
        await store.commit(ending(held, 0, 2), lease=LONG)

    assert set(lifetimes(shared_redis).values()) == {60}


def lifetimes(server: RedisServer) -> dict[str, int]:
    """Seconds that each key of the only conversation has to live, a started one counting whole; -1 for ever."""
    found: dict[str, int] = {}
    for name in server.command("KEYS", "*"):
        left = int(server.command("PTTL", name))
        found[name.decode().partition("}:")[2]] = left if left < 0 else -(-left // 1000)
    return found


async def test_deleting_leaves_no_key_behind(store: Store, shared_redis: RedisServer) -> None:
    key = new_key()
    await store.park(Change(key, new_nonce(), 0, answers={CallId("c"): Answer("ab" * 32)}))
    for _ in range(3):
        held = await begun(store, key, user("hello"))
        await store.commit(ending(held, 0, 2), lease=LONG)

    assert await store.delete(key)

    assert keys_of(shared_redis, key) == set()


async def test_deleting_while_runs_begin_leaves_no_log_behind(
    store: Store, shared_redis: RedisServer
) -> None:
    key = new_key()
    for _ in range(40):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(begun, store, key)
            tasks.start_soon(store.delete, key)
        held = await store.status(key)
        if held.running and held.run_id:
            await store.delete(key)

    assert keys_of(shared_redis, key) == set()


# ---------------------------------------------------------------- damage from outside
async def test_a_run_whose_keys_vanish_is_fenced_and_nothing_is_made_anew(
    store: Store, shared_redis: RedisServer
) -> None:
    held = await begun(store, new_key(), user("hello"))
    shared_redis.command("DEL", f"pb:{{{tag(held.run.key)}}}:state")

    assert await store.append([texts(held, 2, "late")], lease=LONG) == ["lost"]
    with pytest.raises(LeaseLost):
        await store.commit(ending(held, 0, 2, say="late"), lease=LONG)
    assert await store.load(held.run.key) == Loaded(Status())

    await store.park(change(held.run.key, 0, user("anew")))
    assert (await store.load(held.run.key)).messages == (user("anew"),)


@pytest.mark.parametrize("part", ["messages", "answers", "runs", "log"])
async def test_a_key_of_a_foreign_type_is_an_error_and_nothing_is_half_written(
    store: Store, shared_redis: RedisServer, part: str
) -> None:
    key = new_key()
    held = await begun(store, key, user("hello"))
    name = f"log:{held.run.run_id}" if part == "log" else part
    shared_redis.command("DEL", f"pb:{{{tag(key)}}}:{name}")
    shared_redis.command("SET", f"pb:{{{tag(key)}}}:{name}", "foreign")
    state = f"pb:{{{tag(key)}}}:state"
    before = shared_redis.command("HGETALL", state)

    with pytest.raises(StoreError, match="damaged"):
        await store.commit(ending(held, 0, 2, say="late"), lease=LONG)

    assert shared_redis.command("HGETALL", state) == before


async def test_lost_messages_are_noticed(store: Store, shared_redis: RedisServer) -> None:
    key = new_key()
    held = await begun(store, key, user("hello"))
    shared_redis.command("DEL", f"pb:{{{tag(key)}}}:messages")

    with pytest.raises(StoreError, match="damaged"):
        await store.commit(ending(held, 0, 2, say="late"), lease=LONG)


async def test_an_expired_log_is_unknown(store: Store, shared_redis: RedisServer) -> None:
    held = await begun(store, new_key())
    shared_redis.command("DEL", f"pb:{{{tag(held.run.key)}}}:log:{held.run.run_id}")

    with pytest.raises(UnknownRun):
        await store.read_log(held.run)


# ---------------------------------------------------------------- a server in trouble
async def test_a_server_that_is_away_is_unavailable_and_found_again(tmp_path: Path) -> None:
    with redis_server(tmp_path) as server:
        port = server.port
        async with open_store(server.url) as store:
            held = await begun(store, new_key())
            server.stop()
            with anyio.fail_after(10):
                with pytest.raises(StoreUnavailable):
                    await store.append([texts(held, 2, "a")], lease=LONG)
                with pytest.raises(StoreUnavailable):
                    await store.ping()
                with pytest.raises(StoreUnavailable):
                    await store.check()
            again = start(tmp_path, f"--port {port}", "--save ''")
            try:
                await store.ping()
                assert await store.append([texts(held, 2, "a")], lease=LONG) == ["lost"]
            finally:
                again.kill()
                again.communicate(timeout=5)


async def test_a_server_that_hangs_is_unavailable_in_time(own_redis: RedisServer) -> None:
    async with open_store(own_redis.url, options=StoreOptions(patience=0.3)) as store:
        held = await begun(store, new_key())
        own_redis.pause()
        with anyio.fail_after(5), pytest.raises(StoreUnavailable):
            await store.commit(ending(held, 0, 2), lease=LONG)
        own_redis.resume()
        with anyio.fail_after(5):
            await store.commit(ending(held, 0, 2), lease=LONG)

        assert len(await store.read_log(held.run)) == 2


async def test_a_full_server_takes_nothing_and_reads_on(own_redis: RedisServer) -> None:
    async with open_store(own_redis.url) as store:
        held = await begun(store, new_key(), user("hello"))
        before = await store.load(held.run.key)
        own_redis.command("CONFIG", "SET", "maxmemory", 1)

        with pytest.raises(StoreFull):
            await store.commit(ending(held, 0, 2, say="lost"), lease=LONG)
        with pytest.raises(StoreFull):
            await store.append([texts(held, 2, "a")], lease=LONG)
        with pytest.raises(StoreFull):
            await store.park(change(new_key(), 0, user("new")))
        assert await store.load(held.run.key) == before
        assert len(await store.read_log(held.run)) == 1

        own_redis.command("CONFIG", "SET", "maxmemory", 0)
        await store.commit(ending(held, 0, 2, say="kept"), lease=LONG)


async def test_a_replica_refuses_writes(own_redis: RedisServer) -> None:
    async with open_store(own_redis.url) as store:
        held = await begun(store, new_key(), user("hello"))
        own_redis.command("REPLICAOF", "127.0.0.1", free_port())

        with pytest.raises(StoreUnavailable):
            await store.commit(ending(held, 0, 2), lease=LONG)
        with pytest.raises(StoreUnavailable):
            await store.append([texts(held, 2, "a")], lease=LONG)

        own_redis.command("REPLICAOF", "NO", "ONE")
        await store.commit(ending(held, 0, 2), lease=LONG)


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


async def test_a_server_that_hides_its_settings_is_used_with_a_warning(
    own_redis: RedisServer,
) -> None:
    own_redis.command("ACL", "SETUSER", "app", "on", ">hunter2", "~*", "&*", "+@all", "-config")
    async with open_store(f"redis://app:hunter2@127.0.0.1:{own_redis.port}") as store:
        (warning,) = await store.check()
        await begun(store, new_key())

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
async def test_an_encrypted_connection_checks_whom_it_talks_to(tmp_path: Path) -> None:
    port, authority = free_port(), trustme.CA()
    (key, cert), ca = write_certificate(authority, tmp_path), tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(ca)
    files = f"--tls-key-file {key}", f"--tls-cert-file {cert}", f"--tls-ca-cert-file {ca}"
    try:
        server = start(tmp_path, "--port 0", f"--tls-port {port}", "--tls-auth-clients no", *files)
    except AssertionError:
        pytest.skip("this redis-server was built without TLS")
    try:
        async with open_store(f"rediss://127.0.0.1:{port}?ssl_ca_certs={ca}") as store:
            held = await begun(store, new_key(), user("hello"))
            async with store.watch(held.run):
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


async def test_the_master_is_found_through_a_sentinel(
    own_redis: RedisServer, tmp_path: Path
) -> None:
    port = free_port()
    config = tmp_path / "sentinel.conf"
    write_sentinel(config, port, own_redis.port)
    sentinel = start(tmp_path, str(config), "--sentinel")
    try:
        async with open_store(f"redis+sentinel://127.0.0.1:{port}/main") as store:
            await store.check()
            held = await begun(store, new_key(), user("hello"))
            async with store.watch(held.run):
                await store.commit(ending(held, 0, 2), lease=LONG)
                assert count_listeners(own_redis) == 2  # the sentinel's own, and ours
            assert len(await store.read_log(held.run)) == 2
        async with open_store(f"redis+sentinel://127.0.0.1:{port}/another") as store:
            with anyio.fail_after(5), pytest.raises(StoreUnavailable):
                await store.status(new_key())
    finally:
        sentinel.kill()
        sentinel.communicate(timeout=5)


def write_sentinel(config: Path, port: int, master: int) -> None:
    config.write_text(f"port {port}\nsentinel monitor main 127.0.0.1 {master} 1\n")
