"""An agent that may spend so much, and no more.

PASSBACK_PRICES="scripted=1/10" passback serve limits:agent
"""

from passback import Agent, Budget, BudgetLimits, tool
from passback.messages import Usage
from passback.models import UsageChunk
from passback.testing import ScriptedModel, calls, says


@tool(read_only=True)
def look_up(word: str) -> str:
    """Look a word up."""
    return f"{word}: not in the lexicon"


# plays what a real model would say and use; leave `model` out to use that of your settings
spent = UsageChunk(Usage(input_tokens=20_000, output_tokens=1_000))
script = ScriptedModel(
    [
        [spent, *calls(("look_up", {"word": "budget"}))],
        [spent, *says("There is no such word.")],
    ],
    per_message=True,
)

agent = Agent(
    model=script,
    tools=[look_up],
    max_turns=5,
    budget=Budget(
        run=BudgetLimits(tokens=50_000, seconds=120),
        conversation=BudgetLimits(cost=0.1),
        owner=BudgetLimits(tokens=1_000_000),
    ),
)
