"""The page of docs/tutorials/browser-app.md, served from another port, does what the text says."""

import re
import threading
from collections.abc import Generator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.async_api import Browser, Dialog, Page, expect
from tests.support.documents import ADDRESS, blocks_of
from typing_extensions import override

pytestmark = [pytest.mark.anyio, pytest.mark.browser]

TUTORIAL = Path(__file__).resolve().parents[2] / "docs" / "tutorials" / "browser-app.md"


class QuietHandler(SimpleHTTPRequestHandler):
    @override
    def log_message(self, format: str, *args: object) -> None:  # the library's name
        """Write nothing."""


def page_of_tutorial() -> str:
    [page] = [block.text for block in blocks_of(TUTORIAL.read_text()) if block.language == "html"]
    return page


@pytest.fixture
def app_url(tmp_path: Path, fast_url: str) -> Generator[str]:
    yield from serve_page(tmp_path, fast_url)


@pytest.fixture
def slow_app_url(tmp_path: Path, server_url: str) -> Generator[str]:
    yield from serve_page(tmp_path, server_url)


def serve_page(folder: Path, server_url: str) -> Generator[str]:
    (folder / "app.html").write_text(page_of_tutorial().replace(ADDRESS, server_url))
    handler = partial(QuietHandler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as files:
        thread = threading.Thread(target=files.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{files.server_port}/app.html"
        files.shutdown()
        thread.join()


def test_the_page_is_a_small_one() -> None:
    script = page_of_tutorial().split("<script", 1)[1].split("</script>")[0].splitlines()[1:]
    assert 20 < len(script) <= 30


async def test_the_page_runs_its_tools_once_they_are_allowed_and_survives_a_reload(
    browser: Browser, app_url: str
) -> None:
    asked: list[str] = []

    async def allow(dialog: Dialog) -> None:
        asked.append(dialog.message)
        await dialog.accept()

    async with await browser.new_context(timezone_id="Asia/Tokyo") as context:
        page = await context.new_page()
        page.on("dialog", allow)
        await page.goto(app_url)
        await say(page, "set-color to lightblue")
        log = page.locator("pre")
        await expect(log).to_contain_text("The page is lightblue now.")
        await expect(page.locator("body")).to_have_css("background-color", "rgb(173, 216, 230)")
        await say(page, "use get-time-zone")
        await expect(log).to_contain_text('get-time-zone answered: "Asia/Tokyo".')
        assert len(asked) == 1
        await page.reload()
        await expect(log).to_contain_text("user: set-color to lightblue")
        await expect(log).to_contain_text("The page is lightblue now.")
        await expect(log).to_contain_text('get-time-zone answered: "Asia/Tokyo".')


async def test_a_reload_continues_the_answer_that_the_text_names(
    browser: Browser, slow_app_url: str
) -> None:
    [words] = re.findall(r"`(count to \d+)`", TUTORIAL.read_text())
    async with await browser.new_page() as page:
        await page.goto(slow_app_url)
        await say(page, words)
        log = page.locator("pre")
        await expect(log).to_contain_text("1 2 3")
        for _ in range(2):
            await page.reload()
            await expect(log).to_contain_text(f"user: {words}")
            await expect(page.get_by_role("button", name="Stop")).to_be_enabled()
        await expect(log).to_contain_text("60 61 62")
        await page.get_by_role("button", name="Stop").click()
        await expect(page.get_by_role("button", name="Stop")).to_be_disabled()
        await expect(log).not_to_contain_text("counted")


async def test_an_empty_field_posts_nothing(browser: Browser, app_url: str) -> None:
    async with await browser.new_page() as page:
        posts: list[str] = []
        page.on("request", lambda asked: posts.append(asked.method))
        await page.goto(app_url)
        await page.press("input", "Enter")
        await page.get_by_role("button", name="Send").click()
        await say(page, "count to 3")
        await expect(page.locator("pre")).to_have_text(
            re.compile(r"^user: count to 3\s+assistant: 1 2 3 - counted")
        )
        assert posts.count("POST") == 1


async def test_a_second_tab_shows_the_answer_and_stops_it(
    browser: Browser, slow_app_url: str
) -> None:
    async with await browser.new_context() as context:
        one = await context.new_page()
        await one.goto(slow_app_url)
        await say(one, "count to 400")
        await expect(one.locator("pre")).to_contain_text("1 2 3")
        address = one.url
        other = await context.new_page()
        await other.goto(address)
        await expect(other.locator("pre")).to_contain_text("user: count to 400")
        await expect(other.locator("pre")).to_contain_text("1 2 3 4 5 6")
        await other.get_by_role("button", name="Stop").click()
        for page in (one, other):
            await page.bring_to_front()
            await expect(page.get_by_role("button", name="Stop")).to_be_disabled()
            await expect(page.locator("pre")).not_to_contain_text("400 -")
        await say(one, "count to 3")
        for page in (one, other):
            await page.bring_to_front()
            await expect(page.locator("pre")).to_contain_text("user: count to 3")
            await expect(page.locator("pre")).to_contain_text("1 2 3 - counted")


async def say(page: Page, words: str) -> None:
    await page.fill("input", words)
    await page.press("input", "Enter")
