"""The published `openai` package, both of its clients, against real servers."""

from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest
from tests.e2e.asking import AGENT, asking_worker
from tests.e2e.workers import Worker
from tests.support.model_server import ModelServer, Reply, calls, event, fails, says
from tests.support.openai_sdk import (
    PATH,
    Json,
    OpenAIClient,
    OpenAIClients,
    check_legal,
    function,
    of_type,
    openai_clients,
    output,
    text_of,
    texts,
)
from tests.support.wire import Client, user

pytestmark = pytest.mark.anyio

ZONE = function("get-time-zone")
COLOR = function("set-color", color={"type": "string"})
USAGE = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
THINKS = Reply(
    [
        event(reasoning_content="h"),
        event(reasoning_content="m"),
        event(content="so "),
        event(content="be it \u2028\u0085 😀"),
        event("stop"),
        {"choices": [], "usage": USAGE},
        b"data: [DONE]\n\n",
    ]
)


@pytest.fixture(scope="module")
async def clients() -> AsyncGenerator[OpenAIClients]:
    async with openai_clients() as clients:
        yield clients


@pytest.fixture(scope="module")
async def workers(store: str, model: ModelServer) -> AsyncGenerator[Sequence[Worker]]:
    # with a usual lease: on a busy machine a short one is lost, and the model is asked again
    flags = (AGENT, "--store", store, "--model", "openai:mock", "--model-base-url", model.base_url)
    async with asking_worker(*flags) as one, asking_worker(*flags) as other:
        yield one, other


@pytest.fixture(params=["sync", "async"])
def sdk(
    clients: OpenAIClients, workers: Sequence[Worker], request: pytest.FixtureRequest
) -> OpenAIClient:
    return OpenAIClient(clients, workers[0].server.url, request.param)


@pytest.fixture
def elsewhere(clients: OpenAIClients, workers: Sequence[Worker]) -> OpenAIClient:
    """A client of the other worker."""
    return OpenAIClient(clients, workers[1].server.url, "async")


def shown(model: ModelServer) -> list[tuple[str, object]]:
    return [(each["role"], each["content"]) for each in model.requests[-1].shown]


# ---------------------------------------------------------------- talking
async def test_responses_are_chained_on_any_worker_and_read_again(
    sdk: OpenAIClient, elsewhere: OpenAIClient, model: ModelServer
) -> None:
    model.play(THINKS, says("Bye"))
    first = await sdk.create(model="any", input="hi", instructions="Be brief.", metadata={"a": "b"})
    assert (first["status"], first["said"]) == ("completed", "so be it \u2028\u0085 😀")
    assert [each["type"] for each in first["output"]] == ["reasoning", "message"]
    assert (first["model"], first["instructions"], first["metadata"]) == (
        *("any", "Be brief."),
        {"a": "b"},
    )
    assert (first["usage"]["input_tokens"], first["usage"]["total_tokens"]) == (3, 7)
    assert await elsewhere.call("responses.retrieve", first["id"]) == first
    second = await elsewhere.create(model="any", input="bye", previous_response_id=first["id"])
    assert (second["said"], second["previous_response_id"]) == ("Bye", first["id"])
    assert second["instructions"] is None
    assert [each for each, _ in shown(model)] == ["user", "assistant", "user"]


async def test_the_helper_gathers_a_stream_whose_response_is_the_stored_one(
    sdk: OpenAIClient, elsewhere: OpenAIClient, model: ModelServer
) -> None:
    model.play(THINKS)
    seen = await sdk.ask("helper", params={"model": "any", "input": "hi"})
    final = seen["final"]
    assert final["said"] == "so be it \u2028\u0085 😀"
    stored = await elsewhere.call("responses.retrieve", final["id"])
    said = {"said": final["said"]}
    replayed = await elsewhere.events(final["id"])
    assert {**check_legal(replayed), **said} == stored
    assert [each["type"] for each in seen["events"]] == [each["type"] for each in replayed]
    assert [_plain(each) for each in final["output"]] == stored["output"]


def _plain(item: Json) -> Json:
    """Return an item without what the helper adds to its parts."""
    if "content" not in item:
        return item
    parts = [{**each} for each in item["content"]]
    for part in parts:
        part.pop("parsed", None)
    return {**item, "content": parts}


async def test_a_client_that_resends_everything_goes_on_where_it_was(
    sdk: OpenAIClient, model: ModelServer
) -> None:
    model.play(THINKS, says("two"), says("three"))
    said: list[Json] = [{"role": "user", "content": "1"}]
    first = await sdk.create(input=said)
    said += [*first["output"], {"role": "user", "content": "2"}]
    second = await sdk.create(input=said)
    assert second["said"] == "two"
    by_reference = [{"type": "item_reference", "id": second["output"][0]["id"]}]
    third = await sdk.create(input=[*said, *by_reference, {"role": "user", "content": "3"}])
    assert third["said"] == "three"
    users = [content for role, content in shown(model) if role == "user"]
    assert users == ["1", "2", "3"]


async def test_an_older_response_is_continued_more_than_once(
    sdk: OpenAIClient, elsewhere: OpenAIClient, model: ModelServer
) -> None:
    model.play(says("one"), says("two"), says("other"))
    first = await sdk.create(input="1")
    second = await sdk.create(input="2", previous_response_id=first["id"])
    other = await elsewhere.create(input="b", previous_response_id=first["id"])
    assert (second["said"], other["said"]) == ("two", "other")
    assert shown(model) == [("user", "1"), ("assistant", "one"), ("user", "b")]
    assert await elsewhere.call("responses.retrieve", second["id"]) == second


async def test_a_conversation_of_another_wire_goes_on(
    sdk: OpenAIClient, workers: Sequence[Worker], model: ModelServer, conversation: str
) -> None:
    model.play(says("one"), says("two"), says("three"))
    client = workers[1].client
    await client.post(conversation, user("1"))
    answer = await sdk.create(input="2", conversation=conversation)
    assert (answer["said"], answer["conversation"]) == ("two", {"id": conversation})
    await client.post(conversation, user("3"))
    assert [role for role, _ in shown(model)] == ["user", "assistant"] * 2 + ["user"]


async def test_an_answer_of_a_form_is_parsed(sdk: OpenAIClient, model: ModelServer) -> None:
    model.play(says('```json\n{"name": "Rome", "people": 3}\n```'))
    answer = await sdk.ask("parsed", params={"model": "any", "input": "a town?"})
    assert "town" in answer, answer
    assert answer["town"] == {"name": "Rome", "people": 3}
    assert answer["response"]["said"] == '{"name":"Rome","people":3}'


async def test_an_image_reaches_the_model(sdk: OpenAIClient, model: ModelServer) -> None:
    model.play(says("a pixel"))
    url = "data:image/png;base64,iVBORw0KGgo="
    parts = [{"type": "input_text", "text": "look"}, {"type": "input_image", "image_url": url}]
    await sdk.create(input=[{"role": "user", "content": parts}])
    [message] = model.requests[-1].shown
    assert {"type": "image_url", "image_url": {"url": url}} in message["content"]


# ---------------------------------------------------------------- functions, tools
async def test_functions_are_called_by_the_client_and_their_outputs_go_back(
    sdk: OpenAIClient, elsewhere: OpenAIClient, model: ModelServer
) -> None:
    model.play(
        calls(("a", "get-time-zone", "{}"), ("b", "set-color", '{"color":"blue"}')), says("Done.")
    )
    tools = [ZONE, COLOR]
    seen = await sdk.ask("helper", params={"model": "any", "input": "both", "tools": tools})
    zone, color = of_type(seen["final"], "function_call")
    assert [each["arguments"] for each in (zone, color)] == ["{}", '{"color":"blue"}']
    assert check_legal(await elsewhere.events(seen["final"]["id"]))["status"] == "completed"
    named = {"previous_response_id": seen["final"]["id"], "tools": tools}
    asks = await sdk.create(input=[output(zone["call_id"], "UTC")], **named)
    assert (asks["id"], [each["call_id"] for each in of_type(asks, "function_call")]) == (
        *(seen["final"]["id"], [color["call_id"]]),
    )
    # with outputs, no more than these need be named
    done = await elsewhere.create(input=[output(color["call_id"], "blue")], tools=tools)
    assert done["said"] == "Done."
    assert shown(model)[-2:] == [("tool", "UTC"), ("tool", "blue")]
    again = await sdk.create(input=[output(color["call_id"], "blue")], tools=tools)
    assert again == done
    error = await sdk.refused("responses.create", input=[output(color["call_id"], "red")])
    assert (error["class"], error["code"]) == ("ConflictError", "tool_result_conflict")


async def test_a_tool_of_the_server_is_an_mcp_call_between_the_texts(
    sdk: OpenAIClient, model: ModelServer
) -> None:
    model.play(calls(("a", "price", '{"drink":"tea"}')), says("3 euros."))
    response = check_legal(await sdk.events(input="what is tea?"))
    assert [each["type"] for each in response["output"]] == ["mcp_call", "message"]
    [call] = of_type(response, "mcp_call")
    assert (call["name"], call["arguments"], call["output"], call["status"]) == (
        *("price", '{"drink":"tea"}'),
        *("3 euros", "completed"),
    )
    assert check_legal(await sdk.events(response["id"])) == response
    stored = await sdk.call("responses.retrieve", response["id"])
    assert stored == {**response, "said": "3 euros."}


@pytest.mark.parametrize("approve", [True, False])
async def test_a_person_decides_on_a_call_of_the_server(
    sdk: OpenAIClient, model: ModelServer, approve: bool
) -> None:
    model.play(calls(("a", "wipe", "{}")), says("Done."))
    asked = check_legal(await sdk.events(input="wipe it"))
    [request] = of_type(asked, "mcp_approval_request")
    decision = {
        "type": "mcp_approval_response",
        "approval_request_id": request["id"],
        "approve": approve,
        "reason": "because",
    }
    done = check_legal(await sdk.events(previous_response_id=asked["id"], input=[decision]))
    assert texts(done) == ["Done."]
    [call] = of_type(done, "mcp_call")
    assert (call["output"] == "wiped") is approve
    [posted] = (await sdk.ask("listed", response=done["id"], params={}))["items"]
    assert (posted["approval_request_id"], posted["approve"]) == (request["id"], approve)


async def test_the_items_of_a_request_are_listed_page_by_page(
    sdk: OpenAIClient, model: ModelServer
) -> None:
    model.play(says("hm"))
    asked = await sdk.create(input=[{"role": "user", "content": each} for each in ("a", "b", "c")])
    for order, wanted in (("asc", ["a", "b", "c"]), ("desc", ["c", "b", "a"])):
        pages = {"order": order, "limit": 2}
        listed = await sdk.ask("listed", response=asked["id"], params=pages)
        assert [text_of(each) for each in listed["items"]] == wanted


async def test_the_models_are_listed(sdk: OpenAIClient, model: ModelServer) -> None:
    listed = await sdk.ask("listed", response=None, params={})
    assert [each["object"] for each in listed["items"]] == ["model"] * len(listed["items"])
    assert "mock" in str(listed["items"])


# ---------------------------------------------------------------- errors
async def test_a_failed_run_is_an_error_or_a_failed_response(
    sdk: OpenAIClient, model: ModelServer
) -> None:
    model.play(fails(400, {"error": {"message": "secret"}}))
    error = await sdk.refused("responses.create", input="hi")
    assert (error["class"], error["code"], error["type"]) == (
        *("InternalServerError", "model_rejected", "model_error"),
    )
    failed = check_legal(await sdk.events(input="hi"))
    assert (failed["status"], failed["error"]["code"]) == ("failed", "model_rejected")
    stored = await sdk.call("responses.retrieve", failed["id"])
    assert stored == {**failed, "said": ""}
    assert "secret" not in str([error, failed])


REFUSED: dict[str, tuple[Json, tuple[str, str | None, str | None]]] = {
    "no input": ({}, ("BadRequestError", None, "input")),
    "an empty list": ({"input": []}, ("BadRequestError", None, "input")),
    "a temperature": (
        {"input": "x", "temperature": 9},
        ("BadRequestError", None, "temperature"),
    ),
    "a bad function": (
        {"input": "x", "tools": [{**ZONE, "name": "a b"}]},
        ("BadRequestError", None, "tools"),
    ),
    "an unknown response": (
        {"input": "x", "previous_response_id": "resp_none"},
        ("BadRequestError", "previous_response_not_found", "previous_response_id"),
    ),
    "an unknown conversation": (
        {"input": "x", "conversation": "none"},
        ("NotFoundError", None, None),
    ),
    "an unknown call": ({"input": [output("call_0", "x")]}, ("BadRequestError", None, "input")),
    "not stored": ({"input": "x", "store": False}, ("BadRequestError", None, "store")),
    "an unknown function": (
        {"input": "x", "tools": [ZONE], "tool_choice": {"type": "function", "name": "rm"}},
        ("BadRequestError", None, "tool_choice"),
    ),
    "a history of elsewhere": (
        {"input": [{"role": "assistant", "content": "a"}, {"role": "user", "content": "b"}]},
        ("BadRequestError", None, "input"),
    ),
}


@pytest.mark.parametrize(("params", "wanted"), REFUSED.values(), ids=REFUSED)
async def test_a_wrong_request_is_the_exception_of_its_status(
    sdk: OpenAIClient, params: Json, wanted: tuple[str, str | None, str | None]
) -> None:
    for stream in (False, True):
        error = await sdk.refused("responses.create", stream=stream, **params)
        assert (error["class"], error["code"], error["param"]) == wanted
        assert error["message"]


async def test_an_unknown_response_is_not_found(sdk: OpenAIClient) -> None:
    for method in ("retrieve", "cancel"):
        error = await sdk.refused(f"responses.{method}", "resp_none")
        assert (error["class"], error["type"]) == ("NotFoundError", "not_found")


async def test_a_response_is_deleted_and_what_goes_on_from_it_stays(
    sdk: OpenAIClient, elsewhere: OpenAIClient, model: ModelServer
) -> None:
    model.play(says("one"), says("two"), says("three"))
    first = await sdk.create(input="1")
    second = await sdk.create(input="2", previous_response_id=first["id"])
    await sdk.call("responses.delete", first["id"])
    for ask in (("responses.retrieve", first["id"]), ("responses.delete", first["id"])):
        assert (await elsewhere.refused(*ask))["class"] == "NotFoundError"
    gone = await elsewhere.refused(
        "responses.create", input="again", previous_response_id=first["id"]
    )
    assert gone["code"] == "previous_response_not_found"
    third = await elsewhere.create(input="3", previous_response_id=second["id"])
    assert third["output"][0]["content"][0]["text"] == "three"
    assert "one" in str(model.requests[-1].shown)


async def test_a_response_that_is_over_is_not_cancelled_and_the_client_does_not_repeat_it(
    clients: OpenAIClients, workers: Sequence[Worker], model: ModelServer
) -> None:
    model.play(says("hm"))
    repeats = OpenAIClient(clients, workers[0].server.url, "sync", max_retries=2)
    over = await repeats.create(input="hi")
    error = await repeats.refused("responses.cancel", over["id"])
    assert (error["class"], error["headers"]["x-should-retry"]) == ("ConflictError", "false")


async def test_a_request_that_is_repeated_by_its_key_is_the_same_response(
    sdk: OpenAIClient, elsewhere: OpenAIClient, model: ModelServer, conversation: str
) -> None:
    model.play(says("one"), says("two"))
    keyed: dict[str, Any] = {"input": "1", "extra_headers": {"Idempotency-Key": conversation}}
    first = await sdk.create(**keyed)
    assert await elsewhere.create(**keyed) == first
    error = await sdk.refused("responses.create", **{**keyed, "input": "2"})
    assert (error["class"], error["headers"]["x-should-retry"]) == ("ConflictError", "false")
    assert len(model.requests) == 1


async def test_answers_name_their_request_and_errors_are_of_one_form(
    workers: Sequence[Worker],
) -> None:
    client: Client = workers[0].client
    for body, status in ((b"{", 400), (b"[]", 400)):
        headers = {"content-type": "application/json"}
        answer = await client.http.post(PATH, content=body, headers=headers)
        assert (answer.status_code, set(answer.json()["error"])) == (
            *(status, {"message", "type", "param", "code"}),
        )
        assert answer.headers["x-request-id"]


ABSENT = {
    ("DELETE", f"{PATH}/resp_none"): 404,
    ("POST", f"{PATH}/compact"): 405,
    ("POST", f"{PATH}/input_tokens"): 405,
    ("GET", PATH): 405,
    ("POST", "/v1/conversations"): 404,
    ("POST", "/v1/chat/completions"): 404,
}


async def test_what_is_not_built_is_refused_and_not_taken_for_something_else(
    workers: Sequence[Worker],
) -> None:
    client: Client = workers[0].client
    for (method, path), status in ABSENT.items():
        assert (await client.http.request(method, path)).status_code == status
    upgrade = {"connection": "Upgrade", "upgrade": "websocket", "sec-websocket-version": "13"}
    headers = {**upgrade, "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ=="}
    assert (await client.http.get(PATH, headers=headers)).status_code == 405
