"""Bad input to `passback acp` gets an error with the right code, shows no input, and harms nothing."""

import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.acp_stage import Stage, begin_session, opened_editor
from tests.support.acp_editor import Editor, text_block
from tests.support.acp_schema import Json
from tests.support.model_server import ModelServer, calls, says

pytestmark = [pytest.mark.anyio, pytest.mark.node]

PARSE, INVALID, NO_METHOD, PARAMS, NOT_FOUND = -32700, -32600, -32601, -32602, -32002
SECRET = "mellon-the-password"
IGNORED: tuple[int, ...] = ()
KEY = "bad"
HERE = "/"
LARGE = 20 * 1024 * 1024


@pytest.fixture(scope="module")
async def module_stage(
    model: ModelServer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[Stage]:
    folder = tmp_path_factory.mktemp("agent")
    async with opened_editor(model, folder) as editor:
        yield await begin_session(editor, model, folder)


@pytest.fixture
def stage(module_stage: Stage) -> Stage:
    return module_stage


def row(name: str, frame: Any, *codes: int) -> Any:
    return pytest.param(frame, codes, id=name)


def asks(name: str, method: str, params: Any, *codes: int) -> Any:
    return row(name, {"jsonrpc": "2.0", "id": KEY, "method": method, "params": params}, *codes)


def notes(name: str, method: str, **more: Any) -> Any:
    return row(name, {"jsonrpc": "2.0", "method": method, **more}, *IGNORED)


def new(name: str, *codes: int, **params: Any) -> Any:
    asked = {"cwd": HERE, "mcpServers": [], **params}
    return asks(f"new: {name}", "session/new", {k: v for k, v in asked.items() if v != ...}, *codes)


def prompt(name: str, blocks: Any, *codes: int) -> Any:
    asked: Json = {"sessionId": "SESSION", "prompt": blocks}
    if blocks is ...:
        del asked["prompt"]
    return asks(f"prompt: {name}", "session/prompt", asked, *codes)


SERVER: Json = {"name": "tools", "args": [], "env": [{"name": "TOKEN", "value": SECRET}]}

ROWS = [
    # lines
    row("half an object", b'{"jsonrpc": "2.0", ', PARSE),
    row("no JSON", f"{SECRET}, not JSON".encode(), PARSE),
    row("no UTF-8", b'{"jsonrpc": "2.0", "id": 1, "method": "\xff\xfe"}', PARSE),
    row("a zero byte", b"\x00", PARSE),
    row("an endless nesting", b"[" * 100_000, PARSE, INVALID),
    row("an empty batch", b"[]", INVALID),
    row("a batch", b'[{"jsonrpc": "2.0", "id": 1, "method": "session/list"}]', INVALID),
    row("a number", b"3", INVALID),
    row("a text", f'"{SECRET}"'.encode(), INVALID),
    row("null", b"null", INVALID),
    row("an empty line", b"", *IGNORED),
    row("blanks", b"  \t ", *IGNORED),
    # envelopes
    row("another version", {"jsonrpc": "1.0", "id": KEY, "method": "session/list"}, INVALID),
    row("no version", {"id": KEY, "method": "session/list"}, INVALID),
    row("an id only", {"jsonrpc": "2.0", "id": KEY}, INVALID),
    row("a method that is no text", {"jsonrpc": "2.0", "id": KEY, "method": 5}, INVALID),
    row("an id that is an object", {"jsonrpc": "2.0", "id": {}, "method": "session/list"}, INVALID),
    row("an id that is true", {"jsonrpc": "2.0", "id": True, "method": "session/list"}, INVALID),
    asks("parameters in a list", "session/list", [SECRET], PARAMS, INVALID),
    asks("parameters in a text", "session/list", SECRET, PARAMS, INVALID),
    # methods
    asks("an unknown method", "session/burn", {"a": SECRET}, NO_METHOD),
    asks("an unknown extension", "_burn", {"a": SECRET}, NO_METHOD),
    asks("a method of the client", "session/update", {"a": SECRET}, NO_METHOD),
    asks(
        "a notification as a request",
        "session/cancel",
        {"sessionId": "SESSION"},
        NO_METHOD,
        INVALID,
    ),
    notes("an unknown notification", "burn/it", params={"a": SECRET}),
    notes("an unknown notification of an extension", "_burn"),
    notes("an unknown notification of the protocol", "$/burn", params={}),
    notes("a cancel without a session", "session/cancel", params={}),
    notes("a cancel of an unknown session", "session/cancel", params={"sessionId": "none"}),
    notes("a cancel with no parameters", "session/cancel"),
    notes("a cancelled request that is none", "$/cancel_request", params={"requestId": 77_777}),
    notes("a cancelled request without an id", "$/cancel_request", params={}),
    notes("a prompt without an id", "session/prompt", params={"sessionId": "SESSION"}),
    row("an answer to nothing", {"jsonrpc": "2.0", "id": 77_777, "result": {}}, *IGNORED),
    row(
        "an error to nothing",
        {"jsonrpc": "2.0", "id": 77_777, "error": {"code": 1, "message": SECRET}},
        *IGNORED,
    ),
    # parameters
    asks("no protocol version", "initialize", {}, PARAMS),
    asks("a protocol version of letters", "initialize", {"protocolVersion": SECRET}, PARAMS),
    asks("an unknown way to authenticate", "authenticate", {"methodId": SECRET}, PARAMS),
    asks("no way to authenticate", "authenticate", {}, PARAMS),
    new("no folder", PARAMS, cwd=...),
    new("a relative folder", PARAMS, cwd=f"{SECRET}/here"),
    new("a folder that is a number", PARAMS, cwd=5),
    new("no list of servers", PARAMS, mcpServers=SECRET),
    new("a server without a command", PARAMS, mcpServers=[SERVER]),
    new("a server that is a text", PARAMS, mcpServers=[SECRET]),
    new(
        "a server of events",
        PARAMS,
        mcpServers=[{"type": "sse", "name": "a", "url": f"http://{SECRET}", "headers": []}],
    ),
    new("a relative folder more", PARAMS, additionalDirectories=[SECRET]),
    new("tools that are none", PARAMS, _meta={"passback": {"tools": [{"name": 5, "x": SECRET}]}}),
    asks("load without a session", "session/load", {"cwd": HERE, "mcpServers": []}, PARAMS),
    asks(
        "load of a number",
        "session/load",
        {"cwd": HERE, "mcpServers": [], "sessionId": 5},
        PARAMS,
    ),
    asks(
        "load of a path",
        "session/load",
        {"cwd": HERE, "mcpServers": [], "sessionId": f"../../{SECRET}"},
        NOT_FOUND,
        PARAMS,
    ),
    asks("prompt of no session", "session/prompt", {"prompt": [text_block(SECRET)]}, PARAMS),
    asks(
        "prompt of an unknown session",
        "session/prompt",
        {"sessionId": SECRET, "prompt": [text_block(SECRET)]},
        NOT_FOUND,
    ),
    asks(
        "prompt of a long name",
        "session/prompt",
        {"sessionId": SECRET * 10_000, "prompt": [text_block("a")]},
        NOT_FOUND,
        PARAMS,
    ),
    prompt("nothing", ..., PARAMS),
    prompt("a text", SECRET, PARAMS),
    prompt("no blocks", [], PARAMS),
    prompt("a block that is a text", [SECRET], PARAMS),
    prompt("an unknown block", [{"type": SECRET}], PARAMS),
    prompt("a text block without text", [{"type": "text"}], PARAMS),
    prompt("a text block of a number", [{"type": "text", "text": 5}], PARAMS),
    prompt(
        "an image of no base64", [{"type": "image", "data": "§", "mimeType": "image/png"}], PARAMS
    ),
    prompt("an image without a type", [{"type": "image", "data": ""}], PARAMS),
    prompt("a resource without uri", [{"type": "resource", "resource": {"text": SECRET}}], PARAMS),
    prompt("a link without uri", [{"type": "resource_link", "name": SECRET}], PARAMS),
    asks("mode: unknown", "session/set_mode", {"sessionId": "SESSION", "modeId": SECRET}, PARAMS),
    asks("mode: nowhere", "session/set_mode", {"sessionId": "none", "modeId": "ask"}, NOT_FOUND),
    asks(
        "option: unknown",
        "session/set_config_option",
        {"sessionId": "SESSION", "configId": SECRET, "value": "ask"},
        PARAMS,
    ),
    asks(
        "option: unknown value",
        "session/set_config_option",
        {"sessionId": "SESSION", "configId": "mode", "value": SECRET},
        PARAMS,
    ),
    asks(
        "option: a number",
        "session/set_config_option",
        {"sessionId": "SESSION", "configId": "mode", "value": 5},
        PARAMS,
    ),
    asks("list: a cursor that is none", "session/list", {"cursor": SECRET}, PARAMS),
    asks("list: a relative folder", "session/list", {"cwd": SECRET}, PARAMS),
    asks("close of a number", "session/close", {"sessionId": 5}, PARAMS),
    asks("delete of nothing", "session/delete", {}, PARAMS),
]


@pytest.mark.parametrize(("frame", "codes"), ROWS)
async def test_bad_input_gets_its_code_and_harms_nothing(
    stage: Stage, frame: Any, codes: tuple[int, ...]
) -> None:
    editor = stage.editor
    start = len(editor.frames)
    await _send(stage, frame)
    if codes:
        await editor.wait_for(lambda: bool(_answers(editor, start)))
    stage.model.play(says("I am well."))
    assert await stage.prompt("How are you?") == "end_turn"
    assert [each["error"]["code"] in codes for each in _answers(editor, start)] == [True] * bool(
        codes
    )
    for each in _answers(editor, start):
        assert each["id"] == (KEY if _has_key(frame) else None)
        assert each["error"]["message"]
    assert SECRET not in json.dumps(editor.since(start))
    editor.check()


async def _send(stage: Stage, frame: Any) -> None:
    if isinstance(frame, bytes):
        await stage.editor.send_bytes(frame + b"\n")
        return
    text = json.dumps(frame).replace('"SESSION"', json.dumps(stage.session))
    await stage.editor.send(json.loads(text))


def _has_key(frame: Any) -> bool:
    return isinstance(frame, dict) and frame.get("id") == KEY


def _answers(editor: Editor, start: int) -> list[Json]:
    return [each for each in editor.since(start) if "error" in each]


# ---------------------------------------------------------------- large and strange
async def test_a_line_of_twenty_megabytes_is_answered(stage: Stage) -> None:
    editor = stage.editor
    stage.model.play(says("That is long."))
    answer = await editor.answer(await stage.begin("a" * LARGE))
    assert "error" not in answer or answer["error"]["code"] in {PARAMS, INVALID}
    assert len(json.dumps(answer)) < 2000
    await editor.send_bytes(b"x" * LARGE + b"\n")
    stage.model.play(says("I am well."))
    assert await stage.prompt("How are you?") == "end_turn"


@pytest.mark.parametrize("text", ["\ud800", "\u0000", "\u2028 \u0085", "\U0001f600", "x\ry"])
async def test_strange_characters_are_taken_or_refused(stage: Stage, text: str) -> None:
    stage.model.play(says(f"You said: {text}" if text != "\ud800" else "What?"))
    answer = await stage.editor.answer(await stage.begin(text))
    assert "error" not in answer or answer["error"]["code"] == PARAMS
    stage.editor.check()


async def test_lines_may_come_in_any_pieces(stage: Stage) -> None:
    stage.model.play(says("Hello."))
    asked = {"sessionId": stage.session, "prompt": [text_block("é😀")]}
    for key, params, end in (("one", {}, "\r\n"), ("two", asked, "\n")):
        method = "session/prompt" if params else "session/list"
        line = {"jsonrpc": "2.0", "id": key, "method": method, "params": params}
        stage.editor.note(line)
        for piece in f"{json.dumps(line, ensure_ascii=False)}{end}".encode():
            await stage.editor.send_bytes(bytes([piece]))
        assert "result" in await stage.editor.answer(key)
    assert "é😀" in str(stage.model.requests[-1].shown)


async def test_a_client_that_answers_nonsense_harms_nothing(
    model: ModelServer, tmp_path: Path
) -> None:
    async with opened_editor(model, tmp_path) as editor:
        stage = await begin_session(editor, model, tmp_path)

        async def nonsense(_: Json) -> Json:
            return {"outcome": SECRET, "content": 5, "terminalId": None}

        for method in ("session/request_permission", "fs/read_text_file", "elicitation/create"):
            editor.handlers[method] = nonsense
        name = str(tmp_path / "a.txt")
        for tool, arguments in (
            ("burn", {"parcel": "it"}),
            ("read_text_file", {"path": name}),
            ("ask_user", {"questions": [{"question": "Who?"}]}),
        ):
            reply = [(f"call_{tool}", tool, json.dumps(arguments))]
            model.play(calls(*reply), says("Pity."))
            assert await stage.prompt("Go on") == "end_turn"
        assert {each["status"] for each in stage.calls() if each["kind"] != "think"} <= {"failed"}
