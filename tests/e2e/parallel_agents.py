"""Two agents that may work side by side for a third one, on the model of the settings.

`passback serve tests.e2e.parallel_agents:agent`

Their model is `Parts`.
"""

from collections.abc import Mapping, Sequence

from tests.support.model_server import ModelServer, Reply, Request
from typing_extensions import override

from passback import Agent, tool


@tool
def look() -> str:
    """Look at it."""
    return "seen"


one = Agent(prompt="You are one.", name="one", description="Does one thing.")
two = Agent(prompt="You are two.", name="two", description="Does another thing.", tools=[look])
agent = Agent(prompt="You are lead.", agents=[one, two])


class Parts(ModelServer):
    """Plays to each agent what is for it, whoever asks first."""

    def __init__(self, parts: Mapping[str, Sequence[Reply]]) -> None:
        super().__init__([])
        self._parts = {name: list(replies) for name, replies in parts.items()}

    @override
    def _answer_to(self, request: Request) -> Reply:
        self.requests.append(request)
        prompt = str(request.json["messages"][0]["content"])
        [name] = [each for each in self._parts if f"You are {each}." in prompt]
        return self._parts[name].pop(0)
