"""`value`: the decorator of plain values, slotted dataclasses that are never changed."""

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

ClassT = TypeVar("ClassT")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def value(made: type[ClassT], /) -> type[ClassT]:
    """Make a class a value: compared and hashed by its fields, never changed.

    Type checkers refuse changes. It is not frozen at run time: a frozen dataclass takes four times
    as long to build (one call of `object.__setattr__` for each field), and a request builds a
    hundred of them. Classes whose instances reach the code of users are frozen dataclasses instead.
    """
    return dataclass(slots=True, unsafe_hash=True)(made)
