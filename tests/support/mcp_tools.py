"""An MCP server by the package `mcp`: `python -m tests.support.mcp_tools` serves by stdio."""

import os
import signal
import socket
import sys
from typing import Any

import anyio
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
    ToolAnnotations,
)

BLOCKS: dict[str, list[ContentBlock]] = {
    "text": [TextContent(text="one"), TextContent(text="two 😀")],
    "image": [ImageContent(data="aW1hZ2U=", mime_type="image/png")],
    "audio": [AudioContent(data="c291bmQ=", mime_type="audio/wav")],
    "resource": [
        EmbeddedResource(resource=TextResourceContents(uri="note://1", text="written")),
        EmbeddedResource(
            resource=BlobResourceContents(uri="note://2", blob="ZmlsZQ==", mime_type="image/gif")
        ),
        EmbeddedResource(
            resource=BlobResourceContents(uri="note://3", blob="c291bmQ=", mime_type="audio/mpeg")
        ),
        EmbeddedResource(resource=BlobResourceContents(uri="note://4", blob="ZmlsZQ==")),
    ],
    "link": [
        ResourceLink(name="page", uri="https://example.org/page", mime_type="text/html"),
        ResourceLink(name="odd", uri="http://example.org/odd", mime_type="no type at all"),
        ResourceLink(name="secret", uri="file:///etc/passwd"),
    ],
    "broken": [
        ImageContent(data="<script>", mime_type="image/png"),
        AudioContent(data="c291bmQ=", mime_type="a/b,<x>"),
    ],
    "large": [
        ImageContent(data="A" * 300_000, mime_type="image/png"),
        ImageContent(data="A" * 300_000, mime_type="image/png"),
    ],
    "many": [TextContent(text=str(number)) for number in range(105)],
    "long": [TextContent(text="x" * 60), TextContent(text="y" * 60), TextContent(text="z")],
    "none": [],
}


INSTRUCTIONS = "Add before you put."


class Waiting:
    """A call that is never answered, and those who want to know of it."""

    def __init__(self) -> None:
        self._begun, self._cancelled = anyio.Event(), anyio.Event()

    async def wait(self) -> str:
        """Never answers, and notices when nobody waits any more."""
        self._begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            self._cancelled.set()
        return ""

    async def begun(self) -> str:
        """Answers when `wait` was called."""
        await self._begun.wait()
        return "begun"

    async def cancelled(self) -> str:
        """Answers when `wait` was cancelled."""
        await self._cancelled.wait()
        return "cancelled"


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def put(text: str) -> dict[str, str]:
    return {"put": text}


def wipe() -> list[str]:
    return ["wiped", "all"]


def show(kind: str) -> CallToolResult:
    return CallToolResult(content=BLOCKS[kind])


def data(text: str, size: int) -> CallToolResult:
    content: list[ContentBlock] = [TextContent(text=text)] if text else []
    return CallToolResult(content=content, structured_content={"n": "1" * size})


def fail() -> CallToolResult:
    return CallToolResult(content=[TextContent(text="It is broken.")], is_error=True)


async def advance(
    context: Context[Any, Any], steps: list[tuple[float, float | None, str | None]]
) -> str:
    """Says how far it is, step by step."""
    for done, total, message in steps:
        await context.report_progress(done, total, message)
    return "arrived"


async def grow(context: Context[Any, Any], name: str) -> str:
    """Has one tool more from now on."""
    context.mcp_server.add_tool(lambda: "grown", name=name, description="New.")
    await context.notify_tools_changed()
    return "grown"


def header(context: Context[Any, Any], name: str) -> str:
    return (context.headers or {}).get(name, "")


def environment() -> dict[str, str]:
    return dict(os.environ)


def whisper(text: str, times: int = 1) -> str:
    """Says something on standard error."""
    sys.stderr.write(text * times)
    sys.stderr.flush()
    return "said"


async def linger(port: int) -> str:
    """Connect, with a child that shares the connection and ignores SIGTERM; ignore it here, too."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    line = socket.create_connection(("127.0.0.1", port)).detach()
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    await anyio.open_process(command, pass_fds=[line])
    return "connected"


def die() -> None:
    os._exit(3)


def tools() -> MCPServer[Any]:
    """A new server; each has a state of its own."""
    server = MCPServer("tools", instructions=INSTRUCTIONS, log_level="CRITICAL")
    waiting = Waiting()
    server.add_tool(add, annotations=ToolAnnotations(read_only_hint=True, title="Add"))
    server.add_tool(put, annotations=ToolAnnotations(idempotent_hint=True))
    hints = ToolAnnotations(read_only_hint=True, destructive_hint=True)
    server.add_tool(wipe, title="Wipe all", annotations=hints)
    for writes, hints in (
        (die, ToolAnnotations(destructive_hint=True)),
        (grow, ToolAnnotations(read_only_hint=False)),
    ):
        server.add_tool(writes, annotations=hints, structured_output=False)
    plain: tuple[Any, ...] = (
        *(show, data, fail, header, whisper, linger, advance, environment),
        *(waiting.wait, waiting.begun, waiting.cancelled),
    )
    for each in plain:
        server.add_tool(each, structured_output=False)
    return server


if __name__ == "__main__":
    tools().run()
