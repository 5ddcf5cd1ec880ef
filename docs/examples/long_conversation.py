"""An agent with a very small window: what is old makes room for what is new.

passback serve long_conversation:agent

Ask it seven times, or say /compact: the model sums up what was said, and the history stays as it
was.
"""

from passback import Agent
from passback.testing import ScriptedModel, says

# plays what a real model would say, summaries too; leave `model` out to use that of your settings
script = ScriptedModel(
    [
        says(
            "Ferns want shade, ",
            "and water, ",
            "but not too much of it. ",
            "Feed them in spring. " * 16,
        )
    ],
    per_message=True,
)

agent = Agent(
    model=script,
    prompt="You know plants.",
    window=1_400,
)
