"""The menu of slash commands on the page."""

import re

import pytest
from playwright.async_api import Browser, expect
from tests.browser.playground import DESK, PHONE, open_playground
from tests.browser.test_layout import POOR_CONTRAST, overflow
from tests.support.server import running_server

pytestmark = [pytest.mark.anyio, pytest.mark.browser]

CLERK = "tests.support.composer_agents:clerk"


@pytest.mark.parametrize(("size", "scheme"), [(DESK, "light"), (PHONE, "dark")])
async def test_a_slash_offers_the_commands_of_the_agent(
    browser: Browser, size: tuple[int, int], scheme: str
) -> None:
    async with (
        running_server(CLERK, "tests.support.composer_agents:cook") as server,
        open_playground(browser, server.url, size, color_scheme=scheme) as tab,
    ):
        page, keyboard = tab.page, tab.page.keyboard
        field, menu = page.locator("#message"), page.get_by_role("listbox", name="Commands")
        options = menu.get_by_role("option")
        await expect(page.locator("#pickers")).to_be_visible()
        await field.focus()
        await keyboard.type("/")
        await expect(options).to_have_text(
            [re.compile(f"^/{name}") for name in ("clear", "compact", "greet", "help")]
        )
        await expect(page.locator("#commands-count")).to_contain_text("4 commands")
        assert await page.evaluate(POOR_CONTRAST) == []
        assert await overflow(page) == []
        await keyboard.press("ArrowUp")
        await expect(menu.get_by_role("option", selected=True)).to_contain_text("/help")
        assert await field.get_attribute("aria-activedescendant") == "command-3"
        await keyboard.press("Escape")
        await expect(menu).to_be_hidden()
        assert await field.get_attribute("aria-activedescendant") is None
        await keyboard.type("g")
        await expect(options).to_have_count(1)
        await keyboard.press("Enter")
        await expect(field).to_have_value("/greet ")
        await keyboard.type("Ada")
        await keyboard.press("Enter")
        await tab.settled()
        assert await tab.answers() == ["Hello, Ada!"]
        # by the mouse; and the other agent has commands of its own
        await field.focus()
        await keyboard.type("/h")
        await options.first.click()
        await expect(field).to_have_value("/help ")
        await page.get_by_role("combobox", name="Agent").select_option(label="cook")
        await field.fill("/")
        await expect(options).to_have_count(3)
        await field.fill("/nothing")
        await expect(menu).to_be_hidden()


async def test_a_written_command_is_sent_at_once_and_text_is_left_alone(browser: Browser) -> None:
    async with running_server(CLERK) as server, open_playground(browser, server.url) as tab:
        async with tab.page.expect_response("**/agents"):
            await tab.page.reload()
        await tab.say("/help")
        await tab.say("look at /etc")
        await expect(tab.page.locator(".user")).to_have_text(["/help", "look at /etc"])
