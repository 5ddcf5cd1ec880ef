"""What must be true of the evidence, whatever went wrong. Pure functions; each gives the faults that it found, as text.

Histories are lists of messages as `GET /conversations/{id}/messages` has them.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from tests.faults.records import Operation, events_of, outcome_of, token_of
from tests.faults.traced_model import order_in
from tests.support.wire import DONE, Frame, Json

_WORD = re.compile(r"(?P<call>\d+)\.(?P<index>\d+|end)")


# ---------------------------------------------------------------- messages
def kept(
    operations: Iterable[Operation], history: Sequence[Json], *, taken_back: Collection[str] = ()
) -> list[str]:
    """Every acknowledged message is there once, no refused one is, any other at most once.

    Args:
        operations: all posts to one conversation.
        history: of that conversation.
        taken_back: tokens of acknowledged messages that a rollback may have removed.
    """
    return list(_kept(list(operations), history, taken_back))


def _kept(
    operations: list[Operation], history: Sequence[Json], taken_back: Collection[str]
) -> Iterator[str]:
    times = Counter(token for message in history if (token := token_of(message)))
    for operation in operations:
        token, found = operation.post.token, times.pop(operation.post.token, 0)
        if found > 1:
            yield f"{token} was posted once and is there {found} times"
        if found and operation.verdict == "refused":
            yield f"{token} was refused ({operation.refusal}) and is there"
        if not found and operation.verdict == "ok" and token not in taken_back:
            yield f"{token} was acknowledged and is lost"
    yield from (f"{token} is there and was never posted" for token in times)


def in_order(operations: Iterable[Operation], history: Sequence[Json]) -> list[str]:
    """What was acknowledged before another post was sent stands before it."""
    places = {token_of(message): place for place, message in enumerate(history)}
    there = [each for each in operations if each.post.token in places]
    there.sort(key=lambda each: places[each.post.token])
    wrong: list[str] = []
    latest = float("-inf")
    by = ""
    for operation in there:
        if operation.acknowledged is not None and operation.acknowledged < latest:
            wrong.append(
                f"{operation.post.token} was acknowledged before {by} was posted, and is behind it"
            )
        if operation.invoked > latest:
            latest, by = operation.invoked, operation.post.token
    return wrong


def prefixes(history: Sequence[Json], seen: Mapping[int, Sequence[str]]) -> list[str]:
    """Each kept answer was given to exactly the user messages that stand before it: list-append.

    Args:
        history: of one conversation.
        seen: the tokens of the user messages that each call of the model was shown.
    """
    before: list[str] = []
    wrong: list[str] = []
    for message in history:
        if found := order_in(message):
            before.append(found["token"])
        for call in _calls_of(message):
            shown = list(seen.get(call, ()))
            if shown != before:
                wrong.append(
                    f"call {call} of the model was shown {shown[-3:]}, its answer follows {before[-3:]}"
                )
    return wrong


# ---------------------------------------------------------------- answers
def _calls_of(message: Json) -> list[int]:
    if message["role"] != "assistant":
        return []
    return sorted({int(word["call"]) for word in _WORD.finditer(str(message["content"]))})


def torn(text: str, *, partial: bool = False) -> str:
    """What is wrong with an answer: it has to come from one call of the model, without a gap, to its end."""
    words = list(_WORD.finditer(text))
    if len({word["call"] for word in words}) > 1:
        return "it mixes several calls of the model"
    indexes = [word["index"] for word in words if word["index"] != "end"]
    if indexes != [str(place) for place in range(1, len(indexes) + 1)]:
        return "it has gaps or repeats"
    ends = [word for word in words if word["index"] == "end"]
    if not partial and len(ends) != 1:
        return "its end is missing" if not ends else "it ends twice"
    return ""


def whole(history: Sequence[Json]) -> list[str]:
    """Each answer of a history is one model call's, whole unless it is marked, and answers what stands before it."""
    wrong: list[str] = []
    last = ""
    for message in history:
        if found := order_in(message):
            last = found["token"]
        if message["role"] != "assistant":
            continue
        text, partial = str(message["content"]), bool(message.get("partial"))
        if problem := torn(text, partial=partial):
            wrong.append(f"answer to {last}: {problem}: {text[:60]!r}")
        if _WORD.search(text) and not text.startswith(f"re {last}: "):
            wrong.append(f"answer to {last} is another's: {text[:60]!r}")
    return wrong


def paired(history: Sequence[Json]) -> list[str]:
    """Each call is answered once, behind its message and before anything else, or still open at the tail."""
    wrong: list[str] = []
    open_calls: list[str] = []
    for message in history:
        if message["role"] == "tool":
            call = message["toolCallId"]
            if call in open_calls:
                open_calls.remove(call)
            else:
                wrong.append(f"a result answers no open call: {call}")
            continue
        if open_calls:
            wrong.append(f"calls were left open: {open_calls}")
        open_calls = [call["id"] for call in message.get("toolCalls") or ()]
    return wrong


# ---------------------------------------------------------------- runs
def ended_once(run_id: str, frames: Sequence[Frame]) -> list[str]:
    """A run that is over has one terminal event, the last of its log, which says so once."""
    kinds = [frame.type for frame in frames]
    if kinds.count("run-end") != 1 or kinds.count(DONE) != 1:
        return [f"{run_id} has {kinds.count('run-end')} ends and {kinds.count(DONE)} [DONE]"]
    if kinds[-2:] != ["run-end", DONE]:
        return [f"{run_id} says more after its end: {kinds[-3:]}"]
    return []


def ended_well(run_id: str, frames: Sequence[Frame], allowed: Collection[str]) -> list[str]:
    """A run ended in one of these ways, such as `completed` or `failed: lost`."""
    outcome = outcome_of(frames)
    return [] if outcome in allowed else [f"{run_id} ended as {outcome or 'nothing'}"]


def told(history: Sequence[Json], operation: Operation) -> list[str]:
    """The answer that a client saw to its end is in the history, word for word."""
    if not operation.ended or operation.outcome not in {"completed", "handed-back"}:
        return []
    if operation.text in _texts(history):
        return []
    return [f"{operation.post.token}: its client saw {operation.text[:60]!r}, which is not kept"]


def _texts(history: Sequence[Json]) -> set[str]:
    """Of each answer, and of all that follow on one another with nothing but tools between them."""
    texts: set[str] = set()
    joined_text = ""
    for message in history:
        if message["role"] == "user":
            joined_text = ""
        if message["role"] == "assistant":
            joined_text += str(message["content"])
            texts |= {joined_text, str(message["content"])}
    return texts


def done_once(work: Iterable[str]) -> list[str]:
    """No call of the server's tool `once`, which is not safe to repeat, was begun twice.

    Args:
        work: what was begun: tool and call.
    """
    times = Counter(each for each in work if each.startswith("once "))
    return [f"{each} was begun {count} times" for each, count in times.items() if count > 1]


def adds_up(operation: Operation, replay: Sequence[Frame]) -> list[str]:
    """What a client holds after cuts, resumes and rewinds is what a fresh read of the run gives."""
    if not operation.ended:
        return [f"{operation.post.token} never ended for its client"]
    held, fresh = joined(operation.frames), joined(replay)
    if held == fresh:
        return []
    differs = next((pair for pair in zip(held, fresh, strict=False) if pair[0] != pair[1]), None)
    what = differs or f"{len(held)} pieces instead of {len(fresh)}"
    return [f"{operation.post.token}: its stream is not the run's: {what}"]


def joined(frames: Iterable[Frame]) -> list[Json]:
    """The events of a stream with neighbouring pieces of one text or one call's arguments as one."""
    pieces: list[Json] = []
    for _, group in groupby(events_of(frames), key=_kind_of):
        first, *rest = [dict(event) for event in group]
        for field in {"content", "delta"} & first.keys():
            first[field] = "".join(str(each[field]) for each in (first, *rest))
        pieces += [first] if {"content", "delta"} & first.keys() else [first, *rest]
    return pieces


def _kind_of(event: Json) -> tuple[str, str]:
    return str(event["type"]), str(event.get("toolCallId"))


# ---------------------------------------------------------------- clients
def polite(operations: Iterable[Operation]) -> list[str]:
    """Nothing was noted that a server must not do: a 500, a resume that was refused, a malformed frame."""
    return [f"{each.post.token}: {note}" for each in operations for note in each.notes]


def usable(seconds: Iterable[float | None], bound: float) -> list[str]:
    """After each fault a post was accepted again within the bound; None: never."""
    return [
        "a conversation was not usable again" if each is None else f"usable after {each:.1f} s only"
        for each in seconds
        if each is None or each > bound
    ]


def enough(operations: Collection[Operation], share: float) -> list[str]:
    """So many user messages were acknowledged; a run of nothing but failures proves nothing.

    A tool's result is refused by right where another post has superseded its call.
    """
    said = [each for each in operations if not each.post.answers]
    acknowledged = sum(each.verdict == "ok" for each in said)
    if acknowledged >= share * len(said):
        return []
    return [f"only {acknowledged} of {len(said)} user messages were acknowledged"]
