"""Cards of the page for what the agent asks a person: approvals of calls, and questions."""

import json
import re
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest
from playwright.async_api import Browser, Locator, Page, expect
from tests.browser.playground import PHONE, Playground, expect_text, open_playground
from tests.browser.test_layout import POOR_CONTRAST, overflow
from tests.support.server import running_server
from tests.support.wire import client_of, user

pytestmark = [pytest.mark.anyio, pytest.mark.browser]

DELETE = ("delete_file", {"path": "a.txt"})
COLOURS: dict[str, Any] = {
    "question": "Which colours?",
    "options": [
        {"label": "blue"},
        {"label": "green", "description": "like grass"},
        {"label": "red"},
    ],
    "multiple": True,
}
ONE = {
    "question": "Which size?",
    "options": [{"label": "small"}, {"label": "large"}],
    "freeText": False,
}
NAME = {"question": "What is it called?"}
HOSTILE = "<img src=x onerror=pwned=1>"


@pytest.fixture(scope="module")
async def guarded_url() -> AsyncGenerator[str]:
    """A server whose agent does what a message orders, but deletes only what a person allows."""
    async with running_server("tests.support.served_agents:guarded") as server:
        yield server.url


@pytest.fixture
async def page(browser: Browser, guarded_url: str) -> AsyncGenerator[Playground]:
    async with open_playground(browser, guarded_url) as tab:
        yield tab


def calling(*calls: tuple[str, dict[str, Any]]) -> str:
    """Return the message that makes the agent call these tools."""
    return json.dumps({"calls": [[name, json.dumps(arguments)] for name, arguments in calls]})


def asking(*questions: dict[str, Any]) -> str:
    return calling(("ask_user", {"questions": questions}))


def card(page: Page, name: str) -> Locator:
    return page.get_by_label(f"Tool call {name}")


async def second_tab(playground: Playground) -> Page:
    """Another tab of the same browser on the same conversation."""
    tab = await playground.page.context.new_page()
    await tab.goto(playground.page.url)
    return tab


async def press_tab_to(page: Page, target: Locator) -> None:
    """Move by the keyboard alone, from where the focus is."""
    for _ in range(40):
        if await target.evaluate("element => element === document.activeElement"):
            return
        await page.keyboard.press("Shift+Tab")
    pytest.fail("the keyboard does not lead there")


async def choose_by_arrows(page: Page, radio: Locator) -> None:
    """Choose a radio button, from another one of its group."""
    for _ in range(10):
        if await radio.is_checked():
            return
        await page.keyboard.press("ArrowDown")
    pytest.fail("the arrows do not lead there")


async def synthetic(playground: Playground) -> Sequence[object]:
    """Why the server closed calls itself, by its record."""
    found: list[object] = await playground.page.evaluate(
        """fetch(`conversations/${location.hash.split('=')[1]}/messages`).then(got => got.json())
            .then(({messages}) => messages.filter(({role}) => role === 'tool'))
            .then(results => results.map(({synthetic}) => synthetic ?? null))"""
    )
    return found


# ---------------------------------------------------------------- approvals
async def test_a_tool_is_called_when_the_person_allows_it(page: Playground) -> None:
    await page.say(calling(DELETE))
    shown = card(page.page, "delete_file")
    await expect(shown).to_contain_text("waits for your decision")
    await expect(shown).to_contain_text("It cannot be undone.")
    await expect(shown.locator("pre")).to_have_text('{"path": "a.txt"}')
    await press_tab_to(page.page, shown.get_by_role("button", name="Allow", exact=True))
    await page.page.keyboard.press("Enter")
    await expect_text(page, "Done.")
    await page.settled()
    (call,) = await page.tool_cards()
    assert (call["state"], call["result"]) == ("allowed, ran on the server", "a.txt is deleted")
    assert re.fullmatch(r"\d+ ms|\d+\.\d s", call["duration"])
    assert await shown.get_by_role("button").count() == 0
    (resume,) = page.posts[1]["resume"]
    assert (resume["payload"], "messages" in page.posts[1]) == ({"approved": True}, False)
    await page.page.reload()
    await expect(shown).to_contain_text("allowed, ran on the server")


async def test_a_denial_tells_the_agent_why_and_enter_denies(page: Playground) -> None:
    await page.say(calling(DELETE))
    shown = card(page.page, "delete_file")
    await shown.get_by_label("Why not").fill("I still need it.")
    await page.page.keyboard.press("Enter")
    await expect_text(page, "Done.")
    await expect(shown.locator(".state")).to_have_text("denied")
    assert page.posts[1]["resume"][0]["payload"] == {
        "approved": False,
        "reason": "I still need it.",
    }
    assert await synthetic(page) == ["denied"]
    await page.page.reload()
    await expect(shown.locator(".state")).to_have_text("denied")
    await expect(shown).to_contain_text("I still need it.")


async def test_a_denial_is_one_in_every_tab(page: Playground) -> None:
    await page.say(calling(DELETE))
    other = await second_tab(page)
    elsewhere = card(other, "delete_file")
    await expect(elsewhere).to_contain_text("waits for your decision")
    shown = card(page.page, "delete_file")
    await shown.get_by_label("Why not").fill("I still need it.")
    await shown.get_by_role("button", name="Deny").click()
    for each in (shown, elsewhere):
        await expect(each.locator(".result")).to_contain_text("I still need it.")
        await expect(each.locator(".state")).to_have_text("denied")
        await expect(each.locator(".result .block-title")).to_have_text("Error")
        assert await each.get_by_role("button").count() == 0
    await other.close()


@pytest.mark.parametrize(
    "call",
    [("delete_file", {"path": 1}), ("ask_user", {"questions": [{**NAME, "freeText": False}]})],
    ids=["a tool of the server", "questions"],
)
async def test_a_call_that_cannot_be_made_says_so_at_once_and_after_a_reload(
    page: Playground, call: tuple[str, dict[str, Any]]
) -> None:
    await page.say(calling(call))
    await expect_text(page, "Done.")
    state = card(page.page, call[0]).locator(".state")
    await expect(state).to_have_text("not run: its arguments are not valid")
    await page.page.reload()
    await expect(state).to_have_text("not run: its arguments are not valid")


async def test_what_is_allowed_always_is_not_asked_about_again(page: Playground) -> None:
    await page.say(calling(DELETE))
    await page.page.get_by_role("button", name="Allow always").click()
    await expect_text(page, "Done.")
    await page.settled()
    await page.say(calling(DELETE))
    states = [call["state"] for call in await page.tool_cards()]
    assert states == ["allowed, ran on the server", "ran on the server"]


async def test_an_approval_is_there_after_a_reload(page: Playground) -> None:
    await page.say(calling(DELETE))
    await page.page.reload()
    shown = card(page.page, "delete_file")
    await expect(shown).to_contain_text("It cannot be undone.")
    await shown.get_by_role("button", name="Allow", exact=True).click()
    await expect_text(page, "Done.")
    await expect(shown).to_contain_text("a.txt is deleted")


async def test_several_decisions_and_a_tool_of_the_page_in_one_answer(page: Playground) -> None:
    other = ("delete_file", {"path": "b.txt"})
    await page.say(calling(DELETE, ("get-time-zone", {}), other))
    first, second = await card(page.page, "delete_file").all()
    await first.get_by_role("button", name="Allow", exact=True).click()
    await expect(first).to_contain_text("allowed")
    await expect(second).to_contain_text("waits for your decision")
    await second.get_by_role("button", name="Deny").click()
    await expect_text(page, "Done.")
    await page.settled()
    assert [call["state"] for call in await page.tool_cards()] == [
        "allowed, ran on the server",
        "ran in this page",
        "denied",
    ]


async def test_a_message_instead_of_a_decision_goes_on_without_it(page: Playground) -> None:
    await page.say(calling(DELETE))
    await page.say(json.dumps({"say": "Never mind."}))
    assert await page.answers() == ["Never mind."]
    assert await card(page.page, "delete_file").get_by_role("button").count() == 0
    assert await synthetic(page) == ["superseded"]


# ---------------------------------------------------------------- questions
async def test_questions_are_answered_by_the_keyboard_alone(page: Playground) -> None:
    await page.say(asking(COLOURS, ONE, NAME))
    shown = card(page.page, "ask_user")
    keys = page.page.keyboard
    await press_tab_to(page.page, shown.get_by_role("checkbox", name="blue"))
    await keys.press("Space")
    await keys.press("Tab")
    await keys.press("Tab")
    await keys.press("Space")  # red
    await keys.press("Tab")
    await keys.type("and some gold")
    await keys.press("Tab")
    await choose_by_arrows(page.page, shown.get_by_role("radio", name="large"))
    await keys.press("Tab")
    await keys.type("Sky")
    await keys.press("Tab")
    await keys.press("Enter")
    await expect_text(page, "Done.")
    await page.settled()
    assert page.posts[1]["messages"][0]["content"] == {
        "answers": [
            {"selected": ["blue", "red"], "text": "and some gold"},
            {"selected": ["large"]},
            {"text": "Sky"},
        ]
    }
    await expect(shown.locator(".state")).to_have_text("answered")
    await page.page.reload()
    await expect(shown.locator(".state")).to_have_text("answered")
    await expect(shown).to_contain_text("and some gold")


async def test_a_choice_can_be_taken_back_and_a_question_passed_over(page: Playground) -> None:
    await page.say(asking(ONE, NAME))
    shown = card(page.page, "ask_user")
    await shown.get_by_role("radio", name="small").check()
    await shown.get_by_role("radio", name="None of these").check()
    await shown.get_by_role("button", name="Answer", exact=True).click()
    await expect_text(page, "Done.")
    assert page.posts[1]["messages"][0]["content"] == {"answers": [{}, {}]}


async def test_the_header_of_a_question_stands_before_it(page: Playground) -> None:
    await page.say(asking({**ONE, "header": HOSTILE}))
    legend = card(page.page, "ask_user").locator("legend")
    await expect(legend).to_have_text(f"{HOSTILE} Which size?")
    await expect(legend.locator("strong")).to_have_text(HOSTILE)


async def test_a_question_is_there_after_a_reload_and_may_be_refused(page: Playground) -> None:
    await page.say(asking(COLOURS))
    await page.page.reload()
    shown = card(page.page, "ask_user")
    await expect(shown.get_by_role("group", name="Which colours?")).to_contain_text("like grass")
    await shown.get_by_role("button", name="Rather not say").click()
    await expect_text(page, "Done.")
    assert page.posts[1]["messages"][0]["isError"] is True


# ---------------------------------------------------------------- elsewhere
async def test_a_card_closes_in_the_other_tab_when_it_is_answered_in_one(page: Playground) -> None:
    await page.say(calling(DELETE))
    other = await second_tab(page)
    await other.get_by_role("button", name="Allow", exact=True).click()
    await expect(other.locator(".answer .text")).to_have_text("Done.")
    await expect_text(page, "Done.")
    await expect(page.page.get_by_role("button", name="Deny")).to_have_count(0)
    await expect(card(page.page, "delete_file")).to_contain_text("a.txt is deleted")


async def test_a_card_closes_when_it_is_answered_on_another_device(
    browser: Browser, guarded_url: str, page: Playground
) -> None:
    await page.say(asking(COLOURS))
    async with open_playground(browser, guarded_url) as device:
        await device.open(page.page.url.removeprefix(f"{guarded_url}/"))
        await device.page.reload()
        await device.page.get_by_role("checkbox", name="blue").check()
        await device.page.get_by_role("button", name="Answer", exact=True).click()
        await expect_text(device, "Done.")
    await expect_text(page, "Done.")
    await expect(page.page.get_by_role("button", name="Answer", exact=True)).to_have_count(0)
    await expect(card(page.page, "ask_user")).to_contain_text("blue")


# ---------------------------------------------------------------- what is half written
async def test_a_half_written_answer_stays_while_another_client_answers_other_calls(
    page: Playground,
) -> None:
    await page.say(calling(DELETE, ("ask_user", {"questions": [COLOURS, ONE, NAME]})))
    other = await second_tab(page)
    shown, decision = card(page.page, "ask_user"), card(page.page, "delete_file")
    await decision.get_by_label("Why not").fill("not sure")
    await shown.get_by_role("checkbox", name="red").check()
    await shown.get_by_role("radio", name="large").check()
    await shown.get_by_label("What is it called?").press_sequentially("Sk")
    await other.get_by_role("button", name="Allow", exact=True).click()
    await expect(decision.locator(".state")).not_to_have_text("waits for your decision")
    # what is not needed any more is not lost either
    await expect(decision.locator(".unsent")).to_have_text("Not sentnot sure")
    await expect(shown.get_by_label("What is it called?")).to_be_focused()
    await page.page.keyboard.type("y")
    await shown.get_by_role("button", name="Answer", exact=True).click()
    await expect_text(page, "Done.")
    await page.settled()
    assert page.posts[-1]["messages"][0]["content"] == {
        "answers": [{"selected": ["red"]}, {"selected": ["large"]}, {"text": "Sky"}]
    }
    await expect(shown.locator(".unsent")).to_have_count(0)
    await other.close()


async def test_a_half_written_answer_can_be_read_when_another_client_goes_on(
    page: Playground, guarded_url: str
) -> None:
    await page.say(asking(COLOURS, NAME))
    shown = card(page.page, "ask_user")
    await shown.get_by_role("checkbox", name="blue").check()
    await shown.get_by_label("What is it called?").fill(HOSTILE)
    await page.page.fill("#message", "half a message")
    conversation = page.page.url.split("=")[1]
    async with client_of(guarded_url) as client:
        for text in ("Never mind.", "Go on."):
            await client.post(conversation, user(json.dumps({"say": text})))
            await expect_text(page, text)
            await page.settled()
            await expect(shown.get_by_role("button", name="Answer", exact=True)).to_have_count(0)
            await expect(shown.locator(".unsent pre")).to_have_text(f"blue\n{HOSTILE}")
    await expect(page.page.locator("#message")).to_have_value("half a message")
    assert await page.page.evaluate("window.pwned") is None
    # another conversation begins with nothing of it
    await page.page.get_by_role("button", name="New conversation").click()
    await page.page.go_back()
    await expect(shown).to_be_visible()
    await expect(shown.locator(".unsent")).to_have_count(0)


# ---------------------------------------------------------------- layout
@pytest.mark.parametrize("size", [(320, 568), PHONE])
async def test_the_cards_fit_a_phone(
    browser: Browser, guarded_url: str, size: tuple[int, int]
) -> None:
    long = "an-extraordinarily-long-word-without-a-place-to-break-" * 4
    labels = [{"label": long, "description": long}, {"label": "short"}]
    question = {"question": long, "options": labels}
    async with open_playground(browser, guarded_url, size) as playground:
        page = playground.page
        await playground.say(
            calling(("delete_file", {"path": long}), ("ask_user", {"questions": [question]}))
        )
        await expect(page.get_by_role("button", name="Deny")).to_be_visible()
        assert await overflow(page) == []
        await page.get_by_label("Why not").press_sequentially("no")
        await page.get_by_role("button", name="Deny").click()
        await expect(page.locator(".state").first).to_have_text("denied")
        await page.get_by_role("radio", name="short").check()
        await page.get_by_role("button", name="Answer", exact=True).click()
        await expect_text(playground, "Done.")


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_the_cards_can_be_read_in_light_and_dark(
    browser: Browser, guarded_url: str, scheme: str
) -> None:
    async with open_playground(browser, guarded_url, color_scheme=scheme) as playground:
        await playground.say(calling(DELETE, ("ask_user", {"questions": [COLOURS, ONE, NAME]})))
        await playground.page.get_by_role("checkbox", name="green").check()
        assert await playground.page.evaluate(POOR_CONTRAST) == []


async def test_what_is_asked_is_text(page: Playground) -> None:
    option = {"label": HOSTILE, "description": HOSTILE}
    await page.say(
        calling(
            ("delete_file", {"path": HOSTILE}),
            ("ask_user", {"questions": [{"question": HOSTILE, "options": [option]}]}),
        )
    )
    await expect(card(page.page, "ask_user").locator("legend")).to_have_text(HOSTILE)
    assert await page.page.locator("#transcript img").count() == 0
    assert await page.page.evaluate("typeof pwned") == "undefined"
