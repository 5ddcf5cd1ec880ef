"""A response is read on: from any number, on another worker, and after a worker was killed."""

from collections.abc import AsyncGenerator, Sequence

import anyio
import pytest
from tests.e2e.workers import SECONDS, Worker, broken_off, held, worker
from tests.support.model_server import ModelServer, calls, says
from tests.support.openai_sdk import (
    DELTA,
    Json,
    OpenAIClient,
    OpenAIClients,
    check_legal,
    done_items,
    function,
    of_type,
    openai_clients,
    output,
    text_of,
    texts,
)
from tests.support.waiting import pause
from tests.support.wire import Client

pytestmark = [pytest.mark.anyio, pytest.mark.promise("P3", "P10")]


@pytest.fixture(scope="module")
async def clients() -> AsyncGenerator[OpenAIClients]:
    async with openai_clients() as clients:
        yield clients


def client_at(clients: OpenAIClients, client: Client, way: str = "async") -> OpenAIClient:
    return OpenAIClient(clients, str(client.http.base_url).rstrip("/"), way)


@pytest.fixture(params=["sync", "async"])
def sdk(clients: OpenAIClients, survivor: Client, request: pytest.FixtureRequest) -> OpenAIClient:
    """A client of the worker that lives."""
    return client_at(clients, survivor, request.param)


@pytest.fixture(scope="module")
async def second(flags: Sequence[str], survivor: Client) -> AsyncGenerator[Client]:
    async with worker(*flags) as other:
        yield other.client


async def until_over(sdk: OpenAIClient, response: str) -> Json:
    """Poll a response until it has ended."""
    with anyio.fail_after(SECONDS):
        while True:
            found = await sdk.call("responses.retrieve", response)
            if found["status"] not in {"queued", "in_progress"}:
                return found
            await pause(0.1)


# ---------------------------------------------------------------- another worker
async def test_what_follows_each_number_is_the_rest_of_the_stream_on_any_worker(
    sdk: OpenAIClient, clients: OpenAIClients, second: Client, model: ModelServer
) -> None:
    model.play(
        calls(("a", "price", '{"drink":"tea"}'), ("b", "set-color", "{}")),
        says("It ", "costs ", "3 euros."),
    )
    asked: Json = {"tools": [function("set-color")], "input": "set the price"}
    other = client_at(clients, second)
    first = await sdk.events(**asked)
    [call] = of_type(check_legal(first), "function_call")
    answered = await other.events(input=[output(call["call_id"], "blue")])
    assert texts(check_legal(answered)) == ["It costs 3 euros."]
    for whole in (first, answered):
        response = whole[-1]["response"]["id"]
        for each in whole[:-1]:
            number = each["sequence_number"]
            rest = await other.events(response, starting_after=number)
            assert rest == whole[number + 1 :]
        gathered = await other.ask("helper", params={"response_id": response, "starting_after": 3})
        assert [each["sequence_number"] for each in gathered["events"]] == list(
            range(4, len(whole))
        )


async def test_a_client_that_has_left_reads_on_while_the_response_is_written(
    sdk: OpenAIClient, clients: OpenAIClients, second: Client, model: ModelServer
) -> None:
    gate = anyio.Event()
    model.play(held("half ", gate, "and ", "half"))
    seen = await sdk.begin(input="hi")
    response, last = seen[0]["response"]["id"], seen[-1]["sequence_number"]
    going = await sdk.call("responses.retrieve", response)
    assert (going["status"], going["completed_at"], going["usage"]) == ("in_progress", None, None)
    gate.set()
    rest = await client_at(clients, second).events(response, starting_after=last)
    assert await sdk.rest() == (rest, None)
    assert texts(check_legal([*seen, *rest])) == ["half and half"]
    cut = await sdk.events(response, most=4)
    assert cut == seen[:4]


# ---------------------------------------------------------------- a killed worker
@pytest.mark.promise("P6")
async def test_a_reader_of_a_killed_worker_comes_back_to_another_one(
    sdk: OpenAIClient, clients: OpenAIClients, victim: Worker, model: ModelServer
) -> None:
    model.play(
        calls(("a", "price", '{"drink":"tea"}')), broken_off("Tea "), says("It ", "is ", "3.")
    )
    dies = client_at(clients, victim.client)
    seen = await dies.begin(input="tea?")
    victim.server.kill()
    cut, broken = await dies.rest()
    assert (cut, broken is None) == ([], False)
    response = seen[0]["response"]["id"]
    over = await until_over(sdk, response)
    assert over["said"] == "It is 3."
    whole = await sdk.events(response)
    # what was written before the last lease is void, and no part of a replay
    for each in seen:
        rest = await sdk.events(response, starting_after=each["sequence_number"])
        assert rest[-1] == whole[-1]
        numbers = [event["sequence_number"] for event in rest]
        assert numbers == sorted(set(numbers))
        assert numbers[0] > each["sequence_number"]
        read = [*seen[: seen.index(each) + 1], *rest]
        kept = {item["id"]: item for item in done_items(read)}
        assert [kept[item["id"]] for item in over["output"]] == over["output"]
        message = over["output"][-1]
        deltas = [
            event["delta"]
            for event in read
            if event.get("item_id") == message["id"] and event["type"] == DELTA
        ]
        assert "".join(deltas) == text_of(message)
    assert (await sdk.call("responses.retrieve", response))["output"] == over["output"]
    assert whole[-1]["response"]["output"] == over["output"]


@pytest.mark.promise("P6")
async def test_a_reader_elsewhere_reads_through_a_take_over(
    sdk: OpenAIClient, clients: OpenAIClients, victim: Worker, model: ModelServer
) -> None:
    model.play(broken_off("old "), says("new ", "answer"))
    seen = await client_at(clients, victim.client).begin(input="hi")
    assert await sdk.begin(seen[0]["response"]["id"]) == seen
    victim.server.kill()
    rest, broken = await sdk.rest()
    numbers = [each["sequence_number"] for each in (*seen, *rest)]
    assert (numbers, broken) == (sorted(set(numbers)), None)
    final = rest[-1]["response"]
    assert texts(final) == ["new answer"]
    void, kept = done_items(rest)
    assert (text_of(void), void["status"], [kept]) == ("old ", "incomplete", final["output"])


# ---------------------------------------------------------------- in the background
async def test_a_response_in_the_background_is_polled_and_read(
    sdk: OpenAIClient, clients: OpenAIClients, second: Client, model: ModelServer
) -> None:
    gate = anyio.Event()
    model.play(held("so ", gate, "it ", "is"))
    begun = await sdk.create(input="hi", background=True)
    assert (begun["status"], begun["background"], begun["output"]) == ("in_progress", True, [])
    gate.set()
    over = await until_over(client_at(clients, second), begun["id"])
    assert (over["status"], over["said"]) == ("completed", "so it is")
    assert check_legal(await sdk.events(begun["id"]))["output"] == over["output"]


async def test_a_response_that_goes_on_is_cancelled_on_another_worker(
    sdk: OpenAIClient, clients: OpenAIClients, second: Client, model: ModelServer
) -> None:
    model.play(broken_off("half "), says("on"))
    other = client_at(clients, second)
    seen = await sdk.begin(input="hi")
    response = seen[0]["response"]["id"]
    cancelled = await other.call("responses.cancel", response)
    assert (cancelled["status"], cancelled["said"]) == ("cancelled", "half ")
    rest, broken = await sdk.rest()
    assert (rest[-1]["type"], broken) == ("response.incomplete", None)
    assert check_legal([*seen, *rest])["status"] == "cancelled"
    assert await other.call("responses.cancel", response) == cancelled
    assert await sdk.call("responses.retrieve", response) == cancelled
    goes_on = await other.create(input="go on", previous_response_id=response)
    assert goes_on["said"] == "on"
