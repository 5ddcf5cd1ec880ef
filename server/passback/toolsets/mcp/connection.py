"""A connection by the package `mcp`: its errors become ours here, and its values too."""

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
from passback.core.text import mended, shortened
from passback.toolsets.mcp.content import converted
from passback.toolsets.mcp.session import (
    MESSAGE_BYTES,
    Described,
    LastWords,
    Lost,
    McpSession,
    MessageStream,
)
from passback.toolsets.mcp.targets import Child, Target, redacted
from passback.toolsets.mcp.transports import child_streams, http_client

logger = logging.getLogger(__name__)

_US: Final = protocol.Implementation(name="passback", version=version("passback"))
_MOST_PAGES = 50
_LISTEN_AGAIN = 1.0
"""Seconds until a stream of changes that was cut is opened again."""

_REFUSAL_CHARACTERS = 500
_PROGRESS_CHARACTERS = 1000

_CLOSED = ("Connection closed", "SSE stream")
"""What the package says when a connection ends: servers use the same code for whatever they like."""


@asynccontextmanager
async def connect(
    name: str, target: Target, result_limit: int, last_words: LastWords
) -> AsyncGenerator[McpSession]:
    """Connect to a server; on leaving, all that belongs to the connection is ended. `last_words` hears what it says of itself.

    Raises:
        Lost: on entering or leaving, also in place of what went wrong inside.
    """
    line = MessageStream(last_words)
    try:
        async with AsyncExitStack() as stack:
            transport = await _transport(stack, name, target, line)
            client = await stack.enter_async_context(_client(transport, line))
            tasks = await stack.enter_async_context(anyio.create_task_group())
            connection = _Connection(client, line, target, result_limit, name=name)
            tasks.start_soon(connection.follow_changes)
            stack.callback(tasks.cancel_scope.cancel)
            # before anything is torn down, so that calls learn that it was not the server's doing
            stack.callback(line.close)
            yield connection
    except Exception as error:  # whatever breaks in one connection must not break anything else
        raise Lost(line.end or _words(error, line)) from error


async def _transport(
    stack: AsyncExitStack, name: str, target: Target, line: MessageStream
) -> Transport:
    if isinstance(target, Child):
        return child_streams(name, target, line)
    client = await stack.enter_async_context(http_client(target, line))
    return streamable_http_client(target.url, http_client=client, max_sse_event_size=MESSAGE_BYTES)


def _client(transport: Transport, line: MessageStream) -> Client:
    async def hear(message: IncomingMessage) -> None:
        if isinstance(message, protocol.ToolListChangedNotification):
            line.change()

    return Client(transport, cache=None, client_info=_US, message_handler=hear)


def _first(error: BaseException) -> BaseException:
    """What a group of errors began with."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error


def _words(error: BaseException, line: MessageStream) -> str:
    """Why a connection failed, without a word of the server's own: it may repeat a secret."""
    match _first(error):
        case OSError() as failure:
            return f"it cannot be started: {failure.strerror}"
        case MCPError() as refusal:
            return line.refusal or f"it refused, with the error {refusal.code}"
        case ValidationError():
            return "what it answered is not of the protocol"
        case httpx2.TransportError() as failure:
            return f"it cannot be reached: {type(failure).__name__}"
        case other:
            return f"the connection broke: {type(other).__name__}"


class _Connection:
    """Implements the door `Session`."""

    def __init__(
        self, client: Client, line: MessageStream, target: Target, result_limit: int, *, name: str
    ) -> None:
        self._name = name
        self._client = client
        self._line = line
        self._secrets = target.secrets()
        self._result_limit = result_limit

    @property
    def instructions(self) -> str:
        return self._client.instructions or ""

    async def tools(self, most: int, /) -> Sequence[Described]:
        found: list[protocol.Tool] = []
        cursor: str | None = None
        for _ in range(_MOST_PAGES):
            page = await self._client.session.list_tools(
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
                _MOST_PAGES,
                extra={"action": "toolset_list_cut"},
            )
        return [_described(tool) for tool in found]

    async def call(
        self, name: str, arguments: Mapping[str, JsonValue], tell: Callable[[str], None], /
    ) -> ToolResult:
        async def hear(progress: float, total: float | None, message: str | None) -> None:
            tell(_progress_words(progress, total, message))

        # not `call_tool`: it would apply the server's own output schema, for as long as that takes
        request = protocol.CallToolRequest(
            params=protocol.CallToolRequestParams(name=name, arguments=dict(arguments))
        )
        try:
            result = await self._client.session.send_request(
                request, protocol.CallToolResult, progress_callback=hear
            )
        except MCPError as error:
            return self._refused(error)
        except ValidationError:
            return ToolResult("The answer of the MCP server makes no sense.", is_error=True)
        return converted(result, self._result_limit)

    def _refused(self, error: MCPError) -> ToolResult:
        """Raises Lost."""
        if error.code == protocol.CONNECTION_CLOSED and error.message.startswith(_CLOSED):
            self._line.finish("the connection was closed")
        if self._line.over:
            raise self._line.lost()
        text = redacted(mended(error.message), self._secrets)
        words = f"The MCP server refused the call: {shortened(text, _REFUSAL_CHARACTERS)}"
        return ToolResult(words, is_error=True)

    async def news(self) -> None:
        await self._line.news()

    def leave(self) -> None:
        self._line.finish("it is left")

    async def follow_changes(self) -> None:
        """Newer servers tell of changes only in a stream that is asked for; older ones do it anyway."""
        tools = self._client.server_capabilities.tools
        while tools is not None and tools.list_changed:
            try:
                async with self._client.listen(tools_list_changed=True) as changes:
                    async for _ in changes:
                        self._line.change()
            except (ListenNotSupportedError, MCPError):
                return
            except SubscriptionLost:
                pass
            await anyio.sleep(_LISTEN_AGAIN)
            self._line.change()


def _progress_words(done: float, total: float | None, message: str | None) -> str:
    count = f"{done:.10g}" if total is None else f"{done:.10g} of {total:.10g}"
    if not message:
        return count
    text = message[:_PROGRESS_CHARACTERS]
    return text if total is None else f"{text} ({count})"


def _described(tool: protocol.Tool) -> Described:
    """A tool that says it only reads and destroys all the same is taken at neither word."""
    hints = tool.annotations or protocol.ToolAnnotations()
    read_only = hints.read_only_hint is True and hints.destructive_hint is not True
    return Described(
        tool.name,
        tool.description or tool.title or "",
        tool.input_schema,
        read_only=read_only,
        repeatable=read_only
        or (hints.idempotent_hint is True and hints.read_only_hint is not True),
    )
