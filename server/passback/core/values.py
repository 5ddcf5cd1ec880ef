"""What a value is inside the house: a slotted dataclass that nobody changes."""

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

ClassT = TypeVar("ClassT")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def value(made: type[ClassT], /) -> type[ClassT]:
    """Make a value of a class. It compares and hashes by its fields; both type checkers refuse to change one.

    At run time it is not frozen: a frozen dataclass is built four times as slowly (each field by a call of
    `object.__setattr__`), and a request builds a hundred. What people's own code may get is a frozen one all the same.
    """
    return dataclass(slots=True, unsafe_hash=True)(made)
