"""Servers and clients for tests over real HTTP. One server serves a module; each test has a conversation of its own."""

from collections.abc import AsyncGenerator
from uuid import uuid4

import pytest
from tests.support.server import Server, running_server
from tests.support.wire import Client, client_of


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """Of a scope that lets a server be a module's."""
    return "asyncio"


@pytest.fixture(scope="module")
async def server() -> AsyncGenerator[Server]:
    """Its model answers at once."""
    async with running_server("--model", "demo:fast") as server:
        yield server


@pytest.fixture
async def client(server: Server) -> AsyncGenerator[Client]:
    async with client_of(server.url) as client:
        yield client


@pytest.fixture
def conversation() -> str:
    return f"conversation-{uuid4()}"
