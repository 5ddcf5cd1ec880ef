"""Which calls of a turn are made: arguments have to fit, and server tools need permission."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

from passback.core.messages import RunRef, ToolCall, ToolSpec
from passback.core.permissions import (
    Lasting,
    LastingPermission,
    Permission,
    Rule,
    declaration_digest,
)
from passback.core.ports import ArgumentCheck
from passback.core.questions import ASK_USER, unanswerable
from passback.core.values import value
from passback.engine.assembler import InvalidCall, ModelTurn
from passback.engine.guarding import CallBroken, CallLate, call_function, guarded
from passback.engine.toolbox import Toolbox

SECONDS = 30.0
"""How long the rules may take to judge one call."""

_GONE = Permission("deny", "there is no such tool any more")
_UNKNOWN = Permission("deny", "whether it may be called could not be found out")
_LATE = Permission("deny", "whether it may be called was not found out in time")

_Verdict: TypeAlias = InvalidCall | ToolCall | None
"""A call that is not made; one that a person is asked about, marked so; None: it is made."""


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
        self, turn: ModelTurn, toolbox: Toolbox, run: RunRef, lasting: Lasting
    ) -> ModelTurn:
        """The same turn; its refused calls are invalid, and those marked that a person is asked about."""
        refused: list[InvalidCall] = []
        marked: list[ToolCall] = []
        verdicts = [await self._of_client(call, toolbox, run) for call in turn.client]
        verdicts += [await self._of_server(call, toolbox, run, lasting) for call in turn.server]
        for verdict in verdicts:
            if isinstance(verdict, InvalidCall):
                refused.append(verdict)
            elif verdict is not None:
                marked.append(verdict)
        return turn.judged(refused, marked) if refused or marked else turn

    async def _of_client(self, call: ToolCall, toolbox: Toolbox, run: RunRef) -> _Verdict:
        spec = toolbox.client_tool(call)
        if objection := await self._objection(call, spec, run):
            return _invalid(call, objection)
        return replace(call, asks="question") if spec == ASK_USER else None

    async def _of_server(
        self, call: ToolCall, toolbox: Toolbox, run: RunRef, lasting: Lasting
    ) -> _Verdict:
        permission = await self._permission(call, toolbox, run)
        if permission.decision == "deny":
            return _denied(call, permission)
        # who said never also means calls that nobody would have asked about
        if never := lasting.denials.get(call.name):
            return _denied(call, _never(never))
        if permission.decision == "allow":
            return None
        spec = toolbox.server_tool(call)
        digest = declaration_digest(spec)
        if (call.name, digest) in lasting.approvals:
            return None
        # nobody is asked about a call that could not be made
        if objection := await self._objection(call, spec, run):
            return _invalid(call, objection)
        reason = permission.reason or f"The agent wants to call {call.name}."
        return replace(call, asks="approval", reason=reason, digest=digest)

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
            with guarded("permission", ids, self.seconds, done="judged"):
                opinion = await self._opinion(call, run)
                return toolbox.permission(call) if opinion is None else opinion
        except CallLate:
            return _LATE
        except CallBroken:  # what cannot be judged is not made
            return _UNKNOWN

    async def _opinion(self, call: ToolCall, run: RunRef) -> Permission | None:
        for rule in self.rules:
            said = await call_function(rule, call, run)
            if said is not None:
                return said if isinstance(said, Permission) else Permission(said)
        return None


def _invalid(call: ToolCall, objection: str) -> InvalidCall:
    return InvalidCall(call, f"Not executed: {objection}", announced=True)


def _denied(call: ToolCall, permission: Permission) -> InvalidCall:
    return InvalidCall(call, _denial(permission), announced=True, synthetic="denied")


def _never(answered: LastingPermission) -> Permission:
    said = f" The user says: {answered.reason}" if answered.reason else ""
    return Permission("deny", f"the user allows no call of this tool in this conversation.{said}")


def _denial(permission: Permission) -> str:
    return f"Not executed: {permission.reason or 'this tool may not be called'}"
