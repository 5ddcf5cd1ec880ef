"""The checkers: pure functions that return the violations in the evidence, as text.

`check_all` runs them for all conversations and runs. Histories are lists of messages as
`GET /conversations/{id}/messages` has them.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby

from tests.faults.evidence import (
    FinalState,
    Operation,
    message_token,
    run_outcome,
    select_events,
)
from tests.faults.mock_model import match_prompt
from tests.support.wire import DONE, Frame, Json

COMPLETED = frozenset({"completed", "handed-back"})
"""Outcomes of a run that nobody stops, whatever happens to its workers."""
STORE_FAILED = frozenset({"failed: store_unavailable"})
"""Its other outcome where the store itself fails: readers are told."""

_WORD = re.compile(r"(?P<call>\d+)\.(?P<index>\d+|end)")


# ---------------------------------------------------------------- all of them
@dataclass(frozen=True, slots=True)
class Expectations:
    """The conditions that differ between scenarios.

    Attributes:
        outcomes: how runs may end.
        acknowledged_share: share of the user messages that have to be acknowledged.
        allows_rollback: whether acknowledged messages may be removed again.
    """

    outcomes: frozenset[str] = COMPLETED
    acknowledged_share: float = 0.8
    allows_rollback: bool = False


def check_all(
    operations: Sequence[Operation],
    state: FinalState,
    shown: Mapping[int, Sequence[str]],
    expected: Expectations,
) -> list[str]:
    """Return the violations that all checkers found.

    Args:
        operations: all that clients did.
        state: the histories and runs in the end.
        shown: the tokens of the user messages that each model call was shown.
        expected: what this scenario expects.
    """
    found = [
        state.unreadable,
        check_protocol(operations),
        check_acknowledged_share(operations, expected.acknowledged_share),
    ]
    for conversation, history in state.histories.items():
        own = [each for each in operations if each.post.conversation == conversation]
        removed = _rolled_back(own, state) if expected.allows_rollback else set[str]()
        problems = [
            *check_messages(own, history, rolled_back=removed),
            *check_order(own, history),
            *check_answers(history),
            *check_tool_results(history),
            *check_context(history, shown),
            *chain.from_iterable(
                check_answer_stored(history, each) for each in own if each.post.token not in removed
            ),
        ]
        found.append([f"{conversation}: {problem}" for problem in problems])
    for run_id, frames in state.replays.items():
        found.append(check_single_end(run_id, frames))
        found.append(check_outcome(run_id, frames, expected.outcomes))
    found += [
        check_stream(each, state.replays[each.run_id])
        for each in operations
        if each.run_id in state.replays
    ]
    return list(chain.from_iterable(found))


def _rolled_back(operations: Sequence[Operation], state: FinalState) -> set[str]:
    """Return the tokens of stopped runs, if any post asked for a rollback."""
    if not any(each.post.policy == "rollback" for each in operations):
        return set()
    return {
        each.post.token
        for each in operations
        if run_outcome(state.replays.get(each.run_id, ())) == "cancelled"
    }


# ---------------------------------------------------------------- messages
def check_messages(
    operations: Iterable[Operation], history: Sequence[Json], *, rolled_back: Collection[str] = ()
) -> list[str]:
    """Check that acknowledged messages are there once, refused ones never, others at most once.

    Args:
        operations: all posts to one conversation.
        history: of that conversation.
        rolled_back: tokens of acknowledged messages that a rollback may have removed.
    """
    return list(_message_violations(operations, history, rolled_back))


def _message_violations(
    operations: Iterable[Operation], history: Sequence[Json], rolled_back: Collection[str]
) -> Iterator[str]:
    times = Counter(token for message in history if (token := message_token(message)))
    for operation in operations:
        token, found = operation.post.token, times.pop(operation.post.token, 0)
        if found > 1:
            yield f"{token} was posted once and is there {found} times"
        if found and operation.completion == "refused":
            yield f"{token} was refused ({operation.refusal}) and is there"
        if not found and operation.completion == "ok" and token not in rolled_back:
            yield f"{token} was acknowledged and is lost"
    yield from (f"{token} is there and was never posted" for token in times)


def check_order(operations: Iterable[Operation], history: Sequence[Json]) -> list[str]:
    """Check that a message acknowledged before another post was sent comes before it."""
    places = {message_token(message): place for place, message in enumerate(history)}
    stored = [each for each in operations if each.post.token in places]
    stored.sort(key=lambda each: places[each.post.token])
    violations: list[str] = []
    latest, latest_token = float("-inf"), ""
    for operation in stored:
        token = operation.post.token
        if operation.acknowledged is not None and operation.acknowledged < latest:
            violations.append(
                f"{token} was acknowledged before {latest_token} was posted, and comes after it"
            )
        if operation.invoked > latest:
            latest, latest_token = operation.invoked, token
    return violations


def check_context(history: Sequence[Json], shown: Mapping[int, Sequence[str]]) -> list[str]:
    """Check that each stored answer was given to exactly the user messages before it.

    Args:
        history: of one conversation.
        shown: the tokens of the user messages that each model call was shown.
    """
    before: list[str] = []
    violations: list[str] = []
    for message in history:
        if found := match_prompt(message):
            before.append(found["token"])
        for call in _model_calls(message):
            tokens = list(shown.get(call, ()))
            if tokens != before:
                violations.append(
                    f"model call {call} was shown {tokens[-3:]}, its answer follows {before[-3:]}"
                )
    return violations


def _model_calls(message: Json) -> list[int]:
    """Return the numbers of the model calls that wrote an answer."""
    if message["role"] != "assistant":
        return []
    return sorted({int(word["call"]) for word in _WORD.finditer(str(message["content"]))})


# ---------------------------------------------------------------- answers
def find_answer_defect(text: str, *, partial: bool = False) -> str:
    """Say why a text is not the answer of one model call, without gaps and to its end; or ""."""
    words = list(_WORD.finditer(text))
    if len({word["call"] for word in words}) > 1:
        return "it mixes several model calls"
    indexes = [word["index"] for word in words if word["index"] != "end"]
    if indexes != [str(place) for place in range(1, len(indexes) + 1)]:
        return "it has gaps or repeats"
    ends = [word for word in words if word["index"] == "end"]
    if not partial and len(ends) != 1:
        return "its end is missing" if not ends else "it ends twice"
    return ""


def check_answers(history: Sequence[Json]) -> list[str]:
    """Check that each answer follows its message, and is complete unless it is marked partial."""
    violations: list[str] = []
    last = ""
    for message in history:
        if found := match_prompt(message):
            last = found["token"]
        if message["role"] != "assistant":
            continue
        text, partial = str(message["content"]), bool(message.get("partial"))
        if problem := find_answer_defect(text, partial=partial):
            violations.append(f"answer to {last}: {problem}: {text[:60]!r}")
        if _WORD.search(text) and not text.startswith(f"re {last}: "):
            violations.append(f"answer to {last} is another's: {text[:60]!r}")
    return violations


def check_tool_results(history: Sequence[Json]) -> list[str]:
    """Check that each call has one result, next to it, or is still open at the end."""
    violations: list[str] = []
    open_calls: list[str] = []
    for message in history:
        if message["role"] == "tool":
            call = message["toolCallId"]
            if call in open_calls:
                open_calls.remove(call)
            else:
                violations.append(f"a result answers no open call: {call}")
            continue
        if open_calls:
            violations.append(f"calls were left open: {open_calls}")
        open_calls = [call["id"] for call in message.get("toolCalls") or ()]
    return violations


def check_unsafe_tools(starts: Iterable[str]) -> list[str]:
    """Check that no call of the server tool `once`, which is unsafe to repeat, started twice.

    Args:
        starts: tool, run and call of each start.
    """
    times = Counter(each for each in starts if each.startswith("once "))
    return [f"{each} was started {count} times" for each, count in times.items() if count > 1]


# ---------------------------------------------------------------- runs
def check_single_end(run_id: str, frames: Sequence[Frame]) -> list[str]:
    """Check that a run has one terminal event, the last of its log, and then one `[DONE]`."""
    kinds = [frame.type for frame in frames]
    if kinds.count("run-end") != 1 or kinds.count(DONE) != 1:
        return [f"{run_id} has {kinds.count('run-end')} ends and {kinds.count(DONE)} [DONE]"]
    if kinds[-2:] != ["run-end", DONE]:
        return [f"{run_id} continues after its end: {kinds[-3:]}"]
    return []


def check_outcome(run_id: str, frames: Sequence[Frame], allowed: Collection[str]) -> list[str]:
    """Check that a run ended in one of these ways, such as `completed` or `failed: lost`."""
    outcome = run_outcome(frames)
    return [] if outcome in allowed else [f"{run_id} ended as {outcome or 'nothing'}"]


# ---------------------------------------------------------------- streams
def check_answer_stored(history: Sequence[Json], operation: Operation) -> list[str]:
    """Check that an answer that a client read to its end is in the history, word for word."""
    if not operation.ended or operation.outcome not in COMPLETED:
        return []
    if operation.text in _answer_texts(history):
        return []
    text = operation.text[:60]
    return [f"{operation.post.token}: its client read {text!r}, which is not stored"]


def _answer_texts(history: Sequence[Json]) -> set[str]:
    """Return the text of each answer, and of those joined that only tools separate."""
    texts: set[str] = set()
    joined_text = ""
    for message in history:
        if message["role"] == "user":
            joined_text = ""
        if message["role"] == "assistant":
            joined_text += str(message["content"])
            texts |= {joined_text, str(message["content"])}
    return texts


def check_stream(operation: Operation, replay: Sequence[Frame]) -> list[str]:
    """Check that after disconnects and rewinds a client has what a fresh read of the run gives."""
    if not operation.ended:
        return [f"{operation.post.token} never ended for its client"]
    held, fresh = join_pieces(operation.frames), join_pieces(replay)
    if held == fresh:
        return []
    differs = next((pair for pair in zip(held, fresh, strict=False) if pair[0] != pair[1]), None)
    what = differs or f"{len(held)} pieces instead of {len(fresh)}"
    return [f"{operation.post.token}: its stream is not the run's: {what}"]


def join_pieces(frames: Iterable[Frame]) -> list[Json]:
    """Return the events, with neighbouring pieces of a text or of a call's arguments as one.

    Unlike `wire.merged` it ignores ids, and keeps an event that comes twice.
    """
    pieces: list[Json] = []
    for _, group in groupby(select_events(frames), key=_event_kind):
        first, *rest = [dict(event) for event in group]
        for field in {"content", "delta"} & first.keys():
            first[field] = "".join(str(each[field]) for each in (first, *rest))
        pieces += [first] if {"content", "delta"} & first.keys() else [first, *rest]
    return pieces


def _event_kind(event: Json) -> tuple[str, str]:
    return str(event["type"]), str(event.get("toolCallId"))


# ---------------------------------------------------------------- clients
def check_protocol(operations: Iterable[Operation]) -> list[str]:
    """Check that no client got a 500, a refused resume, or a malformed frame."""
    return [f"{each.post.token}: {error}" for each in operations for error in each.protocol_errors]


def check_recovery_times(seconds: Iterable[float | None], limit: float) -> list[str]:
    """Check that after each fault a post was accepted again within the limit; None: never."""
    return [
        "a conversation did not recover" if each is None else f"recovered only after {each:.1f} s"
        for each in seconds
        if each is None or each > limit
    ]


def check_acknowledged_share(operations: Iterable[Operation], share: float) -> list[str]:
    """Check that so many user messages were acknowledged: a run of failures proves nothing.

    Tool results do not count: they are refused if another post has superseded their call.
    """
    posts = [each for each in operations if not each.post.call_id]
    acknowledged = sum(each.completion == "ok" for each in posts)
    if acknowledged >= share * len(posts):
        return []
    return [f"only {acknowledged} of {len(posts)} user messages were acknowledged"]
