"""The editor's tools without a run: an editor that is late or gone, and how calls are described."""

import json
from collections.abc import Callable

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

EDIT = ("edit_text_file", {"path": "poem.txt", "old_text": "a", "new_text": "b"})
READ = ("read_text_file", {"path": "poem.txt"})
WRITE = ("write_text_file", {"path": "poem.txt", "content": "new"})
RUN = ("run_command", {"command": "make"})


class ImpatientPeer(Peer):
    """A peer whose time is over at once."""

    @override
    async def call(
        self,
        method: str,
        params: JsonValue = None,
        /,
        *,
        timeout: float | None = None,
        late: Callable[[JsonValue], object] | None = None,
    ) -> JsonValue:
        short = None if timeout is None else 0.001
        return await super().call(method, params, timeout=short, late=late)


def a_kit(send: Callable[[str], object] = len) -> tuple[ClientTools, Peer]:
    files = FileAbilities(read_text_file=True, write_text_file=True)
    peer = ImpatientPeer(send, depth=8, frame_bytes=1000)
    abilities = ClientAbilities(fs=files, terminal=True)
    return ClientTools(peer, "s", abilities=abilities, cwd=FOLDER, result_bytes=1000), peer


def owed(name: str, arguments: Json) -> Owed:
    return Owed(CallId("call_1"), name, json.dumps(arguments))


@pytest.mark.parametrize("call", [READ, RUN])
async def test_an_editor_that_does_not_answer_in_time_is_told(call: tuple[str, Json]) -> None:
    kit, _ = a_kit()
    with pytest.raises(Refusal, match="did not answer in time"):
        await kit.execute(owed(*call), lambda _: None)


@pytest.mark.parametrize("call", [WRITE, EDIT])
async def test_before_the_person_is_asked_the_editor_has_to_answer_in_time(
    call: tuple[str, Json],
) -> None:
    kit, _ = a_kit()
    with pytest.raises(Refusal, match="did not answer in time"):
        await kit.prepare(owed(*call))


@pytest.mark.parametrize(("result", "releases"), [({"terminalId": "t"}, 1), ({}, 0), (5, 0)])
async def test_a_terminal_that_comes_too_late_is_released(result: object, releases: int) -> None:
    sent: list[Json] = []
    kit, peer = a_kit(lambda frame: sent.append(json.loads(frame)))
    with pytest.raises(Refusal, match="did not answer in time"):
        await kit.execute(owed(*RUN), lambda _: None)
    created = sent[0]
    assert created["method"] == "terminal/create"
    peer.read(json.dumps({"jsonrpc": "2.0", "id": created["id"], "result": result}))
    released = [each["params"] for each in sent if each["method"] == "terminal/release"]
    assert released == [{"sessionId": "s", "terminalId": "t"}] * releases


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
            ("run_command", '{"command": "make", "args": ["a b", "$x"]}'),
            ("run_command", '{"command": "make all", "args": []}'),
            ("run_command", '{"command": "echo `a`\\n\\u202e\\u200bb"}'),
            ("read_text_file", '{"path": "../a"}'),
            ("read_text_file", '{"path": "b/../../project2/a"}'),
            ("read_text_file", '{"path": "/etc/a", "line": "x"}'),
            ("write_text_file", "{}"),
            ("other", "{}"),
        )
    ]
    assert described == [
        "ask_user",
        "",
        "`make`",
        "`make 'a b' '$x'`",
        "`'make all'`",
        "`` echo `a` b ``",
        "Read /srv/a",
        "Read /srv/project2/a",
        "Read /etc/a",
        f"Write {FOLDER}",
        None,
    ]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"command": "make"}, "```\nmake\n```"),
        ({"command": "a\n\tb"}, "```\na\n\tb\n```"),
        ({"command": "make", "args": ["a\rb", ""]}, "```\nmake 'a\\rb' ''\n```"),
        ({"command": "make", "cwd": "../x"}, "```\nmake\n```\n\nin `/srv/x`"),
        (
            {"command": "make", "cwd": "a\n`b\u200b"},
            f"```\nmake\n```\n\nin `` {FOLDER}/a\\n`b\\u200b ``",
        ),
        ({"command": "a ``` b"}, "````\na ``` b\n````"),
        (
            {"command": "a\u202eb\u200bc\u3164d\u00a0e\ufe0ff\U000e0041\x1b[8mg"},
            "```\na\\u202eb\\u200bc\\u3164d\\xa0e\\ufe0ff\\U000e0041\\x1b[8mg\n```",
        ),
        ({"command": "x" * 5000 + "; rm -rf ~"}, "```\n" + "x" * 5000 + "; rm -rf ~\n```"),
    ],
)
def test_the_whole_of_a_command_is_shown(arguments: Json, text: str) -> None:
    kit, _ = a_kit()
    described = kit.describe("run_command", json.dumps(arguments))
    assert described is not None
    assert described.content == ({"type": "content", "content": {"type": "text", "text": text}},)


def test_a_long_command_has_a_title_with_a_mark_where_it_is_cut() -> None:
    kit, _ = a_kit()
    described = kit.describe("run_command", json.dumps({"command": "x" * 180}))
    assert described is not None
    assert described.title == f"`{'x' * 180}`"
    described = kit.describe("run_command", json.dumps({"command": "x" * 181}))
    assert described is not None
    assert described.title == f"`{'x' * 179}…`"


def test_a_decision_on_a_command_is_on_its_arguments_and_folder() -> None:
    kit, _ = a_kit()
    same = ({"command": "make"}, {"command": "make", "seconds": 5}, {"command": "make", "cwd": "."})
    others: tuple[Json, ...] = (
        {"command": "make all"},
        {"command": "make", "args": []},
        {"command": "make", "args": ["all"]},
        {"command": "make", "args": ["al", "l"]},
        {"command": "make", "cwd": "src"},
    )
    [key] = {kit.change_of(owed("run_command", each)).key for each in same}
    keys = [kit.change_of(owed("run_command", each)).key for each in others]
    assert len({key, *keys}) == 6
    assert all(len(each) < 100 and "make" not in each for each in keys)
