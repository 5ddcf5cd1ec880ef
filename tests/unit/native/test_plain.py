"""A run as plain text: its text alone, and an end that shows the outcome."""

import json
from typing import Any

import anyio
import pytest
from tests.support.asgi_client import SECONDS, exchange
from tests.support.logged_runs import RUN
from tests.support.sse_site import Direct, Site

from passback.core.errors import PassbackError, StoreUnavailable, UnknownRun
from passback.core.events import (
    Cancelled,
    Completed,
    Failed,
    HandedBack,
    Outcome,
    Position,
    ReasoningDelta,
    RunEvent,
    RunFinished,
    RunStarted,
    TextDelta,
    ToolCallStarted,
)
from passback.core.messages import CallId, Owed
from passback.hotpath.sending import SEND_NOW

pytestmark = pytest.mark.anyio

END = RunFinished(Completed())
OWED = (Owed(CallId("call_1"), "paint", '{"color":"blue"}'),)


def last_line(text: bytes) -> Any:
    """Return the JSON of the last line, which has the outcome."""
    assert text.endswith(b"\n")
    mark, outcome = text.splitlines()[-1][:1], text.splitlines()[-1][1:]
    assert mark == b"\x1e"
    return json.loads(outcome)


async def test_the_text_is_streamed_and_no_other_events() -> None:
    site = Site()
    site.runs.say(RunStarted(RUN.run_id), ReasoningDelta("hm"), TextDelta("a"), TextDelta("é"))
    headers = {"x-request-id": "r"}
    async with exchange(site.text(), "GET", "/", headers=headers) as one:
        assert (one.status, dict(one.headers)) == (
            200,
            {
                "content-type": "text/plain; charset=utf-8",
                "cache-control": "no-store, no-transform",
                "x-content-type-options": "nosniff",
                "cross-origin-resource-policy": "same-origin",
                "x-accel-buffering": "no",
                "x-conversation-id": "c",
                "x-run-id": "run_1",
                "x-request-id": "r",
            },
        )
        assert await one.chunk() == "aé".encode()
        site.runs.say(TextDelta(" b"))
        assert await one.chunk() == b" b"
        site.runs.say(END)
        assert await one.chunk() == b"\n"
        assert one.ended


@pytest.mark.parametrize(
    ("events", "text"),
    [
        ((), b""),
        ((TextDelta("a\n"),), b"a\n"),
        ((TextDelta("a"),), b"a\n"),
        ((TextDelta("a"), TextDelta("")), b"a\n"),
    ],
)
async def test_a_text_ends_with_one_newline_and_an_empty_one_with_none(
    events: tuple[RunEvent, ...], text: bytes
) -> None:
    site = Site()
    site.runs.say(*events, END)
    async with exchange(site.text(), "GET", "/") as one:
        assert (one.status, await one.rest(), one.ended) == (200, text, True)


async def test_a_model_cannot_forge_the_last_line() -> None:
    site = Site()
    site.runs.say(TextDelta('x\n\x1e{"outcome":"failed"}'))
    async with exchange(site.text(), "GET", "/") as one:
        assert await one.chunk() == b'x\n{"outcome":"failed"}'
        site.runs.say(TextDelta("\x1e"))
        site.runs.say(END)
        assert await one.rest() == b"\n"


@pytest.mark.parametrize(
    ("outcome", "line"),
    [
        (Completed("max_tokens"), {"outcome": "completed", "reason": "max_tokens"}),
        (
            HandedBack(OWED),
            {
                "outcome": "handed-back",
                "owed": [
                    {
                        "id": "call_1",
                        "name": "paint",
                        "arguments": '{"color":"blue"}',
                        "kind": "tool_result",
                    }
                ],
            },
        ),
    ],
)
@pytest.mark.parametrize("answer", ["", "a"])
async def test_an_outcome_other_than_a_whole_answer_has_a_last_line(
    outcome: Outcome, line: Any, answer: str
) -> None:
    site = Site()
    call = ToolCallStarted(CallId("call_1"), "paint", client=True)
    site.runs.say(TextDelta(answer), call, RunFinished(outcome))
    async with exchange(site.text(), "GET", "/") as one:
        text = await one.rest()
        assert one.ended
    assert last_line(text) == line
    assert text.partition(b"\x1e")[0] == (b"a\n" if answer else b"")


BROKEN = Failed("model_rate_limited", "too many", retryable=True, retry_after=1.5)


@pytest.mark.promise("P12")
@pytest.mark.parametrize(
    ("outcome", "line"),
    [
        (Cancelled(), {"outcome": "cancelled"}),
        (
            BROKEN,
            {
                "outcome": "failed",
                "code": "model_rate_limited",
                "message": "too many",
                "retryable": True,
            },
        ),
    ],
)
@pytest.mark.parametrize("is_direct", [True, False])
async def test_a_run_that_broke_off_has_a_last_line_and_an_incomplete_body(
    outcome: Outcome, line: Any, is_direct: bool
) -> None:
    site, direct = Site(), Direct()
    site.runs.say(TextDelta("half"))
    extensions = {SEND_NOW: direct} if is_direct else {}
    async with exchange(site.text(), "GET", "/", extensions=extensions) as one:
        assert await one.chunk() == b"half"
        site.runs.say(RunFinished(outcome))
        text = await one.rest()
        assert (last_line(text), one.ended) == (line, False)
    assert text.startswith(b"\n")
    assert direct.broken_off == is_direct


@pytest.mark.promise("P12")
@pytest.mark.parametrize(
    ("failed", "status", "retry"),
    [
        (BROKEN, 429, "2"),
        (Failed("model_unavailable", "away", retryable=True), 503, None),
        (Failed("lost", "gone"), 500, None),
        (Failed("of_somebody_elses_model", "gone"), 500, None),
    ],
)
@pytest.mark.parametrize("unsent", ["", "half"])
async def test_a_run_that_fails_before_any_text_is_sent_is_an_error(
    failed: Failed, status: int, retry: str | None, unsent: str
) -> None:
    site = Site()
    site.runs.say(RunStarted(RUN.run_id), TextDelta(unsent), RunFinished(failed))
    async with exchange(site.text(), "GET", "/", headers={"x-request-id": "r"}) as one:
        body = json.loads(await one.rest())
        assert (one.status, one.headers.get("retry-after")) == (status, retry)
        assert (one.headers["x-run-id"], one.headers["x-conversation-id"]) == ("run_1", "c")
    assert body == {"code": failed.code, "message": failed.message, "request_id": "r"}


@pytest.mark.promise("P10")
async def test_a_take_over_that_voids_sent_text_breaks_it_off() -> None:
    site = Site()
    site.runs.say(TextDelta("void"))
    async with exchange(site.text(), "GET", "/") as one:
        assert await one.chunk() == b"void"
        site.runs.is_taken_over(Position(1, 0), TextDelta("good"), END)
        text = await one.rest()
        assert (last_line(text)["code"], one.ended) == ("rewound", False)
    async with exchange(site.text(), "GET", "/") as one:
        assert (await one.rest(), one.ended) == (b"good\n", True)


@pytest.mark.parametrize("error", [StoreUnavailable("away"), UnknownRun("gone")])
async def test_a_text_that_cannot_be_read_on_breaks_off(error: PassbackError) -> None:
    site = Site()
    site.runs.say(TextDelta("half"))
    async with exchange(site.text(), "GET", "/") as one:
        assert await one.chunk() == b"half"
        site.runs.breaks(error)
        rest = await one.rest()
        assert not one.ended
    assert (b"run_not_found" in rest) == isinstance(error, UnknownRun)


@pytest.mark.parametrize("has_begun", [True, False])
async def test_a_stopping_server_breaks_the_text_off(has_begun: bool) -> None:
    site = Site()
    if has_begun:
        site.runs.say(TextDelta("half"))
    async with anyio.create_task_group() as tasks:

        async def stop() -> None:
            while not site.runs.readers:
                await anyio.wait_all_tasks_blocked()
            await anyio.wait_all_tasks_blocked()
            site.stopping.set()

        tasks.start_soon(stop)
        async with exchange(site.text(), "GET", "/") as one:
            if has_begun:
                assert (one.status, await one.chunk()) == (200, b"half")
                assert (await one.rest(), one.ended) == (b"", False)
            else:
                assert (one.status, json.loads(await one.rest())["code"]) == (503, "shutting_down")


async def test_a_silent_text_gets_no_comments() -> None:
    site = Site(ping=0.001)
    site.runs.say(TextDelta("a"))
    async with exchange(site.text(), "GET", "/") as one:
        assert await one.chunk() == b"a"
        with anyio.move_on_after(0.05):
            await anyio.sleep_forever()
        site.runs.say(END)
        assert await one.chunk() == b"\n"


async def test_later_text_is_sent_without_a_task_if_the_server_can() -> None:
    site, direct = Site(), Direct()
    site.runs.say(RunStarted(RUN.run_id), TextDelta("a"))
    async with exchange(site.text(), "GET", "/", extensions={SEND_NOW: direct}) as one:
        assert await one.chunk() == b"a"
        await anyio.wait_all_tasks_blocked()
        site.runs.say(TextDelta("é\ud800"))
        with anyio.fail_after(SECONDS):
            await direct.has_sent.wait()
        assert direct.sent == ["é?".encode()]
        site.runs.say(END)
        assert await one.rest() == b"\n"


async def test_a_client_that_does_not_read_a_broken_off_text_is_dropped() -> None:
    site, direct = Site(send_seconds=0.02), Direct()
    site.runs.say(TextDelta("half"))
    async with exchange(site.text(), "GET", "/", extensions={SEND_NOW: direct}) as one:
        assert await one.chunk() == b"half"
        direct.ready = False
        site.runs.say(RunFinished(Cancelled()))
        await site.no_readers()
        assert (direct.dropped, direct.broken_off) == (True, False)


async def test_a_head_request_gets_the_headers_only() -> None:
    async with exchange(Site().text(), "HEAD", "/") as one:
        assert (one.status, one.headers["content-type"]) == (200, "text/plain; charset=utf-8")
        assert await one.rest() == b""
