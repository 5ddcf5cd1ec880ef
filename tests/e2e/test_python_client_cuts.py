"""The Python client where connections break, servers die, and conversations are busy."""

from pathlib import Path

import anyio
import httpx
import pytest
from tests.e2e.workers import SECONDS, broken_off, held
from tests.support.model_server import ModelServer, calls, says
from tests.support.proxies import FrameCutter, frame_cutter
from tests.support.python_client import QUICK, joined, kinds, until_text
from tests.support.redis_server import free_port
from tests.support.server import Server, running_server
from tests.support.wire import Client as RawClient
from tests.support.wire import user
from typing_extensions import override

from passback_client import (
    Answer,
    Busy,
    Client,
    Deleted,
    Event,
    Posted,
    Retry,
    Rewind,
    RunEnd,
    Switched,
    Unreachable,
    Watching,
)

pytestmark = [pytest.mark.anyio, pytest.mark.measured]


# ---------------------------------------------------------------- cuts
@pytest.mark.promise("P3")
@pytest.mark.parametrize("more", [0, 9], ids=["behind it", "in the next one"])
@pytest.mark.parametrize("frames", [1, 2])
async def test_a_cut_at_every_event_loses_and_doubles_nothing(
    model: ModelServer, cutter: FrameCutter, mine: Client, frames: int, more: int
) -> None:
    ran: list[str] = []

    @mine.tool
    async def paint(color: str) -> str:
        ran.append(color)
        return color

    answers = []
    for cutter.frames, cutter.more in ((None, 0), (frames, more)):
        asked = (("a", "paint", '{"color": "blue"}'), ("b", "paint", '{"color": "red"}'))
        model.play(calls(*asked), says("It ", "is ", "painted ", "now."))
        events = [event async for event in mine.send("paint", include=["usage", "message-ids"])]
        answers.append(events)
    whole, cut = answers
    assert [kinds(events) for events in answers] == [kinds(whole)] * 2
    assert [joined(events) for events in answers] == ["It is painted now."] * 2
    assert ran == ["blue", "red"] * 2
    assert len(model.requests) == 2
    assert cutter.cuts > 5
    places = [event.id for event in cut if event.id]
    assert len(set(places)) == len(places)


@pytest.mark.promise("P3")
async def test_a_watch_that_is_cut_at_every_event_loses_and_doubles_nothing(
    model: ModelServer, cutter: FrameCutter, raw: RawClient, mine: Client, conversation: str
) -> None:
    model.play(says("Begun."), says("It ", "is ", "one."), says("It ", "is ", "two."))
    begun = await raw.post(conversation, user("begin"))
    for order in ("one", "two"):
        await raw.post(conversation, user(order))
    # the messages of a run have no id: a connection that ends behind them makes no progress
    cutter.frames, cutter.more = 2, 9
    said: list[Event] = []
    posted: list[Posted] = []
    async with mine.watch(conversation, after=begun.frames[-1].id) as watch:
        while [type(event) for event in said].count(RunEnd) < 2:
            event = await anext(watch)
            assert not isinstance(event, Deleted | Switched | Watching)
            if isinstance(event, Posted):
                posted.append(event)
            else:
                said.append(event)
        assert cutter.cuts >= 2
        cutter.frames = None
        await mine.delete(conversation)
        assert [event async for event in watch] == [Deleted()]
    assert joined(said) == "It is one.It is two."
    assert kinds(said) == ["RunStart", "Text", "RunEnd"] * 2
    assert len({event.id for event in said}) == len(said)
    messages = {each.first: each.messages[0]["content"] for each in posted}  # type: ignore[typeddict-item]
    assert messages == {2: "one", 4: "two"}


@pytest.mark.promise("P8")
async def test_a_post_whose_answer_was_lost_is_made_once(
    model: ModelServer, cutter: FrameCutter, mine: Client, raw: RawClient
) -> None:
    model.play(says("Once."))
    cutter.lost = 3
    answer = await mine.ask("hi")
    assert (answer.text, cutter.cuts, len(model.requests)) == ("Once.", 3, 1)
    assert answer.conversation_id is not None
    assert len(await raw.messages(answer.conversation_id)) == 2


async def test_a_server_that_never_answers_is_an_error_after_some_attempts(
    model: ModelServer, cutter: FrameCutter, mine: Client, raw: RawClient, conversation: str
) -> None:
    model.play(says("Nobody hears it."))
    cutter.lost = 1000
    with pytest.raises(Unreachable, match="did not answer"):
        await mine.ask("hi", conversation_id=conversation)
    assert cutter.cuts == QUICK.attempts
    # the run goes on, and would ask the model of the next test
    whole = await raw.http.get(f"/conversations/{conversation}/stream?wait=true")
    assert whole.json()["text"] == "Nobody hears it."


async def test_an_address_where_nothing_listens_is_an_error_soon() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    with anyio.fail_after(8):
        async with Client(url) as client:
            with pytest.raises(Unreachable, match="nobody listens there") as caught:
                await client.ask("hi")
    assert caught.value.message.startswith(f"{url} did not answer (")


@pytest.mark.promise("P10")
async def test_a_killed_and_restarted_server_ends_the_answer_and_what_was_void_is_taken_back(
    tmp_path: Path, conversation: str
) -> None:
    flags = ("--store", f"sqlite:///{tmp_path}/passback.db", "--timing", "lease=1")
    retry = Retry(attempts=200, first=0.05, longest=0.1)
    answer, has_text, ended = Answer(), anyio.Event(), anyio.Event()
    rewinds: list[Rewind] = []

    async def read(client: Client) -> None:
        async for event in client.send("count to 40", conversation_id=conversation):
            answer.feed(event)
            rewinds.extend([event] if isinstance(event, Rewind) else [])
            if len(answer.text) > 5:
                has_text.set()
        ended.set()

    with anyio.fail_after(SECONDS):
        async with (
            running_server(*flags) as first,
            frame_cutter(first.url) as cutter,
            Client(cutter.url, retry=retry) as client,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(read, client)
            await has_text.wait()
            first.kill()
            await first.exit_code()
            async with running_server(*flags) as second:
                cutter.targets = [second.url]
                await ended.wait()
                kept = await client.messages(conversation)
    assert len(rewinds) == 1
    assert answer.outcome == "completed"
    assert [message.get("content") for message in kept.messages] == ["count to 40", answer.text]


# ---------------------------------------------------------------- a busy server
class RefusalNoted(httpx.AsyncBaseTransport):
    """Tells when the server has refused a post as busy."""

    def __init__(self) -> None:
        self.refused = anyio.Event()
        self._network = httpx.AsyncHTTPTransport()

    @override
    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response = await self._network.handle_async_request(request)
        if response.status_code == 409:
            self.refused.set()
        return response

    @override
    async def aclose(self) -> None:
        await self._network.aclose()


async def test_on_busy_of_the_client_rejects_waits_or_interrupts(
    model: ModelServer, played: Server, mine: Client, conversation: str
) -> None:
    gate, watching = anyio.Event(), RefusalNoted()
    model.play(held("first ", gate, "answer"), says("second"), broken_off("third"), says("fourth"))
    texts: list[str] = []

    async def wait_for_it() -> None:
        async with Client(played.url, retry=QUICK, transport=watching) as waiting:
            again = waiting.send("two", conversation_id=conversation, wait_while_busy=True)
            texts.append(joined([event async for event in again]))

    async with (
        anyio.create_task_group() as tasks,
        mine.send("one", conversation_id=conversation) as first,
    ):
        await until_text(first)
        with pytest.raises(Busy, match="run") as caught:
            await mine.ask("now?", conversation_id=conversation)
        tasks.start_soon(wait_for_it)
        await watching.refused.wait()
        gate.set()
        assert joined([event async for event in first]) == "answer"
    assert texts == ["second"]
    assert (caught.value.status, caught.value.code, caught.value.retryable) == (
        409,
        "conversation_busy",
        True,
    )
    async with mine.send("three", conversation_id=conversation) as third:
        await until_text(third)
        fourth = await mine.ask("four", conversation_id=conversation, on_busy="interrupt")
    assert fourth.text == "fourth"
