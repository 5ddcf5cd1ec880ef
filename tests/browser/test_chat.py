"""Talking to the agent on the page."""

import re

import pytest
from playwright.async_api import Browser, expect
from tests.browser.playground import Playground, expect_text, open_playground

pytestmark = [pytest.mark.anyio, pytest.mark.browser]

HELLO = (
    "Hello! I am passback's demo model: a few rules, no artificial intelligence. "
    "Name one of your tools and I will "
    "call it: change-background-color, get-time-zone, ask-user-to-confirm, ask_user."
)


async def test_hi_is_answered(playground: Playground) -> None:
    await playground.say("hi")
    assert await playground.answers() == [HELLO]


async def test_the_answer_is_shown_while_it_comes(playground: Playground) -> None:
    await playground.write("count to 100")
    await expect_text(playground, "1 2 3")
    assert await playground.page.locator("#stop").is_visible()
    await playground.settled()
    numbers = " ".join(str(number) for number in range(1, 101))
    assert await playground.answers() == [f"{numbers} - counted by the demo model."]


async def test_only_what_is_new_is_posted(playground: Playground) -> None:
    await playground.say("hi")
    await playground.say("and again")
    first, second = playground.posts
    named = {playground.posts[number]["messages"][0].pop("id") for number in (0, 1)}
    assert len({*named, *(key.strip('"') for key in playground.keys)}) == 4
    assert first["messages"] == [{"role": "user", "content": "hi"}]
    assert [tool["name"] for tool in first["tools"]] == [
        "change-background-color",
        "get-time-zone",
        "ask-user-to-confirm",
        "ask_user",
    ]
    assert second == {
        "conversationId": first["conversationId"],
        "messages": [{"role": "user", "content": "and again"}],
        "tools": first["tools"],
        "include": first["include"],
    }


@pytest.mark.parametrize(
    ("example", "posted"),
    [
        ("Say hi", "hi"),
        ("Change background color to blue.", "Change background color to blue."),
        ("What time zone am I in?", "What time zone am I in?"),
    ],
)
async def test_an_example_is_sent_by_a_click(
    playground: Playground, example: str, posted: str
) -> None:
    await playground.page.get_by_role("button", name=example).click()
    await playground.settled()
    assert playground.posts[0]["messages"][0]["content"] == posted
    assert await playground.page.locator("#welcome").is_hidden()


async def test_shift_and_enter_start_a_new_line(playground: Playground) -> None:
    await playground.page.click("#message")
    await playground.page.keyboard.type("one")
    await playground.page.keyboard.press("Shift+Enter")
    await playground.page.keyboard.type("two")
    await playground.page.keyboard.press("Enter")
    await playground.settled()
    assert playground.posts[0]["messages"][0]["content"] == "one\ntwo"


async def test_the_page_works_without_a_mouse(playground: Playground) -> None:
    page = playground.page
    await page.get_by_role("button", name="Say hi").focus()
    await page.keyboard.press("Tab")
    await page.keyboard.press("Enter")
    await playground.settled()
    assert await playground.background() == "rgb(0, 0, 255)"


async def test_stop_ends_the_answer_and_keeps_what_was_said(playground: Playground) -> None:
    await playground.write("count to 900")
    await expect_text(playground, "1 2 3")
    await playground.page.get_by_role("button", name="Stop").click()
    await playground.settled()
    assert await playground.notes() == ["Stopped."]
    (text,) = await playground.answers()
    assert re.match(r"1 2 3", text)
    assert "demo model" not in text
    await playground.say("hi")
    assert (await playground.answers())[1:] == [HELLO]


async def test_a_new_conversation_starts_empty_and_the_old_one_is_a_step_back(
    playground: Playground,
) -> None:
    page = playground.page
    await playground.say("hi")
    old = page.url
    await page.get_by_role("button", name="New conversation").click()
    await expect(page.locator("#welcome")).to_be_visible()
    await playground.say("count to 3")
    assert await playground.answers() == ["1 2 3 - counted by the demo model."]
    assert playground.posts[0]["conversationId"] != playground.posts[1]["conversationId"]
    await page.go_back()
    await expect_text(playground, HELLO)
    assert page.url == old
    assert await playground.answers() == [HELLO]


async def test_the_raw_events_have_their_ids_and_times(playground: Playground) -> None:
    await playground.say("hi")
    await playground.page.get_by_label("Merge pieces").uncheck()
    lines = playground.page.locator(".line")
    await expect(lines.last).to_contain_text("[DONE]")
    kinds = await lines.locator(".kind").all_text_contents()
    assert kinds[:4] == ["POST /send-message", "HTTP 200", "run-start", "message"]
    assert set(kinds[4:-3]) == {"text"}
    assert kinds[-3:] == ["usage", "run-end", "[DONE]"]
    ids = await lines.locator(".event-id").all_text_contents()
    assert len(ids) == len(kinds) - 2
    assert all(re.fullmatch(r"run_\w+\.\d+-\d+", each) for each in ids)
    posted, *times = await lines.locator("time").all_text_contents()
    assert re.fullmatch(r"\d\d:\d\d:\d\d\.\d\d\d", posted)
    assert all(re.fullmatch(r"\+\d+\.\d\d\d s", each) for each in times)
    assert times == sorted(times, key=lambda each: float(each[1:-2]))
    await lines.nth(4).click()
    assert '"type": "text"' in await lines.nth(4).locator("pre").inner_text()


async def test_the_list_of_events_is_bounded(browser: Browser, server_url: str) -> None:
    async with open_playground(browser, server_url) as playground:
        frames = "".join(
            f'id: run.1-{number}\ndata: {{"type":"text","content":"."}}\n\n'
            for number in range(1, 3001)
        )
        await playground.page.route(
            "**/send-message",
            lambda route: route.fulfill(
                content_type="text/event-stream",
                headers={"x-conversation-id": "c"},
                body=f"{frames}data: [DONE]\n\n",
            ),
        )
        await playground.page.get_by_label("Merge pieces").uncheck()
        await playground.say("hi")
        await expect(playground.page.locator("#events-count")).to_have_text("last 500 of 3003")
        assert await playground.page.locator(".line").count() == 500
        assert await playground.answers() == ["." * 3000]
