"""Answers that are written again, and the versions of a conversation, on the page."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from playwright.async_api import Browser, Locator, Page, expect
from tests.browser.playground import PHONE, Playground, expect_text, open_playground
from tests.browser.test_asks import DELETE, calling, card, guarded_url, press_tab_to
from tests.browser.test_layout import POOR_CONTRAST, overflow
from tests.support.server import running_server
from tests.support.wire import client_of, user

__all__ = ["guarded_url"]

pytestmark = [pytest.mark.anyio, pytest.mark.browser]

SUPERSEDED = "closed: the conversation went on without it"


def counted(number: int) -> str:
    return " ".join([*map(str, range(1, number + 1)), "- counted by the demo model."])


def of_message(page: Page, number: int) -> Locator:
    """The row below a message of the user."""
    return page.get_by_role("group", name="Your message").nth(number)


def of_answer(page: Page, number: int) -> Locator:
    return page.get_by_role("group", name="The answer").nth(number)


async def expect_version(row: Locator, shown: str) -> None:
    """Expect such as `2/3`, for the eye and for a screen reader."""
    number, count = shown.split("/")
    await expect(row.locator(".number")).to_have_text(shown)
    await expect(row.get_by_role("group", name=f"Version {number} of {count}")).to_be_visible()


async def edit(playground: Playground, number: int, text: str) -> None:
    """Edit a message by the mouse and the keyboard, and wait for the answer."""
    await of_message(playground.page, number).get_by_role("button", name="Edit").click()
    await playground.page.keyboard.press("ControlOrMeta+a")
    await playground.page.keyboard.type(text)
    await playground.page.keyboard.press("Enter")
    await expect(playground.page.locator(".editor")).to_have_count(0)
    await playground.settled()


async def step(row: Locator, name: str) -> None:
    await row.get_by_role("button", name=name).click()


@asynccontextmanager
async def answering_elsewhere(url: str, page: Playground) -> AsyncGenerator[None]:
    """A long answer to another client, of which this page does not hear by itself."""
    async with (
        client_of(url) as client,
        client.stream(conversation_of(page), [user("count to 60")]) as stream,
    ):
        await stream.until("text")
        yield


def conversation_of(playground: Playground) -> str:
    return playground.page.url.split("=")[1]


@pytest.fixture
async def page(browser: Browser, fast_url: str) -> AsyncGenerator[Playground]:
    async with open_playground(browser, fast_url) as tab:
        yield tab


# ---------------------------------------------------------------- another answer
async def test_an_answer_is_written_again_and_both_stay(page: Playground) -> None:
    await page.say("count to 2")
    await page.say("count to 3")
    asked = page.posts[0]["messages"][0]["id"]
    await step(of_answer(page.page, 0), "Regenerate")
    await expect_version(of_answer(page.page, 0), "2/2")
    assert await page.questions() == ["count to 2"]
    assert await page.answers() == [counted(2)]
    assert await page.history() == [("user", "count to 2"), ("assistant", counted(2))]
    post = page.posts[-1]
    assert (post["messages"], post["after"], "onBusy" in post) == ([], asked, False)
    await expect(page.page.locator("#message")).to_be_focused()

    await step(of_answer(page.page, 0), "Previous version")
    await expect_version(of_answer(page.page, 0), "1/2")
    assert await page.questions() == ["count to 2", "count to 3"]
    await page.page.reload()
    await expect_version(of_answer(page.page, 0), "1/2")
    assert await page.answers() == [counted(2), counted(3)]
    # what is said goes on with the version that is shown
    await page.say("count to 4")
    assert [text for _, text in await page.history()][::2] == [
        "count to 2",
        "count to 3",
        "count to 4",
    ]


async def test_each_place_has_its_own_versions_also_the_very_first(page: Playground) -> None:
    await page.say("count to 1")
    await page.say("count to 2")
    await edit(page, 1, "count to 3")
    await edit(page, 1, "count to 4")
    await edit(page, 0, "count to 5")
    await expect_version(of_message(page.page, 0), "2/2")
    await expect(of_message(page.page, 1)).to_have_count(0)

    await step(of_message(page.page, 0), "Previous version")
    await expect_version(of_message(page.page, 0), "1/2")
    await expect_version(of_message(page.page, 1), "3/3")
    for shown, number in (("2/3", 3), ("1/3", 2)):
        await step(of_message(page.page, 1), "Previous version")
        await expect_version(of_message(page.page, 1), shown)
        assert await page.answers() == [counted(1), counted(number)]
    before = of_message(page.page, 1).get_by_role("button", name="Previous version")
    await expect(before).to_have_attribute("aria-disabled", "true")
    await before.click(force=True)
    await page.page.reload()
    await expect_version(of_message(page.page, 1), "1/3")
    await expect_version(of_message(page.page, 0), "1/2")
    assert await page.answers() == [counted(1), counted(2)]


async def test_versions_are_switched_by_the_keyboard_which_stays_at_its_place(
    page: Playground,
) -> None:
    await page.say("count to 1")
    for number in (2, 3):
        await edit(page, 0, f"count to {number}")
    row, keyboard = of_message(page.page, 0), page.page.keyboard
    before = row.get_by_role("button", name="Previous version")
    behind = row.get_by_role("button", name="Next version")
    await press_tab_to(page.page, before)
    await keyboard.press("Enter")
    await expect_version(row, "2/3")
    await expect(before).to_be_focused()
    await keyboard.press("Enter")
    await expect_version(row, "1/3")
    # there is no earlier one: the way back has the focus
    await expect(behind).to_be_focused()
    await keyboard.press("Enter")
    await expect_version(row, "2/3")
    await expect(behind).to_be_focused()
    assert await page.answers() == [counted(2)]


async def test_a_place_stays_where_it_is_on_the_screen_when_its_version_changes(
    browser: Browser, fast_url: str
) -> None:
    async with open_playground(browser, fast_url, PHONE) as page:
        await page.say("count to 300")
        await page.say("count to 2")
        await edit(page, 1, "count to 300")
        await step(of_message(page.page, 1), "Previous version")
        await expect_version(of_message(page.page, 1), "1/2")
        row = of_message(page.page, 1)
        await expect(row).to_be_in_viewport()
        await step(row, "Next version")
        await expect_version(row, "2/2")
        await expect(row).to_be_in_viewport()
        await step(row, "Previous version")
        await expect_version(row, "1/2")
        await expect(row).to_be_in_viewport()


async def test_a_message_without_an_answer_can_be_answered(browser: Browser) -> None:
    async with (
        running_server("tests.support.served_agents:guarded") as server,
        open_playground(browser, server.url) as page,
    ):
        await page.say(json.dumps({"fail": True}))
        await expect(page.page.get_by_role("alert")).to_be_visible()
        await step(page.page.locator(".row").last, "Regenerate")
        await page.settled()
        assert page.posts[-1]["messages"] == []
        assert len(await page.questions()) == 1
        await edit(page, 0, json.dumps({"say": "Better."}))
        await expect_text(page, "Better.")
        await expect(page.page.get_by_role("alert")).to_have_count(0)
        await expect_version(of_message(page.page, 0), "2/2")


# ---------------------------------------------------------------- other tabs, and answers in progress
async def test_another_answer_while_another_tab_is_answered_waits_for_that(
    browser: Browser, server_url: str
) -> None:
    async with open_playground(browser, server_url) as page:
        await page.say("count to 2")
        await page.hear_nothing_of_others()
        await page.page.reload()
        await expect_text(page, counted(2))
        async with answering_elsewhere(server_url, page):
            await step(of_answer(page.page, 0), "Regenerate")
            alert = page.page.get_by_role("alert")
            await expect(alert).to_contain_text("The agent is still answering here")
            assert await page.answers() == [counted(2)]
            await alert.get_by_role("button", name="Try again").click()
            await expect(page.page.locator(".user")).to_have_count(2)
        await expect_version(of_answer(page.page, 0), "2/2")
        await page.settled()
        assert await page.questions() == ["count to 2"]
        await step(of_answer(page.page, 0), "Previous version")
        await expect_text(page, counted(60))


async def test_a_switch_during_the_answer_to_another_tab_is_refused_and_can_be_repeated(
    browser: Browser, server_url: str
) -> None:
    async with open_playground(browser, server_url) as page:
        await page.say("count to 2")
        await edit(page, 0, "count to 3")
        await page.hear_nothing_of_others()
        await page.page.reload()
        await expect_version(of_message(page.page, 0), "2/2")
        async with answering_elsewhere(server_url, page):
            await step(of_message(page.page, 0), "Previous version")
            alert = page.page.get_by_role("alert")
            await expect(alert).to_contain_text("The agent is still answering here")
            await expect_version(of_message(page.page, 0), "2/2")
            before = of_message(page.page, 0).get_by_role("button", name="Previous version")
            await expect(before).to_be_focused()
            await alert.get_by_role("button", name="Try again").click()
        await expect_version(of_message(page.page, 0), "1/2")
        assert await page.questions() == ["count to 2"]
        assert await page.answers() == [counted(2)]


async def test_a_version_that_is_gone_is_said_so(page: Playground) -> None:
    await page.say("count to 2")
    await edit(page, 0, "count to 3")
    await page.page.route(
        "**/leaf",
        lambda route: route.fulfill(
            status=404,
            json={"code": "message_not_found", "message": "no such message", "request_id": "r"},
        ),
    )
    await step(of_message(page.page, 0), "Previous version")
    alert = page.page.get_by_role("alert")
    await expect(alert).to_contain_text("This message is not there any more")
    await alert.get_by_role("button", name="Show what the server has").click()
    await expect(alert).to_have_count(0)
    await expect_version(of_message(page.page, 0), "2/2")


async def test_another_answer_during_an_answer_waits_or_interrupts(
    playground: Playground,
) -> None:
    page = playground.page
    await playground.say("count to 2")
    await playground.write("count to 120")
    await expect_text(playground, "1 2 3 4")
    row = of_answer(page, 0)
    again = row.get_by_role("button", name="Regenerate")
    await press_tab_to(page, again)
    await page.keyboard.press("Enter")
    offer = row.get_by_role("group", name="During an answer")
    await expect(offer.get_by_role("button")).to_have_text(["Queue", "Interrupt"])
    await expect(offer.get_by_role("status")).to_contain_text("An answer is coming")
    await offer.get_by_role("button", name="Queue").focus()
    await page.keyboard.press("Escape")
    await expect(offer.get_by_role("button")).to_have_count(0)
    await expect(again).to_be_focused()
    await again.click()
    await offer.get_by_role("button", name="Interrupt").click()
    await expect_version(row, "2/2")
    await playground.settled()
    assert await playground.questions() == ["count to 2"]
    assert playground.posts[-1]["onBusy"] == "interrupt"
    await step(row, "Previous version")
    await expect_version(row, "1/2")
    # what was said so far is on its own branch
    assert await playground.questions() == ["count to 2", "count to 120"]
    assert "This answer was cut short." in await playground.notes()


async def test_another_answer_that_waits_is_shown_as_waiting(playground: Playground) -> None:
    page = playground.page
    await playground.say("count to 2")
    await playground.write("count to 90")
    await expect_text(playground, "1 2 3 4")
    await step(of_answer(page, 0), "Regenerate")
    await of_answer(page, 0).get_by_role("button", name="Queue").click()
    waiting = page.get_by_label("You, waiting")
    await expect(waiting).to_contain_text("The answer, written again")
    await expect_version(of_answer(page, 0), "2/2")
    await playground.settled()
    await expect(waiting).to_have_count(0)
    assert await playground.questions() == ["count to 2"]
    await step(of_answer(page, 0), "Previous version")
    await expect_text(playground, counted(90))


# ---------------------------------------------------------------- calls, long conversations, small screens
async def test_calls_that_are_owed_on_the_branch_that_is_left_are_closed_there(
    browser: Browser, guarded_url: str
) -> None:
    async with open_playground(browser, guarded_url) as page:
        await page.say(calling(DELETE))
        shown = card(page.page, "delete_file")
        await shown.get_by_label("Why not").fill("It is mine.")
        await edit(page, 0, json.dumps({"say": "Nothing."}))
        await expect_text(page, "Nothing.")
        await expect(shown).to_have_count(0)
        await step(of_message(page.page, 0), "Previous version")
        await expect(shown.locator(".state")).to_have_text(SUPERSEDED)
        await expect(shown.get_by_role("button")).to_have_count(0)
        # what was written about it is still there to be read
        await expect(shown.locator(".unsent")).to_contain_text("It is mine.")


async def test_versions_behind_a_summary_are_found_after_a_reload(browser: Browser) -> None:
    async with (
        running_server("--model", "demo:fast", "--model-window", "1000") as server,
        open_playground(browser, server.url) as page,
    ):
        for words in (60, 300, 300):
            await page.say("hi " + "word " * words)
        row = of_answer(page.page, 2)
        await step(row, "Regenerate")
        await expect_version(row, "2/2")
        async with client_of(server.url) as client:
            found = await client.conversation(conversation_of(page))
        [place] = found["branches"]
        roles = {each["id"]: each["role"] for each in found["messages"]}
        await page.page.reload()
        await expect_version(row, "2/2")
        assert roles[place["current"]] in {"summary", "assistant"}
        await step(row, "Previous version")
        await expect_version(row, "1/2")


async def test_versions_that_begin_with_a_message_that_is_not_shown_are_beside_the_next_one(
    browser: Browser,
) -> None:
    async with (
        running_server("--model", "demo:fast", "--allow-roles", "system") as server,
        open_playground(browser, server.url) as page,
    ):
        await page.say("count to 1")
        async with client_of(server.url) as client:
            system = {"role": "system", "content": "Be brief."}
            for number in (2, 3):
                said = [system, user(f"count to {number}")]
                await client.post(conversation_of(page), *said, after="")
        await expect_version(of_message(page.page, 0), "3/3")
        await step(of_message(page.page, 0), "Previous version")
        await expect_version(of_message(page.page, 0), "2/3")
        assert await page.answers() == [counted(2)]


@pytest.mark.parametrize(("size", "scheme"), [((320, 568), "light"), (PHONE, "dark")])
async def test_the_rows_and_the_editor_fit_a_phone_and_can_be_read(
    browser: Browser, fast_url: str, size: tuple[int, int], scheme: str
) -> None:
    async with open_playground(browser, fast_url, size, color_scheme=scheme) as page:
        await page.say("Change background color to orange.")
        await edit(page, 0, "a-word-without-a-place-to-break-" * 9)
        await step(of_answer(page.page, 0), "Regenerate")
        await expect_version(of_answer(page.page, 0), "2/2")
        assert await overflow(page.page) == []
        assert await page.page.evaluate(POOR_CONTRAST) == []
        await step(of_message(page.page, 0), "Edit")
        await page.page.keyboard.type("more-" * 40)
        await page.page.route("**/send-message", lambda route: route.abort())
        assert await overflow(page.page) == []
        assert await page.page.evaluate(POOR_CONTRAST) == []
