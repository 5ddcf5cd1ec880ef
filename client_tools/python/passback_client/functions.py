"""Typed Python functions as client tools."""

import inspect
import typing
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, TypeAlias

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PydanticUserError,
    ValidationError,
    create_model,
)
from pydantic_core import to_json

from passback_client.errors import BadSetup
from passback_client.events import JsonObject
from passback_client.tools import Tool, ToolContext, ToolError, invoke, is_async

AnyTool: TypeAlias = Tool | Callable[..., object]
"""A tool, or a typed function to make one from."""


@dataclass(frozen=True, slots=True)
class ToolOptions:
    """The options of a tool beside its function."""

    name: str | None = None
    description: str | None = None
    needs_approval: bool = False
    title: str = ""


def as_tool(given: object, place: str) -> Tool:
    """Return a tool, made from a typed function if it is not one.

    Args:
        given: the value that a program passed.
        place: its place, for the error.

    Raises:
        BadSetup: it is neither, or the function cannot be a tool.
    """
    if isinstance(given, Tool):
        return given
    if inspect.isroutine(given):
        return function_tool(given)
    raise BadSetup(
        f"{place} is a {type(given).__name__}: give a typed function,"
        " or Tool(name, description, parameters, execute)"
    )


def function_tool(function: Callable[..., object], about: ToolOptions | None = None) -> Tool:
    """Make a tool from a typed function: the model gets its name, docstring and annotations.

    A parameter annotated with `ToolContext` is filled in, and hidden from the model.

    Raises:
        BadSetup: the function cannot be a tool.
    """
    about = about or ToolOptions()
    label = about.name or str(getattr(function, "__name__", ""))
    context_name, arguments = _arguments(function, label)
    described = about.description if about.description is not None else inspect.getdoc(function)
    return Tool(
        label,
        described or "",
        _schema(arguments, label),
        _Call(function, arguments, context_name),
        about.needs_approval,
        title=about.title,
    )


@dataclass(frozen=True, slots=True)
class _Call:
    """Checks the arguments, then calls the function."""

    function: Callable[..., object]
    arguments: type[BaseModel]
    context_name: str | None

    async def __call__(self, arguments: JsonObject, context: ToolContext) -> object:
        try:
            given = self.arguments.model_validate_json(to_json(arguments))
        except ValidationError as error:
            raise ToolError(_plain(error)) from error
        names = (info.alias or field for field, info in self.arguments.model_fields.items())
        values = dict(zip(names, (value for _, value in given), strict=True))
        if self.context_name is not None:
            values[self.context_name] = context
        return await invoke(partial(self.function, **values), is_async=is_async(self.function))


def _arguments(function: Callable[..., object], label: str) -> tuple[str | None, type[BaseModel]]:
    """Return the parameter that takes the context, if any, and a model of all others."""
    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except (NameError, TypeError) as error:
        raise BadSetup(f"tool {label!r}: its annotations cannot be read: {error}") from error
    context_name: str | None = None
    fields: dict[str, Any] = {}
    for parameter in inspect.signature(function).parameters.values():
        hint = hints.get(parameter.name, Any)
        if hint is ToolContext:
            context_name = parameter.name
            continue
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise BadSetup(f"tool {label!r}: {parameter} cannot be given by name")
        default = ... if parameter.default is parameter.empty else parameter.default
        # an alias may have any name; a field cannot be called _private or model_dump
        fields[f"parameter{len(fields)}"] = (Annotated[hint, Field(alias=parameter.name)], default)
    config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)
    return context_name, create_model(label, __config__=config, **fields)


def _schema(arguments: type[BaseModel], label: str) -> JsonObject:
    try:
        schema = arguments.model_json_schema()
    except PydanticUserError as error:
        raise BadSetup(
            f"tool {label!r}: a parameter's type has no JSON Schema: {error.message}"
        ) from error
    schema.pop("title", None)
    return schema


def _plain(error: ValidationError) -> str:
    lines = [
        f"{'.'.join(str(step) for step in item['loc']) or 'arguments'}: {item['msg']}"
        for item in error.errors(include_url=False, include_input=False)
    ]
    return "The arguments are not valid.\n" + "\n".join(lines)
