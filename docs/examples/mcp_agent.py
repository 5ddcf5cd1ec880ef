"""An agent with the tools of an MCP server. Serve it: passback serve mcp_agent:agent"""

import sys
from pathlib import Path

from passback import Agent, MCPServer

notes = MCPServer.stdio(
    "notes",
    command=[sys.executable, "notes_server.py"],
    cwd=Path(__file__).parent,
    trust_hints=True,
)
agent = Agent(prompt="You keep notes for people.", toolsets=[notes])
