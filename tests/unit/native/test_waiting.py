"""A run as one document: sent at its end, or with the stream to follow if that takes too long."""

import anyio
import pytest
from starlette.types import Message
from tests.support.asgi_client import SECONDS, Answer, ask
from tests.support.logged_runs import RUN
from tests.support.sse_site import Direct, Site

from passback.core.budgets import Left
from passback.core.errors import CursorExpired, PassbackError, StoreUnavailable, UnknownRun
from passback.core.events import (
    Cancelled,
    Completed,
    Failed,
    HandedBack,
    Nested,
    Outcome,
    OutputAccepted,
    Position,
    RunEvent,
    RunFinished,
    RunStarted,
    TextDelta,
    UsageReported,
)
from passback.core.messages import CallId, Owed, Usage
from passback.hotpath.sending import SEND_NOW
from passback.native.document import WaitedAnswer

pytestmark = pytest.mark.anyio

END = RunFinished(Completed())
IDS = {"runId": "run_1", "conversationId": "c"}
WHOLE: dict[str, object] = {
    **IDS,
    "outcome": "completed",
    "reason": "end_turn",
    "text": "",
    "owed": [],
    "usage": None,
    "model": None,
    "lastEventId": "run_1.1-3",
}


async def wait(site: Site, *, seconds: float = 5) -> Answer:
    return await ask(site.document(seconds=seconds), "GET", "/", headers={"x-request-id": "r"})


@pytest.mark.parametrize(
    ("outcome", "fields"),
    [
        (Completed(), {}),
        (Completed("max_tokens"), {"reason": "max_tokens"}),
        (Cancelled(), {"outcome": "cancelled", "reason": None}),
        (
            HandedBack((Owed(CallId("call_1"), "paint", "{}"),)),
            {
                "outcome": "handed-back",
                "reason": None,
                "owed": [
                    {"id": "call_1", "name": "paint", "arguments": "{}", "kind": "tool_result"}
                ],
            },
        ),
    ],
)
async def test_the_end_of_a_run_is_one_document(
    outcome: Outcome, fields: dict[str, object]
) -> None:
    site = Site()
    site.runs.say(TextDelta("a "), TextDelta("é"), RunFinished(outcome))
    answer = await wait(site)
    assert (answer.status, answer.json) == (200, WHOLE | {"text": "a é"} | fields)
    assert dict(answer.headers) == {
        "cache-control": "no-store",
        "x-content-type-options": "nosniff",
        "cross-origin-resource-policy": "same-origin",
        "x-request-id": "r",
        "x-conversation-id": "c",
        "x-run-id": "run_1",
        "content-length": str(len(answer.body)),
        "content-type": "application/json",
    }


async def test_the_output_of_a_run_is_in_its_document() -> None:
    site = Site()
    site.runs.say(TextDelta("{}"), OutputAccepted({"a": [1]}), END)
    document = WHOLE | {"text": "{}", "output": {"a": [1]}, "lastEventId": "run_1.1-3"}
    assert (await wait(site)).json == document


async def test_a_document_has_the_sum_of_the_usage_of_all_model_calls() -> None:
    site = Site()
    async with anyio.create_task_group() as tasks:

        async def go_on() -> None:
            await anyio.wait_all_tasks_blocked()
            site.runs.say(RunStarted(RUN.run_id), UsageReported(Usage(1, 2, 3, 4)))
            await anyio.wait_all_tasks_blocked()
            site.runs.say(UsageReported(Usage(10, 20, 30, 40)), END)

        tasks.start_soon(go_on)
        answer = await wait(site)
    usage = {"inputTokens": 11, "outputTokens": 22, "cachedTokens": 33, "reasoningTokens": 44}
    assert answer.json == WHOLE | {"usage": usage, "lastEventId": "run_1.1-4"}


USED = {"inputTokens": 1, "outputTokens": 2, "cachedTokens": 0, "reasoningTokens": 0}
BY_SUB_AGENT = Nested(CallId("b"), UsageReported(Usage(10, 20), Left(1, 60)))


@pytest.mark.parametrize(
    ("events", "usage"),
    [
        (
            [UsageReported(Usage(1, 2), Left(9, 80)), UsageReported(Usage(), Left(8, 70))],
            USED | {"left": {"turns": 8, "tokens": 70}},
        ),
        (
            [UsageReported(Usage()), UsageReported(Usage(1, 2, estimated=True))],
            USED | {"estimated": True},
        ),
        (
            [UsageReported(Usage(1, 2), Left(9, 80)), Nested(CallId("a"), BY_SUB_AGENT)],
            USED | {"inputTokens": 11, "outputTokens": 22, "left": {"turns": 9, "tokens": 60}},
        ),
        ([Nested(CallId("a"), UsageReported(Usage(1, 2), Left(1)))], USED | {"left": {}}),
    ],
    ids=["of the last call", "estimated in part", "of a sub-agent too", "of a sub-agent alone"],
)
async def test_a_document_has_the_usage_and_the_budget_left_with_the_turns_of_the_run_itself(
    events: list[RunEvent], usage: dict[str, object]
) -> None:
    site = Site()
    site.runs.say(*events, END)
    assert (await wait(site)).json["usage"] == usage


async def test_the_headers_have_the_budget_left_at_the_start() -> None:
    site = Site()
    site.runs.remains = Left(tokens=7, seconds=0.25, cost=0.0)
    site.runs.say(END)
    headers = dict((await wait(site)).headers)
    assert {name: headers[name] for name in headers if "budget" in name} == {
        "x-budget-left-tokens": "7",
        "x-budget-left-seconds": "0.25",
        "x-budget-left-cost": "0",
    }


@pytest.mark.promise("P12")
@pytest.mark.parametrize(
    ("failed", "status", "retry"),
    [
        (Failed("model_unavailable", "away", retryable=True, retry_after=7), 503, "7"),
        (Failed("model_rejected", "no"), 502, None),
        (Failed("internal", "broken"), 500, None),
    ],
)
async def test_a_run_that_failed_has_the_status_of_an_error(
    failed: Failed, status: int, retry: str | None
) -> None:
    site = Site()
    site.runs.say(TextDelta("half"), RunFinished(failed))
    answer = await wait(site)
    error = {"code": failed.code, "message": failed.message, "request_id": "r"}
    assert (answer.status, answer.json) == (status, error)
    assert answer.headers.get("retry-after") == retry
    assert answer.headers["x-run-id"] == "run_1"


@pytest.mark.promise("P10")
async def test_void_text_is_not_in_the_document() -> None:
    site = Site()
    site.runs.say(TextDelta("good "), TextDelta("void"), UsageReported(Usage(1)))
    async with anyio.create_task_group() as tasks:

        async def take_over() -> None:
            while not site.runs.readers:
                await anyio.wait_all_tasks_blocked()
            await anyio.wait_all_tasks_blocked()
            site.runs.is_taken_over(Position(1, 1), TextDelta("again"))
            await anyio.wait_all_tasks_blocked()
            site.runs.is_taken_over(Position(2, 2), END)

        tasks.start_soon(take_over)
        answer = await wait(site)
    assert answer.json == WHOLE | {"text": "good again", "lastEventId": "run_1.3-2"}


async def test_a_protocol_may_have_a_document_of_its_own_for_a_run_that_goes_on() -> None:
    site = Site()
    site.runs.say(TextDelta("so far"))
    app = site.document(seconds=0.01, goes_on={"status": "in_progress"})
    answer = await ask(app, "GET", "/")
    assert (answer.status, answer.json) == (200, {"status": "in_progress"})
    assert answer.headers["x-run-id"] == "run_1"


# ---------------------------------------------------------------- no document
def check_refers_to_stream(answer: Answer) -> None:
    follow = "conversations/c/stream?runId=run_1"
    assert (answer.status, answer.json) == (202, IDS | {"follow": follow})
    assert (answer.headers["location"], answer.headers["x-run-id"]) == (follow, "run_1")


async def test_a_timeout_refers_to_the_stream() -> None:
    site = Site()
    site.runs.say(TextDelta("half"))
    check_refers_to_stream(await wait(site, seconds=0.02))
    assert not site.runs.readers


async def test_a_failing_store_refers_to_the_stream() -> None:
    site = Site()
    site.runs.breaks(StoreUnavailable("away"))
    check_refers_to_stream(await wait(site))


async def test_a_stopping_server_refers_to_the_stream() -> None:
    site = Site()
    site.stopping.set()
    check_refers_to_stream(await wait(site))


@pytest.mark.parametrize(
    ("error", "status"), [(UnknownRun("gone"), 404), (CursorExpired("trimmed"), 410)]
)
async def test_a_run_that_cannot_be_read_is_an_error(error: PassbackError, status: int) -> None:
    site = Site()
    site.runs.unreadable = error
    answer = await wait(site)
    assert (answer.status, answer.code) == (status, error.code)
    assert answer.headers["x-run-id"] == "run_1"


@pytest.mark.promise("P12")
async def test_a_run_that_is_gone_during_the_wait_is_an_error() -> None:
    site = Site()
    site.runs.say(TextDelta("half"))
    site.runs.breaks(UnknownRun("gone"))
    answer = await wait(site)
    assert (answer.status, answer.code) == (404, "run_not_found")


@pytest.mark.promise("P11")
async def test_an_answer_that_is_too_long_for_a_document_is_refused() -> None:
    site = Site(chars=3)
    site.runs.say(TextDelta("long"), END)
    answer = await wait(site)
    assert (answer.status, answer.code) == (410, "cursor_expired")


@pytest.mark.promise("P7")
@pytest.mark.parametrize("is_direct", [True, False])
async def test_a_client_that_disconnects_ends_the_wait(is_direct: bool) -> None:
    site, direct, left = Site(ping=0.001), Direct(), anyio.Event()
    sent: list[Message] = []

    async def receive() -> Message:
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    extensions = {SEND_NOW: direct} if is_direct else {}
    scope = {"type": "http", "method": "GET", "headers": [], "extensions": extensions}
    async with anyio.create_task_group() as tasks:
        answer = WaitedAnswer(site.services, RUN, seconds=SECONDS)
        tasks.start_soon(answer, scope, receive, send)
        with anyio.move_on_after(0.02):  # many silences that could be filled
            await anyio.sleep_forever()
        assert site.runs.readers == 1
        (direct.left if is_direct else left).set()
        await site.no_readers()
    assert (sent, direct.sent) == ([], [])
