"""The fault switches of the page, and replays that fail on purpose, in the page."""

import json
import re
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, expect
from tests.browser.playground import Playground, expect_text, open_playground
from tests.browser.test_debugging import exported, kinds
from tests.browser.test_layout import POOR_CONTRAST
from tests.support.server import replaying

pytestmark = [pytest.mark.anyio, pytest.mark.browser]

SHORT = "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 - counted by the demo model."


async def open_faults(page: Page) -> None:
    await page.locator("#faults summary").click()


async def turn_off(page: Page) -> None:
    await page.get_by_role("button", name="All off").click()
    await expect(page.locator("#faults-count")).to_have_text("")


async def time_line(page: Page) -> list[str]:
    """The lines of the time line, without the pieces of the answer."""
    labels = await kinds(page).all_text_contents()
    shown = ("POST", "GET", "HTTP", "connection lost", "[DONE]")
    return [label for label in labels if label.startswith(shown)]


# ---------------------------------------------------------------- the switches
async def test_an_answer_is_cut_after_so_many_events_and_whole_in_the_end(
    playground: Playground,
) -> None:
    page = playground.page
    await open_faults(page)
    await page.get_by_label("Break each answer off after so many events").fill("4")
    await expect(page.locator("#faults-count")).to_have_text("1 on")
    for count in (1, 2):
        await playground.say("count to 15")
        assert await playground.answers() == [SHORT] * count
    assert await time_line(page) == [
        "POST /send-message", "HTTP 200", "connection lost",
        "GET /conversations/" + page.url.split("=")[1] + "/stream", "HTTP 200", "[DONE]",
    ] * 2  # fmt: skip
    assert len(playground.posts) == 2
    await turn_off(page)
    await page.get_by_role("button", name="Clear").click()
    await playground.say("count to 15")
    assert await time_line(page) == ["POST /send-message", "HTTP 200", "[DONE]"]


@pytest.mark.parametrize("status", [429, 503])
async def test_the_next_post_is_refused_and_repeated_by_the_client(
    playground: Playground, status: int
) -> None:
    page = playground.page
    await open_faults(page)
    await page.get_by_label("Refuse the next post").select_option(str(status))
    await page.get_by_label("Seconds in Retry-After").fill("0")
    await playground.say("count to 15")
    assert await playground.answers() == [SHORT]
    assert await time_line(page) == [
        "POST /send-message", f"HTTP {status}", "connection lost",
        "POST /send-message", "HTTP 200", "[DONE]",
    ]  # fmt: skip
    # the switch has turned itself off, and the server has had one post
    await expect(page.get_by_label("Refuse the next post")).to_have_value("0")
    await expect(page.locator("#faults-count")).to_have_text("")
    assert len(playground.posts) == 1


async def test_a_409_is_shown_and_try_again_posts_the_message(playground: Playground) -> None:
    page = playground.page
    await open_faults(page)
    await page.get_by_label("Refuse the next post").select_option("409")
    await playground.say("count to 15")
    problem = page.get_by_role("alert")
    await expect(problem).to_contain_text("conversation_busy")
    assert playground.posts == []
    await problem.get_by_role("button", name="Try again").click()
    await expect_text(playground, SHORT)
    await playground.settled()
    assert await playground.questions() == ["count to 15"]


async def test_a_post_whose_answer_is_lost_is_posted_twice_and_counts_once(
    playground: Playground,
) -> None:
    page = playground.page
    await open_faults(page)
    await page.get_by_label("loses its answer").check()
    await playground.say("count to 15")
    assert await playground.answers() == [SHORT]
    assert await time_line(page) == [
        "POST /send-message", "connection lost", "POST /send-message", "HTTP 200", "[DONE]",
    ]  # fmt: skip
    await expect(page.get_by_label("loses its answer")).not_to_be_checked()
    first, second = playground.keys
    assert first == second
    assert await playground.history() == [("user", "count to 15"), ("assistant", SHORT)]


async def test_delays_change_nothing_but_the_time(playground: Playground) -> None:
    page = playground.page
    await open_faults(page)
    await page.get_by_label("Milliseconds before each answer begins").fill("300")
    await page.get_by_label("Milliseconds before each event").fill("20")
    await expect(page.locator("#faults-count")).to_have_text("2 on")
    await playground.say("count to 15")
    assert await playground.answers() == [SHORT]
    answered = page.locator("#events .line").nth(1).locator("time")
    # the response is at the earliest so late, in seconds after its post
    assert float((await answered.inner_text()).strip("+ s")) >= 0.3


async def test_what_is_no_number_counts_as_off(playground: Playground) -> None:
    page = playground.page
    await open_faults(page)
    field = page.get_by_label("Break each answer off after so many events")
    for text in ("-1", "1.5", "1000001"):
        await field.fill(text)
        await expect(page.locator("#faults-count")).to_have_text("")
    await field.fill("3")
    await expect(page.locator("#faults-count")).to_have_text("1 on")
    await page.reload()
    await expect(page.locator("#faults-count")).to_have_text("")
    await expect(field).to_have_value("")


async def test_a_number_that_a_switch_cannot_have_is_marked_with_what_holds_instead(
    playground: Playground,
) -> None:
    page = playground.page
    await open_faults(page)
    after = page.get_by_label("Break each answer off after so many events")
    await after.fill("0")
    await expect(after).to_have_attribute("aria-invalid", "true")
    why = "Breaks off after: a whole number from 1 to 1000000; until then, it is off."
    await expect(after).to_have_accessible_description(why)
    await expect(page.locator("#faults-count")).to_have_text("")
    await after.fill("3")
    await expect(after).to_have_attribute("aria-invalid", "false")
    await expect(after).to_have_accessible_description("")
    # the largest wait, rather than one after which the page repeats the post by itself
    seconds = page.get_by_label("Seconds in Retry-After")
    await seconds.fill("99999")
    await page.get_by_label("Refuse the next post").select_option("503")
    await expect(seconds).to_have_attribute("aria-invalid", "true")
    why = "Retry-After: a whole number from 0 to 3600; until then, 3600 is used."
    await expect(page.locator("#faults-form").get_by_role("status")).to_have_text(why)
    assert await page.evaluate(POOR_CONTRAST) == []
    await playground.say("hi")
    await expect(page.get_by_role("alert")).to_contain_text("Try again in 3600 s")
    assert playground.posts == []
    await seconds.fill("-1")
    await expect(seconds).to_have_accessible_description(re.compile("until then, 1 is used"))
    await turn_off(page)
    await expect(seconds).to_have_value("1")
    await expect(seconds).to_have_accessible_description("")


async def test_the_switches_are_reached_by_the_keyboard(playground: Playground) -> None:
    page = playground.page
    await page.locator("#faults summary").focus()
    await page.keyboard.press("Enter")
    await page.keyboard.press("Tab")
    await page.keyboard.type("2")
    await page.keyboard.press("Enter")
    await expect(page.locator("#faults-count")).to_have_text("1 on")


async def test_on_a_phone_the_panel_fits(browser: Browser, server_url: str) -> None:
    async with open_playground(browser, server_url, (390, 844)) as playground:
        page = playground.page
        await page.locator("#show-events").click()
        await open_faults(page)
        widths = await page.evaluate(
            "[document.documentElement.scrollWidth, "
            "document.querySelector('.tools-row').scrollWidth, "
            "document.querySelector('.tools-row').clientWidth]"
        )
        assert widths[0] == 390
        assert widths[1] <= widths[2]


# ---------------------------------------------------------------- replay
async def test_an_export_with_a_cut_is_replayed_with_it_and_with_faults(
    browser: Browser, server_url: str, tmp_path: Path
) -> None:
    async with open_playground(browser, server_url) as playground:
        await open_faults(playground.page)
        await playground.page.get_by_label("Break each answer off after so many events").fill("3")
        await playground.say("Change background color to blue.")
        await expect(playground.page.locator(".text[aria-busy]")).to_have_count(0)
        shown = await playground.page.locator("#transcript").inner_text()
        before = await time_line(playground.page)
        file = await exported(playground.page, tmp_path)
    cuts = [
        [cut["after"] for cut in one["cuts"]] for one in json.loads(file.read_text())["exchanges"]
    ]
    assert cuts == [[3], [3]]
    # a lost answer is not among them: Chromium itself repeats a post on a kept connection
    flags = ["--speed", "0", "--take-over-after", "4", "--twice", "--refuse", "429,503"]
    for more, lost in (([], 2), (["--retry-after", "0", *flags], 2 + 2 + 4)):
        async with (
            replaying(file, *more) as url,
            open_playground(browser, url) as playground,
        ):
            await playground.say("Change background color to blue.")
            await expect(playground.page.locator(".text[aria-busy]")).to_have_count(0)
            assert await playground.page.locator("#transcript").inner_text() == shown
            assert await playground.background() == "rgb(0, 0, 255)"
            lines = await time_line(playground.page)
        assert lines.count("connection lost") == lost
        if not more:
            assert [re.sub("/conversations/[^/]*", "", line) for line in lines] == [
                re.sub("/conversations/[^/]*", "", line) for line in before
            ]
