"""The steps of a conversation's life: what clients, the model, operators and misfortune do. See `tests.support.lives`."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeAlias

import anyio
from tests.support.faults import Fault, Mortal
from tests.support.lives import Acknowledged, Life, Reader
from tests.support.model_moves import (
    TOOLS,
    a_tool_ends,
    a_turn,
    a_turn_that_asks,
    call,
    fail,
    finish,
    say,
)
from tests.support.runs import followed
from tests.support.transcripts import calls_of
from tests.support.verdicts import verdict_on
from tests.support.walks import Pick

from passback.core.changes import Change, Status
from passback.core.deltas import Finish, TextChunk
from passback.core.errors import (
    ConversationBusy,
    InvalidAnswer,
    NothingToDo,
    PassbackError,
    QueueFull,
    ResultConflict,
    Reused,
    StoreUnavailable,
    UnknownConversation,
    UnknownToolCall,
)
from passback.core.messages import (
    Answer,
    ApprovalMessage,
    CallId,
    Content,
    DataPart,
    MessageId,
    PostedMessage,
    RunRef,
    ToolMessage,
    UserMessage,
    new_nonce,
)
from passback.core.ports import Parked
from passback.core.posts import OnBusy, StartRun

REFUSALS = (
    *(ConversationBusy, InvalidAnswer, NothingToDo, QueueFull, ResultConflict),
    *(Reused, UnknownToolCall),
)
ON_BUSY: list[OnBusy] = ["reject", "enqueue", "interrupt", "rollback"]
STOPS = {"interrupt", "rollback"}
ExtraPromptFunction: TypeAlias = RunRef | Parked | PassbackError
Move: TypeAlias = Callable[[Life, Pick], Awaitable[None]]


# ---------------------------------------------------------------- posts
async def message(life: Life, pick: Pick) -> None:
    """A user's, sometimes with results, before or behind them."""
    on_busy, name = pick.of(ON_BUSY), MessageId(f"u{next(life.numbers)}")
    answers = await some_answers(life, pick, 2) if pick.below(3) == 0 else []
    user = UserMessage(name, f"words {name}")
    place = pick.below(len(answers) + 1)
    messages: list[PostedMessage] = [*answers[:place], user, *answers[place:]]
    key = f"key-{name}" if pick.seldom() else None
    named = frozenset([name]) if pick.below(2) else frozenset[MessageId]()
    await send(
        life,
        a_worker(life, pick),
        StartRun(life.key, tuple(messages), TOOLS, key, named, on_busy),
    )


async def answers(life: Life, pick: Pick) -> None:
    given = tuple(await some_answers(life, pick, 3))
    await send(life, a_worker(life, pick), StartRun(life.key, given))


async def right_answers(life: Life, pick: Pick) -> None:
    """All that is owed, in any order."""
    owed = (await life.status()).owed
    given = [
        approval(life, pick, each.id) if each.kind == "approval" else result(life, each.id, "right")
        for each in (owed[::-1] if pick.below(2) else owed)
    ]
    if given:
        await send(life, a_worker(life, pick), StartRun(life.key, tuple(given)))


async def a_bad_answer(life: Life, pick: Pick) -> None:
    """To a question: it changes nothing."""
    status = await life.status()
    asked = [each.id for each in status.owed if each.kind == "question"]
    if asked and life.steady and not (status.running or status.lapsed or life.waiting):
        bad = (DataPart({"answers": []}),)
        post = StartRun(life.key, (result(life, pick.of(asked), bad),))
        assert isinstance(await deliver(life, a_worker(life, pick), post), InvalidAnswer)


async def repeat(life: Life, pick: Pick) -> None:
    """An earlier post once more: if all of it is known by a name, nothing is begun."""
    if not life.accepted or life.waiting:
        return
    earlier = pick.of(life.accepted[:-4:-1])
    post = earlier.post
    if post.idempotency_key is None and any(
        isinstance(each, UserMessage) and each.id not in post.named for each in post.messages
    ):
        return
    steady = life.steady
    answer = await deliver(life, a_worker(life, pick), post)
    if steady and isinstance(earlier.answer, RunRef):
        assert answer == earlier.answer


async def nobody_follows(life: Life, pick: Pick) -> None:
    """A run that is to end with its last reader, and has none."""
    status = await life.status()
    if status.running or status.queued or life.waiting:
        return
    name = MessageId(f"u{next(life.numbers)}")
    words = (UserMessage(name, f"words {name}"),)
    post = StartRun(life.key, words, TOOLS, on_disconnect="cancel")
    await send(life, a_worker(life, pick), post)
    while (await life.status()).running:
        await anyio.lowlevel.checkpoint()


def a_worker(life: Life, pick: Pick) -> Mortal:
    return pick.of(life.workers)


def result(life: Life, call_id: CallId, content: Content, *, is_error: bool = False) -> ToolMessage:
    return ToolMessage(MessageId(f"t{next(life.numbers)}"), call_id, content, is_error)


def approval(life: Life, pick: Pick, call_id: CallId) -> ApprovalMessage:
    name, approved = MessageId(f"a{next(life.numbers)}"), pick.below(3) < 2
    reason = "" if approved else pick.of(["", "not now"])
    return ApprovalMessage(name, call_id, approved, reason, approved and pick.seldom())


async def some_answers(life: Life, pick: Pick, most: int) -> list[Answer]:
    """To calls that are owed, being made, answered, the server's, or nobody's; seldom of the wrong kind."""
    status, messages = await life.status(), await life.messages()
    known = [*(each.id for each in status.owed), *await life.begun(status)] * 3
    known += [each.id for each in calls_of(messages)[-4:]] + [CallId("nobody's")]
    asking = {each.id for each in calls_of(messages) if each.asks == "approval"}
    given: list[Answer] = []
    for _ in range(1 + pick.below(most)):
        call_id = pick.of(known)
        if (call_id in asking) is not pick.seldom():
            given.append(approval(life, pick, call_id))
        else:
            words = pick.of(["one", "two"])
            given.append(result(life, call_id, words, is_error=pick.seldom()))
    return given


# ---------------------------------------------------------------- what becomes of a post
async def send(life: Life, worker: Mortal, post: StartRun) -> None:
    """A new post. One whose calls are not handed back yet is answered some time later."""
    if life.waiting:
        return
    status, messages = await life.status(), await life.messages()
    posted = [each for each in post.messages if isinstance(each, Answer)]
    if {each.call_id for each in posted} & set(await life.begun(status)):
        await wait_with(life, worker, post, status)
        return
    expected = verdict_on(posted, status, messages) if len(posted) == len(post.messages) else None
    steady = life.steady
    answer = await deliver(life, worker, post)
    if expected and steady:
        assert kind_of(answer, life) == expected, (
            kind_of(answer, life),
            expected,
            posted,
            messages,
        )
    if post.on_busy in STOPS and status.running and isinstance(answer, RunRef):
        assert status.run_id is not None
        await followed(life.workers[0].runs, RunRef(life.key, status.run_id))


async def wait_with(life: Life, worker: Mortal, post: StartRun, status: Status) -> None:
    scope, done = anyio.CancelScope(), anyio.Event()

    async def ask() -> None:
        with scope:
            await deliver(life, worker, post)
        if scope.cancelled_caught:
            life.doubtful.update(texts_of(post))
        life.waiting = None
        done.set()

    life.waiting = (status.run_id, worker, scope, done)
    life.tasks.start_soon(ask)


def texts_of(post: StartRun) -> list[object]:
    return [each.content for each in post.messages if isinstance(each, UserMessage)]


async def deliver(life: Life, worker: Mortal, post: StartRun) -> ExtraPromptFunction:
    """Post, and write down what was acknowledged."""
    try:
        answer = await worker.runs.start(post)
    except StoreUnavailable as error:
        life.doubtful.update(texts_of(post))
        return error
    except REFUSALS as error:
        return error
    own = answer not in [each.answer for each in life.accepted]
    if own:
        life.doubtful.difference_update(texts_of(post))
    life.accepted.append(Acknowledged(post, answer, own))
    return answer


def kind_of(answer: ExtraPromptFunction, life: Life) -> str:
    if isinstance(answer, RunRef):
        return "runs" if life.accepted[-1].own else "joins"
    return "owes" if isinstance(answer, Parked) else answer.code


# ---------------------------------------------------------------- readers
async def a_reader_comes(life: Life, pick: Pick) -> None:
    if life.runs:
        reader = Reader(pick.of(life.runs[:-3:-1]))
        life.readers.append(reader)
        life.tasks.start_soon(reader.follow, a_worker(life, pick))


async def a_reader_comes_back(life: Life, pick: Pick) -> None:
    """To any worker, behind what it saw last."""
    if life.readers:
        reader = pick.of(life.readers[:-3:-1])
        await reader.leave()
        life.tasks.start_soon(reader.follow, a_worker(life, pick))


async def a_reader_leaves(life: Life, pick: Pick) -> None:
    if life.readers:
        await pick.of(life.readers[:-3:-1]).leave()


# ---------------------------------------------------------------- ends, deaths, and those who go on
async def cancel(life: Life, pick: Pick) -> None:
    if life.runs:
        run = pick.of(life.runs[:-3:-1])
        if await a_worker(life, pick).runs.cancel(run):
            await followed(life.workers[0].runs, run)


async def kill(life: Life, pick: Pick) -> None:
    await life.bury(a_worker(life, pick))
    await life.employ()


async def stop(life: Life, pick: Pick) -> None:
    """As a deploy does: its runs are left to others."""
    worker = a_worker(life, pick)
    await worker.runs.drain(0)
    await life.bury(worker)
    await life.employ()


async def visit(life: Life, pick: Pick) -> None:
    """Somebody looks at the conversation: a worker that meets a lost run takes it over."""
    try:
        await a_worker(life, pick).runs.status(life.key)
    except UnknownConversation:
        assert life.accepted == []


async def a_boundary_is_set(life: Life, pick: Pick) -> None:
    """Between two runs: the model is not shown any more what was said before."""
    loaded = await life.store.load(life.key)
    status = loaded.status
    if status.running or status.owed or status.queued or status.version == 0:
        return
    state = status.state.with_history_start(status.message_count, loaded.messages)
    await life.store.park(Change(life.key, new_nonce(), status.version, state=state))


async def the_store_fails(life: Life, pick: Pick) -> None:
    """In one of the next writes of a run."""
    faults: list[Fault] = ["lose reply", "refuse"]
    plan = a_worker(life, pick).faults.plan
    plan[pick.of(["commit", "append", "renew"])].append(pick.of(faults))


async def an_answer_is_lost(life: Life, pick: Pick) -> None:
    """A post that was stored, or not: its client does not know, and repeats it elsewhere."""
    status = await life.status()
    if life.waiting or status.lapsed or status.queued:
        return  # the failure would hit what others posted
    one, other = life.workers[:: pick.of([1, -1])]
    name = MessageId(f"u{next(life.numbers)}")
    post = StartRun(
        life.key,
        (UserMessage(name, f"words {name}"),),
        TOOLS,
        named=frozenset([name]),
        on_busy=pick.of(ON_BUSY[:2]),
    )
    fault: Fault = pick.of(["lose reply", "refuse"])
    for write in ("begin", "enqueue"):
        one.faults.plan[write] = [fault]
    leases = len(one.faults.leases)
    answer = await deliver(life, one, post)
    one.faults.plan.update(begin=[], enqueue=[])
    await life.store.renew(one.faults.leases[leases:], lease=0)  # as time does
    if isinstance(answer, StoreUnavailable):
        await deliver(life, other, replace(post))


async def end(life: Life) -> None:
    """What goes on comes to its end; what waits is cancelled."""
    while True:
        await visit(life, Pick(0))
        await life.settle()
        status = await life.status()
        if status.queued:
            await life.workers[0].runs.cancel(RunRef(life.key, status.queued[0]))
        elif not status.running:
            return
        await a_tool_ends(life, Pick(0))
        if dictation := life.dictation():
            dictation.say(TextChunk("the end"), Finish("stop"), None)


MOVES: list[Move] = [
    *[say, say, call, call, a_turn, a_turn, a_turn, finish, finish, fail, a_tool_ends, a_tool_ends],
    *[message, message, message, answers, answers, answers, right_answers, right_answers, repeat],
    *[a_reader_comes, a_reader_comes_back, a_reader_leaves, nobody_follows, cancel],
    *[a_turn_that_asks, a_turn_that_asks, right_answers, right_answers, a_bad_answer],
    *[kill, kill, stop, visit, visit, a_boundary_is_set, the_store_fails, an_answer_is_lost],
]
