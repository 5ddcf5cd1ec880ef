"""An agent that uses the client's tools beside its own, and asks the user what it cannot know.

passback serve asking:agent

The page at / has the tool `get-time-zone` and shows questions; other clients declare it in their
post.
"""

from passback import Agent, tool
from passback.testing import ScriptedModel, calls, says


@tool(read_only=True)
def free_hours(day: str) -> list[int]:
    """The hours of a day at which a table is free, in UTC."""
    return [17, 18, 20] if day == "Friday" else []


# plays what a real model would say; leave `model` out to use that of your settings
script = ScriptedModel(
    [
        calls(
            ("free_hours", {"day": "Friday"}),
            ("get-time-zone", {}),
            (
                "ask_user",
                {
                    "questions": [
                        {
                            "question": "When do you want to come?",
                            "options": [{"label": "early"}, {"label": "late"}],
                            "freeText": False,
                        },
                        {"question": "Under which name?"},
                    ]
                },
            ),
        ),
        says("I have kept a table for you."),
    ],
    per_message=True,
)

agent = Agent(
    model=script,
    prompt="You keep the tables of a restaurant.",
    tools=[free_hours],
    ask_user=True,
)
