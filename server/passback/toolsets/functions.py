"""Typed Python functions as server tools (DESIGN section 7)."""

import inspect
import logging
import typing
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias, overload

import anyio
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PydanticUserError,
    ValidationError,
    create_model,
)
from pydantic_core import to_json

from passback.core.arguments import (
    Takes,
    above_zero,
    either,
    flag,
    nothing,
    refuse_misfits,
    text,
    whole,
)
from passback.core.errors import ConfigurationError
from passback.core.messages import (
    TOOL_NAME,
    TOOL_NAME_RULE,
    JsonObject,
    ToolCall,
    ToolResult,
    ToolSpec,
)
from passback.core.permissions import ALLOWED, Decision, Permission, permission_of
from passback.core.text import plain_problem, shortened
from passback.core.toolsets import ToolContext
from passback.engine.calling import CallBroken, CallLate, boundary, called
from passback.toolsets.validation import runs_code

Function: TypeAlias = Callable[..., Any]

_PAUSE = 0.1
"""Seconds before the first further attempt; before each later one twice as long."""


class _Unfit(Exception):
    """What is wrong with the arguments of a call."""


class ToolError(Exception):
    """Raise it in a tool: its text is what the model (and the client) is told."""


@dataclass(frozen=True, slots=True)
class FunctionTool:
    """A function that the model may call.

    Args:
        seconds: deadline of one call; then the result is an error.
        result_limit: characters of a result; what is longer is cut, and says so.
        retries: how often it is called again, within the deadline, when it raises anything but a `ToolError`.
        judges: whether code of its author's judges the arguments: that runs in a thread, within the deadline.
    """

    function: Function
    spec: ToolSpec
    arguments: type[BaseModel]
    context_parameter: str | None = None
    read_only: bool = False
    repeatable: bool = False
    seconds: float = 60
    result_limit: int = 64 * 1024
    permission: Permission = ALLOWED
    retries: int = 0
    judges: bool = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The function itself, as if it were not decorated."""
        return self.function(*args, **kwargs)

    async def run(self, call: ToolCall, context: ToolContext) -> ToolResult:
        """Never raises: bad arguments, an exception and a passed deadline are error results."""
        ids = {"run_id": context.run.run_id, "call_id": context.call_id}
        try:
            with boundary("tool", ids, self.seconds, passing=(_Unfit, ToolError)):
                values = await self._read(call.arguments)
                if self.context_parameter is not None:
                    values[self.context_parameter] = context
                return ToolResult(self._cut(_text(await self._insist(values, ids))))
        except _Unfit as unfit:
            return ToolResult(self._cut(f"The arguments are not valid.\n{unfit}"), is_error=True)
        except ToolError as error:
            return ToolResult(self._cut(str(error)), is_error=True)
        except CallLate:
            return ToolResult(f"The tool did not answer in {self.seconds:g} s.", is_error=True)
        except CallBroken as broken:
            return ToolResult(f"The tool failed: {broken}.", is_error=True)

    async def _read(self, arguments: str) -> dict[str, Any]:
        """The arguments by their names. Code of the author's that judges them may take long: not on the event loop."""
        read = self.arguments.model_validate_json
        try:
            given = await called(read, arguments) if self.judges else read(arguments)
        except ValidationError as error:
            raise _Unfit(misfits(error, of="arguments")) from None
        names = (info.alias or field for field, info in self.arguments.model_fields.items())
        return dict(zip(names, (value for _, value in given), strict=True))

    async def _insist(self, values: Mapping[str, Any], ids: Mapping[str, str]) -> object:
        for attempt in range(self.retries):
            with (
                suppress(CallBroken),
                boundary("attempt", ids, passing=ToolError, level=logging.WARNING),
            ):
                return await called(self.function, **values)
            await anyio.sleep(_PAUSE * 2**attempt)
        return await called(self.function, **values)

    def _cut(self, words: str) -> str:
        words = words.encode(errors="replace").decode()  # a lone surrogate could not be stored
        return shortened(words, self.result_limit)


@overload
def tool(function: Function, /) -> FunctionTool: ...


@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    read_only: bool = False,
    repeatable: bool = False,
    seconds: float = 60,
    permission: Permission | Decision = ALLOWED,
    retries: int = 0,
) -> Callable[[Function], FunctionTool]: ...


def tool(
    function: Function | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    read_only: bool = False,
    repeatable: bool = False,
    seconds: float = 60,
    permission: Permission | Decision = ALLOWED,
    retries: int = 0,
) -> FunctionTool | Callable[[Function], FunctionTool]:
    """Make a server tool of a typed function: its name, docstring and annotations are what the model is told.

    Args:
        function: plain or async; a plain one runs in a thread. A parameter annotated with `ToolContext` is
            filled in by the server and not shown to the model.
        name: instead of the function's own.
        description: instead of the docstring.
        read_only: changes nothing, so it may run together with others, and again after a crash.
        repeatable: it may be called again when it is not known whether a call was carried out.
        seconds: deadline of one call.
        permission: whether it may be called, where neither the server's settings nor the agent say so: "ask" hands an
            approval to the client, `Permission("ask", "This sends money.")` also says why.
        retries: how often a call is tried again when the function raises anything but a `ToolError`, within its deadline.

    Raises:
        ConfigurationError: the function cannot be a tool, or an argument is not what it takes.
    """
    given = {"name": name, "description": description, "seconds": seconds, "retries": retries}
    refuse_misfits("tool", {**given, "read_only": read_only, "repeatable": repeatable}, _TAKES)
    allowance = permission_of(permission)

    def decorate(function: Function) -> FunctionTool:
        label = name or str(getattr(function, "__name__", ""))
        if not TOOL_NAME.fullmatch(label):
            raise ConfigurationError(f"a tool cannot be named {label!r}: {TOOL_NAME_RULE}")
        context_parameter, arguments = _arguments(function, label)
        words = description if description is not None else inspect.getdoc(function) or ""
        spec = ToolSpec(label, words, _schema(arguments, label))
        return FunctionTool(
            function,
            spec,
            arguments,
            context_parameter,
            read_only=read_only,
            repeatable=repeatable or read_only,
            seconds=seconds,
            permission=allowance,
            retries=retries,
            judges=runs_code(arguments),
        )

    return decorate if function is None else decorate(function)


class Functions:
    """A toolset of functions."""

    def __init__(self, tools: Sequence[FunctionTool]) -> None:
        self._tools: dict[str, FunctionTool] = {}
        for one in tools:
            if one.spec.name in self._tools:
                raise ConfigurationError(f"two tools are named {one.spec.name!r}")
            self._tools[one.spec.name] = one

    async def specs(self) -> Sequence[ToolSpec]:
        return [one.spec for one in self._tools.values()]

    def is_read_only(self, name: str, /) -> bool:
        return self._tools[name].read_only

    def is_repeatable(self, name: str, /) -> bool:
        return self._tools[name].repeatable

    def permission(self, call: ToolCall, /) -> Permission:
        return self._tools[call.name].permission

    async def call(self, call: ToolCall, context: ToolContext, /) -> ToolResult:
        return await self._tools[call.name].run(call, context)


_TAKES: Mapping[str, Takes] = {
    "name": Takes("a text", either(nothing, text)),
    "description": Takes("a text in Unicode", either(nothing, text)),
    "seconds": Takes("a number above 0", above_zero),
    "retries": Takes("a whole number from 0 on", whole(0)),
    "read_only": Takes("True or False", flag),
    "repeatable": Takes("True or False", flag),
}


def _arguments(function: Function, label: str) -> tuple[str | None, type[BaseModel]]:
    """The parameter that takes the context, if any, and a model of all others."""
    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except (NameError, TypeError) as error:
        raise ConfigurationError(
            f"tool {label!r}: its annotations cannot be read: {error}"
        ) from error
    context_parameter: str | None = None
    fields: dict[str, Any] = {}
    for parameter in inspect.signature(function).parameters.values():
        hint = hints.get(parameter.name, Any)
        if hint is ToolContext or ToolContext in typing.get_args(hint):
            context_parameter = parameter.name
            continue
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY):
            raise ConfigurationError(f"tool {label!r}: parameters must be passable by name")
        if parameter.kind is parameter.VAR_KEYWORD:
            raise ConfigurationError(f"tool {label!r}: **{parameter.name} cannot be described")
        default = ... if parameter.default is parameter.empty else parameter.default
        # behind an alias any name is good: a field itself cannot be called _private or model_dump
        fields[f"parameter{len(fields)}"] = (Annotated[hint, Field(alias=parameter.name)], default)
    config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)
    return context_parameter, create_model(label, __config__=config, **fields)


def _schema(arguments: type[BaseModel], label: str) -> JsonObject:
    try:
        schema = arguments.model_json_schema()
    except PydanticUserError as error:
        raise ConfigurationError(
            f"tool {label!r}: a parameter's type has no JSON Schema: {error.message}"
        ) from error
    schema.pop("title", None)
    return schema


def _text(value: object) -> str:
    """JSON has no infinity and no NaN: there they are null."""
    if isinstance(value, str):
        return value
    return to_json(value, fallback=str, inf_nan_mode="null").decode()


def misfits(error: ValidationError, /, *, of: str) -> str:
    """Where and why a value does not fit a model, a line each; `of` names the whole value."""
    lines = [
        f"{'.'.join(str(step) for step in item['loc']) or of}: {plain_problem(item)}"
        for item in error.errors(include_url=False, include_input=False)
    ]
    return "\n".join(lines)
