"""Messages that the server refuses, or that nobody knows it has: none is lost."""

import re
from collections.abc import AsyncGenerator

import pytest
from playwright.async_api import Browser, Locator, Page, Request, expect
from tests.browser.playground import DESK, PHONE, Playground, expect_text, open_playground
from tests.browser.test_asks import press_tab_to
from tests.browser.test_attachments import attach, attached, file, posted_parts
from tests.browser.test_conversation_list import open_list
from tests.browser.test_editing import refusing
from tests.browser.test_layout import POOR_CONTRAST, overflow
from tests.browser.test_versions import of_answer
from tests.support.server import running_server

pytestmark = [pytest.mark.anyio, pytest.mark.browser]

CODES = {409: "conversation_busy", 429: "too_many_runs", 503: "server_busy"}
BUTTONS = ["Try again", "Edit the message", "Throw it away"]
HOSTILE = "<img src=x onerror=pwned=1> count to 2"
LAST = 400
COUNTED = " ".join(map(str, range(1, LAST + 1))) + " - counted by the demo model."
TWO = "1 2 - counted by the demo model."
LARGE = 3_000_000
FILL = """() => {
    for (let size = 2 ** 23; size >= 1; size /= 2) {
        try {
            sessionStorage.setItem(`filled-${size}`, 'x'.repeat(size));
        } catch {}
    }
}"""
"""Leaves no room in the storage of the tab."""


@pytest.fixture
async def tab(browser: Browser, fast_url: str) -> AsyncGenerator[Playground]:
    async with open_playground(browser, fast_url) as playground:
        yield playground


def cards(page: Page) -> Locator:
    return page.get_by_role("region", name="Unsent messages").get_by_role("group")


def button(card: Locator, name: str) -> Locator:
    return card.get_by_role("button", name=name)


async def refuse(page: Page, status: int) -> None:
    """Let a fault switch refuse the next post, with a wait that the page does not sit out."""
    await page.evaluate("document.querySelector('#faults').open = true")
    events = page.locator("#show-events")
    if await events.is_visible():
        await events.click()
    await page.get_by_label("Refuse the next post").select_option(str(status))
    await page.get_by_label("Seconds in Retry-After").fill("30")
    if await events.is_visible():
        await page.locator("#show-chat").click()


async def say_refused(tab: Playground, text: str, status: int = 409) -> None:
    """Send a message that is refused."""
    count = await cards(tab.page).count()
    await refuse(tab.page, status)
    await tab.say(text)
    await expect(cards(tab.page)).to_have_count(count + 1)


async def queue_refused(tab: Playground, text: str, how: str = "Queue", last: int = LAST) -> None:
    """Send a message during an answer, which is refused before the answer has ended."""
    await refuse(tab.page, 0)
    await tab.write(f"count to {last}")
    await expect_text(tab, "1 2 3 4")
    await tab.page.get_by_label("Refuse the next post").select_option("409")
    await tab.page.fill("#message", text)
    await tab.page.press("#message", "Enter")
    await tab.page.get_by_role("button", name=how).click()
    await expect(cards(tab.page)).to_have_count(1)


# ---------------------------------------------------------------- a message that is refused
@pytest.mark.parametrize("status", CODES)
async def test_a_refused_message_says_so_and_why_and_is_edited_beside_a_draft(
    tab: Playground, status: int
) -> None:
    page = tab.page
    await tab.say("hi")
    await attach(tab, file("a.png"))
    await say_refused(tab, "What is it?", status)
    card = cards(page)
    await expect(card).to_contain_text("This message was not sent")
    await expect(card).to_contain_text(CODES[status])
    await expect(card).to_contain_text(f"refused the post with {status}")
    await expect(card.get_by_role("button").filter(has_text=re.compile("."))).to_have_text(BUTTONS)
    await expect(card.locator(".picture img")).to_have_count(1)
    # it does not stand there as if it was sent
    await expect(page.locator("#transcript .user")).to_have_text(["hi"])
    await attach(tab, file("b.png"))
    await page.fill("#message", "and more")
    await button(card, "Edit the message").click()
    await expect(card).to_have_count(0)
    await expect(page.locator("#message")).to_be_focused()
    await expect(page.locator("#message")).to_have_value("What is it?\nand more")
    await expect(attached(page)).to_have_text(["b.png70 bytes", "a.png70 bytes"])
    await page.press("#message", "Enter")
    await tab.settled()
    assert [part.get("name") for part in await posted_parts(tab)] == [None, "b.png", "a.png"]
    await page.reload()
    await expect(page.locator("#transcript .user")).to_have_count(2)
    await expect(card).to_have_count(0)


async def test_another_message_does_not_lose_a_refused_one_which_can_follow_it(
    tab: Playground,
) -> None:
    await attach(tab, file("a.png"))
    await say_refused(tab, HOSTILE)
    await tab.say("count to 3")
    await expect(cards(tab.page)).to_contain_text(HOSTILE)
    assert await tab.answers() == ["1 2 3 - counted by the demo model."]
    await button(cards(tab.page), "Try again").click()
    await expect(cards(tab.page)).to_have_count(0)
    await expect_text(tab, TWO)
    await tab.settled()
    assert await tab.questions() == ["count to 3", HOSTILE]
    assert [part.get("name") for part in await posted_parts(tab)] == [None, "a.png"]
    assert await tab.page.evaluate("typeof pwned") == "undefined"


async def test_two_refused_messages_stay_in_order_and_are_sent_one_by_one(
    tab: Playground,
) -> None:
    await tab.say("hi")
    for text, status in (("count to 1", 409), ("count to 2", 503)):
        await say_refused(tab, text, status)
    await expect(cards(tab.page)).to_contain_text(["conversation_busy", "server_busy"])
    await refuse(tab.page, 429)
    await button(cards(tab.page).first, "Try again").click()
    # refused once more, with the new reason
    await expect(cards(tab.page).filter(has_text="count to 1")).to_contain_text("too_many_runs")
    await expect(cards(tab.page)).to_have_count(2)
    for text in ("count to 1", "count to 2"):
        card = cards(tab.page).filter(has_text=text)
        await button(card, "Try again").click()
        await expect(card).to_have_count(0)
        await tab.settled()
    assert await tab.questions() == ["hi", "count to 1", "count to 2"]
    assert len(tab.posts) == 3


async def test_what_cannot_be_tried_again_as_it_is_can_be_edited(tab: Playground) -> None:
    await tab.page.route("**/send-message", refusing(413, "body_too_large"))
    await tab.say("a long story")
    card = cards(tab.page)
    await expect(card).to_contain_text("The message is too large")
    await expect(card.get_by_role("button")).to_have_text(BUTTONS[1:])
    await button(card, "Throw it away").click()
    await expect(card).to_have_count(0)
    await expect(tab.page.locator("#message")).to_be_focused()
    await tab.page.reload()
    await expect(tab.page.locator("#welcome")).to_be_visible()


async def test_a_message_to_a_deleted_conversation_begins_another_one(tab: Playground) -> None:
    await tab.say("hi")
    before = tab.page.url
    await tab.page.route("**/send-message", refusing(404, "conversation_deleted"))
    await tab.say("count to 2")
    await tab.page.unroute("**/send-message")
    await expect(cards(tab.page)).to_contain_text("This conversation was deleted")
    await button(cards(tab.page), "New conversation").click()
    await expect(cards(tab.page)).to_have_count(0)
    await expect(tab.page.locator("#message")).to_have_value("count to 2")
    await tab.page.press("#message", "Enter")
    await expect_text(tab, TWO)
    assert tab.page.url != before


# ---------------------------------------------------------------- reloads and other conversations
async def test_a_reload_keeps_a_refused_message_with_its_reason_and_small_attachments(
    tab: Playground,
) -> None:
    page = tab.page
    await tab.say("hi")
    await attach(tab, file("a.png"))
    await say_refused(tab, "What is it?", 429)
    await expect(cards(page)).not_to_contain_text("A reload")
    await page.reload()
    await expect_text(tab, "Hello!")
    await expect(cards(page)).to_contain_text("This message was not sent")
    await expect(cards(page)).to_contain_text("too_many_runs")
    await expect(cards(page).locator(".picture img")).to_have_count(1)
    await button(cards(page), "Try again").click()
    await expect(page.locator("#transcript .user")).to_have_count(2)
    await expect(cards(page)).to_have_count(0)
    await tab.settled()
    assert [part.get("name") for part in await posted_parts(tab)] == [None, "a.png"]
    await page.reload()
    await expect(page.locator("#transcript .user")).to_have_count(2)
    await expect(cards(page)).to_have_count(0)


async def test_attachments_that_a_reload_loses_are_named_before_and_after_it(
    tab: Playground,
) -> None:
    page = tab.page
    await attach(tab, file("large\u202e.bin", b"x" * LARGE, "application/octet-stream"))
    await expect(attached(page)).to_contain_text("3 MB")
    await say_refused(tab, "Read it")
    await expect(cards(page)).to_contain_text("A reload loses its attachments")
    # within the page's life, nothing is lost
    await page.get_by_role("button", name="New conversation").click()
    await expect(cards(page)).to_contain_text("large\\u202e.bin3 MB")
    await page.reload()
    await expect(cards(page)).to_contain_text("A reload has not kept large\\u202e.bin")
    await expect(cards(page).get_by_role("button")).to_have_text(BUTTONS[1:])
    await button(cards(page), "Edit the message").click()
    await expect(page.locator("#message")).to_have_value("Read it")
    await expect(attached(page)).to_have_count(0)


async def test_a_browser_that_keeps_nothing_is_said_so(browser: Browser, fast_url: str) -> None:
    async with open_playground(browser, fast_url) as tab:
        await tab.page.evaluate(FILL)
        await say_refused(tab, "count to 2")
        await expect(cards(tab.page)).to_contain_text("A reload loses it")
        await tab.page.evaluate("sessionStorage.clear()")
        await say_refused(tab, "count to 3")
        # there is room again, also for the first
        await expect(cards(tab.page).filter(has_text="A reload")).to_have_count(0)


async def test_a_refused_message_stays_with_its_conversation(tab: Playground) -> None:
    page = tab.page
    await tab.say("hi, unlike all others")
    await say_refused(tab, "count to 2")
    await page.get_by_role("button", name="New conversation").click()
    await expect(page.locator("#welcome")).to_be_visible()
    await expect(cards(page)).to_have_count(0)
    await tab.say("count to 1")
    await expect(cards(page)).to_have_count(0)
    await open_list(page)
    await page.get_by_role("navigation").get_by_text("hi, unlike all others").click()
    await expect_text(tab, "Hello!")
    await expect(cards(page)).to_contain_text("count to 2")
    await button(cards(page), "Try again").click()
    await expect_text(tab, TWO)
    await tab.settled()
    assert await tab.questions() == ["hi, unlike all others", "count to 2"]


async def test_the_first_message_of_a_conversation_waits_in_the_new_one(tab: Playground) -> None:
    page = tab.page
    await say_refused(tab, "count to 2", 503)
    await page.reload()
    await expect(cards(page)).to_contain_text("server_busy")
    await expect(page.locator(".problem")).to_have_count(1)
    await page.get_by_role("button", name="New conversation").click()
    await expect(cards(page)).to_contain_text("count to 2")
    await button(cards(page), "Try again").click()
    await expect_text(tab, TWO)
    await tab.settled()
    await page.get_by_role("button", name="New conversation").click()
    await expect(page.locator("#welcome")).to_be_visible()
    await expect(cards(page)).to_have_count(0)


async def test_deleting_a_conversation_forgets_what_was_not_sent_there(tab: Playground) -> None:
    page = tab.page
    await tab.say("hi")
    await say_refused(tab, "a secret")
    await open_list(page)
    row = page.get_by_role("navigation").get_by_role("listitem").filter(has_text="hi").first
    await row.get_by_role("button", name="Delete").click()
    await page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    await expect(page.locator("#welcome")).to_be_visible()
    assert await page.evaluate("sessionStorage.getItem('passback.unsent')") is None


# ---------------------------------------------------------------- nobody knows whether it arrived
async def test_a_message_that_was_stopped_by_a_reload_is_kept(tab: Playground) -> None:
    page = tab.page
    await tab.say("hi")
    await page.route("**/send-message", lambda _route: None)
    async with page.expect_request("**/send-message"):
        await tab.write("count to 2")
    await page.reload()
    await expect_text(tab, "Hello!")
    await expect(cards(page)).to_contain_text("This message may not have been sent")
    await expect(cards(page)).to_contain_text("before the server answered")
    await page.unroute("**/send-message")
    await button(cards(page), "Try again").click()
    await expect_text(tab, TWO)
    await tab.settled()
    assert len(set(tab.keys[1:])) == 1
    assert await tab.questions() == ["hi", "count to 2"]


@pytest.mark.parametrize("first", [True, False])
async def test_a_message_that_arrived_is_not_shown_as_unsent(tab: Playground, first: bool) -> None:
    page = tab.page
    if not first:
        await tab.say("hi")

    async def take(request: Request) -> None:
        await page.request.post(
            request.url, data=request.post_data, headers=await request.all_headers()
        )

    # the server has the post, and the page hears nothing of it
    await page.route("**/send-message", lambda _route: None)
    async with page.expect_request("**/send-message") as posted:
        await tab.write("count to 2")
    await take(await posted.value)
    await page.reload()  # a route that is removed before would let the post go
    await page.unroute("**/send-message")
    await expect_text(tab, TWO)
    await expect(cards(page)).to_have_count(0)
    await expect(page.locator("#transcript .user", has_text="count to 2")).to_have_count(1)
    assert await page.evaluate("sessionStorage.getItem('passback.unsent')") is None


async def test_a_message_that_is_sent_offline_is_kept_and_sent_once(browser: Browser) -> None:
    async with (
        running_server("--model", "demo:fast") as server,
        open_playground(browser, server.url) as tab,
    ):
        page = tab.page
        await page.context.set_offline(True)
        await tab.say("count to 2")
        await expect(cards(page)).to_contain_text("This message may not have been sent")
        await expect(cards(page)).to_contain_text("The server cannot be reached")
        await tab.say("count to 1")
        await expect(cards(page)).to_have_count(2)
        await page.context.set_offline(False)
        await button(cards(page).first, "Try again").click()
        await expect_text(tab, TWO)
        await tab.settled()
        await button(cards(page), "Edit the message").click()
        await expect(page.locator("#message")).to_have_value("count to 1")
        await page.press("#message", "Enter")
        await expect_text(tab, "1 - counted")
        assert await tab.questions() == ["count to 2", "count to 1"]
        tab.complaints.clear()


async def test_a_post_that_is_given_up_by_hand_is_kept(tab: Playground) -> None:
    page = tab.page
    await page.route("**/send-message", lambda _route: None)
    async with page.expect_request("**/send-message"):
        await tab.write("count to 2")
    stop = page.get_by_role("button", name="Stop")
    await stop.click()
    await stop.click()
    await expect(cards(page)).to_contain_text("count to 2")
    await expect(page.locator("#transcript .user")).to_have_count(0)
    await page.unroute("**/send-message")
    await button(cards(page), "Try again").click()
    await expect_text(tab, TWO)


# ---------------------------------------------------------------- during an answer
@pytest.mark.parametrize("how", ["Queue", "Interrupt"])
async def test_a_refused_message_during_an_answer_is_shown_and_leaves_the_answer_whole(
    playground: Playground, how: str
) -> None:
    page = playground.page
    await queue_refused(playground, "count to 2", how)
    await expect(cards(page)).to_contain_text("This message was not sent")
    await expect(cards(page).get_by_role("button")).to_have_text(BUTTONS)
    await expect(page.get_by_label("You, waiting")).to_have_count(0)
    await expect(page.locator(".answer")).to_have_count(1)
    await playground.settled()
    assert await playground.answers() == [COUNTED]
    assert await playground.questions() == [f"count to {LAST}", "count to 2"]
    await expect(page.locator("#transcript .user")).to_have_count(1)
    await button(cards(page), "Try again").click()
    await expect_text(playground, TWO)
    await playground.settled()
    assert await playground.answers() == [COUNTED, TWO]
    await expect(cards(page)).to_have_count(0)


@pytest.mark.parametrize("how", ["Queue", "Interrupt"])
async def test_during_the_same_answer_it_is_tried_again_as_it_was_chosen(
    playground: Playground, how: str
) -> None:
    page = playground.page
    await queue_refused(playground, "count to 2", how, last=2000)
    await button(cards(page), "Try again").click()
    if how == "Queue":
        await expect(page.get_by_label("You, waiting")).to_contain_text("count to 2")
        await page.get_by_role("button", name="Stop").click()
    await expect(cards(page)).to_have_count(0)
    await expect_text(playground, TWO)
    await playground.settled()
    first, second = await playground.answers()
    assert second == TWO
    assert not first.endswith("demo model.")
    assert playground.posts[-1]["onBusy"] == {"Queue": "enqueue", "Interrupt": "interrupt"}[how]


async def test_a_refused_message_of_an_answer_survives_a_reload_during_it(
    playground: Playground,
) -> None:
    await queue_refused(playground, "count to 2")
    await playground.page.reload()
    await expect(cards(playground.page)).to_contain_text("conversation_busy")
    await playground.settled()
    assert await playground.answers() == [COUNTED]
    await expect(cards(playground.page)).to_contain_text("count to 2")


async def test_another_answer_that_is_refused_during_one_leaves_that_whole(
    playground: Playground,
) -> None:
    page = playground.page
    await playground.say("hi")
    await refuse(page, 0)
    await playground.write(f"count to {LAST}")
    await expect_text(playground, "1 2 3 4")
    await page.get_by_label("Refuse the next post").select_option("409")
    await of_answer(page, 0).get_by_role("button", name="Regenerate").click()
    await of_answer(page, 0).get_by_role("button", name="Queue").click()
    await expect(page.get_by_role("alert")).to_contain_text("conversation_busy")
    await playground.settled()
    assert (await playground.answers())[1:] == [COUNTED]


# ---------------------------------------------------------------- keyboard, screen readers, screens
async def test_the_buttons_are_reached_by_the_keyboard_and_give_the_focus_back(
    tab: Playground,
) -> None:
    page = tab.page
    await tab.say("hi")
    await say_refused(tab, "count to 2")
    await refuse(page, 409)
    await page.locator("#message").focus()
    await press_tab_to(page, button(cards(page), "Try again"))
    await page.keyboard.press("Enter")
    await expect(page.locator("#message")).to_be_focused()
    await expect(cards(page)).to_have_count(1)
    await press_tab_to(page, button(cards(page), "Edit the message"))
    await page.keyboard.press("Enter")
    await expect(page.locator("#message")).to_be_focused()
    await page.keyboard.press("Enter")
    await expect_text(tab, TWO)


async def test_a_card_is_announced_and_keeps_the_focus_while_others_write(
    browser: Browser, tab: Playground
) -> None:
    page = tab.page
    await tab.say("hi")
    await say_refused(tab, "count to 2")
    await expect(page.get_by_role("alert")).to_contain_text("This message was not sent")
    await expect(page.get_by_role("article", name="You, not sent")).to_have_text("count to 2")
    edit = button(cards(page), "Edit the message")
    await edit.focus()
    async with open_playground(browser, tab.url) as device:
        await device.page.goto(page.url)
        await expect_text(device, "Hello!")
        await device.say("count to 3")
    await expect_text(tab, "1 2 3 - counted")
    await expect(edit).to_be_focused()
    await expect(cards(page)).to_have_count(1)


@pytest.mark.parametrize("size", [PHONE, DESK])
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_it_fits_the_screen_and_can_be_read(
    browser: Browser, fast_url: str, size: tuple[int, int], scheme: str
) -> None:
    async with open_playground(browser, fast_url, size, color_scheme=scheme) as tab:
        await attach(tab, file("a-name-without-a-place-to-break-" * 6 + ".png"))
        await say_refused(tab, "a-word-without-a-place-to-break-" * 40)
        assert await overflow(tab.page) == []
        assert await tab.page.evaluate(POOR_CONTRAST) == []
        await expect(button(cards(tab.page), "Try again")).to_be_in_viewport(ratio=0.9)
        await expect(button(cards(tab.page), "Throw it away")).to_be_in_viewport(ratio=0.9)
