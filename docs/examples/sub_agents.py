"""An agent that gives tasks to others, as if they were tools.

passback serve sub_agents:agent

The clerk uses the client's tool `get-time-zone`: the page at / has it, other clients declare it in
their post.
"""

from passback import Agent, tool
from passback.testing import ScriptedModel, calls, says


@tool(read_only=True)
def opening_hours(shop: str) -> str:
    """When a shop is open, by the clocks of its town."""
    return f"{shop}: 9 to 18 o'clock in Vienna"


# these play what a real model would say; leave `model` out to use that of your settings
finds_out = ScriptedModel(
    [
        calls(("opening_hours", {"shop": "Tea & Co"}), ("get-time-zone", {})),
        says("Tea & Co opens at 9 o'clock, also by the traveller's clock."),
    ],
    per_message=True,
)
plans = ScriptedModel(
    [
        calls(("clerk", {"task": "When does Tea & Co open, by the traveller's clock?"})),
        says("At 9 o'clock to Tea & Co."),
    ],
    per_message=True,
)
talks = ScriptedModel(
    [
        calls(("planner", {"task": "Plan a morning with a visit to Tea & Co."})),
        says("Begin at 9 o'clock with Tea & Co."),
    ],
    per_message=True,
)

clerk = Agent(
    model=finds_out,
    name="clerk",
    description="Knows the shops and their hours.",
    prompt="You know the shops.",
    tools=[opening_hours],
)
planner = Agent(
    model=plans,
    name="planner",
    description="Plans a day.",
    prompt="You plan days. Ask the clerk for hours.",
    agents=[clerk],
)
agent = Agent(
    model=talks,
    prompt="You help travellers.",
    agents=[planner],
)
