"""Typed functions as client tools: their declarations, calls, results and errors."""

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

import anyio
import pytest
from pydantic import BaseModel
from tests.support.python_client import DONE, Script, frame, stream
from typing_extensions import override

from passback_client import BadSetup, Client, Limits, OwedCall, Tool, ToolAnswer, ToolContext
from passback_client import sync as plain
from passback_client.execution import Execution, Toolbox
from passback_client.functions import ToolOptions, function_tool

pytestmark = pytest.mark.anyio

LIMITS = Limits(argument_chars=200, result_bytes=100, result_depth=4, error_chars=60)
ANY: dict[str, Any] = {"type": "object"}


async def answers(*tools: Tool, arguments: str = "{}", limits: Limits = LIMITS) -> list[ToolAnswer]:
    """Call each of the tools, and return their answers."""
    calls = [OwedCall(f"id-{each.name}", each.name, arguments) for each in tools]
    toolbox = Toolbox({each.name: each for each in tools}, limits)
    with anyio.fail_after(10):
        given = await Execution(toolbox, "c").answer(calls, undisturbed)
    return [each for each in given if isinstance(each, ToolAnswer)]


async def undisturbed(_: object) -> None:
    """Report no call as answered by others."""


async def answer(function: Callable[..., object], arguments: str = "{}") -> tuple[object, bool]:
    """Call a typed function; return the content, and whether it is an error."""
    [given] = await answers(function_tool(function, ToolOptions("tool")), arguments=arguments)
    assert (given.call_id, given.name) == ("id-tool", "tool")
    return given.content, given.is_error


# ---------------------------------------------------------------- declarations
class Size(BaseModel):
    width: int


def paint(color: Literal["blue", "red"], size: Size | None = None, *, _fast: bool = False) -> str:
    """Paint it.

    In one color.
    """
    return f"{color} {size.width if size else '-'} {_fast}"


def test_a_function_declares_itself() -> None:
    declared: Any = function_tool(paint).declaration
    schema = declared["parameters"]
    assert (declared["name"], declared["description"]) == ("paint", "Paint it.\n\nIn one color.")
    assert schema["properties"]["color"] == {
        "enum": ["blue", "red"],
        "title": "Color",
        "type": "string",
    }
    assert (schema["required"], schema["additionalProperties"]) == (["color"], False)
    assert schema["properties"].keys() == {"color", "size", "_fast"}
    other = function_tool(paint, ToolOptions("other", "", title="Another")).declaration
    assert (other["name"], other["description"], other["title"]) == ("other", "", "Another")
    assert "title" not in declared


def no_hints(undescribed: "Missing") -> None: ...  # type: ignore[name-defined]  # noqa: F821 - the point


def many(*colors: str) -> None: ...


def any_key(**colors: str) -> None: ...


def by_place(color: str, /) -> None: ...


def a_function(back: Callable[[], None]) -> None: ...


@pytest.mark.parametrize(
    "function",
    [no_hints, many, any_key, by_place, a_function, lambda: None],
    ids=lambda f: f.__name__,
)
def test_a_function_that_cannot_be_a_tool_is_refused(function: Callable[..., object]) -> None:
    with pytest.raises(BadSetup):
        function_tool(function)


@pytest.mark.parametrize("name", ["", "a b", "ä", "x" * 65, "a\n"])
def test_a_tool_has_a_proper_name(name: str) -> None:
    with pytest.raises(BadSetup):
        Tool(name, "", ANY, lambda *_: None)


@pytest.mark.parametrize("kind", [Client, plain.Client])
def test_a_decorated_function_is_returned_and_its_name_is_taken(
    kind: type[Client] | type[plain.Client],
) -> None:
    client = kind("http://host", approve=lambda _: True)
    assert client.tool(paint) is paint
    assert client.tool(name="other", description="", needs_approval=True)(paint) is paint
    assert client.tool(name="titled", title="A title")(paint) is paint
    for taken in (lambda: client.tool(paint), lambda: client.add_tool(function_tool(paint))):
        with pytest.raises(BadSetup, match="two tools are named 'paint'"):
            taken()


# ---------------------------------------------------------------- calls
async def test_arguments_become_what_the_function_takes() -> None:
    given = '{"color": "red", "size": {"width": 3}, "_fast": true}'
    assert await answer(paint, given) == ("red 3 True", False)
    assert await answer(paint, '{"color": "red"}') == ("red - False", False)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ("{}", "The arguments are not valid.\ncolor: Field required"),
        ("[]", "The arguments are not a JSON object, or are too large."),
        ("{", "The arguments are not a JSON object, or are too large."),
        (
            '{"color": "' + "x" * 200 + '"}',
            "The arguments are not a JSON object, or are too large.",
        ),
    ],
    ids=["missing", "a list", "not JSON", "large"],
)
async def test_invalid_arguments_are_an_error_for_the_model(arguments: str, text: str) -> None:
    assert await answer(paint, arguments) == (text, True)


async def test_a_deep_argument_is_refused() -> None:
    deep = '{"a":' + "[" * 50_000 + "]" * 50_000 + "}"
    [result] = await answers(function_tool(paint), arguments=deep, limits=Limits())
    assert result.is_error


@dataclass
class Colored:
    color: str
    when: datetime


@pytest.mark.parametrize(
    ("value", "content"),
    [
        ("text", "text"),
        (None, None),
        (Size(width=1), {"width": 1}),
        (
            Colored("red", datetime(2026, 1, 2, tzinfo=UTC)),
            {"color": "red", "when": "2026-01-02T00:00:00Z"},
        ),
        ((1, math.inf, "ä"), [1, None, "ä"]),
        ("lone \ud800 half, a pair \ud83d\ude00", "lone \ufffd half, a pair 😀"),
        ({"\ud800": ["\udc00"]}, {"\ufffd": ["\ufffd"]}),
        ({"a": "\ud800", "b": math.nan}, {"a": "\ufffd", "b": None}),
        ({(1, 2): "\ud800", 3: ("x",)}, {"1,2": "\ufffd", "3": ["x"]}),
        (
            Colored("\ud800", datetime(2026, 1, 2, tzinfo=UTC)),
            {"color": "\ufffd", "when": "2026-01-02T00:00:00Z"},
        ),
        ([[{"a": []}, 1]], [[{"a": []}, 1]]),
    ],
    ids=str,
)
async def test_a_result_is_written_as_json(value: object, content: object) -> None:
    assert await answer(lambda: value) == (content, False)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (object(), "The tool gave a object, which is not JSON."),
        (["\ud800", object()], "The tool gave a list, which is not JSON."),
        (b"\xff", "The tool gave a bytes, which is not JSON."),
        ("x" * 99, "The tool's result is too large."),
        ([[{"a": [[]]}, 1]], "The tool's result is nested too deep."),
    ],
    ids=["no JSON", "half a character beside no JSON", "bytes", "large", "deep"],
)
async def test_a_result_that_cannot_be_posted_is_an_error(value: object, text: str) -> None:
    assert await answer(lambda: value) == (text, True)


async def test_the_text_of_an_error_is_bounded_and_can_be_posted() -> None:
    async def fail() -> None:
        raise RuntimeError("\ud800" + "x" * 100)

    assert await answer(fail) == ("RuntimeError: \ufffd" + "x" * 45 + " [cut]", True)


async def test_a_tool_that_was_cancelled_by_something_else_still_gives_a_result() -> None:
    async def cancelled() -> None:
        raise anyio.get_cancelled_exc_class()

    assert await answer(cancelled) == ("The tool was cancelled.", True)


@pytest.mark.parametrize("kind", ["plain", "async"])
async def test_a_tool_that_ends_the_program_gives_an_error(kind: str) -> None:
    def leave() -> None:
        sys.exit(3)

    async def leave_later() -> None:
        leave()

    assert await answer(leave if kind == "plain" else leave_later) == ("SystemExit: 3", True)


async def test_a_keyboard_interrupt_in_a_tool_propagates_and_cancels_the_others() -> None:
    cancelled = anyio.Event()

    def interrupt() -> None:
        raise KeyboardInterrupt

    async def wait() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            cancelled.set()

    with pytest.raises(KeyboardInterrupt):
        await answers(function_tool(interrupt), function_tool(wait))
    assert cancelled.is_set()


class Painter:
    """An object that is called as a function."""

    async def __call__(self, arguments: dict[str, Any], context: ToolContext) -> str:
        return f"{arguments} {context.call.conversation_id}"

    @override
    def __repr__(self) -> str:
        return "painter"


async def test_a_tool_may_be_any_callable_with_a_schema() -> None:
    def later(*_: object) -> object:
        return anyio.to_thread.run_sync(lambda: "later")

    tools = (Tool("a", "", ANY, Painter()), Tool("b", "", ANY, later))
    results = await answers(*tools, arguments='{"x": 1}')
    assert [each.content for each in results] == ["{'x': 1} c", "later"]


# ---------------------------------------------------------------- the client's own arguments
@pytest.mark.parametrize("name", ["", "x" * 457])
async def test_a_conversation_that_cannot_be_asked_for_is_refused(name: str) -> None:
    async with Client("http://host") as client:
        with pytest.raises(BadSetup):
            await client.conversation(name)


def test_the_sync_client_is_open_only_inside_with() -> None:
    client = plain.Client("http://host")
    with pytest.raises(BadSetup, match="with"):
        client.ask("hi")
    with client:
        stream = client.send("hi")
    with pytest.raises(BadSetup, match="with"):
        next(stream)
    with client, pytest.raises(BadSetup, match="closed"):
        client.ask("hi")


# ---------------------------------------------------------------- the list of tools
def price(drink: str) -> str:
    """Tell the price."""
    return f"{drink}: 3 euros"


async def test_a_list_of_tools_may_hold_typed_functions() -> None:
    paint = Tool("paint", "Paint.", {"type": "object"}, lambda *_: None)
    script = Script(stream(frame("run.1-2", type="text", content="Yes"), DONE))
    async with Client("http://host", tools=[price, paint], transport=script.transport) as client:
        client.add_tool(len_of)
        await client.ask("hi")
    [body] = script.bodies
    described = [(each["name"], each["description"]) for each in body["tools"]]
    assert described == [("price", "Tell the price."), ("paint", "Paint."), ("len_of", "")]


def len_of(text: str) -> int:
    return len(text)


@pytest.mark.parametrize(
    ("tools", "problem"),
    [
        ([price, {"name": "paint"}], r"tools\[1\] is a dict: give a typed function, or Tool\(name"),
        (["price"], r"tools\[0\] is a str: give"),
        ([None], r"tools\[0\] is a NoneType: give"),
        ({"price": price}, "tools is a dict: give a list"),
        ("price", "tools is a str: give a list"),
        ([price, price], "two tools are named 'price'"),
    ],
)
def test_a_wrong_list_of_tools_is_refused_with_what_to_give(tools: Any, problem: str) -> None:
    with pytest.raises(BadSetup, match=problem):
        Client("http://host", tools=tools)


def test_adding_something_else_than_a_tool_is_refused() -> None:
    dictionary: Any = {"name": "paint"}
    with pytest.raises(BadSetup, match="the tool is a dict: give"):
        plain.Client("http://host").add_tool(dictionary)
