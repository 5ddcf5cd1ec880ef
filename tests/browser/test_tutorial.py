"""The page of docs/tutorials/browser-app.md, served from another port, does what the text says."""

import threading
from collections.abc import Generator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.async_api import Browser, Dialog, expect
from tests.support.documents import ADDRESS, blocks_of
from typing_extensions import override

pytestmark = [pytest.mark.anyio, pytest.mark.browser]

TUTORIAL = Path(__file__).resolve().parents[2] / "docs" / "tutorials" / "browser-app.md"


class QuietHandler(SimpleHTTPRequestHandler):
    @override
    def log_message(self, format: str, *args: object) -> None:  # the library's name
        """Write nothing."""


@pytest.fixture
def app_url(tmp_path: Path, fast_url: str) -> Generator[str]:
    [page] = [block.text for block in blocks_of(TUTORIAL.read_text()) if block.language == "html"]
    (tmp_path / "app.html").write_text(page.replace(ADDRESS, fast_url))
    handler = partial(QuietHandler, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as files:
        thread = threading.Thread(target=files.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{files.server_port}/app.html"
        files.shutdown()
        thread.join()


async def test_the_page_runs_its_tool_once_it_is_allowed_and_survives_a_reload(
    browser: Browser, app_url: str
) -> None:
    async def allow(dialog: Dialog) -> None:
        await dialog.accept()

    async with await browser.new_context() as context, await context.new_page() as page:
        page.on("dialog", allow)
        await page.goto(app_url)
        await page.fill("input", "set-color to lightblue")
        await page.press("input", "Enter")
        log = page.locator("pre")
        await expect(log).to_contain_text("The page is lightblue now.")
        await expect(page.locator("body")).to_have_css("background-color", "rgb(173, 216, 230)")
        await page.reload()
        await expect(log).to_contain_text("You: set-color to lightblue")
        await expect(log).to_contain_text("The page is lightblue now.")
