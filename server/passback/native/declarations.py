"""The declarations of a post: the client's tools, and the schema of the answer.

A schema is data. Nothing that it refers to is fetched.
"""

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
from passback.core.messages import (
    TITLE_CHARACTERS,
    TOOL_NAME,
    ConversationKey,
    JsonObject,
    OwnerId,
    ToolSpec,
    fold_name,
)
from passback.core.questions import ASK_USER
from passback.http.body import parse_json
from passback.http.wires import RequestLimits
from passback.native.parts import Posted, validated_elsewhere
from passback.pacing import FairLimiter, limiter_of
from passback.schemas.checks import InvalidSchema, check_schema, count_parts

_DECLARED_KEYS = ("name", "description", "parameters", "title")
_DESCRIPTION_CHARACTERS = 16_384
_POST_VALUES = 2_000  # objects, arrays and booleans in the schemas of all tools of one post
CHECK_SECONDS = (
    5.0  # seconds in which the unknown schemas of one post are checked, or it is refused
)
_RETRY_AFTER = 2.0  # seconds

# Those of an event loop. The default is one place, because a check keeps the interpreter busy.
SCHEMA_PLACES: RunVar[FairLimiter] = RunVar("places for schemas")

_NO_PARAMETERS: Final = '{"type":"object","properties":{}}'
_Fit: TypeAlias = tuple[JsonObject, int]  # a schema, and the number of its parts


class PostedTool(Posted):
    """A tool that the client executes."""

    name: Annotated[str, Field(pattern=f"^{TOOL_NAME.pattern}$")]
    description: Annotated[str, Field(max_length=_DESCRIPTION_CHARACTERS)] | None = None
    parameters: dict[str, JsonValue] | str | None = Field(
        None,
        description="A JSON Schema of type object, or its text; "
        "null for a tool without parameters.",
    )
    title: Annotated[str, Field(max_length=TITLE_CHARACTERS)] | None = Field(
        None, description="The tool's name for people; the model is not shown it."
    )


class PostedFunction(Posted):
    """The same, as chat completions declare it."""

    type: Literal["function"] = "function"
    function: PostedTool


# A tool of a post, which `parse_tools` reads. No model, so that an error names the tool.
DeclaredTool: TypeAlias = Annotated[JsonValue, validated_elsewhere(PostedTool | PostedFunction)]


async def parse_tools(
    declared: Sequence[JsonValue], limits: RequestLimits, key: ConversationKey, /
) -> tuple[ToolSpec, ...]:
    """Return the tools of the declarations `{name, description?, parameters?}`.

    `parameters` is a JSON Schema or its text. A declaration may be wrapped in an object
    `{"type": "function", "function": {...}}`, as in chat completions. `ask_user` without
    parameters is the built-in tool of that name.

    A schema that is not known is checked in a thread, because a hostile one may take long. Owners
    take turns after each schema.

    Raises:
        InvalidTool: a declaration is wrong. The error names the tool and the reason.
        ToolNameClash: two tools have names that look alike.
        SchemasBusy: not all schemas could be checked in time.
    """
    if len(declared) > limits.tools:
        raise InvalidTool(f"there are more than {limits.tools} tools")
    specs: dict[str, ToolSpec] = {}
    total = 0
    checker = _SchemaChecker(limits, key)
    for position, declaration in enumerate(declared):
        spec, size_of = await _parse_tool(position, declaration, checker)
        folded_name = fold_name(spec.name)
        if folded_name in specs:
            raise ToolNameClash(f"two tools are named {spec.name!r}, or look alike")
        specs[folded_name] = spec
        total += size_of
        if total > _POST_VALUES:
            raise InvalidTool(
                f"the schemas of all tools together have more than {_POST_VALUES} parts"
            )
    return tuple(specs.values())


async def _parse_tool(
    position: int, declaration: JsonValue, checker: "_SchemaChecker"
) -> tuple[ToolSpec, int]:
    """A tool, and how many parts its schema has."""
    place, declaration = _unwrap_function(f"tools[{position}]", declaration)
    name = declaration.get("name")
    if not isinstance(name, str) or not TOOL_NAME.fullmatch(name):
        raise InvalidTool(f"{place} has no name of 1 to 64 letters, digits, '_' or '-'")
    if name == ASK_USER.name and declaration.get("parameters") is None:
        return ASK_USER, 0
    description = declaration.get("description") or ""
    if not isinstance(description, str) or len(description) > _DESCRIPTION_CHARACTERS:
        raise _invalid_tool(
            name, f"its description is not a text of {_DESCRIPTION_CHARACTERS} characters at most"
        )
    title = declaration.get("title") or ""
    if not isinstance(title, str) or len(title) > TITLE_CHARACTERS:
        raise _invalid_tool(
            name, f"its title is not a text of {TITLE_CHARACTERS} characters at most"
        )
    parameters = declaration.get("parameters")
    try:
        schema, parts = await checker.check(_NO_PARAMETERS if parameters is None else parameters)
    except InvalidSchema as problem:
        raise _invalid_tool(name, str(problem)) from None
    return ToolSpec(name, description, schema, title.strip()), parts


def _unwrap_function(place: str, declaration: JsonValue) -> tuple[str, dict[str, JsonValue]]:
    """Return the declaration inside its wrapper, if it has one, and its place.

    Raises:
        InvalidTool: it is declared both in the wrapper and beside it, or in neither.
    """
    if not isinstance(declaration, dict):
        raise InvalidTool(f"{place} is not an object")
    function = declaration.get("function")
    if function is None:
        return place, declaration
    if not isinstance(function, dict):
        raise InvalidTool(f"{place}.function is not an object with the tool's name")
    if declaration.get("type", "function") != "function":
        raise InvalidTool(f"{place} has a function, so its type has to be 'function'")
    if doubled := [name for name in _DECLARED_KEYS if declaration.get(name) is not None]:
        raise InvalidTool(
            f"{place} has a function and {' and '.join(doubled)} beside it: "
            "put them into the function"
        )
    return f"{place}.function", function


def _invalid_tool(name: str, reason: str) -> InvalidTool:
    return InvalidTool(f"tool {name!r}: {reason}", details={"tool": name, "reason": reason})


async def parse_output_schema(
    declared: JsonValue, limits: RequestLimits, called: str, key: ConversationKey, /
) -> JsonObject:
    """Return the schema of the answer: a JSON Schema of type object, or its text.

    It is checked as the schemas of tools are. `called` is the client's name for it.

    Raises:
        InvalidOutputSchema: it is wrong. The error has the reason.
        SchemasBusy: it could not be checked in time.
    """
    try:
        schema, _ = await _SchemaChecker(limits, key).check(declared)
    except InvalidSchema as problem:
        raise InvalidOutputSchema(f"{called} is refused: {problem}") from None
    return schema


class _SchemaChecker:
    """Checks the schemas of one post."""

    def __init__(self, limits: RequestLimits, key: ConversationKey) -> None:
        self._limits = limits
        self._key = key
        self._deadline: float | None = None

    async def check(self, declared: JsonValue) -> _Fit:
        """Return a schema, given itself or its text. A known one is returned without waiting.

        Raises:
            Unfit: the schema is refused.
            SchemasBusy: it could not be checked in time.
        """
        text = declared if isinstance(declared, str) else json.dumps(declared)
        most = self._limits.schema_bytes
        if len(text) > most or (not text.isascii() and len(text.encode()) > most):
            raise InvalidSchema(f"its schema is larger than {most} bytes")
        known = _known_schemas(self._key.owner)(text, self._limits.depth)
        found = known.found
        if found is None:
            places = limiter_of(SCHEMA_PLACES, 1, CHECK_SECONDS)
            # one deadline for all schemas of the post, from its first unknown one
            if self._deadline is None:
                self._deadline = anyio.current_time() + places.seconds
            try:
                with anyio.fail_after(self._deadline - anyio.current_time()):
                    async with places.acquire(self._key):
                        alone = anyio.CapacityLimiter(1)  # the places say how many there are
                        found = await anyio.to_thread.run_sync(known.check, limiter=alone)
            except TimeoutError:
                raise SchemasBusy(
                    "the schemas of this post could not be checked in time; try again later",
                    retry_after=_RETRY_AFTER,
                ) from None
        if isinstance(found, str):
            raise InvalidSchema(found)
        return found


@dataclass(eq=False, slots=True)
class _CheckedSchema:
    """The text of a schema, and the result of its check, which `check` sets.

    The result is the schema, or the reason why it is refused.
    """

    text: str
    depth: int
    found: _Fit | str | None = None

    def check(self) -> _Fit | str:
        """Check the schema, unless another post has."""
        if self.found is None:
            try:
                schema = check_schema(parse_json(self.text.encode(), depth=self.depth))
                self.found = schema, count_parts(schema)
            except BadRequest as error:
                self.found = f"its schema cannot be read: {error.message}"
            except InvalidSchema as problem:
                self.found = str(problem)
        return self.found


@lru_cache(maxsize=64)
def _known_schemas(owner: OwnerId) -> Callable[[str, int], _CheckedSchema]:
    """Return the cache of an owner's schemas, because the same tools come with every post."""
    del owner  # a cache for each owner, so that nobody's schemas displace another one's
    return lru_cache(maxsize=128)(_CheckedSchema)
