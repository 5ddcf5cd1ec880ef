"""A program that talks to an agent without a server, and runs a tool of its own.

python from_python.py
"""

import asyncio

from passback import Agent, tool
from passback.events import RunFinished, TextDelta
from passback.messages import ToolSpec
from passback.session import Session
from passback.testing import ScriptedModel, calls, says


@tool(permission="ask")
def order(what: str) -> str:
    """Order something."""
    return f"{what}: ordered"


# plays what a real model would say; leave `model` out to use that of your settings
script = ScriptedModel(
    [
        calls(("look_around", {})),
        calls(("order", {"what": "tea"})),
        says("There was no tea left. ", "Now there will be."),
    ],
    per_message=True,
)

agent = Agent(
    model=script,
    prompt="You keep a kitchen.",
    tools=[order],
)

# the program runs this one itself
look_around = ToolSpec("look_around", "What is in the kitchen.", {"type": "object"})


async def main() -> None:
    async with Session(agent, store="memory:", tools=[look_around]) as session:
        events = session.submit("Is there tea?")
        while True:
            async for event in events:
                if isinstance(event, TextDelta):
                    print(event.text, end="")
                if isinstance(event, RunFinished):
                    print(f"[{event.outcome.type}]")
            owed = await session.owed()
            if not owed:
                break
            print(f"{owed[0].kind}: {owed[0].name} {owed[0].arguments}")
            if owed[0].kind == "approval":
                events = session.decide(owed[0].id, approved=True)
            else:
                events = session.answer(owed[0].id, "one cup, no tea")


if __name__ == "__main__":
    asyncio.run(main())
