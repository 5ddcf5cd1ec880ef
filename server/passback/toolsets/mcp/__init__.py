"""Servers of the Model Context Protocol as toolsets. The package `mcp` is loaded when the first of them is connected."""

from passback.toolsets.mcp.server import MCPServer as MCPServer
