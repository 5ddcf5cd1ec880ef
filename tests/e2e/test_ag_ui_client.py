"""The published client of AG-UI, npm `@ag-ui/client`, against the real server."""

import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.support.ag_ui_client import AgUiClient, Json, Seen, ag_ui_client, result, user
from tests.support.server import Server, running_server

pytestmark = [pytest.mark.anyio, pytest.mark.node]

ROOT = Path(__file__).resolve().parents[2]
AGENT = "tests.support.served_agents:delegating"
PAINT: Json = {
    "name": "paint",
    "description": "Paint it.",
    "parameters": {"type": "object", "properties": {"color": {"type": "string"}}},
}
TOOLS: Json = {"tools": [PAINT]}
APPROVED: Json = {"status": "resolved", "payload": {"approved": True}}


@pytest.fixture(scope="module")
async def served() -> AsyncGenerator[Server]:
    async with running_server(AGENT, cwd=str(ROOT)) as server:
        yield server


@pytest.fixture(scope="module")
async def node() -> AsyncGenerator[AgUiClient]:
    async with ag_ui_client() as client:
        yield client


@pytest.fixture
async def client(node: AgUiClient, served: Server, conversation: str) -> AgUiClient:
    """A new client of a new thread."""
    await node.open(conversation, f"{served.url}/ag-ui")
    return node


def helps(**order: Any) -> Any:
    """Return an order that gives an order to the sub-agent."""
    return {"calls": [["helper", json.dumps({"task": json.dumps(order)})]]}


async def test_a_text_is_said_and_the_next_one_too(client: AgUiClient) -> None:
    first = await client.run(user({"think": "hm", "say": "Hello."}))
    assert first.check_accepted().text == "Hello."
    assert (first.end["outcome"], first.types[0]) == ("success", "RUN_STARTED")
    assert [each["role"] for each in first.messages] == ["user", "reasoning", "assistant"]
    second = await client.run(user({"say": "Again."}))
    assert second.check_accepted().text == "Again."
    assert [each.get("content") for each in second.messages][-3] == "Hello."


async def test_a_tool_of_the_client_is_called_and_its_result_goes_on(client: AgUiClient) -> None:
    asked = await client.run(user({"calls": [["paint", '{"color":"blue"}']]}), parameters=TOOLS)
    [call_id] = asked.check_accepted().end["pendingToolCallIds"]
    assert asked.messages[-1]["toolCalls"][0]["function"] == {
        "name": "paint",
        "arguments": '{"color":"blue"}',
    }
    done = await client.run(result(call_id, "painted"), parameters=TOOLS)
    assert done.check_accepted().text == "Done."
    assert done.end["pendingToolCallIds"] == []


async def test_a_call_is_approved_within_a_sub_agent(client: AgUiClient) -> None:
    order = helps(say="I ask.", calls=[["delete_file", '{"path":"a"}']])
    asked = await client.run(user(order))
    assert asked.check_accepted().end["outcome"] == "interrupt"
    [interrupt] = asked.report["interrupts"]
    [started] = asked.of("SUBAGENT_STARTED")
    assert (started["name"], started["subagentRunId"]) == ("helper", interrupt["subagentRunId"])
    [suspended] = asked.of("SUBAGENT_FINISHED")
    assert suspended["outcome"] == {"type": "suspended", "interruptIds": [interrupt["id"]]}
    assert interrupt["message"] == "It cannot be undone."
    # the client itself refuses a run that does not answer
    refused = await client.run(user("?"))
    assert "pending interrupt" in refused.report["error"]["text"]


async def test_an_approval_makes_the_call(client: AgUiClient) -> None:
    order = helps(calls=[["delete_file", '{"path":"a"}']])
    asked = await client.run(user(order))
    [interrupt] = asked.report["interrupts"]
    resume = [{"interruptId": interrupt["id"], **APPROVED}]
    done = await client.run(parameters={"resume": resume})
    assert done.check_accepted().text == "Done."
    assert (done.report["interrupts"], done.end["outcome"]) == ([], "success")
    results = {each["toolCallId"]: each for each in done.of("TOOL_CALL_RESULT")}
    assert results[interrupt["id"]]["content"] == "a is deleted"
    assert results[interrupt["subagentRunId"]]["content"] == "Done."
    # the sub-agent's messages are its own
    tags = {each.get("subagentRunId") for each in done.messages if each["role"] == "assistant"}
    assert tags == {None, interrupt["subagentRunId"]}


async def test_a_cancelled_interrupt_denies_the_call(client: AgUiClient) -> None:
    order = helps(calls=[["delete_file", '{"path":"a"}']])
    [interrupt] = (await client.run(user(order))).report["interrupts"]
    resume = [{"interruptId": interrupt["id"], "status": "cancelled"}]
    done = await client.run(parameters={"resume": resume})
    [denied, _] = done.check_accepted().of("TOOL_CALL_RESULT")
    assert denied["metadata"] == {"isError": True, "synthetic": "denied"}


async def test_a_new_client_is_sent_the_thread(client: AgUiClient, served: Server) -> None:
    order = helps(say="I look.", calls=[["delete_file", '{"path":"a"}']])
    known = await client.run(user(order))
    await client.open(client.thread, f"{served.url}/ag-ui")
    loaded = (await client.run()).check_accepted()
    assert loaded.types == ["RUN_STARTED", "MESSAGES_SNAPSHOT", "RUN_FINISHED"]
    assert _said(loaded) == _said(known)
    assert loaded.report["interrupts"] == known.report["interrupts"]
    resume = [{"interruptId": loaded.report["interrupts"][0]["id"], **APPROVED}]
    done = await client.run(parameters={"resume": resume})
    assert done.check_accepted().text == "Done."


def _said(seen: Seen) -> list[tuple[str, str]]:
    return [(each["id"], each.get("content", "")) for each in seen.messages]


async def test_a_run_is_cancelled(client: AgUiClient, served: Server) -> None:
    order = helps(say="I begin.", calls=[["index", "{}"]])
    url = f"{served.url}/conversations/{client.thread}/cancel"
    seen = await client.run(user(order), cancelAt="CUSTOM", cancelUrl=url)
    assert seen.check_accepted().end["outcome"] == "cancelled"
    again = await client.run(user({"say": "I am here."}))
    assert again.check_accepted().text == "I am here."


async def test_a_client_that_stops_reading_leaves_the_run_going_on(
    client: AgUiClient, served: Server
) -> None:
    order = helps(calls=[["index", "{}"]])
    left = await client.run(user(order), abortAt="CUSTOM")
    assert (left.end["outcome"], left.end["code"]) == ("error", "abort")
    busy = await client.run(user({"say": "Hello."}))
    error = busy.report["error"]
    assert (error["status"], error["payload"]["code"]) == (409, "conversation_busy")
    assert error["text"].startswith("HTTP 409: {")
    interrupts = {"forwardedProps": {"passback": {"onBusy": "interrupt"}}}
    seen = await client.run(user({"say": "Now?"}), parameters=interrupts)
    assert seen.check_accepted().text == "Now?"


async def test_a_failed_run_is_an_error_with_its_code(client: AgUiClient) -> None:
    failed = await client.run(user({"say": "So ", "fail": "it is away"}))
    assert failed.check_accepted().types[-1] == "RUN_ERROR"
    assert (failed.end["outcome"], failed.end["code"]) == ("error", "model_unavailable")
    again = await client.run(user({"say": "Better."}))
    assert again.check_accepted().text == "Better."


async def test_a_refused_request_raises_with_status_code_and_message(client: AgUiClient) -> None:
    seen = await client.run(user(""))
    error = seen.report["error"]
    assert (error["status"], error["payload"]["code"]) == (422, "invalid_request")
    assert "messages.0: the content of a message is empty" in error["text"]


async def test_the_plan_is_in_the_clients_state(client: AgUiClient, served: Server) -> None:
    def order(*steps: str) -> Any:
        plan = json.dumps({"entries": [{"content": each} for each in steps]})
        return {"calls": [["update_plan", plan]]}

    state: Any = None
    for steps in (["look"], ["look", "say"]):
        seen = await client.run(user(order(*steps)))
        state = seen.check_accepted().report["state"]
        assert [each["content"] for each in state["plan"]] == steps
    await client.open(client.thread, f"{served.url}/ag-ui")
    assert (await client.run()).check_accepted().report["state"] == state


@pytest.mark.parametrize("cuts", [[1], [4], [2, 3], [6, 1, 2]])
async def test_a_cut_stream_goes_on_by_our_route_and_passes_the_verifier(
    client: AgUiClient, cuts: list[int]
) -> None:
    order = helps(think="hm", say="I look.", calls=[["delete_file", '{"path":"a"}']])
    seen = await client.run(user(order), cuts=cuts)
    assert seen.check_accepted().end["outcome"] == "interrupt"
    ids = [each["toolCallId"] for each in seen.of("TOOL_CALL_START")]
    assert len(ids) == len(set(ids)) == 2


async def test_a_thread_goes_on_with_another_wire(client: AgUiClient, served: Server) -> None:
    await client.run(user({"say": "Hello."}))
    async with httpx.AsyncClient(base_url=served.url) as http:
        body = {
            "conversationId": client.thread,
            "messages": [{"role": "user", "content": '{"say": "There."}'}],
        }
        answer = (await http.post("/send-message?wait=true", json=body)).json()
        assert answer["text"] == "There."
    await client.open(client.thread, f"{served.url}/ag-ui")
    await client.run()
    seen = await client.run(user({"say": "Back."}))
    assert [text for _, text in _said(seen.check_accepted())][1::2] == [
        "Hello.",
        "There.",
        "Back.",
    ]
