"""Claims of calls: taking, renewing and releasing them, and the calls that others have claimed."""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import anyio
import httpx
import pytest
from tests.support.python_client import (
    IDLE,
    PAINT,
    Reply,
    Script,
    document,
    owes,
    refusal,
)
from tests.unit.client.replies import paints, says
from typing_extensions import override

from passback_client import (
    BadAnswer,
    Client,
    Event,
    LimitExceeded,
    Refused,
    Retry,
    Text,
    Tool,
    ToolAnswer,
    ToolContext,
    Unreachable,
)

pytestmark = pytest.mark.anyio

AT_ONCE = Retry(attempts=4, first=0, longest=0, claim=0)
"""No pause, not even between renewals."""
SECONDS = 30
ANY: dict[str, Any] = {"type": "object"}
TAKEN = partial(refusal, 409, "call_claimed", retry_after="7")
SETTLED = partial(refusal, 409, "tool_result_conflict")
NEWER = IDLE | {"runId": "theirs"}
SAME = IDLE | {"runId": "run"}


class Site(Script):
    """A scripted server that answers claims from their own lists, and grants them at their ends.

    `claims` records each request.
    """

    def __init__(
        self, *replies: Reply, claims: Mapping[str, Sequence[Callable[[], Reply]]] | None = None
    ) -> None:
        super().__init__(*replies)
        self.claims: list[str] = []
        self.claimants: set[str] = set()
        self.asked = anyio.Event()
        self._claims = {call: [*answers] for call, answers in (claims or {}).items()}

    @override
    async def _answer(self, request: httpx.Request) -> httpx.Response:
        if not request.url.path.endswith("/claim"):
            return await super()._answer(request)
        call = request.url.raw_path.decode().split("/")[-2]
        self.claims.append(f"{request.method} {call}")
        self.asked.set()
        self.asked = anyio.Event()
        if request.method == "DELETE":
            self.claimants.add(request.url.params["claimant"])
            return httpx.Response(204, headers={"x-request-id": "req_1"})
        self.claimants.add(json.loads(request.content)["claimant"])
        answers = self._claims.get(call)
        reply = answers.pop(0)() if answers else document({})
        if isinstance(reply, Exception):
            raise reply
        return reply

    async def until(self, count: int) -> None:
        """Wait for this many requests about claims."""
        while len(self.claims) < count:
            await self.asked.wait()


def conversation(fields: dict[str, Any]) -> httpx.Response:
    return document(fields)


class PaintTool:
    """A tool that counts; it may wait for something first."""

    def __init__(self, wait: Callable[[], Any] | None = None) -> None:
        self.painted: list[str] = []
        self.cancelled = 0
        self._wait = wait

    async def __call__(self, _: object, context: ToolContext) -> str:
        self.painted.append(context.call.id)
        try:
            if self._wait is not None:
                await self._wait()
        except anyio.get_cancelled_exc_class():
            self.cancelled += 1
            raise
        return "blue"


def client_of(site: Site, paint: PaintTool) -> Client:
    tools = [Tool("paint", "", ANY, paint)]
    return Client("http://host", retry=AT_ONCE, transport=site.transport, tools=tools)


async def events_of(site: Site, paint: PaintTool) -> list[Event]:
    with anyio.fail_after(SECONDS):
        async with client_of(site, paint) as client:
            return [event async for event in client.send("hi")]


def answered(events: Sequence[Event]) -> list[str]:
    return [event.call_id for event in events if isinstance(event, ToolAnswer)]


def texts(events: Sequence[Event]) -> list[str]:
    return [event.content for event in events if isinstance(event, Text)]


# ---------------------------------------------------------------- own calls
async def test_a_call_is_claimed_and_the_claim_renewed_until_its_result_is_posted() -> None:
    site = Site(owes(PAINT), says("Done."))
    paint = PaintTool(lambda: site.until(3))
    events = await events_of(site, paint)
    assert (answered(events), texts(events), paint.painted) == (["call"], ["Done."], ["call"])
    assert set(site.claims) == {"POST call"}
    assert len(site.claims) >= 3
    assert len(site.claimants) == 1
    again = Site(owes(PAINT), says("Done."))
    await events_of(again, PaintTool())
    assert site.claimants.isdisjoint(again.claimants)


async def test_all_calls_are_claimed_and_run_together() -> None:
    names = ["a", "b", "c"]
    site = Site(owes(*paints(*names)), says("Done."), claims=dict.fromkeys(names, ()))
    met = anyio.Event()
    paint = PaintTool(lambda: _meet(paint, met))
    events = await events_of(site, paint)
    assert answered(events) == names
    assert site.claims[:3] == ["POST a", "POST b", "POST c"]


async def _meet(paint: PaintTool, met: anyio.Event) -> None:
    if len(paint.painted) == 3:
        met.set()
    await met.wait()


@pytest.mark.parametrize(
    "failure",
    [
        lambda: httpx.ConnectError("no"),
        partial(refusal, 503, "store_unavailable"),
        partial(refusal, 409, "conversation_busy", retry_after="0"),
    ],
)
async def test_a_claim_without_an_answer_is_repeated(failure: Callable[[], Reply]) -> None:
    site = Site(owes(PAINT), says("Done."), claims={"call": [failure, failure]})
    assert answered(await events_of(site, PaintTool())) == ["call"]
    assert site.claims[:3] == ["POST call"] * 3


async def test_a_failed_claim_is_an_error_and_the_others_are_released() -> None:
    wrong = partial(refusal, 422, "invalid_request")
    site = Site(owes(*paints("a", "b")), claims={"a": [wrong]})
    paint = PaintTool()
    with pytest.raises(Refused, match="invalid_request"):
        await events_of(site, paint)
    assert paint.painted == []
    assert {"DELETE a", "DELETE b"} < set(site.claims)
    lost = lambda: httpx.ReadError("gone")  # noqa: E731 - one of a kind
    with pytest.raises(Unreachable):
        await events_of(Site(owes(PAINT), claims={"call": [lost] * 4}), paint)


async def test_a_call_whose_id_cannot_be_sent_back_is_a_bad_answer() -> None:
    with pytest.raises(BadAnswer):
        await events_of(Site(owes(*paints("x" * 257))), PaintTool())
    site = Site(owes(*paints("a/..")), says("Done."))
    await events_of(site, PaintTool())
    assert site.claims[0] == "POST a%2F%2E%2E"


async def test_a_renewal_that_fails_changes_nothing() -> None:
    granted = partial(httpx.Response, 200, json={})
    site = Site(
        owes(PAINT),
        says("Done."),
        claims={"call": [granted, partial(refusal, 500, "internal"), granted, TAKEN]},
    )
    events = await events_of(site, PaintTool(lambda: site.until(4)))
    assert (answered(events), texts(events)) == (["call"], ["Done."])


# ---------------------------------------------------------------- giving up
async def test_claims_are_released_when_the_reader_is_cancelled() -> None:
    site = Site(owes(*paints("a", "b")))
    begun = anyio.Event()

    async def wait() -> None:
        begun.set()
        await anyio.sleep_forever()

    paint = PaintTool(wait)
    with anyio.fail_after(SECONDS):
        async with client_of(site, paint) as client, anyio.create_task_group() as tasks:
            stream = client.send("hi")
            tasks.start_soon(_drain, stream)
            await begun.wait()
            site.requests.clear()
            tasks.cancel_scope.cancel()
    assert paint.cancelled == 2
    assert {"DELETE a", "DELETE b"} < set(site.claims)
    assert len(site.claimants) == 1
    assert site.requests == []


async def _drain(stream: Any) -> None:
    async for _ in stream:
        pass


@pytest.mark.parametrize("taken", [False, True], ids=["while it runs", "while another has it"])
async def test_claims_are_released_when_the_stream_is_cancelled(taken: bool) -> None:
    cancel = document({"cancelled": False})
    site = Site(owes(PAINT), cancel, claims={"call": [TAKEN] * 10_000 if taken else []})
    paint = PaintTool(anyio.sleep_forever)
    with anyio.fail_after(SECONDS):
        async with client_of(site, paint) as client, anyio.create_task_group() as tasks:
            stream = client.send("hi")
            tasks.start_soon(_drain, stream)
            await site.until(3)
            assert not await stream.cancel()
    assert (paint.painted, paint.cancelled) == (([], 0) if taken else (["call"], 1))
    assert taken or site.claims[-1] == "DELETE call"


async def test_claims_are_released_when_the_results_are_refused() -> None:
    site = Site(owes(PAINT), refusal(403, "refused"))
    with pytest.raises(Refused, match="refused"):
        await events_of(site, PaintTool())
    assert site.claims[-1] == "DELETE call"


async def test_a_claim_that_cannot_be_released_is_left_to_expire() -> None:
    site = Site(owes(*paints("x" * 256)), refusal(403, "refused"))
    site.transport = httpx.MockTransport(partial(_without_deletes, site))
    with pytest.raises(Refused, match="refused"):
        await events_of(site, PaintTool())


async def _without_deletes(site: Site, request: httpx.Request) -> httpx.Response:
    if request.method == "DELETE":
        raise httpx.ConnectError("no")
    return await site._answer(request)


# ---------------------------------------------------------------- the calls of others
async def test_a_call_claimed_by_another_client_is_run_when_the_claim_expires() -> None:
    site = Site(owes(PAINT), says("Done."), claims={"call": [TAKEN] * 3})
    paint = PaintTool()
    assert answered(await events_of(site, paint)) == ["call"]
    assert paint.painted == ["call"]
    assert site.claims[:4] == ["POST call"] * 4


@pytest.mark.parametrize(
    "settled", [SETTLED, partial(refusal, 404, "tool_call_not_found")], ids=["answered", "gone"]
)
async def test_a_call_that_another_client_answered_is_not_run_and_its_run_is_read(
    settled: Callable[[], Reply],
) -> None:
    site = Site(
        owes(PAINT),
        conversation(NEWER),
        says("Theirs.", "theirs"),
        claims={"call": [TAKEN, settled]},
    )
    paint = PaintTool()
    events = await events_of(site, paint)
    assert (texts(events), answered(events), paint.painted) == (["Theirs."], [], [])
    assert site.routes[1:] == [
        "GET /conversations/c%20d",
        "GET /conversations/c/stream?include=rewind%2Crun%2Cowed%2Coutput&runId=theirs",
    ]
    assert site.claims == ["POST call"] * 2


async def test_a_call_answered_without_a_new_run_ends_the_stream() -> None:
    site = Site(owes(PAINT), conversation(SAME), claims={"call": [SETTLED]})
    assert answered(await events_of(site, PaintTool())) == []
    contradicts = Site(
        owes(PAINT),
        *[conversation(SAME | {"owed": [PAINT]}) for _ in range(100)],
        claims={"call": [SETTLED] * 200},
    )
    with pytest.raises(LimitExceeded):
        await events_of(contradicts, PaintTool())


async def test_own_results_are_posted_while_others_are_waited_for() -> None:
    theirs = paints("theirs")
    site = Site(
        owes(*paints("mine", "theirs", "old")),
        owes(*theirs, run=None),
        conversation(NEWER),
        says("Both.", "theirs"),
        claims={"theirs": [TAKEN, TAKEN, SETTLED], "old": [SETTLED]},
    )
    paint = PaintTool()
    events = await events_of(site, paint)
    assert (answered(events), paint.painted, texts(events)) == (["mine"], ["mine"], ["Both."])
    assert [message["toolCallId"] for message in site.bodies[1]["messages"]] == ["mine"]


async def test_a_tool_is_cancelled_if_its_call_is_answered_by_another_client() -> None:
    granted = partial(httpx.Response, 200, json={})
    site = Site(
        owes(PAINT),
        conversation(NEWER),
        says("Theirs.", "theirs"),
        claims={"call": [granted, granted, SETTLED]},
    )
    paint = PaintTool(anyio.sleep_forever)
    events = await events_of(site, paint)
    assert (paint.cancelled, answered(events), texts(events)) == (1, [], ["Theirs."])
    assert "DELETE call" not in site.claims


# ---------------------------------------------------------------- results that came too late
async def test_a_late_result_is_dropped_and_the_run_of_the_first_one_is_read() -> None:
    site = Site(owes(PAINT), SETTLED(), conversation(NEWER), says("Theirs.", "theirs"))
    paint = PaintTool()
    events = await events_of(site, paint)
    assert (answered(events), texts(events), paint.painted) == ([], ["Theirs."], ["call"])


async def test_results_beside_a_late_one_are_posted_again_without_running_tools() -> None:
    late, mine = paints("late", "mine")
    site = Site(owes(late, mine), SETTLED(), conversation(SAME | {"owed": [mine]}), says("Done."))
    paint = PaintTool()
    events = await events_of(site, paint)
    assert (answered(events), sorted(paint.painted)) == (["mine"], ["late", "mine"])
    sent = [[message["toolCallId"] for message in body["messages"]] for body in site.bodies[1:]]
    assert sent == [["late", "mine"], ["mine"]]


async def test_a_refusal_of_results_that_are_all_still_owed_is_an_error() -> None:
    late, mine = paints("late", "mine")
    left = SAME | {"owed": [mine]}
    site = Site(owes(late, mine), SETTLED(), conversation(left), SETTLED(), conversation(left))
    with pytest.raises(Refused, match="tool_result_conflict"):
        await events_of(site, PaintTool())
    assert site.claims[-1] == "DELETE mine"
