"""Tools of a run that wait at gates until a test lets them go, and end each in its own way."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import Literal, TypeAlias

import anyio

from passback.core.deltas import Finish, ToolCallChunk
from passback.core.transcript import SYNTHETIC_TEXT
from passback.models.scripted import Step
from passback.toolsets.functions import FunctionTool, ToolError, tool

Kind: TypeAlias = Literal["read", "write", "paint", "unknown", "broken"]
"""A server tool that reads or writes, a client's tool, an unknown tool, or broken arguments."""
Ending: TypeAlias = Literal["returns", "fails", "breaks", "exits", "leaks", "hangs"]
"""The way in which a tool ends: `leaks` by a cancellation of its own, `hangs` by its deadline."""


@dataclass(frozen=True)
class Call:
    """One call of the model, and how its tool ends."""

    kind: Kind
    ending: Ending = "returns"

    @property
    def runs(self) -> bool:
        return self.kind in ("read", "write")

    @property
    def waits(self) -> bool:
        """Return True if it ends only when it is let go."""
        return self.runs and self.ending != "hangs"

    @property
    def name(self) -> str:
        kind = "read" if self.kind == "broken" else self.kind
        return f"{kind}_soon" if self.ending == "hangs" else kind


def turn(calls: Sequence[Call]) -> list[Step]:
    """Return the model's turn: these calls, each with its place as the argument."""
    steps: list[Step] = [
        ToolCallChunk(
            at, name=call.name, arguments="{" if call.kind == "broken" else f'{{"at": {at}}}'
        )
        for at, call in enumerate(calls)
    ]
    return [*steps, Finish("tool_calls")]


def groups_of(calls: Sequence[Call]) -> list[list[int]]:
    """The places of the calls that run at the same time, one group after the other."""
    places = [at for at, call in enumerate(calls) if call.runs]
    groups: list[list[int]] = []
    for reads, row in groupby(places, lambda at: calls[at].kind == "read"):
        each = list(row)
        groups += [each] if reads else [[at] for at in each]
    return groups


INTERRUPTED = (SYNTHETIC_TEXT["interrupted"], True)


def ending_of(call: Call, at: int) -> tuple[str, bool]:
    """The result of a call that was made, and whether it is an error."""
    endings: dict[Ending, tuple[str, bool]] = {
        "returns": (f"{at} done", False),
        "fails": (f"{at} failed", True),
        "breaks": ("The tool failed: RuntimeError.", True),
        "exits": ("The tool failed: StrayExit.", True),
        "leaks": ("The tool failed: StrayCancellation.", True),
        "hangs": ("The tool did not answer in 1e-09 s.", True),
    }
    return endings[call.ending]


@dataclass
class Stage:
    """The gates of the tools.

    Attributes:
        inside: the places of calls that have begun and not ended.
        begun: those that have begun, in that order.
        clashes: what ran beside each other and must not.
    """

    calls: Sequence[Call]
    inside: set[int] = field(default_factory=set[int])
    begun: list[int] = field(default_factory=list[int])
    clashes: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])

    def __post_init__(self) -> None:
        self.groups = groups_of(self.calls)
        self._gates = [anyio.Event() for _ in self.calls]
        self._moved = anyio.Event()

    @property
    def tools(self) -> list[FunctionTool]:
        async def act(at: int) -> str:
            return await self._act(at)

        return [
            tool(name="read", read_only=True)(act),
            tool(name="write")(act),
            tool(name="read_soon", read_only=True, seconds=1e-9)(act),
            tool(name="write_soon", seconds=1e-9)(act),
        ]

    async def direct(
        self,
        ranks: Sequence[int],
        *,
        stop_at: int = -1,
        stop: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        """Let the tools go, by groups and ranks; at `stop_at` call `stop` instead, and end.

        None goes before all of its group run.
        """
        gone = 0
        for group in self.groups:
            waiting = {at for at in group if self.calls[at].waits}
            await self._until(partial(self._has_begun, group))
            await self._hold(group, waiting)
            for at in sorted(waiting, key=lambda at: ranks[at]):
                if stop is not None and gone == stop_at:
                    await stop()
                    return
                self._gates[at].set()
                waiting.discard(at)
                await self._hold(group, waiting)
                gone += 1

    async def _hold(self, group: Sequence[int], waiting: set[int]) -> None:
        """Wait until just these of a group are left. The next one may have begun by then."""
        await self._until(lambda: self.inside & {*group} == waiting)

    async def _act(self, at: int) -> str:
        group = next(each for each in self.groups if at in each)
        self.clashes += [(at, other) for other in self.inside if other not in group]
        self.begun.append(at)
        self.inside.add(at)
        self._move()
        try:
            await self._gates[at].wait()
        finally:
            self.inside.discard(at)
            self._move()
        match self.calls[at].ending:
            case "fails":
                raise ToolError(f"{at} failed")
            case "breaks":
                raise RuntimeError("secret")
            case "exits":
                raise SystemExit(2)
            case "leaks":
                raise anyio.get_cancelled_exc_class()
            case _:
                return f"{at} done"

    def _has_begun(self, group: Sequence[int]) -> bool:
        return {*self.begun} >= {*group}

    def _move(self) -> None:
        moved, self._moved = self._moved, anyio.Event()
        moved.set()

    async def _until(self, holds: Callable[[], bool]) -> None:
        with anyio.fail_after(5):
            while not holds():
                await self._moved.wait()
