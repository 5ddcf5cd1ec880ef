"""The readers behind the chat socket: take-overs, late clients, and what goes wrong on the way."""

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import anyio
import pytest
from tests.support.chat_site import Json
from tests.support.ledgers import open_ledger
from tests.support.logged_runs import RUN, LoggedRuns
from tests.support.runs import KEY, OTHER, PAINT, outcome, post, record, until, worker
from tests.support.runs import says as user
from tests.unit.engine.test_takeover_beside import (
    dying,
    going_on,
    half_said,
    reading_for_a_while,
)
from tests.unit.engine.test_watching import until_expired
from tests.unit.wire.chat_client import ChatClient
from tests.unit.wire.test_chat_plain import told
from tests.unit.wire.test_chat_resume import shown, take
from typing_extensions import override

from passback.core.changes import Page, Status
from passback.core.errors import (
    ConversationBusy,
    InvalidCursor,
    PassbackError,
    StoreUnavailable,
    UnknownConversation,
)
from passback.core.events import (
    START,
    Completed,
    Logged,
    Position,
    Rewound,
    RunFinished,
    RunStarted,
    TextDelta,
    TurnStarted,
)
from passback.core.messages import (
    CallId,
    ConversationKey,
    Message,
    MessageContext,
    MessageId,
    Owed,
    RunRef,
    SystemMessage,
    UserMessage,
)
from passback.core.runs import RunBatch, Runs
from passback.core.signals import Signal
from passback.http.wires import Services
from passback.models.scripted import ScriptedModel
from passback.models.scripted import says as words
from passback.stores.options import StoreOptions
from passback.wire.chat.connection import Connection
from passback.wire.chat.feeds import Feeds, Subscription, TurnReader
from passback.wire.chat.history import project
from passback.wire.chat.outgoing import Outgoing
from passback.wire.chat.said import number_of

pytestmark = pytest.mark.anyio

SECONDS = 30
STARTED = RunStarted(RUN.run_id)
TURN = TurnStarted(MessageId("m"))
FINISHED = RunFinished(Completed())


async def test_a_beginning_that_is_void_is_not_read() -> None:
    """It was not stored yet when the place was looked for; a take-over came before it was read."""
    runs = LoggedRuns(STARTED, TURN, TextDelta("void"))
    reader = TurnReader(runs, KEY)
    rewound = Logged(Position(2, 1), Rewound(Position(1, 2)))
    await reader.read_beginning(RunBatch(RUN, [rewound]), Position(1, 3))
    assert reader.snapshot() == ()


class Listener:
    """A client that keeps what it is sent. While it is `slow`, its queue is never empty."""

    def __init__(self, *, slow: bool = False) -> None:
        self.events: list[Json] = []
        self.waits = anyio.Event()
        self.reads = anyio.Event()
        self._grown = anyio.Event()
        if not slow:
            self.reads.set()

    def send(self, event: Outgoing, /) -> None:
        self.events.append({"event": event.name, "data": json.loads(event.data)})
        self._grown.set()
        self._grown = anyio.Event()

    async def wait_until_sent(self) -> None:
        self.waits.set()
        await self.reads.wait()

    async def until(self, text: str, count: int = 1) -> None:
        """Wait until so many events have had a text."""
        while sum(text in json.dumps(each) for each in self.events) < count:
            await self._grown.wait()

    @property
    def codes(self) -> list[str]:
        """The codes of the errors."""
        return [each["data"]["code"] for each in self.events if each["event"] == "system:error"]


@asynccontextmanager
async def feeding(runs: Runs) -> AsyncGenerator[Feeds]:
    """Run the shared readers of a worker. A hang in the test is a failure."""
    feeds = Feeds(runs)
    with anyio.fail_after(SECONDS):
        async with feeds.running():
            yield feeds


async def joined(feeds: Feeds, key: ConversationKey = KEY) -> Listener:
    listener = Listener()
    await feeds.join(Subscription(listener, key))
    return listener


async def resumed(
    feeds: Feeds, number: int, key: ConversationKey = KEY, *, slow: bool = False
) -> Listener:
    listener = Listener(slow=slow)
    await feeds.resume(Subscription(listener, key), number)
    return listener


# ---------------------------------------------------------------- take-overs
async def test_every_client_has_what_is_recorded_after_a_take_over() -> None:
    first, after = dying(), going_on()
    async with (
        open_ledger("memory:") as store,
        after.worker(store) as heir,
        first.killable_worker(store) as victim,
        feeding(heir) as feeds,
        feeding(heir) as other_feeds,
        feeding(victim.runs) as dying_feeds,
    ):
        await heir.create(KEY)
        doomed, early = await joined(dying_feeds), await joined(feeds)
        run = await post(victim.runs, user(), tools=[PAINT])
        async with reading_for_a_while(victim.runs, run) as reader:
            await half_said(reader, first)
        await doomed.until("half of two")
        await early.until("half of two")
        void, late = list(doomed.events), await joined(other_feeds)
        assert "half of two" in json.dumps(late.events)
        await victim.kill()
        await heir.status(KEY)
        await early.until("chat:end")
        await late.until("chat:end")
        whole = {turn["id"]: turn for turn in project(await record(heir))}
        assert shown(early.events).kept == whole
        assert {**shown(early.events).kept, **kept_by_late(late.events)} == whole
        for cut in range(1, len(void) + 1):
            client = shown(void[:cut])
            one = await resumed(feeds, void[cut - 1]["data"]["stream_sequence"])
            await one.until("chat:end")
            take(client, one.events)
            assert client.kept == whole


def kept_by_late(events: Sequence[Json]) -> dict[str, Json]:
    """The turns of a client that came during a run: the first events are those in progress."""
    first = next(at for at, each in enumerate(events) if "stream_sequence" in each["data"])
    assert events[0]["event"] == "chat:start"
    turns = [dict(each["data"]) for each in events[1 : first + 1]]
    for turn in turns:
        turn.pop("stream_sequence", None)
        del turn["session_id"]
    client = ChatClient(turns)
    client.open = set(client.turns)
    take(client, list(events[first + 1 :]))
    return client.kept


async def test_a_take_over_that_lost_the_beginning_ends_the_subscription() -> None:
    runs = LoggedRuns(STARTED, TURN, TextDelta("void"))
    runs.known[RUN.key] = Status(1, RUN.run_id, running=True, logged=Position(1, 3))
    async with feeding(runs) as feeds:
        one = await joined(feeds, RUN.key)
        assert told(one.events) == ["chat:start", "turn:start assistant streaming"]
        runs.is_taken_over(START, TextDelta("anew"))
        await one.until("system:error")
        assert one.codes == ["cursor_expired"]
        assert "anew" not in json.dumps(one.events)


# ---------------------------------------------------------------- clients that come back
async def test_a_number_of_a_run_that_was_taken_out_of_the_queue_is_resumed() -> None:
    gate = anyio.Event()
    script = [["zero ", gate, *words("more")], words("next")]
    async with (
        open_ledger("memory:") as store,
        worker(store, ScriptedModel(script)) as runs,
        feeding(runs) as feeds,
    ):
        first = await post(runs, user())
        await until(runs, first, TextDelta)
        early = await joined(feeds)
        waiting = await post(runs, user(message_id="u1"), on_busy="enqueue")
        assert await runs.cancel(waiting)
        gate.set()
        await early.until("chat:end", 2)
        cancelled = early.events[-1]["data"]
        assert (cancelled["chat_run_id"], cancelled["status"]) == (waiting.run_id, "interrupted")
        count = len(early.events)
        late = await resumed(feeds, cancelled["stream_sequence"])
        await post(runs, user(message_id="u2"))
        await early.until("chat:end", 3)
        await late.until("chat:end")
        assert late.events == early.events[count:]


async def test_a_number_of_a_run_whose_log_has_expired_is_refused_during_the_next() -> None:
    gate = anyio.Event()
    script = [words("one"), ["two ", gate, *words("more")]]
    async with (
        open_ledger("memory:", options=StoreOptions(log_ttl=0.001)) as store,
        worker(store, ScriptedModel(script)) as runs,
        feeding(runs) as feeds,
    ):
        await until_expired(store, await post(runs, user()))
        second = await post(runs, user(message_id="u1"))
        await until(runs, second, TextDelta)
        late = Listener()
        codes = await refusals(feeds, late, number_of(Position(1, 2)))
        assert codes == {"cursor_expired"}
        gate.set()
        assert await outcome(runs, second) == Completed()


async def refusals(feeds: Feeds, late: Listener, number: int) -> set[str]:
    """Resume, and return the codes of the errors: as it begins to read, or behind that."""
    try:
        await feeds.resume(Subscription(late, KEY), number)
    except PassbackError as error:
        return {error.code, *late.codes}
    await late.until("system:error")
    return set(late.codes)


async def test_a_log_that_ends_before_a_position_is_read_to_its_end() -> None:
    runs = LoggedRuns(STARTED, TURN, TextDelta("all"), FINISHED)
    runs.known[RUN.key] = Status(1, RUN.run_id, logged=Position(1, 4))
    reader = TurnReader(runs, RUN.key)
    batch = RunBatch(RUN, runs.log[-1:])
    await reader.read_beginning(batch, Position(1, 9))
    # no turn is left to be ended
    assert [each.name for each in await reader.read(batch)] == ["chat:start", "chat:end"]


async def test_a_conversation_without_a_run_has_no_number_and_another_is_unknown() -> None:
    async with (
        open_ledger("memory:") as store,
        worker(store, ScriptedModel([])) as runs,
        feeding(runs) as feeds,
    ):
        await runs.create(KEY)
        with pytest.raises(InvalidCursor):
            await resumed(feeds, number_of(Position(1, 2)))
        with pytest.raises(UnknownConversation):
            await joined(feeds, OTHER)


async def test_a_deletion_is_told_once_also_to_a_client_that_reads_alone() -> None:
    async with (
        open_ledger("memory:", options=StoreOptions(log_ttl=0.001)) as store,
        worker(store, ScriptedModel([words("one")])) as runs,
        feeding(runs) as feeds,
    ):
        await until_expired(store, await post(runs, user()))
        early = await joined(feeds)
        # without a log there is nothing to read before it can join the shared reader
        late = await resumed(feeds, number_of((await runs.status(KEY)).logged))
        await runs.delete(KEY)
        await late.until("system:error")
        await early.until("system:error")
        assert early.codes == late.codes == ["conversation_not_found"]
        assert len(late.events) == 1


# ---------------------------------------------------------------- results of headless chats
HEADLESS = UserMessage(MessageId("u"), "go", context=MessageContext(extras={"headless": True}))
NOTE = SystemMessage(MessageId("s"), "a note")


@pytest.mark.parametrize(
    ("history", "result"),
    [((HEADLESS, *[NOTE] * 120), {"output": "all"}), ([NOTE] * 120, None)],
    ids=["headless", "nobody asked"],
)
async def test_the_message_that_a_run_answers_may_be_long_ago(
    history: Sequence[Message], result: Json | None
) -> None:
    started = replace(STARTED, first=len(history))
    runs = LoggedRuns(started, TURN)
    runs.history = tuple(history)
    runs.known[RUN.key] = Status(1, RUN.run_id, running=True, logged=Position(1, 2))
    async with feeding(runs) as feeds:
        one = await joined(feeds, RUN.key)
        runs.say(TextDelta("all"), FINISHED)
        await one.until("chat:end")
        [end] = [each["data"] for each in one.events if each["event"] == "chat:end"]
        assert end["result"] == result


# ---------------------------------------------------------------- failures
async def test_a_client_that_is_behind_is_told_when_the_shared_reader_has_failed() -> None:
    runs = LoggedRuns(STARTED, TURN, TextDelta("all"))
    runs.known[RUN.key] = Status(1, RUN.run_id, running=True, logged=Position(1, 3))
    async with feeding(runs) as feeds:
        slow = await resumed(feeds, 0, RUN.key, slow=True)
        await slow.waits.wait()
        other = await joined(feeds, RUN.key)
        runs.breaks(StoreUnavailable("the store does not answer"))
        await other.until("system:error")
        assert slow.codes == []
        slow.reads.set()
        await slow.until("system:error")
        assert slow.codes == other.codes == ["store_unavailable"]


class BrokenRuns(LoggedRuns):
    """Runs whose status can be read, and whose messages cannot; a stop meets a bug."""

    @override
    async def messages(self, key: ConversationKey, /, *, start: int, limit: int) -> Page:
        raise ValueError("a secret")

    @override
    async def cancel(self, run: RunRef, /) -> bool:
        raise ValueError("a secret")


def broken_runs() -> BrokenRuns:
    runs = BrokenRuns(replace(STARTED, first=1), TURN)
    runs.known[RUN.key] = Status(1, RUN.run_id, running=True, logged=Position(1, 2))
    return runs


async def test_a_bug_while_reading_is_logged_and_not_shown(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with feeding(broken_runs()) as feeds:
        shown_error = await refusal_of(feeds)
    assert shown_error == "internal: the server met an unexpected error"
    assert "a secret" in caplog.text


async def refusal_of(feeds: Feeds) -> str:
    with pytest.raises(PassbackError) as caught:
        await joined(feeds, RUN.key)
    return f"{caught.value.code}: {caught.value.message}"


# ---------------------------------------------------------------- events of one client
SENT: Json = {"session_id": RUN.key.id}


def connected(runs: LoggedRuns) -> tuple[Connection, Listener]:
    listener = Listener()
    return Connection(Services(runs, Signal()), Feeds(runs), listener), listener


async def test_nothing_is_done_for_a_client_without_a_key() -> None:
    runs = LoggedRuns()
    connection, _ = connected(runs)
    ack = await connection.handle(None, "chat:stop", SENT, wants_ack=True)
    assert (ack["status"], ack["code"]) == ("error", "unauthenticated")
    assert runs.cancelled == []


async def test_a_bug_in_an_event_is_logged_and_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    connection, listener = connected(broken_runs())
    data = {
        "code": "internal",
        "message": "the server met an unexpected error",
        "session_id": RUN.key.id,
    }
    for wants_ack in (True, False):
        ack = await connection.handle(RUN.key.owner, "chat:stop", SENT, wants_ack=wants_ack)
        assert ack == {"status": "error", **data}
    assert listener.events == [{"event": "system:error", "data": data}]
    assert caplog.text.count("ValueError: a secret") == 2


class RacingRuns(LoggedRuns):
    """Runs that change just when a client stops them: each stop meets the next of `states`."""

    def __init__(self, *states: Status) -> None:
        super().__init__()
        self.states = list(states)
        self._pass()

    def _pass(self) -> None:
        self.known[RUN.key] = self.states.pop(0)

    @override
    async def cancel(self, run: RunRef, /) -> bool:
        self.cancelled.append(run)
        if self.states:
            self._pass()
            return False
        return True

    @override
    async def close_calls(self, key: ConversationKey, /) -> RunRef | None:
        if self.states:
            self._pass()
            raise ConversationBusy("a run goes on")
        return await super().close_calls(key)


IDLE = Status(1)
GOES_ON = Status(1, RUN.run_id, running=True)
OWES = Status(1, RUN.run_id, owed=(Owed(CallId("c1"), "paint", "{}"),))


@pytest.mark.parametrize(
    ("states", "cancelled"),
    [
        ([GOES_ON, IDLE], 1),
        ([GOES_ON, OWES], 1),
        ([OWES, GOES_ON], 1),
        ([OWES, IDLE], 0),
        ([GOES_ON, OWES, GOES_ON, OWES, GOES_ON], 3),
    ],
)
async def test_a_stop_is_tried_again_when_runs_begin_or_end(
    states: list[Status], cancelled: int
) -> None:
    runs = RacingRuns(*states)
    connection, _ = connected(runs)
    ack = await connection.handle(RUN.key.owner, "chat:stop", SENT, wants_ack=True)
    assert ack == {"status": "ok"}
    assert (runs.states, runs.cancelled) == ([], [RUN] * cancelled)
    assert not runs.known[RUN.key].owed


async def test_a_stop_gives_up_where_runs_begin_all_the_time() -> None:
    runs = RacingRuns(*[GOES_ON, OWES] * 3)
    connection, _ = connected(runs)
    ack = await connection.handle(RUN.key.owner, "chat:stop", SENT, wants_ack=True)
    assert (ack["status"], ack["code"]) == ("error", "conversation_busy")
    assert (len(runs.cancelled), runs.states) == (3, [])
