"""A person reads exactly what a tool gets: nothing is hidden, and nothing is out of order."""

import json
from typing import Any

import pytest
from playwright.async_api import Browser, Locator, Page, Route, expect
from tests.browser.playground import Playground, open_playground
from tests.browser.test_asks import card

pytestmark = [pytest.mark.anyio, pytest.mark.browser]

TURNED = "bob \u202e 000,1 yap"
WRITTEN = "bob \\u202e 000,1 yap"
HIDDEN = "a\u200bb\u2066c\U000e0041\ufe0f\u0000\u2028d\ud800"
HIDDEN_WRITTEN = "a\\u200bb\\u2066c\\udb40\\udc41\\ufe0f\\u0000\\u2028d\\ud800"
POSITIONS = """(element, words) => words.map(word => {
    const walker = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
    for (let node; (node = walker.nextNode());) {
        const at = node.data.indexOf(word);
        if (at < 0) continue;
        const range = document.createRange();
        range.setStart(node, at);
        range.setEnd(node, at + word.length);
        return range.getBoundingClientRect().x;
    }
})"""
"""Return the horizontal positions of words of an element."""


async def owes(playground: Playground, *calls: dict[str, Any]) -> Page:
    """The page is owed these calls, by a server that refuses nothing."""
    owed = [{"id": f"call_{at}", **call} for at, call in enumerate(calls)]
    events = [
        {"type": "owed", "toolCalls": owed},
        {"type": "run-end", "outcome": "handed-back"},
    ]
    frames = "".join(
        f"id: run.1-{at}\ndata: {json.dumps(each)}\n\n" for at, each in enumerate(events)
    )

    async def fulfil(route: Route) -> None:
        body = f"{frames}data: [DONE]\n\n"
        await route.fulfill(
            content_type="text/event-stream", headers={"x-conversation-id": "c"}, body=body
        )

    await playground.page.route("**/send-message", fulfil)
    await playground.say("go")
    return playground.page


def approval(arguments: str, name: str = "pay", reason: str = "Sure?") -> dict[str, Any]:
    return {"name": name, "arguments": arguments, "kind": "approval", "reason": reason}


async def positions(element: Locator, *words: str) -> list[float]:
    found: list[float] = await element.evaluate(POSITIONS, list(words))
    return found


async def test_an_order_that_reads_as_another_one_is_written_out(playground: Playground) -> None:
    order = json.dumps({"text": TURNED, "hidden": HIDDEN}, ensure_ascii=False)
    escaped = order.replace("\u202e", "\\u202e")
    page = await owes(playground, approval(escaped, reason=TURNED), approval(escaped, name=TURNED))
    shown = card(page, "pay")
    expected = f'{{\n  "text": "{WRITTEN}",\n  "hidden": "{HIDDEN_WRITTEN}"\n}}'
    await expect(shown.locator("pre")).to_have_text(expected, use_inner_text=True)
    await expect(shown.locator(".why")).to_have_text(WRITTEN)
    named = card(page, WRITTEN)
    await expect(named.locator(".tool-name")).to_have_text(WRITTEN)
    assert await shown.get_by_role("button", name="Allow", exact=True).is_visible()


async def test_keys_that_come_twice_are_all_shown_with_a_warning(playground: Playground) -> None:
    page = await owes(
        playground,
        approval('{"to":"alice","amount":1,"to":"mallory","amount":9999}'),
        approval('{"to":"alice"}', name="greet"),
    )
    shown = card(page, "pay")
    await expect(shown.locator("pre")).to_have_text(
        '{"to": "alice", "amount": 1, "to": "mallory", "amount": 9999}'
    )
    await expect(shown.locator(".warning")).to_have_text(
        'Given more than once: "to", "amount". The tool gets the last value.'
    )
    await expect(card(page, "greet").locator(".warning")).to_have_count(0)


async def test_letters_from_right_to_left_leave_arguments_in_their_order(
    playground: Playground,
) -> None:
    """Without isolation the amount would stand beside the other name."""
    names = ["שלום", "תודה"]
    order = json.dumps({"pay": [names[0], 1000, names[1]]}, ensure_ascii=False)
    page = await owes(playground, approval(order))
    written = card(page, "pay").locator("pre")
    await expect(written).to_have_text(order)
    first, amount, second = await positions(written, names[0], "1000", names[1])
    assert first < amount < second


async def test_questions_and_options_read_as_they_are_answered(playground: Playground) -> None:
    question = {
        "question": TURNED,
        "options": [{"label": TURNED, "description": TURNED}, {"label": "می\u200cشود ❤\ufe0f"}],
    }
    arguments = json.dumps({"questions": [question]})
    page = await owes(playground, {"name": "ask_user", "arguments": arguments, "kind": "question"})
    shown = card(page, "ask_user")
    await expect(shown.locator("legend")).to_have_text(WRITTEN)
    await expect(shown.locator(".option bdi").first).to_have_text(WRITTEN)
    await expect(shown.locator(".option .about").first).to_have_text(WRITTEN)
    await expect(shown.locator(".option bdi").nth(1)).to_have_text("می\u200cشود ❤\ufe0f")


async def test_the_question_of_a_tool_of_the_page_is_written_out(
    browser: Browser, fast_url: str
) -> None:
    async with open_playground(browser, fast_url) as playground:
        await playground.write(f'Ask me to confirm: "{TURNED}"')
        dialog = playground.page.get_by_role("dialog")
        await expect(dialog.locator("#confirm-question")).to_have_text(WRITTEN)
        await dialog.get_by_role("button", name="Decline").click()
        await playground.settled()


async def test_nothing_of_long_arguments_is_behind_a_scroll_bar(playground: Playground) -> None:
    arguments = json.dumps({f"line {number}": number for number in range(60)})
    page = await owes(playground, approval(arguments))
    written = card(page, "pay").locator("pre")
    await expect(written).to_contain_text('"line 59": 59')
    assert await written.evaluate("pre => pre.scrollHeight <= pre.clientHeight")
