"""Approvals of calls, of the server's tools and of the client's."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

import anyio

from passback_client.events import JsonObject
from passback_client.tools import invoke, is_async

_REMEMBERED = 10_000
"""Number of permanent decisions that are kept; for older ones `approve` is asked again."""


@dataclass(frozen=True, slots=True)
class Approval:
    """A call that waits for approval.

    Attributes:
        id: of the call, which is the interrupt's id, too.
        name: of the tool.
        arguments: as the model made them.
        conversation_id: whose call it is.
        reason: the server's reason, for the person; may be empty.
        server: whether it is a tool of the server.
    """

    id: str
    name: str
    arguments: JsonObject
    conversation_id: str
    reason: str = ""
    server: bool = False


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer of `approve`.

    Attributes:
        approved: whether the call is made.
        reason: of a denial, for the model.
        always: whether it holds for further calls of the tool in this conversation.
    """

    approved: bool
    reason: str = ""
    always: bool = False


Verdict: TypeAlias = bool | str | Decision
"""True allows the call; False denies it, and so does a text with the reason."""

Approve: TypeAlias = Callable[[Approval], Verdict | Awaitable[Verdict]]
"""Asked before calls that need it, for one call at a time. Plain (it runs in a thread) or async."""


class Approver:
    """Asks `approve`, and keeps permanent decisions on the client's tools; the server keeps its
    own.
    """

    def __init__(self, approve: Approve, remembered: int = _REMEMBERED) -> None:
        self._approve = approve
        self._remembered = remembered
        self._one_at_a_time = anyio.Lock()
        self._always: dict[tuple[str, str], Decision] = {}

    async def decide(self, approval: Approval) -> Decision:
        """Ask for a decision; `approve` may raise, and a result of another type is a denial."""
        tool = (approval.conversation_id, approval.name)
        async with self._one_at_a_time:
            if not approval.server and tool in self._always:
                return self._always[tool]
            given = await invoke(lambda: self._approve(approval), is_async=is_async(self._approve))
        decision = _decision(given)
        if decision.always and not approval.server:
            self._always[tool] = decision
            if len(self._always) > self._remembered:
                del self._always[next(iter(self._always))]
        return decision


def interrupt_answer(interrupt_id: str, decision: Decision) -> JsonObject:
    """Return the decision as it is posted."""
    payload: JsonObject = {"approved": decision.approved}
    if decision.always:
        payload["always"] = True
    if decision.reason and not decision.approved:
        payload["reason"] = decision.reason
    return {"interruptId": interrupt_id, "payload": payload}


def _decision(given: object) -> Decision:
    if isinstance(given, Decision):
        return given
    if isinstance(given, str):
        return Decision(approved=False, reason=given)
    return Decision(approved=given is True)
