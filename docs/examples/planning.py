"""An agent that says what it means to do, and how far it is.

passback serve planning:agent
"""

from passback import Agent, tool
from passback.testing import ScriptedModel, calls, says


@tool
def book(what: str) -> str:
    """Book a hall, a band, whatever a party needs."""
    return f"{what}: booked"


# plays what a real model would say; leave `model` out to use that of your settings
script = ScriptedModel(
    [
        calls(
            (
                "update_plan",
                {
                    "entries": [
                        {"content": "Find a hall", "priority": "high", "status": "in_progress"},
                        {"content": "Find a band"},
                    ]
                },
            ),
            ("book", {"what": "hall"}),
        ),
        calls(
            (
                "update_plan",
                {
                    "entries": [
                        {"content": "Find a hall", "priority": "high", "status": "completed"},
                        {"content": "Find a band", "status": "in_progress"},
                    ]
                },
            )
        ),
        says("The hall is booked. Which music do you like?"),
    ],
    per_message=True,
)

agent = Agent(
    model=script,
    prompt="You prepare parties.",
    tools=[book],
    plan=True,
)
