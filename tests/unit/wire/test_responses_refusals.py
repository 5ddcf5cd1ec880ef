"""Requests that Responses refuse before a stream: with a status, a code and the parameter."""

from typing import Any

import pytest
from tests.support.asgi_client import ask, ask_json
from tests.support.logged_runs import RUN, LoggedRuns
from tests.unit.wire.responses_events import Json, note
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
from typing_extensions import override

from passback.core.changes import RunRecord, Status
from passback.core.errors import (
    CallClaimed,
    ConversationBusy,
    PassbackError,
    QueueFull,
    ResultConflict,
    Reused,
    SchemasBusy,
    ShuttingDown,
    StoreUnavailable,
    TooManyRuns,
)
from passback.core.events import Completed
from passback.core.ids import new_call_id, new_message_id, new_run_id
from passback.core.messages import ConversationId, ConversationKey, OwnerId, RunId
from passback.http.answers import STATUS, ErrorView
from passback.http.wires import RequestLimits
from passback.testing import calls, says
from passback.wire.responses.errors import form_error, status_of_error
from passback.wire.responses.request_note import keep_note

pytestmark = pytest.mark.anyio

LIMITS = RequestLimits(attachment_bytes=30, result_bytes=30)
UNUSED = ConversationKey(OwnerId("anonymous"), ConversationId("never-used"))
WRONG = (400, None)
LONG = "x" * 257


def tool(**fields: Any) -> Json:
    return {"input": "hi", "tools": [{**PAINT, **fields}]}


def text(**form: Any) -> Json:
    return {"input": "hi", "text": {"format": form}}


def part(**fields: Any) -> Json:
    return {"input": [user([fields])]}


def items(*given: Json) -> Json:
    return {"input": [*given]}


def hi(**fields: Any) -> Json:
    return {"input": "hi", **fields}


ANSWER: Json = {"type": "function_call_output", "call_id": "call_1", "output": "x"}
CALL: Json = {"type": "function_call", "call_id": "call_1", "name": "paint", "arguments": "{}"}
DECISION: Json = {
    "type": "mcp_approval_response",
    "approval_request_id": "call_1",
    "approve": True,
}

# what is posted, the status and the code, and the parameter
ROWS: dict[str, tuple[object, tuple[int, str | None], str | None]] = {
    # ------------------------------------------------------------ input
    "a list": ([], WRONG, None),
    "nothing": ({}, WRONG, "input"),
    "no input": ({"input": None}, WRONG, "input"),
    "an empty text": ({"input": ""}, WRONG, "input.0"),
    "a blank text": ({"input": " \n"}, WRONG, "input.0"),
    "an empty list": ({"input": []}, WRONG, "input"),
    "a number": ({"input": 1}, WRONG, "input"),
    "an object": ({"input": {}}, WRONG, "input"),
    "too many items": ({"input": [user("a")] * 10_001}, WRONG, "input"),
    "an item that is a text": ({"input": ["hi"]}, WRONG, "input.0"),
    "an item that is nothing": (items({}), WRONG, "input.0.role"),
    "an item of an unknown type": (items({"type": "dance"}), WRONG, "input.0.type"),
    "a compaction": (items({"type": "compaction", "id": "x"}), WRONG, "input.0.type"),
    "an unknown role": (items(user("a", role="tool")), WRONG, "input.0.role"),
    "a message without content": (items({"role": "user"}), WRONG, "input.0.content"),
    "a message of a number": (items(user(1)), WRONG, "input.0.content"),
    "a message of no parts": (items(user([])), WRONG, "input.0"),
    "a blank message": (items(user("a"), user(" ")), WRONG, "input.1"),
    "too many parts": (
        items(user([{"type": "input_text", "text": "a"}] * 1001)),
        WRONG,
        "input.0.content",
    ),
    "a long id": (items(user("a", id=LONG)), WRONG, "input.0.id"),
    "only a system message": (items(user("a", role="system")), WRONG, "input"),
    "only a reference": (items({"type": "item_reference", "id": "msg_1"}), WRONG, "input"),
    # ------------------------------------------------------------ parts
    "a part without a type": (part(text="a"), WRONG, "input.0.content.0.type"),
    "a part of an unknown type": (part(type="input_video"), WRONG, "input.0.content.0.type"),
    "a text without a text": (part(type="input_text"), WRONG, "input.0.content.0.text"),
    "an image without a URL": (part(type="input_image"), WRONG, "input.0.content.0"),
    "an image that is uploaded": (
        part(type="input_image", file_id="file_1"),
        WRONG,
        "input.0.content.0",
    ),
    "a path as an image": (
        part(type="input_image", image_url="/etc/passwd"),
        WRONG,
        "input.0.content.0.url",
    ),
    "an image that is none": (
        part(type="input_image", image_url="data:text/plain;base64,aGk="),
        WRONG,
        "input.0",
    ),
    "data that is no base64": (
        part(type="input_image", image_url="data:image/png;base64,?"),
        WRONG,
        "input.0",
    ),
    "a large image": (
        part(type="input_image", image_url=f"data:image/png;base64,{'A' * 44}"),
        (413, "attachment_too_large"),
        None,
    ),
    "a file without anything": (part(type="input_file"), WRONG, "input.0.content.0"),
    "a file that is uploaded": (
        part(type="input_file", file_id="file_1"),
        WRONG,
        "input.0.content.0",
    ),
    "sound that is a text": (
        part(type="input_audio", input_audio="x"),
        WRONG,
        "input.0.content.0.input_audio",
    ),
    "sound without data": (
        part(type="input_audio", input_audio={"format": "wav"}),
        WRONG,
        "input.0.content.0",
    ),
    "sound of an odd kind": (
        part(type="input_audio", input_audio={"format": "a b", "data": "aGk="}),
        WRONG,
        "input.0.content.0.mediaType",
    ),
    # ------------------------------------------------------------ calls and outputs
    "an output without its call": (
        items({"type": "function_call_output", "output": "x"}),
        WRONG,
        "input.0.call_id",
    ),
    "an output of a long call": (items({**ANSWER, "call_id": "c" * 65}), WRONG, "input.0.call_id"),
    "an output of an empty call": (items({**ANSWER, "call_id": ""}), WRONG, "input.0.call_id"),
    "an output of nothing": (items({**ANSWER, "output": None}), WRONG, "input.0.output"),
    "an output of an object": (items({**ANSWER, "output": {"a": 1}}), WRONG, "input.0.output"),
    "a large output": (items({**ANSWER, "output": "x" * 31}), (413, "result_too_large"), None),
    "an output of an odd part": (
        items({**ANSWER, "output": [{"type": "dance"}]}),
        WRONG,
        "input.0.output.0.type",
    ),
    "a decision without one": (
        items({**DECISION, "approve": None}),
        WRONG,
        "input.0.approve",
    ),
    "a decision that is a word": (items({**DECISION, "approve": "yes"}), WRONG, "input.0.approve"),
    "a decision with a long reason": (
        items({**DECISION, "reason": "x" * 10_001}),
        WRONG,
        "input.0.reason",
    ),
    "a call without a name": (
        items({**CALL, "name": None}, user("a")),
        WRONG,
        "input.0.name",
    ),
    "a call that was not made here": (items(user("a"), CALL, user("b")), WRONG, "input"),
    "an answer that was not given here": (
        items(user("a"), user("hi", role="assistant"), user("b")),
        WRONG,
        "input",
    ),
    "a reference to what is not here": (items({"id": "msg_1"}, user("a")), WRONG, "input"),
    # ------------------------------------------------------------ where it goes on
    "an unknown response": (
        hi(previous_response_id="resp_1"),
        (400, "previous_response_not_found"),
        "previous_response_id",
    ),
    "an odd response": (
        hi(previous_response_id="../%00\n"),
        (400, "previous_response_not_found"),
        "previous_response_id",
    ),
    "a response of a conversation that is not there": (
        hi(previous_response_id=f"resp_{new_run_id(UNUSED)[4:]}"),
        (400, "previous_response_not_found"),
        "previous_response_id",
    ),
    "a long response": (hi(previous_response_id=LONG), WRONG, "previous_response_id"),
    "a response that is a number": (hi(previous_response_id=1), WRONG, "previous_response_id"),
    "an unknown conversation": (hi(conversation="nobody's"), (404, None), None),
    "a conversation without an id": (hi(conversation={}), WRONG, "conversation.id"),
    "a long conversation": (hi(conversation=LONG), WRONG, "conversation"),
    "an odd conversation": (hi(conversation="a\n"), WRONG, "conversation"),
    "a template as a conversation": (hi(conversation={"id": "{id}"}), WRONG, "conversation"),
    "both": (hi(conversation="c", previous_response_id="resp_1"), WRONG, "conversation"),
    # ------------------------------------------------------------ tools
    "tools that are an object": (hi(tools={}), WRONG, "tools"),
    "too many tools": (hi(tools=[PAINT] * 129), WRONG, "tools"),
    "a tool that is a text": (hi(tools=["paint"]), WRONG, "tools.0"),
    "a tool without a name": (tool(name=None), (400, None), "tools"),
    "a tool of an odd name": (tool(name="paint it"), (400, None), "tools"),
    "a tool of a long name": (tool(name="p" * 65), (400, None), "tools"),
    "a tool of a list": (tool(parameters={"type": "array"}), (400, None), "tools"),
    "a tool with a wrong schema": (
        tool(parameters={"type": "object", "properties": 1}),
        (400, None),
        "tools",
    ),
    "two tools of one name": (hi(tools=[PAINT, PAINT]), (400, None), "tools"),
    "a choice that is unknown": (hi(tool_choice="maybe"), WRONG, "tool_choice"),
    "a choice of an unknown type": (hi(tool_choice={"type": "dance"}), WRONG, "tool_choice"),
    "a choice of an unknown function": (
        hi(tools=[PAINT], tool_choice={"type": "function", "name": "rm"}),
        WRONG,
        "tool_choice",
    ),
    "a choice of what is not declared": (
        hi(
            tools=[PAINT],
            tool_choice={
                "type": "allowed_tools",
                "mode": "auto",
                "tools": [{"type": "function", "name": "rm"}],
            },
        ),
        WRONG,
        "tool_choice.tools",
    ),
    # ------------------------------------------------------------ options
    "an unknown format": (text(type="xml"), WRONG, "text.format.type"),
    "a schema without a name": (text(type="json_schema", schema={}), WRONG, "text.format"),
    "a format without a schema": (text(type="json_schema", name="n"), WRONG, "text.format"),
    "a schema that is a text": (
        text(type="json_schema", name="n", schema="x"),
        WRONG,
        "text.format.schema",
    ),
    "a schema of a list": (
        text(type="json_schema", name="n", schema={"type": "array"}),
        WRONG,
        "text.format.schema",
    ),
    "an odd name of a schema": (
        text(type="json_schema", name="a b", schema={}),
        WRONG,
        "text.format.name",
    ),
    "an unknown verbosity": (hi(text={"verbosity": "loud"}), WRONG, "text.verbosity"),
    "reasoning that is a text": (hi(reasoning="high"), WRONG, "reasoning"),
    "a temperature that is a text": (hi(temperature="1"), WRONG, "temperature"),
    "too warm": (hi(temperature=2.1), WRONG, "temperature"),
    "too cold": (hi(temperature=-0.1), WRONG, "temperature"),
    "too many words": (hi(top_p=1.1), WRONG, "top_p"),
    "a large penalty": (hi(presence_penalty=3), WRONG, "presence_penalty"),
    "a small penalty": (hi(frequency_penalty=-3), WRONG, "frequency_penalty"),
    "too many probabilities": (hi(top_logprobs=21), WRONG, "top_logprobs"),
    "too few tokens": (hi(max_output_tokens=15), WRONG, "max_output_tokens"),
    "tokens that are a fraction": (hi(max_output_tokens=16.5), WRONG, "max_output_tokens"),
    "no calls": (hi(max_tool_calls=0), WRONG, "max_tool_calls"),
    "a truncation that is unknown": (hi(truncation="middle"), WRONG, "truncation"),
    "include that is a text": (hi(include="x"), WRONG, "include"),
    "metadata of numbers": (hi(metadata={"a": 1}), WRONG, "metadata.a"),
    "long metadata": (hi(metadata={"a": "x" * 513}), WRONG, "metadata.a"),
    "metadata of a long name": (hi(metadata={"k" * 65: "x"}), WRONG, f"metadata.{'k' * 65}"),
    "too much metadata": (hi(metadata={str(n): "x" for n in range(17)}), WRONG, "metadata"),
    "what is not kept": (hi(store=False), WRONG, "store"),
    "store that is a word": (hi(store="no"), WRONG, "store"),
    "a stream that is a word": (hi(stream="yes"), WRONG, "stream"),
    "background that is a number": (hi(background=1), WRONG, "background"),
    "long instructions": (hi(instructions="x" * 32_769), WRONG, "instructions"),
    "instructions that are items": (hi(instructions=[]), WRONG, "instructions"),
    "a model that is a number": (hi(model=1), WRONG, "model"),
    "a long model": (hi(model=LONG), WRONG, "model"),
    "a tier that is a number": (hi(service_tier=1), WRONG, "service_tier"),
}


@pytest.mark.parametrize(("body", "error", "param"), ROWS.values(), ids=ROWS)
async def test_bad_input_is_refused_before_the_stream(
    body: object, error: tuple[int, str | None], param: str | None
) -> None:
    runs = LoggedRuns(*GREETING)
    bodies = [body, {"stream": True, **body}] if isinstance(body, dict) else [body]
    for each in bodies:
        answer = await ask_json(site(runs, limits=LIMITS), "POST", PATH, each)
        said = answer.json["error"]
        assert (answer.status, said["code"], said["param"]) == (*error, param), said
        assert said["type"] in {"invalid_request_error", "not_found"}
        assert 0 < len(said["message"]) < 500
    assert runs.posts == []


async def test_the_table_has_enough_rows() -> None:
    assert len(ROWS) >= 60


async def test_an_unknown_model_is_a_404_where_there_are_several_agents() -> None:
    class Agents(LoggedRuns):
        @override
        def agents(self) -> tuple[str, ...]:
            return ("", "painter")

    runs = Agents(*GREETING)
    answer = await ask_json(site(runs), "POST", PATH, hi(model="nobody"))
    error = answer.json["error"]
    assert (answer.status, error["code"], error["param"]) == (404, "model_not_found", "model")
    assert "painter, scripted, other" in error["message"]


# ---------------------------------------------------------------- what the engine refuses
@pytest.mark.parametrize(
    ("error", "status", "code", "kind", "headers"),
    [
        (
            ConversationBusy("busy", retry_after=3),
            409,
            "conversation_locked",
            "conflict",
            {"retry-after": "3"},
        ),
        (
            ResultConflict("other"),
            409,
            "tool_result_conflict",
            "conflict",
            {"x-should-retry": "false"},
        ),
        (Reused("again"), 409, "reused", "conflict", {"x-should-retry": "false"}),
        (CallClaimed("taken", retry_after=9), 409, "call_claimed", "conflict", {}),
        (QueueFull("full"), 429, "rate_limit_exceeded", "too_many_requests", {"retry-after": "1"}),
        (TooManyRuns("many"), 429, "rate_limit_exceeded", "too_many_requests", {}),
        (SchemasBusy("busy"), 429, "rate_limit_exceeded", "too_many_requests", {}),
        (StoreUnavailable("gone"), 503, "server_error", "server_error", {"retry-after": "1"}),
        (ShuttingDown("bye"), 503, "server_error", "server_error", {}),
    ],
)
async def test_an_error_has_the_form_that_clients_know(
    error: PassbackError, status: int, code: str, kind: str, headers: dict[str, str]
) -> None:
    runs = LoggedRuns(*GREETING)
    runs.answer = error
    answer = await ask_json(site(runs), "POST", PATH, hi())
    assert answer.status == status
    assert answer.json == {
        "error": {"message": error.message, "type": kind, "param": None, "code": code}
    }
    assert dict(answer.headers).items() >= headers.items()
    assert ("x-should-retry" in answer.headers) == ("x-should-retry" in headers)


def test_each_code_of_the_server_has_a_form() -> None:
    kinds = {
        400: "invalid_request_error",
        401: "authentication_error",
        403: "permission_error",
        404: "not_found",
        409: "conflict",
        429: "too_many_requests",
    }
    for code, status in STATUS.items():
        form = form_error(ErrorView(status, code, "words", "r"))
        assert isinstance(form.body, dict)
        error = form.body["error"]
        shown = form.status or status
        assert shown == status_of_error(code)
        assert shown != 422
        named = code in {"agent_not_found", "unknown_model"}
        assert named or error["type"] == kinds.get(shown, error["type"]), code
        assert (shown >= 500) == (error["type"] in {"server_error", "model_error"}), code


# ---------------------------------------------------------------- addresses
@pytest.mark.parametrize(
    ("method", "path", "status", "code", "param"),
    [
        ("GET", PATH, 405, "method_not_allowed", None),
        ("DELETE", f"{PATH}/resp_2", 404, None, None),
        ("PUT", f"{PATH}/resp_1", 405, "method_not_allowed", None),
        ("GET", f"{PATH}/resp_2", 404, None, None),
        ("GET", f"{PATH}/run_1", 404, None, None),
        ("GET", f"{PATH}/%00", 404, None, None),
        ("GET", f"{PATH}/resp_2/input_items", 404, None, None),
        ("POST", f"{PATH}/resp_2/cancel", 404, None, None),
        ("GET", f"{PATH}/resp_1/cancel", 405, "method_not_allowed", None),
        ("GET", f"{PATH}/resp_1/nothing", 404, None, None),
        ("GET", f"{PATH}/%ff", 400, None, None),
        ("GET", f"{PATH}/resp_1?stream=true&starting_after=-1", 400, None, "starting_after"),
        ("GET", f"{PATH}/resp_1?stream=true&starting_after=x", 400, None, "starting_after"),
        (
            "GET",
            f"{PATH}/resp_1?stream=true&starting_after={'9' * 17}",
            400,
            None,
            "starting_after",
        ),
        ("GET", f"{PATH}/resp_1/input_items?limit=0", 400, None, "limit"),
        ("GET", f"{PATH}/resp_1/input_items?limit=101", 400, None, "limit"),
        ("GET", f"{PATH}/resp_1/input_items?limit=x", 400, None, "limit"),
        ("GET", f"{PATH}/resp_1/input_items?order=up", 400, None, "order"),
        ("GET", f"{PATH}/resp_1/input_items?after=msg_9", 400, None, "after"),
        ("POST", f"{PATH}/resp_1/cancel", 409, "conflict", None),
        ("POST", "/v1/models", 405, "method_not_allowed", None),
    ],
)
async def test_a_bad_address_is_refused_in_the_protocols_form(
    method: str, path: str, status: int, code: str | None, param: str | None
) -> None:
    runs = LoggedRuns(*GREETING)
    known = new_run(runs)
    sent = path.replace("resp_1", f"resp_{known[4:]}").replace(
        "resp_2", f"resp_{new_run_id(RUN.key)[4:]}"
    )
    answer = await ask(site(runs), method, sent)
    error = answer.json["error"]
    assert (answer.status, error["code"], error["param"]) == (status, code, param), error


def new_run(runs: LoggedRuns) -> RunId:
    """Have a run that is over in the record; return its id."""
    run_id = new_run_id(RUN.key)
    runs.known[RUN.key] = Status(1, run_id)
    runs.records[run_id] = RunRecord(ended=1, outcome=Completed(), note=keep_note(note(), None))
    return run_id


async def test_an_unknown_response_of_a_known_conversation_is_not_found() -> None:
    runs = LoggedRuns(*GREETING)
    new_run(runs)
    body = hi(previous_response_id=f"resp_{new_run_id(RUN.key)[4:]}")
    error = (await ask_json(site(runs), "POST", PATH, body)).json["error"]
    assert error["code"] == "previous_response_not_found"


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b'{"input": NaN}', b'{"input":"\\ud800"}'])
async def test_a_body_that_is_no_json_is_refused(body: bytes) -> None:
    headers = {"content-type": "application/json"}
    answer = await ask(site(LoggedRuns()), "POST", PATH, body=body, headers=headers)
    assert (answer.status, answer.json["error"]["type"]) == (400, "invalid_request_error")


async def test_another_media_type_and_a_large_body_are_refused() -> None:
    app = site(LoggedRuns(), limits=RequestLimits(body_bytes=30))
    typed = {"content-type": "text/plain"}
    answer = await ask(app, "POST", PATH, body=b"{}", headers=typed)
    assert (answer.status, answer.json["error"]["code"]) == (415, "unsupported_media_type")
    answer = await ask_json(app, "POST", PATH, hi(instructions="x" * 30))
    assert (answer.status, answer.json["error"]["code"]) == (413, "body_too_large")


@pytest.mark.parametrize("key", ["", "a b", "x" * 257])
async def test_a_bad_idempotency_key_is_refused(key: str) -> None:
    headers = {"idempotency-key": key}
    answer = await ask_json(site(LoggedRuns()), "POST", PATH, hi(), headers=headers)
    assert (answer.status, answer.json["error"]["code"]) == (400, None)


# ---------------------------------------------------------------- other owners
KEYED = {"api_keys": "ann:anns-key-0123456789-,bob:bobs-key-0123456789-"}
ANN, BOB = ({"authorization": f"Bearer {name}s-key-0123456789-"} for name in ("ann", "bob"))


@pytest.mark.promise("P13")
async def test_what_another_owner_has_is_not_there() -> None:
    script = [[*calls(("paint", {}))], says("done"), says("more")]
    async with responses(script, **KEYED) as client:
        client.http.headers.update(ANN)
        made = await client.post("paint", tools=[PAINT])
        conversation = client.headers["x-conversation-id"]
        [call] = calls_of(made)
        key = ConversationKey(OwnerId("ann"), ConversationId(conversation))
        client.http.headers.update(BOB)

        async def compare(theirs: Json, unknown: Json) -> None:
            found = [await client.refusal(**each) for each in (theirs, unknown)]
            assert found[0] == found[1]
            assert found[0][0] in {400, 404}

        unknown_run = f"resp_{new_run_id(UNUSED)[4:]}"
        await compare(hi(previous_response_id=made["id"]), hi(previous_response_id=unknown_run))
        await compare(hi(conversation=conversation), hi(conversation="never-used"))
        await compare(items(output(call)), items(output({"call_id": new_call_id(UNUSED)})))
        await compare(
            items({**DECISION, "approval_request_id": call["call_id"]}),
            items({**DECISION, "approval_request_id": new_call_id(UNUSED)}),
        )
        for kind in ("fc", "msg", "rs", "mcp"):
            theirs = f"{kind}_{call['id'][3:]}"
            unused = f"{kind}_{new_message_id(UNUSED)[4:]}"
            await compare(items({"id": theirs}, user("a")), items({"id": unused}, user("a")))
        for place in ("", "/input_items", "?stream=true"):
            answers = [await client.get(f"{each}{place}") for each in (made["id"], unknown_run)]
            assert [each.status_code for each in answers] == [404, 404]
            assert error_of(answers[0]) == error_of(answers[1])
        cancelled = [
            await client.http.post(f"{PATH}/{each}/cancel") for each in (made["id"], unknown_run)
        ]
        assert error_of(cancelled[0]) == error_of(cancelled[1])

        client.http.headers.update(ANN)
        assert [each["role"] for each in await client.messages(key.id)] == ["user", "assistant"]
        done = await client.post([output(call)])
        assert done["status"] == "completed"


async def test_a_request_without_a_key_is_refused_in_the_protocols_form() -> None:
    async with responses([says("hi")], **KEYED) as client:
        for answer in (
            await client.http.post(PATH, json=hi()),
            await client.http.get("/v1/models"),
            await client.http.post(PATH, json=hi(), headers={"authorization": "Bearer wrong"}),
        ):
            assert (answer.status_code, error_of(answer)["code"]) == (401, "invalid_api_key")
            assert error_of(answer)["type"] == "authentication_error"


async def test_an_unknown_address_below_the_base_has_the_protocols_form() -> None:
    async with responses([says("hi")]) as client:
        answer = await client.http.get(f"{PATH}/a/b/c")
        assert (answer.status_code, error_of(answer)["type"]) == (404, "not_found")
