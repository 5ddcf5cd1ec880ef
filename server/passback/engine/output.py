"""Structured output: check whether a run's last answer is what was asked for."""

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
from passback.core.text import replace_surrogates
from passback.core.transcript import NOT_ACCEPTED, schema_of_answer
from passback.core.values import value
from passback.engine.assembler import ModelTurn
from passback.engine.guarding import CallBroken, CallLate, call_function, guarded

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

    def requested_schema(self, messages: Sequence[Message], state: State) -> JsonObject | None:
        """Return the schema that the answer to a transcript has to fit. None: it is free."""
        posted = schema_of_answer(messages, state.output_schema)
        return self.schema if posted is None else posted

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
        text = _without_fence(as_text(turn.message.content, media=str))
        value = _read_json(text)
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


def _without_fence(text: str) -> str:
    """Return a text without the Markdown fence that many models put around JSON."""
    text = text.strip()
    first, _, rest = text.partition("\n")
    if first.startswith("```") and rest.endswith("```"):
        return rest.removesuffix("```").strip()
    return text


def _read_json(text: str) -> JsonValue:
    if len(text) > _ANSWER_LENGTH:
        return None
    try:
        value: JsonValue = from_json(text, allow_inf_nan=False)
    except ValueError:
        return None
    return value


def _refusal_message(reason: str) -> SystemMessage:
    text = (
        f"{NOT_ACCEPTED}{reason}\nAnswer again, with nothing but JSON that fits the output schema."
    )
    return SystemMessage(new_message_id(), text, synthetic="invalid")
