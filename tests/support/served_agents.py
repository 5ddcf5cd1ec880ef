"""Agents for `passback serve tests.support.served_agents:NAME`.

Most have a model that does what the user's message says, as JSON: `{"say", "think", "calls":
[[name, arguments]], "fail"}`. After a tool's result it says "Done."
"""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager

import anyio
import anyio.lowlevel
from tests.support.gates import wait_at

from passback import Agent, Permission, ToolContext, tool
from passback.core.deltas import (
    Finish,
    ModelDelta,
    ModelRequest,
    ReasoningChunk,
    TextChunk,
    ToolCallChunk,
)
from passback.core.errors import ModelUnavailable
from passback.core.messages import MediaPart, UserMessage


class InstructedModel:
    """Answers as the user's message orders. Implements `ModelClient`."""

    name = "instructed"

    @asynccontextmanager
    async def stream(
        self, request: ModelRequest, /
    ) -> AsyncGenerator[AsyncIterator[Sequence[ModelDelta]]]:
        async with aclosing(_play(request)) as batches:
            yield batches

    def refuses(self, part: MediaPart, /) -> None: ...

    async def check(self) -> None: ...

    async def aclose(self) -> None: ...


async def _play(request: ModelRequest) -> AsyncGenerator[Sequence[ModelDelta]]:
    last = request.messages[-1]
    if not isinstance(last, UserMessage) or not isinstance(last.content, str):
        yield [TextChunk("Done."), Finish("stop")]
        return
    # before and behind it, a prompt may say more
    order, _ = json.JSONDecoder().raw_decode(last.content, last.content.index("{"))
    if thought := order.get("think"):
        yield [ReasoningChunk(thought)]
    if text := order.get("say"):
        yield [TextChunk(text)]
    for slot, (name, arguments) in enumerate(order.get("calls", [])):
        yield [ToolCallChunk(slot, provider_id=f"call_{slot}", name=name, arguments=arguments)]
    if reason := order.get("fail"):
        raise ModelUnavailable(reason)
    yield [Finish("tool_calls" if "calls" in order else "stop")]


MODEL = InstructedModel()


@tool
def echo(text: str) -> str:
    """Give the text back."""
    return text


@tool(permission=Permission("ask", "It cannot be undone."))
def delete_file(path: str) -> str:
    """Delete a file."""
    return f"{path} is deleted"


@tool
def read_file(path: str) -> str:
    """Read a file."""
    return f"the text of {path}"


@tool(title="Edit a file", kind="edit", locations=lambda path, line: [(path, line)])
def edit_line(path: str, line: int) -> str:
    """Edit a line of a file."""
    return f"line {line} of {path} is edited"


@tool
async def ignore_cancellation() -> None:
    """Ignore every cancellation."""
    never = asyncio.Event()
    while not never.is_set():
        try:
            await never.wait()
        except asyncio.CancelledError:
            continue


@tool(name="index")
async def index_slowly(context: ToolContext) -> str:
    """Begin to index all files, and never come to an end."""
    context.progress("<b>half</b> of the files are read")
    await anyio.sleep_forever()
    return ""


@tool
async def index(context: ToolContext) -> str:
    """Index all files."""
    context.progress("half of the files are read")
    context.state.set("read", 2)
    await anyio.lowlevel.checkpoint()
    return "read"


echoing = Agent(model=MODEL, tools=[echo])
guarded = Agent(model=MODEL, tools=[delete_file, read_file])
editing = Agent(model=MODEL, tools=[edit_line])
hanging = Agent(model=MODEL, tools=[ignore_cancellation])

_DOES = "Does what its message orders."
_worker = Agent(model=MODEL, name="helper", description=_DOES, tools=[delete_file, index_slowly])
delegating = Agent(model=MODEL, agents=[_worker], plan=True)

_helper = Agent(model=MODEL, name="helper", description=_DOES)
all_events = Agent(
    model=MODEL, tools=[delete_file, index], agents=[_helper], plan=True, window=4000
)


# ---------------------------------------------------------------- with the model of the settings
@tool(permission=Permission("ask", "It cannot be undone."))
def wipe() -> str:
    """Wipe it."""
    return "wiped"


@tool(permission="ask")
def send() -> str:
    """Send it."""
    return "sent"


@tool
def price(drink: str) -> str:
    """Return a drink's price."""
    return "3 euros" if drink else "nothing"


@tool
def burn() -> str:
    """Burn it."""
    raise AssertionError("it must never be called")


asking = Agent(
    prompt="You are careful.", tools=[wipe, send, price, burn], permissions={"burn": "deny"}
)


@tool
async def hold(port: int) -> str:
    """Wait at a gate of this machine (`tests.support.gates`)."""
    await wait_at(port)
    return "let go"


@tool(read_only=True)
async def hold_again(port: int) -> str:
    """Do the same, and again on another worker."""
    await wait_at(port)
    return "let go again"


_cook = Agent(name="cook", description="Cooks.", prompt="You cook.", tools=[price])
holding = Agent(prompt="You wait.", tools=[hold, hold_again, price, wipe], agents=[_cook])


@tool
def add_to_cart(item: str, context: ToolContext) -> str:
    """Put an item into the cart."""
    kept = context.state.get("cart")
    cart = [*(kept if isinstance(kept, list) else []), item]
    context.state.set("cart", cart)
    return f"The cart has {len(cart)} items."


@tool
async def add_and_hold(item: str, port: int, context: ToolContext) -> str:
    """Put it into the cart, and wait at a gate."""
    context.state.set("cart", [item])
    await wait_at(port)
    return "let go"


sharing = Agent(prompt="You run a shop.", tools=[add_to_cart, add_and_hold])
first = Agent(prompt="You are the first.")
second = Agent(prompt="You are the second.")
