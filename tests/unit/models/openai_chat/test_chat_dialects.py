"""Gemini and Azure at their addresses for chat completions: streams, replays and errors."""

import json
from typing import Any

import pytest
from tests.unit.models.openai_chat.chat_streams import sse
from tests.unit.models.openai_chat.dialect_streams import CASES, SIGNED, THOUGHT, gemini, lines
from tests.unit.models.streams import CUTTINGS, Case, Cutting, check, cut_in_two, decoded_by

from passback.core.deltas import ModelRequest, ReasoningBlock
from passback.core.errors import (
    ModelContextExceeded,
    ModelError,
    ModelIncomplete,
    ModelRateLimited,
    ModelRejected,
)
from passback.core.messages import (
    AssistantMessage,
    CallId,
    MessageId,
    Reasoning,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from passback.models.http.failures import status_failure
from passback.models.openai_chat import OpenAIChat
from passback.models.openai_chat.decoding import ChatDecoder
from passback.models.openai_chat.encoding import CallExtras, encode_request

every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)


@every_case
@pytest.mark.parametrize("cutting", CUTTINGS.values(), ids=CUTTINGS)
def test_a_dialect_is_decoded_the_same_however_it_is_cut(case: Case, cutting: Cutting) -> None:
    check(case, decoded_by(ChatDecoder("test"), cutting(case.stream)))


@every_case
def test_a_dialect_cut_in_two_anywhere(case: Case) -> None:
    for pieces in cut_in_two(case.stream):
        check(case, decoded_by(ChatDecoder("test"), pieces))


def test_what_comes_with_calls_counts_as_content() -> None:
    decoder = ChatDecoder("test", max_answer=150)
    call = {"index": 0, "id": "a", "function": {"name": "f", "arguments": "{}"}}
    for sizes, piece in ((1, call), (2, {"index": 0}), (3, {"index": 0})):
        assert decoder.failure is None
        decoder.feed(sse(gemini(tool_calls=[{**piece, "extra_content": SIGNED}])))
        assert decoder.size == len("f{}") + sizes * len(json.dumps(SIGNED))
    assert isinstance(decoder.failure, ModelIncomplete)


# ---------------------------------------------------------------- replay
ID = MessageId("m")
GEMINI = "openai:gemini-3-pro"
ASKED = UserMessage(ID, "light and door")
CALLS = tuple(ToolCall(CallId(name), name, "{}") for name in ("light", "door"))
RESULTS = [ToolMessage(ID, call.id, "ok") for call in CALLS]


def calls_sent(*kept: Reasoning, provider: str = GEMINI) -> list[dict[str, Any]]:
    """Return the calls of an answer as they go back, behind a later message of the user."""
    answer = AssistantMessage(ID, "", CALLS, kept)
    request = ModelRequest([ASKED, answer, *RESULTS, ASKED])
    body = json.loads(encode_request("gemini-3-pro", provider, request))
    calls: list[dict[str, Any]] = body["messages"][1]["tool_calls"]
    return calls


def signed(provider: str = GEMINI) -> Reasoning:
    return Reasoning("", provider, CallExtras({0: SIGNED}).dump())


def test_signatures_go_back_with_their_calls_in_all_turns() -> None:
    thoughts = Reasoning("hm", GEMINI, "reasoning_content")
    for kept in ((signed(),), (thoughts, signed(), Reasoning("x", GEMINI))):
        light, door = calls_sent(*kept)
        assert (light["extra_content"], "extra_content" in door) == (SIGNED, False)


def test_signatures_go_back_to_their_own_model_only() -> None:
    for kept in ((), (signed("openai:gemini-3-flash"),), (Reasoning("hm", GEMINI, "thought"),)):
        assert not [call for call in calls_sent(*kept) if "extra_content" in call]
    assert "extra_content" in calls_sent(signed("openai:x"), provider="openai:x")[0]


def test_an_answer_as_it_was_decoded_goes_back_as_it_came() -> None:
    call = {"id": "light", "function": {"name": "light", "arguments": "{}"}}
    stream = lines(
        gemini(content="<thought>Hm.", extra_content=THOUGHT),
        gemini(content="</thought>", tool_calls=[{**call, "extra_content": SIGNED}]),
        gemini("stop"),
    )
    decoder = ChatDecoder(GEMINI)
    deltas = [*decoder.feed(stream), *decoder.end()]
    kept = [delta.reasoning for delta in deltas if isinstance(delta, ReasoningBlock)]
    assert [each.text for each in kept] == ["Hm.", ""]
    assert calls_sent(*kept)[0]["extra_content"] == SIGNED


# ---------------------------------------------------------------- addresses and errors
@pytest.mark.parametrize(
    ("base_url", "url"),
    [
        (
            "https://generativelanguage.googleapis.com/v1beta/openai/",
            "https://generativelanguage.googleapis.com/v1beta/openai/chat/completions",
        ),
        (
            "https://my-place.openai.azure.com/openai/v1",
            "https://my-place.openai.azure.com/openai/v1/chat/completions",
        ),
    ],
)
@pytest.mark.anyio
async def test_the_addresses_are_taken_as_the_services_give_them(base_url: str, url: str) -> None:
    client = OpenAIChat("mock", base_url=base_url, api_key="key")
    assert str(vars(client)["_service"].answers_url) == url
    await client.aclose()


def gemini_error(code: int, status: str, message: str) -> bytes:
    return json.dumps([{"error": {"code": code, "message": message, "status": status}}]).encode()


def azure_error(code: str, message: str = "?", **fields: object) -> bytes:
    return json.dumps({"error": {"code": code, "message": message, **fields}}).encode()


TOO_MANY = "The input token count (1048999) exceeds the maximum number of tokens allowed (1048576)."


@pytest.mark.parametrize(
    ("status", "body", "kind", "words"),
    [
        (400, gemini_error(400, "INVALID_ARGUMENT", TOO_MANY), ModelContextExceeded, "too long"),
        (
            400,
            gemini_error(400, "INVALID_ARGUMENT", "API key not valid."),
            ModelRejected,
            "refused the request",
        ),
        (429, gemini_error(429, "RESOURCE_EXHAUSTED", "Quota."), ModelRateLimited, "no more"),
        (400, b"[]", ModelRejected, "refused the request"),
        (400, b"[7]", ModelRejected, "refused the request"),
        (
            400,
            azure_error("content_filter", innererror={"code": "ResponsibleAIPolicyViolation"}),
            ModelRejected,
            "refused the content",
        ),
        (404, azure_error("DeploymentNotFound"), ModelRejected, "does not know the model"),
        (401, azure_error("401", "Access denied."), ModelRejected, "refused the key"),
        (429, azure_error("429", "Retry after 7 seconds."), ModelRateLimited, "no more requests"),
    ],
)
def test_errors_of_a_dialect_are_known(
    status: int, body: bytes, kind: type[ModelError], words: str
) -> None:
    failure = status_failure(status, body, "7")
    assert type(failure) is kind
    assert words in failure.message
    assert failure.retry_after == (7 if kind is ModelRateLimited else None)
