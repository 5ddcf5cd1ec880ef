"""The agent's Markdown: how it looks, while it comes and after, and how it is copied."""

import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from playwright.async_api import Browser, Route, expect
from tests.browser.markdown_samples import DOCUMENT
from tests.browser.playground import DESK, PHONE, Playground, open_playground
from tests.browser.test_layout import POOR_CONTRAST
from tests.browser.test_markdown_hostile import say_on_the_page
from tests.support.server import running_server

pytestmark = [pytest.mark.anyio, pytest.mark.browser]

WIDER = """() => [...document.querySelectorAll('body *')].filter(element => {
    const {left, right, width} = element.getBoundingClientRect();
    const isScrolled = element.parentElement.closest('.table-box, pre, .line');
    return width > 1 && element.checkVisibility() && !isScrolled
        && (left < -1 || right > innerWidth + 1);
}).map(element => element.outerHTML.slice(0, 80))"""
SCROLLED = """() => [...document.querySelectorAll('.table-box, .code-block pre')]
    .map(each => each.scrollWidth > each.clientWidth)"""
# what a frame shows is decided after its callbacks
FRAMES = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
STREAM = """async text => {
    const {Prose} = await import('/playground/prose.js');
    const prose = new Prose();
    document.querySelector('#transcript').append(prose.element);
    const frames = count => new Promise(done => {
        const next = left => left ? requestAnimationFrame(() => next(left - 1)) : done();
        next(count);
    });
    const blocks = prose.element.querySelector('.blocks');
    const isRead = () => [...prose.element.children].every(each => each === blocks
        || !each.textContent);
    const heights = [];
    let first = null;
    const selection = getSelection();
    for (let at = 0; at < text.length; at += 7) {
        prose.add(text.slice(at, at + 7));
        do await frames(2); while (!isRead());
        heights.push(Math.round(prose.element.getBoundingClientRect().height));
        if (!first && blocks.children.length > 2) {
            first = blocks.children[1];
            selection.selectAllChildren(first);
        }
    }
    prose.end();
    while (prose.element.hasAttribute('aria-busy')) await frames(1);
    const whole = new Prose();
    prose.element.after(whole.element);
    whole.add(text);
    whole.end();
    while (whole.element.hasAttribute('aria-busy')) await frames(1);
    const shrunk = heights.map((each, at) => Math.max(0, (heights[at - 1] ?? 0) - each));
    return {
        linked: blocks.children[1].querySelectorAll('a')[1]?.href,
        isSame: blocks.children[1] === first,
        selected: selection.toString(),
        isWhole: blocks.textContent === whole.element.querySelector('.blocks').textContent,
        shrunk: Math.max(...shrunk),
        line: parseFloat(getComputedStyle(blocks).lineHeight),
    };
}"""
CLIPBOARD = "() => navigator.clipboard.readText()"


@pytest.fixture(scope="module")
async def instructed_url() -> AsyncGenerator[str]:
    async with running_server("tests.support.served_agents:echoing") as server:
        yield server.url


async def say(playground: Playground, text: str) -> None:
    await playground.say(json.dumps({"say": text}))
    await expect(playground.page.locator(".text[aria-busy]")).to_have_count(0)


@pytest.mark.parametrize(("size", "scheme"), [(DESK, "light"), (PHONE, "dark"), (PHONE, "light")])
async def test_a_document_fits_the_screen_and_can_be_read(
    browser: Browser, instructed_url: str, size: tuple[int, int], scheme: Any
) -> None:
    async with open_playground(browser, instructed_url, size, color_scheme=scheme) as playground:
        page = playground.page
        await say(playground, DOCUMENT)
        await page.evaluate("document.querySelector('#scroll').scrollTop = 0")
        await page.locator(".code-block").last.scroll_into_view_if_needed()
        await expect(page.locator(".code-keyword").first).to_be_attached()
        for _ in range(2):  # as it comes, and after a reload
            assert await page.evaluate(WIDER) == []
            assert await page.evaluate("document.documentElement.scrollWidth") == size[0]
            assert await page.evaluate(SCROLLED) == [True, size == PHONE, False]
            assert await page.evaluate(POOR_CONTRAST) == []
            await page.reload()
            await expect(page.locator(".text")).to_have_count(1)
            await expect(page.locator(".text[aria-busy]")).to_have_count(0)


async def test_a_screen_reader_is_given_names(browser: Browser, instructed_url: str) -> None:
    async with open_playground(browser, instructed_url) as playground:
        page = playground.page
        await say(playground, DOCUMENT)
        answer = page.get_by_role("article", name="The agent")
        named: tuple[tuple[Any, str], ...] = (
            ("heading", "How to read a file"), ("link", "a link"), ("link", "Image: A picture"),
            ("img", "Done"), ("img", "To do"), ("region", "Code, python"), ("region", "Table"),
            ("columnheader", "Language"),
        )  # fmt: skip
        for role, name in named:
            await expect(answer.get_by_role(role, name=name, exact=True)).to_have_count(1)
        await expect(answer.get_by_role("heading", level=3)).to_have_count(1)
        await expect(answer.get_by_role("listitem")).to_have_count(6)
        await expect(answer.get_by_role("button", name="Copy the code")).to_have_count(2)
        link = answer.get_by_role("link", name="a link")
        await expect(link).to_have_attribute("title", "https://docs.example/a")
        await expect(link).to_have_attribute("rel", "noopener noreferrer")
        await expect(answer.locator("img, picture, video")).to_have_count(0)


@pytest.mark.timeout(300)
async def test_what_is_written_does_not_jump_and_keeps_a_selection(playground: Playground) -> None:
    """The text comes in pieces of seven characters, each shown before the next one."""
    # an address that comes last belongs to what is finished, too
    text = DOCUMENT.replace("A second", "A [second][]") + "\n[second]: https://second.example\n"
    seen = await playground.page.evaluate(STREAM, text)
    assert seen["linked"] == "https://second.example/"
    assert seen["isSame"]
    assert seen["selected"].startswith("An intro with bold, italic, code, no and a link.")
    assert seen["isWhole"]
    # a word that becomes bold or code, or a link that loses its address, may take a line less
    assert seen["shrunk"] <= 1.5 * seen["line"]


async def test_text_that_is_void_is_gone(browser: Browser, fast_url: str) -> None:
    async with open_playground(browser, fast_url) as playground:
        events: list[tuple[str, dict[str, Any]]] = [
            ("r.1-1", {"type": "message", "messageId": "m"}),
            ("r.1-2", {"type": "text", "content": "# Kept\n\n**one** "}),
            ("r.1-3", {"type": "text", "content": "two\n\n- void\n- ```"}),
            ("r.2-1", {"type": "rewind", "to": "r.1-2"}),
            ("r.2-2", {"type": "text", "content": "three\n\n> end"}),
            ("r.2-3", {"type": "run-end", "outcome": "completed"}),
        ]
        frames = "".join(f"id: {at}\ndata: {json.dumps(event)}\n\n" for at, event in events)

        async def fulfil(route: Route) -> None:
            await route.fulfill(
                content_type="text/event-stream",
                headers={"x-conversation-id": "c", "x-run-id": "r"},
                body=f"{frames}data: [DONE]\n\n",
            )

        await playground.page.route("**/send-message", fulfil)
        await playground.say("hi")
        await expect(playground.page.locator(".text[aria-busy]")).to_have_count(0)
        parts = playground.page.locator(".blocks > *")
        assert await parts.all_text_contents() == ["Kept", "one three", "end"]
        assert await parts.evaluate_all("all => all.map(each => each.localName)") == [
            "h3", "p", "blockquote",
        ]  # fmt: skip


async def test_code_and_answers_are_copied_by_the_keyboard(
    browser: Browser, instructed_url: str
) -> None:
    text = "Look:\n\n```js\nconst a = '\u202e';\n```\n\n*Done.*"
    async with open_playground(browser, instructed_url) as playground:
        page = playground.page
        await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        await say(playground, text)
        for name, copied in (("Copy the code", "const a = '\u202e';\n"), ("Copy the answer", text)):
            button = page.get_by_role("button", name=name)
            await button.focus()
            await page.keyboard.press("Enter")
            done = page.get_by_role("button", name="Copied")
            await expect(done).to_be_focused()
            await expect(page.get_by_role("status").filter(has_text="Copied")).to_have_count(1)
            assert await page.evaluate(CLIPBOARD) == copied
            await expect(done).to_have_count(0)  # it can be used again
            await expect(button).to_be_focused()


async def test_an_answer_with_calls_is_copied_without_them(
    browser: Browser, instructed_url: str
) -> None:
    async with open_playground(browser, instructed_url) as playground:
        page = playground.page
        await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        order = {"say": "**I** look.", "calls": [["echo", '{"text": "x"}']]}
        await playground.say(json.dumps(order))
        buttons = page.get_by_role("button", name="Copy the answer")
        await expect(buttons).to_have_count(2)
        await buttons.first.click()
        assert await page.evaluate(CLIPBOARD) == "**I** look."
        await page.reload()
        await buttons.last.click()
        await expect(page.get_by_role("button", name="Copied")).to_have_count(1)
        assert await page.evaluate(CLIPBOARD) == "Done."


async def test_a_browser_that_refuses_to_copy_is_named(
    browser: Browser, instructed_url: str
) -> None:
    async with open_playground(browser, instructed_url) as playground:
        page = playground.page
        session = await page.context.new_cdp_session(page)
        await session.send(
            "Browser.setPermission",
            {"permission": {"name": "clipboard-write"}, "setting": "denied"},
        )
        await say(playground, "```\nx\n```")
        await page.get_by_role("button", name="Copy the code").click()
        refused = page.get_by_role("button", name="The browser does not let this page copy.")
        await expect(refused).to_have_text("Not copied")


async def test_a_sub_agent_speaks_markdown_too(browser: Browser) -> None:
    async with (
        running_server("tests.support.served_agents:delegating") as server,
        open_playground(browser, server.url) as playground,
    ):
        task = json.dumps({"say": "I am **here**."})
        await playground.say(
            json.dumps({"say": "*I* ask.", "calls": [["helper", json.dumps({"task": task})]]})
        )
        within = playground.page.locator(".within .blocks")
        await expect(within.locator("strong")).to_have_text("here")
        await expect(playground.page.locator(".answer > .text em")).to_have_text("I")


async def test_without_the_parser_the_text_stays_text(browser: Browser, fast_url: str) -> None:
    async with open_playground(browser, fast_url) as playground:
        await playground.page.context.route("**/vendor/markdown-it.js", lambda route: route.abort())
        await playground.page.reload()
        await playground.say("count to 3")
        await say_on_the_page(playground, "# a\n\n*b*\n")
        assert await playground.answers() == ["# a\n\n*b*\n"]


async def test_code_that_is_too_much_for_the_highlighter_stays_as_it_is(
    browser: Browser, fast_url: str
) -> None:
    async with open_playground(browser, fast_url) as playground:
        page = playground.page
        line = "let a = 1;\n"
        await say_on_the_page(playground, f"```js\n{line * 6000}```\n\n```js\n{line}```")
        await expect(page.locator(".code-block").last.locator(".code-keyword")).to_have_count(1)
        assert await page.locator(".code-block").first.locator("code [class^=code]").count() == 0
        text = await page.locator(".code-block").first.locator("code").text_content()
        assert text == line * 6000
