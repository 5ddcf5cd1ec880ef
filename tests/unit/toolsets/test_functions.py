"""Typed functions as server tools: their declarations and their calls."""

import functools
import logging
import math
import threading
from collections.abc import Awaitable, Callable, Sequence
from datetime import date
from typing import Annotated, Literal

import anyio
import anyio.lowlevel
import pytest
from pydantic import BaseModel, Field
from tests.support.ledgers import open_ledger
from tests.support.runs import KEY, at_once, events, post, says, worker

from passback.agent import Agent
from passback.core.errors import ConfigurationError
from passback.core.events import ToolResulted
from passback.core.messages import (
    CallId,
    RunId,
    RunRef,
    ToolCall,
    ToolResult,
    ToolSpec,
)
from passback.core.toolsets import ToolContext
from passback.engine.ledger import Ledger
from passback.models.scripted import ScriptedModel, calls
from passback.models.scripted import says as words
from passback.toolsets.functions import FunctionTool, FunctionTools, ToolError, tool

pytestmark = pytest.mark.anyio


CONTEXT = ToolContext(RunRef(KEY, RunId("r")), CallId("c"))


async def run(one: FunctionTool, arguments: str = "{}") -> ToolResult:
    with anyio.fail_after(5):
        return await one.run(ToolCall(CallId("c"), one.spec.name, arguments), CONTEXT)


# ---------------------------------------------------------------- declarations
class Place(BaseModel):
    city: str


def test_a_declaration_has_the_name_the_docstring_and_the_annotations() -> None:
    @tool
    def forecast(
        place: Place,
        days: Annotated[int, Field(ge=1, description="How many.")] = 3,
        *,
        unit: Literal["C", "F"] = "C",
    ) -> str:
        """Tell the weather.

        With details.
        """
        return ""

    assert forecast.spec == ToolSpec(
        "forecast",
        "Tell the weather.\n\nWith details.",
        {
            "$defs": {
                "Place": {
                    "properties": {"city": {"title": "City", "type": "string"}},
                    "required": ["city"],
                    "title": "Place",
                    "type": "object",
                }
            },
            "additionalProperties": False,
            "properties": {
                "place": {"$ref": "#/$defs/Place"},
                "days": {
                    "default": 3,
                    "description": "How many.",
                    "minimum": 1,
                    "title": "Days",
                    "type": "integer",
                },
                "unit": {"default": "C", "enum": ["C", "F"], "title": "Unit", "type": "string"},
            },
            "required": ["place"],
            "type": "object",
        },
    )


def test_name_and_description_can_be_given() -> None:
    @tool(name="look-up", description="Look it up.", read_only=True, seconds=1)
    def function() -> None:
        """Not this."""

    spec = ToolSpec(
        "look-up",
        "Look it up.",
        {"additionalProperties": False, "properties": {}, "type": "object"},
    )
    assert (function.spec, function.read_only, function.seconds) == (spec, True, 1)


@pytest.mark.parametrize("optional", [False, True])
async def test_the_context_is_passed_and_hidden_from_the_model(optional: bool) -> None:
    def plain(context: ToolContext, text: str) -> str:
        return f"{context.call_id} {text}"

    def maybe(text: str, context: ToolContext | None = None) -> str:
        return f"{context and context.call_id} {text}"

    one = tool(maybe if optional else plain)
    properties = one.spec.parameters["properties"]
    assert properties == {"text": {"title": "Text", "type": "string"}}
    assert await run(one, '{"text": "hi"}') == ToolResult("c hi")
    forged = await run(one, '{"text": "hi", "context": null}')
    assert forged.is_error


async def test_a_parameter_may_have_any_name() -> None:
    @tool
    def odd(schema: str, model_dump: int, _private: bool, json: str = "x") -> str:
        return f"{schema} {model_dump} {_private} {json}"

    given = '{"schema": "s", "model_dump": 1, "_private": true}'
    assert await run(odd, given) == ToolResult("s 1 True x")


def test_a_decorated_function_can_still_be_called() -> None:
    @tool
    def double(number: int) -> int:
        return 2 * number

    assert double(21) == 42


def star(*names: str) -> None: ...
def keywords(**names: str) -> None: ...
def positional(name: str, /) -> None: ...
def unknown(name: "NoSuchType") -> None: ...  # type: ignore[name-defined]  # noqa: F821
def opaque(lock: threading.Event) -> None: ...


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (star, "passable by name"),
        (positional, "passable by name"),
        (keywords, r"\*\*names cannot be described"),
        (unknown, "annotations cannot be read: name 'NoSuchType' is not defined"),
        (opaque, "has no JSON Schema"),
        (lambda: None, "cannot be named '<lambda>'"),
        (functools.partial(star), "cannot be named ''"),
    ],
)
def test_a_function_that_cannot_be_a_tool_is_refused_in_plain_words(
    function: Callable[..., object], why: str
) -> None:
    with pytest.raises(ConfigurationError, match=why):
        tool(function)


@pytest.mark.parametrize("name", ["two words", "x" * 65, "dots.too", "t\u00fcr"])
def test_a_name_that_providers_refuse_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="cannot be named"):
        tool(name=name)(star)


# ---------------------------------------------------------------- results
@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("as it is", "as it is"),
        ("", ""),
        (None, "null"),
        (3, "3"),
        ({"a": [1, "ü"]}, '{"a":[1,"ü"]}'),
        (Place(city="Rome"), '{"city":"Rome"}'),
        ([math.nan, math.inf, {"a": -math.inf}], '[null,null,{"a":null}]'),
        ("lone \ud800 half, a pair \ud83d\ude00", "lone \ufffd half, a pair 😀"),
        ({"\ud800": [Place(city="\udc00")]}, '{"\ufffd":[{"city":"\ufffd"}]}'),
        ({"a": "\ud800", "b": math.nan}, '{"a":"\ufffd","b":null}'),
        ({(1, 2): "\ud800", 3: (date(2026, 1, 2),)}, '{"1,2":"\ufffd","3":["2026-01-02"]}'),
    ],
)
async def test_a_result_is_text_or_json(value: object, text: str) -> None:
    def give() -> object:
        return value

    assert await run(tool(give)) == ToolResult(text)


async def test_a_plain_function_runs_in_a_thread_and_an_async_one_in_the_loop() -> None:
    @tool
    def plain() -> bool:
        return threading.current_thread() is threading.main_thread()

    @tool
    async def asynchronous() -> bool:
        return threading.current_thread() is threading.main_thread()

    assert await run(plain) == ToolResult("false")
    assert await run(asynchronous) == ToolResult("true")


async def test_a_returned_awaitable_is_awaited() -> None:
    async def inner() -> str:
        return "awaited"

    def wrapper() -> Awaitable[str]:
        return inner()

    assert await run(tool(wrapper)) == ToolResult("awaited")


@pytest.mark.promise("P11")
async def test_a_long_result_is_cut_with_a_note() -> None:
    cut = "\n[cut: the result was longer than the limit]"
    length = 64 * 1024

    @tool
    def long(extra: int) -> str:
        return "x" * (length + extra)

    assert await run(long, '{"extra": 0}') == ToolResult("x" * length)
    assert await run(long, '{"extra": 1}') == ToolResult("x" * length + cut)


# ---------------------------------------------------------------- failures
async def test_invalid_arguments_are_an_error_and_the_function_is_not_called() -> None:
    @tool
    def add(a: int, b: int = 0) -> int:
        raise AssertionError("not called")

    assert await run(add, '{"a": "one", "c": 2}') == ToolResult(
        "The arguments are not valid.\n"
        "a: Input should be a valid integer, unable to parse string as an integer\n"
        "c: Extra inputs are not permitted",
        is_error=True,
        invalid=True,
    )
    assert await run(add, "[]") == ToolResult(
        "The arguments are not valid.\narguments: Input should be an object",
        is_error=True,
        invalid=True,
    )
    assert (await run(add, "{")).is_error


async def test_the_text_of_a_tool_error_is_the_result() -> None:
    @tool
    def refuse() -> None:
        raise ToolError("the shop is closed")

    assert await run(refuse) == ToolResult("the shop is closed", is_error=True)


@pytest.mark.parametrize("error", [RuntimeError("secret"), TimeoutError("secret"), StopIteration()])
async def test_another_exception_gives_its_name_and_only_the_log_has_its_text(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    @tool
    async def fail() -> None:
        raise error

    @tool
    def fail_in_thread() -> None:
        raise error

    for one in (fail, fail_in_thread):
        caplog.clear()
        answer = await run(one)
        assert answer.is_error
        assert answer.content in {
            f"The tool failed: {name}." for name in (type(error).__name__, "RuntimeError")
        }
        (entry,) = caplog.records
        assert (entry.levelno, entry.message) == (logging.ERROR, "tool failed")


async def test_a_timeout_is_an_error_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    @tool(seconds=0.01)
    async def wait() -> None:
        await anyio.Event().wait()

    answer = ToolResult("The tool did not answer in 0.01 s.", is_error=True)
    assert await run(wait) == answer
    assert caplog.messages == ["tool not done within 0.01 s"]


async def test_a_timeout_does_not_wait_for_the_thread() -> None:
    release = threading.Event()

    @tool(seconds=0.01)
    def hang() -> None:
        release.wait(5)

    answer = ToolResult("The tool did not answer in 0.01 s.", is_error=True)
    assert await run(hang) == answer
    release.set()


# ---------------------------------------------------------------- several tools
async def test_a_toolset_knows_its_tools_by_name() -> None:
    @tool(read_only=True)
    def one() -> str:
        return "1"

    @tool
    def two() -> str:
        return "2"

    @tool(repeatable=True)
    def three() -> str:
        return "3"

    tools = FunctionTools([one, two, three])
    names = ["one", "two", "three"]
    assert list(await tools.specs()) == [one.spec, two.spec, three.spec]
    assert [tools.is_read_only(name) for name in names] == [True, False, False]
    # a read-only tool is repeatable too
    assert [tools.is_repeatable(name) for name in names] == [True, False, True]
    assert await tools.call(ToolCall(CallId("c"), "two", "{}"), CONTEXT) == ToolResult("2")


# ---------------------------------------------------------------- read-only by a call's arguments
def raise_error(command: str) -> bool:
    raise RuntimeError(command)


def is_ls(command: str) -> bool:
    return command == "ls"


class IsPlainLs:
    def __call__(self, *, options: Sequence[str], command: object) -> bool:
        return command == "ls" and not options


FAILED = "read_only failed"
NO_BOOL = "read_only of the tool run_it gave no bool but"


@pytest.mark.parametrize(
    ("read_only", "arguments", "reads", "logged"),
    [
        (is_ls, '{"command": "ls"}', True, []),
        (is_ls, '{"command": "rm"}', False, []),
        # with the parsed arguments
        (lambda options: options == ("-l",), '{"command": "ls", "options": ["-l"]}', True, []),
        (lambda **given: given == {"command": "ls", "options": ()}, '{"command": "ls"}', True, []),
        (IsPlainLs(), '{"command": "ls"}', True, []),
        (lambda command, more="ls": command == more, '{"command": "ls"}', True, []),
        (lambda: True, '{"command": "ls"}', True, []),
        # invalid arguments, and invalid answers
        (lambda: True, '{"command": 5}', False, []),
        (lambda: True, "{", False, []),
        (raise_error, '{"command": "ls"}', False, [FAILED]),
        (lambda: 1, '{"command": "ls"}', False, [f"{NO_BOOL} int"]),
        (lambda: None, '{"command": "ls"}', False, [f"{NO_BOOL} NoneType"]),
    ],
)
async def test_a_function_decides_whether_a_call_is_read_only(
    read_only: Callable[..., bool],
    arguments: str,
    reads: bool,
    logged: list[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    @tool(read_only=read_only)
    def run_it(context: ToolContext, command: str, options: tuple[str, ...] = ()) -> None: ...

    tools = FunctionTools([run_it])
    call = ToolCall(CallId("c"), "run_it", arguments)
    assert await tools.is_read_only_call(call) is reads
    assert caplog.messages == logged
    # without arguments the tool has neither property
    assert not tools.is_read_only("run_it")
    assert not tools.is_repeatable("run_it")


async def decides(command: str) -> bool:
    return True


TAKES = r"read_only takes a function of the tool's arguments \(command\) by their names: "


@pytest.mark.parametrize(
    ("read_only", "why"),
    [
        (decides, "read_only takes a plain function, not an async one"),
        (lambda order: order == "tea", TAKES + "missing a required argument: 'order'"),
        (
            lambda command, context: command in context,
            TAKES + "missing a required argument: 'context'",
        ),
        (lambda command, /: bool(command), TAKES + ".*command"),
    ],
)
def test_an_unsuitable_function_for_read_only_is_refused(
    read_only: Callable[..., bool], why: str
) -> None:
    def work(command: str, context: ToolContext) -> None: ...

    with pytest.raises(ConfigurationError, match=f"tool 'work': {why}"):
        tool(read_only=read_only)(work)


def test_two_tools_of_one_name_are_refused() -> None:
    def same() -> None: ...

    with pytest.raises(ConfigurationError, match="two tools are named 'same'"):
        Agent(tools=[same, tool(same)]).own_toolsets()


async def test_an_agent_takes_functions_with_and_without_the_decorator() -> None:
    def plain() -> None: ...

    @tool
    def decorated() -> None: ...

    other = FunctionTools([])
    mine, theirs = Agent(tools=[plain, decorated], toolsets=[other]).own_toolsets()
    assert [spec.name for spec in await mine.specs()] == ["plain", "decorated"]
    assert theirs is other
    assert Agent().own_toolsets() == ()


# ---------------------------------------------------------------- concurrency
class HeldTools:
    """Tools that start when they are called and end when the test lets them."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.ends: dict[str, anyio.Event] = {}
        self._started = anyio.Condition()

    def tools(self) -> Sequence[FunctionTool]:
        async def perform(name: str) -> str:
            self.ends[name] = anyio.Event()
            async with self._started:
                self.started.append(name)
                self._started.notify_all()
            await self.ends[name].wait()
            return name

        reads = tool(name="either", read_only=lambda name: name.startswith("r"))(perform)
        return [tool(name="read", read_only=True)(perform), tool(name="write")(perform), reads]

    async def wait_for_starts(self, count: int) -> None:
        with anyio.fail_after(5):
            async with self._started:
                while len(self.started) < count:
                    await self._started.wait()


@pytest.mark.parametrize(("read", "write"), [("read", "write"), ("either", "either")])
async def test_neighbouring_read_only_calls_run_together_and_others_alone_in_order(
    read: str, write: str
) -> None:
    held = HeldTools()
    requested = [(read, "r1"), (read, "r2"), (write, "w1"), (write, "w2"), (read, "r3")]
    script = [calls(*((kind, {"name": name}) for kind, name in requested)), words("done")]
    received: list[object] = []

    async with (
        open_ledger("memory:") as store,
        worker(store, ScriptedModel(script), *held.tools()) as runs,
        at_once() as tasks,
    ):

        async def follow() -> None:
            received.extend(await events(runs, await post(runs, says())))

        tasks.start_soon(follow)
        for ended, expected in [
            ((), ["r1", "r2"]),
            (("r2", "r1"), ["r1", "r2", "w1"]),
            (("w1",), ["r1", "r2", "w1", "w2"]),
            (("w2",), ["r1", "r2", "w1", "w2", "r3"]),
            (("r3",), ["r1", "r2", "w1", "w2", "r3"]),
        ]:
            for name in ended:
                held.ends[name].set()
                await settled(store)
            await held.wait_for_starts(len(expected))
            await settled(store)
            assert held.started == expected
    results = [event.content for event in received if isinstance(event, ToolResulted)]
    assert results == ["r2", "r1", "w1", "w2", "r3"]


async def settled(store: Ledger) -> None:
    """Let the tasks run as far as they can, with the store's thread between them."""
    for _ in range(20):
        await store.status(KEY)
        await anyio.lowlevel.checkpoint()


# ---------------------------------------------------------------- retries
@pytest.mark.parametrize(
    ("retries", "content", "logged"),
    [
        (0, "The tool failed: OSError.", ("ERROR", "tool failed")),
        (2, "third time", ("WARNING", "attempt failed")),
    ],
)
async def test_a_call_is_tried_again_as_often_as_its_tool_allows(
    caplog: pytest.LogCaptureFixture, retries: int, content: str, logged: tuple[str, str]
) -> None:
    attempts: list[int] = []

    @tool(retries=retries)
    def flaky() -> str:
        attempts.append(1)
        if len(attempts) < 3:
            raise OSError
        return "third time"

    result = await FunctionTools([flaky]).call(ToolCall(CallId("c"), "flaky", "{}"), CONTEXT)
    assert result == ToolResult(content, is_error=not retries)
    assert len(attempts) == retries + 1
    lines = [(line.levelname, line.message) for line in caplog.records]
    assert lines == [logged] * (retries or 1)


async def test_a_tool_error_is_not_tried_again() -> None:
    attempts: list[int] = []

    @tool(retries=5)
    def raise_tool_error() -> str:
        attempts.append(1)
        raise ToolError("it is not there")

    result = await FunctionTools([raise_tool_error]).call(
        ToolCall(CallId("c"), "raise_tool_error", "{}"), CONTEXT
    )
    assert result == ToolResult("it is not there", is_error=True)
    assert attempts == [1]
