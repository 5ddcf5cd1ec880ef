"""Steps of clients and of recovery: they judge a conversation as the service does.

What is not pure in the service is left out: budgets, sizes, and the agent. All the rest is called.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Final

from tests.model.actors import (
    ATTEMPTS,
    CLAIM,
    KEY,
    LEASE,
    NO_RUN,
    QUEUE,
    Answer,
    Claim,
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
    Switch,
    arrivals,
    decided,
    deliver,
    known_at,
)
from tests.model.apply_write import Conversation, read
from tests.model.names import CURRENT
from tests.model.reading import Reading, messages_of, records_of, result_of

from passback.core.admission import (
    Begins,
    Joins,
    Parks,
    Queues,
    Verdict,
    decide_unread_post,
)
from passback.core.changes import ClaimRequest, Enqueue, LoadedConversation, QueuedPost
from passback.core.conversation.commands import (
    Begin,
    Cancel,
    ClaimCall,
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
from passback.core.conversation.rules import Decided, Refused
from passback.core.conversation.store import TakeLease, Wanted, Write
from passback.core.conversation.tree import NO_MESSAGE
from passback.core.errors import ClientError, ConversationBusy, QueueFull, UnknownToolCall
from passback.core.events import Cancelled, RunFinished, RunQueued, RunStarted
from passback.core.ids import new_message_id, new_nonce, new_run_id
from passback.core.messages import (
    Answer as PostedAnswer,
)
from passback.core.messages import (
    ApprovalMessage,
    AssistantMessage,
    CallId,
    ChildMessage,
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
)
from passback.engine.branching import Place, find_place, switch_change
from passback.engine.loading import judged_snapshot
from passback.engine.log import record_messages
from passback.engine.next_run import (
    LOST_RUN,
    late_change,
    lost_run_change,
    next_need,
    posted_change,
    queued_change,
    take_over_events,
)

_WAITING: Final = {ConversationBusy.__name__, QueueFull.__name__}
"""Errors after which a client posts the same again."""

MOST: Final = 2**20  # bytes of a branch, more than any has
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
        case Switch(to):
            yield from _switching(scene, known, client, to)
        case Claim(releases):
            yield from _claiming(scene, known, client, releases)
        case intent:
            yield from _posting(scene, known, client, intent)


def _next(scene: Scene, client: Client) -> Client:
    """Return the client after its post was answered: it posts it again, or goes on."""
    if client.left:
        return client._replace(left=client.left - 1, sent=None, supersedes=False)
    script, place = scene.scripts[client.name], client.place + 1
    left = script[place].repeats if place < len(script) else 0
    return Client(client.name, place, left, holds=client.holds)


def first_client(scene: Scene, name: str) -> Client:
    return Client(name, 0, scene.scripts[name][0].repeats)


def _posting(
    scene: Scene, known: Conversation, client: Client, intent: Say | Answer | Stray
) -> Iterator[Step]:
    brings = isinstance(intent, Answer) or (isinstance(intent, Say) and bool(intent.brings))
    if brings and not client.calls:
        yield from _reading_calls(known, client)
        return
    after = intent.after if isinstance(intent, Say) else None
    if after is not None and after >= len(known.messages):
        return
    post = _post(known, intent, client.calls)
    loaded = loaded_at(known, tuple(sorted(receipt_names(post))))
    if loaded.status.lapsed:
        return  # recovery comes first
    place = result_of(find_place(Reading(known), post, loaded, most=MOST))
    judged = judge(scene, loaded, post, place)
    verdict = judged.verdict
    waits = _WAITING | ({UnknownToolCall.__name__} if loaded.status.running else set())
    label = f"client {client.name} posts {_words(intent)}"
    if isinstance(verdict, str):
        goes_on = client if verdict in waits else _next(scene, client)
        yield Step(f"{label}: {verdict}", known, (goes_on,), judged=judged)
    elif isinstance(verdict, Joins) or (isinstance(verdict, Parks) and not verdict.append):
        yield Step(f"{label}: a repeat", known, (_next(scene, client),), judged=judged)
    else:
        yield _storing(known, client, label, _write_post(known, loaded, judged, place), judged)


def _reading_calls(known: Conversation, client: Client) -> Iterator[Step]:
    status = loaded_at(known).status
    if status.owed and not status.running:
        calls = tuple(f"{each.kind}:{each.id}" for each in status.owed)
        reads = client._replace(calls=calls)
        yield Step(f"client {client.name} reads what it owes", known, (reads,))


def _storing(
    known: Conversation, client: Client, label: str, sent: Sent | Refused | None, judged: Judged
) -> Step:
    if isinstance(sent, Sent):
        return Step(f"{label}: {sent.what}", known, (client._replace(sent=sent),), judged=judged)
    why = sent.reason if sent else "nothing to do"
    return Step(f"{label}: {why}", known, (client,), judged=judged._replace(refused=why))


def _post(known: Conversation, intent: Say | Answer | Stray, calls: tuple[str, ...]) -> StartRun:
    match intent:
        case Say():
            chosen = MessageId(f"own-{intent.text}") if intent.named else new_message_id(KEY)
            said = (UserMessage(chosen, intent.text),) if intent.text else ()
            answers = _answers(calls, intent.brings)
            named = frozenset({chosen} if intent.named else ())
            return StartRun(
                KEY,
                (*answers, *said),
                idempotency_key=intent.key,
                named=named,
                on_busy=intent.on_busy,
                after=None if intent.after is None else _id_of(known, intent.after),
            )
        case Answer():
            given = _answers(calls[:1] if intent.only_first else calls, intent.content)
            return StartRun(KEY, given, idempotency_key=intent.key, continues=True)
        case Stray():
            return StartRun(KEY, _answers((f"tool_result:{UNKNOWN_CALL}",), "done"))


def _id_of(known: Conversation, number: int) -> MessageId:
    """Return what a client names a message by."""
    if number == NO_MESSAGE:
        return MessageId("")
    message = messages_of(known.messages)[number]
    assert not isinstance(message, ChildMessage)
    return message.id


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
            after = "" if intent.after is None else f", after message {intent.after}"
            return f"{intent.text!r}{key}{after} ({intent.on_busy})"
        case Answer():
            return f"the answer {intent.content!r}"
        case Stray():
            return "a result of no call"


def judge(scene: Scene, loaded: LoadedConversation, post: StartRun, place: Place) -> Judged:
    """Return what a post means; also by receipts alone, where that is enough."""
    snapshot = judged_snapshot(loaded, place.branch)
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
    known: Conversation, loaded: LoadedConversation, judged: Judged, place: Place
) -> Sent | Refused | None:
    post, verdict, run_id = judged.post, judged.verdict, new_run_id(KEY)
    base = place.branch or loaded
    match verdict:
        case Parks():
            return _sent(known, Park(posted_change(post, loaded, verdict)))
        case Begins():
            change = posted_change(post, base, verdict, run_id)
            command = Begin(change, run_id, (RunStarted(run_id),), LEASE)
            return _sent(known, command, run_id, after=place.follows)
        case Queues():
            messages = record_messages(KEY, verdict.messages)
            waits = replace(post, messages=messages, history=())
            queued = QueuedPost(run_id, waits, place.follows)
            receipts = {name: Receipt(each, run_id) for name, each in verdict.receipts.items()}
            opening, version = (RunQueued(run_id),), loaded.status.version
            entry = Enqueue(queued, receipts, opening, limit=QUEUE, expected=version)
            return _sent(known, Queue(entry, new_nonce()), run_id, after=place.follows)
        case _:
            return None


def _sent(
    known: Conversation,
    command: Command,
    run_id: RunId = NO_RUN,
    *,
    cancelled: bool = False,
    after: int | None = None,
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
    stored = known.messages + write.messages
    return Sent(
        write,
        type(command).__name__,
        False,
        run_id,
        dump_head(answer.head),
        records_of(answer.head.tree, stored),
        len(stored),
        cancelled,
        after,
        0 if answer.claim is None else answer.claim.until,
    )


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
    if sent.what == "ClaimCall":
        client = client._replace(holds=(client.calls[0], sent.until))
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


def _switching(scene: Scene, known: Conversation, client: Client, to: int) -> Iterator[Step]:
    """Yield what `BranchSwitch` does."""
    loaded = loaded_at(known)
    status = loaded.status
    if to >= status.stored or status.lapsed or status.overdue:
        return
    label = f"client {client.name} switches to message {to}"
    if status.running or status.queued:
        yield Step(f"{label}: ConversationBusy", known, (client,))
        return
    leaf = status.tree.newest_leaf(to, status.stored)
    if leaf == status.tree.leaf:
        yield Step(f"{label}: nothing to do", known, (_next(scene, client),))
        return
    change = result_of(switch_change(Reading(known), KEY, loaded, leaf))
    sent = _sent(known, Park(change), after=leaf)
    assert isinstance(sent, Sent), "the rules refuse a switch"
    yield Step(label, known, (client._replace(sent=sent),))


def _claiming(scene: Scene, known: Conversation, client: Client, releases: bool) -> Iterator[Step]:
    """Yield what `RunService.claim_call` does."""
    status = loaded_at(known).status
    if status.lapsed or status.overdue:
        return
    owed = "" if status.running else next((each.id for each in status.owed), "")
    calls = client.calls or ((owed,) if owed else ())
    if not calls:
        return
    label = f"client {client.name} {'releases' if releases else 'claims'} a call"
    if calls[0] not in {each.id for each in status.owed}:
        yield Step(f"{label}: it is not owed", known, (_next(scene, client),))
        return
    request = ClaimRequest(KEY, new_nonce(), status.version, CallId(calls[0]), client.name)
    found = known_at(known)
    answer = decided(found, ClaimCall(request, 0 if releases else CLAIM), known.now)
    if isinstance(answer, Decided) and answer.write is None:
        refused = (_next(scene, client),)
        yield Step(f"{label}: CallClaimed", known, refused, blocked=calls[0])
        return
    sent = _sent(known, ClaimCall(request, 0 if releases else CLAIM))
    assert isinstance(sent, Sent), "the rules refuse the claim of an owed call"
    # whoever releases a call no longer counts on it
    holds = None if releases else client.holds
    yield Step(label, known, (client._replace(sent=sent, calls=calls, holds=holds),))


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
    need = next_need(loaded, max_attempts=ATTEMPTS, supersede=supersede)
    if need is None:
        return None
    if need in {"take over", "fail"}:
        assert loaded.status.run_id is not None
        return _lapsed(known, loaded, RunRef(KEY, loaded.status.run_id), ends=need == "fail")
    if need == "begin":
        change, _ = result_of(queued_change(Reading(known), KEY, loaded))
        queued, *others = loaded.queue
        run_id = queued.run_id
    else:
        run_id, others = new_run_id(KEY), [*loaded.queue]
        change = late_change(KEY, loaded, run_id)
    command = Begin(change, run_id, (RunStarted(run_id),), LEASE)
    return _sent(known, command, run_id, cancelled=any(each.stops for each in others))


def _lapsed(
    known: Conversation, loaded: LoadedConversation, run: RunRef, *, ends: bool
) -> Sent | Refused | None:
    messages, run_id = loaded.messages, run.run_id
    calls = unanswered_calls(messages) if ends else runnable_calls(messages)
    append = closing_results(calls, "interrupted", partial(new_message_id, KEY))
    void = result_of(take_over_events(Reading(known), run, loaded, append))
    change = lost_run_change(run, loaded, append)
    if ends:
        return _sent(known, FailLost(change, run_id, (*void, RunFinished(LOST_RUN))), run_id)
    command = TakeOver(change, run_id, void, LEASE)
    return _sent(known, command, run_id, cancelled=loaded.status.cancelled)


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
