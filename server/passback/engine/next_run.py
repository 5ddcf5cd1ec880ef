"""Decide what a conversation needs next: a run that begins, goes on or ends, and the change.

Nothing is written here, and all that matters is an argument, so that a search can play it. What has
to be read beside the loaded conversation comes from a `RunRecords`.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Final, Literal, Protocol, TypeAlias

from passback.core.admission import Begins, Parks, begin_queued_run, close_open_calls
from passback.core.changes import Change, LoadedConversation, OpenTurns, QueuedPost
from passback.core.errors import CursorExpired, UnknownRun
from passback.core.events import (
    START,
    Failed,
    Logged,
    Position,
    Rewound,
    RunEvent,
    ToolProgressed,
    join_events,
    stream_of,
    unwrap_event,
)
from passback.core.ids import new_message_id, new_nonce
from passback.core.messages import (
    Answer,
    CallId,
    ChildMessage,
    ConversationKey,
    Message,
    RunId,
    RunRef,
    SummaryMessage,
    ToolMessage,
)
from passback.core.posts import Receipt, StartRun
from passback.core.titles import first_title
from passback.core.transcript import posted_count, waiting_calls
from passback.engine.assembler import result_event
from passback.engine.branching import Branches, on_branch, read_from
from passback.engine.children import nest_event
from passback.engine.log import record_messages

LOST_RUN: Final = Failed("lost", "the workers of this run died before its end", retryable=True)

Need: TypeAlias = Literal["take over", "fail", "begin", "go on"]
"""What a conversation needs.

`take over`: another worker for its run. `fail`: the end of its run. `begin`: the run of the first
post that waits. `go on`: a run without the answers that came too late.
"""

_Path: TypeAlias = tuple[CallId, ...]


class RunLogs(Protocol):
    """The logs of runs, as `Ledger` has them."""

    async def read_log(self, run: RunRef, /, *, after: Position = START) -> Sequence[Logged]: ...


def next_need(
    loaded: LoadedConversation, /, *, max_attempts: int, supersede: bool = False
) -> Need | None:
    """Return what a conversation needs, if anything.

    Args:
        loaded: the conversation; its messages do not matter.
        max_attempts: workers that may try one run.
        supersede: the first queued post begins, whatever the client owes.
    """
    status = loaded.status
    if status.lapsed and status.run_id is not None:
        # a run that kills each of its workers must not be started for ever
        return "take over" if status.attempt < max_attempts else "fail"
    if loaded.queue and not status.running and (supersede or not status.owed):
        return "begin"
    return "go on" if status.overdue and status.owed else None


# ---------------------------------------------------------------- lost runs
def lost_run_change(
    run: RunRef, loaded: LoadedConversation, append: Sequence[ToolMessage], /
) -> Change:
    """Return the change with which a lost run goes on, or ends; `append` closes calls."""
    recorded = record_messages(run.key, append, run.run_id)
    return Change(run.key, new_nonce(), loaded.status.version, recorded)


async def take_over_events(
    logs: RunLogs, run: RunRef, loaded: LoadedConversation, append: Sequence[ToolMessage], /
) -> tuple[RunEvent, ...]:
    """Return the log's events of a take-over: what is void, what is repeated, and the answers to
    server calls that were closed.

    Raises:
        StoreError: the log could not be read.
    """
    owed = {each.call.id for each in waiting_calls(loaded.messages)}
    answered = [result_event(each) for each in append if each.call_id not in owed]
    status = loaded.status
    if status.open_turns is None:
        return (Rewound(status.committed), *answered)
    try:
        said = await _committed_events(logs, run, status.committed, status.open_turns)
    except (CursorExpired, UnknownRun):  # so much was said meanwhile that the log has lost it
        return (Rewound(START), *answered)
    return (Rewound(status.committed), *said, *answered)


async def _committed_events(
    logs: RunLogs, run: RunRef, place: Position, open_turns: OpenTurns
) -> list[RunEvent]:
    """Return the events after `place`, which is `Status.committed`, that are committed all the
    same. The pieces of each text and of each call's arguments are joined, also with another agent's
    events in between.

    Raises:
        CursorExpired, UnknownRun: the log no longer has them.
        StoreError: the log could not be read.
    """
    end, begun = open_turns.end, {each.path: each.after for each in open_turns.turns}
    parts: list[tuple[_Path, list[RunEvent]]] = []
    last: dict[_Path, list[RunEvent]] = {}
    while place < end and (batch := await logs.read_log(run, after=place)):
        place = batch[-1].position
        for logged in batch:
            path, event = unwrap_event(logged.event)
            # a call that goes on tells its progress anew
            if logged.position > begun.get(path, end) or isinstance(event, ToolProgressed):
                continue
            stream, part = stream_of(event), last.get(path)
            if part is not None and stream is not None and stream_of(part[0]) == stream:
                part.append(event)
            else:
                last[path] = [event]
                parts.append((path, last[path]))
    return [nest_event(path, join_events(part)) for path, part in parts]


# ---------------------------------------------------------------- runs that begin
async def queued_change(
    branches: Branches, key: ConversationKey, loaded: LoadedConversation, /
) -> tuple[Change, LoadedConversation]:
    """Return the change with which the first queued post begins, and the conversation before it on
    the branch of that post.
    """
    queued = loaded.queue[0]
    post, tree = queued.post, loaded.status.tree
    fresh = [each for each in post.messages if not isinstance(each, Answer)]
    mint = partial(new_message_id, key)
    # what the client answered with a later post is not to be closed as superseded
    posted, overdue = (*_queued_answers(loaded.queue), *fresh), loaded.status.overdue
    if queued.follows is not None and queued.follows != tree.leaf:
        closed = close_open_calls(loaded.messages, mint, posted=posted, overdue=overdue)
        verdict = Begins(tuple(fresh), closed.receipts, closed.append)
        loaded = await on_branch(branches, key, loaded, queued.follows)
    else:
        # `follows` says what to keep
        if queued.follows is None and post.on_busy == "rollback" and loaded.status.stopped_early:
            loaded = await _without_last_run(branches, key, loaded)
        verdict = begin_queued_run(loaded.messages, posted, mint, overdue=overdue)
    change = posted_change(post, loaded, verdict, queued.run_id)
    return replace(change, dequeues=queued.run_id), loaded


async def _without_last_run(
    branches: Branches, key: ConversationKey, loaded: LoadedConversation
) -> LoadedConversation:
    """Return the conversation without its last run and the message that run answered."""
    start, tree = loaded.status.run_start, loaded.status.tree
    keep = start + _earlier_count(await read_from(branches, key, loaded, start))
    return await on_branch(branches, key, loaded, tree.ends_before(keep).leaf)


def late_change(key: ConversationKey, loaded: LoadedConversation, run_id: RunId, /) -> Change:
    """Return the change with which the model goes on with the answers that came in time."""
    answers, mint = _queued_answers(loaded.queue), partial(new_message_id, key)
    verdict = begin_queued_run(loaded.messages, answers, mint, overdue=True)
    return posted_change(StartRun(key, ()), loaded, verdict, run_id)


def _queued_answers(queue: Sequence[QueuedPost]) -> list[Answer]:
    """Return the answers of the client in posts that wait."""
    posted = [message for each in queue for message in each.post.messages]
    return [message for message in posted if isinstance(message, Answer)]


def posted_change(
    post: StartRun,
    loaded: LoadedConversation,
    verdict: Begins | Parks,
    run_id: RunId | None = None,
    /,
) -> Change:
    """Return the change of an admitted post; it applies if the conversation is as it was judged.

    `loaded`: the conversation, on the branch on which the post goes on. `run_id`: of the run that
    begins.
    """
    status, is_moved = loaded.status, loaded.status.unchanged is not None
    state = status.state.with_answers(verdict.append, loaded.messages)
    left = verdict.left if isinstance(verdict, Begins) else ()
    is_new = not (status.title or status.message_count)
    return Change(
        post.key,
        new_nonce(),
        status.version,
        append=record_messages(post.key, verdict.append, run_id),
        receipts={name: Receipt(print_, run_id) for name, print_ in verdict.receipts.items()},
        owed=verdict.owed if isinstance(verdict, Parks) else (),
        tools=post.tools,
        run_start=_run_start(post, loaded, verdict.append),
        cancel_on_disconnect=post.on_disconnect == "cancel",
        state=state if is_moved or state is not status.state else None,
        title=first_title(verdict.append) if is_new else None,
        leaf=status.tree.leaf if is_moved else None,
        left=record_messages(post.key, left, status.run_id),
        note=post.note,
    )


def _run_start(post: StartRun, loaded: LoadedConversation, append: Sequence[Message]) -> int:
    """Return the position of the message that a run answers, or of its own first one."""
    end = loaded.status.message_count
    # without messages, a run answers anew what was posted before
    if post.messages or post.after is None:
        return end + _earlier_count(append)
    return end - posted_count(loaded.messages)


def _earlier_count(behind: Sequence[Message]) -> int:
    """Return the number of leading messages that are not the run's own: a history, and results of
    earlier calls. They stay, whatever becomes of the run.
    """
    for count, message in enumerate(behind):
        if isinstance(message, Answer | ChildMessage):
            continue
        if isinstance(message, SummaryMessage) or not message.imported:
            return count
    return len(behind)
