"""Reloads, cut connections, servers that go away."""

import re
from urllib.parse import urlsplit

import pytest
from playwright.async_api import Browser, expect
from tests.browser.playground import Playground, expect_text, open_playground
from tests.support.proxies import cutting_proxy
from tests.support.server import running_server

pytestmark = [pytest.mark.anyio, pytest.mark.browser]

NUMBERS = " ".join(str(number) for number in range(1, 121))
COUNTED = f"{NUMBERS} - counted by the demo model."


async def test_a_reload_in_the_middle_of_an_answer_shows_the_rest_of_it(
    playground: Playground,
) -> None:
    page = playground.page
    await playground.say("count to 2")
    await playground.write("count to 120")
    await expect_text(playground, "1 2 3 4")
    await page.reload()
    await expect_text(playground, "1 2 3 4 5")
    assert await page.locator("#stop").is_visible()
    await playground.settled()
    assert await playground.answers() == ["1 2 - counted by the demo model.", COUNTED]
    assert await page.locator(".user").all_text_contents() == ["count to 2", "count to 120"]
    assert len(playground.posts) == 2


async def test_a_reload_after_the_end_shows_the_same_conversation(playground: Playground) -> None:
    page = playground.page
    await playground.say("Change background color to blue.")
    await expect(page.locator(".text[aria-busy]")).to_have_count(0)
    shown = await page.locator("#transcript").inner_text()
    assert await page.locator(".answer .model").all_text_contents() == ["demo"]
    await page.reload()
    await expect_text(playground, "Done.")
    await expect(page.locator(".text[aria-busy]")).to_have_count(0)
    assert await page.locator("#transcript").inner_text() == shown
    assert len(playground.posts) == 2


async def test_a_second_tab_shows_the_running_answer_too(playground: Playground) -> None:
    await playground.write("count to 120")
    await expect_text(playground, "1 2 3 4")
    other = await playground.page.context.new_page()
    await other.goto(playground.page.url)
    await expect(other.locator(".answer .text")).to_have_text(COUNTED)
    await playground.settled()
    assert await playground.answers() == [COUNTED]


async def test_a_question_that_was_open_at_a_reload_is_asked_again(playground: Playground) -> None:
    page = playground.page
    dialog = page.get_by_role("dialog")
    await playground.write('Ask me to confirm "Shall we begin?"')
    await expect(dialog).to_be_visible()
    await page.reload()
    await expect(dialog).to_contain_text("Shall we begin?")
    await dialog.get_by_role("button", name="Confirm").click()
    await playground.settled()
    assert await playground.answers() == ['Done. ask-user-to-confirm answered: "confirmed".']
    assert len(playground.posts) == 2


async def test_cut_connections_lose_nothing_of_the_answer(
    browser: Browser, server_url: str
) -> None:
    async with (
        cutting_proxy(server_url) as cutter,
        open_playground(browser, cutter.url) as playground,
    ):
        await playground.write("count to 120")
        for reached in ("1 2 3 4", "20 21 22", "60 61 62"):
            await expect_text(playground, reached)
            cutter.cut()
        await playground.settled()
        assert await playground.answers() == [COUNTED]
        assert len(playground.posts) == 1
        playground.complaints.clear()  # the browser's own lines about the cut connections


async def test_a_server_that_went_away_is_shown_as_gone_and_tried_again(browser: Browser) -> None:
    async with running_server() as server, open_playground(browser, server.url) as playground:
        port = str(urlsplit(server.url).port)
        server.terminate()
        await server.process.wait()
        await playground.say("hi")
        problem = playground.page.get_by_role("alert")
        await expect(problem).to_contain_text("The server cannot be reached")
        async with running_server("--port", port):
            await problem.get_by_role("button", name="Try again").click()
            await expect_text(playground, "Hello!")
            await expect(problem).to_have_count(0)
            await playground.settled()
            assert len(set(playground.keys)) == 1
            assert await playground.questions() == ["hi"]
            assert [role for role, _ in await playground.history()] == ["user", "assistant"]


async def test_a_server_with_keys_is_asked_for_one(browser: Browser) -> None:
    async with (
        running_server("--api-keys", "alice:open-sesame-0123456789") as server,
        open_playground(browser, server.url) as playground,
    ):
        page = playground.page
        key = page.get_by_label("API key")
        await expect(key).to_be_hidden()
        await playground.say("hi")
        await expect(page.get_by_role("alert")).to_contain_text("asks for an API key")
        await key.fill("wrong")
        await key.press("Enter")
        await expect(page.get_by_role("alert")).to_contain_text("asks for an API key")
        await key.fill("open-sesame-0123456789")
        await key.press("Enter")
        await expect_text(playground, "Hello!")
        await playground.settled()
        await expect(key).to_be_hidden()
        await page.reload()
        await expect_text(playground, "Hello!")
        assert await page.locator(".user").all_text_contents() == ["hi"]


async def test_a_missing_conversation_is_shown_as_missing(
    playground: Playground, server_url: str
) -> None:
    await playground.page.goto("about:blank")
    await playground.open("#conversation=never-was")
    problem = playground.page.get_by_role("alert")
    await expect(problem).to_contain_text("This conversation is not on the server")
    await problem.get_by_role("button", name="New conversation").click()
    await playground.say("count to 2")
    assert playground.posts[0]["conversationId"] != "never-was"
    assert re.fullmatch(
        rf"{re.escape(server_url)}/#conversation=[0-9a-f-]{{36}}", playground.page.url
    )
