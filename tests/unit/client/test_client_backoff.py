"""When the client tries again."""

from itertools import chain, repeat

import pytest

from passback_client import Refused, Retry, Unreachable
from passback_client.backoff import Backoff, parse_retry_after
from passback_client.contact import Contact
from passback_client.errors import Facts

LOST = Unreachable("lost")
RETRY = Retry(attempts=6, first=1, longest=5, patience=30)
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


def test_a_refusal_that_says_when_to_come_back_is_heard_and_one_too_late_is_raised() -> None:
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


def test_looks_at_what_others_do_become_rarer_and_wait_no_longer_than_that_takes() -> None:
    backoff = Backoff(RETRY, MADE, random=lambda: 1)
    assert [backoff.pause_within(None) for _ in range(4)] == [1, 2, 4, 5]
    assert [backoff.pause_within(most) for most in (3, 0, 9)] == [3, 1, 5]
    assert len([backoff.pause_within(9) for _ in range(99)]) == 99


def test_chance_comes_from_the_system_unless_told_otherwise() -> None:
    assert 0.5 <= Backoff(RETRY, MADE).pause_after(LOST) <= 1


# ---------------------------------------------------------------- a server that has never answered
def tried(retry: Retry, contact: Contact, *, attempt: float = 0) -> tuple[int, float]:
    """How often, and for how many seconds, a request is tried that always fails, each time after `attempt` seconds."""
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


def test_with_its_first_answer_the_bound_is_gone() -> None:
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


def test_a_date_to_come_is_some_time_away() -> None:
    assert (parse_retry_after("Fri, 01 Jan 2100 00:00:00 GMT") or 0) > 1e6
