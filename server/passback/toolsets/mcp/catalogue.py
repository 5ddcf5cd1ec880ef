"""The choice and the names of the tools that the model is offered.

A tool that cannot be offered is left out with a warning; the others are not affected.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import islice
from typing import Final

from mcp.types import Tool, ToolAnnotations
from pydantic import JsonValue
from pydantic_core import to_json

from passback.core.messages import TITLE_CHARACTERS, ToolKind, ToolSpec
from passback.core.text import replace_surrogates
from passback.schemas.checks import InvalidSchema, check_schema, count_parts

MAX_TOOLS: Final = 128  # of one server

_NAME_CHARACTERS = 64
_DESCRIPTION_CHARACTERS = 16_384
_SCHEMA_BYTES = 64 * 1024
_SCHEMA_DEPTH = 64
# Objects, arrays and booleans in all schemas of one server. Checking that many takes about 2 s.
_ALL_SCHEMA_VALUES = 8_000

_SHOWN_NAMES = 5
_INSTRUCTION_CHARACTERS = 8192  # they are part of every request to the model

_INVALID_CHARACTERS: Final = re.compile(r"[^A-Za-z0-9_-]")


@dataclass(frozen=True, slots=True)
class OfferedTool:
    """A tool that the model may call; `remote` is its name at the server."""

    spec: ToolSpec
    remote: str
    read_only: bool
    repeatable: bool


@dataclass(frozen=True, slots=True)
class Catalogue:
    """The offered tools of one server.

    Args:
        tools: by the names that the model sees.
        instructions: the server's text on the use of its tools.
        warnings: a sentence for each problem for which tools were left out.
    """

    tools: Mapping[str, OfferedTool] = field(default_factory=dict[str, OfferedTool])
    instructions: str = ""
    warnings: Sequence[str] = ()


def build_catalogue(
    server: str, described: Sequence[Tool], instructions: str, /, *, trust_hints: bool
) -> Catalogue:
    """Choose and name the tools. It may take seconds, so do not call it on the event loop."""
    tools: dict[str, OfferedTool] = {}
    problems: dict[str, dict[str, None]] = {}  # the names that each one has left out, in order
    names = [_offered_name(server, one.name) for one in described]
    uses = Counter(names)
    room = _ALL_SCHEMA_VALUES
    for name, one in zip(names, described, strict=True):
        try:
            if uses[name] > 1:  # none of them: a call could not say which one it means
                raise InvalidSchema("several of its tools would have one name")
            if len(tools) >= MAX_TOOLS:
                raise InvalidSchema(f"it has more than {MAX_TOOLS} tools")
            offered, values = _offered_tool(name, one, room, trust_hints=trust_hints)
        except InvalidSchema as problem:
            problems.setdefault(str(problem), {})[name] = None
            continue
        room -= values
        tools[name] = offered
    warnings: list[str] = []
    for why, left_out in problems.items():
        shown = ", ".join(islice(left_out, _SHOWN_NAMES))
        more = len(left_out) - _SHOWN_NAMES
        warnings.append(f"left out {shown}{f' and {more} more' if more > 0 else ''}: {why}")
    instructions = replace_surrogates(instructions.strip())
    if len(instructions) > _INSTRUCTION_CHARACTERS:
        instructions = f"{instructions[:_INSTRUCTION_CHARACTERS]}\n[cut]"
        warnings.append(f"cut its instructions after {_INSTRUCTION_CHARACTERS} characters")
    return Catalogue(tools, instructions, tuple(warnings))


def _offered_name(server: str, tool: str) -> str:
    """Return `<server>__<tool>` in characters and a length that every model service accepts.

    A name that is too long ends in a digest of the whole.
    """
    name = f"{server}__{_INVALID_CHARACTERS.sub('_', tool)}"
    if len(name) <= _NAME_CHARACTERS:
        return name
    digest = sha256(tool.encode(errors="replace")).hexdigest()[:8]
    return f"{name[: _NAME_CHARACTERS - len(digest) - 1]}_{digest}"


def _offered_tool(name: str, one: Tool, room: int, *, trust_hints: bool) -> tuple[OfferedTool, int]:
    """Return a tool as it is offered, and its schema's number of values. Raises InvalidSchema."""
    if not one.name:
        raise InvalidSchema("it has no name")
    if _is_deep(one.input_schema):  # first: what follows is recursive
        raise InvalidSchema(f"its schema is nested deeper than {_SCHEMA_DEPTH} levels")
    if len(to_json(one.input_schema)) > _SCHEMA_BYTES:
        raise InvalidSchema(f"its schema is larger than {_SCHEMA_BYTES} bytes")
    schema = check_schema(one.input_schema)
    values = count_parts(schema)
    if values > room:
        raise InvalidSchema("the schemas of all its server's tools together are too large")
    description = (one.description or one.title or "")[:_DESCRIPTION_CHARACTERS]
    hints = one.annotations or ToolAnnotations()
    # hints that contradict each other are not believed
    read_only = hints.read_only_hint is True and hints.destructive_hint is not True
    repeatable = read_only or (hints.idempotent_hint is True and hints.read_only_hint is not True)
    title = (one.title or hints.title or "").strip()[:TITLE_CHARACTERS]
    spec = ToolSpec(
        name,
        replace_surrogates(description),
        schema,
        replace_surrogates(title),
        _kind_of(hints) if trust_hints else "other",
    )
    return OfferedTool(
        spec, one.name, trust_hints and read_only, trust_hints and repeatable
    ), values


def _kind_of(hints: ToolAnnotations) -> ToolKind:
    """Return the kind of a tool by its hints; "other" if they say nothing or contradict."""
    if hints.read_only_hint is True:
        return "other" if hints.destructive_hint is True else "read"
    # a destructive update may overwrite as well as delete
    said = hints.read_only_hint is False or hints.destructive_hint is True
    return "edit" if said else "other"


def _is_deep(schema: JsonValue) -> bool:
    level = [schema]
    for _ in range(_SCHEMA_DEPTH):
        level = [
            inner
            for value in level
            if isinstance(value, dict | list)
            for inner in (value.values() if isinstance(value, dict) else value)
        ]
        if not level:
            return False
    return True
