"""Judge a turn: its calls have to fit and be permitted, its answer has to be what was asked for."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

from passback.core.events import OutputAccepted
from passback.core.messages import (
    UNNAMED,
    ConversationKey,
    JsonObject,
    Message,
    RunRef,
    SystemMessage,
    ToolCall,
    ToolSpec,
    as_text,
)
from passback.core.permissions import (
    LastingIndex,
    Permission,
    Rule,
    declaration_digest,
)
from passback.core.ports import ArgumentCheck
from passback.core.questions import ASK_USER, find_question_flaw
from passback.core.state import State
from passback.core.text import bare_json, read_json, replace_surrogates
from passback.core.transcript import NOT_ACCEPTED, schema_of_answer
from passback.core.values import value
from passback.engine.assembler import InvalidCall, ModelTurn
from passback.engine.guarding import CallBroken, CallLate, call_function, guarded
from passback.engine.toolbox import GONE, Toolbox

PERMISSION_TIMEOUT = 30.0  # that the rules may take to judge one call

_UNKNOWN = Permission("deny", "whether it may be called could not be found out")
_LATE = Permission("deny", "whether it may be called was not found out in time")

_Verdict: TypeAlias = InvalidCall | ToolCall | None
"""A call that is not made; one that a person is asked about, marked so; None: it is made."""


@value
class CallJudge:
    """Judges the calls of whole turns.

    Args:
        check: checks the arguments of client calls before the client sees that they are complete,
            and of calls that a person is asked about; other server tools check their own. None: any
            JSON object fits.
        rules: the first rule with an opinion decides whether a server tool may be called; else the
            tool decides.
        seconds: time that the rules have for one call; after that it is denied.
    """

    check: ArgumentCheck | None = None
    rules: Sequence[Rule] = ()
    seconds: float = PERMISSION_TIMEOUT

    async def judge_turn(
        self, turn: ModelTurn, toolbox: Toolbox, run: RunRef, lasting: LastingIndex
    ) -> ModelTurn:
        """Return the turn with refused calls invalid, and with the calls for a person marked."""
        refused: list[InvalidCall] = []
        marked: list[ToolCall] = []
        for call in turn.client:
            spec = toolbox.client_tool(call)
            if objection := await self._objection_to_arguments(call, spec, run):
                refused.append(_invalid_call(call, objection))
            elif spec == ASK_USER:
                marked.append(replace(call, asks="question"))
        for call in turn.server:
            verdict = await self._judge_server_call(call, toolbox, run, lasting)
            if isinstance(verdict, InvalidCall):
                refused.append(verdict)
            elif verdict is not None:
                marked.append(verdict)
        return turn.judged(refused, marked) if refused or marked else turn

    async def _judge_server_call(
        self, call: ToolCall, toolbox: Toolbox, run: RunRef, lasting: LastingIndex
    ) -> _Verdict:
        permission = await self._call_permission(call, toolbox, run)
        if permission.decision == "deny":
            return _denied_call(call, permission)
        # who said never also means calls that nobody would have asked about
        if never := lasting.denials.get(call.name):
            said = f" The user says: {never.reason}" if never.reason else ""
            reason = f"the user allows no call of this tool in this conversation.{said}"
            return _denied_call(call, Permission("deny", reason))
        if permission.decision == "allow":
            return None
        spec = toolbox.server_tool(call)
        digest = declaration_digest(spec)
        if (call.name, digest) in lasting.approvals:
            return None
        # nobody is asked about a call that could not be made
        if objection := await self._objection_to_arguments(call, spec, run):
            return _invalid_call(call, objection)
        reason = permission.reason or f"The agent wants to call {call.name}."
        return replace(call, asks="approval", reason=reason, digest=digest)

    async def denial_reason(self, call: ToolCall, toolbox: Toolbox, run: RunRef) -> str | None:
        """Return why a call that a person has approved is denied all the same, or None: rules and
        tools may have changed since.
        """
        known = toolbox.known_tool(call.name)
        if known is None or known.executor != "server":
            return _denial_text(GONE)
        permission = await self._call_permission(call, toolbox, run)
        return _denial_text(permission) if permission.decision == "deny" else None

    async def _objection_to_arguments(
        self, call: ToolCall, spec: ToolSpec, run: RunRef
    ) -> str | None:
        unfit = None if self.check is None else await self.check(spec, call.arguments, run.key)
        if unfit:
            return f"the arguments do not fit the tool's schema: {unfit}"
        flaw = find_question_flaw(call.arguments) if spec == ASK_USER else None
        return f"nobody could answer these questions: {flaw}" if flaw else None

    async def _call_permission(self, call: ToolCall, toolbox: Toolbox, run: RunRef) -> Permission:
        ids = {"run_id": run.run_id, "call_id": call.id}
        try:
            with guarded("permission", ids, self.seconds, done="judged"):
                for rule in self.rules:
                    said = await call_function(rule, call, run)
                    if said is not None:
                        return said if isinstance(said, Permission) else Permission(said)
                return toolbox.permission(call)
        except CallLate:
            return _LATE
        except CallBroken:  # what cannot be judged is not made
            return _UNKNOWN


def _invalid_call(call: ToolCall, objection: str) -> InvalidCall:
    return InvalidCall(call, f"Not executed: {objection}", announced=True)


def _denied_call(call: ToolCall, permission: Permission) -> InvalidCall:
    return InvalidCall(call, _denial_text(permission), announced=True, synthetic="denied")


def _denial_text(permission: Permission) -> str:
    return f"Not executed: {permission.reason or 'this tool may not be called'}"


_ANSWER_LENGTH = 1024 * 1024  # characters of an answer: parsing more would block the event loop

_SCHEMA_NAME = "output"  # of the tool whose schema stands for the output's

_OBJECTION_LENGTH = 4_000  # characters of an objection by the agent's author

ANSWER_CHECK_TIMEOUT = 10.0  # that the check of the agent's author may take

AnswerCheck: TypeAlias = Callable[[str], str | None]
"""What is wrong with an answer, a JSON object, in words for the model. None: nothing."""


@value
class OutputJudge:
    """Judges the turns that would end a run.

    Args:
        check: checks whether a JSON text fits a schema. None: any JSON object fits.
        schema: schema of answers for posts without one; None: answers are free.
        author_check: a further check of answers that fit `schema`; runs in a thread.
        seconds: time that `author_check` may take.
    """

    check: ArgumentCheck | None = None
    schema: JsonObject | None = None
    author_check: AnswerCheck | None = None
    seconds: float = ANSWER_CHECK_TIMEOUT

    async def judge_answer(
        self, turn: ModelTurn, messages: Sequence[Message], state: State, key: ConversationKey
    ) -> OutputAccepted | SystemMessage | None:
        """Return the output of a turn without calls, or the message by which the model learns that
        its answer is refused.

        Return None if there is no output: none was asked for, or the model refused to answer.
        """
        posted = schema_of_answer(messages, state.output_schema)
        schema = self.schema if posted is None else posted
        if schema is None or turn.finish == "refusal":
            return None
        if turn.finish == "length":
            return _refusal_message("it was cut off because it is too long; make it shorter")
        text = bare_json(as_text(turn.message.content, media=str))
        value = read_json(text) if len(text) <= _ANSWER_LENGTH else None
        if not isinstance(value, dict):
            return _refusal_message("it is not a JSON object")
        declared = ToolSpec(_SCHEMA_NAME, "", schema)
        if self.check is not None and (objection := await self.check(declared, text, key)):
            return _refusal_message(objection)
        # the author's check belongs to the author's schema, not to one that a post brings
        if posted is None and (objection := await self._own_objection(text)):
            return _refusal_message(objection)
        return OutputAccepted(value)

    async def _own_objection(self, text: str) -> str | None:
        if self.author_check is None:
            return None
        try:
            with guarded("output", {}, self.seconds, done="validated"):
                said: str | None = await call_function(self.author_check, text)
        except CallLate:
            return f"it could not be validated within {self.seconds:g} s"
        except CallBroken as broken:
            return f"it could not be validated: {broken}"
        return None if said is None else replace_surrogates(said)[:_OBJECTION_LENGTH]


def _refusal_message(reason: str) -> SystemMessage:
    text = (
        f"{NOT_ACCEPTED}{reason}\nAnswer again, with nothing but JSON that fits the output schema."
    )
    return SystemMessage(UNNAMED, text, synthetic="invalid")
