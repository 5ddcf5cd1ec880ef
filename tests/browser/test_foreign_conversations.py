"""A conversation that this browser has not begun is shown; its tools run if the person says so."""

import json

import pytest
from playwright.async_api import Browser, Request, expect
from tests.browser.playground import RUN_TOOLS, Playground, expect_text, open_playground
from tests.browser.test_asks import press_tab_to
from tests.browser.test_claims_in_tabs import CONFIRM, COUNT, owed
from tests.support.wire import ZONE

pytestmark = [pytest.mark.anyio, pytest.mark.browser]

NO_STORAGE = """
    for (const name of ['localStorage', 'sessionStorage']) {
        Object.defineProperty(globalThis, name, {
            get() { throw new DOMException('no', 'SecurityError'); },
        });
    }
"""


def claims(playground: Playground) -> list[str]:
    """The claims that the page makes, as they come."""
    made: list[str] = []

    def hear(request: Request) -> None:
        if request.url.endswith("/claim"):
            made.append(request.url)

    playground.page.on("request", hear)
    return made


async def test_the_tools_of_a_linked_conversation_run_after_a_click_and_from_then_on(
    playground: Playground, server_url: str
) -> None:
    page = playground.page
    claimed = claims(playground)
    await page.add_init_script(COUNT)
    await owed(server_url, "linked", "time zone", ZONE)
    await playground.open("#conversation=linked")
    await page.reload()
    card = page.get_by_label("Tool call get-time-zone")
    await expect(card.locator(".state")).to_have_text("waits for you")
    await expect(card).to_contain_text("was not begun in this browser")
    await playground.settled()
    assert (await page.evaluate("runs"), claimed, playground.posts) == (0, [], [])
    await press_tab_to(page, card.get_by_role("button", name=RUN_TOOLS))
    await page.keyboard.press("Enter")
    await expect_text(playground, "get-time-zone answered")
    await expect(card.locator(".state")).to_have_text("ran in this page")
    await playground.settled()
    await owed(server_url, "linked", "time zone", ZONE)
    other = await page.context.new_page()
    await other.goto(page.url)
    await expect(other.locator(".state")).to_have_text(["ran in this page"] * 2)
    await other.close()


async def test_a_linked_conversation_opens_no_dialog(
    playground: Playground, server_url: str
) -> None:
    await owed(server_url, "worded", 'confirm "Is your name Ann?"', CONFIRM)
    await playground.open("#conversation=worded")
    await playground.page.reload()
    await expect(playground.page.get_by_role("button", name=RUN_TOOLS)).to_be_visible()
    dialog = playground.page.get_by_role("dialog")
    await expect(dialog).to_be_hidden()
    await playground.run_tools()
    await dialog.get_by_role("button", name="Decline").click()
    await expect_text(playground, '"declined"')


async def test_a_message_in_a_linked_conversation_runs_nothing_by_itself(
    playground: Playground, server_url: str
) -> None:
    await owed(server_url, "joined", "time zone", ZONE)
    await playground.open("#conversation=joined")
    await playground.page.reload()
    await playground.say("Change background color to blue.")
    before = await playground.background()
    state = playground.page.get_by_label("Tool call change-background-color").locator(".state")
    await expect(state).to_have_text("waits for you")
    await playground.run_tools()
    await expect(state).to_have_text("ran in this page")
    assert before != await playground.background() == "rgb(0, 0, 255)"


async def test_a_conversation_of_this_browser_goes_on_in_another_tab(
    playground: Playground,
) -> None:
    page = playground.page
    await playground.write('Ask me to confirm: "Shall we begin?"')
    await expect(page.get_by_role("dialog")).to_be_visible()
    address = page.url
    other = await page.context.new_page()
    await page.goto("about:blank")
    await other.goto(address)
    await other.get_by_role("dialog").get_by_role("button", name="Confirm").click()
    await expect(other.locator(".answer .text")).to_contain_text('"confirmed"')
    await other.close()


@pytest.mark.parametrize("kept", ["{", "null", '{"a": 1}', json.dumps(["x"] * 5000)])
async def test_what_the_browser_remembers_is_bounded_and_need_not_be_whole(
    playground: Playground, kept: str
) -> None:
    await playground.page.evaluate("kept => localStorage.setItem('passback.runnable', kept)", kept)
    await playground.say("What time zone am I in?")
    (answer,) = await playground.answers()
    assert "get-time-zone answered" in answer
    stored = await playground.page.evaluate("JSON.parse(localStorage['passback.runnable'])")
    assert len(stored) <= 1000
    assert playground.page.url.endswith(stored[-1])


async def test_a_browser_without_storage_runs_the_tools_of_what_it_begins(
    browser: Browser, fast_url: str
) -> None:
    async with open_playground(browser, fast_url) as playground:
        await playground.page.add_init_script(NO_STORAGE)
        await playground.page.reload()
        await playground.say("What time zone am I in?")
        (answer,) = await playground.answers()
        assert "get-time-zone answered" in answer
