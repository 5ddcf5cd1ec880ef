"""What readers see of a tool: its title and kind, when it begins, and the files it is about."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat
from pathlib import Path
from threading import Event

import anyio
import pytest
from tests.support.runs import PAINT, approval, events, outcome, post, record, says, worker
from tests.unit.engine.counted_tools import asked
from tests.unit.engine.sub_agents import helper, lead_worker, said_by_children

from passback.context.compaction import Compaction
from passback.core.deltas import Finish, TextChunk, UsageChunk
from passback.core.errors import ConfigurationError
from passback.core.events import (
    RunEvent,
    ToolBegan,
    ToolCallEnded,
    ToolCallStarted,
    ToolResulted,
    UsageReported,
)
from passback.core.messages import (
    AssistantMessage,
    Location,
    ToolCall,
    ToolResult,
    ToolSpec,
    Usage,
)
from passback.core.permissions import ALLOWED, Permission
from passback.core.toolsets import ToolContext, Toolset
from passback.engine.ledger import Ledger
from passback.models.scripted import ScriptedModel, Step, calls
from passback.models.scripted import says as words
from passback.toolsets.functions import FunctionTool, tool
from passback.toolsets.plan import UPDATE_PLAN, PlanTools

pytestmark = pytest.mark.anyio


@tool(title=" Edit a file ", kind="edit", locations=lambda path, line: [(path, line), "b"])
def edit(path: str, line: int) -> str:
    """Edit it."""
    return f"{path}:{line}"


@tool
def look() -> str:
    """Look."""
    return "seen"


async def seen_of(
    store: Ledger, steps: Sequence[Step], *tools: FunctionTool, toolsets: Sequence[Toolset] = ()
) -> list[RunEvent]:
    model = ScriptedModel([steps, words("so")])
    async with worker(store, model, *tools, toolsets=toolsets) as runs:
        return await events(runs, await post(runs, says(), tools=[PAINT]))


def of_kinds(seen: Sequence[RunEvent], *kinds: type[RunEvent]) -> list[RunEvent]:
    return [each for each in seen if isinstance(each, kinds)]


# ---------------------------------------------------------------- title and kind
async def test_stream_and_record_have_the_title_and_the_kind_of_a_tool(store: Ledger) -> None:
    paint = ToolSpec("paint", "Paint it.", {"type": "object"}, title="Paint")
    script = [calls(("edit", {"path": "a", "line": 1}), ("paint", {}), ("look", {}), ("fly", {}))]
    model = ScriptedModel(script)
    async with worker(store, model, edit, look) as runs:
        seen = await events(runs, await post(runs, says(), tools=[paint]))
        answer = (await record(runs))[1]
    started = [each for each in seen if isinstance(each, ToolCallStarted)]
    assert [(each.name, each.title, each.kind) for each in started] == [
        ("edit", "Edit a file", "edit"),
        ("paint", "Paint", "other"),
        ("look", "", "other"),
    ]
    assert isinstance(answer, AssistantMessage)
    assert [(each.name, each.title, each.kind) for each in answer.tool_calls] == [
        ("edit", "Edit a file", "edit"),
        ("paint", "Paint", "other"),
        ("look", "", "other"),
        ("fly", "", "other"),
    ]


@pytest.mark.parametrize(
    ("option", "why"),
    [
        ({"title": "x" * 201}, "title: String should have at most 200 characters"),
        ({"title": 1}, "title: Input should be a valid string"),
        ({"kind": "write"}, "kind: Input should be 'read', 'edit', "),
        ({"locations": "path"}, "locations: Input should be a function of the tool's arguments"),
        ({"locations": lambda other: [other]}, "locations takes a function of the tool's arg"),
    ],
)
def test_an_unsuitable_title_kind_or_locations_is_refused(
    option: dict[str, object], why: str
) -> None:
    def read(path: str) -> str:
        return path

    with pytest.raises(ConfigurationError, match=why):
        tool(**option)(read)  # type: ignore[call-overload]  # what a program without types passes


async def test_locations_that_are_async_are_refused() -> None:
    async def find(path: str) -> list[str]:
        return [path]

    with pytest.raises(ConfigurationError, match="locations takes a plain function, not an async"):
        tool(name="read", locations=find)(lambda path: path)  # type: ignore[arg-type]


# ---------------------------------------------------------------- beginnings
async def test_a_tool_begins_behind_its_call_and_before_its_result(store: Ledger) -> None:
    seen = await seen_of(store, calls(("edit", {"path": "a", "line": 3}), ("look", {})), edit, look)
    first, second = (each.call_id for each in seen if isinstance(each, ToolCallStarted))
    assert of_kinds(seen, ToolCallEnded, ToolBegan, ToolResulted) == [
        ToolCallEnded(first),
        ToolCallEnded(second),
        ToolBegan(first, (Location("a", 3), Location("b"))),
        ToolResulted(first, "a:3"),
        ToolBegan(second),
        ToolResulted(second, "seen"),
    ]


async def test_a_call_that_is_not_valid_or_denied_does_not_begin(store: Ledger) -> None:
    denied = tool(name="denied", permission="deny")(lambda: "")
    steps = calls(("edit", {"path": "a"}), ("denied", {}), (UPDATE_PLAN, {}), ("paint", {}))
    seen = await seen_of(store, steps, edit, denied, toolsets=[PlanTools()])
    assert of_kinds(seen, ToolBegan) == []
    results = [each for each in seen if isinstance(each, ToolResulted)]
    assert {each.synthetic for each in results} == {"invalid", "denied"}


async def test_a_call_begins_when_it_is_approved(store: Ledger) -> None:
    pay = tool(name="pay", permission="ask")(lambda: "paid")
    async with worker(store, ScriptedModel([calls(("pay", {})), words("so")]), pay) as runs:
        [call] = await asked(runs)
        seen = await events(runs, await post(runs, approval(call)))
    assert of_kinds(seen, ToolBegan, ToolResulted) == [ToolBegan(call), ToolResulted(call, "paid")]


async def test_a_plan_begins(store: Ledger) -> None:
    steps = calls((UPDATE_PLAN, {"entries": [{"content": "do it"}]}))
    seen = await seen_of(store, steps, toolsets=[PlanTools()])
    (began,) = of_kinds(seen, ToolBegan)
    (started,) = (each for each in seen if isinstance(each, ToolCallStarted))
    assert began == ToolBegan(started.call_id)


async def test_sub_agents_begin_and_so_do_their_tools(store: Ledger) -> None:
    task = calls(("helper", {"task": "find it"}))
    steps = calls(("edit", {"path": "a", "line": 0}))
    async with lead_worker(
        store, ScriptedModel([task, words("so")]), helper(ScriptedModel([steps, words("x")]), edit)
    ) as runs:
        seen = await events(runs, await post(runs, says()))
    (outer,) = (each.call_id for each in seen if isinstance(each, ToolCallStarted))
    inner = said_by_children(seen)
    (call,) = (each.call_id for each in inner if isinstance(each, ToolCallStarted))
    assert of_kinds(seen, ToolBegan) == [ToolBegan(outer)]
    assert of_kinds(inner, ToolBegan) == [ToolBegan(call, (Location("a", 0), Location("b")))]


class Foreign:
    """A toolset of an author, which does not say when a tool begins."""

    def __init__(self) -> None:
        self.called = anyio.Event()
        self.may_end = anyio.Event()

    async def specs(self) -> Sequence[ToolSpec]:
        return [ToolSpec("foreign", "", {"type": "object"})]

    def is_read_only(self, name: str, /) -> bool:
        return False

    def is_repeatable(self, name: str, /) -> bool:
        return False

    def permission(self, call: ToolCall, /) -> Permission:
        return ALLOWED

    async def call(self, call: ToolCall, context: ToolContext, /) -> ToolResult:
        await self.may_end.wait()
        context.begin([Location("later")])  # only the first time counts
        return ToolResult("done")


async def test_a_call_of_a_toolset_that_does_not_say_it_begins_when_that_is_called(
    store: Ledger,
) -> None:
    foreign = Foreign()
    model = ScriptedModel([calls(("foreign", {})), words("so")])
    async with worker(store, model, toolsets=[foreign]) as runs:
        run = await post(runs, says())
        async with runs.follow(run) as batches:
            seen: list[RunEvent] = []
            while not of_kinds(seen, ToolBegan):
                seen += [one.event for one in await anext(batches)]
        foreign.may_end.set()
        await outcome(runs, run)
        seen = await events(runs, run)
    (started,) = (each for each in seen if isinstance(each, ToolCallStarted))
    assert of_kinds(seen, ToolBegan) == [ToolBegan(started.call_id)]


# ---------------------------------------------------------------- locations
def counting(path: str) -> Iterator[str]:
    return repeat(path)


def hanging(path: str) -> Iterator[str]:
    Event().wait(30)
    yield path


def failing(path: str) -> list[str]:
    raise SystemExit(path)


@pytest.mark.parametrize(
    ("locations", "found"),
    [
        (lambda path: [path, Path("/b"), Location("c", 2)], ["a", "/b", ("c", 2)]),
        (lambda path: (each for each in [path]), ["a"]),
        (list, []),
        (lambda **given: list(given), ["path"]),
        (counting, ["a"] * 50),
        (lambda path: [path * 5000, "\ud800"], ["a" * 4096, "\ufffd"]),
        (lambda path: path, []),
        (lambda: [1], []),
        (lambda path: [(path, -1)], []),
        (lambda path: [(path, "1")], []),
        (lambda path: [(path, 1, 2)], []),
        (lambda: None, []),
        (failing, []),
        (hanging, []),
    ],
)
async def test_locations_of_a_call_are_told_and_a_bad_function_does_no_harm(
    memory: Ledger, locations: Callable[..., Iterable[str]], found: list[str | tuple[str, int]]
) -> None:
    read = tool(name="read", locations=locations)(lambda path: f"read {path}")
    seen = await seen_of(memory, calls(("read", {"path": "a"})), read)
    call_id = next(each.call_id for each in seen if isinstance(each, ToolCallStarted))
    places = [Location(one) if isinstance(one, str) else Location(*one) for one in found]
    assert of_kinds(seen, ToolBegan, ToolResulted) == [
        ToolBegan(call_id, tuple(places)),
        ToolResulted(call_id, "read a"),
    ]


# ---------------------------------------------------------------- the use of the window
async def test_usage_says_how_full_the_window_is(memory: Ledger) -> None:
    """Reasoning is not sent again, so it takes no room."""
    usage = UsageChunk(Usage(input_tokens=40, output_tokens=30, reasoning_tokens=20))
    answer: list[Step] = [TextChunk("so"), usage, Finish("stop")]
    async with worker(memory, ScriptedModel([answer]), context=Compaction(2_000)) as runs:
        seen = await events(runs, await post(runs, says()))
    (told,) = (each for each in seen if isinstance(each, UsageReported))
    assert (told.context_used, told.window) == (40 + 30 - 20, 2_000)


async def test_an_unknown_window_is_not_told(memory: Ledger) -> None:
    usage = UsageChunk(Usage(input_tokens=40, output_tokens=30))
    answers: list[list[Step]] = [[TextChunk("so"), usage, Finish("stop")]] * 2
    async with worker(memory, ScriptedModel(answers), context=Compaction(0)) as runs:
        seen = await events(runs, await post(runs, says()))
    (told,) = (each for each in seen if isinstance(each, UsageReported))
    assert (told.context_used, told.window) == (70, None)
    async with worker(memory, ScriptedModel(answers)) as runs:
        seen = await events(runs, await post(runs, says("more", "m")))
    (told,) = (each for each in seen if isinstance(each, UsageReported))
    assert (told.context_used, told.window) == (None, None)
