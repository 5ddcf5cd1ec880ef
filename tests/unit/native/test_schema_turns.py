"""Schemas that nobody posted before are judged one at a time, owners take turns; known ones wait for nobody."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from pydantic import JsonValue
from starlette.types import ASGIApp
from tests.support.asgi_client import ask_json
from tests.support.logged_runs import LoggedRuns

from passback.core.errors import InvalidTool, SchemasBusy
from passback.core.events import Completed, RunFinished
from passback.core.messages import ConversationId, ConversationKey, OwnerId, ToolSpec
from passback.core.signals import Signal
from passback.http.gate import Access
from passback.http.site import build_site
from passback.http.wires import RequestLimits, Services
from passback.native.declarations import SCHEMA_PLACES, parse_output_schema, parse_tools
from passback.pacing import FairLimiter
from passback.wire import agent_api, send_message

pytestmark = [pytest.mark.anyio, pytest.mark.promise("P11")]

ALICE = ConversationKey(OwnerId("alice"), ConversationId("c"))
BOB = ConversationKey(OwnerId("bob"), ConversationId("c"))
KNOWN: JsonValue = {"type": "object", "properties": {"color": {"type": "string"}}}
_numbers = count()


def new(parts: int = 0) -> dict[str, JsonValue]:
    """A schema that nobody has posted, of so many parts and four more."""
    properties: dict[str, JsonValue] = {f"p{number}": {} for number in range(parts)}
    return {"type": "object", "title": f"new {next(_numbers)}", "properties": properties}


def tools(*schemas: JsonValue) -> list[JsonValue]:
    return [
        {"name": f"tool_{number}", "parameters": schema} for number, schema in enumerate(schemas)
    ]


async def post(declared: Sequence[JsonValue], key: ConversationKey) -> None:
    await parse_tools(declared, RequestLimits(), key)


def wire_app() -> ASGIApp:
    services = Services(LoggedRuns(RunFinished(Completed())), Signal())
    return build_site([send_message.build(services), agent_api.build(services)], Access())


# ---------------------------------------------------------------- what is known
async def test_tools_that_are_known_are_read_without_waiting() -> None:
    """Not for a thread, either: all is done in the first step, whatever others wait for."""
    await post(tools(KNOWN, None), ALICE)
    await parse_output_schema(KNOWN, RequestLimits(), "outputSchema", ALICE)
    with pytest.raises(StopIteration):
        post(tools(KNOWN, None), ALICE).send(None)
    with pytest.raises(StopIteration):
        parse_output_schema(KNOWN, RequestLimits(), "outputSchema", ALICE).send(None)


async def test_what_is_wrong_with_a_schema_is_known_too() -> None:
    wrong = tools({"type": "object", "required": 1})
    with pytest.raises(InvalidTool, match="not a valid JSON Schema"):
        await post(wrong, ALICE)
    with pytest.raises(InvalidTool, match="not a valid JSON Schema"):
        post(wrong, ALICE).send(None)


# ---------------------------------------------------------------- turns
@pytest.mark.parametrize(
    ("posts", "tools_of_each"), [(12, 1), (1, 3)], ids=["many posts", "one post of many tools"]
)
async def test_who_posts_new_tools_waits_for_one_judgement_of_another_owner(
    posts: int, tools_of_each: int
) -> None:
    """Of 12 posts with 8 tools of 1,000 parts each a part; in one line, all of them came before the last one."""
    done: list[str] = []

    async def attack() -> None:
        await post(tools(*(new(600) for _ in range(tools_of_each))), ALICE)
        done.append("alice")

    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            for _ in range(posts):
                group.start_soon(attack)
            await anyio.lowlevel.checkpoint()
            before = len(done)
            await post(tools(new()), BOB)
            done.append("bob")
            group.cancel_scope.cancel()
    assert done.index("bob") - before <= (1 if tools_of_each == 1 else 0)


async def test_two_posts_of_the_same_new_tools_are_judged_once() -> None:
    declared, found = tools(new()), list[ToolSpec]()
    places = FairLimiter(1, 5.0)
    SCHEMA_PLACES.set(places)

    async def read(key: ConversationKey) -> None:
        found.extend(await parse_tools(declared, RequestLimits(), key))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as group, places.acquire(BOB):
            group.start_soon(read, ALICE)
            group.start_soon(read, ConversationKey(ALICE.owner, ConversationId("another")))
            await anyio.wait_all_tasks_blocked()
    first, second = found
    assert first.parameters is second.parameters


async def test_an_owners_schemas_push_no_others_out() -> None:
    declared = tools(new())
    await post(declared, BOB)
    for _ in range(300):
        await post(tools(new()), ALICE)
    with pytest.raises(StopIteration):
        post(declared, BOB).send(None)


# ---------------------------------------------------------------- no turn in time
async def test_a_post_whose_schemas_are_not_judged_in_time_is_refused_and_known_ones_are_not() -> (
    None
):
    await post(tools(KNOWN), BOB)
    places = FairLimiter(1, 0.0)
    SCHEMA_PLACES.set(places)
    async with places.acquire(ALICE):
        with pytest.raises(SchemasBusy) as refused:
            await post(tools(KNOWN, new(), new()), BOB)
        with pytest.raises(SchemasBusy):
            await parse_output_schema(new(), RequestLimits(), "outputSchema", BOB)
        await post(tools(KNOWN), BOB)
    assert (refused.value.retryable, refused.value.retry_after) == (True, 2)
    SCHEMA_PLACES.set(FairLimiter(1, 5.0))
    await post(tools(KNOWN, new(), new()), BOB)


BODIES: dict[str, tuple[str, dict[str, Any]]] = {
    "tools": ("/send-message", {"tools": tools(new())}),
    "an output schema": ("/send-message", {"outputSchema": new()}),
    "tools of a request": ("/process", {"tools": [{"type": "function", "function": tools(new())[0]}]}),
    "an output schema of a request": ("/process", {"output_schema": new()}),
}  # fmt: skip


@pytest.mark.parametrize(("path", "more"), BODIES.values(), ids=BODIES.keys())
async def test_the_client_is_told_when_to_come_back(path: str, more: dict[str, Any]) -> None:
    places = FairLimiter(1, 0.0)
    SCHEMA_PLACES.set(places)
    said = {"role": "user", "content": "hello"}
    words = {"role": "user", "type": "message", "content": [{"type": "text", "text": "hello"}]}
    body = {"messages": [said]} if path == "/send-message" else {"input": [words]}
    async with places.acquire(replace(ALICE, owner=OwnerId("carol"))):
        answer = await ask_json(wire_app(), "POST", path, body | more)
    assert (answer.status, answer.code, answer.headers["retry-after"]) == (429, "schemas_busy", "2")
    SCHEMA_PLACES.set(FairLimiter(1, 5.0))
    assert (await ask_json(wire_app(), "POST", path, body | more)).status == 200
