"""Connections, names and stores without end: memory stays bounded, and the server recovers.

The crowds are smaller than those of a real attack; the bounds are smaller with them.
"""

import socket
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import pytest
from anyio.abc import TaskStatus
from tests.attacks.raw import HOST, connected
from tests.e2e.workers import held
from tests.support.model_server import Act, ModelServer, Reply, event, says
from tests.support.redis_server import redis_server
from tests.support.server import Server, running_server
from tests.support.wire import PATH, Client, check_refusal, client_of, user

pytestmark = [pytest.mark.anyio, pytest.mark.promise("P11")]

KEYS = {"alice": "the-key-of-alice-0123456789", "bob": "the-key-of-bob-0123456789"}
SECONDS = 30
MIB = 1024 * 1024


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("log") / "log"


@pytest.fixture(scope="module")
async def server(model: ModelServer, log: Path) -> AsyncGenerator[Server]:
    environment = {"PASSBACK_API_KEYS": ",".join(f"{who}:{key}" for who, key in KEYS.items())}
    flags = ("--model", "openai:mock", "--model-base-url", model.base_url)
    with log.open("wb") as stderr:
        async with running_server(*flags, environment=environment, stderr=stderr) as server:
            yield server


@pytest.fixture(scope="module")
async def alice(server: Server) -> AsyncGenerator[Client]:
    async with client_of(server.url, key=KEYS["alice"]) as client:
        yield client


@pytest.fixture(scope="module")
async def bob(server: Server) -> AsyncGenerator[Client]:
    async with client_of(server.url, key=KEYS["bob"]) as client:
        yield client


def resident(server: Server) -> int:
    """Bytes of memory that the process has."""
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    [line] = [line for line in status.splitlines() if line.startswith("VmRSS:")]
    return int(line.split()[1]) * 1024


async def warm_up(client: Client, model: ModelServer, conversation: str) -> None:
    """Load what the first run loads, which then is not counted."""
    model.play(says("hello"))
    assert (await client.post(conversation, user("hi"))).text == "hello"


def size_of(log: Path) -> int:
    return log.stat().st_size


# ---------------------------------------------------------------- connections
async def test_a_thousand_idle_connections_take_little_and_keep_nobody_out(
    server: Server, model: ModelServer, alice: Client, conversation: str
) -> None:
    await warm_up(alice, model, conversation)
    before = resident(server)
    place = urlsplit(server.url)
    with ExitStack() as sockets:
        for number in range(1000):
            idle = socket.create_connection((place.hostname, place.port), timeout=SECONDS)
            sockets.enter_context(idle)
            if number % 2:
                idle.sendall(b"GET /healthz HTTP/1.1\r\n" + HOST)
        assert (await alice.post(conversation, user("again"))).text == "hello"
        assert resident(server) - before < 12 * MIB
    assert (await alice.http.get("/healthz")).status_code == 200


async def test_extensions_of_chunks_are_not_kept(
    server: Server, model: ModelServer, alice: Client, conversation: str
) -> None:
    """16 MiB that belong to no chunk's content."""
    await warm_up(alice, model, conversation)
    before = resident(server)
    head = [f"POST {PATH} HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/json"]
    head += [f"Authorization: Bearer {KEYS['alice']}", "Transfer-Encoding: chunked"]
    async with connected(server.url, seconds=SECONDS) as connection:
        await connection.send("\r\n".join([*head, "", "2;a="]).encode())
        for _ in range(256):
            await connection.send(b"x" * 65536)
        assert (await alice.http.get("/healthz")).status_code == 200
        assert resident(server) - before < 8 * MIB


async def test_many_readers_of_one_run_share_it(
    server: Server, model: ModelServer, alice: Client, conversation: str
) -> None:
    """A hundred, and a text of 200 KB."""
    await warm_up(alice, model, f"{conversation}-2")
    gate, text = anyio.Event(), "word " * 40_000
    model.play(held("first ", gate, text))
    before = resident(server)
    whole: list[bool] = []
    fields = ("Host: 127.0.0.1", f"Authorization: Bearer {KEYS['alice']}", "Connection: close")
    head = _get(f"/conversations/{conversation}/stream", *fields)

    async def read(*, task_status: TaskStatus[None]) -> None:
        async with connected(server.url, seconds=SECONDS) as reader:
            await reader.send(head)
            task_status.started()
            [answer] = await reader.rest()
            is_whole = answer.body.endswith(b"data: [DONE]\n\n") and len(answer.body) > len(text)
            whole.append(is_whole)

    async with alice.stream(conversation, [user("go")]) as stream:
        await stream.until("text")
        async with anyio.create_task_group() as tasks:
            for _ in range(100):
                await tasks.start(read)
            gate.set()
        assert (await stream.whole()).text == f"first {text}"
    assert whole == [True] * 100
    assert resident(server) - before < 16 * MIB


async def test_slow_runs_of_one_owner_do_not_hold_up_another(
    server: Server, model: ModelServer, alice: Client, bob: Client, conversation: str
) -> None:
    slow = Reply([event(content="half "), Act.STALL])
    model.play(*[slow] * 40, says("for bob"))
    async with AsyncExitStack() as stack:
        with anyio.fail_after(SECONDS):
            begun = 0
            for number in range(40):
                posted = alice.stream(f"{conversation}-{number}", [user("go")])
                stream = await stack.enter_async_context(posted)
                assert stream.status in {200, 429}
                if stream.status == 200:
                    await stream.until("text")
                    begun += 1
            assert begun > 0
            model.play(says("for bob"))
            assert (await bob.post(conversation, user("hi"))).text == "for bob"
            for number in range(begun):
                await alice.cancel(f"{conversation}-{number}")


async def test_without_a_free_descriptor_newcomers_wait_and_the_server_recovers(
    tmp_path: Path,
) -> None:
    """Idle connections hold all that are left of the process's 64 descriptors."""
    shell = ("sh", "-c", 'ulimit -n 64; exec "$0" "$@"', sys.executable, "-m", "passback", "serve")
    log = tmp_path / "log"
    with log.open("wb") as stderr:
        limited = running_server("--model", "demo:fast", command=shell, stderr=stderr)
        async with limited as server, client_of(server.url) as kept:
            assert (await kept.http.get("/healthz")).status_code == 200
            place = urlsplit(server.url)
            with ExitStack() as sockets:
                for _ in range(100):
                    idle = socket.create_connection((place.hostname, place.port), timeout=SECONDS)
                    sockets.enter_context(idle)
                # who was there before is served
                assert (await kept.http.get("/healthz")).status_code == 200
                assert (await kept.post("c", user("hi"))).status == 200
            with anyio.fail_after(SECONDS):
                async with client_of(server.url) as newcomer:
                    assert (await newcomer.http.get("/healthz")).status_code == 200
    assert size_of(log) < 20_000


# ---------------------------------------------------------------- names that are remembered
BOB = ("Host: 127.0.0.1", f"Authorization: Bearer {KEYS['bob']}")
LONG = "x" * 20_000
"""Text of which 400 copies are twice what the server may grow by."""


def _get(path: str, *fields: str) -> bytes:
    return "\r\n".join([f"GET {path} HTTP/1.1", *fields, "", ""]).encode()


def _bad_post(number: int) -> bytes:
    body = f'{{"messages": "{number}{LONG}"'.encode()
    lines = [f"POST {PATH} HTTP/1.1", *BOB, "Content-Type: application/json"]
    return "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode() + body


NAMES: dict[str, tuple[int, Callable[[int], bytes]]] = {
    "hosts": (421, lambda n: _get("/healthz", f"Host: host-{n}.{LONG}")),
    "origins": (403, lambda n: _get("/healthz", BOB[0], f"Origin: http://{n}.{LONG}")),
    "keys": (401, lambda n: _get("/commands", BOB[0], f"Authorization: Bearer {n}{LONG}")),
    "paths": (404, lambda n: _get(f"/nowhere-{n}-{LONG}", *BOB)),
    "conversations": (422, lambda n: _get(f"/conversations/{n}-{LONG}", *BOB)),
    "events": (422, lambda n: _get("/conversations/c/stream", *BOB, f"Last-Event-ID: {n}{LONG}")),
    "bodies that are no JSON": (400, _bad_post),
}


@pytest.mark.parametrize("case", NAMES.values(), ids=NAMES)
async def test_nothing_is_remembered_of_names_that_lead_nowhere(
    server: Server, case: tuple[int, Callable[[int], bytes]]
) -> None:
    status, request = case
    await ask(server, [request(number) for number in range(100)], status)
    before = resident(server)
    await ask(server, [request(number) for number in range(100, 500)], status)
    assert resident(server) - before < 4 * MIB


async def ask(server: Server, requests: Sequence[bytes], status: int) -> None:
    """One after the other, on one connection."""
    async with connected(server.url, seconds=SECONDS) as connection:
        for request in requests:
            await connection.send(request)
            answer = await connection.response()
            assert answer is not None
            assert answer.status == status


async def test_wrong_keys_fill_no_log(server: Server, log: Path) -> None:
    before = size_of(log)
    wrong = [
        _get("/commands", BOB[0], f"Authorization: Bearer guessed-{number}")
        for number in range(300)
    ]
    await ask(server, wrong, 401)
    assert size_of(log) == before


# ---------------------------------------------------------------- a store that is full
@pytest.mark.redis
async def test_a_full_redis_refuses_posts_and_lets_everything_else_go_on(
    tmp_path: Path, conversation: str
) -> None:
    posted = {"conversationId": conversation, "messages": [user("hi")]}
    with redis_server(tmp_path) as redis:
        async with (
            running_server("--model", "demo:fast", "--store", redis.url) as server,
            client_of(server.url) as client,
        ):
            assert (await client.post(conversation, user("hi"))).status == 200
            assert (await client.post(f"{conversation}-2", user("hi"))).status == 200
            before = await client.conversation(conversation)
            redis.command("CONFIG", "SET", "maxmemory", 1)
            refused = await client.http.post(PATH, json=posted, timeout=SECONDS)
            check_refusal(refused, 503, "store_full")
            assert await client.conversation(conversation) == before
            assert (await client.replay(conversation)).types[-1] == "[DONE]"
            deleted = await client.http.delete(f"/conversations/{conversation}-2")
            assert deleted.status_code == 204
            redis.command("CONFIG", "SET", "maxmemory", 0)
            assert (await client.post(conversation, user("again"))).status == 200
