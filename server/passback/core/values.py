"""Plain values, and the check of arguments that users give in Python. Pure."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeVar, dataclass_transform, get_type_hints

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, ValidationError, create_model
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from passback.core.errors import ConfigurationError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

ClassT = TypeVar("ClassT")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def value(made: type[ClassT], /) -> type[ClassT]:
    """Make a class a value: compared and hashed by its fields, never changed.

    Type checkers refuse changes. It is not frozen at run time: a frozen dataclass takes four times
    as long to build (one call of `object.__setattr__` for each field), and a request builds a
    hundred of them. Classes whose instances reach the code of users are frozen dataclasses instead.
    """
    return dataclass(slots=True, unsafe_hash=True)(made)


DEFERRED: Final = ConfigDict(defer_build=True)
"""Configuration of a pydantic adapter that is built when it is first used.

Building them all takes longer than the rest of a start, for which an editor waits.
"""

_MAX_PLACE_CHARACTERS = 80

_CONFIG: Final = ConfigDict(
    strict=True,
    arbitrary_types_allowed=True,
    allow_inf_nan=False,
    # a text's length is counted in UTF-8, so lone surrogates, which cannot be sent, are refused
    str_min_length=0,
)


@dataclass(frozen=True, slots=True)
class Takes:
    """Put into `Annotated` what an argument takes in words, for types that pydantic names badly.

    Args:
        words: they follow "Input should be" in an error.
        fits: judges a value of the type.
    """

    words: str
    fits: Callable[[Any], bool] = lambda _: True

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        def refuse_misfit(given: object) -> object:
            if not self.fits(given):
                raise PydanticCustomError("takes", "the schema around it has the words")
            return given

        return core_schema.custom_error_schema(
            core_schema.no_info_after_validator_function(refuse_misfit, handler(source)),
            custom_error_type="takes",
            custom_error_message=f"Input should be {self.words}",
        )


def accepts(arguments: int, /) -> Callable[[Callable[..., object]], bool]:
    """Return a check of functions: True if they accept so many positional arguments."""

    def fits(function: Callable[..., object]) -> bool:
        try:
            signature = inspect.signature(function)
        except (TypeError, ValueError):  # some functions written in C have no signature
            return True
        try:
            signature.bind(*[None] * arguments)
        except TypeError:
            return False
        return True

    return fits


def is_instance(given: object, /) -> bool:
    """Return False for a class: it has the methods of a protocol, but is no instance."""
    return not isinstance(given, type)


def check_arguments(owner: Callable[..., object], /, **given: object) -> None:
    """Check arguments by the annotations of the function, or the dataclass, that takes them.

    Raises:
        ConfigurationError: names the first argument that does not fit.
    """
    try:
        _arguments_model(owner)(**given)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        # escaped, as keys of what was given are in it
        place = ascii(".".join(map(str, first["loc"])))[1:-1][:_MAX_PLACE_CHARACTERS]
        problem = f"{first['msg']} (given: {_describe_value(first['input'])})"
        # without the cause: its text has the value, which may be a secret
        name = owner.__qualname__.removesuffix(".__init__")
        raise ConfigurationError(f"{name}: {place}: {problem}") from None


def check_fields(given: "DataclassInstance", owner: type["DataclassInstance"], /) -> None:
    """Check the fields of a dataclass, but not those that a subclass adds, as `check_arguments`."""
    check_arguments(owner, **{one.name: getattr(given, one.name) for one in fields(owner)})


@cache
def _arguments_model(owner: Callable[..., object]) -> type[BaseModel]:
    hints = get_type_hints(owner, include_extras=True)
    hints.pop("return", None)
    arguments: dict[str, Any] = {name: (hint, None) for name, hint in hints.items()}
    return create_model(owner.__name__, __config__=_CONFIG, **arguments)


def _describe_value(value: object) -> str:
    """Return a number itself, and the type of anything else: a text may be a secret."""
    if value is None or isinstance(value, float) or (isinstance(value, int) and abs(value) < 10**9):
        return repr(value)
    return f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__


def milliseconds(seconds: float, /) -> int:
    return round(seconds * 1000)
