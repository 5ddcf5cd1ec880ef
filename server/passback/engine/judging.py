"""Which calls of a turn are made: arguments have to fit, and server tools need permission."""

from collections.abc import Collection, Sequence
from dataclasses import replace

from passback.core.messages import RunRef, ToolCall, ToolSpec
from passback.core.permissions import Permission, Rule
from passback.core.ports import ArgumentCheck
from passback.core.questions import ASK_USER, unanswerable
from passback.core.values import value
from passback.engine.assembler import InvalidCall, Turn
from passback.engine.calling import CallBroken, CallLate, boundary, called
from passback.engine.toolbox import Toolbox

SECONDS = 30.0
"""How long the rules may take to judge one call."""

_GONE = Permission("deny", "there is no such tool any more")
_UNKNOWN = Permission("deny", "whether it may be called could not be found out")
_LATE = Permission("deny", "whether it may be called was not found out in time")


@value
class Judge:
    """Judges the calls of whole turns.

    Args:
        check: judges the arguments of client tools' calls before the client sees that they are complete, and of calls that
            a person is asked about; other server tools judge their own. None: whatever is a JSON object fits.
        rules: the first that has an opinion says whether a server tool may be called; else the tool itself does.
        seconds: how long they may take for one call; after that it is denied.
    """

    check: ArgumentCheck | None = None
    rules: Sequence[Rule] = ()
    seconds: float = SECONDS

    async def judge(
        self, turn: Turn, toolbox: Toolbox, run: RunRef, allowed: Collection[str]
    ) -> Turn:
        """The same turn; its refused calls are invalid, and those marked that a person is asked about.

        Of tools in `allowed` a person has allowed all calls.
        """
        refused: list[InvalidCall] = []
        marked: list[ToolCall] = []
        for call in turn.client:
            spec = toolbox.client_tool(call)
            if objection := await self._objection(call, spec, run):
                refused.append(_invalid(call, objection))
            elif spec == ASK_USER:
                marked.append(replace(call, asks="question"))
        for call in turn.server:
            permission = await self._permission(call, toolbox, run)
            if permission.decision == "deny":
                text = _denial(permission)
                refused.append(InvalidCall(call, text, announced=True, synthetic="denied"))
            elif permission.decision == "ask" and call.name not in allowed:
                # nobody is asked about a call that could not be made
                if objection := await self._objection(call, toolbox.server_tool(call), run):
                    refused.append(_invalid(call, objection))
                    continue
                reason = permission.reason or f"The agent wants to call {call.name}."
                marked.append(replace(call, asks="approval", reason=reason))
        return turn.judged(refused, marked) if refused or marked else turn

    async def denial(self, call: ToolCall, toolbox: Toolbox, run: RunRef) -> str | None:
        """Why a call that a person has allowed is not made all the same: rules and tools may have changed since."""
        if toolbox.whose(call.name) != "server":
            return _denial(_GONE)
        permission = await self._permission(call, toolbox, run)
        return _denial(permission) if permission.decision == "deny" else None

    async def _objection(self, call: ToolCall, spec: ToolSpec, run: RunRef) -> str | None:
        unfit = None if self.check is None else await self.check(spec, call.arguments, run.key)
        if unfit:
            return f"the arguments do not fit the tool's schema: {unfit}"
        flaw = unanswerable(call.arguments) if spec == ASK_USER else None
        return f"nobody could answer these questions: {flaw}" if flaw else None

    async def _permission(self, call: ToolCall, toolbox: Toolbox, run: RunRef) -> Permission:
        ids = {"run_id": run.run_id, "call_id": call.id}
        try:
            with boundary("permission", ids, self.seconds, done="judged"):
                opinion = await self._opinion(call, run)
                return toolbox.permission(call) if opinion is None else opinion
        except CallLate:
            return _LATE
        except CallBroken:  # what cannot be judged is not made
            return _UNKNOWN

    async def _opinion(self, call: ToolCall, run: RunRef) -> Permission | None:
        for rule in self.rules:
            said = await called(rule, call, run)
            if said is not None:
                return said if isinstance(said, Permission) else Permission(said)
        return None


def _invalid(call: ToolCall, objection: str) -> InvalidCall:
    return InvalidCall(call, f"Not executed: {objection}", announced=True)


def _denial(permission: Permission) -> str:
    return f"Not executed: {permission.reason or 'this tool may not be called'}"
