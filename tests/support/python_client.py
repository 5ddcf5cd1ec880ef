"""What the tests of the Python client share."""

from collections.abc import AsyncIterator

from tests.support.wire import Client as RawClient

from passback_client import (
    Event,
    Retry,
    Text,
)

QUICK = Retry(attempts=10, first=0.01, longest=0.05)


async def results_of(raw: RawClient, conversation: str) -> list[tuple[object, bool]]:
    """Content of the results in the history, and whether they are errors."""
    kept = await raw.messages(conversation)
    return [(m["content"], m.get("isError", False)) for m in kept if m["role"] == "tool"]


def kinds(events: list[Event]) -> list[str]:
    """Neighbours of one kind counted once: how a text is cut into pieces may differ."""
    names = [type(event).__name__ for event in events]
    return [name for name, before in zip(names, ["", *names], strict=False) if name != before]


def joined(events: list[Event]) -> str:
    return "".join(event.content for event in events if isinstance(event, Text))


async def until_text(events: AsyncIterator[Event]) -> None:
    async for event in events:
        if isinstance(event, Text):
            return
    raise AssertionError("no text came")
