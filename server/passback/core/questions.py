"""`ask_user`: the built-in client tool by which the agent asks a person. Its schema, and what fits as an answer. Pure."""

from collections.abc import Sequence
from typing import Annotated, Final, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError
from pydantic.alias_generators import to_camel
from pydantic_core import from_json

from passback.core.errors import InvalidAnswer
from passback.core.messages import Content, DataPart, ToolMessage, ToolSpec
from passback.core.text import plain_problem

_Text: TypeAlias = Annotated[str, Field(min_length=1, max_length=4000)]
_Label: TypeAlias = Annotated[str, Field(min_length=1, max_length=400)]


class _Shape(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, alias_generator=to_camel)


class Option(_Shape):
    label: _Label
    description: _Text = ""


class Question(_Shape):
    """With options: one of them, or several if `multiple`; `free_text` says whether words of one's own are fine, too."""

    question: _Text
    options: Annotated[list[Option], Field(max_length=20)] = []
    multiple: bool = False
    free_text: bool = True


class Questions(_Shape):
    """The arguments of a call of `ask_user`."""

    questions: Annotated[list[Question], Field(min_length=1, max_length=10)]


class Answer(_Shape):
    """To one question; neither options nor words: it was skipped."""

    selected: Annotated[list[_Label], Field(max_length=20)] = []
    text: Annotated[str, Field(max_length=100_000)] = ""


class Answers(_Shape):
    """The result of a call of `ask_user`: an answer for each question, in their order."""

    answers: Annotated[list[Answer], Field(max_length=10)]


ASK_USER: Final = ToolSpec(
    "ask_user",
    "Ask the user, who sees the questions as a form. Use it when you cannot go on without knowing; offer options where "
    "you can. The answers come in the order of the questions; an empty one was skipped.",
    {
        "type": "object",
        "properties": {
            "questions": {
                "type": "array",
                "minItems": 1,
                "maxItems": 10,
                "items": {
                    "type": "object",
                    "properties": {
                        "question": {"type": "string", "minLength": 1, "maxLength": 4000},
                        "options": {
                            "type": "array",
                            "maxItems": 20,
                            "description": "Each with a label of its own.",
                            "items": {
                                "type": "object",
                                "properties": {
                                    "label": {"type": "string", "minLength": 1, "maxLength": 400},
                                    "description": {
                                        "type": "string",
                                        "minLength": 1,
                                        "maxLength": 4000,
                                    },
                                },
                                "required": ["label"],
                                "additionalProperties": False,
                            },
                        },
                        "multiple": {
                            "type": "boolean",
                            "description": "Several options may be chosen. Default: false.",
                        },
                        "freeText": {
                            "type": "boolean",
                            "description": "Words of the user's own are fine, too. Default: true; false only with options.",
                        },
                    },
                    "required": ["question"],
                    "additionalProperties": False,
                },
            }
        },
        "required": ["questions"],
        "additionalProperties": False,
    },
)
"""As the model is told of it; written out, because models read plain schemas best. A test compares it with `Questions`."""


def unanswerable(arguments: str, /) -> str | None:
    """Why nobody could answer the questions of a call well, for the model to read, with the place. None: somebody can."""
    try:
        questions = Questions.model_validate_json(arguments).questions
    except ValidationError as error:
        return _first_of(error, "the arguments")
    flaws = ((number, _flaw(question)) for number, question in enumerate(questions))
    return next((f"at $.questions[{number}].{flaw}" for number, flaw in flaws if flaw), None)


def _flaw(question: Question) -> str | None:
    """What the schema cannot say, and its place in the question."""
    if not (question.options or question.free_text):
        return "freeText: it is false, and there are no options: nothing could be answered"
    seen: set[str] = set()
    for number, option in enumerate(question.options):
        label = " ".join(option.label.split())
        if label in seen:
            return f"options[{number}].label: another option of this question has the same label"
        seen.add(label)
    return None


def refuse_unfit(arguments: str, answer: ToolMessage, /) -> None:
    """Return if the questions of a call can be answered so.

    Raises:
        InvalidAnswer: says which answer does not fit, and why.
    """
    if answer.is_error:
        return  # the user would not say
    questions = Questions.model_validate_json(arguments).questions
    answers = _read(answer.content, len(questions))
    if len(answers) != len(questions):
        raise InvalidAnswer(f"there are {len(questions)} questions and {len(answers)} answers")
    for position, (question, given) in enumerate(zip(questions, answers, strict=True)):
        if problem := _problem(question, given):
            raise InvalidAnswer(f"answers.{position}: {problem}")


def _read(content: Content, asked: int) -> Sequence[Answer]:
    match content:
        case str() if (parsed := _as_json(content)) is not None:
            given: JsonValue = parsed
        case str() if asked == 1:
            given = {"answers": [{"text": content}]}
        case str():
            raise InvalidAnswer("a text answers one question; here are more")
        case (DataPart(given),):
            pass
        case _:
            raise InvalidAnswer('questions are answered by {"answers": [...]}, or one by a text')
    try:
        return Answers.model_validate(given).answers
    except ValidationError as error:
        raise InvalidAnswer(_first_of(error, "the answer")) from None


def _first_of(error: ValidationError, whole: str) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(str(step) for step in first["loc"]) or whole
    return f"{place}: {plain_problem(first)}"


def _as_json(text: str) -> JsonValue:
    """The answers that a text is, for clients that can post nothing else. None: it is words."""
    try:
        value: JsonValue = from_json(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) and "answers" in value else None


def _problem(question: Question, answer: Answer) -> str | None:
    labels = [option.label for option in question.options]
    if any(label not in labels for label in answer.selected):
        return "what is selected is none of the options"
    if len(answer.selected) > 1 and not question.multiple:
        return "only one option can be selected"
    if len(set(answer.selected)) < len(answer.selected):
        return "an option is selected twice"
    words_are_fine = not labels or question.free_text
    if answer.text and not words_are_fine and (answer.selected or answer.text not in labels):
        return "only options can be chosen here"
    return None
