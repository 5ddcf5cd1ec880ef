"""MCP servers beside a test, and agents' views of them."""

import json
import socket
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import uvicorn
from pydantic import JsonValue
from starlette.types import ASGIApp
from tests.support.mcp_raw import Json
from tests.support.waiting import moment

from passback.core.messages import (
    CallId,
    ConversationId,
    ConversationKey,
    OwnerId,
    RunId,
    RunRef,
    ToolCall,
    ToolResult,
)
from passback.core.toolsets import ToolContext
from passback.toolsets.mcp import MCPServer

ROOT = Path(__file__).resolve().parents[2]
TOOLS = (sys.executable, "-m", "tests.support.mcp_tools")
"""The command of a good server."""

CONTEXT = ToolContext(
    RunRef(ConversationKey(OwnerId("o"), ConversationId("c")), RunId("r")), CallId("call")
)


def tools(name: str = "t", **terms: Any) -> MCPServer:
    """A good server by stdio."""
    return MCPServer.stdio(name, command=TOOLS, cwd=ROOT, **terms)


def raw(folder: Path, pages: Sequence[Sequence[Json]], *flags: str, **terms: Any) -> MCPServer:
    """A bad one by stdio."""
    path = folder / "tools.json"
    path.write_text(json.dumps(pages))
    command = (sys.executable, "-m", "tests.support.mcp_raw", str(path), *flags)
    return MCPServer.stdio("t", command=command, cwd=ROOT, **terms)


@asynccontextmanager
async def running(server: MCPServer, seconds: float = 30) -> AsyncGenerator[MCPServer]:
    """Connected, or known not to be. A hang in the test is a failure after `seconds`."""
    with anyio.fail_after(seconds):
        async with server.running():
            await server.ready()
            yield server


async def called(
    server: MCPServer, tool: str, context: ToolContext = CONTEXT, /, **arguments: JsonValue
) -> ToolResult:
    call = ToolCall(CallId("call"), f"{server.name}__{tool}", json.dumps(arguments))
    return await server.call(call, context)


async def names(server: MCPServer) -> list[str]:
    return [spec.name for spec in await server.specs()]


async def until_it_has(server: MCPServer, name: str) -> None:
    while name not in await names(server):
        await moment()


@asynccontextmanager
async def serving(app: ASGIApp, port: int = 0) -> AsyncGenerator[str]:
    """Serve an application on this machine; gives the URL of its `/mcp`."""
    listening = socket.create_server(("127.0.0.1", port))
    config = uvicorn.Config(app, log_config=None, ws="none", timeout_graceful_shutdown=0)
    server = uvicorn.Server(config)

    async def serve() -> None:
        await server.serve([listening])
        await server.lifespan.shutdown()  # which `force_exit` leaves out

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(serve)
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"
        finally:
            server.should_exit = server.force_exit = True
