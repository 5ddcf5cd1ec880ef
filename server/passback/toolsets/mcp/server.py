"""A server of the Model Context Protocol, as an agent's author names it."""

import importlib
import importlib.util
import os
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

import anyio
from pydantic import JsonValue
from pydantic_core import from_json
from typing_extensions import override

from passback.core.errors import ConfigurationError, ToolsetUnavailable
from passback.core.messages import ToolCall, ToolResult, ToolSpec, folded
from passback.core.permissions import ALLOWED, Decision, Permission, permission_of
from passback.core.toolsets import ToolContext
from passback.toolsets.mcp.catalogue import Offered
from passback.toolsets.mcp.keeper import Reconnector
from passback.toolsets.mcp.session import Connect, Forgotten, LastWords, Lost, McpSession
from passback.toolsets.mcp.targets import Address, Child, Target, Terms, check

if TYPE_CHECKING:
    from typing import Self

_CONNECTION: Final = "passback.toolsets.mcp.connection"
"""Loaded when it is needed: the package `mcp` is large, and an extra."""

_SECONDS = 60.0
_START_SECONDS = 15.0
_RESULT_LIMIT = 64 * 1024


class MCPServer:
    """The tools of an MCP server, each named `<name>__<tool>`; made by `MCPServer.stdio` or `MCPServer.http`.

    It is connected while the application runs, and connected again when the connection or the process is lost. While
    it cannot be used its tools are not offered; a call that comes meanwhile waits a little, then fails as a result.
    """

    def __init__(self, name: str, target: Target, terms: Terms) -> None:
        check(name, target, terms)
        if importlib.util.find_spec("mcp") is None:
            raise ConfigurationError(
                f"the MCP server {name!r} needs the package mcp: pip install 'passback[mcp]'"
            )
        self._name = name
        self._target = target
        self._terms = terms
        self._keeper: Reconnector | None = None

    @classmethod
    def stdio(
        cls,
        name: str,
        /,
        *,
        command: Sequence[str],
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        permission: Permission | Decision = ALLOWED,
        write_permission: Permission | Decision | None = None,
        trust_hints: bool = False,
        seconds: float = _SECONDS,
        start_seconds: float = _START_SECONDS,
        result_limit: int = _RESULT_LIMIT,
    ) -> "Self":
        """A command that is started here and spoken to by its standard input and output.

        Args:
            name: prefix of its tools: letters, digits, `-` and `_`.
            command: the program and its arguments; no shell reads them.
            env: variables beside the few that every program needs (`PATH`, `HOME` and such): nothing else of this
                process's environment reaches it.
            cwd: the folder that it runs in; None: that of this process.
            permission: whether its tools may be called, where neither the server's settings nor the agent say so, as
                in `tool`.
            write_permission: in its place for tools without `readOnlyHint`, so that "ask" asks a person before all that may
                change something; it needs `trust_hints`. None: as `permission`.
            trust_hints: believe what it says of its own tools: one that only reads may run together with others, and
                one that may be repeated is called again when nobody knows whether a call was carried out.
            seconds: deadline of one call.
            start_seconds: deadline for a connection, from the start of the process to the list of its tools.
            result_limit: characters of a result; what is longer is cut, and says so.

        Raises:
            ConfigurationError: one of these cannot be used, or the package `mcp` is not installed.
        """
        folder = None if cwd is None else os.fspath(cwd)
        allowance = permission_of(permission)
        writes = None if write_permission is None else permission_of(write_permission)
        terms = Terms(allowance, trust_hints, seconds, start_seconds, result_limit, writes)
        words = command if isinstance(command, str) else tuple(command)
        return cls(name, Child(words, dict(env or {}), folder), terms)

    @classmethod
    def http(
        cls,
        name: str,
        url: str,
        /,
        *,
        headers: Mapping[str, str] | None = None,
        permission: Permission | Decision = ALLOWED,
        write_permission: Permission | Decision | None = None,
        trust_hints: bool = False,
        seconds: float = _SECONDS,
        start_seconds: float = _START_SECONDS,
        result_limit: int = _RESULT_LIMIT,
    ) -> "Self":
        """A server that runs elsewhere, by streamable HTTP.

        Args:
            name: as for `stdio`.
            url: of http or https.
            headers: sent with each request, such as `{"Authorization": "Bearer ..."}`, in ASCII; never shown.
            permission: as for `stdio`.
            write_permission: as for `stdio`.
            trust_hints: as for `stdio`.
            seconds: as for `stdio`.
            start_seconds: as for `stdio`.
            result_limit: as for `stdio`.

        Raises:
            ConfigurationError: as `stdio`.
        """
        allowance = permission_of(permission)
        writes = None if write_permission is None else permission_of(write_permission)
        terms = Terms(allowance, trust_hints, seconds, start_seconds, result_limit, writes)
        return cls(name, Address(url, dict(headers or {})), terms)

    @override
    def __repr__(self) -> str:
        return f"MCPServer({self._name!r})"

    # ---------------------------------------------------------------- its life
    @property
    def name(self) -> str:
        return self._name

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Raises ConfigurationError when another application of this process has it."""
        if self._keeper is not None:
            raise ConfigurationError(f"the MCP server {self._name!r} is in use already")
        last_words = LastWords(self._target.secrets())
        self._keeper = Reconnector(self._name, self._connect(last_words), self._terms, last_words)
        try:
            async with self._keeper.running():
                yield
        finally:
            self._keeper = None

    async def ready(self) -> Sequence[str]:
        if self._keeper is None:
            raise ToolsetUnavailable(f"the MCP server {self._name!r} is not running")
        found = await self._keeper.ready()
        return [f"MCP server {self._name}: {warning}" for warning in found.warnings]

    def _connect(self, last_words: LastWords) -> Connect:
        connect = importlib.import_module(_CONNECTION).connect
        return partial(connect, self._name, self._target, self._terms.result_limit, last_words)

    # ---------------------------------------------------------------- its tools
    async def specs(self) -> Sequence[ToolSpec]:
        if self._keeper is None:
            return ()
        return [one.spec for one in self._keeper.catalogue.tools.values()]

    @property
    def instructions(self) -> str:
        """What the server says of the use of its tools; nothing while none of them is offered."""
        found = self._keeper.catalogue if self._keeper else None
        return found.instructions if found is not None and found.tools else ""

    def is_read_only(self, name: str, /) -> bool:
        tool = self._offered(name)
        return tool is not None and tool.read_only

    def is_repeatable(self, name: str, /) -> bool:
        tool = self._offered(name)
        return tool is not None and tool.repeatable

    def permission(self, call: ToolCall, /) -> Permission:
        writes = self._terms.write_permission
        if writes is None or self.is_read_only(call.name):
            return self._terms.permission
        return writes

    def _offered(self, name: str) -> Offered | None:
        return self._keeper.catalogue.tools.get(name) if self._keeper else None

    async def call(self, call: ToolCall, context: ToolContext, /) -> ToolResult:
        try:
            arguments = from_json(call.arguments)
        except ValueError:
            return _failed("The arguments cannot be read.")
        with anyio.move_on_after(self._terms.seconds):
            return await self._call(call.name, arguments, context.progress)
        return _failed(f"The tool did not answer in {self._terms.seconds:g} s.")

    async def _call(
        self, name: str, arguments: Mapping[str, JsonValue], tell: Callable[[str], None]
    ) -> ToolResult:
        """A server that has forgotten the connection has done nothing, and is asked again by a new one."""
        forgot: McpSession | None = None
        while True:
            session = await self._keeper.session(but=forgot) if self._keeper else None
            if session is None or self._keeper is None:
                return self._unavailable()
            tool = self._keeper.catalogue.tools.get(name)
            if tool is None:
                return _failed(f"The MCP server {self._name!r} has no such tool any more.")
            try:
                return await session.call(tool.remote, arguments, tell)
            except Forgotten:
                if forgot is not None:
                    return self._unavailable()
                forgot = session
            except Lost:
                return _failed(
                    f"The connection to the MCP server {self._name!r} was lost during the call: "
                    "nobody knows whether it was carried out."
                )

    def _unavailable(self) -> ToolResult:
        trouble = self._keeper.trouble if self._keeper else None
        reason = f": {trouble}" if trouble else ""
        return _failed(
            f"The MCP server {self._name!r} is not connected{reason}. The tool was not called."
        )


def _failed(text: str) -> ToolResult:
    return ToolResult(text, is_error=True)


def refuse_clashes(servers: Iterable[MCPServer], functions: Iterable[str]) -> None:
    """Raise ConfigurationError when tools could get one name, whatever the servers turn out to have."""
    prefixes: set[str] = set()
    for server in servers:
        prefix = folded(f"{server.name}__")
        if prefix in prefixes:
            raise ConfigurationError(f"two MCP servers are named {server.name!r}, or look alike")
        prefixes.add(prefix)
    for name in functions:
        if folded(name).startswith(tuple(prefixes)):
            raise ConfigurationError(f"the name of the tool {name!r} is that of an MCP server's")
