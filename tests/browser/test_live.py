"""Two devices that have one conversation open: what one does, the other shows without a reload."""

import json
from collections.abc import AsyncGenerator

import pytest
from playwright.async_api import Browser, expect
from tests.browser.playground import Playground, expect_text, open_playground
from tests.support.wire import client_of, user

pytestmark = [pytest.mark.anyio, pytest.mark.browser]

FIVE = "1 2 3 4 5 - counted by the demo model."
TWO = "1 2 - counted by the demo model."


@pytest.fixture
async def device(
    browser: Browser, playground: Playground, server_url: str
) -> AsyncGenerator[Playground]:
    """A second one, on a conversation that the first has begun."""
    await playground.say("hi")
    async with open_playground(browser, server_url) as second:
        async with second.page.expect_request("**/events*"):
            await second.page.goto(playground.page.url)
        await expect_text(second, "Hello!")
        yield second


async def test_a_message_and_its_answer_are_shown_as_they_come(
    playground: Playground, device: Playground
) -> None:
    await playground.write("count to 120")
    await expect_text(device, "1 2 3 4")
    assert "counted" not in (await device.answers())[-1]
    await expect(device.page.locator("#stop")).to_be_visible()
    await playground.page.get_by_role("button", name="Stop").click()
    await playground.settled()
    await device.settled()
    assert await device.questions() == ["hi", "count to 120"]
    assert (await device.answers())[-1].strip() == (await playground.answers())[-1].strip()
    # and the other way round
    await device.say("count to 5")
    await expect_text(playground, FIVE)
    assert await playground.questions() == ["hi", "count to 120", "count to 5"]
    assert (await playground.answers()).count(FIVE) == 1


async def test_a_message_that_waits_elsewhere_is_shown_with_its_turn(
    playground: Playground, device: Playground
) -> None:
    await playground.write("count to 120")
    await expect_text(device, "1 2 3 4")
    await device.page.fill("#message", "count to 2")
    await device.page.press("#message", "Enter")
    await device.page.get_by_role("button", name="Queue").click()
    for each in (playground, device):
        await expect_text(each, TWO)
        await each.settled()
        assert await each.questions() == ["hi", "count to 120", "count to 2"]
        assert len(await each.answers()) == 3


async def test_a_message_that_rolls_an_answer_back_removes_it(
    playground: Playground, device: Playground, server_url: str
) -> None:
    conversation = playground.page.url.split("=")[1]
    await playground.write("count to 120")
    await expect_text(device, "1 2 3 4")
    async with client_of(server_url) as client:
        await client.post(conversation, user("count to 2"), onBusy="rollback")
    for each in (playground, device):
        await expect_text(each, TWO)
        await each.settled()
        assert await each.questions() == ["hi", "count to 2"]


async def test_a_message_that_is_being_written_survives_what_others_do(
    playground: Playground, device: Playground
) -> None:
    field = device.page.locator("#message")
    await field.press_sequentially("count to")
    await playground.say("count to 2")
    await expect_text(device, TWO)
    await device.settled()
    await expect(field).to_be_focused()
    await device.page.keyboard.type(" 5\n")
    await expect_text(device, FIVE)
    assert await device.questions() == ["hi", "count to 2", "count to 5"]


async def test_a_deletion_is_shown_as_one(playground: Playground, device: Playground) -> None:
    path = f"conversations/{playground.page.url.split('=')[1]}"
    await playground.page.evaluate(f"fetch({json.dumps(path)}, {{method: 'DELETE'}})")
    for each in (playground, device):
        problem = each.page.get_by_role("alert")
        await expect(problem).to_contain_text("This conversation was deleted")
    await device.page.get_by_role("button", name="New conversation").last.click()
    await device.say("count to 2")
    assert await device.questions() == ["count to 2"]


async def test_a_device_that_was_away_catches_up_once(
    playground: Playground, device: Playground
) -> None:
    context = device.page.context
    await context.set_offline(True)
    await playground.say("count to 2")
    await playground.say("count to 5")
    await context.set_offline(False)
    await expect_text(device, FIVE)
    await device.settled()
    assert await device.questions() == ["hi", "count to 2", "count to 5"]
    assert (await device.answers())[1:] == [TWO, FIVE]
    # it is live again
    await playground.say("count to 3")
    await expect_text(device, "1 2 3 - counted")
