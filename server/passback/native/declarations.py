"""What a post declares: the client's tools, and what the answer has to fit. A schema is data, and never fetched."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Final, Literal, TypeAlias

import anyio
import anyio.to_thread
from anyio.lowlevel import RunVar
from pydantic import Field, JsonValue

from passback.core.errors import (
    BadRequest,
    InvalidOutputSchema,
    InvalidTool,
    SchemasBusy,
    ToolNameClash,
)
from passback.core.messages import TOOL_NAME, ConversationKey, JsonObject, OwnerId, ToolSpec, folded
from passback.core.questions import ASK_USER
from passback.http.body import parse_json
from passback.http.wires import RequestLimits
from passback.native.parts import Posted, described_as
from passback.places import Places, places_of
from passback.schemas.declared import Unfit, fit, size

_DECLARED = ("name", "description", "parameters")
_DESCRIPTION_CHARACTERS = 16_384
_POST_VALUES = 2_000
"""Objects, arrays and booleans in the schemas of all tools of one post."""

WAIT = 5.0
"""Seconds in which the schemas of a post are judged that nobody posted before; then it is refused."""

_RETRY_AFTER = 2.0  # seconds

PLACES: RunVar[Places] = RunVar("places for schemas")
"""Those of an event loop. Where none are set, there is one: to judge a schema keeps the interpreter busy."""

_NO_PARAMETERS: Final = '{"type":"object","properties":{}}'
_Fit: TypeAlias = tuple[JsonObject, int]
"""A schema, and how many parts it has."""


# ---------------------------------------------------------------- for the OpenAPI document
class PostedTool(Posted):
    """A tool that the client executes."""

    name: Annotated[str, Field(pattern=f"^{TOOL_NAME.pattern}$")]
    description: Annotated[str, Field(max_length=_DESCRIPTION_CHARACTERS)] | None = None
    parameters: dict[str, JsonValue] | str | None = Field(
        None,
        description="A JSON Schema of type object, or its text; null for a tool without parameters.",
    )


class PostedFunction(Posted):
    """The same, as chat completions declare it."""

    type: Literal["function"] = "function"
    function: PostedTool


DeclaredTool: TypeAlias = Annotated[JsonValue, described_as(PostedTool | PostedFunction)]
"""A tool of a post, which `parse_tools` reads."""


# ---------------------------------------------------------------- tools
async def parse_tools(
    declared: Sequence[JsonValue], limits: RequestLimits, key: ConversationKey, /
) -> tuple[ToolSpec, ...]:
    """Read the declarations `{name, description?, parameters?}`; `parameters` is a JSON Schema or its text.

    Each may stand in an object `{"type": "function", "function": {...}}`, as chat completions have it.
    `ask_user` without parameters means the built-in tool of that name.

    A schema that is not known is judged in a thread, for a hostile one may take long; owners take turns with each of them.

    Raises:
        InvalidTool: names the tool and says what is wrong with it.
        ToolNameClash: two tools have names that look alike.
        SchemasBusy: not all schemas could be judged in time.
    """
    if len(declared) > limits.tools:
        raise InvalidTool(f"there are more than {limits.tools} tools")
    specs: dict[str, ToolSpec] = {}
    total = 0
    judging = _Judging(limits, key)
    for position, declaration in enumerate(declared):
        spec, size_of = await _parse_one(position, declaration, judging)
        folded_name = folded(spec.name)
        if folded_name in specs:
            raise ToolNameClash(f"two tools are named {spec.name!r}, or look alike")
        specs[folded_name] = spec
        total += size_of
        if total > _POST_VALUES:
            raise InvalidTool(
                f"the schemas of all tools together have more than {_POST_VALUES} parts"
            )
    return tuple(specs.values())


async def _parse_one(
    position: int, declaration: JsonValue, judging: "_Judging"
) -> tuple[ToolSpec, int]:
    """A tool, and how many parts its schema has."""
    place, declaration = _unwrapped(f"tools[{position}]", declaration)
    name = declaration.get("name")
    if not isinstance(name, str) or not TOOL_NAME.fullmatch(name):
        raise InvalidTool(f"{place} has no name of 1 to 64 letters, digits, '_' or '-'")
    if name == ASK_USER.name and declaration.get("parameters") is None:
        return ASK_USER, 0
    description = declaration.get("description") or ""
    if not isinstance(description, str) or len(description) > _DESCRIPTION_CHARACTERS:
        raise _invalid(
            name, f"its description is not a text of {_DESCRIPTION_CHARACTERS} characters at most"
        )
    parameters = declaration.get("parameters")
    try:
        schema, parts = await judging.fit(_NO_PARAMETERS if parameters is None else parameters)
    except Unfit as problem:
        raise _invalid(name, str(problem)) from None
    return ToolSpec(name, description, schema), parts


def _unwrapped(place: str, declaration: JsonValue) -> tuple[str, dict[str, JsonValue]]:
    """The declaration itself, and its place. Raises InvalidTool where it stands in two places, or in none."""
    if not isinstance(declaration, dict):
        raise InvalidTool(f"{place} is not an object")
    function = declaration.get("function")
    if function is None:
        return place, declaration
    if not isinstance(function, dict):
        raise InvalidTool(f"{place}.function is not an object with the tool's name")
    if declaration.get("type", "function") != "function":
        raise InvalidTool(f"{place} has a function, so its type has to be 'function'")
    if doubled := [name for name in _DECLARED if declaration.get(name) is not None]:
        raise InvalidTool(
            f"{place} has a function and {' and '.join(doubled)} beside it: put them into the function"
        )
    return f"{place}.function", function


def _invalid(name: str, reason: str) -> InvalidTool:
    return InvalidTool(f"tool {name!r}: {reason}", details={"tool": name, "reason": reason})


async def parse_output_schema(
    declared: JsonValue, limits: RequestLimits, called: str, key: ConversationKey, /
) -> JsonObject:
    """What an answer has to fit: a JSON Schema of type object or its text, judged as those of tools are.

    `called` is the client's name for it.

    Raises:
        InvalidOutputSchema: says what is wrong with it.
        SchemasBusy: it could not be judged in time.
    """
    try:
        schema, _ = await _Judging(limits, key).fit(declared)
    except Unfit as problem:
        raise InvalidOutputSchema(f"{called} is refused: {problem}") from None
    return schema


# ---------------------------------------------------------------- schemas
class _Judging:
    """Judges the schemas of one post."""

    def __init__(self, limits: RequestLimits, key: ConversationKey) -> None:
        self._limits = limits
        self._key = key
        self._until: float | None = None

    async def fit(self, declared: JsonValue) -> _Fit:
        """A schema, or its text. Does not wait for one that is known. Raises Unfit or SchemasBusy."""
        text = declared if isinstance(declared, str) else json.dumps(declared)
        most = self._limits.schema_bytes
        if len(text) > most or (not text.isascii() and len(text.encode()) > most):
            raise Unfit(f"its schema is larger than {most} bytes")
        judgement = _judgements_of(self._key.owner)(text, self._limits.depth)
        found = judgement.found or await self._judged(judgement)
        if isinstance(found, str):
            raise Unfit(found)
        return found

    async def _judged(self, judgement: "_Judgement") -> _Fit | str:
        places = places_of(PLACES, 1, WAIT)
        if self._until is None:
            self._until = anyio.current_time() + places.seconds
        try:
            with anyio.fail_after(self._until - anyio.current_time()):
                async with places.one(self._key):
                    alone = anyio.CapacityLimiter(1)  # the places say how many there are
                    return await anyio.to_thread.run_sync(judgement.judge, limiter=alone)
        except TimeoutError:
            raise SchemasBusy(
                "the schemas of this post could not be checked in time; try again later",
                retry_after=_RETRY_AFTER,
            ) from None


@dataclass(eq=False, slots=True)
class _Judgement:
    """What was found out about a schema's text: the schema, or what is wrong with it. None: nothing yet."""

    text: str
    depth: int
    found: _Fit | str | None = None

    def judge(self) -> _Fit | str:
        """Find it out, unless another post has."""
        if self.found is None:
            self.found = self._judged()
        return self.found

    def _judged(self) -> _Fit | str:
        try:
            schema = fit(parse_json(self.text.encode(), depth=self.depth))
            return schema, size(schema)
        except BadRequest as error:
            return f"its schema cannot be read: {error.message}"
        except Unfit as problem:
            return str(problem)


@lru_cache(maxsize=64)
def _judgements_of(owner: OwnerId) -> Callable[[str, int], _Judgement]:
    """Return what is remembered of an owner's schemas: the same tools come with every post, and no other owner's push them out."""
    del owner
    return lru_cache(maxsize=128)(_Judgement)
