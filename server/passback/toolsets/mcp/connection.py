"""MCP sessions by the package `mcp`; its errors and values are translated to passback's."""

import logging
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from importlib.metadata import version
from typing import Final, cast

import anyio
import httpx2
import mcp.types as protocol
from mcp import MCPError
from mcp.client import Client, IncomingMessage, Transport
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost
from pydantic import JsonValue, ValidationError

from passback.core.messages import ToolResult
from passback.core.text import replace_surrogates, shorten_result
from passback.toolsets.mcp.content import to_tool_result
from passback.toolsets.mcp.targets import StdioTarget, Target, redacted
from passback.toolsets.mcp.transports import (
    MESSAGE_BYTES,
    ConnectionLost,
    ConnectionState,
    child_streams,
    http_client,
)

logger = logging.getLogger(__name__)

_CLIENT_INFO: Final = protocol.Implementation(name="passback", version=version("passback"))
_MAX_PAGES = 50
_RELISTEN_DELAY = 1.0  # seconds before a lost stream of changes is opened again

_REFUSAL_CHARACTERS = 500
_PROGRESS_CHARACTERS = 1000

# Beginnings of the package's own messages when a connection ends. The error code alone does not
# tell: servers use it for other errors.
_CLOSED_MESSAGES = ("Connection closed", "SSE stream")


@asynccontextmanager
async def connect(
    name: str, target: Target, result_limit: int, output: deque[bytes]
) -> AsyncGenerator["McpSession"]:
    """Connect to a server, and end everything that belongs to the connection on leaving.

    `output` gets the last lines that the server's process writes to standard error.

    Raises:
        ConnectionLost: on entering or leaving; it also replaces any exception from inside.
    """
    state = ConnectionState(output)

    async def receive(message: IncomingMessage) -> None:
        if isinstance(message, protocol.ToolListChangedNotification):
            state.notify_change()

    try:
        async with AsyncExitStack() as stack:
            if isinstance(target, StdioTarget):
                transport: Transport = child_streams(name, target, state)
            else:
                http = await stack.enter_async_context(http_client(target, state))
                transport = streamable_http_client(
                    target.url, http_client=http, max_sse_event_size=MESSAGE_BYTES
                )
            client = Client(
                transport, cache=None, client_info=_CLIENT_INFO, message_handler=receive
            )
            await stack.enter_async_context(client)
            tasks = await stack.enter_async_context(anyio.create_task_group())
            session = McpSession(name, client, state, target.secrets(), result_limit)
            tasks.start_soon(session.follow_changes)
            stack.callback(tasks.cancel_scope.cancel)
            yield session
    except Exception as error:  # a fault in one connection must not reach the others
        raise ConnectionLost(state.end or _failure_reason(error, state)) from error


def _failure_reason(error: BaseException, state: ConnectionState) -> str:
    """Return why a connection failed, without the server's own text: it may contain a secret."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    match error:
        case OSError() as failure:
            return f"it cannot be started: {failure.strerror}"
        case MCPError() as refusal:
            return state.refusal or f"it refused, with the error {refusal.code}"
        case ValidationError():
            return "what it answered is not of the protocol"
        case httpx2.TransportError() as failure:
            return f"it cannot be reached: {type(failure).__name__}"
        case other:
            return f"the connection broke: {type(other).__name__}"


@dataclass(frozen=True, slots=True, eq=False)
class McpSession:
    """One connection to a server, from its first answer to its end.

    Args:
        secrets: texts that are replaced in what the server says of an error.
        result_limit: characters of a result.
    """

    name: str
    client: Client
    state: ConnectionState
    secrets: Sequence[str]
    result_limit: int

    async def list_tools(self, most: int, /) -> Sequence[protocol.Tool]:
        """Return all tools; beyond the first `most`, some may be missing."""
        found: list[protocol.Tool] = []
        cursor: str | None = None
        for _ in range(_MAX_PAGES):
            page = await self.client.list_tools(cursor=cursor)
            found += page.tools
            cursor = page.next_cursor
            if cursor is None or len(found) > most:
                break
        else:
            logger.warning(
                "MCP server %s: its list of tools has more than %s pages; what follows is left out",
                self.name,
                _MAX_PAGES,
                extra={"action": "toolset_list_cut"},
            )
        return found

    async def call(
        self, name: str, arguments: Mapping[str, JsonValue], send_progress: Callable[[str], None], /
    ) -> ToolResult:
        """Call a tool and return its result; a refusal is a result with `is_error`.

        Cancelling this cancels the call at the server. `send_progress` gets each progress message.

        Raises:
            SessionForgotten: the call was not carried out.
            ConnectionLost: nobody knows whether the call was carried out.
        """

        async def report(progress: float, total: float | None, message: str | None) -> None:
            count = f"{progress:.10g}" if total is None else f"{progress:.10g} of {total:.10g}"
            text = message[:_PROGRESS_CHARACTERS] if message else count
            send_progress(f"{text} ({count})" if message and total is not None else text)

        # not `call_tool`: it would validate by the server's output schema, without a time limit
        request = protocol.CallToolRequest(
            params=protocol.CallToolRequestParams(name=name, arguments=dict(arguments))
        )
        try:
            result = await self.client.session.send_request(
                request, protocol.CallToolResult, progress_callback=report
            )
        except MCPError as error:
            closed = error.code == protocol.CONNECTION_CLOSED
            if closed and error.message.startswith(_CLOSED_MESSAGES):
                self.state.finish("the connection was closed")
            self.state.check()
            refusal = redacted(replace_surrogates(error.message), self.secrets)
            reason = shorten_result(refusal, _REFUSAL_CHARACTERS)
            return ToolResult(f"The MCP server refused the call: {reason}", is_error=True)
        except ValidationError:
            return ToolResult("The answer of the MCP server makes no sense.", is_error=True)
        return to_tool_result(result, self.result_limit)

    async def follow_changes(self) -> None:
        """Listen for changes of the tools until the connection ends.

        Newer servers announce changes only in a stream that a client opens, older ones always.
        """
        tools = self.client.server_capabilities.tools
        while tools is not None and tools.list_changed:
            try:
                async with self.client.listen(tools_list_changed=True) as changes:
                    async for _ in changes:
                        self.state.notify_change()
            except (ListenNotSupportedError, MCPError):
                return
            except SubscriptionLost:
                pass
            await anyio.sleep(_RELISTEN_DELAY)
            self.state.notify_change()  # one may have been missed
