"""Runs owed calls, all of them at once; whatever happens in a tool becomes a result."""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

import anyio
from pydantic_core import PydanticSerializationError, to_json

from passback_client.events import JsonObject, OwedCall, ToolAnswer
from passback_client.limits import Limits
from passback_client.tools import Tool, ToolCall, ToolContext, ToolError, invoke, is_async

if TYPE_CHECKING:
    from pydantic import JsonValue

_CUT = " [cut]"


class Execution:
    """The calls that one run handed back.

    Args:
        tools: by name.
        limits: of arguments, results and errors.
        conversation_id: whose calls they are.
    """

    def __init__(self, tools: Mapping[str, Tool], limits: Limits, conversation_id: str) -> None:
        self._tools = tools
        self._limits = limits
        self._conversation_id = conversation_id

    async def answer(self, calls: Sequence[OwedCall]) -> list[ToolAnswer]:
        """Run them in parallel; the answers are in the calls' order. Cancelling it cancels the tools."""
        answers = [_failed(call, "The tool was cancelled.") for call in calls]

        async def run(position: int, call: OwedCall) -> None:
            answers[position] = await self._answer(call)

        async with anyio.create_task_group() as tasks:
            for position, call in enumerate(calls):
                tasks.start_soon(run, position, call)
        return answers

    async def _answer(self, call: OwedCall) -> ToolAnswer:
        tool = self._tools.get(call.name)
        if tool is None:
            return _failed(call, f"This client has no tool {call.name!r}.")
        arguments = self._read(call.arguments)
        if arguments is None:
            return _failed(call, "The arguments are not a JSON object, or are too large.")
        context = ToolContext(ToolCall(call.id, call.name, arguments, self._conversation_id))
        try:
            return await self._run(tool, call, context)
        except ToolError as error:
            return _failed(call, self._bounded(str(error)))
        except Exception as error:  # noqa: BLE001 - the tool-call boundary: any failure is a result
            return _failed(call, self._bounded(f"{type(error).__name__}: {error}"))
        finally:
            context.cancelled.set()  # a thread that was left alone may look

    async def _run(self, tool: Tool, call: OwedCall, context: ToolContext) -> ToolAnswer:
        approve = tool.approve
        if approve is not None and not await invoke(
            lambda: approve(context.call), is_async=is_async(approve)
        ):
            return _failed(call, "The user did not allow this call.")
        given = await invoke(
            lambda: tool.execute(context.call.arguments, context), is_async=is_async(tool.execute)
        )
        return self._result(call, given)

    def _result(self, call: OwedCall, given: object) -> ToolAnswer:
        try:
            encoded = to_json(given, inf_nan_mode="null")
        except (PydanticSerializationError, ValueError, RecursionError):
            return _failed(call, f"The tool gave a {type(given).__name__}, which is not JSON.")
        if len(encoded) > self._limits.result_bytes:
            return _failed(call, "The tool's result is too large.")
        return ToolAnswer(call.id, call.name, cast("JsonValue", json.loads(encoded)))

    def _read(self, arguments: str) -> JsonObject | None:
        if len(arguments) > self._limits.argument_chars:
            return None
        try:
            value = cast("JsonValue", json.loads(arguments))
        except (ValueError, RecursionError):
            return None
        return value if isinstance(value, dict) else None

    def _bounded(self, text: str) -> str:
        text = text.encode(errors="replace").decode()  # a lone surrogate could not be posted
        most = self._limits.error_chars
        return text if len(text) <= most else text[:most] + _CUT


def _failed(call: OwedCall, text: str) -> ToolAnswer:
    return ToolAnswer(call.id, call.name, text, is_error=True)
