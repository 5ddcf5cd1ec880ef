"""A worker dies while tools run: no call is repeated that must not be, and none is lost (P10)."""

from collections import Counter

import anyio
import pytest
from tests.support.killable_worker import Faults, killable_worker
from tests.support.runs import (
    ASK,
    EXPIRING,
    KEY,
    PAINT,
    at_once,
    call_ids,
    events,
    followed,
    let_pass,
    outcome,
    post,
    record,
    reply,
    result,
    says,
    until,
    worker,
)

from passback.core.events import (
    Completed,
    HandedBack,
    RunFinished,
    ToolCallEnded,
    ToolCallStarted,
    ToolResulted,
)
from passback.core.messages import CallId, RunRef, ToolMessage
from passback.core.transcript import SYNTHETIC_TEXT
from passback.engine.ledger import Ledger
from passback.engine.service import RunService
from passback.models.scripted import ScriptedModel, calls
from passback.models.scripted import says as words
from passback.toolsets.functions import FunctionTool, tool

pytestmark = pytest.mark.anyio


class CountedTools:
    """Tools that count their calls; at the first worker, those in `stuck` never return."""

    def __init__(self, *stuck: str) -> None:
        self.done: Counter[str] = Counter()
        self._stuck = stuck
        self.begun = anyio.Event()

    def tools(self, *, first: bool) -> list[FunctionTool]:
        def make(name: str, *, read_only: bool = False, repeatable: bool = False) -> FunctionTool:
            async def act() -> str:
                self.done[name] += 1
                if first and name in self._stuck:
                    if all(self.done[each] for each in self._stuck):
                        self.begun.set()
                    await anyio.sleep_forever()
                return f"{name} done"

            return tool(name=name, read_only=read_only, repeatable=repeatable)(act)

        return [
            make("pay"),
            make("send"),
            make("save", repeatable=True),
            make("read", read_only=True),
            make("list", read_only=True),
        ]


async def tool_messages(runs: RunService) -> list[ToolMessage]:
    return [message for message in await record(runs) if isinstance(message, ToolMessage)]


INTERRUPTED = SYNTHETIC_TEXT["interrupted"]


@pytest.mark.parametrize(
    ("called", "stuck", "done", "answers"),
    [
        (["pay"], ["pay"], {"pay": 1}, [INTERRUPTED]),
        (["save"], ["save"], {"save": 2}, ["save done"]),
        (["read"], ["read"], {"read": 2}, ["read done"]),
        (["read", "list"], ["read", "list"], {"read": 2, "list": 2}, ["read done", "list done"]),
        # what comes behind it had not begun
        (
            ["pay", "send", "save"],
            ["pay"],
            {"pay": 1, "send": 1, "save": 1},
            [INTERRUPTED, "send done", "save done"],
        ),
        # what was before it is not done again
        (
            ["pay", "send", "save"],
            ["send"],
            {"pay": 1, "send": 1, "save": 1},
            ["pay done", INTERRUPTED, "save done"],
        ),
        (["list", "save", "pay"], ["save"], {"list": 1, "save": 2, "pay": 1}, None),
        # of two that run together, one had an answer
        (["read", "list", "pay"], ["list"], {"read": 1, "list": 2, "pay": 1}, None),
    ],
    ids=lambda value: "+".join(value) if isinstance(value, list) else "",
)
@pytest.mark.promise("P5", "P10")
async def test_a_tool_that_had_begun_is_called_again_only_if_that_is_harmless(
    store: Ledger,
    called: list[str],
    stuck: list[str],
    done: dict[str, int],
    answers: list[str] | None,
) -> None:
    counted = CountedTools(*stuck)
    turn = calls(*((name, {}) for name in called))
    async with (
        worker(store, ScriptedModel([words("so")]), *counted.tools(first=False)) as other,
        killable_worker(store, ScriptedModel([turn]), *counted.tools(first=True)) as dying,
    ):
        run = await post(dying.runs, says())
        await counted.begun.wait()
        # read-only calls beside it are answered, and their answers stored
        answered = [name for name in called if name == "read" and name not in stuck]
        for _ in answered:
            await until(other, run, ToolResulted)
        await dying.kill()
        seen = await events(other, run)
        assert seen[-1] == RunFinished(Completed())
        assert counted.done == done
        given = await tool_messages(other)
        by_call = {message.call_id: message for message in given}
        ended = [event.call_id for event in seen if isinstance(event, ToolCallEnded)]
        shown = [by_call[call_id].content for call_id in ended]
        assert shown == (answers or [f"{name} done" for name in called])
        for message in given:
            assert message.is_error is (message.content == INTERRUPTED)
            assert message.synthetic == ("interrupted" if message.is_error else None)
        assert {
            event.call_id: event.content for event in seen if isinstance(event, ToolResulted)
        } == {message.call_id: message.content for message in given}
        assert len(given) == len(called)


@pytest.mark.parametrize(
    ("command", "times", "answers"),
    [("ls", 4, ["ls done", "ls done"]), ("rm", 1, [INTERRUPTED, "ls done"])],
)
@pytest.mark.promise("P10")
async def test_whether_a_call_only_reads_is_asked_again_by_the_next_worker(
    store: Ledger, command: str, times: int, answers: list[str]
) -> None:
    ran: Counter[str] = Counter()
    begun = anyio.Event()

    def make(*, first: bool) -> FunctionTool:
        @tool(read_only=lambda command: command == "ls")
        async def shell(command: str) -> str:
            ran[command] += 1
            if first:
                if ran[command] == (command == "ls") + 1:
                    begun.set()
                await anyio.sleep_forever()
            return f"{command} done"

        return shell

    turn = calls(("shell", {"command": command}), ("shell", {"command": "ls"}))
    async with (
        worker(store, ScriptedModel([words("so")]), make(first=False)) as other,
        killable_worker(store, ScriptedModel([turn]), make(first=True)) as dying,
    ):
        run = await post(dying.runs, says())
        await begun.wait()
        await dying.kill()
        assert await outcome(other, run) == Completed()
        assert [message.content for message in await tool_messages(other)] == answers
    assert ran[command] == times


@pytest.mark.promise("P10")
async def test_a_tool_begins_only_when_the_result_before_it_is_stored(memory: Ledger) -> None:
    """Otherwise a worker's death in between would leave two begun calls, and repeat one."""
    counted = CountedTools()
    held, let_go = anyio.Event(), anyio.Event()

    async def hold() -> None:
        held.set()
        await let_go.wait()

    @tool
    async def pay() -> str:
        counted.done["pay"] += 1
        dying.faults.first["commit"] = hold
        return "pay done"

    send = counted.tools(first=True)[1]
    async with (
        worker(memory, ScriptedModel([words("so")]), pay, send) as other,
        killable_worker(
            memory, ScriptedModel([calls(("pay", {}), ("send", {}))]), pay, send
        ) as dying,
    ):
        run = await post(dying.runs, says())
        await held.wait()
        await anyio.wait_all_tasks_blocked()
        begun = dict(counted.done)
        dying.faults.dead = True
        let_go.set()
        await dying.kill()
        assert begun == {"pay": 1}
        assert await outcome(other, run) == Completed()
        assert counted.done == {"pay": 1, "send": 1}
        answers = [message.content for message in await tool_messages(other)]
        assert answers == [INTERRUPTED, "send done"]


@pytest.mark.promise("P1", "P10")
async def test_the_clients_calls_of_a_turn_are_handed_back_by_the_next_worker(
    store: Ledger,
) -> None:
    """The turn was committed, its server tool ran, its client call was not handed back yet."""
    counted = CountedTools("pay")
    model = ScriptedModel([words("both done")])
    turn = calls(("paint", {}), ("pay", {}), ("ask", {}))
    async with (
        worker(store, model, *counted.tools(first=False)) as other,
        killable_worker(store, ScriptedModel([turn]), *counted.tools(first=True)) as dying,
    ):
        run = await post(dying.runs, says(), tools=[PAINT, ASK])
        await counted.begun.wait()
        await dying.kill()
        seen = await events(other, run)
        one, two = await call_ids(other)
        assert [event for event in seen if isinstance(event, ToolCallEnded)][1:] == [
            ToolCallEnded(one),
            ToolCallEnded(two),
        ]
        assert isinstance(await outcome(other, run), HandedBack)
        assert model.requests == []
        assert await reply(other, result(one), result(two)) == "both done"
    assert counted.done == {"pay": 1}


@pytest.mark.promise("P4", "P10")
async def test_a_hand_back_that_comes_too_late_is_made_by_the_next_worker(store: Ledger) -> None:
    """All server calls had their answers: nothing but the end was missing."""
    faults = Faults(store)
    stopped, gate = anyio.Event(), anyio.Event()

    async def wait_with_the_end() -> None:
        stopped.set()
        await gate.wait()

    async def then() -> None:
        faults.first["commit"] = wait_with_the_end

    @tool
    async def pay() -> str:
        faults.first["commit"] = then  # this commit is that of the answer, the next one is the end
        return "paid"

    turn = calls(("pay", {}), ("paint", {}))
    model = ScriptedModel([words("painted")])
    async with (
        worker(faults.store, ScriptedModel([turn]), pay, timing=EXPIRING) as dying,
        worker(store, model, pay) as other,
    ):
        run = await post(dying, says(), tools=[PAINT])
        await stopped.wait()
        assert isinstance(await outcome(other, run), HandedBack)
        (call_id,) = await call_ids(other)
        gate.set()
        assert await followed(dying, run) == await followed(other, run)
        assert len([e for e in await events(other, run) if isinstance(e, ToolCallEnded)]) == 2
        assert await reply(other, result(call_id)) == "painted"
        assert [message.content for message in await tool_messages(other)] == ["paid", "done"]


@pytest.mark.promise("P2", "P4")
async def test_an_early_result_waits_for_the_hand_back_by_the_next_worker(store: Ledger) -> None:
    """The client saw its call begin at the dead worker; the call was committed with the turn."""
    paying, gate = anyio.Event(), anyio.Event()

    @tool(repeatable=True)
    async def pay() -> str:
        paying.set()
        await gate.wait()
        return "paid"

    turn = calls(("paint", {}), ("pay", {}))
    model = ScriptedModel([words("painted")])
    async with (
        worker(store, model, pay) as other,
        killable_worker(store, ScriptedModel([turn]), pay) as dying,
    ):
        run = await post(dying.runs, says(), tools=[PAINT])
        begun = await until(dying.runs, run, ToolCallStarted)
        assert isinstance(begun.event, ToolCallStarted)
        await paying.wait()
        await dying.kill()
        await other.status(KEY)
        answers: list[RunRef] = []

        async def answer(call_id: CallId) -> None:
            answers.append(await post(other, result(call_id)))

        async with at_once() as tasks:
            tasks.start_soon(answer, begun.event.call_id)
            await let_pass(other)
            assert answers == []
            assert await call_ids(other) == []  # it is not owed before it is handed back
            gate.set()
        assert await outcome(other, answers[0]) == Completed()
        assert [message.content for message in await tool_messages(other)] == ["paid", "done"]


async def test_a_call_of_a_tool_that_the_next_worker_does_not_have_may_have_run(
    store: Ledger,
) -> None:
    counted = CountedTools("save")
    async with (
        worker(store, ScriptedModel([words("pity")])) as other,
        killable_worker(
            store, ScriptedModel([calls(("save", {}))]), *counted.tools(first=True)
        ) as dying,
    ):
        run = await post(dying.runs, says())
        await counted.begun.wait()
        await dying.kill()
        assert await outcome(other, run) == Completed()
        (answer,) = await tool_messages(other)
        assert (answer.content, answer.is_error) == (INTERRUPTED, True)
