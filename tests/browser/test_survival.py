"""Servers that die in the middle of an answer and come back, answers that never arrive."""

from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import pytest
from playwright.async_api import Browser, expect
from tests.browser.playground import Playground, expect_text, open_playground
from tests.support.proxies import lossy_proxy
from tests.support.server import Server, running_server

pytestmark = [pytest.mark.anyio, pytest.mark.browser, pytest.mark.timeout(60)]

LAST = 120
NUMBERS = " ".join(str(number) for number in range(1, LAST + 1))
COUNTED = f"{NUMBERS} - counted by the demo model."
MANY = 1000
"""More replies than Chromium asks for by itself: it repeats a request on each kept connection."""
LONG = 30_000
"""Milliseconds for a restart, a lease that lapses, and the whole answer."""


def durable(folder: Path) -> tuple[str, ...]:
    """A server whose runs outlive it, and are soon taken over."""
    return (
        "--store",
        f"sqlite:///{folder / 'store.db'}",
        "--timing",
        "lease=1",
        "--timing",
        "shutdown_grace=0",
    )


async def end(server: Server, how: Literal["kill", "terminate"]) -> str:
    """End the server; return its port, which is free again."""
    if how == "kill":
        server.kill()
    else:
        server.terminate()
    await server.exit_code()
    return str(urlsplit(server.url).port)


async def expect_reconnecting(playground: Playground) -> None:
    await expect(playground.page.locator("#status")).to_contain_text("Connecting again")


@pytest.mark.promise("P3", "P10")
@pytest.mark.parametrize("how", ["kill", "terminate"])
async def test_a_server_that_ends_in_the_middle_of_an_answer_and_comes_back_answers_once(
    browser: Browser, tmp_path: Path, how: Literal["kill", "terminate"]
) -> None:
    settings = durable(tmp_path)
    async with (
        running_server(*settings) as server,
        open_playground(browser, server.url) as playground,
    ):
        await playground.say("count to 2")
        await playground.write(f"count to {LAST}")
        await expect_text(playground, "1 2 3 4 5 6")
        port = await end(server, how)
        await expect_reconnecting(playground)
        async with running_server("--port", port, *settings):
            await playground.settled(LONG)
            assert await playground.answers() == ["1 2 - counted by the demo model.", COUNTED]
            assert await playground.questions() == ["count to 2", f"count to {LAST}"]
            assert await playground.page.get_by_role("alert").count() == 0
            await expect(playground.page.get_by_text("rewind", exact=True)).to_have_count(1)
            assert len(playground.posts) == 2
            assert await playground.history() == [
                ("user", "count to 2"),
                ("assistant", "1 2 - counted by the demo model."),
                ("user", f"count to {LAST}"),
                ("assistant", COUNTED),
            ]
            playground.complaints.clear()  # the browser's own lines about the cut connections


@pytest.mark.promise("P10")
async def test_a_reload_after_a_crash_shows_the_question_and_the_answer_once(
    browser: Browser, tmp_path: Path
) -> None:
    settings = durable(tmp_path)
    async with (
        running_server(*settings) as server,
        open_playground(browser, server.url) as playground,
    ):
        await playground.write(f"count to {LAST}")
        await expect_text(playground, "1 2 3 4 5 6")
        port = await end(server, "kill")
        await expect_reconnecting(playground)
        async with running_server("--port", port, *settings):
            await playground.page.reload()
            await expect_text(playground, "1 2 3 4")
            await playground.settled(LONG)
            assert await playground.answers() == [COUNTED]
            assert await playground.questions() == [f"count to {LAST}"]
            playground.complaints.clear()


@pytest.mark.promise("P8")
async def test_a_message_whose_answer_is_cut_before_its_first_byte_is_one_message(
    browser: Browser, server_url: str
) -> None:
    async with (
        lossy_proxy(urlsplit(server_url).port or 0) as proxy,
        open_playground(browser, f"http://127.0.0.1:{proxy.port}") as playground,
    ):
        proxy.lose_replies(MANY)
        await playground.write("count to 3")
        await expect_reconnecting(playground)
        proxy.lose_replies(0)
        await playground.settled()
        assert len(playground.keys) > 1
        assert len(set(playground.keys)) == 1
        assert await playground.questions() == ["count to 3"]
        assert await playground.history() == [
            ("user", "count to 3"),
            ("assistant", "1 2 3 - counted by the demo model."),
        ]
        playground.complaints.clear()


@pytest.mark.promise("P8")
async def test_a_tools_result_whose_answer_is_cut_counts_once(
    browser: Browser, server_url: str
) -> None:
    async with (
        lossy_proxy(urlsplit(server_url).port or 0) as proxy,
        open_playground(browser, f"http://127.0.0.1:{proxy.port}") as playground,
    ):
        await playground.write('Ask me to confirm "Shall we begin?"')
        dialog = playground.page.get_by_role("dialog")
        await expect(dialog).to_be_visible()
        proxy.lose_replies(MANY)
        await dialog.get_by_role("button", name="Confirm").click()
        await expect_reconnecting(playground)
        proxy.lose_replies(0)
        await playground.settled()
        assert len(playground.keys) > 2
        assert len(set(playground.keys)) == 2
        assert await playground.answers() == ['Done. ask-user-to-confirm answered: "confirmed".']
        assert [role for role, _ in await playground.history()] == [
            "user",
            "assistant",
            "tool",
            "assistant",
        ]
        playground.complaints.clear()


async def test_a_post_during_a_run_says_so_and_trying_again_waits_for_the_run(
    browser: Browser, playground: Playground
) -> None:
    page = playground.page
    await playground.hear_nothing_of_others()
    await playground.say("hi")
    async with open_playground(browser, playground.url) as device:
        await device.page.goto(page.url)
        await expect_text(device, "Hello!")
        await device.write(f"count to {LAST}")
        await expect(device.page.locator(".answer").last).to_contain_text("1 2 3")
        await playground.write("count to 3")
        problem = page.get_by_role("alert")
        await expect(problem).to_contain_text("The agent is still answering here")
        await problem.get_by_role("button", name="Try again").click()
        await expect(problem).to_have_count(0)
        await expect_text(playground, "3 - counted")
        await playground.settled(LONG)
    assert (await playground.answers())[1:] == [COUNTED, "1 2 3 - counted by the demo model."]
    assert (await playground.questions())[1:] == [f"count to {LAST}", "count to 3"]
