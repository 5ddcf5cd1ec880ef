"""Servers of the Model Context Protocol as toolsets.

The package `mcp` is imported when the first server is connected.
"""

from passback.toolsets.mcp.server import MCPServer as MCPServer
