"""Steps of clients and of recovery: they judge a conversation as the service does.

What is not pure in the service is left out: budgets, sizes, and the agent. All the rest is called.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from tests.model.actors import (
    ATTEMPTS,
    KEY,
    LEASE,
    NO_RUN,
    QUEUE,
    Answer,
    Client,
    Judged,
    Recovery,
    Run,
    Say,
    Scene,
    Sent,
    Step,
    Stop,
    Stray,
    arrivals,
    decided,
    deliver,
    known_at,
    messages_of,
)
from tests.model.apply_write import Conversation, read
from tests.model.names import CURRENT

from passback.core.admission import (
    Begins,
    Joins,
    Parks,
    Queues,
    Verdict,
    begin_queued_run,
    decide_unread_post,
)
from passback.core.changes import Change, Enqueue, LoadedConversation, QueuedPost
from passback.core.conversation.commands import (
    Begin,
    Cancel,
    Command,
    FailLost,
    Park,
    Queue,
    TakeOver,
)
from passback.core.conversation.head import (
    STATUS_FIELDS,
    TOOLS,
    dump_head,
    load_head,
    loaded_conversation,
)
from passback.core.conversation.rules import Refused
from passback.core.conversation.store import TakeLease, Wanted, Write
from passback.core.errors import ClientError, ConversationBusy, QueueFull, UnknownToolCall
from passback.core.events import Cancelled, Rewound, RunEvent, RunFinished, RunQueued, RunStarted
from passback.core.ids import new_message_id, new_nonce, new_run_id
from passback.core.messages import (
    Answer as PostedAnswer,
)
from passback.core.messages import (
    ApprovalMessage,
    AssistantMessage,
    CallId,
    MessageId,
    RunId,
    RunRef,
    ToolMessage,
    UserMessage,
)
from passback.core.posts import Receipt, StartRun, receipt_names
from passback.core.transcript import (
    closing_results,
    runnable_calls,
    unanswered_calls,
    waiting_calls,
)
from passback.engine.assembler import result_event
from passback.engine.loading import judged_snapshot
from passback.engine.log import record_messages
from passback.engine.recovery import (
    LOST_RUN,
    _begins_next,
    _calls_timed_out,
    _queued_answers,
    posted_change,
)

UNKNOWN_CALL = "call_unknown"


def loaded_at(known: Conversation, names: tuple[str, ...] = ()) -> LoadedConversation:
    wanted = Wanted((*STATUS_FIELDS, TOOLS), names, queue=True, within=float("inf"))
    return loaded_conversation(read(known, wanted))


# ---------------------------------------------------------------- clients
def client_steps(scene: Scene, known: Conversation, client: Client) -> Iterator[Step]:
    script = scene.scripts[client.name]
    if client.place >= len(script):
        return
    if client.sent is not None:
        yield from _answered(scene, known, client, client.sent)
        yield from arrivals(known, client, client.sent)
        lost = client._replace(sent=None, supersedes=False)
        yield Step(f"client {client.name}: its worker crashes", known, (lost,), "crash")
        return
    if client.supersedes:
        yield from _superseding(scene, known, client)
        return
    match script[client.place]:
        case Stop(waiting):
            yield from _stopping(scene, known, client, waiting)
        case intent:
            yield from _posting(scene, known, client, intent)


def _next(scene: Scene, client: Client) -> Client:
    """Return the client after its post was answered: it posts it again, or goes on."""
    if client.left:
        return client._replace(left=client.left - 1, sent=None, supersedes=False)
    script, place = scene.scripts[client.name], client.place + 1
    left = script[place].repeats if place < len(script) else 0
    return Client(client.name, place, left)


def first_client(scene: Scene, name: str) -> Client:
    return Client(name, 0, scene.scripts[name][0].repeats)


def _posting(
    scene: Scene, known: Conversation, client: Client, intent: Say | Answer | Stray
) -> Iterator[Step]:
    brings = isinstance(intent, Answer) or (isinstance(intent, Say) and bool(intent.brings))
    if brings and not client.calls:
        status = loaded_at(known).status
        if status.owed and not status.running:
            calls = tuple(f"{each.kind}:{each.id}" for each in status.owed)
            yield Step(
                f"client {client.name} reads what it owes", known, (client._replace(calls=calls),)
            )
        return
    post = _post(intent, client.calls)
    names = tuple(sorted(receipt_names(post)))
    loaded = loaded_at(known, names)
    if loaded.status.lapsed:
        return  # recovery comes first
    judged = judge(scene, loaded, post)
    label = f"client {client.name} posts {_words(intent)}"
    verdict = judged.verdict
    if isinstance(verdict, str):
        if verdict in {ConversationBusy.__name__, QueueFull.__name__} or (
            verdict == UnknownToolCall.__name__ and loaded.status.running
        ):
            yield Step(f"{label}: {verdict}", known, (client,), judged=judged)
            return
        yield Step(f"{label}: {verdict}", known, (_next(scene, client),), judged=judged)
        return
    if isinstance(verdict, Joins) or (isinstance(verdict, Parks) and not verdict.append):
        yield Step(f"{label}: a repeat", known, (_next(scene, client),), judged=judged)
        return
    sent = _write_post(known, loaded, post, verdict)
    if not isinstance(sent, Sent):
        why = sent.reason if sent else "nothing to do"
        yield Step(f"{label}: {why}", known, (client,), judged=judged._replace(refused=why))
        return
    yield Step(f"{label}: {sent.what}", known, (client._replace(sent=sent),), judged=judged)


def _post(intent: Say | Answer | Stray, calls: tuple[str, ...]) -> StartRun:
    match intent:
        case Say():
            chosen = MessageId(f"own-{intent.text}") if intent.named else new_message_id(KEY)
            said = UserMessage(chosen, intent.text)
            answers = _answers(calls, intent.brings)
            named = frozenset({chosen} if intent.named else ())
            return StartRun(
                KEY,
                (*answers, said),
                idempotency_key=intent.key,
                named=named,
                on_busy=intent.on_busy,
            )
        case Answer():
            given = _answers(calls[:1] if intent.only_first else calls, intent.content)
            return StartRun(KEY, given, idempotency_key=intent.key, continues=True)
        case Stray():
            return StartRun(KEY, _answers((f"tool_result:{UNKNOWN_CALL}",), "done"))


def _answers(calls: tuple[str, ...], content: str) -> tuple[PostedAnswer, ...]:
    answers: list[PostedAnswer] = []
    for each in calls:
        kind, _, call = each.partition(":")
        if kind == "approval":
            answers.append(ApprovalMessage(new_message_id(KEY), CallId(call), content == "done"))
        else:
            answers.append(ToolMessage(new_message_id(KEY), CallId(call), content))
    return tuple(answers)


def _words(intent: Say | Answer | Stray) -> str:
    match intent:
        case Say():
            key = f", key {intent.key}" if intent.key else ""
            return f"{intent.text!r}{key} ({intent.on_busy})"
        case Answer():
            return f"the answer {intent.content!r}"
        case Stray():
            return "a result of no call"


def judge(scene: Scene, loaded: LoadedConversation, post: StartRun) -> Judged:
    """Return what a post means; also by receipts alone, where that is enough."""
    snapshot = judged_snapshot(loaded)
    verdict: Verdict | str
    unread: object
    try:
        verdict = scene.decide_post(snapshot, post, partial(new_message_id, KEY))
    except ClientError as error:
        verdict = type(error).__name__
    try:
        short = replace(snapshot, messages=())
        unread = decide_unread_post(short, loaded.status.owed, post)
    except ClientError as error:
        unread = type(error).__name__
    return Judged(post, verdict, unread)


def _write_post(
    known: Conversation, loaded: LoadedConversation, post: StartRun, verdict: Verdict
) -> Sent | Refused | None:
    match verdict:
        case Parks():
            return _sent(known, Park(posted_change(post, loaded, verdict)))
        case Begins():
            run_id = new_run_id(KEY)
            change = posted_change(post, loaded, verdict, run_id)
            return _sent(known, Begin(change, run_id, (RunStarted(run_id),), LEASE), run_id)
        case Queues():
            run_id = new_run_id(KEY)
            messages = record_messages(KEY, verdict.messages)
            queued = QueuedPost(run_id, replace(post, messages=messages, history=()))
            receipts = {name: Receipt(each, run_id) for name, each in verdict.receipts.items()}
            opening, version = (RunQueued(run_id),), loaded.status.version
            entry = Enqueue(queued, receipts, opening, limit=QUEUE, expected=version)
            return _sent(known, Queue(entry, new_nonce()), run_id)
        case Joins():
            return None


def _sent(
    known: Conversation, command: Command, run_id: RunId = NO_RUN, *, cancelled: bool = False
) -> Sent | Refused | None:
    """Return the write of a command that is decided on a reading; None: nothing is to be done."""
    found = known_at(known)
    if isinstance(command, Queue):
        receipts = dict(known.receipts)
        names = [name for name in command.entry.receipts if name in receipts]
        found = replace(found, found=replace(found.found, receipts={n: receipts[n] for n in names}))
    answer = decided(found, command, known.now)
    if isinstance(answer, Refused):
        return answer
    if answer.write is None:
        return None
    # the first version is as random as an id, and only whether two are equal matters
    write = replace(answer.write, first_version=CURRENT)
    messages = known.branch + write.messages
    what = type(command).__name__
    stored = len(known.messages) + len(write.messages)
    return Sent(write, what, False, run_id, dump_head(answer.head), messages, stored, cancelled)


def _answered(scene: Scene, known: Conversation, client: Client, sent: Sent) -> Iterator[Step]:
    """Yield the arrival of a client's write, and of its answer."""
    after, applied = deliver(known, sent)
    label = f"client {client.name}: {sent.what}"
    if applied is None:
        again = client._replace(sent=None)
        yield Step(f"{label} comes too late", after, (again,), sent=sent)
        return
    label = f"{label} {'known' if sent.applied else 'applied'}"
    if sent.what == "Queue" and known_at(after).found.lease is None:
        begins = client._replace(sent=None, supersedes=True)
        yield Step(label, after, (begins,), sent=sent)
        return
    yield Step(label, after, (_next(scene, client), *started(sent)), sent=sent)


def _superseding(scene: Scene, known: Conversation, client: Client) -> Iterator[Step]:
    sent = recovered(known, supersede=True)
    if sent is None:
        yield Step(f"client {client.name}: nothing to begin", known, (_next(scene, client),))
        return
    yield Step(
        f"client {client.name}: {sent.what} of what waits", known, (client._replace(sent=sent),)
    )
    lost = client._replace(supersedes=False)
    yield Step(f"client {client.name}: its worker crashes", known, (lost,), "crash")


def _stopping(scene: Scene, known: Conversation, client: Client, waiting: bool) -> Iterator[Step]:
    found = known_at(known)
    waits = [each.run_id for each in found.found.queue]
    going_on = [found.head.run_id] if found.running and found.head.run_id else []
    targets = waits[::-1] if waiting else going_on
    if not targets:
        return
    command = Cancel(RunRef(KEY, targets[0]), RunFinished(Cancelled()), new_nonce())
    sent = _sent(known, command, targets[0])
    label = f"client {client.name} cancels a run"
    if not isinstance(sent, Sent):
        yield Step(f"{label}: nothing to do", known, (_next(scene, client),))
    else:
        yield Step(label, known, (client._replace(sent=sent),))


# ---------------------------------------------------------------- recovery
def recovery_steps(known: Conversation, recovery: Recovery) -> Iterator[Step]:
    sent = recovery.sent
    if sent is None:
        sent = recovered(known)
        if sent is not None:
            yield Step(f"recovery: {sent.what}", known, (Recovery(sent),))
        return
    after, applied = deliver(known, sent)
    begun = started(sent) if applied else ()
    label = f"recovery: {sent.what} {'applied' if applied else 'comes too late'}"
    yield Step(label, after, (Recovery(), *begun), sent=sent)
    yield from arrivals(known, recovery, sent)
    yield Step("recovery crashes", known, (Recovery(),), "crash")


def recovered(known: Conversation, *, supersede: bool = False) -> Sent | None:
    """Return the write by which a worker does what a conversation needs, if anything."""
    sent = _recovered(known, supersede=supersede)
    assert not isinstance(sent, Refused), "the rules refuse what recovery has just read"
    return sent


def _recovered(known: Conversation, *, supersede: bool) -> Sent | Refused | None:
    loaded = loaded_at(known)
    status = loaded.status
    if status.lapsed and status.run_id is not None:
        return _lapsed(known, loaded, status.run_id)
    if _begins_next(loaded, supersede=supersede):
        return _begin_next(known, loaded)
    if not _calls_timed_out(status):
        return None
    run_id, answers = new_run_id(KEY), _queued_answers(loaded.queue)
    verdict = begin_queued_run(loaded.messages, answers, partial(new_message_id, KEY), overdue=True)
    change = posted_change(StartRun(KEY, ()), loaded, verdict, run_id)
    stopped = any(each.stops for each in loaded.queue)
    command = Begin(change, run_id, (RunStarted(run_id),), LEASE)
    return _sent(known, command, run_id, cancelled=stopped)


def _lapsed(
    known: Conversation, loaded: LoadedConversation, run_id: RunId
) -> Sent | Refused | None:
    status, messages = loaded.status, loaded.messages
    goes_on = status.attempt < ATTEMPTS
    calls = runnable_calls(messages) if goes_on else unanswered_calls(messages)
    append = closing_results(calls, "interrupted", partial(new_message_id, KEY))
    owed = {each.call.id for each in waiting_calls(messages)}
    answered = [result_event(each) for each in append if each.call_id not in owed]
    void: tuple[RunEvent, ...] = (Rewound(status.committed), *answered)
    change = Change(KEY, new_nonce(), status.version, record_messages(KEY, append, run_id))
    if goes_on:
        return _sent(
            known, TakeOver(change, run_id, void, LEASE), run_id, cancelled=status.cancelled
        )
    return _sent(known, FailLost(change, run_id, (*void, RunFinished(LOST_RUN))), run_id)


def _begin_next(known: Conversation, loaded: LoadedConversation) -> Sent | Refused | None:
    queued, *others = loaded.queue
    fresh = [each for each in queued.post.messages if not isinstance(each, PostedAnswer)]
    posted = (*_queued_answers(loaded.queue), *fresh)
    verdict = begin_queued_run(
        loaded.messages, posted, partial(new_message_id, KEY), overdue=loaded.status.overdue
    )
    change = posted_change(queued.post, loaded, verdict, queued.run_id)
    change = replace(change, dequeues=queued.run_id)
    stopped = any(each.stops for each in others)
    command = Begin(change, queued.run_id, (RunStarted(queued.run_id),), LEASE)
    return _sent(known, command, queued.run_id, cancelled=stopped)


def started(sent: Sent) -> tuple[Run, ...]:
    """Return the run that a write has begun, or goes on with, in the worker that wrote it."""
    write = sent.write
    if not isinstance(write, Write) or not isinstance(write.lease, TakeLease):
        return ()
    head, entry = load_head(sent.head), write.log and write.log.entry
    own = messages_of(sent.messages)[head.run_start :]
    return (
        Run(
            write.lease.fence,
            sent.run_id,
            head.epoch,
            sent.head,
            sent.stored,
            0,
            entry.position.seq if entry else 0,
            sent.messages,
            sum(isinstance(each, AssistantMessage) for each in own),
            cancelled=sent.cancelled,
        ),
    )
