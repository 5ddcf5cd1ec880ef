"""Several tabs and devices on one conversation: a call of the page's tools runs once."""

import anyio
import pytest
from playwright.async_api import Browser, Page, expect
from tests.browser.playground import RUN_TOOLS, Playground, expect_text, open_playground
from tests.support.wire import ZONE, Json, client_of, client_tool, user

pytestmark = [pytest.mark.anyio, pytest.mark.browser]

CONFIRM = client_tool("ask-user-to-confirm", question={"type": "string"})
COUNT = """
    const format = Intl.DateTimeFormat;
    globalThis.runs = 0;
    Intl.DateTimeFormat = (...given) => { globalThis.runs += 1; return format(...given); };
"""
"""Counts how often the page's tool for the time zone runs."""


async def owed(url: str, conversation: str, words: str, tool: Json) -> None:
    """A conversation whose call any page can run."""
    async with client_of(url) as client:
        answer = await client.post(conversation, user(words), tools=[tool])
        assert answer.call.name == tool["name"]


async def loaded(page: Page, url: str, conversation: str) -> None:
    await page.goto(f"{url}/#conversation={conversation}")


def results(*tabs: Playground) -> list[str]:
    """The calls whose results these tabs have posted."""
    return [
        message["toolCallId"]
        for tab in tabs
        for post in tab.posts
        for message in post["messages"]
        if message["role"] == "tool"
    ]


@pytest.mark.promise("P9")
async def test_of_two_tabs_that_load_together_one_runs_the_call(
    playground: Playground, server_url: str
) -> None:
    await owed(server_url, "together", "time zone", ZONE)
    await loaded(playground.page, server_url, "together")
    await playground.run_tools()
    await expect_text(playground, "get-time-zone answered")
    await playground.settled()
    await playground.page.goto("about:blank")
    playground.posts.clear()
    await owed(server_url, "together", "time zone", ZONE)
    pages = [await playground.page.context.new_page() for _ in range(2)]
    for page in pages:
        page.on("request", playground.hear_request)
        await page.add_init_script(COUNT)
    async with anyio.create_task_group() as tasks:
        for page in pages:
            tasks.start_soon(loaded, page, server_url, "together")
    for page in pages:
        await expect(page.locator(".answer .text")).to_have_count(2)
        await expect(page.locator(".answer .text").last).to_contain_text("get-time-zone answered")
        await expect(page.locator(".tool .state").last).to_have_text("ran in this page")
    assert sum([await page.evaluate("runs") for page in pages]) == 1
    assert len(results(playground)) == 1


async def test_a_second_device_leaves_the_call_to_the_first_and_shows_what_came_of_it(
    browser: Browser, playground: Playground, server_url: str
) -> None:
    await owed(server_url, "devices", 'confirm "Shall we begin?"', CONFIRM)
    await playground.open("#conversation=devices")
    await playground.run_tools()
    dialog = playground.page.get_by_role("dialog")
    await expect(dialog).to_be_visible()
    async with open_playground(browser, server_url) as device:
        await device.open("#conversation=devices")
        await device.run_tools()
        await expect(device.page.locator(".tool")).to_contain_text("waits for another client")
        await expect(device.page.get_by_role("dialog")).to_be_hidden()
        await expect(device.page.locator("#stop")).to_be_hidden()
        await dialog.get_by_role("button", name="Confirm").click()
        await expect_text(device, '"confirmed"')
        await device.settled()
        assert len(results(playground, device)) == 1


async def test_a_tab_that_is_closed_gives_its_call_to_the_other_one(
    playground: Playground, server_url: str
) -> None:
    page = playground.page
    await owed(server_url, "closed", 'confirm "Shall we begin?"', CONFIRM)
    first = await page.context.new_page()
    await loaded(first, server_url, "closed")
    await first.get_by_role("button", name=RUN_TOOLS).click()
    await expect(first.get_by_role("dialog")).to_be_visible()
    await loaded(page, server_url, "closed")
    await page.reload()
    await expect(page.locator(".tool")).to_contain_text("waits for another client")
    await first.close(run_before_unload=True)
    # the claim of the first one would have lasted longer than this test waits
    await page.get_by_role("dialog").get_by_role("button", name="Confirm").click()
    await expect_text(playground, '"confirmed"')


async def test_a_reload_asks_the_question_again_at_once(
    playground: Playground, server_url: str
) -> None:
    await playground.write('Ask me to confirm: "Shall we begin?"')
    dialog = playground.page.get_by_role("dialog")
    await expect(dialog).to_be_visible()
    await playground.page.reload()
    await dialog.get_by_role("button", name="Decline").click()
    await expect_text(playground, '"declined"')


async def test_a_call_that_another_client_holds_may_be_answered_here_by_hand(
    playground: Playground, server_url: str
) -> None:
    await owed(server_url, "by-hand", 'confirm "Shall we begin?"', CONFIRM)
    async with client_of(server_url) as client:
        [call] = (await client.conversation("by-hand"))["owed"]
        path = f"/conversations/by-hand/tool-calls/{call['id']}/claim"
        claimed = await client.http.post(path, json={"claimant": "a script", "seconds": 600})
        assert claimed.status_code == 200
    await playground.open("#conversation=by-hand")
    await playground.run_tools()
    await playground.page.get_by_label("Result of the call").fill("confirmed")
    await playground.page.get_by_role("button", name="Answer", exact=True).click()
    await expect_text(playground, '"confirmed"')
    assert results(playground) == [call["id"]]
