"""Validators and data of tools' authors: run in threads and within bounds, and shown nowhere."""

import dataclasses
import decimal
import enum
import functools
import ipaddress
import pathlib
import threading
from typing import Annotated, Any, Literal

import anyio
import pytest
from pydantic import (
    AfterValidator,
    BaseModel,
    Field,
    HttpUrl,
    JsonValue,
    field_serializer,
    field_validator,
)
from tests.support.runs import KEY
from typing_extensions import override

from passback.agent import Agent
from passback.core.messages import CallId, RunId, RunRef, ToolCall, ToolResult
from passback.core.toolsets import ToolContext
from passback.engine.commands import CommandContext
from passback.toolsets.functions import FunctionTool, tool

pytestmark = pytest.mark.anyio

CONTEXT = ToolContext(RunRef(KEY, RunId("r")), CallId("c"))


async def run(one: FunctionTool, arguments: str) -> ToolResult:
    with anyio.fail_after(5):
        return await one.run(ToolCall(CallId("c"), one.spec.name, arguments), CONTEXT)


def identity(value: Any, *_: object) -> Any:
    return value


class Colour(enum.Enum):
    RED = "red"


class WithMissing(enum.Enum):
    RED = "red"

    @classmethod
    @override
    def _missing_(cls, value: object) -> "WithMissing":
        return cls.RED


class Tree(BaseModel):
    name: str
    kids: list["Tree"] = Field(default_factory=list)

    @field_serializer("name")
    def shout(self, name: str) -> str:
        return name.upper()


class Cat(BaseModel):
    kind: Literal["cat"]


class Dog(BaseModel):
    kind: Literal["dog"]


class Even(BaseModel):
    number: int

    @field_validator("number")
    @classmethod
    def even(cls, number: int) -> int:
        if number % 2:
            raise ValueError("has to be even")
        return number


class WithInit(BaseModel):
    number: int

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)


class WithPostInit(BaseModel):
    number: int

    @override
    def model_post_init(self, context: Any, /) -> None:
        """Do nothing."""


@dataclasses.dataclass
class Plain:
    number: int


@dataclasses.dataclass
class Checked:
    number: int

    def __post_init__(self) -> None:
        """Do nothing."""


class WithDefaultFactory(BaseModel):
    plain: Plain = Field(default_factory=functools.partial(Plain, 1))


def tool_with_hint(hint: Any) -> FunctionTool:
    def take(value: Any) -> str:
        return str(value)

    take.__annotations__["value"] = hint
    return tool(take)


@pytest.mark.parametrize(
    "hint",
    [
        *(int, str, bool, list[int], dict[str, Any], Colour, Tree, Plain, decimal.Decimal, Any),
        *(Annotated[int, Field(ge=1)], Annotated[str, Field(pattern="a+")], Literal["a"]),
        *(Annotated[Cat | Dog, Field(discriminator="kind")], Tree | None),
        *(JsonValue, HttpUrl, pathlib.Path),
    ],
)
def test_hints_validated_by_pydantic_alone_need_no_thread(hint: Any) -> None:
    assert not tool_with_hint(hint).judges


@pytest.mark.parametrize(
    "hint",
    [
        *(
            Even,
            list[Even],
            Even | None,
            WithInit,
            WithPostInit,
            Checked,
            WithDefaultFactory,
            WithMissing,
        ),
        *(Annotated[int, AfterValidator(identity)], ipaddress.IPv4Address),
        Annotated[int, AfterValidator(functools.partial(identity))],
    ],
)
def test_hints_with_an_authors_code_are_found(hint: Any) -> None:
    assert tool_with_hint(hint).judges


async def test_an_authors_validator_runs_in_a_thread_and_its_error_is_shown() -> None:
    threads: list[threading.Thread] = []

    def even(number: int) -> int:
        threads.append(threading.current_thread())
        if number % 2:
            raise ValueError("has to be even")
        return number

    @tool
    async def halve(number: Annotated[int, AfterValidator(even)]) -> int:
        return number // 2

    assert await run(halve, '{"number": 4}') == ToolResult("2")
    error = "The arguments are not valid.\nnumber: has to be even"
    assert await run(halve, '{"number": 3}') == ToolResult(error, is_error=True, invalid=True)
    assert len(threads) == 2
    assert threading.main_thread() not in threads


@pytest.mark.promise("P11")
async def test_an_endless_validator_times_out_and_one_that_exits_is_a_failure() -> None:
    end = threading.Event()

    def hang(value: str) -> str:
        end.wait()
        return value

    def leave(value: str) -> str:
        raise SystemExit(value)

    @tool(seconds=0.01)
    def slow(value: Annotated[str, AfterValidator(hang)]) -> str:
        raise AssertionError(value)

    @tool
    def broken(value: Annotated[str, AfterValidator(leave)]) -> str:
        raise AssertionError(value)

    try:
        late = ToolResult("The tool did not answer in 0.01 s.", is_error=True)
        assert await run(slow, '{"value": "x"}') == late
    finally:
        end.set()
    failed = ToolResult("The tool failed: StrayExit.", is_error=True)
    assert await run(broken, '{"value": "x"}') == failed


def test_the_repr_of_contexts_and_agents_shows_no_data() -> None:
    """A repr may get into a log."""
    context = ToolContext(CONTEXT.run, CallId("c"), deps="secret", data={"a": "secret"})
    assert repr(context) == f"ToolContext(run={CONTEXT.run!r}, call_id='c')"
    assert "secret" not in repr(CommandContext(CONTEXT.run, "secret"))
    assert "secret" not in repr(Agent(deps="secret"))
