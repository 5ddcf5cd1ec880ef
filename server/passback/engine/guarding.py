"""Functions of an agent's author, called within a deadline; what they raise stays there."""

import asyncio
import inspect
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Mapping
from contextlib import AbstractContextManager, aclosing, closing, contextmanager
from functools import partial
from math import inf
from threading import Event
from typing import Any, TypeAlias, cast

import anyio
import anyio.to_thread

from passback.core.messages import RunRef
from passback.core.ports import ExtraPrompt
from passback.core.text import mended

logger = logging.getLogger(__name__)

_GRACE = 0.5
"""Seconds that a function has to end when it is cancelled, before it is left behind."""

_left: "set[asyncio.Task[Any]]" = set()

_Work: TypeAlias = Callable[[], Coroutine[Any, Any, Any]]

Hear: TypeAlias = Callable[[object], bool]
"""Takes what a generator yields, in the thread that it runs in; True: nothing more is wanted."""


class StrayCancellation(Exception):
    """It was cancelled, and nobody had asked for that: it awaited something that somebody had cancelled."""


class StrayExit(Exception):
    """It raised what ends whole programs: an exit, an interrupt, the panic of a library."""


class CallBroken(Exception):
    """Code of others has failed. Its text is the type of what was raised, which alone may be told outside the log."""


class CallLate(CallBroken):
    """Code of others did not end in time."""


class _Containment:
    # no generator: each run is in one for all its life
    __slots__ = ()

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if error is None or isinstance(error, Exception | GeneratorExit | KeyboardInterrupt):
            return
        if not isinstance(error, anyio.get_cancelled_exc_class()):
            raise StrayExit(type(error).__name__) from error
        task = asyncio.current_task()
        meant = task is None or task.cancelling() or anyio.current_effective_deadline() == -inf
        if not meant:
            raise StrayCancellation from error


_containment = _Containment()


def containing() -> AbstractContextManager[None]:
    """Make errors of what would end all that runs beside the code that raises it.

    Raises:
        StrayCancellation: a cancellation that was not meant for this task.
        StrayExit: all else that is no `Exception`.
    """
    return _containment


@contextmanager
def guarded(
    what: str,
    ids: Mapping[str, str],
    seconds: float = inf,
    *,
    done: str = "done",
    passing: type[Exception] | tuple[type[Exception], ...] = (),
    level: int = logging.ERROR,
) -> Generator[None]:
    """Contain code of others, which may fail in any way: the log tells how, with the traceback; the caller learns that.

    Args:
        what: its name in the log, as in "tool failed" with the action `tool_failed`.
        ids: where it runs, for the log.
        seconds: how long it may take.
        done: what it was not in that time, for the log.
        passing: what it may raise to the caller, and nothing is logged.
        level: of the line in the log when it fails.

    Raises:
        CallLate: its time was over.
        CallBroken: it raised something, or what `containing` makes errors of.
    """
    with anyio.move_on_after(seconds) as scope:
        try:
            with containing():
                yield
        except passing:
            raise
        except Exception as error:  # what this may be, only the author of that code knows
            extra = {"action": f"{what}_failed", **ids}
            logger.log(level, "%s failed", what, exc_info=True, extra=extra)
            raise CallBroken(type(error).__name__) from error
    if scope.cancelled_caught:
        extra = {"action": f"{what}_late", **ids}
        logger.error("%s not %s within %s s", what, done, seconds, extra=extra)
        raise CallLate(TimeoutError.__name__)


async def call_function(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """What a function gives: a plain one runs in a thread, an async one in a task of its own.

    Whoever waits for it may be cancelled: then it has a moment to end. If it goes on it is left behind, and what it
    gives is nobody's.

    Raises:
        StrayCancellation, StrayExit: in place of all that is no `Exception`; whatever else it raises, too.
    """
    return await _own_task(partial(_run, function, *args, **kwargs), function)


async def drained(hear: Hear, function: Callable[..., Any], /, **kwargs: Any) -> Any:
    """As `called`. If the function gives a generator, async or plain, `hear` takes what that yields; gives what it returns.

    A plain generator runs in a thread. It is closed in the end, whatever that is: by itself, after a value after which
    nothing more is wanted, by an error of `hear`, or by a cancellation, which a plain one notices when it next yields.
    """
    return await _own_task(partial(_drain, hear, function, kwargs), function)


async def _own_task(work: _Work, function: Callable[..., Any]) -> Any:
    task = asyncio.create_task(_without_exit(work))
    try:
        await asyncio.wait([task])
    finally:
        if not task.done():
            await _stop(task, function)
    if task.cancelled():
        raise StrayCancellation
    error = task.exception()
    if error is None or isinstance(error, Exception):
        return task.result()
    raise StrayExit(type(error).__name__) from error


def left_behind() -> int:
    """How many functions go on although they were cancelled."""
    return len(_left)


async def _without_exit(work: _Work) -> Any:
    try:
        return await work()
    except (SystemExit, KeyboardInterrupt) as error:  # of a task these end the event loop
        raise StrayExit(type(error).__name__) from error


async def _run(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    if inspect.iscoroutinefunction(function):
        return await function(*args, **kwargs)
    result = await anyio.to_thread.run_sync(
        lambda: function(*args, **kwargs), abandon_on_cancel=True
    )
    return await result if inspect.isawaitable(result) else result


async def _drain(hear: Hear, function: Callable[..., Any], kwargs: Mapping[str, Any]) -> Any:
    yields = inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function)
    result = function(**kwargs) if yields else await _run(function, **kwargs)
    if isinstance(result, AsyncGenerator):
        return await _drain_async(hear, cast("AsyncGenerator[object, None]", result))
    if isinstance(result, Generator):
        return await _drain_plain(hear, cast("Generator[object, None, object]", result))
    return result


async def _drain_async(hear: Hear, generator: AsyncGenerator[object, None]) -> None:
    task = asyncio.current_task()
    async with aclosing(generator):
        async for value in generator:
            # one that swallows its cancellation would go on for as long as it likes
            if (task is not None and task.cancelling()) or hear(value):
                return
            await asyncio.sleep(0)  # one that never waits would keep everything else from running


async def _drain_plain(hear: Hear, generator: Generator[object, None, object]) -> object:
    left = Event()
    try:
        return await anyio.to_thread.run_sync(
            _exhaust, hear, generator, left, abandon_on_cancel=True
        )
    finally:
        left.set()


def _exhaust(hear: Hear, generator: Generator[object, None, object], left: Event) -> object:
    with closing(generator):
        while True:
            try:
                value = next(generator)
            except StopIteration as end:
                return end.value
            if left.is_set() or hear(value):
                return None


async def _stop(task: "asyncio.Task[Any]", function: Callable[..., Any]) -> None:
    _left.add(task)
    task.add_done_callback(_ended)
    task.cancel()
    with anyio.CancelScope(shield=True):
        await asyncio.wait([task], timeout=_GRACE)
    if not task.done():
        name = getattr(function, "__qualname__", type(function).__name__)
        logger.error("%s goes on although it was cancelled", name, extra={"action": "left_behind"})


def _ended(task: "asyncio.Task[Any]") -> None:
    _left.discard(task)
    if not task.cancelled():
        task.exception()  # else asyncio complains that nobody has asked for it


ExtraPromptFunction: TypeAlias = Callable[[RunRef], str | Awaitable[str]]

SECONDS = 30.0
"""How long it may take."""

TEXT_BYTES = 64 * 1024

MISSING = "[The application could not look up what belongs here: it is not known in this run.]"
"""What the model is told in place of text that there is none of."""


def extra_prompt(
    function: ExtraPromptFunction, /, *, shown: Callable[[str], str] = str, seconds: float = SECONDS
) -> ExtraPrompt:
    """The function, plain (it runs in a thread) or async, as the engine asks it; `shown` says how its text is shown.

    It never fails: where the function raises, takes longer than `seconds` or gives no text, the model is told that
    something is missing. Of a longer text it is told the first `TEXT_BYTES`.
    """

    async def told(run: RunRef) -> str:
        ids = {"run_id": run.run_id}
        try:
            with guarded("context", ids, seconds):
                return shown(_bounded(await call_function(function, run), run))
        except CallBroken:
            return shown(MISSING)

    return told


def _bounded(text: object, run: RunRef) -> str:
    """Raises TypeError for what is no text."""
    if not isinstance(text, str):
        raise TypeError(f"the context of an agent has to be a text, not {type(text).__name__}")
    encoded = mended(text).encode()
    if len(encoded) <= TEXT_BYTES:
        return encoded.decode()
    extra = {"action": "context_cut", "run_id": run.run_id}
    logger.warning("context cut: %s bytes, %s are told", len(encoded), TEXT_BYTES, extra=extra)
    left = len(encoded) - TEXT_BYTES
    return f"{encoded[:TEXT_BYTES].decode(errors='ignore')}\n[Cut here: {left} bytes more.]"


class ExtraPromptOnce:
    """What an agent is told in one run, asked for when its model is first called; its forks are told the same."""

    __slots__ = ("_ask", "_asking", "_run", "_text")

    def __init__(self, ask: ExtraPrompt | None, run: RunRef) -> None:
        self._ask = ask or _nothing
        self._run = run
        self._text: str | None = None
        self._asking = anyio.Lock(fast_acquire=True)

    async def __call__(self) -> str:
        # forks that go on after a take-over may all ask first
        async with self._asking:
            if self._text is None:
                self._text = await self._ask(self._run)
            return self._text


async def _nothing(_run: RunRef) -> str:
    return ""
