"""An agent with a slash command of its own, beside /help, /clear and /compact.

passback serve commands:agent
"""

from passback import Agent, CommandContext
from passback.testing import ScriptedModel, says


async def greet(words: str, context: CommandContext) -> str:
    """Greets somebody."""
    return f"Hello, {words or context.run.key.owner}!"


# plays what a real model would say; leave `model` out to use that of your settings
script = ScriptedModel([says("A model has read this.")], per_message=True)

agent = Agent(model=script, commands={"greet": greet})
