"""Lists and titles of conversations over HTTP, on two workers, with the Python client."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import anyio
import pytest
from tests.support.server import running_server
from tests.support.waiting import pause
from tests.support.wire import ZONE, client_of, user

from passback_client import Client, ListedConversation, Refused, ServerAgents
from passback_client import sync as plain

if TYPE_CHECKING:
    from tests.support.redis_server import RedisServer

pytestmark = [pytest.mark.anyio, pytest.mark.measured]

KEYS = {name: f"the-key-of-{name}-0123456789" for name in ("ann", "annie", "carl")}


@pytest.fixture(scope="module", params=["sqlite", pytest.param("redis", marks=pytest.mark.redis)])
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the URL of an empty store."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path_factory.mktemp('store')}/passback.db"
    redis: RedisServer = request.getfixturevalue("shared_redis")
    redis.command("FLUSHALL")
    return redis.url


@pytest.fixture(scope="module")
async def workers(url: str) -> AsyncGenerator[tuple[str, str]]:
    """Two workers on one store, for owners whose names begin alike."""
    environment = {"PASSBACK_API_KEYS": ",".join(f"{who}:{key}" for who, key in KEYS.items())}
    async with AsyncExitStack() as stack:
        serving = [
            running_server("--store", url, "--model", "demo:fast", environment=environment)
            for _ in range(2)
        ]
        first, second = [await stack.enter_async_context(each) for each in serving]
        yield first.url, second.url


async def listed(client: Client, search: str = "") -> list[ListedConversation]:
    return [each async for each in client.conversations(search=search)]


async def test_conversations_are_listed_searched_renamed_and_deleted(
    workers: tuple[str, str],
) -> None:
    here, there = workers
    async with (
        Client(here, api_key=KEYS["ann"]) as ann,
        Client(there, api_key=KEYS["ann"]) as elsewhere,
        Client(there, api_key=KEYS["annie"]) as annie,
    ):
        names = [f"c{number:02}" for number in range(25)]
        for name in names:
            await ann.ask(f"Title of\n{name}", conversation_id=name)
        await annie.ask("Title of annie's", conversation_id="c00")

        found = await listed(elsewhere)
        assert [each.id for each in found] == names[::-1]
        assert {each.title for each in found} == {f"Title of {name}" for name in names}
        assert {(each.status, each.owed) for each in found} == {("idle", 0)}
        assert [each.title for each in await listed(annie)] == ["Title of annie's"]
        page = await elsewhere.conversation_page(limit=2)
        assert [each.id for each in page.conversations] == ["c24", "c23"]

        renamed = await elsewhere.rename("c03", " The  blue page ")
        assert (renamed.id, renamed.title) == ("c03", "The blue page")
        assert (await ann.conversation("c03")).title == "The blue page"
        assert [each.id for each in await listed(ann, "BLUE")] == ["c03"]
        assert (await listed(ann))[0].id == "c24"
        with pytest.raises(Refused) as refused:
            await annie.rename("c03", "mine")
        assert refused.value.code == "conversation_not_found"
        with pytest.raises(Refused, match="no such conversation"):
            await annie.delete("c03")

        await ann.ask("and again", conversation_id="c05")
        await ann.delete("c24")
        rest = [name for name in names[::-1] if name not in {"c05", "c24"}]
        assert [each.id for each in await listed(elsewhere)] == ["c05", *rest]
        following = await elsewhere.conversation_page(after=page.next, limit=100)
        assert [each.id for each in following.conversations] == rest[1:]
        first = found[names[::-1].index("c05")]
        [moved] = (await elsewhere.conversation_page(limit=1)).conversations
        assert moved.created_at == first.created_at
        assert moved.updated_at > first.updated_at


async def test_the_list_tells_what_waits_and_where_to_go_on(workers: tuple[str, str]) -> None:
    here, there = workers
    async with client_of(here, key=KEYS["carl"]) as raw:
        called = await raw.post("waits", user("get-time-zone"), tools=[ZONE])
    with plain.Client(there, api_key=KEYS["carl"]) as client:
        waits = next(client.conversations())
        assert (waits.id, waits.title, waits.status, waits.owed) == (
            "waits", "get-time-zone", "waiting", 1,
        )  # fmt: skip
        assert waits.run_id == called.headers["x-run-id"]
        assert waits.cursor == [frame.id for frame in called.frames if frame.id][-1]
        [owed] = client.conversation("waits").owed
        with client.answer("waits", owed.id, "UTC") as stream:
            assert list(stream)
        done = next(client.conversations(search="TIME-ZONE"))
        assert (done.id, done.status, done.owed) == ("waits", "idle", 0)
        assert (done.run_id, done.cursor) == (stream.run_id, stream.cursor)
        assert client.rename("waits", "answered").title == "answered"


async def test_a_title_that_a_model_has_written_is_there_on_every_worker(url: str) -> None:
    keys = ",".join(f"{who}:{key}" for who, key in KEYS.items())
    environment = {"PASSBACK_API_KEYS": keys, "PASSBACK_TITLES": "model"}
    serving = ["--store", url, "--model", "demo:fast"]
    async with (
        running_server(*serving, environment=environment) as first,
        running_server(*serving, environment=environment) as second,
        Client(first.url, api_key=KEYS["carl"]) as here,
        Client(second.url, api_key=KEYS["carl"]) as there,
    ):
        await here.ask("count to 3", conversation_id="written")
        with anyio.fail_after(20):
            while (shown := await there.conversation("written")).title == "count to 3":
                await pause(0.05)
        assert shown.title == "A talk with the demo model"
        assert [each.title for each in await listed(there, "TALK")] == [shown.title]
        await there.rename("written", "mine")
        await there.ask("hi", conversation_id="written")
        assert (await here.conversation("written")).title == "mine"


# ---------------------------------------------------------------- agents
async def test_the_agents_are_listed_as_the_route_sends_them(workers: tuple[str, str]) -> None:
    def agents_of_plain() -> ServerAgents:
        with plain.Client(workers[1], api_key=KEYS["ann"]) as client:
            return client.agents()

    async with (
        client_of(workers[0], key=KEYS["ann"]) as raw,
        Client(workers[0], api_key=KEYS["ann"]) as ann,
    ):
        sent = (await raw.http.get("/agents")).json()
        found = await ann.agents()
    [agent], [sent_agent] = found.agents, sent["agents"]
    assert [each.id for each in agent.models] == ["demo:fast"]
    assert {"image"} <= {*agent.models[0].media} == {*sent_agent["models"][0]["media"]}
    assert [(each.name, each.description) for each in agent.commands] == [
        (each["name"], each["description"]) for each in sent_agent["commands"]
    ]
    assert [found.limits.body_bytes, found.limits.attachment_bytes] == [*sent["limits"].values()]
    assert await anyio.to_thread.run_sync(agents_of_plain) == found
