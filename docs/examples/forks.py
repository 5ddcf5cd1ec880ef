"""An agent that divides its work among copies of itself, which know all that was said.

passback serve forks:agent
"""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager

from typing_extensions import override

from passback import Agent, Fork, tool
from passback.models import ModelDelta, ModelRequest
from passback.testing import ScriptedModel, calls, says


@tool(read_only=True)
def read_page(number: int) -> str:
    """Read a page of the contract."""
    return f"page {number}: either side may end this within {number} months"


# plays what a real model would say; leave `model` out to use that of your settings
class Played(ScriptedModel):
    """Says one thing as the agent, and another one as a fork of it."""

    @override
    @asynccontextmanager
    async def stream(
        self, request: ModelRequest, /
    ) -> AsyncGenerator[AsyncIterator[Sequence[ModelDelta]]]:
        asked = [str(each.content) for each in request.messages if each.role == "user"][-1]
        number = 1 if "Page 1" in asked else 2
        reads = [calls(("read_page", {"number": number})), says(f"{number} months")]
        fork = ScriptedModel(reads, per_message=True)
        model = fork if "Page" in asked else ScriptedModel(TURNS, per_message=True)
        async with model.stream(request) as batches:
            yield batches


TURNS = [
    calls(("fork", {"task": "Page 1: how long?"}), ("fork", {"task": "Page 2: how long?"})),
    says("Page 1 says 1 month, page 2 says 2."),
]

agent = Agent(
    model=Played([]),
    prompt="You read contracts.",
    tools=[read_page],
    agents=[Fork()],
)
