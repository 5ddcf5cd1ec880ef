"""A page of another site cannot find out by a browser what a server without keys has."""

from collections.abc import AsyncGenerator

import pytest
from playwright.async_api import Browser
from tests.support.server import running_server
from tests.support.wire import client_of, user

pytestmark = [pytest.mark.anyio, pytest.mark.browser, pytest.mark.promise("P13")]

PROBE = """
async ([url, tag, attribute]) => {
  const probe = document.createElement(tag);
  const seen = new Promise((resolve) => {
    probe.addEventListener("load", () => resolve("load"));
    probe.addEventListener("error", () => resolve("error"));
  });
  probe[attribute] = url;
  document.body.append(probe);
  return await seen;
}
"""


@pytest.fixture
async def elsewhere() -> AsyncGenerator[str]:
    """The page of another server, which stands for a hostile one; the browser skips its policy."""
    async with running_server() as server:
        yield server.url


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_an_object_does_not_tell_whether_a_conversation_exists(
    browser: Browser, fast_url: str, elsewhere: str, host: str
) -> None:
    """The foreign page is on another port of this host, or, by another name, of another site."""
    async with client_of(fast_url) as client:
        await client.post("known", user("hi"))
    async with (
        await browser.new_context(bypass_csp=True) as context,
        await context.new_page() as page,
    ):
        await page.goto(elsewhere.replace("127.0.0.1", host))
        for tag, attribute in [("object", "data"), ("script", "src")]:
            seen = {
                await page.evaluate(PROBE, [f"{fast_url}/{path}", tag, attribute])
                for path in ("conversations/known/messages", "conversations/none/messages")
            }
            assert seen == {"error"}
        # a link may still lead to the page
        await page.evaluate("url => { location.href = url; }", f"{fast_url}/")
        await page.wait_for_selector("#message")
        assert page.url.startswith(fast_url)
