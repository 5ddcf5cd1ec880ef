"""An agent that looks after a warehouse, with tools that the server runs.

passback serve server_tools:agent
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from passback import Agent, ToolContext, ToolError, tool
from passback.testing import ScriptedModel, calls, says


@dataclass
class Warehouse:
    """What the tools work on; the model never sees it."""

    stock: dict[str, int] = field(default_factory=lambda: {"tea": 12, "cocoa": 3})
    questions: int = 0


def warehouse(context: ToolContext) -> Warehouse:
    assert isinstance(context.deps, Warehouse)
    return context.deps


# read-only: neighbouring calls of such tools run together
@tool(read_only=True)
async def in_stock(item: str, context: ToolContext) -> int:
    """How many packets of something there are."""
    return warehouse(context).stock.get(item, 0)


# what fails is tried again, twice at most
@tool(read_only=True, retries=2)
def delivery_days(item: str, context: ToolContext) -> str:
    """How many days the supplier needs."""
    warehouse(context).questions += 1
    if warehouse(context).questions % 2:
        raise ConnectionError("the supplier hangs up every other time")
    return f"{item}: 4 days"


# all others run one by one, in the order in which the model asks for them
@tool
def reserve(item: str, packets: int, context: ToolContext) -> str:
    """Put packets aside for a customer."""
    context.progress(f"looking for {item}")
    left = warehouse(context).stock.get(item, 0) - packets
    if left < 0:
        raise ToolError(f"of {item}, {-left} are missing")
    warehouse(context).stock[item] = left
    return f"done, {left} left"


# what is yielded before the last value is progress, and that is the result
@tool
async def pack(item: str, packets: int) -> AsyncIterator[str]:
    """Make a parcel of packets that were put aside."""
    yield f"weighing {packets} packets of {item}"
    grams = 250 * packets
    yield f"a parcel of {grams} g"


# by its arguments: where nothing is ordered, nothing is changed
@tool(read_only=lambda packets: packets == 0)
async def supplier(item: str, packets: int = 0) -> str:
    """Order packets from the supplier; without a number, ask for the price."""
    return f"{packets} packets of {item} are on their way" if packets else f"{item}: 3 euros"


# plays what a real model would say; leave `model` out to use that of your settings
script = ScriptedModel(
    [
        calls(
            ("delivery_days", {"item": "cocoa"}),
            ("in_stock", {"item": "cocoa"}),
            ("supplier", {"item": "cocoa"}),
            ("reserve", {"item": "cocoa", "packets": 2}),
            ("reserve", {"item": "cocoa", "packets": 2}),
            ("pack", {"item": "cocoa", "packets": 2}),
        ),
        says("Two packets are yours, ", "two more come in 4 days."),
    ],
    per_message=True,
)

agent = Agent(
    model=script,
    prompt="You look after a warehouse.",
    tools=[in_stock, delivery_days, reserve, pack, supplier],
    deps=Warehouse(),
)
