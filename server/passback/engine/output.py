"""Structured output: whether a run's last word is what was asked for. Nothing else becomes its output."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from pydantic import JsonValue
from pydantic_core import from_json

from passback.core.events import OutputAccepted
from passback.core.ids import new_message_id
from passback.core.messages import (
    ConversationKey,
    JsonObject,
    Message,
    SystemMessage,
    ToolSpec,
    as_text,
)
from passback.core.ports import ArgumentCheck
from passback.core.state import State
from passback.core.text import mended
from passback.core.transcript import NOT_ACCEPTED, schema_of
from passback.core.values import value
from passback.engine.assembler import ModelTurn
from passback.engine.guarding import CallBroken, CallLate, call_function, guarded

_ANSWERS = 1024 * 1024
"""Characters of an answer: more would hold up the event loop while it is read."""

_NAME = "output"

_WORDS = 4_000
"""Characters of an objection of the author's."""

SECONDS = 10.0

AnswerCheck: TypeAlias = Callable[[str], str | None]
"""What is wrong with an answer, a JSON object, in words for the model. None: nothing."""


@value
class OutputJudge:
    """Judges the turns that would end a run.

    Args:
        check: whether a JSON text fits a schema. None: whatever is a JSON object fits.
        schema: what answers have to fit where a post does not say it; None: they are free.
        own: what the agent's author says besides of an answer that has to fit `schema`, and does; in a thread.
        seconds: how long that may take.
    """

    check: ArgumentCheck | None = None
    schema: JsonObject | None = None
    own: AnswerCheck | None = None
    seconds: float = SECONDS

    def asked(self, messages: Sequence[Message], state: State) -> JsonObject | None:
        """What the answer to a transcript has to fit. None: it is free."""
        posted = schema_of(messages, state.output_schema)
        return self.schema if posted is None else posted

    async def judge(
        self, turn: ModelTurn, messages: Sequence[Message], state: State, key: ConversationKey
    ) -> OutputAccepted | SystemMessage | None:
        """The output of a turn without calls, or what the model is told of its answer. None: there is no output.

        A refusal is an answer without output.
        """
        posted = schema_of(messages, state.output_schema)
        schema = self.schema if posted is None else posted
        if schema is None or turn.finish == "refusal":
            return None
        if turn.finish == "length":
            return _refused("it was cut off because it is too long; make it shorter")
        text = _bare(as_text(turn.message.content, media=str))
        value = _read(text)
        if not isinstance(value, dict):
            return _refused("it is not a JSON object")
        if objection := await self._objection(schema, text, key):
            return _refused(objection)
        if posted is None and (objection := await self._own_objection(text)):
            return _refused(objection)
        return OutputAccepted(value)

    async def _objection(self, schema: JsonObject, text: str, key: ConversationKey) -> str | None:
        if self.check is None:
            return None
        return await self.check(ToolSpec(_NAME, "", schema), text, key)

    async def _own_objection(self, text: str) -> str | None:
        if self.own is None:
            return None
        try:
            with guarded("output", {}, self.seconds, done="validated"):
                said: str | None = await call_function(self.own, text)
        except CallLate:
            return f"it could not be validated within {self.seconds:g} s"
        except CallBroken as broken:
            return f"it could not be validated: {broken}"
        return None if said is None else mended(said)[:_WORDS]


def _bare(text: str) -> str:
    """A text without the Markdown fence that many models put around JSON."""
    text = text.strip()
    first, _, rest = text.partition("\n")
    if first.startswith("```") and rest.endswith("```"):
        return rest.removesuffix("```").strip()
    return text


def _read(text: str) -> JsonValue:
    if len(text) > _ANSWERS:
        return None
    try:
        value: JsonValue = from_json(text, allow_inf_nan=False)
    except ValueError:
        return None
    return value


def _refused(reason: str) -> SystemMessage:
    text = (
        f"{NOT_ACCEPTED}{reason}\nAnswer again, with nothing but JSON that fits the output schema."
    )
    return SystemMessage(new_message_id(), text, synthetic="invalid")
