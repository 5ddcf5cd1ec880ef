"""Debugging in the page: time line, owed calls, cuts, server's history, tabs, export, replay."""

import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.async_api import Browser, Page, expect
from tests.browser.playground import Playground, expect_text, open_playground
from tests.support.server import replaying, running_server

pytestmark = [pytest.mark.anyio, pytest.mark.browser]

COUNTED = " ".join(str(number) for number in range(1, 121)) + " - counted by the demo model."
NOTE_STATUS = """() => {
  const status = document.querySelector("#status");
  let before = false;
  window.connectedAgain = 0;
  new MutationObserver(() => {
    const now = status.textContent.includes("Connecting again");
    if (now && !before) window.connectedAgain += 1;
    before = now;
  }).observe(status, { childList: true, characterData: true, subtree: true });
}"""
ASK = 'Ask me to confirm: "Shall we begin?"'
DOOR = {
    "name": "open-door",
    "parameters": {
        "type": "object",
        "properties": {"name": {"type": "string"}},
        "required": ["name"],
    },
}


async def owed_to_another_client(url: str, conversation: str) -> None:
    """A conversation whose call no page can run."""
    body = {
        "conversationId": conversation,
        "messages": [{"role": "user", "content": 'open-door "cellar"'}],
        "tools": [DOOR],
    }
    async with httpx.AsyncClient(base_url=url) as client:
        answer = await client.post("/send-message", json=body)
        assert "tool-call-end" in answer.text


async def exported(page: Page, folder: Path) -> Path:
    async with page.expect_download() as waiting:
        await page.get_by_role("button", name="Export").click()
    file = folder / "run.json"
    await (await waiting.value).save_as(file)
    return file


def kinds(page: Page) -> Any:
    return page.locator("#events .kind")


# ---------------------------------------------------------------- the time line
async def test_pieces_are_one_line_that_can_be_opened(playground: Playground) -> None:
    page = playground.page
    await playground.say("count to 30")
    await expect(kinds(page)).to_have_text(
        [
            "POST /send-message", "HTTP 200", "run-start", "message", "text", "usage",
            "run-end", "[DONE]",
        ]
    )  # fmt: skip
    line = page.locator("#events .line").nth(4)
    await expect(line.locator(".pieces")).to_have_text(re.compile(r"^\u00d7\d\d"))
    await expect(line.locator("time")).to_have_text(re.compile(r"^\+\d+\.\d{3} s … \d+\.\d{3} s$"))
    await line.locator("summary").click()
    shown = await line.locator("pre").inner_text()
    assert shown.endswith("28 29 30 - counted by the demo model.")
    assert re.match(r"id: run_\w+\.\d+-\d+ … run_\w+\.\d+-\d+\n\d+ pieces, joined:\n\n1 2 3", shown)


async def test_the_filter_finds_a_word_of_any_event_and_is_undone(playground: Playground) -> None:
    page = playground.page
    await playground.say("count to 30")
    search = page.get_by_label("Filter the events")
    await search.fill("RUN-END")
    await expect(kinds(page)).to_have_text(["run-end"])
    await search.fill("counted by")
    await page.get_by_label("Merge pieces").check()
    await search.fill("nowhere to be found")
    await expect(kinds(page)).to_have_count(0)
    await search.fill("")
    await expect(kinds(page)).to_have_count(8)


async def test_a_line_that_is_open_stays_open_while_it_grows(playground: Playground) -> None:
    page = playground.page
    await playground.write("count to 120")
    line = page.locator("#events .line").nth(4)
    await line.locator("summary").click()
    await playground.settled()
    assert (await line.locator("pre").inner_text()).endswith(COUNTED)


# ---------------------------------------------------------------- the connection
@pytest.mark.promise("P3")
async def test_a_connection_that_is_cut_by_hand_loses_nothing(playground: Playground) -> None:
    page = playground.page
    button = page.get_by_role("button", name="Cut the connection")
    await expect(button).to_be_disabled()
    # the page may be connected again before anybody looks
    await page.evaluate(NOTE_STATUS)
    await playground.write("count to 120")
    for cuts, reached in enumerate(("5 6 7", "50 51 52"), 1):
        await expect_text(playground, reached)
        await button.click()
        await page.wait_for_function("cuts => window.connectedAgain >= cuts", arg=cuts)
    await playground.settled()
    assert await playground.answers() == [COUNTED]
    assert len(playground.posts) == 1
    lost = kinds(page).filter(has_text="connection lost")
    await expect(lost).to_have_count(2)
    sent = page.locator('#events .line[data-direction="sent"]')
    await expect(sent).to_have_count(3)
    await sent.last.locator("summary").click()
    await expect(sent.last.locator("pre")).to_contain_text("Last-Event-ID: run_")


# ---------------------------------------------------------------- owed calls
@pytest.mark.promise("P1")
async def test_a_call_that_is_owed_is_a_card_and_any_page_can_answer_it(
    playground: Playground,
) -> None:
    page = playground.page
    await owed_to_another_client(playground.url, "door-1")
    await playground.open("#conversation=door-1")
    await page.reload()
    card = page.locator(".tool")
    await expect(card).to_contain_text("waits for another client")
    assert await playground.tool_cards() == [
        {
            "name": "open-door",
            "state": "waits for another client",
            "arguments": '{"name": "cellar"}',
        }
    ]
    await card.get_by_label("Result of the call").fill("it is open")
    await card.get_by_role("button", name="Answer", exact=True).click()
    await expect_text(playground, "it is open")
    await playground.settled()
    (post,) = playground.posts
    assert (post["messages"][0]["content"], "tools" in post) == ("it is open", False)
    await expect(card.get_by_role("button")).to_have_count(0)


async def test_a_call_can_be_answered_as_failed(playground: Playground) -> None:
    page = playground.page
    await owed_to_another_client(playground.url, "door-2")
    await playground.open("#conversation=door-2")
    await page.reload()
    await page.get_by_label("Result of the call").fill("it is stuck")
    await page.get_by_label("The tool failed").check()
    await page.get_by_role("button", name="Answer", exact=True).click()
    await playground.settled()
    (card,) = await playground.tool_cards()
    assert (card["state"], card["error"]) == ("failed", "it is stuck")
    assert playground.posts[0]["messages"][0]["isError"] is True


@pytest.mark.promise("P9")
async def test_a_second_answer_is_refused_and_the_servers_is_shown(
    browser: Browser, playground: Playground
) -> None:
    await owed_to_another_client(playground.url, "door-3")
    await playground.hear_nothing_of_others()
    async with open_playground(browser, playground.url) as device:
        for each, result in ((device, "first"), (playground, "second")):
            await each.open("#conversation=door-3")
            await each.page.reload()
            await each.page.get_by_label("Result of the call").fill(result)
        await device.page.get_by_role("button", name="Answer", exact=True).click()
        await expect_text(device, "first")
    await playground.page.get_by_role("button", name="Answer", exact=True).click()
    problem = playground.page.get_by_role("alert")
    await expect(problem).to_contain_text("Somebody else answered first")
    await expect(problem).to_contain_text("tool_result_conflict")
    await problem.get_by_role("button", name="Show what the server has").click()
    await expect_text(playground, '"first"')
    await expect(problem).to_have_count(0)


# ---------------------------------------------------------------- tabs
async def test_two_tabs_show_one_run_and_only_the_one_that_began_it_runs_the_tools(
    playground: Playground,
) -> None:
    page = playground.page
    await playground.say("hi")
    other = await page.context.new_page()
    await other.goto(page.url)
    await expect(other.locator(".answer")).to_be_visible()
    await playground.write("count to 120")
    await expect(other.locator(".answer").last).to_contain_text("1 2 3 4")
    await playground.settled()
    await expect(other.locator(".answer .text").last).to_have_text(COUNTED)
    await expect(other.locator("#stop")).to_be_hidden()
    await playground.write(ASK)
    await expect(page.get_by_role("dialog")).to_be_visible()
    await expect(other.locator(".tool")).to_contain_text("waits for another client")
    await expect(other.get_by_role("dialog")).to_be_hidden()
    await page.get_by_role("dialog").get_by_role("button", name="Confirm").click()
    await playground.settled()
    await expect(other.locator(".answer .text").last).to_contain_text('"confirmed"')


async def test_another_tab_may_answer_and_the_first_one_shows_it(playground: Playground) -> None:
    page = playground.page
    await playground.say("hi")
    other = await page.context.new_page()
    await other.goto(page.url)
    await expect(other.locator(".answer")).to_be_visible()
    await playground.write(ASK)
    dialog = page.get_by_role("dialog")
    await expect(dialog).to_be_visible()
    await other.get_by_label("Result of the call").fill("declined")
    await other.get_by_role("button", name="Answer", exact=True).click()
    await expect(other.locator(".answer .text").last).to_contain_text('"declined"')
    await dialog.get_by_role("button", name="Confirm").click()
    await expect(page.get_by_role("alert")).to_contain_text("Somebody else answered first")


# ---------------------------------------------------------------- the history
async def test_the_history_is_shown_as_the_server_has_it(playground: Playground) -> None:
    page = playground.page
    await playground.say("Change background color to blue.")
    await page.get_by_role("button", name="History").click()
    dialog = page.get_by_role("dialog", name="The history as the server has it")
    lines = dialog.locator(".line")
    await expect(lines.locator(".kind")).to_have_text(
        ["the conversation", "1 user", "2 assistant", "3 tool", "4 assistant"]
    )
    await lines.nth(3).locator("summary").click()
    shown = json.loads(await lines.nth(3).locator("pre").inner_text())
    assert shown["content"] == "Background color successfully changed to: blue"
    await page.keyboard.press("Escape")
    await expect(dialog).to_be_hidden()


async def test_a_missing_history_is_shown_as_missing(playground: Playground) -> None:
    page = playground.page
    await page.get_by_role("button", name="History").click()
    note = page.locator("#record-note")
    await expect(note).to_contain_text("This conversation is not on the server")


# ---------------------------------------------------------------- export and replay
async def test_an_export_is_played_back_without_the_server(
    browser: Browser, server_url: str, tmp_path: Path
) -> None:
    async with open_playground(browser, server_url) as playground:
        await playground.say("Change background color to blue.")
        await expect(playground.page.locator(".text[aria-busy]")).to_have_count(0)
        shown = await playground.page.locator("#transcript").inner_text()
        file = await exported(playground.page, tmp_path)
    recording = json.loads(file.read_text())
    assert (recording["format"], recording["version"]) == ("passback-run", 1)
    first, second = recording["exchanges"]
    assert first["request"]["body"]["messages"][0]["content"] == "Change background color to blue."
    assert second["request"]["body"]["messages"][0]["role"] == "tool"
    assert set(first["request"]["headers"]) == {"accept", "idempotency-key"}
    assert first["response"]["headers"]["x-run-id"].startswith("run_")
    times = [frame["at"] for frame in first["frames"]]
    assert times == sorted(times)
    assert first["frames"][-1]["data"] == "[DONE]"
    async with replaying(file, "--speed", "10") as url, open_playground(browser, url) as playground:
        await playground.say("Change background color to blue.")
        await expect(playground.page.locator(".text[aria-busy]")).to_have_count(0)
        assert await playground.page.locator("#transcript").inner_text() == shown
        assert await playground.background() == "rgb(0, 0, 255)"


async def test_an_export_has_no_key(browser: Browser, tmp_path: Path) -> None:
    secret = "open-sesame-0123456789"
    async with (
        running_server("--api-keys", f"alice:{secret}") as server,
        open_playground(browser, server.url) as playground,
    ):
        page = playground.page
        await page.context.add_cookies([{"name": "session", "value": "c00kie", "url": server.url}])
        await playground.say("hi")
        await page.get_by_label("API key").fill(secret)
        await page.get_by_label("API key").press("Enter")
        await expect_text(playground, "Hello!")
        await playground.settled()
        text = (await exported(page, tmp_path)).read_text()
    assert "Hello!" in "".join(
        json.loads(frame["data"]).get("content", "")
        for exchange in json.loads(text)["exchanges"]
        for frame in exchange["frames"]
        if frame["data"] != "[DONE]"
    )
    for word in (secret, "c00kie", '"authorization', '"cookie'):
        assert word not in text.lower()


async def test_without_a_run_there_is_nothing_to_export(playground: Playground) -> None:
    page = playground.page
    await page.get_by_role("button", name="Export").click()
    await expect(page.locator("#status")).to_contain_text("no whole run to export")
