"""The connection that is opened ahead of its request, while answers are being read."""

import anyio
import httpx
import pytest
from tests.unit.models.http.raw_service import Peer, RawService, posted, serving
from tests.unit.models.http.transporting import CHUNKED, A, answers, asked, transport

pytestmark = pytest.mark.anyio


async def endless(peer: Peer) -> None:
    """An answer that goes on."""
    await peer.asked()
    await peer.send(CHUNKED)
    await anyio.sleep_forever()


async def until_connected(service: RawService, connections: int) -> None:
    with anyio.fail_after(5):
        while service.connections < connections:
            await anyio.wait_all_tasks_blocked()


async def test_while_answers_are_read_the_next_request_finds_a_connection() -> None:
    async with serving(endless) as service, transport() as over:
        first = await over.handle_async_request(posted(service.url()))
        assert service.connections == 1
        second = await over.handle_async_request(posted(service.url()))
        await until_connected(service, 3)
        third = await over.handle_async_request(posted(service.url()))
        await until_connected(service, 4)
        assert service.connections == 4
        for response in (first, second, third):
            await response.aclose()


async def test_who_asks_one_thing_after_the_other_has_one_connection() -> None:
    async with serving(answers(A)) as service, transport() as over:
        for _ in range(3):
            await asked(over, service.url())
        await anyio.wait_all_tasks_blocked()
        assert service.connections == 1


@pytest.mark.parametrize("most", [2, 3])
async def test_there_are_no_more_connections_than_may_be(most: int) -> None:
    async with serving(endless) as service, transport(most=most) as over:
        responses = [await over.handle_async_request(posted(service.url())) for _ in range(2)]
        await until_connected(service, most)
        await anyio.wait_all_tasks_blocked()
        assert service.connections == most
        for response in responses:
            await response.aclose()


async def test_a_spare_that_cannot_be_opened_is_nobodys_error() -> None:
    """The service is gone when the spare would be opened: only the next request hears of it."""
    async with transport() as over:
        async with serving(endless) as service:
            responses = [await over.handle_async_request(posted(service.url())) for _ in range(2)]
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(httpx.ConnectError):
            await over.handle_async_request(posted(service.url()))
        for response in responses:
            await response.aclose()
