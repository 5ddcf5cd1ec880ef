"""The page on screens of all sizes."""

import pytest
from playwright.async_api import Browser, Page, expect
from tests.browser.playground import DESK, PHONE, open_playground

pytestmark = [pytest.mark.anyio, pytest.mark.browser]

LONG = "an-extraordinarily-long-word-without-a-place-to-break-" * 6


async def overflow(page: Page) -> list[str]:
    """Return elements that are wider than the screen, or stick out of it."""
    return list(
        await page.evaluate(
            """() => [...document.querySelectorAll('body, body *')].filter(element => {
                const {left, right, width} = element.getBoundingClientRect();
                const shown = width > 1 && element.checkVisibility() && !element.closest('.line');
                return shown && (left < -1 || right > innerWidth + 1);
            }).map(element => element.outerHTML.slice(0, 80))"""
        )
    )


@pytest.mark.parametrize("size", [(320, 568), PHONE, (768, 1024), DESK, (1920, 1080)])
async def test_nothing_is_wider_than_the_screen(
    browser: Browser, fast_url: str, size: tuple[int, int]
) -> None:
    async with open_playground(browser, fast_url, size) as playground:
        page = playground.page
        assert await overflow(page) == []
        await playground.say(f"Change background color to {LONG}")
        await playground.say(LONG)
        assert await overflow(page) == []
        assert await page.evaluate("document.documentElement.scrollWidth") == size[0]
        if await page.locator("#show-events").is_visible():
            await page.click("#show-events")
        await page.locator(".line summary").last.click()
        assert await overflow(page) == []
        assert await page.evaluate("document.documentElement.scrollWidth") == size[0]


async def test_a_phone_shows_the_chat_or_the_events(browser: Browser, fast_url: str) -> None:
    async with open_playground(browser, fast_url, PHONE) as playground:
        page = playground.page
        chat, events = page.locator(".chat"), page.locator(".events")
        await playground.say("count to 3")
        await expect(chat).to_be_visible()
        await expect(events).to_be_hidden()
        await page.get_by_role("button", name="Events").click()
        await expect(events).to_be_visible()
        await expect(chat).to_be_hidden()
        await expect(page.get_by_role("button", name="Events")).to_have_attribute(
            "aria-pressed", "true"
        )
        await page.get_by_role("button", name="Chat").click()
        await expect(chat).to_be_visible()


async def test_a_desk_shows_both(browser: Browser, fast_url: str) -> None:
    async with open_playground(browser, fast_url, DESK) as playground:
        await expect(playground.page.locator(".chat")).to_be_visible()
        await expect(playground.page.locator(".events")).to_be_visible()
        await expect(playground.page.locator("#show-events")).to_be_hidden()


async def test_the_newest_line_stays_in_sight_unless_the_reader_looks_back(
    browser: Browser, fast_url: str
) -> None:
    async with open_playground(browser, fast_url, PHONE) as playground:
        page = playground.page
        answer = page.locator(".answer")
        await playground.say("count to 400")
        await expect(answer).to_be_in_viewport(ratio=0.1)
        jump = page.get_by_role("button", name="Newest")
        await expect(jump).to_be_hidden()
        await page.evaluate("document.querySelector('#scroll').scrollTop = 0")
        await expect(jump).to_be_visible()
        await jump.click()
        await expect(jump).to_be_hidden()


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_text_can_be_read_in_light_and_dark_on_any_background(
    browser: Browser, fast_url: str, scheme: str
) -> None:
    """The contrast of text and its own surface is at least that of WCAG AA."""
    async with open_playground(browser, fast_url, DESK, color_scheme=scheme) as playground:
        await playground.say("Change background color to blue.")
        await playground.say("count to 400")
        poor = await playground.page.evaluate(POOR_CONTRAST)
        assert poor == []


POOR_CONTRAST = """() => {
    const canvas = new OffscreenCanvas(1, 1).getContext('2d', {willReadFrequently: true});
    const channels = color => {
        canvas.clearRect(0, 0, 1, 1);
        canvas.fillStyle = color;
        canvas.fillRect(0, 0, 1, 1);
        return [...canvas.getImageData(0, 0, 1, 1).data];
    };
    const luminance = rgb => rgb.slice(0, 3)
        .map(value => value / 255)
        .map(value => value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4)
        .reduce((sum, value, index) => sum + value * [0.2126, 0.7152, 0.0722][index], 0);
    const surface = element => {
        for (let at = element; at; at = at.parentElement) {
            const color = channels(getComputedStyle(at).backgroundColor);
            if (color[3] === 255) return color;
        }
        return channels('white');
    };
    const isText = node => node.nodeType === 3 && node.data.trim();
    const hasText = element => [...element.childNodes].some(isText);
    return [...document.querySelectorAll('body *')]
        .filter(element => element.checkVisibility() && hasText(element))
        .filter(element => !element.closest('.hidden, svg'))
        .filter(element => {
            const colors = [channels(getComputedStyle(element).color), surface(element)];
            const [one, two] = colors.map(luminance);
            return (Math.max(one, two) + 0.05) / (Math.min(one, two) + 0.05) < 4.5;
        })
        .map(element => element.outerHTML.slice(0, 100));
}"""
