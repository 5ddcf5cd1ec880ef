"""Questions of the agent to its user, by the tool `ask_user`, whose schema the server knows."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias, cast

from pydantic import JsonValue

from passback_client.events import JsonObject
from passback_client.fields import objects, optional_text, text
from passback_client.tools import Tool, ToolContext, ToolError, invoke, is_async

ASK_USER = "ask_user"
_TEXT_CHARS = 100_000
"""The server's limit."""


@dataclass(frozen=True, slots=True)
class Option:
    """A choice; `label` is what a `Reply` names."""

    label: str
    description: str = ""


@dataclass(frozen=True, slots=True)
class Question:
    """A question of the agent.

    Attributes:
        question: its text.
        options: to choose from; if there are none, the answer is a text.
        multiple: whether several options may be chosen.
        free_text: whether a text may be given instead of options, or beside them.
        header: a short title; empty if it has none.
    """

    question: str
    options: tuple[Option, ...] = ()
    multiple: bool = False
    free_text: bool = True
    header: str = ""


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to one question; an empty one skips it.

    Attributes:
        selected: labels of options.
        text: in the user's own words.
    """

    selected: tuple[str, ...] = ()
    text: str | None = None


AskUser: TypeAlias = Callable[[Sequence[Question]], Sequence[Reply] | Awaitable[Sequence[Reply]]]
"""Returns one reply per question, in order; raises `ToolError` if the user declines to answer."""


def questions_tool(ask: AskUser) -> Tool:
    """Return the tool that asks by this function, plain (it runs in a thread) or async."""

    async def execute(arguments: JsonObject, _: ToolContext) -> JsonObject:
        questions = [_question(each) for each in objects(arguments, "questions")]
        given = await invoke(lambda: ask(questions), is_async=is_async(ask))
        return {"answers": _answers(questions, given)}

    return Tool(ASK_USER, "", None, execute)


def _question(fields: JsonObject) -> Question:
    options = objects(fields, "options") if fields.get("options") else ()
    return Question(
        text(fields, "question"),
        tuple(Option(text(e, "label"), optional_text(e, "description") or "") for e in options),
        multiple=fields.get("multiple") is True,
        free_text=fields.get("freeText") is not False,
        header=optional_text(fields, "header") or "",
    )


def _answers(questions: Sequence[Question], given: object) -> list[JsonValue]:
    """Check the replies: the server would refuse a bad one, and all results posted with it."""
    if not isinstance(given, list | tuple):
        raise ToolError(f"The questions were answered by a {type(given).__name__}.")
    replies = cast("Sequence[object]", given)
    if len(replies) != len(questions):
        raise ToolError(f"{len(questions)} questions got {len(replies)} answers.")
    return [_answer(*pair) for pair in zip(questions, replies, strict=True)]


def _answer(question: Question, given: object) -> JsonObject:
    if not isinstance(given, Reply):
        raise ToolError(f"A question was answered by a {type(given).__name__}.")
    if problem := _problem(question, given):
        raise ToolError(f"The answer to {question.question!r} does not fit: {problem}.")
    answer: JsonObject = {"selected": [*given.selected]} if given.selected else {}
    return answer if given.text is None else answer | {"text": given.text}


def _problem(question: Question, reply: Reply) -> str:
    labels = {option.label for option in question.options}
    if strange := [label for label in reply.selected if label not in labels]:
        return f"there is no option {strange[0]!r}"
    if len(reply.selected) != len(set(reply.selected)):
        return "an option is there twice"
    if len(reply.selected) > 1 and not question.multiple:
        return "only one option can be chosen"
    return _problem_of_text(question, reply.text or "")


def _problem_of_text(question: Question, text: str) -> str:
    if len(text) > _TEXT_CHARS:
        return "it is too long"
    labels = {"", *(option.label for option in question.options)}
    if question.options and not question.free_text and text not in labels:
        return "only options can be chosen"
    return ""
