"""A signal with listeners: something that happens once, such as the stop of a worker."""

from collections.abc import Callable
from contextlib import AbstractContextManager


class Signal:
    """An event that happens once or never, and calls its listeners.

    Attributes:
        is_set: it has happened.
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
        """Return a context in which `listener` is called when the event happens.

        It is called on entering if the event has happened already. It must not raise.
        """
        return _Subscription(self, self._listeners, listener)


class _Subscription:
    # a class, not a generator, to save memory: each response is in two contexts all its life
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
