"""Two workers of an agent whose tools ask before they are called; their model is scripted."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from tests.e2e.workers import LEASE, Worker
from tests.support.model_server import ModelServer
from tests.support.server import running_server
from tests.support.wire import client_of

ROOT = Path(__file__).resolve().parents[2]
AGENT = "tests.support.served_agents:asking"


def flags_for(store: str, model: ModelServer) -> Sequence[str]:
    lease = ("--store", store, "--timing", f"lease={LEASE}")
    return (AGENT, *lease, "--model", "openai:mock", "--model-base-url", model.base_url)


@asynccontextmanager
async def asking_worker(*flags: str) -> AsyncGenerator[Worker]:
    async with running_server(*flags, cwd=str(ROOT)) as server, client_of(server.url) as client:
        yield Worker(server, client)
