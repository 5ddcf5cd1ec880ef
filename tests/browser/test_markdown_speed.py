"""Markdown that is much work: the page goes on meanwhile, and what takes too long stays text.

A task of the page's thread is what nothing else can interrupt, neither a key nor a click. Its CPU
time is measured, which others on the machine change little; SLACK is for the rest.
`TEST_PAGE_SPEED=1` holds the page to the goal; `--log-cli-level=INFO` shows the times.
"""

import asyncio
import logging
from typing import Any

import anyio
import pytest
from playwright.async_api import Browser, CDPSession, Page, Route, expect
from tests.browser.playground import open_playground
from tests.browser.test_page_speed import IS_QUIET, SLACK

pytestmark = [pytest.mark.anyio, pytest.mark.browser]

logger = logging.getLogger(__name__)

LONGEST_TASK = 50  # milliseconds
SIZE = 40_000  # characters
SECONDS = 120
TRACED = {
    "traceConfig": {"includedCategories": ["toplevel", "__metadata"]},
    "transferMode": "ReportEvents",
}

_WIDE = "|a" * 190 + "|\n" + "|-" * 190 + "|\n"
HEAVY = {
    "quotes": ">" * (SIZE // 4) + " a\n" + "b\n" * (SIZE // 4),
    "tables": "a|b\n-|-\n" * (SIZE // 8),
    "a wide table": _WIDE + "|b\n" * (SIZE // 3),
    "items": "-\n" * (SIZE // 2),
    "headings": "# a\n" * (SIZE // 4),
    "lines": "***\n" * (SIZE // 4),
    "backticks": "`\n" * (SIZE // 2),
    "empty lines of code": "```\n" + "\n" * SIZE,
    "images": ("![" * 3990 + "\n\n") * 5,
    "an image in an image": "![a[b](" * 1100 + ")]" * 1100,
    "labels": "[a]: <" * (SIZE // 6),
    "delimiters": "*" * SIZE + "x",
}
# a library that never comes back from a text, beside the code of the real one
ENDLESS = """
const parse = vr.prototype.parse;
vr.prototype.parse = function(source, env) {
    while (source.includes("ENDLESS")) {}
    return parse.call(this, source, env);
};
export { vr as default };"""
EXPORT = "export { vr as default };"
STREAM = """async text => {
    const {Prose} = await import('/playground/prose.js');
    const prose = new Prose();
    document.querySelector('#transcript').replaceChildren(prose.element);
    const size = Math.ceil(text.length / 20);
    for (let at = 0; at < text.length; at += size) {
        prose.add(text.slice(at, at + size));
        await new Promise(requestAnimationFrame);
    }
    prose.end();
}"""
SAY = """texts => {
    const box = document.querySelector('#transcript');
    globalThis.said = texts.map(text => {
        const prose = new Prose();
        box.append(prose.element);
        prose.add(text);
        prose.end();
        return prose;
    });
}"""
TURNS = """async () => {
    let turns = 0;
    for (; document.querySelector('.text[aria-busy]'); turns += 1) {
        await new Promise(done => setTimeout(done));
    }
    return turns;
}"""


async def longest_task(session: CDPSession, page: Page, text: str) -> float:
    """Return the CPU milliseconds of the longest task that shows a text, which comes in pieces."""
    events: list[dict[str, Any]] = []
    is_complete = asyncio.Event()
    session.on("Tracing.dataCollected", lambda data: events.extend(data["value"]))
    session.once("Tracing.tracingComplete", lambda _: is_complete.set())
    await session.send("Tracing.start", TRACED)
    await page.evaluate(STREAM, text)
    await expect(page.locator(".text[aria-busy]")).to_have_count(0, timeout=SECONDS * 1000)
    await session.send("Tracing.end")
    with anyio.fail_after(SECONDS):
        await is_complete.wait()
    threads = {
        (event["pid"], event["tid"])
        for event in events
        if event["name"] == "thread_name" and event["args"]["name"] == "CrRendererMain"
    }
    times: list[float] = [
        event["tdur"] / 1000
        for event in events
        if (event["pid"], event["tid"]) in threads
        and event["name"].endswith("RunTask")
        and "tdur" in event
    ]
    assert times
    return max(times)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", HEAVY)
async def test_no_text_holds_the_page(browser: Browser, fast_url: str, name: str) -> None:
    async with open_playground(browser, fast_url) as playground:
        session = await browser.new_browser_cdp_session()
        await longest_task(session, playground.page, "# a\n\n*b*\n\n- `c`\n" * 100)
        time = await longest_task(session, playground.page, HEAVY[name])
        logger.info("%s: the longest task has %.0f ms; goal %s ms", name, time, LONGEST_TASK)
        assert time <= LONGEST_TASK * (1 if IS_QUIET else SLACK)


async def serve_endless_library(route: Route) -> None:
    """Answer with a parser that does not come back from some texts."""
    response = await route.fetch()
    library = await response.text()
    assert EXPORT in library
    await route.fulfill(response=response, body=library.replace(EXPORT, ENDLESS))


@pytest.mark.timeout(300)
async def test_what_cannot_be_read_stays_text_and_the_rest_is_markdown(
    browser: Browser, fast_url: str
) -> None:
    async with open_playground(browser, fast_url) as playground:
        page = playground.page
        await page.context.route("**/vendor/markdown-it.js", serve_endless_library)
        await page.reload()
        await page.evaluate(
            "async () => { globalThis.Prose = (await import('/playground/prose.js')).Prose; }"
        )
        await page.evaluate(SAY, ["# one", "ENDLESS\n\n*two*", "*three*"])
        assert await page.evaluate(TURNS) > 20
        texts = page.locator(".text")
        assert await texts.all_text_contents() == ["one", "ENDLESS\n\n*two*", "three"]
        await expect(page.locator(".text h3")).to_have_text("one")
        await expect(page.locator(".text em")).to_have_text("three")
        # what was shown before stays, and what comes later is text
        await page.evaluate(
            "() => { globalThis.one = new Prose(); said[0].element.before(one.element); }"
        )
        for text in ("# four\n\n- five\n\nsix", " ENDLESS *seven*", "\n\n# eight\n"):
            await page.evaluate("text => one.add(text)", text)
            shown = "four" if text.startswith("#") else text.strip()
            await expect(texts.first.locator(".blocks")).to_contain_text(shown)
        await page.evaluate("() => one.end()")
        await page.evaluate(TURNS)
        await expect(texts.first.locator(".blocks > *")).to_have_text(
            ["four", "- five\n\nsix ENDLESS *seven*\n\n# eight\n"]
        )
        assert (await texts.all_text_contents())[1:] == ["one", "ENDLESS\n\n*two*", "three"]
