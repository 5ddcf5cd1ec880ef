"""Rules by which providers refuse requests: those of chat completions.

Those of the others are in `anthropic_rules` and `responses_model_rules`.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from tests.support.anthropic_rules import breaches_of
from tests.support.responses_model_rules import breaches_of as breaches_of_items

from passback.core.deltas import ModelRequest
from passback.models.anthropic.encoding import encode_message
from passback.models.openai_chat.encoding import encode_request
from passback.models.openai_responses.encoding import encode_response

Json: TypeAlias = Mapping[str, Any]

ROLES = {"system", "user", "assistant", "tool"}
NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


def violations_of(messages: Sequence[Json]) -> list[str]:
    """Return what a provider would refuse in these messages.

    Each call is answered by exactly one `tool` message, in any order, and nothing comes between a
    call's message and its answers. No id is used twice. Behind the system's messages comes a
    user's. Who speaks says something.
    """
    wrong = [
        f"message {position} {fault}"
        for position, message in enumerate(messages)
        for fault in (*_faults_of(message), *_faults_of_calls(message))
    ]
    return [*wrong, *_unpaired(messages), *_opening(messages)]


def _opening(messages: Sequence[Json]) -> Iterable[str]:
    first = next((each["role"] for each in messages if each["role"] != "system"), "missing")
    if first != "user":
        yield f"the first message behind the system's is {first}, not user"


# ---------------------------------------------------------------- one message
def _faults_of(message: Json) -> Iterable[str]:
    role, content = message["role"], message.get("content")
    if role not in ROLES:
        yield f"has the role {role!r}"
    if role == "tool":
        if not isinstance(content, str):
            yield "is an answer without a text"
    elif not _says_something(content) and not message.get("tool_calls"):
        yield "says nothing"
    if content == "" and message.get("tool_calls"):
        yield "has an empty text beside its calls"


def _says_something(content: object) -> bool:
    if isinstance(content, list):
        parts: list[Json] = content
        return bool(parts) and all(part.get("text") != "" for part in parts)
    return isinstance(content, str) and content != ""


def _faults_of_calls(message: Json) -> Iterable[str]:
    if "tool_calls" not in message:
        return
    if message["role"] != "assistant" or not message["tool_calls"]:
        yield "must not have `tool_calls`"
    for call in message["tool_calls"]:
        function = call.get("function", {})
        if not call.get("id") or call.get("type") != "function":
            yield f"has a call without an id or a type: {call}"
        if not NAME.fullmatch(function.get("name", "")):
            yield f"calls a function without a proper name: {call}"
        if not _is_object(function.get("arguments")):
            yield f"has arguments that are no JSON object: {call}"


def _is_object(text: object) -> bool:
    try:
        return isinstance(text, str) and isinstance(json.loads(text), dict)
    except ValueError:
        return False


# ---------------------------------------------------------------- calls and answers
def _unpaired(messages: Sequence[Json]) -> Iterable[str]:
    waiting: list[str] = []
    used: set[str] = set()
    for position, message in enumerate(messages):
        if message["role"] == "tool":
            if message.get("tool_call_id") in waiting:
                waiting.remove(message["tool_call_id"])
            else:
                yield f"message {position} answers no open call"
            continue
        if waiting:
            yield f"message {position} comes before the answers to {waiting}"
        waiting = [str(call.get("id")) for call in message.get("tool_calls") or ()]
        if len({*waiting, *used}) < len(waiting) + len(used):
            yield f"message {position} has ids that were used before: {waiting}"
        used.update(waiting)
    if waiting:
        yield f"no answers to {waiting}"


def refusals_of(request: ModelRequest) -> list[str]:
    """Nothing: every one of them takes it."""
    chat = json.loads(encode_request("m", "openai", request))
    message = json.loads(encode_message("m", "anthropic", request).body)
    items = json.loads(encode_response("m", "openai-responses", request))
    return [*violations_of(chat["messages"]), *breaches_of(message), *breaches_of_items(items)]
