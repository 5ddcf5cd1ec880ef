"""A run in each protocol of the server, beside the chat, in Chromium against a real server."""

import json
import re
from pathlib import Path

import httpx
import pytest
from playwright.async_api import Browser, Locator, Page, expect
from tests.browser.playground import PHONE, Playground, expect_text, open_playground
from tests.browser.test_layout import POOR_CONTRAST, overflow
from tests.browser.test_waterfall import show_panel
from tests.support.server import running_server

pytestmark = [pytest.mark.anyio, pytest.mark.browser]

LASTS = {
    "/send-message (AG-Kit)": "[DONE]",
    "AG-UI": "RUN_FINISHED",
    "AI SDK": "[DONE]",
    "Agent API": "response completed",
    "Chat socket": "chat:end",
}
KEY = "open-sesame-0123456789"


def kinds(page: Page) -> Locator:
    return page.locator("#frames .kind")


async def choose(page: Page, wire: str, run: str = "Answer 1") -> None:
    await page.get_by_label("Run", exact=True).select_option(run)
    await page.get_by_label("Protocol", exact=True).select_option(wire)
    await expect(kinds(page).first).to_be_visible()


async def conversation_of(page: Page) -> str:
    return str(await page.evaluate("location.hash.split('=')[1]"))


async def test_each_run_is_shown_as_each_protocol_sends_it(browser: Browser, fast_url: str) -> None:
    async with open_playground(browser, fast_url) as playground:
        page = playground.page
        for word in ("hi", "count to 30", "hi"):
            await playground.say(word)
        await show_panel(page, "Protocols")
        wires = page.get_by_label("Protocol", exact=True).locator("option")
        await expect(wires).to_have_text([*LASTS])
        for wire, last in LASTS.items():
            for run in ("Answer 3", "Answer 2"):
                await choose(page, wire, run)
                await expect(kinds(page).last).to_have_text(last)
                text = " ".join(await page.locator("#frames .preview").all_text_contents())
                assert ("28 29 30" in text) == (run == "Answer 2"), wire
                assert await page.locator("#wire-note").inner_text() == ""
        # a piece of text is one line, which can be opened
        await choose(page, "AG-UI", "Answer 2")
        line = page.locator("#frames .line", has_text="TEXT_MESSAGE_CONTENT")
        await line.locator("summary").click()
        await expect(line.locator("pre")).to_contain_text("28 29 30 - counted by the demo model.")
        await expect(page.locator("#frames .kind").first).to_have_text(
            re.compile(r"^GET /ag-ui/threads/[\w-]+/stream$")
        )


async def test_the_first_run_on_the_chat_socket_lacks_its_beginning_and_says_so(
    browser: Browser, fast_url: str
) -> None:
    async with open_playground(browser, fast_url) as playground:
        page = playground.page
        await playground.say("hi")
        await playground.say("hi")
        await show_panel(page, "Protocols")
        await choose(page, "Chat socket", "Answer 1")
        await expect(kinds(page).last).to_have_text("chat:end")
        assert "chat:start" not in await kinds(page).all_text_contents()
        note = page.locator("#wire-note")
        await expect(note).to_contain_text("cannot send this run's chat:start again")
        await choose(page, "Chat socket", "Answer 2")
        await expect(note).to_have_text("")
        await expect(kinds(page).filter(has_text="chat:start")).to_have_count(1)


async def test_another_choice_leaves_a_socket_that_opens_without_a_complaint(
    browser: Browser, fast_url: str
) -> None:
    async with open_playground(browser, fast_url) as playground:
        page = playground.page
        await playground.say("hi")
        await show_panel(page, "Protocols")
        await choose(page, "AG-UI")
        await page.locator("#wire").evaluate(
            """(wire) => {
              for (const name of ["chat", "chat", "ai-sdk"]) {
                wire.value = name;
                wire.dispatchEvent(new Event("change"));
              }
            }"""
        )
        await expect(kinds(page).last).to_have_text("[DONE]")


async def test_a_run_that_goes_on_is_followed(playground: Playground) -> None:
    page = playground.page
    await playground.write("count to 120")
    await expect_text(playground, "5 6 7")
    await show_panel(page, "Protocols")
    await choose(page, "AI SDK")
    await expect(page.locator("#frames")).to_contain_text("60 61 62")
    await expect(kinds(page).last).to_have_text("[DONE]")
    await playground.settled()


async def test_frames_are_saved_as_they_came(
    browser: Browser, fast_url: str, tmp_path: Path
) -> None:
    async with open_playground(browser, fast_url) as playground:
        page = playground.page
        await show_panel(page, "Protocols")
        await expect(page.locator("#wire-note")).to_contain_text("send a message first")
        save = page.get_by_role("button", name="Save frames")
        await expect(save).to_be_disabled()
        await playground.say("hi")
        await page.reload()  # what was sent before is not in the list of this page
        await expect_text(playground, "Hello!")
        await show_panel(page, "Protocols")
        await choose(page, "AG-UI", "Newest run")
        await expect(kinds(page).last).to_have_text("RUN_FINISHED")
        async with page.expect_download() as waiting:
            await save.click()
        await (await waiting.value).save_as(tmp_path / "frames.json")
        conversation = await conversation_of(page)
    file = json.loads((tmp_path / "frames.json").read_text())
    assert (file["format"], file["wire"]) == ("passback-frames", "ag-ui")
    assert file["request"].startswith(f"/ag-ui/threads/{conversation}/stream?runId=run_")
    async with httpx.AsyncClient(base_url=fast_url) as client:
        sent = await client.get(file["request"])
    data = re.findall(r"^id: (.*)\ndata: (.*)$", sent.text, re.MULTILINE)
    assert [(each["id"], each["data"]) for each in file["frames"]] == data


async def test_a_run_that_is_gone_is_shown_as_the_refusal_of_its_protocol(
    browser: Browser, fast_url: str
) -> None:
    async with open_playground(browser, fast_url, PHONE) as playground:
        page = playground.page
        await playground.say("hi")
        await show_panel(page, "Protocols")
        await choose(page, "AG-UI")
        async with httpx.AsyncClient(base_url=fast_url) as client:
            await client.delete(f"/conversations/{await conversation_of(page)}")
        for wire, code in {
            "AI SDK": "there is no such conversation",
            "AG-UI": "run_not_found",
            "Chat socket": "conversation_not_found",
        }.items():
            await choose(page, wire)
            await expect(page.locator("#frames")).to_contain_text(code)
        assert await overflow(page) == []


async def test_only_what_is_served_is_offered_and_a_key_is_presented(browser: Browser) -> None:
    flags = ("--api-keys", f"alice:{KEY}", "--wires", "send_message,rest,chat,page")
    async with (
        running_server("--model", "demo:fast", *flags) as server,
        open_playground(browser, server.url, color_scheme="dark") as playground,
    ):
        page = playground.page
        await playground.say("hi")
        await page.get_by_label("API key").fill(KEY)
        await page.get_by_label("API key").press("Enter")
        await expect_text(playground, "Hello!")
        await playground.settled()
        await show_panel(page, "Protocols")
        wires = page.get_by_label("Protocol", exact=True).locator("option")
        await expect(wires).to_have_text(["/send-message (AG-Kit)", "Chat socket"])
        for wire in ("Chat socket", "/send-message (AG-Kit)"):
            await choose(page, wire)
            await expect(kinds(page).last).to_have_text(LASTS[wire])
        assert KEY not in await page.locator(".events").inner_text()
        assert await page.evaluate(POOR_CONTRAST) == []
