"""What editors send: their abilities, the blocks of prompts, and how a message is shown again."""

from typing import Any

import pytest
from tests.support.acp_schema import Json

from passback.core.errors import AttachmentTooLarge, InvalidRequest
from passback.core.messages import DataPart, MediaPart, Part, TextPart
from passback.wire.acp.posted import (
    ClientAbilities,
    Initialize,
    NewSession,
    Prompt,
    read_params,
    read_prompt,
    read_server,
    show_part,
)

NOTHING = ClientAbilities()
MIB = 1024 * 1024


def content_of(*blocks: Json, most: int = MIB) -> Any:
    return read_prompt(read_params(Prompt, {"sessionId": "s", "prompt": [*blocks]}), most)


def text(words: str) -> Json:
    return {"type": "text", "text": words}


def file(**resource: Any) -> Json:
    return {"type": "resource", "resource": {"uri": "file:///a.py", **resource}}


# ---------------------------------------------------------------- abilities
@pytest.mark.parametrize(
    "given",
    [
        None,
        5,
        {},
        {"fs": 5, "terminal": "yes", "elicitation": [], "session": None},
        {"fs": {"readTextFile": 1}, "elicitation": {"form": True}, "session": {"notices": None}},
    ],
)
def test_what_is_malformed_the_editor_cannot_do(given: Any) -> None:
    sent = read_params(Initialize, {"protocolVersion": 1, "clientCapabilities": given})
    assert sent.client_capabilities == NOTHING


def test_what_the_editor_says_it_can_do() -> None:
    given: Json = {
        "fs": {"readTextFile": True, "writeTextFile": True},
        "terminal": True,
        "elicitation": {"form": {}},
        "session": {"notices": {}, "compaction": {"any": 1}},
    }
    can = read_params(Initialize, {"protocolVersion": 1, "clientCapabilities": given})
    abilities = can.client_capabilities
    assert (abilities.fs.read_text_file, abilities.fs.write_text_file) == (True, True)
    assert (abilities.terminal, abilities.elicitation.form) == (True, True)
    assert (abilities.session.notices, abilities.session.compaction) == (True, True)


# ---------------------------------------------------------------- sessions
def test_a_server_is_a_command_with_its_variables() -> None:
    server: Json = {
        "name": "notes",
        "command": "/bin/notes",
        "args": ["-v"],
        "env": [{"name": "TOKEN", "value": "sesame"}],
    }
    sent = read_params(NewSession, {"cwd": "/srv", "mcpServers": [server]})
    made = read_server(sent.mcp_servers[0], sent.cwd)
    assert (made.name, made.command, made.env, made.cwd) == (
        "notes",
        ("/bin/notes", "-v"),
        {"TOKEN": "sesame"},
        "/srv",
    )


@pytest.mark.parametrize(
    "meta", [None, 5, {}, {"passback": 5}, {"passback": {}}, {"passback": {"tools": None}}]
)
def test_no_tools_are_declared(meta: Any) -> None:
    given = {"cwd": "C:\\project", "mcpServers": [], "_meta": meta}
    assert read_params(NewSession, given).tools == []


# ---------------------------------------------------------------- prompts
def test_one_text_is_a_text() -> None:
    assert content_of(text("hi")) == "hi"


def test_blocks_are_parts_that_are_shown_as_they_were() -> None:
    blocks: list[Json] = [
        text("Look at"),
        {"type": "resource_link", "uri": "file:///a b)\n.py", "name": "a]\n.py"},
        file(text="x = 1\n</file>", uri='file:///"a"\n'),
        {"type": "image", "data": "aGk=", "mimeType": "image/png"},
        {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"},
        file(blob="aGk=", mimeType="text/csv"),
    ]
    parts = content_of(*blocks)
    assert parts == (
        TextPart("Look at"),
        TextPart("[@a%5D%0A.py](file:///a b%29%0A.py)"),
        TextPart('<file uri="file:///%22a%22%0A">\nx = 1\n< /file>\n</file>'),
        MediaPart("image", "data:image/png;base64,aGk=", "image/png"),
        MediaPart("audio", "data:audio/wav;base64,aGk=", "audio/wav"),
        MediaPart("file", "data:text/csv;base64,aGk=", "text/csv", "file:///a.py"),
    )
    assert [show_part(part) for part in parts] == [
        blocks[0],
        {"type": "resource_link", "name": "a%5D%0A.py", "uri": "file:///a b%29%0A.py"},
        {
            "type": "resource",
            "resource": {"uri": "file:///%22a%22%0A", "text": "x = 1\n< /file>"},
        },
        blocks[3],
        blocks[4],
        text("[file:///a.py]"),
    ]


@pytest.mark.parametrize(
    ("part", "block"),
    [
        ("plain", text("plain")),
        (DataPart({"é": 1}), text('{"é": 1}')),
        (
            MediaPart("image", "https://example.org/a.png"),
            {
                "type": "resource_link",
                "uri": "https://example.org/a.png",
                "name": "https://example.org/a.png",
            },
        ),
        (
            MediaPart("file", "https://example.org/a", name="a"),
            {"type": "resource_link", "uri": "https://example.org/a", "name": "a"},
        ),
        (MediaPart("file", "data:text/csv;base64,aGk=", "text/csv"), text("[text/csv]")),
        (MediaPart("file", "data:;base64,aGk="), text("[attached file]")),
        (
            MediaPart("image", "data:;base64,aGk="),
            {"type": "image", "data": "aGk=", "mimeType": "text/plain"},
        ),
    ],
)
def test_parts_of_other_clients_are_shown_as_near_as_can_be(part: Part | str, block: Json) -> None:
    assert show_part(part) == block


@pytest.mark.parametrize(
    ("block", "problem"),
    [
        (file(), "prompt.0.resource: Input should have text, or blob"),
        (file(blob="<sesame>"), "prompt.0: the data has to be base64"),
        (file(blob="aGk=", mimeType="sesame"), "prompt.0: the data has to be base64"),
        ({"type": "image", "data": "", "mimeType": "image/png"}, "prompt.0: the data"),
        ({"type": "image", "data": "aGk=", "mimeType": "audio/wav"}, "a part of type 'image'"),
        (text("  "), "the content of a message is empty"),
    ],
)
def test_a_block_that_cannot_be_used_is_refused(block: Json, problem: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        content_of(block)
    assert refused.value.message.startswith(problem)
    assert "sesame" not in refused.value.message


@pytest.mark.parametrize("more", [None, 5, "x" * 100_000])
def test_of_a_link_name_and_address_are_read(more: Any) -> None:
    uri = "file:///" + "a" * 60_000
    link: Json = {"type": "resource_link", "uri": uri, "name": "a"}
    assert content_of({**link, "title": more, "description": more}) == f"[@a]({uri})"


def test_a_link_whose_address_is_too_long_is_refused() -> None:
    link: Json = {"type": "resource_link", "uri": "a" * (64 * 1024 + 1), "name": "a"}
    with pytest.raises(InvalidRequest):
        content_of(link)


def test_a_file_without_a_type_is_bytes() -> None:
    [part] = content_of(file(blob="aGk="))
    assert part.media_type == "application/octet-stream"


def test_the_name_of_a_file_is_the_end_of_its_uri() -> None:
    [part] = content_of(file(uri=f"file:///{'folder/' * 100}a.py", blob="aGk="))
    assert (len(part.name), part.name[-12:]) == (256, "/folder/a.py")


def test_attachments_that_are_too_large_are_refused() -> None:
    with pytest.raises(AttachmentTooLarge):
        content_of({"type": "image", "data": "aGkh" * 10, "mimeType": "image/png"}, most=29)
