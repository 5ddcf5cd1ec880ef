"""Something that happens once, told to all who listen without a task in each of them."""

from collections.abc import Callable
from contextlib import AbstractContextManager


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

    def telling(self, listener: Callable[[], object], /) -> AbstractContextManager[None]:
        """While the context is open, call `listener` when it happens, or on entering if it has; it must not raise."""
        return _Telling(self, self._listeners, listener)


class _Telling:
    # no generator: each response is in two for all its life
    __slots__ = ("_listener", "_listeners", "_signal")

    def __init__(
        self, signal: Signal, listeners: set[Callable[[], object]], listener: Callable[[], object]
    ) -> None:
        self._signal = signal
        self._listeners = listeners
        self._listener = listener

    def __enter__(self) -> None:
        if self._signal.is_set:
            self._listener()
        self._listeners.add(self._listener)

    def __exit__(self, *_: object) -> None:
        self._listeners.discard(self._listener)
