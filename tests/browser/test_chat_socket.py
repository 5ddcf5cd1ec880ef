"""The example client of the chat socket, in a real Chromium."""

import httpx
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


async def test_the_example_forgets_a_chat_that_is_rolled_back(browser: Browser) -> None:
    async with running_server("--model", "demo") as server:
        tab = await browser.new_context()
        try:
            page = await tab.new_page()
            await page.goto(f"{server.url}/playground/chat.html")
            shown = page.locator("#turns p")
            await page.get_by_label("Message").fill("count to 1000")
            async with page.expect_response("**/api/sessions") as made:
                await page.get_by_role("button", name="Send").click()
            session = (await (await made.value).json())["session_id"]
            await expect(shown.nth(1)).to_contain_text("3")
            first = await say_instead(server.url, session, "hello")
            await expect(shown).to_have_text(["hello", first])
            await page.get_by_label("Message").fill("count to 1000")
            await page.get_by_role("button", name="Send").click()
            await expect(shown.nth(3)).to_contain_text("3")
            second = await say_instead(server.url, session, "hi")
            await expect(shown).to_have_text(["hello", first, "hi", second])
        finally:
            await tab.close()


async def say_instead(url: str, session: str, text: str) -> str:
    """Roll back the run that goes on, and return the answer to another message."""
    message = {"role": "user", "content": text}
    post = {"conversationId": session, "messages": [message], "onBusy": "rollback"}
    async with httpx.AsyncClient(timeout=30) as http:
        answer = await http.post(f"{url}/send-message?wait=true", json=post)
    said: str = answer.json()["text"]
    return said
