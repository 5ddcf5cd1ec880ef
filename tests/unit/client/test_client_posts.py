"""Posts of the client: everything that the protocol takes, in the first post and in later ones."""

from typing import Any

import anyio
import httpx
import pytest
from pydantic import BaseModel
from tests.support.python_client import (
    DONE,
    IDLE,
    PAINT,
    QUICK,
    Script,
    document,
    frame,
    owes,
    refusal,
    stream,
)
from tests.unit.client.replies import hello

from passback_client import (
    BadSetup,
    Client,
    Event,
    Left,
    NewMessage,
    Refused,
    RunFailed,
    Stream,
    Text,
    Tool,
)

pytestmark = pytest.mark.anyio

TOOL = Tool("paint", "Paint.", {"type": "object"}, lambda *_: "blue")
DECLARED = {"name": "paint", "description": "Paint.", "parameters": {"type": "object"}}
INCLUDE = ["rewind", "run", "owed", "output"]
SCHEMA: dict[str, Any] = {"type": "object", "required": ["customer"]}
CONTEXT: dict[str, Any] = {
    "structured_data": {"invoices": [{"customer": "Ann"}]},
    "intent": "prepare a reminder",
    "constraints": ["amounts in euros"],
    "instructions": "Be brief.",
    "model": "openai:gpt-5",
    "output_schema": SCHEMA,
}
POSTED = {
    "structuredData": {"invoices": [{"customer": "Ann"}]},
    "intent": "prepare a reminder",
    "constraints": ["amounts in euros"],
    "instructions": "Be brief.",
    "model": "openai:gpt-5",
    "outputSchema": SCHEMA,
}


class Reminder(BaseModel):
    customer: str


def hello_with(**headers: str) -> httpx.Response:
    reply = hello()
    reply.headers.update({name.replace("_", "-"): value for name, value in headers.items()})
    return reply


def client_of(script: Script) -> Client:
    return Client(
        "http://host", retry=QUICK, transport=script.transport, tools=[TOOL], claims=False
    )


async def read(stream: Stream) -> list[Event]:
    with anyio.fail_after(10):
        return [event async for event in stream]


async def posted_body(message: Any = "hi", **how: Any) -> dict[str, Any]:
    """Return the body that is posted for a message."""
    script = Script(hello())
    async with client_of(script) as client:
        await read(client.send(message, **how))
    [body] = script.bodies
    assert body.pop("tools") == [DECLARED]
    assert body.pop("include") == INCLUDE
    return dict(body)


# ---------------------------------------------------------------- options of a message
async def test_options_of_a_message_are_posted() -> None:
    assert await posted_body(**CONTEXT) == {
        "messages": [{"role": "user", "content": "hi"}],
        **POSTED,
    }


async def test_empty_options_are_not_posted() -> None:
    nothing = dict.fromkeys([*CONTEXT, "conversation_id", "agent_id", "on_busy", "on_disconnect"])
    bare = {"messages": [{"role": "user", "content": "hi"}]}
    assert await posted_body(**nothing | {"constraints": ()}) == bare


async def test_a_lone_surrogate_is_posted_as_the_replacement_character() -> None:
    body = await posted_body(structured_data={"\ud800": "a pair: \ud83d\ude00"}, intent="\udc00")
    assert body["structuredData"] == {"\ufffd": "a pair: 😀"}
    assert body["intent"] == "\ufffd"


async def test_a_pydantic_model_is_posted_as_its_schema() -> None:
    assert (await posted_body(output_schema=Reminder))[
        "outputSchema"
    ] == Reminder.model_json_schema()


class WithoutSchema(BaseModel):
    model_config = {"arbitrary_types_allowed": True}

    file: anyio.Path


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"output_schema": int}, "has no JSON Schema"),
        ({"output_schema": WithoutSchema}, "has no JSON Schema"),
        ({"output_schema": {"type": {1}}}, "not JSON"),
        ({"constraints": "in euros"}, "a list of texts"),
        ({"structured_data": float("nan")}, "not JSON"),
        ({"agent_id": ""}, "an agent's name"),
        ({"agent_id": "x" * 257}, "an agent's name"),
        *(({"idempotency_key": k}, "a post's key") for k in ("", "a b", "ä", "x" * 457, 'a"b')),
        *(
            ({"message": [{"type": "data", "data": part}]}, "not JSON")
            for part in (float("nan"), object(), {1, 2})
        ),
        ({"message": [NewMessage("a"), {"type": "text", "text": "b"}]}, "not both"),
    ],
)
async def test_unsupported_input_is_refused_before_sending(
    how: dict[str, Any], message: str
) -> None:
    script = Script()
    async with client_of(script) as client:
        with pytest.raises(BadSetup, match=message):
            client.send(**{"message": "hi", **how})
        with pytest.raises(BadSetup, match=message):
            await client.ask(**{"message": "hi", **how})
    assert script.requests == []


async def test_an_unknown_argument_is_an_error() -> None:
    wrong: dict[str, Any] = {"conversation": "c"}
    async with client_of(Script()) as client:
        with pytest.raises(TypeError, match="conversation"):
            client.send("hi", **wrong)


# ---------------------------------------------------------------- messages and agents
PART: dict[str, Any] = {"type": "image", "url": "https://host/a.png"}


@pytest.mark.parametrize(
    ("message", "posted"),
    [
        ([PART], [{"role": "user", "content": [PART]}]),
        ([], [{"role": "user", "content": []}]),
        (NewMessage("hi", id="m1"), [{"role": "user", "content": "hi", "id": "m1"}]),
        (
            [NewMessage([PART], role="system"), NewMessage("hi")],
            [{"role": "system", "content": [PART]}, {"role": "user", "content": "hi"}],
        ),
    ],
)
async def test_messages_may_have_parts_roles_and_ids(message: Any, posted: Any) -> None:
    assert await posted_body(message) == {"messages": posted}


async def test_an_agent_is_addressed_by_name_and_results_go_to_the_conversation() -> None:
    script = Script(owes(PAINT), hello())
    async with client_of(script) as client:
        await read(client.send("hi", conversation_id="c", agent_id="sales/eu."))
    assert script.routes == ["POST /v1/aibot/bots/sales%2Feu%2E/send-message", "POST /send-message"]


async def test_results_repeat_how_to_read_and_no_options_of_the_message() -> None:
    script = Script(owes(PAINT), hello())
    async with client_of(script) as client:
        how: Any = {"on_busy": "enqueue", "on_disconnect": "cancel", "include": ["usage"]}
        await read(client.send("hi", **CONTEXT, **how))
    assert script.bodies[1] == {
        "include": [*INCLUDE, "usage"],
        "onDisconnect": "cancel",
        "conversationId": "c d",
        "messages": [{"role": "tool", "toolCallId": "call", "content": "blue"}],
    }


# ---------------------------------------------------------------- answers that were waited for
ANSWERS: Any = {"answers": [{"text": "Ada"}]}


async def test_a_call_that_was_left_open_is_answered_later() -> None:
    script = Script(hello(), hello())
    how: Any = {"on_disconnect": "cancel", "include": ["usage"], "idempotency_key": "mine"}
    async with client_of(script) as client:
        assert await read(client.answer("c", "call", ANSWERS, **how)) == [
            Text("Hello", id="run.1-2")
        ]
        await read(client.answer("c", "call", "I would not say", is_error=True))
    result = {"role": "tool", "toolCallId": "call"}
    assert script.bodies == [
        {
            "include": [*INCLUDE, "usage"],
            "onDisconnect": "cancel",
            "conversationId": "c",
            "messages": [result | {"content": ANSWERS}],
        },
        {
            "include": INCLUDE,
            "conversationId": "c",
            "messages": [result | {"content": "I would not say", "isError": True}],
        },
    ]
    assert script.headers("idempotency-key")[0] == '"mine"'


async def test_a_decision_may_have_a_key_and_on_disconnect() -> None:
    script = Script(owes(PAINT), hello())
    how: Any = {"approved": True, "on_disconnect": "cancel", "idempotency_key": "mine"}
    async with client_of(script) as client:
        await read(client.decide("c", "burn", **how))
    assert script.headers("idempotency-key")[0] == '"mine"'
    assert [body["onDisconnect"] for body in script.bodies] == ["cancel", "cancel"]


async def test_a_resumed_run_may_have_on_disconnect_too() -> None:
    owing = document(IDLE | {"owed": [PAINT]})
    script = Script(owing, owing, hello())
    async with client_of(script) as client:
        await read(client.resume("c", on_disconnect="cancel"))
    assert [body["onDisconnect"] for body in script.bodies] == ["cancel"]


# ---------------------------------------------------------------- output and budget
def accepted(*after: bytes) -> httpx.Response:
    draft = frame("run.1-2", type="text", content='{"customer": ')
    output = frame("run.1-3", type="output", value={"customer": "Ann"})
    return stream(draft, output, *after, DONE)


async def test_an_answer_offers_the_accepted_output() -> None:
    async with client_of(Script(owes(PAINT), accepted(), hello())) as client:
        answer = await client.ask("hi", output_schema=Reminder)
        assert answer.output == {"customer": "Ann"}
        assert (await client.ask("hi")).output is None


USED = dict.fromkeys(["inputTokens", "outputTokens", "cachedTokens", "reasoningTokens"], 1)


@pytest.mark.parametrize(
    ("headers", "left"),
    [
        ({}, None),
        ({"x_budget_left_tokens": "20"}, Left(tokens=20)),
        (
            {"x_budget_left_seconds": "0.25", "x_budget_left_cost": "0"},
            Left(seconds=0.25, cost=0.0),
        ),
        ({"x_budget_left_cost": "many"}, None),
        ({"x_budget_left_tokens": "9" * 400}, None),
    ],
)
async def test_a_stream_has_the_budget_left_at_its_start(
    headers: dict[str, str], left: Left | None
) -> None:
    async with client_of(Script(hello_with(**headers), hello_with(**headers))) as client:
        stream = client.send("hi")
        assert stream.left is None
        await read(stream)
        assert stream.left == left
        assert (await client.ask("hi")).left == left


async def test_an_answer_has_the_budget_that_was_left_last() -> None:
    used = [
        frame("run.1-2", type="usage", **USED, left={"turns": 19, "tokens": 9}),
        frame("run.1-3", type="usage", **USED, left={"turns": 18, "tokens": 7}),
        frame("run.1-4", type="usage", **USED),
    ]
    reply = stream(*used, DONE)
    reply.headers["x-budget-left-tokens"] = "11"
    async with client_of(Script(reply)) as client:
        answer = await client.ask("hi", include=["usage"])
    assert answer.left == Left(turns=18, tokens=7)


async def test_an_error_has_its_details() -> None:
    details = {"limit": 5}
    body = {"code": "data_too_large", "message": "too large", "details": details, "request_id": "r"}
    async with client_of(Script(httpx.Response(413, json=body))) as client:
        with pytest.raises(Refused) as caught:
            await client.ask("hi", structured_data="x")
    assert (caught.value.code, caught.value.details) == ("data_too_large", details)
    async with client_of(Script(refusal(422, "nothing_to_do"))) as client:
        with pytest.raises(Refused) as caught:
            await client.ask("hi")
    assert caught.value.details is None


async def test_an_answer_that_fits_no_schema_is_a_failed_run() -> None:
    failed = frame("run.1-2", type="error", error="no", code="output_invalid", retryable=False)
    async with client_of(Script(stream(failed, DONE))) as client:
        with pytest.raises(RunFailed) as caught:
            await client.ask("hi", output_schema=SCHEMA)
    assert caught.value.code == "output_invalid"
