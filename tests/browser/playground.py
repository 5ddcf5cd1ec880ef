"""The playground as a person meets it, in a real Chromium."""

import json
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from playwright.async_api import Browser, ConsoleMessage, Dialog, Error, Page, Request, expect

TIMEOUT = 30_000
"""Milliseconds that anything on the page may take."""

RUN_TOOLS = "Run the tools of this conversation"
PHONE = (390, 844)
DESK = (1280, 800)


@dataclass(eq=False)  # neither frozen nor slotted: Playwright keeps notes on its listeners
class Playground:
    """One tab.

    Attributes:
        page: for what this class has no word for.
        complaints: what must not happen: errors of scripts, refusals of the content policy, dialogs
            of the browser.
        posts: the bodies of all requests to /send-message.
        keys: their idempotency keys.
        elsewhere: requests that left the server.
    """

    page: Page
    url: str
    complaints: list[str] = field(default_factory=list[str])
    posts: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    keys: list[str] = field(default_factory=list[str])
    elsewhere: list[str] = field(default_factory=list[str])

    async def open(self, fragment: str = "") -> None:
        await self.page.goto(f"{self.url}/{fragment}")

    async def write(self, text: str) -> None:
        """Send a message by the keyboard, as soon as possible; do not wait for the answer."""
        await self.page.fill("#message", text)
        await expect(self.page.locator("#send")).to_be_visible()
        await self.page.press("#message", "Enter")

    async def say(self, text: str) -> None:
        """Send a message and wait until nothing goes on any more."""
        await self.write(text)
        await self.settled()

    async def settled(self, milliseconds: float = TIMEOUT) -> None:
        await expect(self.page.locator("#stop")).to_be_hidden(timeout=milliseconds)

    async def run_tools(self) -> None:
        """Let the page run the tools of a conversation that this browser has not begun."""
        await self.page.get_by_role("button", name=RUN_TOOLS).click()

    async def answers(self) -> list[str]:
        """The texts of the agent."""
        return await self.page.locator(".answer .text").all_text_contents()

    async def questions(self) -> list[str]:
        return await self.page.locator(".user").all_text_contents()

    async def history(self) -> list[tuple[str, str]]:
        """Return the server's record of this conversation: roles and contents."""
        page = await self.page.evaluate(
            "fetch(`conversations/${location.hash.split('=')[1]}/messages`).then(got => got.json())"
        )
        return [(message["role"], message["content"]) for message in page["messages"]]

    async def notes(self) -> list[str]:
        return await self.page.locator(".note").all_text_contents()

    async def background(self) -> str:
        """The colour that the page has when it has stopped changing."""
        await self.page.evaluate(
            "Promise.all(document.body.getAnimations().map(({finished}) => finished))"
        )
        return str(await self.page.evaluate("getComputedStyle(document.body).backgroundColor"))

    async def tool_cards(self) -> list[dict[str, str]]:
        """Return each tool call as it is shown."""
        cards: list[dict[str, str]] = []
        for card in await self.page.locator(".tool").all():
            blocks = await card.locator(".block").all()
            shown = {"name": await card.locator(".tool-name").inner_text()}
            shown["state"] = await card.locator(".state").inner_text()
            if duration := await card.locator("> header .duration").inner_text():
                shown["duration"] = duration
            for block in blocks:
                title = await block.locator(".block-title").inner_text()
                shown[title.lower()] = await block.locator("pre").inner_text()
            cards.append(shown)
        return cards

    async def hear_nothing_of_others(self) -> None:
        """Keep back what other clients do, as a slow network does."""
        await self.page.route(re.compile(r"/events(\?|$)"), lambda _route: None)

    def hear_console(self, message: ConsoleMessage) -> None:
        """Take a line of the console as a complaint, unless an answer has an error status."""
        expected = message.text.startswith("Failed to load resource")
        if message.type in {"error", "warning"} and not expected:
            self.complaints.append(message.text)

    def hear_error(self, error: Error) -> None:
        self.complaints.append(str(error))

    async def hear_dialog(self, dialog: Dialog) -> None:
        self.complaints.append(f"dialog: {dialog.message}")
        await dialog.dismiss()

    def hear_request(self, request: Request) -> None:
        if not request.url.startswith((self.url, "data:")):
            self.elsewhere.append(request.url)
        if request.method == "POST" and request.url.endswith("/send-message"):
            self.posts.append(json.loads(request.post_data or "null"))
            self.keys.append(request.headers.get("idempotency-key", ""))


@asynccontextmanager
async def open_playground(
    browser: Browser, url: str, size: tuple[int, int] = DESK, **context: Any
) -> AsyncGenerator[Playground]:
    """Open a tab of its own on the page; on leaving, fail if it had complaints.

    Args:
        browser: where.
        url: of the server.
        size: width and height in pixels.
        context: more for Playwright's `new_context`, such as `timezone_id`.
    """
    viewport: Any = {"width": size[0], "height": size[1]}
    tab = await browser.new_context(viewport=viewport, **context)
    try:
        tab.set_default_timeout(TIMEOUT)
        playground = Playground(await tab.new_page(), url)
        playground.page.on("console", playground.hear_console)
        playground.page.on("pageerror", playground.hear_error)
        playground.page.on("dialog", playground.hear_dialog)
        playground.page.on("request", playground.hear_request)
        await playground.open()
        yield playground
        assert not playground.complaints, playground.complaints
        assert not playground.elsewhere, playground.elsewhere
    finally:
        await tab.close()


async def expect_text(playground: Playground, text: str) -> None:
    """Wait for an answer that has this text."""
    answer = playground.page.locator(".answer", has_text=re.compile(re.escape(text)))
    await expect(answer.first).to_be_visible(timeout=TIMEOUT)
