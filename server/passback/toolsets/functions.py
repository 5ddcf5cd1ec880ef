"""Typed Python functions as server tools."""

import inspect
import logging
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from functools import partial
from itertools import islice
from os import PathLike, fspath
from typing import Annotated, Any, Final, Literal, TypeAlias, cast, overload

import anyio
from pydantic import BaseModel, ConfigDict, Field, PydanticUserError, ValidationError, create_model

from passback.core.errors import ConfigurationError
from passback.core.messages import (
    TITLE_CHARACTERS,
    TOOL_NAME,
    TOOL_NAME_RULE,
    Content,
    JsonObject,
    Location,
    ToolCall,
    ToolKind,
    ToolResult,
    ToolSpec,
)
from passback.core.permissions import ALLOWED, Decision, Permission, as_permission
from passback.core.shared_state import StateError
from passback.core.text import describe_validation_error, replace_surrogates, shorten_result
from passback.core.toolsets import ToolContext
from passback.core.values import Takes, check_arguments
from passback.engine.guarding import CallBroken, CallLate, call_and_drain, call_function, guarded
from passback.toolsets.results import NoResult, Yields, refuse_return

# Keys of a pydantic core schema that run nothing when a value is validated.
_INERT_KEYS: Final = frozenset({"cls", "config", "metadata", "serialization"})

# What an enumeration without a hook of its own has.
_NO_HOOK: Final = inspect.getattr_static(Enum, "_missing_")

# Keys that name a function of the author's, or say that there is one.
_HOOK_KEYS: Final = frozenset({"custom_init", "post_init"})

# Modules whose functions are fast and never block.
_TRUSTED_MODULES: Final = ("pydantic.", "pydantic_core.", "builtins")


def runs_code(model: type[BaseModel], /) -> bool:
    """Return True if validation may call code of the tool's author.

    That is a validator, a default factory, or an `__init__`. Functions of pydantic itself, by which
    it reads paths and addresses, do not count.
    """
    waiting: list[object] = [model.__pydantic_core_schema__]
    while waiting:
        part = waiting.pop()
        if isinstance(part, Mapping):
            fields = cast("Mapping[str, object]", part)
            kind = fields.get("cls")
            has_hook = (
                isinstance(kind, type)
                and issubclass(kind, Enum)
                and inspect.getattr_static(kind, "_missing_") is not _NO_HOOK
            )
            if has_hook or any(map(fields.get, _HOOK_KEYS)):
                return True
            waiting += (inner for key, inner in fields.items() if key not in _INERT_KEYS)
        elif isinstance(part, list | tuple):
            waiting += cast("Sequence[object]", part)
        elif _is_author_code(part):
            return True
    return False


def _is_author_code(part: object) -> bool:
    """Return True for a function, or a class that makes defaults, that an author wrote."""
    if isinstance(part, partial):
        return _is_author_code(part.func)
    return callable(part) and not str(getattr(part, "__module__", "")).startswith(_TRUSTED_MODULES)


logger = logging.getLogger(__name__)

Function: TypeAlias = Callable[..., Any]
ReadOnly: TypeAlias = Callable[..., bool]
"""Decides for one call whether it changes nothing; takes the tool arguments that it names."""

Locations: TypeAlias = Callable[
    ..., Iterable[Location | str | PathLike[str] | tuple[str | PathLike[str], int]]
]
"""Returns the files that a call is about, each alone or with a line; takes the tool arguments that
it names.
"""

_ReadOnlyOrFlag: TypeAlias = Annotated[
    bool | ReadOnly, Takes("True, False, or a function of the tool's arguments")
]

_Locations: TypeAlias = Annotated[Locations, Takes("a function of the tool's arguments")]

_RETRY_DELAY = 0.1  # seconds before the first retry; the delay doubles for each further one

_READ_ONLY_SECONDS = 5.0  # seconds that a function `read_only` has for one call

_LOCATIONS_SECONDS = 1.0  # seconds that a function `locations` has: the tool waits for it
_MAX_LOCATIONS = 50  # of one call; further ones are left out
_MAX_PATH_CHARACTERS = 4096  # of a path; one that is longer is cut


class _InvalidArguments(Exception):
    """The arguments of a call are invalid; the text says why."""


class ToolError(Exception):
    """An error for a tool to raise. Its text is the result that model and client are shown."""


@dataclass(frozen=True, slots=True)
class FunctionTool:
    """A function that the model may call.

    Args:
        read_only: it changes nothing; a function decides that for each call.
        seconds: deadline of one call; when it passes, the result is an error.
        result_limit: characters of a result; a longer one is cut, and says so.
        retries: further calls, within the deadline, after any exception but a `ToolError`.
        judges: validation runs code of the author's: it happens in a thread, within the deadline.
        locations: returns the files that a call is about, for clients.
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
    locations: Locations | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function itself, as if it were not decorated."""
        return self.function(*args, **kwargs)

    async def run(self, call: ToolCall, context: ToolContext) -> ToolResult:
        """Validate the arguments, call the function and return its result.

        Never raises: bad arguments, an exception, a passed deadline and a value that cannot be a
        result become error results.
        """
        ids = {"run_id": context.run.run_id, "call_id": context.call_id}
        try:
            with guarded(
                "tool",
                ids,
                self.seconds,
                passing=(_InvalidArguments, ToolError, StateError, NoResult),
            ):
                values = await self._validated_arguments(call.arguments)
                context.begin(await self._find_locations(values, ids))
                if self.context_parameter is not None:
                    values[self.context_parameter] = context
                content = await self._call_with_retries(values, context, ids)
                return ToolResult(
                    self._limit_length(content) if isinstance(content, str) else content
                )
        except _InvalidArguments as unfit:
            message = f"The arguments are not valid.\n{unfit}"
            return ToolResult(self._limit_length(message), is_error=True, invalid=True)
        except NoResult as problem:
            extra = {"action": "tool_without_result", **ids}
            logger.log(
                logging.ERROR, "tool %s: no result: %s", self.spec.name, problem, extra=extra
            )
            return self._error_result(
                f"The tool {self.spec.name!r} gave what cannot be a result: {problem}."
            )
        except (ToolError, StateError) as error:
            return self._error_result(str(error))
        except CallLate:
            return self._error_result(f"The tool did not answer in {self.seconds:g} s.")
        except CallBroken as broken:
            return self._error_result(f"The tool failed: {broken}.")

    async def is_read_only_call(self, call: ToolCall) -> bool:
        """Return True if a call changes nothing.

        If the function `read_only` raises, or returns no bool, that is logged and means False.
        """
        if isinstance(self.read_only, bool):
            return self.read_only
        ids = {"call_id": call.id}
        try:
            with guarded(
                "read_only", ids, _READ_ONLY_SECONDS, done="decided", passing=_InvalidArguments
            ):
                values = await self._validated_arguments(call.arguments)
                names = _accepted_names(self.read_only, values)
                said = await call_function(self.read_only, **{name: values[name] for name in names})
        except (_InvalidArguments, CallBroken):
            return False
        if not isinstance(said, bool):
            logger.error(
                "read_only of the tool %s gave no bool but %s",
                self.spec.name,
                type(said).__name__,
                extra={"action": "read_only_failed", **ids},
            )
        return said is True

    async def _validated_arguments(self, arguments: str) -> dict[str, Any]:
        """Return the validated arguments by name."""
        validate = self.arguments.model_validate_json
        try:
            # validators of the author's may block, so they must not run on the event loop
            given = await call_function(validate, arguments) if self.judges else validate(arguments)
        except ValidationError as error:
            raise _InvalidArguments(validation_problems(error, of="arguments")) from None
        names = (info.alias or field for field, info in self.arguments.model_fields.items())
        return dict(zip(names, (value for _, value in given), strict=True))

    async def _find_locations(
        self, values: Mapping[str, Any], ids: Mapping[str, str]
    ) -> Sequence[Location]:
        """Return the files that a call is about.

        If the function `locations` raises, is late or returns something else, that is logged, and
        there are none.
        """
        if (locations := self.locations) is None:
            return ()
        names = _accepted_names(locations, values)

        def read() -> Sequence[Location]:
            # in the thread, too: it may be a generator
            return _read_locations(locations(**{name: values[name] for name in names}))

        try:
            with guarded("locations", ids, _LOCATIONS_SECONDS, done="found"):
                found: Sequence[Location] = await call_function(read)
        except CallBroken:
            return ()
        return found

    async def _call_with_retries(
        self, values: Mapping[str, Any], context: ToolContext, ids: Mapping[str, str]
    ) -> Content:
        # the function meant these: a retry would not change them
        final = (ToolError, StateError, NoResult)
        for attempt in range(self.retries):
            with (
                suppress(CallBroken),
                guarded("attempt", ids, passing=final, level=logging.WARNING),
            ):
                return await self._call_once(values, context)
            await anyio.sleep(_RETRY_DELAY * 2**attempt)
        return await self._call_once(values, context)

    async def _call_once(self, values: Mapping[str, Any], context: ToolContext) -> Content:
        """Call the function and return its result.

        Raises NoResult, and whatever the function raises.
        """
        yields = Yields(context.progress)
        try:
            return yields.result(await call_and_drain(yields, self.function, **values))
        finally:
            yields.end()

    def _error_result(self, text: str) -> ToolResult:
        return ToolResult(self._limit_length(text), is_error=True)

    def _limit_length(self, text: str) -> str:
        return shorten_result(replace_surrogates(text), self.result_limit)


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
    title: str = "",
    kind: ToolKind = "other",
    locations: Locations | None = None,
) -> Callable[[Function], FunctionTool]: ...


def tool(
    function: Function | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    read_only: _ReadOnlyOrFlag = False,
    repeatable: bool = False,
    seconds: Annotated[float, Field(gt=0)] = 60,
    permission: Permission | Decision = ALLOWED,
    retries: Annotated[int, Field(ge=0)] = 0,
    title: Annotated[str, Field(max_length=TITLE_CHARACTERS)] = "",
    kind: ToolKind = "other",
    locations: _Locations | None = None,
) -> FunctionTool | Callable[[Function], FunctionTool]:
    """Make a server tool of a typed function; the model sees its name, docstring and annotations.

    Args:
        function: plain (runs in a thread) or async; a parameter for a `ToolContext` is filled in.
            Of a generator, the last value or first `Result` is the result; others are progress.
        name: replaces the function's name.
        description: replaces the docstring.
        read_only: it changes nothing, so it may run beside others, and again after a crash; or a
            plain function that decides this per call, from the arguments that it names.
        repeatable: it may be called again when nobody knows whether a call was carried out.
        seconds: deadline of one call.
        permission: the default where neither settings nor the agent decide: "ask" asks the client,
            `Permission("ask", "This sends money.")` also says why.
        retries: further attempts, within the deadline, after any exception but a `ToolError`.
        title: its name for people, of at most 200 characters; the model is not shown it.
        kind: what it does, by which clients choose an icon.
        locations: a plain function of arguments that it names: returns paths, or (path, line)s.

    Raises ConfigurationError if the function cannot be a tool, or an argument is invalid.
    """
    given = {"name": name, "description": description, "seconds": seconds, "retries": retries}
    shown = {"title": title, "kind": kind, "locations": locations}
    check_arguments(tool, **given, **shown, read_only=read_only, repeatable=repeatable)
    allowance = as_permission(permission)

    def decorate(function: Function) -> FunctionTool:
        label = _tool_name(function, name)
        context_parameter, arguments, schema = _read_signature(function, label)
        _check_helpers(label, arguments, read_only=read_only, locations=locations)
        text = description if description is not None else inspect.getdoc(function) or ""
        return FunctionTool(
            function,
            ToolSpec(label, text, schema, title.strip(), kind),
            arguments,
            context_parameter,
            read_only=read_only,
            repeatable=repeatable or read_only is True,
            seconds=seconds,
            permission=allowance,
            retries=retries,
            judges=runs_code(arguments),
            locations=locations,
        )

    return decorate if function is None else decorate(function)


class FunctionTools:
    """A toolset of functions."""

    begins_calls: Literal[True] = True

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
        return await self._tools[call.name].is_read_only_call(call)

    def is_repeatable(self, name: str, /) -> bool:
        return self._tools[name].repeatable

    def permission(self, call: ToolCall, /) -> Permission:
        return self._tools[call.name].permission

    async def call(self, call: ToolCall, context: ToolContext, /) -> ToolResult:
        return await self._tools[call.name].run(call, context)


def _read_signature(
    function: Function, label: str
) -> tuple[str | None, type[BaseModel], JsonObject]:
    """Return the context parameter, if any, and a model of all others with its schema.

    Raises:
        ConfigurationError: the signature is none that a tool can have.
    """
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
    arguments = create_model(label, __config__=config, **fields)
    refuse_return(function, hints.get("return", Any), label)
    try:
        schema = arguments.model_json_schema()
    except PydanticUserError as error:
        raise ConfigurationError(
            f"tool {label!r}: a parameter's type has no JSON Schema: {error.message}"
        ) from error
    schema.pop("title", None)
    return context_parameter, arguments, schema


def _tool_name(function: Function, name: str | None) -> str:
    """Return the name of a tool. Raise ConfigurationError if no tool can have it."""
    label = name or str(getattr(function, "__name__", ""))
    if not TOOL_NAME.fullmatch(label):
        raise ConfigurationError(f"a tool cannot be named {label!r}: {TOOL_NAME_RULE}")
    return label


def _check_helpers(label: str, arguments: type[BaseModel], /, **options: object) -> None:
    """Raise ConfigurationError if a function among the options of a tool cannot be called with the
    tool's arguments.
    """
    names = dict.fromkeys(info.alias or "" for info in arguments.model_fields.values())
    for option, function in options.items():
        if not callable(function):
            continue
        if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
            raise ConfigurationError(
                f"tool {label!r}: {option} takes a plain function, not an async one"
            )
        try:
            inspect.signature(function).bind(**dict.fromkeys(_accepted_names(function, names)))
        except (TypeError, ValueError) as error:
            raise ConfigurationError(
                f"tool {label!r}: {option} takes a function of the tool's arguments "
                f"({', '.join(names) or 'it has none'}) by their names: {error}"
            ) from None


def _read_locations(given: Iterable[object]) -> list[Location]:
    """Return what a function `locations` gave. Raises TypeError if it is something else."""
    if isinstance(given, str | bytes):
        raise TypeError("locations gave a single text, not a list")
    return [_read_location(each) for each in islice(given, _MAX_LOCATIONS)]


def _read_location(given: object) -> Location:
    path: object = given
    line: object = None
    if isinstance(given, Location):
        path, line = given.path, given.line
    elif isinstance(given, tuple):
        path, line = cast("tuple[object, object]", given)
    if not isinstance(path, str | PathLike):
        raise TypeError(f"a location has to be a path, not {type(path).__name__}")
    if line is not None and (not isinstance(line, int) or line < 0):
        raise TypeError("the line of a location has to be a number, 0 or more")
    text = replace_surrogates(fspath(cast("str | PathLike[str]", path)))
    return Location(text[:_MAX_PATH_CHARACTERS], line)


def _accepted_names(function: Function, names: Iterable[str]) -> list[str]:
    """Return those of the names that the function takes as parameters."""
    parameters = inspect.signature(function).parameters
    takes_all = any(one.kind is one.VAR_KEYWORD for one in parameters.values())
    return [name for name in names if takes_all or name in parameters]


def validation_problems(error: ValidationError, /, *, of: str) -> str:
    """Return a line per validation problem: place and reason; `of` names the whole value."""
    lines = [
        f"{'.'.join(str(step) for step in item['loc']) or of}: {describe_validation_error(item)}"
        for item in error.errors(include_url=False, include_input=False)
    ]
    return "\n".join(lines)
