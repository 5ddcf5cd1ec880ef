"""The rules of Anthropic's service in tests/support: they find each breach, and nothing else."""

import json
from typing import Any

import httpx
import pytest
from tests.support.anthropic_rules import Json, breaches_of
from tests.support.anthropic_server import (
    AnthropicServer,
    anthropic_server,
    message,
    redacted,
    says,
    text,
    thinking,
)

pytestmark = pytest.mark.anyio


def block(text: str) -> Json:
    return {"type": "text", "text": text}


def use(call_id: str, **fields: object) -> Json:
    return {"type": "tool_use", "id": call_id, "name": "look", "input": {}} | fields


def result(call_id: str, **fields: object) -> Json:
    return {"type": "tool_result", "tool_use_id": call_id} | fields


def user(*blocks: Json) -> Json:
    return {"role": "user", "content": list(blocks)}


def answer(*blocks: Json) -> Json:
    return {"role": "assistant", "content": list(blocks)}


def request(*messages: Json, **fields: object) -> Json:
    return {"model": "m", "max_tokens": 2048, "messages": list(messages)} | fields


HI = user(block("hi"))
PICTURE = {"type": "image", "source": {}}
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "s"}
TOOL = {"name": "f", "input_schema": {"type": "object"}}
MARKED = {**block("a"), "cache_control": {}}
BUDGET = {"type": "enabled", "budget_tokens": 1024}
TEXT: Json = {"type": "string"}


def closed_object(**properties: Json) -> Json:
    return {"type": "object", "properties": properties, "additionalProperties": False}


def asking(schema: Json, **fields: object) -> Json:
    """Return a request for an answer of a schema."""
    shape = {"type": "json_schema", "schema": schema} | fields
    return request(HI, output_config={"format": shape})


@pytest.mark.parametrize(
    "body",
    [
        request(HI),
        request(HI, answer(block("hello")), HI, system=[block("be kind")], tools=[TOOL]),
        request(user(PICTURE, block("see"))),
        request(HI, answer(use("a"), use("b")), user(result("b"), result("a", content="x"))),
        request(
            HI, answer(use("a")), user(result("a", content=[block("x"), PICTURE]), block("so"))
        ),
        request(HI, answer(THOUGHT, use("a")), user(result("a")), thinking=BUDGET),
        request(user(MARKED, MARKED, MARKED, MARKED)),
        request(HI, output_config={"effort": "low"}),
        asking(closed_object(a=TEXT, b={"type": "array", "items": TEXT, "minItems": 1})),
        asking(closed_object(a={"anyOf": [TEXT, {"enum": [1]}]}, b={"type": ["string", "null"]})),
    ],
)
def test_a_request_that_the_service_accepts_is_no_breach(body: Json) -> None:
    assert breaches_of(body) == []


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({**request(HI), "max_tokens": None}, ["max_tokens is missing"]),
        ({**request(HI), "model": ""}, ["the model is missing"]),
        (request(HI, system=[block(" ")]), ["the system says nothing"]),
        (request(HI, tools=[TOOL, TOOL]), ["not properly named"]),
        (request(HI, tools=[{**TOOL, "name": "no name"}]), ["not properly named"]),
        (request(HI, tools=[{**TOOL, "input_schema": {}}]), ["not one of an object"]),
        (
            request(HI, tools=[{**TOOL, "input_schema": {"type": "object", "anyOf": []}}]),
            ["not one of an object"],
        ),
        (request(), ["not the user's"]),
        (request(HI, HI), ["do not take turns"]),
        (request(answer(block("a")), HI), ["do not take turns"]),
        (request(HI, answer(block("a"))), ["not the user's"]),
        (request(user()), ["says nothing"]),
        (request(user(block(" "))), ["has a blank text"]),
        (request(user(use("a"))), ["has a tool_use", "are not answered"]),
        (request(HI, answer(block("a"), THOUGHT), HI), ["ends in a thought"]),
        (
            request(HI, answer(use("a", input=[])), user(result("a"))),
            ["a call that makes no sense"],
        ),
        (
            request(HI, answer(use("a", name="no name")), user(result("a"))),
            ["a call that makes no sense"],
        ),
        (request(HI, answer(use("a")), user(block("x"), result("a"))), ["behind something else"]),
        (request(HI, answer(use("a")), user(result("a", content=" "))), ["has a blank result"]),
        (
            request(HI, answer(use("a")), user(result("a", content=[block("")]))),
            ["has a blank text"],
        ),
        (
            request(HI, answer(use("a")), user(result("a", content=[PICTURE], is_error=True))),
            ["an error that is no text"],
        ),
        (request(HI, answer(use("a")), HI), ["answers []"]),
        (request(HI, answer(use("a"), use("b")), user(result("a"))), ["answers ['a']"]),
        (request(user(result("a"))), ["answers ['a']"]),
        (
            request(HI, answer(use("a"), use("a")), user(result("a"), result("a"))),
            ["ids that cannot be used"],
        ),
        (request(HI, answer(use("a.b")), user(result("a.b"))), ["ids that cannot be used"]),
        (
            request(HI, answer(use("a")), user(result("a")), answer(use("a")), user(result("a"))),
            ["ids that cannot be used"],
        ),
        (request(user(MARKED, MARKED, MARKED, MARKED, MARKED)), ["5 breakpoints"]),
        (
            request(HI, answer({**THOUGHT, "cache_control": {}}, block("a")), HI),
            ["a thought cannot be cached"],
        ),
        (request(HI, thinking={**BUDGET, "budget_tokens": 2048}), ["more is thought"]),
        (
            request(HI, answer(block("a"), use("a")), user(result("a")), thinking=BUDGET),
            ["made without a thought"],
        ),
        (asking(closed_object(a=TEXT), name="x"), ["no known kind"]),
        (asking(closed_object(a={**TEXT, "maxLength": 1})), ["has ['maxLength']"]),
        (asking(closed_object(a={})), ["of any type"]),
        (asking(closed_object(a={"type": "object"})), ["an object that is open"]),
        (asking(closed_object(a={"type": "array"})), ["an array of anything"]),
        (asking(closed_object(a={"type": "array", "items": TEXT, "minItems": 2})), ["a minItems"]),
        (asking(closed_object(**{f"p{n}": TEXT for n in range(25)})), ["25 optional properties"]),
    ],
)
def test_each_breach_of_anthropics_rules_is_found(body: Json, expected: list[str]) -> None:
    breaches = breaches_of(body)
    assert len(breaches) == len(expected)
    assert all(part in text for part, text in zip(expected, breaches, strict=True))


# ---------------------------------------------------------------- thoughts
async def post(server: AnthropicServer, body: Json) -> int:
    async with httpx.AsyncClient(trust_env=False) as client:
        answered = await client.post(f"{server.base_url}/messages", json=body)
    return answered.status_code


HIDDEN = {"type": "redacted_thinking", "data": "xyz"}


@pytest.mark.parametrize(
    ("answered", "status"),
    [
        (answer(THOUGHT, HIDDEN, block("a")), 200),
        (answer(block("a")), 200),
        (answer({**THOUGHT, "thinking": "h"}, block("a")), 400),
        (answer({**THOUGHT, "signature": "other"}, block("a")), 400),
        (answer({**HIDDEN, "data": "other"}, block("a")), 400),
    ],
)
async def test_a_thought_has_to_come_back_unchanged(answered: Json, status: int) -> None:
    reply = message(thinking(0, "hm", "s"), redacted(1, "xyz"), text(2, "a"))
    async with anthropic_server(reply, says("b")) as server:
        assert await post(server, request(HI)) == 200
        assert await post(server, request(HI, answered, HI)) == status
        violations, server.violations = server.violations, []
    assert bool(violations) == (status == 400)


@pytest.mark.parametrize(
    "changed",
    [
        {"messages": [user(block("ho")), answer(THOUGHT, block("a")), HI]},
        {"system": [block("new")]},
        {"tools": [TOOL]},
    ],
    ids=json.dumps,
)
async def test_a_thought_has_to_come_back_behind_the_same_request(changed: dict[str, Any]) -> None:
    reply = message(thinking(0, "hm", "s"), text(1, "a"))
    async with anthropic_server(reply, says("b")) as server:
        assert await post(server, request(HI)) == 200
        again = request(HI, answer(THOUGHT, block("a")), HI)
        assert await post(server, again | changed) == 400
        violations, server.violations = server.violations, []
        marked = user({**block("hi"), "cache_control": {}})
        assert await post(server, request(marked, *again["messages"][1:])) == 200
    assert "bound to other words" in violations[0]
