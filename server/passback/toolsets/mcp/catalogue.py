"""What of a server's tools is offered to the model, and under which names. What does not fit is left out by itself."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final

from pydantic import JsonValue
from pydantic_core import to_json

from passback.core.messages import ToolSpec
from passback.core.text import mended
from passback.schemas.declared import Unfit, fit, size
from passback.toolsets.mcp.session import Described

MOST_TOOLS: Final = 128
"""Of one server."""

_NAME_CHARACTERS = 64
_DESCRIPTION_CHARACTERS = 16_384
_SCHEMA_BYTES = 64 * 1024
_SCHEMA_DEPTH = 64
_ALL_SCHEMA_VALUES = 8_000
"""Objects, arrays and booleans in all schemas of one server: checking them costs up to two seconds of a thread."""

_SHOWN_NAMES = 5
_INSTRUCTION_CHARACTERS = 8192
"""Of what a server says of its tools: it is in every request to the model."""

_FOREIGN: Final = re.compile(r"[^A-Za-z0-9_-]")


@dataclass(frozen=True, slots=True)
class Offered:
    """A tool: `remote` is what its server calls it."""

    spec: ToolSpec
    remote: str
    read_only: bool
    repeatable: bool


@dataclass(frozen=True, slots=True)
class Catalogue:
    """The tools by their names here, what their server says of their use, and sentences about what is left out."""

    tools: Mapping[str, Offered] = field(default_factory=dict[str, Offered])
    instructions: str = ""
    warnings: Sequence[str] = ()


def catalogue(
    server: str, described: Sequence[Described], instructions: str, /, *, trust_hints: bool
) -> Catalogue:
    """Choose and name the tools. May take seconds: not for the event loop."""
    tools: dict[str, Offered] = {}
    problems: dict[str, list[str]] = {}
    names = [_named(server, one.name) for one in described]
    uses = Counter(names)
    room = _ALL_SCHEMA_VALUES
    for name, one in zip(names, described, strict=True):
        try:
            if uses[name] > 1:
                raise Unfit("several of its tools would have one name")
            if len(tools) >= MOST_TOOLS:
                raise Unfit(f"it has more than {MOST_TOOLS} tools")
            spec, values = _spec(name, one, room)
        except Unfit as problem:
            problems.setdefault(str(problem), []).append(name)
            continue
        room -= values
        tools[name] = Offered(
            spec, one.name, trust_hints and one.read_only, trust_hints and one.repeatable
        )
    warnings = list(_sentences(problems))
    instructions = mended(instructions.strip())
    if len(instructions) > _INSTRUCTION_CHARACTERS:
        instructions = f"{instructions[:_INSTRUCTION_CHARACTERS]}\n[cut]"
        warnings.append(f"cut its instructions after {_INSTRUCTION_CHARACTERS} characters")
    return Catalogue(tools, instructions, tuple(warnings))


def _named(server: str, tool: str) -> str:
    """`<server>__<tool>` of characters that every model's service takes; a long one ends in a digest of the whole."""
    name = f"{server}__{_FOREIGN.sub('_', tool)}"
    if len(name) <= _NAME_CHARACTERS:
        return name
    digest = sha256(tool.encode(errors="replace")).hexdigest()[:8]
    return f"{name[: _NAME_CHARACTERS - len(digest) - 1]}_{digest}"


def _spec(name: str, one: Described, room: int) -> tuple[ToolSpec, int]:
    """What the model is told, and how much of `room` its schema takes. Raises Unfit."""
    if not one.name:
        raise Unfit("it has no name")
    if _is_deep(one.schema):
        raise Unfit(f"its schema is nested deeper than {_SCHEMA_DEPTH} levels")
    if len(to_json(one.schema)) > _SCHEMA_BYTES:
        raise Unfit(f"its schema is larger than {_SCHEMA_BYTES} bytes")
    schema = fit(one.schema)
    values = size(schema)
    if values > room:
        raise Unfit("the schemas of all its server's tools together are too large")
    return ToolSpec(name, mended(one.description[:_DESCRIPTION_CHARACTERS]), schema), values


def _is_deep(schema: JsonValue) -> bool:
    level = [schema]
    for _ in range(_SCHEMA_DEPTH):
        level = [inner for value in level for inner in _inside(value)]
        if not level:
            return False
    return True


def _inside(value: JsonValue) -> Sequence[JsonValue]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else ()


def _sentences(problems: Mapping[str, Sequence[str]]) -> Iterator[str]:
    for problem, names in problems.items():
        different = list(dict.fromkeys(names))
        shown = ", ".join(different[:_SHOWN_NAMES])
        more = len(different) - _SHOWN_NAMES
        yield f"left out {shown}{f' and {more} more' if more > 0 else ''}: {problem}"
