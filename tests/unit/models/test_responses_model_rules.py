"""The rules of the Responses API in tests/support: they find each breach, and nothing else."""

from typing import Any

import httpx
import pytest
from tests.support.responses_model_rules import Json, breaches_of
from tests.support.responses_model_server import (
    ResponsesModelServer,
    answer,
    reasoning,
    responses_model_server,
    says,
    text,
)

pytestmark = pytest.mark.anyio


def said(role: str, content: Any, **fields: object) -> Json:
    return {"type": "message", "role": role, "content": content} | fields


def call(call_id: str, **fields: object) -> Json:
    whole = {"type": "function_call", "call_id": call_id, "name": "look", "arguments": "{}"}
    return whole | fields


def output(call_id: str, content: Any = "x") -> Json:
    return {"type": "function_call_output", "call_id": call_id, "output": content}


def request(*items: Json, **fields: object) -> Json:
    return {"model": "m", "input": list(items), "store": False, "stream": True} | fields


HI = said("user", "hi")
BYE = said("assistant", "bye")
SEALED = {"type": "reasoning", "id": "rs_0_s", "summary": [], "encrypted_content": "s"}
TOOL: Json = {
    "type": "function",
    "name": "look",
    "parameters": {"type": "object", "properties": {}},
    "strict": False,
}
PICTURE = {"type": "input_image", "image_url": "https://x/y", "detail": "auto"}
FORMAT = {"type": "json_schema", "name": "output", "schema": {}}


@pytest.mark.parametrize(
    "body",
    [
        request(HI),
        request(said("system", "be kind"), HI, BYE, HI, instructions="x", tools=[TOOL]),
        request(said("user", [{"type": "input_text", "text": ""}, PICTURE]), said("user", "")),
        request(HI, call("a"), call("b"), output("b", [PICTURE]), output("a", "")),
        request(HI, SEALED, BYE, SEALED, call("a"), output("a"), said("assistant", "x", phase="y")),
        request(HI, tools=[TOOL], tool_choice="required"),
        request(HI, tools=[TOOL], tool_choice={"type": "function", "name": "look"}),
        request(HI, text={"format": FORMAT}, max_output_tokens=16),
        request(HI, text={"format": {"type": "json_object"}}),
    ],
)
def test_a_request_that_the_service_accepts_is_no_breach(body: Json) -> None:
    assert breaches_of(body) == []


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (request(), "the model or the input is missing"),
        (request(HI, model=""), "the model or the input is missing"),
        (request(HI, store=True), "it is kept"),
        (request(HI, stream=False), "it is kept"),
        (request(HI, instructions=" "), "the instructions say nothing"),
        (request(HI, max_output_tokens=15), "at most 15 tokens"),
        (request(HI, seed=1), "unknown parameters: ['seed']"),
        (request(HI, tools=[TOOL, TOOL]), "not properly named"),
        (request(HI, tools=[TOOL | {"strict": True}]), "a strict one"),
        (request(HI, tools=[TOOL | {"parameters": {"type": "object"}}]), "not one of an object"),
        (
            request(
                HI, tools=[TOOL | {"parameters": {"type": "object", "properties": {}, "anyOf": []}}]
            ),
            "refused at its top",
        ),
        (request(HI, tool_choice="required"), "a tool that is not there"),
        (
            request(HI, tools=[TOOL], tool_choice={"type": "function", "name": "fly"}),
            "a tool that is not there",
        ),
        (
            request(HI, tools=[TOOL], tool_choice={"type": "x", "name": "look"}),
            "no choice of a tool",
        ),
        (request(HI, text={"format": FORMAT | {"name": "a b"}}), "no schema with a name"),
        (request(HI, {"type": "item_reference", "id": "x"}), "has the type item_reference"),
        (request(said("developer", "x")), "has the role developer"),
        (request(HI | {"id": "msg_1"}), "a message with ['id']"),
        (request(said("assistant", " ")), "says nothing"),
        (request(said("assistant", [PICTURE])), "assistant says parts"),
        (request(said("user", "x", phase="y")), "a phase that it cannot have"),
        (request(said("user", [PICTURE | {"url": "x"}])), "a part that is none"),
        (request(said("user", [{"type": "input_file", "filename": "x"}])), "a file that is not"),
        (request(HI, call("a", name="no name"), output("a")), "makes no sense"),
        (request(HI, call("a", arguments="{"), output("a")), "makes no sense"),
        (request(HI, call("a")), "no outputs of ['a']"),
        (request(HI, output("a")), "answers no open call"),
        (request(HI, call("a"), HI, output("a")), "comes before the outputs of ['a']"),
        (request(HI, call("a"), output("a"), call("a"), output("a")), "cannot be used"),
        (request(HI, call("i" * 65), output("i" * 65)), "cannot be used"),
        (request(HI, SEALED, HI), "without the item that has to follow"),
        (request(HI, SEALED), "without the item that has to follow"),
        (request(HI, SEALED | {"encrypted_content": None}, BYE), "reasoning that nobody kept"),
        (request(HI, SEALED | {"status": None}, BYE), "a reasoning with ['status']"),
    ],
)
def test_each_breach_of_the_rules_is_found(body: Json, expected: str) -> None:
    [breach] = breaches_of(body)
    assert expected in breach


# ---------------------------------------------------------------- reasoning
async def post(server: ResponsesModelServer, body: Json) -> int:
    async with httpx.AsyncClient(trust_env=False) as client:
        answered = await client.post(f"{server.base_url}/responses", json=body)
    return answered.status_code


ASKED = {"include": ["reasoning.encrypted_content"]}


@pytest.mark.parametrize(
    ("asked", "item", "status"),
    [
        (ASKED, SEALED, 200),
        (ASKED, SEALED | {"encrypted_content": "other"}, 400),
        (ASKED, SEALED | {"id": "rs_1"}, 400),
        ({}, SEALED, 400),  # it was not given out
    ],
)
async def test_reasoning_has_to_come_back_unchanged(asked: Json, item: Json, status: int) -> None:
    reply = answer(reasoning(0, "s"), text(1, "a"))
    async with responses_model_server(reply, says("b")) as server:
        assert await post(server, request(HI, **asked)) == 200
        assert await post(server, request(HI, item, BYE, HI)) == status
        violations, server.violations = server.violations, []
    assert bool(violations) == (status == 400)
