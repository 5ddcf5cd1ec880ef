"""The published Python SDK of ACP drives every method that it has over a real pipe."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import acp
import anyio
import pytest
from acp import schema
from tests.e2e.acp_stage import AGENT, call, says_and_calls, settings_of, told
from tests.support.acp_python import Sdk, running_sdk
from tests.support.model_server import Act, ModelServer, Reply, event, says
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.node]

CAPABILITIES = schema.ClientCapabilities(
    fs=schema.FileSystemCapabilities(read_text_file=True, write_text_file=True),
    terminal=True,
    elicitation=schema.ElicitationCapabilities(form=schema.ElicitationFormCapabilities()),
)
STALLS = Reply([event(content="So "), Act.STALL])
PAINT = {"name": "paint", "description": "Paint it", "parameters": {"type": "object"}}
UNKNOWN = -32002


@pytest.fixture
async def sdk(model: ModelServer, tmp_path: Path) -> AsyncGenerator[Sdk]:
    settings = settings_of(model, tmp_path, PASSBACK_MODELS="openai:mock,openai:other")
    async with running_sdk(AGENT, cwd=tmp_path, environment=settings) as sdk:
        with anyio.fail_after(60):
            yield sdk


async def begin(sdk: Sdk, folder: Path, **meta: Any) -> str:
    info = schema.Implementation(name="sdk", version="1")
    opened = await sdk.agent.initialize(
        acp.PROTOCOL_VERSION, client_capabilities=CAPABILITIES, client_info=info
    )
    assert opened.protocol_version == 1
    for method in opened.auth_methods or []:
        await sdk.agent.authenticate(method_id=method.id)
    made = await sdk.agent.new_session(cwd=str(folder), mcp_servers=[], **meta)
    return made.session_id


async def prompt(sdk: Sdk, session: str, text: str) -> str:
    answer = await sdk.agent.prompt(session_id=session, prompt=[acp.text_block(text)])
    return answer.stop_reason


def said(sdk: Sdk) -> str:
    return "".join(
        each.content.text
        for _, each in sdk.client.updates
        if isinstance(each, schema.AgentMessageChunk)
        and isinstance(each.content, schema.TextContentBlock)
    )


def statuses(sdk: Sdk) -> list[str | None]:
    return [
        each.status
        for _, each in sdk.client.updates
        if isinstance(each, (schema.ToolCallStart, schema.ToolCallProgress)) and each.status
    ]


async def test_a_turn_with_text_and_tools_of_both_sides(
    sdk: Sdk, model: ModelServer, tmp_path: Path
) -> None:
    session = await begin(sdk, tmp_path)
    path = str(tmp_path / "a.txt")
    sdk.client.workspace.files[path] = "red\n"
    questions = [{"question": "How are you?"}]
    model.play(
        says_and_calls("I look. ", ("read_text_file", {"path": path})),
        call("write_text_file", path=path, content="blue\n"),
        call("run_command", command="make"),
        call("burn", parcel="it"),
        says("All is done."),
    )
    assert await prompt(sdk, session, "Do it all") == "end_turn"
    assert said(sdk) == "I look. All is done."
    assert set(statuses(sdk)) == {"pending", "in_progress", "completed"}
    assert sdk.client.workspace.files == {path: "blue\n"}
    assert sdk.client.workspace.terminals == {}
    assert told(model)[-1] == "it is burnt"
    model.play(call("ask_user", questions=questions), says("Good."))
    sdk.client.workspace.form = AnyForm("Well")
    assert await prompt(sdk, session, "Ask me") == "end_turn"
    assert "Well" in told(model)[-1]


class AnyForm(dict[str, Any]):
    """A form whose fields, whatever their names, have one answer."""

    def __init__(self, answer: str) -> None:
        super().__init__()
        self._answer = answer

    def __missing__(self, _: str) -> str:
        return self._answer


async def test_a_rejected_call_fails(sdk: Sdk, model: ModelServer, tmp_path: Path) -> None:
    session = await begin(sdk, tmp_path)
    sdk.client.choice = "reject_once"
    model.play(call("burn", parcel="it"), says("Then not."))
    assert await prompt(sdk, session, "Burn it") == "end_turn"
    assert statuses(sdk) == ["pending", "failed"]


async def test_a_tool_of_the_client(sdk: Sdk, model: ModelServer, tmp_path: Path) -> None:
    session = await begin(sdk, tmp_path, passback={"tools": [PAINT]})

    async def paint(arguments: Any) -> dict[str, Any]:
        return {"content": "painted"}

    sdk.client.workspace.tools["paint"] = paint
    model.play(call("paint"), says("It is painted."))
    assert await prompt(sdk, session, "Paint it") == "end_turn"
    assert told(model) == ["painted"]


async def test_a_cancelled_prompt(sdk: Sdk, model: ModelServer, tmp_path: Path) -> None:
    session = await begin(sdk, tmp_path)
    model.play(STALLS)
    reasons: list[str] = []

    async def ask() -> None:
        reasons.append(await prompt(sdk, session, "Talk"))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        await wait_until(lambda: said(sdk) == "So ")
        await sdk.agent.cancel(session_id=session)
    assert reasons == ["cancelled"]


async def test_modes_models_and_sessions(sdk: Sdk, model: ModelServer, tmp_path: Path) -> None:
    agent, session = sdk.agent, await begin(sdk, tmp_path)
    made = await agent.new_session(cwd=str(tmp_path), mcp_servers=[])
    [choice] = [each for each in made.config_options or [] if each.id == "model"]
    assert isinstance(choice, schema.SessionConfigOptionSelect)
    values = [getattr(each, "value", "") for each in choice.options]
    assert len(values) == 2
    [other] = [each for each in values if each != choice.current_value]
    await agent.set_session_mode(session_id=session, mode_id="bypass")
    changed = await agent.set_config_option("model", session, other)
    assert {each.id for each in changed.config_options} >= {"model", "mode"}
    model.play(says("Hello."))
    assert await prompt(sdk, session, "Hello, parcel") == "end_turn"
    assert model.requests[-1].json["model"] == "other"
    listed = await agent.list_sessions(cwd=str(tmp_path))
    assert session in [each.session_id for each in listed.sessions]
    await agent.resume_session(session_id=session, cwd=str(tmp_path), mcp_servers=[])
    sdk.client.updates.clear()
    loaded = await agent.load_session(session_id=session, cwd=str(tmp_path), mcp_servers=[])
    assert loaded.modes is not None
    assert loaded.modes.current_mode_id == "bypass"
    await wait_until(lambda: said(sdk) == "Hello.")
    await agent.close_session(session_id=session)
    with pytest.raises(acp.RequestError) as failed:
        await agent.load_session(session_id="no-such-session", cwd=str(tmp_path), mcp_servers=[])
    assert failed.value.code == UNKNOWN


async def test_an_unknown_extension(sdk: Sdk, tmp_path: Path) -> None:
    await begin(sdk, tmp_path)
    with pytest.raises(acp.RequestError) as failed:
        await sdk.agent.ext_method("burn", {})
    assert failed.value.code == -32601
