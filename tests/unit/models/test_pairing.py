"""The tests' own idea of what providers refuse: it must catch each breach, and nothing else."""

from typing import Any, TypeAlias

import pytest
from tests.support.provider_rules import violations_of

Json: TypeAlias = dict[str, Any]

SYSTEM: Json = {"role": "system", "content": "be brief"}
USER: Json = {"role": "user", "content": "hi"}


def call(call_id: str, **function: object) -> Json:
    return {
        "id": call_id,
        "type": "function",
        "function": {"name": "look", "arguments": "{}"} | function,
    }


def asks(*calls: Json, content: str | None = None) -> Json:
    return {"role": "assistant", "content": content, "tool_calls": list(calls)}


def answers(call_id: str, content: object = "") -> Json:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


A, B = call("a"), call("b")
PICTURE = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}


@pytest.mark.parametrize(
    "messages",
    [
        [USER],
        [SYSTEM, SYSTEM, USER, SYSTEM, USER],
        [USER, {"role": "assistant", "content": "hello"}, USER],
        [{"role": "user", "content": [{"type": "text", "text": "look"}, PICTURE]}],
        [USER, asks(A, B), answers("b"), answers("a"), USER],
        [USER, asks(A, content="I look"), answers("a"), asks(B), answers("b", "seen")],
    ],
)
def test_what_providers_accept_is_no_violation(messages: list[Json]) -> None:
    assert violations_of(messages) == []


@pytest.mark.parametrize(
    ("messages", "told"),
    [
        ([], ["the first message behind the system's is missing, not user"]),
        ([SYSTEM, asks(A), answers("a")], ["is assistant, not user"]),
        ([USER, {"role": "function", "content": "x"}], ["message 1 has the role 'function'"]),
        ([{"role": "user", "content": ""}], ["message 0 says nothing"]),
        ([{"role": "user", "content": []}], ["message 0 says nothing"]),
        ([{"role": "user", "content": [{"type": "text", "text": ""}]}], ["message 0 says nothing"]),
        ([USER, {"role": "assistant", "content": None}], ["message 1 says nothing"]),
        ([USER, asks(A, content=""), answers("a")], ["message 1 has an empty text"]),
        ([USER, asks()], ["message 1 says nothing", "must not have `tool_calls`"]),
        ([{**USER, "tool_calls": [A]}, answers("a")], ["must not have `tool_calls`"]),
        ([USER, asks(A), answers("a", None)], ["message 2 is an answer without a text"]),
        ([USER, asks(call("")), answers("")], ["a call without an id or a type"]),
        ([USER, asks({"id": "a"}), answers("a")], ["or a type", "proper name", "no JSON object"]),
        ([USER, asks(call("a", name="no name")), answers("a")], ["without a proper name"]),
        ([USER, asks(call("a", arguments="[]")), answers("a")], ["that are no JSON object"]),
        ([USER, asks(call("a", arguments="{")), answers("a")], ["that are no JSON object"]),
        ([USER, asks(A)], ["no answers to ['a']"]),
        ([USER, asks(A, B), answers("a")], ["no answers to ['b']"]),
        ([USER, asks(A), USER, answers("a")], ["comes before the answers", "answers no open"]),
        ([USER, asks(A), answers("a"), answers("a")], ["message 3 answers no open call"]),
        ([USER, answers("a")], ["message 1 answers no open call"]),
        ([USER, asks(A, A), answers("a"), answers("a")], ["message 1 has ids that were used"]),
        ([USER, asks(A), answers("a"), asks(A), answers("a")], ["message 3 has ids that"]),
    ],
)
def test_each_breach_is_told(messages: list[Json], told: list[str]) -> None:
    violations = violations_of(messages)
    assert len(violations) == len(told)
    assert all(part in text for part, text in zip(told, violations, strict=True))
