"""How an answer is to be written: from a post to the model's service, without a word to the model."""

import json
from dataclasses import replace
from typing import Any

import pytest
from pydantic import JsonValue

from passback.context.prompt import PromptLayers
from passback.core.changes import dump_message, load_message
from passback.core.deltas import ModelRequest
from passback.core.messages import (
    AssistantMessage,
    ConversationId,
    ConversationKey,
    Generation,
    Message,
    MessageContext,
    MessageId,
    OwnerId,
    SystemMessage,
    UserMessage,
)
from passback.core.posts import StartRun, content_fingerprint
from passback.core.transcript import paired_messages
from passback.models.anthropic.encoding import encode_message
from passback.models.openai_chat.encoding import encode_request

GENERATION = Generation(1.5, 0.5, 7, ("END",), 1, 0.25, -0.25)
ASKED = UserMessage(
    MessageId("u"), "hi", brief=MessageContext(intent="rest", generation=GENERATION)
)
PLAIN = UserMessage(MessageId("p"), "ho")
SAID = AssistantMessage(MessageId("a"), "yes")
CORRECTED = SystemMessage(MessageId("s"), "no JSON", synthetic="invalid")
KEY = ConversationKey(OwnerId("o"), ConversationId("c"))


def _request(*messages: Message, **options: JsonValue) -> ModelRequest:
    return ModelRequest(
        paired_messages([PromptLayers().shown(each) for each in messages]), options=options
    )


def _openai(request: ModelRequest) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(encode_request("m", "openai:m", request))
    return body


def _anthropic(request: ModelRequest) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(encode_message("m", "anthropic:m", request).body)
    return body


@pytest.mark.parametrize(
    ("messages", "told"),
    [
        ([ASKED], GENERATION),
        ([ASKED, SAID, PLAIN], Generation()),
        ([ASKED, SAID], GENERATION),
        ([PLAIN, SAID, ASKED], GENERATION),
        ([ASKED, SAID, CORRECTED], GENERATION),
        ([PLAIN, SAID, CORRECTED], Generation()),
        ([CORRECTED], Generation()),
        ([], Generation()),
        ([replace(PLAIN, brief=MessageContext(intent="rest"))], Generation()),
    ],
)
def test_what_the_last_user_message_says_counts(messages: list[Message], told: Generation) -> None:
    assert _request(*messages).generation == told


def test_the_model_is_not_told_of_it() -> None:
    shown = PromptLayers().shown(ASKED)
    assert isinstance(shown, UserMessage)
    assert shown.brief == MessageContext(generation=GENERATION)
    assert shown.content == "<user_context>\n<intent>rest</intent>\n</user_context>\n\nhi"


def test_chat_completions_get_it_by_its_names() -> None:
    asked = _openai(_request(ASKED, temperature=0.0, top_k=3))
    assert {key: asked[key] for key in asked.keys() - {"messages", "stream_options"}} == {
        "model": "m",
        "stream": True,
        "top_k": 3,
        "temperature": 1.5,
        "top_p": 0.5,
        "max_tokens": 7,
        "stop": ["END"],
        "seed": 1,
        "frequency_penalty": 0.25,
        "presence_penalty": -0.25,
    }
    assert "temperature" not in _openai(_request(PLAIN))


def test_where_the_options_limit_tokens_by_the_newer_name_so_does_the_post() -> None:
    asked = _openai(_request(ASKED, max_completion_tokens=100))
    assert (asked["max_completion_tokens"], "max_tokens" in asked) == (7, False)
    kept = _openai(_request(PLAIN, max_completion_tokens=100))
    assert kept["max_completion_tokens"] == 100


def test_the_messages_api_gets_what_it_has_a_word_for() -> None:
    asked = _anthropic(_request(ASKED))
    assert {key: asked[key] for key in asked.keys() - {"messages"}} == {
        "model": "m",
        "stream": True,
        "max_tokens": 7,
        "temperature": 1.0,
        "top_p": 0.5,
        "stop_sequences": ["END"],
    }
    assert "stop_sequences" not in _anthropic(_request(PLAIN))


def test_it_is_kept_in_the_record() -> None:
    assert load_message(dump_message(ASKED)) == ASKED


def test_posts_that_differ_in_it_are_different_posts() -> None:
    hot, plain = (
        replace(ASKED, brief=MessageContext(generation=each)) for each in (GENERATION, None)
    )
    assert StartRun(KEY, (hot,)).fingerprint != StartRun(KEY, (plain,)).fingerprint
    assert content_fingerprint("x", False, hot.brief) != content_fingerprint(
        "x", False, plain.brief
    )
