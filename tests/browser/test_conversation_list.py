"""The list of conversations: search, open, rename and delete, by mouse, by keyboard, on a phone."""

import re
from collections.abc import AsyncGenerator

import pytest
from playwright.async_api import Browser, Locator, Page, Route, expect
from tests.browser.playground import PHONE, Playground, expect_text, open_playground
from tests.browser.test_hostile import PAYLOADS
from tests.browser.test_layout import POOR_CONTRAST, overflow
from tests.support.server import running_server
from tests.support.wire import Client, client_of, user

pytestmark = [pytest.mark.anyio, pytest.mark.browser]

KEYS = {name: f"the-key-of-{name}-0123456789" for name in ("ann", "carl")}
LONG = "a-title-without-a-place-to-break-" * 6


@pytest.fixture
async def url() -> AsyncGenerator[str]:
    """A server without conversations."""
    async with running_server("--model", "demo:fast") as server:
        yield server.url


@pytest.fixture
async def raw(url: str) -> AsyncGenerator[Client]:
    async with client_of(url) as client:
        yield client


@pytest.fixture
async def tab(browser: Browser, url: str) -> AsyncGenerator[Playground]:
    async with open_playground(browser, url) as playground:
        yield playground


def rows(page: Page) -> Locator:
    return page.get_by_role("navigation", name="Conversations").get_by_role("listitem")


async def open_list(page: Page) -> None:
    await page.get_by_role("button", name="Conversations", exact=True).click()
    await expect(page.locator("#list-status")).not_to_have_text("Loading")


async def shown(page: Page) -> list[str]:
    return await page.locator(".list-title").all_text_contents()


async def name(raw: Client, conversation: str, title: str) -> None:
    """Give a conversation a title, by another client."""
    done = await raw.http.patch(f"/conversations/{conversation}", json={"title": title})
    assert done.status_code == 200, done.text


async def test_the_title_of_a_new_conversation_comes_with_its_first_message(
    tab: Playground,
) -> None:
    page = tab.page
    await open_list(page)
    await expect(page.locator("#list-status")).to_have_text("No conversations yet")
    await expect(page.locator("#search")).to_be_focused()
    await tab.say("count to 3")
    await expect(rows(page)).to_have_count(1)
    assert await shown(page) == ["count to 3"]
    await expect(page.locator("#list-status")).to_have_text("1 conversation")
    current = page.get_by_role("link", name="count to 3")
    await expect(current).to_have_attribute("aria-current", "page")
    await page.get_by_role("button", name="New conversation").click()
    await expect(current).not_to_have_attribute("aria-current", "page")
    await tab.say("hi")
    await expect(rows(page).first).to_contain_text("hi")
    assert await shown(page) == ["hi", "count to 3"]


async def test_what_the_page_itself_does_is_shown_also_during_a_search(tab: Playground) -> None:
    page = tab.page
    await open_list(page)
    await page.locator("#search").fill("count")
    await expect(page.locator("#list-status")).to_have_text("No title contains this")
    await tab.say("hi")
    await page.get_by_role("button", name="New conversation").click()
    await tab.say("count to 3")
    await expect(rows(page)).to_have_count(1)
    assert await shown(page) == ["count to 3"]


async def test_what_other_clients_do_is_shown_while_the_list_is_open(
    tab: Playground, raw: Client
) -> None:
    page = tab.page
    await raw.post("one", user("first"))
    await open_list(page)
    await expect(rows(page)).to_have_count(1)
    await raw.post("two", user("second"))
    await expect(rows(page)).to_have_count(2)
    assert await shown(page) == ["second", "first"]
    await name(raw, "one", "renamed elsewhere")
    await expect(rows(page).last).to_contain_text("renamed elsewhere")
    await raw.http.delete("/conversations/two")
    await expect(rows(page)).to_have_count(1)


async def test_a_conversation_is_opened_and_back_leads_to_the_one_before(
    tab: Playground, raw: Client
) -> None:
    page = tab.page
    await raw.post("a/b c", user("count to 2"))
    await raw.post("two", user("count to 3"))
    await open_list(page)
    await page.get_by_role("link", name="count to 2").click()
    await expect_text(tab, "1 2 - counted")
    assert page.url.endswith("#conversation=a%2Fb%20c")
    await page.get_by_role("link", name="count to 3").click()
    await expect_text(tab, "1 2 3 - counted")
    await expect(page.get_by_role("link", name="count to 3")).to_have_attribute(
        "aria-current", "page"
    )
    await page.go_back()
    await expect_text(tab, "1 2 - counted")
    await tab.say("hi")
    assert (await tab.questions()) == ["count to 2", "hi"]
    await expect(rows(page).first).to_contain_text("count to 2")


async def test_a_search_narrows_the_list_and_more_is_loaded_on_request(
    tab: Playground, raw: Client
) -> None:
    page = tab.page
    for number in range(1, 46):
        await raw.post(f"c{number}", user(f"Number {number}"))
    await open_list(page)
    await expect(rows(page)).to_have_count(20)
    await expect(page.locator("#list-status")).to_have_text("20 or more conversations")
    more = page.get_by_role("button", name="Load more")
    await more.click()
    await expect(rows(page)).to_have_count(40)
    await more.click()
    await expect(rows(page)).to_have_count(45)
    await expect(more).to_be_hidden()
    assert (await shown(page))[44] == "Number 1"
    await page.get_by_role("searchbox", name="Search the titles").fill("NUMBER 4")
    await expect(rows(page)).to_have_count(7)
    assert await shown(page) == [f"Number {number}" for number in (45, 44, 43, 42, 41, 40, 4)]
    await page.locator("#search").fill("nothing has this")
    await expect(page.locator("#list-status")).to_have_text("No title contains this")
    await expect(rows(page)).to_have_count(0)
    # Escape empties the field first, and closes the list then
    await page.locator("#search").press("Escape")
    await expect(rows(page)).to_have_count(20)
    await page.locator("#search").press("Escape")
    await expect(page.locator("#conversations")).to_be_hidden()
    await expect(page.locator("#show-list")).to_be_focused()


async def test_all_can_be_done_by_the_keyboard(tab: Playground, raw: Client) -> None:
    page = tab.page
    await raw.post("one", user("first"))
    await raw.post("two", user("second"))
    opener = page.get_by_role("button", name="Conversations", exact=True)
    await expect(opener).to_have_attribute("aria-expanded", "false")
    await opener.focus()
    await page.keyboard.press("Enter")
    await expect(opener).to_have_attribute("aria-expanded", "true")
    await expect(rows(page)).to_have_count(2)
    await page.keyboard.press("Tab")
    await expect(page.get_by_role("link", name="second")).to_be_focused()
    await page.keyboard.press("Tab")
    await expect(page.get_by_role("button", name="Rename: second")).to_be_focused()
    await page.keyboard.press("Enter")
    field = page.get_by_role("textbox", name="Title")
    await expect(field).to_be_focused()
    await expect(field).to_have_value("second")
    await page.keyboard.type("The blue page")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("button", name="Rename: The blue page")).to_be_focused()
    await page.keyboard.press("Enter")
    await page.keyboard.type("not this")
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("button", name="Rename: The blue page")).to_be_focused()
    assert await shown(page) == ["The blue page", "first"]
    await page.keyboard.press("Tab")
    await page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog", name="Delete this conversation?")
    await expect(dialog).to_contain_text("The blue page")
    await expect(dialog.get_by_role("button", name="Keep it")).to_be_focused()
    await page.keyboard.press("Escape")
    await expect(dialog).to_be_hidden()
    await expect(rows(page)).to_have_count(2)
    await page.get_by_role("button", name="Delete: The blue page").press("Enter")
    await dialog.get_by_role("button", name="Delete").press("Enter")
    await expect(rows(page)).to_have_count(1)
    await expect(page.get_by_role("link", name="first")).to_be_focused()
    gone = await raw.http.get("/conversations/two")
    assert gone.status_code == 404
    await page.keyboard.press("Enter")
    await expect_text(tab, "I am only passback's demo model")


async def test_a_deletion_asked_for_while_the_last_question_closes_is_asked_for(
    tab: Playground, raw: Client
) -> None:
    page = tab.page
    await raw.post("one", user("first"))
    await open_list(page)
    delete = page.get_by_role("button", name="Delete: first")
    await delete.click()
    dialog = page.get_by_role("dialog", name="Delete this conversation?")
    await expect(dialog).to_be_visible()
    # the browser tells of the end of the first question when the second is on its way
    await delete.evaluate("button => { document.querySelector('#delete').close(); button.click() }")
    await dialog.get_by_role("button", name="Delete").click()
    await expect(rows(page)).to_have_count(0)
    assert (await raw.http.get("/conversations/one")).status_code == 404


async def test_a_title_that_the_server_refuses_can_be_mended(tab: Playground, raw: Client) -> None:
    page = tab.page
    await raw.post("one", user("first"))
    await open_list(page)
    await page.get_by_role("button", name="Rename: first").click()
    field = page.get_by_role("textbox", name="Title")
    await field.fill("  ")
    await field.press("Enter")
    await expect(page.locator("#list-status")).to_contain_text("at least one character")
    await expect(field).to_be_focused()
    await field.fill(" The  page ")
    await page.get_by_role("button", name="Save").click()
    await expect(rows(page)).to_contain_text("The page")
    await expect(page.locator("#list-status")).to_have_text("1 conversation")
    assert (await raw.conversation("one"))["title"] == "The page"


async def test_a_title_that_is_being_written_survives_what_others_do(
    tab: Playground, raw: Client
) -> None:
    page = tab.page
    await raw.post("one", user("first"))
    await raw.post("two", user("second"))
    await open_list(page)
    await page.get_by_role("button", name="Rename: first").click()
    field = page.get_by_role("textbox", name="Title")
    await field.fill("half of a")
    await raw.post("three", user("third"))
    await expect(rows(page)).to_have_count(3)
    await raw.post("one", user("it goes to the front"))
    await expect(rows(page).first.get_by_role("textbox", name="Title")).to_be_visible()
    await expect(field).to_be_focused()
    await page.keyboard.press("End")
    await page.keyboard.type(" title")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("link", name="half of a title")).to_be_visible()
    assert await shown(page) == ["half of a title", "third", "second"]


async def test_the_conversation_that_is_shown_can_be_deleted_and_a_new_one_begins(
    tab: Playground, raw: Client
) -> None:
    page = tab.page
    await tab.say("count to 2")
    conversation = page.url.split("=")[1]
    await open_list(page)
    await page.get_by_role("button", name="Delete: count to 2").click()
    await page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    await expect(rows(page)).to_have_count(0)
    await expect(page.locator("#welcome")).to_be_visible()
    await expect(page.get_by_role("alert")).to_have_count(0)
    assert "#" not in page.url
    assert (await raw.http.get(f"/conversations/{conversation}")).status_code == 404
    await tab.say("count to 3")
    await expect(rows(page)).to_have_count(1)
    assert page.url.split("=")[1] != conversation


async def test_a_conversation_that_is_gone_already_leaves_the_list(
    tab: Playground, raw: Client
) -> None:
    page = tab.page
    await raw.post("one", user("first"))
    await open_list(page)
    await page.get_by_role("button", name="Delete: first").click()
    await raw.http.delete("/conversations/one")
    await page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    await expect(rows(page)).to_have_count(0)
    await expect(page.locator("#search")).to_be_focused()


async def test_the_list_is_open_after_a_reload_if_it_was_before(
    tab: Playground, raw: Client
) -> None:
    page, beside = tab.page, tab.page.locator("#conversations")
    await raw.post("one", user("first"))
    await page.reload()
    await expect(beside).to_be_hidden()
    await open_list(page)
    await page.reload()
    await expect(rows(page)).to_have_count(1)
    await expect(page.locator("#show-list")).to_have_attribute("aria-expanded", "true")
    # who reloads goes on to write
    await expect(page.locator("#message")).to_be_focused()
    await raw.post("two", user("second"))
    await expect(rows(page)).to_have_count(2)
    await page.get_by_role("button", name="Close").click()
    await page.reload()
    await expect(page.locator("#message")).to_be_focused()
    await expect(beside).to_be_hidden()


async def test_a_small_screen_begins_with_the_chat(tab: Playground) -> None:
    page, beside = tab.page, tab.page.locator("#conversations")
    await open_list(page)
    # there the list would hide the chat
    await page.set_viewport_size({"width": PHONE[0], "height": PHONE[1]})
    await page.reload()
    await expect(page.locator("#message")).to_be_visible()
    await expect(beside).to_be_hidden()
    await open_list(page)
    await page.get_by_role("button", name="Close").click()
    await page.set_viewport_size({"width": 1280, "height": 800})
    await page.reload()
    await expect(beside).to_be_visible()


async def test_a_title_that_a_model_writes_is_shown_in_the_open_list(browser: Browser) -> None:
    written = {"PASSBACK_TITLES": "model"}
    async with (
        running_server("--model", "demo:fast", environment=written) as server,
        open_playground(browser, server.url) as tab,
    ):
        await open_list(tab.page)
        await tab.say("count to 3")
        await expect(rows(tab.page)).to_contain_text("A talk with the demo model")
        await tab.page.get_by_role("button", name="Rename").click()
        await tab.page.get_by_role("textbox", name="Title").fill("Mine")
        await tab.page.keyboard.press("Enter")
        await expect(rows(tab.page)).to_contain_text("Mine")


# ---------------------------------------------------------------- trust
@pytest.mark.parametrize("part", range(4))
async def test_titles_are_text_wherever_they_are_shown(
    tab: Playground, raw: Client, part: int
) -> None:
    page = tab.page
    titles = PAYLOADS[part::4]
    for index, title in enumerate(titles):
        await raw.post(f"c{index}", user(title))
    await open_list(page)
    await expect(rows(page)).to_have_count(len(titles))
    listed = [(await raw.conversation(f"c{index}"))["title"] for index in range(len(titles))]
    assert await shown(page) == listed[::-1]
    made = await page.evaluate(
        "[...document.querySelectorAll('#conversation-list *')].map(e => e.localName)"
    )
    assert set(made) == {"a", "bdi", "button", "li", "span", "svg", "time", "use"}
    await rows(page).first.get_by_role("button").first.click()
    await expect(page.get_by_role("textbox", name="Title")).to_have_value(listed[-1])
    await page.keyboard.press("Escape")
    await rows(page).first.get_by_role("button").last.click()
    assert await page.locator("#delete-title").text_content() == listed[-1]
    assert await page.locator("#delete-title *").count() == 0
    await page.keyboard.press("Escape")
    assert await page.evaluate("window.pwned") is None


async def test_a_list_of_a_hostile_server_is_text_and_leads_to_conversations_only(
    tab: Playground,
) -> None:
    page = tab.page
    hostile = {
        "id": 'javascript:pwned=1//"><img src=x onerror=pwned=1>',
        "title": "pay \u202e000,1 yap\u0000",
        "updatedAt": "<b>now</b>",
        "status": "__proto__",
    }

    async def answer(route: Route) -> None:
        listed = {"conversations": [hostile], "next": None}
        await route.fulfill(json=listed, headers={"X-Request-Id": "req_1"})

    await page.route(re.compile(r"/conversations\?"), answer)
    await open_list(page)
    await expect(rows(page)).to_have_count(1)
    assert await shown(page) == ["pay \\u202e000,1 yap\\u0000"]
    link = await page.locator("#conversation-list a").evaluate("link => link.href")
    assert link.startswith(f"{tab.url}/#conversation=javascript%3Apwned")
    await page.locator("#conversation-list a").click()
    await expect(page.get_by_role("alert")).to_contain_text("not on the server")
    assert await page.evaluate("window.pwned") is None


# ---------------------------------------------------------------- what cannot be read
async def test_a_list_that_cannot_be_loaded_takes_nothing_from_the_chat(
    tab: Playground, raw: Client
) -> None:
    page = tab.page
    await tab.say("count to 2")
    await open_list(page)
    await expect(rows(page)).to_have_count(1)
    broken = re.compile(r"/conversations\?")
    body = {"code": "internal", "message": "the index is <b>broken</b>", "request_id": "req_1"}
    await page.route(broken, lambda route: route.fulfill(status=500, json=body))
    await tab.say("count to 3")
    status = page.locator("#list-status")
    await expect(status).to_contain_text("The index is <b>broken</b>.")
    # what was read before stays, and so does the conversation
    assert await shown(page) == ["count to 2"]
    assert await tab.questions() == ["count to 2", "count to 3"]
    await tab.say("count to 5")
    await expect_text(tab, "1 2 3 4 5")
    await page.unroute(broken)
    await page.get_by_role("button", name="Try again").click()
    await expect(status).to_have_text("1 conversation")
    await expect(page.get_by_role("button", name="Try again")).to_be_hidden()
    assert len((await raw.http.get("/conversations")).json()["conversations"]) == 1


async def test_a_server_that_shows_no_list_says_so_and_serves_the_chat(tab: Playground) -> None:
    # as a server without keys that others can reach
    body = {"code": "keys_needed", "message": "it needs API keys", "request_id": "req_1"}
    await tab.page.route(
        re.compile(r"/conversations\?"), lambda route: route.fulfill(status=403, json=body)
    )
    await open_list(tab.page)
    await expect(tab.page.locator("#list-status")).to_contain_text("This server shows no list")
    await expect(tab.page.get_by_role("button", name="Try again")).to_be_hidden()
    await tab.say("count to 3")
    await expect_text(tab, "1 2 3 - counted")


@pytest.mark.parametrize("size", [PHONE, (1280, 800)])
async def test_a_server_with_keys_shows_the_conversations_of_the_keys_owner(
    browser: Browser, size: tuple[int, int]
) -> None:
    keys = {"PASSBACK_API_KEYS": ",".join(f"{who}:{key}" for who, key in KEYS.items())}
    async with (
        running_server("--model", "demo:fast", environment=keys) as server,
        client_of(server.url, key=KEYS["ann"]) as ann,
        client_of(server.url, key=KEYS["carl"]) as carl,
        open_playground(browser, server.url, size) as tab,
    ):
        page = tab.page
        await ann.post("one", user("Ann's own"))
        await carl.post("two", user("Carl's own"))
        await open_list(page)
        await expect(page.locator("#list-status")).to_contain_text("asks for an API key")
        await page.get_by_role("button", name="Enter an API key").click()
        field = page.get_by_label("API key")
        await expect(field).to_be_focused()
        await field.fill(KEYS["ann"])
        await field.press("Enter")
        await expect(rows(page)).to_have_count(1)
        assert await shown(page) == ["Ann's own"]
        await page.get_by_role("link", name="Ann's own").click()
        await expect_text(tab, "I am only passback's demo model")


# ---------------------------------------------------------------- screens
@pytest.mark.parametrize("size", [(320, 568), PHONE, (960, 700), (1280, 800)])
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_the_list_fits_each_screen_and_can_be_read(
    browser: Browser, url: str, raw: Client, size: tuple[int, int], scheme: str
) -> None:
    await raw.post("one", user("first"))
    await name(raw, "one", LONG[:200])
    await raw.post("two", user("what is it?"))
    async with open_playground(browser, url, size, color_scheme=scheme) as tab:
        page = tab.page
        await open_list(page)
        await expect(rows(page)).to_have_count(2)
        assert await overflow(page) == []
        await rows(page).last.get_by_role("button").first.click()
        assert await overflow(page) == []
        assert await page.evaluate(POOR_CONTRAST) == []
        await page.keyboard.press("Escape")
        await rows(page).last.get_by_role("button").last.click()
        assert await overflow(page) == []
        assert await page.evaluate(POOR_CONTRAST) == []
        assert await page.evaluate("document.documentElement.scrollWidth") == size[0]


async def test_a_phone_shows_the_list_in_place_of_the_chat(
    browser: Browser, url: str, raw: Client
) -> None:
    await raw.post("one", user("count to 2"))
    async with open_playground(browser, url, PHONE, has_touch=True) as tab:
        page = tab.page
        chat, beside = page.locator(".chat"), page.locator("#conversations")
        await open_list(page)
        await expect(chat).to_be_hidden()
        # no keyboard opens above the list
        await expect(beside).to_be_focused()
        await page.get_by_role("link", name="count to 2").tap()
        await expect(beside).to_be_hidden()
        await expect_text(tab, "1 2 - counted")
        await open_list(page)
        await page.get_by_role("button", name="Events").tap()
        await expect(page.locator(".events")).to_be_visible()
        await expect(beside).to_be_hidden()
        await open_list(page)
        await page.get_by_role("button", name="Close").tap()
        await page.get_by_role("button", name="Chat").tap()
        await open_list(page)
        await page.get_by_role("button", name="New conversation").tap()
        await expect(page.locator("#welcome")).to_be_visible()
        await expect(beside).to_be_hidden()
