"""A client in a page that the server does not let in: it says what the browser hides."""

import anyio
import pytest
from playwright.async_api import Browser
from tests.support.server import running_server

pytestmark = [pytest.mark.anyio, pytest.mark.browser]

PROGRAM = """
async (url) => {
  const { Client } = await import("/js/src/index.js");
  const answer = new Client({ url }).send("count to 3").text();
  return await answer.catch(({ code, message }) => [code, message]);
}
"""


async def test_an_error_in_a_page_of_a_foreign_origin_names_the_setting_that_lets_it_in(
    browser: Browser, fast_url: str
) -> None:
    async with (
        running_server("--model", "demo:fast", "--allowed-hosts", "evil.test") as elsewhere,
        await browser.new_context(bypass_csp=True) as context,
        await context.new_page() as page,
    ):
        origin = elsewhere.url.replace("127.0.0.1", "evil.test")
        await page.goto(f"{origin}/")
        with anyio.fail_after(20):
            failure = await page.evaluate(PROGRAM, fast_url)
            own = await page.evaluate(PROGRAM, origin)
    code, message = failure
    assert code == "connection_lost"
    address, causes = message.split(". Likely causes: ")
    assert address == f"{fast_url} did not answer"
    assert causes.split("; ") == [
        "nobody listens there",
        "the address is wrong",
        (
            f"the server does not let in pages of {origin}: "
            f"set PASSBACK_ALLOWED_ORIGINS={origin} at the server"
        ),
    ]
    assert own == "1 2 3 - counted by the demo model."
