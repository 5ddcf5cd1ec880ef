"""The choice of who answers on the page: agents, models, and what is kept of it."""

from collections.abc import AsyncGenerator

import pytest
from playwright.async_api import Browser, Locator, Page, expect
from tests.browser.playground import DESK, PHONE, Playground, expect_text, open_playground
from tests.browser.test_asks import second_tab
from tests.browser.test_attachments import attach, file
from tests.browser.test_layout import POOR_CONTRAST, overflow
from tests.browser.test_versions import expect_version, of_answer
from tests.support.server import running_server

pytestmark = [pytest.mark.anyio, pytest.mark.browser]

AGENTS = ("tests.support.composer_agents:clerk", "tests.support.composer_agents:cook")


@pytest.fixture(scope="module")
async def url() -> AsyncGenerator[str]:
    async with running_server(*AGENTS) as server:
        yield server.url


def agent(page: Page) -> Locator:
    return page.get_by_role("combobox", name="Agent")


def model(page: Page) -> Locator:
    return page.get_by_role("combobox", name="Model")


async def expect_choice(page: Page, agent_id: str, model_id: str | None) -> None:
    await expect(agent(page).locator("option:checked")).to_have_text(agent_id)
    if model_id is None:
        await expect(model(page)).to_be_hidden()
    else:
        await expect(model(page).locator("option:checked")).to_have_text(model_id)


@pytest.mark.parametrize("size", [DESK, PHONE])
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_who_answers_is_chosen_and_kept_with_the_conversation(
    browser: Browser, url: str, size: tuple[int, int], scheme: str
) -> None:
    async with open_playground(browser, url, size, color_scheme=scheme) as tab:
        page = tab.page
        await expect_choice(page, "clerk", "x:clerk")
        for label in ("Agent", "Model"):
            await expect(page.locator("#pickers").get_by_text(label, exact=True)).to_be_visible()
            choice = page.get_by_role("combobox", name=label, exact=True)
            await expect(choice).to_have_accessible_description("for the next messages")
        await tab.say("hi")
        await expect_text(tab, "I am the clerk.")
        assert "model" not in tab.posts[0]
        await model(page).select_option(label="x:blind")
        await tab.say("hi")
        await expect_text(tab, "I see nothing.")
        assert tab.posts[1]["model"] == "x:blind"
        assert await page.evaluate(POOR_CONTRAST) == []
        assert await overflow(page) == []
        await page.reload()
        await expect_choice(page, "clerk", "x:blind")
        await agent(page).select_option(label="cook")
        # there is one model, which is nothing to choose
        await expect_choice(page, "cook", None)
        await expect(page.locator("#pickers").get_by_text("Model", exact=True)).to_be_hidden()
        await tab.say("hi")
        await expect_text(tab, "I am the cook.")
        assert "model" not in tab.posts[2]
        await page.reload()
        await expect_choice(page, "cook", None)
        await tab.say("once more")
        await expect(page.locator(".text", has_text="I am the cook.")).to_have_count(2)
        await expect_choice(await second_tab(tab), "cook", None)


async def test_the_choice_is_made_by_the_keyboard_and_kept_for_new_conversations(
    browser: Browser, url: str
) -> None:
    async with open_playground(browser, url) as tab:
        page = tab.page
        await tab.say("hi")
        await page.focus("#message")
        await page.keyboard.press("Tab")
        await expect(agent(page)).to_be_focused()
        await page.keyboard.press("ArrowDown")
        await expect_choice(page, "cook", None)
        await page.get_by_role("button", name="New conversation").click()
        await expect_choice(page, "cook", None)
        await page.reload()
        await expect_choice(page, "cook", None)
        await tab.say("hi")
        await expect_text(tab, "I am the cook.")
        # the first conversation has its own
        await page.go_back()
        await expect_text(tab, "I am the clerk.")
        await expect_choice(page, "clerk", "x:clerk")


async def test_a_choice_that_was_not_sent_stays_when_others_write(
    browser: Browser, url: str
) -> None:
    async with open_playground(browser, url) as tab:
        await tab.say("hi")
        await model(tab.page).select_option(label="x:blind")
        other = await second_tab(tab)
        await expect(other.locator(".text", has_text="I am the clerk.")).to_be_visible()
        await other.fill("#message", "from here")
        await other.press("#message", "Enter")
        await expect(other.locator(".text", has_text="I am the clerk.")).to_have_count(2)
        await other.close()
        await tab.page.bring_to_front()
        await expect(tab.page.locator(".user", has_text="from here")).to_be_visible()
        await expect(tab.page.locator(".text", has_text="I am the clerk.")).to_have_count(2)
        await expect_choice(tab.page, "clerk", "x:blind")
        await tab.say("and here")
        await expect_text(tab, "I see nothing.")


async def test_another_answer_is_of_the_same_agent_and_model(browser: Browser, url: str) -> None:
    async with open_playground(browser, url) as tab:
        await model(tab.page).select_option(label="x:blind")
        await tab.say("hi")
        await model(tab.page).select_option(label="x:clerk")
        await of_answer(tab.page, 0).get_by_role("button", name="Regenerate").click()
        await expect_version(of_answer(tab.page, 0), "2/2")
        await expect(tab.page.locator(".answer > .text")).to_have_text(["I see nothing."])


async def test_a_file_that_the_chosen_model_does_not_take_is_said_before_the_post(
    browser: Browser, url: str
) -> None:
    async with open_playground(browser, url) as tab:
        why = tab.page.locator("#attach-why")
        await expect_choice(tab.page, "clerk", "x:clerk")
        await attach(tab, file("a.txt", b"a", "text/plain"))
        await expect(tab.page.locator("#attachments li")).to_have_count(1)
        await expect(why).to_have_text("")
        await model(tab.page).select_option(label="x:blind")
        await expect(why).to_have_text(
            "x:blind takes no files: remove a.txt, or choose another model."
        )
        await expect(tab.page.locator("#send")).to_be_disabled()
        await model(tab.page).select_option(label="x:clerk")
        await expect(why).to_have_text("")
        await tab.page.press("#message", "Enter")
        await expect_text(tab, "I am the clerk.")


async def test_without_a_choice_there_is_nothing_to_see(playground: Playground) -> None:
    async with playground.page.expect_response("**/agents") as listed:
        await playground.page.reload()
    assert (await listed.value).status == 200
    await playground.say("hi")
    await expect(playground.page.locator("#pickers")).to_be_hidden()
