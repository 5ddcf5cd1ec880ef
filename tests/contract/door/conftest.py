"""The kinds of store behind the door. One more kind is an opener and a line in `KINDS`."""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial

import pytest
from tests.contract.door.kinds import KINDS, DoorKind, OpenDoor

from passback.core.conversation.store import Store
from passback.core.messages import ConversationKey
from passback.stores.options import StoreOptions


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "exact_indexes: not for stores whose indexes are hints")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test on all kinds, one that does `damage` on those that can be damaged."""
    if "door_kind" in metafunc.fixturenames:
        is_exact = metafunc.definition.get_closest_marker("exact_indexes") is not None
        does_damage = "damage" in metafunc.fixturenames
        kinds = [
            kind
            for kind in KINDS
            if not (is_exact and kind.has_hints) and not (does_damage and kind.damage is None)
        ]
        given = [pytest.param(kind, id=kind.name, marks=kind.marks) for kind in kinds]
        metafunc.parametrize("door_kind", given)


@dataclass
class Doors:
    """Opens stores of one kind, all on the same data where the kind can share them."""

    kind: DoorKind
    make: OpenDoor
    stack: AsyncExitStack

    async def open(self, options: StoreOptions | None = None) -> Store:
        return await self.stack.enter_async_context(self.make(options or StoreOptions()))


@pytest.fixture
def make(door_kind: DoorKind, request: pytest.FixtureRequest) -> OpenDoor:
    return door_kind.prepare(request)


@pytest.fixture
async def doors(door_kind: DoorKind, make: OpenDoor) -> AsyncGenerator[Doors]:
    """No data is there yet."""
    async with AsyncExitStack() as stack:
        yield Doors(door_kind, make, stack)


@pytest.fixture
def opened(door_kind: DoorKind, request: pytest.FixtureRequest) -> Sequence[Store]:
    """The stores of the module's tests, if this kind has them."""
    return door_kind.opened(request)


@pytest.fixture
async def door(doors: Doors, opened: Sequence[Store]) -> Store:
    """An empty store."""
    return opened[0] if opened else await doors.open()


@pytest.fixture
async def peer(doors: Doors, opened: Sequence[Store], door: Store) -> Store:
    """The same store, opened by another worker; in memory there is but one."""
    if opened:
        return opened[1]
    return await doors.open() if doors.kind.is_shared else door


@pytest.fixture
def damage(
    door_kind: DoorKind, request: pytest.FixtureRequest
) -> Callable[[ConversationKey], None]:
    """Make a conversation unusable."""
    assert door_kind.damage is not None
    return partial(door_kind.damage, request)
