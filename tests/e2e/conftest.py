"""Servers and clients for tests over real HTTP: one server a module, one conversation a test."""

from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from uuid import uuid4

import anyio
import pytest
from tests.e2e.acp_stage import opened_editor
from tests.e2e.stage import Stage
from tests.e2e.workers import LEASE, SECONDS, Worker, worker
from tests.support.acp_editor import Editor
from tests.support.lanes import choose_stores, empty_store, unmeasured
from tests.support.model_server import ModelServer, model_server
from tests.support.proxies import FrameCutter, frame_cutter
from tests.support.python_client import QUICK
from tests.support.server import Server, running_server
from tests.support.wire import ZONE, Client, client_of, result, user

from passback_client import Client as PythonClient

__all__ = ["unmeasured"]

pytest_generate_tests = choose_stores

# their assertions tell as much as a test's own
pytest.register_assert_rewrite("tests.e2e.dialogs_of_agents", "tests.e2e.dialogs_of_tools")


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """A backend whose scope lets a server be a module's."""
    return "asyncio"


@pytest.fixture
def conversation() -> str:
    return f"conversation-{uuid4()}"


@pytest.fixture(scope="module")
async def editor(
    model: ModelServer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[Editor]:
    """An editor that has started `passback acp` and is connected to it."""
    async with opened_editor(model, tmp_path_factory.mktemp("agent")) as editor:
        yield editor


@pytest.fixture(scope="module")
async def server() -> AsyncGenerator[Server]:
    """A server whose model answers at once."""
    async with running_server("--model", "demo:fast") as server:
        yield server


@pytest.fixture(scope="module")
async def slow() -> AsyncGenerator[Server]:
    """A server whose model says some thirty words a second."""
    async with running_server() as server:
        yield server


@pytest.fixture
async def client(server: Server) -> AsyncGenerator[Client]:
    async with client_of(server.url) as client:
        yield client


# ---------------------------------------------------------------- two workers
@pytest.fixture(scope="module")
def store(
    store_kind: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> str:
    """An empty store that workers can share: they would go on with runs of other tests."""
    folder = tmp_path_factory.mktemp("store")
    return empty_store(store_kind, request.getfixturevalue, folder)


@pytest.fixture(scope="module")
async def pair(store: str) -> AsyncGenerator[tuple[Client, Client]]:
    """Clients of two workers on one store, whose model answers at once."""
    async with two_workers(store, "demo:fast") as clients:
        yield clients


@pytest.fixture(scope="module")
async def slow_pair(store: str) -> AsyncGenerator[tuple[Client, Client]]:
    """Clients of two workers on one store, whose model says some thirty words a second."""
    async with two_workers(store, "demo") as clients:
        yield clients


@asynccontextmanager
async def two_workers(store: str, model: str) -> AsyncGenerator[tuple[Client, Client]]:
    async with AsyncExitStack() as stack:

        async def worker() -> Client:
            serving = running_server("--store", store, "--model", model)
            server = await stack.enter_async_context(serving)
            return await stack.enter_async_context(client_of(server.url))

        yield await worker(), await worker()


# ---------------------------------------------------------------- workers with a scripted model
@pytest.fixture(scope="module")
async def model() -> AsyncGenerator[ModelServer]:
    """A service whose replies each test sets by `play`."""
    async with model_server() as model:
        yield model


@pytest.fixture(autouse=True)
def only_what_providers_accept(request: pytest.FixtureRequest) -> Iterator[None]:
    """No test makes the model be asked what a provider refuses."""
    played: list[ModelServer] = [
        request.getfixturevalue(name) for name in ["model"] if name in request.fixturenames
    ]
    yield
    for model in played:
        model.assert_no_violations()


@pytest.fixture(scope="module")
def flags(store: str, model: ModelServer) -> Sequence[str]:
    """Flags of a worker of the agent in `examples/`, with a tool `price` of the server's own."""
    lease = ("--store", store, "--timing", f"lease={LEASE}")
    return ("my_agent:agent", *lease, "--model", "openai:mock", "--model-base-url", model.base_url)


@pytest.fixture(scope="module")
async def played_pair(flags: Sequence[str]) -> AsyncGenerator[tuple[Client, Client]]:
    """Clients of two workers on one store, whose model is `model`."""
    async with worker(*flags) as one, worker(*flags) as other:
        yield one.client, other.client


@pytest.fixture
def stage(model: ModelServer, played_pair: tuple[Client, Client], conversation: str) -> Stage:
    """A conversation with two workers whose model is `model`."""
    return Stage(model, played_pair, conversation)


@pytest.fixture(scope="module")
async def survivor(flags: Sequence[str]) -> AsyncGenerator[Client]:
    """A client of a worker that lives as long as the module's tests."""
    async with worker(*flags) as lives:
        yield lives.client


@pytest.fixture
async def victim(flags: Sequence[str], survivor: Client) -> AsyncGenerator[Worker]:
    """A second worker, which the test may end; when stopped it leaves its runs at once."""
    async with worker(*flags, "--timing", "shutdown_grace=0") as dies:
        yield dies


# ---------------------------------------------------------------- the Python client
@pytest.fixture(scope="module")
async def played(model: ModelServer) -> AsyncGenerator[Server]:
    """A server whose model is `model`; a run whose post says so ends with its last reader."""
    settings = ("--model", "openai:mock", "--model-base-url", model.base_url)
    async with running_server(*settings, "--timing", "disconnect_grace=0.1") as server:
        yield server


@pytest.fixture
async def cutter(played: Server) -> AsyncGenerator[FrameCutter]:
    async with frame_cutter(played.url) as cutter:
        yield cutter


@pytest.fixture
async def mine(cutter: FrameCutter) -> AsyncGenerator[PythonClient]:
    """A client behind the proxy, which lets all pass unless the test says so."""
    with anyio.fail_after(SECONDS):
        async with PythonClient(cutter.url, retry=QUICK) as client:
            yield client


@pytest.fixture
async def raw(played: Server) -> AsyncGenerator[Client]:
    async with client_of(played.url) as client:
        yield client


@pytest.fixture(scope="module")
async def asking() -> AsyncGenerator[Server]:
    """A server whose agent has a tool `echo` that needs approval."""
    permissions = {"PASSBACK_PERMISSIONS": "echo=ask"}
    async with running_server(
        "tests.support.served_agents:echoing", environment=permissions
    ) as server:
        yield server


@pytest.fixture
async def raw_asking(asking: Server) -> AsyncGenerator[Client]:
    async with client_of(asking.url) as client:
        yield client


# ---------------------------------------------------------------- nothing may change
@pytest.fixture
async def waiting(client: Client, conversation: str) -> AsyncGenerator[tuple[Client, str]]:
    """A conversation that owes a call, which must stay as it is, and can be answered afterwards."""
    asked = await client.post(conversation, user("time zone"), tools=[ZONE])
    before = await client.conversation(conversation)
    yield client, conversation
    assert await client.conversation(conversation) == before
    assert (await client.http.get("/healthz")).status_code == 200
    answer = await client.post(conversation, result(asked.call.id, "UTC"))
    assert answer.text == 'Done. get-time-zone answered: "UTC".'
