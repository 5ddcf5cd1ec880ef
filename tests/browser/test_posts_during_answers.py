"""Messages that a person sends while an answer comes, or instead of a decision."""

import re

import pytest
from playwright.async_api import Browser, Page, expect
from tests.browser.playground import PHONE, Playground, expect_text, open_playground
from tests.browser.test_asks import DELETE, calling, card, guarded_url, press_tab_to
from tests.browser.test_broken_connections import COUNTED
from tests.browser.test_layout import POOR_CONTRAST, overflow
from tests.support.server import running_server

__all__ = ["guarded_url"]

pytestmark = [pytest.mark.anyio, pytest.mark.browser]

TWO = "1 2 - counted by the demo model."
HOSTILE = "<img src=x onerror=pwned=1> count to 2"


async def say_during_an_answer(playground: Playground, text: str) -> None:
    await playground.write("count to 120")
    await expect_text(playground, "1 2 3 4")
    await playground.page.fill("#message", text)
    await playground.page.press("#message", "Enter")


async def choose(page: Page, name: str) -> None:
    """Choose by the keyboard alone, from the field."""
    button = page.get_by_role("button", name=name)
    for _ in range(4):
        await page.keyboard.press("Tab")
        if await button.evaluate("element => element === document.activeElement"):
            return await page.keyboard.press("Enter")
    pytest.fail("the keyboard does not lead there")


async def test_enter_during_an_answer_keeps_the_text_and_offers_what_may_become_of_it(
    playground: Playground,
) -> None:
    page = playground.page
    await say_during_an_answer(playground, "count to 2")
    offer = page.get_by_role("group", name="The message during an answer")
    await expect(offer.get_by_role("status")).to_contain_text("An answer is coming")
    await expect(offer.get_by_role("button")).to_have_text(["Queue", "Interrupt"])
    await expect(page.locator("#message")).to_have_value("count to 2")
    await expect(page.locator("#message")).to_be_focused()
    await page.keyboard.press("Escape")
    await expect(offer.get_by_role("button")).to_have_count(0)
    await page.keyboard.press("Enter")
    await expect(offer.get_by_role("button")).to_have_count(2)
    await page.get_by_role("button", name="Stop").click()
    await expect(offer.get_by_role("button")).to_have_count(0)
    await expect(page.locator("#message")).to_have_value("count to 2")
    assert len(playground.posts) == 1
    await page.press("#message", "Enter")
    await expect_text(playground, TWO)


async def test_a_message_that_is_queued_is_shown_as_waiting_and_answered_behind_the_answer(
    playground: Playground,
) -> None:
    page = playground.page
    await say_during_an_answer(playground, HOSTILE)
    await choose(page, "Queue")
    await expect(page.locator("#message")).to_have_value("")
    await expect(page.locator("#message")).to_be_focused()
    waiting = page.get_by_label("You, waiting")
    await expect(waiting).to_contain_text(HOSTILE)
    assert await playground.answers() != [COUNTED]
    await expect_text(playground, TWO)
    await playground.settled()
    await expect(waiting).to_have_count(0)
    assert await playground.answers() == [COUNTED, TWO]
    assert await playground.questions() == ["count to 120", HOSTILE]
    assert [post.get("onBusy") for post in playground.posts] == [None, "enqueue"]
    assert await page.evaluate("typeof pwned") == "undefined"


async def test_a_message_that_interrupts_stops_the_answer_and_keeps_what_it_said(
    playground: Playground,
) -> None:
    await say_during_an_answer(playground, "count to 2")
    await choose(playground.page, "Interrupt")
    await expect_text(playground, TWO)
    await playground.settled()
    first, second = await playground.answers()
    assert COUNTED.startswith(first.strip())
    assert first.startswith("1 2 3 4")
    assert second == TWO
    assert "This answer was cut short." in await playground.notes()
    assert [role for role, _ in await playground.history()] == ["user", "assistant"] * 2
    assert playground.posts[1]["onBusy"] == "interrupt"


async def test_a_stop_with_a_message_in_the_queue_stops_the_answer_before_it(
    playground: Playground,
) -> None:
    page = playground.page
    await say_during_an_answer(playground, "count to 2")
    await choose(page, "Queue")
    await expect(page.get_by_label("You, waiting")).to_be_visible()
    async with page.expect_response("**/cancel*"):
        await page.get_by_role("button", name="Stop").click()
    await expect_text(playground, TWO)
    await playground.settled()
    assert await playground.questions() == ["count to 120", "count to 2"]


@pytest.mark.parametrize(("size", "scheme"), [((320, 568), "light"), (PHONE, "dark")])
async def test_the_offer_fits_a_phone_and_can_be_read(
    browser: Browser, server_url: str, size: tuple[int, int], scheme: str
) -> None:
    async with open_playground(browser, server_url, size, color_scheme=scheme) as playground:
        await say_during_an_answer(playground, "a-word-without-a-place-to-break-" * 9)
        await expect(playground.page.get_by_role("button", name="Queue")).to_be_visible()
        assert await overflow(playground.page) == []
        assert await playground.page.evaluate(POOR_CONTRAST) == []
        await choose(playground.page, "Queue")
        await expect(playground.page.get_by_label("You, waiting")).to_be_visible()
        assert await overflow(playground.page) == []
        assert await playground.page.evaluate(POOR_CONTRAST) == []


# ---------------------------------------------------------------- instead of a decision
SUPERSEDED = "closed: the conversation went on without it"


async def test_a_card_that_a_message_went_past_says_so_at_once_also_beside_a_new_one(
    browser: Browser, guarded_url: str
) -> None:
    async with open_playground(browser, guarded_url) as playground:
        await playground.say(calling(DELETE))
        await playground.say(calling(("delete_file", {"path": "b.txt"})))
        first, second = await card(playground.page, "delete_file").all()
        await expect(first.locator(".state")).to_have_text(SUPERSEDED)
        await expect(first.get_by_role("button")).to_have_count(0)
        await expect(second.locator(".state")).to_have_text("waits for your decision")
        await press_tab_to(playground.page, second.get_by_role("button", name="Deny"))
        await playground.page.reload()
        await expect(first.locator(".state")).to_have_text(SUPERSEDED)


async def test_a_card_stays_open_when_the_message_that_went_past_it_is_refused(
    browser: Browser, guarded_url: str
) -> None:
    async with open_playground(browser, guarded_url) as playground:
        page = playground.page
        await playground.say(calling(DELETE))
        await page.route(
            "**/send-message",
            lambda route: route.fulfill(
                status=413,
                json={"code": "body_too_large", "message": "too large", "request_id": "req_1"},
            ),
        )
        await playground.say("no")
        await expect(page.get_by_role("alert")).to_contain_text("The message is too large")
        await page.unroute("**/send-message")
        shown = card(page, "delete_file")
        await expect(shown.locator(".state")).to_have_text("waits for your decision")
        await shown.get_by_role("button", name="Allow", exact=True).click()
        await expect(shown).to_contain_text("a.txt is deleted")


# ---------------------------------------------------------------- the model's window
async def test_a_conversation_that_fills_the_models_window_shows_a_warning(
    browser: Browser,
) -> None:
    async with (
        running_server("--model", "demo:fast", "--model-window", "1000") as server,
        open_playground(browser, server.url) as playground,
    ):
        await playground.say("hi " + "word " * 60)
        [warning] = await playground.notes()
        share = re.fullmatch(r"This conversation fills (\d+) % of what the model .*", warning)
        assert share is not None
        assert 60 <= int(share[1]) < 80
        for _ in range(2):
            await playground.say("hi " + "word " * 300)
        step = (await playground.notes())[-1]
        assert step.startswith("The model is shown less of what came before: older messages are")
