"""Pages of other sites neither read nor change a server without keys, nor embed its page."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import anyio
import httpx
import pytest
from playwright.async_api import Browser, Page, Request, Response, expect
from tests.browser.playground import Playground, expect_text, open_playground
from tests.browser.test_claims_in_tabs import owed
from tests.support.careless_site import CarelessSite, careless_site
from tests.support.server import running_server
from tests.support.wire import ZONE

pytestmark = [pytest.mark.anyio, pytest.mark.browser]

WAYS = (Path(__file__).parent / "foreign_ways.js").read_text()
SECONDS = 30
FOREIGN = ["evil.test", "a.rebind.test"]
OF_THIS_MACHINE = ["localhost", "127.0.0.1"]
"""Hosts of the foreign pages: other names, and another port of the same one."""
REBOUND = ["evil.test", "a.rebind.test", "localhost.rebind.test", "127.0.0.1.rebind.test"]
READABLE = {
    "a read", "a read with credentials", "a read without a referrer",
    "a post of JSON", "a post of text", "a post that outlives the page",
    "a post with a key of its own", "a delete", "a sandboxed frame", "event source",
    "script", "module", "worker", "stylesheet",
}  # fmt: skip
"""Ways to read that succeed on a site which shares everything."""
ODD_ADDRESSES = [
    "#conversation=..%2F..%2Fhealthz",
    "#conversation=%2e%2e",
    "#conversation=%00",
    "#conversation=//evil.test",
    "#conversation=http:%2F%2Fevil.test%2F",
    "#conversation=javascript:globalThis.pwned=1",
    "#conversation=__proto__",
    "#conversation=constructor%3Fa%23b",
    "#conversation=%E0%A4%A",
    "#conversation=<img src=x onerror=pwned=1>",
    "?next=//evil.test#conversation=" + "a" * 3000,
    "?conversation=x&key=k#//evil.test",
]
WHEREABOUTS = """() => {
    for (const line of document.querySelectorAll('#events details')) line.open = true;
    return {
        address: location.href,
        document: document.documentElement.outerHTML,
        fields: [...document.querySelectorAll('input, textarea')].map(({value}) => value).join(' '),
        session: JSON.stringify({...sessionStorage}),
        local: JSON.stringify({...localStorage}),
        cookies: document.cookie,
        named: window.name + JSON.stringify(history.state),
    };
}"""
LOADED = """async url => {
    const elements = {
        object: {data: url}, embed: {src: url}, script: {src: url}, img: {src: url},
        link: {rel: 'stylesheet', href: url},
    };
    const tell = ([name, properties]) => new Promise(done => {
        const made = document.createElement(name);
        made.onload = made.onerror = ({type}) => done([name, type]);
        document.body.append(Object.assign(made, properties));
    });
    return Object.fromEntries(await Promise.all(Object.entries(elements).map(tell)));
}"""
TALK = """async url => {
    const posted = await fetch(`${url}/send-message`, {
        method: 'POST',
        headers: {'Content-Type': 'application/json', 'Idempotency-Key': crypto.randomUUID()},
        body: JSON.stringify({messages: [{role: 'user', content: 'hi'}]}),
    });
    const conversation = posted.headers.get('X-Conversation-Id'), words = await posted.text();
    const kept = await (await fetch(`${url}/conversations/${conversation}/messages`)).json();
    return [conversation, words, kept.messages.map(({role}) => role)];
}"""
FRAME = """url => new Promise(done => {
    const frame = document.createElement('iframe');
    Object.assign(frame, {src: url, onload: () => done()});
    document.body.append(frame);
})"""
INJECTIONS = """elsewhere => {
    globalThis.stopped = [];
    addEventListener('securitypolicyviolation', event => stopped.push(event.effectiveDirective));
    const add = (name, properties) => {
        const element = Object.assign(document.createElement(name), properties);
        document.body.append(element);
        return element;
    };
    add('script', {textContent: 'globalThis.pwned = 1'});
    add('script', {src: `${elsewhere}/?way=script`});
    add('script', {src: 'data:text/javascript,globalThis.pwned=1'});
    add('style', {textContent: 'body { display: none }'});
    add('link', {rel: 'stylesheet', href: `${elsewhere}/?way=stylesheet`});
    add('img', {src: `${elsewhere}/?way=img`});
    add('iframe', {src: `${elsewhere}/?way=iframe`});
    add('object', {data: `${elsewhere}/?way=object`});
    add('base', {href: elsewhere});
    document.body.insertAdjacentHTML('beforeend', '<i onclick="globalThis.pwned = 1"></i>');
    document.body.lastChild.click();
    document.body.lastChild.setAttribute('style', 'color: red');
    add('form', {action: `${elsewhere}/?way=form`, method: 'POST'}).submit();
    fetch(`${elsewhere}/?way=fetch`).catch(() => {});
    navigator.sendBeacon(`${elsewhere}/?way=beacon`, 'x');
    try { new Worker('data:text/javascript,1'); } catch {}
    try { setTimeout('globalThis.pwned = 1'); } catch {}
}"""
STOPPED = {
    "script-src-elem", "script-src-attr", "style-src-elem", "style-src-attr", "img-src",
    "frame-src", "object-src", "base-uri", "form-action", "connect-src", "worker-src", "script-src",
}  # fmt: skip


@pytest.fixture(scope="module")
async def site() -> AsyncGenerator[CarelessSite]:
    async with careless_site() as site:
        yield site


@asynccontextmanager
async def foreign_page(browser: Browser, url: str) -> AsyncGenerator[Page]:
    """A tab on an address, with nothing of any other tab."""
    context = await browser.new_context()
    try:
        page = await context.new_page()
        await page.goto(url)
        yield page
    finally:
        await context.close()


class Written:
    """Requests of a page that change something at a server, and those that were not refused."""

    def __init__(self, page: Page, url: str) -> None:
        self._url = url
        self.accepted: list[str] = []
        self._ended: set[str] = set()
        self._changed = anyio.Event()
        page.on("response", self._hear)
        page.on("requestfailed", self._end)

    def _hear(self, response: Response) -> None:
        is_asked = response.url.startswith(self._url)  # others were asked before
        if is_asked and response.request.method != "GET" and response.status < 400:
            self.accepted.append(f"{response.request.method} {response.url}")
        self._end(response.request)

    def _end(self, request: Request) -> None:
        if request.method != "OPTIONS" and request.url.startswith(self._url):
            self._ended.update(parse_qs(urlsplit(request.url).query).get("way", []))
        self._changed.set()

    async def wait_for(self, *ways: str) -> None:
        with anyio.fail_after(SECONDS):
            while not self._ended.issuperset(ways):
                self._changed = anyio.Event()
                await self._changed.wait()


async def everything(url: str, conversation: str) -> list[str]:
    """Return the server's record of a conversation."""
    async with httpx.AsyncClient(base_url=url) as client:
        paths = (f"/conversations/{conversation}", f"/conversations/{conversation}/messages")
        answers = [await client.get(path) for path in paths]
    assert [answer.status_code for answer in answers] == [200, 200]
    return [answer.text for answer in answers]


@pytest.mark.promise("P13")
@pytest.mark.parametrize("hosts", [FOREIGN, OF_THIS_MACHINE])
async def test_no_way_of_a_foreign_page_reads_or_changes_anything(
    browser: Browser, site: CarelessSite, fast_url: str, guarded_url: str, hosts: list[str]
) -> None:
    """The same ways reach a site that lets everything in, and read there what can be read."""
    url = fast_url if hosts is FOREIGN else guarded_url
    await owed(url, "victim", "time zone", ZONE)
    before = await everything(url, "victim")
    for host in hosts:
        site.ways.clear()
        async with foreign_page(browser, site.url(host)) as page:
            elsewhere = "evil.test" if host != "evil.test" else "a.rebind.test"
            read = await page.evaluate(f"({WAYS})('{site.url(elsewhere)}', 'victim')")
            assert {way for way, content in read.items() if content} == READABLE
            with anyio.fail_after(SECONDS):
                while not read.keys() <= site.ways:  # the page does not wait for beacons
                    await anyio.lowlevel.checkpoint()
            written = Written(page, url)
            read = await page.evaluate(f"({WAYS})('{url}', 'victim')")
            assert {way: content for way, content in read.items() if content} == {}
            await written.wait_for("a beacon", "a beacon of JSON", "a form", "a post of text")
            assert written.accepted == []
        assert await everything(url, "victim") == before


@pytest.mark.parametrize("host", OF_THIS_MACHINE)
async def test_a_page_of_this_machine_may_talk_to_a_server_of_this_machine(
    browser: Browser, site: CarelessSite, fast_url: str, host: str
) -> None:
    """A front end in development comes from another port."""
    async with foreign_page(browser, site.url(host)) as page:
        conversation, words, again = await page.evaluate(TALK, fast_url)
    assert words.startswith(f": conversation {conversation}\n\n")
    assert words.endswith("data: [DONE]\n\n")
    assert again == ["user", "assistant"]


@pytest.mark.parametrize("host", REBOUND)
async def test_a_name_that_was_rebound_is_another_server(
    browser: Browser, fast_url: str, host: str
) -> None:
    port = fast_url.rpartition(":")[2]
    context = await browser.new_context()
    page = await context.new_page()
    answer = await page.goto(f"http://{host}:{port}/")
    assert answer is not None
    statuses = await page.evaluate(
        """() => Promise.all([
            fetch('/conversations/victim'), fetch('/tool-calls?status=owed'),
            fetch('/playground/main.js'), fetch('/healthz'),
            fetch('/send-message', {
                method: 'POST', headers: {'Content-Type': 'application/json'}, body: '{}',
            }),
        ]).then(answers => answers.map(({status}) => status))"""
    )
    assert [answer.status, *statuses] == [421] * 6
    await context.close()


async def test_a_foreign_page_holds_neither_a_frame_nor_a_window_of_the_page(
    browser: Browser, site: CarelessSite, fast_url: str
) -> None:
    async with foreign_page(browser, site.url("evil.test")) as page:
        await page.evaluate(FRAME, site.url("a.rebind.test"))
        await expect(page.frame_locator("iframe").locator("body")).to_have_text("elsewhere")
        async with page.expect_response(f"{fast_url}/") as framed:
            await page.evaluate(FRAME, f"{fast_url}/")
        assert (await framed.value).status == 403
        held = {}
        for name, url in (("theirs", site.url("a.rebind.test")), ("ours", fast_url)):
            async with page.expect_popup() as opening:
                await page.evaluate("url => { globalThis.held = open(url); }", f"{url}/")
            popup = await opening.value
            await popup.wait_for_url(f"{url}/")
            held[name] = (
                await page.evaluate("!held.closed"),
                await popup.evaluate("opener !== null"),
            )
        assert held == {"theirs": (True, True), "ours": (False, False)}


async def test_a_key_is_in_the_storage_of_its_tab_and_nowhere_else(browser: Browser) -> None:
    secret = "open-sesame-0123456789"
    async with (
        running_server("--model", "demo:fast", "--api-keys", f"alice:{secret}") as server,
        open_playground(browser, server.url) as playground,
    ):
        page = playground.page
        await playground.say("hi")
        await page.get_by_label("API key").fill(secret)
        await page.get_by_label("API key").press("Enter")
        await expect_text(playground, "Hello!")
        other = await page.context.new_page()
        await other.goto(page.url)
        await expect(other.get_by_label("API key")).to_be_visible()
        places = [await each.evaluate(WHEREABOUTS) for each in (page, other)]
        assert [[name for name, text in each.items() if secret in text] for each in places] == [
            ["session"],
            [],
        ]
        await other.close()


async def test_an_odd_address_leads_nowhere(playground: Playground) -> None:
    page = playground.page
    asked: set[str] = set()
    page.on("request", lambda request: asked.add(request.url.removeprefix(playground.url)))
    for address in ODD_ADDRESSES:
        await page.goto("about:blank")
        await playground.open(address)
        await expect(page.locator("#welcome:visible, .problem")).to_have_count(1)
        await playground.settled()
        where = await page.evaluate("[location.origin, typeof globalThis.pwned]")
        assert where == [playground.url, "undefined"]
    page_and_files = ("/?", "/#", "/playground/", "/js/src/", "about:")
    others = {path for path in asked - {"/", "/agents"} if not path.startswith(page_and_files)}
    assert {path.rpartition("/")[0] for path in others} == {"/conversations"}


async def test_what_is_injected_is_stopped_by_the_policy(
    browser: Browser, site: CarelessSite, fast_url: str
) -> None:
    site.paths.clear()
    async with foreign_page(browser, fast_url) as page:
        await page.evaluate(INJECTIONS, site.url("evil.test"))
        await page.wait_for_function(
            "wanted => wanted.every(each => stopped.includes(each))",
            arg=sorted(STOPPED),
            timeout=5000,
        )
        assert set(await page.evaluate("stopped")) == STOPPED
        assert await page.evaluate("[typeof globalThis.pwned, document.baseURI]") == [
            "undefined",
            f"{fast_url}/",
        ]
    assert site.paths == []


async def test_a_foreign_page_cannot_learn_which_conversations_exist(
    browser: Browser, site: CarelessSite, fast_url: str
) -> None:
    """An element shows only if it could load: the same for an id that exists and an unknown one."""
    await owed(fast_url, "known", "time zone", ZONE)
    async with foreign_page(browser, site.url("evil.test")) as page:
        shared = await page.evaluate(LOADED, site.url("a.rebind.test") + "/?way=script")
        assert (shared["object"], shared["script"], shared["embed"]) == ("load", "load", "load")
        there = await page.evaluate(LOADED, f"{fast_url}/conversations/known/messages")
        missing = await page.evaluate(LOADED, f"{fast_url}/conversations/unknown/messages")
    assert there == missing
