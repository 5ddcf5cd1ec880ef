"""What a post declares: the client's tools, and what the answer has to fit. A schema is data, and never fetched."""

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import anyio
import anyio.to_thread
from pydantic import JsonValue

from passback.core.errors import (
    BadRequest,
    InvalidOutputSchema,
    InvalidTool,
    ToolNameClash,
)
from passback.core.messages import TOOL_NAME, JsonObject, ToolSpec, folded
from passback.core.questions import ASK_USER
from passback.schemas.declared import Unfit, fit, size
from passback.transport.body import parse_json
from passback.transport.wires import Limits

_DESCRIPTION_CHARACTERS = 16_384
_POST_VALUES = 8_000
"""Objects, arrays and booleans in all schemas of one post."""

_NO_PARAMETERS: Final = '{"type":"object","properties":{}}'
_one_at_a_time = anyio.CapacityLimiter(1)


async def parse_tools(declared: Sequence[JsonValue], limits: Limits, /) -> tuple[ToolSpec, ...]:
    """Read the declarations `{name, description?, parameters?}`; `parameters` is a JSON Schema or its text.

    `ask_user` without parameters means the built-in tool of that name.

    The work is done in a thread, for a hostile schema may take long.

    Raises:
        InvalidTool: names the tool and says what is wrong with it.
        ToolNameClash: two tools have names that look alike.
    """
    if not declared:
        return ()
    return await anyio.to_thread.run_sync(_parse_all, declared, limits, limiter=_one_at_a_time)


def _parse_all(declared: Sequence[JsonValue], limits: Limits) -> tuple[ToolSpec, ...]:
    if len(declared) > limits.tools:
        raise InvalidTool(f"there are more than {limits.tools} tools")
    specs: dict[str, ToolSpec] = {}
    total = 0
    for position, declaration in enumerate(declared):
        spec = _parse_one(position, declaration, limits)
        key = folded(spec.name)
        if key in specs:
            raise ToolNameClash(f"two tools are named {spec.name!r}, or look alike")
        specs[key] = spec
        total += size(spec.parameters)
        if total > _POST_VALUES:
            raise InvalidTool("the schemas of all tools together are too large")
    return tuple(specs.values())


def _parse_one(position: int, declaration: JsonValue, limits: Limits) -> ToolSpec:
    if not isinstance(declaration, dict):
        raise InvalidTool(f"tools[{position}] is not an object")
    name = declaration.get("name")
    if not isinstance(name, str) or not TOOL_NAME.fullmatch(name):
        raise InvalidTool(f"tools[{position}] has no name of 1 to 64 letters, digits, '_' or '-'")
    if name == ASK_USER.name and declaration.get("parameters") is None:
        return ASK_USER
    description = declaration.get("description") or ""
    if not isinstance(description, str) or len(description) > _DESCRIPTION_CHARACTERS:
        raise _invalid(
            name, f"its description is not a text of {_DESCRIPTION_CHARACTERS} characters at most"
        )
    parameters = declaration.get("parameters")
    try:
        schema = _read_schema(_NO_PARAMETERS if parameters is None else parameters, limits)
    except Unfit as problem:
        raise _invalid(name, str(problem)) from None
    return ToolSpec(name, description, schema)


def _invalid(name: str, reason: str) -> InvalidTool:
    return InvalidTool(f"tool {name!r}: {reason}", details={"tool": name, "reason": reason})


async def parse_output_schema(declared: JsonValue, limits: Limits, called: str, /) -> JsonObject:
    """What an answer has to fit: a JSON Schema of type object or its text, judged as those of tools are.

    `called` is the client's name for it.

    Raises:
        InvalidOutputSchema: says what is wrong with it.
    """
    try:
        return await anyio.to_thread.run_sync(
            _read_schema, declared, limits, limiter=_one_at_a_time
        )
    except Unfit as problem:
        raise InvalidOutputSchema(f"{called} is refused: {problem}") from None


# ---------------------------------------------------------------- schemas
def _read_schema(declared: JsonValue, limits: Limits) -> JsonObject:
    """A schema, or its text. Raises Unfit."""
    text = declared if isinstance(declared, str) else json.dumps(declared)
    if len(text.encode()) > limits.schema_bytes:
        raise Unfit(f"its schema is larger than {limits.schema_bytes} bytes")
    schema = _judge(text, limits.depth)
    if isinstance(schema, str):
        raise Unfit(schema)
    return schema


@lru_cache(maxsize=256)
def _judge(text: str, depth: int) -> JsonObject | str:
    """The schema, or what is wrong with it; the same tools come with every post, so the last ones are remembered."""
    try:
        return fit(parse_json(text.encode(), depth=depth))
    except BadRequest as error:
        return f"its schema cannot be read: {error.message}"
    except Unfit as problem:
        return str(problem)
