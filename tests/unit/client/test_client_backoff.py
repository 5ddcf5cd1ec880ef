"""When the client tries again."""

import pytest

from passback_client import Refused, Retry, Unreachable
from passback_client.backoff import Backoff, parse_retry_after
from passback_client.errors import Facts

LOST = Unreachable("lost")
RETRY = Retry(attempts=6, first=1, longest=5, patience=30)


def refused(retry_after: float | None) -> Refused:
    return Refused("no", code="queue_full", facts=Facts(429, True, retry_after))


def pauses(random: float, count: int = 5, asked: float | None = None) -> list[float]:
    backoff = Backoff(RETRY, lambda: random)
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
    backoff = Backoff(RETRY, lambda: 1)
    assert backoff.pause_after(refused(20)) == 21
    late = refused(31)
    with pytest.raises(Refused) as caught:
        backoff.pause_after(late)
    assert caught.value is late


def test_attempts_are_bounded_and_a_success_begins_anew() -> None:
    backoff = Backoff(RETRY, lambda: 1)
    for _ in range(5):
        backoff.pause_after(LOST)
    backoff.succeeded()
    assert backoff.pause_after(LOST) == 1
    for _ in range(4):
        backoff.pause_after(LOST)
    with pytest.raises(Unreachable):
        backoff.pause_after(LOST)


def test_any_number_of_attempts_may_be_asked_for() -> None:
    backoff = Backoff(Retry(attempts=3000, first=1, longest=5), lambda: 1)
    assert [backoff.pause_after(LOST) for _ in range(2999)][-1] == 5


def test_looks_at_what_others_do_become_rarer_and_wait_no_longer_than_that_takes() -> None:
    backoff = Backoff(RETRY, lambda: 1)
    assert [backoff.pause_within(None) for _ in range(4)] == [1, 2, 4, 5]
    assert [backoff.pause_within(most) for most in (3, 0, 9)] == [3, 1, 5]
    assert len([backoff.pause_within(9) for _ in range(99)]) == 99


def test_chance_comes_from_the_system_unless_told_otherwise() -> None:
    assert 0.5 <= Backoff(RETRY).pause_after(LOST) <= 1


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
