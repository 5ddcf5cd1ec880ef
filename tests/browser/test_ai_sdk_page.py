"""`useChat` of the published AI SDK in a real page, against a real server."""

from collections.abc import AsyncGenerator
from pathlib import Path
from uuid import uuid4

import anyio
import pytest
from playwright.async_api import Browser, Page, expect
from tests.support.ai_sdk import API, FOLDER
from tests.support.programs import missing, program

pytestmark = [pytest.mark.anyio, pytest.mark.browser, pytest.mark.node]


@pytest.fixture(scope="session")
async def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page's script with all packages."""
    node = program("node", variable="TEST_NODE")
    esbuild = FOLDER / "node_modules" / "esbuild" / "bin" / "esbuild"
    if not esbuild.exists():
        missing("esbuild in tests/js/node_modules")
    script = tmp_path_factory.mktemp("page") / "page.js"
    flags = ["--bundle", "--jsx=automatic", '--define:process.env.NODE_ENV="production"']
    source = str(FOLDER / "ai-sdk-page.jsx")
    with anyio.fail_after(60):
        await anyio.run_process([node, str(esbuild), source, *flags, f"--outfile={script}"])
    return script


class ChatPage:
    """The page of one chat."""

    def __init__(self, page: Page, url: str, bundle: Path) -> None:
        self.page = page
        self.answer = page.get_by_role("article", name="assistant")
        self.status = page.get_by_role("status")
        self._url, self._bundle = url, bundle
        self._chat = {"api": API, "id": f"chat-{uuid4()}"}

    async def open(self) -> None:
        """Open the page, or open it again."""
        await self.page.goto(f"{self._url}/app")
        await self.page.add_script_tag(path=self._bundle)
        await self.page.evaluate("(chat) => window.startChat(chat)", self._chat)

    async def send(self, words: str) -> None:
        await self.page.get_by_label("Message").fill(words)
        await self.page.get_by_role("button", name="Send").click()

    async def press(self, name: str) -> None:
        await self.page.get_by_role("button", name=name, exact=True).click()


@pytest.fixture
async def chat(browser: Browser, server_url: str, bundle: Path) -> AsyncGenerator[ChatPage]:
    async with await browser.new_page() as page:
        # a page of the server's own origin, as an app that stands behind the same proxy has it
        body = "<!doctype html><title>chat</title><div id=root></div>"
        await page.route(
            f"{server_url}/app", lambda route: route.fulfill(body=body, content_type="text/html")
        )
        one = ChatPage(page, server_url, bundle)
        await one.open()
        yield one


async def test_a_tool_is_made_in_the_page_and_the_answer_goes_on(chat: ChatPage) -> None:
    await chat.send("set-color to blue")
    await expect(chat.answer).to_have_text('Done. set-color answered: "it is blue".')
    await expect(chat.status).to_have_text("ready")
    assert await chat.page.evaluate("document.body.style.background") == "blue"
    await chat.press("Regenerate")
    await expect(chat.status).to_have_text("ready")
    await expect(chat.answer).to_have_text('Done. set-color answered: "it is blue".')


async def test_a_page_that_is_loaded_again_resumes_the_answer(chat: ChatPage) -> None:
    await chat.send("count to 120")
    await expect(chat.answer).to_contain_text("3")
    await chat.open()
    await expect(chat.answer).to_contain_text("1 2 3")
    await expect(chat.status).to_have_text("streaming")
    await expect(chat.answer).to_contain_text("119 120", timeout=30_000)
    await expect(chat.status).to_have_text("ready")


async def test_a_page_that_is_loaded_again_has_the_chat_and_goes_on_with_it(chat: ChatPage) -> None:
    await chat.send("set-color to green")
    await expect(chat.answer).to_have_text('Done. set-color answered: "it is green".')
    await chat.send("count to 2")
    await expect(chat.answer.last).to_contain_text("1 2 - counted")
    await expect(chat.status).to_have_text("ready")
    said = await chat.page.locator("article").all_inner_texts()
    await chat.open()
    await expect(chat.page.locator("article")).to_have_text(said)
    await expect(chat.status).to_have_text("ready")
    await chat.press("Regenerate")
    await expect(chat.status).to_have_text("ready")
    await expect(chat.page.locator("article")).to_have_text(said)
    await chat.send("count to 3")
    await expect(chat.answer.last).to_contain_text("1 2 3 - counted")
    assert await chat.page.locator("article").count() == len(said) + 2


async def test_stop_ends_the_run_and_the_chat_goes_on(chat: ChatPage) -> None:
    await chat.send("count to 900")
    await expect(chat.answer).to_contain_text("3")
    await chat.press("Stop")
    await expect(chat.status).to_have_text("ready")
    await expect(chat.answer).not_to_contain_text("900")
    await chat.send("count to 2")
    await expect(chat.answer.last).to_contain_text("1 2 - counted")
    await expect(chat.status).to_have_text("ready")


async def test_a_refusal_is_shown_as_a_sentence(chat: ChatPage) -> None:
    await chat.send(" ")
    await expect(chat.page.get_by_role("alert")).to_have_text(
        "messages.0: the content of a message is empty"
    )
