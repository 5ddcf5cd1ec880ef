"""Server tools that count their calls and may hang, and a model that calls tools once."""

from collections import Counter

import anyio
from tests.support.runs import KEY, PAINT, outcome, post, record, says

from passback.core.events import HandedBack, RunEvent, ToolCallEnded, ToolResulted
from passback.core.messages import CallId, ConversationKey, ToolMessage
from passback.core.permissions import ALLOWED, Decision, Permission
from passback.engine.service import RunService
from passback.models.scripted import ScriptedModel, Step, calls
from passback.models.scripted import says as words
from passback.toolsets.functions import FunctionTool, tool


class CountedTools:
    """Tools that count their calls.

    Attributes:
        done: how often, by name.
        stuck: tools of these names do not come back while they are in here.
        begun: set when one is stuck.
    """

    def __init__(self, *stuck: str) -> None:
        self.done: Counter[str] = Counter()
        self.stuck = {*stuck}
        self.begun = anyio.Event()

    def tool(
        self, name: str, permission: Permission | Decision = ALLOWED, *, repeatable: bool = False
    ) -> FunctionTool:
        async def act() -> str:
            self.done[name] += 1
            if name in self.stuck:
                self.begun.set()
                await anyio.sleep_forever()
            return f"{name} done"

        return tool(name=name, permission=permission, repeatable=repeatable)(act)


def called(*names: str) -> list[Step]:
    return calls(*((name, {}) for name in names))


async def asked(runs: RunService, key: ConversationKey = KEY) -> list[CallId]:
    """Post, and see what the client owes then."""
    run = await post(runs, says("go"), key=key, tools=[PAINT])
    ending = await outcome(runs, run)
    assert isinstance(ending, HandedBack)
    return [each.id for each in ending.owed]


async def results(runs: RunService) -> list[object]:
    """Return the results of the calls, in that order."""
    return [each.content for each in await record(runs) if isinstance(each, ToolMessage)]


def of_calls(seen: list[RunEvent]) -> list[RunEvent]:
    return [each for each in seen if isinstance(each, ToolCallEnded | ToolResulted)]


def one_of(*names: str) -> ScriptedModel:
    return ScriptedModel([calls(*((name, {}) for name in names)), words("so")])


async def answers_in(runs: RunService) -> list[ToolMessage]:
    return [message for message in await record(runs) if isinstance(message, ToolMessage)]
