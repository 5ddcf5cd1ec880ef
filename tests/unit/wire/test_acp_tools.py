"""The editor's tools without a run: an editor that is late or gone, and how calls are described."""

import json

import pytest
from pydantic import JsonValue
from tests.support.acp_memory import FOLDER
from tests.support.acp_schema import Json
from typing_extensions import override

from passback.core.messages import CallId, Owed
from passback.streams.jsonrpc import ConnectionLost, Peer
from passback.wire.acp.client_tools import ClientTools, Refusal
from passback.wire.acp.posted import ClientAbilities, FileAbilities

pytestmark = pytest.mark.anyio

READ = ("read_text_file", {"path": "poem.txt"})
WRITE = ("write_text_file", {"path": "poem.txt", "content": "new"})
RUN = ("run_command", {"command": "make"})


class ImpatientPeer(Peer):
    """A peer whose time is over at once."""

    @override
    async def call(
        self, method: str, params: JsonValue = None, /, *, timeout: float | None = None
    ) -> JsonValue:
        return await super().call(method, params, timeout=None if timeout is None else 0.001)


def lost(_: str) -> None:
    """Send a frame to nobody."""


def a_kit() -> tuple[ClientTools, Peer]:
    files = FileAbilities(read_text_file=True, write_text_file=True)
    peer = ImpatientPeer(lost, depth=8, frame_bytes=1000)
    abilities = ClientAbilities(fs=files, terminal=True)
    return ClientTools(peer, "s", abilities=abilities, cwd=FOLDER, result_bytes=1000), peer


def owed(name: str, arguments: Json) -> Owed:
    return Owed(CallId("call_1"), name, json.dumps(arguments))


@pytest.mark.parametrize("call", [READ, RUN])
async def test_an_editor_that_does_not_answer_in_time_is_told(call: tuple[str, Json]) -> None:
    kit, _ = a_kit()
    with pytest.raises(Refusal, match="did not answer in time"):
        await kit.execute(owed(*call), lambda _: None)


async def test_before_the_person_is_asked_the_editor_has_to_answer_in_time() -> None:
    kit, _ = a_kit()
    with pytest.raises(Refusal, match="did not answer in time"):
        await kit.prepare(owed(*WRITE))


@pytest.mark.parametrize("call", [READ, RUN])
async def test_without_an_editor_nothing_is_told_to_the_model(call: tuple[str, Json]) -> None:
    kit, peer = a_kit()
    peer.close()
    with pytest.raises(ConnectionLost):
        await kit.execute(owed(*call), lambda _: None)


def test_a_call_is_described_whatever_its_arguments_are() -> None:
    kit, _ = a_kit()
    described = [
        getattr(kit.describe(name, text), "title", None)
        for name, text in (
            ("ask_user", '{"questions": 5}'),
            ("run_command", "[]"),
            ("run_command", '{"command": "make", "args": 5}'),
            ("read_text_file", '{"path": "/etc/a", "line": "x"}'),
            ("write_text_file", "{}"),
            ("other", "{}"),
        )
    ]
    assert described == ["ask_user", "``", "`make`", "Read /etc/a", f"Write {FOLDER}", None]
