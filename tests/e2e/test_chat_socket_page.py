"""docs/how-to/chat-socket.md: its programs chat with the demo model."""

import sys
from pathlib import Path

import anyio
import pytest
from tests.support.documents import ADDRESS, blocks_of
from tests.support.server import Server
from tests.support.wire import client_of

pytestmark = pytest.mark.anyio

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "how-to" / "chat-socket.md").read_text()
PLAIN, SOCKET_IO = [block.text for block in blocks_of(PAGE) if block.language == "python"]


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


async def output_of(program: str, server: Server, folder: Path, *arguments: str) -> str:
    file = folder / "program.py"
    file.write_text(program.replace(ADDRESS, server.url))
    with anyio.fail_after(50):
        done = await anyio.run_process([sys.executable, str(file), *arguments])
    return done.stdout.decode()
