"""`/process`: what is wrong is refused before anything is stored."""

import json

import pytest
from tests.support.agent_api import (
    PATH,
    Json,
    decision,
    function,
    output,
    text,
    user,
)
from tests.support.asgi_client import ask, ask_json
from tests.support.logged_runs import RUN, LoggedRuns
from tests.unit.wire.agent_api_site import HELLO, SAID, post, site

from passback.core.changes import Status
from passback.http.wires import RequestLimits

pytestmark = pytest.mark.anyio

STREAM = f"{PATH}/c/stream"


# ---------------------------------------------------------------- refusals
def _content(*parts: object) -> Json:
    return {"input": [{"role": "user", "content": list(parts)}]}


_PNG = "data:image/png;base64,"
TWO_RESULTS = {**output("c", "x"), "content": [{"type": "data", "data": {}}] * 2}
REFUSED: list[tuple[Json, str, str]] = [
    ({}, "invalid_request", "input"),
    ({"input": None}, "invalid_request", "input"),
    ({"input": "hello"}, "invalid_request", "input"),
    ({"input": [{"role": "user", "content": "hello"}]}, "invalid_request", "input.0.content"),
    ({"input": [{"role": "developer", "content": []}]}, "invalid_request", "input.0.role"),
    ({"input": [{"role": "user", "content": None}]}, "invalid_request", "input.0: "),
    ({"input": [{"role": "user", "content": []}]}, "invalid_request", "input.0: "),
    ({"input": [{**user("x"), "role": "system"}]}, "invalid_request", "input.0: the role 'system'"),
    ({"input": [{**user("x"), "role": "tool"}]}, "invalid_request", "function_call_output"),
    ({"input": [user("x", id="a\nb")]}, "invalid_request", "input.0.id"),
    ({"input": [user("x", id=5)]}, "invalid_request", "input.0.id: Input should be a valid string"),
    ({"input": [{**user("I said"), "role": "assistant"}]}, "nothing_to_do", "nothing new"),
    (_content({"text": "x"}), "invalid_request", "input.0.content.0"),
    (_content({"type": "magic"}), "invalid_request", "input.0.content.0"),
    (_content({"type": "text", "text": 1}), "invalid_request", "input.0.content.0"),
    (_content(text("x"), {"type": "image"}), "invalid_request", "input.0.content.1: image_url"),
    (_content({"type": "image", "image_url": "file:///x"}), "invalid_request", "http:"),
    (_content({"type": "image", "image_url": "data:x"}), "invalid_request", "not base64"),
    (_content({"type": "audio"}), "invalid_request", "data is missing"),
    (_content({"type": "audio", "data": "aGk="}), "invalid_request", "format is missing"),
    (_content({"type": "audio", "data": "?", "format": "wav"}), "invalid_request", "base64"),
    (_content({"type": "image", "image_url": f"{_PNG}?"}), "invalid_request", "not base64"),
    (_content({"type": "image", "image_url": f"{_PNG}a==="}), "invalid_request", "not base64"),
    (_content({"type": "image", "image_url": f"{_PNG}é"}), "invalid_request", "image_url"),
    (_content({"type": "image", "image_url": _PNG}), "invalid_request", "not base64"),
    (_content({"type": "video", "video_url": "data:x"}), "invalid_request", "0: video_url is a"),
    (_content({"type": "refusal", "refusal": None}), "invalid_request", "0.refusal: Input should"),
    (_content({"type": "refusal"}), "invalid_request", "0.refusal: Field required"),
    (_content({"type": "file"}), "invalid_request", "file_url is missing"),
    (_content({"type": "file", "file_id": "f"}), "invalid_request", "file_id"),
    (_content({"type": "video"}), "invalid_request", "video_url is missing"),
    (
        {"input": [{"type": "function_call_output"}]},
        "invalid_request",
        "needs one part of type 'data', and has 0",
    ),
    ({"input": [TWO_RESULTS]}, "invalid_request", "input.0: function_call_output needs one part"),
    ({"input": [output("", "x")]}, "invalid_request", "input.0.content.0.data.call_id: "),
    ({"input": [{**output("c", "x"), "content": [text("x")]}]}, "invalid_request", "'data'"),
    ({"input": [decision("c", "yes")]}, "invalid_request", "approve"),
    ({"input": [decision("c", False, reason="x" * 10_001)]}, "invalid_request", "reason"),
    ({"n": 2}, "invalid_request", "n has to be 1"),
    ({"n": "1"}, "invalid_request", "n: "),
    ({"temperature": 3}, "invalid_request", "temperature"),
    ({"top_p": "0.5"}, "invalid_request", "top_p"),
    ({"max_tokens": 0}, "invalid_request", "max_tokens"),
    ({"stop": [""]}, "invalid_request", "stop"),
    ({"seed": 2**63}, "invalid_request", "seed"),
    ({"frequency_penalty": 2.1}, "invalid_request", "frequency_penalty"),
    ({"presence_penalty": -3}, "invalid_request", "presence_penalty"),
    ({"stream": "no"}, "invalid_request", "stream"),
    ({"session_id": "{id}"}, "invalid_request", "braces"),
    ({"on_busy": "wait"}, "invalid_request", "on_busy"),
    ({"tools": [1]}, "invalid_tool", "tools[0]"),
    ({"tools": [{"type": "function", "function": {}}]}, "invalid_tool", "tools[0]"),
    ({"tools": [function("a"), function("A")]}, "tool_name_clash", "look alike"),
    ({"output_schema": {"type": "string"}}, "invalid_output_schema", "output_schema is refused"),
    ({"input": [output("c", "x")], "intent": "x"}, "invalid_request", "structured_data, intent, "),
]


@pytest.mark.promise("P12")
@pytest.mark.parametrize(("body", "code", "words"), REFUSED)
async def test_what_is_wrong_is_refused_before_a_stream_begins(
    body: Json, code: str, words: str
) -> None:
    runs = LoggedRuns(*SAID)
    value = body if "input" in body or not body else {**HELLO, **body}
    answer = await post(runs, {"session_id": "c", **value} if value else {})
    assert (answer.status, answer.code) == (422, code), answer.body
    assert words in answer.json["message"]
    assert runs.posts == []


async def test_the_place_of_what_is_wrong_is_told_as_it_was_posted() -> None:
    image = {"type": "image", "image_url": "ftp://x"}
    answer = await post(LoggedRuns(*SAID), {"session_id": "c", **_content(text("x"), image)})
    problem = "image_url has to be an http:, https: or data: URL, without control characters"
    assert answer.json["details"] == {"problems": [{"at": "input.0.content.1", "problem": problem}]}
    assert answer.json["message"] == f"input.0.content.1: {problem}"


@pytest.mark.promise("P11")
async def test_large_results_and_attachments_are_refused() -> None:
    app = site(LoggedRuns(*SAID), limits=RequestLimits(result_bytes=10, attachment_bytes=10))
    data = "data:image/png;base64," + "aGkh" * 10
    large = await ask_json(
        site(LoggedRuns(), limits=RequestLimits(data_bytes=10)),
        "POST",
        PATH,
        {**HELLO, "biz": "x" * 9},
    )
    assert (large.status, large.code) == (413, "data_too_large")
    for message, code in (
        (output("c", "x" * 11), "result_too_large"),
        (
            {"role": "user", "content": [{"type": "image", "image_url": data}]},
            "attachment_too_large",
        ),
    ):
        answer = await ask_json(app, "POST", PATH, {"session_id": "c", "input": [message]})
        assert (answer.status, answer.code) == (413, code)
        assert answer.json["details"] == {"limit": 10}


@pytest.mark.promise("P12")
@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"{", {"content-type": "application/json"}, 400),
        (b"[]", {"content-type": "application/json"}, 400),
        (b"{}", {"content-type": "text/plain"}, 415),
        (
            json.dumps(HELLO).encode(),
            {"content-type": "application/json", "last-event-id": "x"},
            422,
        ),
    ],
)
async def test_what_is_no_request_is_refused(body: bytes, headers: Json, status: int) -> None:
    runs = LoggedRuns(*SAID)
    answer = await ask(site(runs), "POST", PATH, headers=headers, body=body)
    assert (answer.status, runs.posts) == (status, [])


async def test_a_stream_is_asked_for_in_words_that_are_known() -> None:
    runs = LoggedRuns(*SAID)
    runs.known[RUN.key] = Status(1, RUN.run_id)
    answer = await ask(site(runs), "GET", f"{STREAM}?stream=perhaps")
    assert (answer.status, answer.code) == (422, "invalid_request")
    unnamed = await ask(site(runs), "GET", f"{STREAM}?id={'x' * 257}")
    assert (unnamed.status, unnamed.code) == (422, "invalid_request")
    unknown = await ask(site(runs), "GET", f"{PATH}/other/stream")
    assert (unknown.status, unknown.code) == (404, "conversation_not_found")
