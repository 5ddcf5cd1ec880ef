"""The tests' own idea of what Anthropic refuses: it must catch each breach, and nothing else."""

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


def words(said: str) -> Json:
    return {"type": "text", "text": said}


def use(call_id: str, **fields: object) -> Json:
    return {"type": "tool_use", "id": call_id, "name": "look", "input": {}} | fields


def answer(call_id: str, **fields: object) -> Json:
    return {"type": "tool_result", "tool_use_id": call_id} | fields


def user(*blocks: Json) -> Json:
    return {"role": "user", "content": list(blocks)}


def said(*blocks: Json) -> Json:
    return {"role": "assistant", "content": list(blocks)}


def request(*messages: Json, **fields: object) -> Json:
    return {"model": "m", "max_tokens": 2048, "messages": list(messages)} | fields


HI = user(words("hi"))
PICTURE = {"type": "image", "source": {}}
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "s"}
TOOL = {"name": "f", "input_schema": {"type": "object"}}
MARKED = {**words("a"), "cache_control": {}}
BUDGET = {"type": "enabled", "budget_tokens": 1024}
TEXT: Json = {"type": "string"}


def closed(**properties: Json) -> Json:
    return {"type": "object", "properties": properties, "additionalProperties": False}


def asking(schema: Json, **fields: object) -> Json:
    """A request for an answer of a schema."""
    shape = {"type": "json_schema", "schema": schema} | fields
    return request(HI, output_config={"format": shape})


@pytest.mark.parametrize(
    "body",
    [
        request(HI),
        request(HI, said(words("hello")), HI, system=[words("be kind")], tools=[TOOL]),
        request(user(PICTURE, words("see"))),
        request(HI, said(use("a"), use("b")), user(answer("b"), answer("a", content="x"))),
        request(HI, said(use("a")), user(answer("a", content=[words("x"), PICTURE]), words("so"))),
        request(HI, said(THOUGHT, use("a")), user(answer("a")), thinking=BUDGET),
        request(user(MARKED, MARKED, MARKED, MARKED)),
        request(HI, output_config={"effort": "low"}),
        asking(closed(a=TEXT, b={"type": "array", "items": TEXT, "minItems": 1})),
        asking(closed(a={"anyOf": [TEXT, {"enum": [1]}]}, b={"type": ["string", "null"]})),
    ],
)
def test_what_the_service_accepts_is_no_breach(body: Json) -> None:
    assert breaches_of(body) == []


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({**request(HI), "max_tokens": None}, ["max_tokens is missing"]),
        ({**request(HI), "model": ""}, ["the model is missing"]),
        (request(HI, system=[words(" ")]), ["the system says nothing"]),
        (request(HI, tools=[TOOL, TOOL]), ["not properly named"]),
        (request(HI, tools=[{**TOOL, "name": "no name"}]), ["not properly named"]),
        (request(HI, tools=[{**TOOL, "input_schema": {}}]), ["not one of an object"]),
        (
            request(HI, tools=[{**TOOL, "input_schema": {"type": "object", "anyOf": []}}]),
            ["not one of an object"],
        ),
        (request(), ["not the user's"]),
        (request(HI, HI), ["do not take turns"]),
        (request(said(words("a")), HI), ["do not take turns"]),
        (request(HI, said(words("a"))), ["not the user's"]),
        (request(user()), ["says nothing"]),
        (request(user(words(" "))), ["has a blank text"]),
        (request(user(use("a"))), ["has a tool_use", "are not answered"]),
        (request(HI, said(words("a"), THOUGHT), HI), ["ends in a thought"]),
        (request(HI, said(use("a", input=[])), user(answer("a"))), ["a call that makes no sense"]),
        (
            request(HI, said(use("a", name="no name")), user(answer("a"))),
            ["a call that makes no sense"],
        ),
        (request(HI, said(use("a")), user(words("x"), answer("a"))), ["behind something else"]),
        (request(HI, said(use("a")), user(answer("a", content=" "))), ["has a blank result"]),
        (request(HI, said(use("a")), user(answer("a", content=[words("")]))), ["has a blank text"]),
        (
            request(HI, said(use("a")), user(answer("a", content=[PICTURE], is_error=True))),
            ["an error that is no text"],
        ),
        (request(HI, said(use("a")), HI), ["answers []"]),
        (request(HI, said(use("a"), use("b")), user(answer("a"))), ["answers ['a']"]),
        (request(user(answer("a"))), ["answers ['a']"]),
        (
            request(HI, said(use("a"), use("a")), user(answer("a"), answer("a"))),
            ["ids that cannot be used"],
        ),
        (request(HI, said(use("a.b")), user(answer("a.b"))), ["ids that cannot be used"]),
        (
            request(HI, said(use("a")), user(answer("a")), said(use("a")), user(answer("a"))),
            ["ids that cannot be used"],
        ),
        (request(user(MARKED, MARKED, MARKED, MARKED, MARKED)), ["5 breakpoints"]),
        (
            request(HI, said({**THOUGHT, "cache_control": {}}, words("a")), HI),
            ["a thought cannot be cached"],
        ),
        (request(HI, thinking={**BUDGET, "budget_tokens": 2048}), ["more is thought"]),
        (
            request(HI, said(words("a"), use("a")), user(answer("a")), thinking=BUDGET),
            ["made without a thought"],
        ),
        (asking(closed(a=TEXT), name="x"), ["no known kind"]),
        (asking(closed(a={**TEXT, "maxLength": 1})), ["has ['maxLength']"]),
        (asking(closed(a={})), ["of any type"]),
        (asking(closed(a={"type": "object"})), ["an object that is open"]),
        (asking(closed(a={"type": "array"})), ["an array of anything"]),
        (asking(closed(a={"type": "array", "items": TEXT, "minItems": 2})), ["a minItems"]),
        (asking(closed(**{f"p{n}": TEXT for n in range(25)})), ["25 optional properties"]),
    ],
)
def test_each_breach_of_anthropics_rules_is_told(body: Json, told: list[str]) -> None:
    breaches = breaches_of(body)
    assert len(breaches) == len(told)
    assert all(part in text for part, text in zip(told, breaches, strict=True))


# ---------------------------------------------------------------- thoughts
async def post(server: AnthropicServer, body: Json) -> int:
    async with httpx.AsyncClient(trust_env=False) as client:
        answered = await client.post(f"{server.base_url}/messages", json=body)
    return answered.status_code


HIDDEN = {"type": "redacted_thinking", "data": "xyz"}


@pytest.mark.parametrize(
    ("answered", "status"),
    [
        (said(THOUGHT, HIDDEN, words("a")), 200),
        (said(words("a")), 200),
        (said({**THOUGHT, "thinking": "h"}, words("a")), 400),
        (said({**THOUGHT, "signature": "other"}, words("a")), 400),
        (said({**HIDDEN, "data": "other"}, words("a")), 400),
    ],
)
async def test_a_thought_comes_back_as_it_was(answered: Json, status: int) -> None:
    reply = message(thinking(0, "hm", "s"), redacted(1, "xyz"), text(2, "a"))
    async with anthropic_server(reply, says("b")) as server:
        assert await post(server, request(HI)) == 200
        assert await post(server, request(HI, answered, HI)) == status
        told, server.violations = server.violations, []
    assert bool(told) == (status == 400)


@pytest.mark.parametrize(
    "changed",
    [
        {"messages": [user(words("ho")), said(THOUGHT, words("a")), HI]},
        {"system": [words("new")]},
        {"tools": [TOOL]},
    ],
    ids=json.dumps,
)
async def test_a_thought_comes_back_behind_its_words(changed: dict[str, Any]) -> None:
    reply = message(thinking(0, "hm", "s"), text(1, "a"))
    async with anthropic_server(reply, says("b")) as server:
        assert await post(server, request(HI)) == 200
        again = request(HI, said(THOUGHT, words("a")), HI)
        assert await post(server, again | changed) == 400
        told, server.violations = server.violations, []
        marked = user({**words("hi"), "cache_control": {}})
        assert await post(server, request(marked, *again["messages"][1:])) == 200
    assert "bound to other words" in told[0]
