"""An agent that is told more than its prompt: who asks, and when.

passback serve prompt_layers:agent
"""

from passback import Agent
from passback.messages import RunRef
from passback.testing import ScriptedModel, says

# `anonymous` is who has no key
CUSTOMERS = {"anonymous": "Ann, a customer since 2019, who likes short answers"}


# called once in each run; async where it has to look something up
async def who_asks(run: RunRef) -> str:
    return f"You talk to {CUSTOMERS.get(run.key.owner, 'somebody new')}."


# plays what a real model would say; leave `model` out to use that of your settings
script = ScriptedModel([says("It is on its way.")], per_message=True)

agent = Agent(
    model=script,
    prompt="You answer for a shop.",
    conduct="- Promise no date of delivery.",
    context=who_asks,
)
