"""MCP sessions by the package `mcp`; its errors and values are to_tool_result to passback's."""

import logging
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
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
from passback.toolsets.mcp.session import (
    MESSAGE_BYTES,
    ConnectionLost,
    McpSession,
    MessageStream,
    RecentOutput,
    ToolDescription,
)
from passback.toolsets.mcp.targets import StdioTarget, Target, redacted
from passback.toolsets.mcp.transports import child_streams, http_client

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
    name: str, target: Target, result_limit: int, recent_output: RecentOutput
) -> AsyncGenerator[McpSession]:
    """Connect to a server, and end everything that belongs to the connection on leaving.

    `recent_output` collects the output of the server's process.

    Raises:
        ConnectionLost: on entering or leaving; it also replaces any exception from inside.
    """
    stream = MessageStream(recent_output)
    try:
        async with AsyncExitStack() as stack:
            transport = await _open_transport(stack, name, target, stream)
            client = await stack.enter_async_context(_create_client(transport, stream))
            tasks = await stack.enter_async_context(anyio.create_task_group())
            connection = _PackageSession(client, stream, target, result_limit, name=name)
            tasks.start_soon(connection.follow_changes)
            stack.callback(tasks.cancel_scope.cancel)
            # runs before the teardown, so that open calls do not blame the server
            stack.callback(stream.close)
            yield connection
    except Exception as error:  # a fault in one connection must not reach the others
        raise ConnectionLost(stream.end or _failure_reason(error, stream)) from error


async def _open_transport(
    stack: AsyncExitStack, name: str, target: Target, stream: MessageStream
) -> Transport:
    if isinstance(target, StdioTarget):
        return child_streams(name, target, stream)
    client = await stack.enter_async_context(http_client(target, stream))
    return streamable_http_client(target.url, http_client=client, max_sse_event_size=MESSAGE_BYTES)


def _create_client(transport: Transport, stream: MessageStream) -> Client:
    async def receive(message: IncomingMessage) -> None:
        if isinstance(message, protocol.ToolListChangedNotification):
            stream.notify_change()

    return Client(transport, cache=None, client_info=_CLIENT_INFO, message_handler=receive)


def _root_cause(error: BaseException) -> BaseException:
    """Return the first leaf of an exception group."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error


def _failure_reason(error: BaseException, stream: MessageStream) -> str:
    """Return why a connection failed, without the server's own text: it may contain a secret."""
    match _root_cause(error):
        case OSError() as failure:
            return f"it cannot be started: {failure.strerror}"
        case MCPError() as refusal:
            return stream.refusal or f"it refused, with the error {refusal.code}"
        case ValidationError():
            return "what it answered is not of the protocol"
        case httpx2.TransportError() as failure:
            return f"it cannot be reached: {type(failure).__name__}"
        case other:
            return f"the connection broke: {type(other).__name__}"


class _PackageSession:
    """`McpSession` by a client of the package `mcp`."""

    def __init__(
        self, client: Client, stream: MessageStream, target: Target, result_limit: int, *, name: str
    ) -> None:
        self._name = name
        self._mcp = client
        self._stream = stream
        self._secrets = target.secrets()
        self._result_limit = result_limit

    @property
    def instructions(self) -> str:
        return self._mcp.instructions or ""

    async def list_tools(self, most: int, /) -> Sequence[ToolDescription]:
        found: list[protocol.Tool] = []
        cursor: str | None = None
        for _ in range(_MAX_PAGES):
            page = await self._mcp.session.list_tools(
                params=protocol.PaginatedRequestParams(cursor=cursor)
            )
            found += page.tools
            cursor = page.next_cursor
            if cursor is None or len(found) > most:
                break
        else:
            logger.warning(
                "MCP server %s: its list of tools has more than %s pages; what follows is left out",
                self._name,
                _MAX_PAGES,
                extra={"action": "toolset_list_cut"},
            )
        return [_tool_description(tool) for tool in found]

    async def call(
        self, name: str, arguments: Mapping[str, JsonValue], send_progress: Callable[[str], None], /
    ) -> ToolResult:
        async def report(progress: float, total: float | None, message: str | None) -> None:
            send_progress(_progress_text(progress, total, message))

        # not `call_tool`: it would validate by the server's output schema, without a time limit
        request = protocol.CallToolRequest(
            params=protocol.CallToolRequestParams(name=name, arguments=dict(arguments))
        )
        try:
            result = await self._mcp.session.send_request(
                request, protocol.CallToolResult, progress_callback=report
            )
        except MCPError as error:
            return self._refusal_result(error)
        except ValidationError:
            return ToolResult("The answer of the MCP server makes no sense.", is_error=True)
        return to_tool_result(result, self._result_limit)

    def _refusal_result(self, error: MCPError) -> ToolResult:
        """Return a refusal by the server as a result. Raises ConnectionLost if it is over."""
        if error.code == protocol.CONNECTION_CLOSED and error.message.startswith(_CLOSED_MESSAGES):
            self._stream.finish("the connection was closed")
        if self._stream.over:
            raise self._stream.lost()
        text = redacted(replace_surrogates(error.message), self._secrets)
        reason = f"The MCP server refused the call: {shorten_result(text, _REFUSAL_CHARACTERS)}"
        return ToolResult(reason, is_error=True)

    async def wait_for_change(self) -> None:
        await self._stream.wait_for_change()

    def close(self) -> None:
        self._stream.finish("it is left")

    async def follow_changes(self) -> None:
        """Listen for changes of the tools until the connection ends.

        Newer servers announce changes only in a stream that a client opens, older ones always.
        """
        tools = self._mcp.server_capabilities.tools
        while tools is not None and tools.list_changed:
            try:
                async with self._mcp.listen(tools_list_changed=True) as changes:
                    async for _ in changes:
                        self._stream.notify_change()
            except (ListenNotSupportedError, MCPError):
                return
            except SubscriptionLost:
                pass
            await anyio.sleep(_RELISTEN_DELAY)
            self._stream.notify_change()  # one may have been missed


def _progress_text(done: float, total: float | None, message: str | None) -> str:
    count = f"{done:.10g}" if total is None else f"{done:.10g} of {total:.10g}"
    if not message:
        return count
    text = message[:_PROGRESS_CHARACTERS]
    return text if total is None else f"{text} ({count})"


def _tool_description(tool: protocol.Tool) -> ToolDescription:
    """Return the description of a tool. Hints that contradict each other are not believed."""
    hints = tool.annotations or protocol.ToolAnnotations()
    read_only = hints.read_only_hint is True and hints.destructive_hint is not True
    return ToolDescription(
        tool.name,
        tool.description or tool.title or "",
        tool.input_schema,
        read_only=read_only,
        repeatable=read_only
        or (hints.idempotent_hint is True and hints.read_only_hint is not True),
    )
