"""One Chromium and one server for all browser tests; a tab of its own for each."""

from collections.abc import AsyncGenerator

import pytest
from playwright.async_api import Browser, async_playwright, expect
from tests.browser.playground import TIMEOUT, Playground, open_playground
from tests.support.lanes import unmeasured
from tests.support.programs import program
from tests.support.server import running_server

__all__ = ["unmeasured"]

_FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # names of others that lead to this machine: a foreign page, and one whose name was rebound
    "--host-resolver-rules=MAP evil.test 127.0.0.1,MAP *.rebind.test 127.0.0.1",
]


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """The backend of the whole session, because the browser and the server live as long."""
    return "asyncio"


@pytest.fixture(scope="session")
async def browser() -> AsyncGenerator[Browser]:
    executable = program("chromium", variable="TEST_CHROMIUM")
    expect.set_options(timeout=TIMEOUT)
    async with async_playwright() as playwright:
        chromium = await playwright.chromium.launch(executable_path=executable, args=_FLAGS)
        yield chromium
        await chromium.close()


@pytest.fixture(scope="session")
async def server_url() -> AsyncGenerator[str]:
    """A server with the demo model, which takes its time."""
    async with running_server() as server:
        yield server.url


@pytest.fixture(scope="session")
async def fast_url() -> AsyncGenerator[str]:
    """A server with the demo model that does not pause between words."""
    async with running_server("--model", "demo:fast") as server:
        yield server.url


@pytest.fixture(scope="session")
async def guarded_url() -> AsyncGenerator[str]:
    """The same, to which pages of this machine are foreign, too."""
    async with running_server("--model", "demo:fast", "--allow-loopback-pages", "no") as server:
        yield server.url


@pytest.fixture
async def playground(browser: Browser, server_url: str) -> AsyncGenerator[Playground]:
    async with open_playground(browser, server_url) as tab:
        yield tab
