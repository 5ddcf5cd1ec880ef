"""The example client of the chat socket, in a real Chromium."""

import pytest
from playwright.async_api import Browser, expect
from tests.support.server import running_server

pytestmark = [pytest.mark.anyio, pytest.mark.browser]

KEY = "the-key-of-ann-0123"


async def test_the_example_chats(browser: Browser) -> None:
    flags = ("--model", "demo:fast")
    async with running_server(*flags, environment={"PASSBACK_API_KEYS": f"ann:{KEY}"}) as server:
        tab = await browser.new_context()
        try:
            page = await tab.new_page()
            complaints: list[str] = []
            page.on("pageerror", lambda error: complaints.append(str(error)))
            await page.goto(f"{server.url}/playground/chat.html")
            await page.get_by_label("Key").fill(KEY)
            for text in ("hello", "<b>again</b>"):
                await page.get_by_label("Message").fill(text)
                await page.get_by_role("button", name="Send").click()
                await expect(page.get_by_text(text, exact=True)).to_be_visible()
            await expect(page.locator("#turns p")).to_have_count(4)
            await expect(page.locator("#turns b")).to_have_count(0)
            assert complaints == []
        finally:
            await tab.close()
