"""Tokens and cost of answers on the page."""

from collections.abc import AsyncGenerator

import pytest
from playwright.async_api import Browser, Locator, Page, expect
from tests.browser.playground import PHONE, open_playground
from tests.browser.test_layout import POOR_CONTRAST, overflow
from tests.browser.test_versions import edit, expect_version, of_message
from tests.support.composer_agents import PRICES
from tests.support.server import running_server

pytestmark = [pytest.mark.anyio, pytest.mark.browser]

ONE = "1,200 in (800 cached) · 40 out (16 reasoning)"
TWO = "2,400 in (1,600 cached) · 80 out (32 reasoning)"
THREE = "3,600 in (2,400 cached) · 120 out (48 reasoning)"
PRICED = {"PASSBACK_PRICES": PRICES}


@pytest.fixture(scope="module")
async def url() -> AsyncGenerator[str]:
    async with running_server("tests.support.composer_agents:clerk", environment=PRICED) as server:
        yield server.url


def lines(page: Page) -> Locator:
    """What is seen below each answer."""
    return page.locator(".answer > .usage > span[aria-hidden]")


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_each_answer_has_its_tokens_and_cost_also_after_a_reload(
    browser: Browser, url: str, scheme: str
) -> None:
    async with open_playground(browser, url, PHONE, color_scheme=scheme) as tab:
        await tab.say("hi")
        await expect(lines(tab.page)).to_have_text([f"{ONE} · cost 0.0012"])
        await tab.say("and again")
        for _ in range(2):
            await expect(lines(tab.page)).to_have_text([f"{ONE} · cost 0.0012"] * 2)
            said = tab.page.locator(".answer > .usage").first
            await expect(said.locator(".hidden")).to_have_text(
                "Tokens of this answer: 1,200 of input, of which 800 came from a cache; 40 of "
                "output, of which 16 were reasoning; in one call of models. "
                "Cost by the server's prices: 0.0012."
            )
            assert await tab.page.evaluate(POOR_CONTRAST) == []
            assert await overflow(tab.page) == []
            await tab.page.reload()


async def test_an_edited_message_is_counted_anew(browser: Browser, url: str) -> None:
    async with open_playground(browser, url) as tab:
        await tab.say("hi")
        await edit(tab, 0, "hello")
        await expect_version(of_message(tab.page, 0), "2/2")
        await expect(lines(tab.page)).to_have_text([f"{ONE} · cost 0.0012"])


async def test_a_command_uses_nothing_and_shows_nothing(browser: Browser, url: str) -> None:
    async with open_playground(browser, url) as tab:
        await tab.say("/greet Ada")
        assert await tab.answers() == ["Hello, Ada!"]
        await expect(lines(tab.page)).to_have_count(0)


@pytest.mark.parametrize(
    ("agent", "shown", "cost", "share"),
    [
        ("photographer", TWO, "0.0024", ""),
        ("delegating", THREE, "0.0056", "1,240 of them were used by sub-agents."),
    ],
)
async def test_an_answer_of_several_calls_has_one_line_at_its_end(
    browser: Browser, agent: str, shown: str, cost: str, share: str
) -> None:
    async with (
        running_server(f"tests.support.composer_agents:{agent}", environment=PRICED) as server,
        open_playground(browser, server.url) as tab,
    ):
        await tab.say("go")
        for _ in range(2):
            await expect(lines(tab.page)).to_have_text([f"{shown} · cost {cost}"])
            last = tab.page.locator(".answer").last
            await expect(last.locator("> .usage > .hidden")).to_contain_text(share)
            await tab.page.reload()


async def test_without_prices_nothing_is_said_of_a_cost(browser: Browser) -> None:
    async with (
        running_server("tests.support.composer_agents:clerk") as server,
        open_playground(browser, server.url) as tab,
    ):
        await tab.say("hi")
        for _ in range(2):
            await expect(lines(tab.page)).to_have_text([ONE])
            await tab.page.reload()


async def test_a_model_that_counts_no_tokens_has_no_line(browser: Browser, url: str) -> None:
    async with open_playground(browser, url) as tab:
        await tab.page.get_by_role("combobox", name="Model").select_option(label="x:blind")
        await tab.say("hi")
        for _ in range(2):
            await expect(tab.page.locator(".answer > .text")).to_be_visible()
            await expect(lines(tab.page)).to_have_count(0)
            await tab.page.reload()
