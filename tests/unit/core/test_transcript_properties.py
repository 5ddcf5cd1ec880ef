"""Whatever happens to a conversation, its transcript keeps the rules (P2, P5, P8, P9)."""

import itertools
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.support.lanes import examples

from passback.core.admission import (
    Begins,
    ConversationSnapshot,
    Joins,
    Parks,
    Queues,
    begin_queued_run,
    decide_post,
)
from passback.core.changes import QueuedPost
from passback.core.errors import (
    Conflict,
    ConversationBusy,
    NothingToDo,
    ResultConflict,
    Reused,
    UnknownToolCall,
)
from passback.core.imported import split_history
from passback.core.messages import (
    AssistantMessage,
    CallId,
    ConversationId,
    ConversationKey,
    HistoryMessage,
    Message,
    MessageId,
    Owed,
    OwnerId,
    PostedMessage,
    RunId,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from passback.core.posts import (
    OnBusy,
    Receipt,
    ReceiptName,
    StartRun,
    call_receipt_name,
    content_fingerprint,
)
from passback.core.transcript import (
    closing_results,
    owed_answers,
    paired_messages,
    unanswered_calls,
)

# ---------------------------------------------------------------- arbitrary, also broken, histories
CALL_IDS = st.sampled_from(["c1", "c2", "c3"]).map(CallId)
CALLS = st.builds(ToolCall, CALL_IDS, st.just("tool"), st.just("{}"), st.booleans())
MESSAGE_IDS = st.integers(0, 10**6).map(lambda number: MessageId(f"m{number}"))
MESSAGES: st.SearchStrategy[Message] = st.one_of(
    st.builds(UserMessage, MESSAGE_IDS, st.just("hi")),
    st.builds(SystemMessage, MESSAGE_IDS, st.just("rules")),
    st.builds(
        AssistantMessage,
        MESSAGE_IDS,
        st.sampled_from(["", "text"]),
        st.lists(CALLS, max_size=3).map(tuple),
    ),
    st.builds(ToolMessage, MESSAGE_IDS, CALL_IDS, st.sampled_from(["one", "two"])),
)


def assert_every_call_is_answered_next_to_it(view: Sequence[Message]) -> None:
    waiting: list[CallId] = []
    for message in view:
        if waiting:
            assert isinstance(message, ToolMessage)
            assert message.call_id == waiting.pop(0)
        elif isinstance(message, AssistantMessage):
            assert message.content or message.tool_calls
            waiting = [call.id for call in message.tool_calls]
        else:
            assert not isinstance(message, ToolMessage)
    assert not waiting


@given(st.lists(MESSAGES, max_size=12))
@pytest.mark.promise("P5")
def test_any_view_has_each_call_answered_once(messages: list[Message]) -> None:
    view = paired_messages(messages)
    assert_every_call_is_answered_next_to_it(view)
    assert paired_messages(view) == view
    others = (UserMessage, SystemMessage)
    assert [m for m in view if isinstance(m, others)] == [
        m for m in messages if isinstance(m, others)
    ]


@given(st.lists(MESSAGES, max_size=12))
@pytest.mark.promise("P2")
def test_what_is_owed_is_a_client_call_of_the_last_answer_without_a_result_behind_it(
    messages: list[Message],
) -> None:
    tail = list(
        itertools.takewhile(
            lambda m: not isinstance(m, AssistantMessage | UserMessage | SystemMessage),
            reversed(messages),
        )
    )
    last = messages[-len(tail) - 1] if len(tail) < len(messages) else None
    answered = {m.call_id for m in tail if isinstance(m, ToolMessage)}
    calls = last.tool_calls if isinstance(last, AssistantMessage) else ()
    assert owed_answers(messages) == tuple(
        Owed(call.id, call.name, call.arguments)
        for call in calls
        if call.client and call.id not in answered
    )


# ---------------------------------------------------------------- a conversation's life
KEY = ConversationKey(OwnerId("owner"), ConversationId("conversation"))
ON_BUSY: list[OnBusy] = ["reject", "enqueue"]
REFUSALS = (Conflict, ConversationBusy, NothingToDo, ResultConflict, Reused, UnknownToolCall)


class Conversation(RuleBasedStateMachine):
    """The moves of clients, the model, the server's tools and crashes, as the engine makes them."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[Message] = []
        self.receipts: dict[ReceiptName, Receipt] = {}
        self.first_words: dict[CallId, str] = {}
        self.queue: list[QueuedPost] = []
        self.runs: set[RunId] = set()
        self.posted: list[StartRun] = []
        self.running: RunId | None = None
        self.owed: tuple[Owed, ...] = ()
        self.overdue = False
        self.numbers = itertools.count(1)

    @property
    def is_running(self) -> bool:
        return self.running is not None

    def mint(self) -> MessageId:
        return MessageId(f"m{next(self.numbers)}")

    def new_run(self) -> RunId:
        run_id = RunId(f"r{next(self.numbers)}")
        self.runs.add(run_id)
        return run_id

    def post(self, post: StartRun) -> None:
        waits = [message for each in self.queue for message in each.post.messages]
        standing = ConversationSnapshot(
            self.messages, self.receipts, self.running, waits, self.overdue
        )
        before = list(self.messages)
        try:
            verdict = decide_post(standing, post, self.mint)
        except REFUSALS:
            return
        self.posted.append(post)
        match verdict:
            case Joins(run_id):
                assert run_id in self.runs
            case Parks(append, receipts, owing):
                self.messages.extend(append)
                self.owed = owing
                self.remember(receipts, None)
            case Queues(messages, receipts):
                waiting = StartRun(KEY, messages)
                self.queue.append(QueuedPost(self.new_run(), waiting))
                self.remember(receipts, self.queue[-1].run_id)
            case Begins():
                self.begin(verdict, self.new_run())
        assert self.messages[: len(before)] == before

    def begin(self, verdict: Begins, run_id: RunId) -> None:
        assert self.running is None
        self.messages.extend(verdict.append)
        self.running, self.owed, self.overdue = run_id, (), False
        self.remember(verdict.receipts, run_id)

    def remember(self, receipts: Mapping[ReceiptName, str], run_id: RunId | None) -> None:
        self.receipts |= {name: Receipt(text, run_id) for name, text in receipts.items()}

    # ---------------- clients
    @rule(
        text=st.sampled_from(["hi", "more"]),
        before=st.booleans(),
        on_busy=st.sampled_from(ON_BUSY),
        key=st.sampled_from([None, None, "k1", "k2"]),
        data=st.data(),
    )
    def a_user_message(
        self, text: str, before: bool, on_busy: OnBusy, key: str | None, data: st.DataObject
    ) -> None:
        message = UserMessage(self.mint(), text)
        results = data.draw(self.results())
        place = 0 if before else len(results)
        messages: list[PostedMessage] = [*results[:place], message, *results[place:]]
        named = frozenset([message.id] if data.draw(st.booleans()) else [])
        self.post(StartRun(KEY, tuple(messages), None, key, named, on_busy))

    @precondition(lambda self: not self.messages)
    @rule(
        answered=st.lists(st.booleans(), max_size=3),
        key=st.sampled_from([None, "k1"]),
        resends=st.booleans(),
    )
    def a_history(self, answered: list[bool], key: str | None, resends: bool) -> None:
        """A trusted client begins the conversation with what was said elsewhere."""
        calls = tuple(ToolCall(CallId(f"x{n}"), "tool", "{}") for n, _ in enumerate(answered))
        results = [
            ToolMessage(self.mint(), call.id, "seen")
            for call, is_there in zip(calls, answered, strict=True)
            if is_there
        ]
        old, new = UserMessage(self.mint(), "hi"), UserMessage(self.mint(), "go on")
        asked = AssistantMessage(self.mint(), "text", calls)
        posted: list[HistoryMessage] = [old, asked, *results, new]
        history = split_history([("", each) for each in posted]).history
        named = frozenset([new.id])
        self.post(StartRun(KEY, (new,), None, key, named, resends=resends, history=history))
        assert not unanswered_calls(self.messages)

    @rule(data=st.data())
    def some_results(self, data: st.DataObject) -> None:
        self.post(StartRun(KEY, tuple(data.draw(self.results()))))

    def results(self) -> st.SearchStrategy[list[ToolMessage]]:
        answered = [CallId(name.removeprefix("call:")) for name in self.receipts]
        known = [*answered, *(one.id for one in self.owed), CallId("never")]
        return st.lists(
            st.builds(
                ToolMessage,
                st.builds(self.mint),
                st.sampled_from(known),
                st.sampled_from(["one", "two"]),
            ),
            max_size=3,
        )

    @precondition(lambda self: self.posted != [])
    @rule(data=st.data())
    def a_repeat(self, data: st.DataObject) -> None:
        """A post whose parts are all known by a name starts nothing more."""
        post = data.draw(st.sampled_from(self.posted))
        known = post.idempotency_key is not None or all(
            isinstance(each, ToolMessage) or each.id in post.named for each in post.messages
        )
        before, overdue = (list(self.messages), len(self.runs)), self.overdue
        self.post(post)
        if known and not overdue:
            assert (self.messages, len(self.runs)) == before

    # ---------------- the deadline
    @precondition(lambda self: self.owed and not self.is_running)
    @rule()
    def the_time_is_over(self) -> None:
        self.overdue = True

    @precondition(lambda self: self.overdue)
    @rule()
    def somebody_goes_on_without(self) -> None:
        self.begin(begin_queued_run(self.messages, (), self.mint, overdue=True), self.new_run())

    # ---------------- the queue
    @precondition(lambda self: self.queue and not self.is_running)
    @rule()
    def the_next_post_has_its_turn(self) -> None:
        queued = self.queue.pop(0)
        self.begin(
            begin_queued_run(self.messages, queued.post.messages, self.mint, overdue=self.overdue),
            queued.run_id,
        )

    # ---------------- the run
    @precondition(lambda self: self.is_running and not unanswered_calls(self.messages))
    @rule(text=st.sampled_from(["", "text"]), whose=st.lists(st.booleans(), max_size=3))
    def the_model_answers(self, text: str, whose: list[bool]) -> None:
        calls = tuple(
            ToolCall(CallId(f"c{next(self.numbers)}"), "tool", "{}", client) for client in whose
        )
        if text or calls:
            self.messages.append(AssistantMessage(self.mint(), text, calls))
        if all(whose):
            self.end()

    @precondition(lambda self: self.is_running and len(unanswered_calls(self.messages)) > 0)
    @rule(data=st.data())
    def a_server_tool_answers(self, data: st.DataObject) -> None:
        calls = [call for call in unanswered_calls(self.messages) if not call.client]
        call = data.draw(st.sampled_from(calls))
        self.messages.append(ToolMessage(self.mint(), call.id, "ran"))
        if len(calls) == 1 and unanswered_calls(self.messages):
            self.end()

    @precondition(lambda self: self.is_running)
    @rule()
    def the_run_is_cut(self) -> None:
        """A crash, a cancellation, a failing model: what is open is closed."""
        self.messages.extend(
            closing_results(unanswered_calls(self.messages), "interrupted", self.mint)
        )
        self.end()

    def end(self) -> None:
        self.running, self.owed = None, owed_answers(self.messages)

    # ---------------- what always holds
    @invariant()
    def what_is_owed_follows_from_the_transcript(self) -> None:
        if self.running is None:
            assert self.owed == owed_answers(self.messages)
            assert [call.id for call in unanswered_calls(self.messages)] == [
                o.id for o in self.owed
            ]

    @invariant()
    def every_call_is_answered_once_or_open_at_the_tail(self) -> None:
        filled = closing_results(
            unanswered_calls(self.messages), "interrupted", lambda: MessageId("x")
        )
        whole = [*self.messages, *filled]
        view = paired_messages(whole)
        assert_every_call_is_answered_next_to_it(view)
        assert sorted(map(repr, view)) == sorted(map(repr, whole))
        assert [type(message) for message in view] == [type(message) for message in whole]

    @invariant()
    def the_first_answer_of_a_call_stays(self) -> None:
        for message in self.messages:
            if isinstance(message, ToolMessage):
                print_ = content_fingerprint(message.content, message.is_error)
                assert self.first_words.setdefault(message.call_id, print_) == print_
                assert self.receipts.get(
                    call_receipt_name(message.call_id), Receipt(print_)
                ).fingerprint == (print_)


Conversation.TestCase.settings = settings(examples(60), stateful_step_count=30)
TestConversation = pytest.mark.promise("P2", "P5", "P8", "P9")(Conversation.TestCase)
