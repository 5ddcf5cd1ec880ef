"""What a user writes: an `Agent` with a prompt and tools, served by `passback serve module:agent`."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from pydantic import JsonValue

from passback.core.messages import JsonObject
from passback.core.ports import ModelClient, Toolset
from passback.toolsets.functions import Function, Functions, FunctionTool, tool


@dataclass(frozen=True, slots=True)
class Agent:
    """An agent.

    Args:
        model: a client, or a name as in `PASSBACK_MODEL` (`openai:gpt-5`); None: what the settings say.
        prompt: what the model is told first.
        tools: server tools: functions, decorated with `@tool` or plain.
        toolsets: other sources of server tools.
        max_turns: model calls in one run; None: what the settings say.
        options: goes to the model's service as it is, such as `{"temperature": 0}`.
    """

    model: ModelClient | str | None = None
    prompt: str = ""
    tools: Sequence[FunctionTool | Function] = ()
    toolsets: Sequence[Toolset] = field(default=())
    max_turns: int | None = None
    options: JsonObject = field(default_factory=dict[str, JsonValue])

    def all_toolsets(self) -> tuple[Toolset, ...]:
        """Raises ConfigurationError when a function cannot be a tool, or two have one name."""
        functions = [one if isinstance(one, FunctionTool) else tool(one) for one in self.tools]
        return (*([Functions(functions)] if functions else []), *self.toolsets)
