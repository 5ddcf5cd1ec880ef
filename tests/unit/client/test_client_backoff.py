"""Pauses between attempts of the client, and the end of its background work."""

import asyncio
import signal
import sys
import threading
from collections.abc import Iterator
from itertools import chain, repeat

import anyio
import pytest
from tests.support.python_client import PAINT, Script, owes
from tests.unit.client.replies import says

from passback_client import BadSetup, Refused, Retry, Tool, ToolContext, Unreachable
from passback_client import sync as plain
from passback_client.backoff import Backoff, parse_retry_after
from passback_client.contact import Contact
from passback_client.errors import Facts
from passback_client.loop import Loop, LoopCall
from passback_client.tools import Execute

pytestmark = pytest.mark.anyio


LOST = Unreachable("lost")
RETRY = Retry(attempts=6, first=1, longest=5, longest_retry_after=30)
MADE = Contact(is_made=True)


def refused(retry_after: float | None) -> Refused:
    return Refused("no", code="queue_full", facts=Facts(429, True, retry_after))


def pauses(random: float, count: int = 5, asked: float | None = None) -> list[float]:
    backoff = Backoff(RETRY, MADE, random=lambda: random)
    return [backoff.pause_after(LOST, asked) for _ in range(count)]


def test_pauses_double_up_to_the_longest_and_a_part_of_each_is_chance() -> None:
    assert pauses(1) == [1, 2, 4, 5, 5]
    assert pauses(0) == [0.5, 1, 2, 2.5, 2.5]


def test_the_pause_that_a_stream_asks_for_is_the_first_one_within_bounds() -> None:
    assert pauses(1, asked=2) == [2, 4, 5, 5, 5]
    assert pauses(1, asked=0) == [0, 0, 0, 0, 0]
    assert pauses(1, count=3, asked=10) == [10, 10, 10]
    assert pauses(1, count=3, asked=1e9) == [30, 30, 30]


def test_retry_after_is_waited_for_and_one_beyond_the_bound_is_raised() -> None:
    backoff = Backoff(RETRY, MADE, random=lambda: 1)
    assert backoff.pause_after(refused(20)) == 21
    late = refused(31)
    with pytest.raises(Refused) as caught:
        backoff.pause_after(late)
    assert caught.value is late


def test_attempts_are_bounded_and_a_success_begins_anew() -> None:
    backoff = Backoff(RETRY, MADE, random=lambda: 1)
    for _ in range(5):
        backoff.pause_after(LOST)
    backoff.succeeded()
    assert backoff.pause_after(LOST) == 1
    for _ in range(4):
        backoff.pause_after(LOST)
    with pytest.raises(Unreachable):
        backoff.pause_after(LOST)


def test_any_number_of_attempts_may_be_asked_for() -> None:
    backoff = Backoff(Retry(attempts=3000, first=1, longest=5), MADE, random=lambda: 1)
    assert [backoff.pause_after(LOST) for _ in range(2999)][-1] == 5


def test_polls_for_the_calls_of_others_become_rarer_within_the_time_of_a_claim() -> None:
    backoff = Backoff(RETRY, MADE, random=lambda: 1)
    assert [backoff.pause_within(None) for _ in range(4)] == [1, 2, 4, 5]
    assert [backoff.pause_within(most) for most in (3, 0, 9)] == [3, 1, 5]
    assert len([backoff.pause_within(9) for _ in range(99)]) == 99


def test_pauses_use_the_systems_random_numbers_by_default() -> None:
    assert 0.5 <= Backoff(RETRY, MADE).pause_after(LOST) <= 1


# ---------------------------------------------------------------- a server that has never answered
def tried(retry: Retry, contact: Contact, *, attempt: float = 0) -> tuple[int, float]:
    """Try a request that always fails, each time after `attempt` seconds.

    Return the number of attempts, and the seconds that they took together.
    """
    now = 0.0
    backoff = Backoff(retry, contact, random=lambda: 1, clock=lambda: now)
    for count in range(1, 100):
        backoff.begin()
        now += attempt
        try:
            now += backoff.pause_after(LOST)
        except Unreachable:
            return count, now
    raise AssertionError("it has no end")


@pytest.mark.parametrize(
    ("retry", "contact", "attempt", "outcome"),
    [
        (Retry(), Contact(), 0, (3, 1.2)),
        (Retry(), Contact(), 0.5, (2, 1.4)),
        (Retry(), Contact(), 30, (1, 30)),
        (Retry(first=3), Contact(), 0, (1, 0)),
        (Retry(), MADE, 0, (8, 28.4)),
        (Retry(attempts=4), Contact(), 30, (4, 122.8)),
        (Retry(attempts=1), Contact(), 0, (1, 0)),
    ],
)
def test_a_server_that_never_answered_is_given_up_in_two_seconds_unless_attempts_are_counted(
    retry: Retry, contact: Contact, attempt: float, outcome: tuple[int, float]
) -> None:
    count, seconds = tried(retry, contact, attempt=attempt)
    assert (count, round(seconds, 6)) == outcome


def test_after_a_first_answer_the_first_bound_is_gone() -> None:
    contact, now = Contact(), 0.0
    backoff = Backoff(Retry(), contact, random=lambda: 1, clock=lambda: now)
    backoff.begin()
    for made in chain([False], repeat(True, 6)):
        contact.is_made = made
        now += backoff.pause_after(LOST)
    assert round(now, 6) == 28.4


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, None),
        ("", None),
        ("0", 0.0),
        ("120", 120.0),
        ("1.5", None),
        ("soon", None),
        ("9" * 5000, None),
        ("٣", None),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0.0),
        ("Wed, 21 Oct 2015 07:28:00 -0000", 0.0),
    ],
)
def test_retry_after_is_a_number_or_a_date(header: str | None, seconds: float | None) -> None:
    assert parse_retry_after(header) == seconds


def test_a_date_in_the_future_gives_positive_seconds() -> None:
    assert (parse_retry_after("Fri, 01 Jan 2100 00:00:00 GMT") or 0) > 1e6


# ---------------------------------------------------------------- the event loop
async def test_work_that_is_cancelled_before_it_begins_never_begins() -> None:
    done: list[str] = []

    async def work() -> None:
        done.append("work")

    call = LoopCall(work)
    call.leave()
    assert call.ended.is_set()
    with pytest.raises(asyncio.CancelledError):
        await call.run()
    assert done == []


async def test_cancelled_work_has_ended_when_its_cleanup_is_done() -> None:
    begun, unwound = anyio.Event(), anyio.Event()

    async def work() -> None:
        begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.lowlevel.checkpoint()
            assert not call.ended.is_set()
            unwound.set()

    call = LoopCall(work)
    task = asyncio.ensure_future(call.run())
    await begun.wait()
    call.leave()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert unwound.is_set()
    assert call.ended.is_set()
    call.leave()  # once more, in vain


def test_a_loop_runs_in_another_thread_while_it_is_open() -> None:
    async def thread() -> int:
        return threading.get_ident()

    loop = Loop()
    with pytest.raises(BadSetup):
        loop.run(thread)
    loop.open()
    try:
        assert loop.is_open
        assert loop.run(thread) != threading.get_ident()
    finally:
        loop.close()
    assert not loop.is_open


async def _leave(_: object, __: ToolContext) -> None:
    sys.exit(3)


async def _interrupt(_: object, __: ToolContext) -> None:
    raise KeyboardInterrupt


async def _ctrl_c(_: object, __: ToolContext) -> None:
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
    await anyio.sleep_forever()


@pytest.fixture
def sigint_as_in_a_terminal() -> Iterator[None]:
    """Set SIGINT as in a terminal: a shell starts programs in the background with it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("sigint_as_in_a_terminal")
def test_ctrl_c_interrupts_a_waiting_call() -> None:
    site = Script(owes(PAINT), says("Again."))
    with _client(site, _ctrl_c) as client:
        with pytest.raises(KeyboardInterrupt):
            client.ask("hi")
        assert client.ask("hi").text == "Again."


def test_the_sync_client_survives_a_tool_that_exits() -> None:
    site = Script(owes(PAINT), says("Done."), says("Again."))
    with _client(site, _leave) as client:
        assert (client.ask("hi").text, client.ask("hi").text) == ("Done.", "Again.")
    [result] = site.bodies[1]["messages"]
    assert (result["content"], result["isError"]) == ("SystemExit: 3", True)


def test_the_sync_client_survives_a_tool_that_is_interrupted() -> None:
    site = Script(owes(PAINT), says("Again."), says("And again."))
    with _client(site, _interrupt) as client:
        with pytest.raises(KeyboardInterrupt):
            client.ask("hi")
        assert (client.ask("hi").text, client.ask("hi").text) == ("Again.", "And again.")


def _client(site: Script, execute: Execute) -> plain.Client:
    tools = [Tool("paint", "", {}, execute)]
    return plain.Client("http://host", transport=site.transport, claims=False, tools=tools)
