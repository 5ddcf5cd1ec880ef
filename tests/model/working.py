"""Steps of a run in a worker: it asks the model, commits, and ends under its lease."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from tests.model.actors import (
    ANSWERS,
    KEY,
    LEASE,
    AnswerKind,
    Run,
    Scene,
    Sent,
    Step,
    arrivals,
    decided,
    deliver,
    name_of,
)
from tests.model.apply_write import Conversation, append, holds
from tests.model.reading import messages_of

from passback.core.changes import Commit, Lease, LogWrite
from passback.core.conversation.commands import CommitTurn, Release
from passback.core.conversation.head import CANCEL, dump_head, load_head
from passback.core.conversation.rules import Decided, Known, log_entry
from passback.core.conversation.store import Append, Appended, Found, FoundLease, Write
from passback.core.events import (
    Cancelled,
    Completed,
    Failed,
    HandedBack,
    Outcome,
    RunEvent,
    RunFinished,
    TextDelta,
    ToolCallEnded,
    TurnEnded,
    TurnStarted,
)
from passback.core.ids import new_call_id, new_message_id
from passback.core.messages import (
    AssistantMessage,
    Message,
    MessageId,
    RunRef,
    ToolCall,
    ToolMessage,
)
from passback.core.transcript import (
    closing_results,
    owed_answers,
    runnable_calls,
    unanswered_calls,
    waiting_calls,
)
from passback.engine.assembler import result_event
from passback.engine.log import record_messages


class Turn(NamedTuple):
    """What a commit adds, and how the run ends with it."""

    what: str
    append: tuple[Message, ...] = ()
    events: tuple[RunEvent, ...] = ()
    outcome: Outcome | None = None
    turns: int = 0


def run_steps(scene: Scene, known: Conversation, run: Run) -> Iterator[Step]:
    who = name_of(run)
    yield Step(f"{who} crashes", known, (), "crash")
    if run.sent is not None:
        yield _written(known, run, run.sent)
        yield from arrivals(known, run, run.sent)
        return
    yield from _renewal(known, run)
    messages = messages_of(run.messages)
    for turn in _turns(scene, run, messages):
        sent = committed(scene, run, turn, known.now)
        yield Step(f"{who}: {turn.what}", known, (run._replace(sent=sent),))
    is_between = not (run.said or run.cancelled or unanswered_calls(messages))
    if scene.speaks and is_between and run.turns < scene.turns:
        yield Step(f"{who} speaks", known, (_speaking(run),))
    if scene.leaves and is_between:
        yield Step(f"{who} leaves", known, (run._replace(sent=_leaving(run, known.now)),), "crash")


def _lease(run: Run) -> Lease:
    return Lease(RunRef(KEY, run.run_id), run.epoch, run.fence)


def known_to(run: Run) -> Known:
    """Return what the holder of a lease knows of the conversation, as `Ledger.commit` has it."""
    found = Found(version=1, message_count=run.stored, lease=FoundLease("", 0))
    return Known(found, load_head(run.head))


# ---------------------------------------------------------------- turns
def _turns(scene: Scene, run: Run, messages: Sequence[Message]) -> Iterator[Turn]:
    """Yield how the run may go on."""
    if run.cancelled:
        yield _stopped(run, messages, Cancelled())
        return
    if runnable := runnable_calls(messages):
        result = ToolMessage(new_message_id(KEY), runnable[0].id, "ran")
        yield Turn("commits a result", (result,), (result_event(result),))
    elif waiting_calls(messages):
        yield _handed_back(messages, Turn("hands back"))
    elif run.turns >= scene.turns:
        yield Turn("ends: too many turns", outcome=Completed("max_turns"))
    else:
        for kind in scene.answers:
            yield _answer(run, messages, kind)


def _answer(run: Run, messages: Sequence[Message], kind: AnswerKind) -> Turn:
    if kind == "fail":
        return _stopped(run, messages, Failed("model", "the model failed"))
    message_id = MessageId(run.said) if run.said else new_message_id(KEY)
    calls = {
        "text": (),
        "client": (_call(client=True),),
        "two": (_call(client=True), _call(client=True)),
        "server": (_call(client=False),),
        "both": (_call(client=False), _call(client=True)),
        "ask": (replace(_call(client=False), asks="approval", reason="sure?"),),
    }[kind]
    message = AssistantMessage(message_id, "answer", calls)
    events: list[RunEvent] = [] if run.said else [TurnStarted(message_id), TextDelta("answer")]
    events.append(TurnEnded(message_id))
    if kind == "text":
        return Turn("ends with text", (message,), tuple(events), Completed(), 1)
    turn = Turn(f"commits calls ({kind})", (message,), tuple(events), turns=1)
    if runnable_calls((*messages, message)):
        return turn
    return _handed_back((*messages, message), turn._replace(what=f"hands back ({kind})"))


def _call(*, client: bool) -> ToolCall:
    return ToolCall(new_call_id(KEY), "tool", "{}", client)


def _handed_back(messages: Sequence[Message], turn: Turn) -> Turn:
    """Return the turn with the end of the run; `messages` are those after it."""
    calls = waiting_calls(messages)
    ends = [ToolCallEnded(each.call.id) for each in calls if each.call.client]
    outcome = HandedBack(tuple(each.owed for each in calls))
    return turn._replace(events=(*turn.events, *ends), outcome=outcome)


def _stopped(run: Run, messages: Sequence[Message], outcome: Outcome) -> Turn:
    added: list[Message] = []
    events: list[RunEvent] = []
    if run.said:
        added.append(AssistantMessage(MessageId(run.said), "answer", partial=True))
        events.append(TurnEnded(MessageId(run.said)))
    added += closing_results(
        unanswered_calls(messages), "interrupted", partial(new_message_id, KEY)
    )
    return Turn(f"ends {outcome.type}", tuple(added), tuple(events), outcome)


# ---------------------------------------------------------------- writes
def committed(scene: Scene, run: Run, turn: Turn, now: int) -> Sent:
    """Return the commit of a turn."""
    outcome = turn.outcome
    messages = record_messages(KEY, turn.append, run.run_id)
    after = (*messages_of(run.messages), *messages)
    owed = owed_answers(after) if outcome is not None else ()
    events = (*turn.events, *([RunFinished(outcome)] if outcome is not None else []))
    commit = Commit(
        LogWrite(_lease(run), run.seq + 1, events),
        run.step + 1,
        messages,
        owed,
        ends=outcome is not None,
        stopped_early=isinstance(outcome, Cancelled),
        answer_within=ANSWERS / 1000 if owed and scene.answer_in_time else None,
    )
    answer = decided(known_to(run), CommitTurn(commit, LEASE), now)
    assert isinstance(answer, Decided)
    assert answer.write is not None
    what = "end" if outcome is not None else "commit"
    records = run.messages + answer.write.messages
    return Sent(answer.write, what, False, run.run_id, dump_head(answer.head), records)


def _leaving(run: Run, now: int) -> Sent:
    answer = decided(known_to(run), Release(_lease(run)), now)
    assert isinstance(answer, Decided)
    assert answer.write is not None
    return Sent(answer.write, "release", run_id=run.run_id)


def _speaking(run: Run) -> Run:
    message_id = new_message_id(KEY)
    said = (TurnStarted(message_id), TextDelta("answer"))
    entry = log_entry(run.epoch, run.seq + 1, said)
    sent = Sent(Append(KEY, run.run_id, run.fence, entry), "text", run_id=run.run_id)
    return run._replace(said=message_id, sent=sent)


def _renewal(known: Conversation, run: Run) -> Iterator[Step]:
    """Yield a heartbeat, if it says or does anything."""
    sent = Sent(Append(KEY, run.run_id, run.fence), "heartbeat", run_id=run.run_id)
    after, answer = append(known, Append(KEY, run.run_id, run.fence), LEASE)
    who = name_of(run)
    if not answer.held:
        yield Step(f"{who} finds its lease lost", known, ())
    elif answer.signal == CANCEL and not run.cancelled:
        yield Step(f"{who} is told to end", after, (run._replace(cancelled=True),), sent=sent)
    elif after != known:
        yield Step(f"{who} renews its lease", after, (run,), sent=sent)


def _written(known: Conversation, run: Run, sent: Sent) -> Step:
    """Return the arrival of a run's write, and of its answer."""
    after, answer = deliver(known, sent)
    label = f"{name_of(run)}: {sent.what}"
    if isinstance(answer, Appended):
        label = f"{label} {'in the log' if answer.held else 'refused'}"
        return Step(label, after, _appended(run, sent, answer), sent=sent)
    if answer is None or sent.what in {"end", "release"}:
        return Step(f"{label} {'applied' if answer else 'refused'}", after, (), sent=sent)
    assert isinstance(sent.write, Write)
    entry = sent.write.log and sent.write.log.entry
    goes_on = run._replace(
        head=sent.head,
        stored=run.stored + len(sent.write.messages),
        step=run.step + 1,
        seq=entry.position.seq if entry else run.seq,
        messages=sent.messages,
        turns=run.turns + _turns_in(sent.write.messages),
        said="",
        sent=None,
    )
    return Step(f"{label} applied", after, (goes_on,), sent=sent)


def _appended(run: Run, sent: Sent, answer: Appended) -> tuple[Run, ...]:
    if not answer.held:
        return ()
    assert isinstance(sent.write, Append)
    entry = sent.write.entry
    seq = entry.position.seq if entry else run.seq
    cancelled = run.cancelled or answer.signal == CANCEL
    return (run._replace(seq=seq, cancelled=cancelled, sent=None),)


def _turns_in(records: Sequence[bytes]) -> int:
    return sum(isinstance(each, AssistantMessage) for each in messages_of(tuple(records)))


def is_owner(scene: Scene, known: Conversation, run: Run) -> bool:
    """Return whether the store would take the next write of a run under its lease."""
    write = committed(scene, run, Turn("commits nothing"), known.now).write
    if run.sent is not None and not run.sent.applied:
        write = run.sent.write
    if isinstance(write, Append):
        return append(known, write, LEASE)[1].held
    return holds(known, write)
