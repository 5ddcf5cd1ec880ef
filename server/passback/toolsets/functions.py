"""Typed Python functions as server tools (DESIGN section 7)."""

import inspect
import logging
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Annotated, Any, Final, TypeAlias, cast, overload

import anyio
from pydantic import BaseModel, ConfigDict, Field, PydanticUserError, ValidationError, create_model

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
    Content,
    JsonObject,
    ToolCall,
    ToolResult,
    ToolSpec,
)
from passback.core.permissions import ALLOWED, Decision, Permission, permission_of
from passback.core.text import mended, plain_problem, shortened
from passback.core.toolsets import ToolContext
from passback.engine.guarding import CallBroken, CallLate, call_function, drained, guarded
from passback.toolsets.results import NoResult, Yields, refuse_return

_ASIDE: Final = frozenset({"cls", "config", "metadata", "serialization"})
"""Parts of a schema that run nothing when a value is validated."""

_HOOKS: Final = frozenset({"custom_init", "post_init"})
"""Parts that name a function, or say that there is one."""

_QUICK: Final = ("pydantic.", "pydantic_core.", "builtins")
"""Where functions come from that do little, and wait for nothing."""


def runs_code(model: type[BaseModel], /) -> bool:
    """Whether validating may call a function: a validator, a factory of defaults, an `__init__` of the author's.

    Those of pydantic itself, by which it reads paths and addresses, do not count.
    """
    waiting: list[object] = [model.__pydantic_core_schema__]
    while waiting:
        part = waiting.pop()
        if isinstance(part, Mapping):
            fields = cast("Mapping[str, object]", part)
            if _has_hook(fields):
                return True
            waiting += (inner for key, inner in fields.items() if key not in _ASIDE)
        elif isinstance(part, list | tuple):
            waiting += cast("Sequence[object]", part)
        elif _is_own(part):
            return True
    return False


def _has_hook(part: Mapping[str, object]) -> bool:
    return any(part.get(hook) for hook in _HOOKS) or _finds_members(part.get("cls"))


def _finds_members(kind: object) -> bool:
    """Whether it is an enumeration that says itself what a value means that is none of its own."""
    if not (isinstance(kind, type) and issubclass(kind, Enum)):
        return False
    return getattr(kind._missing_, "__func__", None) is not getattr(
        Enum._missing_, "__func__", None
    )


def _is_own(part: object) -> bool:
    """Whether it is a function of an author's, or a class that makes defaults."""
    if isinstance(part, partial):
        return _is_own(part.func)
    return callable(part) and not str(getattr(part, "__module__", "")).startswith(_QUICK)


logger = logging.getLogger(__name__)

Function: TypeAlias = Callable[..., Any]
ReadOnly: TypeAlias = Callable[..., bool]
"""Says of a call, by those of its arguments that it names, whether it changes nothing."""

_PAUSE = 0.1
"""Seconds before the first further attempt; before each later one twice as long."""

_DECIDING = 5.0  # seconds that a function `read_only` has for one call


class _Unfit(Exception):
    """What is wrong with the arguments of a call."""


class ToolError(Exception):
    """Raise it in a tool: its text is what the model (and the client) is told."""


@dataclass(frozen=True, slots=True)
class FunctionTool:
    """A function that the model may call.

    Args:
        read_only: whether it changes nothing; a function says it of each call.
        seconds: deadline of one call; then the result is an error.
        result_limit: characters of a result; what is longer is cut, and says so.
        retries: how often it is called again, within the deadline, when it raises anything but a `ToolError`.
        judges: whether code of its author's judges the arguments: that runs in a thread, within the deadline.
    """

    function: Function
    spec: ToolSpec
    arguments: type[BaseModel]
    context_parameter: str | None = None
    read_only: bool | ReadOnly = False
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
        """Never raises: bad arguments, an exception, a passed deadline and what is no result are error results."""
        ids = {"run_id": context.run.run_id, "call_id": context.call_id}
        try:
            with guarded("tool", ids, self.seconds, passing=(_Unfit, ToolError, NoResult)):
                values = await self._read(call.arguments)
                if self.context_parameter is not None:
                    values[self.context_parameter] = context
                content = await self._insist(values, context, ids)
                return ToolResult(self._cut(content) if isinstance(content, str) else content)
        except _Unfit as unfit:
            words = f"The arguments are not valid.\n{unfit}"
            return ToolResult(self._cut(words), is_error=True, invalid=True)
        except NoResult as problem:
            extra = {"action": "tool_without_result", **ids}
            logger.log(
                logging.ERROR, "tool %s: no result: %s", self.spec.name, problem, extra=extra
            )
            return self._failed(
                f"The tool {self.spec.name!r} gave what cannot be a result: {problem}."
            )
        except ToolError as error:
            return self._failed(str(error))
        except CallLate:
            return self._failed(f"The tool did not answer in {self.seconds:g} s.")
        except CallBroken as broken:
            return self._failed(f"The tool failed: {broken}.")

    async def only_reads(self, call: ToolCall) -> bool:
        """Whether a call changes nothing. What its function `read_only` raises, or is no bool, is logged and means no."""
        if isinstance(self.read_only, bool):
            return self.read_only
        ids = {"call_id": call.id}
        try:
            with guarded("read_only", ids, _DECIDING, done="decided", passing=_Unfit):
                values = await self._read(call.arguments)
                names = _named(self.read_only, values)
                said = await call_function(self.read_only, **{name: values[name] for name in names})
        except (_Unfit, CallBroken):
            return False
        if not isinstance(said, bool):
            logger.error(
                "read_only of the tool %s gave no bool but %s",
                self.spec.name,
                type(said).__name__,
                extra={"action": "read_only_failed", **ids},
            )
        return said is True

    async def _read(self, arguments: str) -> dict[str, Any]:
        """The arguments by their names. Code of the author's that judges them may take long: not on the event loop."""
        read = self.arguments.model_validate_json
        try:
            given = await call_function(read, arguments) if self.judges else read(arguments)
        except ValidationError as error:
            raise _Unfit(misfits(error, of="arguments")) from None
        names = (info.alias or field for field, info in self.arguments.model_fields.items())
        return dict(zip(names, (value for _, value in given), strict=True))

    async def _insist(
        self, values: Mapping[str, Any], context: ToolContext, ids: Mapping[str, str]
    ) -> Content:
        told = (ToolError, NoResult)
        for attempt in range(self.retries):
            with (
                suppress(CallBroken),
                guarded("attempt", ids, passing=told, level=logging.WARNING),
            ):
                return await self._attempt(values, context)
            await anyio.sleep(_PAUSE * 2**attempt)
        return await self._attempt(values, context)

    async def _attempt(self, values: Mapping[str, Any], context: ToolContext) -> Content:
        """Raises NoResult, and whatever the function raises."""
        yields = Yields(context.progress)
        try:
            return yields.result(await drained(yields, self.function, **values))
        finally:
            yields.end()

    def _failed(self, words: str) -> ToolResult:
        return ToolResult(self._cut(words), is_error=True)

    def _cut(self, words: str) -> str:
        return shortened(mended(words), self.result_limit)


@overload
def tool(function: Function, /) -> FunctionTool: ...


@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    read_only: bool | ReadOnly = False,
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
    read_only: bool | ReadOnly = False,
    repeatable: bool = False,
    seconds: float = 60,
    permission: Permission | Decision = ALLOWED,
    retries: int = 0,
) -> FunctionTool | Callable[[Function], FunctionTool]:
    """Make a server tool of a typed function: its name, docstring and annotations are what the model is told.

    Args:
        function: plain or async; a plain one runs in a thread. A parameter annotated with `ToolContext` is
            filled in by the server and not shown to the model. Of a generator, async or plain, the last value, or the
            first `Result`, is the result; those before are progress.
        name: instead of the function's own.
        description: instead of the docstring.
        read_only: changes nothing, so it may run together with others, and again after a crash; or a plain function that
            says so of one call, by its validated arguments: it is given those that it names as parameters.
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
        hints = _hints(function, label)
        context_parameter, arguments = _arguments(function, hints, label)
        refuse_return(function, hints.get("return", Any), label)
        if not isinstance(read_only, bool):
            _refuse_decider(read_only, arguments, label)
        words = description if description is not None else inspect.getdoc(function) or ""
        spec = ToolSpec(label, words, _schema(arguments, label))
        return FunctionTool(
            function,
            spec,
            arguments,
            context_parameter,
            read_only=read_only,
            repeatable=repeatable or read_only is True,
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
        return self._tools[name].read_only is True

    async def is_read_only_call(self, call: ToolCall, /) -> bool:
        return await self._tools[call.name].only_reads(call)

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
    "read_only": Takes(
        "True, False, or a function of the tool's arguments", either(flag, callable)
    ),
    "repeatable": Takes("True or False", flag),
}


def _hints(function: Function, label: str) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function, include_extras=True)
    except (NameError, TypeError) as error:
        raise ConfigurationError(
            f"tool {label!r}: its annotations cannot be read: {error}"
        ) from error


def _arguments(
    function: Function, hints: Mapping[str, Any], label: str
) -> tuple[str | None, type[BaseModel]]:
    """The parameter that takes the context, if any, and a model of all others."""
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


def _refuse_decider(read_only: ReadOnly, arguments: type[BaseModel], label: str) -> None:
    """Raise ConfigurationError where a function `read_only` cannot be asked about the calls of its tool."""
    if inspect.iscoroutinefunction(read_only) or inspect.isasyncgenfunction(read_only):
        raise ConfigurationError(
            f"tool {label!r}: read_only takes a plain function, not an async one"
        )
    names = dict.fromkeys(info.alias or "" for info in arguments.model_fields.values())
    try:
        inspect.signature(read_only).bind(**dict.fromkeys(_named(read_only, names)))
    except (TypeError, ValueError) as error:
        raise ConfigurationError(
            f"tool {label!r}: read_only takes a function of the tool's arguments "
            f"({', '.join(names) or 'it has none'}) by their names: {error}"
        ) from None


def _named(read_only: ReadOnly, names: Iterable[str]) -> list[str]:
    """Those of the names that a function has parameters for."""
    parameters = inspect.signature(read_only).parameters
    takes_all = any(one.kind is one.VAR_KEYWORD for one in parameters.values())
    return [name for name in names if takes_all or name in parameters]


def misfits(error: ValidationError, /, *, of: str) -> str:
    """Where and why a value does not fit a model, a line each; `of` names the whole value."""
    lines = [
        f"{'.'.join(str(step) for step in item['loc']) or of}: {plain_problem(item)}"
        for item in error.errors(include_url=False, include_input=False)
    ]
    return "\n".join(lines)
