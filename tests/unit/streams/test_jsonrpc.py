"""JSON-RPC: what is read, what is refused, and that each request has one answer."""

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.waiting import moment, wait_until

from passback.streams.jsonrpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    ConnectionLost,
    Notification,
    Peer,
    Request,
    RpcError,
)

pytestmark = pytest.mark.anyio

FRAME_BYTES = 10_000
SECRET = "hunter2"


class Line:
    """A peer, and the frames that it has sent."""

    def __init__(self, **limits: Any) -> None:
        self.sent: list[Any] = []
        self.peer = Peer(self._take, **{"depth": 8, "frame_bytes": FRAME_BYTES} | limits)

    def _take(self, text: str) -> None:
        assert text.isascii()
        assert "\n" not in text
        self.sent.append(json.loads(text))

    def read(self, **message: Any) -> Request | Notification | None:
        return self.peer.read(json.dumps({"jsonrpc": "2.0", **message}))

    def request(self, request_id: Any = 1, method: str = "m") -> Request:
        request = self.read(id=request_id, method=method)
        assert isinstance(request, Request)
        return request


def refusal(code: int, message: str, request_id: Any = None) -> Any:
    return {"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": message}}


# ---------------------------------------------------------------- reading
@pytest.mark.parametrize(
    "request_id", [0, -5, 2**63 - 1, -(2**63), "", "x" * 1000, "é\u2028", None]
)
def test_a_request_is_answered_with_its_id(request_id: Any) -> None:
    line = Line()
    request = line.read(id=request_id, method="m", params={"a": [1]})

    assert request == Request(request_id, "m", {"a": [1]})
    assert list(line.peer.in_progress) == [request_id]
    assert line.peer.answer(request, {"ok": "\u2028"})
    assert line.sent == [{"jsonrpc": "2.0", "id": request_id, "result": {"ok": "\u2028"}}]
    assert not line.peer.in_progress


def test_a_request_whose_text_cannot_be_read_is_answered_with_its_id() -> None:
    line = Line()
    half = r'{"jsonrpc": "2.0", "id": "a", "method": "m", "params": {"text": "\ud800"}}'
    assert line.peer.read(half) is None
    [answer] = line.sent
    assert (answer["id"], answer["error"]["code"]) == ("a", INVALID_PARAMS)
    line.request("a")  # whose own answer is still to come
    assert line.peer.read(half) is None
    assert line.peer.read(half.replace('"a"', "true")) is None
    assert line.peer.read('["\\ud800"]') is None
    codes = [(each["id"], each["error"]["code"]) for each in line.sent[1:]]
    assert codes == [(None, PARSE_ERROR)] * 3


@pytest.mark.parametrize("params", [{}, [], [1, "a"], {"a": None}, None])
def test_params_are_an_object_an_array_or_missing(params: Any) -> None:
    line = Line()

    assert line.read(method="m", params=params) == Notification("m", params)
    assert line.read(method="m") == Notification("m", None)
    assert line.sent == []


def test_an_error_has_data_only_where_there_is_some() -> None:
    line = Line()

    line.peer.refuse(line.request(1), RpcError(METHOD_NOT_FOUND, "there is no method m"))
    line.peer.refuse(line.request(2), RpcError(INVALID_PARAMS, "no", {"field": "a"}))

    assert line.sent == [
        refusal(METHOD_NOT_FOUND, "there is no method m", 1),
        {
            "jsonrpc": "2.0",
            "id": 2,
            "error": {"code": INVALID_PARAMS, "message": "no", "data": {"field": "a"}},
        },
    ]


NO_JSON = "the text is not valid JSON in UTF-8"
WRONG_ID = '"id" has to be an integer of 64 bits, or a string of at most 1000 characters'
NO_OBJECT = "a message has to be a JSON object"
BATCH = "batches are not supported: send each message as an object of its own"
NUMBER = (
    "a number in the JSON is too large: beyond 1.79e308, or an integer of more than 4300 digits"
)
VERSION = '"jsonrpc" has to be "2.0"'
METHOD = '"method" has to be a string'
PARAMS = '"params" has to be an object or an array'
BOTH = "a message is either a request or a response"
BAD_FRAMES: list[tuple[str | bytes, int, str, Any]] = [
    ("", PARSE_ERROR, f"{NO_JSON} at line 1 column 0", None),
    ("   ", PARSE_ERROR, f"{NO_JSON} at line 1 column 3", None),
    ('{"jsonrpc":"2.0","id":1', PARSE_ERROR, f"{NO_JSON} at line 1 column 23", None),
    (SECRET, PARSE_ERROR, f"{NO_JSON} at line 1 column 1", None),
    ('{"a":NaN}', PARSE_ERROR, f"{NO_JSON} at line 1 column 6", None),
    ('{"id":1e999}', PARSE_ERROR, NUMBER, None),
    ("\ufeff{}", PARSE_ERROR, f"{NO_JSON} at line 1 column 1", None),
    (b'{"a":"\xff"}', PARSE_ERROR, f"{NO_JSON} at line 1 column 7", None),
    ('{"a":"\ud800"}', PARSE_ERROR, f"{NO_JSON} at line 1 column 7", None),
    (
        "[" * 9 + "]" * 9,
        PARSE_ERROR,
        "the JSON is nested deeper than 8 levels, or is not valid",
        None,
    ),
    ("é" * 5001, INVALID_REQUEST, "the message is larger than 10000 bytes", None),
    ("[]", INVALID_REQUEST, BATCH, None),
    ('[{"jsonrpc":"2.0","id":1,"method":"m"}]', INVALID_REQUEST, BATCH, None),
    ("null", INVALID_REQUEST, NO_OBJECT, None),
    ("1", INVALID_REQUEST, NO_OBJECT, None),
    ("true", INVALID_REQUEST, NO_OBJECT, None),
    (f'"{SECRET}"', INVALID_REQUEST, NO_OBJECT, None),
    ("{}", INVALID_REQUEST, VERSION, None),
    ('{"id":1,"method":"m"}', INVALID_REQUEST, VERSION, 1),
    ('{"jsonrpc":"1.0","id":1,"method":"m"}', INVALID_REQUEST, VERSION, 1),
    ('{"jsonrpc":2.0,"id":"a","method":"m"}', INVALID_REQUEST, VERSION, "a"),
    ('{"jsonrpc":"1.0","method":"m"}', INVALID_REQUEST, VERSION, None),
    ('{"jsonrpc":"2.0"}', INVALID_REQUEST, METHOD, None),
    ('{"jsonrpc":"2.0","id":1}', INVALID_REQUEST, METHOD, 1),
    ('{"jsonrpc":"2.0","id":1,"method":null}', INVALID_REQUEST, METHOD, 1),
    ('{"jsonrpc":"2.0","id":1,"method":["m"]}', INVALID_REQUEST, METHOD, 1),
    (f'{{"jsonrpc":"2.0","id":1,"method":"m","params":"{SECRET}"}}', INVALID_REQUEST, PARAMS, 1),
    ('{"jsonrpc":"2.0","id":1,"method":"m","params":0}', INVALID_REQUEST, PARAMS, 1),
    ('{"jsonrpc":"2.0","method":"m","params":false}', INVALID_REQUEST, PARAMS, None),
    ('{"jsonrpc":"2.0","id":1,"method":"m","result":1}', INVALID_REQUEST, BOTH, 1),
    ('{"jsonrpc":"2.0","id":1,"method":"m","error":{}}', INVALID_REQUEST, BOTH, 1),
    ('{"jsonrpc":"2.0","id":true,"method":"m"}', INVALID_REQUEST, WRONG_ID, None),
    ('{"jsonrpc":"2.0","id":1.0,"method":"m"}', INVALID_REQUEST, WRONG_ID, None),
    ('{"jsonrpc":"2.0","id":[1],"method":"m"}', INVALID_REQUEST, WRONG_ID, None),
    ('{"jsonrpc":"2.0","id":{},"method":"m"}', INVALID_REQUEST, WRONG_ID, None),
    ('{"jsonrpc":"2.0","id":9223372036854775808,"method":"m"}', INVALID_REQUEST, WRONG_ID, None),
    (
        f'{{"jsonrpc":"2.0","id":"{SECRET * 200}","method":"m"}}',
        INVALID_REQUEST,
        WRONG_ID,
        None,
    ),
]


@pytest.mark.parametrize(("frame", "code", "message", "request_id"), BAD_FRAMES)
def test_a_wrong_frame_is_answered_at_once_and_repeats_nothing(
    frame: str | bytes, code: int, message: str, request_id: Any
) -> None:
    line = Line()

    assert line.peer.read(frame) is None
    assert line.sent == [refusal(code, message, request_id)]
    assert not line.peer.in_progress
    assert SECRET not in json.dumps(line.sent)
    line.request()  # the connection is as good as before


def test_a_frame_of_the_largest_size_is_read() -> None:
    line = Line()
    frame = '{"jsonrpc":"2.0","method":"m","params":["%s"]}'
    filled = frame % ("x" * (FRAME_BYTES - len(frame) + 2))

    assert isinstance(line.peer.read(filled), Notification)
    assert isinstance(line.peer.read(filled.encode()), Notification)
    assert line.peer.read(filled + " ") is None
    assert line.sent == [
        refusal(INVALID_REQUEST, f"the message is larger than {FRAME_BYTES} bytes")
    ]


@pytest.mark.parametrize("request_id", [7, "7", None])
def test_an_id_in_progress_is_not_taken_twice_but_again_after_the_answer(request_id: Any) -> None:
    line = Line()
    first = line.request(request_id)

    assert line.read(id=request_id, method="m") is None
    # null: the answer with the id is still to come
    assert line.sent == [refusal(INVALID_REQUEST, "a request with this id is in progress")]
    assert line.peer.answer(first, "first")
    again = line.request(request_id)
    assert not line.peer.answer(first, "late")
    assert not line.peer.refuse(first, RpcError(INTERNAL_ERROR, "late"))
    assert line.peer.answer(again, "again")
    assert [each["result"] for each in line.sent[1:]] == ["first", "again"]


def test_a_text_and_a_number_are_two_ids() -> None:
    line = Line()

    assert list(map(line.request, [1, "1"]))
    assert list(line.peer.in_progress) == [1, "1"]


def test_a_notification_is_no_request_without_an_id() -> None:
    line = Line()
    line.request(None)

    assert line.read(method="m") == Notification("m", None)
    assert line.sent == []


def test_requests_in_progress_are_bounded_and_notifications_are_not() -> None:
    line = Line(most_calls=2)
    first, _ = line.request(1), line.request(2)

    assert line.read(id=3, method="m") is None
    assert line.sent == [refusal(INVALID_REQUEST, "more than 2 requests are in progress", 3)]
    assert line.read(method="m") == Notification("m", None)
    line.peer.answer(first, None)
    line.request(3)


def test_a_result_that_is_no_json_leaves_the_request_in_progress() -> None:
    line = Line()
    request = line.request()

    with pytest.raises(ValueError, match=r"[Oo]ut of range"):
        line.peer.answer(request, float("nan"))
    assert line.peer.refuse(request, RpcError(INTERNAL_ERROR, "the server failed"))
    assert line.sent == [refusal(INTERNAL_ERROR, "the server failed", 1)]


def test_nothing_is_sent_after_the_end() -> None:
    line = Line()
    request = line.request()
    line.peer.close()

    line.peer.answer(request, None)
    line.peer.notify("m")
    assert line.peer.read("{") is None
    assert line.sent == []


# ---------------------------------------------------------------- calling
class Calling(Line):
    """A peer of which one call waits for its answer."""

    def __init__(self, **limits: Any) -> None:
        super().__init__(**limits)
        self.ends: list[Any] = []

    async def call(
        self, method: str = "m", params: Any = None, seconds: float | None = None
    ) -> None:
        try:
            self.ends.append(await self.peer.call(method, params, timeout=seconds))
        except (RpcError, TimeoutError) as error:
            self.ends.append(error)

    async def end_of(self, answer: Callable[[Any], object]) -> Any:
        """Return the end of a call that `answer` is to settle by the id of its request."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.call)
            await wait_until(lambda: bool(self.sent))
            answer(self.sent[-1]["id"])
        return self.ends.pop()


async def test_calls_have_ids_of_their_own_and_are_answered_in_any_order() -> None:
    line = Calling()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(line.call, "a", {"x": 1})
        tasks.start_soon(line.call, "b", [2])
        tasks.start_soon(line.call, "c")
        await wait_until(lambda: len(line.sent) == 3)
        one, two, three = sorted(line.sent, key=lambda each: str(each["method"]))
        assert one == {"jsonrpc": "2.0", "id": one["id"], "method": "a", "params": {"x": 1}}
        assert two == {"jsonrpc": "2.0", "id": two["id"], "method": "b", "params": [2]}
        assert three == {"jsonrpc": "2.0", "id": three["id"], "method": "c"}
        for each, result in ((three, "last"), (one, None), (two, {"y": []})):
            count = len(line.ends)
            assert line.read(id=each["id"], result=result) is None
            await wait_until(lambda: len(line.ends) > count)  # noqa: B023 - waited for at once

    assert line.ends == ["last", None, {"y": []}]
    assert len(line.sent) == 3


@pytest.mark.parametrize(
    ("response", "code", "message", "data"),
    [
        ({"error": {"code": -32601, "message": "no"}}, -32601, "no", None),
        ({"error": {"code": 5, "message": "no", "data": [1]}}, 5, "no", [1]),
        ({"result": None, "error": {"code": 5, "message": "no"}}, INTERNAL_ERROR, None, None),
        ({"error": {"code": 5, "message": "x" * 5000}}, 5, "x" * 1000, None),
        ({"error": {"code": "5", "message": "no"}}, INTERNAL_ERROR, None, None),
        ({"error": {"code": True, "message": "no"}}, INTERNAL_ERROR, None, None),
        ({"error": {"code": 2**63, "message": "no"}}, INTERNAL_ERROR, None, None),
        ({"error": {"code": 5, "message": {"a": 1}}}, INTERNAL_ERROR, None, None),
        ({"error": {"message": "no"}}, INTERNAL_ERROR, None, None),
        ({"error": "no"}, INTERNAL_ERROR, None, None),
        ({"error": None}, INTERNAL_ERROR, None, None),
        ({"jsonrpc": "1.0", "result": 1}, INTERNAL_ERROR, None, None),
    ],
)
async def test_an_error_of_the_other_side_is_checked(
    response: Any, code: int, message: str | None, data: Any
) -> None:
    line = Calling()

    error = await line.end_of(lambda request_id: line.read(id=request_id, **response))

    message = message or "the other side's answer is malformed"
    assert (error.code, error.message, error.data) == (code, message, data)
    assert str(error) == f"{message} ({code})"
    assert len(line.sent) == 1


async def test_a_null_error_beside_a_result_is_none() -> None:
    line = Calling()

    end = await line.end_of(lambda one: line.read(id=one, result=5, error=None))

    assert end == 5


async def test_responses_that_nobody_waits_for_have_no_effect() -> None:
    line = Calling()

    def answer(request_id: int) -> None:
        for other in (request_id + 1, str(request_id), float(request_id), True, None, [1]):
            assert line.read(id=other, result="wrong") is None
        assert line.read(result="wrong") is None
        line.read(id=request_id, result="right")
        line.read(id=request_id, result="late")

    assert await line.end_of(answer) == "right"
    assert len(line.sent) == 1


async def test_a_call_ends_by_its_timeout_and_takes_no_late_answer() -> None:
    line = Calling()

    await line.call(seconds=0.01)

    assert [type(end) for end in line.ends] == [TimeoutError]
    request_id = line.sent[0]["id"]
    cancelled = {
        "jsonrpc": "2.0",
        "method": "$/cancel_request",
        "params": {"requestId": request_id},
    }
    assert line.sent[1:] == [cancelled]
    assert line.read(id=request_id, result="late") is None
    assert len(line.sent) == 2


async def test_a_cancelled_call_is_cancelled_at_the_other_side() -> None:
    line = Calling()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(line.call)
        await wait_until(lambda: bool(line.sent))
        tasks.cancel_scope.cancel()

    assert line.ends == []
    assert [each["method"] for each in line.sent] == ["m", "$/cancel_request"]
    assert line.sent[1]["params"] == {"requestId": line.sent[0]["id"]}


async def test_an_answer_that_is_there_already_needs_no_cancelling() -> None:
    line = Calling()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(line.call)
        await wait_until(lambda: bool(line.sent))
        line.read(id=line.sent[0]["id"], result=1)
        tasks.cancel_scope.cancel()

    assert [each["method"] for each in line.sent] == ["m"]


LATE = [({"result": 1}, [1]), ({"error": {"code": 5, "message": "no"}}, [])]


@pytest.mark.parametrize(("answer", "took"), LATE)
async def test_a_late_result_is_taken_once_where_it_has_to_be(answer: Any, took: list[Any]) -> None:
    line, taken = Calling(), list[Any]()
    with pytest.raises(TimeoutError):
        await line.peer.call("m", timeout=0.01, late=taken.append)
    request_id = line.sent[0]["id"]
    line.read(id=float(request_id), result="wrong")
    line.read(id=request_id, **answer)
    line.read(id=request_id, result="again")

    assert taken == took


@pytest.mark.parametrize(("answer", "took"), LATE)
async def test_a_cancelled_call_waits_a_moment_for_a_result_that_has_to_be_taken(
    answer: Any, took: list[Any]
) -> None:
    line, taken = Calling(), list[Any]()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(partial(line.peer.call, "m", late=taken.append))
        await wait_until(lambda: bool(line.sent))
        tasks.cancel_scope.cancel()
        with anyio.CancelScope(shield=True):
            await moment()
            line.read(id=line.sent[0]["id"], **answer)

    assert taken == took
    assert [each["method"] for each in line.sent] == ["m"]


async def test_a_cancelled_call_does_not_wait_long() -> None:
    line, taken = Calling(late_seconds=0.01), list[Any]()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(partial(line.peer.call, "m", late=taken.append))
        await wait_until(lambda: bool(line.sent))
        tasks.cancel_scope.cancel()

    assert [each["method"] for each in line.sent] == ["m", "$/cancel_request"]
    line.read(id=line.sent[0]["id"], result="late")
    assert taken == ["late"]


async def test_late_results_that_are_waited_for_are_bounded() -> None:
    line, taken = Calling(most_calls=1), list[Any]()
    for _ in range(2):
        with pytest.raises(TimeoutError):
            await line.peer.call("m", timeout=0.01, late=taken.append)
    first, second = (each["id"] for each in line.sent if each["method"] == "m")
    line.read(id=first, result="first")
    line.read(id=second, result="second")

    assert taken == ["second"]


async def test_a_request_whose_answer_has_no_effect_has_an_id_of_its_own() -> None:
    line = Calling()
    line.peer.request("m", [1])

    sent = line.sent.pop()
    assert sent == {"jsonrpc": "2.0", "id": sent["id"], "method": "m", "params": [1]}
    line.read(id=sent["id"], result="ignored")
    assert await line.end_of(lambda one: line.read(id=one, result=one != sent["id"])) is True


async def test_the_end_of_the_connection_ends_all_calls() -> None:
    line = Calling()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(line.call)
        tasks.start_soon(line.call)
        await wait_until(lambda: len(line.sent) == 2)
        line.peer.close()
        line.read(id=line.sent[0]["id"], result="late")

    assert [type(end) for end in line.ends] == [ConnectionLost, ConnectionLost]
    with pytest.raises(ConnectionLost):
        await line.peer.call("m")
    assert len(line.sent) == 2


async def test_calls_are_bounded() -> None:
    line = Calling(most_calls=1)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(line.call)
        await wait_until(lambda: bool(line.sent))
        with pytest.raises(RpcError, match="more than 1 requests wait for answers"):
            await line.peer.call("m")
        line.read(id=line.sent[0]["id"], result=1)

    assert line.ends == [1]
    assert len(line.sent) == 1


async def test_params_that_are_no_json_leave_no_call_behind() -> None:
    line = Calling(most_calls=1)

    with pytest.raises(ValueError, match=r"[Oo]ut of range"):
        await line.peer.call("m", [float("inf")])
    assert await line.end_of(lambda one: line.read(id=one, result=2)) == 2


async def test_two_peers_talk_to_each_other() -> None:
    def answer(text: str) -> None:
        message = here.read(text)
        if isinstance(message, Request):
            here.answer(message, {"echo": message.params})

    there = Peer(answer, depth=8, frame_bytes=FRAME_BYTES)
    here = Peer(there.read, depth=8, frame_bytes=FRAME_BYTES)

    assert await there.call("m", ["é\u2028\n"]) == {"echo": ["é\u2028\n"]}


# ---------------------------------------------------------------- any frames in any order
IDS: st.SearchStrategy[Any] = st.one_of(
    st.integers(0, 3), st.sampled_from(["0", "1", None, True, 1.0, 2**70]), st.text(max_size=2)
)
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=5,
)
MESSAGES = st.fixed_dictionaries(
    {},
    optional={
        "jsonrpc": st.sampled_from(["2.0", "2.0", "2.0", "1.0", 2]),
        "id": IDS,
        "method": st.sampled_from(["m", "$/cancel_request", 1, None]),
        "params": JSON,
        "result": JSON,
        "error": JSON,
    },
)
REQUESTS = st.builds(lambda one: {"jsonrpc": "2.0", "method": "m", "id": one}, IDS)
FRAMES = st.one_of(
    st.binary(max_size=30),
    st.text(max_size=30),
    (MESSAGES | REQUESTS | JSON).map(json.dumps),
    st.lists(REQUESTS, max_size=2).map(json.dumps),
)


@given(frames=st.lists(FRAMES, max_size=30), choices=st.randoms(use_true_random=False))
def test_no_frames_raise_and_each_legal_request_has_one_answer(
    frames: list[Any], choices: Any
) -> None:
    line = Line()
    waiting: list[Request] = []
    answered = 0
    for frame in frames:
        before = len(line.sent)
        is_fresh = is_legal_request(frame) and json.loads(frame)["id"] not in line.peer.in_progress
        message = line.peer.read(frame)
        assert isinstance(message, Request) == is_fresh
        assert len(line.sent) - before <= (message is None)  # an error for what is wrong, or none
        if isinstance(message, Request):
            waiting.append(message)
        while waiting and choices.random() < 0.4:
            request = waiting.pop(choices.randrange(len(waiting)))
            end_request(line, request, choices)
            answered += 1
        assert list(line.peer.in_progress) == [each.id for each in waiting]
    for request in waiting:
        end_request(line, request, choices)
    answers = [each for each in line.sent if "error" not in each or each["error"]["code"] == 5]
    assert len(answers) == answered + len(waiting)


def end_request(line: Line, request: Request, choices: Any) -> None:
    """Answer or refuse a request, then try once more."""
    count = len(line.sent)
    ends = [
        lambda: line.peer.answer(request, ["answered"]),
        lambda: line.peer.refuse(request, RpcError(5, "refused")),
    ]
    assert choices.choice(ends)()
    assert not choices.choice(ends)()
    assert [each["id"] for each in line.sent[count:]] == [request.id]


def is_legal_request(frame: Any) -> bool:
    try:
        message = json.loads(frame)
    except ValueError:
        return False
    if not isinstance(message, dict) or not {"id", "method"} <= set(message):
        return False
    return (
        message.get("jsonrpc") == "2.0"
        and isinstance(message["method"], str)
        and isinstance(message.get("params"), dict | list | None)
        and not {"result", "error"} & set(message)
        and (message["id"] is None or type(message["id"]) in {int, str})
        and message["id"] != 2**70
    )
