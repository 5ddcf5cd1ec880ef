"""Import of a conversation from a document. Pure.

Nothing in the document is trusted (P13): what `check_document` returns could have been written by
this server, or it raises. No call that a server makes is open in it: a client may answer its own
calls, and every other call without a result is closed.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from pydantic import JsonValue

from passback.core.budgets import Spent
from passback.core.changes import (
    RunRecord,
    dump_message,
    dump_run,
    dump_state,
    dump_title_call,
    dump_tools,
    load_run,
)
from passback.core.conversation.document import ConversationDocument
from passback.core.conversation.head import (
    EPOCHS,
    NAMED,
    SETTINGS,
    STATE,
    TITLE,
    TITLE_CALL,
    TOOLS,
    Head,
    dump_head,
    dump_receipts,
    first_version,
)
from passback.core.conversation.rules import Decided, Known
from passback.core.conversation.store import Due, Guard, View, Write
from passback.core.conversation.tree import NO_MESSAGE, Tree
from passback.core.conversation_settings import NO_SETTINGS, check_settings, dump_settings
from passback.core.errors import InvalidRequest
from passback.core.messages import (
    TOOL_NAME,
    TOOL_NAME_RULE,
    ApprovalMessage,
    AssistantMessage,
    CallId,
    ChildMessage,
    ConversationKey,
    Message,
    ModelMessage,
    SummaryMessage,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
    limit_usage,
)
from passback.core.permissions import MAX_DENIALS, merge_lasting
from passback.core.shared_state import StateError, check_state
from passback.core.state import MAX_REFUSALS, State
from passback.core.text import MAX_ARGUMENT_CHARACTERS, find_arguments_flaw
from passback.core.titles import check_title
from passback.core.transcript import MintMessageId, OpenCall, closing_results, owed_answers
from passback.core.values import value

LATEST: Final = 253_402_300_799_999  # milliseconds: the end of the year 9999
MOST: Final = 2**53 - 1  # of a whole number
MOST_SPENT: Final = 1e12  # of a cost, and of seconds

_RUN_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,128}")
_RECEIPT_NAME: Final = re.compile(r"key:[0-9a-f]{32}|(?:call|message):.{1,256}")
_FINGERPRINT: Final = re.compile(r"[0-9a-f]{64}")
_ID_CHARACTERS: Final = 256


# ---------------------------------------------------------------- transcripts
_MOST_CALLS: Final = 1000  # of one message
_MOST_COPIES: Final = 200_000  # of open calls, for branches that begin within a turn


@dataclass(slots=True, eq=False)
class _Copies:
    """A count of the open calls that were copied: forks within turns must not cost too much."""

    left: int = _MOST_COPIES

    def take(self, count: int, place: str) -> None:
        self.left -= count
        if self.left < 0:
            raise InvalidRequest(f"{place}: too many branches begin within a turn")


@dataclass(slots=True, eq=False)
class _Turn:
    """Open calls behind a message.

    Attributes:
        calls: those without a result, in their order.
        approved: those that somebody has decided on.
        children: what is open in the transcripts of sub-agents, by the calls they work on.
        asked: there was a message of the user.
        is_shared: several branches go on from here, so it is copied before it changes.
    """

    copies: _Copies
    calls: dict[CallId, ToolCall] = field(default_factory=dict[CallId, ToolCall])
    approved: set[CallId] = field(default_factory=set[CallId])
    children: dict[CallId, "_Turn"] = field(default_factory=dict[CallId, "_Turn"])
    asked: bool = False
    is_shared: bool = False

    def own(self, place: str) -> "_Turn":
        """Return this, or a copy if it is shared."""
        if not self.is_shared:
            return self
        self.copies.take(len(self.calls) + len(self.children) + len(self.approved), place)
        for child in self.children.values():
            child.is_shared = True
        return _Turn(
            self.copies, dict(self.calls), set(self.approved), dict(self.children), self.asked
        )

    def open_call(self, call_id: CallId, place: str) -> ToolCall:
        call = self.calls.get(call_id)
        if call is None:
            raise InvalidRequest(f"{place}: no call of the turn before it is open under this id")
        return call


def _follow(turn: _Turn, message: Message, place: str) -> _Turn:
    """Return what is open behind a message that follows on a turn.

    Raises:
        InvalidRequest: it cannot follow there.
    """
    match message:
        case SummaryMessage():  # may follow an open turn, and answers nothing
            return turn
        case ChildMessage(call_id, said):
            turn.open_call(call_id, place)
            turn = turn.own(place)
            child = turn.children.get(call_id) or _Turn(turn.copies, asked=True)
            turn.children[call_id] = _follow(child, said, place)
        case ApprovalMessage():
            call = turn.open_call(message.call_id, place)
            if call.asks != "approval" or call.id in turn.approved:
                raise InvalidRequest(f"{place}: its call does not wait for an approval")
            turn = turn.own(place)
            turn.approved.add(call.id)
        case ToolMessage():
            turn.open_call(message.call_id, place)
            turn = turn.own(place)
            del turn.calls[message.call_id]
        case _:
            turn = _next_turn(turn, message, place)
    return turn


def _next_turn(turn: _Turn, message: ModelMessage, place: str) -> _Turn:
    if turn.calls:
        raise InvalidRequest(f"{place}: calls before it have no results")
    if not isinstance(message, AssistantMessage):
        return _Turn(turn.copies, asked=turn.asked or isinstance(message, UserMessage))
    if not turn.asked:
        raise InvalidRequest(f"{place}: no message of the user is before it")
    calls = {each.id: each for each in message.tool_calls}
    if len(calls) < len(message.tool_calls) or len(calls) > _MOST_CALLS:
        raise InvalidRequest(f"{place}: its calls are too many, or two have the same id")
    return _Turn(turn.copies, calls, asked=True)


def _turns_of(tree: Tree, messages: Sequence[Message]) -> dict[int, _Turn]:
    """Return what is open behind the messages that others than the next one follow.

    Those are the ends of branches, the parents of forks, and `NO_MESSAGE`.

    Raises:
        InvalidRequest: a message cannot follow where it does.
    """
    forks = {each.start: each.parent for each in tree.forks}
    parents = set(forks.values())
    turn = _Turn(_Copies(), is_shared=True)
    kept = {NO_MESSAGE: turn}
    for number, message in enumerate(messages):
        if number in forks:
            turn = kept[forks[number]]
        turn = _follow(turn, message, f"messages.{number}")
        if number in parents or number + 1 in forks or number in {tree.leaf, len(messages) - 1}:
            kept[number] = turn
            turn.is_shared = True
    return kept


# ---------------------------------------------------------------- checks
def check_document(document: ConversationDocument, mint: MintMessageId, /) -> ConversationDocument:
    """Return a document that can be stored: no run goes on in it, and no call waits for a server.

    Args:
        document: of the right form, and no more.
        mint: makes ids for results that are missing.

    Raises:
        InvalidRequest: the server cannot have written it. The error names the place.
    """
    if document.title and check_title(document.title) != document.title:
        raise InvalidRequest("title: it is not on one line, or has what cannot be seen")
    check_settings(document.settings)
    _check_tree(document)
    _check_numbers(document)
    _check_state(document.state)
    _check_receipts(document)
    for number, message in enumerate(document.messages):
        _check_message(message, f"messages.{number}")
    turns = _turns_of(document.tree, document.messages)
    _check_start(document)
    return _close_calls(document, turns, mint)


def _check_tree(document: ConversationDocument) -> None:
    count, last = len(document.messages), 0
    for number, fork in enumerate(document.forks):
        if not last < fork.start < count:
            raise InvalidRequest(
                f"forks.{number}.start: it has to be a message behind the last fork"
            )
        if not NO_MESSAGE <= fork.parent < fork.start - 1:
            raise InvalidRequest(
                f"forks.{number}.parent: it has to be a message in front of the one before `start`"
            )
        last = fork.start
    if not NO_MESSAGE <= document.leaf < count:
        raise InvalidRequest("leaf: there is no such message")


def _check_numbers(document: ConversationDocument) -> None:
    run, epochs = document.run, document.epochs
    _check_number(epochs, "epochs")
    times = (document.created, document.updated, document.answer_by or 0)
    if not all(0 <= each <= LATEST for each in times):
        raise InvalidRequest("created, updated, answer_by: a time is out of range")
    if document.named and not document.title:
        raise InvalidRequest("named: there is no title")
    if run is None:
        return
    if not _RUN_ID.fullmatch(run.run_id):
        raise InvalidRequest("run.run_id: it is no id of a run")
    if not (0 <= run.committed.epoch <= epochs and 0 <= run.committed.seq <= MOST):
        raise InvalidRequest("run.committed: it is no position of a run up to `epochs`")
    if not 0 <= run.run_start <= len(document.tree):
        raise InvalidRequest("run.run_start: there is no such message")


def _check_state(state: State) -> None:
    if (run := state.run) is not None:
        _check_spent(run.spent, "state.run")
        if not _RUN_ID.fullmatch(run.run_id):
            raise InvalidRequest("state.run.run_id: it is no id of a run")
    if (call := state.title_call) is not None:
        _check_spent(call.spent, "state.title_call")
        _check_usage(call.usage, "state.title_call")
    _check_spent(Spent(state.tokens, state.seconds, state.cost), "state")
    for name in ("input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens"):
        _check_number(getattr(state.usage, name), f"state.usage.{name}")
    _check_shared(state)
    if len(state.refusals) > MAX_REFUSALS:
        raise InvalidRequest(f"state.refusals: there are more than {MAX_REFUSALS}")
    lasting = state.lasting or ()
    denials = sum(not each.approved for each in lasting)
    if merge_lasting((), lasting) != lasting or denials > MAX_DENIALS:
        raise InvalidRequest("state.lasting: they are too many, or contradict each other")


def _check_shared(state: State) -> None:
    earlier = state.earlier_shared
    for shared in (state.shared, earlier and earlier.shared):
        try:
            check_state(shared or {})
        except StateError as error:
            raise InvalidRequest(f"state.shared: {error}") from None


def _check_spent(spent: Spent, place: str) -> None:
    _check_number(spent.tokens, f"{place}.tokens")
    if not (0 <= spent.cost <= MOST_SPENT and 0 <= spent.seconds <= MOST_SPENT):
        raise InvalidRequest(f"{place}: cost or seconds are out of range")


def _check_receipts(document: ConversationDocument) -> None:
    for name, receipt in document.receipts.items():
        run_id = receipt.run_id
        if not (_RECEIPT_NAME.fullmatch(name) and _FINGERPRINT.fullmatch(receipt.fingerprint)):
            raise InvalidRequest("receipts: one of them is no receipt of this server")
        if run_id is not None and not _RUN_ID.fullmatch(run_id):
            raise InvalidRequest("receipts: one of them has no id of a run")
    for run_id, record in document.runs.items():
        if not _RUN_ID.fullmatch(run_id):
            raise InvalidRequest("runs: one of them is no id of a run")
        run = _read_run(record)
        _check_spent(run.spent, "runs.spent")
        _check_usage(run.usage, "runs.usage")
        for number in (run.follows + 1, run.messages, run.began, run.ended or 0):
            _check_number(number, "runs")


def _read_run(record: JsonValue) -> RunRecord:
    try:
        return load_run(json.dumps(record).encode())
    except ValueError:
        raise InvalidRequest("runs: one of them is no record of this server") from None


def _check_message(message: Message, place: str) -> None:
    """Check a message for itself; its content is checked as that of a post is."""
    if isinstance(message, ChildMessage):
        _check_message(message.message, place)
        return
    _check_id(message.id, f"{place}.id")
    if message.created > LATEST:
        raise InvalidRequest(f"{place}.created: it is out of range")
    if message.run_id and not _RUN_ID.fullmatch(message.run_id):
        raise InvalidRequest(f"{place}.run_id: it is no id of a run")
    for name in _NUMBERS:
        _check_number(getattr(message, name, 0), f"{place}.{name}")
    _check_usage(getattr(message, "usage", None), place)
    if isinstance(message, ToolMessage) and message.synthetic and not message.is_error:
        raise InvalidRequest(f"{place}: a result that the server made up is an error")
    # the call of an answer is checked where it is made
    for number, call in enumerate(getattr(message, "tool_calls", ())):
        _check_call(call, f"{place}.tool_calls.{number}")


_NUMBERS: Final = ("created", "duration", "started", "window", "keeps", "turns", "before", "after")


def _check_call(call: ToolCall, place: str) -> None:
    _check_id(call.id, f"{place}.id")
    if not TOOL_NAME.fullmatch(call.name):
        raise InvalidRequest(f"{place}.name: {TOOL_NAME_RULE}")
    if find_arguments_flaw(call.arguments) is not None:
        raise InvalidRequest(
            f"{place}.arguments: they have to be the text of a JSON object that has no key twice, "
            f"of {MAX_ARGUMENT_CHARACTERS} characters at most"
        )


def _check_id(text: str, place: str) -> None:
    if not 1 <= len(text) <= _ID_CHARACTERS or not text.isprintable():
        raise InvalidRequest(
            f"{place}: it needs 1 to {_ID_CHARACTERS} characters that can be printed"
        )


def _check_usage(usage: Usage | None, place: str) -> None:
    if usage is not None and limit_usage(usage) != usage:
        raise InvalidRequest(f"{place}.usage: no model call uses so much")


def _check_number(number: int, place: str) -> None:
    if not 0 <= number <= MOST:
        raise InvalidRequest(f"{place}: it is out of range")


def _check_start(document: ConversationDocument) -> None:
    """Refuse a history that starts within a turn, or behind its end."""
    start, tree = document.state.history_start, document.tree
    if not 0 <= start <= len(tree):
        raise InvalidRequest("state.history_start: there is no such message")
    if start == len(tree):
        return
    first = document.messages[tree.number(start)]
    if isinstance(first, ToolMessage | ApprovalMessage | ChildMessage):
        raise InvalidRequest("state.history_start: it is within a turn")


# ---------------------------------------------------------------- open calls
def _close_calls(
    document: ConversationDocument, turns: Mapping[int, _Turn], mint: MintMessageId
) -> ConversationDocument:
    """Return the document with results for the calls that nobody may answer.

    Raises:
        InvalidRequest: what it says is owed is not what its messages say.
    """
    tree, messages = document.tree, list(document.messages)
    branch = [messages[number] for number in _numbers(tree)]
    owed = () if document.running else owed_answers(branch)
    if document.owed != owed:
        raise InvalidRequest("owed: the messages say something else")
    parents = {each.parent for each in tree.forks}
    starts = {each.start for each in tree.forks}
    ends = {each for each in turns if each + 1 in starts or each == len(messages) - 1} - parents
    for number in sorted(ends - {tree.leaf}):
        at_end = replace(tree, leaf=number)
        tree = _close(at_end, turns[number], messages, mint, running=False)
    turn = turns[document.leaf]
    tree = replace(tree, leaf=document.leaf)
    tree = _close(tree, turn, messages, mint, running=document.running)
    left = () if document.running else _client_calls(turn)
    return replace(
        document,
        running=False,
        leaf=tree.leaf,
        forks=tree.forks,
        owed=tuple(OpenCall(call).owed for call in left),
        answer_by=document.answer_by if left else None,
        messages=tuple(messages),
    )


def _close(
    tree: Tree, turn: _Turn, messages: list[Message], mint: MintMessageId, *, running: bool
) -> Tree:
    """Add results for the calls that are open at the leaf; return the tree with them."""
    kept = () if running else _client_calls(turn)
    calls = turn.calls.keys() - {call.id for call in kept}
    closed = [call for call in turn.calls.values() if call.id in calls]
    results = closing_results(closed, "interrupted", mint)
    tree = tree.grown(len(results), len(messages))
    messages += results
    return tree


def _client_calls(turn: _Turn) -> Sequence[ToolCall]:
    """Return the open calls that a client answers: what it says is the result."""
    return tuple(call for call in turn.calls.values() if call.client)


def _numbers(tree: Tree) -> Iterable[int]:
    for span in tree.spans(0, tree.leaf + 2):  # no span is open
        assert span.end is not None
        yield from range(span.start, span.end)


# ---------------------------------------------------------------- the rule
@value
class Import:
    """Make a conversation from a document that was checked."""

    key: ConversationKey
    document: ConversationDocument
    nonce: str

    @property
    def history_bytes(self) -> int:
        """The size of the messages that are loaded for a run."""
        numbers = list(_numbers(self.document.tree))[self.document.state.history_start :]
        return sum(len(dump_message(self.document.messages[each])) for each in numbers)


def import_conversation(_known: Known, command: Import, now: int) -> Decided:
    document = command.document
    state, tree, count = document.state, document.tree, len(document.messages)
    head = Head(
        owed=document.owed,
        answer_by=document.answer_by,
        history_start=state.history_start,
        tree=tree,
    )
    if (run := document.run) is not None:
        head = replace(
            head,
            run_id=run.run_id,
            epoch=run.committed.epoch,
            committed=run.committed,
            run_start=run.run_start,
            stopped_early=run.stopped_early,
        )
    fields: dict[str, bytes | None] = {STATE: dump_state(state)}
    if document.title:
        fields[TITLE] = document.title.encode()
    if document.named:
        fields[NAMED] = b"1"
    if state.title_call is not None:
        fields[TITLE_CALL] = dump_title_call(state.title_call)
    if document.settings != NO_SETTINGS:
        fields[SETTINGS] = dump_settings(document.settings)
    if document.tools is not None:
        fields[TOOLS] = dump_tools(document.tools)
    if document.epochs:
        fields[EPOCHS] = b"%d" % document.epochs
    due = None if document.answer_by is None else Due(after=max(0, document.answer_by - now))
    write = Write(
        command.key,
        command.nonce,
        Guard(version=0),
        first_version=first_version(command.nonce),
        head=dump_head(head),
        fields=fields,
        messages=tuple(map(dump_message, document.messages)),
        view=View(tree.spans(state.history_start, count)),
        receipts=dump_receipts(document.receipts),
        runs={each: dump_run(_read_run(record)) for each, record in document.runs.items()},
        due=due,
        owes=bool(document.owed),
        touches=True,
    )
    return Decided(write, head)
