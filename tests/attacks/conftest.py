"""Servers under attack, one for each module: attacks share it, and none may hurt the next."""

from collections.abc import AsyncGenerator
from uuid import uuid4

import pytest
from tests.support.lanes import choose_stores, empty_store, unmeasured
from tests.support.model_server import ModelServer, model_server

__all__ = ["unmeasured"]

pytest_generate_tests = choose_stores


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """A backend whose scope lets a server be a module's."""
    return "asyncio"


@pytest.fixture
def conversation() -> str:
    return f"conversation-{uuid4()}"


@pytest.fixture(scope="module")
async def model() -> AsyncGenerator[ModelServer]:
    """A scripted service, which fails a test that breaks a provider's rule."""
    async with model_server() as model:
        yield model


@pytest.fixture(scope="module")
def store(
    store_kind: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> str:
    """An empty store that workers can share."""
    folder = tmp_path_factory.mktemp("store")
    return empty_store(store_kind, request.getfixturevalue, folder)
