"""Markdown that is meant to run something, to request something, or to stop the page."""

import json
from typing import Any

import anyio
import pytest
from playwright.async_api import Browser, Route, expect
from tests.browser.markdown_samples import ADDRESSES, CODE, HOSTILE, HTML, PATHOLOGICAL
from tests.browser.playground import Playground, open_playground
from tests.browser.test_page_speed import watch, worked

pytestmark = [pytest.mark.anyio, pytest.mark.browser]

SECONDS = 60
"""Time in which any of them is shown, on a machine that others use."""
WORK = 6000  # milliseconds of the page's thread for any of them; most take a tenth of a second
PIECES = 20
MADE = """() => {
    const made = [...document.querySelectorAll('.blocks *')].filter(each => !each.closest('.copy'));
    const unique = each => [...new Set(each)].sort();
    return {
        tags: unique(made.map(each => each.localName)),
        attributes: unique(made.flatMap(each => each.getAttributeNames())),
        classes: unique(made.flatMap(each => [...each.classList])),
        links: made.filter(each => each.href !== undefined).map(each => [
            each.protocol, each.title === each.href, each.target, each.rel, each.username,
        ]),
        roles: unique(made.map(each => each.getAttribute('role') ?? '')),
    };
}"""
TAGS = {
    "a", "blockquote", "code", "del", "div", "em", "figcaption", "figure", "h3", "h4", "h5", "h6",
    "hr", "li", "ol", "p", "pre", "s", "span", "strong", "table", "tbody", "td", "th", "thead",
    "tr", "ul",
}  # fmt: skip
ATTRIBUTES = {"aria-label", "class", "href", "rel", "role", "start", "tabindex", "target", "title"}
CLASSES = {
    "address", "box", "center", "code-added", "code-block", "code-comment", "code-keyword",
    "code-name", "code-number", "code-removed", "code-string", "done", "image", "language", "part",
    *(f"level-{level}" for level in range(1, 7)), "plain", "right", "task", "table-box",
}  # fmt: skip


def answer_of(text: str, pieces: int) -> str:
    """Return the body of an answer that says a text in so many pieces."""
    size = max(1, -(-len(text) // pieces))
    parts = [text[at : at + size] for at in range(0, len(text), size)]
    events: list[dict[str, Any]] = [{"type": "text", "content": part} for part in parts]
    events += [{"type": "run-end", "outcome": "completed"}]
    return (
        "".join(f"id: r.1-{at}\ndata: {json.dumps(event)}\n\n" for at, event in enumerate(events))
        + "data: [DONE]\n\n"
    )


async def say_on_the_page(playground: Playground, text: str, pieces: int = PIECES) -> None:
    """Let the agent say a text in a new conversation, and wait until all of it is shown."""

    async def fulfil(route: Route) -> None:
        await route.fulfill(
            content_type="text/event-stream",
            headers={"x-conversation-id": "c", "x-run-id": "r"},
            body=answer_of(text, pieces),
        )

    await playground.page.unroute_all()
    await playground.page.route("**/send-message", fulfil)
    await playground.page.locator("#new").click()
    await playground.say("hi")
    await expect(playground.page.locator(".text")).to_have_count(1)
    await expect(playground.page.locator(".text[aria-busy]")).to_have_count(0)


def test_there_are_many() -> None:
    assert len(set(HOSTILE)) == len(HOSTILE) >= 90


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "group", [ADDRESSES, HTML, CODE, PATHOLOGICAL[0::3], PATHOLOGICAL[1::3], PATHOLOGICAL[2::3]]
)
async def test_nothing_runs_or_is_requested_and_the_page_goes_on(
    browser: Browser, fast_url: str, group: list[str]
) -> None:
    """On leaving, the tab fails if the policy refused anything, or another host was asked."""
    async with open_playground(browser, fast_url) as playground:
        page = playground.page
        await page.evaluate(
            """() => {
                globalThis.stopped = [];
                addEventListener('securitypolicyviolation', event => stopped.push(event.blockedURI));
            }"""
        )
        session = await watch(page)
        for text in group:
            before = await worked(session)
            with anyio.fail_after(SECONDS):
                await say_on_the_page(playground, text)
                made = await page.evaluate(MADE)
            assert await worked(session) - before <= WORK, text[:100]
            assert set(made["tags"]) <= TAGS, text[:100]
            assert set(made["attributes"]) <= ATTRIBUTES, text[:100]
            assert set(made["classes"]) <= CLASSES, text[:100]
            assert set(made["roles"]) <= {"", "img", "region"}, text[:100]
            for protocol, *others in made["links"]:
                assert protocol in {"https:", "http:", "mailto:"}, text[:100]
                assert others == [True, "_blank", "noopener noreferrer", ""], text[:100]
        assert await page.evaluate("[typeof globalThis.pwned, Object.keys({}), stopped]") == [
            "undefined",
            [],
            [],
        ]
        await page.unroute_all()
        await page.locator("#new").click()
        await playground.say("count to 3")
        assert await playground.answers() == ["1 2 3 - counted by the demo model."]


async def test_what_a_link_says_and_where_it_leads_are_both_seen(
    browser: Browser, fast_url: str
) -> None:
    async with open_playground(browser, fast_url) as playground:
        text = "[https://bank.example](https://evil.test) [a\u202eb](https://evil.test/\u202egpj)"
        await say_on_the_page(playground, text)
        links = playground.page.locator(".blocks a")
        assert await playground.answers() == ["https://bank.example (evil.test) a\\u202eb"]
        assert await links.evaluate_all("all => all.map(each => each.title)") == [
            "https://evil.test/",
            "https://evil.test/%E2%80%AEgpj",
        ]
