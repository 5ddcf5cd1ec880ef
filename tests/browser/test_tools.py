"""The tools that run in the page."""

import re

import pytest
from playwright.async_api import Browser, expect
from tests.browser.playground import Playground, open_playground

pytestmark = [pytest.mark.anyio, pytest.mark.browser]

BLUE = "Background color successfully changed to: blue"
ASK = 'Ask me to confirm: "Shall we begin?"'


async def test_the_background_really_becomes_blue_and_the_answer_quotes_the_result(
    playground: Playground,
) -> None:
    before = await playground.background()
    await playground.say("Change background color to blue.")
    assert before != "rgb(0, 0, 255)"
    assert await playground.background() == "rgb(0, 0, 255)"
    assert await playground.tool_cards() == [
        {
            "name": "change-background-color",
            "state": "ran in this page",
            "arguments": '{"color": "blue"}',
            "result": BLUE,
        }
    ]
    assert await playground.answers() == [f'Done. change-background-color answered: "{BLUE}".']
    call_id = playground.posts[1]["messages"][0]["toolCallId"]
    assert playground.posts[1]["messages"] == [
        {"role": "tool", "content": BLUE, "toolCallId": call_id}
    ]
    assert "tools" not in playground.posts[1]


async def test_a_colour_that_is_not_listed_is_refused(playground: Playground) -> None:
    before = await playground.background()
    await playground.say('Change background color to "url(https://example.com/x)".')
    (card,) = await playground.tool_cards()
    assert card["state"] == "failed"
    assert card["error"].startswith("The color should be one of the following: blue, red")
    assert playground.posts[1]["messages"][0]["isError"] is True
    assert await playground.background() == before


async def test_the_colour_stays_with_its_conversation(playground: Playground) -> None:
    page = playground.page
    before = await playground.background()
    await playground.say("Change background color to green.")
    await page.reload()
    await expect(page.locator(".tool")).to_be_visible()
    assert await playground.background() == "rgb(0, 128, 0)"
    await page.get_by_role("button", name="New conversation").click()
    assert await playground.background() == before


async def test_the_time_zone_is_the_browsers(browser: Browser, server_url: str) -> None:
    async with open_playground(browser, server_url, timezone_id="Australia/Eucla") as playground:
        await playground.say("What time zone am I in?")
        (answer,) = await playground.answers()
        assert answer.startswith(
            'Done. get-time-zone answered: "Australia/Eucla (UTC+08:45), local'
        )


@pytest.mark.parametrize(
    ("choice", "result"), [("Confirm", "confirmed"), ("Decline", "declined"), ("", "declined")]
)
async def test_the_user_is_asked_in_the_page(
    playground: Playground, choice: str, result: str
) -> None:
    page = playground.page
    await playground.write(ASK)
    dialog = page.get_by_role("dialog", name="The agent asks")
    await expect(dialog).to_contain_text("Shall we begin?")
    if choice:
        await dialog.get_by_role("button", name=choice).click()
    else:
        await page.keyboard.press("Escape")
    await playground.settled()
    assert await playground.answers() == [f'Done. ask-user-to-confirm answered: "{result}".']
    await expect(dialog).to_be_hidden()


async def test_a_key_that_was_meant_for_the_message_field_confirms_nothing(
    playground: Playground,
) -> None:
    page = playground.page
    await playground.write(ASK)
    dialog = page.get_by_role("dialog")
    await expect(dialog).to_be_visible()
    await page.keyboard.press("Enter")
    await page.keyboard.press("Space")
    assert await dialog.is_visible()
    await dialog.get_by_role("button", name="Decline").click()
    await playground.settled()


async def test_parallel_calls_are_answered_in_one_post(playground: Playground) -> None:
    await playground.write(
        "Tell the time zone, change background color to red, and confirm that it is red"
    )
    await playground.page.get_by_role("dialog").get_by_role("button", name="Confirm").click()
    await playground.settled()
    assert len(playground.posts) == 2
    cards = await playground.tool_cards()
    assert {card["name"] for card in cards} == {
        "get-time-zone",
        "change-background-color",
        "ask-user-to-confirm",
    }
    results = [message["content"] for message in playground.posts[1]["messages"]]
    assert results == [card["result"] for card in cards]
    assert await playground.background() == "rgb(255, 0, 0)"


async def test_stop_takes_a_question_back_and_the_next_message_goes_on_without_it(
    playground: Playground,
) -> None:
    page = playground.page
    await playground.write(ASK)
    await expect(page.get_by_role("dialog")).to_be_visible()
    await page.locator("#stop").dispatch_event("click")
    await expect(page.get_by_role("dialog")).to_be_hidden()
    await playground.settled()
    assert await playground.notes() == ["Stopped."]
    await playground.say("count to 2")
    assert await playground.answers() == ["1 2 - counted by the demo model."]
    assert len(playground.posts) == 2
    await page.reload()
    card = page.locator(".tool")
    await expect(card).to_contain_text(re.compile("the conversation went on without it"))
