"""The waterfall of an answer beside the chat, in Chromium against a real server."""

import re
from typing import Any

import pytest
from playwright.async_api import Browser, Locator, Page, expect
from tests.browser.playground import DESK, PHONE, Playground, expect_text, open_playground
from tests.browser.test_layout import POOR_CONTRAST, overflow
from tests.browser.test_sub_agent_cards import delegating, order
from tests.support.server import running_server

pytestmark = [pytest.mark.anyio, pytest.mark.browser]

COUNT_CHANGES = """() => {
  window.changes = 0;
  const count = (changes) => { window.changes += changes.length; };
  const what = { childList: true, subtree: true, characterData: true };
  new MutationObserver(count).observe(document.querySelector("#bars"), what);
}"""
TASK = order(("delete_file", {"path": "a.txt"}), say="I look.")


async def show_panel(page: Page, name: str) -> None:
    """Show one of the views of the events, on a phone instead of the chat."""
    if await page.locator("#show-events").is_visible():
        await page.click("#show-events")
    await page.get_by_role("group", name="Show as").get_by_role("button", name=name).click()


async def show_waterfall(page: Page) -> Locator:
    """Show the waterfall; return its rows."""
    await show_panel(page, "Waterfall")
    return page.get_by_role("tree", name="Waterfall").get_by_role("treeitem")


def named(rows: Locator) -> Locator:
    return rows.locator(".bar-name")


async def words_of(row: Locator) -> str:
    return await row.get_attribute("aria-label") or ""


async def place_of(row: Locator, span: int = 0) -> tuple[float, float]:
    """Return where a bar begins and ends on the screen."""
    box = await row.locator(".bar-span").nth(span).bounding_box()
    assert box is not None
    return box["x"], box["x"] + box["width"]


async def test_a_run_is_shown_while_it_goes_on_and_its_pieces_change_nothing(
    playground: Playground,
) -> None:
    page = playground.page
    rows = await show_waterfall(page)
    await expect(page.locator(".nothing")).to_be_visible()
    await playground.write("count to 120")
    await expect(named(rows)).to_have_text(["Connection", "Run", "Model call"])
    await expect(page.locator(".nothing")).to_be_hidden()
    model = rows.nth(2)
    await expect(model.locator(".bar-length")).to_have_text("…")
    assert "goes on" in await words_of(model)
    await expect_text(playground, "5 6 7")
    await page.evaluate(COUNT_CHANGES)
    begun, _ = await place_of(model)
    await expect_text(playground, "90 91 92")
    assert await page.evaluate("window.changes") == 0
    # the axis grows to the left of what goes on
    assert (await place_of(model))[0] < begun
    await playground.settled()
    await expect(named(rows)).to_have_text(["Connection", "Run", "demo"])
    assert re.fullmatch(
        r"Model call, demo\. model call [\d.]+ m?s from \+[\d.]+ m?s, first piece after \d+ ms"
        r"\. \d+ tokens in, \d+ out",
        await words_of(model),
    )
    run, call = [await place_of(rows.nth(at)) for at in (1, 2)]
    assert run[0] - 1 <= call[0] < call[1] <= run[1] + 1


async def test_a_stopped_run_says_so(playground: Playground) -> None:
    page = playground.page
    rows = await show_waterfall(page)
    await playground.write("count to 400")
    await expect_text(playground, "1 2 3")
    await page.click("#stop")
    await playground.settled()
    await expect(rows.nth(1).locator('.bar-span[data-state="stopped"]')).to_be_visible()
    assert "stopped, cancelled" in await words_of(rows.nth(1))


async def test_an_answer_with_a_tool_of_the_page_is_one_waterfall(playground: Playground) -> None:
    page = playground.page
    await playground.write('Ask me to confirm: "Shall we begin?"')
    dialog = page.get_by_role("dialog")
    await expect(dialog).to_be_visible()
    await page.evaluate("document.querySelector('[data-panel=waterfall]').click()")
    rows = page.get_by_role("tree", include_hidden=True).get_by_role(
        "treeitem", include_hidden=True
    )
    await expect(named(rows)).to_have_text(["Connection", "Run", "demo", "ask-user-to-confirm"])
    call = rows.nth(3)
    await expect(call.locator('.bar-span[data-kind="client"]')).to_have_attribute(
        "data-state", "open"
    )
    await dialog.get_by_role("button", name="Confirm").click()
    await playground.settled()
    await expect(named(rows)).to_have_text(
        ["Connection", "Run", "demo", "ask-user-to-confirm", "demo"]
    )
    await expect(rows.nth(1).locator(".bar-span")).to_have_count(2)
    assert "waits for a client's result" in await words_of(call)
    first, wait, last = [await place_of(rows.nth(at)) for at in (2, 3, 4)]
    assert first[0] < wait[0] < wait[1] <= last[0] + 1
    # another message is another waterfall, and the first one can be chosen
    await playground.say("hi")
    await expect(named(rows)).to_have_text(["Connection", "Run", "demo"])
    await page.get_by_label("Answer", exact=True).select_option("Answer 1")
    await expect(rows).to_have_count(5)
    await page.get_by_role("button", name="Clear").click()
    await expect(rows).to_have_count(0)


async def test_a_run_that_is_joined_in_the_middle_has_its_times_from_the_server(
    playground: Playground,
) -> None:
    page = playground.page
    await playground.write("count to 400")
    await expect_text(playground, "60 61 62")
    await page.reload()
    rows = await show_waterfall(page)
    await expect(named(rows)).to_have_text(["Connection", "Run", "Model call"])
    await expect(rows.locator(".bar-span")).to_have_count(3)
    await expect_text(playground, "90 91 92")
    await page.click("#stop")
    await playground.settled()
    # it began before this page was there
    (joined, _), (begun, _) = [await place_of(rows.nth(at)) for at in (0, 2)]
    assert begun + 5 < joined
    assert "about" in await words_of(rows.nth(1))


async def test_a_cut_is_a_time_without_a_connection(playground: Playground) -> None:
    page = playground.page
    await playground.write("count to 120")
    await expect_text(playground, "5 6 7")
    await page.get_by_role("button", name="Cut the connection").click()
    await playground.settled()
    rows = await show_waterfall(page)
    assert "no connection" in await words_of(rows.nth(0))
    await expect(rows.nth(0).locator('.bar-span[data-kind="missing"]')).to_be_visible()
    await expect(rows).to_have_count(3)


@pytest.mark.parametrize(("size", "scheme"), [(DESK, "dark"), (PHONE, "light")])
async def test_sub_agents_are_a_tree_for_the_keyboard_and_the_eye(
    browser: Browser, size: tuple[int, int], scheme: Any
) -> None:
    async with (
        running_server("tests.support.served_agents:delegating") as server,
        open_playground(browser, server.url, size, color_scheme=scheme) as tab,
    ):
        page = tab.page
        await tab.say(order(delegating(TASK), say="I ask."))
        await page.get_by_role("button", name="Allow", exact=True).click()
        await tab.settled()
        rows = await show_waterfall(page)
        tree = ["Model call", "helper", "Model call", "delete_file", "Model call", "Model call"]
        await expect(named(rows)).to_have_text(["Connection", "Run", *tree])
        levels = [await row.get_attribute("aria-level") for row in await rows.all()]
        assert levels == ["1", "1", "1", "1", "2", "2", "2", "1"]
        await check_keys(page, rows)
        assert await overflow(page) == []
        assert await page.evaluate(POOR_CONTRAST) == []


async def check_keys(page: Page, rows: Locator) -> None:
    """Walk through the tree by the keyboard alone."""
    details, focused = page.locator("#bar-details"), page.locator(".bar-row:focus")
    await rows.first.focus()
    for _ in range(3):
        await page.keyboard.press("ArrowDown")
    await expect(focused).to_contain_text("helper")
    await expect(details).to_contain_text("Sub-agent helper")
    await page.keyboard.press("ArrowLeft")
    await expect(focused).to_have_attribute("aria-expanded", "false")
    await expect(rows).to_have_count(5)
    await page.keyboard.press("ArrowRight")
    await page.keyboard.press("ArrowRight")
    await page.keyboard.press("ArrowDown")
    await expect(details).to_contain_text("waits for a person")
    await expect(details).to_contain_text("It cannot be undone., allowed")
    await page.keyboard.press("ArrowLeft")
    await expect(focused).to_contain_text("helper")
    await page.keyboard.press("End")
    await expect(rows.last).to_be_focused()
    await page.keyboard.press("Home")
    await expect(rows.first).to_be_focused()
    # one of them is in the order of the tab key
    await expect(page.locator('.bar-row[tabindex="0"]')).to_have_count(1)
    await rows.nth(3).locator(".twisty").click()
    await expect(rows).to_have_count(5)
    await rows.nth(3).locator(".twisty").click()
    await expect(rows).to_have_count(8)
