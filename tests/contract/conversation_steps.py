"""The random steps of a conversation: what clients, the model, operators and failures do.

`tests.contract.random_conversation` checks what holds after each of them.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

import anyio
from tests.contract.random_conversation import Acknowledged, RandomConversation, Reader
from tests.contract.random_operations import Pick
from tests.support.killable_worker import Fault, KillableWorker
from tests.support.runs import ASK, PAINT, followed
from tests.support.transcript_rules import (
    answers_of,
    approvals_of,
    awaited_calls,
    calls_of,
    words_of,
)
from tests.support.waiting import moment

from passback.core.changes import Change, Status
from passback.core.deltas import Finish, FinishReason, TextChunk, ToolCallChunk, UsageChunk
from passback.core.errors import (
    ConversationBusy,
    InvalidAnswer,
    ModelUnavailable,
    NothingToDo,
    PassbackError,
    QueueFull,
    ResultConflict,
    Reused,
    StoreUnavailable,
    UnknownConversation,
    UnknownToolCall,
)
from passback.core.ids import new_nonce
from passback.core.messages import (
    Answer,
    ApprovalMessage,
    CallId,
    Content,
    DataPart,
    Message,
    MessageId,
    PostedMessage,
    RunRef,
    ToolMessage,
    Usage,
    UserMessage,
)
from passback.core.posts import OnBusy, Parked, StartRun
from passback.core.questions import ASK_USER


def expected_answer(
    posted: Sequence[Answer], status: Status, messages: Sequence[Message]
) -> str | None:
    """Return the answers that the table expects; None if it depends on more than the transcript."""
    if status.lapsed or status.queued:
        return None
    awaited = [] if status.running else awaited_calls(messages)
    asked = {call.id: call.asks == "approval" for call in awaited}
    known = known_answers(messages)
    for each in posted:
        if asked.get(each.call_id) is isinstance(each, ApprovalMessage):
            known.setdefault(each.call_id, words_of(each))
        if each.call_id not in known:
            return UnknownToolCall.code
        if known[each.call_id] != words_of(each):
            return ResultConflict.code
    return expected_of_good_answers({each.call_id for each in posted}, {*asked})


def known_answers(messages: Sequence[Message]) -> dict[CallId, tuple[object, ...]]:
    """Return what is remembered of the calls that the client was asked to answer."""
    results, approvals = answers_of(messages), approvals_of(messages)
    known = {call_id: words_of(each) for call_id, each in approvals.items()}
    for call in calls_of(messages):
        closed = results.get(call.id)
        if closed is None or call.id in known or not (call.client or call.asks):
            continue
        if closed.synthetic == "superseded" or (call.client and closed.synthetic is None):
            known[call.id] = words_of(closed)
    return known


def expected_of_good_answers(posted: set[CallId], open_ids: set[CallId]) -> str | None:
    """Return the outcome of answers that are the first, or equal to what is known."""
    if posted & open_ids:
        return "owes" if open_ids - posted else "runs"
    return None if open_ids else "joins"  # some of them may be of the turn that is still open


TOOLS = (PAINT, ASK, ASK_USER)
"""The tools of the client."""
FORM = '{"questions": [{"question": "What is it called?"}]}'


async def say(conversation: RandomConversation, pick: Pick) -> None:
    if open_answer := conversation.open_answer():
        open_answer.say(TextChunk(pick.of(["word ", "another ", "\ud800", ""])))


async def call(conversation: RandomConversation, pick: Pick) -> None:
    """Begin a call, mostly of the client."""
    open_answer = conversation.open_answer()
    if open_answer is None:
        return
    name = pick.of(["paint", "ask", "wipe", "ask_user", "paint", "wipe", "look", "note", "fly"])
    given = pick.of([None, "c0", "c1", f"c{next(conversation.numbers)}"])
    fitting = [FORM] if name == "ask_user" else ["{}", "", "{}"]
    arguments = "[1" if pick.seldom() else pick.of([*fitting * 2, '{"n": 1}'])
    before = len(await conversation.begun(await conversation.status()))
    open_answer.say(ToolCallChunk(open_answer.calls, given, name, arguments))
    open_answer.calls += 1
    while (
        name in {spec.name for spec in TOOLS}
        and len(await conversation.begun(await conversation.status())) == before
    ):
        await anyio.lowlevel.checkpoint()


async def a_turn(conversation: RandomConversation, pick: Pick) -> None:
    """Make some calls, a few invalid or the server's, and end the answer."""
    for _ in range(1 + pick.below(3)):
        await call(conversation, pick)
        await conversation.settle()
    await finish(conversation, pick)


async def a_turn_that_asks(conversation: RandomConversation, pick: Pick) -> None:
    """Make calls that a person has to allow, perhaps with a question."""
    if open_answer := conversation.open_answer():
        names = ["wipe", *pick.of([[], ["wipe"], ["ask_user"]])]
        for name in names:
            arguments = FORM if name == "ask_user" else "{}"
            open_answer.say(ToolCallChunk(open_answer.calls, None, name, arguments))
            open_answer.calls += 1
            await conversation.settle()
        open_answer.say(Finish("tool_calls"), None)


async def finish(conversation: RandomConversation, pick: Pick) -> None:
    if open_answer := conversation.open_answer():
        reason: FinishReason = "tool_calls" if open_answer.calls else "stop"
        usage = [] if pick.seldom() else [some_usage(pick)]
        open_answer.say(*usage, Finish("length" if pick.seldom() else reason), None)


def some_usage(pick: Pick) -> UsageChunk:
    return UsageChunk(Usage(1 + pick.below(5), pick.below(5), pick.below(3), pick.below(2)))


async def fail(conversation: RandomConversation, pick: Pick) -> None:
    """End the answer in one way or another, or just break it off."""
    if open_answer := conversation.open_answer():
        if pick.below(2):
            open_answer.say(some_usage(pick))
        open_answer.say(pick.of([ModelUnavailable("gone"), None, RuntimeError("broken")]))


async def a_tool_ends(conversation: RandomConversation, pick: Pick) -> None:
    del pick
    if conversation.gates:
        conversation.gates[0].set()


REFUSALS = (
    *(ConversationBusy, InvalidAnswer, NothingToDo, QueueFull, ResultConflict),
    *(Reused, UnknownToolCall),
)
ON_BUSY: list[OnBusy] = ["reject", "enqueue", "interrupt", "rollback"]
STOPS = {"interrupt", "rollback"}
Reply: TypeAlias = RunRef | Parked | PassbackError
ConversationStep: TypeAlias = Callable[[RandomConversation, Pick], Awaitable[None]]


# ---------------------------------------------------------------- posts
async def message(conversation: RandomConversation, pick: Pick) -> None:
    """A user's, sometimes with results, before or behind them."""
    on_busy, name = pick.of(ON_BUSY), MessageId(f"u{next(conversation.numbers)}")
    answers = await some_answers(conversation, pick, 2) if pick.below(3) == 0 else []
    user = UserMessage(name, f"words {name}")
    place = pick.below(len(answers) + 1)
    messages: list[PostedMessage] = [*answers[:place], user, *answers[place:]]
    key = f"key-{name}" if pick.seldom() else None
    named = frozenset([name]) if pick.below(2) else frozenset[MessageId]()
    await send(
        conversation,
        a_worker(conversation, pick),
        StartRun(conversation.key, tuple(messages), TOOLS, key, named, on_busy),
    )


async def answers(conversation: RandomConversation, pick: Pick) -> None:
    given = tuple(await some_answers(conversation, pick, 3))
    await send(conversation, a_worker(conversation, pick), StartRun(conversation.key, given))


async def right_answers(conversation: RandomConversation, pick: Pick) -> None:
    """Answer all that is owed, in any order."""
    owed = (await conversation.status()).owed
    given = [
        approval(conversation, pick, each.id)
        if each.kind == "approval"
        else result(conversation, each.id, "right")
        for each in (owed[::-1] if pick.below(2) else owed)
    ]
    if given:
        await send(
            conversation, a_worker(conversation, pick), StartRun(conversation.key, tuple(given))
        )


async def a_bad_answer(conversation: RandomConversation, pick: Pick) -> None:
    """Answer a question wrongly, which changes nothing."""
    status = await conversation.status()
    asked = [each.id for each in status.owed if each.kind == "question"]
    if (
        asked
        and conversation.steady
        and not (status.running or status.lapsed or conversation.waiting)
    ):
        bad = (DataPart({"answers": []}),)
        post = StartRun(conversation.key, (result(conversation, pick.of(asked), bad),))
        assert isinstance(
            await deliver(conversation, a_worker(conversation, pick), post), InvalidAnswer
        )


async def repeat(conversation: RandomConversation, pick: Pick) -> None:
    """An earlier post once more: if all of it is known by a name, nothing is begun."""
    if not conversation.accepted or conversation.waiting:
        return
    earlier = pick.of(conversation.accepted[:-4:-1])
    post = earlier.post
    if post.idempotency_key is None and any(
        isinstance(each, UserMessage) and each.id not in post.named for each in post.messages
    ):
        return
    steady = conversation.steady
    answer = await deliver(conversation, a_worker(conversation, pick), post)
    if steady and isinstance(earlier.answer, RunRef):
        assert answer == earlier.answer


async def nobody_follows(conversation: RandomConversation, pick: Pick) -> None:
    """A run that is to end with its last reader, and has none."""
    status = await conversation.status()
    if status.running or status.queued or conversation.waiting:
        return
    name = MessageId(f"u{next(conversation.numbers)}")
    words = (UserMessage(name, f"words {name}"),)
    post = StartRun(conversation.key, words, TOOLS, on_disconnect="cancel")
    await send(conversation, a_worker(conversation, pick), post)
    while (await conversation.status()).running:
        await moment()


def a_worker(conversation: RandomConversation, pick: Pick) -> KillableWorker:
    return pick.of(conversation.workers)


def result(
    conversation: RandomConversation, call_id: CallId, content: Content, *, is_error: bool = False
) -> ToolMessage:
    return ToolMessage(MessageId(f"t{next(conversation.numbers)}"), call_id, content, is_error)


def approval(conversation: RandomConversation, pick: Pick, call_id: CallId) -> ApprovalMessage:
    name, approved = MessageId(f"a{next(conversation.numbers)}"), pick.below(3) < 2
    reason = "" if approved else pick.of(["", "not now"])
    return ApprovalMessage(name, call_id, approved, reason, approved and pick.seldom())


async def some_answers(conversation: RandomConversation, pick: Pick, most: int) -> list[Answer]:
    """Draw answers to calls that are owed, running, answered, the server's, or unknown.

    A few are of the wrong kind.
    """
    status, messages = await conversation.status(), await conversation.messages()
    known = [*(each.id for each in status.owed), *await conversation.begun(status)] * 3
    known += [each.id for each in calls_of(messages)[-4:]] + [CallId("nobody's")]
    asking = {each.id for each in calls_of(messages) if each.asks == "approval"}
    given: list[Answer] = []
    for _ in range(1 + pick.below(most)):
        call_id = pick.of(known)
        if (call_id in asking) is not pick.seldom():
            given.append(approval(conversation, pick, call_id))
        else:
            words = pick.of(["one", "two"])
            given.append(result(conversation, call_id, words, is_error=pick.seldom()))
    return given


# ---------------------------------------------------------------- outcomes of posts
async def send(conversation: RandomConversation, worker: KillableWorker, post: StartRun) -> None:
    """A new post. One whose calls are not handed back yet is answered some time later."""
    if conversation.waiting:
        return
    status, messages = await conversation.status(), await conversation.messages()
    posted = [each for each in post.messages if isinstance(each, Answer)]
    if {each.call_id for each in posted} & set(await conversation.begun(status)):
        await wait_with(conversation, worker, post, status)
        return
    expected = (
        expected_answer(posted, status, messages) if len(posted) == len(post.messages) else None
    )
    steady = conversation.steady
    answer = await deliver(conversation, worker, post)
    if expected and steady:
        assert kind_of(answer, conversation) == expected, (
            kind_of(answer, conversation),
            expected,
            posted,
            messages,
        )
    if post.on_busy in STOPS and status.running and isinstance(answer, RunRef):
        assert status.run_id is not None
        await followed(conversation.workers[0].runs, RunRef(conversation.key, status.run_id))


async def wait_with(
    conversation: RandomConversation, worker: KillableWorker, post: StartRun, status: Status
) -> None:
    scope, done = anyio.CancelScope(), anyio.Event()

    async def ask() -> None:
        with scope:
            await deliver(conversation, worker, post)
        if scope.cancelled_caught:
            conversation.doubtful.update(texts_of(post))
        conversation.waiting = None
        done.set()

    conversation.waiting = (status.run_id, worker, scope, done)
    conversation.tasks.start_soon(ask)


def texts_of(post: StartRun) -> list[object]:
    return [each.content for each in post.messages if isinstance(each, UserMessage)]


async def deliver(
    conversation: RandomConversation, worker: KillableWorker, post: StartRun
) -> Reply:
    """Post, and write down what was acknowledged."""
    try:
        answer = await worker.runs.start(post)
    except StoreUnavailable as error:
        conversation.doubtful.update(texts_of(post))
        return error
    except REFUSALS as error:
        return error
    own = answer not in [each.answer for each in conversation.accepted]
    if own:
        conversation.doubtful.difference_update(texts_of(post))
    conversation.accepted.append(Acknowledged(post, answer, own))
    return answer


def kind_of(answer: Reply, conversation: RandomConversation) -> str:
    if isinstance(answer, RunRef):
        return "runs" if conversation.accepted[-1].own else "joins"
    return "owes" if isinstance(answer, Parked) else answer.code


# ---------------------------------------------------------------- readers
async def a_reader_comes(conversation: RandomConversation, pick: Pick) -> None:
    if conversation.runs:
        reader = Reader(pick.of(conversation.runs[:-3:-1]))
        conversation.readers.append(reader)
        conversation.tasks.start_soon(reader.follow, a_worker(conversation, pick))


async def a_reader_comes_back(conversation: RandomConversation, pick: Pick) -> None:
    """Come back to any worker, behind what was seen last."""
    if conversation.readers:
        reader = pick.of(conversation.readers[:-3:-1])
        await reader.leave()
        conversation.tasks.start_soon(reader.follow, a_worker(conversation, pick))


async def a_reader_leaves(conversation: RandomConversation, pick: Pick) -> None:
    if conversation.readers:
        await pick.of(conversation.readers[:-3:-1]).leave()


# ---------------------------------------------------------------- ends, deaths, and those who go on
async def cancel(conversation: RandomConversation, pick: Pick) -> None:
    if conversation.runs:
        run = pick.of(conversation.runs[:-3:-1])
        if await a_worker(conversation, pick).runs.cancel(run):
            await followed(conversation.workers[0].runs, run)


async def kill(conversation: RandomConversation, pick: Pick) -> None:
    await conversation.kill_worker(a_worker(conversation, pick))
    await conversation.start_worker()


async def stop(conversation: RandomConversation, pick: Pick) -> None:
    """Stop a worker as a deploy does: its runs are left to others."""
    worker = a_worker(conversation, pick)
    await worker.runs.drain(0)
    await conversation.kill_worker(worker)
    await conversation.start_worker()


async def visit(conversation: RandomConversation, pick: Pick) -> None:
    """Look at the conversation: a worker that meets a lost run takes it over."""
    try:
        await a_worker(conversation, pick).runs.status(conversation.key)
    except UnknownConversation:
        assert conversation.accepted == []


async def a_boundary_is_set(conversation: RandomConversation, pick: Pick) -> None:
    """Between two runs: the model is not shown any more what was said before."""
    loaded = await conversation.store.load(conversation.key)
    status = loaded.status
    if status.running or status.owed or status.queued or status.version == 0:
        return
    state = status.state.with_history_start(status.message_count, loaded.messages)
    await conversation.store.park(
        Change(conversation.key, new_nonce(), status.version, state=state)
    )


async def the_store_fails(conversation: RandomConversation, pick: Pick) -> None:
    """Let one of the next writes of a run fail."""
    faults: list[Fault] = ["lose reply", "refuse"]
    plan = a_worker(conversation, pick).faults.plan
    plan[pick.of(["commit", "append", "renew"])].append(pick.of(faults))


async def an_answer_is_lost(conversation: RandomConversation, pick: Pick) -> None:
    """A post that was stored, or not: its client does not know, and repeats it elsewhere."""
    status = await conversation.status()
    if conversation.waiting or status.lapsed or status.queued:
        return  # the failure would hit what others posted
    one, other = conversation.workers[:: pick.of([1, -1])]
    name = MessageId(f"u{next(conversation.numbers)}")
    post = StartRun(
        conversation.key,
        (UserMessage(name, f"words {name}"),),
        TOOLS,
        named=frozenset([name]),
        on_busy=pick.of(ON_BUSY[:2]),
    )
    fault: Fault = pick.of(["lose reply", "refuse"])
    for write in ("begin", "enqueue"):
        one.faults.plan[write] = [fault]
    leases = len(one.faults.leases)
    answer = await deliver(conversation, one, post)
    one.faults.plan.update(begin=[], enqueue=[])
    await conversation.store.renew(one.faults.leases[leases:], lease=0)  # as time does
    if isinstance(answer, StoreUnavailable):
        await deliver(conversation, other, replace(post))


async def end(conversation: RandomConversation) -> None:
    """Let all that runs come to its end, and cancel what waits."""
    while True:
        await visit(conversation, Pick(0))
        await conversation.settle()
        status = await conversation.status()
        if status.queued:
            await conversation.workers[0].runs.cancel(RunRef(conversation.key, status.queued[0]))
        elif not status.running:
            return
        await a_tool_ends(conversation, Pick(0))
        if open_answer := conversation.open_answer():
            open_answer.say(TextChunk("the end"), Finish("stop"), None)


STEPS: list[ConversationStep] = [
    *[say, say, call, call, a_turn, a_turn, a_turn, finish, finish, fail, a_tool_ends, a_tool_ends],
    *[message, message, message, answers, answers, answers, right_answers, right_answers, repeat],
    *[a_reader_comes, a_reader_comes_back, a_reader_leaves, nobody_follows, cancel],
    *[a_turn_that_asks, a_turn_that_asks, right_answers, right_answers, a_bad_answer],
    *[kill, kill, stop, visit, visit, a_boundary_is_set, the_store_fails, an_answer_is_lost],
]
