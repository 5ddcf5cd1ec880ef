"""A model that calls some tools at once and is then done, and what it was answered."""

from tests.support.runs import record

from passback.core.messages import ToolMessage
from passback.engine.service import RunService
from passback.models.scripted import ScriptedModel, calls
from passback.models.scripted import says as words


def one_of(*names: str) -> ScriptedModel:
    return ScriptedModel([calls(*((name, {}) for name in names)), words("so")])


async def answers_in(runs: RunService) -> list[ToolMessage]:
    return [message for message in await record(runs) if isinstance(message, ToolMessage)]
