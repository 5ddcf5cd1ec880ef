"""Client tools: their declarations and calls."""

import inspect
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

import anyio

from passback_client.arguments import Rule, check_fields, is_a, optional
from passback_client.errors import BadSetup
from passback_client.events import JsonObject

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)


_RULES = {
    "name": Rule("its name", lambda name: isinstance(name, str) and bool(_NAME.fullmatch(name))),
    "description": Rule("a text", is_a(str)),
    "parameters": Rule("a JSON Schema as a dict, or None", optional(is_a(dict))),
    "execute": Rule("a function that takes the arguments and a `ToolContext`", callable),
    "needs_approval": Rule("True or False", is_a(bool)),
    "title": Rule("a text", is_a(str)),
}


class ToolError(Exception):
    """Raise it in a tool: the model gets its text."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that the model makes."""

    id: str
    name: str
    arguments: JsonObject
    conversation_id: str


@dataclass(frozen=True, slots=True)
class ToolContext:
    """A tool's view of its call.

    Attributes:
        call: as the model made it.
        cancelled: set when the result is no longer needed. An async tool is cancelled then; a plain
            one runs in a thread, and should check it if it takes long.
    """

    call: ToolCall
    cancelled: threading.Event = field(default_factory=threading.Event)


Execute: TypeAlias = Callable[[JsonObject, ToolContext], object]
"""Takes the arguments; returns text, a list of parts or any JSON, or raises. Plain or async."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that this client executes.

    Attributes:
        name: 1 to 64 letters, digits, `_` or `-`.
        description: for the model.
        parameters: a JSON Schema of type object; None for `ask_user`, which the server knows.
        execute: plain (it runs in a thread) or async. What it raises becomes an error result.
        needs_approval: the client's `approve` is asked before each call.
        title: its name for people, at most 200 characters; the model is not shown it.

    Raises:
        BadSetup: the name or another argument is invalid.
    """

    name: str
    description: str
    parameters: JsonObject | None
    execute: Execute
    needs_approval: bool = False
    title: str = ""

    def __post_init__(self) -> None:
        given = {name: getattr(self, name) for name in _RULES}
        if not _RULES["name"].fits(self.name):
            raise BadSetup(f"a tool cannot be named {self.name!r}")
        check_fields(given, _RULES, f"tool {self.name!r}: ")

    @property
    def declaration(self) -> JsonObject:
        """The declaration as it is posted."""
        if self.parameters is None:
            return {"name": self.name}
        titled: JsonObject = {"title": self.title} if self.title else {}
        return {
            "name": self.name,
            "description": self.description,
            "parameters": self.parameters,
            **titled,
        }


async def invoke(call: Callable[[], object], *, is_async: bool) -> object:
    """Call a plain or async function; a plain one runs in a thread, which cancellation abandons."""
    given = call() if is_async else await anyio.to_thread.run_sync(call, abandon_on_cancel=True)
    return await given if inspect.isawaitable(given) else given


def is_async(function: Callable[..., object]) -> bool:
    """Return True if a call of the function makes a coroutine."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - an object whose __call__ is async
    )
