"""The JavaScript client library in a browser, over connections that are cut."""

import anyio
import pytest
from playwright.async_api import Browser
from tests.support.proxies import frame_cutter
from tests.support.server import running_server

pytestmark = [pytest.mark.anyio, pytest.mark.browser]

PROGRAM = """
async ([url, message]) => {
  const { Client } = await import("/js/src/index.js");
  const properties = { color: { type: "string" } };
  const parameters = { type: "object", properties, required: ["color"] };
  const execute = ({ color }) => {
    document.body.style.background = color;
    return `it is ${color}`;
  };
  const tools = { "set-color": { parameters, execute } };
  const client = new Client({ url, tools, retry: { firstDelay: 5 } });
  const sending = client.send(message);
  return [await sending.text(), typeof sending.runId];
}
"""


async def test_the_client_runs_a_tool_in_the_page_and_reads_on_after_cuts(browser: Browser) -> None:
    async with (
        running_server() as server,
        frame_cutter(server.url) as cutter,
        await browser.new_page() as page,
    ):
        await page.goto(f"{cutter.url}/")
        cutter.grows, cutter.frames = True, 1  # the page's own files may look like frames
        with anyio.fail_after(30):
            text, run_id = await page.evaluate(PROGRAM, [cutter.url, "set-color to blue"])
        color = await page.evaluate("document.body.style.background")
    assert (text, run_id, color) == ('Done. set-color answered: "it is blue".', "string", "blue")
    # frames that are ready together are one: on a slow machine there are fewer places to cut
    assert cutter.cuts >= 3
