"""The routes of Responses: the forms of an answer, reading, resuming, cancelling."""

import json

import anyio
import pytest
from tests.support.asgi_client import Answer, ask, ask_json, exchange
from tests.support.logged_runs import OPENING, RUN, LoggedRuns
from tests.unit.wire.responses_events import (
    FIELDS,
    Json,
    added_up,
    events_of,
    frames_of,
    items_of,
    note,
    numbers_of,
    texts_of,
    types_of,
)
from tests.unit.wire.responses_site import (
    GREETING,
    PAINT,
    PATH,
    calls_of,
    error_of,
    output,
    responses,
    site,
    user,
)

from passback import Agent
from passback.core.changes import RunRecord, Status
from passback.core.errors import CursorExpired
from passback.core.events import (
    Completed,
    Failed,
    Position,
    RunFinished,
    RunStarted,
    TextDelta,
    TurnStarted,
)
from passback.core.ids import new_run_id
from passback.core.messages import CallId, MessageId, Owed, RunRef
from passback.core.posts import Parked
from passback.core.signals import Signal
from passback.http.gate import Access
from passback.http.site import build_site
from passback.http.wires import RequestLimits, Services
from passback.testing import ScriptedModel, calls, says
from passback.wire.responses import ResponsesSettings, build
from passback.wire.responses.encoder import LEASE_NUMBERS
from passback.wire.responses.request_note import keep_note

pytestmark = pytest.mark.anyio

HELLO: Json = {"input": "hello"}


async def post(runs: LoggedRuns, **fields: object) -> Answer:
    return await ask_json(site(runs), "POST", PATH, {**HELLO, **fields})


class LoggedResponse(LoggedRuns):
    """A run whose id the server made, and that is in the record."""

    def __init__(self) -> None:
        super().__init__(*GREETING)
        self.logged = RunRef(RUN.key, new_run_id(RUN.key))
        self.answer = self.logged
        run_id = self.logged.run_id
        self.known[RUN.key] = Status(1, run_id)
        asked = {**note(), "model": "m"}
        self.records[run_id] = RunRecord(began=1_700_000_000_000, note=keep_note(asked, None))
        self.path = f"{PATH}/resp_{run_id[4:]}"


# ---------------------------------------------------------------- the forms of an answer
@pytest.mark.parametrize("accept", ["application/json", "text/event-stream", "*/*", "text/html"])
@pytest.mark.parametrize("streams", [True, False, None])
async def test_the_field_stream_alone_decides_the_form(accept: str, streams: bool | None) -> None:
    body = {**HELLO, "stream": streams}
    app = site(LoggedRuns(*GREETING))
    answer = await ask_json(app, "POST", PATH, body, headers={"accept": accept})
    media_type = "text/event-stream; charset=utf-8" if streams else "application/json"
    assert (answer.status, answer.headers["content-type"]) == (200, media_type)


async def test_a_stream_is_answered_with_the_events_of_its_run() -> None:
    answer = await post(LoggedRuns(*GREETING), stream=True)
    assert answer.body.startswith(OPENING.encode())
    assert texts_of(added_up(events_of(answer.body))) == ["hi"]
    assert (
        dict(answer.headers).items()
        >= {
            "x-conversation-id": "c",
            "x-run-id": "run_1",
            "x-accel-buffering": "no",
        }.items()
    )
    assert answer.headers["x-request-id"]


async def test_without_a_stream_the_answer_is_the_last_response() -> None:
    answer = await post(LoggedRuns(*GREETING))
    final = added_up(events_of((await post(LoggedRuns(*GREETING), stream=True)).body))
    times = {"created_at": 0}
    assert answer.json | times == final | times
    assert answer.headers["x-run-id"] == "run_1"


async def test_each_frame_is_sent_whole() -> None:
    app = site(LoggedRuns(*GREETING))
    typed = {"content-type": "application/json"}
    body = json.dumps({**HELLO, "stream": True}).encode()
    async with exchange(app, "POST", PATH, headers=typed, body=body) as one:
        while chunk := await one.chunk():
            assert chunk.endswith(b"\n\n")


async def test_a_failed_run_has_the_status_of_its_error_or_a_last_event() -> None:
    failed = RunFinished(Failed("model_context_exceeded", "too long"))
    answer = await post(LoggedRuns(RunStarted(RUN.run_id), failed))
    assert (answer.status, answer.json["error"]["code"]) == (400, "context_length_exceeded")
    answer = await post(LoggedRuns(RunStarted(RUN.run_id), failed), stream=True)
    assert added_up(events_of(answer.body))["error"]["code"] == "context_length_exceeded"


@pytest.mark.parametrize("streams", [True, False])
async def test_an_answer_that_is_too_long_is_an_error(streams: bool) -> None:
    app = site(LoggedRuns(*GREETING), limits=RequestLimits(answer_chars=1))
    answer = await ask_json(app, "POST", PATH, {**HELLO, "stream": streams})
    if streams:
        error = added_up(events_of(answer.body))["error"]
    else:
        assert answer.status == 410
        error = answer.json["error"]
    assert error["code"] == "cursor_expired"


async def test_a_response_in_the_background_is_answered_at_once() -> None:
    answer = await post(LoggedRuns(*GREETING[:-1]), background=True)
    assert (answer.status, answer.json["status"], answer.json["output"]) == (200, "in_progress", [])
    assert answer.json["background"] is True
    assert answer.json.keys() == FIELDS
    assert answer.headers["x-run-id"] == "run_1"
    answer = await post(LoggedRuns(*GREETING), background=True, stream=True)
    assert added_up(events_of(answer.body))["background"] is True


async def test_the_base_is_a_setting() -> None:
    runs = LoggedRuns(*GREETING)
    wire = build(Services(runs, Signal()), ResponsesSettings(responses_path="/api/openai"))
    app = build_site([wire], Access())
    assert (await ask_json(app, "POST", "/api/openai/responses", HELLO)).status == 200
    assert (await ask(app, "GET", "/api/openai/models")).status == 200
    assert (await ask_json(app, "POST", PATH, HELLO)).status == 404


async def test_models_are_the_agents_and_the_models_to_choose() -> None:
    listed = (await ask(site(LoggedRuns()), "GET", "/v1/models")).json
    assert listed["object"] == "list"
    one = {"object": "model", "created": 0, "owned_by": "passback"}
    assert listed["data"] == [{"id": each, **one} for each in ("scripted", "other")]
    first = Agent(model=ScriptedModel([says("a")]), name="writer")
    second = Agent(model=ScriptedModel([says("b")]), name="painter")
    async with responses(first, second) as client:
        data = (await client.http.get("/v1/models")).json()["data"]
        assert [each["id"] for each in data] == ["writer", "painter", "scripted"]
        assert texts_of(await client.post("hi", model="painter")) == ["b"]


# ---------------------------------------------------------------- outputs of some of the calls
@pytest.mark.parametrize("streams", [True, False])
async def test_after_some_of_the_outputs_the_response_has_the_calls_that_are_owed(
    streams: bool,
) -> None:
    runs = LoggedResponse()
    runs.answer = Parked(RUN.key, (Owed(CallId("call_2"), "paint", "{}"),))
    answer = await post(runs, input=[output({"call_id": "call_1"})], stream=streams)
    response = added_up(events_of(answer.body)) if streams else answer.json
    assert [each["call_id"] for each in response["output"]] == ["call_2"]
    assert (response["status"], response["model"]) == ("completed", "m")
    assert response["id"] == runs.path.rpartition("/")[2]
    assert answer.headers["x-conversation-id"] == "c"
    if streams:
        assert answer.body.startswith(OPENING.encode())


async def test_outputs_come_one_after_the_other() -> None:
    script = [calls(("paint", {}), ("paint", {"n": 2})), says("done")]
    async with responses(script) as client:
        first = await client.post("go", tools=[PAINT])
        one, other = calls_of(first)
        for _ in range(2):  # a repeat says the same
            parked = await client.post([output(one)], previous_response_id=first["id"])
            assert (parked["id"], calls_of(parked)) == (first["id"], [other])
        done = await client.post([output(other)], previous_response_id=first["id"])
        assert (texts_of(done), done["previous_response_id"]) == (["done"], first["id"])
        again = await client.post([output(other)], previous_response_id=first["id"])
        assert again == done
        status, error = await client.refusal([output(other, "x")])
        assert (status, error["code"]) == (409, "tool_result_conflict")
        assert client.headers["x-should-retry"] == "false"


# ---------------------------------------------------------------- reading
async def test_a_response_is_read_as_it_was_answered() -> None:
    async with responses([says("hi"), calls(("paint", {}))]) as client:
        for fields in ({}, {"tools": [PAINT], "metadata": {"a": "b"}, "temperature": 0.5}):
            made = await client.post("hello", **fields)
            assert await client.read(made) == made
            answer = await client.get(made["id"], include="x", stream="false", starting_after=9)
            assert answer.json() == made


async def test_a_run_of_another_protocol_is_a_response() -> None:
    async with responses([says("hi")]) as client:
        body = {"messages": [{"role": "user", "content": "hello"}]}
        sent = await client.http.post("/send-message?wait=true", json=body)
        run_id = sent.json()["runId"]
        answer = await client.get(f"resp_{run_id[4:]}")
        response = answer.json()
        assert (texts_of(response), response["model"]) == (["hi"], "scripted")
        assert response.keys() == FIELDS
        assert response["created_at"] > 1_700_000_000
        streamed = await client.get(f"resp_{run_id[4:]}", stream="true")
        assert added_up(events_of(streamed.text)) == response


async def test_the_events_behind_a_number_are_sent_again() -> None:
    async with responses([says("a", "b", "c")]) as client:
        made = await client.stream("hello")
        whole = (await client.get(made["id"], stream="true")).text
        assert added_up(events_of(whole)) == made
        frames = frames_of(whole)
        for after in range(len(frames) - 1):
            answer = await client.get(made["id"], stream="true", starting_after=after)
            assert frames_of(answer.text) == frames[after + 1 :]


async def test_a_number_behind_the_last_event_is_refused() -> None:
    async with responses([says("a")]) as client:
        made = await client.post("hello")
        last = numbers_of(events_of((await client.get(made["id"], stream="true")).text))[-1]
        for after in last + 1, 2**53:
            answer = await client.get(made["id"], stream="true", starting_after=after)
            assert (answer.status_code, error_of(answer)["param"]) == (400, "starting_after")
        answer = await client.get(made["id"], stream="true", starting_after=last)
        assert frames_of(answer.text) == ["data: [DONE]"]


async def test_a_response_is_followed_while_it_goes_on() -> None:
    runs = LoggedResponse()
    runs.log = [each for each in runs.log if not isinstance(each.event, RunFinished)]
    app = site(runs)
    async with exchange(app, "GET", f"{runs.path}?stream=true&starting_after=1") as one:
        text = await one.chunk()
        while b"delta" not in text:
            text += await one.chunk()
        runs.say(TextDelta("!"), RunFinished(Completed()))
        text += await one.rest()
    found = events_of(text)
    assert numbers_of(found) == list(range(2, 2 + len(found)))
    assert texts_of(found[-1]["response"]) == ["hi!"]


async def test_a_trimmed_log_is_a_410_and_the_response_is_still_read() -> None:
    runs = LoggedResponse()
    runs.unreadable = CursorExpired("its beginning is gone")
    app = site(runs)
    answer = await ask(app, "GET", f"{runs.path}?stream=true")
    assert (answer.status, answer.json["error"]["code"]) == (410, "cursor_expired")
    assert (await ask(app, "GET", runs.path)).json["status"] == "in_progress"


async def test_numbers_go_on_with_the_next_worker() -> None:
    runs = LoggedResponse()
    runs.log = [each for each in runs.log if not isinstance(each.event, RunFinished)]
    runs.is_taken_over(Position(1, 1), TurnStarted(MessageId("msg_2")), TextDelta("anew"))
    runs.say(RunFinished(Completed()))
    app = site(runs)
    found = events_of((await ask(app, "GET", f"{runs.path}?stream=true")).body)
    assert numbers_of(found)[:3] == [0, 1, LEASE_NUMBERS]
    rest = (await ask(app, "GET", f"{runs.path}?stream=true&starting_after=3")).body
    assert numbers_of(events_of(rest))[0] == LEASE_NUMBERS


# ---------------------------------------------------------------- input items
async def test_the_items_of_a_request_are_listed_the_newest_first() -> None:
    async with responses([says("hi")]) as client:
        parts = [{"type": "input_text", "text": "look"}, {"type": "input_text", "text": "there"}]
        made = await client.post([user("a"), user(parts), user("c")])
        page = (await client.get(f"{made['id']}/input_items")).json()
        assert (page["object"], page["has_more"]) == ("list", False)
        contents = [each["content"] for each in page["data"]]
        assert contents == [
            [{"type": "input_text", "text": "c"}],
            parts,
            [{"type": "input_text", "text": "a"}],
        ]
        assert (page["first_id"], page["last_id"]) == (page["data"][0]["id"], page["data"][2]["id"])
        ascending = await client.get(f"{made['id']}/input_items", order="asc")
        assert ascending.json()["data"] == page["data"][::-1]


async def test_input_items_come_in_pages() -> None:
    async with responses([says("hi")]) as client:
        made = await client.post([user(str(n)) for n in range(5)])
        place, seen = f"{made['id']}/input_items", list[str]()
        query: Json = {"limit": 2}
        while True:
            page = (await client.get(place, **query)).json()
            seen += [each["content"][0]["text"] for each in page["data"]]
            if not page["has_more"]:
                break
            query["after"] = page["last_id"]
        assert seen == ["4", "3", "2", "1", "0"]
        last = (await client.get(place, after=page["last_id"])).json()
        assert last == {
            "object": "list",
            "data": [],
            "first_id": None,
            "last_id": None,
            "has_more": False,
        }


# ---------------------------------------------------------------- cancelling
async def test_a_response_that_goes_on_is_cancelled() -> None:
    async with responses([["so far", anyio.Event()]]) as client:
        made = await client.post("hello", background=True)
        place = f"{PATH}/{made['id']}/cancel"
        stream = f"{PATH}/{made['id']}?stream=true"
        async with client.http.stream("GET", stream) as live:
            lines = live.aiter_lines()
            async for line in lines:
                if "so far" in line:
                    break
            first = await client.http.post(place)
            rest = [line async for line in lines if line.startswith("event: ")]
        assert rest[-1] == "event: response.incomplete"
        response = first.json()
        assert (response["status"], texts_of(response)) == ("cancelled", ["so far"])
        assert items_of(response) == [("message", "incomplete")]
        assert (await client.http.post(place)).json() == response
        replay = events_of((await client.http.get(stream)).text)
        final = added_up(replay)
        assert final["usage"]["output_tokens"] == 2  # an estimate, which no message has
        assert {**final, "usage": None} == response
        assert types_of(replay)[-1] == "incomplete"


async def test_a_response_that_is_over_is_not_cancelled() -> None:
    async with responses([says("hi")]) as client:
        made = await client.post("hello")
        answer = await client.http.post(f"{PATH}/{made['id']}/cancel")
        assert (answer.status_code, error_of(answer)["code"]) == (409, "conflict")
        assert answer.headers["x-should-retry"] == "false"


async def test_a_closed_connection_stops_nothing() -> None:
    runs = LoggedRuns(*GREETING[:-1])
    typed = {"content-type": "application/json"}
    body = json.dumps({**HELLO, "stream": True}).encode()
    async with exchange(site(runs), "POST", PATH, headers=typed, body=body) as one:
        await one.chunk()
        one.leave()
    assert runs.cancelled == []
