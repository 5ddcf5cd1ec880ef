"""Cards of sub-agents, of a tool's progress, and of the plan."""

import json
from typing import Any

import pytest
from playwright.async_api import Browser, expect
from tests.browser.playground import PHONE, open_playground
from tests.browser.test_layout import POOR_CONTRAST, overflow
from tests.support.server import running_server

pytestmark = [pytest.mark.anyio, pytest.mark.browser]

PLAN = {
    "entries": [
        {"content": "Look <i>around</i>", "status": "completed"},
        {"content": "Tidy up", "priority": "high", "status": "in_progress"},
    ]
}


def order(*calls: tuple[str, dict[str, Any]], **more: str) -> str:
    """Return the words that make the instructed model do this."""
    return json.dumps({"calls": [[name, json.dumps(given)] for name, given in calls], **more})


def delegating(task: str) -> tuple[str, dict[str, Any]]:
    return ("helper", {"task": task})


@pytest.mark.parametrize("size", [(1280, 800), PHONE])
async def test_what_a_sub_agent_does_stands_within_the_call_that_it_works_on(
    browser: Browser, size: tuple[int, int]
) -> None:
    task = order(("delete_file", {"path": "a.txt"}), say="I look.")
    async with (
        running_server("tests.support.served_agents:delegating") as server,
        open_playground(browser, server.url, size) as tab,
    ):
        page, plan = tab.page, tab.page.get_by_label("The agent's plan")
        helper = page.locator(".answer > .tool").filter(has_text="helper")
        within = helper.get_by_label("Tool call delete_file")
        await tab.say(order(("update_plan", PLAN), delegating(task), say="I ask."))
        for _ in range(2):  # as it comes, and after a reload
            await expect(within.get_by_role("button", name="Allow", exact=True)).to_be_visible()
            await expect(helper.locator(".within > .text")).to_have_text("I look.")
            assert await page.locator(".answer > .text").all_text_contents() == ["I ask."]
            await expect(plan.get_by_role("listitem")).to_have_text(
                ["Look <i>around</i>done", "Tidy upat work, important"]
            )
            await expect(page.locator("#plan-count")).to_have_text("1 of 2 done")
            assert await page.evaluate(POOR_CONTRAST) == []
            assert await overflow(page) == []
            await page.reload()
        await within.get_by_role("button", name="Allow", exact=True).click()
        for _ in range(2):
            await expect(within.locator(".state")).to_have_text("allowed, ran on the server")
            await expect(within.locator(".result pre")).to_have_text("a.txt is deleted")
            await expect(helper.locator("> header .state")).to_have_text("ran on the server")
            await expect(helper.locator(".within > .text")).to_have_text(["I look.", "Done."])
            await expect(page.locator(".answer > .text")).to_have_text(["I ask.", "Done."])
            await page.reload()
        await tab.write(order(delegating(order(("index", {})))))
        progress = page.get_by_label("Tool call helper").get_by_label("Tool call index")
        await expect(progress).to_contain_text("<b>half</b> of the files are read")
        await page.get_by_role("button", name="Stop").click()
        await tab.settled()
        await page.get_by_role("button", name="New conversation").click()
        await expect(page.locator("#plan")).to_be_hidden()
