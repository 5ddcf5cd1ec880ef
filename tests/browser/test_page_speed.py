"""The speed of the page: its first paint, a long conversation, and a fast answer.

On a machine that others use, only the time that the page's thread has worked says something; it
has SLACK times the goal. TEST_PAGE_SPEED=1 holds the page to the goals on a quiet machine, too;
`--log-cli-level=INFO` shows the times.
"""

import json
import logging
import os
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.async_api import Browser, CDPSession, Page, expect
from tests.browser.markdown_samples import DOCUMENT
from tests.browser.playground import Playground, open_playground
from tests.support.server import replaying, running_server

pytestmark = [pytest.mark.anyio, pytest.mark.browser]

logger = logging.getLogger(__name__)

IS_QUIET = bool(os.environ.get("TEST_PAGE_SPEED"))
SLACK = 3
FIRST_PAINT = 150  # milliseconds
OPENING = 1500  # milliseconds
FRAME = 50  # milliseconds
BUSY_SHARE = 0.7  # of the time in which the deltas come
MESSAGES = 1000
DELTAS = 12_000
DELTAS_PER_SECOND = 2000
PAINTED = """() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null"""
SHOWN = """count => new Promise(done => {
    const look = () => {
        const texts = document.querySelectorAll('.text');
        const isShown = texts.length === count && !document.querySelector('.text[aria-busy]');
        if (isShown) done(performance.now());
        else requestAnimationFrame(look);
    };
    look();
})"""
OBSERVE = """() => {
    globalThis.frames = [];
    new PerformanceObserver(list => {
        for (const {duration, startTime} of list.getEntries()) frames.push([startTime, duration]);
    }).observe({type: 'long-animation-frame'});
}"""


def hold(what: str, goal: float, times: list[float], worked: list[float]) -> None:
    """Log what was measured, and compare the best of it with the goal; all in milliseconds."""
    rows = ", ".join(f"{time:.0f} ({work:.0f})" for time, work in zip(times, worked, strict=True))
    logger.info("%s: %s ms (of which the thread worked); goal %s ms", what, rows, goal)
    assert min(worked) <= goal * SLACK
    assert not IS_QUIET or min(times) <= goal


async def worked(session: CDPSession) -> float:
    """Return the milliseconds that the main thread has worked since the page was loaded."""
    metrics = (await session.send("Performance.getMetrics"))["metrics"]
    seconds = next(each["value"] for each in metrics if each["name"] == "TaskDuration")
    return float(seconds) * 1000


async def watch(page: Page) -> CDPSession:
    session = await page.context.new_cdp_session(page)
    await session.send("Performance.enable", {"timeDomain": "threadTicks"})
    return session


async def test_the_first_paint_waits_for_nothing(browser: Browser, fast_url: str) -> None:
    async with open_playground(browser, fast_url) as playground:
        session = await watch(playground.page)
        times: list[float] = []
        work: list[float] = []
        for _ in range(5):
            await playground.page.reload()
            times.append(await painted(playground.page))
            work.append(await worked(session))
        hold("first paint", FIRST_PAINT, times, work)
        # the libraries are not a part of what is shown first
        blocking = await playground.page.evaluate(
            """() => performance.getEntriesByType('resource')
                .filter(each => each.renderBlockingStatus === 'blocking')
                .map(each => new URL(each.name).pathname)"""
        )
        assert {Path(each).suffix for each in blocking} == {".css"}


async def painted(page: Page) -> float:
    """Return the time of the first paint, which the browser tells with a later frame."""
    for _ in range(100):
        await page.evaluate("() => new Promise(requestAnimationFrame)")
        if (time := await page.evaluate(PAINTED)) is not None:
            return float(time)
    raise AssertionError("nothing was painted")


@pytest.fixture(scope="module")
async def long_conversation() -> AsyncGenerator[str]:
    """A server with a conversation of 1,000 messages, half of them with Markdown of all kinds."""
    roles = ("user", "assistant")
    parts = DOCUMENT.split("\n\n")
    said = ["\n\n".join(parts[at % 5 : at % 5 + 4]) for at in range(MESSAGES)]
    messages = [
        {"role": roles[at % 2], "content": said[at] if at % 2 else f"Question {at}"}
        for at in range(MESSAGES - 1)
    ]
    async with (
        running_server("--model", "demo:fast", "--allow-roles", "assistant") as server,
        httpx.AsyncClient(base_url=server.url, timeout=60) as client,
    ):
        body = {"conversationId": "long", "messages": messages}
        answer = await client.post("/send-message", json=body)
        assert answer.status_code == 200, answer.text
        yield server.url


@pytest.mark.timeout(300)
async def test_a_conversation_of_1000_messages_opens(
    browser: Browser, long_conversation: str
) -> None:
    async with open_playground(browser, long_conversation) as playground:
        page = playground.page
        await playground.open("#conversation=long")
        await page.evaluate(SHOWN, MESSAGES // 2)
        session = await watch(page)
        times: list[float] = []
        work: list[float] = []
        for _ in range(3 if IS_QUIET else 1):
            await page.reload()
            times.append(await page.evaluate(SHOWN, MESSAGES // 2))
            work.append(await worked(session))
        hold("1,000 messages", OPENING, times, work)
        assert await page.locator(".user").count() == MESSAGES // 2
        await expect(page.locator(".answer").last).to_be_in_viewport()
        await page.evaluate("document.querySelector('#scroll').scrollTop = 0")
        await expect(page.locator(".user").first).to_be_in_viewport()


@pytest.mark.timeout(300)
async def test_2000_deltas_a_second_leave_the_page_free(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    file.write_text(json.dumps(recording()))
    async with replaying(file) as url, open_playground(browser, url) as playground:
        page = playground.page
        await playground.say("hi")  # which loads the libraries, and is not measured
        await expect(page.locator(".text[aria-busy]")).to_have_count(0)
        session = await watch(page)
        await page.evaluate(OBSERVE)
        before = await worked(session)
        await write_and_wait(playground)
        work = await worked(session) - before
        frames = sorted(duration for _, duration in await page.evaluate("globalThis.frames"))
        logger.info("%s deltas: worked %.0f ms; frames above 50 ms: %s", DELTAS, work, frames)
        assert work <= BUSY_SHARE * 1000 * DELTAS / DELTAS_PER_SECOND * SLACK
        assert not IS_QUIET or max(frames, default=0) <= FRAME


async def write_and_wait(playground: Playground) -> None:
    await playground.write("go")
    await expect(playground.page.locator(".answer")).to_have_count(2)
    await playground.settled()
    await expect(playground.page.locator(".text[aria-busy]")).to_have_count(0)
    shown = await playground.page.locator(".answer .text").last.inner_text()
    assert shown.count("How to read a file") == whole_text().count("# How to read a file")


def whole_text() -> str:
    """Return a long answer, of which each delta is a few characters."""
    return DOCUMENT * (4 * DELTAS // len(DOCUMENT))


def recording() -> dict[str, Any]:
    """Return a recorded run of a short answer and a fast, long one."""
    return {
        "format": "passback-run",
        "version": 1,
        "startedAt": "2025-01-31T18:05:00.000Z",
        "exchanges": [exchange("first", ["**Hi** "]), exchange("second", pieces(whole_text()))],
    }


def pieces(text: str) -> list[str]:
    return [text[at : at + 4] for at in range(0, len(text), 4)]


def exchange(run: str, texts: list[str]) -> dict[str, Any]:
    step = 1000 / DELTAS_PER_SECOND
    events: list[dict[str, Any]] = [{"type": "text", "content": each} for each in texts]
    events = [{"type": "run-start"}, *events, {"type": "run-end", "outcome": "completed"}]
    frames = [
        {"at": round(at * step, 1), "id": f"{run}.1-{at + 1}", "data": json.dumps(event)}
        for at, event in enumerate(events)
    ]
    headers = {"content-type": "text/event-stream", "x-run-id": run}
    return {
        "at": 0,
        "request": {
            "method": "POST",
            "path": "/send-message",
            "headers": {},
            "body": {"messages": [{"role": "user", "content": "hi"}]},
        },
        "response": {"status": 200, "headers": headers, "body": None},
        "frames": [*frames, {"at": round(len(frames) * step, 1), "id": "", "data": "[DONE]"}],
        "cuts": [],
    }
