"""The published npm SDK of ACP drives every method over a real pipe."""

import json
from collections.abc import AsyncGenerator
from typing import Any

import anyio
import pytest
from tests.e2e.acp_stage import AGENT, call, says_and_calls, settings_of
from tests.support.acp_editor import acp_command, acp_environment
from tests.support.acp_order import Frame, order_faults
from tests.support.acp_schema import FOLDER, faults_of
from tests.support.model_server import Act, Reply, event, model_server, says
from tests.support.programs import missing, program

pytestmark = [pytest.mark.anyio, pytest.mark.node]

STALLS = Reply([event(content="So "), Act.STALL])
QUESTIONS = [{"question": "How are you?"}]
UNKNOWN = -32002


def script(path: str) -> list[Reply]:
    """Return what the model says to the steps of `acp.mjs`, in order."""
    return [
        says("Hello ", "editor."),
        says_and_calls(
            "I look. ",
            ("read_text_file", {"path": path}),
            ("paint", {}),
            ("ask_user", {"questions": QUESTIONS}),
        ),
        call("write_text_file", path=path, content="blue\n"),
        call("run_command", command="make"),
        call("burn", parcel="it"),
        says("All is done."),
        call("burn", parcel="more"),
        says("Then not."),
        STALLS,
        STALLS,
        call("paint"),
        says("Not said."),
    ]


@pytest.fixture(scope="module")
async def report(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[dict[str, Any]]:
    """What the client saw."""
    node = program("node", variable="TEST_NODE")
    if not (FOLDER / "node_modules" / "@agentclientprotocol").exists():
        missing("@agentclientprotocol/sdk in tests/js/node_modules")
    folder = tmp_path_factory.mktemp("editor")
    async with model_server(*script(str(folder / "a.txt"))) as model:
        order = {"command": acp_command(AGENT), "cwd": str(folder), "folder": str(folder)}
        with anyio.fail_after(50):
            done = await anyio.run_process(
                [node, str(FOLDER / "acp.mjs"), json.dumps(order)],
                env=acp_environment(settings_of(model, folder)),
                stderr=None,
            )
        seen: dict[str, Any] = json.loads(done.stdout.decode().splitlines()[-1])
        yield seen


async def test_its_turns_end_as_they_should(report: dict[str, Any]) -> None:
    steps = ("text", "tools", "rejected", "cancelled", "painting")
    assert {name: (report[name]["stopReason"], report[name]["text"]) for name in steps} == {
        "text": ("end_turn", "Hello editor."),
        "tools": ("end_turn", "I look. All is done."),
        "rejected": ("end_turn", "Then not."),
        "cancelled": ("cancelled", "So "),
        "painting": ("cancelled", ""),
    }


async def test_a_request_that_it_cancels_is_answered(report: dict[str, Any]) -> None:
    aborted = report["aborted"]
    assert aborted.get("stopReason") == "cancelled" or aborted["code"] == -32800


async def test_the_agent_has_used_its_files_and_terminals(report: dict[str, Any]) -> None:
    assert list(report["files"].values()) == ["blue\n"]
    assert report["terminals"] == []


async def test_its_sessions_are_listed_loaded_and_deleted(report: dict[str, Any]) -> None:
    assert report["opened"]["protocolVersion"] == 1
    assert report["mode"] == "accept_edits"
    assert report["listed"] == [True]
    assert report["loaded"]["mode"] == "accept_edits"
    assert report["loaded"]["text"].startswith("Hello editor.I look. All is done.Then not.So ")
    assert (report["closed"], report["deleted"]) == ({}, {})
    assert (report["gone"]["code"], report["unknown"]["code"]) == (UNKNOWN, -32601)
    assert report["exitCode"] == 0


async def test_all_frames_are_valid_and_in_order(report: dict[str, Any]) -> None:
    frames = [Frame(each["isSent"], each["message"]) for each in report["frames"]]
    asked = {
        each.message["id"]: each.message["method"]
        for each in frames
        if each.is_sent and each.message.keys() >= {"id", "method"}
    }
    received = [each.message for each in frames if not each.is_sent]
    methods = [None if "method" in each else asked.get(each["id"]) for each in received]
    faults = [faults_of(each, method) for each, method in zip(received, methods, strict=True)]
    assert [each for each in faults if each] == []
    assert order_faults(frames) == []
    assert len(received) > 50
