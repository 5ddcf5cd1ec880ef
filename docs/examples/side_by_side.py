"""An agent whose sub-agents work side by side.

passback serve side_by_side:agent
"""

from passback import Agent, tool
from passback.testing import ScriptedModel, calls, says


@tool(read_only=True)
def forecast(town: str) -> str:
    """What the weather will be."""
    return f"sun in {town}"


@tool
def reserve(town: str) -> str:
    """Reserve a seat in the train to a town."""
    return f"seat 21 to {town}"


# these play what a real model would say; leave `model` out to use that of your settings
watches = ScriptedModel(
    [calls(("forecast", {"town": "Graz"})), says("It will be sunny.")], per_message=True
)
travels = ScriptedModel(
    [calls(("reserve", {"town": "Graz"})), says("Seat 21 is yours.")], per_message=True
)
talks = ScriptedModel(
    [
        calls(
            ("weather", {"task": "What will the weather be in Graz?"}),
            ("trains", {"task": "Reserve a seat to Graz."}),
        ),
        says("It will be sunny, and you have seat 21."),
    ],
    per_message=True,
)

weather = Agent(
    model=watches,
    name="weather",
    description="Knows what the weather will be.",
    tools=[forecast],
)
trains = Agent(
    model=travels,
    name="trains",
    description="Reserves seats.",
    tools=[reserve],
)
agent = Agent(
    model=talks,
    prompt="You plan journeys.",
    agents=[weather, trains],
)
