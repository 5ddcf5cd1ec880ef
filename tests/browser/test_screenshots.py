"""The pictures of the docs, taken of the page as it is.

They are written to the folder that `TEST_SCREENSHOTS` names, else below `.cache`. Those in
`docs/images` are made by `TEST_SCREENSHOTS=docs/images scripts/test
tests/browser/test_screenshots.py`.
"""

import json
import os
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, expect
from tests.browser.playground import PHONE, Playground, open_playground
from tests.browser.test_debugging import owed_to_another_client
from tests.support.server import running_server

pytestmark = [pytest.mark.anyio, pytest.mark.browser]

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / os.environ.get("TEST_SCREENSHOTS", ".cache/screenshots")
MOST_BYTES = 150_000
SIZE = (1200, 700)
QUESTION = {
    "question": "Which colours shall I keep?",
    "options": [
        {"label": "blue", "description": "as it is now"},
        {"label": "green"},
    ],
    "multiple": True,
}


async def take(page: Page, name: str) -> None:
    """Write a picture; a large one would make the repository heavy."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    picture = await page.screenshot(path=FOLDER / f"{name}.png", animations="disabled")
    assert 5_000 < len(picture) < MOST_BYTES


async def test_a_tool_in_the_page_and_the_time_line(browser: Browser, fast_url: str) -> None:
    async with open_playground(browser, fast_url, SIZE, color_scheme="light") as playground:
        await playground.say("What time zone am I in?")
        await playground.page.locator("#events .line", has_text="owed").locator("summary").click()
        await playground.page.locator("#events").evaluate("list => list.scrollTop = 0")
        await take(playground.page, "timeline")


async def test_an_owed_call(browser: Browser, fast_url: str) -> None:
    await owed_to_another_client(fast_url, "shown")
    async with open_playground(browser, fast_url, SIZE, color_scheme="dark") as playground:
        await playground.open("#conversation=shown")
        await playground.page.reload()
        await playground.page.get_by_label("Result of the call").fill("it is open")
        await take(playground.page, "owed")


async def test_an_approval_and_a_question(browser: Browser) -> None:
    calls = (
        ("delete_file", {"path": "drafts/2025-01.txt"}),
        ("ask_user", {"questions": [QUESTION]}),
    )
    async with (
        running_server("tests.support.served_agents:guarded") as server,
        open_playground(browser, server.url, SIZE, color_scheme="light") as playground,
    ):
        order = {
            "say": "I can tidy up.",
            "calls": [[name, json.dumps(arguments)] for name, arguments in calls],
        }
        await playground.say(json.dumps(order))
        await playground.page.locator(".user").evaluate("user => user.textContent = 'Tidy up'")
        await playground.page.get_by_role("checkbox", name="blue").check()
        await take(playground.page, "asks")


async def test_a_phone(browser: Browser, fast_url: str) -> None:
    async with open_playground(browser, fast_url, PHONE, color_scheme="light") as playground:
        await ask_to_confirm(playground)
        await take(playground.page, "phone")


async def ask_to_confirm(playground: Playground) -> None:
    await playground.write('Ask me to confirm: "Shall we begin?"')
    await expect(playground.page.get_by_role("dialog")).to_be_visible()
