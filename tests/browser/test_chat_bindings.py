"""The bindings of `Chat` to React, Vue and Svelte, in the published frameworks, in a real page."""

from collections.abc import AsyncGenerator
from pathlib import Path
from uuid import uuid4

import anyio
import pytest
from playwright.async_api import Browser, Page, Request, expect
from tests.support.programs import missing, program

pytestmark = [pytest.mark.anyio, pytest.mark.browser, pytest.mark.node]

FOLDER = Path(__file__).resolve().parents[1] / "js"
FRAMEWORKS = ("react", "vue", "svelte", "svelte-4")
COUNTED = "1 2 3 - counted by the demo model."


@pytest.fixture(scope="session")
async def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page's script with all packages."""
    node = program("node", variable="TEST_NODE")
    for name in ("esbuild", "vue", "svelte", "svelte-4"):
        if not (FOLDER / "node_modules" / name).exists():
            missing(f"{name} in tests/js/node_modules")
    script = tmp_path_factory.mktemp("page") / "bindings.js"
    with anyio.fail_after(90):
        await anyio.run_process([node, str(FOLDER / "bindings-build.mjs"), str(script)])
    return script


class BoundPage:
    """A page with one chat, in one of the frameworks."""

    def __init__(self, page: Page, framework: str, url: str, bundle: Path) -> None:
        self.page = page
        self.url = url
        self.entries = page.get_by_role("article")
        self.status = page.get_by_role("status")
        self.id = page.get_by_role("code")
        self.errors: list[str] = []
        self.watches: list[Request] = []
        self._framework, self._bundle = framework, bundle
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on(
            "console",
            lambda said: self.errors.append(said.text) if said.type == "error" else None,
        )
        page.on("request", self._note)
        page.on("requestfailed", self._forget)

    def _note(self, request: Request) -> None:
        if "/events" in request.url:
            self.watches.append(request)

    def _forget(self, request: Request) -> None:
        if request in self.watches:
            self.watches.remove(request)

    async def open(self) -> None:
        await self.page.goto(f"{self.url}/app")
        await self.page.add_script_tag(path=self._bundle)

    async def show(self, conversation: str | None) -> None:
        """Show a conversation, in the component that is there."""
        await self.page.evaluate(
            "([name, url, id]) => window.show(name, url, id ?? undefined)",
            [self._framework, self.url, conversation],
        )

    async def call(self, method: str, *arguments: object) -> None:
        await self.page.evaluate(
            "([name, given]) => void window.chat[name](...given)", [method, list(arguments)]
        )

    async def expect_entries(self, *texts: str) -> None:
        await expect(self.status).to_have_text("idle")
        await expect(self.entries).to_have_text(list(texts))


@pytest.fixture(params=FRAMEWORKS)
async def bound(
    request: pytest.FixtureRequest, browser: Browser, server_url: str, bundle: Path
) -> AsyncGenerator[BoundPage]:
    async with await browser.new_page() as page:
        body = "<!doctype html><title>chat</title><div id=root></div>"
        await page.route(
            f"{server_url}/app", lambda route: route.fulfill(body=body, content_type="text/html")
        )
        one = BoundPage(page, str(request.param), server_url, bundle)
        await one.open()
        yield one
        assert one.errors == []


async def test_answers_stream_and_a_reload_shows_them_again(bound: BoundPage) -> None:
    await bound.show(None)
    await expect(bound.status).to_have_text("idle")
    conversation = await bound.id.inner_text()
    await bound.call("send", "count to 3")
    await bound.expect_entries("count to 3", COUNTED)
    await bound.call("send", "use get-time-zone")
    answer = 'Done. get-time-zone answered: "UTC".'
    await bound.expect_entries("count to 3", COUNTED, "use get-time-zone", answer)
    await bound.show(conversation)  # the page's address has it by now: the chat is the same
    await bound.expect_entries("count to 3", COUNTED, "use get-time-zone", answer)
    await bound.open()
    await bound.show(conversation)
    await bound.expect_entries("count to 3", COUNTED, "use get-time-zone", answer)


async def test_another_conversation_takes_the_place_of_one(bound: BoundPage) -> None:
    await bound.show(None)
    await bound.call("send", "count to 3")
    await bound.expect_entries("count to 3", COUNTED)
    first = await bound.id.inner_text()
    other = f"chat-{uuid4()}"
    await bound.page.evaluate(
        "([url, id]) => fetch(`${url}/send-message`, {method: 'POST', headers: {'Content-Type': "
        "'application/json'}, body: JSON.stringify({conversationId: id, messages: [{role: 'user', "
        "content: 'count to 2'}]})}).then((answer) => answer.text())",
        [bound.url, other],
    )
    await bound.show(other)
    await bound.expect_entries("count to 2", "1 2 - counted by the demo model.")
    await bound.call("send", "count to 3")
    await bound.expect_entries(
        "count to 2", "1 2 - counted by the demo model.", "count to 3", COUNTED
    )
    await bound.show(first)
    await bound.expect_entries("count to 3", COUNTED)


async def test_a_component_that_goes_stops_reading_and_comes_back_to_the_answer(
    bound: BoundPage,
) -> None:
    await bound.show(None)
    conversation = await bound.id.inner_text()
    await bound.call("send", "count to 150")
    await expect(bound.entries.last).to_contain_text("1 2 3")
    await expect(bound.status).to_have_text("streaming")
    await bound.page.evaluate("window.hide()")
    await expect(bound.entries).to_have_count(0)
    view = f"{bound.url}/conversations/{conversation}"
    status = await bound.page.evaluate(
        "(view) => fetch(view).then((answer) => answer.json()).then(({status}) => status)", view
    )
    assert status == "running"
    with anyio.fail_after(10):
        while bound.watches:
            await bound.page.evaluate("new Promise(requestAnimationFrame)")
    await bound.show(conversation)
    await expect(bound.entries.first).to_have_text("count to 150")
    await expect(bound.status).to_have_text("streaming")
    await bound.call("stop")
    await expect(bound.status).to_have_text("idle")
    await expect(bound.entries.last).to_contain_text("1 2 3")
    await expect(bound.entries).to_have_count(2)
