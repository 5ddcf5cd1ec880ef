"""docs/how-to/chat-socket.md: its programs chat with the demo model."""

import platform
import sys
from pathlib import Path
from subprocess import CompletedProcess

import anyio
import pytest
from tests.support.documents import ADDRESS, blocks_of
from tests.support.server import Server
from tests.support.wire import client_of

pytestmark = pytest.mark.anyio

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "how-to" / "chat-socket.md").read_text()
HOST = ADDRESS.removeprefix("http://")
PLAIN, SOCKET_IO, CLIENT_TOOL = [
    block.text for block in blocks_of(PAGE) if block.language == "python"
]


async def test_the_programs_chat_in_one_session(server: Server, tmp_path: Path) -> None:
    first = await output_of(PLAIN, server, tmp_path)
    async with client_of(server.url) as client:
        sessions = (await client.http.get("/api/sessions", params={"q": "capitals"})).json()
        [session] = sessions["items"]
        second = await output_of(SOCKET_IO, server, tmp_path, session["id"])
        turns = (await client.http.get(f"/api/sessions/{session['id']}/messages")).json()
    said = [
        "".join(block["content"] for block in turn["blocks"] if block["type"] == "text")
        for turn in turns
    ]
    assert [turn["role"] for turn in turns] == ["user", "assistant"] * 2
    assert first == said[1] + "\n"
    assert second == said[3]


async def test_the_program_with_a_tool_answers_its_call(server: Server, tmp_path: Path) -> None:
    async with client_of(server.url) as client:
        created = (await client.http.post("/api/sessions", json={})).json()["session_id"]
    said = await output_of(CLIENT_TOOL, server, tmp_path, created)
    assert platform.system() in said


@pytest.mark.parametrize("program", [SOCKET_IO, CLIENT_TOOL])
async def test_a_program_says_what_the_server_refuses(
    server: Server, tmp_path: Path, program: str
) -> None:
    done = await run_program(program, server, tmp_path, "none")
    assert done.returncode == 1
    assert "no such conversation" in done.stderr.decode()


async def output_of(program: str, server: Server, folder: Path, *arguments: str) -> str:
    done = await run_program(program, server, folder, *arguments)
    assert (done.returncode, done.stderr) == (0, b"")
    return done.stdout.decode()


async def run_program(
    program: str, server: Server, folder: Path, *arguments: str
) -> CompletedProcess[bytes]:
    """Run a program of the page at the server."""
    file = folder / "program.py"
    file.write_text(program.replace(HOST, server.url.removeprefix("http://")))
    with anyio.fail_after(50):
        return await anyio.run_process([sys.executable, str(file), *arguments], check=False)
