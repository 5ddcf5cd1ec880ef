"""What a prompt of ACP may have beside text, and what an agent shows of its sub-agents."""

import base64
import json
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from tests.e2e.acp_stage import Stage, begin_session, call, opened_editor, told
from tests.support.acp_editor import AcpError, Editor
from tests.support.acp_schema import Json
from tests.support.model_server import ModelServer, says

pytestmark = [pytest.mark.anyio, pytest.mark.node]

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(40)).decode()
IMAGE: Json = {"type": "image", "data": PNG, "mimeType": "image/png"}
AUDIO: Json = {"type": "audio", "data": PNG, "mimeType": "audio/wav"}


@pytest.fixture(scope="module")
async def editor(
    model: ModelServer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[Editor]:
    folder = tmp_path_factory.mktemp("agent")
    async with opened_editor(model, folder, agent="tests.support.acp_agents:chief") as editor:
        yield editor


@pytest.fixture
async def stage(editor: Editor, model: ModelServer, tmp_path: Path) -> AsyncGenerator[Stage]:
    stage = await begin_session(editor, model, tmp_path)
    yield stage
    editor.check()


@pytest.mark.parametrize(("kind", "block"), [("image", IMAGE), ("audio", AUDIO)])
async def test_media_reach_the_model_where_they_are_advertised_and_are_refused_elsewhere(
    stage: Stage, kind: str, block: Json
) -> None:
    able = stage.editor.since()[0]["result"]["agentCapabilities"]["promptCapabilities"]
    stage.model.play(says("I see."))
    if able.get(kind):
        assert await stage.prompt("Look", block) == "end_turn"
        assert PNG in json.dumps(stage.model.requests[-1].shown)
    else:
        with pytest.raises(AcpError) as refused:
            await stage.prompt("Look", block)
        assert refused.value.code == -32602
        assert stage.model.requests == []


async def test_the_model_knows_the_folders_of_a_session(
    editor: Editor, model: ModelServer, tmp_path: Path
) -> None:
    more = [str(tmp_path / "library"), str(tmp_path / "documents")]
    stage = await begin_session(editor, model, tmp_path, additionalDirectories=more)
    model.play(says("I see."))
    assert await stage.prompt("Where are we?") == "end_turn"
    asked = json.dumps(model.requests[-1].json["messages"])
    for folder in (str(tmp_path), *more):
        assert folder in asked
    listed = await editor.request("session/list", cwd=str(tmp_path))
    [known] = [each for each in listed["sessions"] if each["sessionId"] == stage.session]
    assert known["additionalDirectories"] == more


async def test_a_sub_agent_is_shown_within_the_call_of_its_parent(stage: Stage) -> None:
    stage.model.play(
        call("clerk", task="Weigh the red parcel"),
        call("weigh", parcel="the red one"),
        says("It weighs 2 kg."),
        says("The clerk has weighed it."),
    )
    assert await stage.prompt("Let it be weighed") == "end_turn"
    [parent] = stage.calls("clerk") or stage.calls()
    assert parent["status"] == "completed"
    assert "It weighs 2 kg." in json.dumps(parent["content"])
    assert told(stage.model) == ["It weighs 2 kg."]
    assert stage.text == "The clerk has weighed it."
