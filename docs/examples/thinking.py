"""An agent whose first model fails, and whose second one thinks before it answers.

passback serve thinking:agent
"""

from passback import Agent
from passback.errors import ModelUnavailable
from passback.models import ReasoningChunk
from passback.models.fallback import Fallback
from passback.testing import ScriptedModel, says

# these play what real models would do; PASSBACK_MODEL=openai:NAME,anthropic:OTHER makes such a list
# of real ones
busy = ScriptedModel(
    [[ModelUnavailable("the model's service is overloaded")]], name="busy", per_message=True
)
thinks = ScriptedModel(
    [[ReasoningChunk("17 has no divisor "), ReasoningChunk("up to 4."), *says("It is prime.")]],
    name="thinks",
    per_message=True,
)

agent = Agent(
    model=Fallback([busy, thinks]),
    prompt="You know numbers.",
)
