"""What the model says, and when the server's tools end: steps of a conversation's life, as those of `tests.support.moves`."""

import anyio
from tests.support.lives import Life
from tests.support.runs import ASK, PAINT
from tests.support.walks import Pick

from passback.core.deltas import Finish, FinishReason, TextChunk, ToolCallChunk, UsageChunk
from passback.core.errors import ModelUnavailable
from passback.core.messages import Usage
from passback.core.questions import ASK_USER

TOOLS = (PAINT, ASK, ASK_USER)
"""Of the client."""
FORM = '{"questions": [{"question": "What is it called?"}]}'


async def say(life: Life, pick: Pick) -> None:
    if dictation := life.dictation():
        dictation.say(TextChunk(pick.of(["word ", "another ", "\ud800", ""])))


async def call(life: Life, pick: Pick) -> None:
    """Begin a call, mostly of the client."""
    dictation = life.dictation()
    if dictation is None:
        return
    name = pick.of(["paint", "ask", "wipe", "ask_user", "paint", "wipe", "look", "note", "fly"])
    given = pick.of([None, "c0", "c1", f"c{next(life.numbers)}"])
    fitting = [FORM] if name == "ask_user" else ["{}", "", "{}"]
    arguments = "[1" if pick.seldom() else pick.of([*fitting * 2, '{"n": 1}'])
    before = len(await life.begun(await life.status()))
    dictation.say(ToolCallChunk(dictation.calls, given, name, arguments))
    dictation.calls += 1
    while (
        name in {spec.name for spec in TOOLS}
        and len(await life.begun(await life.status())) == before
    ):
        await anyio.lowlevel.checkpoint()


async def a_turn(life: Life, pick: Pick) -> None:
    """Some calls, one or the other of them invalid or the server's, and the end of the answer."""
    for _ in range(1 + pick.below(3)):
        await call(life, pick)
        await life.settle()
    await finish(life, pick)


async def a_turn_that_asks(life: Life, pick: Pick) -> None:
    """One or two calls that a person has to allow, perhaps with a question."""
    if dictation := life.dictation():
        names = ["wipe", *pick.of([[], ["wipe"], ["ask_user"]])]
        for name in names:
            arguments = FORM if name == "ask_user" else "{}"
            dictation.say(ToolCallChunk(dictation.calls, None, name, arguments))
            dictation.calls += 1
            await life.settle()
        dictation.say(Finish("tool_calls"), None)


async def finish(life: Life, pick: Pick) -> None:
    if dictation := life.dictation():
        reason: FinishReason = "tool_calls" if dictation.calls else "stop"
        told = [] if pick.seldom() else [some_usage(pick)]
        dictation.say(*told, Finish("length" if pick.seldom() else reason), None)


def some_usage(pick: Pick) -> UsageChunk:
    return UsageChunk(Usage(1 + pick.below(5), pick.below(5), pick.below(3), pick.below(2)))


async def fail(life: Life, pick: Pick) -> None:
    """In one way or another, or the answer just breaks off."""
    if dictation := life.dictation():
        if pick.below(2):
            dictation.say(some_usage(pick))
        dictation.say(pick.of([ModelUnavailable("gone"), None, RuntimeError("broken")]))


async def a_tool_ends(life: Life, pick: Pick) -> None:
    del pick
    if life.gates:
        life.gates[0].set()
