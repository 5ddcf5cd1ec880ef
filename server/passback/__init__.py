"""passback: an agent server whose tools can run in the client's hands.

    from passback import Agent, tool

    @tool
    def roll(sides: int = 6) -> int: ...

    agent = Agent(prompt="You run a game.", tools=[roll])

`passback serve module:agent` serves it. `passback.session` talks to it from Python, and
`passback.testing` has what its tests need.
"""

from passback.agent import Agent, Fork
from passback.core.budgets import Budget, BudgetLimits
from passback.core.permissions import Permission
from passback.core.shared_state import StateError
from passback.core.toolsets import ToolContext
from passback.engine.commands import CommandContext
from passback.toolsets.functions import ToolError, tool
from passback.toolsets.mcp import MCPServer
from passback.toolsets.results import Result

__all__ = [
    "Agent",
    "Budget",
    "BudgetLimits",
    "CommandContext",
    "Fork",
    "MCPServer",
    "Permission",
    "Result",
    "StateError",
    "ToolContext",
    "ToolError",
    "tool",
]
__version__ = "0.1.0"
