"""Agents between which a user of the page chooses: with models, media, commands and usage.

`passback serve tests.support.composer_agents:clerk tests.support.composer_agents:cook`, with
`PASSBACK_PRICES` of `PRICES` for costs.
"""

import base64
from typing import Final

from passback import Agent, CommandContext, Result, tool
from passback.core.deltas import Finish, TextChunk, UsageChunk
from passback.core.messages import Usage
from passback.testing import ScriptedModel, Step, calls

PIXEL: Final = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
"""A picture of one pixel, as a PNG in base64."""
USAGE: Final = Usage(1200, 40, cached_tokens=800, reasoning_tokens=16)
PRICES: Final = "x:clerk=1/10/0.5, x:helper=2/20"
"""A call of USAGE costs 0.0012 with the clerk's model, and 0.0032 with its helper's."""


def _says(words: str, usage: Usage = USAGE) -> list[Step]:
    return [TextChunk(words), UsageChunk(usage), Finish("stop")]


def _calls(name: str, **arguments: str) -> list[Step]:
    *steps, end = calls((name, arguments))
    return [*steps, UsageChunk(USAGE), end]


def _answers(name: str, *turns: list[Step], media: bool = False) -> ScriptedModel:
    return ScriptedModel(turns, name=name, media=media, per_message=True)


@tool
def camera() -> Result:
    """Take a picture."""
    return Result(base64.b64decode(PIXEL), media_type="image/png")


async def greet(words: str, context: CommandContext) -> str:
    """Greets somebody."""
    return f"Hello, {words}!"


clerk = Agent(
    name="clerk",
    model=_answers("x:clerk", _says("I am the clerk."), media=True),
    models=[_answers("x:blind", _says("I see nothing.", Usage()))],
    commands={"greet": greet},
)
cook = Agent(name="cook", model=_answers("x:cook", _says("I am the cook.")))
photographer = Agent(
    model=_answers("x:clerk", _calls("camera"), _says("Here it is."), media=True), tools=[camera]
)
_helper = Agent(name="helper", model=_answers("x:helper", _says("Nothing.")), description="Looks.")
delegating = Agent(
    model=_answers("x:clerk", _calls("helper", task="look"), _says("It found nothing.")),
    agents=[_helper],
)
