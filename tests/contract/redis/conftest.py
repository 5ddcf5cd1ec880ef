"""The store on one server and on a cluster, both empty."""

from collections.abc import AsyncGenerator

import pytest
from tests.contract.redis.doors import open_door

from passback.core.conversation.store import Store


@pytest.fixture
async def store(redis_url: str) -> AsyncGenerator[Store]:
    async with open_door(redis_url) as opened:
        yield opened


@pytest.fixture
async def cluster(redis_cluster_url: str) -> AsyncGenerator[Store]:
    async with open_door(redis_cluster_url) as opened:
        yield opened
