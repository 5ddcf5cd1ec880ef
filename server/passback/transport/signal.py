"""Something that happens once, told to all who listen without a task in each of them."""

from collections.abc import Callable, Generator
from contextlib import contextmanager


class Signal:
    """Set once, or never.

    Attributes:
        is_set: whether it has happened.
    """

    __slots__ = ("_listeners", "is_set")

    def __init__(self) -> None:
        self.is_set = False
        self._listeners: set[Callable[[], object]] = set()

    def set(self) -> None:
        self.is_set = True
        for listener in tuple(self._listeners):
            listener()

    @contextmanager
    def telling(self, listener: Callable[[], object], /) -> Generator[None]:
        """While the context is open, call `listener` when it happens, or now if it has; it must not raise."""
        if self.is_set:
            listener()
        self._listeners.add(listener)
        try:
            yield
        finally:
            self._listeners.discard(listener)
