"""Recordings are checked when they are loaded, and replayed as they were recorded."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.types import ASGIApp
from tests.support.asgi_client import Answer, ask, ask_json
from tests.support.asgi_client import exchange as exchange_of
from tests.support.commands import passback
from tests.support.recordings import STARTED, exchange, frame, recording, result, user
from tests.support.server import replaying

from passback.cli import EXIT_USAGE, main
from passback.core.errors import ConfigurationError
from passback.replay import replay_site
from passback.replay.recording import MAX_BYTES, load_recording, parse_recording

pytestmark = pytest.mark.anyio


ASKED = exchange(user("one"), "a", "b")
ANSWERED = exchange(result("call_1"), "c", run="run_2")
AGAIN = exchange(user("two"), "d", run="run_3")


def site(*exchanges: dict[str, Any], speed: float = 0) -> ASGIApp:
    return replay_site(parse_recording(recording(*exchanges)), speed=speed)


async def post(app: ASGIApp, body: object, **headers: str) -> Answer:
    return await ask_json(app, "POST", "/send-message", body, headers=headers)


def texts(answer: Answer) -> str:
    lines = answer.body.decode().split("\n")
    data = [line.removeprefix("data: ") for line in lines if line.startswith("data: {")]
    return "".join(json.loads(each)["content"] for each in data)


# ---------------------------------------------------------------- the file
@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"\xff", "not JSON"),
        (b"[]", 'it has no "format": "passback-run"'),
        (b'{"format": "har"}', 'it has no "format": "passback-run"'),
        (recording(ASKED, version=2), "of version 2; this passback reads version 1"),
        (recording(ASKED, version=None), "of version None"),
        (recording(ASKED, exchanges={}), "exchanges: Input should be a valid tuple"),
        (recording(), "no request in it has an answer"),
        (recording(ASKED | {"response": None}), "no request in it has an answer"),
        (recording({"frames": []}), "exchanges.0.request: Field required"),
        (recording(ASKED | {"frames": [frame(1, "a\nb")]}), "exchanges.0.frames.0.data: String"),
        (recording(ASKED | {"frames": [frame(1, "", at=-1)]}), "exchanges.0.frames.0.at: Input"),
        (recording(ASKED | {"frames": [frame(1, "", at=1e9)]}), "exchanges.0.frames.0.at: Input"),
        (
            recording(ASKED | {"response": {"status": 99, "headers": {}}}),
            "exchanges.0.response.status: Input",
        ),
        (
            recording(ASKED | {"response": {"status": 200, "headers": {"x-run-id": "a\r\nb"}}}),
            "exchanges.0.response.headers.x-run-id: String",
        ),
    ],
)
def test_a_malformed_recording_is_refused_with_the_reason(
    tmp_path: Path, text: bytes, problem: str
) -> None:
    file = tmp_path / "run.json"
    file.write_bytes(text)
    with pytest.raises(ConfigurationError) as refused:
        load_recording(file)
    assert refused.value.message.startswith(f"{file}: ")
    assert problem in refused.value.message


def test_a_huge_file_is_refused_without_being_read(tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    with file.open("wb") as huge:
        huge.truncate(100 * MAX_BYTES)
    with pytest.raises(ConfigurationError, match="larger than 64 MiB"):
        load_recording(file)


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"run\.json: No such file or directory"):
        load_recording(tmp_path / "run.json")


# ---------------------------------------------------------------- the answers
async def test_a_message_gets_the_recorded_frames_as_they_were() -> None:
    answer = await post(site(ASKED), {"conversationId": "c", **user("anything")})
    frames = "".join(f"id: {each['id']}\ndata: {each['data']}\n\n" for each in ASKED["frames"])
    assert (answer.status, answer.body.decode()) == (200, f": conversation c\n\n{frames}")
    assert answer.headers["x-run-id"] == "run_1"
    assert answer.headers["x-conversation-id"] == "c"
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"


async def test_messages_are_answered_in_turn_and_results_by_their_calls() -> None:
    app = site(ASKED, ANSWERED, AGAIN)
    answers = [texts(await post(app, body)) for body in (user(""), user(""), result("call_1"))]
    assert answers == ["ab", "d", "c"]
    assert texts(await post(app, user(""))) == "ab"
    other = await post(app, result("call_9"))
    assert (other.status, other.code) == (404, "tool_call_not_found")


async def test_a_post_repeated_with_its_key_gets_the_same_answer() -> None:
    app = site(ASKED, AGAIN)
    keys = ['"k1"', '"k1"', '"k2"']
    answers = [texts(await post(app, user(""), **{"idempotency-key": key})) for key in keys]
    assert answers == ["ab", "ab", "d"]


async def test_the_number_of_remembered_keys_is_bounded() -> None:
    app = site(ASKED, AGAIN)
    for number in range(1002):
        await post(app, user(""), **{"idempotency-key": f'"{number}"'})
    # the first key is forgotten, the last one is not
    first = texts(await post(app, user(""), **{"idempotency-key": '"0"'}))
    last = texts(await post(app, user(""), **{"idempotency-key": '"1001"'}))
    assert (first, last) == ("ab", "d")


async def test_a_reader_resumes_behind_its_last_event() -> None:
    app = site(ASKED, AGAIN)
    path = "/conversations/any/stream"
    resumed = await ask(app, "GET", path, headers={"last-event-id": "run_1.1-1"})
    assert texts(resumed) == "b"
    assert texts(await ask(app, "GET", f"{path}?lastEventId=run_1.1-1")) == "b"
    assert texts(await ask(app, "GET", f"{path}?runId=run_3")) == "d"
    assert texts(await ask(app, "GET", path)) == "d"  # the newest that was played
    unknown = await ask(app, "GET", path, headers={"last-event-id": "run_1.1-99"})
    assert (unknown.status, unknown.code) == (422, "invalid_cursor")
    unknown = await ask(app, "GET", f"{path}?runId=run_9")
    assert (unknown.status, unknown.code) == (404, "run_not_found")


async def test_a_refusal_is_replayed() -> None:
    body = {"code": "conversation_busy", "message": "a run is going on", "request_id": "req_1"}
    headers = {"retry-after": "1", "x-request-id": "req_1"}
    busy = exchange(user("x")) | {
        "response": {"status": 409, "headers": headers, "body": body},
        "frames": [],
    }
    answer = await post(site(busy), user("x"))
    assert (answer.status, answer.json, answer.headers["retry-after"]) == (409, body, "1")
    page = busy | {"response": {"status": 502, "headers": {}, "body": "<p>Bad gateway"}}
    answer = await post(site(page), user("x"))
    assert (answer.status, answer.json) == (502, {"message": "<p>Bad gateway"})


async def test_frames_come_at_their_recorded_times() -> None:
    hour = 3_600_000
    slow = ASKED | {"frames": [frame(1, "{}", at=0), frame(2, "[DONE]", at=hour)]}
    for speed in (0, 1e9):  # at once, and an hour in some microseconds
        assert b"[DONE]" in (await post(site(slow, speed=speed), user(""))).body
    kind = {"content-type": "application/json"}
    async with exchange_of(
        site(slow, speed=1), "POST", "/send-message", headers=kind, body=b"{}"
    ) as one:
        received = await one.chunk() + await one.chunk()
        assert (received, one.ended) == (
            b": conversation replay\n\nid: run_1.1-1\ndata: {}\n\n",
            False,
        )


async def test_a_run_that_was_only_followed_answers_messages() -> None:
    followed = exchange(None, "seen")
    followed["request"] |= {"method": "GET", "path": "/conversations/c/stream"}
    assert texts(await post(site(followed, ANSWERED), user(""))) == "seen"


async def test_results_alone_are_answered_too() -> None:
    assert texts(await post(site(ANSWERED), user(""))) == "c"


async def test_a_frame_without_an_id_and_a_parked_answer_are_replayed() -> None:
    parked = ASKED | {
        "response": {"status": 200, "headers": {"x-owed-tool-calls": "call_2"}},
        "frames": [{"at": 0, "id": "", "data": "[DONE]"}],
    }
    answer = await post(site(parked), user(""))
    assert answer.body == b": conversation replay\n\ndata: [DONE]\n\n"
    assert answer.headers["x-owed-tool-calls"] == "call_2"
    assert "x-run-id" not in answer.headers


async def test_an_id_that_is_too_long_is_not_echoed() -> None:
    answer = await post(site(ASKED), {"conversationId": "c" * 257, **user("")})
    assert answer.headers["x-conversation-id"] == "replay"


async def test_the_page_finds_its_routes() -> None:
    app = site(ASKED)
    assert b"<title>passback</title>" in (await ask(app, "GET", "/")).body
    conversation = await ask(app, "GET", "/conversations/c%2F1")
    assert conversation.json == {
        "id": "c/1",
        "title": "",
        "createdAt": STARTED,
        "updatedAt": STARTED,
        "status": "idle",
        "runId": None,
        "running": None,
        "queued": [],
        "owed": [],
        "messageCount": 0,
        "usage": {"inputTokens": 0, "outputTokens": 0, "cachedTokens": 0, "reasoningTokens": 0},
        "plan": [],
        "cost": 0.0,
        "seconds": 0.0,
        "refusals": [],
        "permissions": [],
    }
    page = await ask(app, "GET", "/conversations/c/messages?after=0")
    assert page.json == {"messages": [], "next": None, "total": 0}
    cancelled = await ask(app, "POST", "/conversations/c/cancel")
    assert cancelled.json == {"cancelled": False}


async def test_every_claim_of_a_call_is_granted() -> None:
    app = site(ASKED)
    path = "/conversations/c/tool-calls/call_1/claim"
    for claimant in ("one", "two"):
        claimed = (await ask_json(app, "POST", path, {"claimant": claimant, "seconds": 5})).json
        expires = datetime.fromisoformat(claimed.pop("expiresAt"))
        assert (claimed, expires > datetime.now(UTC)) == (
            {"callId": "call_1", "claimant": claimant},
            True,
        )
    released = await ask(app, "DELETE", f"{path}?claimant=two")
    assert (released.status, released.body) == (204, b"")


@pytest.mark.parametrize("started", ["", "yesterday", "2026-01-31T12:00:00", []])
def test_a_time_that_is_none_is_refused(started: object) -> None:
    with pytest.raises(ValueError, match="startedAt: Input should"):
        parse_recording(recording(ASKED, startedAt=started))


async def test_a_recording_without_a_time_is_of_the_time_of_its_replay() -> None:
    before = datetime.now(UTC)
    app = replay_site(parse_recording(recording(ASKED, startedAt=None)), speed=0)
    shown = (await ask(app, "GET", "/conversations/c")).json
    created = datetime.fromisoformat(shown["createdAt"])
    assert shown["updatedAt"] == shown["createdAt"]
    assert before.replace(microsecond=0) <= created <= datetime.now(UTC)


async def test_a_page_of_this_machine_may_read_answers() -> None:
    origin = "http://localhost:5173"
    headers = {"origin": origin, "host": "127.0.0.1:8000"}
    answer = await ask(site(ASKED), "GET", "/conversations/c", headers=headers)
    assert answer.headers["access-control-allow-origin"] == origin


async def test_pages_of_other_origins_and_other_hosts_are_refused() -> None:
    foreign = await ask(site(ASKED), "GET", "/", headers={"origin": "https://evil.test"})
    assert foreign.code == "foreign_origin"
    rebound = await ask(site(ASKED), "GET", "/", headers={"host": "evil.test"})
    assert rebound.code == "foreign_host"


@pytest.mark.parametrize("body", [{"messages": "no"}, {"messages": [1, {"toolCallId": 2}]}, {}])
async def test_any_post_counts_as_a_message(body: dict[str, Any]) -> None:
    assert texts(await post(site(ASKED), body)) == "ab"


# ---------------------------------------------------------------- the command
@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--speed", "-1"], "argument --speed: '-1' is not a number of 0 or more"),
        (["--speed", "inf"], "argument --speed: 'inf' is not a number of 0 or more"),
        (["--speed", "fast"], "argument --speed: 'fast' is not a number of 0 or more"),
        (["--port", "65536"], "argument --port: '65536' is not a number from 0 to 65535"),
        (["--port", "x"], "argument --port: 'x' is not a number from 0 to 65535"),
        ([], "the following arguments are required: FILE"),
    ],
)
def test_wrong_arguments_of_a_replay_are_an_error(
    arguments: list[str], error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = ["run.json"] if arguments else []
    with pytest.raises(SystemExit, match=str(EXIT_USAGE)):
        main(["replay", *arguments, *file])
    assert error in capsys.readouterr().err


def test_a_file_that_is_no_recording_is_an_error_of_one_line(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text('{"format": "passback-run", "version": 7}')
    done = passback("replay", "run.json", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (EXIT_USAGE, "")
    assert done.stderr == "passback: run.json: of version 7; this passback reads version 1\n"


_RUN = """{"format": "passback-run", "version": 1, "exchanges": [{
  "request": {"method": "POST", "path": "/send-message", "body": {"messages": []}},
  "response": {"status": 200, "headers": {"x-run-id": "run_1"}},
  "frames": [{"at": 0, "id": "run_1.1-1", "data": "[DONE]"}]}]}"""


@pytest.mark.anyio
async def test_a_replay_needs_no_settings_and_stops_cleanly(tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    file.write_text(_RUN)
    async with replaying(file) as url, httpx.AsyncClient(base_url=url) as client:
        answer = await client.post("/send-message", json={"messages": []})
        port = url.rpartition(":")[2]
        taken = passback("replay", str(file), "--port", port, PASSBACK_PORT="nonsense")
    assert answer.text == ": conversation replay\n\nid: run_1.1-1\ndata: [DONE]\n\n"
    assert taken.returncode == EXIT_USAGE
    assert taken.stderr.startswith("passback: --port: cannot listen: Address already in use")
