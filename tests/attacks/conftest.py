"""Servers under attack, one for each module: attacks share it, and none may hurt the next."""

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from tests.support.lanes import choose_stores, unmeasured
from tests.support.model_server import ModelServer, model_server

if TYPE_CHECKING:
    from tests.support.redis_server import RedisServer

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
    if store_kind == "sqlite":
        return f"sqlite:///{tmp_path_factory.mktemp('store')}/passback.db"
    redis: RedisServer = request.getfixturevalue("shared_redis")
    redis.command("FLUSHALL")
    return redis.url
