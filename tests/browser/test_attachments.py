"""Attachments of messages, and the media of messages and results, on the page."""

import base64
import json
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest
from playwright.async_api import Browser, FilePayload, Locator, Page, Route, expect
from tests.browser.playground import DESK, PHONE, Playground, expect_text, open_playground
from tests.browser.test_asks import press_tab_to, second_tab
from tests.browser.test_editing import editor, field, refusing
from tests.browser.test_layout import POOR_CONTRAST, overflow
from tests.browser.test_versions import of_message
from tests.support.composer_agents import PIXEL
from tests.support.server import running_server
from tests.support.wire import client_of, user

pytestmark = [pytest.mark.anyio, pytest.mark.browser]

PNG = base64.b64decode(PIXEL)
SVG = b"""<svg xmlns="http://www.w3.org/2000/svg" width="40" height="40" onload="top.pwned=1">
<script>top.pwned = 1; alert(1)</script>
<image href="http://evil.test/pixel.png" width="9" height="9"/>
<rect width="40" height="40" fill="red"/></svg>"""
BIDI = "photo\u202egnp.exe"

PASTE = """([selector, files]) => {
    const data = new DataTransfer();
    for (const {name, type, text} of files) {
        if (name) data.items.add(new File([text], name, {type}));
        else data.items.add(text, type);
    }
    const options = {clipboardData: data, bubbles: true, cancelable: true};
    const target = document.querySelector(selector);
    const paste = new ClipboardEvent('paste', options);
    return {paste: target.dispatchEvent(paste)};
}"""
DROP = """([selector, files]) => {
    const data = new DataTransfer();
    for (const {name, type, text} of files) data.items.add(new File([text], name, {type}));
    const options = {dataTransfer: data, bubbles: true, cancelable: true};
    const target = document.querySelector(selector);
    return ['dragover', 'drop'].map(name => target.dispatchEvent(new DragEvent(name, options)));
}"""
WIDTHS = "list => list.map(image => image.naturalWidth)"


@pytest.fixture
async def page(browser: Browser, fast_url: str) -> AsyncGenerator[Playground]:
    async with open_playground(browser, fast_url) as tab:
        yield tab


def file(name: str, content: bytes = PNG, media_type: str = "image/png") -> FilePayload:
    return {"name": name, "mimeType": media_type, "buffer": content}


def attached(page: Page) -> Locator:
    return page.locator("#attachments").get_by_role("listitem")


def pictures(page: Page) -> Locator:
    return page.locator("#transcript .user .picture img")


async def attach(tab: Playground, *files: FilePayload) -> None:
    await tab.page.set_input_files("#files", files)


async def posted_parts(tab: Playground) -> Sequence[dict[str, Any]]:
    parts: Sequence[dict[str, Any]] = tab.posts[-1]["messages"][0]["content"]
    return parts


# ---------------------------------------------------------------- to attach
@pytest.mark.parametrize("size", [DESK, PHONE])
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_attachments_are_sent_shown_and_there_after_a_reload(
    browser: Browser, fast_url: str, size: tuple[int, int], scheme: str
) -> None:
    async with open_playground(browser, fast_url, size, color_scheme=scheme) as tab:
        page = tab.page
        wide = b'<svg xmlns="http://www.w3.org/2000/svg" width="2000" height="900"/>'
        await attach(tab, file("a.png"), file("notes.txt", b"one", "text/plain"))
        await attach(tab, file("c.wav", b"RIFF", "audio/wav"), file("d.svg", wide, "image/svg+xml"))
        await expect(attached(page)).to_have_count(4)
        await expect(attached(page).first.locator("img")).to_be_visible()
        await expect(attached(page).nth(1)).to_contain_text("notes.txt3 bytes")
        assert await page.evaluate(POOR_CONTRAST) == []
        assert await overflow(page) == []
        await tab.say("What is it?")
        await expect(page.locator("#attachments")).to_be_hidden()
        text, image, notes, sound, _ = await posted_parts(tab)
        assert text == {"type": "text", "text": "What is it?"}
        assert image == {
            "type": "image",
            "url": f"data:image/png;base64,{PIXEL}",
            "mediaType": "image/png",
            "name": "a.png",
        }
        assert (notes["type"], notes["name"], sound["type"]) == ("file", "notes.txt", "audio")
        message = page.locator("#transcript .user")
        for _ in range(2):  # as it was sent, and after a reload
            await expect(pictures(page)).to_have_count(2)
            assert await pictures(page).evaluate_all(WIDTHS) == [1, 2000]
            await expect(message).to_contain_text("What is it?")
            await expect(message.locator(".chip")).to_have_text(
                ["notes.txt3 bytes", "c.wav4 bytes"]
            )
            assert await page.evaluate(POOR_CONTRAST) == []
            assert await overflow(page) == []
            await page.reload()
            await tab.settled()
        await expect(pictures(await second_tab(tab))).to_have_count(2)


async def test_files_come_from_the_clipboard_and_by_drop_anywhere(page: Playground) -> None:
    files = [{"name": "a.txt", "type": "text/plain", "text": "one"}]
    await page.page.evaluate(PASTE, ["#message", files])
    await expect(attached(page.page)).to_have_text(["a.txt3 bytes"])
    # what is dropped beside the field would take the browser away from the page
    assert await page.page.evaluate(DROP, ["#events", files]) == [False, False]
    await expect(attached(page.page)).to_have_count(2)
    await expect(page.page.locator("#message")).to_be_focused()
    # text is pasted as ever, also with a picture of it, and in other fields
    assert await page.page.evaluate(PASTE, ["#message", []]) == {"paste": True}
    text = {"name": "", "type": "text/plain", "text": "words"}
    assert await page.page.evaluate(PASTE, ["#message", [*files, text]]) == {"paste": True}
    assert await page.page.evaluate(PASTE, ["#filter", files]) == {"paste": False}
    assert await page.page.evaluate(PASTE, ["#search", files]) == {"paste": True}
    await page.page.get_by_role("button", name="Remove a.txt").last.click()
    await page.page.press("#message", "Enter")
    await page.settled()
    assert [part["type"] for part in await posted_parts(page)] == ["file", "file"]
    await expect(page.page.locator("#transcript .user .chip")).to_have_count(2)


async def test_attachments_are_removed_and_opened_by_the_keyboard(page: Playground) -> None:
    keyboard = page.page.keyboard
    await attach(page, file("a.png"), file("b.png"), file("c.txt", b"c", "text/plain"))
    await expect(attached(page.page).locator("img")).to_have_count(2)
    await press_tab_to(page.page, page.page.get_by_role("button", name="Open the image b.png"))
    await keyboard.press("Enter")
    viewer = page.page.get_by_role("dialog", name="Image b.png")
    await expect(viewer.get_by_role("img", name="b.png")).to_be_visible()
    await keyboard.press("Escape")
    await expect(viewer).to_be_hidden()
    await keyboard.press("Tab")
    await keyboard.press("Enter")
    await expect(page.page.get_by_role("button", name="Remove c.txt")).to_be_focused()
    await keyboard.press("Enter")
    await expect(page.page.get_by_role("button", name="Remove a.png")).to_be_focused()
    await keyboard.press("Enter")
    await expect(page.page.locator("#message")).to_be_focused()
    await expect(page.page.locator("#send")).to_be_disabled()
    await keyboard.press("Enter")
    assert page.posts == []


# ---------------------------------------------------------------- limits
async def test_what_the_server_would_refuse_is_not_attached(browser: Browser) -> None:
    limits = ("--limits", "attachment_bytes=2000")
    async with (
        running_server("tests.support.composer_agents:cook", *limits) as server,
        open_playground(browser, server.url) as tab,
    ):
        why = tab.page.locator("#attach-why")
        await attach(tab, file("a.png", b""))
        await expect(why).to_have_text("a.png is empty.")
        big = file("big.bin", bytes(2001), "application/zip")
        await attach(tab, big, file("b.png", bytes(1999)), file("c.png", bytes(2)))
        await expect(why).to_have_text(
            "big.bin (2 kB) is too large: a message takes 2 kB of files. "
            "c.png (2 bytes) is too large beside the others: a message takes 2 kB of files. "
            "x:cook takes no images: remove b.png, or choose another model."
        )
        await expect(attached(tab.page)).to_have_count(1)
        await tab.page.fill("#message", "look")
        await tab.page.press("#message", "Enter")
        await expect(tab.page.locator("#send")).to_be_disabled()
        assert tab.posts == []
        await tab.page.get_by_role("button", name="Remove b.png").click()
        await expect(why).to_have_text("")
        await tab.page.press("#message", "Enter")
        await expect_text(tab, "I am the cook.")


async def test_enter_says_why_nothing_is_sent(page: Playground) -> None:
    why = page.page.locator("#unready")
    await expect(why).to_have_text("")
    await page.page.fill("#message", " ")
    await page.page.press("#message", "Enter")
    await expect(why).to_have_text("Nothing to send: write a message, or attach a file.")
    assert await page.page.evaluate(POOR_CONTRAST) == []
    await page.page.evaluate("FileReader.prototype.readAsDataURL = () => {}")
    await attach(page, file("slow.png"))
    await expect(why).to_have_text("")
    await page.page.press("#message", "Enter")
    await expect(why).to_have_text("The attachments are still being read.")
    await page.page.get_by_role("button", name="Remove slow.png").click()
    await expect(why).to_have_text("")
    assert page.posts == []


async def test_a_file_that_cannot_be_read_is_left_out(page: Playground) -> None:
    # as a folder that was dropped, or a file that is gone
    await page.page.evaluate(
        "FileReader.prototype.readAsDataURL = function () {"
        " this.dispatchEvent(new ProgressEvent('error')); }"
    )
    await attach(page, file("folder"))
    await expect(page.page.locator("#attach-why")).to_have_text("folder cannot be read.")
    await expect(page.page.locator("#attachments")).to_be_hidden()
    await page.say("count to 2")
    assert page.posts[0]["messages"][0]["content"] == "count to 2"


@pytest.mark.parametrize("how", ["sent", "queued"])
async def test_a_refused_message_comes_back_with_its_attachments(
    browser: Browser, server_url: str, how: str
) -> None:
    async with open_playground(browser, server_url) as tab:
        page = tab.page
        if how == "queued":
            await tab.write("count to 2000")
            await expect(page.locator(".answer .text")).to_contain_text("2")
        await page.route("**/send-message", refusing(413, "attachment_too_large"))
        await attach(tab, file("a.png"), file("b.txt", b"b", "text/plain"))
        await page.fill("#message", "What is it?")
        await page.press("#message", "Enter")
        if how == "queued":
            await page.get_by_role("button", name="Queue").click()
        edit = page.get_by_role("button", name="Edit the message")
        await expect(edit).to_be_visible()
        await page.fill("#message", "and more")
        await edit.click()
        await expect(page.locator("#message")).to_have_value("What is it?\nand more")
        await expect(attached(page)).to_have_text(["a.png70 bytes", "b.txt1 byte"])
        if how == "queued":
            await page.get_by_role("button", name="Stop").click()
            await tab.settled()
        await page.unroute("**/send-message")
        await page.press("#message", "Enter")
        await tab.settled()
        assert [part.get("name") for part in await posted_parts(tab)] == [None, "a.png", "b.txt"]
        await expect(page.locator("#transcript .user").last.locator(".media li")).to_have_count(2)


async def test_a_message_that_waits_names_its_attachments(
    browser: Browser, server_url: str
) -> None:
    async with open_playground(browser, server_url) as tab:
        await tab.write("count to 400")
        await expect(tab.page.locator(".answer .text")).to_contain_text("2")
        await attach(tab, file("a.png"))
        await tab.page.press("#message", "Enter")
        await tab.page.get_by_role("button", name="Interrupt").click()
        await expect(tab.page.locator("#transcript .user .picture img")).to_have_count(1)
        await tab.settled()
        await expect(tab.page.locator("#queued")).to_be_empty()


async def test_an_edit_keeps_the_attachments(page: Playground) -> None:
    await attach(page, file("a.png"))
    await page.say("What is it?")
    await of_message(page.page, 0).get_by_role("button", name="Edit").click()
    await expect(editor(page.page)).to_contain_text("With it: [a.png]")
    await field(page.page).fill("And now?")
    await field(page.page).press("Enter")
    await expect(page.page.locator("#transcript .user")).to_contain_text("And now?")
    await expect(pictures(page.page)).to_have_count(1)
    await page.settled()


# ---------------------------------------------------------------- hostile media
async def test_hostile_names_and_files_do_nothing(page: Playground) -> None:
    names = [BIDI, "x" * 10_000 + ".png", "<img src=x onerror=pwned=1>.png", "../../a\nb.png"]
    files = [file(name) for name in names]
    svg = file("scripts.svg", SVG, "image/svg+xml")
    html = file("page.html", b"<script>top.pwned=1</script>", "text/html")
    broken = file("broken.png", b"not a png")
    await attach(page, *files, svg, html, broken)
    await expect(attached(page.page)).to_have_count(7)
    await expect(attached(page.page).first).to_contain_text("photo\\u202egnp.exe")
    await page.say("look")
    for _ in range(2):
        await expect(pictures(page.page)).to_have_count(5)
        chips = page.page.locator("#transcript .user .chip")
        await expect(chips).to_have_count(2)
        await expect(chips.last).to_contain_text("broken.png")
        await expect(page.page.get_by_text("cannot be shown")).to_be_visible()
        assert await overflow(page.page) == []
        await page.page.get_by_role("button", name="Open the image scripts.svg").click()
        await expect(page.page.get_by_role("dialog").get_by_role("img")).to_be_visible()
        await page.page.get_by_role("button", name="Close").last.click()
        assert await page.page.evaluate("window.pwned ?? null") is None
        await page.page.reload()
        await page.settled()
    # nothing is opened: files are saved, with a bare name
    async with page.page.expect_download() as saving:
        await page.page.get_by_role("button", name="Save page.html").click()
    saved = await saving.value
    assert saved.suggested_filename == "page.html"
    assert (await saved.path()).read_bytes() == b"<script>top.pwned=1</script>"
    await page.page.get_by_role("button", name="Open the image photo").click()
    async with page.page.expect_download() as saving:
        await page.page.get_by_role("dialog").get_by_role("button", name="Save").click()
    assert (await saving.value).suggested_filename == "photo_gnp.exe"


async def test_a_picture_that_would_take_all_memory_is_not_drawn(page: Playground) -> None:
    # 65,500 pixels in both directions, in a file of some bytes
    huge = b'<svg xmlns="http://www.w3.org/2000/svg" width="65500" height="65500"/>'
    await attach(page, file("huge.svg", huge, "image/svg+xml"))
    await page.say("look")
    await expect(page.page.get_by_role("button", name="Save huge.svg")).to_be_visible()
    await expect(pictures(page.page)).to_have_count(0)


async def test_what_is_elsewhere_is_a_link_and_is_not_loaded(
    page: Playground, fast_url: str
) -> None:
    url = "http://evil.test/picture.png?a=\u202e"
    async with client_of(fast_url) as client:
        parts = [{"type": "image", "url": url}, {"type": "image", "url": "data:text/html,<b>"}]
        refused = await client.http.post(
            "/send-message", json={"conversationId": "far", "messages": [user(parts[1:])]}
        )
        assert refused.status_code == 422
        body = {"conversationId": "far", "messages": [user(parts[:1])]}
        await client.http.post("/send-message", json=body)
    await page.open("#conversation=far")
    await page.page.reload()
    link = page.page.locator("#transcript .user").get_by_role("link")
    await expect(link).to_contain_text("http://evil.test/picture.png?a=\\u202e")
    assert await link.get_attribute("rel") == "noopener noreferrer"
    await expect(pictures(page.page)).to_have_count(0)


# ---------------------------------------------------------------- results
async def test_the_picture_of_a_tools_result_is_shown(browser: Browser) -> None:
    async with (
        running_server("tests.support.composer_agents:photographer") as server,
        open_playground(browser, server.url) as tab,
    ):
        card = tab.page.get_by_label("Tool call camera")
        await tab.say("take one")
        for _ in range(2):
            await expect(card.locator(".result .picture img")).to_have_count(1)
            assert await card.locator(".result img").evaluate_all(WIDTHS) == [1]
            await expect(card.locator(".result pre")).to_be_hidden()
            await tab.page.reload()
            await tab.settled()


async def test_a_result_of_another_client_shows_its_files(page: Playground, fast_url: str) -> None:
    parts = [
        {"type": "text", "text": "two files"},
        {"type": "image", "url": f"data:image/png;base64,{PIXEL}", "name": "a.png"},
        {"type": "file", "data": PIXEL, "mediaType": "application/pdf", "name": "b.pdf"},
    ]

    async def history(route: Route) -> None:
        answer = await route.fetch()
        found = await answer.json()
        for message in found["messages"]:
            if message["role"] == "tool":
                message["content"] = [*parts[:2], {**parts[2], "url": f"data:a/pdf;base64,{PIXEL}"}]
        await route.fulfill(response=answer, body=json.dumps(found))

    await page.say("What time zone am I in?")
    await page.page.route("**/messages?*", history)
    await page.page.reload()
    result = page.page.locator(".tool .result")
    await expect(result.locator("pre")).to_have_text("two files")
    await expect(result.locator("img")).to_have_count(1)
    await expect(result.locator(".chip")).to_contain_text("70 bytes")
