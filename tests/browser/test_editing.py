"""Editing a message on the page: by keyboard, with attachments, during answers, after refusals."""

from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any

import pytest
from playwright.async_api import Browser, Locator, Page, Route, expect
from tests.browser.playground import Playground, expect_text, open_playground
from tests.browser.test_asks import press_tab_to, second_tab
from tests.browser.test_versions import (
    answering_elsewhere,
    conversation_of,
    counted,
    edit,
    expect_version,
    of_message,
    step,
)
from tests.support.wire import client_of, user

pytestmark = [pytest.mark.anyio, pytest.mark.browser]

HOSTILE = "<img src=x onerror=pwned=1> count to 2"


@pytest.fixture
async def page(browser: Browser, fast_url: str) -> AsyncGenerator[Playground]:
    async with open_playground(browser, fast_url) as tab:
        yield tab


def editor(page: Page) -> Locator:
    return page.get_by_role("form", name="Edit the message")


def field(page: Page) -> Locator:
    return editor(page).get_by_role("textbox", name="Your message")


def refusing(
    status: int, code: str, message: str = "no"
) -> Callable[[Route], Coroutine[Any, Any, None]]:
    async def refuse(route: Route) -> None:
        body = {"code": code, "message": message, "request_id": "req_1"}
        await route.fulfill(status=status, json=body)

    return refuse


async def lose(route: Route) -> None:
    """Let a request arrive, and lose the answer."""
    await route.fetch()
    await route.abort()


# ---------------------------------------------------------------- by the keyboard
async def test_a_message_is_edited_by_the_keyboard_and_its_versions_survive_a_reload(
    page: Playground,
) -> None:
    await page.say("count to 2")
    await page.say("count to 3")
    keyboard = page.page.keyboard
    button = of_message(page.page, 1).get_by_role("button", name="Edit")
    await press_tab_to(page.page, button)
    await keyboard.press("Enter")
    await expect(field(page.page)).to_be_focused()
    await expect(field(page.page)).to_have_value("count to 3")
    await keyboard.press("ControlOrMeta+a")
    await keyboard.type("count to 4")
    await keyboard.press("Shift+Enter")
    await keyboard.type("or so")
    await keyboard.press("Enter")
    await expect_version(of_message(page.page, 1), "2/2")
    await expect(editor(page.page)).to_have_count(0)
    await expect(page.page.locator("#message")).to_be_focused()
    for _ in range(2):
        assert await page.questions() == ["count to 2", "count to 4\nor so"]
        assert await page.answers() == [counted(2), counted(4)]
        await page.page.reload()
        await expect_version(of_message(page.page, 1), "2/2")
    post = page.posts[-1]
    async with client_of(page.url) as client:
        [_, before, edited, _] = await client.messages(conversation_of(page))
    assert (post["after"], post["messages"][0]["id"]) == (before["id"], edited["id"])


async def test_an_editor_that_is_closed_gives_the_focus_back_and_keeps_what_was_written(
    page: Playground,
) -> None:
    await page.say("count to 2")
    keyboard = page.page.keyboard
    button = of_message(page.page, 0).get_by_role("button", name="Edit")
    await button.click()
    await keyboard.press("End")
    await keyboard.type("0 and more")
    await keyboard.press("Escape")
    await expect(button).to_be_focused()
    await expect(page.page.locator(".user")).to_be_visible()
    assert await page.questions() == ["count to 2"]
    await button.click()
    await expect(field(page.page)).to_have_value("count to 20 and more")
    # who throws it away says so
    await editor(page.page).get_by_role("button", name="Cancel").click()
    await expect(button).to_be_focused()
    await button.click()
    await expect(field(page.page)).to_have_value("count to 2")
    assert len(page.posts) == 1


@pytest.mark.parametrize("text", ["", "   \n ", "count to 2", "  count to 2\n"])
async def test_what_is_empty_or_the_same_is_not_sent(page: Playground, text: str) -> None:
    await page.say("count to 2")
    await step(of_message(page.page, 0), "Edit")
    send = editor(page.page).get_by_role("button", name="Send")
    await field(page.page).fill(text)
    await expect(send).to_have_attribute("aria-disabled", "true")
    await field(page.page).press("Enter")
    await send.click(force=True)
    await expect(field(page.page)).to_have_value(text)
    await field(page.page).fill("count to 3")
    await expect(send).to_have_attribute("aria-disabled", "false")
    await send.click()
    await expect_text(page, counted(3))
    assert len(page.posts) == 2


async def test_the_text_of_a_stranger_is_edited_as_text(page: Playground) -> None:
    await page.say(HOSTILE)
    await step(of_message(page.page, 0), "Edit")
    await expect(field(page.page)).to_have_value(HOSTILE)
    await field(page.page).press("End")
    await field(page.page).type(HOSTILE)
    await field(page.page).press("Enter")
    await expect_version(of_message(page.page, 0), "2/2")
    assert await page.questions() == [HOSTILE * 2]
    assert await page.page.evaluate("typeof pwned") == "undefined"


# ---------------------------------------------------------------- with more than text
async def test_attachments_and_additions_stay_with_the_message(page: Playground) -> None:
    await page.say("hi")
    data = {"type": "data", "data": {"a": 1}}
    image = {"type": "image", "url": "data:image/png;base64,iVBORw0KGgo=", "name": "a.png"}
    said = user([{"type": "text", "text": "look"}, image, data])
    additions = {"intent": "to see", "constraints": ["soon"], "structuredData": {"b": [2]}}
    async with client_of(page.url) as client:
        conversation = conversation_of(page)
        await client.post(conversation, said, **additions)
        await expect(page.page.locator(".user")).to_have_count(2)
        await page.settled()
        await step(of_message(page.page, 1), "Edit")
        await expect(field(page.page)).to_have_value("look")
        await expect(editor(page.page)).to_contain_text('With it: [a.png], {"a":1}')
        await field(page.page).fill("")
        await field(page.page).press("Enter")
        await expect_version(of_message(page.page, 1), "2/2")
        await edit(page, 1, "look again")
        await expect_version(of_message(page.page, 1), "3/3")
        edited = (await client.messages(conversation))[2]
        await step(of_message(page.page, 1), "Previous version")
        await expect_version(of_message(page.page, 1), "2/3")
        silent = (await client.messages(conversation))[2]
    assert silent["content"] == [image, data]
    # it had no text any more, so the new one comes behind
    assert edited["content"] == [image, data, {"type": "text", "text": "look again"}]
    for each in (silent, edited):
        assert {name: each[name] for name in additions} == additions


# ---------------------------------------------------------------- refusals
async def test_a_refused_edit_keeps_the_text_and_says_why(page: Playground) -> None:
    await page.say("count to 2")
    refusal = refusing(413, "body_too_large", "the body is too large")
    await page.page.route("**/send-message", refusal)
    await step(of_message(page.page, 0), "Edit")
    await field(page.page).fill("count to 3")
    await field(page.page).press("Enter")
    alert = editor(page.page).get_by_role("alert")
    await expect(alert).to_contain_text("The message is too large. The body is too large.")
    await expect(alert).to_contain_text("body_too_large · request req_1")
    await expect(field(page.page)).to_have_value("count to 3")
    await expect(field(page.page)).to_be_focused()
    assert await page.answers() == [counted(2)]
    await page.page.unroute("**/send-message")
    await field(page.page).press("Enter")
    await expect_text(page, counted(3))
    await expect(editor(page.page)).to_have_count(0)
    assert await page.questions() == ["count to 3"]


async def test_a_message_that_the_server_has_not_taken_cannot_be_edited_yet(
    page: Playground,
) -> None:
    await page.page.route("**/send-message", refusing(503, "server_busy"))
    await page.say("count to 2")
    alert = page.page.get_by_role("alert")
    await expect(alert).to_be_visible()
    await expect(page.page.locator(".user")).to_be_visible()
    await expect(page.page.locator(".row:not([hidden])")).to_have_count(0)
    await page.page.unroute("**/send-message")
    await alert.get_by_role("button", name="Try again").click()
    await expect_text(page, counted(2))
    await edit(page, 0, "count to 3")
    await expect_version(of_message(page.page, 0), "2/2")


async def test_an_edit_whose_answer_was_lost_is_sent_again_as_it_was(page: Playground) -> None:
    await page.say("count to 2")
    await page.hear_nothing_of_others()
    await page.page.reload()
    await expect_text(page, counted(2))
    await page.page.route("**/send-message", lose)
    await step(of_message(page.page, 0), "Edit")
    await field(page.page).fill("count to 3")
    await field(page.page).press("Enter")
    alert = editor(page.page).get_by_role("alert")
    await expect(alert).to_contain_text("The server cannot be reached")
    await expect(field(page.page)).to_have_value("count to 3")
    await page.page.unroute("**/send-message")
    await field(page.page).press("Enter")
    await expect_version(of_message(page.page, 0), "2/2")
    assert await page.answers() == [counted(3)]
    assert len(set(page.keys[1:])) == 1
    assert len({post["messages"][0]["id"] for post in page.posts[1:]}) == 1
    async with client_of(page.url) as client:
        found = await client.conversation(conversation_of(page))
    assert [len(place["versions"]) for place in found["branches"]] == [2]


async def test_an_edit_that_arrived_without_an_answer_is_shown_as_soon_as_the_page_hears_of_it(
    page: Playground,
) -> None:
    await page.say("count to 2")
    await page.page.route("**/send-message", lose)
    await step(of_message(page.page, 0), "Edit")
    await field(page.page).fill("count to 3")
    await field(page.page).press("Enter")
    await expect_version(of_message(page.page, 0), "2/2")
    await expect(editor(page.page)).to_have_count(0)
    await expect(page.page.get_by_label("Not sent")).to_have_count(0)
    await expect(page.page.locator("#message")).to_be_focused()
    assert await page.answers() == [counted(3)]


async def test_a_stop_before_the_server_has_it_leaves_the_edit_open(page: Playground) -> None:
    await page.say("count to 2")
    await page.page.route("**/send-message", lambda _route: None)
    await step(of_message(page.page, 0), "Edit")
    await field(page.page).fill("count to 3")
    await field(page.page).press("Enter")
    await expect(field(page.page)).not_to_be_editable()
    stop = page.page.get_by_role("button", name="Stop")
    await stop.click()
    if await stop.is_visible():
        await stop.click()
    await expect(field(page.page)).to_be_editable()
    await expect(field(page.page)).to_have_value("count to 3")
    await page.page.unroute("**/send-message")
    await field(page.page).press("Enter")
    await expect_text(page, counted(3))


# ---------------------------------------------------------------- during answers
async def test_an_edit_during_an_answer_interrupts_it_when_the_user_says_so(
    playground: Playground,
) -> None:
    page = playground.page
    await playground.write("count to 120")
    await expect_text(playground, "1 2 3 4")
    await step(of_message(page, 0), "Edit")
    await field(page).fill("count to 2")
    await field(page).press("Enter")
    offer = editor(page).get_by_role("group", name="During an answer")
    await expect(offer.get_by_role("status")).to_contain_text("An answer is coming")
    await expect(offer.get_by_role("button")).to_have_text(["Queue", "Interrupt"])
    await expect(field(page)).to_be_focused()
    await page.keyboard.press("Escape")
    await expect(offer.get_by_role("button")).to_have_count(0)
    await page.keyboard.press("Enter")
    await offer.get_by_role("button", name="Interrupt").press("Enter")
    await expect_version(of_message(page, 0), "2/2")
    await playground.settled()
    assert await playground.answers() == [counted(2)]
    assert playground.posts[-1]["onBusy"] == "interrupt"
    await step(of_message(page, 0), "Previous version")
    await expect_text(playground, "1 2 3 4")
    assert counted(120) not in await playground.answers()


async def test_an_edit_that_waits_is_shown_as_waiting_and_takes_its_place_in_the_end(
    playground: Playground,
) -> None:
    page = playground.page
    await playground.say("count to 2")
    await playground.write("count to 90")
    await expect_text(playground, "1 2 3 4")
    await step(of_message(page, 0), "Edit")
    await field(page).fill("count to 3")
    await field(page).press("Enter")
    await editor(page).get_by_role("button", name="Queue").click()
    await expect(page.get_by_label("You, waiting")).to_contain_text("count to 3")
    await expect(editor(page)).to_have_count(0)
    await expect(page.locator("#message")).to_be_focused()
    await expect_version(of_message(page, 0), "2/2")
    await playground.settled()
    assert await playground.questions() == ["count to 3"]
    await step(of_message(page, 0), "Previous version")
    await expect_text(playground, counted(90))
    assert await playground.questions() == ["count to 2", "count to 90"]


async def test_an_edit_during_an_answer_to_another_tab_offers_what_may_become_of_that(
    browser: Browser, server_url: str
) -> None:
    async with open_playground(browser, server_url) as page:
        await page.say("count to 2")
        await page.hear_nothing_of_others()
        await page.page.reload()
        await expect_text(page, counted(2))
        async with answering_elsewhere(server_url, page):
            await step(of_message(page.page, 0), "Edit")
            await field(page.page).fill("count to 3")
            await field(page.page).press("Enter")
            alert = editor(page.page).get_by_role("alert")
            await expect(alert).to_contain_text("The agent is still answering here")
            await expect(field(page.page)).to_have_value("count to 3")
            await editor(page.page).get_by_role("button", name="Interrupt").click()
            await expect(editor(page.page)).to_have_count(0)
        await expect_version(of_message(page.page, 0), "2/2")
        await page.settled()
        assert await page.questions() == ["count to 3"]


# ---------------------------------------------------------------- other tabs
async def test_what_is_being_written_stays_with_its_focus_when_another_tab_says_something(
    page: Playground,
) -> None:
    await page.say("count to 2")
    await step(of_message(page.page, 0), "Edit")
    await field(page.page).press("End")
    await page.page.keyboard.type("0")
    async with client_of(page.url) as client:
        await client.post(conversation_of(page), user("count to 4"))
    await expect_text(page, counted(4))
    await page.settled()
    await expect(field(page.page)).to_be_focused()
    await page.page.keyboard.type("1")
    await expect(field(page.page)).to_have_value("count to 201")
    await page.page.keyboard.press("Enter")
    await expect_version(of_message(page.page, 0), "2/2")
    assert await page.questions() == ["count to 201"]


@pytest.mark.parametrize("choice", ["Write it as a new message", "Throw it away"])
async def test_what_was_written_is_kept_when_another_tab_replaces_the_message(
    page: Playground, choice: str
) -> None:
    await page.say("count to 2")
    await step(of_message(page.page, 0), "Edit")
    await field(page.page).fill("my own words")
    other = Playground(await second_tab(page), page.url)
    await edit(other, 0, "count to 4")
    unsent = page.page.get_by_label("Not sent")
    await expect(unsent).to_contain_text("my own words")
    await page.settled()
    await expect_text(page, counted(4))
    await other.say("count to 3")
    await expect_text(page, counted(3))
    await page.settled()
    await expect(unsent).to_contain_text("my own words")
    await page.page.fill("#message", "hello")
    await unsent.get_by_role("button", name=choice).click()
    await expect(unsent).to_have_count(0)
    await expect(page.page.locator("#message")).to_be_focused()
    kept = "hello\nmy own words" if choice.startswith("Write") else "hello"
    await expect(page.page.locator("#message")).to_have_value(kept)


async def test_what_was_written_is_there_again_with_its_conversation(page: Playground) -> None:
    await page.say("count to 2")
    await step(of_message(page.page, 0), "Edit")
    await field(page.page).fill("my own words")
    await page.page.get_by_role("button", name="New conversation").click()
    await page.say("count to 3")
    await expect(editor(page.page)).to_have_count(0)
    await expect(page.page.get_by_label("Not sent")).to_have_count(0)
    await page.page.go_back()
    await expect(field(page.page)).to_have_value("my own words")


async def test_an_edit_of_a_message_that_another_tab_has_replaced_says_so(
    page: Playground,
) -> None:
    await page.say("count to 2")
    await page.hear_nothing_of_others()
    await page.page.reload()
    await expect_text(page, counted(2))
    other = Playground(await second_tab(page), page.url)
    await other.page.unroute_all()
    await edit(other, 0, "count to 4")
    await step(of_message(page.page, 0), "Edit")
    await field(page.page).fill("my own words")
    await field(page.page).press("Enter")
    alert = editor(page.page).get_by_role("alert")
    await expect(alert).to_contain_text("This message is not there any more")
    await expect(field(page.page)).to_have_value("my own words")
    await editor(page.page).get_by_role("button", name="Show what the server has").click()
    await expect_text(page, counted(4))
    await expect(page.page.get_by_label("Not sent")).to_contain_text("my own words")
    await expect_version(of_message(page.page, 0), "2/2")
    # the version that it belongs to has its editor again
    await step(of_message(page.page, 0), "Previous version")
    await expect(field(page.page)).to_have_value("my own words")
    await expect(page.page.get_by_label("Not sent")).to_have_count(0)
