"""Results of functions, errors for values that cannot be results, and progress of generators."""

import asyncio
import enum
import functools
import logging
import threading
from collections import OrderedDict
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Iterator,
    Sequence,
)
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, Protocol, TypeAlias
from uuid import UUID

import anyio
import anyio.lowlevel
import pytest
from pydantic import BaseModel
from tests.support.runs import KEY
from typing_extensions import TypedDict

from passback import Result, ToolContext, ToolError, tool
from passback.core.errors import ConfigurationError
from passback.core.messages import CallId, Content, MediaPart, RunId, RunRef, ToolCall, ToolResult
from passback.toolsets.functions import FunctionTool
from passback.toolsets.results import MEDIA_CHARACTERS

pytestmark = pytest.mark.anyio


class Progress:
    """The progress that a call reports, and a way to wait for it."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self._more = threading.Condition()

    def __call__(self, words: str, /) -> None:
        with self._more:
            self.words.append(words)
            self._more.notify_all()

    def until(self, words: str) -> None:
        """Wait in a thread until these words are reported."""
        with self._more:
            assert self._more.wait_for(lambda: words in self.words, timeout=5)

    @property
    def context(self) -> ToolContext:
        return ToolContext(RunRef(KEY, RunId("r")), CallId("c"), progress=self)


async def run(one: FunctionTool, progress: Progress | None = None) -> ToolResult:
    context = (progress or Progress()).context
    with anyio.fail_after(5):
        return await one.run(ToolCall(CallId("c"), one.spec.name, "{}"), context)


class Plain:
    """A class without a form in JSON."""


class Place(BaseModel):
    city: str


@dataclass
class Point:
    x: int


@dataclass
class Holder:
    inner: object


class Pair(NamedTuple):
    a: int
    b: int


class Colour(enum.Enum):
    RED = "red"


# ---------------------------------------------------------------- values
@pytest.mark.parametrize(
    ("value", "content"),
    [
        (Point(1), '{"x":1}'),
        ([Place(city="Rome"), Point(2)], '[{"city":"Rome"},{"x":2}]'),
        (
            {"at": date(2026, 1, 2), "id": UUID(int=0)},
            '{"at":"2026-01-02","id":"00000000-0000-0000-0000-000000000000"}',
        ),
        ((Decimal("1.5"), Colour.RED, Pair(1, 2)), '["1.5","red",[1,2]]'),
        ({7}, "[7]"),
        (OrderedDict(a=None), '{"a":null}'),
        (Result("said"), "said"),
        (Result([1]), "[1]"),
        (Result(Result("inner")), "inner"),
        (Result(None), "null"),
        (
            Result(b"abc", "image/png"),
            (MediaPart("image", "data:image/png;base64,YWJj", "image/png"),),
        ),
        (
            Result(bytearray(b"a"), "audio/wav"),
            (MediaPart("audio", "data:audio/wav;base64,YQ==", "audio/wav"),),
        ),
        (
            Result(memoryview(b"a"), "text/csv"),
            (MediaPart("file", "data:text/csv;base64,YQ==", "text/csv"),),
        ),
    ],
)
async def test_a_value_with_json_or_a_media_type_is_a_result(
    value: object, content: Content
) -> None:
    def give() -> object:
        return value

    assert await run(tool(give)) == ToolResult(content)


MODULE = __name__
NO_MEDIA_TYPE = "without a media type; give Result(value, media_type='image/png')"
NO_JSON = "which cannot be written as JSON"


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (Plain(), f"a value of type {MODULE}.Plain, {NO_JSON}"),
        ({"a": [Plain()]}, f"a value of type dict that holds {MODULE}.Plain, {NO_JSON}"),
        (
            Holder(len),
            f"a value of type {MODULE}.Holder that holds builtin_function_or_method, {NO_JSON}",
        ),
        (..., f"a value of type ellipsis, {NO_JSON}"),
        (ValueError("secret"), f"a value of type ValueError, {NO_JSON}"),
        (["\ud800", Plain()], f"a value of type list that holds {MODULE}.Plain, {NO_JSON}"),
        ({"a": b"\xff"}, f"a value of type dict, {NO_JSON}"),
        (b"abc", f"bytes {NO_MEDIA_TYPE}"),
        (Result(memoryview(b"abc")), f"memoryview {NO_MEDIA_TYPE}"),
        (Result("abc", "text/plain"), "str with a media type, which only bytes have"),
        (
            Result(b"abc", "no type, at all"),
            "bytes with an invalid media type; a valid one is image/png",
        ),
        (Result(b"a" * MEDIA_CHARACTERS, "image/png"), "more than 393216 bytes of image/png"),
    ],
)
@pytest.mark.promise("P11")
async def test_a_value_that_cannot_be_a_result_is_an_error_with_type_and_tool(
    value: object, problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    def give() -> object:
        return value

    words = f"The tool 'give' gave what cannot be a result: {problem}."
    # a retry would give the same
    for one in (tool(give), tool(retries=3)(give)):
        caplog.clear()
        assert await run(one) == ToolResult(words, is_error=True)
        [line] = caplog.records
        assert (line.levelno, line.message) == (logging.ERROR, f"tool give: no result: {problem}")


# ---------------------------------------------------------------- generators
Steps: TypeAlias = Callable[[], Any]


def in_each_form(*values: object) -> list[Steps]:
    """Return generators that yield these values: async, plain, and returned by a function."""

    async def asynchronous() -> AsyncGenerator[object, None]:
        for value in values:
            yield value

    def plain() -> Iterator[object]:
        yield from values

    def gives_asynchronous() -> object:
        return asynchronous()

    def gives_plain() -> object:
        return plain()

    return [asynchronous, plain, gives_asynchronous, gives_plain]


def returning(*values: object, returned: object) -> list[Steps]:
    """Return a plain generator that returns something at its end."""

    def plain() -> Generator[object, None, object]:
        yield from values
        return returned

    return [plain]


@pytest.mark.parametrize(
    ("forms", "progress", "result"),
    [
        (in_each_form(), [], "null"),
        (in_each_form("alone"), [], "alone"),
        (in_each_form("first", {"done": 2}), ["first"], '{"done":2}'),
        (in_each_form({"step": 1}, Place(city="Rome"), 3), ['{"step":1}', '{"city":"Rome"}'], "3"),
        (in_each_form("first", Result({"n": 1}), "never"), ["first"], '{"n":1}'),
        (in_each_form("first", None), ["first"], "null"),
        (returning("first", "second", returned=[1]), ["first", "second"], "[1]"),
        (returning(returned=Result("said")), [], "said"),
    ],
)
async def test_the_values_that_a_generator_yields_before_the_last_are_progress(
    forms: Sequence[Steps], progress: list[str], result: str
) -> None:
    for steps in forms:
        reported = Progress()
        assert await run(tool(name="steps")(steps), reported) == ToolResult(result)
        assert reported.words == progress


async def test_a_step_is_reported_while_the_generator_works_on() -> None:
    """It does not wait for the next one, which may be minutes later."""
    progress = Progress()

    async def asynchronous() -> AsyncIterator[str]:
        yield "loading"
        yield "building"
        await anyio.to_thread.run_sync(progress.until, "building")
        yield "built"

    def plain() -> Iterator[str]:
        yield "loading"
        yield "building"
        progress.until("building")
        yield "built"

    for steps in (asynchronous, plain):
        progress.words.clear()
        assert await run(tool(steps), progress) == ToolResult("built")
        assert progress.words == ["loading", "building"]


@pytest.mark.promise("P11")
@pytest.mark.parametrize("steps", in_each_form("fine", Plain(), "never"))
async def test_a_step_that_has_no_json_ends_the_call(steps: Steps) -> None:
    problem = f"a value of type {MODULE}.Plain, {NO_JSON}"
    words = f"The tool 'steps' gave what cannot be a result: {problem}."
    assert await run(tool(name="steps")(steps)) == ToolResult(words, is_error=True)


class EndingGenerators:
    """Generators with different ends, which record when they are closed."""

    def __init__(self) -> None:
        self.closed: list[str] = []
        self.begun = anyio.Event()
        self.over = threading.Event()
        self.release = threading.Event()

    async def result(self) -> AsyncIterator[object]:
        try:
            yield Result("early")
            raise AssertionError("not asked")
        finally:
            await anyio.lowlevel.checkpoint()
            self.closed.append("result")

    def plain_result(self) -> Iterator[object]:
        try:
            yield Result("early")
            raise AssertionError("not asked")
        finally:
            self.closed.append("plain_result")

    async def error(self) -> AsyncIterator[str]:
        try:
            yield "one"
            raise ToolError("no more")
        finally:
            self.closed.append("error")

    def plain_error(self) -> Iterator[str]:
        try:
            yield "one"
            raise SystemExit
        finally:
            self.closed.append("plain_error")

    async def waits(self) -> AsyncIterator[str]:
        try:
            yield "one"
            self.begun.set()
            await anyio.sleep_forever()
        finally:
            await anyio.lowlevel.checkpoint()
            self.closed.append("waits")

    async def never_waits(self) -> AsyncIterator[str]:
        try:
            while True:
                yield "on"
        finally:
            self.closed.append("never_waits")

    async def ignores_cancellation(self) -> AsyncIterator[str]:
        try:
            while True:
                with suppress(asyncio.CancelledError):
                    self.begun.set()
                    await asyncio.Event().wait()
                yield "on"
        finally:
            self.closed.append("ignores_cancellation")

    def plain_waits(self) -> Iterator[str]:
        try:
            self.release.wait(5)
            yield "one"
            raise AssertionError("not asked")
        finally:
            self.closed.append("plain_waits")
            self.over.set()


LATE = ToolResult("The tool did not answer in 0.05 s.", is_error=True)


@pytest.mark.parametrize(
    ("name", "seconds", "result"),
    [
        ("result", 60, ToolResult("early")),
        ("plain_result", 60, ToolResult("early")),
        ("error", 60, ToolResult("no more", is_error=True)),
        ("plain_error", 60, ToolResult("The tool failed: StrayExit.", is_error=True)),
        ("waits", 0.05, LATE),
        ("never_waits", 0.05, LATE),
        ("ignores_cancellation", 0.05, LATE),
    ],
)
async def test_a_generator_is_closed_whatever_its_end(
    name: str, seconds: float, result: ToolResult
) -> None:
    generators = EndingGenerators()
    assert await run(tool(seconds=seconds)(getattr(generators, name))) == result
    assert generators.closed == [name]


async def test_a_plain_generator_that_timed_out_is_closed_when_it_next_yields() -> None:
    generators = EndingGenerators()
    assert await run(tool(seconds=0.05)(generators.plain_waits)) == LATE
    assert generators.closed == []
    generators.release.set()
    with anyio.fail_after(5):
        await anyio.to_thread.run_sync(generators.over.wait, 5)
    assert generators.closed == ["plain_waits"]


@pytest.mark.parametrize("name", ["waits", "ignores_cancellation"])
@pytest.mark.promise("P7")
async def test_a_generator_is_closed_when_its_call_is_cancelled(name: str) -> None:
    generators = EndingGenerators()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run, tool(getattr(generators, name)))
            await generators.begun.wait()
            tasks.cancel_scope.cancel()
    assert generators.closed == [name]


async def test_a_failed_generator_begins_anew_if_its_tool_has_retries() -> None:
    attempts: list[int] = []
    progress = Progress()

    @tool(retries=1)
    def flaky() -> Iterator[str]:
        attempts.append(1)
        yield f"attempt {len(attempts)}"
        if len(attempts) < 2:
            raise OSError
        yield "done"

    assert await run(flaky, progress) == ToolResult("done")
    assert progress.words == ["attempt 2"]


# ---------------------------------------------------------------- annotations
class Shape(Protocol):
    x: int


class Record(TypedDict):
    a: int


class Names(list[str]):
    """A subclass of list."""


async def yields_text() -> str:  # type: ignore[misc]
    yield "x"


def yields_nothing() -> None:  # type: ignore[misc]
    yield "x"


async def yields_plainly() -> Iterator[str]:  # type: ignore[misc]
    yield "x"


def returns(annotation: object) -> Callable[..., Any]:
    def function() -> Any: ...

    function.__annotations__["return"] = annotation
    return function


def yields(annotation: object) -> Callable[..., Any]:
    async def function() -> Any:
        yield "x"

    function.__annotations__["return"] = annotation
    return function


NOT_ONE = "cannot be a result; a result is text, JSON, a dataclass, a pydantic model, or Result"


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (returns(Plain), rf"what it returns, {MODULE}\.Plain, {NOT_ONE}"),
        (returns(Plain | None), rf"what it returns, {MODULE}\.Plain, {NOT_ONE}"),
        (returns(Annotated[Plain, "x"]), rf"what it returns, {MODULE}\.Plain, {NOT_ONE}"),
        (returns(Awaitable[Plain]), rf"what it returns, {MODULE}\.Plain, {NOT_ONE}"),
        (returns(Coroutine[None, None, Plain]), rf"what it returns, {MODULE}\.Plain, {NOT_ONE}"),
        (returns(AsyncIterator[Plain]), rf"what it returns, {MODULE}\.Plain, {NOT_ONE}"),
        (returns(Generator[Plain, None, Plain]), rf"what it returns, {MODULE}\.Plain, {NOT_ONE}"),
        (returns(threading.Event), rf"what it returns, threading\.Event, {NOT_ONE}"),
        (returns(bytes), f"what it returns, bytes, {NOT_ONE}"),
        (returns(bytes | bytearray), f"what it returns, bytes, {NOT_ONE}"),
        (returns(Callable[[], str]), rf"what it returns, .*Callable\[\[\], str\], {NOT_ONE}"),
        (returns(Callable), f"what it returns, .*Callable.*, {NOT_ONE}"),
        (yields_text, r"it yields, so it returns AsyncIterator\[\.\.\.\], not str"),
        (yields_nothing, r"it yields, so it returns Iterator\[\.\.\.\], not NoneType"),
        (
            yields_plainly,
            r"it yields, so it returns AsyncIterator\[\.\.\.\], not .*Iterator\[str\]",
        ),
    ],
)
def test_an_annotation_that_no_result_can_have_is_refused(
    function: Callable[..., Any], problem: str
) -> None:
    with pytest.raises(ConfigurationError, match=f"tool '{function.__name__}': {problem}"):
        tool(function)


@pytest.mark.parametrize(
    "annotation",
    [
        *(None, Any, object, str, int, dict[str, Plain], list[Plain], Names, Place, Point),
        *(Holder, Pair, Record, Colour, Result, ToolResult, date, Shape, Plain | str, bytes | str),
        *(Iterator[str], AsyncIterator, "int", Literal["a"], Generator[Plain, None, str]),
        *(AsyncGenerator[Plain | str, None], Awaitable[int], Annotated[int, "x"]),
    ],
)
def test_an_annotation_that_a_result_may_have_is_accepted(annotation: Any) -> None:
    assert tool(returns(annotation)).spec.name == "function"


@pytest.mark.parametrize(
    "annotation",
    [
        *(AsyncIterator[str], AsyncGenerator[str, None], AsyncIterable[Place], AsyncIterator),
        *(Any, object, Shape, AsyncIterator[str] | None),
    ],
)
def test_a_generator_may_be_annotated_as_one(annotation: Any) -> None:
    assert tool(yields(annotation)).spec.name == "function"


def test_the_annotation_of_a_wrapped_function_is_ignored() -> None:
    def make() -> Plain:
        return Plain()

    @functools.wraps(make)
    def described() -> Any:
        return str(type(make()))

    assert tool(described).spec.name == "make"
