"""Stores whose server is away for a while: hints come back, and the log tells it once."""

import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import TYPE_CHECKING

import anyio
import pytest
from tests.contract.door.writes import made
from tests.contract.redis.doors import open_door
from tests.support.proxies import CuttingProxy, cutting_proxy
from tests.support.waiting import wait_until

from passback.core.conversation.store import Store, Watch
from passback.stores.postgres import PostgresStore
from passback.stores.redis.hints import RECONNECT_PAUSE

if TYPE_CHECKING:
    from tests.support.postgres_server import PostgresServer
    from tests.support.redis_server import RedisServer

pytestmark = pytest.mark.anyio

Outage = tuple[CuttingProxy, Callable[[], AbstractAsyncContextManager[Store]]]


@pytest.fixture(
    params=[
        pytest.param("redis", marks=pytest.mark.redis),
        pytest.param("postgres", marks=pytest.mark.postgres),
    ]
)
async def outage(request: pytest.FixtureRequest) -> AsyncGenerator[Outage]:
    """A proxy before the server, and what opens a store behind it."""
    if request.param == "redis":
        redis: RedisServer = request.getfixturevalue("shared_redis")
        async with cutting_proxy(redis.url) as proxy:
            yield proxy, lambda: open_door(f"redis://127.0.0.1:{proxy.port}")
    else:
        postgres: PostgresServer = request.getfixturevalue("shared_postgres")
        async with cutting_proxy(f"tcp://127.0.0.1:{postgres.port}") as proxy:
            yield proxy, lambda: PostgresStore(postgres.url(port=proxy.port))


async def test_an_outage_is_one_line_of_the_log(
    outage: Outage, caplog: pytest.LogCaptureFixture
) -> None:
    def lines() -> int:
        return sum("hints" in record.getMessage() for record in caplog.records)

    proxy, opens = outage
    targets = proxy.targets
    with caplog.at_level(logging.WARNING, "passback"):
        async with opens() as store:
            key = await made(store)
            async with store.watch(key) as watch:
                for outages in (1, 2):
                    proxy.targets = ()
                    proxy.cut()
                    await wait_until(partial(_has_accepted, proxy, proxy.accepted + 3))
                    assert lines() == outages
                    proxy.targets = targets
                    await _until_it_listens(watch)


def _has_accepted(proxy: CuttingProxy, count: int) -> bool:
    return proxy.accepted >= count


async def _until_it_listens(watch: Watch) -> None:
    """Each attempt in vain wakes those who watch, so silence means that hints come."""
    with anyio.fail_after(30):
        while True:
            with anyio.move_on_after(2 * RECONNECT_PAUSE) as silence:
                await watch.wait(60)
            if silence.cancelled_caught:
                return
