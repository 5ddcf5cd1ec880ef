"""The published clients in Node.js against real servers: npm `openai`, and the AI SDK's provider."""

import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, TypeAlias

import anyio
import pytest
from anyio.streams.buffered import BufferedByteReceiveStream
from tests.e2e.test_openai_sdk import THINKS, ZONE, shown
from tests.support.ai_sdk import FOLDER
from tests.support.model_server import ModelServer, calls, fails, says
from tests.support.openai_sdk import BASE, Json, check_legal, of_type, output, texts
from tests.support.programs import missing, program
from tests.support.server import START_SECONDS, Server, running_server

pytestmark = [pytest.mark.anyio, pytest.mark.node]

Ask: TypeAlias = Callable[..., Awaitable[Json]]


@pytest.fixture(scope="module")
async def served(model: ModelServer) -> AsyncGenerator[Server]:
    settings = ("--model", "openai:mock", "--model-base-url", model.base_url)
    async with running_server("tests.support.served_agents:asking", *settings) as server:
        yield server


@pytest.fixture(scope="module")
async def ask(served: Server) -> AsyncGenerator[Ask]:
    """Let the clients do something."""
    node = program("node", variable="TEST_NODE")
    if not (FOLDER / "node_modules" / "openai").exists():
        missing("openai in tests/js/node_modules")
    async with await anyio.open_process(
        [node, str(FOLDER / "responses.mjs")], stderr=None
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        sends, receives = process.stdin, BufferedByteReceiveStream(process.stdout)

        async def command(op: str, **fields: Any) -> Json:
            with anyio.fail_after(START_SECONDS):
                line = json.dumps({"op": op, "url": f"{served.url}{BASE}", **fields})
                await sends.send(f"{line}\n".encode())
                answer: Json = json.loads(await receives.receive_until(b"\n", 16 * 1024 * 1024))
            return answer

        try:
            yield command
        finally:
            process.kill()


# ---------------------------------------------------------------- npm openai
async def test_the_helper_of_node_gathers_a_stream_and_its_replay(
    ask: Ask, model: ModelServer
) -> None:
    model.play(THINKS)
    seen = await ask("helper", params={"model": "any", "input": "hi"})
    final = check_legal(seen["events"])
    assert (texts(seen["final"]), seen["final"]["id"]) == (texts(final), final["id"])
    rest = await ask("events", id=final["id"], params={"starting_after": 3})
    assert rest["events"] == seen["events"][4:]
    again = await ask("helper", params={"response_id": final["id"]})
    assert again["events"] == seen["events"]


async def test_a_function_and_a_server_tool_are_called_from_node(
    ask: Ask, model: ModelServer
) -> None:
    model.play(
        calls(("a", "price", '{"drink":"tea"}'), ("b", "get-time-zone", "{}")), says("Done.")
    )
    tools = {"model": "any", "tools": [ZONE]}
    asked = (await ask("helper", params={**tools, "input": "both"}))["final"]
    [call] = of_type(asked, "function_call")
    [made] = of_type(asked, "mcp_call")
    assert (made["output"], asked["status"]) == ("3 euros", "completed")
    outputs = {"previous_response_id": asked["id"], "input": [output(call["call_id"], "UTC")]}
    done = await ask("create", params={**tools, **outputs})
    assert done["text"] == "Done."


async def test_failures_and_refusals_in_node(ask: Ask, model: ModelServer) -> None:
    model.play(fails(400, {"error": {"message": "secret"}}))
    failed = await ask("helper", params={"model": "any", "input": "hi"})
    assert (failed["final"]["status"], failed["final"]["error"]["code"]) == (
        *("failed", "model_rejected"),
    )
    refused = await ask("create", params={"input": "x", "previous_response_id": "resp_none"})
    assert (refused["error"]["class"], refused["error"]["code"], refused["error"]["param"]) == (
        *("BadRequestError", "previous_response_not_found", "previous_response_id"),
    )


# ---------------------------------------------------------------- the AI SDK's provider
async def test_the_ai_sdk_calls_functions_and_goes_on_in_one_conversation(
    ask: Ask, model: ModelServer
) -> None:
    model.play(calls(("a", "get-time-zone", "{}")), THINKS, says("Bye."))
    messages: list[Json] = [{"role": "user", "content": "which zone?"}]
    first = await ask("agent", messages=messages, results={"get-time-zone": "UTC"})
    assert [each["finishReason"] for each in first["steps"]] == ["tool-calls", "stop"]
    assert (first["steps"][-1]["reasoning"], first["text"]) == ("hm", "so be it \u2028\u0085 😀")
    assert first["steps"][-1]["tokens"] == 7
    assert shown(model)[-1] == ("tool", "UTC")
    messages += [*first["messages"], {"role": "user", "content": "bye"}]
    second = await ask("agent", messages=messages, results={"get-time-zone": "UTC"})
    assert second["text"] == "Bye."
    assert [role for role, _ in shown(model)] == ["user", "assistant", "tool", "assistant", "user"]


async def test_a_server_tool_and_a_failure_are_told_by_the_ai_sdk(
    ask: Ask, model: ModelServer
) -> None:
    model.play(calls(("a", "price", '{"drink":"tea"}')), says("3 euros."))
    told = await ask("agent", messages=[{"role": "user", "content": "tea?"}])
    assert told["text"] == "3 euros."
    model.play(fails(400, {"error": {"message": "secret"}}))
    failed = await ask("agent", messages=[{"role": "user", "content": "hi"}])
    assert "secret" not in str(failed)
    assert failed["error"]["message"]
