"""New schemas are checked one at a time, owners in turn; schemas checked before need no wait."""

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


def new_schema(parts: int = 0) -> dict[str, JsonValue]:
    """Return a schema that was never posted, of this many parts and four more."""
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


# ---------------------------------------------------------------- known schemas
async def test_known_tools_are_read_without_waiting() -> None:
    """Nor for a thread: everything is done in the first step of the coroutine."""
    await post(tools(KNOWN, None), ALICE)
    await parse_output_schema(KNOWN, RequestLimits(), "outputSchema", ALICE)
    with pytest.raises(StopIteration):
        post(tools(KNOWN, None), ALICE).send(None)
    with pytest.raises(StopIteration):
        parse_output_schema(KNOWN, RequestLimits(), "outputSchema", ALICE).send(None)


async def test_known_errors_of_a_schema_are_found_without_waiting() -> None:
    wrong = tools({"type": "object", "required": 1})
    with pytest.raises(InvalidTool, match="not a valid JSON Schema"):
        await post(wrong, ALICE)
    with pytest.raises(InvalidTool, match="not a valid JSON Schema"):
        post(wrong, ALICE).send(None)


# ---------------------------------------------------------------- turns
@pytest.mark.parametrize(
    ("posts", "tools_of_each"), [(12, 1), (1, 3)], ids=["many posts", "one post of many tools"]
)
async def test_new_tools_wait_for_one_check_of_another_owner(
    posts: int, tools_of_each: int
) -> None:
    """At most one of twelve posts of another owner comes before."""
    done: list[str] = []

    async def post_new_tools() -> None:
        await post(tools(*(new_schema(600) for _ in range(tools_of_each))), ALICE)
        done.append("alice")

    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            for _ in range(posts):
                group.start_soon(post_new_tools)
            await anyio.lowlevel.checkpoint()
            before = len(done)
            await post(tools(new_schema()), BOB)
            done.append("bob")
            group.cancel_scope.cancel()
    assert done.index("bob") - before <= (1 if tools_of_each == 1 else 0)


async def test_the_same_new_tools_in_two_posts_are_checked_once() -> None:
    declared, found = tools(new_schema()), list[ToolSpec]()
    checks = FairLimiter(1, 5.0)
    SCHEMA_PLACES.set(checks)

    async def read(key: ConversationKey) -> None:
        found.extend(await parse_tools(declared, RequestLimits(), key))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as group, checks.acquire(BOB):
            group.start_soon(read, ALICE)
            group.start_soon(read, ConversationKey(ALICE.owner, ConversationId("another")))
            await anyio.wait_all_tasks_blocked()
    first, second = found
    assert first.parameters is second.parameters


async def test_the_schemas_of_an_owner_evict_no_others() -> None:
    declared = tools(new_schema())
    await post(declared, BOB)
    for _ in range(300):
        await post(tools(new_schema()), ALICE)
    with pytest.raises(StopIteration):
        post(declared, BOB).send(None)


# ---------------------------------------------------------------- no turn in time
async def test_a_post_is_refused_if_its_new_schemas_are_not_checked_in_time() -> None:
    await post(tools(KNOWN), BOB)
    checks = FairLimiter(1, 0.0)
    SCHEMA_PLACES.set(checks)
    async with checks.acquire(ALICE):
        with pytest.raises(SchemasBusy) as refused:
            await post(tools(KNOWN, new_schema(), new_schema()), BOB)
        with pytest.raises(SchemasBusy):
            await parse_output_schema(new_schema(), RequestLimits(), "outputSchema", BOB)
        await post(tools(KNOWN), BOB)
    assert (refused.value.retryable, refused.value.retry_after) == (True, 2)
    SCHEMA_PLACES.set(FairLimiter(1, 5.0))
    await post(tools(KNOWN, new_schema(), new_schema()), BOB)


BODIES: dict[str, tuple[str, dict[str, Any]]] = {
    "tools": ("/send-message", {"tools": tools(new_schema())}),
    "an output schema": ("/send-message", {"outputSchema": new_schema()}),
    "tools of a request": (
        "/process",
        {"tools": [{"type": "function", "function": tools(new_schema())[0]}]},
    ),
    "an output schema of a request": ("/process", {"output_schema": new_schema()}),
}


@pytest.mark.parametrize(("path", "more"), BODIES.values(), ids=BODIES.keys())
async def test_a_refusal_for_unchecked_schemas_says_when_to_retry(
    path: str, more: dict[str, Any]
) -> None:
    checks = FairLimiter(1, 0.0)
    SCHEMA_PLACES.set(checks)
    user_message = {"role": "user", "content": "hello"}
    input_message = {
        "role": "user",
        "type": "message",
        "content": [{"type": "text", "text": "hello"}],
    }
    body = {"messages": [user_message]} if path == "/send-message" else {"input": [input_message]}
    async with checks.acquire(replace(ALICE, owner=OwnerId("carol"))):
        answer = await ask_json(wire_app(), "POST", path, body | more)
    assert (answer.status, answer.code, answer.headers["retry-after"]) == (429, "schemas_busy", "2")
    SCHEMA_PLACES.set(FairLimiter(1, 5.0))
    assert (await ask_json(wire_app(), "POST", path, body | more)).status == 200
