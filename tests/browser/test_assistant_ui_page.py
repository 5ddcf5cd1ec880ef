"""assistant-ui's AG-UI runtime, as published, in a real page against a real server."""

from collections.abc import AsyncGenerator
from pathlib import Path
from uuid import uuid4

import anyio
import pytest
from playwright.async_api import Browser, Page, expect
from tests.support.ag_ui_client import FOLDER
from tests.support.programs import missing, program

pytestmark = [pytest.mark.anyio, pytest.mark.browser, pytest.mark.node]


@pytest.fixture(scope="session")
async def thread_script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page's script with all packages."""
    node = program("node", variable="TEST_NODE")
    packages = FOLDER / "node_modules"
    if not (packages / "@assistant-ui" / "react-ag-ui").exists():
        missing("@assistant-ui/react-ag-ui in tests/js/node_modules")
    script = tmp_path_factory.mktemp("page") / "page.js"
    flags = ["--bundle", "--jsx=automatic", '--define:process.env.NODE_ENV="production"']
    esbuild, source = packages / "esbuild" / "bin" / "esbuild", FOLDER / "assistant-ui-page.jsx"
    with anyio.fail_after(60):
        await anyio.run_process([node, str(esbuild), str(source), *flags, f"--outfile={script}"])
    return script


class ThreadPage:
    """The page of one thread."""

    def __init__(self, page: Page, url: str, script: Path) -> None:
        self.page = page
        self.articles = page.get_by_role("article")
        self.status = page.get_by_role("status")
        self._url, self._script = url, script
        self._thread = f"thread-{uuid4()}"

    async def open(self) -> None:
        """Open the page, or open it again."""
        await self.page.goto(f"{self._url}/app")
        await self.page.add_script_tag(path=self._script)
        options = {"url": f"{self._url}/ag-ui", "threadId": self._thread}
        await self.page.evaluate("(options) => window.startThread(options)", options)

    async def send(self, words: str) -> None:
        await self.page.get_by_label("Message").fill(words)
        await self.page.get_by_role("button", name="Send").click()

    async def said(self) -> list[str]:
        return [text.strip() for text in await self.articles.all_inner_texts()]


@pytest.fixture
async def thread(
    browser: Browser, server_url: str, thread_script: Path
) -> AsyncGenerator[ThreadPage]:
    async with await browser.new_page() as page:
        body = "<!doctype html><title>thread</title><div id=root></div>"
        await page.route(
            f"{server_url}/app", lambda route: route.fulfill(body=body, content_type="text/html")
        )
        one = ThreadPage(page, server_url, thread_script)
        await one.open()
        yield one


async def test_a_thread_goes_on(thread: ThreadPage) -> None:
    await thread.send("count to 2")
    await expect(thread.articles.last).to_contain_text("1 2 - counted")
    await expect(thread.status).to_have_text("ready")
    await thread.send("count to 3")
    await expect(thread.articles.last).to_contain_text("1 2 3 - counted")
    assert len(await thread.said()) == 4


async def test_a_frontend_tool_is_made_and_the_answer_goes_on(thread: ThreadPage) -> None:
    await thread.send("set-color to blue")
    await expect(thread.articles.last).to_have_text('Done. set-color answered: "it is blue".')
    await expect(thread.status).to_have_text("ready")
    assert await thread.page.evaluate("document.body.style.background") == "blue"
    await expect(thread.page.get_by_role("alert")).to_have_text("")


async def test_a_page_that_is_loaded_again_has_the_thread_and_goes_on_with_it(
    thread: ThreadPage,
) -> None:
    await thread.send("count to 2")
    await expect(thread.articles.last).to_contain_text("1 2 - counted")
    await expect(thread.status).to_have_text("ready")
    said = await thread.said()
    await thread.open()
    await expect(thread.articles).to_have_count(2)
    assert await thread.said() == said
    await thread.send("count to 3")
    await expect(thread.articles.last).to_contain_text("1 2 3 - counted")
    assert (await thread.said())[:2] == said
