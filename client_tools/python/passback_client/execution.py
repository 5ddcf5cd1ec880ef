"""Answers owed calls in parallel; any error in a tool becomes a result or a denial."""

import json
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeAlias, cast

import anyio
from pydantic import JsonValue
from pydantic_core import PydanticSerializationError, to_json

from passback_client.approvals import Approval, Approver, Decision
from passback_client.events import Decided, JsonObject, OwedCall, ToolAnswer
from passback_client.limits import Limits
from passback_client.text import replace_surrogates, replace_surrogates_in
from passback_client.tools import Tool, ToolCall, ToolContext, ToolError, invoke, is_async

_CUT = " [cut]"
_UNREADABLE = "The arguments are not a JSON object, or are too large."

CallAnswer: TypeAlias = ToolAnswer | Decided
"""The part of a post that answers a call."""

Watch: TypeAlias = Callable[[Callable[[str], None]], Coroutine[object, object, None]]
"""Runs beside the calls, and reports those that need no answer any more."""


@dataclass(frozen=True, slots=True)
class Toolbox:
    """The tools of a client, with its limits and approvals.

    Attributes:
        tools: by name.
        limits: of arguments, results and errors.
        approver: None if nobody can be asked, so approvals stay owed.
    """

    tools: Mapping[str, Tool]
    limits: Limits
    approver: Approver | None = None

    def can_answer(self, call: OwedCall) -> bool:
        match call.kind:
            case "tool_result":
                return True  # an unknown tool is answered with an error
            case "question":
                return call.name in self.tools
            case "approval":
                return self.approver is not None
            case _:
                return False


class Execution:
    """Runs the calls that a run leaves owed.

    Args:
        toolbox: the tools.
        conversation_id: whose calls they are.
    """

    def __init__(self, toolbox: Toolbox, conversation_id: str) -> None:
        self._toolbox = toolbox
        self._limits = toolbox.limits
        self._conversation_id = conversation_id

    async def answer(self, calls: Sequence[OwedCall], watch: Watch) -> list[CallAnswer]:
        """Run calls in parallel; return the answers in order, without those that `watch` reported.

        Cancellation cancels the tools, and so does a KeyboardInterrupt in one of them, which is
        raised here.
        """
        answers: dict[str, CallAnswer] = {}
        interrupts: list[KeyboardInterrupt] = []
        scopes = {call.id: anyio.CancelScope() for call in calls}

        async def run(call: OwedCall) -> None:
            with scopes[call.id]:
                answers[call.id] = _failed(call, "The tool was cancelled.")
                try:
                    answers[call.id] = await self._answer(call)
                except KeyboardInterrupt as interrupt:  # in a task, it would end the event loop
                    interrupts.append(interrupt)
                    tasks.cancel_scope.cancel()
                return
            del answers[call.id]

        def settled(call_id: str) -> None:
            scopes[call_id].cancel()

        async with anyio.create_task_group() as watching:
            watching.start_soon(watch, settled)
            async with anyio.create_task_group() as tasks:
                for call in calls:
                    tasks.start_soon(run, call)
            watching.cancel_scope.cancel()
        if interrupts:
            raise interrupts[0]
        return [answers[call.id] for call in calls if call.id in answers]

    async def _answer(self, call: OwedCall) -> CallAnswer:
        arguments = self._read(call.arguments)
        tool = self._toolbox.tools.get(call.name)
        try:
            if call.kind == "approval":
                return await self._decide(call, arguments)
            if tool is None:
                return _failed(call, f"This client has no tool {call.name!r}.")
            if arguments is None:
                return _failed(call, _UNREADABLE)
            return await self._run(tool, call, arguments)
        except ToolError as error:
            return _failed(call, self._bounded(str(error)))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the tool-call boundary: any failure is a result
            return _failed(call, self._bounded(f"{type(error).__name__}: {error}"))

    async def _decide(self, call: OwedCall, arguments: JsonObject | None) -> Decided:
        if arguments is None:
            return _denied(call, _UNREADABLE)
        where = self._conversation_id
        approval = Approval(call.id, call.name, arguments, where, call.reason, server=True)
        decision = await self._ask(approval)
        if not decision.approved:
            return _denied(call, self._bounded(decision.reason), always=decision.always)
        return Decided(call.id, call.name, approved=True, always=decision.always)

    async def _ask(self, approval: Approval) -> Decision:
        approver = self._toolbox.approver
        if approver is None:
            return Decision(approved=False)
        return await approver.decide(approval)

    async def _run(self, tool: Tool, call: OwedCall, arguments: JsonObject) -> ToolAnswer:
        where = self._conversation_id
        if tool.needs_approval:
            decision = await self._ask(Approval(call.id, call.name, arguments, where))
            if not decision.approved:
                raise ToolError(decision.reason or "The user did not allow this call.")
        context = ToolContext(ToolCall(call.id, call.name, arguments, where))
        try:
            given = await invoke(
                lambda: tool.execute(arguments, context), is_async=is_async(tool.execute)
            )
        finally:
            context.cancelled.set()  # for a thread that is still running
        return self._result(call, given)

    def _result(self, call: OwedCall, given: object) -> ToolAnswer:
        encoded = _encoded(given)
        if len(encoded) > self._limits.result_bytes:
            raise ToolError("The tool's result is too large.")
        content = cast("JsonValue", json.loads(encoded))
        if _is_deeper(content, self._limits.result_depth):
            raise ToolError("The tool's result is nested too deep.")
        return ToolAnswer(call.id, call.name, content)

    def _read(self, arguments: str) -> JsonObject | None:
        if len(arguments) > self._limits.argument_chars:
            return None
        try:
            value = cast("JsonValue", json.loads(arguments))
        except (ValueError, RecursionError):
            return None
        return value if isinstance(value, dict) else None

    def _bounded(self, text: str) -> str:
        text = replace_surrogates(text)
        most = self._limits.error_chars
        return text if len(text) <= most else text[:most] + _CUT


def _encoded(given: object) -> bytes:
    """Return the result of a tool as JSON. Raises ToolError."""
    failures = (PydanticSerializationError, TypeError, ValueError, RecursionError)
    with suppress(*failures):
        return to_json(given, inf_nan_mode="null")
    try:
        # it may have lone surrogates
        return to_json(replace_surrogates_in(given), inf_nan_mode="null")
    except failures as error:
        kind = type(given).__name__
        raise ToolError(f"The tool gave a {kind}, which is not JSON.") from error


def refusal_answer(answer: CallAnswer, words: str) -> CallAnswer:
    """Return the answer to post instead of one that the server has refused with these words."""
    text = f"The answer was refused: {words}"
    if isinstance(answer, Decided):
        return Decided(answer.call_id, answer.name, approved=False, reason=text)
    return ToolAnswer(answer.call_id, answer.name, text, is_error=True)


def _is_deeper(value: JsonValue, levels: int) -> bool:
    inside: list[JsonValue] = [value]
    for _ in range(levels + 1):
        lists = [
            each if isinstance(each, list) else [*each.values()]
            for each in inside
            if isinstance(each, list | dict)
        ]
        if not lists:
            return False
        inside = [each for values in lists for each in values]
    return True


def _failed(call: OwedCall, text: str) -> CallAnswer:
    if call.kind == "approval":
        return _denied(call, text)
    return ToolAnswer(call.id, call.name, text, is_error=True)


def _denied(call: OwedCall, reason: str, *, always: bool = False) -> Decided:
    return Decided(call.id, call.name, approved=False, reason=reason, always=always)
