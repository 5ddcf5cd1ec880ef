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


def text_block(text: str) -> Json:
    return {"type": "text", "text": text}


def tool_use(call_id: str, **fields: object) -> Json:
    return {"type": "tool_use", "id": call_id, "name": "look", "input": {}} | fields


def tool_result(call_id: str, **fields: object) -> Json:
    return {"type": "tool_result", "tool_use_id": call_id} | fields


def user(*blocks: Json) -> Json:
    return {"role": "user", "content": list(blocks)}


def assistant(*blocks: Json) -> Json:
    return {"role": "assistant", "content": list(blocks)}


def request(*messages: Json, **fields: object) -> Json:
    return {"model": "m", "max_tokens": 2048, "messages": list(messages)} | fields


HI = user(text_block("hi"))
PICTURE = {"type": "image", "source": {}}
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "s"}
TOOL = {"name": "f", "input_schema": {"type": "object"}}
MARKED = {**text_block("a"), "cache_control": {}}
BUDGET = {"type": "enabled", "budget_tokens": 1024}
TEXT: Json = {"type": "string"}


def closed_object(**properties: Json) -> Json:
    return {"type": "object", "properties": properties, "additionalProperties": False}


def output_request(schema: Json, **fields: object) -> Json:
    """Return a request for an answer of a schema."""
    shape = {"type": "json_schema", "schema": schema} | fields
    return request(HI, output_config={"format": shape})


@pytest.mark.parametrize(
    "body",
    [
        request(HI),
        request(
            HI, assistant(text_block("hello")), HI, system=[text_block("be kind")], tools=[TOOL]
        ),
        request(user(PICTURE, text_block("see"))),
        request(
            HI,
            assistant(tool_use("a"), tool_use("b")),
            user(tool_result("b"), tool_result("a", content="x")),
        ),
        request(
            HI,
            assistant(tool_use("a")),
            user(tool_result("a", content=[text_block("x"), PICTURE]), text_block("so")),
        ),
        request(HI, assistant(THOUGHT, tool_use("a")), user(tool_result("a")), thinking=BUDGET),
        request(user(MARKED, MARKED, MARKED, MARKED)),
        request(HI, output_config={"effort": "low"}),
        output_request(closed_object(a=TEXT, b={"type": "array", "items": TEXT, "minItems": 1})),
        output_request(
            closed_object(a={"anyOf": [TEXT, {"enum": [1]}]}, b={"type": ["string", "null"]})
        ),
    ],
)
def test_a_request_that_the_service_accepts_is_no_breach(body: Json) -> None:
    assert breaches_of(body) == []


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({**request(HI), "max_tokens": None}, ["max_tokens is missing"]),
        ({**request(HI), "model": ""}, ["the model is missing"]),
        (request(HI, system=[text_block(" ")]), ["the system says nothing"]),
        (request(HI, tools=[TOOL, TOOL]), ["not properly named"]),
        (request(HI, tools=[{**TOOL, "name": "no name"}]), ["not properly named"]),
        (request(HI, tools=[{**TOOL, "input_schema": {}}]), ["not one of an object"]),
        (
            request(HI, tools=[{**TOOL, "input_schema": {"type": "object", "anyOf": []}}]),
            ["not one of an object"],
        ),
        (request(), ["not the user's"]),
        (request(HI, HI), ["do not take turns"]),
        (request(assistant(text_block("a")), HI), ["do not take turns"]),
        (request(HI, assistant(text_block("a"))), ["not the user's"]),
        (request(user()), ["says nothing"]),
        (request(user(text_block(" "))), ["has a blank text"]),
        (request(user(tool_use("a"))), ["has a tool_use", "are not answered"]),
        (request(HI, assistant(text_block("a"), THOUGHT), HI), ["ends in a thought"]),
        (
            request(HI, assistant(tool_use("a", input=[])), user(tool_result("a"))),
            ["a call that makes no sense"],
        ),
        (
            request(HI, assistant(tool_use("a", name="no name")), user(tool_result("a"))),
            ["a call that makes no sense"],
        ),
        (
            request(HI, assistant(tool_use("a")), user(text_block("x"), tool_result("a"))),
            ["behind something else"],
        ),
        (
            request(HI, assistant(tool_use("a")), user(tool_result("a", content=" "))),
            ["has a blank result"],
        ),
        (
            request(HI, assistant(tool_use("a")), user(tool_result("a", content=[text_block("")]))),
            ["has a blank text"],
        ),
        (
            request(
                HI,
                assistant(tool_use("a")),
                user(tool_result("a", content=[PICTURE], is_error=True)),
            ),
            ["an error that is no text"],
        ),
        (request(HI, assistant(tool_use("a")), HI), ["answers []"]),
        (
            request(HI, assistant(tool_use("a"), tool_use("b")), user(tool_result("a"))),
            ["answers ['a']"],
        ),
        (request(user(tool_result("a"))), ["answers ['a']"]),
        (
            request(
                HI,
                assistant(tool_use("a"), tool_use("a")),
                user(tool_result("a"), tool_result("a")),
            ),
            ["ids that cannot be used"],
        ),
        (
            request(HI, assistant(tool_use("a.b")), user(tool_result("a.b"))),
            ["ids that cannot be used"],
        ),
        (
            request(
                HI,
                assistant(tool_use("a")),
                user(tool_result("a")),
                assistant(tool_use("a")),
                user(tool_result("a")),
            ),
            ["ids that cannot be used"],
        ),
        (request(user(MARKED, MARKED, MARKED, MARKED, MARKED)), ["5 breakpoints"]),
        (
            request(HI, assistant({**THOUGHT, "cache_control": {}}, text_block("a")), HI),
            ["a thought cannot be cached"],
        ),
        (request(HI, thinking={**BUDGET, "budget_tokens": 2048}), ["more is thought"]),
        (
            request(
                HI,
                assistant(text_block("a"), tool_use("a")),
                user(tool_result("a")),
                thinking=BUDGET,
            ),
            ["made without a thought"],
        ),
        (output_request(closed_object(a=TEXT), name="x"), ["no known kind"]),
        (output_request(closed_object(a={**TEXT, "maxLength": 1})), ["has ['maxLength']"]),
        (output_request(closed_object(a={})), ["of any type"]),
        (output_request(closed_object(a={"type": "object"})), ["an object that is open"]),
        (output_request(closed_object(a={"type": "array"})), ["an array of anything"]),
        (
            output_request(closed_object(a={"type": "array", "items": TEXT, "minItems": 2})),
            ["a minItems"],
        ),
        (
            output_request(closed_object(**{f"p{n}": TEXT for n in range(25)})),
            ["25 optional properties"],
        ),
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
        (assistant(THOUGHT, HIDDEN, text_block("a")), 200),
        (assistant(text_block("a")), 200),
        (assistant({**THOUGHT, "thinking": "h"}, text_block("a")), 400),
        (assistant({**THOUGHT, "signature": "other"}, text_block("a")), 400),
        (assistant({**HIDDEN, "data": "other"}, text_block("a")), 400),
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
        {"messages": [user(text_block("ho")), assistant(THOUGHT, text_block("a")), HI]},
        {"system": [text_block("new")]},
        {"tools": [TOOL]},
    ],
    ids=json.dumps,
)
async def test_a_thought_has_to_come_back_behind_the_same_request(changed: dict[str, Any]) -> None:
    reply = message(thinking(0, "hm", "s"), text(1, "a"))
    async with anthropic_server(reply, says("b")) as server:
        assert await post(server, request(HI)) == 200
        again = request(HI, assistant(THOUGHT, text_block("a")), HI)
        assert await post(server, again | changed) == 400
        violations, server.violations = server.violations, []
        marked = user({**text_block("hi"), "cache_control": {}})
        assert await post(server, request(marked, *again["messages"][1:])) == 200
    assert "bound to other words" in violations[0]
