"""What a raw client sees of the faults of a replay, recorded ones and others."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any

import anyio
import pytest
from starlette.types import ASGIApp
from tests.support.asgi_client import Answer, ask, ask_json
from tests.support.asgi_client import exchange as exchange_of
from tests.support.commands import passback
from tests.support.recordings import exchange, frame, recording, result, user

from passback.cli import EXIT_USAGE, main
from passback.replay import PlayFaults, replay_site
from passback.replay.faults import BreakOff, Lose, Plan, Refuse, TakeOver, plan_play
from passback.replay.recording import Exchange, Faults, parse_recording

pytestmark = pytest.mark.anyio

LETTERS = exchange(user("spell"), "a", "b", "c", "d")
DIGITS = exchange(user("count"), "1", "2", run="run_2")
PATH = "/conversations/c/stream"


def site(*exchanges: Mapping[str, Any], clean: bool = False, **faults: Any) -> ASGIApp:
    """Return a replay at once, with faults by their names in Python."""
    wanted = PlayFaults(faults, ignores_recorded=clean)
    return replay_site(parse_recording(recording(*map(dict, exchanges))), speed=0, faults=wanted)


class Seen:
    """What came over one connection.

    Attributes:
        status: 0 if the connection was closed before an answer.
        letters: the joined contents of the text events.
        kinds: the types of all events, `[DONE]` included.
        ids: of the frames.
        whole: whether the answer had its end.
    """

    def __init__(
        self, status: int, headers: Mapping[str, str], body: bytes, *, whole: bool
    ) -> None:
        self.status, self.headers, self.whole = status, headers, whole
        self.body = body.decode()
        lines = self.body.split("\n")
        self.ids = [line.removeprefix("id: ") for line in lines if line.startswith("id: ")]
        data = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
        events = [{"type": one} if one == "[DONE]" else json.loads(one) for one in data]
        self.events = events
        self.kinds = [event["type"] for event in events]
        self.letters = "".join(event.get("content", "") for event in events)


async def connect(
    app: ASGIApp, method: str, path: str, body: object = None, **headers: str
) -> Seen:
    """Send a request and read until the connection ends, in whatever way."""
    sent = {"content-type": "application/json", **headers} if body is not None else headers
    text = b"" if body is None else json.dumps(body).encode()
    seen = Seen(0, {}, b"", whole=False)
    with suppress(anyio.EndOfStream):
        try:
            async with exchange_of(app, method, path, headers=sent, body=text) as one:
                received = await one.rest()
                seen = Seen(one.status, one.headers, received, whole=one.ended)
        except* anyio.EndOfStream as group:
            raise anyio.EndOfStream from group
    return seen


async def post(app: ASGIApp, body: object | None = None, key: str = "", **headers: str) -> Seen:
    headers |= {"idempotency-key": f'"{key}"'} if key else {}
    return await connect(app, "POST", "/send-message", body or user("hi"), **headers)


async def follow(app: ASGIApp, after: str, query: str = "") -> Seen:
    return await connect(app, "GET", f"{PATH}{query}", **{"last-event-id": after})


# ---------------------------------------------------------------- cuts
@pytest.mark.parametrize("count", [1, 2, 3, 4])
async def test_an_answer_breaks_off_after_so_many_events_and_once(count: int) -> None:
    app = site(LETTERS, cut_after=(count,))
    cut = await post(app, key="k")
    assert (cut.status, cut.letters, cut.whole) == (200, "abcd"[:count], False)
    rest = await follow(app, cut.ids[-1])
    assert (rest.letters, rest.kinds[-1], rest.whole) == ("abcd"[count:], "[DONE]", True)
    again = await post(app, key="k")
    assert (again.letters, again.whole) == ("abcd", True)
    # another post is another play
    assert (await post(app, key="k2")).letters == "abcd"[:count]


async def test_several_cuts_come_in_order_each_at_its_place() -> None:
    app = site(LETTERS, cut_after=(3, 1))
    letters: list[str] = []
    seen = await post(app)
    while not seen.whole:
        letters.append(seen.letters)
        seen = await follow(app, seen.ids[-1])
    assert [*letters, seen.letters] == ["a", "bc", "d"]


async def test_an_answer_that_is_cut_before_its_end_gets_it_when_the_reader_comes_back() -> None:
    app = site(turns(), cut_after=(6,))
    seen = await post(app)
    assert (seen.ids[-1], seen.letters, seen.whole) == ("run_1.1-6", "abcd", False)
    for _ in range(2):
        rest = await follow(app, seen.ids[-1])
        assert (rest.kinds, rest.whole) == (["[DONE]"], True)


async def test_a_cut_behind_the_end_changes_nothing() -> None:
    seen = await post(site(LETTERS, cut_after=(5, 99)))
    assert (seen.letters, seen.kinds[-1], seen.whole) == ("abcd", "[DONE]", True)


RECORDED = LETTERS | {
    "cuts": [
        {"at": 0, "after": 0, "message": "no answer", "response": None},
        {"at": 1, "after": 2, "message": "cut", "response": {"status": 200, "headers": {}}},
        {
            "at": 2,
            "after": 2,
            "message": "busy",
            "response": {
                "status": 503,
                "headers": {"retry-after": "7"},
                "body": {"code": "server_busy", "message": "later", "request_id": "req_7"},
            },
        },
        {"at": 3, "after": 2, "message": "cut", "response": {"status": 200, "headers": {}}},
    ]
}


async def test_what_went_wrong_in_the_recording_goes_wrong_again_in_its_order() -> None:
    app = site(RECORDED)
    first = await post(app, key="k")
    assert (first.status, first.whole) == (0, False)
    second = await post(app, key="k")
    assert (second.status, second.letters, second.whole) == (200, "ab", False)
    refused = await follow(app, second.ids[-1])
    assert (refused.status, refused.headers["retry-after"]) == (503, "7")
    body = {"code": "server_busy", "message": "later", "request_id": "req_7"}
    assert json.loads(refused.body) == body
    # a stream that breaks off before it brings anything new
    empty = await follow(app, second.ids[-1])
    assert (empty.status, empty.letters, empty.whole) == (200, "", False)
    last = await follow(app, second.ids[-1])
    assert (last.letters, last.whole) == ("cd", True)


async def test_a_clean_replay_has_no_faults_of_the_file() -> None:
    of_file = RECORDED | {"faults": {"refuse": [429]}}
    seen = await post(site(of_file, clean=True))
    assert (seen.status, seen.letters, seen.whole) == (200, "abcd", True)
    assert (await post(site(of_file, clean=True, refuse=(503,)))).status == 503


async def test_cuts_of_an_older_file_are_placed_by_their_times() -> None:
    frames = [frame(number, {"type": "text", "content": each}, at=10 * number)
              for number, each in enumerate("ab", 1)]  # fmt: skip
    cuts = [{"at": 5, "message": "no answer"}, {"at": 10, "message": "cut"}]
    app = site(LETTERS | {"frames": frames, "cuts": cuts})
    assert (await post(app, key="k")).status == 0
    seen = await post(app, key="k")
    assert (seen.letters, seen.whole) == ("a", False)


# ---------------------------------------------------------------- refusals, lost answers
@pytest.mark.parametrize(
    ("status", "code"), [(409, "conversation_busy"), (429, "too_many_runs"), (503, "server_busy")]
)
async def test_a_post_is_refused_before_its_run(status: int, code: str) -> None:
    app = site(LETTERS, DIGITS, refuse=(status,), retry_after=5)
    refused = await post(app, **{"x-request-id": "req_mine"})
    assert (refused.status, refused.headers["retry-after"]) == (status, "5")
    shown = json.loads(refused.body)
    assert (shown["code"], shown["request_id"]) == (code, "req_mine")
    assert refused.headers["x-request-id"] == "req_mine"
    assert "x-run-id" not in refused.headers
    # the refusal has used no answer up: without a key, too, the next post gets the first
    assert (await post(app)).letters == "abcd"
    assert (await post(app)).status == status
    assert (await post(app)).letters == "12"


async def test_refusals_come_one_after_the_other() -> None:
    app = site(LETTERS, refuse=(503, 429), twice=True, cut_after=(1,))
    answers = [await post(app, key="k") for _ in range(5)]
    assert [one.status for one in answers] == [503, 429, 0, 200, 200]
    assert [one.letters for one in answers[3:]] == ["a", "abcd"]


async def test_results_are_refused_and_lost_as_messages_are() -> None:
    results = exchange(result("call_1"), "done", run="run_3")
    app = site(LETTERS, results, refuse=(429,), twice=True)
    body = result("call_1")
    answers = [await post(app, body, key="k") for _ in range(3)]
    assert [one.status for one in answers] == [429, 0, 200]
    assert answers[-1].letters == "done"


async def test_a_post_whose_answer_is_lost_has_arrived() -> None:
    app = site(LETTERS, DIGITS, twice=True)
    assert (await post(app, key="k")).status == 0
    # the run goes on, and can be followed, as with a server
    running = await connect(app, "GET", PATH)
    assert (running.letters, running.headers["x-run-id"]) == ("abcd", "run_1")
    assert (await post(app, key="k")).letters == "abcd"
    # without a key, a repeat is another post
    app = site(LETTERS, DIGITS, twice=True)
    assert (await post(app)).status == 0
    assert (await post(app)).status == 0
    assert (await post(app)).status == 0


# ---------------------------------------------------------------- take-over
def turns() -> dict[str, Any]:
    """A run of two turns: a tool of the server was called in the first."""
    events = [
        {"type": "run-start", "runId": "run_1"},
        {"type": "text", "content": "a"},
        {"type": "tool-result", "toolCallId": "t", "result": "1"},
        {"type": "text", "content": "b"},
        {"type": "text", "content": "c"},
        {"type": "text", "content": "d"},
        "[DONE]",
    ]
    frames = [frame(number, event) for number, event in enumerate(events, 1)]
    frames[-1]["id"] = frames[-2]["id"]
    return LETTERS | {"frames": frames}


async def test_a_take_over_makes_the_turn_void_and_sends_it_again() -> None:
    app = site(turns(), take_over_after=5)
    body = user("hi") | {"include": ["rewind", "run"]}
    seen = await post(app, body)
    assert (seen.letters, seen.whole, seen.ids[-1]) == ("abc", False, "run_1.1-5")
    rest = await follow(app, "run_1.1-5", "?include=rewind,run")
    assert rest.events == [
        {"type": "rewind", "to": "run_1.1-3"},
        {"type": "text", "content": "b"},
        {"type": "text", "content": "c"},
        {"type": "text", "content": "d"},
        {"type": "[DONE]"},
    ]
    assert rest.ids == [f"run_1.2-{number}" for number in (1, 2, 3, 4, 4)]
    # whoever has nothing void, or comes later, is told nothing
    for after in ("run_1.1-3", "run_1.1-1"):
        later = await follow(app, after, "?include=rewind,run")
        assert "rewind" not in later.kinds
        assert later.letters.endswith("bcd")
    assert (await follow(app, "run_1.2-3")).letters == "d"
    whole = await connect(app, "GET", f"{PATH}?runId=run_1")
    assert (whole.letters, whole.whole) == ("abcd", True)


async def test_a_reader_without_rewinds_gets_an_error_and_reads_from_the_start() -> None:
    app = site(turns(), take_over_after=4)
    seen = await post(app)
    assert (seen.letters, seen.whole) == ("ab", False)
    ended = await follow(app, seen.ids[-1])
    [error, done] = ended.events
    assert (error["type"], error["code"], error["retryable"]) == ("error", "rewound", True)
    assert (done["type"], ended.ids) == ("[DONE]", ["run_1.0-0", "run_1.0-0"])
    # the id stands for the run's start
    assert (await follow(app, "run_1.0-0")).letters == "abcd"


async def test_a_take_over_in_the_first_turn_rewinds_to_the_start() -> None:
    app = site(LETTERS, take_over_after=2)
    await post(app)
    rest = await follow(app, "run_1.1-2", "?include=rewind")
    assert rest.events[0] == {"type": "rewind", "to": "run_1.0-0"}
    assert rest.letters == "abcd"


async def test_a_repeated_post_after_a_take_over_continues_behind_its_last_event() -> None:
    app = site(turns(), take_over_after=5)
    body = user("hi") | {"include": ["rewind"]}
    seen = await post(app, body, key="k")
    rest = await post(app, body, key="k", **{"last-event-id": seen.ids[-1]})
    assert (rest.kinds[0], rest.letters) == ("rewind", "bcd")
    # an id of another run is that of what the client read before
    whole = await post(app, body, key="k", **{"last-event-id": "run_0.1-9"})
    assert (whole.kinds[0], whole.letters) == ("run-start", "abcd")


@pytest.mark.parametrize(
    "event",
    [
        {"type": "run-end", "outcome": "completed"},
        {"type": "owed", "toolCalls": []},
        {"type": "tool-call-end", "toolCallId": "t"},
        {"type": "error", "error": "no", "code": "lost", "retryable": True},
    ],
)
async def test_what_is_stored_is_never_void(event: dict[str, Any]) -> None:
    frames = [*LETTERS["frames"][:3], frame(4, event), frame(4, "[DONE]")]
    app = site(LETTERS | {"frames": frames}, take_over_after=4)
    assert (await post(app)).letters == "abc"
    rest = await follow(app, "run_1.1-3", "?include=rewind")
    assert (rest.kinds, rest.ids) == ([event["type"], "[DONE]"], ["run_1.1-4"] * 2)


@pytest.mark.parametrize(
    "odd",
    [
        {"at": 0, "id": "", "data": '{"type":"text","content":"e"}'},
        {"at": 0, "id": "7", "data": '{"type":"text","content":"e"}'},
        {"at": 0, "id": "run_1.2-1", "data": '{"type":"rewind","to":"run_1.1-1"}'},
    ],
)
async def test_frames_that_cannot_be_renumbered_are_only_cut(odd: dict[str, Any]) -> None:
    app = site(LETTERS | {"frames": [*LETTERS["frames"], odd]}, take_over_after=2)
    assert (await post(app)).letters == "ab"
    rest = await follow(app, "run_1.1-2", "?include=rewind")
    assert (rest.ids[0], rest.letters[:2]) == ("run_1.1-3", "cd")


async def test_another_reader_is_cut_by_the_take_over_too() -> None:
    hour = 3_600_000
    frames = [*LETTERS["frames"][:2], *({**one, "at": hour} for one in LETTERS["frames"][2:])]
    app = replay_site(
        parse_recording(recording(LETTERS | {"frames": frames})),
        speed=1e6,
        faults=PlayFaults({"take_over_after": 3}),
    )
    kind = {"content-type": "application/json"}
    async with (
        exchange_of(app, "POST", "/send-message", headers=kind, body=b"{}") as one,
        exchange_of(app, "GET", f"{PATH}?runId=run_1") as other,
    ):
        begun = [await each.chunk() + await each.chunk() for each in (one, other)]
        seen = [Seen(200, {}, first + await each.rest(), whole=each.ended)
                for first, each in zip(begun, (one, other), strict=True)]  # fmt: skip
    assert [each.whole for each in seen] == [False, False]
    # whoever is there first sees the third event; nobody sees the fourth
    first, second = sorted((each.letters for each in seen), key=len)
    assert (second, "abc".startswith(first)) == ("abc", True)


# ---------------------------------------------------------------- delays
async def pieces(app: ASGIApp) -> list[str]:
    """The chunks in which an answer comes, without the opening comment."""
    kind = {"content-type": "application/json"}
    async with exchange_of(app, "POST", "/send-message", headers=kind, body=b"{}") as one:
        await one.chunk()
        chunks: list[str] = []
        while not one.ended:
            chunks.append((await one.chunk()).decode())
    return [chunk for chunk in chunks if chunk]


async def test_without_a_delay_all_that_is_due_comes_together() -> None:
    assert len(await pieces(site(LETTERS))) == 1


async def test_each_event_comes_later_than_the_one_before() -> None:
    began = monotonic()
    chunks = await pieces(site(LETTERS, delay=40))
    # no event is early, however slow the machine is
    assert monotonic() - began >= 5 * 0.04
    assert "".join(chunks).count("data: ") == 5


async def test_the_first_byte_waits() -> None:
    app = site(LETTERS, delay_first=600_000)
    kind = {"content-type": "application/json"}
    with anyio.move_on_after(0.2) as waiting:
        await ask(app, "POST", "/send-message", headers=kind, body=b"{}")
    assert waiting.cancelled_caught
    assert (await post(site(LETTERS, delay_first=5))).letters == "abcd"


# ---------------------------------------------------------------- plans
def plan(number: int = 1, *, exchange: dict[str, Any] = LETTERS, **faults: Any) -> Plan:
    return plan_play(Exchange.model_validate(exchange), Faults.model_validate(faults), number)


def test_a_plan_has_refusals_first_then_the_rest_by_place() -> None:
    planned = plan(refuse=[429], twice=True, cutAfter=[3, 1], takeOverAfter=2, delay=1)
    kinds = [type(failure) for failure in planned.failures]
    assert kinds == [Refuse, Lose, BreakOff, TakeOver, BreakOff]
    assert [failure.after for failure in planned.failures[2:]] == [1, 2, 3]
    assert (planned.delay, planned.delay_first) == (1, 0)


def test_random_faults_are_the_same_for_the_same_seed_and_differ_by_play_and_seed() -> None:
    def plans(seed: int) -> Sequence[Plan]:
        return [plan(number, seed=seed) for number in range(20)]

    assert plans(7) == plans(7)
    assert plans(7) != plans(8)
    assert len({repr(one) for one in plans(7)}) > 10


def test_random_faults_are_of_every_kind_but_409_and_at_places_that_exist() -> None:
    planned = [plan(number, seed=1) for number in range(300)]
    failures = [failure for one in planned for failure in one.failures]
    assert {type(failure) for failure in failures} == {Refuse, Lose, BreakOff, TakeOver}
    refused = {one.response.status for one in failures if isinstance(one, Refuse)}
    assert refused == {429, 503}
    places = {one.after for one in failures if isinstance(one, BreakOff | TakeOver)}
    assert places == {1, 2, 3, 4}
    assert len({one.delay for one in planned}) > 1
    # nothing can be cut from a single frame, or from none
    few: list[dict[str, Any]]
    for few in (LETTERS["frames"][:1], []):
        short = [plan(number, exchange=LETTERS | {"frames": few}, seed=1) for number in range(50)]
        kinds = {type(failure) for one in short for failure in one.failures}
        assert kinds == {Refuse, Lose}


async def test_the_same_seed_plays_the_same_over_the_wire() -> None:
    async def play(seed: int) -> list[tuple[int, str, bool]]:
        app = site(LETTERS, DIGITS, seed=seed)
        seen = [await post(app, key=str(number // 8)) for number in range(40)]
        return [(one.status, one.letters, one.whole) for one in seen]

    first = await play(3)
    assert first == await play(3)
    assert first != await play(4)
    assert len({status for status, _, _ in first}) > 1


# ---------------------------------------------------------------- faults of the file
async def test_faults_of_the_file_are_played_those_of_an_exchange_first() -> None:
    own = DIGITS | {"faults": {"cutAfter": [1]}}
    text = recording(LETTERS, own, faults={"refuse": [429], "retryAfter": 0})
    app = replay_site(parse_recording(text), speed=0)
    refused = await post(app)
    assert (refused.status, refused.headers["retry-after"]) == (429, "0")
    assert (await post(app)).letters == "abcd"
    assert (await post(app)).letters == "1"


async def test_a_flag_takes_the_place_of_the_files_value_and_of_no_other() -> None:
    text = recording(LETTERS, faults={"refuse": [429], "cutAfter": [2]})
    app = replay_site(parse_recording(text), speed=0, faults=PlayFaults({"cut_after": (3,)}))
    assert (await post(app)).status == 429
    assert (await post(app)).letters == "abc"


@pytest.mark.parametrize(
    ("faults", "problem"),
    [
        ([], "faults: Input should be"),
        ({"cutafter": [1]}, "faults.cutafter: Extra inputs are not permitted"),
        ({"cutAfter": 3}, "faults.cutAfter: Input should be a valid tuple"),
        ({"cutAfter": [0]}, "faults.cutAfter.0: Input should be greater than or equal to 1"),
        ({"cutAfter": [1, "2"]}, "faults.cutAfter.1: Input should be a valid integer"),
        ({"cutAfter": [1.5]}, "faults.cutAfter.0: Input should be a valid integer"),
        ({"cutAfter": [1] * 1001}, "faults.cutAfter: Tuple should have at most 1000"),
        ({"takeOverAfter": 0}, "faults.takeOverAfter: Input should be greater"),
        ({"takeOverAfter": [2]}, "faults.takeOverAfter: Input should be a valid integer"),
        ({"delay": -1}, "faults.delay: Input should be greater"),
        ({"delay": 600_001}, "faults.delay: Input should be less"),
        ({"delay": "5"}, "faults.delay: Input should be a valid number"),
        ({"delayFirst": -0.5}, "faults.delayFirst: Input should be greater"),
        ({"refuse": 429}, "faults.refuse: Input should be a valid tuple"),
        ({"refuse": [200]}, "faults.refuse.0: Input should be 409, 429 or 503"),
        ({"refuse": ["429"]}, "faults.refuse.0: Input should be 409, 429 or 503"),
        ({"retryAfter": 3601}, "faults.retryAfter: Input should be less"),
        ({"retryAfter": 0.5}, "faults.retryAfter: Input should be a valid integer"),
        ({"twice": "yes"}, "faults.twice: Input should be a valid boolean"),
        ({"twice": 1}, "faults.twice: Input should be a valid boolean"),
        ({"seed": "x"}, "faults.seed: Input should be a valid integer"),
        ({"seed": 1.5}, "faults.seed: Input should be a valid integer"),
    ],
)
def test_malformed_faults_are_refused_with_their_place(faults: object, problem: str) -> None:
    for text, place in (
        (recording(LETTERS, faults=faults), ""),
        (recording(LETTERS | {"faults": faults}), "exchanges.0."),
    ):
        with pytest.raises(ValueError, match=r".") as refused:
            parse_recording(text)
        assert str(refused.value).startswith(place + problem)


@pytest.mark.parametrize(
    ("cut", "problem"),
    [
        (1, "exchanges.0.cuts.0: Input should be"),
        ({}, "exchanges.0.cuts.0.at: Field required"),
        ({"at": -1}, "exchanges.0.cuts.0.at: Input should be greater"),
        ({"at": 1, "after": -1}, "exchanges.0.cuts.0.after: Input should be greater"),
        ({"at": 1, "after": 1.5}, "exchanges.0.cuts.0.after: Input should be a valid integer"),
        ({"at": 1, "response": 503}, "exchanges.0.cuts.0.response: Input should be"),
        ({"at": 1, "response": {}}, "exchanges.0.cuts.0.response.status: Field required"),
        (
            {"at": 1, "response": {"status": 503, "headers": {"retry-after": "1\r\nx: y"}}},
            "exchanges.0.cuts.0.response.headers.retry-after: String",
        ),
    ],
)
def test_a_malformed_cut_is_refused_with_its_place(cut: object, problem: str) -> None:
    with pytest.raises(ValueError, match=r".") as refused:
        parse_recording(recording(LETTERS | {"cuts": [cut]}))
    assert str(refused.value).startswith(problem)


# ---------------------------------------------------------------- branches
EDIT = exchange(user("other") | {"after": ""}, "e", run="run_5")
LATER_EDIT = exchange(user("more") | {"after": "msg_1"}, "f", run="run_6")
REGENERATED = exchange({"after": "msg_2"}, "g", run="run_7")


async def test_edits_and_regenerated_answers_get_recorded_ones_of_their_kind_in_turn() -> None:
    app = site(LETTERS, EDIT, REGENERATED, LATER_EDIT, DIGITS)
    bodies = [
        user("x"),
        user("y") | {"after": "anything"},
        {"after": "anything"},
        user("z"),
        user("y") | {"after": ""},
        {"after": "anything", "messages": []},
        user("y") | {"after": ""},
    ]
    letters = [(await post(app, body)).letters for body in bodies]
    assert letters == ["abcd", "e", "g", "12", "f", "g", "e"]


async def test_an_edit_without_a_recorded_one_counts_as_a_message() -> None:
    app = site(LETTERS, DIGITS)
    bodies = [user("x") | {"after": "m"}, {"after": "m"}, user("x")]
    assert [(await post(app, body)).letters for body in bodies] == ["abcd", "12", "abcd"]


async def test_a_message_without_a_recorded_one_gets_whatever_there_is() -> None:
    app = site(EDIT, REGENERATED)
    assert [(await post(app, user("x"))).letters for _ in range(3)] == ["e", "g", "e"]


async def test_a_post_to_an_agent_by_its_name_is_answered_too() -> None:
    app = site(LETTERS)
    answer: Answer = await ask_json(app, "POST", "/v1/aibot/bots/cook/send-message", user("x"))
    assert answer.body.count(b"data: ") == 5


# ---------------------------------------------------------------- the command
@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--cut-after", "0"], "--cut-after: '0' is not a whole number from 1"),
        (["--cut-after", "1,x"], "--cut-after: 'x' is not a whole number from 1"),
        (["--cut-after", "1,,2"], "--cut-after: '' is not a whole number from 1"),
        (["--cut-after", ",".join(["1"] * 1001)], "--cut-after: more than 1000 values"),
        (["--cut-after", "9" * 5000], "is not a whole number from 1"),
        (["--take-over-after", "-1"], "--take-over-after: '-1' is not a whole number from 1"),
        (["--take-over-after", "1,2"], "--take-over-after: '1,2' is not a whole number"),
        (["--delay", "-1"], "--delay: '-1' is not a number from 0 to 600000"),
        (["--delay", "nan"], "--delay: 'nan' is not a number from 0 to 600000"),
        (["--delay", "1s"], "--delay: '1s' is not a number from 0 to 600000"),
        (["--delay-first", "600001"], "--delay-first: '600001' is not a number from 0"),
        (["--refuse", "500"], "--refuse: '500' is not 409, 429 or 503"),
        (["--refuse", "429,"], "--refuse: '' is not 409, 429 or 503"),
        (["--refuse", "all"], "--refuse: 'all' is not 409, 429 or 503"),
        (["--retry-after", "3601"], "--retry-after: '3601' is not a whole number from 0 to 3600"),
        (["--retry-after", "0.5"], "--retry-after: '0.5' is not a whole number from 0 to 3600"),
        (["--seed", "-1"], "--seed: '-1' is not a whole number of at most 18 digits"),
        (["--seed", "1" * 19], "is not a whole number of at most 18 digits"),
        (["--cuts-after", "1"], "unknown flag --cuts-after (did you mean --cut-after?)"),
        (["--delay"], "--delay: expected one argument"),
    ],
)
def test_wrong_faults_on_the_command_line_are_an_error(
    arguments: list[str], error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match=str(EXIT_USAGE)):
        main(["replay", "run.json", *arguments])
    assert error in capsys.readouterr().err


def test_a_file_with_unknown_faults_is_an_error_of_one_line(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_bytes(recording(LETTERS, faults={"cut": 1}))
    done = passback("replay", "run.json", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (EXIT_USAGE, "")
    assert done.stderr == "passback: run.json: faults.cut: Extra inputs are not permitted\n"
