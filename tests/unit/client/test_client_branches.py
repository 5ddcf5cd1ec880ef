"""Edit, regenerate, switch and fork in the Python client, with a scripted server."""

from typing import Any

import anyio
import httpx
import pytest
from tests.support.python_client import IDLE, PAINT, QUICK, Script, document, owes, refusal
from tests.unit.client.replies import hello

from passback_client import (
    BadAnswer,
    BadSetup,
    BranchPoint,
    Busy,
    Client,
    Event,
    Stream,
    Text,
    Tool,
)
from passback_client import sync as plain

pytestmark = pytest.mark.anyio

INCLUDE = ["rewind", "run", "owed", "output"]
DECLARED = {"name": "paint", "description": "", "parameters": {}}
LOST = httpx.ReadError("lost")
POINTS = [
    {"after": None, "versions": ["a", "c"], "current": "c"},
    {"after": "c", "versions": ["d"], "current": None, "newer": 1},
]
FOUND = (BranchPoint(None, ("a", "c"), "c"), BranchPoint("c", ("d",), None))


def client_of(script: Script) -> Client:
    tools = [Tool("paint", "", {}, lambda *_: "blue")]
    return Client("http://host", retry=QUICK, transport=script.transport, tools=tools, claims=False)


def plain_client(script: Script) -> plain.Client:
    return plain.Client("http://host", retry=QUICK, transport=script.transport)


async def read(stream: Stream) -> list[Event]:
    with anyio.fail_after(10):
        return [event async for event in stream]


async def test_an_edit_says_which_message_it_follows() -> None:
    script = Script(hello(), hello(), hello())
    async with client_of(script) as client:
        await client.ask("hi", conversation_id="c", after="msg_1")
        await client.ask("hi", conversation_id="c", after="")
        await client.ask("hi", conversation_id="c", after=None)
    assert [body.get("after") for body in script.bodies] == ["msg_1", "", None]
    assert "after" not in script.bodies[2]


async def test_an_answer_is_written_anew_and_its_calls_are_answered() -> None:
    script = Script(LOST, owes(PAINT), hello())
    how: Any = {"on_busy": "enqueue", "on_disconnect": "cancel", "include": ["usage"]}
    async with client_of(script) as client:
        events = await read(client.regenerate("c", "msg_1", **how))
    assert events[-1] == Text("Hello", id="run.1-2")
    again, repeat, answered = script.bodies
    assert again == {
        "include": [*INCLUDE, "usage"],
        "onDisconnect": "cancel",
        "tools": [DECLARED],
        "conversationId": "c",
        "after": "msg_1",
        "onBusy": "enqueue",
    }
    assert repeat == again
    assert "after" not in answered  # the results belong to the new branch
    first, second, other = script.headers("idempotency-key")
    assert first == second != other


async def test_a_busy_conversation_is_waited_for_if_that_is_asked_for() -> None:
    busy = refusal(409, "conversation_busy")
    script = Script(busy, busy, hello())
    async with client_of(script) as client:
        with pytest.raises(Busy):
            await read(client.regenerate("c", "msg_1", idempotency_key="mine"))
        [said] = await read(
            client.regenerate("c", "msg_1", idempotency_key="mine", wait_while_busy=True)
        )
    assert isinstance(said, Text)
    assert script.headers("idempotency-key") == ['"mine"'] * 3


async def test_a_conversation_tells_its_branches() -> None:
    script = Script(document({**IDLE, "branches": POINTS}), document(IDLE))
    async with client_of(script) as client:
        assert (await client.conversation("c")).branches == FOUND
        assert (await client.conversation("c")).branches == ()


@pytest.mark.parametrize(
    "points", [None, [{}], [{"after": "a"}], [{"versions": [1], "current": "a"}]]
)
async def test_branches_that_are_none_are_a_bad_answer(points: Any) -> None:
    async with client_of(Script(document({**IDLE, "branches": points}))) as client:
        with pytest.raises(BadAnswer, match="branches"):
            await client.conversation("c")


async def test_a_switch_is_repeated_until_it_is_answered_but_not_while_a_run_goes_on() -> None:
    found = document({**IDLE, "branches": POINTS})
    script = Script(LOST, refusal(503, "store_unavailable"), found)
    async with client_of(script) as client:
        assert (await client.switch_branch("a/b", "msg_1")).branches == FOUND
    assert script.routes == ["POST /conversations/a%2Fb/leaf"] * 3
    assert script.bodies == [{"message": "msg_1"}] * 3
    script = Script(refusal(409, "conversation_busy"))
    async with client_of(script) as client:
        with pytest.raises(Busy):
            await client.switch_branch("c", "msg_1")


async def test_a_fork_whose_answer_is_lost_is_repeated_under_its_key() -> None:
    script = Script(LOST, document({**IDLE, "id": "copy"}), document(IDLE))
    async with client_of(script) as client:
        assert (await client.fork("c", after="")).id == "copy"
        await client.fork("c", new_id="mine", idempotency_key="key")
        with pytest.raises(BadSetup, match="key"):
            await client.fork("c", idempotency_key="no key")
    assert script.routes == ["POST /conversations/c/fork"] * 3
    assert script.bodies == [{"after": ""}, {"after": ""}, {"conversationId": "mine"}]
    first, second, third = script.headers("idempotency-key")
    assert (first, third) == (second, '"key"')


def test_all_of_it_works_without_async() -> None:
    copy = {**IDLE, "id": "mine"}
    script = Script(hello(), document({**IDLE, "branches": POINTS}), document(copy))
    how: Any = {"on_disconnect": "cancel", "include": ["usage"], "idempotency_key": "key"}
    with plain_client(script) as client:
        with client.regenerate("c", "msg_1", on_busy="rollback", **how) as stream:
            assert [type(event) for event in stream] == [Text]
        assert client.switch_branch("c", "msg_2").branches == FOUND
        forked = client.fork("c", after="msg_1", new_id="mine", idempotency_key="other")
    assert forked.id == "mine"
    assert script.bodies == [
        {
            "include": [*INCLUDE, "usage"],
            "onDisconnect": "cancel",
            "tools": [],
            "conversationId": "c",
            "after": "msg_1",
            "onBusy": "rollback",
        },
        {"message": "msg_2"},
        {"after": "msg_1", "conversationId": "mine"},
    ]
    assert script.headers("idempotency-key") == ['"key"', None, '"other"']


def test_without_async_a_busy_conversation_is_waited_for_too() -> None:
    script = Script(refusal(409, "conversation_busy"), hello())
    with plain_client(script) as client:
        assert len(list(client.regenerate("c", "msg_1", wait_while_busy=True))) == 1
