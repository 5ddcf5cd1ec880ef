"""What clients are told of what is left: in headers, and as a view."""

import pytest
from tests.support.asgi_client import ask
from tests.support.sse_site import END, Site

from passback.core.budgets import Left
from passback.core.events import Failed, RunFinished
from passback.http.headers import left_headers
from passback.native.shapes import left_view

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("left", "told"),
    [
        (None, {}),
        (Left(), {}),
        (Left(tokens=0), {"x-budget-left-tokens": "0"}),
        (
            Left(tokens=10**12, seconds=1234.5678901, cost=0.00001),
            {
                "x-budget-left-tokens": "1000000000000",
                "x-budget-left-seconds": "1234.56789",
                "x-budget-left-cost": "0.00001",
            },
        ),
    ],
)
def test_headers_tell_plain_numbers_of_what_is_limited(
    left: Left | None, told: dict[str, str]
) -> None:
    assert left_headers(left) == told


def test_a_view_has_what_is_limited() -> None:
    assert left_view(Left()) == {}
    assert left_view(Left(3, 40, 0.5, 0.25)) == {
        "turns": 3,
        "tokens": 40,
        "seconds": 0.5,
        "cost": 0.25,
    }


async def test_a_stream_and_a_refusal_say_what_was_left_when_they_began() -> None:
    site = Site()
    site.runs.remains = Left(tokens=5)
    site.runs.say(END)
    stream = await ask(site.app(), "GET", "/")
    assert stream.headers["x-budget-left-tokens"] == "5"
    failing = Site()
    failing.runs.remains = Left(tokens=5)
    failing.runs.say(RunFinished(Failed("model_unavailable", "away")))
    refusal = await ask(failing.text(), "GET", "/")
    assert (refusal.status, refusal.headers["x-budget-left-tokens"]) == (503, "5")
