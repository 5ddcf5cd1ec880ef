"""Call functions of an agent's author within a deadline, and contain what they raise."""

import asyncio
import inspect
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Mapping
from contextlib import aclosing, closing, contextmanager
from functools import partial
from math import inf
from threading import Event
from typing import Any, TypeAlias, cast

import anyio
import anyio.to_thread

from passback.core.context import ExtraPrompt
from passback.core.messages import RunRef
from passback.core.text import replace_surrogates

logger = logging.getLogger(__name__)

_CANCEL_GRACE = 0.5  # seconds that a cancelled function has to end before it is left behind

_left_tasks: "set[asyncio.Task[Any]]" = set()

_Work: TypeAlias = Callable[[], Coroutine[Any, Any, Any]]

YieldHandler: TypeAlias = Callable[[object], bool]
"""Takes what a generator yields, in the thread that it runs in; True: nothing more is wanted."""


class StrayCancellation(Exception):
    """A function was cancelled by something it awaited, not by its caller."""


class StrayExit(Exception):
    """A function raised what ends whole programs: an exit, an interrupt, a library's panic."""


class CallBroken(Exception):
    """Code of others has failed. Its text is the type of the error, the only part that may leave
    the log.
    """


class CallLate(CallBroken):
    """Code of others did not end in time."""


class ContainedExits:
    """Turn what would end all other runs into errors of the code that raises it.

    Raises:
        StrayCancellation: a cancellation that was not meant for this task.
        StrayExit: all else that is no `Exception`.
    """

    # no generator: each run is in one for all its life
    __slots__ = ()

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if error is None or isinstance(error, Exception | GeneratorExit | KeyboardInterrupt):
            return
        if not isinstance(error, anyio.get_cancelled_exc_class()):
            raise StrayExit(type(error).__name__) from error
        # a cancellation is meant if it was asked of this task, or of a scope around it
        task = asyncio.current_task()
        meant = task is None or task.cancelling() or anyio.current_effective_deadline() == -inf
        if not meant:
            raise StrayCancellation from error


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
    """Contain any failure of others' code: log it with the traceback, and raise `CallBroken`.

    Args:
        what: its name in the log, as in "tool failed" with the action `tool_failed`.
        ids: ids for the log that say where it runs.
        seconds: its deadline.
        done: the word in the log for what it did not do in time.
        passing: errors that pass to the caller and are not logged.
        level: log level of a failure.

    Raises:
        CallLate: the deadline passed.
        CallBroken: it raised something, or what `ContainedExits` turns into errors.
    """
    with anyio.move_on_after(seconds) as scope:
        try:
            with ContainedExits():
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
    """Return the result of a function: a plain one runs in a thread, an async one in its own task.

    If the caller is cancelled, the function has a moment to end. One that goes on is left behind,
    and its result is dropped.

    Raises:
        StrayCancellation: it was cancelled, but not by its caller.
        StrayExit: it raised what is no `Exception`. Its other errors pass unchanged.
    """
    return await _await_own_task(partial(_call_plain_or_async, function, *args, **kwargs), function)


async def call_and_drain(hear: YieldHandler, function: Callable[..., Any], /, **kwargs: Any) -> Any:
    """Call a function as `call_function` does, and drain it if it returns a generator.

    `hear` takes what the generator yields. Return what the generator returns. A plain generator
    runs in a thread. It is always closed: at its end, after a value after which `hear` wants no
    more, after an error of `hear`, or after a cancellation, which a plain one notices when it next
    yields.
    """
    return await _await_own_task(partial(_call_and_drain, hear, function, kwargs), function)


async def _await_own_task(work: _Work, function: Callable[..., Any]) -> Any:
    async def work_without_exit() -> Any:
        try:
            return await work()
        except (SystemExit, KeyboardInterrupt) as error:  # of a task these end the event loop
            raise StrayExit(type(error).__name__) from error

    task = asyncio.create_task(work_without_exit())
    try:
        await asyncio.wait([task])
    except asyncio.CancelledError:
        _left_tasks.add(task)
        task.add_done_callback(_forget_left_task)
        task.cancel()
        with anyio.CancelScope(shield=True):
            await asyncio.wait([task], timeout=_CANCEL_GRACE)
        if not task.done():
            name = getattr(function, "__qualname__", type(function).__name__)
            extra = {"action": "left_behind"}
            # without the traceback, which is the caller's
            logger.log(logging.ERROR, "%s still runs although it was cancelled", name, extra=extra)
        raise
    if task.cancelled():
        raise StrayCancellation
    error = task.exception()
    if error is None or isinstance(error, Exception):
        return task.result()
    raise StrayExit(type(error).__name__) from error


def count_left_behind() -> int:
    """Return the number of functions that still run although they were cancelled."""
    return len(_left_tasks)


async def _call_plain_or_async(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    if inspect.iscoroutinefunction(function):
        return await function(*args, **kwargs)
    result = await anyio.to_thread.run_sync(
        lambda: function(*args, **kwargs), abandon_on_cancel=True
    )
    return await result if inspect.isawaitable(result) else result


async def _call_and_drain(
    hear: YieldHandler, function: Callable[..., Any], kwargs: Mapping[str, Any]
) -> Any:
    yields = inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function)
    result = function(**kwargs) if yields else await _call_plain_or_async(function, **kwargs)
    if isinstance(result, AsyncGenerator):
        task = asyncio.current_task()
        async with aclosing(cast("AsyncGenerator[object, None]", result)) as values:
            async for value in values:
                # one that swallows its cancellation would go on for as long as it likes
                if (task is not None and task.cancelling()) or hear(value):
                    return None
                await asyncio.sleep(0)  # one that never waits would keep all else from running
        return None
    if not isinstance(result, Generator):
        return result
    left = Event()
    try:
        generator = cast("Generator[object, None, object]", result)
        return await anyio.to_thread.run_sync(
            _drain_in_thread, hear, generator, left, abandon_on_cancel=True
        )
    finally:
        left.set()


def _drain_in_thread(
    hear: YieldHandler, generator: Generator[object, None, object], left: Event
) -> object:
    with closing(generator):
        while True:
            try:
                value = next(generator)
            except StopIteration as end:
                return end.value
            if left.is_set() or hear(value):
                return None


def _forget_left_task(task: "asyncio.Task[Any]") -> None:
    _left_tasks.discard(task)
    if not task.cancelled():
        task.exception()  # else asyncio complains that nobody has asked for it


ExtraPromptFunction: TypeAlias = Callable[[RunRef], str | Awaitable[str]]

EXTRA_PROMPT_TIMEOUT = 30.0  # that an extra prompt function may take

EXTRA_PROMPT_BYTES = 64 * 1024  # of the text that it may add

# what the model is told in place of the text
EXTRA_PROMPT_MISSING = (
    "[The application could not look up what belongs here: it is not known in this run.]"
)


def extra_prompt(
    function: ExtraPromptFunction,
    /,
    *,
    shown: Callable[[str], str] = str,
    seconds: float = EXTRA_PROMPT_TIMEOUT,
) -> ExtraPrompt:
    """Return a plain (run in a thread) or async function as an `ExtraPrompt` of the engine.

    `shown` formats its text. The result never raises: if the function raises, takes longer than
    `seconds` or returns no text, the model is told that something is missing. A longer text is cut
    after `EXTRA_PROMPT_BYTES`.
    """

    async def prompt_text(run: RunRef) -> str:
        ids = {"run_id": run.run_id}
        try:
            with guarded("context", ids, seconds):
                return shown(_bounded_text(await call_function(function, run), run))
        except CallBroken:
            return shown(EXTRA_PROMPT_MISSING)

    return prompt_text


def _bounded_text(text: object, run: RunRef) -> str:
    """Return a text of at most `EXTRA_PROMPT_BYTES`. Raises TypeError if it is not a text."""
    if not isinstance(text, str):
        raise TypeError(f"the context of an agent has to be a text, not {type(text).__name__}")
    encoded = replace_surrogates(text).encode()
    if len(encoded) <= EXTRA_PROMPT_BYTES:
        return encoded.decode()
    extra = {"action": "context_cut", "run_id": run.run_id}
    logger.warning(
        "context cut: %s bytes, %s are told", len(encoded), EXTRA_PROMPT_BYTES, extra=extra
    )
    left = len(encoded) - EXTRA_PROMPT_BYTES
    return f"{encoded[:EXTRA_PROMPT_BYTES].decode(errors='ignore')}\n[Cut here: {left} bytes more.]"


class ExtraPromptOnce:
    """The extra prompt of one run, asked for before its first model call; forks share it."""

    __slots__ = ("_ask", "_asking", "_run", "_text")

    def __init__(self, ask: ExtraPrompt | None, run: RunRef) -> None:
        self._ask = ask
        self._run = run
        self._text: str | None = None
        self._asking = anyio.Lock(fast_acquire=True)

    async def __call__(self) -> str:
        # forks that go on after a take-over may all ask first
        async with self._asking:
            if self._text is None:
                self._text = "" if self._ask is None else await self._ask(self._run)
            return self._text
