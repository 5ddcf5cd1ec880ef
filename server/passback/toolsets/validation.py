"""Whether a pydantic model is validated by pydantic alone, or by functions in Python, too."""

from collections.abc import Mapping, Sequence
from enum import Enum
from functools import partial
from typing import Final, cast

from pydantic import BaseModel

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
