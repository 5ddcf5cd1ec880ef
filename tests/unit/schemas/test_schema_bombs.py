"""Checks of hostile schemas and arguments are given up; they block neither the loop nor others."""

import json
import time
from collections.abc import Callable

import anyio
import anyio.lowlevel
import pytest
from pydantic import JsonValue

from passback.core.messages import ConversationId, ConversationKey, OwnerId, ToolSpec
from passback.pacing import FairLimiter
from passback.schemas.arguments import CHECK_PLACES, find_objection

pytestmark = [pytest.mark.anyio, pytest.mark.promise("P11")]

KEY = ConversationKey(OwnerId("owner"), ConversationId("conversation"))
BOB = ConversationKey(OwnerId("bob"), ConversationId("conversation"))
TOO_COMPLEX = "it is too complex to be checked against its schema"


def _doubling(times: int, kind: str = "allOf") -> dict[str, JsonValue]:
    """Return schemas each of which applies the next one twice: 2 to the power of `times`."""
    steps: dict[str, JsonValue] = {
        f"d{step}": {kind: [{"$ref": f"#/$defs/d{step + 1}"}, {"$ref": f"#/$defs/d{step + 1}"}]}
        for step in range(times)
    }
    last: JsonValue = {"type": "array" if kind == "anyOf" else "object"}
    return {"$defs": {**steps, f"d{times}": last}, "$ref": "#/$defs/d0"}


def _dependent(times: int) -> dict[str, JsonValue]:
    steps: dict[str, JsonValue] = {}
    for step in range(times):
        below: JsonValue = {"$ref": f"#/$defs/d{step + 1}"}
        steps[f"d{step}"] = {"dependentSchemas": {"a": below, "b": below}}
    last: JsonValue = True
    return {
        "$defs": {**steps, f"d{times}": last},
        "$ref": "#/$defs/d0",
        "unevaluatedProperties": False,
    }


def _chain(length: int) -> dict[str, JsonValue]:
    """Return a schema with many nested references for each level of the value."""
    steps: dict[str, JsonValue] = {
        f"d{step}": {"$ref": f"#/$defs/d{step + 1}"} for step in range(length)
    }
    last: JsonValue = {"properties": {"a": {"allOf": [{"$ref": "#/$defs/d0"}]}}}
    return {"$defs": {**steps, f"d{length}": last}, "$ref": "#/$defs/d0"}


def _branching() -> dict[str, JsonValue]:
    """Return a schema whose work doubles with each level of the value."""
    below: JsonValue = {"properties": {"a": {"$ref": "#"}}}
    return {"allOf": [below, below]}


def _nested(depth: int, inner: str = "{}") -> str:
    return '{"a":' * depth + inner + "}" * depth


BOMBS: dict[str, tuple[dict[str, JsonValue], str]] = {
    "doubling": (_doubling(60), "{}"),
    "doubling alternatives": (_doubling(60, "anyOf"), '{"a": 1}'),
    "exactly one of two": (_doubling(60, "oneOf"), "{}"),
    "doubling, unevaluated": ({**_doubling(60), "unevaluatedProperties": False}, '{"a": 1}'),
    "doubling dependencies": (_dependent(60), '{"a": 1, "b": 1}'),
    "doubling with each level": (_branching(), _nested(100)),
    "itself": ({"$ref": "#"}, "{}"),
    "not itself": ({"not": {"$ref": "#"}}, "{}"),
    "itself by a dynamic reference": (
        {"$dynamicAnchor": "n", "anyOf": [{"$dynamicRef": "#n"}]},
        "{}",
    ),
    "itself, unevaluated": ({"$ref": "#", "unevaluatedProperties": False}, '{"a": 1}'),
    "a chain for each level": (_chain(450), _nested(190)),
    "many patterns for many names": (
        {"patternProperties": {f"^x{number}[a-z]*": {} for number in range(900)}},
        json.dumps({f"k{number}": 0 for number in range(20_000)}),
    ),
    "many alternatives of many items": (
        {"properties": {"a": {"items": {"not": {"anyOf": [{"type": "string"}] * 480}}}}},
        json.dumps({"a": [0] * 50_000}),
    ),
    "a number beyond all others": ({}, '{"a": 1e999}'),
    "a number of many digits": (
        {"properties": {"a": {"multipleOf": 0.1}}},
        f'{{"a": 1{"0" * 4_000}}}',
    ),
}


@pytest.mark.parametrize(("schema", "arguments"), BOMBS.values(), ids=BOMBS.keys())
async def test_an_endless_check_is_given_up(schema: dict[str, JsonValue], arguments: str) -> None:
    with anyio.fail_after(30):
        assert (
            await find_objection(ToolSpec("t", "", {"type": "object", **schema}), arguments, KEY)
            == TOO_COMPLEX
        )


HARMLESS: dict[str, tuple[dict[str, JsonValue], str]] = {
    "a pattern made to backtrack": (
        {"properties": {"a": {"pattern": "^(a+)+$"}}},
        json.dumps({"a": "a" * 200_000}),
    ),
    "a huge enum": (
        {"properties": {"a": {"enum": list(range(10_000))}}},
        '{"a": 9999}',
    ),
    "a recursive schema for a deep value": ({"properties": {"a": {"$ref": "#"}}}, _nested(100)),
    "different items that cannot be sorted": (
        {"properties": {"a": {"uniqueItems": True}}},
        json.dumps({"a": [{"b": number} for number in range(500)]}),
    ),
    "patterns that compile into much": (
        {
            "properties": {
                "a": {
                    "allOf": [
                        {"pattern": rf"(?:\p{{L}}{{99}}){{99}}{number}"} for number in range(400)
                    ]
                }
            }
        },
        '{"a": "b"}',
    ),
}


@pytest.mark.parametrize(("schema", "arguments"), HARMLESS.values(), ids=HARMLESS.keys())
async def test_a_harmless_schema_is_checked(schema: dict[str, JsonValue], arguments: str) -> None:
    with anyio.fail_after(30):
        assert (
            await find_objection(ToolSpec("t", "", {"type": "object", **schema}), arguments, KEY)
            is None
        )


async def test_numbers_of_one_hash_are_compared_in_little_time() -> None:
    """In a set, 16,000 multiples of 2^61-1 would all be compared with each other."""
    numbers = [number * (2**61 - 1) for number in range(1, 16_000)]
    spec = ToolSpec("t", "", {"type": "object", "properties": {"a": {"uniqueItems": True}}})
    started = time.process_time()
    assert await find_objection(spec, json.dumps({"a": numbers}), KEY) is None
    assert time.process_time() - started < 1


@pytest.mark.parametrize("bomb", [_doubling, _dependent])
async def test_other_tasks_run_during_a_check_of_a_bomb(
    bomb: Callable[[int], dict[str, JsonValue]],
) -> None:
    steps = 0
    found: list[str | None] = []

    async def check() -> None:
        spec = ToolSpec("t", "", {"type": "object", **bomb(60)})
        found.append(await find_objection(spec, '{"a": 1, "b": 1}', KEY))

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(check)
            while not found:
                await anyio.lowlevel.checkpoint()
                steps += 1
    assert found == [TOO_COMPLEX]
    assert steps > 10


async def test_harmless_checks_do_not_queue_behind_a_bomb() -> None:
    order: list[str] = []
    small = ToolSpec("t", "", {"type": "object", "required": ["a"]})

    async def check(name: str, spec: ToolSpec) -> None:
        await find_objection(spec, '{"a": 1}', KEY)
        order.append(name)

    async with anyio.create_task_group() as tasks:
        for _ in range(2):
            tasks.start_soon(check, "bomb", ToolSpec("t", "", {"type": "object", **_doubling(60)}))
        tasks.start_soon(check, "harmless", small)
    assert order == ["harmless", "bomb", "bomb"]


async def test_a_check_waits_for_one_check_of_another_owner() -> None:
    done: list[str] = []
    bomb = ToolSpec("t", "", {"type": "object", **_doubling(60)})
    checks = FairLimiter(1, 60.0)
    CHECK_PLACES.set(checks)

    async def check(key: ConversationKey) -> None:
        await find_objection(bomb, "{}", key)
        done.append(key.owner)

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks, checks.acquire(KEY):
            for _ in range(3):
                tasks.start_soon(check, KEY)
            await anyio.wait_all_tasks_blocked()
            tasks.start_soon(check, BOB)
            await anyio.wait_all_tasks_blocked()
    assert done == [BOB.owner, *[KEY.owner] * 3]


async def test_arguments_that_are_not_checked_in_time_do_not_fit() -> None:
    checks = FairLimiter(1, 0.0)
    CHECK_PLACES.set(checks)
    bomb = ToolSpec("t", "", {"type": "object", **_doubling(60)})
    async with checks.acquire(KEY):
        objection = await find_objection(bomb, "{}", BOB)
    assert objection == "it could not be checked against its schema: too many others are; try again"
