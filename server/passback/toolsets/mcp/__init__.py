"""`MCPServer`: a server of the Model Context Protocol as a toolset of an agent.

The package `mcp` is imported when the first server is connected.
"""

import importlib
import importlib.util
import os
from collections.abc import AsyncGenerator, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, Literal, Self

import anyio
from pydantic_core import from_json
from typing_extensions import override

from passback.core.errors import ConfigurationError, ToolsetUnavailable
from passback.core.messages import ToolCall, ToolResult, ToolSpec, fold_name
from passback.core.permissions import ALLOWED, Decision, Permission, as_permission
from passback.core.toolsets import ToolContext, ToolServer
from passback.toolsets.mcp.targets import (
    Characters,
    Command,
    HttpHeaders,
    HttpTarget,
    Seconds,
    ServerName,
    ServerOptions,
    StdioTarget,
    Target,
    WebUrl,
    legal_server_name,
)

if TYPE_CHECKING:
    from passback.toolsets.mcp.catalogue import OfferedTool
    from passback.toolsets.mcp.reconnector import Reconnector

# Imported on first use: it imports the package `mcp`, which is large, and an extra.
_RECONNECTOR_MODULE: Final = "passback.toolsets.mcp.reconnector"

_DEFAULT_SECONDS = 60.0
_DEFAULT_START_SECONDS = 15.0
_DEFAULT_RESULT_LIMIT = 64 * 1024  # characters


def is_installed() -> bool:
    """Return whether the package `mcp` is there, without importing it."""
    return importlib.util.find_spec("mcp") is not None


def server_tools(
    own: Collection[str], server: ToolServer, /, taken: Collection[str] = ()
) -> "MCPServer":
    """Make the toolset of a server that a client names: a `MakeServerTools`.

    `own`: the names of the agents' servers, which are taken, too.
    """
    return MCPServer.stdio(
        legal_server_name(server.name, (*own, *taken)),
        command=server.command,
        env=server.env,
        cwd=server.cwd or None,
        write_permission="ask",
        trust_hints=True,
    )


class MCPServer:
    """The tools of an MCP server, each named `<name>__<tool>`.

    Make one by `MCPServer.stdio` or `MCPServer.http`. It is connected while the application runs,
    and reconnects when the connection or the process is lost. While it cannot be used, its tools
    are not offered; a call in that time waits for a connection, then returns an error result.
    """

    begins_calls: Literal[True] = True

    def __init__(self, name: str, target: Target, options: ServerOptions) -> None:
        if options.write_permission is not None and not options.trust_hints:
            raise ConfigurationError(
                f"the MCP server {name!r}: write_permission needs trust_hints=True, as only the "
                "server says which of its tools write; permission holds for all of them"
            )
        if not is_installed():
            raise ConfigurationError(
                f"the MCP server {name!r} needs the package mcp: "
                "pip install 'passback[mcp]', or in a checkout pip install '.[mcp]'"
            )
        self._name = name
        self._target = target
        self._options = options
        self._reconnector: Reconnector | None = None

    @classmethod
    def stdio(
        cls,
        name: ServerName,
        /,
        *,
        command: Command,
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        permission: Permission | Decision = ALLOWED,
        write_permission: Permission | Decision | None = None,
        trust_hints: bool = False,
        seconds: Seconds = _DEFAULT_SECONDS,
        start_seconds: Seconds = _DEFAULT_START_SECONDS,
        result_limit: Characters = _DEFAULT_RESULT_LIMIT,
    ) -> Self:
        """Make a toolset of a command that is started here and speaks by standard input and output.

        Args:
            name: prefix of its tools: letters, digits, `-` and `_`.
            command: the program and its arguments; no shell reads them.
            env: variables beside the few that every program needs (`PATH`, `HOME` and such):
                nothing else of this process's environment reaches it.
            cwd: the folder that it runs in; None: that of this process.
            permission: the default for its tools where neither the server's settings nor the agent
                decide, as in `tool`.
            write_permission: replaces `permission` for tools without `readOnlyHint`, so that "ask"
                asks a person before anything that may change something; it needs `trust_hints`.
                None: as `permission`.
            trust_hints: believe the server's hints about its tools: one that only reads may run
                beside others, one that is idempotent is called again when nobody knows whether
                a call was carried out, and clients are told which tools read and which edit.
            seconds: deadline of one call.
            start_seconds: deadline for a connection, from the process's start to its tool list.
            result_limit: characters of a result; a longer one is cut, and says so.

        Raises:
            ConfigurationError: an argument is invalid, or the package `mcp` is not installed.
        """
        options = ServerOptions(
            permission=as_permission(permission),
            write_permission=None if write_permission is None else as_permission(write_permission),
            trust_hints=trust_hints,
            seconds=seconds,
            start_seconds=start_seconds,
            result_limit=result_limit,
        )
        options.check(MCPServer.stdio, name=name, command=command, env=env, cwd=cwd)
        folder = None if cwd is None else os.fspath(cwd)
        return cls(name, StdioTarget(tuple(command), dict(env or {}), folder), options)

    @classmethod
    def http(
        cls,
        name: ServerName,
        url: WebUrl,
        /,
        *,
        headers: HttpHeaders | None = None,
        permission: Permission | Decision = ALLOWED,
        write_permission: Permission | Decision | None = None,
        trust_hints: bool = False,
        seconds: Seconds = _DEFAULT_SECONDS,
        start_seconds: Seconds = _DEFAULT_START_SECONDS,
        result_limit: Characters = _DEFAULT_RESULT_LIMIT,
    ) -> Self:
        """Make a toolset of a server that runs elsewhere, by streamable HTTP.

        Args:
            name: as for `stdio`.
            url: of http or https.
            headers: sent with each request, such as `{"Authorization": "Bearer ..."}`; in ASCII,
                never shown.
            permission: as for `stdio`.
            write_permission: as for `stdio`.
            trust_hints: as for `stdio`.
            seconds: as for `stdio`.
            start_seconds: as for `stdio`.
            result_limit: as for `stdio`.

        Raises:
            ConfigurationError: as `stdio`.
        """
        options = ServerOptions(
            permission=as_permission(permission),
            write_permission=None if write_permission is None else as_permission(write_permission),
            trust_hints=trust_hints,
            seconds=seconds,
            start_seconds=start_seconds,
            result_limit=result_limit,
        )
        options.check(MCPServer.http, name=name, url=url, headers=headers)
        return cls(name, HttpTarget(url, dict(headers or {})), options)

    @override
    def __repr__(self) -> str:
        return f"MCPServer({self._name!r})"

    @property
    def name(self) -> str:
        return self._name

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Keep the server connected while the context is open.

        Raises ConfigurationError if another application of this process uses it.
        """
        if self._reconnector is not None:
            raise ConfigurationError(f"the MCP server {self._name!r} is in use already")
        make = importlib.import_module(_RECONNECTOR_MODULE).Reconnector
        reconnector: Reconnector = make(self._name, self._target, self._options)
        self._reconnector = reconnector
        try:
            async with reconnector.running():
                yield
        finally:
            self._reconnector = None

    async def ready(self) -> Sequence[str]:
        """Wait for the first attempt to connect and return warnings. Raises ToolsetUnavailable."""
        if self._reconnector is None:
            raise ToolsetUnavailable(f"the MCP server {self._name!r} is not running")
        found = await self._reconnector.ready()
        return [f"MCP server {self._name}: {warning}" for warning in found.warnings]

    async def specs(self) -> Sequence[ToolSpec]:
        if self._reconnector is None:
            return ()
        return [one.spec for one in self._reconnector.catalogue.tools.values()]

    @property
    def instructions(self) -> str:
        """The server's text on the use of its tools; empty while none of them is offered."""
        found = self._reconnector.catalogue if self._reconnector else None
        return found.instructions if found is not None and found.tools else ""

    def is_read_only(self, name: str, /) -> bool:
        tool = self._offered_tool(name)
        return tool is not None and tool.read_only

    def is_repeatable(self, name: str, /) -> bool:
        tool = self._offered_tool(name)
        return tool is not None and tool.repeatable

    def permission(self, call: ToolCall, /) -> Permission:
        writes = self._options.write_permission
        if writes is None or self.is_read_only(call.name):
            return self._options.permission
        return writes

    def _offered_tool(self, name: str) -> "OfferedTool | None":
        return self._reconnector.catalogue.tools.get(name) if self._reconnector else None

    async def call(self, call: ToolCall, context: ToolContext, /) -> ToolResult:
        if self._reconnector is None:
            text = f"The MCP server {self._name!r} is not connected. The tool was not called."
            return ToolResult(text, is_error=True)
        try:
            arguments = from_json(call.arguments)
        except ValueError:
            return ToolResult("The arguments cannot be read.", is_error=True)
        with anyio.move_on_after(self._options.seconds):
            return await self._reconnector.call(call.name, arguments, context)
        text = f"The tool did not answer in {self._options.seconds:g} s."
        return ToolResult(text, is_error=True)


def refuse_clashes(servers: Iterable[MCPServer], functions: Iterable[str]) -> None:
    """Raise ConfigurationError if tools could get the same name, whatever the servers offer."""
    prefixes: set[str] = set()
    for server in servers:
        prefix = fold_name(f"{server.name}__")
        if prefix in prefixes:
            raise ConfigurationError(f"two MCP servers are named {server.name!r}, or look alike")
        prefixes.add(prefix)
    for name in functions:
        if fold_name(name).startswith(tuple(prefixes)):
            raise ConfigurationError(f"the name of the tool {name!r} is that of an MCP server's")
